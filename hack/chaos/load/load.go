// Package load keeps engines busy with growing conversations, asks aggregators where to send each request,
// and judges their hints by what the engine then finds in its cache.
package load

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/inferencecache/inferencecache/hack/chaos/fleet"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const (
	clients = 16
	heads   = 6 // shared beginnings of conversations
	// pause is the mean time that a client waits between two requests.
	pause = 60 * time.Millisecond
	// answerTime bounds a lookup and a completion: processes that are stopped do not answer.
	answerTime = time.Second
	maxBlocks  = 40 // of a prompt; then a new conversation begins
)

// Load is the clients of a run.
type Load struct {
	fleet *fleet.Fleet
	seed  uint64
	heads [][]uint32

	mu     sync.Mutex
	counts Counts
}

// Counts is what happened.
type Counts struct {
	Requests int `json:"requests"` // completions computed
	Failed   int `json:"failed"`   // and those that failed, most of them on engines that were away
	Lookups  int `json:"lookups"`  // lookups answered
	Silent   int `json:"silent"`   // and those that were not
	Hints    int `json:"hints"`    // requests sent to a cache that the answer named, and computed
	Right    int `json:"right"`    // the engine had at least what the hint promised
	// Overtaken hints were true when the answer came, but blocks were evicted before the request ran.
	Overtaken int `json:"overtaken"`
	// Wrong hints promised blocks that were not in the pool right after the answer: while a fault or its
	// aftermath was felt, by the latest such fault, or in calm, where only the time from event to index
	// explains them.
	WrongInTrouble map[plan.Kind]int `json:"wrong_in_trouble"`
	WrongInCalm    int               `json:"wrong_in_calm"`
	// CalmHints are those hints that no fault was near.
	CalmHints int `json:"hints_in_calm"`
	// Expired hints name a cache whose agent has been silent for longer than its lease.
	Expired int `json:"expired"`
}

// New prepares the clients of a run. The same seed gives the same conversations, though not the same
// answers.
func New(f *fleet.Fleet, seed uint64) *Load {
	l := &Load{fleet: f, seed: seed}
	l.counts.WrongInTrouble = map[plan.Kind]int{}
	r := rand.New(rand.NewPCG(seed, 1))
	for range heads {
		l.heads = append(l.heads, tokens(r, (2+r.IntN(5))*fleet.BlockTokens))
	}
	return l
}

// Run keeps sending until ctx ends.
func (l *Load) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range uint64(clients) {
		wg.Go(func() {
			c := &client{Load: l, r: rand.New(rand.NewPCG(l.seed, 2+i))}
			c.begin()
			for ctx.Err() == nil {
				c.turn(context.WithoutCancel(ctx))
				c.wait(ctx)
			}
		})
	}
	wg.Wait()
}

// Counts returns what has happened so far.
func (l *Load) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	counts.WrongInTrouble = maps.Clone(counts.WrongInTrouble)
	return counts
}

func (l *Load) count(add func(*Counts)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add(&l.counts)
}

