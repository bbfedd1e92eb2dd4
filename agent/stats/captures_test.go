package stats

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCapturedPages reads metrics pages of real engines, from the folder named by INFERENCECACHE_CAPTURES.
func TestCapturedPages(t *testing.T) {
	dir := os.Getenv("INFERENCECACHE_CAPTURES")
	if dir == "" {
		t.Skip("INFERENCECACHE_CAPTURES names no folder of captured streams")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.metrics-*.txt.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no metrics pages in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt.gz")
		t.Run(name, func(t *testing.T) {
			text := gunzip(t, file)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }))
			defer server.Close()
			ranks := 1
			if strings.Contains(name, "-dp2") {
				ranks = 2
			}
			var says Process
			s := New(Config{Replica: "pod-a", URL: server.URL, Ranks: ranks, Observe: func(p Process) { says = p }, Log: quiet()})
			all, err := s.scrape(context.Background())
			if name == "vllm-0.32.0-dp2.metrics-before" { // engines in several processes say nothing before their first request
				if err == nil {
					t.Errorf("statistics of a page without load: %v", all)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v, %v", says, all)
			if alone := says.Started > 0; alone != (ranks == 1) { // several ranks are several processes
				t.Errorf("started %v", says.Started)
			}
			for r, is := range says.Ranks {
				if is.GPUBlocks != 130 || is.Asleep != strings.HasSuffix(name, "-asleep") {
					t.Errorf("rank %d: %+v", r, is)
				}
			}
			if offload := strings.Contains(name, "-offload.metrics-after"); offload != (all[0].T2QueryTokens > 0) {
				t.Errorf("offload tier: %v", all[0])
			}
		})
	}
}

func gunzip(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
