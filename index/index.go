// Package index says what is cached where. An index maps each block of a prompt chain to the caches
// that hold it, and answers which cache holds the longest leading run of a chain.
//
// The package knows nothing of gRPC, policy or Kubernetes. It defines the terms and the interface;
// package reference holds the plain implementation that others are checked against.
package index

import "time"

// Scope is the domain in which hashes are comparable and replicas compete.
type Scope struct {
	Tenant string
	Model  string
	Scheme string // hash domain, for example "vllm"
}

// Partition is what matches: entries of two partitions never meet.
type Partition struct {
	Scope
	Adapter string // LoRA adapter name; empty is the base model
}

// Holder is one KV cache: one data-parallel rank of one replica.
type Holder struct {
	Replica string
	Rank    int32
}

// Tier is where a cache keeps a block. A higher value is colder, further from the GPU.
type Tier uint8

// Tiers from the engine's own KV cache (T1) over offload on the node (T2) to remote storage (T3).
const (
	T1 Tier = 1
	T2 Tier = 2
	T3 Tier = 3
)

// String returns the name used in output.
func (t Tier) String() string {
	switch t {
	case T1:
		return "T1"
	case T2:
		return "T2"
	case T3:
		return "T3"
	default:
		return "unspecified"
	}
}

// Instant is a point in time in whole seconds since the Unix epoch. Evidence is kept this coarse so
// that a run of blocks can share one value.
type Instant uint32

// At converts a time, which must lie between 1970 and 2106; earlier becomes 0, later the maximum.
func At(t time.Time) Instant {
	switch s := t.Unix(); {
	case s < 0:
		return 0
	case s > 1<<32-1:
		return 1<<32 - 1
	default:
		return Instant(s)
	}
}

// Time converts back to a time.
func (i Instant) Time() time.Time { return time.Unix(int64(i), 0) }

// Before returns the instant d earlier, not below 0.
func (i Instant) Before(d time.Duration) Instant {
	s := int64(d / time.Second)
	if s >= int64(i) {
		return 0
	}
	return i - Instant(s)
}

// Keys is an ordered list of block keys. Keys of exactly 8 bytes are numbers (big-endian) in Words,
// the fast path. When any key of the list has another width, all of them are byte strings in Wide.
// Only one of the two is set; an 8-byte string in Wide is the same key as its number in Words.
type Keys struct {
	Words []uint64
	Wide  []string
}

// Len returns the number of keys.
func (k Keys) Len() int { return max(len(k.Words), len(k.Wide)) }

// Run is consecutive blocks of one chain, held by one cache in one tier.
type Run struct {
	Keys Keys
	// Parent is the key of the block in front of the first, when HasParent. It only helps an
	// implementation to keep chains together; matching never depends on it.
	Parent    uint64
	HasParent bool
	// StartTokens counts the prompt tokens in front of the first block.
	StartTokens int32
	// BlockTokens is the size of each block, more than 0.
	BlockTokens int32
	Tier        Tier
	// Evidence is when the cache was last known to hold the run. An index clamps it to the now it
	// is given, so that no clock ahead of ours makes an entry immortal.
	Evidence Instant
}

// Clean returns the run with its evidence clamped to now and negative token counts raised to 0: what
// an index stores of it.
func (r Run) Clean(now Instant) Run {
	r.Evidence = min(r.Evidence, now)
	r.StartTokens = max(r.StartTokens, 0)
	r.BlockTokens = max(r.BlockTokens, 0)
	return r
}

// TokensThrough returns the prompt tokens up to the end of the n-th block behind start (n counts
// from 1), at most the largest int32.
func TokensThrough(start, block int32, n int) int32 {
	return int32(min(int64(start)+int64(block)*int64(n), 1<<31-1))
}

// Digest summarises one partition of one holder: per tier the number of blocks and the XOR of their
// keys. Index 0 is T1, 1 is T2. Two tables with equal digests hold the same blocks, up to
// collisions of 64-bit XOR sums. Wide keys and T3 are not part of it.
type Digest struct {
	Count [2]uint64
	XOR   [2]uint64
}

