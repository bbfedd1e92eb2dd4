// Package tokenize turns prompts into the token ids that an engine computes for them: plain text, one user
// message, or a whole chat with tools, through the model's own tokenizer and chat template.
//
// Models are loaded from a folder once and reloaded when their files change. A request names a model by the id
// under which it was loaded; ids are never joined onto a path. Whatever cannot be computed exactly is refused
// with a reason: a missing hint costs a cache hit, a wrong one a wrong route.
//
// The tokenizers themselves are a Rust library, linked with the build tag "tokenizers" (see hack/native.sh).
// Without the tag or without cgo the package compiles, and answers ReasonUnavailable; Available says why.
package tokenize

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/tokenize/linked"
)

// Available says whether prompts can be tokenized, and if not why.
func Available() (ok bool, why string) { return linked.Library() }

// Config says where the models are and what a request may cost. Zero values mean the defaults.
type Config struct {
	// Dir is the folder of models: every folder below it that holds a tokenizer.json is a model, whose id is its
	// path from Dir, with slashes.
	Dir string
	// Aliases is a YAML file of other names for models; none if empty. See Aliases for its form.
	Aliases string
	// TimeZone is that of the dates that templates write, the engines' own; UTC by default.
	TimeZone *time.Location
	// PartSeparator joins the text parts of a message where a template takes text alone; "\n" by default, as vLLM
	// has it.
	PartSeparator string
	// ReloadEvery is how often Run looks for changed files; 10 s by default.
	ReloadEvery time.Duration

	MaxBytes         int           // of a request's text, and of the prompt that a template makes of it; 1 MiB by default
	MaxTokens        int           // of a result; 1,048,576 by default
	MaxMessages      int           // of a request; 4,096 by default
	MaxTemplateBytes int           // of a chat template's source; 1 MiB by default
	MaxModelBytes    int64         // of a model's tokenizer.json; 256 MiB by default
	MaxModels        int           // loaded at a time; 256 by default
	Timeout          time.Duration // of a request without an earlier deadline; 5 s by default
	RenderTimeout    time.Duration // of a template; 250 ms by default
	Concurrency      int           // requests computed at a time; the number of CPUs by default
	Queue            int           // requests that wait for their turn; 64 by default

	Log *slog.Logger // slog.Default() by default
	// Now is the clock of templates; time.Now by default.
	Now func() time.Time
	// Observe is called after each request, if set. It must not block.
	Observe func(Observation)
}

// Observation is one request as metrics count it.
type Observation struct {
	Model    string // the loaded model's id, empty for an unknown one: its values are bounded
	Reason   Reason
	Route    Route
	Bytes    int // of the text that was encoded
	Tokens   int
	Rendered time.Duration // spent in the template
	Encoded  time.Duration // spent in the tokenizer
}

// Route says which core of the tokenizer answered.
type Route string

// The routes. All but the first are the slow core's.
const (
	RouteFast      Route = "fast"
	RouteAlways    Route = "slow_model"     // the model has no fast core
	RouteCodePoint Route = "slow_codepoint" // a code point of the text is one that the cores treat differently
	RouteMismatch  Route = "slow_mismatch"  // the fast core's ids did not spell the text
	RouteAsked     Route = "slow_asked"
)

// Result is what a prompt encodes to.
type Result struct {
	IDs   []uint32
	Model string // the id of the model that was used, its alias resolved
	Route Route
}

