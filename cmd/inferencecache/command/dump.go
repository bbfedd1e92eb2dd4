package command

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

type dumpFlags struct {
	server  serverFlags
	request icpb.DumpIndexRequest
	output  string
}

func newDump() *cobra.Command {
	var f dumpFlags
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Stream every block that the index holds",
		Long: `Stream every block that the index holds, one a line and in no particular order.

Blocks that come or go meanwhile may be seen or missed. Neither side collects the answer first, so the
size of the index does not matter, and lookups go on as ever.`,
		Example: `  inferencecache dump --model llama-3.1-8b --replica vllm-0
  inferencecache dump -o json | jq -r 'select(.tier == "T2") | .hash'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cli.Group(cmd, "Filter", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.request.TenantId, "tenant", "", "only blocks of this tenant `NAME`")
		fs.StringVar(&f.request.ModelId, "model", "", "only blocks of this model `NAME`")
		fs.StringVar(&f.request.ReplicaId, "replica", "", "only blocks of this replica `NAME`")
	})
	f.server.add(cmd, "longest wait for the next part of the answer")
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *dumpFlags) run(ctx context.Context, stdout io.Writer) error {
	conn, err := f.server.connect()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is left to be sent
	w := bufio.NewWriter(stdout)
	printer := printTable(w)
	if f.output == outputJSON {
		printer = printJSON(w)
	}
	// What came before an error is printed in any case.
	return errors.Join(f.stream(ctx, conn, printer, w.Flush), w.Flush())
}

// An entryPrinter prints one batch of entries.
type entryPrinter func([]*icpb.IndexEntry) error

// stream hands each batch of the answer to printer, then calls flush.
func (f *dumpFlags) stream(ctx context.Context, conn *grpc.ClientConn, printer entryPrinter, flush func() error) error {
	const action = "dump the index"
	ctx, dog := newWatchdog(ctx, f.server.timeout)
	var stream grpc.ServerStreamingClient[icpb.DumpIndexResponse]
	err := dog.wait(func() (err error) {
		stream, err = icpb.NewCacheInspectionClient(conn).DumpIndex(ctx, &f.request)
		return err
	})
	for err == nil {
		var batch *icpb.DumpIndexResponse
		err = dog.wait(func() (err error) {
			batch, err = stream.Recv()
			return err
		})
		if err != nil {
			break
		}
		if err := errors.Join(printer(batch.GetEntries()), flush()); err != nil {
			return fmt.Errorf("print the index: %w", err)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(context.Cause(ctx), errSilent):
		err = status.Error(codes.DeadlineExceeded, errSilent.Error())
	}
	return f.server.explain(action, err)
}

// dumpedBlock is one line of dump -o json. Scripts depend on its names.
type dumpedBlock struct {
	Tenant       string `json:"tenant"`
	Model        string `json:"model"`
	HashScheme   string `json:"hashScheme"`
	Adapter      string `json:"adapter"`
	Replica      string `json:"replica"`
	Rank         int32  `json:"rank"`
	Tier         string `json:"tier"`
	Hash         string `json:"hash"`   // 16 digits for the hashes that token ids lead to, else two a byte
	Tokens       int32  `json:"tokens"` // of the block itself
	PrefixTokens int32  `json:"prefixTokens"`
	AgeSeconds   int64  `json:"ageSeconds"`
}

func printJSON(w io.Writer) entryPrinter {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return func(entries []*icpb.IndexEntry) error {
		for _, e := range entries {
			if err := encoder.Encode(dumpedBlock{
				Tenant: e.GetTenantId(), Model: e.GetModelId(), HashScheme: e.GetHashScheme(), Adapter: e.GetAdapterId(),
				Replica: e.GetReplicaId(), Rank: e.GetRank(),
				Tier: tierName(e.GetTier()), Hash: hex.EncodeToString(e.GetHash()), Tokens: e.GetTokens(),
				PrefixTokens: e.GetPrefixTokens(), AgeSeconds: e.GetAgeSeconds(),
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

// printTable prints rows as they come. A column is as wide as the widest cell so far: the table need
// not be held to be aligned, and settles after the first rows.
func printTable(w io.Writer) entryPrinter {
	heading := []string{"TENANT", "MODEL", "SCHEME", "ADAPTER", "REPLICA", "RANK", "TIER", "HASH", "TOKENS", "PREFIX", "AGE"}
	widths := make([]int, len(heading))
	begun := false
	return func(entries []*icpb.IndexEntry) error {
		rows := make([][]string, 0, len(entries)+1)
		if !begun && len(entries) > 0 {
			begun = true
			rows = append(rows, heading)
		}
		for _, e := range entries {
			rows = append(rows, []string{
				e.GetTenantId(), e.GetModelId(), e.GetHashScheme(), e.GetAdapterId(), e.GetReplicaId(),
				fmt.Sprint(e.GetRank()), tierName(e.GetTier()), hex.EncodeToString(e.GetHash()),
				fmt.Sprint(e.GetTokens()), fmt.Sprint(e.GetPrefixTokens()), fmt.Sprintf("%ds", e.GetAgeSeconds()),
			})
		}
		return writeAligned(w, rows, widths)
	}
}

// writeAligned prints the rows under widths, which it first widens to fit them.
func writeAligned(w io.Writer, rows [][]string, widths []int) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = orDash(cell)
			widths[i] = max(widths[i], len(row[i]))
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			end := "  "
			if i == len(row)-1 {
				end, widths[i] = "\n", 0 // nothing follows that would need alignment
			}
			if _, err := fmt.Fprintf(w, "%-*s%s", widths[i], cell, end); err != nil {
				return err
			}
		}
	}
	return nil
}
