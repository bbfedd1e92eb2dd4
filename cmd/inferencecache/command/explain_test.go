package command_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func TestLookup_ExplainsAHint(t *testing.T) {
	address := startAggregator(t)
	tokens := make([]uint32, 128)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	report(t, address, "vllm-0", tokens)
	report(t, address, "vllm-1", tokens[:32])
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(tokens), " ", ","), "[]")
	got := run(t, "", "lookup", "--model", "m", "--tokens", list, "--explain", "--server", address)
	if got.code != 0 {
		t.Fatalf("exit %d, %s", got.code, got.stderr)
	}
	// Age, freshness and the score that follows from it depend on how long the test took to get here.
	for _, want := range []string{
		`PREFIX_MATCH in `,
		`Decided by hint\. 2 of 2 caches of the scope competed for 128 prompt tokens in blocks of 16\.`,
		`match +2 of 2 caches hold a leading part; the best scores 4\d\S* with 128 tokens`,
		`routing_floor +a hint needs a score of 0\.1`,
		`Score = matched x freshness x pressure factor x SLO bias x power\.`,
		`vllm-0 +0 +hinted +128 +T1 +\d+s +[01]\.\d{3} +0\.250 +0\.750 +1\.000 +0\.500 +4\d\.\d +0\.000 +\d+s`,
		`vllm-1 +0 +below_minimum_matched_tokens +32 `,
	} {
		if !regexp.MustCompile(want).MatchString(got.stdout) {
			t.Errorf("%s is missing in\n%s", want, got.stdout)
		}
	}
	one := run(t, "", "lookup", "--model", "m", "--tokens", list, "--candidates", "vllm-1", "--max-results", "1", "--server", address)
	if !strings.HasPrefix(one.stdout, "AFFINITY_HINT") || !strings.Contains(one.stdout, "\nvllm-1 ") || strings.Contains(one.stdout, "vllm-0") {
		t.Errorf("with one candidate:\n%s", one.stdout)
	}
}

func TestLookup_SaysWhatCannotBeExplained(t *testing.T) {
	s := &scripted{lookup: &icpb.LookupRouteResponse{ReasonCode: "NO_HINT"}}
	got := run(t, "", "lookup", "--model", "m", "--tokens", "1", "--explain", "--server", s.serve(t))
	if !strings.Contains(got.stdout, "The server explains nothing") || !s.asked.GetExplain() {
		t.Errorf("stdout %q, asked %v", got.stdout, s.asked)
	}
	s.lookup.Explanation = &icpb.LookupExplanation{
		DecidedBy: "affinity", Members: 3000, ScopeMembers: 3000, Omitted: 2999,
		Candidates: []*icpb.CandidateExplanation{{ReplicaId: "a", Outcome: "affinity", PressureFactor: 1}},
	}
	got = run(t, "", "lookup", "--model", "m", "--tokens", "1", "--explain", "--server", s.serve(t))
	for _, want := range []string{"a        0     affinity  0        -     -    -          -         1.000   -         -      -      -         -", "2999 more caches are left out."} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, got.stdout)
		}
	}
}
