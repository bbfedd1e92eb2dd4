package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/inferencecache/inferencecache/tokenize/linked"
)

// version is set by the linker: -X .../cmd/internal/cli.version=v1.2.3.
var version string

// Build says which source a binary was made of.
type Build struct {
	Version   string `json:"version"`
	Revision  string `json:"revision,omitempty"` // commit of the source, if known
	Modified  bool   `json:"modified,omitempty"` // the source had changes that the commit lacks
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
	// Tokenizers says whether aggregators of this build can make token ids of text; NoTokenizers why not.
	Tokenizers   bool   `json:"tokenizers"`
	NoTokenizers string `json:"noTokenizers,omitempty"`
}

// BuildVersion returns the version of the running binary, as far as the build recorded it.
func BuildVersion() Build {
	b := Build{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	b.Tokenizers, b.NoTokenizers = linked.Library()
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns the version on one line.
func (b Build) String() string {
	s := b.Version
	if b.Revision != "" {
		s += " " + b.Revision[:min(12, len(b.Revision))]
	}
	if b.Modified {
		s += "+changes"
	}
	return s + " " + b.GoVersion + " " + b.Platform
}

// Short names the source in a few words, so that two builds of the same source have the same name.
func (b Build) Short() string {
	s := b.Version
	if s == "devel" && b.Revision != "" {
		s += " " + b.Revision[:min(12, len(b.Revision))]
	}
	if b.Modified {
		s += "+changes"
	}
	return s
}

func (b Build) tokenizers() string {
	if b.Tokenizers {
		return "linked"
	}
	return "none: " + b.NoTokenizers
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the source it was built from",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := BuildVersion()
			if output == "json" {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\ntokenizers: %s\n", cmd.Root().Name(), b, b.tokenizers())
			return err
		},
	}
	EnumP(cmd.Flags(), &output, "output", "o", "text", "output form", "text", "json")
	return cmd
}
