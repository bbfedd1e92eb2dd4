package vllm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// results are what all tests found, printed at the end.
var results report

// tally compares predicted with actual cached tokens over some requests.
type tally struct {
	Requests        int `json:"requests"`
	Equal           int `json:"equal"`
	TooLow          int `json:"tooLow"`
	TooHigh         int `json:"tooHigh"`
	PromptTokens    int `json:"promptTokens"`
	PredictedTokens int `json:"predictedTokens"`
	CachedTokens    int `json:"cachedTokens"`
}

func (t *tally) add(prompt, predicted, cached int) {
	t.Requests++
	t.PromptTokens += prompt
	t.PredictedTokens += predicted
	t.CachedTokens += cached
	switch cmp.Compare(predicted, cached) {
	case -1:
		t.TooLow++
	case 0:
		t.Equal++
	case 1:
		t.TooHigh++
	}
}

func (t *tally) merge(other tally) {
	t.Requests += other.Requests
	t.Equal += other.Equal
	t.TooLow += other.TooLow
	t.TooHigh += other.TooHigh
	t.PromptTokens += other.PromptTokens
	t.PredictedTokens += other.PredictedTokens
	t.CachedTokens += other.CachedTokens
}

// phase is one row of the table.
type phase struct {
	tally
	engines int
	name    string
	// exempt phases have requests that cannot be predicted; they are shown and not counted.
	exempt bool
}

// routing is what one way of routing came to.
type routing struct {
	Way string `json:"way"`
	tally
}

// idRow compares the ids of some prompts.
type idRow struct {
	name                     string
	equal, differ, refused   int // refused by both
	onlyWe, onlyThey, tokens int // ids of one alone; tokens that the engine made
}

// report is everything that is printed.
type report struct {
	release string
	phases  []*phase
	ids     []*idRow
	learned []time.Duration // from an answer until the index has all of its blocks
	routing []routing
	notes   []string // further figures, a line each
}

// phase starts a row.
func (r *report) phase(engines int, name string, exempt bool) *phase {
	p := &phase{engines: engines, name: name, exempt: exempt}
	r.phases = append(r.phases, p)
	return p
}

func (r *report) idRow(name string) *idRow {
	row := &idRow{name: name}
	r.ids = append(r.ids, row)
	return row
}

// counted adds up the phases that can be predicted; 0 stands for any number of engines.
func (r *report) counted(engines int) tally {
	var sum tally
	for _, p := range r.phases {
		if !p.exempt && (engines == 0 || p.engines == engines) {
			sum.merge(p.tally)
		}
	}
	return sum
}

func (r *report) print(w io.Writer) {
	r.printIDs(w)
	if len(r.phases) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\nvLLM %s on the CPU: cached tokens as predicted by LookupRoute and as reported by the engine\n\n", r.release)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(tw, "requests\tequal\ttoo low\ttoo high\tprompt\tpredicted\tcached\tengines\t  \n")
	for _, p := range r.phases {
		name := p.name
		if p.exempt {
			name += " *"
		}
		row(tw, p.tally, fmt.Sprint(p.engines), name)
	}
	row(tw, r.counted(0), "", "all but *")
	_ = tw.Flush()
	_, _ = fmt.Fprint(w, "\n* cannot be predicted, and not counted\n\n")
	for _, note := range r.notes {
		_, _ = fmt.Fprintln(w, note)
	}
	r.printRouting(w)
	r.printTotals(w)
}

func (r *report) printIDs(w io.Writer) {
	if len(r.ids) == 0 {
		return
	}
	_, _ = fmt.Fprintf(w, "\nvLLM %s: ids of POST /tokenize and of LookupRoute\n\n", r.release)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(tw, "prompts\tequal\tdiffer\trefused by both\tonly here\tonly there\ttokens\t  \n")
	for _, x := range r.ids {
		all := x.equal + x.differ + x.refused + x.onlyWe + x.onlyThey
		_, _ = fmt.Fprintf(tw, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", all, x.equal, x.differ, x.refused, x.onlyWe, x.onlyThey, x.tokens, x.name)
	}
	_ = tw.Flush()
}

func row(w io.Writer, t tally, engines, name string) {
	_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t  %s\n",
		t.Requests, t.Equal, t.TooLow, t.TooHigh, t.PromptTokens, t.PredictedTokens, t.CachedTokens, engines, name)
}

func (r *report) printRouting(w io.Writer) {
	for _, x := range r.routing {
		_, _ = fmt.Fprintf(w, "two engines, %s: %d of %d prompt tokens cached (%.1f %%)\n",
			x.Way, x.CachedTokens, x.PromptTokens, 100*float64(x.CachedTokens)/float64(max(x.PromptTokens, 1)))
	}
}

// printTotals prints one line of JSON for scripts.
func (r *report) printTotals(w io.Writer) {
	totals := struct {
		Release string `json:"release"`
		tally
		LearnedMsP50 float64   `json:"learnedMsP50"`
		LearnedMsP99 float64   `json:"learnedMsP99"`
		Routing      []routing `json:"routing,omitempty"`
	}{Release: r.release, tally: r.counted(0), LearnedMsP50: r.learnedMs(0.5), LearnedMsP99: r.learnedMs(0.99), Routing: r.routing}
	line, err := json.Marshal(totals)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(w, "%s\n", line)
}

func (r *report) learnedMs(quantile float64) float64 {
	if len(r.learned) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.learned))
	return float64(sorted[int(quantile*float64(len(sorted)-1))].Microseconds()) / 1000
}
