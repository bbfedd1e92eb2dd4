package agent

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/status"
)

// serveStatus answers GET /status with JSON.
func (a *Agent) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// The report has no value that cannot be encoded, and a client that is gone is no error of ours.
	_ = json.NewEncoder(w).Encode(a.status())
}

func (a *Agent) status() status.Report {
	r := status.Report{Agent: a.opts.ID, Started: a.started, Engines: []status.Engine{}, Aggregators: []status.Aggregator{}}
	for _, e := range a.following.now().engines {
		r.Engines = append(r.Engines, e.status())
	}
	if a.opts.Discovery != nil {
		r.Discovery = a.opts.Discovery.Status()
	}
	for _, u := range a.uplinks.all() {
		st := u.Stats()
		r.Aggregators = append(r.Aggregators, status.Aggregator{
			Address: u.Target(), Connected: u.Connected(), InStep: u.InStep(), Deltas: st.Deltas, FullSyncs: st.FullSyncs,
			Resumes: st.Resumes, Repairs: st.Repairs, LagSeconds: st.Lag.Seconds(), Refused: st.Refused,
		})
	}
	return r
}

func (e *engine) status() status.Engine {
	st := e.subscriber.Stats()
	out := status.Engine{
		Name: e.id, Model: e.cfg.Model, Tenant: e.cfg.Tenant, Events: e.cfg.Events, Gaps: st.Gaps.Load(), Missed: st.Missed.Load(),
		Aliases: e.cfg.ModelAliases, Adapters: e.adapters.loaded(),
		Replays: st.Replays.Load(), Unfilled: st.ReplaysFailed.Load(), Restarts: st.Restarts.Load(), Malformed: st.MalformedEvents.Load(),
	}
	for number, r := range e.ranks {
		rank, seen := r.status(e.cfg.FirstRank+number), st.Rank(number)
		rank.Gaps, rank.Replays, rank.Restarts = seen.Gaps.Load(), seen.Replays.Load(), seen.Restarts.Load()
		out.Ranks = append(out.Ranks, rank)
	}
	return out
}

func (r *rank) status(number int) status.Rank {
	st := r.table.Stats()
	out := status.Rank{
		Rank: number, Connected: r.connected.Load(), Certainty: r.table.Certainty().String(), Epoch: r.epoch.Load(),
		BlocksT1: st.Cells[0], BlocksT2: st.Cells[1], Tier2: string(r.table.Tier2Reporting()), Orphans: st.Orphans, Undescribed: st.Undescribed,
	}
	if at := r.lastEvent.Load(); at != 0 {
		seq := r.seq.Load()
		out.Seq, out.LastEvent, out.LagSeconds = &seq, time.Unix(0, at), time.Duration(r.lag.Load()).Seconds()
	}
	for _, why := range blocktable.Exclusions() {
		if n := st.Excluded[why]; n > 0 {
			if out.Excluded == nil {
				out.Excluded = map[string]int{}
			}
			out.Excluded[why.String()] = n
		}
	}
	return out
}
