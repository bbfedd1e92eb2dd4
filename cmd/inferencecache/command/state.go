package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

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
	if err := writeStats(w, answer.GetReplicas()); err != nil || len(answer.GetViews()) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return writeViews(w, answer)
}

func writeStats(w io.Writer, replicas []*icpb.ReplicaStats) error {
	if len(replicas) == 0 {
		_, err := fmt.Fprintln(w, "No replica has reported statistics.")
		return err
	}
	rows := [][]string{{"REPLICA", "PRESSURE", "HIT RATE", "CACHE BYTES", "T2 HIT TOKENS", "T2 QUERY TOKENS", "CLIENT"}}
	for _, r := range replicas {
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

// writeViews prints one row for each cache, and who vouches for it. Agents of another version than the
// aggregator's are marked.
func writeViews(w io.Writer, answer *icpb.GetCacheStateResponse) error {
	rows := [][]string{{"REPLICA", "RANK", "SCHEME", "LIVE", "CERTAINTY", "AGENT", "AGENT VERSION"}}
	skewed := false
	for _, v := range answer.GetViews() {
		version := v.GetAgentVersion()
		if own := answer.GetAggregatorVersion(); version != "" && own != "" && version != own {
			version += " *"
			skewed = true
		}
		rows = append(rows, []string{
			v.GetReplicaId(),
			strconv.FormatInt(int64(v.GetRank()), 10),
			v.GetHashScheme(),
			strconv.FormatBool(v.GetLive()),
			certainty(v.GetCertainty()),
			v.GetAgentId(),
			version,
		})
	}
	if err := writeTable(w, rows); err != nil || !skewed {
		return err
	}
	_, err := fmt.Fprintf(w, "* not the aggregator's version, %s\n", answer.GetAggregatorVersion())
	return err
}

func certainty(c icpb.ViewCertainty) string {
	if c == icpb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(c.String(), "VIEW_CERTAINTY_"))
}
