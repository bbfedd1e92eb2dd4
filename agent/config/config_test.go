package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFillsInDefaults(t *testing.T) {
	got, err := Parse([]byte(`
engines:
  - name: pod-a
    model: m
    events: tcp://127.0.0.1:5557
  - name: pod-b
    model: m
    tenant: t
    hashScheme: sglang
    events: tcp://127.0.0.1:5657
    replay: tcp://127.0.0.1:6657
    topic: kv
    ranks: 2
    metrics: http://127.0.0.1:8000/metrics
    loraNames: {1: sql-lora}
    tier2: inferred
    fullReports: true
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Engine{
		{Name: "pod-a", Model: "m", Tenant: "default", HashScheme: "vllm", Events: "tcp://127.0.0.1:5557", Ranks: 1, Tier2: Tier2Observed},
		{
			Name: "pod-b", Model: "m", Tenant: "t", HashScheme: "sglang", Events: "tcp://127.0.0.1:5657",
			Replay: "tcp://127.0.0.1:6657", Topic: "kv", Ranks: 2, Metrics: "http://127.0.0.1:8000/metrics",
			LoRANames: map[int64]string{1: "sql-lora"}, Tier2: Tier2Inferred, FullReports: true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	const ok = "name: a, model: m, events: 'tcp://127.0.0.1:5557'"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"an unknown key is named with its line": {
			"engines:\n  - name: a\n    model: m\n    evnets: tcp://127.0.0.1:1\n", []string{"line 4", `unknown key "evnets"`, "accepted: name, model, ", "fullReports"},
		},
		"an unknown top-level key":       {"engine: []\n", []string{"line 1", `unknown key "engine"`, "accepted: engines"}},
		"an empty file":                  {"", []string{"empty"}},
		"an empty list":                  {"engines: []\n", []string{"engines: the list is empty"}},
		"a second document":              {"engines: [{" + ok + "}]\n---\nengines: []\n", []string{"more than one YAML document"}},
		"text that is not YAML":          {"engines: [", []string{"line"}},
		"a value of the wrong type":      {"engines: [{" + ok + ", ranks: two}]", []string{"line 1", "two"}},
		"required fields, all at once":   {"engines: [{tenant: t}]", []string{"name: missing", "model: missing", "events: missing"}},
		"a name used twice":              {"engines: [{" + ok + "}, {" + ok + "}]", []string{"engines[1].name", "engines[0]"}},
		"an address without a port":      {"engines: [{name: a, model: m, events: 'tcp://host'}]", []string{"engines[0] (a)", "events"}},
		"a replay address that overlaps": {"engines: [{" + ok + ", ranks: 2, replay: 'tcp://127.0.0.1:5558'}]", []string{"replay"}},
		"too many ranks":                 {"engines: [{" + ok + ", ranks: 1000}]", []string{"ranks: 1000"}},
		"a negative number of ranks":     {"engines: [{" + ok + ", ranks: -1}]", []string{"ranks: -1"}},
		"a tier2 that does not exist":    {"engines: [{" + ok + ", tier2: maybe}]", []string{`tier2: "maybe"`, "observed, inferred, none"}},
		"metrics that are no URL":        {"engines: [{" + ok + ", metrics: 'localhost:8000'}]", []string{"metrics"}},
		"an alias that is the model":     {"engines: [{" + ok + ", modelAliases: [b, m]}]", []string{`modelAliases: "m" is given twice`}},
		"an alias without a name":        {"engines: [{" + ok + ", modelAliases: ['']}]", []string{"modelAliases: a name is empty"}},
		"too many aliases":               {"engines: [{" + ok + ", modelAliases: [a, b, c, d, e, f, g, h]}]", []string{"modelAliases: 8 given, at most 7"}},
		"a first rank that is none":      {"engines: [{" + ok + ", firstRank: -1}]", []string{"firstRank: -1 is not between 0"}},
		"an API that is no URL":          {"engines: [{" + ok + ", api: 'host:80'}]", []string{`api: "host:80" is not an http or https URL`}},
		"an adapter without a name":      {"engines: [{" + ok + ", loraNames: {1: ''}}]", []string{"loraNames: adapter 1"}},
		"a name longer than Kubernetes allows": {
			"engines: [{model: m, events: 'tcp://127.0.0.1:5557', name: " + strings.Repeat("x", 300) + "}]", []string{"name: 300 bytes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("engines: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("bad file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("engines: [{name: a, model: m, events: 'tcp://127.0.0.1:5557'}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		engines, err := Parse(data)
		if err == nil && len(engines) == 0 {
			t.Error("no engines and no error")
		}
	})
}
