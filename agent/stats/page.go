package stats

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
)

// page is one parsed metrics page.
type page map[string]*dto.MetricFamily

// first returns the series of the first family present.
func (p page) first(names []string) []*dto.Metric {
	for _, name := range names {
		if f, present := p[name]; present {
			return f.Metric
		}
	}
	return nil
}

// sum adds the series of the first family present. Series split by priority are left out: they
// repeat the unsplit one. A value that is not finite makes the whole unusable.
func (p page) sum(names ...string) (total float64, ok bool) {
	series := p.first(names)
	for _, m := range series {
		v := valueOf(m)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, false
		}
		if label(m, "priority") == "" {
			total += v
		}
	}
	return total, len(series) > 0
}

// max returns the largest finite value of the first family present.
func (p page) max(names ...string) (largest float64, ok bool) {
	for _, m := range p.first(names) {
		if v := valueOf(m); !math.IsNaN(v) && !math.IsInf(v, 0) && (!ok || v > largest) {
			largest, ok = v, true
		}
	}
	return largest, ok
}

// byRank splits the page by the label that tells ranks apart: if it names as many ranks as there are, in the
// order of its numbers, else those that begin with first. False when the page does not tell them apart.
func (p page) byRank(n names, ranks, first int) ([]page, bool) {
	values := p.values(n.rank, append(slices.Clone(n.running), n.config)...)
	if len(values) != ranks {
		named := make([]string, ranks)
		for r := range named {
			named[r] = strconv.Itoa(first + r)
		}
		if slices.ContainsFunc(named, func(v string) bool { return !slices.Contains(values, v) }) {
			return []page{p}, ranks == 1
		}
		values = named
	}
	split := make([]page, ranks)
	for r, value := range values {
		split[r] = p.only(n.rank, value)
	}
	return split, true
}

// values lists the values of a label in the first family present that has any.
func (p page) values(name string, families ...string) (all []string) {
	for _, family := range families {
		f, present := p[family]
		if !present {
			continue
		}
		for _, m := range f.Metric {
			if v := label(m, name); v != "" && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
		if len(all) > 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return all
}

// only returns the page without the series of other values of a label.
func (p page) only(name, value string) page {
	out := make(page, len(p))
	for family, f := range p {
		kept := &dto.MetricFamily{Name: f.Name, Type: f.Type}
		for _, m := range f.Metric {
			if v := label(m, name); v == "" || v == value {
				kept.Metric = append(kept.Metric, m)
			}
		}
		out[family] = kept
	}
	return out
}

// labelled sums the series whose label has a value.
func (p page) labelled(family, name, value string) (total float64, ok bool) {
	f, present := p[family]
	if !present {
		return 0, false
	}
	part := page{family: {Metric: slices.DeleteFunc(slices.Clone(f.Metric), func(m *dto.Metric) bool { return label(m, name) != value })}}
	return part.sum(family)
}

// configured yields the positive numbers that a label of the configuration series has.
func (p page) configured(n names, name string) (all []float64) {
	f, ok := p[n.config]
	if !ok {
		return nil
	}
	for _, m := range f.Metric {
		if v, err := strconv.ParseFloat(label(m, name), 64); err == nil && v > 0 && !math.IsInf(v, 0) {
			all = append(all, v)
		}
	}
	return all
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
