package jinja

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// now is the clock of testdata/snippets.py.
var now = time.Date(2025, 7, 1, 8, 5, 9, 0, time.UTC)

// values decodes a JSON object into variables.
func values(t testing.TB, raw []byte) map[string]Value {
	t.Helper()
	v, err := DecodeJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*Dict).values
}

func render(t testing.TB, source string, vars map[string]Value) (string, error) {
	t.Helper()
	template, err := Compile(source)
	if err != nil {
		return "", err
	}
	return template.Render(t.Context(), vars, now, Limits{})
}

func TestSnippetsRenderAsTransformersRendersThem(t *testing.T) {
	raw, err := os.ReadFile("testdata/snippets.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vars  json.RawMessage
		Cases []struct {
			Template string
			Want     string
			Error    string
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		t.Run(c.Template, func(t *testing.T) {
			got, err := render(t, c.Template, values(t, file.Vars))
			if c.Error != "" {
				if err == nil {
					t.Fatalf("rendered %q, want an error as in Jinja2 (%s)", got, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
