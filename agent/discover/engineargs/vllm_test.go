package engineargs

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// reading is a command line and how vLLM itself reads it; testdata/generate.py makes them.
type reading struct {
	Args   []string `json:"args"`
	Config string   `json:"config"`
	Want   struct {
		Model          string   `json:"model"`
		Names          []string `json:"names"`
		Host           string   `json:"host"`
		Port           int      `json:"port"`
		TensorParallel int      `json:"tensorParallel"`
		Ranks          [3]*int  `json:"ranks"` // all, of this container, the first
		BlockSize      int      `json:"blockSize"`
		LoRA           bool     `json:"lora"`
		Adapters       []string `json:"adapters"`
		PrefixCaching  bool     `json:"prefixCaching"`
		Headless       bool     `json:"headless"`
		Events         *struct {
			Enabled   bool   `json:"enable_kv_cache_events"`
			Publisher string `json:"publisher"`
			Endpoint  string `json:"endpoint"`
			Replay    string `json:"replay_endpoint"`
			Topic     string `json:"topic"`
		} `json:"events"`
		Connector string `json:"connector"`
	} `json:"want"`
}

func TestFlagsAreReadAsVLLMReadsThem(t *testing.T) {
	file, err := os.Open("testdata/vllm-0.32.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r reading
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		l := Read(Container{Command: append([]string{"vllm", "serve"}, r.Args...), Owner: Owner{Config: r.Config}})
		for _, problem := range r.compare(l) {
			t.Errorf("%s\n%q\nconfig %q", problem, r.Args, r.Config)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// compare lists the fields in which a launch is not what vLLM makes of the line.
func (r *reading) compare(l *Launch) (problems []string) {
	is := func(field string, same bool) {
		if !same {
			problems = append(problems, field+" is read otherwise")
		}
	}
	w := r.Want
	names := w.Names
	if len(names) == 0 {
		names = []string{w.Model}
	}
	ranks, first := *cmp.Or(w.Ranks[1], w.Ranks[0]), 0
	if w.Ranks[2] != nil {
		first = *w.Ranks[2]
	}
	has := func(reason Reason) bool {
		return slices.ContainsFunc(l.Problems, func(p Problem) bool { return p.Reason == reason })
	}
	is("names", slices.Equal(l.Models, names))
	is("host", l.Host == w.Host)
	is("port", l.Port == w.Port)
	is("tensor parallel", l.TensorParallel == w.TensorParallel)
	is("ranks", l.Ranks == ranks && l.FirstRank == first)
	is("block size", l.BlockSize == w.BlockSize)
	is("LoRA", l.LoRA == w.LoRA)
	is("adapters", slices.Equal(l.Adapters, w.Adapters))
	is("headless", has(EngineUnsupported) == w.Headless)
	is("offload", (l.Offload == OffloadObserved) == (w.Connector == "OffloadingConnector"))
	is("role", (l.Role == RolePrefill) == (w.Connector == "NixlConnector"))
	events := w.Events != nil && w.Events.Enabled && w.Events.Publisher == "zmq"
	is("whether events are on", has(KVEventsDisabled) == !events)
	if !events {
		return problems
	}
	is("prefix caching", has(PrefixCachingDisabled) == !w.PrefixCaching)
	if w.PrefixCaching {
		is("endpoint", l.Events == w.Events.Endpoint)
		is("replay endpoint", l.Replay == w.Events.Replay || has(ReplayDisabled))
		is("topic", l.Topic == w.Events.Topic)
	}
	return problems
}
