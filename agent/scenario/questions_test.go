package scenario

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const (
	// hold is how long an answer must stay as it is wanted.
	hold = 250 * time.Millisecond
	// rest is how long nothing may change before an answer is written down: longer than the agent
	// waits for a reply that does not come.
	rest = 3 * time.Second
	// often and seldom are the first and the longest pause between two asks.
	often, seldom = 10 * time.Millisecond, 300 * time.Millisecond
)

// answer asks until the wanted answer stays, or with -update until nothing changes any more.
func (w *world) answer(questions []question, want string) string {
	w.t.Helper()
	var last, before string
	since, pause := time.Now(), often
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); time.Sleep(pause) {
		pause = min(2*pause, seldom)
		last = ""
		for _, q := range questions {
			text, err := q()
			if err != nil {
				w.t.Fatal(err)
			}
			last += text
		}
		state := last
		if *update {
			state += fmt.Sprint(w.metrics())
		}
		if state != before || !w.settled() || (!*update && last != want) {
			before, since = state, time.Now()
			if !*update && time.Until(deadline) < patience {
				return last
			}
			continue
		}
		if quiet := time.Since(since); quiet > rest || (!*update && quiet > hold) {
			return last
		}
		pause = seldom
	}
	return last
}

// metrics reads the agent's own series, as the text behind their common prefix. What grows by itself
// is left out. Nil while the agent is stopped.
func (w *world) metrics() map[string]float64 {
	if w.agent.part == nil {
		return nil
	}
	req, err := http.NewRequest(http.MethodGet, w.agent.http+"/metrics", nil)
	if err != nil {
		return nil
	}
	req.Header.Set("Accept-Encoding", "identity") // compressing costs more than the rest
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	http.DefaultClient.CloseIdleConnections()
	series := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "inferencecache_agent_")
		if !ok || strings.HasPrefix(name, "stats_failures") || strings.HasPrefix(name, "uplink_confirms") ||
			strings.HasPrefix(name, "uplink_deltas") || strings.HasPrefix(name, "uplink_bytes") || strings.Contains(name, "lag") {
			continue
		}
		at := strings.LastIndexByte(name, ' ')
		if v, err := strconv.ParseFloat(name[at+1:], 64); err == nil {
			series[name[:at]] = v
		}
	}
	return series
}

// sum adds the series of a name that have all the labels.
func sum(series map[string]float64, name string, labels ...string) (total float64) {
	for text, v := range series {
		own, rest, _ := strings.Cut(text, "{")
		if own != name {
			continue
		}
		has := true
		for _, l := range labels {
			has = has && strings.Contains(rest, l)
		}
		if has {
			total += v
		}
	}
	return total
}

// settled says whether the agent has read every message that was sent to it, and told all to every
// aggregator.
func (w *world) settled() bool { return w.unsettled() == "" }

func (w *world) unsettled() string {
	if w.agent.part == nil {
		return ""
	}
	series := w.metrics()
	return w.unread(series) + w.untold(series)
}

// unread says what the agent has not read yet.
func (w *world) unread(series map[string]float64) string {
	var out strings.Builder
	for _, e := range w.engines {
		if w.agent.part == nil || !w.agent.follows[e.cfg.Name] {
			continue
		}
		sent := 0
		w.loop.do(func() {
			for _, p := range e.ranks {
				sent += p.delivered
			}
		})
		label := fmt.Sprintf("engine=%q", e.cfg.Name)
		read := sum(series, "messages_total", label) + sum(series, "messages_dropped_total", label) -
			sum(series, "messages_dropped_total", label, `reason="reply"`)
		if int(read) < sent {
			fmt.Fprintf(&out, "%s sent %d messages, the agent read %d\n", e.cfg.Name, sent, int(read))
		}
	}
	return out.String()
}

// untold says which aggregators have not confirmed the whole table.
func (w *world) untold(series map[string]float64) string {
	var out strings.Builder
	for _, a := range w.aggregators {
		label := fmt.Sprintf("aggregator=%q", a.relay.address)
		if a.part != nil && !a.relay.frozen && sum(series, "uplink_in_step", label) == 0 {
			fmt.Fprintf(&out, "%s is not in step\n", a.name)
		}
	}
	return out.String()
}

// chosen takes the name of an aggregator out of the words; without one it is the first.
func (w *world) chosen(words []string) (*aggregatorProcess, []string, error) {
	for i, word := range words {
		if a, err := w.aggregator(word); err == nil {
			return a, slices.Delete(slices.Clone(words), i, i+1), nil
		}
	}
	if len(w.aggregators) == 0 {
		return nil, nil, errors.New("no aggregator")
	}
	return w.aggregators[0], words, nil
}

