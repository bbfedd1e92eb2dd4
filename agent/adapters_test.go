package agent

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/hack/loopback"
)

// listing is an adapters without an engine, and what its tables were told last.
func listing(fixed map[int64]string) (*adapters, func() map[int64]string) {
	told := fixed
	a := newAdapters("http://127.0.0.1:1", time.Second, fixed, func(names map[int64]string) { told = names }, slog.New(slog.DiscardHandler))
	return a, func() map[int64]string { return told }
}

func TestNumbersOfAdaptersAreLearnedOnlyWhenCertain(t *testing.T) {
	refuse := func(a *adapters) { a.refused() }
	restart := func(a *adapters) { a.restarted() }
	list := func(names ...string) func(*adapters) {
		return func(a *adapters) { a.take(append([]string{}, names...)) }
	}
	fixed := map[int64]string{1: "sql", 2: "chat"}
	for name, c := range map[string]struct {
		fixed map[int64]string
		steps []func(*adapters)
		want  map[int64]string
	}{
		"those that the engine starts with":      {nil, []func(*adapters){refuse, list("x", "y")}, map[int64]string{1: "x", 2: "y"}},
		"not those that are loaded later":        {nil, []func(*adapters){refuse, list("x"), list("x", "y")}, map[int64]string{1: "x"}},
		"those of the command line come first":   {fixed, []func(*adapters){refuse, list("sql", "chat", "x")}, map[int64]string{1: "sql", 2: "chat", 3: "x"}},
		"not of an engine that had begun before": {fixed, []func(*adapters){list("sql", "chat", "x")}, fixed},
		"not where the list begins otherwise":    {fixed, []func(*adapters){refuse, list("chat", "sql", "x")}, fixed},
		"another process begins again":           {nil, []func(*adapters){refuse, list("x"), refuse, list("y")}, map[int64]string{1: "y"}},
		"a process that nobody saw begin":        {fixed, []func(*adapters){refuse, list("sql", "chat", "x"), restart, list("sql", "chat", "y")}, fixed},
		"a process that was waited for":          {nil, []func(*adapters){refuse, list("x"), refuse, restart, list("y")}, map[int64]string{1: "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, told := listing(c.fixed)
			for _, step := range c.steps {
				step(a)
			}
			if got := told(); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// An engine is asked before its server listens, and answers with its model and its adapters.
func TestAdaptersAreAskedFor(t *testing.T) {
	l, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	a, _ := listing(nil)
	a.url, a.every = "http://"+address+"/v1/models", 5*time.Millisecond
	var last atomic.Pointer[map[int64]string]
	a.tell = func(names map[int64]string) { last.Store(&names) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		a.client.CloseIdleConnections()
	}()
	await(t, "a refusal", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.down
	})
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","parent":null,"root":"m"},{"id":"sql","parent":"m","root":"/l/sql"}]}`)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	await(t, "the name of adapter 1", func() bool {
		p := last.Load()
		return p != nil && (*p)[1] == "sql"
	})
	if diff := cmp.Diff([]string{"sql"}, a.loaded()); diff != "" {
		t.Error(diff)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
