package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func TestCommandServesUntilItIsCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stderr := &log{}
	args := []string{"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", "--snapshot-bind-address=", "--log-format=text"}
	code := make(chan int, 1)
	go func() { code <- cli.Run(ctx, newCommand(), args, io.Discard, stderr) }()
	for !strings.Contains(stderr.String(), "msg=serving") && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if got := <-code; got != cli.ExitOK {
		t.Fatalf("exit code %d: %s", got, stderr)
	}
	for _, want := range []string{"msg=serving", "msg=stopped"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not logged: %s", want, stderr)
		}
	}
}

func TestBadFlagsAreUsageErrors(t *testing.T) {
	for name, c := range map[string]struct{ arg, want string }{
		"a block size of 0":        {"--engine-block-size=0", "--engine-block-size must be more than 0"},
		"a negative index":         {"--max-index-entries=-1", "--max-index-entries must be more than 0"},
		"no lease":                 {"--agent-lease=0s", "--agent-lease must be more than 0"},
		"aliases of no models":     {"--tokenizer-aliases=names.yaml", "--tokenizer-aliases needs --tokenizer-models-dir"},
		"a short key":              {"--tenant-namespace-key=/dev/null", "0 bytes, at least 32"},
		"a time zone of nowhere":   {"--tokenizer-timezone=Mars/Olympus", "no time zone"},
		"a format that is unknown": {"--log-format=xml", "must be one of text, json"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := cli.Run(t.Context(), newCommand(), []string{"--snapshot-bind-address=", c.arg}, &stdout, &stderr)
			if code != cli.ExitUsage || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}

func TestAddressThatCannotBeUsedIsAnError(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := []string{"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=256.0.0.1:1", "--snapshot-bind-address="}
	if code := cli.Run(t.Context(), newCommand(), args, &stdout, &stderr); code != cli.ExitError {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(stderr.String(), "listen for HTTP") {
		t.Errorf("stderr %q", &stderr)
	}
}
