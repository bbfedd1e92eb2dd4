package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func TestLookup_SendsTextAsItIsGiven(t *testing.T) {
	s := &scripted{lookup: &icpb.LookupRouteResponse{ReasonCode: "NO_HINT", TextReason: "unknown_model"}}
	address := s.serve(t)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	messages := file("messages.json", "\n"+`[{"role": "user", "content": "hi"}]`)
	body := file("body.json", `{"model": "other", "messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": false}`)
	tools := file("tools.json", `[{"z": 1, "a": 2}]`+"\n")
	user := []*icpb.ChatMessage{{Role: "user", Content: "hi"}}
	off := false
	for name, c := range map[string]struct {
		args  []string
		stdin string
		want  *icpb.LookupRouteRequest // nil where the command line is wrong
	}{
		"a message":                {[]string{"--text", "hi, you"}, "", &icpb.LookupRouteRequest{PromptText: "hi, you"}},
		"a completion":             {[]string{"--raw-text", "hi"}, "", &icpb.LookupRouteRequest{RawText: "hi"}},
		"a chat":                   {[]string{"--messages", messages}, "", &icpb.LookupRouteRequest{Messages: user}},
		"a chat on standard input": {[]string{"--messages", "-"}, `[{"role": "user", "content": "hi"}]`, &icpb.LookupRouteRequest{Messages: user}},
		"a whole request":          {[]string{"--messages", body}, "", &icpb.LookupRouteRequest{Messages: user, AddGenerationPrompt: &off}},
		"tools and variables": {
			[]string{"--messages", messages, "--tools", tools, "--chat-template-kwargs", `{"a": 1}`},
			"",
			&icpb.LookupRouteRequest{Messages: user, ToolsJson: `[{"z": 1, "a": 2}]`, ChatTemplateKwargsJson: `{"a": 1}`},
		},
		"tools without a chat":  {[]string{"--tokens", "1", "--tools", tools}, "", nil},
		"tools of a completion": {[]string{"--raw-text", "x", "--tools", tools}, "", nil},
		"no file":               {[]string{"--messages", filepath.Join(dir, "none")}, "", nil},
		"no messages":           {[]string{"--messages", "-"}, "[]", nil},
		"no JSON":               {[]string{"--messages", "-"}, "hi", nil},
		"nothing":               {[]string{"--text", ""}, "", nil},
		"two prompts":           {[]string{"--text", "x", "--tokens", "1"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, c.stdin, append([]string{"lookup", "--server", address, "--model", "m", "--tenant", "t"}, c.args...)...)
			if c.want == nil {
				if got.code != cli.ExitUsage {
					t.Errorf("exit %d: %s", got.code, got.stderr)
				}
				return
			}
			c.want.ModelId, c.want.TenantId, c.want.HashScheme = "m", "t", "vllm"
			if diff := cmp.Diff(c.want, s.asked, protocmp.Transform()); got.code != cli.ExitOK || diff != "" {
				t.Errorf("exit %d %s: %s", got.code, got.stderr, diff)
			}
			if want := "No token ids could be made of the text: unknown_model.\n"; !strings.Contains(got.stdout, want) {
				t.Errorf("printed %q, want %q in it", got.stdout, want)
			}
		})
	}
}

func (s *scripted) RenderTemplate(_ context.Context, r *icpb.RenderTemplateRequest) (*icpb.RenderTemplateResponse, error) {
	answer := &icpb.RenderTemplateResponse{ReasonCode: "TEMPLATE_NOT_FOUND"}
	if r.GetTemplateRef() == "team-a/chat" {
		answer = &icpb.RenderTemplateResponse{
			ReasonCode: "OK", TemplateRevision: "3d7b766868cb35f9", RenderedPrompt: []byte(r.GetVariables()["system"]), StablePrefixHash: []byte{0, 255},
		}
	}
	if r.GetModelId() == "m" {
		answer.StablePrefixTokens, answer.BlockSize = 32, 16
	}
	return answer, nil
}

func TestRender_PrintsTheAnswer(t *testing.T) {
	address := (&scripted{}).serve(t)
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"bytes":         {[]string{"--template", "team-a/chat", "--set", "system=a=b, c"}, "OK, revision 3d7b766868cb35f9\nStable part 00ff, a hash of bytes.\n\na=b, c\n", cli.ExitOK},
		"tokens":        {[]string{"--template", "team-a/chat", "--model", "m"}, "OK, revision 3d7b766868cb35f9\nStable part 00ff: 32 tokens in blocks of 16.\n", cli.ExitOK},
		"none":          {[]string{"--template", "x", "--tenant", "t"}, "TEMPLATE_NOT_FOUND, revision -\nNo stable part.\n", cli.ExitOK},
		"a wrong value": {[]string{"--template", "x", "--set", "system"}, "", cli.ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, "", append([]string{"render", "--server", address}, c.args...)...)
			if got.code != c.code || got.stdout != c.want {
				t.Errorf("exit %d %s, printed %q, want %q", got.code, got.stderr, got.stdout, c.want)
			}
		})
	}
}
