package reference

import "github.com/inferencecache/inferencecache/index"

// dumpBatch bounds the prefixes copied out under one hold of the lock.
const dumpBatch = 256

// location names one prefix.
type location struct {
	partition index.Partition
	key       string
}

// Dump implements index.Index.
func (x *Index) Dump(f index.Filter, yield func(index.Entry) bool) {
	all := x.locations(f)
	var batch []index.Entry
	for len(all) > 0 {
		n := min(dumpBatch, len(all))
		batch = x.entries(all[:n], f.Replica, batch[:0])
		all = all[n:]
		for _, e := range batch {
			if !yield(e) {
				return
			}
		}
	}
}

// locations lists the prefixes of the filter. It holds the read lock, which holds up writers alone.
func (x *Index) locations(f index.Filter) []location {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var all []location
	for p, part := range x.parts {
		if f.Tenant != "" && p.Tenant != f.Tenant || f.Model != "" && p.Model != f.Model {
			continue
		}
		for key := range part.prefixes {
			all = append(all, location{p, key})
		}
	}
	return all
}

// entries appends what is left of the located prefixes.
func (x *Index) entries(at []location, replica string, dst []index.Entry) []index.Entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, l := range at {
		part := x.parts[l.partition]
		if part == nil || part.prefixes[l.key] == nil {
			continue
		}
		for h, e := range part.prefixes[l.key].pairs {
			if replica == "" || h.Replica == replica {
				dst = append(dst, index.Entry{
					Partition: l.partition, Holder: h, Key: l.key, Tier: e.tier, Tokens: e.tokens,
					PrefixTokens: e.prefix, Evidence: e.evidence,
				})
			}
		}
	}
	return dst
}
