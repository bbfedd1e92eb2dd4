package engineargs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	zmqEvents = `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","topic":"kv-events"}`
	sglEvents = `{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","topic":"kv-events"}`
	// followed is the end of what describe says of an engine with one of the two.
	followed = " events=5557 replay=6557 topic=kv-events"
)

// describe puts a launch on one line: what is as it usually is stays unsaid.
func describe(l *Launch) string {
	if l == nil {
		return "no engine"
	}
	var b strings.Builder
	b.WriteString(string(l.Kind) + " " + strings.Join(l.Models, ","))
	say := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	say(l.Host != "", "host=%s", l.Host)
	say(l.Port != 0, "port=%d", l.Port)
	say(l.HTTPS, "https")
	say(l.Ranks != 1 || l.FirstRank != 0, "ranks=%d+%d", l.FirstRank, l.Ranks)
	say(l.TensorParallel > 1, "tp=%d", l.TensorParallel)
	say(l.BlockSize != 0, "block=%d", l.BlockSize)
	say(l.LoRA, "lora=[%s]", strings.Join(l.Adapters, ","))
	say(l.Offload != "", "offload=%s", l.Offload)
	say(l.Role != "", "role=%s", l.Role)
	say(l.Events != "", "events=%s", strings.TrimPrefix(l.Events, "tcp://*:"))
	say(l.Replay != "", "replay=%s", strings.TrimPrefix(l.Replay, "tcp://*:"))
	say(l.Topic != "", "topic=%s", l.Topic)
	for _, p := range l.Problems {
		say(true, "%s", p.Reason)
	}
	return b.String()
}

func words(s string) []string { return strings.Fields(s) }

// check reads containers and compares what is said of them.
func check(t *testing.T, tests map[string]struct {
	c    Container
	want string
},
) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := Read(tt.c)
			if got := describe(l); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
				if l != nil {
					t.Errorf("problems: %q", l.Problems)
				}
			}
		})
	}
}

func TestCommandsOfVLLM(t *testing.T) {
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"vllm serve": {
			Container{Command: append(words("vllm serve Qwen/Qwen3-8B --kv-events-config"), zmqEvents)},
			"vllm Qwen/Qwen3-8B port=8000" + followed,
		},
		"the module": {
			Container{Command: append(words("python3 -m vllm.entrypoints.openai.api_server --model m --port 8080 --kv-events-config"), zmqEvents)},
			"vllm m port=8080" + followed,
		},
		"arguments of the image's entry point": {
			Container{Image: "docker.io/vllm/vllm-openai:v0.26.0", Args: append(words("--model m --kv-events-config"), zmqEvents)},
			"vllm m port=8000" + followed,
		},
		"a model's name as first argument of the image": {
			Container{Image: "vllm/vllm-openai:latest", Args: []string{"m", "--kv-events-config=" + zmqEvents}},
			"vllm m port=8000" + followed,
		},
		"the command line repeated in the arguments": {
			Container{Image: "nvcr.io/nvidia/vllm:26.01-py3", Args: append(words("vllm serve m --kv-events-config"), zmqEvents)},
			"vllm m port=8000" + followed,
		},
		"underscores": {
			Container{Command: append(words("vllm serve m --served_model_name a b --tensor_parallel_size=4 --block_size 32 --kv_events_config"), zmqEvents)},
			"vllm a,b port=8000 tp=4 block=32" + followed,
		},
		"keys of the configuration, one by one": {
			Container{Command: words("vllm serve m --kv-events-config.enable_kv_cache_events true --kv-events-config.publisher zmq --kv-events-config.endpoint=tcp://*:7000 --kv-events-config.replay_endpoint tcp://*:7100")},
			"vllm m port=8000 events=7000 replay=7100",
		},
		"short flags, and ranks by their number": {
			Container{Command: append(words("vllm serve m -tp 2 -dp 4 --host 0.0.0.0 --kv-events-config"), zmqEvents)},
			"vllm m host=0.0.0.0 port=8000 ranks=0+4 tp=2" + followed,
		},
		"some ranks of several": {
			Container{Command: append(words("vllm serve m --data-parallel-size 8 --data-parallel-size-local 4 --data-parallel-start-rank 4 --data-parallel-hybrid-lb --kv-events-config"), zmqEvents)},
			"vllm m port=8000 ranks=4+4" + followed,
		},
		"one rank of several": {
			Container{Command: append(words("vllm serve m -dp 8 -dpn 3 --kv-events-config"), zmqEvents)},
			"vllm m port=8000 ranks=3+1" + followed,
		},
		"the last flag counts": {
			Container{Command: append(words("vllm serve m --port 1 --port=2 --kv-events-config {} --kv-events-config"), zmqEvents)},
			"vllm m port=2" + followed,
		},
		"a model behind switches": {
			Container{Command: append(append(words("vllm serve -O3 --enable-prefix-caching --max-model-len 4096 --kv-events-config"), zmqEvents), words("--disable-access-log-for-endpoints /x --enable-what-is-new --no-enable-log-requests m")...)},
			"vllm m port=8000" + followed,
		},
		"adapters as pairs": {
			Container{Command: append(words("vllm serve m --enable-lora --lora-modules sql=/l/sql chat=/l/chat --max-lora-rank 64 --kv-events-config"), zmqEvents)},
			"vllm m port=8000 lora=[sql,chat]" + followed,
		},
		"adapters as JSON": {
			Container{Command: append(words(`vllm serve m --enable-lora --lora-modules {"name":"sql","path":"/l","base_model_name":"m"} --kv-events-config`), zmqEvents)},
			"vllm m port=8000 lora=[sql]" + followed,
		},
		"a wrapper in front": {
			Container{Command: append(words("nsys profile -o x env A=b numactl -N 0 /opt/venv/bin/vllm serve m --kv-events-config"), zmqEvents)},
			"vllm m port=8000" + followed,
		},
		"another program of an engine's package": {Container{Command: words("vllm bench serve --model m")}, "no engine"},
		"a model from a negative number on":      {Container{Command: append(words("vllm serve m --seed -1 --kv-events-config"), zmqEvents)}, "vllm m port=8000" + followed},
		"TLS":                                    {Container{Command: append(words("vllm serve m --ssl-certfile c --ssl-keyfile k --kv-events-config"), zmqEvents)}, "vllm m port=8000 https" + followed},
	})
}

