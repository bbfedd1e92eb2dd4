// Package indextest is the behaviour that every implementation of an index must show.
package indextest

import (
	"cmp"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/index"
)

// New makes an empty index.
type New func(index.Config) index.Index

// Start is a plain now for tests.
const Start index.Instant = 1_800_000_000

// Base is a plain partition for tests.
var Base = index.Partition{Scope: index.Scope{Tenant: "team-a", Model: "llama", Scheme: "vllm"}}

// Run runs the whole suite.
func Run(t *testing.T, n New) {
	for _, group := range []map[string]func(*testing.T, New){matching, changing, counting, housekeeping} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) { test(t, n) })
		}
	}
}

// Pod names a cache by its replica.
func Pod(name string) index.Holder { return index.Holder{Replica: name} }

// Words makes keys of numbers.
func Words(k ...uint64) index.Keys { return index.Keys{Words: k} }

// Wide makes keys of byte strings.
func Wide(k ...string) index.Keys { return index.Keys{Wide: k} }

// Bytes is the 8-byte form of a number.
func Bytes(w uint64) string { return string(binary.BigEndian.AppendUint64(nil, w)) }

// Chain makes n keys from first on.
func Chain(first uint64, n int) index.Keys {
	k := make([]uint64, n)
	for i := range k {
		k[i] = first + uint64(i)
	}
	return index.Keys{Words: k}
}

// T1 is a run of 16-token blocks at the start of a prompt, seen at the instant.
func T1(k index.Keys, seen index.Instant) index.Run {
	return index.Run{Keys: k, BlockTokens: 16, Tier: index.T1, Evidence: seen}
}

// Match returns the sorted matches of a chain in Base.
func Match(x index.Index, k index.Keys) []index.Match {
	return Sorted(x.Match(index.Query{Partition: Base, Keys: k}, nil))
}

// Sorted orders matches by holder.
func Sorted(m []index.Match) []index.Match {
	slices.SortFunc(m, func(a, b index.Match) int {
		return cmp.Or(cmp.Compare(a.Holder.Replica, b.Holder.Replica), cmp.Compare(a.Holder.Rank, b.Holder.Rank))
	})
	return m
}

// Dump returns all entries in a fixed order.
func Dump(x index.Index, f index.Filter) []index.Entry {
	var all []index.Entry
	x.Dump(f, func(e index.Entry) bool {
		all = append(all, e)
		return true
	})
	slices.SortFunc(all, CompareEntries)
	return all
}

// CompareEntries orders entries by partition, key and holder.
func CompareEntries(a, b index.Entry) int {
	return cmp.Or(
		cmp.Compare(a.Partition.Tenant, b.Partition.Tenant), cmp.Compare(a.Partition.Model, b.Partition.Model),
		cmp.Compare(a.Partition.Scheme, b.Partition.Scheme), cmp.Compare(a.Partition.Adapter, b.Partition.Adapter),
		cmp.Compare(a.Key, b.Key), cmp.Compare(a.Holder.Replica, b.Holder.Replica), cmp.Compare(a.Holder.Rank, b.Holder.Rank),
	)
}

// Settle runs housekeeping until nothing is due, and sums what it reports.
func Settle(x index.Index, now index.Instant) map[index.Removed]int {
	sums := map[index.Removed]int{}
	for more := true; more; {
		more = x.Maintain(now, func(r index.Removed) {
			n := r.Count
			r.Count = 0
			sums[r] += n
		})
	}
	return sums
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func keysOf(x index.Index) []uint64 {
	var k []uint64
	for _, e := range Dump(x, index.Filter{}) {
		k = append(k, binary.BigEndian.Uint64([]byte(e.Key)))
	}
	return k
}

func limits(l index.Limits) index.Config {
	return index.Config{Limits: func(string) index.Limits { return l }}
}

const minute = index.Instant(time.Minute / time.Second)
