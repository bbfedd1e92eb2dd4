package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/inferencecache/inferencecache/hack/chaos/plan"
)

// binaries is the folder of the programs under test, built once with the race detector.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		panic(err)
	}
	binaries = dir
	build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator),
		"../../cmd/agent", "../../cmd/aggregator", "../fakeengine/cmd/fakeengine")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the programs: %v\n%s", err, out))
	}
	defer func() { _ = os.RemoveAll(dir) }()
	goleak.VerifyTestMain(m)
}

// TestIndexesAreRightAgainAfterFaults is a short run of each of a few seeds.
func TestIndexesAreRightAgainAfterFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("runs two dozen processes for half a minute")
	}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			o := options{seed: seed, duration: 4 * time.Second, settle: 2 * time.Minute, touch: true, binDir: binaries, logDir: t.TempDir()}
			var progress strings.Builder
			r, err := run(t.Context(), o, &progress)
			if r != nil {
				r.complete()
				line, jsonErr := json.Marshal(r)
				t.Logf("%s (%v)", line, jsonErr)
				if err == nil {
					err = r.failures()
				}
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			if r.Requests == 0 || r.Hints == 0 || r.After.Held == 0 || r.Renewed.Held == 0 {
				t.Errorf("nothing happened: %+v", r)
			}
		})
	}
}

func TestReport_FailsOnWhateverIsNotRight(t *testing.T) {
	good := comparison{Settled: true}
	for name, tt := range map[string]struct {
		change func(*report)
		want   string
	}{
		"all is right":             {func(*report) {}, ""},
		"the index is not right":   {func(r *report) { r.After = comparison{Extra: 2} }, "once the faults were over, after 0.0 s: 2 extra"},
		"nor over new caches":      {func(r *report) { r.Renewed = comparison{Missing: 3} }, "over renewed caches, after 0.0 s: 0 extra, 3 missing"},
		"a lease was not observed": {func(r *report) { r.Expired = 4 }, "4 hints named caches of agents that were silent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{After: good, Renewed: good}
			tt.change(&r)
			got := fmt.Sprint(r.failures())
			if tt.want == "" && got != "<nil>" || !strings.Contains(got, tt.want) {
				t.Errorf("failures %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReport_Rates(t *testing.T) {
	r := report{}
	r.complete()
	if r.WrongRate != 0 || r.WrongRateCalm != 0 {
		t.Errorf("rates %v and %v of nothing", r.WrongRate, r.WrongRateCalm)
	}
	r.Hints, r.CalmHints, r.WrongInCalm, r.WrongInTrouble = 100, 50, 1, map[plan.Kind]int{plan.KillAgent: 2, plan.CutUplink: 2}
	r.complete()
	if r.WrongRate != 0.05 || r.WrongRateCalm != 0.02 {
		t.Errorf("rates %v and %v, want 0.05 and 0.02", r.WrongRate, r.WrongRateCalm)
	}
}

func TestOptions_RefuseWhatCannotWork(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no duration":     {[]string{"--duration", "0s"}, "--duration 0s: must be more than 0"},
		"no time":         {[]string{"--settle", "-1s"}, "--settle -1s"},
		"no programs":     {[]string{"--bin-dir", "nowhere"}, "make build builds it"},
		"an argument":     {[]string{"more"}, `unexpected argument "more"`},
		"an unknown flag": {[]string{"--chaos"}, "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(tt.args)
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