// held is one block that an aggregator lists.
type held struct {
	cache, adapter, tier, name string
	age                        time.Duration
}

// dump reads what an aggregator holds, under the engines' names of it. A fingerprint that belongs to
// no chain is shown as such.
func (w *world) dump(a *aggregatorProcess) (all []held, err error) {
	stream, err := pb.NewCacheInspectionClient(a.conn).DumpIndex(context.Background(), &pb.DumpIndexRequest{})
	if err != nil {
		return nil, err
	}
	names := map[string]map[listed]string{}
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range batch.Entries {
			cache := fmt.Sprintf("%s/%d", e.ReplicaId, e.Rank)
			if names[cache] == nil {
				_, p, err := w.target(cache)
				if err != nil {
					return nil, err
				}
				names[cache] = w.names(p)
			}
			name, ok := names[cache][listed{e.AdapterId, binary.BigEndian.Uint64(e.Hash)}]
			if !ok {
				name = fmt.Sprintf("?%x", e.Hash)
			}
			all = append(all, held{
				cache, e.AdapterId, strings.TrimPrefix(e.Tier.String(), "CACHE_TIER_"), name, time.Duration(e.AgeSeconds) * time.Second,
			})
		}
	}
}

// perCache asks for a line of each cache that is followed or listed.
func (w *world) perCache(words []string, line func(cache string, all []held) string) (question, error) {
	a, words, err := w.chosen(words)
	together := slices.Contains(words, "together")
	if err != nil || len(words) > 1 || len(words) == 1 && !together {
		return nil, errors.Join(err, fmt.Errorf("want an aggregator or nothing, not %v", words))
	}
	return func() (string, error) {
		if a.part == nil {
			return a.name + " is stopped\n", nil
		}
		all, err := w.dump(a)
		if err != nil {
			return "", err
		}
		byCache := map[string][]held{}
		for _, h := range all {
			byCache[h.cache] = append(byCache[h.cache], h)
		}
		var out strings.Builder
		alike := map[string]int{}
		for _, e := range w.engines {
			for r := range e.ranks {
				cache := fmt.Sprintf("%s/%d", e.cfg.Name, r)
				text := line(cache, byCache[cache])
				alike[text]++
				fmt.Fprintf(&out, "%s: %s\n", cache, text)
			}
		}
		if !together {
			return out.String(), nil
		}
		out.Reset()
		for _, text := range slices.Sorted(maps.Keys(alike)) {
			fmt.Fprintf(&out, "%d caches: %s\n", alike[text], text)
		}
		return out.String(), nil
	}, nil
}

// grouped lists names under headings, in the order of the headings.
func grouped(all []held, heading func(held) string) string {
	by := map[string][]string{}
	for _, h := range all {
		by[heading(h)] = append(by[heading(h)], h.name)
	}
	var parts []string
	for _, head := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, strings.TrimSpace(head)+" "+list(by[head]))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func (w *world) askIndex(words []string) (question, error) {
	var series map[string]float64
	ask, err := w.perCache(words, func(cache string, all []held) string {
		text := grouped(all, func(h held) string { return h.adapter + " " + h.tier })
		return text + "   " + w.certainty(series, cache)
	})
	if err != nil {
		return nil, err
	}
	return func() (string, error) {
		series = w.metrics()
		return ask()
	}, nil
}

// certainty is how far the agent trusts its view of a cache.
func (w *world) certainty(series map[string]float64, cache string) string {
	name, rank, _ := strings.Cut(cache, "/")
	switch {
	case w.agent.part == nil:
		return "the agent is stopped"
	case !w.agent.follows[name]:
		return "not followed"
	}
	for _, c := range []string{"exact", "partial", "uncertain"} {
		labels := []string{fmt.Sprintf("engine=%q", name), fmt.Sprintf("rank=%q", rank), fmt.Sprintf("certainty=%q", c)}
		if sum(series, "view_certainty", labels...) == 1 {
			return c
		}
	}
	return "unknown"
}

func (w *world) askAges(words []string) (question, error) {
	return w.perCache(words, func(_ string, all []held) string {
		return grouped(all, func(h held) string {
			if h.age < time.Minute {
				return "fresh:"
			}
			return fmt.Sprintf("%d min old:", h.age/time.Minute)
		})
	})
}

