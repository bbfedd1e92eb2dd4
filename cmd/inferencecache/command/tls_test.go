package command_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/tlsconfig"
	"github.com/inferencecache/inferencecache/tlsconfig/tlstest"
)

// startEncrypted runs an aggregator that only serves clients of the authority.
func startEncrypted(t *testing.T, ca *tlstest.CA, host string) string {
	t.Helper()
	files := ca.Server(t, host)
	files.CA = ca.File
	source, err := tlsconfig.Load(files, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, source)
}

func TestTLS_FlagsSayWhoIsTrustedAndWhoAsks(t *testing.T) {
	ca := tlstest.NewCA(t)
	address := startEncrypted(t, ca, "aggregator.example")
	own := ca.Client(t, "cli")
	for name, c := range map[string]struct {
		flags []string
		code  int
		want  string // in what is printed
	}{
		"all that is needed": {
			[]string{"--tls", "--tls-ca-file", ca.File, "--tls-cert-file", own.Certificate, "--tls-key-file", own.Key, "--tls-server-name", "aggregator.example"},
			cli.ExitOK, "0 prefixes",
		},
		"no name, where the certificate is not for the address": {
			[]string{"--tls", "--tls-ca-file", ca.File, "--tls-cert-file", own.Certificate, "--tls-key-file", own.Key},
			cli.ExitError, "127.0.0.1",
		},
		"no certificate": {[]string{"--tls", "--tls-ca-file", ca.File, "--tls-server-name", "aggregator.example"}, cli.ExitError, "Unavailable"},
		"no authority": {
			[]string{"--tls", "--tls-cert-file", own.Certificate, "--tls-key-file", own.Key, "--tls-server-name", "aggregator.example"},
			cli.ExitError, "unknown authority",
		},
		"no encryption at all":            {nil, cli.ExitError, "Unavailable"},
		"files without encryption":        {[]string{"--tls-ca-file", ca.File}, cli.ExitUsage, "need --tls"},
		"a name without encryption":       {[]string{"--tls-server-name", "x"}, cli.ExitUsage, "need --tls"},
		"a certificate without its key":   {[]string{"--tls", "--tls-cert-file", own.Certificate}, cli.ExitUsage, "needed together"},
		"a file that is not there":        {[]string{"--tls", "--tls-ca-file", "none"}, cli.ExitError, "no such file"},
		"a key that is of something else": {[]string{"--tls", "--tls-cert-file", own.Certificate, "--tls-key-file", ca.Client(t, "x").Key}, cli.ExitError, "does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"state", "--model", "m", "--server", address}, c.flags...)
			got := run(t, "", args...)
			if got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.want) {
				t.Errorf("exit code %d, want %d; %q not in: %s%s", got.code, c.code, c.want, got.stdout, got.stderr)
			}
		})
	}
}
