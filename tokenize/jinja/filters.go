package jinja

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// markup is what the filter safe returns: it prints as it is, and text that is joined to it is escaped.
type markup string

var escapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped is v as text that is safe to join to markup.
func escaped(v Value) string {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	return escapes.Replace(str(v))
}

// missingFilters are filters of Jinja2 that this package lacks: a template that names one is refused when it is
// compiled. One that Jinja2 does not know either fails where it is applied, as in Jinja2.
var missingFilters = []string{
	"attr", "batch", "center", "e", "escape", "filesizeformat", "forceescape", "groupby", "max", "min", "pprint",
	"random", "round", "slice", "striptags", "sum", "truncate", "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
}

type filter struct {
	params []string
	apply  func(r *renderer, input Value, p params) (Value, error)
}

var filters map[string]filter

// init fills the table, which filters that apply filters refer to.
func init() {
	filters = map[string]filter{
		"tojson":     {[]string{"ensure_ascii", "indent", "separators", "sort_keys"}, toJSON},
		"trim":       {[]string{"chars"}, trim},
		"upper":      textFilter(upper),
		"lower":      textFilter(lower),
		"capitalize": textFilter(capitalize),
		"title":      textFilter(titleFilter),
		"string":     textFilter(func(s string) string { return s }),
		"length":     {nil, length},
		"first":      {nil, first},
		"last":       {nil, last},
		"list":       {nil, listFilter},
		"reverse":    {nil, reverse},
		"items":      {nil, itemsFilter},
		"join":       {[]string{"d", "attribute"}, join},
		"default":    {[]string{"default_value", "boolean"}, defaultFilter},
		"replace":    {[]string{"old", "new", "count"}, replaceFilter},
		"int":        {[]string{"default", "base"}, intFilter},
		"float":      {[]string{"default"}, floatFilter},
		"abs":        {nil, abs},
		"sort":       {[]string{"reverse", "case_sensitive", "attribute"}, sortFilter},
		"unique":     {[]string{"case_sensitive", "attribute"}, unique},
		"dictsort":   {[]string{"case_sensitive", "by", "reverse"}, dictsort},
		"indent":     {[]string{"width", "first", "blank"}, indent},
		"format":     {[]string{"a", "b", "c", "d", "e", "f"}, format},
		"map":        {[]string{"name", "a", "b", "c", "attribute", "default"}, mapFilter},
		"select":     {[]string{"name", "a"}, selector(true, false)},
		"reject":     {[]string{"name", "a"}, selector(false, false)},
		"selectattr": {[]string{"attribute", "name", "a"}, selector(true, true)},
		"rejectattr": {[]string{"attribute", "name", "a"}, selector(false, true)},
		"safe": {nil, func(_ *renderer, v Value, _ params) (Value, error) {
			return markup(str(v)), nil
		}},
	}
	filters["count"], filters["d"] = filters["length"], filters["default"]
}

func textFilter(f func(string) string) filter {
	return filter{nil, func(r *renderer, v Value, _ params) (Value, error) { return r.built(f(str(v))) }}
}

func toJSON(r *renderer, v Value, p params) (Value, error) {
	d := dumps{ascii: truthy(p.or("ensure_ascii", false)), item: ", ", key: ": ", sorted: truthy(p.or("sort_keys", false))}
	switch in := p.or("indent", nil).(type) {
	case nil:
	case string:
		d.pretty, d.indent, d.item = true, in, ","
	case int64:
		d.pretty, d.indent, d.item = true, strings.Repeat(" ", int(max(0, min(in, 64)))), ","
	default:
		return nil, fmt.Errorf("indent is %s", typeName(in))
	}
	if separators := p.or("separators", nil); separators != nil {
		l, ok := separators.(*List)
		if !ok || len(l.Items) != 2 {
			return nil, errors.New("separators must be two strings")
		}
		d.item, d.key = str(l.Items[0]), str(l.Items[1])
	}
	var b strings.Builder
	if err := d.write(&b, v, 0); err != nil {
		return nil, err
	}
	return r.built(b.String())
}

