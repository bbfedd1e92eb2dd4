package engineargs

import "fmt"

// launch reads the arguments of an engine. files are those that the script has written.
func (c command) launch(from Container, vars *variables, files map[string]string) *Launch {
	if from.Owner.Kind != "" {
		c.kind = from.Owner.Kind
	}
	l := &Launch{Kind: c.kind, Ranks: 1}
	g := &vllmGrammar
	if c.kind == SGLang {
		g = &sglangGrammar
	}
	r := &reader{options: readOptions(c.words, g), vars: vars}
	given := r.configFile(from.Owner, files)
	r.override(from.Owner)
	if c.kind == SGLang {
		r.sglang(l)
	} else {
		r.vllm(l, from.Image)
	}
	if !given {
		r.blame(fmt.Sprintf("in the file of --config %q, which is inside the container; put its text into the annotation inferencecache.io/engine-config",
			shorten(r.values["config"][0])))
	} else if why, ok := r.unseen(); ok {
		r.blame("in an argument that cannot be known (" + why + ")")
	}
	if l.Host == "127.0.0.1" || l.Host == "localhost" || l.Host == "::1" {
		if l.Metrics {
			r.problem(MetricsUnreachable, "the HTTP server listens on %s only, so that the engine's load is not known; add --host 0.0.0.0", l.Host)
		}
		l.Metrics = false
	}
	l.Problems = r.problems
	return l
}

// configFile reads the file that --config names, if its text is at hand, and says whether nothing is missing.
func (r *reader) configFile(owner Owner, files map[string]string) bool {
	name, named := r.values["config"]
	text := owner.Config
	if text == "" && named {
		text = files[name[0]]
	}
	if text == "" {
		return !named
	}
	if why, bad := r.vars.why(text); bad {
		r.problem(EngineUnreadable, "the file of --config cannot be known: %s", why)
		return true
	}
	if err := r.under(text); err != nil {
		r.problem(EngineUnreadable, "the file of --config is not YAML of flags: %v", err)
	}
	return true
}

// blame says that flags may be where nobody can read them, where that may explain what is wrong.
func (r *reader) blame(where string) {
	for i, p := range r.problems {
		if p.Reason == KVEventsDisabled || p.Reason == EngineUnreadable {
			r.problems[i] = Problem{EngineUnreadable, "flags may be " + where + ". Without them: " + p.Text}
			return
		}
	}
}

// unseen returns why an argument that belongs to no flag, and may stand for several, is not known.
func (r *reader) unseen() (why string, ok bool) {
	rest := r.bare
	_, vllm := r.values["model"]
	_, sglang := r.values["model-path"]
	if !vllm && !sglang && len(rest) > 0 {
		rest = rest[1:] // the first is the model
	}
	for _, word := range rest {
		if why, ok = r.vars.why(word); ok {
			return why, true
		}
	}
	return "", false
}

// override puts what the owner says over the command line.
func (r *reader) override(o Owner) {
	for flag, value := range map[string]string{
		"port": o.Port, "data-parallel-size": o.Ranks, "data-parallel-size-local": o.Ranks, "data-parallel-start-rank": o.FirstRank,
	} {
		if value != "" {
			r.values[flag] = []string{value}
		}
	}
	if o.Ranks != "" {
		delete(r.values, "data-parallel-rank")
	}
	if len(o.Models) > 0 {
		r.values["served-model-name"] = o.Models
	}
	r.owner = map[string][]nested{}
	for _, n := range []nested{{"endpoint", o.EventsEndpoint}, {"replay_endpoint", o.ReplayEndpoint}, {"topic", o.Topic}} {
		if n.value != "" {
			r.owner[eventsFlag] = append(r.owner[eventsFlag], n)
		}
	}
	if o.EventsEndpoint != "" {
		r.owner[eventsFlag] = append(r.owner[eventsFlag], nested{"publisher", "zmq"}, nested{"enable_kv_cache_events", "true"})
	}
}
