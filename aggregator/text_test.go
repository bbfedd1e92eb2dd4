package aggregator_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/tokenize"
)

// wantNoTokenizer checks what an aggregator that makes no token ids answers, counts and, once, says.
func wantNoTokenizer(t *testing.T, modelsDir, why string) {
	t.Helper()
	var logged bytes.Buffer
	s := start(t, func(c *aggregator.Config) {
		c.Tokenizer.ModelsDir, c.Log = modelsDir, slog.New(slog.NewTextHandler(&logged, nil))
	})
	s.report(t, idle("pod-a"))
	for _, req := range []*pb.LookupRouteRequest{
		{PromptText: "hello"}, {RawText: "hello"}, {Messages: []*pb.ChatMessage{{Role: "user", Content: "hello"}}},
	} {
		req.TenantId, req.ModelId, req.HashScheme = "t", "m", "vllm"
		got := s.lookupRoute(t, req)
		if got.ReasonCode != "NO_HINT" || got.TextReason != "unavailable" || len(got.TokenIds)+len(got.ReplicaScores) > 0 {
			t.Errorf("answer %v", got)
		}
	}
	_, metrics := s.get(t, "/metrics")
	for _, want := range []string{"inferencecache_tokenizer_available 0\n", "inferencecache_tokenize_total{reason=\"unavailable\"} 3\n"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(logged.String(), why); n != 1 {
		t.Errorf("%q is logged %d times: %s", why, n, &logged)
	}
}

func TestWithoutModelsTextHasNoHint(t *testing.T) {
	wantNoTokenizer(t, "", "no folder of tokenizer models")
}

func TestWithoutTheLibraryTextHasNoHint(t *testing.T) {
	available, why := tokenize.Available()
	if available {
		t.Skip("this build has the tokenizer library")
	}
	wantNoTokenizer(t, t.TempDir(), why)
}
