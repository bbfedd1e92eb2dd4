package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/inferencecache/inferencecache/hack/demo/report"
)

// Names of the agent's counters.
const (
	eventsMetric = "inferencecache_agent_events_total"
	deltasMetric = "inferencecache_agent_uplink_deltas_total"
	bytesMetric  = "inferencecache_agent_uplink_bytes_total"
)

// Counters are the agent's counters at one time.
type Counters struct {
	events        map[string]int64 // by kind
	deltas, bytes int64
}

// ReadCounters reads the agent's metrics page.
func ReadCounters(ctx context.Context, url string) (Counters, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Counters{}, fmt.Errorf("read the agent's metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Counters{}, fmt.Errorf("read the agent's metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Counters{}, fmt.Errorf("read the agent's metrics: %s answers %s", url, resp.Status)
	}
	c, err := parseCounters(resp.Body)
	if err != nil {
		return Counters{}, fmt.Errorf("read the agent's metrics from %s: %w", url, err)
	}
	return c, nil
}

// parseCounters sums each counter over its series. A vector that has no series yet is 0.
func parseCounters(page io.Reader) (Counters, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return Counters{}, err
	}
	if len(families) == 0 {
		return Counters{}, errors.New("the page has no metrics")
	}
	sum := func(name string) (total int64) {
		for _, m := range families[name].GetMetric() {
			total += int64(m.GetCounter().GetValue())
		}
		return total
	}
	c := Counters{events: make(map[string]int64), deltas: sum(deltasMetric), bytes: sum(bytesMetric)}
	for _, m := range families[eventsMetric].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "kind" {
				c.events[label.GetValue()] += int64(m.GetCounter().GetValue())
			}
		}
	}
	return c, nil
}

// Since returns what was counted after before.
func (c Counters) Since(before Counters) report.Uplink {
	events := maps.Clone(c.events)
	for kind, n := range before.events {
		events[kind] -= n
	}
	return report.NewUplink(events, c.deltas-before.deltas, c.bytes-before.bytes)
}
