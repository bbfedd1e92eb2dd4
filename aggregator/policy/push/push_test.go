package push_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/push"
)

func ptr[T any](v T) *T { return &v }

func TestDocumentsAreReadAsTheirVersionMeans(t *testing.T) {
	for name, c := range map[string]struct {
		policy string // the members of a policy behind its namespace
		want   policy.Spec
		from   int // the versions that this holds for
		to     int
	}{
		"nothing":                              {"", policy.Spec{}, 3, 7},
		"a time to live in nanoseconds":        {`,"evictionTTL":60000000000`, policy.Spec{EvictionTTL: time.Minute}, 3, 7},
		"prefix tokens":                        {`,"minimumPrefixTokens":5`, policy.Spec{MinimumPrefixTokens: 5}, 3, 7},
		"matched tokens":                       {`,"minimumMatchedTokens":5`, policy.Spec{MinimumMatchedTokens: ptr(int32(5))}, 3, 7},
		"matched tokens of 0 are not a choice": {`,"minimumMatchedTokens":0`, policy.Spec{}, 3, 3},
		"matched tokens of 0 are off":          {`,"minimumMatchedTokens":0`, policy.Spec{MinimumMatchedTokens: ptr(int32(0))}, 4, 7},
		"a routing floor":                      {`,"routingFloorScore":0.5`, policy.Spec{RoutingFloorScore: ptr(0.5)}, 3, 7},
		"a routing floor of 0":                 {`,"routingFloorScore":0`, policy.Spec{RoutingFloorScore: ptr(0.0)}, 3, 7},
		"a routing floor of null":              {`,"routingFloorScore":null`, policy.Spec{}, 3, 7},
		"a timeout":                            {`,"lookupTimeoutMs":20`, policy.Spec{LookupTimeoutMs: 20}, 3, 7},
		"affinity off":                         {`,"affinityRouting":false`, policy.Spec{AffinityRouting: ptr(false)}, 3, 7},
		"eviction by use":                      {`,"eviction":"lfu"`, policy.Spec{LFU: true}, 3, 7},
		"eviction by use in capitals":          {`,"eviction":"LFU"`, policy.Spec{LFU: true}, 3, 7},
		"eviction by evidence":                 {`,"eviction":"lru"`, policy.Spec{}, 3, 7},
		"eviction by a word unknown":           {`,"eviction":"fifo"`, policy.Spec{}, 3, 7},
		"a share of the prompt":                {`,"minimumMatchedShare":0.25`, policy.Spec{MinimumMatchedShare: ptr(float32(0.25))}, 3, 7},
		"a tolerance of scores":                {`,"scoreTolerance":0.1`, policy.Spec{ScoreTolerance: ptr(float32(0.1))}, 3, 7},
		"a bound on the seed":                  {`,"affinitySeedBlocks":8`, policy.Spec{AffinitySeedBlocks: ptr(8)}, 3, 7},
		"choices of affinity":                  {`,"affinityChoices":2`, policy.Spec{AffinityChoices: ptr(2)}, 3, 7},
		"placement by modulo":                  {`,"affinityPlacement":"modulo"`, policy.Spec{Rendezvous: ptr(false)}, 3, 7},
		"placement by the highest hash": {
			`,"affinityPlacement":"rendezvous"`, policy.Spec{Rendezvous: ptr(true)}, 3, 7,
		},
		"an empty strategy": {`,"strategy":{}`, policy.Spec{}, 3, 7},
		"a strategy": {
			`,"strategy":{"enableChainMatching":false,"requireChain":true,"enableTenantHot":false}`,
			policy.Spec{EnableChainMatching: ptr(false), RequireChain: ptr(true), EnableTenantHot: ptr(false)},
			3, 7,
		},
	} {
		for version := c.from; version <= c.to; version++ {
			t.Run(fmt.Sprintf("%s/v%d", name, version), func(t *testing.T) {
				got, err := push.Decode(fmt.Appendf(nil, `{"version":%d,"policies":[{"namespace":"a"%s}]}`, version, c.policy))
				if err != nil {
					t.Fatal(err)
				}
				want := policy.Set{Policies: map[string]policy.Spec{"a": c.want}, Quotas: map[string]int64{}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			})
		}
	}
}

func TestTenantsHaveQuotas(t *testing.T) {
	got, err := push.Decode([]byte(`{"version":7,"tenants":[
		{"tenantID":"a","maxIndexEntries":5,"isolationMode":"Fairness"},
		{"tenantID":"b","maxIndexEntries":0},
		{"tenantID":"c","maxIndexEntries":-5},
		{"tenantID":"d"},
		{"tenantID":"","maxIndexEntries":5}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"a": 5, "b": 0, "c": 0}, got.Quotas); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDocumentsThatAreRefusedSayWhy(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"nothing":                              {``, "unexpected end"},
		"no JSON":                              {`policies: []`, "invalid character"},
		"null":                                 {`null`, "unsupported policy snapshot version 0"},
		"a list":                               {`[]`, "cannot unmarshal array"},
		"no version":                           {`{"policies":[]}`, "unsupported policy snapshot version 0"},
		"a version before the first":           {`{"version":2}`, "unsupported policy snapshot version 2: version must be 3 to 7"},
		"a version behind the last":            {`{"version":8}`, "unsupported policy snapshot version 8"},
		"a version in quotes":                  {`{"version":"7"}`, "version"},
		"something behind the document":        {`{"version":7}{"version":7}`, "after top-level value"},
		"a brace behind the document":          {`{"version":7}}`, "after top-level value"},
		"an unknown field":                     {`{"version":7,"polices":[]}`, `unknown field "polices"`},
		"an unknown field of a policy":         {`{"version":7,"policies":[{"namespace":"a","ttl":1}]}`, `unknown field "policies[0].ttl"`},
		"an unknown field of a strategy":       {`{"version":7,"policies":[{"namespace":"a","strategy":{"x":1}}]}`, `unknown field "policies[0].strategy.x"`},
		"an unknown field of a tenant":         {`{"version":7,"tenants":[{"tenantID":"a","quota":1}]}`, `unknown field "tenants[0].quota"`},
		"a field in other case":                {`{"version":7,"Policies":[]}`, `unknown field "Policies"`},
		"a field that is there twice":          {`{"version":7,"version":7}`, `duplicate field "version"`},
		"a namespace that is there twice":      {`{"version":7,"policies":[{"namespace":"a"},{"namespace":"b"},{"namespace":"a"}]}`, `policies[2]: namespace "a" is named twice`},
		"a tenant that is there twice":         {`{"version":7,"tenants":[{"tenantID":"t","maxIndexEntries":1},{"tenantID":"t"}]}`, `tenants[1]: tenantID "t" is named twice`},
		"a time to live in words":              {`{"version":7,"policies":[{"namespace":"a","evictionTTL":"30m"}]}`, "evictionTTL"},
		"matched tokens that do not fit":       {`{"version":7,"policies":[{"namespace":"a","minimumMatchedTokens":4294967296}]}`, "minimumMatchedTokens"},
		"a routing floor in quotes":            {`{"version":7,"policies":[{"namespace":"a","routingFloorScore":"0.1"}]}`, "routingFloorScore"},
		"a routing floor past all bounds":      {`{"version":7,"policies":[{"namespace":"a","routingFloorScore":1e999}]}`, "routingFloorScore"},
		"affinity as a word":                   {`{"version":7,"policies":[{"namespace":"a","affinityRouting":"Enabled"}]}`, "affinityRouting"},
		"a placement unknown":                  {`{"version":7,"policies":[{"namespace":"a","affinityPlacement":"random"}]}`, `policies[0], namespace "a": affinityPlacement is "random", want modulo or rendezvous`},
		"a share past all":                     {`{"version":7,"policies":[{"namespace":"a","minimumMatchedShare":1.5}]}`, "minimum matched share is 1.5"},
		"a negative bound on the seed":         {`{"version":7,"policies":[{"namespace":"a","affinitySeedBlocks":-1}]}`, "affinity seed blocks are -1"},
		"more choices than there are":          {`{"version":7,"policies":[{"namespace":"a","affinityChoices":5}]}`, "affinity choices are 5"},
		"a negative tolerance":                 {`{"version":7,"policies":[{"namespace":"a","scoreTolerance":-0.1}]}`, "score tolerance is -0.1"},
		"a fraction of a quota":                {`{"version":7,"tenants":[{"tenantID":"a","maxIndexEntries":1.5}]}`, "maxIndexEntries"},
		"a document that ends in the middle":   {`{"version":7,"policies":[{"namespace":"a"`, "unexpected end"},
		"a document that is nested too deeply": {strings.Repeat(`[`, 20000), "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := push.Decode([]byte(c.body))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("set %v, error %v, want %q", set, err, c.want)
			}
		})
	}
}

func serve(t *testing.T) (*policy.Store, func(method, body string) *httptest.ResponseRecorder) {
	t.Helper()
	store := policy.NewStore(policy.Default(), "push")
	handler := push.Handler(store.Feed("push"), slog.New(slog.DiscardHandler))
	return store, func(method, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, "/policy", strings.NewReader(body)))
		return w
	}
}

const lfu = `{"version":7,"policies":[{"namespace":"a","eviction":"lfu"}]}`

func TestDocumentIsInForceAtOnce(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		store, send := serve(t)
		if w := send(method, lfu); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
			t.Errorf("%s: status %d %q", method, w.Code, w.Body)
		}
		if !store.For("a").LFU {
			t.Errorf("%s: not in force", method)
		}
		if send(method, `{"version":7}`); store.For("a").LFU {
			t.Errorf("%s: what is no longer stated is in force", method)
		}
	}
}

func TestRefusedDocumentChangesNothing(t *testing.T) {
	store, send := serve(t)
	send(http.MethodPost, lfu)
	w := send(http.MethodPost, `{"version":7,"policies":[{"namespace":"a"}],"x":1}`)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `unknown field "x"`) {
		t.Errorf("status %d %q", w.Code, w.Body)
	}
	if !store.For("a").LFU || store.Status()[0].Err == nil {
		t.Errorf("policy %+v, status %v", store.For("a"), store.Status()[0])
	}
	if send(http.MethodPost, lfu); store.Status()[0].Err != nil {
		t.Errorf("status %v after a good document", store.Status()[0])
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	_, send := serve(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPatch} {
		w := send(method, "")
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST, PUT" {
			t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestBodyIsBounded(t *testing.T) {
	store, send := serve(t)
	pad := func(n int) string { return lfu + strings.Repeat(" ", n-len(lfu)) }
	if w := send(http.MethodPost, pad(push.MaxBodyBytes)); w.Code != http.StatusNoContent {
		t.Errorf("status %d at the bound", w.Code)
	}
	send(http.MethodPost, `{"version":7}`)
	w := send(http.MethodPost, pad(push.MaxBodyBytes+1))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "request body too large") || store.For("a").LFU {
		t.Errorf("status %d %q past it", w.Code, w.Body)
	}
}

func TestAnswerIsBoundedWhateverTheDocumentSays(t *testing.T) {
	_, send := serve(t)
	w := send(http.MethodPost, fmt.Sprintf(`{"version":7,%q:1}`, strings.Repeat("x", 1<<19)))
	if w.Code != http.StatusBadRequest || w.Body.Len() > 4096 {
		t.Errorf("status %d, %d bytes", w.Code, w.Body.Len())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(lfu))
	f.Add([]byte(`{"version":3,"policies":[{"namespace":"a","minimumMatchedTokens":0,"strategy":{}}],"tenants":[{"tenantID":"a","maxIndexEntries":-1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		set, err := push.Decode(body)
		if err != nil {
			return
		}
		for tenant, spec := range set.Policies {
			p := spec.Resolve(policy.Default())
			if tenant == "" || p.TTL < policy.MinTTL || p.TTL > policy.MaxTTL || p.MinimumPrefixTokens < 0 || p.MinimumMatchedTokens < 0 ||
				!(p.RoutingFloorScore >= 0) || p.LookupTimeout < 0 || p.LookupTimeout > policy.MaxLookupTimeout {
				t.Errorf("policy %+v of %q is out of range", p, tenant)
			}
		}
		for tenant, n := range set.Quotas {
			if tenant == "" || n < 0 {
				t.Errorf("quota %d of %q", n, tenant)
			}
		}
	})
}
