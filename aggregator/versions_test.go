package aggregator

import (
	"fmt"
	"strings"
	"testing"
)

func TestOnlyTheCommonestVersionsHaveSeriesOfTheirOwn(t *testing.T) {
	counts, total := map[string]int{}, 0
	for i := range 3 * maxVersions {
		counts[fmt.Sprint("v", i)] = i + 1
		total += i + 1
	}
	got := commonest(counts)
	if len(got) != maxVersions+1 || got["v47"] != 48 || got["v32"] != 33 || got["v31"] != 0 {
		t.Errorf("%d series: %v", len(got), got)
	}
	for _, n := range got {
		total -= n
	}
	if total != 0 {
		t.Errorf("%d are not counted", total)
	}
	few := map[string]int{"v1": 2, "v2": 1}
	if got := commonest(few); len(got) != 2 || got["v1"] != 2 {
		t.Errorf("few versions: %v", got)
	}
}

func TestALoggedDisagreementIsBounded(t *testing.T) {
	if got := bounded(strings.Repeat("é", 10_000)); len(got) > 1027 || !strings.HasSuffix(got, "...") || !strings.HasPrefix(got, "éé") {
		t.Errorf("%d bytes", len(got))
	}
}