func (c Config) withDefaults() Config {
	or := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	or(&c.MaxBytes, 1<<20)
	or(&c.MaxTokens, 1<<20)
	or(&c.MaxMessages, 4096)
	or(&c.MaxTemplateBytes, 1<<20)
	or(&c.MaxModels, 256)
	or(&c.Concurrency, runtime.GOMAXPROCS(0))
	or(&c.Queue, 64)
	orDuration := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orDuration(&c.ReloadEvery, 10*time.Second)
	orDuration(&c.Timeout, 5*time.Second)
	orDuration(&c.RenderTimeout, 250*time.Millisecond)
	if c.MaxModelBytes == 0 {
		c.MaxModelBytes = 256 << 20
	}
	if c.TimeZone == nil {
		c.TimeZone = time.UTC
	}
	if c.PartSeparator == "" {
		c.PartSeparator = "\n"
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Registry holds the loaded models. It is safe for concurrent use.
type Registry struct {
	config  Config
	gate    *gate
	models  atomic.Pointer[snapshot]
	refused map[string]string // signature of each folder that was refused, so that it is named once
}

// Open loads all models below config.Dir, in parallel. A model that cannot be loaded is named in the log and
// left out. It fails if the folder or the file of aliases cannot be read.
func Open(ctx context.Context, config Config) (*Registry, error) {
	config = config.withDefaults()
	r := &Registry{config: config, gate: newGate(config.Concurrency, config.Queue), refused: map[string]string{}}
	r.models.Store(&snapshot{})
	if ok, why := Available(); !ok {
		config.Log.Warn("prompt text is not tokenized", "why", why)
		return r, nil
	}
	started := time.Now()
	if err := r.reload(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	config.Log.Info("models loaded", "models", len(r.models.Load().models), "dir", config.Dir, "took", time.Since(started).Round(time.Millisecond))
	return r, nil
}

// Run reloads models whose files change, until ctx ends. What cannot be read or loaded is logged, and what was
// loaded before stays in use.
func (r *Registry) Run(ctx context.Context) error {
	if ok, _ := Available(); !ok {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(r.config.ReloadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.reload(ctx); err != nil && ctx.Err() == nil {
				r.config.Log.Error("models not reloaded: the ones loaded before stay in use", "err", err)
			}
		}
	}
}

// Close frees the models. Requests that are being computed end first; later ones find no model.
func (r *Registry) Close() error {
	for _, m := range r.models.Swap(&snapshot{}).models {
		m.close()
	}
	return nil
}

// Models returns the ids of the loaded models, sorted.
func (r *Registry) Models() []string { return r.models.Load().ids() }

// Encode computes the ids of input for a model, named by its id or an alias. Errors are an *Error.
func (r *Registry) Encode(ctx context.Context, model string, input Input) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	var seen Observation
	result, err := r.encode(ctx, model, input, &seen)
	seen.Reason = ReasonOf(err)
	if r.config.Observe != nil {
		r.config.Observe(seen)
	}
	return result, err
}

func (r *Registry) encode(ctx context.Context, name string, input Input, seen *Observation) (Result, error) {
	if ok, why := Available(); !ok {
		return Result{}, refuse(ReasonUnavailable, errors.New(why))
	}
	if err := input.check(r.config); err != nil {
		return Result{}, err
	}
	m, err := r.acquire(name)
	if err != nil {
		return Result{}, err
	}
	defer m.release()
	seen.Model = m.id
	if err := r.gate.enter(ctx); err != nil {
		return Result{}, err
	}
	defer r.gate.leave()
	text, special, err := r.text(ctx, m, input, seen)
	if err != nil {
		return Result{}, err
	}
	seen.Bytes = len(text)
	started := time.Now()
	ids, route, err := m.encoder.encode(ctx, text, special)
	seen.Encoded = time.Since(started)
	if err != nil {
		return Result{}, err
	}
	seen.Route, seen.Tokens = route, len(ids)
	if len(ids) > r.config.MaxTokens {
		return Result{}, refuse(ReasonTooLarge, fmt.Errorf("%d tokens, at most %d are accepted", len(ids), r.config.MaxTokens))
	}
	return Result{IDs: ids, Model: m.id, Route: route}, nil
}

// acquire returns the model of a name, to be released.
func (r *Registry) acquire(name string) (*model, error) {
	for range 2 { // a reload may close the model between the two steps of acquire; then the new one is there
		if m := r.models.Load().acquire(name); m != nil {
			return m, nil
		}
	}
	return nil, refuse(ReasonUnknownModel, fmt.Errorf("no model %.200q is loaded", name))
}

// text returns what is to be encoded, and whether the tokenizer adds its special tokens to it.
func (r *Registry) text(ctx context.Context, m *model, input Input, seen *Observation) (text string, special bool, err error) {
	if input.Raw != "" {
		return input.Raw, !input.NoSpecialTokens, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.config.RenderTimeout, errRenderTimeout)
	defer cancel()
	started := time.Now()
	text, err = m.render(ctx, input, r.config)
	seen.Rendered = time.Since(started)
	if err == nil && len(text) > r.config.MaxBytes {
		err = refuse(ReasonTooLarge, fmt.Errorf("the chat template makes %d bytes of the request, at most %d are accepted", len(text), r.config.MaxBytes))
	}
	// Templates write special tokens themselves, and engines add none behind them.
	return text, false, err
}

// Render returns the prompt that the model's chat template makes of input. Errors are an *Error.
func (r *Registry) Render(ctx context.Context, model string, input Input) (string, error) {
	if ok, why := Available(); !ok {
		return "", refuse(ReasonUnavailable, errors.New(why))
	}
	if err := input.check(r.config); err != nil {
		return "", err
	}
	m, err := r.acquire(model)
	if err != nil {
		return "", err
	}
	defer m.release()
	var seen Observation
	text, _, err := r.text(ctx, m, input, &seen)
	return text, err
}
