package agent

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"
)

// collector reads the agent's own counters when metrics are asked for, so that the event path
// touches no metric.
type collector struct{ agent *Agent }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("inferencecache_agent_"+name, help, labels, nil)
}

var (
	descUp       = desc("up", "1 while the agent runs.")
	descMessages = desc("messages_total", "Event messages received.", "engine")
	descBytes    = desc("message_bytes_total", "Bytes of event messages received.", "engine")
	descDropped  = desc("messages_dropped_total", "Messages that are not [topic, sequence, batch], by what is wrong.", "engine", "reason")
	descEvents   = desc("events_total", "Events by kind; kinds the agent does not know are \"unknown\", unreadable ones \"malformed\".", "engine", "kind")
	descFields   = desc("event_fields_unknown_total", "Fields of readable events that were skipped.", "engine")
	descUnread   = desc("messages_undecodable_total", "Messages whose payload is no batch or ends early.", "engine")
	descGaps     = desc("sequence_gaps_total", "Holes in the sequence of messages.", "engine", "rank")
	descMissed   = desc("messages_missed_total", "Messages in those holes.", "engine", "rank")
	descDupes    = desc("messages_duplicate_total", "Messages whose sequence number had been seen.", "engine", "rank")
	descRestarts = desc("engine_restarts_total", "Times that the sequence went back: the engine is a new process.", "engine", "rank")
	descConnects = desc("engine_connects_total", "Connections made to the engine's event sockets.", "engine")
	descReplays  = desc("replays_total", "Replays asked of the engine, to fill holes and to check that it is the same process.", "engine", "rank")
	descUnfilled = desc("replays_failed_total", "Recoveries given up because the engine did not replay.", "engine", "rank")
	descWaiting  = desc("messages_waiting", "Live messages that wait for a replay.", "engine")
	descReplayed = desc("messages_replayed_total", "Messages that came by replay.", "engine", "rank")
	descDrifts   = desc("drift_resets_total", "Times that more blocks were counted than the engine has, and all were dropped.", "engine")
	descAdapters = desc("adapters", "LoRA adapters that the engine lists as loaded.", "engine")
	descScrapes  = desc("stats_failures_total", "Reads of the engine's metrics that gave no statistics.", "engine")

	descConnected   = desc("engine_connected", "1 while the rank's event socket is connected.", "engine", "rank")
	descCertainty   = desc("view_certainty", "1 for how far the rank's view can be trusted: exact, partial or uncertain.", "engine", "rank", "certainty")
	descEventLag    = desc("event_lag_seconds", "Time from the engine's clock until the message applied last was in the table.", "engine", "rank")
	descTier2       = desc("tier2_reporting", "1 for what the rank's events have told of its offload tier: nothing, stores_only, stores_and_removals, or ignored.", "engine", "rank", "reporting")
	descBlocks      = desc("blocks", "Blocks that the aggregators are told of, by tier.", "engine", "rank", "tier")
	descExcluded    = desc("blocks_excluded", "Blocks held but kept out of the index, by reason.", "engine", "rank", "reason")
	descExcludedAll = desc("blocks_excluded_total", "Blocks ever kept out of the index, by reason.", "engine", "rank", "reason")
	descOrphans     = desc("blocks_orphaned", "Blocks held back because their parent is not known.", "engine", "rank")
	descUndescribed = desc("blocks_undescribed", "Blocks held back because no event has given their tokens.", "engine", "rank")
	descRefused     = desc("blocks_refused_total", "Blocks not followed because the table is full.", "engine", "rank")
	descUnknown     = desc("removals_unknown_total", "Removals of blocks that were not known to be held.", "engine", "rank")
	descIgnored     = desc("copies_ignored_total", "Copies in media whose removals engines do not announce.", "engine", "rank")
	descMismatched  = desc("stores_mismatched_total", "Stores whose tokens do not pair with their hashes.", "engine", "rank")
	descClears      = desc("clears_total", "AllBlocksCleared events applied.", "engine", "rank")
	descLost        = desc("dirty_overflows_total", "Times that an aggregator fell too far behind to be followed.", "engine", "rank")

	descPressure  = desc("rank_pressure", "Running and waiting requests over the ceiling, 0 to 1, as the engine's metrics say.", "engine", "rank")
	descHitRate   = desc("rank_hit_rate", "Share of prompt tokens found in the cache since the read before, 0 to 1.", "engine", "rank")
	descMemory    = desc("rank_cache_bytes", "Bytes of KV cache held by requests, where the engine states its size.", "engine", "rank")
	descT2Hits    = desc("rank_tier2_hit_tokens_total", "Prompt tokens served from the offload tier.", "engine", "rank")
	descT2Queries = desc("rank_tier2_query_tokens_total", "Prompt tokens that the offload tier was asked for.", "engine", "rank")

	descUplinkUp     = desc("uplink_connected", "1 while a stream to the aggregator is open.", "aggregator")
	descUplinkStep   = desc("uplink_in_step", "1 once the aggregator has confirmed the whole table.", "aggregator")
	descUplinkDeltas = desc("uplink_deltas_total", "Deltas sent.", "aggregator")
	descUplinkBytes  = desc("uplink_bytes_total", "Encoded bytes of deltas sent.", "aggregator")
	descUplinkBlocks = desc("uplink_blocks_total", "Block changes sent.", "aggregator")
	descUplinkFull   = desc("uplink_full_syncs_total", "Times that the whole table was sent.", "aggregator")
	descUplinkResume = desc("uplink_resumes_total", "Streams taken up where the last one broke.", "aggregator")
	descUplinkLost   = desc("uplink_streams_lost_total", "Streams that broke.", "aggregator")
	descUplinkLag    = desc("uplink_lag_seconds", "Time from a change of a table until the aggregator has acknowledged it.", "aggregator")
	descUplinkRepair = desc("uplink_repairs_total", "Tables sent again because the aggregator's digest differed.", "aggregator")
	descUplinkDigest = desc("uplink_confirms_total", "Digests of partitions sent; repairs count those that differed.", "aggregator")
	descUplinkUnack  = desc("uplink_unacknowledged_deltas", "Deltas that the aggregator has not acknowledged yet.", "aggregator")
	descUplinkWaits  = desc("uplink_waiting_blocks", "Blocks that changed since the aggregator was told of them.", "aggregator")
	descUplinkRefuse = desc("uplink_refused", "Changes that the aggregator did not apply on the present stream, by reason.", "aggregator", "reason")
)

