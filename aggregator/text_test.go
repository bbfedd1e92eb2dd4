package aggregator_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/tokenize"
)

// wantNoTokenizer checks what an aggregator that makes no token ids answers, counts and, once, says.
func wantNoTokenizer(t *testing.T, modelsDir, why, metric string) {
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
	for _, want := range []string{"inferencecache_tokenizer_available 0\n", "inferencecache_tokenizer_unavailable{why=\"" + metric + "\"} 1\n", "inferencecache_tokenize_total{reason=\"unavailable\"} 3\n"} {
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
	metric := "no_models_dir"
	if available, _ := tokenize.Available(); !available {
		metric = "not_linked"
	}
	wantNoTokenizer(t, "", "no folder of tokenizer models", metric)
}

func TestWithoutTheLibraryTextHasNoHint(t *testing.T) {
	available, why := tokenize.Available()
	if available {
		t.Skip("this build has the tokenizer library")
	}
	wantNoTokenizer(t, t.TempDir(), why, "not_linked")
}

const template = `apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata: {name: chat, namespace: team-a}
spec:
  body: "You are {{ system }}. {{ question }}"
  slots:
  - {name: system, type: Stable, required: true}
  - {name: question, type: Mutable}
`

func TestTemplatesOfThePolicyFolderAreRendered(t *testing.T) {
	dir := t.TempDir()
	broken := strings.NewReplacer("name: chat", "name: broken", "{{ question }}", "{{ answer }}").Replace(template)
	if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte(template+"---\n"+broken), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *aggregator.Config) { c.PolicyDir, c.TenantNamespaceKey = dir, []byte("secret") })
	kind := map[string]string{"system": "kind", "question": "Why?"}
	for name, c := range map[string]struct {
		req          *pb.RenderTemplateRequest
		code, prompt string
	}{
		"by its whole name":             {&pb.RenderTemplateRequest{TemplateRef: "team-a/chat", Variables: kind}, "OK", "You are kind. Why?"},
		"by its name for its tenant":    {&pb.RenderTemplateRequest{TemplateRef: "chat", TenantId: "team-a", Variables: kind}, "OK", "You are kind. Why?"},
		"for a model without tokenizer": {&pb.RenderTemplateRequest{TemplateRef: "team-a/chat", ModelId: "m", Variables: kind}, "OK", "You are kind. Why?"},
		"for another tenant":            {&pb.RenderTemplateRequest{TemplateRef: "team-a/chat", TenantId: "team-b", Variables: kind}, "TEMPLATE_NOT_FOUND", ""},
		"one that is not there":         {&pb.RenderTemplateRequest{TemplateRef: "team-a/none"}, "TEMPLATE_NOT_FOUND", ""},
		"without a required value":      {&pb.RenderTemplateRequest{TemplateRef: "team-a/chat"}, "RENDER_ERROR", ""},
		"one with a fault":              {&pb.RenderTemplateRequest{TemplateRef: "team-a/broken", Variables: kind}, "RENDER_ERROR", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := s.RenderTemplate(t.Context(), c.req)
			if err != nil || got.ReasonCode != c.code || string(got.RenderedPrompt) != c.prompt {
				t.Fatalf("got %v, %v", got, err)
			}
			if want := c.code == "OK" && c.req.TenantId != ""; want != (len(got.TenantNamespace) == 32) {
				t.Errorf("namespace %x of tenant %q", got.TenantNamespace, c.req.TenantId)
			}
			if got.StablePrefixTokens != 0 || len(got.StableBlockHashes) != 0 || (got.TextReason == "unavailable") != (c.req.ModelId != "") {
				t.Errorf("keys of tokens without a tokenizer: %v", got)
			}
			if ok := c.code == "OK"; ok != (len(got.StablePrefixHash) == 8) || ok && len(got.TemplateRevision) != 16 {
				t.Errorf("hash %x, revision %q", got.StablePrefixHash, got.TemplateRevision)
			}
		})
	}
	_, metrics := s.get(t, "/metrics")
	for _, want := range []string{`{code="OK"} 3`, `{code="TEMPLATE_NOT_FOUND"} 2`, `{code="RENDER_ERROR"} 2`} {
		if !strings.Contains(metrics, "inferencecache_render_template_total"+want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
}
