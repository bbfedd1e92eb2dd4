package agent_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/tlsconfig"
	"github.com/inferencecache/inferencecache/tlsconfig/tlstest"
)

func loadTLS(t *testing.T, files tlsconfig.Files) *tlsconfig.Source {
	t.Helper()
	source, err := tlsconfig.Load(files, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// connected returns a function that says whether the aggregator has an agent.
func connected(t *testing.T, address string) func() bool {
	return func() bool {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return strings.Contains(string(body), "agents connected: 1")
	}
}

func TestAgentAndAggregatorVerifyEachOther(t *testing.T) {
	ca, other := tlstest.NewCA(t), tlstest.NewCA(t)
	for name, c := range map[string]struct {
		host       string // that the aggregator's certificate is for
		files      func() tlsconfig.Files
		serverName string
	}{
		"by the address that is dialled": {"127.0.0.1", func() tlsconfig.Files { return ca.Client(t, "agent") }, ""},
		"by a name that is given":        {"aggregator.example", func() tlsconfig.Files { return ca.Client(t, "agent") }, "aggregator.example"},
	} {
		t.Run(name, func(t *testing.T) {
			site := newSecureSite(t, ca, c.host, c.files(), ca.File, c.serverName)
			site.await("the agent to connect", connected(t, site.http))
		})
	}
	// What was not trusted is, once the file names its authority.
	t.Run("after the authority is put into the agent's file", func(t *testing.T) {
		site := newSecureSite(t, ca, "127.0.0.1", ca.Client(t, "agent"), other.File, "")
		time.Sleep(100 * time.Millisecond) // for a try that must fail
		if connected(t, site.http)() {
			t.Fatal("connected to an aggregator of an unknown authority")
		}
		tlstest.Copy(t, ca.File, other.File)
		site.await("the agent to connect", connected(t, site.http))
	})
}

// newSecureSite runs an aggregator with a certificate for host, and an agent with a certificate of its
// own that trusts the authorities of the file. http is the aggregator's.
func newSecureSite(t *testing.T, ca *tlstest.CA, host string, client tlsconfig.Files, trusted, serverName string) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := ca.Server(t, host)
	server.CA = ca.File
	agg, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, TLS: loadTLS(t, server), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "aggregator", agg.Run)
	engine := startEngine(t)
	at := engine.Addresses()
	client.CA = trusted
	a, err := agent.New(agent.Options{
		Engines: []config.Engine{{
			Name: "pod-a", Model: "fake-model", Tenant: "t", HashScheme: "vllm", Ranks: 1, Tier2: config.Tier2Observed,
			Events: at.Events[0], Replay: at.Replay[0], Metrics: "http://" + at.HTTP + "/metrics",
		}},
		Aggregators: []string{agg.GRPCAddr()}, HTTPAddress: "127.0.0.1:0", ID: "node-a", Log: log,
		TLS: loadTLS(t, client), TLSServerName: serverName,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "agent", a.Run)
	return &site{t: t, engine: engine, http: agg.HTTPAddr()}
}