func trim(r *renderer, v Value, p params) (Value, error) {
	s, err := strip(str(v), p.or("chars", nil), true, true)
	if err != nil {
		return nil, err
	}
	return r.built(s)
}

// titleFilter starts each word with a capital; words end at white space, hyphens and opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) })
		if end < 0 {
			end = len(s)
		}
		if end > 0 {
			_, n := utf8.DecodeRuneInString(s)
			b.WriteString(upper(s[:n]) + lower(s[n:end]))
		}
		s = s[end:]
		if s != "" {
			_, n := utf8.DecodeRuneInString(s)
			b.WriteString(s[:n])
			s = s[n:]
		}
	}
	return b.String()
}

func length(_ *renderer, v Value, _ params) (Value, error) {
	switch v := v.(type) {
	case undefinedType:
		return int64(0), nil
	case string:
		return int64(utf8.RuneCountInString(v)), nil
	case *List:
		return int64(len(v.Items)), nil
	case *Dict:
		return int64(len(v.keys)), nil
	}
	return nil, fmt.Errorf("%s has no length", typeName(v))
}

func first(_ *renderer, v Value, _ params) (Value, error) {
	all, err := items(v)
	if err != nil || len(all) == 0 {
		return undefined, err
	}
	return all[0], nil
}

func last(_ *renderer, v Value, _ params) (Value, error) {
	all, err := items(v)
	if err != nil || len(all) == 0 {
		return undefined, err
	}
	return all[len(all)-1], nil
}

func listFilter(_ *renderer, v Value, _ params) (Value, error) {
	all, err := items(v)
	return &List{Items: slices.Clone(all)}, err
}

func reverse(r *renderer, v Value, _ params) (Value, error) {
	if s, ok := v.(string); ok {
		runes := []rune(s)
		slices.Reverse(runes)
		return r.built(string(runes))
	}
	all, err := items(v)
	all = slices.Clone(all)
	slices.Reverse(all)
	return &List{Items: all}, err
}

func itemsFilter(_ *renderer, v Value, _ params) (Value, error) {
	switch v := v.(type) {
	case undefinedType:
		return &List{}, nil
	case *Dict:
		return pairs(v), nil
	}
	return nil, fmt.Errorf("%s is not a mapping", typeName(v))
}

func pairs(d *Dict) *List {
	l := &List{Items: make([]Value, len(d.keys))}
	for i, key := range d.keys {
		l.Items[i] = &List{Items: []Value{key, d.values[key]}, Tuple: true}
	}
	return l
}

func join(r *renderer, v Value, p params) (Value, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	if all, err = attributes(all, p.or("attribute", nil)); err != nil {
		return nil, err
	}
	parts := make([]string, len(all))
	for i, item := range all {
		if _, ok := item.(markup); ok {
			return nil, errors.New("safe strings are not supported here")
		}
		parts[i] = str(item)
	}
	return r.built(strings.Join(parts, str(p.or("d", ""))))
}

// attributes replaces each item by one of its attributes, a path with dots, unless it is none.
func attributes(all []Value, path Value) ([]Value, error) {
	if path == nil {
		return all, nil
	}
	name, ok := path.(string)
	if !ok {
		return nil, fmt.Errorf("attribute is %s", typeName(path))
	}
	out := make([]Value, len(all))
	for i, item := range all {
		v := item
		for part := range strings.SplitSeq(name, ".") {
			var key Value = part
			if n, err := strconv.ParseInt(part, 10, 64); err == nil {
				key = n
			}
			var err error
			if v, err = getItem(v, key); err != nil {
				return nil, err
			}
		}
		out[i] = v
	}
	return out, nil
}

func defaultFilter(_ *renderer, v Value, p params) (Value, error) {
	if v == undefined || truthy(p.or("boolean", false)) && !truthy(v) {
		return p.or("default_value", ""), nil
	}
	return v, nil
}

