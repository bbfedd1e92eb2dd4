package probe_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/inferencecache/inferencecache/aggregator/probe"
	"github.com/inferencecache/inferencecache/hack/loopback"
)

// startRedis runs a Redis server until the test ends and returns its address.
func startRedis(t *testing.T, password string) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed here: hack/deps.sh test installs it")
	}
	listener, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close() // for the server to take
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program, "--bind", host, "--port", port, "--save", "", "--appendonly", "no",
		"--dir", t.TempDir(), "--requirepass", password)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // killed
	})
	client := redis.NewClient(&redis.Options{Addr: address, Password: password})
	defer client.Close()
	for end := time.Now().Add(time.Minute); client.Ping(t.Context()).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("redis-server does not answer: %v", client.Ping(t.Context()).Err())
		}
	}
	return address
}

func newRedis(t *testing.T, config probe.RedisConfig) *probe.Redis {
	t.Helper()
	r := probe.NewRedis(config)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func TestRealRedisKeepsWhatItIsGiven(t *testing.T) {
	address := startRedis(t, "")
	h := newHandlers()
	resp, err := probe.New(h, h.index, newRedis(t, probe.RedisConfig{Address: address})).Probe(t.Context(), request)
	if err != nil || resp.T2 != "ok" {
		t.Fatalf("response %+v, error %v", resp, err)
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func TestProbesOfOneStoreDoNotMeet(t *testing.T) {
	address := startRedis(t, "")
	var aggregators sync.WaitGroup
	for range 4 {
		r := newRedis(t, probe.RedisConfig{Address: address})
		aggregators.Go(func() {
			for range 20 {
				if err := r.PutGet(t.Context(), "name", []byte("value")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	aggregators.Wait()
}

func TestPasswordComesFromItsFileAsItIsNow(t *testing.T) {
	address := startRedis(t, "secret")
	file := filepath.Join(t.TempDir(), "password")
	r := newRedis(t, probe.RedisConfig{Address: address, PasswordFile: file})
	if err := r.PutGet(t.Context(), "name", []byte("v")); err == nil || !strings.Contains(err.Error(), "read the Redis password") {
		t.Errorf("error %v without the file", err)
	}
	write := func(password string) {
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong\n")
	if err := r.PutGet(t.Context(), "name", []byte("v")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("error %v with a wrong password", err)
	}
	write("secret\n")
	if err := r.PutGet(t.Context(), "name", []byte("v")); err != nil {
		t.Errorf("error %v with the password", err)
	}
	if err := newRedis(t, probe.RedisConfig{Address: address}).PutGet(t.Context(), "name", []byte("v")); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("error %v without a password", err)
	}
}

// serveRedis answers every connection with what serve writes.
func serveRedis(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		connections.Wait()
	})
	return listener.Addr().String()
}

func TestStoreThatDoesNotAnswerFailsInTime(t *testing.T) {
	done := make(chan struct{})
	address := serveRedis(t, func(net.Conn) { <-done })
	defer close(done)
	start := time.Now()
	err := newRedis(t, probe.RedisConfig{Address: address}).PutGet(t.Context(), "name", []byte("v"))
	if err == nil || !strings.Contains(err.Error(), "put into Redis") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestStoreThatIsNotThereFails(t *testing.T) {
	listener, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	err = newRedis(t, probe.RedisConfig{Address: listener.Addr().String()}).PutGet(t.Context(), "name", []byte("v"))
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("error %v", err)
	}
}

func TestStoreThatReturnsSomethingElseFails(t *testing.T) {
	for name, c := range map[string]struct{ get, want string }{
		"another value": {"$1\r\nx\r\n", "differ from the 5 that were put"},
		"nothing":       {"$-1\r\n", "what was just put is not there"},
		"an error":      {"-LOADING the data set\r\n", "LOADING"},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveRedis(t, func(conn net.Conn) {
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					switch strings.ToLower(lines.Text()) {
					case "hello":
						_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
					case "set":
						_, _ = conn.Write([]byte("+OK\r\n"))
					case "get":
						_, _ = conn.Write([]byte(c.get))
					case "del":
						_, _ = conn.Write([]byte(":1\r\n"))
					}
				}
			})
			err := newRedis(t, probe.RedisConfig{Address: address}).PutGet(t.Context(), "name", []byte("value"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
