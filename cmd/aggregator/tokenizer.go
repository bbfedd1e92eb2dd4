package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"
	_ "time/tzdata" // machines and images may have no time zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// tokenizerFlags say how lookups by text are served; see docs/tokenizers.md.
type tokenizerFlags struct{ dir, aliases, zone, namespaceKey string }

func addTokenizerFlags(cmd *cobra.Command) *tokenizerFlags {
	var f tokenizerFlags
	cli.Group(cmd, "Tokenizers", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.dir, "tokenizer-models-dir", "", "`folder` of models, each in a folder named after its id with its tokenizer.json, which is followed; lookups by text have no hint without it")
		fs.StringVar(&f.aliases, "tokenizer-aliases", "", "`file` of other names for those models, such as those they are served under")
		fs.StringVar(&f.zone, "tokenizer-timezone", "UTC", "time `zone` of the dates that chat templates write, as Europe/Berlin or Local: that of the engines")
	})
	cli.Group(cmd, "Prompt templates", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.namespaceKey, "tenant-namespace-key", "", "`file` of a secret of 32 bytes or more, which keys the tenant_namespace of rendered templates; without it they have none")
	})
	return &f
}

// read puts what the flags say into config, or returns what is wrong with them.
func (f *tokenizerFlags) read(config *aggregator.Config) error {
	if f.aliases != "" && f.dir == "" {
		return errors.New("--tokenizer-aliases needs --tokenizer-models-dir: it names models of that folder")
	}
	zone, err := time.LoadLocation(f.zone)
	if err != nil {
		return fmt.Errorf("--tokenizer-timezone %q is no time zone, such as UTC or Europe/Berlin", f.zone)
	}
	config.Tokenizer = aggregator.Tokenizer{ModelsDir: f.dir, Aliases: f.aliases, TimeZone: zone}
	if f.namespaceKey == "" {
		return nil
	}
	key, err := os.ReadFile(f.namespaceKey)
	if err != nil {
		return fmt.Errorf("--tenant-namespace-key: %w", err)
	}
	if config.TenantNamespaceKey = bytes.TrimRight(key, "\r\n"); len(config.TenantNamespaceKey) < minNamespaceKey {
		return fmt.Errorf("--tenant-namespace-key: %s has %d bytes, at least %d are needed", f.namespaceKey, len(config.TenantNamespaceKey), minNamespaceKey)
	}
	return nil
}

// minNamespaceKey is the length of the hash that the key is for, in bytes.
const minNamespaceKey = 32
