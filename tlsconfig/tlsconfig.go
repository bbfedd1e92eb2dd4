// Package tlsconfig keeps the TLS credentials of a process equal to the files they come from.
//
// Files are read again when they change, also where a change is the swap of a symlink, as Kubernetes
// does with mounted secrets. What cannot be read, or does not fit together, changes nothing: the last
// good credentials stay in use.
package tlsconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Files name PEM files. Certificate and Key go together.
type Files struct {
	// Certificate holds the process's own certificate, followed by its intermediates.
	Certificate, Key string
	// CA holds the authorities that the peer's certificate must come from.
	CA string
}

// Check says whether the files can be used together. It reads none of them.
func (f Files) Check() error {
	if (f.Certificate == "") != (f.Key == "") {
		return errors.New("a certificate file and a key file are needed together, only one is given")
	}
	return nil
}

// DefaultInterval is how often files are looked at for changes.
const DefaultInterval = 5 * time.Second

// maxFileBytes bounds a file that is read: a bundle of all public authorities is a quarter of it.
const maxFileBytes = 1 << 20

// Source gives the credentials that the files hold. Run keeps it up to date.
type Source struct {
	files    Files
	interval time.Duration
	log      *slog.Logger
	current  atomic.Pointer[material]
	failures atomic.Uint64
	seen     contents // what was read last, good or not; only Load and Run use it
}

// material is what the files hold. It is immutable.
type material struct {
	certificate *tls.Certificate // nil if none is configured
	authorities *x509.CertPool   // nil if none are configured
	server      *tls.Config
}

// contents are the files' bytes, or why they could not be read.
type contents struct{ certificate, key, ca, failure string }

// Load reads the files. interval is how often Run looks for changes; 0 means DefaultInterval.
func Load(files Files, interval time.Duration, log *slog.Logger) (*Source, error) {
	if err := files.Check(); err != nil {
		return nil, err
	}
	if interval <= 0 {
		interval = DefaultInterval
	}
	s := &Source{files: files, interval: interval, log: log}
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	return s, nil
}

// Run follows the files until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.reload()
		}
	}
}

// reload takes up the files if they changed. Files that are bad are reported once, until they change
// again: the two files of a pair are seldom replaced in the same instant.
func (s *Source) reload() {
	before := s.seen
	m, err := s.read()
	switch {
	case s.seen == before:
	case err != nil:
		s.failures.Add(1)
		s.log.Error("the TLS files changed and cannot be used; the credentials read before stay in use", "error", err)
	default:
		s.current.Store(m)
		s.log.Info("TLS credentials reloaded", "certificate", s.files.Certificate, "ca", s.files.CA, "expires", m.expires())
	}
}

// read reads the files and remembers what they held.
func (s *Source) read() (*material, error) {
	c, err := s.files.read()
	if err != nil {
		c.failure = err.Error()
	}
	s.seen = c
	if err != nil {
		return nil, err
	}
	return s.files.parse(c)
}

// Failures counts the changes of the files that could not be used.
func (s *Source) Failures() uint64 { return s.failures.Load() }

// Expires is when the certificate in use ends; zero if there is none.
func (s *Source) Expires() time.Time { return s.current.Load().expires() }

func (m *material) expires() time.Time {
	if m.certificate == nil {
		return time.Time{}
	}
	return m.certificate.Leaf.NotAfter
}

// Server returns a server's configuration: TLS 1.2 or later and, if a CA is configured, only clients
// that it knows. Every handshake uses the credentials of its time.
func (s *Source) Server() (*tls.Config, error) {
	if s.files.Certificate == "" {
		return nil, errors.New("a TLS server needs a certificate and a key")
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().server, nil },
	}, nil
}

// client returns the configuration of one handshake. Without a CA the system's authorities count.
func (s *Source) client(serverName string) *tls.Config {
	m := s.current.Load()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: m.authorities, ServerName: serverName}
	if m.certificate != nil {
		config.Certificates = []tls.Certificate{*m.certificate}
	}
	return config
}

func (f Files) read() (c contents, err error) {
	for _, file := range []struct {
		name string
		into *string
	}{{f.Certificate, &c.certificate}, {f.Key, &c.key}, {f.CA, &c.ca}} {
		if *file.into, err = readFile(file.name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// readFile returns what a file holds; nothing if there is no name.
func readFile(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Size() > maxFileBytes {
		return "", fmt.Errorf("read %s: it has %d bytes, at most %d are read", name, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(name)
	return string(data), err
}

func (f Files) parse(c contents) (*material, error) {
	m := &material{}
	if f.CA != "" {
		m.authorities = x509.NewCertPool()
		if !m.authorities.AppendCertsFromPEM([]byte(c.ca)) {
			return nil, fmt.Errorf("read authorities from %s: no PEM block of type CERTIFICATE holds a certificate", f.CA)
		}
	}
	if f.Certificate == "" {
		return m, nil
	}
	pair, err := tls.X509KeyPair([]byte(c.certificate), []byte(c.key))
	if err != nil {
		return nil, fmt.Errorf("use certificate %s with key %s: %w", f.Certificate, f.Key, err)
	}
	m.certificate = &pair
	m.server = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2"},
	}
	if m.authorities != nil {
		m.server.ClientAuth, m.server.ClientCAs = tls.RequireAndVerifyClientCert, m.authorities
	}
	return m, nil
}