func TestTiersAndRoles(t *testing.T) {
	serve := slices.Clip(append(words("vllm serve m --kv-events-config"), zmqEvents))
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"the native CPU tier": {
			Container{Command: append(serve, "--kv-transfer-config", `{"kv_connector":"OffloadingConnector","kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use":1}}`)},
			"vllm m port=8000 offload=observed" + followed,
		},
		"its short form":          {Container{Command: append(serve, words("--kv-offloading-size 10")...)}, "vllm m port=8000 offload=observed" + followed},
		"its short form, LMCache": {Container{Command: append(serve, words("--kv-offloading-size 10 --kv-offloading-backend lmcache")...)}, "vllm m port=8000 offload=inferred" + followed},
		"LMCache": {
			Container{Command: append(serve, "--kv-transfer-config", `{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`)},
			"vllm m port=8000 offload=inferred" + followed,
		},
		"prefill": {
			Container{Command: append(serve, "--kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_producer"}`)},
			"vllm m port=8000 role=prefill" + followed,
		},
		"several connectors": {
			Container{Command: append(serve, "--kv-transfer-config", `{"kv_connector":"MultiConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector"},{"kv_connector":"LMCacheMPConnector"}]}}`)},
			"vllm m port=8000 offload=observed role=decode" + followed,
		},
		"keys one by one": {
			Container{Command: append(serve, words("--kv-transfer-config.kv_connector OffloadingConnector")...)},
			"vllm m port=8000 offload=observed" + followed,
		},
	})
}

func TestCommandsOfSGLang(t *testing.T) {
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"the module": {
			Container{Command: append(words("python3 -m sglang.launch_server --model-path m --host 0.0.0.0 --enable-metrics --page-size 64 --kv-events-config"), sglEvents)},
			"sglang m host=0.0.0.0 port=30000 block=64" + followed,
		},
		"sglang serve, ranks and adapters": {
			Container{Command: append(words("sglang serve --model m --served-model-name a --port 80 --host 0.0.0.0 --enable-metrics --dp 2 --tp 4 --enable-dp-attention --lora-paths x=/x y=/y --kv-events-config"), sglEvents)},
			"sglang a host=0.0.0.0 port=80 ranks=0+2 tp=4 lora=[x,y]" + followed,
		},
		"a wildcard that only SGLang takes": {
			Container{Command: append(words("python -m sglang.launch_server --model m --host 0.0.0.0 --enable-metrics --kv-events-config"), `{"publisher":"zmq","endpoint":"tcp://0.0.0.0:5557","replay_endpoint":"tcp://0.0.0.0:6557"}`)},
			"sglang m host=0.0.0.0 port=30000 events=5557 replay=6557",
		},
		"told to bind": {
			Container{Command: append(words("python -m sglang.launch_server --model m --host 0.0.0.0 --enable-metrics --kv-events-config"), `{"publisher":"zmq","endpoint":"tcp://10.0.0.7:5557","bind":true,"replay_endpoint":"tcp://*:6557"}`)},
			"sglang m host=0.0.0.0 port=30000 events=5557 replay=6557",
		},
		"decode with a host tier": {
			Container{Command: append(words("python -m sglang.launch_server --model m --host 0.0.0.0 --enable-metrics --disaggregation-mode decode --enable-hierarchical-cache --kv-events-config"), sglEvents)},
			"sglang m host=0.0.0.0 port=30000 offload=observed role=decode" + followed,
		},
		"a model's name in front, ranks of attention": {
			Container{Command: append(words("sglang serve m --log-requests --host 0.0.0.0 --tp-size 8 --attn-dp-size 4 --enable-metrics --kv-events-config"), sglEvents)},
			"sglang m host=0.0.0.0 port=30000 ranks=0+4 tp=8" + followed,
		},
		"ranks over two nodes": {
			Container{Command: append(words("python -m sglang.launch_server --model m --host 0.0.0.0 --enable-metrics --dp-size 16 --nnodes 2 --node-rank 0 --kv-events-config"), sglEvents)},
			"sglang m host=0.0.0.0 port=30000 ranks=0+8" + followed,
		},
		"the second node": {
			Container{Command: append(words("python -m sglang.launch_server --model m --host 0.0.0.0 --enable-metrics --nnodes 2 --node-rank 1 --kv-events-config"), sglEvents)},
			"sglang m host=0.0.0.0 port=30000" + followed + " EngineUnsupported",
		},
		"nothing but the model": {
			Container{Command: words("python -m sglang.launch_server --model m")},
			"sglang m host=127.0.0.1 port=30000 KVEventsDisabled MetricsUnreachable",
		},
		"a router of SGLang": {Container{Command: words("python -m sglang_router.launch_router --worker-urls http://a")}, "no engine"},
	})
}

func TestProblemsNameTheFlag(t *testing.T) {
	serve := func(flags ...string) Container { return Container{Command: append(words("vllm serve m"), flags...)} }
	config := func(json string) Container { return serve("--kv-events-config", json) }
	for name, tt := range map[string]struct {
		c      Container
		reason Reason
		text   string
	}{
		"no events":                          {serve(), KVEventsDisabled, `add --kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"`},
		"events left off":                    {config(`{"publisher":"zmq"}`), KVEventsDisabled, `add "enable_kv_cache_events":true`},
		"a null publisher":                   {config(`{"enable_kv_cache_events":true,"publisher":"null"}`), KVEventsDisabled, `set "publisher":"zmq"`},
		"another publisher":                  {config(`{"enable_kv_cache_events":true,"publisher":"kafka"}`), KVEventsUnreachable, `the publisher "kafka"`},
		"an endpoint that connects":          {config(`{"enable_kv_cache_events":true,"endpoint":"tcp://router:5557"}`), KVEventsUnreachable, `with the endpoint "tcp://router:5557" the engine connects`},
		"an address that is no wildcard":     {config(`{"enable_kv_cache_events":true,"endpoint":"tcp://0.0.0.0:5557"}`), KVEventsUnreachable, `use "endpoint":"tcp://*:5557"`},
		"a socket file":                      {config(`{"enable_kv_cache_events":true,"endpoint":"ipc:///tmp/x"}`), KVEventsUnreachable, "does not leave the container"},
		"a port of the system's choice":      {config(`{"enable_kv_cache_events":true,"endpoint":"tcp://*:0"}`), KVEventsUnreachable, "leaves the port to the system"},
		"a port that is none":                {config(`{"enable_kv_cache_events":true,"endpoint":"tcp://*:x"}`), KVEventsUnreachable, "has no port between 1 and 65535"},
		"JSON that is none":                  {config(`{enable: true}`), EngineUnreadable, `--kv-events-config "{enable: true}" is not a JSON object`},
		"a key of the wrong kind":            {config(`{"enable_kv_cache_events":true,"endpoint":5557}`), EngineUnreadable, "endpoint is 5557, which is no text"},
		"no replay":                          {config(`{"enable_kv_cache_events":true}`), ReplayDisabled, `add "replay_endpoint":"tcp://*:6557"`},
		"a replay socket that cannot be had": {config(`{"enable_kv_cache_events":true,"replay_endpoint":"ipc://x"}`), ReplayDisabled, "is not tcp://*:PORT"},
		"ports that collide": {
			serve("-dp", "4", "--kv-events-config", `{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}`),
			ReplayDisabled, "less than the 4 ranks apart",
		},
		"prefix caching off":    {serve("--no-enable-prefix-caching", "--kv-events-config", zmqEvents), PrefixCachingDisabled, "remove --no-enable-prefix-caching"},
		"no radix cache":        {Container{Command: append(words("sglang serve --model m --disable-radix-cache --kv-events-config"), sglEvents)}, PrefixCachingDisabled, "remove --disable-radix-cache"},
		"SGLang without events": {Container{Command: words("sglang serve --model m")}, KVEventsDisabled, `add --kv-events-config '{"publisher":"zmq","endpoint"`},
		"no model":              {Container{Command: words("vllm serve --port 80")}, EngineUnreadable, "the command names no model"},
		"a port that is no port": {
			serve("--port", "http"), EngineUnreadable, `--port "http" is not a number between 1 and 65535`,
		},
		"ranks of an engine elsewhere": {serve("--headless"), EngineUnsupported, "--headless"},
		"no ranks of its own":          {serve("-dp", "4", "-dpl", "0"), EngineUnsupported, "--data-parallel-size-local 0"},
		"an API that is for itself":    {serve("--host", "127.0.0.1", "--kv-events-config", zmqEvents), MetricsUnreachable, "add --host 0.0.0.0"},
		"a release that needs the publisher said": {
			Container{Image: "vllm/vllm-openai:v0.11.0", Args: []string{"m", "--kv-events-config", `{"enable_kv_cache_events":true}`}},
			KVEventsDisabled, `before vLLM 0.11.2 nothing is published without "publisher":"zmq"`,
		},
		"a file that is in the container": {serve("--config", "/etc/vllm.yaml"), EngineUnreadable, "annotation inferencecache.io/engine-config"},
		"an image whose command is a file": {
			Container{Image: "vllm/vllm-openai:v0.26.0", Command: words("/bin/bash /opt/start.sh")}, EngineUnreadable, "is in the file \"/opt/start.sh\", inside the container",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := Read(tt.c)
			if l == nil {
				t.Fatal("no engine")
			}
			for _, p := range l.Problems {
				if p.Reason == tt.reason && strings.Contains(p.Text, tt.text) {
					return
				}
			}
			t.Errorf("problems %q, want %s with %q", l.Problems, tt.reason, tt.text)
		})
	}
}

