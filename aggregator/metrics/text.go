package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/tokenize"
)

// text counts how token ids are made of text.
type text struct {
	available prometheus.Gauge
	why       *prometheus.GaugeVec   // why
	calls     *prometheus.CounterVec // reason
	tokens    prometheus.Counter
	stages    *prometheus.HistogramVec // stage
	render    *prometheus.CounterVec   // code
}

// NoTokenizer is why no token ids can be made of text.
type NoTokenizer string

// What NoTokenizer may be.
const (
	NotLinked    NoTokenizer = "not_linked" // the build lacks the tokenizer library
	NoModelsDir  NoTokenizer = "no_models_dir"
	ModelsLoad   NoTokenizer = "models_load" // the models are being loaded
	HasTokenizer NoTokenizer = ""            // they can be made
)

func newText() *text {
	t := &text{
		available: gauge("inferencecache_tokenizer_available",
			"1 while token ids can be made of text: the build has the tokenizer library, and models are loaded."),
		why: gaugeVec("inferencecache_tokenizer_unavailable",
			"1 for the reason why no token ids can be made of text: not_linked (the build lacks the tokenizer library), no_models_dir, models_load (they are being loaded).", "why"),
		calls: counterVec("inferencecache_tokenize_total",
			"Lookups by text, by why no token ids were made of it; ok if they were.", "reason"),
		tokens: counter("inferencecache_tokenize_tokens_total", "Token ids made of text."),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "inferencecache_tokenize_seconds",
			Help:    "Time that making token ids of one text took, without waiting: template is the chat template, encode the tokenizer.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25},
		}, []string{"stage"}),
	}
	t.render = counterVec("inferencecache_render_template_total", "Calls of RenderTemplate, by the reason code of the answer.", "code")
	for _, code := range []string{contract.RenderOK, contract.RenderNotFound, contract.RenderError} {
		t.render.WithLabelValues(code)
	}
	for _, r := range tokenize.Reasons() {
		t.calls.WithLabelValues(string(r))
	}
	return t
}

// Tokenizer says whether token ids can be made of text, and if not why.
func (m *Metrics) Tokenizer(why NoTokenizer) {
	for _, other := range []NoTokenizer{NotLinked, NoModelsDir, ModelsLoad} {
		m.text.why.WithLabelValues(string(other)).Set(0)
	}
	if why == HasTokenizer {
		m.text.available.Set(1)
		return
	}
	m.text.available.Set(0)
	m.text.why.WithLabelValues(string(why)).Set(1)
}

// Text counts one lookup by text.
func (m *Metrics) Text(reason tokenize.Reason) { m.text.calls.WithLabelValues(string(reason)).Inc() }

// Rendered counts one call of RenderTemplate.
func (m *Metrics) Rendered(code string) { m.text.render.WithLabelValues(code).Inc() }

// Tokenized counts what the token ids of one text took. What failed took nothing that is comparable.
func (m *Metrics) Tokenized(o tokenize.Observation) {
	if o.Reason != tokenize.ReasonOK {
		return
	}
	m.text.tokens.Add(float64(o.Tokens))
	m.text.stages.WithLabelValues("encode").Observe(o.Encoded.Seconds())
	if o.Rendered > 0 {
		m.text.stages.WithLabelValues("template").Observe(o.Rendered.Seconds())
	}
}
