package command

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/fingerprint"
)

const defaultBlockSize = 16

type hashFlags struct {
	tokens    tokenFlags
	blockSize int
	parent    string
	output    string
}

func newHash() *cobra.Command {
	var f hashFlags
	cmd := &cobra.Command{
		Use:   "hash",
		Short: "Compute the block hashes of a prompt",
		Long: `Compute the block hashes of a prompt, one a line in prompt order.

Each hash stands for the whole prompt up to the end of its block. Tokens behind the last full block
have none. No server is asked.`,
		Example: `  inferencecache hash --block-size 4 --tokens 1,2,3,4,5,6,7,8
  inferencecache hash --tokens-file prompt.json -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.InOrStdin(), cmd.OutOrStdout()) },
	}
	f.tokens.add(cmd)
	cmd.MarkFlagsOneRequired("tokens", "tokens-file")
	cmd.Flags().IntVar(&f.blockSize, "block-size", defaultBlockSize, "`N` tokens per block, as the engine cuts them")
	cmd.Flags().StringVar(&f.parent, "parent", "", "hash of the block in front of the first, as 16 `HEX` digits")
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *hashFlags) run(stdin io.Reader, stdout io.Writer) error {
	if f.blockSize <= 0 {
		return cli.UsageError(fmt.Errorf("--block-size %d: must be more than 0", f.blockSize))
	}
	tokens, err := f.tokens.read(stdin)
	if err != nil {
		return err
	}
	chain, err := f.chain(tokens)
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return writeHashesJSON(stdout, chain, f.blockSize)
	}
	w := bufio.NewWriter(stdout)
	for _, h := range chain {
		_, _ = fmt.Fprintf(w, "%016x\n", h) // w keeps the error for Flush
	}
	return w.Flush()
}

func (f *hashFlags) chain(tokens []uint32) ([]uint64, error) {
	if f.parent == "" {
		return fingerprint.Chain(tokens, f.blockSize), nil
	}
	parent, err := parseHex(f.parent)
	if err != nil || len(parent) != 8 {
		return nil, cli.UsageError(fmt.Errorf("--parent %q: want 16 hexadecimal digits", f.parent))
	}
	return fingerprint.ChainFrom(binary.BigEndian.Uint64(parent), tokens, f.blockSize), nil
}

// hashedBlock is one element of hash -o json.
type hashedBlock struct {
	Hash   string `json:"hash"`
	Tokens int    `json:"tokens"` // of the block itself
}

func writeHashesJSON(w io.Writer, chain []uint64, blockSize int) error {
	blocks := make([]hashedBlock, len(chain))
	for i, h := range chain {
		blocks[i] = hashedBlock{fmt.Sprintf("%016x", h), blockSize}
	}
	return json.NewEncoder(w).Encode(blocks)
}