// Describe is left to Collect: which series exist depends on the engines.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect reads every counter once.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := sink(ch)
	s.gauge(descUp, 1)
	for _, e := range c.agent.following.now().engines {
		e.collect(s)
	}
	for _, u := range c.agent.uplinks.all() {
		st, target := u.Stats(), u.Target()
		s.gauge(descUplinkUp, truth(u.Connected()), target)
		s.gauge(descUplinkStep, truth(u.InStep()), target)
		s.counter(descUplinkDeltas, st.Deltas, target)
		s.counter(descUplinkBytes, st.Bytes, target)
		s.counter(descUplinkBlocks, st.Blocks, target)
		s.counter(descUplinkFull, st.FullSyncs, target)
		s.counter(descUplinkResume, st.Resumes, target)
		s.counter(descUplinkLost, st.SessionsLost, target)
		s <- prometheus.MustNewConstSummary(descUplinkLag, st.LagCount, st.LagSum.Seconds(), nil, target)
		s.counter(descUplinkRepair, st.Repairs, target)
		s.counter(descUplinkDigest, st.Confirms, target)
		s.gauge(descUplinkUnack, float64(st.Unacknowledged), target)
		s.gauge(descUplinkWaits, float64(u.WaitingBlocks()), target)
		for reason, n := range st.Refused {
			s.gauge(descUplinkRefuse, float64(n), target, reason)
		}
	}
}

