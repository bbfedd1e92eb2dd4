package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// execute runs the command until the test cancels it.
func execute(ctx context.Context, out io.Writer, args ...string) error {
	cmd := newCommand()
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

func TestCommandPrintsItsAddressesOnceBound(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	var running errgroup.Group
	running.Go(func() error {
		return execute(ctx, write, "--name", "pod-a", "--ranks", "2", "--lora", "a=1,b=2",
			"--http-bind-address", "127.0.0.1:0", "--events", "tcp://127.0.0.1:0", "--replay", "")
	})
	var line struct {
		Name   string
		HTTP   string
		Events []string
		Replay []string
	}
	if err := json.NewDecoder(read).Decode(&line); err != nil {
		t.Fatal(err)
	}
	if line.Name != "pod-a" || len(line.Events) != 2 || len(line.Replay) != 0 {
		t.Errorf("addresses: %+v", line)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+line.HTTP+"/health", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("health: status %d, %v", resp.StatusCode, err)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := running.Wait(); err != nil {
		t.Errorf("stopped with %v", err)
	}
}

func TestCommandRefusesBadFlags(t *testing.T) {
	for want, args := range map[string][]string{
		`log-level: "loud"`:   {"--log-level", "loud"},
		`event form: "xml"`:   {"--event-form", "xml"},
		`array fields: 11`:    {"--array-fields", "11"},
		`unknown command "x"`: {"x"},
	} {
		err := execute(t.Context(), io.Discard, args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one that says %s", args, err, want)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var help bytes.Buffer
	if err := execute(t.Context(), &help, "--help"); err != nil {
		t.Fatal(err)
	}
	for _, flag := range strings.Fields(`name model lora http-bind-address events replay topic buffer-steps hwm event-form
		array-fields hash-form replay-form eager-clear ranks blocks block-size prefill-us-per-token time-scale
		max-waiting seed log-level`) {
		if !strings.Contains(help.String(), "--"+flag+" ") {
			t.Errorf("no --%s in\n%s", flag, help.String())
		}
	}
}
