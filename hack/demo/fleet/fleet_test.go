package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/hack/demo/fleet"
)

// programs writes a shell script for each name and returns their folder.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const boundEngine = `echo '{"http":"127.0.0.1:1","events":["tcp://127.0.0.1:2"],"replay":["tcp://127.0.0.1:3"]}'; echo $$ >> "$PIDS"; exec sleep 60`

func TestStart_ThatFailsSaysWhyAndLeavesNothingRunning(t *testing.T) {
	tests := []struct {
		name    string
		scripts map[string]string
		want    []string
		started int
	}{
		{
			"an engine ends by itself",
			map[string]string{"fakeengine": "echo cannot bind >&2; exit 7"},
			[]string{"ended by itself: exit status 7", "cannot bind"},
			0,
		},
		{
			"an engine prints something else",
			map[string]string{"fakeengine": "echo '{}'; exit 0"},
			[]string{"ended by itself: exit status 0"},
			0,
		},
		{
			"a program is missing",
			map[string]string{"fakeengine": boundEngine},
			[]string{"start aggregator", "no such file"},
			2,
		},
		{
			"the aggregator ends by itself",
			map[string]string{"fakeengine": boundEngine, "aggregator": "echo bad flag >&2; exit 2"},
			[]string{"aggregator (process ", "exit status 2", "bad flag"},
			2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			t.Setenv("PIDS", pids)
			_, _, err := fleet.Start(t.Context(), fleet.Config{BinDir: programs(t, tt.scripts), Dir: t.TempDir(), Engines: 2, Blocks: 10, BlockTokens: 16})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q has no %q", err, want)
				}
			}
			if tt.started == 0 {
				return
			}
			list, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			started := strings.Fields(string(list))
			if len(started) != tt.started {
				t.Errorf("%d engines were started, want %d", len(started), tt.started)
			}
			for _, pid := range started {
				if _, err := os.Stat("/proc/" + pid); err == nil {
					t.Errorf("process %s is still running", pid)
				}
			}
		})
	}
}
