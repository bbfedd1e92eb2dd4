package main

import (
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // machines and images may have no time zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// tokenizerFlags say how lookups by text are served; see docs/tokenizers.md.
type tokenizerFlags struct{ dir, aliases, zone string }

func addTokenizerFlags(cmd *cobra.Command) *tokenizerFlags {
	var f tokenizerFlags
	cli.Group(cmd, "Tokenizers", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.dir, "tokenizer-models-dir", "", "`folder` of models, each in a folder named after its id with its tokenizer.json, which is followed; lookups by text have no hint without it")
		fs.StringVar(&f.aliases, "tokenizer-aliases", "", "`file` of other names for those models, such as those they are served under")
		fs.StringVar(&f.zone, "tokenizer-timezone", "UTC", "time `zone` of the dates that chat templates write, as Europe/Berlin or Local: that of the engines")
	})
	return &f
}

// read returns what the flags say, or what is wrong with them.
func (f *tokenizerFlags) read() (aggregator.Tokenizer, error) {
	if f.aliases != "" && f.dir == "" {
		return aggregator.Tokenizer{}, errors.New("--tokenizer-aliases needs --tokenizer-models-dir: it names models of that folder")
	}
	zone, err := time.LoadLocation(f.zone)
	if err != nil {
		return aggregator.Tokenizer{}, fmt.Errorf("--tokenizer-timezone %q is no time zone, such as UTC or Europe/Berlin", f.zone)
	}
	return aggregator.Tokenizer{ModelsDir: f.dir, Aliases: f.aliases, TimeZone: zone}, nil
}
