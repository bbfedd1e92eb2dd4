package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
)

// Cache names one cache.
type Cache struct {
	Engine string
	Rank   int32
}

func (c Cache) String() string { return c.Engine + "/" + strconv.Itoa(int(c.Rank)) }

// Pair is one block in one cache.
type Pair struct {
	Cache
	Adapter string
	Hash    uint64
}

func (p Pair) String() string { return fmt.Sprintf("%s/%s/%016x", p.Cache, p.Adapter, p.Hash) }

// Pairs is a set of pairs.
type Pairs map[Pair]struct{}

func (s Pairs) add(engine string, blocks inspect.Blocks) {
	for b := range blocks {
		s[Pair{Cache{engine, b.Rank}, b.Adapter, b.Hash}] = struct{}{}
	}
}

// Without returns what is not in other.
func (s Pairs) Without(other Pairs) []Pair {
	var rest []Pair
	for p := range s {
		if _, ok := other[p]; !ok {
			rest = append(rest, p)
		}
	}
	return rest
}

// Truth returns what the engines' pools hold.
func (f *Fleet) Truth(ctx context.Context) (Pairs, error) {
	truth := Pairs{}
	for _, e := range f.Engines {
		held, err := e.Held(ctx)
		if err != nil {
			return nil, err
		}
		truth.add(e.Name, held)
	}
	return truth, nil
}

// Known returns what the aggregator's index holds.
func (a *Aggregator) Known(ctx context.Context) (Pairs, error) {
	byEngine, err := inspect.Known(ctx, pb.NewCacheInspectionClient(a.conn.Load()))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	known := Pairs{}
	for name, blocks := range byEngine {
		known.add(name, blocks)
	}
	return known, nil
}

// View is what an agent says of one cache.
type View struct {
	Certainty string
	Connected bool
}

// Views returns what the agents say of every cache.
func (f *Fleet) Views(ctx context.Context) (map[Cache]View, error) {
	views := map[Cache]View{}
	for _, a := range f.Agents {
		if err := a.views(ctx, views); err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
	}
	if len(views) != Engines*Ranks {
		return nil, fmt.Errorf("agents tell of %d caches, want %d", len(views), Engines*Ranks)
	}
	return views, nil
}

func (a *Agent) views(ctx context.Context, views map[Cache]View) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+*a.http.Load()+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	for _, m := range families["inferencecache_agent_view_certainty"].GetMetric() {
		if m.GetGauge().GetValue() == 1 {
			c, err := cacheOf(m)
			if err != nil {
				return err
			}
			views[c] = View{Certainty: label(m, "certainty")}
		}
	}
	for _, m := range families["inferencecache_agent_engine_connected"].GetMetric() {
		c, err := cacheOf(m)
		if err != nil {
			return err
		}
		v := views[c]
		v.Connected = m.GetGauge().GetValue() == 1
		views[c] = v
	}
	return nil
}

func cacheOf(m *dto.Metric) (Cache, error) {
	rank, err := strconv.ParseInt(label(m, "rank"), 10, 32)
	if err != nil {
		return Cache{}, fmt.Errorf("read metrics: rank: %w", err)
	}
	return Cache{label(m, "engine"), int32(rank)}, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
