package prompts

import (
	"bytes"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func spec(body string) *v1alpha1.PromptTemplateSpec {
	required := true
	return &v1alpha1.PromptTemplateSpec{Body: body, Slots: []v1alpha1.TemplateSlot{
		{Name: "system", Type: v1alpha1.SlotStable, Required: &required},
		{Name: "hint", Type: v1alpha1.SlotStable},
		{Name: "question", Type: v1alpha1.SlotMutable},
	}}
}

func TestSlotsAreFilledAndNothingElseHappens(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		values map[string]string
		want   string // the prompt, or part of the error
		fails  bool
	}{
		"both spellings":           {"{{ system }}|{{.system}}|{{system}}", map[string]string{"system": "S"}, "S|S|S", false},
		"an optional slot":         {"a{{ hint }}b", map[string]string{"system": ""}, "ab", false},
		"values that look alike":   {"{{system}}", map[string]string{"system": "{{ hint }}<&>"}, "{{ hint }}<&>", false},
		"a required slot":          {"{{hint}}", nil, "system is required", true},
		"a value of no slot":       {"x", map[string]string{"system": "", "other": ""}, `"other" is no slot`, true},
		"more than is accepted":    {"{{system}}", map[string]string{"system": strings.Repeat("x", MaxBytes+1)}, "more than", true},
		"a slot that is not known": {"a\nb{{ other }}", nil, "line 2: {{ other }}", true},
		"braces without an end":    {"\n\n{{ system", nil, "line 3: {{ has no }}", true},
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := Parse(spec(c.body))
			var got Rendered
			if err == nil {
				got, err = parsed.Render(c.values)
			}
			if (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), c.want) || !c.fails && string(got.Prompt) != c.want {
				t.Errorf("got %.80q, %v, want %q", got.Prompt, err, c.want)
			}
		})
	}
}

func TestTheHashIsThatOfWhatPrecedesTheFirstMutableSlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z]{0,3}`)
		system, one, other := text.Draw(t, "system"), text.Draw(t, "one"), text.Draw(t, "other")
		parsed, err := Parse(spec("{{system}}{{question}}{{system}}"))
		if err != nil {
			t.Fatal(err)
		}
		a, _ := parsed.Render(map[string]string{"system": system, "question": one})
		b, _ := parsed.Render(map[string]string{"system": system, "question": other})
		if !bytes.Equal(a.StableHash, b.StableHash) || (system == "") != (a.StableHash == nil) || string(a.Prompt) != system+one+system {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

// The values are part of the contract between replicas, and versions.
func TestHashAndRevisionStayWhatTheyAre(t *testing.T) {
	parsed, err := Parse(spec("You are {{system}}.\n{{question}}"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parsed.Render(map[string]string{"system": "kind", "question": "Why?"})
	if err != nil {
		t.Fatal(err)
	}
	if hash := hex.EncodeToString(got.StableHash); hash != "23e679cd3a3c9718" || parsed.Revision != "3d7b766868cb35f9" {
		t.Errorf("hash %s, revision %s", hash, parsed.Revision)
	}
	changed := spec("You are {{system}}.\n{{question}}")
	changed.Slots[2].Type = v1alpha1.SlotStable
	if other, _ := Parse(changed); other.Revision == parsed.Revision {
		t.Error("another type of a slot has the same revision")
	}
}

func TestTemplatesOfOthersAreNotFound(t *testing.T) {
	dir := t.TempDir()
	manifest := "apiVersion: inferencecache.io/v1alpha1\nkind: PromptTemplate\nmetadata: {name: chat, namespace: team-a}\nspec: {body: %q}\n"
	write := func(body string) {
		if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte(strings.Replace(manifest, "%q", body, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("hello")
	s := NewStore(slog.New(slog.DiscardHandler), "folder", "cluster")
	f := NewFolder(dir, s.Feed("folder"))
	for _, c := range []struct {
		ref, tenant string
		want        bool
	}{
		{"team-a/chat", "", true},
		{"team-a/chat", "team-a", true},
		{"chat", "team-a", true},
		{"team-a/chat", "team-b", false},
		{"chat", "team-b", false},
		{"chat", "", false},
		{"", "", false},
		{"team-a/", "", false},
	} {
		if _, found, err := s.Find(c.ref, c.tenant); found != c.want || err != nil {
			t.Errorf("%q for tenant %q: found %v, %v", c.ref, c.tenant, found, err)
		}
	}
	write("'{{ nothing }}'")
	f.read(false)
	if _, found, err := s.Find("chat", "team-a"); !found || err == nil {
		t.Errorf("a broken template: found %v, %v", found, err)
	}
	write("{")
	f.read(false)
	if _, found, _ := s.Find("chat", "team-a"); !found {
		t.Error("a broken file takes the templates away")
	}
	stronger := &v1alpha1.PromptTemplate{Spec: v1alpha1.PromptTemplateSpec{Body: "from the cluster"}}
	stronger.Namespace, stronger.Name = "team-a", "chat"
	s.Feed("cluster").Replace([]*v1alpha1.PromptTemplate{stronger})
	if found, _, err := s.Find("chat", "team-a"); err != nil || found.Revision == "" {
		t.Errorf("a template of a stronger source is not the one in force: %v", err)
	}
}
