// Package command holds the verbs of the inferencecache command line, a file each. They only read:
// none of them changes what an aggregator holds.
package command

import (
	"github.com/spf13/cobra"
)

// New returns the root command.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "inferencecache",
		Short: "Look into a KV-cache routing plane",
		Long: `Look into a KV-cache routing plane.

Exit status: 0 when the answer was printed, 1 when the call failed, 2 when the command line is wrong.`,
		Example: `  inferencecache lookup --model llama-3.1-8b --hash-scheme vllm --tokens-file prompt.json
  inferencecache dump --replica vllm-0 -o json | jq -r .hash`,
	}
	root.AddCommand(newLookup(), newRender(), newState(), newAgentStatus(), newDump(), newHash())
	return root
}
