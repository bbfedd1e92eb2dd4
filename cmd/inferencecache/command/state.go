package command

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

type stateFlags struct {
	server  serverFlags
	request icpb.GetCacheStateRequest
	output  string
}

func newState() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Show what is known about the replicas of one tenant and model",
		Example: `  inferencecache state --model llama-3.1-8b
  inferencecache state --model llama-3.1-8b --tenant team-a -o json | jq .summary`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cli.Group(cmd, "Scope", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.request.ModelId, "model", "", "model `NAME`, as the engines report it")
		fs.StringVar(&f.request.TenantId, "tenant", "default", "tenant `NAME`")
	})
	must(cmd.MarkFlagRequired("model"))
	f.server.add(cmd, "longest wait for the answer")
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *stateFlags) run(ctx context.Context, stdout io.Writer) error {
	var answer *icpb.GetCacheStateResponse
	err := f.server.unary(ctx, "get the cache state", func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = icpb.NewInferenceCacheClient(conn).GetCacheState(ctx, &f.request)
		return err
	})
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return writeProto(stdout, answer)
	}
	return writeState(stdout, answer)
}

func writeState(w io.Writer, answer *icpb.GetCacheStateResponse) error {
	summary := answer.GetSummary()
	if _, err := fmt.Fprintf(w, "%d prefixes, %d of them hot\n", summary.GetTotalPrefixes(), summary.GetHotPrefixes()); err != nil {
		return err
	}
	if len(answer.GetReplicas()) == 0 {
		_, err := fmt.Fprintln(w, "No replica has reported statistics.")
		return err
	}
	rows := [][]string{{"REPLICA", "PRESSURE", "HIT RATE", "CACHE BYTES", "T2 HIT TOKENS", "T2 QUERY TOKENS", "CLIENT"}}
	for _, r := range answer.GetReplicas() {
		rows = append(rows, []string{
			r.GetReplicaId(),
			share(r.GetPressure()),
			share(r.GetHitRate()),
			strconv.FormatInt(r.GetCacheMemoryBytes(), 10),
			strconv.FormatInt(r.GetT2HitTokens(), 10),
			strconv.FormatInt(r.GetT2QueryTokens(), 10),
			r.GetClientVersion(),
		})
	}
	return writeTable(w, rows)
}