func replaceFilter(r *renderer, v Value, p params) (Value, error) {
	if !p.has("old") || !p.has("new") {
		return nil, errors.New("takes old and new")
	}
	return replace(r, str(v), str(p.or("old", "")), str(p.or("new", "")), p.or("count", nil))
}

func replace(r *renderer, s, from, to string, count Value) (Value, error) {
	n := int64(-1)
	if count != nil {
		var ok bool
		if n, ok = asInt(count); !ok {
			return nil, fmt.Errorf("count is %s", typeName(count))
		}
	}
	hits := strings.Count(s, from)
	if n >= 0 && int64(hits) > n {
		hits = int(n)
	}
	if err := r.spend(len(s) + hits*len(to)); err != nil {
		return nil, err
	}
	return strings.Replace(s, from, to, int(n)), nil
}

func intFilter(_ *renderer, v Value, p params) (Value, error) {
	base, _ := asInt(p.or("base", int64(10)))
	if base != 10 && base != 16 {
		return nil, fmt.Errorf("base %d is not supported", base)
	}
	switch v := v.(type) {
	case bool:
		return boolInt(v), nil
	case int64:
		return v, nil
	case float64:
		if math.Abs(v) < 1<<53 {
			return int64(v), nil
		}
	case string:
		s := strings.TrimFunc(v, isSpace)
		if base == 16 {
			s = strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
		}
		if n, err := strconv.ParseInt(s, int(base), 64); err == nil {
			return n, nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<53 {
			return int64(f), nil
		}
	}
	return p.or("default", int64(0)), nil
}

func floatFilter(_ *renderer, v Value, p params) (Value, error) {
	if f, ok := asFloat(v); ok {
		return f, nil
	}
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	}
	return p.or("default", 0.0), nil
}

