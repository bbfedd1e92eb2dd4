package runs

const (
	pageBits = 6
	pageLen  = 1 << pageBits // keys of a full page
)

// run is a piece of a chain: consecutive blocks, whoever holds them. Keys lie in pages of pageLen; the
// last page may be smaller, and grows by doubling. A block that nobody holds any more stays in its
// run as a gap until the gaps outweigh the blocks or reach the end.
type run struct {
	parent    uint64 // key in front of the first, if hasParent
	pages     uint32 // address of the page, or of the list of pages when there are several
	spans     uint32 // address of the spans
	spanCount uint32
	n         uint16 // keys, gaps included; 0 in a run that is not in use
	live      uint16 // keys that somebody holds
	spanClass uint8
	pageClass uint8 // of the last page
	listClass uint8 // of the list of pages
	flags     uint8
}

// Flags of a run.
const (
	wideKey    = 1 << iota // the keys are numbers of byte strings
	hasParent              // parent is known
	wideParent             // and is the number of a byte string
)

func (r *run) is(flag uint8) bool { return r.flags&flag != 0 }

func (r *run) pageCount() int { return (int(r.n) + pageLen - 1) / pageLen }

func (r *run) parentKey() (key, bool) {
	return key{r.parent, r.is(wideParent)}, r.is(hasParent)
}

// setParent names the key in front of the first, unless one is named already.
func (r *run) setParent(k key) {
	if r.is(hasParent) {
		return
	}
	r.parent = k.word
	r.flags |= hasParent
	if k.wide {
		r.flags |= wideParent
	}
}

func (p *partition) run(id uint32) *run { return p.runs.one(id) }

// runCount bounds the numbers of runs.
func (p *partition) runCount() int { return p.runs.last<<chunkBits + p.runs.tail }

func (p *partition) spansIn(r *run) []span {
	if r.spanCount == 0 {
		return nil
	}
	return p.spans.at(r.spans, int(r.spanCount))
}

// page returns the keys from offset to the end of its page or of the run.
func (p *partition) page(r *run, offset int) []uint64 {
	end := min(pageLen, int(r.n)-offset&^(pageLen-1))
	return p.pages.at(p.pageAddr(r, offset), end)[offset&(pageLen-1):]
}

func (p *partition) wordAt(r *run, offset int) uint64 {
	return *p.pages.one(p.pageAddr(r, offset) + uint32(offset&(pageLen-1)))
}

// pageAddr returns where the page begins that the key at offset is in.
func (p *partition) pageAddr(r *run, offset int) uint32 {
	if int(r.n) > pageLen {
		return *p.lists.one(r.pages + uint32(offset>>pageBits))
	}
	return r.pages
}

func (p *partition) keyAt(r *run, offset int) key {
	return key{p.wordAt(r, offset), r.is(wideKey)}
}

// agree returns how many of the words lie in the run from offset on.
func (p *partition) agree(r *run, offset int, words []uint64) int {
	n := 0
	for n < len(words) && offset+n < int(r.n) {
		page := p.page(r, offset+n)
		m := min(len(page), len(words)-n)
		same := equalWords(page[:m], words[n:n+m])
		n += same
		if same < m {
			break
		}
	}
	return n
}

// agreeBackward is agree for words that lie in falling order from offset down.
func (p *partition) agreeBackward(r *run, offset int, words []uint64) int {
	n := 1
	for n < len(words) && n <= offset && p.wordAt(r, offset-n) == words[n] {
		n++
	}
	return n
}

// newRun returns a run without keys.
func (p *partition) newRun(flags uint8) uint32 {
	id := p.runs.alloc(0)
	if id >= maxRuns { // 16 GiB of runs alone; the cap on pairs ends far below
		panic("runs: more than 536,870,911 runs in one partition")
	}
	*p.run(id) = run{flags: flags}
	return id
}

// extend lengthens a run to n keys; the new ones are not set. It moves slabs.
func (p *partition) extend(id uint32, n int) {
	for {
		r := p.run(id)
		have := int(r.n)
		if have == n {
			return
		}
		full := min(n, (have/pageLen+1)*pageLen)
		if have%pageLen == 0 {
			p.addPage(r, min(n-have, pageLen))
		} else {
			p.growPage(r, (full-1)%pageLen+1)
		}
		r.n = uint16(full)
	}
}

