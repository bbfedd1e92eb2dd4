package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// result is what one run of the test command did.
type result struct {
	code           int
	stdout, stderr string
	port           int
	peers          []string
	wait           time.Duration
}

// runServe runs a small command with two flag groups. fail is what its code returns.
func runServe(t *testing.T, fail error, args ...string) result {
	t.Helper()
	var r result
	root := &cobra.Command{Use: "serve", Short: "Serve", RunE: func(*cobra.Command, []string) error { return fail }}
	Group(root, "Network", func(fs *pflag.FlagSet) {
		fs.IntVar(&r.port, "bind-port", 80, "port to listen on")
		fs.StringArrayVar(&r.peers, "peer", nil, "a peer (repeatable)")
	})
	Group(root, "Timing", func(fs *pflag.FlagSet) {
		fs.DurationVar(&r.wait, "wait", time.Second, "how long to wait")
	})
	AddLogFlags(root)
	var stdout, stderr bytes.Buffer
	r.code = Run(context.Background(), root, args, &stdout, &stderr)
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

func TestExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		fail   error
		args   []string
		code   int
		stderr string
	}{
		"success is 0":                        {code: ExitOK},
		"help is 0":                           {args: []string{"--help"}, code: ExitOK},
		"a failing command is 1":              {fail: errors.New("disk on fire"), code: ExitError, stderr: "serve: disk on fire\n"},
		"a configuration error is 2":          {fail: UsageError(errors.New("no engines")), code: ExitUsage, stderr: "serve: no engines\n"},
		"an unknown flag is 2":                {args: []string{"--bogus"}, code: ExitUsage, stderr: "unknown flag: --bogus"},
		"a value of the wrong type is 2":      {args: []string{"--bind-port=x"}, code: ExitUsage, stderr: "--bind-port"},
		"a word that is not allowed is 2":     {args: []string{"--log-format=xml"}, code: ExitUsage, stderr: "must be one of text, json"},
		"an argument that is not wanted is 2": {args: []string{"extra"}, code: ExitUsage, stderr: "extra"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runServe(t, c.fail, c.args...)
			if r.code != c.code || !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("code %d, stderr %q; want %d with %q", r.code, r.stderr, c.code, c.stderr)
			}
		})
	}
}

func TestEnvironmentTwins(t *testing.T) {
	t.Run("a variable sets its flag", func(t *testing.T) {
		t.Setenv("INFERENCECACHE_BIND_PORT", "81")
		if r := runServe(t, nil); r.code != 0 || r.port != 81 {
			t.Errorf("port %d, stderr %q", r.port, r.stderr)
		}
	})
	t.Run("a flag that is given wins", func(t *testing.T) {
		t.Setenv("INFERENCECACHE_BIND_PORT", "81")
		if r := runServe(t, nil, "--bind-port=82"); r.port != 82 {
			t.Errorf("port %d", r.port)
		}
	})
	t.Run("an empty variable counts as not set", func(t *testing.T) {
		t.Setenv("INFERENCECACHE_BIND_PORT", "")
		if r := runServe(t, nil); r.code != 0 || r.port != 80 {
			t.Errorf("port %d, stderr %q", r.port, r.stderr)
		}
	})
	t.Run("a repeatable flag takes a list", func(t *testing.T) {
		t.Setenv("INFERENCECACHE_PEER", "a:1,b:2")
		if r := runServe(t, nil); len(r.peers) != 2 || r.peers[1] != "b:2" {
			t.Errorf("peers %q", r.peers)
		}
	})
	t.Run("a bad value names the variable", func(t *testing.T) {
		t.Setenv("INFERENCECACHE_WAIT", "soon")
		r := runServe(t, nil)
		if r.code != ExitUsage || !strings.Contains(r.stderr, `INFERENCECACHE_WAIT: value "soon" for --wait`) {
			t.Errorf("code %d, stderr %q", r.code, r.stderr)
		}
	})
}

func TestHelpGroupsFlagsAndNamesVariables(t *testing.T) {
	out := runServe(t, nil, "--help").stdout
	last := 0
	for _, want := range []string{
		"Usage:", "Network:", "--bind-port int", "[INFERENCECACHE_BIND_PORT]", "Timing:", "--wait",
		"Logging:", "text|json", "Flags:", "--help",
	} {
		i := strings.Index(out[last:], want)
		if i < 0 {
			t.Fatalf("%q missing, or not in order, in:\n%s", want, out)
		}
		last += i
	}
}

func TestVersionIsPrintedByFlagAndCommand(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"version"}} {
		if r := runServe(t, nil, args...); r.code != 0 || !strings.HasPrefix(r.stdout, "serve ") {
			t.Errorf("%v: code %d, stdout %q, stderr %q", args, r.code, r.stdout, r.stderr)
		}
	}
	if r := runServe(t, nil, "version"); !strings.Contains(r.stdout, "\ntokenizers: ") {
		t.Errorf("stdout %q does not speak of tokenizers", r.stdout)
	}
	if r := runServe(t, nil, "version", "-o", "json"); !strings.HasPrefix(r.stdout, `{"version":`) {
		t.Errorf("json: %q", r.stdout)
	}
}

func TestLoggerKeepsToFormatAndLevel(t *testing.T) {
	var b bytes.Buffer
	o := &LogOptions{format: "text", level: "warning"}
	log := o.NewLogger(&b)
	log.Info("quiet")
	log.Warn("loud")
	if got := b.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "msg=loud") {
		t.Errorf("log %q", got)
	}
}
