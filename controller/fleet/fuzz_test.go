package fleet

import (
	"slices"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
)

// Whatever an aggregator sends is an error or a snapshot that can be merged.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "{}", `{"replicas":null}`, `{"replicas":[{}],"tenants":[{}],"policy":[{}]}`,
		`{"replicas":[{"replicaId":"p","tenant":"t","hitRate":0.5,"lastUpdate":"2026-01-02T03:04:05Z","prefixCount":3,"statsReported":true}],"tenants":[{"tenantId":"t","indexEntries":3}],"totalPrefixes":3,"policy":[{"namespace":"t","name":"p","generation":1}],"aggregator":"a"}`,
		`{"replicas":[{"lastUpdate":"yesterday"}]}`, `{"totalPrefixes":1e99}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := decode(strings.NewReader(text))
		if (s == nil) != (err != nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err != nil {
			return
		}
		v := Merge([]Answer{{Address: "a", Snapshot: s}, {Address: "b", Snapshot: s}})
		if len(v.Aggregators) != 2 || v.Aggregators[0].Name == v.Aggregators[1].Name {
			t.Fatalf("aggregators %+v", v.Aggregators)
		}
		if !slices.IsSortedFunc(v.Tenants, func(a, b snapshot.Tenant) int { return strings.Compare(a.TenantID, b.TenantID) }) {
			t.Fatalf("tenants %+v are not sorted", v.Tenants)
		}
	})
}
