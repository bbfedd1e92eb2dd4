package lookup

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/index"
)

// match finds the live members that hold a leading part of the prompt, ranks them, and says whether
// there are any.
func (s *Service) match(c *call) bool {
	c.enter(stepMatch)
	for i := range c.chains {
		for _, m := range s.longest(c, i) {
			member, live := c.members.Find(m.Holder)
			tokens := c.chains[i].tokens(m, c.exact)
			if !live || tokens <= 0 {
				continue
			}
			age := c.age(m.Evidence)
			c.candidates = append(c.candidates, rank.Candidate{
				Holder:         m.Holder,
				MatchedTokens:  tokens,
				Tier:           m.Tier,
				Age:            age,
				Freshness:      rank.Freshness(age, c.policy.TTL),
				PressureFactor: s.pressure(c, member),
				Chain:          i,
				Blocks:         m.Blocks,
			})
		}
	}
	if len(c.chains) > 1 {
		c.candidates = longestPerHolder(c.candidates)
	}
	s.Rank.Matches(c.candidates, len(c.members.List), c.exact, c.req.GetSlo().GetTtftMs())
	c.keepRanked()
	return len(c.candidates) > 0
}

// longest returns the matches of one chain. Token ids are hashed only as far as any cache holds them.
func (s *Service) longest(c *call, i int) []index.Match {
	ch, q := &c.chains[i], c.query(i)
	if len(ch.rest) == 0 {
		c.matches = s.Index.Match(q, c.matches[:0])
		return c.matches
	}
	blocks := len(ch.rest) / int(ch.blockTokens)
	c.matches = index.MatchGrowing(s.Index, q, blocks, func(n int) index.Keys {
		ch.hash(n)
		return ch.keys
	}, c.matches[:0])
	return c.matches
}

// tokens counts the prompt tokens of a match by the request's own counts. A whole prefix has the
// count that it was reported with.
func (ch *chain) tokens(m index.Match, exact bool) int32 {
	if exact {
		return m.PrefixTokens
	}
	total := int64(m.Blocks) * int64(ch.blockTokens)
	if ch.counts != nil {
		total = 0
		for _, n := range ch.counts[:m.Blocks] {
			total += int64(n)
		}
	}
	return int32(min(total, math.MaxInt32))
}

// longestPerHolder keeps each holder's best match over chains of different block sizes.
func longestPerHolder(candidates []rank.Candidate) []rank.Candidate {
	slices.SortFunc(candidates, func(a, b rank.Candidate) int {
		return cmp.Or(registry.Compare(a.Holder, b.Holder), cmp.Compare(b.MatchedTokens, a.MatchedTokens))
	})
	return slices.CompactFunc(candidates, func(a, b rank.Candidate) bool { return a.Holder == b.Holder })
}

// age is how long ago an entry was last seen. Evidence is no finer than a second, nor is the age.
func (c *call) age(evidence index.Instant) time.Duration {
	if evidence >= c.now {
		return 0
	}
	return time.Duration(c.now-evidence) * time.Second
}

// pressure returns the pressure factor of a member. Statistics older than a TTL say nothing.
func (s *Service) pressure(c *call, m registry.Member) float32 {
	stats := m.Stats()
	if stats == nil || c.start.Sub(stats.Reported) >= c.policy.TTL {
		return 1
	}
	return s.Rank.PressureFactor(stats.Pressure)
}

// tenantHot makes candidates of the members whose statistics show a warm cache.
func (s *Service) tenantHot(c *call) bool {
	c.enter(stepTenantHot)
	for _, m := range c.members.List {
		stats := m.Stats()
		if stats == nil {
			continue
		}
		pressure := s.pressure(c, m)
		score, hot := s.Rank.TenantHot(stats.HitRate, c.start.Sub(stats.Reported), pressure, c.req.GetSlo().GetTtftMs())
		if hot {
			c.candidates = append(c.candidates, rank.Candidate{
				Holder: m.Holder, Score: score, PressureFactor: pressure, HitProbability: stats.HitRate,
			})
		}
	}
	rank.Sort(c.candidates)
	c.keepRanked()
	return len(c.candidates) > 0
}

// classify tells a prompt that is new from a request that names what nobody reports. What an agent
// declares is known even while its caches are empty, and an empty index knows nothing to compare
// with.
func (s *Service) classify(c *call) string {
	c.enter(stepDiagnostics)
	if c.members.Declared || s.Index.Counts().Prefixes == 0 {
		return contract.NoHint
	}
	tenantDeclared, modelDeclared := s.Registry.Declared(c.scope.Tenant, c.scope.Model)
	switch {
	case !tenantDeclared && s.Index.PrefixesOf(c.scope.Tenant, "") == 0:
		return contract.UnknownTenant
	case !modelDeclared && s.Index.PrefixesOf(c.scope.Tenant, c.scope.Model) == 0:
		return contract.UnknownModel
	case !s.Index.SchemeHeld(c.scope):
		return contract.UnknownHashScheme
	default:
		return contract.NoHint
	}
}

// affinity makes one member the only candidate, always the same for the same prompt, and says
// whether it could. The pick passes over saturated members: a prefix that every member holds has
// distinguishing power 0 and ends here, where only the pick keeps load away from them.
func (s *Service) affinity(c *call) bool {
	members := c.members.List
	if !c.policy.Affinity || !c.enter(stepAffinity) || !c.scoped() || len(members) == 0 || len(c.chains) == 0 ||
		len(c.req.GetBlockHashes()) != len(c.req.GetBlockTokenCounts()) {
		return false
	}
	c.appendSeed(&c.chains[0])
	factor := func(i int) float32 { return s.pressure(c, members[i]) }
	pick := 0
	if c.policy.Rendezvous {
		name := func(i int) index.Holder { return members[i].Holder }
		pick = rank.Rendezvous(c.seed, len(members), c.policy.AffinityChoices, name, factor)
	} else {
		pick = rank.Affinity(c.seed, len(members), c.policy.AffinityChoices, factor)
	}
	c.candidates = append(c.candidates[:0], rank.Candidate{Holder: members[pick].Holder})
	return true
}

// appendSeed sets the seed of a chain, of which all blocks that belong to it are hashed first.
func (c *call) appendSeed(ch *chain) {
	if c.exact {
		c.seed = appendKey(c.seed, ch.keys)
		return
	}
	if n := c.policy.AffinitySeedBlocks; n > 0 {
		ch.hash(n)
	} else {
		ch.hash(MaxBlocks)
	}
	c.seed = rank.AppendSeed(c.seed, c.policy.SeedKeys(ch.keys))
}

// appendKey appends the bytes of the one key of an exact input.
func appendKey(dst []byte, keys index.Keys) []byte {
	if len(keys.Wide) > 0 {
		return append(dst, keys.Wide[0]...)
	}
	return binary.BigEndian.AppendUint64(dst, keys.Words[0])
}
