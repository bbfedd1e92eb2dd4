package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/agent/status"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// maxStatusBytes bounds what is read of an agent's answer.
const maxStatusBytes = 64 << 20

type agentStatusFlags struct {
	agent   string
	timeout time.Duration
	output  string
}

func newAgentStatus() *cobra.Command {
	var f agentStatusFlags
	cmd := &cobra.Command{
		Use:   "agent-status",
		Short: "Show what one node agent follows, how far it can be trusted, and whom it tells",
		Example: `  inferencecache agent-status --agent 10.0.0.7:8082
  inferencecache agent-status --agent 10.0.0.7:8082 -o json | jq '.engines[].ranks[] | select(.certainty != "exact")'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cli.Group(cmd, "Agent", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.agent, "agent", "127.0.0.1:8082", "`HOST:PORT` of the agent's HTTP server")
		fs.DurationVar(&f.timeout, "timeout", 5*time.Second, "longest wait for the answer")
	})
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *agentStatusFlags) run(ctx context.Context, stdout io.Writer) error {
	body, err := f.get(ctx)
	if err != nil {
		return fmt.Errorf("get the agent's status: %w", err)
	}
	var report status.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return fmt.Errorf("read the agent's status: %w", err)
	}
	if f.output == outputJSON {
		_, err := stdout.Write(body)
		return err
	}
	return writeStatus(stdout, report, time.Now())
}

func (f *agentStatusFlags) get(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.agent+"/status", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxStatusBytes))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("http://%s/status answered %s: is it an agent's HTTP address?", f.agent, resp.Status)
	}
	return body, nil
}

func writeStatus(w io.Writer, r status.Report, now time.Time) error {
	if _, err := fmt.Fprintf(w, "agent %s, up %s\n\n", r.Agent, now.Sub(r.Started).Round(time.Second)); err != nil {
		return err
	}
	rows := [][]string{{
		"ENGINE", "RANK", "STATE", "SEQ", "CERTAINTY", "T1", "T2", "ORPHANS", "EXCLUDED", "LAST EVENT", "LAG", "GAPS", "REPLAYS", "RESTARTS",
	}}
	for _, e := range r.Engines {
		for _, rank := range e.Ranks {
			rows = append(rows, []string{
				e.Name, strconv.Itoa(rank.Rank), connection(rank.Connected), sequence(rank.Seq), rank.Certainty,
				strconv.Itoa(rank.BlocksT1), tier2(rank), strconv.Itoa(rank.Orphans), counts(rank.Excluded),
				since(rank.LastEvent, now), milliseconds(rank.LagSeconds), number(rank.Gaps), number(rank.Replays), number(rank.Restarts),
			})
		}
	}
	if err := writeTable(w, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	rows = [][]string{{"AGGREGATOR", "STATE", "IN STEP", "DELTAS", "FULL SYNCS", "RESUMES", "REPAIRS", "LAG", "REFUSED"}}
	for _, a := range r.Aggregators {
		rows = append(rows, []string{
			a.Address, connection(a.Connected), strconv.FormatBool(a.InStep), number(a.Deltas), number(a.FullSyncs), number(a.Resumes),
			number(a.Repairs), milliseconds(a.LagSeconds), counts(a.Refused),
		})
	}
	if err := writeTable(w, rows); err != nil || r.Discovery == nil {
		return err
	}
	return writeDiscovery(w, r.Discovery, now)
}

// writeDiscovery shows what was found in the cluster, and what is to be mended.
func writeDiscovery(w io.Writer, d *status.Discovery, now time.Time) error {
	api := "tells of pods"
	if !d.Connected {
		api = "is away: " + cmp.Or(d.Error, "it has not answered yet")
	}
	if _, err := fmt.Fprintf(w, "\npods of node %s; the API server %s, last changed %s\n", d.Node, api, since(d.Since, now)); err != nil {
		return err
	}
	rows := [][]string{{"NAMESPACE", "POD", "CONTAINER", "ENGINE", "MODELS", "ROLE", "STATE", "PROBLEMS"}}
	var advice []string
	for _, c := range d.Containers {
		reasons := make([]string, 0, len(c.Problems))
		for _, p := range c.Problems {
			reasons = append(reasons, p.Reason)
			advice = append(advice, fmt.Sprintf("%s/%s %s: %s\n", c.Namespace, c.Pod, p.Reason, p.Text))
		}
		rows = append(rows, []string{
			c.Namespace, c.Pod, cmp.Or(c.Container, "-"), cmp.Or(c.Engine, "-"), cmp.Or(strings.Join(c.Models, ","), "-"), cmp.Or(c.Role, "-"),
			c.State, cmp.Or(strings.Join(reasons, ","), "-"),
		})
	}
	if err := writeTable(w, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.Join(advice, ""))
	return err
}

func connection(up bool) string {
	if up {
		return "connected"
	}
	return "away"
}

// tier2 tells a tier that is empty from one of which nothing has been heard.
func tier2(r status.Rank) string {
	if r.Tier2 == "nothing" {
		return "-"
	}
	return strconv.Itoa(r.BlocksT2)
}

func milliseconds(seconds float64) string {
	return strconv.FormatFloat(1000*seconds, 'f', 1, 64) + " ms"
}

func sequence(seq *uint64) string {
	if seq == nil {
		return "-"
	}
	return number(*seq)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// counts lists a map as reason=count, in order.
func counts[N int | uint64](by map[string]N) string {
	if len(by) == 0 {
		return "-"
	}
	parts := make([]string, 0, len(by))
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s=%d", reason, by[reason]))
	}
	return strings.Join(parts, ",")
}

func since(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return now.Sub(t).Round(time.Second).String() + " ago"
}