// Touch sends one small request to every cache of the engines chosen. Its events show what was lost in front
// of them, and bring along what an engine keeps for its next event.
func Touch(ctx context.Context, f *fleet.Fleet, chosen func(*fleet.Engine) bool) error {
	r := rand.New(rand.NewPCG(0, 0))
	for _, e := range f.Engines {
		if !chosen(e) {
			continue
		}
		for rank := range fleet.Ranks {
			prompt := tokens(r, 3*fleet.BlockTokens/2)
			if _, err := e.Complete(ctx, fleet.Request{Prompt: prompt, Rank: rank, Tokens: 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// client has one conversation at a time.
type client struct {
	*Load
	r       *rand.Rand
	prompt  []uint32
	adapter string
	salt    string
}

func (c *client) wait(ctx context.Context) {
	timer := time.NewTimer(pause/2 + time.Duration(c.r.Int64N(int64(pause))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// begin starts a conversation over one of the shared heads.
func (c *client) begin() {
	c.prompt = slices.Clone(c.heads[c.r.IntN(len(c.heads))])
	names := fleet.Adapters()
	c.adapter, c.salt = "", ""
	if c.r.IntN(2) == 0 {
		c.adapter = names[c.r.IntN(len(names))]
	}
	if c.r.IntN(10) == 0 {
		c.salt = "secret"
	}
}

// turn sends the conversation so far with a few words more.
func (c *client) turn(ctx context.Context) {
	if c.prompt = append(c.prompt, tokens(c.r, 1+c.r.IntN(4*fleet.BlockTokens))...); len(c.prompt) > maxBlocks*fleet.BlockTokens {
		c.begin()
	}
	req := fleet.Request{Prompt: c.prompt, Adapter: c.adapter, Salt: c.salt, Tokens: 1 + c.r.IntN(2*fleet.BlockTokens)}
	aggregator := c.r.IntN(fleet.Aggregators)
	scores := c.ask(ctx, aggregator)
	engine, hint := c.choose(scores)
	req.Rank = c.r.IntN(fleet.Ranks)
	var j judgement
	if hint != nil {
		req.Rank = int(hint.GetDataParallelRank())
		j = c.judge(ctx, engine, aggregator, hint)
	}
	answer, err := c.complete(ctx, engine, req)
	if err != nil {
		c.count(func(n *Counts) { n.Failed++ })
		return
	}
	c.count(func(n *Counts) {
		n.Requests++
		if hint != nil {
			j.verdict(answer.Cached, n)
		}
	})
	c.prompt = append(c.prompt, answer.Tokens...)
}

func (c *client) complete(ctx context.Context, engine int, req fleet.Request) (fleet.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return c.fleet.Engines[engine].Complete(ctx, req)
}

// ask returns the hints for the conversation. A salt cannot be named in a lookup, so that a gateway would
// not ask.
func (c *client) ask(ctx context.Context, aggregator int) []*pb.ReplicaScore {
	if c.salt != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	asked := time.Now()
	reply, err := c.fleet.Aggregators[aggregator].Routes().LookupRoute(ctx, &pb.LookupRouteRequest{
		TenantId: fleet.Tenant, ModelId: fleet.Model, HashScheme: fleet.Scheme, AdapterId: c.adapter, TokenIds: c.prompt,
	})
	if err != nil {
		c.count(func(n *Counts) { n.Silent++ })
		return nil
	}
	scores := slices.DeleteFunc(reply.GetReplicaScores(), func(s *pb.ReplicaScore) bool { return s.GetMatchedTokens() == 0 })
	c.count(func(n *Counts) {
		n.Lookups++
		n.Expired += c.expired(scores, aggregator, time.Since(asked))
	})
	return scores
}

// expiryGrace is how long after a lease its end may be noticed, on a loaded machine.
const expiryGrace = time.Second

// expired counts the hints of an answer, which took some time, that name a cache of an agent that had been
// silent for too long when the question was asked.
func (c *client) expired(scores []*pb.ReplicaScore, aggregator int, took time.Duration) (n int) {
	for _, s := range scores {
		if e := c.fleet.Named(s.GetReplicaId()); e >= 0 && c.fleet.Silenced(c.fleet.Engines[e].Agent, aggregator, expiryGrace+took) {
			n++
		}
	}
	return n
}

// choose follows the best hint or another one, and now and then none, so that all engines are busy. Without
// a hint any engine will do that keeps salted blocks apart.
func (c *client) choose(scores []*pb.ReplicaScore) (engine int, hint *pb.ReplicaScore) {
	if n := len(scores); n > 0 && c.r.IntN(3) > 0 {
		hint = scores[0]
		if c.r.IntN(2) == 0 {
			hint = scores[c.r.IntN(n)]
		}
		if e := c.fleet.Named(hint.GetReplicaId()); e >= 0 {
			return e, hint
		}
	}
	for {
		engine = c.r.IntN(fleet.Engines)
		if c.salt == "" || c.fleet.Engines[engine].Salts() {
			return engine, nil
		}
	}
}

func tokens(r *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(50_000)
	}
	return out
}
