// Package stats reads an engine's Prometheus page and turns it into the statistics that rank a
// replica: pressure, hit rate, cache use and offload counters.
package stats

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Defaults and bounds.
const (
	DefaultInterval = 2 * time.Second
	// DefaultCeiling is the number of running and waiting requests that saturates a rank.
	DefaultCeiling = 256
	scrapeTimeout  = 5 * time.Second
	maxPage        = 32 << 20
	// staleAfter is how many failed scrapes in a row make the statistics unknown.
	staleAfter = 3
)

// Config describes one scraper.
type Config struct {
	Replica  string
	URL      string
	Scheme   string // hash scheme; one that begins with "sglang" selects SGLang's metric names
	Interval time.Duration
	// Ranks is the number of data-parallel ranks; 0 is 1. FirstRank is the number of the first where the page
	// is also that of others. Ceiling is per rank.
	Ranks, FirstRank, Ceiling int
	// Observe is called after each successful scrape with what the page says of the process.
	Observe func(Process)
	Client  *http.Client
	Log     *slog.Logger
}

// Process is what a metrics page says of the engine process itself.
type Process struct {
	// Started is when it started, in seconds since the Unix epoch; 0 if the page does not say.
	Started float64
	// Ranks has an element for each rank.
	Ranks []Rank
}

// Rank is what a metrics page says of one data-parallel rank.
type Rank struct {
	// Asleep says that it has given up its KV cache until it is woken.
	Asleep bool
	// GPUBlocks is the most blocks that it can have in GPU memory; 0 if the page does not say.
	GPUBlocks int
}

// Scraper polls one engine.
type Scraper struct {
	cfg     Config
	names   names
	latest  atomic.Pointer[[]*pb.ReplicaStats] // by rank
	windows []window                           // by rank
	// Failures counts scrapes that gave no statistics.
	Failures atomic.Uint64
}

// New returns a scraper; Run starts it.
func New(cfg Config) *Scraper {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Ceiling <= 0 {
		cfg.Ceiling = DefaultCeiling
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: scrapeTimeout}
	}
	cfg.Ranks = max(1, cfg.Ranks)
	s := &Scraper{cfg: cfg, names: vllm, windows: make([]window, cfg.Ranks)}
	if strings.HasPrefix(cfg.Scheme, "sglang") {
		s.names = sglang
	}
	return s
}

// Latest returns the newest statistics of a rank, or nil while there are none to trust.
func (s *Scraper) Latest(rank int) *pb.ReplicaStats {
	if all := s.latest.Load(); all != nil {
		return (*all)[rank]
	}
	return nil
}

// Run polls until ctx ends. An engine that cannot be read is logged once, and once when it is back.
func (s *Scraper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for failed := 0; ; {
		stats, err := s.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failed++
			s.Failures.Add(1)
			if failed == staleAfter {
				s.latest.Store(nil)
				s.cfg.Log.Error("engine statistics are stale", "event", "load_signal_stale",
					"replica", s.cfg.Replica, "url", s.cfg.URL, "error", err)
			}
		default:
			if failed >= staleAfter {
				s.cfg.Log.Info("engine statistics are back", "event", "load_signal_recovered", "replica", s.cfg.Replica)
			}
			failed = 0
			s.latest.Store(&stats)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Scraper) scrape(ctx context.Context) ([]*pb.ReplicaStats, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := s.cfg.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get metrics: status %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return s.read(page(families))
}
