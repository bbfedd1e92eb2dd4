package command

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/cmd/inferencecache/tokenlist"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// tokenFlags name a prompt by its token ids.
type tokenFlags struct {
	list string
	file string
}

func (f *tokenFlags) add(cmd *cobra.Command) {
	cli.Group(cmd, "Prompt", f.define)
	cmd.MarkFlagsMutuallyExclusive("tokens", "tokens-file")
}

func (f *tokenFlags) define(fs *pflag.FlagSet) {
	fs.StringVar(&f.list, "tokens", "", "token ids of the prompt, as `IDS` separated by commas")
	fs.StringVar(&f.file, "tokens-file", "", "`FILE` of token ids: a JSON array, or ids separated by commas or whitespace; - is standard input")
}

// read returns the ids. A list that cannot be read is wrong usage.
func (f *tokenFlags) read(stdin io.Reader) ([]uint32, error) {
	if f.file == "" {
		ids, err := tokenlist.Parse([]byte(f.list))
		if err != nil {
			return nil, cli.UsageError(fmt.Errorf("--tokens: %w", err))
		}
		return ids, nil
	}
	ids, err := readTokensFile(f.file, stdin)
	if err != nil {
		return nil, cli.UsageError(fmt.Errorf("--tokens-file %s: %w", f.file, err))
	}
	return ids, nil
}

func readTokensFile(name string, stdin io.Reader) ([]uint32, error) {
	file, err := openInput(name, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	return tokenlist.Read(file)
}

// openInput opens a file, or standard input for "-". Its error leaves the file's name to the caller.
func openInput(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	file, err := os.Open(name)
	var path *os.PathError
	switch {
	case errors.As(err, &path):
		return nil, path.Err
	case err != nil:
		return nil, err
	}
	return file, nil
}

// parseHex reads the bytes of a hash.
func parseHex(s string) ([]byte, error) {
	b, err := hex.DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("%q is no hash: want hexadecimal digits, two a byte", s)
	}
	return b, nil
}