func (e *engine) collect(s sink) {
	name, st := e.id, e.subscriber.Stats()
	s.counter(descMessages, st.Messages.Load(), name)
	s.counter(descBytes, st.Bytes.Load(), name)
	for _, why := range kvevents.Drops() {
		s.counter(descDropped, st.Dropped(why), name, why.String())
	}
	s.counter(descEvents, st.Stored.Load(), name, "stored")
	s.counter(descEvents, st.Removed.Load(), name, "removed")
	s.counter(descEvents, st.Cleared.Load(), name, "cleared")
	s.counter(descEvents, st.UnknownTags.Load(), name, "unknown")
	s.counter(descEvents, st.MalformedEvents.Load(), name, "malformed")
	s.counter(descFields, st.UnknownFields.Load(), name)
	s.counter(descUnread, st.Undecodable.Load(), name)
	s.counter(descConnects, st.Connects.Load(), name)
	s.gauge(descWaiting, float64(st.Waiting.Load()), name)
	if e.scraper != nil {
		s.counter(descScrapes, e.scraper.Failures.Load(), name)
		s.counter(descDrifts, e.drifts.Load(), name)
	}
	if e.adapters != nil {
		s.gauge(descAdapters, float64(len(e.adapters.loaded())), name)
	}
	for r, rank := range e.ranks {
		number := strconv.Itoa(e.cfg.FirstRank + r)
		rank.collect(s, name, number)
		collectSequence(s, st.Rank(r), name, number)
	}
}

func (r *rank) collect(s sink, engine, number string) {
	st, certainty := r.table.Stats(), r.table.Certainty()
	s.gauge(descConnected, truth(r.connected.Load()), engine, number)
	for _, c := range []blocktable.Certainty{blocktable.Exact, blocktable.Partial, blocktable.Uncertain} {
		s.gauge(descCertainty, truth(c == certainty), engine, number, c.String())
	}
	s.gauge(descEventLag, time.Duration(r.lag.Load()).Seconds(), engine, number)
	told := r.table.Tier2Reporting()
	for _, how := range blocktable.Reportings() {
		s.gauge(descTier2, truth(how == told), engine, number, string(how))
	}
	for i, n := range st.Cells {
		s.gauge(descBlocks, float64(n), engine, number, index.Tier(i+1).String())
	}
	for _, why := range blocktable.Exclusions() {
		s.gauge(descExcluded, float64(st.Excluded[why]), engine, number, why.String())
		s.counter(descExcludedAll, st.ExcludedTotal[why], engine, number, why.String())
	}
	s.gauge(descOrphans, float64(st.Orphans), engine, number)
	s.gauge(descUndescribed, float64(st.Undescribed), engine, number)
	s.counter(descRefused, st.Refused, engine, number)
	s.counter(descUnknown, st.UnknownRemovals, engine, number)
	s.counter(descIgnored, st.Ignored, engine, number)
	s.counter(descMismatched, st.Mismatched, engine, number)
	s.counter(descClears, st.Clears, engine, number)
	s.counter(descLost, st.Resyncs, engine, number)
	r.collectStats(s, engine, number)
}

func collectSequence(s sink, st *kvevents.RankStats, engine, number string) {
	s.counter(descGaps, st.Gaps.Load(), engine, number)
	s.counter(descMissed, st.Missed.Load(), engine, number)
	s.counter(descDupes, st.Duplicates.Load(), engine, number)
	s.counter(descRestarts, st.Restarts.Load(), engine, number)
	s.counter(descReplays, st.Replays.Load(), engine, number)
	s.counter(descUnfilled, st.ReplaysFailed.Load(), engine, number)
	s.counter(descReplayed, st.Replayed.Load(), engine, number)
}

// collectStats adds what the aggregators are told of a rank's load; nothing while it is not known.
func (r *rank) collectStats(s sink, engine, number string) {
	if r.cache.Stats == nil {
		return
	}
	st := r.cache.Stats()
	if st == nil {
		return
	}
	s.gauge(descPressure, float64(st.Pressure), engine, number)
	s.gauge(descHitRate, float64(st.HitRate), engine, number)
	s.gauge(descMemory, float64(st.CacheMemoryBytes), engine, number)
	s.counter(descT2Hits, uint64(max(0, st.T2HitTokens)), engine, number)
	s.counter(descT2Queries, uint64(max(0, st.T2QueryTokens)), engine, number)
}

// sink takes readings.
type sink chan<- prometheus.Metric

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
