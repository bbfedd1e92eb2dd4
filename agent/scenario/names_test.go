package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/inferencecache/inferencecache/fingerprint"
)

// process is what one engine process has said of its blocks. Hashes mean nothing outside it.
type process struct{ stores []event }

func (p *process) note(e event) {
	if e.kind == "store" && e.size > 0 && len(e.tokens) == len(e.hashes)*e.size {
		p.stores = append(p.stores, e)
	}
}

// listed is how an index knows a block.
type listed struct {
	adapter string
	print   uint64
}

// names finds what the engine calls each block of each chain.
func (p *publisher) names() map[listed]string {
	names := map[listed]string{}
	for _, proc := range p.processes {
		known := map[string]uint64{} // fingerprints by group and hash
		for changed := true; changed; {
			changed = false
			for _, e := range proc.stores {
				if !nameRun(e, known) {
					continue
				}
				changed = true
				for _, h := range e.hashes {
					names[listed{p.adapter(e), known[blockName(e, h)]}] = hashName(h)
				}
			}
		}
	}
	return names
}

func hashName(h uint64) string {
	if h > 1<<32 {
		return fmt.Sprintf("%#x", h)
	}
	return strconv.FormatUint(h, 10)
}

// adapter is the name that the event's adapter has in the index.
func (p *publisher) adapter(e event) string {
	if e.lora != nil {
		return fmt.Sprint(e.lora)
	}
	if id, ok := e.loraID.(int); ok {
		return p.engine.cfg.LoRANames[int64(id)]
	}
	return ""
}

func blockName(e event, hash uint64) string { return fmt.Sprintf("%v/%d", e.group, hash) }

// nameRun computes the fingerprints of a run, and says whether it learned any.
func nameRun(e event, known map[string]uint64) (learned bool) {
	prev, exists := uint64(0), e.parent != nil
	if exists {
		var ok bool
		if prev, ok = known[blockName(e, *e.parent)]; !ok {
			return false
		}
	}
	for i, h := range e.hashes {
		print := fingerprint.Content(e.tokens[i*e.size : (i+1)*e.size])
		if exists {
			print = fingerprint.Child(prev, print)
		}
		if _, ok := known[blockName(e, h)]; !ok {
			known[blockName(e, h)], learned = print, true
		}
		prev, exists = print, true
	}
	return learned
}

// list writes names in order, numbers in a row as a range.
func list(names []string) string {
	slices.SortFunc(names, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var out []string
	for i := 0; i < len(names); {
		j := i + 1
		for j < len(names) && follows(names[j-1], names[j]) {
			j++
		}
		if j-i > 8 {
			out = append(out, names[i]+".."+names[j-1])
		} else {
			out = append(out, names[i:j]...)
		}
		i = j
	}
	return strings.Join(out, " ")
}

func follows(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && y == x+1
}
