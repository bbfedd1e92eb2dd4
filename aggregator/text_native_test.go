//go:build tokenizers && cgo

package aggregator_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Models of tokenize/testdata, and an alias.
const (
	chatModel = "small/qwen-like"
	rawModel  = "word-level"
	served    = "qwen"
	refusing  = "refusing"
)

// startTokenizer runs an aggregator with the small models, and a folder of policies if there is one, and waits until
// they are loaded.
func startTokenizer(t *testing.T, policies string) *server {
	t.Helper()
	models, aliases := t.TempDir(), filepath.Join(t.TempDir(), "aliases.yaml")
	linkModels(t, models)
	if err := os.WriteFile(aliases, []byte("aliases:\n  "+served+": "+chatModel+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *aggregator.Config) {
		c.Tokenizer.ModelsDir, c.Tokenizer.Aliases = models, aliases
		c.PolicyDir = policies
	})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		status, body := s.get(t, "/readyz")
		if status == http.StatusOK {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("not ready: %s", body)
		}
	}
}

// linkModels makes a folder of the models of tokenize/testdata and one whose chat template refuses everything.
func linkModels(t *testing.T, dir string) {
	t.Helper()
	testdata, err := filepath.Abs("../tokenize/testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, refusing), 0o700); err != nil {
		t.Fatal(err)
	}
	for target, link := range map[string]string{
		"small": "small", rawModel: rawModel, chatModel + "/tokenizer.json": refusing + "/tokenizer.json",
	} {
		if err := os.Symlink(filepath.Join(testdata, target), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, refusing, "chat_template.jinja"), []byte("{{ raise_exception('no') }}"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestALookupByTextEqualsThatByItsTokens(t *testing.T) {
	s := startTokenizer(t, "")
	text := strings.Repeat("The quick brown fox doesn't jump over 1,234 lazy dogs. ", 8)
	user := []*pb.ChatMessage{{Role: "user", Content: text}}
	rendered := "<|start|>user\n" + text + "<|end|>\n<|start|>assistant\n"
	forms := map[string]*pb.LookupRouteRequest{
		"a prompt":            {PromptText: text},
		"messages":            {Messages: user},
		"what is rendered":    {RawText: rendered, AddSpecialTokens: proto.Bool(false)},
		"messages with tools": {Messages: user, ToolsJson: `[{"type": "function", "function": {"name": "search"}}]`},
		"no start of answer":  {Messages: user, AddGenerationPrompt: proto.Bool(false)},
		"other variables":     {Messages: user, ChatTemplateKwargsJson: `{"enable_thinking": false}`},
	}
	ids := map[string][]uint32{}
	for name, req := range forms {
		req.TenantId, req.ModelId, req.HashScheme = "t", served, "vllm"
		got := s.lookupRoute(t, req)
		if got.TextReason != "" || len(got.TokenIds) < 64 {
			t.Fatalf("%s: %v", name, got)
		}
		ids[name] = got.TokenIds
	}
	for name, same := range map[string]bool{"messages": true, "what is rendered": true, "messages with tools": false, "no start of answer": false, "other variables": false} {
		if slices.Equal(ids["a prompt"], ids[name]) != same {
			t.Errorf("%s: ids %v, those of the prompt %v, want them equal: %v", name, ids[name], ids["a prompt"], same)
		}
	}
	for replica, held := range map[string][]uint32{"pod-a": ids["a prompt"][:256], "pod-b": ids["messages with tools"][:128]} {
		update := chainUpdate(replica, held)
		update.ModelId = served
		s.report(t, update)
	}
	for name, req := range forms {
		byText := s.lookupRoute(t, req)
		byTokens := s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: "t", ModelId: served, HashScheme: "vllm", TokenIds: ids[name]})
		if !slices.Equal(byText.TokenIds, ids[name]) || byTokens.TokenIds != nil {
			t.Errorf("%s: ids are echoed by text: %v, by tokens: %v", name, byText.TokenIds, byTokens.TokenIds)
		}
		ignored := protocmp.IgnoreFields(&pb.LookupRouteResponse{}, "token_ids", "lookup_latency_us")
		fresh := protocmp.IgnoreFields(&pb.ReplicaScore{}, "score", "estimated_cache_hit_prob") // they age
		if diff := cmp.Diff(byTokens, byText, protocmp.Transform(), ignored, fresh); diff != "" || byText.ReasonCode != "PREFIX_MATCH" {
			t.Errorf("%s: %s %s", name, byText.ReasonCode, diff)
		}
	}
}

func TestTheStablePartOfATemplateHasTheKeysOfItsBlocks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startTokenizer(t, dir)
	render := func(question string) *pb.RenderTemplateResponse {
		got, err := s.RenderTemplate(t.Context(), &pb.RenderTemplateRequest{
			TemplateRef: "team-a/chat", TenantId: "team-a", ModelId: served, HashScheme: "vllm",
			Variables: map[string]string{"system": strings.Repeat("kind and 1234 ", 20), "question": question},
		})
		if err != nil || got.ReasonCode != "OK" || got.TextReason != "" || got.BlockSize != 16 || got.StablePrefixTokens < 64 {
			t.Fatalf("rendered %v, %v", got, err)
		}
		return got
	}
	first := render("Why?")
	update := &pb.CacheStateUpdate{}
	for _, question := range []string{"Why?", "ly and more", "", "<|end|>\n<|start|>assistant\n", "\u0301 composed"} {
		got := render(question)
		ids := s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: "team-a", ModelId: served, HashScheme: "vllm", PromptText: string(got.RenderedPrompt)}).TokenIds
		var keys []byte
		for _, key := range fingerprint.Chain(ids[:got.StablePrefixTokens], 16) {
			keys = binary.BigEndian.AppendUint64(keys, key)
		}
		if !slices.Equal(keys, got.StableBlockHashes) || !slices.Equal(keys[len(keys)-8:], got.StablePrefixHash) {
			t.Errorf("%q: keys %x and %x, want %x", question, got.StableBlockHashes, got.StablePrefixHash, keys)
		}
		if !slices.Equal(got.StablePrefixHash, first.StablePrefixHash) {
			t.Errorf("%q: another hash than that of the first question", question)
		}
		update = chainUpdate("pod-a", ids)
	}
	update.TenantId, update.ModelId = "team-a", served
	s.report(t, update)
	for form, req := range map[string]*pb.LookupRouteRequest{
		"its hash":   {PrefixHash: first.StablePrefixHash, PrefixTokenCount: first.StablePrefixTokens},
		"its blocks": {PackedBlockHashes: first.StableBlockHashes, BlockSize: first.BlockSize},
	} {
		req.TenantId, req.ModelId, req.HashScheme = "team-a", served, "vllm"
		got := s.lookupRoute(t, req)
		if len(got.ReplicaScores) != 1 || got.ReplicaScores[0].MatchedTokens != first.StablePrefixTokens {
			t.Errorf("by %s: %v, want a match of %d tokens", form, got, first.StablePrefixTokens)
		}
	}
}

