package discover_test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/agent/status"
	"github.com/inferencecache/inferencecache/hack/demo/process"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// engineStart bounds the wait for a real engine: 30 s on an idle machine, minutes on a busy one.
const engineStart = 10 * time.Minute

// realScript is what a pod might run; the engine is as small as they come.
const realScript = `
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
exec "$HOME_OF_VLLM"/bin/vllm serve "$HOME_OF_VLLM/model" --served-model-name tiny tiny-alias --host 0.0.0.0 --port ${PORT} \
  --load-format dummy --dtype bfloat16 --enforce-eager --max-model-len 4096 --block-size 32 --num-gpu-blocks-override 200 \
  --enable-lora --max-lora-rank 8 --lora-modules "sql=$HOME_OF_VLLM/adapters/sql" \
  --kv-events-config '{"enable_kv_cache_events":true,"endpoint":"tcp://*:'$((PORT+1))'","replay_endpoint":"tcp://*:'$((PORT+2))'","topic":"kv-events"}'
`

// A real engine is found from the pod that would run it, before it listens, and followed with its names and its
// adapters, also one that is loaded later. It needs both a real API server and a real engine.
func TestKubeARealEngineIsFollowedFromItsPod(t *testing.T) {
	home := os.Getenv("INFERENCECACHE_VLLM")
	if home == "" {
		t.Skip("needs a real engine: set INFERENCECACHE_VLLM to the folder that hack/vllm/install.sh prints")
	}
	kubetest.Programs(t)
	s := newSite(t)
	port := freePorts(t, 3)
	set := fmt.Sprintf("HOME_OF_VLLM=%s; PORT=%d\n", home, port)
	address := s.pod("node-1", "real", "bash", "-c", set+realScript)
	s.await("the engine to be waited for", func() bool { return s.container("real").State == status.Followed })
	child, err := process.Start(t.Context(), t.TempDir(), "vllm", "/bin/bash", "-c", set+realScript)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Stop(20 * time.Second)
		_ = syscall.Kill(-child.PID(), syscall.SIGKILL) // what it has started
	})
	base := fmt.Sprintf("http://%s:%d", address, port)
	for began := time.Now(); !answers(base + "/health"); time.Sleep(time.Second) {
		if time.Since(began) > engineStart {
			t.Fatalf("the engine does not start:\n%s", child.Tail())
		}
	}
	post(t, base+"/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name":"chat","lora_path":%q}`, filepath.Join(home, "adapters", "chat")))
	prompt := strings.Trim(strings.Repeat("7,", 200), ",") // 6 blocks and a rest
	for _, model := range []string{"tiny", "sql", "chat"} {
		post(t, base+"/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":[%s],"max_tokens":1}`, model, prompt))
	}
	want := map[string]int{}
	for _, name := range []string{"tiny", "tiny-alias"} {
		for _, adapter := range []string{"", " sql", " chat"} {
			want[team+" real "+name+" rank 0"+adapter] = 6
		}
	}
	s.await("the index to hold every prompt", func() bool { return maps.Equal(want, s.counts()) })
	if got := s.status().Engines[0]; got.Ranks[0].Certainty != "exact" || !slices.Equal(got.Adapters, []string{"sql", "chat"}) {
		t.Errorf("status %+v", got)
	}
	if diff := cmp.Diff(want, s.counts()); diff != "" {
		t.Error(diff)
	}
}

// counts counts the blocks of the index by what they are of.
func (s *site) counts() map[string]int {
	counts := map[string]int{}
	for _, line := range s.index() {
		fields := strings.Fields(line)
		counts[strings.Join(fields[:len(fields)-1], " ")]++
	}
	return counts
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func post(t *testing.T, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s answered %s", url, resp.Status)
	}
}

// freePorts returns the first of n ports in a row on which nothing listens.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		var open []net.Listener
		first := 0
		for i := range n {
			port := 0
			if i > 0 {
				port = first + i
			}
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				break
			}
			open = append(open, l)
			if i == 0 {
				first = l.Addr().(*net.TCPAddr).Port
			}
		}
		for _, l := range open {
			_ = l.Close()
		}
		if len(open) == n {
			return first
		}
	}
	t.Fatal("no free ports in a row")
	return 0
}