// addPage gives a run whose pages are full, or that has none, a page for n more keys.
func (p *partition) addPage(r *run, n int) {
	c := class(n)
	addr := p.pages.alloc(c)
	count := r.pageCount()
	switch {
	case count == 0:
		r.pages = addr
	case count == 1:
		list := p.lists.alloc(1)
		*p.lists.one(list), *p.lists.one(list + 1) = r.pages, addr
		r.pages, r.listClass = list, 1
	default:
		if count == 1<<r.listClass {
			list := p.lists.alloc(r.listClass + 1)
			copy(p.lists.at(list, count), p.lists.at(r.pages, count))
			p.lists.release(r.pages, r.listClass)
			r.pages, r.listClass = list, r.listClass+1
		}
		*p.lists.one(r.pages + uint32(count)) = addr
	}
	r.pageClass = c
}

// growPage makes the last page large enough for n keys.
func (p *partition) growPage(r *run, n int) {
	c := class(n)
	if c <= r.pageClass {
		return
	}
	addr := p.pages.alloc(c)
	last := p.lastPage(r)
	used := (int(r.n)-1)%pageLen + 1
	copy(p.pages.at(addr, used), p.pages.at(*last, used))
	p.pages.release(*last, r.pageClass)
	*last, r.pageClass = addr, c
}

// lastPage returns where the address of the last page is kept.
func (p *partition) lastPage(r *run) *uint32 {
	if r.n > pageLen {
		return p.lists.one(r.pages + uint32(r.pageCount()-1))
	}
	return &r.pages
}

// truncate shortens a run to n keys, which its spans must not pass. The keys beyond stay in the table.
func (p *partition) truncate(r *run, n int) {
	for int(r.n) > n {
		first := (r.pageCount() - 1) * pageLen
		if first < n {
			r.n = uint16(n)
			p.shrinkPage(r)
			return
		}
		p.pages.release(*p.lastPage(r), r.pageClass)
		if first == pageLen { // one page is left, and needs no list
			list := r.pages
			r.pages = *p.lists.one(list)
			p.lists.release(list, r.listClass)
			r.listClass = 0
		}
		r.n, r.pageClass = uint16(first), pageBits
	}
}

// shrinkPage gives half of the last page back while no more than a quarter is used.
func (p *partition) shrinkPage(r *run) {
	used := (int(r.n)-1)%pageLen + 1
	for c := r.pageClass; c > 0 && used <= 1<<c/4; c-- {
		last := p.lastPage(r)
		addr := p.pages.alloc(c - 1)
		copy(p.pages.at(addr, used), p.pages.at(*last, used))
		p.pages.release(*last, c)
		*last, r.pageClass = addr, c-1
	}
}

// freeRun gives a run without spans and keys in the table back.
func (p *partition) freeRun(id uint32) {
	r := p.run(id)
	p.truncate(r, 0)
	*r = run{}
	p.runs.release(id, 0)
}

// forget takes the keys [from, to) of a run out of the table.
func (p *partition) forget(id uint32, from, to int) {
	r := p.run(id)
	for from < to {
		words := p.page(r, from)
		words = words[:min(len(words), to-from)]
		for i, hash := range p.hashes(words, r.is(wideKey)) {
			p.table.remove(hash, locate(id, from+i))
			if r.is(wideKey) {
				p.wide.dismiss(words[i])
			}
		}
		from += len(words)
	}
}

// splice replaces the spans [lo, hi) of a run.
func (p *partition) splice(id uint32, lo, hi int, with []span) {
	r := p.run(id)
	have := int(r.spanCount)
	n := have - (hi - lo) + len(with)
	c := class(n)
	switch {
	case n == 0:
		if have > 0 {
			p.spans.release(r.spans, r.spanClass)
		}
		r.spans, r.spanClass = 0, 0
	case have > 0 && (c == r.spanClass || c < r.spanClass && n > 1<<r.spanClass/4):
		all := p.spans.at(r.spans, 1<<r.spanClass)
		copy(all[lo+len(with):n], all[hi:have])
		copy(all[lo:], with)
	default:
		addr := p.spans.alloc(c)
		all := p.spans.at(addr, n)
		old := p.spansIn(r)
		copy(all, old[:lo])
		copy(all[lo:], with)
		copy(all[lo+len(with):], old[hi:])
		if have > 0 {
			p.spans.release(r.spans, r.spanClass)
		}
		r.spans, r.spanClass = addr, c
	}
	r.spanCount = uint32(n)
}