func TestTextThatHasNoIDsIsAnsweredWithItsReason(t *testing.T) {
	s := startTokenizer(t, "")
	user := &pb.ChatMessage{Role: "user", Content: "hi"}
	for name, c := range map[string]struct {
		model  string
		req    *pb.LookupRouteRequest
		reason string
	}{
		"an unknown model":        {"../models/" + chatModel, &pb.LookupRouteRequest{PromptText: "hi"}, "unknown_model"},
		"no chat template":        {rawModel, &pb.LookupRouteRequest{PromptText: "hi"}, "no_template"},
		"a template that refuses": {refusing, &pb.LookupRouteRequest{PromptText: "hi"}, "template_error"},
		"a message of nobody":     {chatModel, &pb.LookupRouteRequest{Messages: []*pb.ChatMessage{{Content: "hi"}}}, "bad_input"},
		"an answer and its rest":  {chatModel, &pb.LookupRouteRequest{Messages: []*pb.ChatMessage{user}, ContinueFinalMessage: true}, "bad_input"},
		"an image": {chatModel, &pb.LookupRouteRequest{Messages: []*pb.ChatMessage{
			{Role: "user", ContentPartsJson: `[{"type":"image_url","image_url":{"url":"x"}}]`},
		}}, "not_text"},
		"too much text":                    {chatModel, &pb.LookupRouteRequest{RawText: strings.Repeat("a", 1<<20+1)}, "too_large"},
		"too long a chat":                  {chatModel, &pb.LookupRouteRequest{Messages: slices.Repeat([]*pb.ChatMessage{user}, 4097)}, "too_large"},
		"less than a block, which has ids": {chatModel, &pb.LookupRouteRequest{RawText: "hi"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.req.TenantId, c.req.ModelId, c.req.HashScheme = "t", c.model, "vllm"
			got := s.lookupRoute(t, c.req)
			if got.ReasonCode != "NO_HINT" || got.TextReason != c.reason || (len(got.TokenIds) > 0) != (c.reason == "") {
				t.Errorf("answer %v, want %q", got, c.reason)
			}
		})
	}
	_, metrics := s.get(t, "/metrics")
	for _, want := range []string{
		"inferencecache_tokenizer_available 1\n", "inferencecache_tokenizer_unavailable{why=\"models_load\"} 0\n", "inferencecache_tokenize_total{reason=\"ok\"} 1\n",
		"inferencecache_tokenize_total{reason=\"bad_input\"} 2\n", "inferencecache_tokenize_total{reason=\"too_large\"} 2\n",
		"inferencecache_tokenize_seconds_count{stage=\"encode\"} 1\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %q in the metrics", want)
		}
	}
}

func TestCallsThatAreCancelledUnderLoadLeaveNothingBehind(t *testing.T) {
	s := startTokenizer(t, "")
	long := &pb.LookupRouteRequest{TenantId: "t", ModelId: chatModel, HashScheme: "vllm", RawText: strings.Repeat("word ", 100_000) + "\U00016ea0"}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.LookupRoute(ctx, long) // by the slow core, which keeps the CPUs busy
			}
		})
	}
	for range 100 {
		cut, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		_, _ = s.LookupRoute(cut, long) // cut off at any point
		cancel()
	}
	stop()
	load.Wait()
	if got := s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: "t", ModelId: chatModel, HashScheme: "vllm", PromptText: "hi"}); got.TextReason != "" {
		t.Errorf("no slot is free: %v", got)
	}
	if _, metrics := s.get(t, "/metrics"); strings.Contains(metrics, "inferencecache_tokenize_total{reason=\"timeout\"} 0\n") {
		t.Error("no call that was cut off is counted")
	}
}

func TestTextThatIsNotUTF8IsAnErrorOfItsCallAlone(t *testing.T) {
	s := startTokenizer(t, "")
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: chatModel, HashScheme: "vllm", RawText: "a\xff"}
	if _, err := s.LookupRoute(t.Context(), req); err == nil {
		t.Error("text that protobuf does not allow was sent")
	}
	req.RawText = "a"
	if got := s.lookupRoute(t, req); got.TextReason != "" {
		t.Errorf("answer %v", got)
	}
}

func TestAFolderOfModelsThatIsNotThereIsAnError(t *testing.T) {
	a, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Tokenizer: aggregator.Tokenizer{ModelsDir: filepath.Join(t.TempDir(), "none")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("error %v", err)
	}
}
