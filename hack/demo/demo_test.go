package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/hack/command"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const traceLine = `{"timestamp":0,"input_length":1000,"output_length":5,"hash_ids":[1,2]}` + "\n"

func TestScenario_IsAChatUnlessATraceIsGiven(t *testing.T) {
	chat, err := newScenario(options{seed: 5, requests: 70})
	if err != nil || workload.Requests(chat.sessions) != 70 || chat.minGain != minGain || chat.name != "70 chat requests of seed 5" {
		t.Errorf("chat: %+v, %v", chat.name, err)
	}
	file := write(t, strings.Repeat(traceLine, 3))
	traced, err := newScenario(options{trace: file, requests: 2, blocks: 100})
	if err != nil || len(traced.sessions) != 2 || traced.minGain != 0 || traced.blocks != 100 || traced.name != "the first 2 requests of trace.jsonl" {
		t.Errorf("trace: %+v, %v", traced.name, err)
	}
}

func TestScenario_MakesRoomForTheLongestPrompt(t *testing.T) {
	long := `{"timestamp":0,"input_length":1000000,"output_length":5,"hash_ids":[` + strings.Repeat("1,", 1953) + "1]}\n"
	s, err := newScenario(options{trace: write(t, long)})
	if err != nil || s.blocks*blockTokens < 1_000_005 {
		t.Errorf("%d blocks, %v", s.blocks, err)
	}
}

func TestCommand_RefusesWrongUsage(t *testing.T) {
	bin := t.TempDir()
	for _, program := range []string{"fakeengine", "agent", "aggregator"} {
		if err := os.WriteFile(filepath.Join(bin, program), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"a flag that is none", []string{"--bogus"}, "unknown flag: --bogus"},
		{"an argument", []string{"trace.jsonl"}, `unexpected argument "trace.jsonl"`},
		{"a negative count", []string{"--requests=-1"}, "--requests -1: must not be negative"},
		{"no time", []string{"--timeout=0s"}, "--timeout 0s: must be more than 0"},
		{"programs that are not built", []string{"--bin-dir", t.TempDir()}, "(make build builds it)"},
		{"a trace that is not there", []string{"--bin-dir", bin, "--trace", "no/such/file"}, "--trace no/such/file: open no/such/file: no such file"},
		{"a trace with a bad line", []string{"--bin-dir", bin, "--trace", write(t, traceLine+"{}\n")}, "line 2: timestamp is missing"},
		{"a cache that is too small", []string{"--bin-dir", bin, "--blocks", "9"}, "--blocks 9: the longest session needs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(tt.args)
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			usage := command.UsageError{}
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
				t.Errorf("error %v, output %q, want a usage error with %q", err, out.String(), tt.want)
			}
		})
	}
}
