package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the figures as one table for people.
func (r *Report) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(Pass) string) {
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\n", name, cell(r.RoundRobin), cell(r.ByPrefix)) // tw keeps the error for Flush
	}
	_, _ = fmt.Fprint(tw, "\tround robin\tby prefix\n")
	row("hit rate (prompt tokens)", func(p Pass) string { return fmt.Sprintf("%.1f %%", 100*p.HitRate) })
	row("TTFT p50 / p99 (modelled)", func(p Pass) string { return fmt.Sprintf("%.0f / %.0f ms", p.TTFT.P50, p.TTFT.P99) })
	row("requests per engine", loads)
	row("lookup p50 / p99", lookups)
	row("requests routed by a hint", func(p Pass) string { return orNone(p.Lookups, fmt.Sprintf("%d of %d", p.Hinted, p.Requests)) })
	for i := range r.RoundRobin.Caches {
		row("blocks held / known, "+r.RoundRobin.Caches[i].Engine, func(p Pass) string { return cacheCell(p.Caches, i) })
	}
	row("events", events)
	row("deltas", func(p Pass) string { return fmt.Sprint(p.Uplink.Deltas) })
	row("bytes per delta", func(p Pass) string { return fmt.Sprintf("%.0f", p.Uplink.BytesPerDelta) })
	row("seconds", func(p Pass) string { return fmt.Sprintf("%.1f", p.Seconds) })
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	_, err := fmt.Fprintf(w, "\nThe hit rate by prefix is %.2f times that of round robin; the index %s.\n", r.Gain, agreement(r.IndexAgrees))
	return err
}

func agreement(agrees bool) string {
	if agrees {
		return "knows exactly the blocks that the engines hold"
	}
	return "DISAGREES with the engines"
}

func loads(p Pass) string {
	counts := make([]string, len(p.Engines))
	for i, e := range p.Engines {
		counts[i] = fmt.Sprint(e.Requests)
	}
	return strings.Join(counts, " ")
}

func lookups(p Pass) string {
	return orNone(p.Lookups, fmt.Sprintf("%.2f / %.2f ms", p.Lookup.P50, p.Lookup.P99))
}

func orNone(n int, cell string) string {
	if n == 0 {
		return "-"
	}
	return cell
}

func cacheCell(caches []Cache, i int) string {
	if i >= len(caches) {
		return "-"
	}
	c := caches[i]
	cell := fmt.Sprintf("%d / %d", c.Held, c.Known)
	if !c.Agrees() {
		cell += fmt.Sprintf(" (%d missing, %d extra)", c.Missing, c.Extra)
	}
	return cell
}

func events(p Pass) string {
	kinds := make([]string, 0, len(p.Uplink.Events))
	for _, k := range slices.Sorted(maps.Keys(p.Uplink.Events)) {
		if n := p.Uplink.Events[k]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, k))
		}
	}
	if len(kinds) == 0 {
		return "0"
	}
	return strings.Join(kinds, ", ")
}
