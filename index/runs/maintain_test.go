package runs_test

import (
	"fmt"
	"testing"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/runs"
)

// crowded returns an index in which 40 caches hold the same chain.
func crowded(l index.Limits) index.Index {
	x := runs.New(index.Config{Limits: func(string) index.Limits { return l }})
	for i := range 40 {
		x.Store(indextest.Base, indextest.Pod(fmt.Sprint("engine-", i)), indextest.T1(indextest.Chain(1, 2000), indextest.Start), indextest.Start)
	}
	return x
}

func TestMaintain_TakesARunOfManyCachesInSteps(t *testing.T) {
	const pairs = 40 * 2000
	later := indextest.Start + index.Instant(index.DefaultTTL.Seconds())
	x := crowded(index.Limits{})
	if !x.Maintain(later, nil) {
		t.Errorf("all went in one step")
	}
	removed := indextest.Settle(x, later)
	expired := index.Removed{Tenant: indextest.Base.Tenant, Why: index.RemovedByTTL}
	if n := removed[expired]; len(removed) != 1 || n != pairs || x.Counts() != (index.Counts{}) {
		t.Errorf("removed %v and left %+v, want %d pairs removed", removed, x.Counts(), pairs)
	}

	x = crowded(index.Limits{Quota: true, MaxPrefixes: 500})
	removed = indextest.Settle(x, indextest.Start)
	over := index.Removed{Tenant: indextest.Base.Tenant, Why: index.RemovedByQuota}
	left := index.Counts{Prefixes: index.Floor(500), Pairs: 40 * index.Floor(500)}
	if n := removed[over]; len(removed) != 1 || int64(n) != 2000-left.Prefixes || x.Counts() != left {
		t.Errorf("removed %v and left %+v, want %+v left", removed, x.Counts(), left)
	}
	if err := runs.Check(x); err != nil {
		t.Error(err)
	}
}

func TestMaintain_TidiesWhatADumpLeft(t *testing.T) {
	x := runs.New(index.Config{})
	x.Store(indextest.Base, pods[0], indextest.T1(indextest.Chain(1, 1000), indextest.Start), indextest.Start)
	before := x.(*runs.Index).Bytes()
	x.Dump(index.Filter{}, func(index.Entry) bool { // while this pins the partition, only gaps are left behind
		x.Remove(indextest.Base, pods[0], indextest.Chain(2, 990))
		return false
	})
	indextest.Settle(x, indextest.Start)
	if after := x.(*runs.Index).Bytes(); after > before/2 {
		t.Errorf("%d bytes for 10 blocks, after %d for 1,000", after, before)
	}
	if err := runs.Check(x); err != nil {
		t.Error(err)
	}
	if n := len(indextest.Dump(x, index.Filter{})); n != 10 {
		t.Errorf("%d entries, want 10", n)
	}
}