// Add puts a key into the tier's sums, or takes it out again: XOR undoes itself, delta is +1 or -1.
func (d *Digest) Add(t Tier, key uint64, delta int) {
	if t != T1 && t != T2 {
		return
	}
	d.Count[t-1] += uint64(delta)
	d.XOR[t-1] ^= key
}

// Equal says for each tier whether the sums are the same.
func (d Digest) Equal(e Digest) (equal [2]bool) {
	for i := range equal {
		equal[i] = d.Count[i] == e.Count[i] && d.XOR[i] == e.XOR[i]
	}
	return equal
}

// Query asks for the longest leading runs of a chain.
type Query struct {
	Partition Partition
	Keys      Keys
	// NotBefore makes entries whose last evidence is older count as not held.
	NotBefore Instant
}

// Match is the leading run that one cache holds.
type Match struct {
	Holder Holder
	// Blocks is the length of the run, at least 1.
	Blocks int
	// PrefixTokens is the stored number of prompt tokens up to the end of the run.
	PrefixTokens int32
	// Tier is the coldest tier in the run.
	Tier Tier
	// Evidence is the oldest evidence in the run.
	Evidence Instant
}

// Clear selects everything that one replica holds. Empty fields and a nil rank select all.
type Clear struct {
	Replica string // required
	Tenant  string
	Model   string
	Scheme  string
	Rank    *int32
}

// Evict names one key that a replica dropped, across hash schemes and ranks.
type Evict struct {
	Replica string
	Tenant  string
	Model   string
	// Adapter narrows the eviction; empty means every adapter.
	Adapter string
	Key     string
}

// Entry is one block held by one cache.
type Entry struct {
	Partition Partition
	Holder    Holder
	Key       string // the key's bytes
	Tier      Tier
	Tokens    int32 // tokens of the block itself
	// PrefixTokens counts the prompt tokens up to the end of the block.
	PrefixTokens int32
	Evidence     Instant
}

// Filter selects entries; an empty field selects all.
type Filter struct {
	Tenant, Model, Replica string
}

// Counts are the index's running totals. A pair is one block held by one cache; a prefix is one
// distinct key of a partition, whoever holds it.
type Counts struct {
	Pairs    int64
	Prefixes int64
}

// Removal says why entries left without their holder asking.
type Removal string

// Reasons for removal, as the metrics label them.
const (
	RemovedByTTL   Removal = "ttl"          // no evidence for a whole TTL; counted in pairs
	RemovedByCap   Removal = "cap"          // the index is full; counted in pairs
	RemovedByQuota Removal = "over_entries" // the tenant is over its quota; counted in prefixes
)

// Removed is one report of housekeeping.
type Removed struct {
	Tenant string
	Why    Removal
	LFU    bool // the tenant's victims are chosen by use, not by last evidence
	Count  int
}

// Limits are what policy grants one tenant.
type Limits struct {
	// TTL is how long an entry lives after its last evidence; 0 means DefaultTTL.
	TTL time.Duration
	// LFU chooses victims of the cap by use count, then age, instead of by last evidence alone.
	LFU bool
	// MaxPrefixes caps the tenant's distinct prefixes when Quota is set; 0 then admits nothing.
	MaxPrefixes int64
	Quota       bool
}

// Lifetime returns the TTL in whole seconds, at least one.
func (l Limits) Lifetime() Instant {
	return Instant(max(1, min(l.TTL/time.Second, 1<<32-1)))
}

// Config bounds an index.
type Config struct {
	// MaxPairs caps the number of pairs; 0 means DefaultMaxPairs.
	MaxPairs int64
	// MaxBytes caps the memory that an implementation which can tell its size uses for its entries;
	// 0 means no cap.
	MaxBytes int64
	// Limits returns the limits of a tenant; nil means the zero Limits for all. It is called from
	// any goroutine and must not block.
	Limits func(tenant string) Limits
	// Reserved names a tenant that is left out of totals (Counts, PrefixesByModel) and of the cap,
	// and has no quota. Its entries expire, unreported. Empty means none.
	Reserved string
}