func abs(_ *renderer, v Value, _ params) (Value, error) {
	if n, ok := asInt(v); ok {
		return max(n, -n), nil
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	return nil, fmt.Errorf("%s has no absolute value", typeName(v))
}

// sortKeys are what items are sorted or told apart by: an attribute, strings in lower case unless asked for.
func sortKeys(all []Value, p params) ([]Value, error) {
	keys, err := attributes(all, p.or("attribute", nil))
	if err != nil {
		return nil, err
	}
	keys = slices.Clone(keys)
	for i, key := range keys {
		if s, ok := key.(string); ok && !truthy(p.or("case_sensitive", false)) {
			keys[i] = lower(s)
		}
	}
	return keys, nil
}

func sorted(all, keys []Value, descending bool) ([]Value, error) {
	at := make([]int, len(all))
	for i := range at {
		at[i] = i
	}
	var failed error
	sort.SliceStable(at, func(i, j int) bool {
		a, b := keys[at[i]], keys[at[j]]
		if descending {
			a, b = b, a
		}
		c, err := compare(a, b)
		if err != nil {
			failed = err
		}
		return c < 0
	})
	out := make([]Value, len(all))
	for i, j := range at {
		out[i] = all[j]
	}
	return out, failed
}

func sortFilter(_ *renderer, v Value, p params) (Value, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	keys, err := sortKeys(all, p)
	if err != nil {
		return nil, err
	}
	out, err := sorted(all, keys, truthy(p.or("reverse", false)))
	return &List{Items: out}, err
}

func unique(_ *renderer, v Value, p params) (Value, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	keys, err := sortKeys(all, p)
	if err != nil {
		return nil, err
	}
	out := &List{}
	for i, item := range all {
		if !slices.ContainsFunc(keys[:i], func(k Value) bool { return equal(k, keys[i]) }) {
			out.Items = append(out.Items, item)
		}
	}
	return out, nil
}

func dictsort(_ *renderer, v Value, p params) (Value, error) {
	d, ok := v.(*Dict)
	if !ok || p.or("by", "key") != "key" {
		return nil, errors.New("sorts a mapping by key")
	}
	keys, err := sortKeys(stringValues(d.keys), p)
	if err != nil {
		return nil, err
	}
	out, err := sorted(pairs(d).Items, keys, truthy(p.or("reverse", false)))
	return &List{Items: out}, err
}

func sortedCopy(keys []string) []string {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return keys
}

func indent(r *renderer, v Value, p params) (Value, error) {
	var in string
	switch width := p.or("width", int64(4)).(type) {
	case string:
		in = width
	case int64:
		in = strings.Repeat(" ", int(max(0, min(width, 1024))))
	default:
		return nil, fmt.Errorf("width is %s", typeName(width))
	}
	lines := splitLines(str(v)+"\n", false)
	var b strings.Builder
	for i, line := range lines {
		text := line.(string)
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && truthy(p.or("first", false)) || i > 0 && (text != "" || truthy(p.or("blank", false))) {
			b.WriteString(in)
		}
		b.WriteString(text)
	}
	return r.built(b.String())
}

// format is the operator % of Python's strings, with %s, %d, %c and %%.
func format(r *renderer, v Value, p params) (Value, error) {
	rest, names := str(v), []string{"a", "b", "c", "d", "e", "f"}[:len(p.values)]
	var b strings.Builder
	for {
		text, directive, found := strings.Cut(rest, "%")
		b.WriteString(text)
		if !found {
			break
		}
		if directive == "" || !strings.Contains("sdc%", directive[:1]) {
			return nil, fmt.Errorf("directive %%%.1s is not supported", directive)
		}
		rest = directive[1:]
		if directive[0] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(names) == 0 {
			return nil, errors.New("not enough arguments")
		}
		arg := p.or(names[0], nil)
		names = names[1:]
		text, err := formatted(directive[0], arg)
		if err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	if len(names) > 0 {
		return nil, errors.New("too many arguments")
	}
	return r.built(b.String())
}

func formatted(directive byte, arg Value) (string, error) {
	n, isInt := asInt(arg)
	switch {
	case directive == 's':
		return str(arg), nil
	case directive == 'd' && isInt:
		return strconv.FormatInt(n, 10), nil
	case directive == 'c' && isInt && n >= 0 && n <= utf8.MaxRune && utf8.ValidRune(rune(n)):
		return string(rune(n)), nil
	}
	return "", fmt.Errorf("%%%c of %s is not supported", directive, typeName(arg))
}

func mapFilter(r *renderer, v Value, p params) (Value, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	if p.has("attribute") {
		out, err := attributes(all, p.or("attribute", nil))
		for i := range out {
			if out[i] == undefined && p.has("default") {
				out[i] = p.or("default", nil)
			}
		}
		return &List{Items: out}, err
	}
	name, ok := p.or("name", nil).(string)
	if !ok {
		return nil, errors.New("takes the name of a filter")
	}
	var args []Value
	for _, arg := range []string{"a", "b", "c"} {
		if p.has(arg) {
			args = append(args, p.or(arg, nil))
		}
	}
	out := make([]Value, len(all))
	for i, item := range all {
		if out[i], err = r.applyFilter(name, item, args, NewDict()); err != nil {
			return nil, err
		}
	}
	return &List{Items: out}, nil
}

// selector keeps the items, or those whose attribute, pass a test; truth is the test without a name.
func selector(keep, byAttribute bool) func(*renderer, Value, params) (Value, error) {
	return func(r *renderer, v Value, p params) (Value, error) {
		all, err := items(v)
		if err != nil {
			return nil, err
		}
		tested := all
		if byAttribute {
			if tested, err = attributes(all, p.or("attribute", "")); err != nil {
				return nil, err
			}
		}
		var args []Value
		if p.has("a") {
			args = []Value{p.or("a", nil)}
		}
		out := &List{}
		for i, item := range all {
			passes := truthy(tested[i])
			if p.has("name") {
				if passes, err = applyTest(str(p.or("name", "")), tested[i], args); err != nil {
					return nil, err
				}
			}
			if passes == keep {
				out.Items = append(out.Items, item)
			}
		}
		return out, r.step()
	}
}
