package tlsconfig_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/inferencecache/inferencecache/tlsconfig"
	"github.com/inferencecache/inferencecache/tlsconfig/tlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer is a log that a test may read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// load reads the files and follows them until the test ends.
func load(t *testing.T, files tlsconfig.Files) (*tlsconfig.Source, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	s, err := tlsconfig.Load(files, 5*time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return s, log
}

// serve runs a gRPC server with the credentials and returns its address.
func serve(t *testing.T, s *tlsconfig.Source) string {
	t.Helper()
	config, err := s.Server()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

// call makes one call on a connection of its own.
func call(t *testing.T, address string, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

func TestServerIsVerified(t *testing.T) {
	ca, other := tlstest.NewCA(t), tlstest.NewCA(t)
	server, _ := load(t, ca.Server(t, "127.0.0.1", "aggregator.example"))
	address := serve(t, server)
	for name, c := range map[string]struct {
		creds func() credentials.TransportCredentials
		fails string
	}{
		"a client that knows the authority": {creds: func() credentials.TransportCredentials {
			s, _ := load(t, tlsconfig.Files{CA: ca.File})
			return s.Client("")
		}},
		"a client that wants another name of the certificate": {creds: func() credentials.TransportCredentials {
			s, _ := load(t, tlsconfig.Files{CA: ca.File})
			return s.Client("aggregator.example")
		}},
		"a client that wants a name of another server": {creds: func() credentials.TransportCredentials {
			s, _ := load(t, tlsconfig.Files{CA: ca.File})
			return s.Client("else.example")
		}, fails: "not else.example"},
		"a client that knows another authority": {creds: func() credentials.TransportCredentials {
			s, _ := load(t, tlsconfig.Files{CA: other.File})
			return s.Client("")
		}, fails: "unknown authority"},
		"a client that knows the system's authorities": {creds: func() credentials.TransportCredentials {
			s, _ := load(t, tlsconfig.Files{})
			return s.Client("")
		}, fails: "certificate"},
		"a client without encryption": {creds: insecure.NewCredentials, fails: "Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			err := call(t, address, c.creds())
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("error %v, want %q", err, c.fails)
			}
		})
	}
}

func TestClientsAreVerifiedIfAnAuthorityIsGiven(t *testing.T) {
	ca, clients := tlstest.NewCA(t), tlstest.NewCA(t)
	files := ca.Server(t, "127.0.0.1")
	files.CA = clients.File
	server, _ := load(t, files)
	address := serve(t, server)
	for name, c := range map[string]struct {
		certificate tlsconfig.Files
		served      bool
	}{
		"a certificate of the authority":      {clients.Client(t, "agent"), true},
		"a certificate of another authority":  {ca.Client(t, "agent"), false},
		"no certificate":                      {tlsconfig.Files{}, false},
		"a certificate that is for a server":  {clients.Server(t, "127.0.0.1"), false},
		"a certificate that has expired":      {clients.Expired(t, "agent"), false},
		"another certificate of the same one": {clients.Client(t, "cli"), true},
	} {
		t.Run(name, func(t *testing.T) {
			c.certificate.CA = ca.File
			client, _ := load(t, c.certificate)
			if err := call(t, address, client.Client("")); (err == nil) != c.served {
				t.Errorf("error %v, want served %v", err, c.served)
			}
		})
	}
}

// serial returns the serial number of the certificate that a server shows.
func serial(t *testing.T, address string, roots string) string {
	t.Helper()
	pem, err := os.ReadFile(roots)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestReplacedCertificateIsServedWithoutARestart(t *testing.T) {
	ca := tlstest.NewCA(t)
	files := ca.Server(t, "127.0.0.1")
	server, log := load(t, files)
	address := serve(t, server)
	first := serial(t, address, ca.File)

	next := ca.Server(t, "127.0.0.1")
	tlstest.Copy(t, next.Certificate, files.Certificate)
	await(t, "the half that was replaced to be noticed", func() bool { return server.Failures() > 0 })
	if got := serial(t, address, ca.File); got != first {
		t.Errorf("serial %s with half a pair, want the one before, %s", got, first)
	}
	tlstest.Copy(t, next.Key, files.Key)
	await(t, "the new certificate", func() bool { return serial(t, address, ca.File) != first })
	if n := log.count("cannot be used"); n != 1 {
		t.Errorf("the half pair was logged %d times, want once", n)
	}
}

func TestFilesThatGoAwayLeaveTheLastGoodOnes(t *testing.T) {
	ca := tlstest.NewCA(t)
	files := ca.Server(t, "127.0.0.1")
	server, log := load(t, files)
	address := serve(t, server)
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	await(t, "the loss to be noticed", func() bool { return server.Failures() > 0 })
	serial(t, address, ca.File)
	if log.count("no such file") == 0 {
		t.Error("the log does not say what is missing")
	}
	if server.Expires().IsZero() {
		t.Error("no end of the certificate in use")
	}
}

func TestMountedSecretIsFollowedThroughItsSymlink(t *testing.T) {
	ca := tlstest.NewCA(t)
	dir := t.TempDir()
	version := func(name string) {
		made := ca.Server(t, "127.0.0.1")
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		tlstest.Copy(t, made.Certificate, filepath.Join(dir, name, "tls.crt"))
		tlstest.Copy(t, made.Key, filepath.Join(dir, name, "tls.key"))
		if err := errors.Join(
			os.Symlink(name, filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")),
		); err != nil {
			t.Fatal(err)
		}
	}
	version("..1")
	server, _ := load(t, tlsconfig.Files{
		Certificate: filepath.Join(dir, "..data", "tls.crt"), Key: filepath.Join(dir, "..data", "tls.key"),
	})
	address := serve(t, server)
	first := serial(t, address, ca.File)
	version("..2")
	await(t, "the new certificate", func() bool { return serial(t, address, ca.File) != first })
}

func TestClientFollowsItsFilesToo(t *testing.T) {
	ca, next := tlstest.NewCA(t), tlstest.NewCA(t)
	server, _ := load(t, next.Server(t, "127.0.0.1"))
	address := serve(t, server)
	client, _ := load(t, tlsconfig.Files{CA: ca.File})
	creds := client.Client("")
	if err := call(t, address, creds); err == nil {
		t.Fatal("a server of an unknown authority is trusted")
	}
	tlstest.Copy(t, next.File, ca.File)
	await(t, "the new authority to be trusted", func() bool { return call(t, address, creds.Clone()) == nil })
}

func TestOldProtocolVersionsAreRefused(t *testing.T) {
	ca := tlstest.NewCA(t)
	server, _ := load(t, ca.Server(t, "127.0.0.1"))
	address := serve(t, server)
	_, err := tls.Dial("tcp", address, &tls.Config{
		MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true,
	})
	if err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("error %v", err)
	}
}

func TestFilesThatCannotBeUsedAreRefused(t *testing.T) {
	ca := tlstest.NewCA(t)
	good, other := ca.Server(t, "127.0.0.1"), ca.Server(t, "127.0.0.1")
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files tlsconfig.Files
		want  string
	}{
		"a certificate alone":             {tlsconfig.Files{Certificate: good.Certificate}, "needed together"},
		"a key alone":                     {tlsconfig.Files{Key: good.Key}, "needed together"},
		"a key of another certificate":    {tlsconfig.Files{Certificate: good.Certificate, Key: other.Key}, "private key does not match"},
		"a file that is not there":        {tlsconfig.Files{CA: filepath.Join(t.TempDir(), "none")}, "no such file"},
		"authorities that are a key":      {tlsconfig.Files{CA: good.Key}, "no PEM block of type CERTIFICATE"},
		"a file that is no credential":    {tlsconfig.Files{CA: big}, "at most 1048576"},
		"a certificate that is not there": {tlsconfig.Files{Certificate: "none", Key: good.Key}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tlsconfig.Load(c.files, 0, slog.Default())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	client, _ := load(t, tlsconfig.Files{CA: ca.File})
	if _, err := client.Server(); err == nil {
		t.Error("a server without a certificate is accepted")
	}
}