func (w *world) askLookup(words []string) (question, error) {
	a, words, err := w.chosen(words)
	if err != nil {
		return nil, err
	}
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm"}
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "tokens":
			ids, err := parseList(value)
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				req.TokenIds = append(req.TokenIds, uint32(id))
			}
		case "lora":
			req.AdapterId = value
		case "scheme":
			req.HashScheme = value
		default:
			return nil, fmt.Errorf("%s: no such option", word)
		}
	}
	return func() (string, error) {
		if a.part == nil {
			return a.name + " is stopped\n", nil
		}
		resp, err := pb.NewInferenceCacheClient(a.conn).LookupRoute(context.Background(), req)
		if err != nil {
			return "", err
		}
		parts := []string{resp.ReasonCode}
		for _, s := range resp.ReplicaScores {
			if s.MatchedTokens > 0 {
				parts = append(parts, fmt.Sprintf("%s/%d %d tokens in %s", s.ReplicaId, s.DataParallelRank, s.MatchedTokens,
					strings.TrimPrefix(s.Tier.String(), "CACHE_TIER_")))
			}
		}
		return strings.Join(parts, ", ") + "\n", nil
	}, nil
}

// readings are short names of the agent's metrics.
var readings = map[string]string{
	"gaps": "sequence_gaps_total", "missed": "messages_missed_total", "duplicates": "messages_duplicate_total",
	"restarts": "engine_restarts_total", "replayed": "messages_replayed_total", "unfilled": "replays_failed_total",
	"orphans": "blocks_orphaned", "undescribed": "blocks_undescribed", "refused": "blocks_refused_total",
	"unknown-removals": "removals_unknown_total", "mismatched": "stores_mismatched_total", "clears": "clears_total",
	"drifts": "drift_resets_total", "unread": "messages_undecodable_total", "connected": "engine_connected",
	"messages": "messages_total", "excluded": "blocks_excluded", "dropped": "messages_dropped_total", "events": "events_total",
	"fields": "event_fields_unknown_total", "full-syncs": "uplink_full_syncs_total", "resumes": "uplink_resumes_total",
	"repairs": "uplink_repairs_total", "overflows": "dirty_overflows_total", "replays": "replays_total",
	"pressure": "rank_pressure", "ignored": "copies_ignored_total", "tier2": "tier2_reporting",
}

// askCounters reads NAME, or NAME.LABEL for one label's value alone, such as excluded.salt.
func (w *world) askCounters(words []string) (question, error) {
	if len(words) == 0 {
		return nil, errors.New("want readings")
	}
	var labels []string
	head := ""
	if e, _, err := w.target(words[0]); err == nil {
		labels, head = []string{fmt.Sprintf("engine=%q", e.cfg.Name)}, words[0]+": "
		words = words[1:]
	}
	for _, word := range words {
		if name, _, _ := strings.Cut(word, "."); readings[name] == "" {
			return nil, fmt.Errorf("%s: no such reading; there are %v", word, slices.Sorted(maps.Keys(readings)))
		}
	}
	return func() (string, error) {
		series := w.metrics()
		var parts []string
		for _, word := range words {
			name, value, one := strings.Cut(word, ".")
			with := labels
			if a, err := w.aggregator(value); err == nil {
				value = a.relay.address
			}
			if one {
				with = append(slices.Clone(labels), fmt.Sprintf("=%q", value))
			}
			parts = append(parts, fmt.Sprintf("%s=%v", word, sum(series, readings[name], with...)))
		}
		return head + strings.Join(parts, " ") + "\n", nil
	}, nil
}

// askReady asks an aggregator whether it is worth asking.
func (w *world) askReady(words []string) (question, error) {
	a, words, err := w.chosen(words)
	if err != nil || len(words) > 0 {
		return nil, errors.Join(err, fmt.Errorf("want an aggregator or nothing, not %v", words))
	}
	return func() (string, error) {
		if a.part == nil {
			return a.name + " is stopped\n", nil
		}
		resp, err := http.Get(a.http + "/readyz")
		if err != nil {
			return "", err
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		return fmt.Sprintf("%s says %d: %s\n", a.name, resp.StatusCode, strings.Join(strings.Split(strings.TrimSpace(string(body)), "\n"), ", ")), err
	}, nil
}

func (w *world) askAsked(words []string) (question, error) {
	if len(words) != 1 {
		return nil, errors.New("want a target")
	}
	_, p, err := w.target(words[0])
	return func() (string, error) {
		var asked []uint64
		w.loop.do(func() { asked = slices.Clone(p.asked) })
		slices.Sort(asked)
		return fmt.Sprintf("%s was asked from %v\n", words[0], slices.Compact(asked)), nil
	}, err
}
