package engineargs

import (
	"strings"
	"testing"
	"time"
)

func sh(script string, env ...Env) Container {
	return Container{Command: []string{"/bin/sh", "-c"}, Args: []string{script}, Env: env}
}

func TestScripts(t *testing.T) {
	events := " --kv-events-config '" + zmqEvents + "'"
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"a plain one":        {sh("exec vllm serve m" + events), "vllm m port=8000" + followed},
		"lines that go on":   {sh("set -e\nexport A=1\nexec vllm serve \\\n  m \\\n  --port 80 \\\n " + events), "vllm m port=80" + followed},
		"commands in front":  {sh("pip install x && nvidia-smi; ulimit -n 65535 && vllm serve m" + events), "vllm m port=8000" + followed},
		"options of a shell": {Container{Command: append(words("/usr/bin/env bash -euo pipefail -c"), "vllm serve m"+events)}, "vllm m port=8000" + followed},
		"a login shell":      {Container{Command: append(words("bash -lc"), "vllm serve m"+events)}, "vllm m port=8000" + followed},
		"variables":          {sh(`vllm serve "$MODEL" --port ${PORT} -tp $((2*TP))`+events, Env{Name: "MODEL", Value: "m"}, Env{Name: "PORT", Value: "81"}, Env{Name: "TP", Value: "2"}), "vllm m port=81 tp=4" + followed},
		"defaults":           {sh(`PORT=${PORT:-8001}; vllm serve ${MODEL:-m} --port $PORT` + events), "vllm m port=8001" + followed},
		"ranks by arithmetic": {
			sh("START_RANK=$(( ${LWS_WORKER_INDEX:-0} * DP_SIZE_LOCAL ))\nvllm serve m --data-parallel-size $((LWS_GROUP_SIZE * DP_SIZE_LOCAL)) --data-parallel-size-local $DP_SIZE_LOCAL --data-parallel-start-rank $START_RANK --data-parallel-hybrid-lb"+events,
				Env{Name: "LWS_WORKER_INDEX", Value: "1"}, Env{Name: "LWS_GROUP_SIZE", Value: "2"}, Env{Name: "DP_SIZE_LOCAL", Value: "8"}),
			"vllm m port=8000 ranks=8+8" + followed,
		},
		"parameters":                     {Container{Command: []string{"sh", "-c", `exec vllm serve "$@"`, "--"}, Args: append(words("m --port 82 --kv-events-config"), zmqEvents)}, "vllm m port=82" + followed},
		"a shell in a shell":             {sh(`bash -c "vllm serve m --port 83"`), "vllm m port=83 KVEventsDisabled"},
		"in the background":              {sh("vllm serve m" + events + " &\nwait"), "vllm m port=8000" + followed},
		"in a loop that starts it again": {sh("while true; do vllm serve m" + events + "; sleep 1; done"), "vllm m port=8000" + followed},
		"in a function":                  {sh("run() { vllm serve m" + events + "; }\nrun"), "vllm m port=8000" + followed},
		"SGLang":                         {sh("python3 -m sglang.launch_server --model-path m --host 0.0.0.0 --enable-metrics --kv-events-config '" + sglEvents + "' 2>&1 | tee log"), "sglang m host=0.0.0.0 port=30000" + followed},
		"a file written by the script": {
			sh("cat > /tmp/c.yaml <<EOF\nmodel: m\nkv-events-config: '" + zmqEvents + "'\nEOF\nvllm serve --config /tmp/c.yaml"),
			"vllm m port=8000" + followed,
		},
		"a test of what is known": {
			sh(`if [ "$LWS_WORKER_INDEX" -gt 0 ]; then vllm serve m --headless; else vllm serve m`+events+`; fi`, Env{Name: "LWS_WORKER_INDEX", Value: "0"}),
			"vllm m port=8000" + followed,
		},
		"the other side of it": {
			sh(`if [[ $LWS_WORKER_INDEX == 0 ]]; then vllm serve m; else vllm serve m --headless`+events+`; fi`, Env{Name: "LWS_WORKER_INDEX", Value: "1"}),
			"vllm m port=8000" + followed + " EngineUnsupported",
		},
		"arguments in an array": {
			sh(`ARGS=(--port 85); [ "$A" = x ] && ARGS+=(-tp 2); [[ -n $A && $A != x ]] || ARGS+=(--block-size 32); vllm serve m "${ARGS[@]}" ${MORE[@]+"${MORE[@]}"}`+events, Env{Name: "A", Value: "x"}),
			"vllm m port=85 tp=2 block=32" + followed,
		},
		"a test of what is not known":        {sh(`[ "$ROLE" = a ] && PORT=1; vllm serve m --port "$PORT"` + events), "vllm m port=8000" + followed + " EngineUnreadable"},
		"flags that cannot be seen":          {sh(`vllm serve m $EXTRA`, Env{Name: "EXTRA", Source: "the ConfigMap x"}), "vllm m port=8000 EngineUnreadable"},
		"flags that need not be seen":        {sh(`vllm serve m` + events + ` $EXTRA`), "vllm m port=8000" + followed},
		"a command that may fail":            {sh(`mkdir -p /x || exit 1; vllm serve m` + events), "vllm m port=8000" + followed},
		"a variable of the image":            {sh("vllm serve m --port $PORT" + events), "vllm m port=8000" + followed + " EngineUnreadable"},
		"the output of a command":            {sh("vllm serve $(cat /etc/model)" + events), "vllm  port=8000" + followed + " EngineUnreadable"},
		"a variable that a branch sets":      {sh(`if [ "$ROLE" = a ]; then PORT=1; fi; vllm serve m --port "$PORT"` + events), "vllm m port=8000" + followed + " EngineUnreadable"},
		"one engine or the other":            {sh("if [ $A ]; then vllm serve m; else vllm serve n --headless; fi"), "vllm  EngineUnreadable"},
		"one of another image":               {sh("vllm serve m 'unclosed"), "vllm  EngineUnreadable"},
		"a script that cannot be read":       {Container{Image: "vllm/vllm-openai", Command: []string{"sh", "-c", "vllm serve m 'unclosed"}}, "vllm  EngineUnreadable"},
		"a value that would fill the memory": {sh("A=aaaaaaaaaaaaaaaa\n" + strings.Repeat("A=$A$A$A$A\n", 40) + "vllm serve m --port $A" + events), "vllm m port=8000" + followed + " EngineUnreadable"},
		"branches without end":               {sh(strings.Repeat("if a; then A=$A; fi\n", 3000) + "vllm serve m" + events), "vllm m port=8000" + followed},
		"words without end":                  {sh("vllm serve m {1..1000000000}"), "no engine"},
	})
}

