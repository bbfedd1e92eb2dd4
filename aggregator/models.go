package aggregator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/tokenize"
)

// Tokenizer says which models token ids are made for, where a lookup carries text.
type Tokenizer struct {
	// ModelsDir is a folder of models as package tokenize reads it, which is followed; empty means none.
	ModelsDir string
	// Aliases is a file of other names for models; empty means none.
	Aliases string
	// TimeZone is that of the dates that chat templates write; nil means UTC.
	TimeZone *time.Location
}

// models makes token ids of text once the models are loaded. Until then, or if they never are, it refuses,
// which costs a caller a hint and nothing else.
type models struct {
	config   Tokenizer
	log      *slog.Logger
	metrics  *metrics.Metrics
	never    string // why text is never tokenized; empty if it is
	registry atomic.Pointer[tokenize.Registry]
}

const loading = "the models are being loaded"

// newModels says, once, why text is not tokenized.
func newModels(config Tokenizer, m *metrics.Metrics, log *slog.Logger) *models {
	t := &models{config: config, log: log, metrics: m}
	available, why := tokenize.Available()
	m.Tokenizer(metrics.ModelsLoad)
	if !available {
		m.Tokenizer(metrics.NotLinked)
	} else if config.ModelsDir == "" {
		m.Tokenizer(metrics.NoModelsDir)
	}
	switch {
	case config.ModelsDir == "":
		t.never = "no folder of tokenizer models is configured"
		if !available {
			t.never += ", and this binary is " + why
		}
		log.Info("lookups by text have no hint", "why", t.never)
	case !available:
		t.never = "this binary is " + why
		log.Warn("lookups by text have no hint: the folder of tokenizer models is of no use", "folder", config.ModelsDir, "why", t.never)
	}
	return t
}

// Encode implements lookup.Tokenizer.
func (t *models) Encode(ctx context.Context, model string, input tokenize.Input) (tokenize.Result, error) {
	if r := t.registry.Load(); r != nil {
		return r.Encode(ctx, model, input)
	}
	if t.never != "" {
		return tokenize.Result{}, tokenize.Unavailable(t.never)
	}
	return tokenize.Result{}, tokenize.Unavailable(loading)
}

// missing says what readiness waits for; empty when it does not.
func (t *models) missing() string {
	if t.never == "" && t.registry.Load() == nil {
		return loading
	}
	return ""
}

// run loads the models and follows their folder until ctx ends. A folder that cannot be read is an error.
func (t *models) run(ctx context.Context) error {
	if t.never != "" {
		return nil
	}
	r, err := tokenize.Open(ctx, tokenize.Config{
		Dir: t.config.ModelsDir, Aliases: t.config.Aliases, TimeZone: t.config.TimeZone,
		Log: t.log, Observe: t.metrics.Tokenized,
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped before they were loaded
	}
	if err != nil {
		return err
	}
	t.registry.Store(r)
	t.metrics.Tokenizer(metrics.HasTokenizer)
	return r.Run(ctx)
}

// close frees the models. No call may be in flight.
func (t *models) close() error {
	if r := t.registry.Load(); r != nil {
		return r.Close()
	}
	return nil
}

// newPrompts returns what renders prompt templates.
func (a *Aggregator) newPrompts(config Config, m *metrics.Metrics) *prompts.Service {
	return &prompts.Service{
		Templates: a.prompts, Tokenizer: a.models, Count: m.Rendered, NamespaceKey: config.TenantNamespaceKey, Log: a.log,
		BlockSize: func(scope index.Scope) int32 {
			if sizes := a.registry.Members(scope).BlockSizes; len(sizes) > 0 {
				return sizes[0]
			}
			return config.BlockSize
		},
	}
}
