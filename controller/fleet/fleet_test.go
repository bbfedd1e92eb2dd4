package fleet_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/inferencecache/inferencecache/controller/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const document = `{"replicas":[{"replicaId":"p","tenant":"t","prefixCount":3}],"tenants":[{"tenantId":"t","indexEntries":3}],"totalPrefixes":3,"hotPrefixes":0,"policy":[]}`

// serve answers like an aggregator, at an address of loopback.
func serve(t *testing.T, address string, handler http.HandlerFunc) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: handler}}
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().String()
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func poller(t *testing.T, config fleet.Config) (*fleet.Poller, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	config.Log = slog.New(slog.DiscardHandler)
	if err := config.Check(); err != nil {
		t.Fatal(err)
	}
	return fleet.NewPoller(config, fleet.NewMetrics(registry)), registry
}

func polls(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	text := "# HELP inferencecache_controller_snapshot_polls_total Aggregators asked for a snapshot, by result: ok, unreachable, refused (401 or 403), unusable (another answer).\n" +
		"# TYPE inferencecache_controller_snapshot_polls_total counter\n"
	for line := range strings.FieldsSeq(want) {
		result, n, _ := strings.Cut(line, "=")
		text += "inferencecache_controller_snapshot_polls_total{result=\"" + result + "\"} " + n + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "inferencecache_controller_snapshot_polls_total"); err != nil {
		t.Error(err)
	}
}

func TestAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc // nil is none
		want    string           // part of the error
		counts  string
	}{
		{"a snapshot", says(document), "", "ok=1 refused=0 unreachable=0 unusable=0"},
		{"none listens", nil, "connection refused", "ok=0 refused=0 unreachable=1 unusable=0"},
		{"no answer in time", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded", "ok=0 refused=0 unreachable=1 unusable=0"},
		{"a token that is not accepted", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) }, "401 Unauthorized: who?; its --allowed-controller-sa", "ok=0 refused=1 unreachable=0 unusable=0"},
		{"another status", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "off", http.StatusServiceUnavailable) }, "503 Service Unavailable: off", "ok=0 refused=0 unreachable=0 unusable=1"},
		{"a redirection, which is not followed", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, "302 Found", "ok=0 refused=0 unreachable=0 unusable=1"},
		{"another document", says("<html>"), "decode the snapshot", "ok=0 refused=0 unreachable=0 unusable=1"},
		{"half a document", says(document[:20]), "decode the snapshot", "ok=0 refused=0 unreachable=0 unusable=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := closed
			if c.handler != nil {
				address = serve(t, "127.0.0.1:0", c.handler)
			}
			p, registry := poller(t, fleet.Config{URLs: []string{"http://" + address + "/snapshot"}, Timeout: 500 * time.Millisecond})
			got := p.Poll(t.Context())
			if len(got) != 1 || got[0].Address != address {
				t.Fatalf("answers %v", got)
			}
			if c.want == "" && (got[0].Err != nil || got[0].Snapshot.TotalPrefixes != 3) || c.want != "" && (got[0].Err == nil || !strings.Contains(got[0].Err.Error(), c.want)) {
				t.Errorf("answer %+v, want error %q", got[0], c.want)
			}
			polls(t, registry, c.counts)
		})
	}
}

func TestAHostWithSeveralAddressesIsSeveralAggregators(t *testing.T) {
	var mu sync.Mutex
	var hosts []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hosts = append(hosts, r.Host)
		mu.Unlock()
		says(document)(w, r)
	}
	first := serve(t, "127.0.0.1:0", handler)
	_, port, _ := net.SplitHostPort(first)
	second := serve(t, net.JoinHostPort("127.0.0.2", port), handler)
	p, _ := poller(t, fleet.Config{
		URLs: []string{"http://aggregators.example:" + port + "/snapshot", "http://" + first + "/snapshot", "http://nowhere.example/snapshot"},
		LookupHost: func(_ context.Context, host string) ([]string, error) {
			switch host {
			case "aggregators.example":
				return []string{"127.0.0.2", "::1", "127.0.0.1"}, nil // ::1 is the same one again
			case "127.0.0.1":
				return []string{host}, nil
			}
			return nil, errors.New("no such host")
		},
	})
	got := p.Poll(t.Context())
	if len(got) != 3 || got[0].Address != first || got[1].Address != second || got[0].Err != nil || got[1].Err != nil {
		t.Fatalf("answers %+v", got)
	}
	if got[2].Address != "http://nowhere.example/snapshot" || got[2].Err == nil || !strings.Contains(got[2].Err.Error(), "no such host") {
		t.Errorf("answer of a host without addresses: %+v", got[2])
	}
	for _, host := range hosts {
		if host != "aggregators.example:"+port {
			t.Errorf("request for host %q", host)
		}
	}
}

func TestTheTokenIsReadForEachPoll(t *testing.T) {
	var sent []string
	address := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		says(document)(w, r)
	})
	file := filepath.Join(t.TempDir(), "token")
	p, registry := poller(t, fleet.Config{URLs: []string{"http://" + address}, TokenFile: file})
	p.Poll(t.Context())
	for _, token := range []string{"one\n", "two"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		p.Poll(t.Context())
	}
	if got := strings.Join(sent, "|"); got != "|Bearer one|Bearer two" {
		t.Errorf("sent %q", got)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.Poll(t.Context()); got[0].Err == nil || len(sent) != 3 {
		t.Errorf("a token without end: %+v", got)
	}
	polls(t, registry, "ok=3 refused=0 unreachable=1 unusable=0")
}

func TestURLsAreChecked(t *testing.T) {
	for _, c := range []struct{ name, url, want string }{
		{"a URL", "http://host:8081/snapshot", ""},
		{"an encrypted one", "https://host/snapshot", ""},
		{"no scheme", "host:8081/snapshot", "must be as http://HOST:PORT/snapshot"},
		{"another scheme", "ftp://host/snapshot", "must be as http://HOST:PORT/snapshot"},
		{"no host", "http:///snapshot", "must be as http://HOST:PORT/snapshot"},
		{"a password", "http://me:secret@host/snapshot", "must not hold a user"},
		{"no URL", "http://[::1", "read the URL"},
		{"no URL, with a password", "http://me:secret@[::1", "read the URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := (&fleet.Config{URLs: []string{c.url}}).Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%v shows the password", err)
			}
		})
	}
	if (&fleet.Config{}).Check() == nil {
		t.Error("no URL is accepted")
	}
}
