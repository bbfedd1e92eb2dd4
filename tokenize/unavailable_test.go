//go:build !(tokenizers && cgo)

package tokenize

import (
	"strings"
	"testing"
)

func TestWithoutTheLibraryEveryRequestIsRefusedWithItsReason(t *testing.T) {
	if ok, why := Available(); ok || !strings.Contains(why, "hack/native.sh") {
		t.Fatalf("available %v: %s", ok, why)
	}
	var seen []Observation
	r, err := Open(t.Context(), Config{Dir: "/does/not/exist", Log: quiet(), Observe: func(o Observation) { seen = append(seen, o) }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Encode(t.Context(), "m", Input{Prompt: "hi"})
	wantReason(t, err, ReasonUnavailable)
	_, err = r.Render(t.Context(), "m", Input{Prompt: "hi"})
	wantReason(t, err, ReasonUnavailable)
	if len(seen) != 1 || seen[0].Reason != ReasonUnavailable || len(r.Models()) != 0 {
		t.Errorf("observed %v, models %v", seen, r.Models())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