func TestContainersThatAreNoEngines(t *testing.T) {
	for name, c := range map[string]Container{
		"nothing":               {},
		"another image":         {Image: "nginx:1", Args: words("--model m")},
		"a router of vLLM":      {Image: "ghcr.io/x/vllm-router:1", Args: words("--model m")},
		"an image without args": {Image: "nginx"},
		"words that are printed": {
			Command: []string{"sh", "-c", "echo vllm serve m; sleep 1"},
		},
		"an engine's image that does something else": {Image: "vllm/vllm-openai:v0.26.0", Command: words("sleep infinity")},
		"an installation": {Command: words("pip install vllm")},
		"a shell without an engine": {
			Command: []string{"bash", "-c", "while true; do curl localhost:8000/health; done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if l := Read(c); l != nil {
				t.Errorf("read as %s, %q", describe(l), l.Problems)
			}
		})
	}
}

func TestWhatTheOwnerSaysCounts(t *testing.T) {
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"a command that shows nothing": {
			Container{Image: "registry/own:1", Command: words("/start"), Owner: Owner{Kind: VLLM, Models: []string{"m", "n"}, EventsEndpoint: "tcp://*:7000", ReplayEndpoint: "tcp://*:7100", Topic: "x", Port: "9000", Ranks: "2"}},
			"vllm m,n port=9000 ranks=0+2 events=7000 replay=7100 topic=x",
		},
		"a name that cannot be known": {
			Container{Command: append(words("vllm serve $(M) --kv-events-config"), zmqEvents), Env: []Env{{Name: "M", Source: "a Secret"}}, Owner: Owner{Models: []string{"x"}}},
			"vllm x port=8000" + followed,
		},
		"another name and port": {
			Container{Command: append(words("vllm serve /models/x --port 1 --kv-events-config"), zmqEvents), Owner: Owner{Models: []string{"x"}, Port: "2"}},
			"vllm x port=2" + followed,
		},
		"the text of the configuration file": {
			Container{Command: words("vllm serve --config /etc/vllm.yaml --port 7"), Owner: Owner{Config: "model: m\nport: 8\nserved_model_name: [a, b]\nenable-lora: true\nkv-events-config:\n  enable_kv_cache_events: true\n  endpoint: tcp://*:5557\n  replay_endpoint: tcp://*:6557\n"}},
			"vllm a,b port=7 lora=[] events=5557 replay=6557",
		},
		"events as JSON text in the file": {
			Container{Command: words("vllm serve m --config /x"), Owner: Owner{Config: "kv-events-config: '" + zmqEvents + "'\n"}},
			"vllm m port=8000" + followed,
		},
		"a file that is no YAML": {
			Container{Command: words("vllm serve m --config /x"), Owner: Owner{Config: "- a"}},
			"vllm m port=8000 EngineUnreadable KVEventsDisabled",
		},
	})
}
