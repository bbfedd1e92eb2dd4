package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

type lookupFlags struct {
	server       serverFlags
	request      icpb.LookupRouteRequest
	tokens       tokenFlags
	text         textFlags
	prefixHash   string
	prefixTokens int32
	blockHashes  []string
	blockSize    int32
	output       string
}

// promptForms are the flags that name the prompt; one of them is needed.
var promptForms = append([]string{"tokens", "tokens-file", "prefix-hash", "block-hashes"}, textForms...)

func newLookup() *cobra.Command {
	var f lookupFlags
	cmd := &cobra.Command{
		Use:   "lookup",
		Short: "Ask which replica holds the longest prefix of a prompt",
		Long: `Ask which replica holds the longest prefix of a prompt, as a gateway does before it routes a request.

The prompt is given as token ids, as text or a chat of which the aggregator makes them, as a chain of block hashes, or as
one opaque hash of the whole prefix.`,
		Example: `  inferencecache lookup --model llama-3.1-8b --hash-scheme vllm --tokens-file prompt.json
  inferencecache lookup --model llama-3.1-8b --hash-scheme vllm --block-size 16 --block-hashes 4f0c8e1b92a7d355,0b6d1c2f7e88a941 -o json
  inferencecache lookup --model Qwen/Qwen3-8B --messages chat.json --tools tools.json
  inferencecache lookup --model llama-3.1-8b --tokens-file prompt.json --candidates vllm-0,vllm-1 --explain`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f.addScope(cmd)
	f.tokens.add(cmd)
	f.text.add(cmd)
	cli.Group(cmd, "Prompt", f.defineHashes)
	cmd.MarkFlagsMutuallyExclusive(promptForms...)
	cmd.MarkFlagsOneRequired(promptForms...)
	cli.Group(cmd, "Answer", f.defineAnswer)
	f.server.add(cmd, "longest wait for the answer")
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *lookupFlags) defineAnswer(fs *pflag.FlagSet) {
	fs.BoolVar(&f.request.Explain, "explain", false, "say how the answer came about: the rules met, and every candidate with each factor of its score")
	fs.StringSliceVar(&f.request.CandidateReplicaIds, "candidates", nil, "only these `REPLICAS` compete, separated by commas (repeatable)")
	fs.Int32Var(&f.request.MaxResults, "max-results", 0, "at most `N` scores; 0 means all")
}

func (f *lookupFlags) addScope(cmd *cobra.Command) {
	cli.Group(cmd, "Scope", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.request.ModelId, "model", "", "model `NAME`, as the engines report it")
		fs.StringVar(&f.request.TenantId, "tenant", "default", "tenant `NAME`")
		fs.StringVar(&f.request.HashScheme, "hash-scheme", "vllm", "`DOMAIN` in which the hashes are comparable")
		fs.StringVar(&f.request.AdapterId, "adapter", "", "LoRA adapter `NAME`; empty is the base model")
	})
	must(cmd.MarkFlagRequired("model"))
}

func (f *lookupFlags) defineHashes(fs *pflag.FlagSet) {
	fs.StringVar(&f.prefixHash, "prefix-hash", "", "one hash of the whole prefix, as `HEX` digits")
	fs.Int32Var(&f.prefixTokens, "prefix-tokens", 0, "`N` tokens that --prefix-hash covers")
	fs.StringSliceVar(&f.blockHashes, "block-hashes", nil, "hashes of the blocks in prompt order, as `HEX` digits separated by commas (repeatable)")
	fs.Int32Var(&f.blockSize, "block-size", defaultBlockSize, "`N` tokens per block of --block-hashes")
}

func (f *lookupFlags) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if err := f.fillPrompt(stdin); err != nil {
		return err
	}
	var answer *icpb.LookupRouteResponse
	err := f.server.unary(ctx, "look up a route", func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = icpb.NewInferenceCacheClient(conn).LookupRoute(ctx, &f.request)
		return err
	})
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return writeProto(stdout, answer)
	}
	if err := writeLookup(stdout, answer); err != nil || !f.request.GetExplain() {
		return err
	}
	return writeExplanation(stdout, answer.GetExplanation())
}

// fillPrompt puts the prompt into the request, in the form that was given.
func (f *lookupFlags) fillPrompt(stdin io.Reader) error {
	switch {
	case f.prefixHash != "":
		return f.fillPrefix()
	case len(f.blockHashes) > 0:
		return f.fillBlocks()
	}
	if given, err := f.text.fill(&f.request, stdin); given || err != nil {
		return err
	}
	ids, err := f.tokens.read(stdin)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return cli.UsageError(errors.New("the prompt has no token ids and no text"))
	}
	f.request.TokenIds = ids
	return nil
}

func (f *lookupFlags) fillPrefix() error {
	hash, err := parseHex(f.prefixHash)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--prefix-hash: %w", err))
	}
	if f.prefixTokens < 0 {
		return cli.UsageError(fmt.Errorf("--prefix-tokens %d: must not be negative", f.prefixTokens))
	}
	f.request.PrefixHash = hash
	f.request.PrefixTokenCount = f.prefixTokens
	return nil
}

func (f *lookupFlags) fillBlocks() error {
	if f.blockSize <= 0 {
		return cli.UsageError(fmt.Errorf("--block-size %d: must be more than 0", f.blockSize))
	}
	if len(f.blockHashes) > math.MaxInt32/int(f.blockSize) {
		return cli.UsageError(fmt.Errorf("--block-hashes: %d blocks of %d tokens are more than a prompt can have", len(f.blockHashes), f.blockSize))
	}
	for i, s := range f.blockHashes {
		hash, err := parseHex(s)
		if err != nil {
			return cli.UsageError(fmt.Errorf("--block-hashes: hash %d: %w", i+1, err))
		}
		f.request.BlockHashes = append(f.request.BlockHashes, hash)
	}
	f.request.BlockTokenCounts = slices.Repeat([]int32{f.blockSize}, len(f.blockHashes))
	return nil
}

func writeLookup(w io.Writer, answer *icpb.LookupRouteResponse) error {
	if _, err := fmt.Fprintf(w, "%s in %d µs\n", answer.GetReasonCode(), answer.GetLookupLatencyUs()); err != nil {
		return err
	}
	if why := answer.GetTextReason(); why != "" {
		if _, err := fmt.Fprintf(w, "No token ids could be made of the text: %s.\n", why); err != nil {
			return err
		}
	} else if n := len(answer.GetTokenIds()); n > 0 {
		if _, err := fmt.Fprintf(w, "The text has %d tokens.\n", n); err != nil {
			return err
		}
	}
	if len(answer.GetReplicaScores()) == 0 {
		_, err := fmt.Fprintln(w, "No replica is preferred: route as if there were no hint.")
		return err
	}
	rows := [][]string{{"REPLICA", "RANK", "MATCHED", "TIER", "SCORE", "HIT PROB"}}
	for _, s := range answer.GetReplicaScores() {
		rows = append(rows, []string{
			s.GetReplicaId(),
			strconv.Itoa(int(s.GetDataParallelRank())),
			strconv.Itoa(int(s.GetMatchedTokens())),
			tierName(s.GetTier()),
			strconv.FormatFloat(float64(s.GetScore()), 'f', 1, 32),
			share(s.GetEstimatedCacheHitProb()),
		})
	}
	return writeTable(w, rows)
}

// must stops a command that was put together wrongly; it never fires in a command whose help works.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