func TestReferencesAreExpandedAsTheKubeletDoes(t *testing.T) {
	serve := append(words("vllm serve $(MODEL) --port $(PORT) --kv-events-config"), zmqEvents)
	check(t, map[string]struct {
		c    Container
		want string
	}{
		"variables that refer to others": {
			Container{Command: serve, Env: []Env{{Name: "ORG", Value: "Qwen"}, {Name: "MODEL", Value: "$(ORG)/x"}, {Name: "PORT", Value: "84"}}},
			"vllm Qwen/x port=84" + followed,
		},
		"one that is escaped": {
			Container{Command: append(words("vllm serve $$(MODEL) --kv-events-config"), zmqEvents), Env: []Env{{Name: "MODEL", Value: "m"}}},
			"vllm $(MODEL) port=8000" + followed,
		},
		"one that is not set": {
			Container{Command: serve, Env: []Env{{Name: "PORT", Value: "84"}}},
			"vllm $(MODEL) port=84" + followed,
		},
		"one from a Secret": {
			Container{Command: serve, Env: []Env{{Name: "PORT", Value: "84"}, {Name: "MODEL", Source: "the Secret models"}}},
			"vllm  port=84" + followed + " EngineUnreadable",
		},
		"one that may be in a ConfigMap": {
			Container{Command: serve, Env: []Env{{Name: "PORT", Value: "84"}}, EnvFrom: true},
			"vllm  port=84" + followed + " EngineUnreadable",
		},
		"one that does not matter": {
			Container{Command: append(words("vllm serve m --api-key $(KEY) --kv-events-config"), zmqEvents), Env: []Env{{Name: "KEY", Source: "the Secret key"}}},
			"vllm m port=8000" + followed,
		},
	})
}

func TestUnknownValuesAreNamed(t *testing.T) {
	l := Read(sh("vllm serve $MODEL", Env{Name: "MODEL", Source: "the ConfigMap models"}))
	want := "the model's name cannot be known: $MODEL comes from the ConfigMap models"
	if l == nil || len(l.Problems) == 0 || l.Problems[0].Text != want {
		t.Errorf("%+v, want the problem %q", l, want)
	}
}

// FuzzRead reads whatever there may be in a container: it must end, and say something of use.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"vllm serve m --port $PORT", "sh -c 'x", "A=$A; vllm serve ${A:?x} $((1/0)) ~root {a..z}", "vllm serve m --kv-events-config.a.b.c {}",
		"cat > x <<E\nmodel: [a, {b: c}]\nE\nvllm serve --config x", "sglang serve --model m --dp -1 --kv-events-config [1]",
		"for i in 1 2; do vllm serve $i & done", "case $A in a) vllm serve b;; esac", "vllm serve \uE0F10\uE0F1 $(A)", "f() { f; }; f; vllm serve ${@:1:2} ${!A} ${A[@]}",
	} {
		f.Add(s, "vllm/vllm-openai:v0.9.2", "value", true)
		f.Add(s, "", "$(A)$A", false)
	}
	f.Fuzz(func(t *testing.T, source, image, value string, shell bool) {
		c := Container{Image: image, Args: strings.Fields(source), Env: []Env{{Name: "A", Value: value}, {Name: "S", Source: "a Secret"}}, Owner: Owner{Config: value}}
		if shell {
			c = sh(source, c.Env...)
			c.Image = image
		}
		began := time.Now()
		l := Read(c)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		if l == nil {
			return
		}
		if l.Ranks < 1 || l.Ranks > maxRanks || l.FirstRank < 0 {
			t.Errorf("ranks %d+%d", l.FirstRank, l.Ranks)
		}
		if l.Followable() && (len(l.Models) == 0 || l.Models[0] == "" || l.Events == "") {
			t.Errorf("followable, with models %q and events %q", l.Models, l.Events)
		}
		for _, p := range l.Problems {
			if p.Text == "" || strings.Contains(p.Text, "cannot be read: runtime error") {
				t.Errorf("problem %+v", p)
			}
		}
	})
}
