//go:build tokenizers && cgo

package tokenize

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// corpus is this repository's Go and Markdown files: prompts are windows of it, each at another place, so that
// no call profits from having seen its text before.
var corpus = sync.OnceValue(func() string {
	var b strings.Builder
	_ = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".md")) && b.Len() < 8<<20 {
			if raw, err := os.ReadFile(path); err == nil {
				b.Write(raw)
			}
		}
		return nil
	})
	return b.String()
})

// window returns length bytes of the corpus, less what is cut off a character at either end.
func window(at, length int) string { return strings.ToValidUTF8(corpus()[at:at+length], "") }

// benchRegistry opens the real models if they are installed, else the small ones.
func benchRegistry(b *testing.B, clients int) *Registry {
	b.Helper()
	config := Config{Dir: "testdata/models", Log: quiet(), Queue: clients}
	if folder := os.Getenv("INFERENCECACHE_TOKENIZERS"); folder != "" {
		config.Dir = filepath.Join(folder, "models")
	}
	r, err := Open(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// promptLength returns how many bytes of the corpus make about n tokens.
func promptLength(b *testing.B, r *Registry, model string, n int) int {
	b.Helper()
	sample := window(0, 64<<10)
	got, err := r.Encode(b.Context(), model, Input{Raw: sample})
	if err != nil {
		b.Fatal(err)
	}
	return min(n*len(sample)/len(got.IDs), len(corpus())/2)
}

func BenchmarkTokenize(b *testing.B) {
	r := benchRegistry(b, 8)
	defer func() { _ = r.Close() }()
	for _, model := range r.Models() {
		for _, tokens := range []int{1000, 8000, 32000} {
			for _, clients := range []int{1, 8} {
				b.Run(fmt.Sprintf("model=%s/tokens=%d/clients=%d", model, tokens, clients), func(b *testing.B) {
					length := promptLength(b, r, model, tokens)
					measure(b, clients, length, func(random *rand.Rand) error {
						at := random.IntN(len(corpus()) - length)
						_, err := r.Encode(b.Context(), model, Input{Raw: window(at, length)})
						return err
					})
				})
			}
		}
	}
}

// measure shares b.N calls among clients, and reports how long a call takes and what all of them get through.
func measure(b *testing.B, clients, bytes int, call func(*rand.Rand) error) {
	took := make([]time.Duration, b.N)
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for client := range clients {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for i := client; i < b.N; i += clients {
				started := time.Now()
				if err := call(random); err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(started)
			}
		})
	}
	group.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	b.ReportMetric(float64(bytes)*float64(b.N)/1e6/b.Elapsed().Seconds(), "MB/s")
}

func BenchmarkRender(b *testing.B) {
	r := benchRegistry(b, 1)
	defer func() { _ = r.Close() }()
	chat := Input{}
	for i := range 10 {
		chat.Messages = append(chat.Messages,
			Message{Role: "user", Content: fmt.Sprintf("Question %d about the file: %s", i, window(i*1000, 800))},
			Message{Role: "assistant", Content: "An answer of a few words."})
	}
	chat.Messages = append(chat.Messages, Message{Role: "user", Content: "And now?"})
	for _, model := range r.Models() {
		if _, err := r.Render(b.Context(), model, chat); ReasonOf(err) == ReasonNoTemplate {
			continue
		}
		for name, in := range map[string]Input{"single": {Prompt: window(0, 30_000)}, "chat": chat} {
			b.Run(fmt.Sprintf("model=%s/input=%s", model, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.Render(b.Context(), model, in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkMemory reports the resident memory with all models loaded, and what 10,000 requests add to it.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		before := resident(b)
		r := benchRegistry(b, 1)
		models := r.Models()
		loaded := resident(b)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 10_000 {
			at := random.IntN(len(corpus()) - 20_000)
			if _, err := r.Encode(b.Context(), models[i%len(models)], Input{Raw: window(at, 4000)}); err != nil {
				b.Fatal(err)
			}
			if i == 999 {
				b.ReportMetric(float64(resident(b)-loaded), "RSS-after-1k-B")
			}
		}
		b.ReportMetric(float64(loaded-before)/float64(len(models)), "RSS/model-B")
		b.ReportMetric(float64(resident(b)-loaded), "RSS-after-10k-B")
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// resident is the process's resident memory in bytes, where the kernel tells.
func resident(b *testing.B) int {
	b.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("resident memory is read from /proc")
	}
	var size, pages int
	if _, err := fmt.Sscan(string(raw), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * os.Getpagesize()
}