// Defaults of Config and Limits.
const (
	DefaultMaxPairs = 1_000_000
	DefaultTTL      = 30 * time.Minute
)

// WithDefaults fills the fields that are not set.
func (c Config) WithDefaults() Config {
	if c.MaxPairs <= 0 {
		c.MaxPairs = DefaultMaxPairs
	}
	limits := c.Limits
	c.Limits = func(tenant string) Limits {
		var l Limits
		if limits != nil {
			l = limits(tenant)
		}
		if l.TTL <= 0 {
			l.TTL = DefaultTTL
		}
		return l
	}
	return c
}

// Slack is how far below a full cap or quota housekeeping goes, as a divisor: a limit of n is brought
// to n - n/Slack, so that the next few entries do not start it again. Limits below Slack are exact.
const Slack = 32

// Floor returns what a limit is brought down to once it is passed.
func Floor(limit int64) int64 { return limit - limit/Slack }

// Index is the cache-state index. All methods may be called from any goroutine.
//
// # Victims
//
// A pair's rank is its last evidence or, for a tenant with LFU, its use level and then its evidence.
// The use level starts one above the highest level that eviction has taken from the tenant so far,
// and a credit raises it by one from there or from where it is, whichever is higher: so unused
// entries age as the index turns over, and a newcomer is not always the next to go.
// For eviction a block ranks as high as the highest block behind it in the same cache, so that no
// descendant outlives its ancestors. The lowest rank goes first, and among equals the block with
// the most prompt tokens in front of it.
//
// The cap takes from the tenant with the most pairs, down to the second largest, and so on; within a
// tenant likewise from the caches with the most pairs. So no producer displaces one that holds less.
// A quota takes whole prefixes, which rank as the highest of their holders. Expiry looks at each
// pair alone.
type Index interface {
	// Store records that h holds the run. Of two reports of one block the one with the later
	// evidence wins, and at equal evidence the later call; the evidence never moves back.
	Store(p Partition, h Holder, r Run, now Instant)
	// Remove forgets that h holds the keys and returns how many it held.
	Remove(p Partition, h Holder, k Keys) int
	// Evict forgets one key and returns how many pairs went.
	Evict(e Evict) int
	// Clear forgets everything selected and returns how many pairs went.
	Clear(c Clear) int
	// Confirm compares the sums of each tier of d, and counts every entry of h in p as seen at now
	// whose tier's sums are equal. It returns which are: index 0 is T1, 1 is T2. Entries of other
	// tiers are never confirmed.
	Confirm(p Partition, h Holder, d Digest, now Instant) [2]bool
	// Match appends the longest leading run of each cache that holds at least the first block, in
	// no particular order, and returns the extended slice. It never allocates per block.
	Match(q Query, dst []Match) []Match
	// Credit counts one use of the first blocks of q, as held by h, if the tenant evicts by use.
	Credit(q Query, h Holder, blocks int)
	// Maintain does a bounded step of housekeeping (expiry, cap, quotas), reports what it removed,
	// and says whether more is due at once.
	Maintain(now Instant, report func(Removed)) (more bool)
	// Counts returns the totals; PrefixesOf those of one (tenant, model), HeldBy the pairs of one
	// cache in one scope. An empty model or scheme sums over all. None of them scans.
	Counts() Counts
	PrefixesOf(tenant, model string) int64
	HeldBy(s Scope, h Holder) int64
	// SchemeHeld says whether anything is held in the scope.
	SchemeHeld(s Scope) bool
	// PrefixesByModel returns distinct prefixes per model name, over all tenants.
	PrefixesByModel() map[string]int64
	// Dump calls yield for each entry until it returns false. It never holds up Match for longer
	// than one small batch; entries that come or go meanwhile may be seen or missed.
	Dump(f Filter, yield func(Entry) bool)
}
