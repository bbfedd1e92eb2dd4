package fakeengine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	zmq "github.com/pebbe/zmq4"
	"golang.org/x/sync/errgroup"

	"github.com/inferencecache/inferencecache/fingerprint"
)

// fieldNames are the fields of a BlockStored array in order; a BlockRemoved has hashes, medium and group.
var fieldNames = []string{
	"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
	"extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
}

// named returns the fields of an event of either form by name.
func named(ev any) map[string]any {
	if fields, ok := ev.(map[string]any); ok {
		return fields
	}
	names := fieldNames
	values := ev.([]any)
	if values[0] == "BlockRemoved" {
		names = []string{"type", "block_hashes", "medium", "group_idx"}
	}
	fields := make(map[string]any, len(values))
	for i, v := range values {
		fields[names[i]] = v
	}
	return fields
}

// hashText returns a wire hash as Hash.String does; an absent one is empty.
func hashText(v any) string {
	switch h := v.(type) {
	case nil:
		return ""
	case []byte:
		return fmt.Sprintf("0x%x", h)
	default:
		return fmt.Sprint(unsigned(h))
	}
}

// view is what a plain consumer of one rank's events knows.
type view struct {
	copies map[string]int
	blocks map[string]viewBlock
}

type viewBlock struct {
	parent, lora, tokens string
	fingerprint          uint64
	salted               bool
}

func newView() *view { return &view{map[string]int{}, map[string]viewBlock{}} }

func (v *view) apply(t *testing.T, payload []byte) {
	t.Helper()
	batch := decodeBatch(t, payload)
	if len(batch.events) == 0 {
		t.Error("published a batch without events")
	}
	for _, ev := range batch.events {
		switch fields := named(ev); fields["type"] {
		case "BlockStored":
			v.store(fields)
		case "BlockRemoved":
			for _, h := range fields["block_hashes"].([]any) {
				v.remove(t, hashText(h))
			}
		case "AllBlocksCleared":
			clear(v.copies)
			clear(v.blocks)
		default:
			t.Errorf("event of type %v", fields["type"])
		}
	}
}

// store adds the blocks of an event. Fields that its form lacks read as nil, as for a consumer.
func (v *view) store(fields map[string]any) {
	size := int(unsigned(fields["block_size"]))
	tokens := fields["token_ids"].([]any)
	lora, _ := fields["lora_name"].(string)
	parent := hashText(fields["parent_block_hash"])
	extra, _ := fields["extra_keys"].([]any)
	for i, h := range fields["block_hashes"].([]any) {
		ids := make([]uint32, size)
		for j := range ids {
			ids[j] = uint32(unsigned(tokens[i*size+j]))
		}
		b := viewBlock{parent: parent, lora: lora, tokens: fmt.Sprint(ids), salted: v.blocks[parent].salted}
		b.fingerprint = fingerprint.Content(ids)
		if parent != "" {
			b.fingerprint = fingerprint.Child(v.blocks[parent].fingerprint, b.fingerprint)
		}
		if i < len(extra) {
			keys, _ := extra[i].([]any)
			b.salted = b.salted || len(keys) > 1 || len(keys) == 1 && keys[0] != lora
		}
		hash := hashText(h)
		v.copies[hash]++
		v.blocks[hash] = b
		parent = hash
	}
}

func (v *view) remove(t *testing.T, hash string) {
	t.Helper()
	if v.copies[hash] == 0 {
		t.Errorf("removed block %s, which is not stored", hash)
		return
	}
	if v.copies[hash]--; v.copies[hash] == 0 {
		delete(v.copies, hash)
		delete(v.blocks, hash)
	}
}

// subscriber follows one rank over real sockets: live messages, and once, by a replay, those before the
// first of them.
type subscriber struct {
	rank   int
	topic  string
	sock   *zmq.Socket
	replay string
	joined bool
	next   uint64
	*view
}

func subscribe(t *testing.T, e *Engine, rank int) *subscriber {
	t.Helper()
	s := &subscriber{rank: rank, topic: e.cfg.Topic, sock: socket(t, zmq.SUB), view: newView()}
	s.replay = e.Addresses().Replay[rank]
	must(t, s.sock.SetRcvhwm(0))
	must(t, s.sock.Connect(e.Addresses().Events[rank]))
	must(t, s.sock.SetSubscribe(s.topic))
	return s
}

func socket(t *testing.T, kind zmq.Type) *zmq.Socket {
	t.Helper()
	sock, err := zmq.NewSocket(kind)
	must(t, err)
	t.Cleanup(func() { must(t, sock.Close()) })
	must(t, sock.SetLinger(0))
	return sock
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive applies the messages that arrive within a moment.
func (s *subscriber) receive(t *testing.T) {
	t.Helper()
	for {
		frames := receive(t, s.sock, 20*time.Millisecond)
		if frames == nil {
			return
		}
		if len(frames) != 3 || string(frames[0]) != s.topic || len(frames[1]) != 8 {
			t.Fatalf("frames %q, want topic %q, 8 bytes, payload", frames, s.topic)
		}
		seq := binary.BigEndian.Uint64(frames[1])
		if !s.joined {
			s.joined = true
			s.catchUp(t, seq)
		}
		if seq != s.next {
			t.Fatalf("message %d after %d", seq, s.next-1)
		}
		s.apply(t, frames[2])
		s.next++
	}
}

// receive returns the frames of one message, nil if none comes in time.
func receive(t *testing.T, sock *zmq.Socket, wait time.Duration) [][]byte {
	t.Helper()
	must(t, sock.SetRcvtimeo(wait))
	frames, err := sock.RecvMessageBytes(0)
	if zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) {
		return nil
	}
	must(t, err)
	return frames
}

// catchUp applies what was published before the first live message.
func (s *subscriber) catchUp(t *testing.T, first uint64) {
	t.Helper()
	for _, m := range askReplay(t, s.replay, sequence64(0)) {
		if m.seq < first {
			s.apply(t, m.payload)
			s.next++
		}
	}
}

// join computes completions until the subscription has surely reached the publisher.
func (s *subscriber) join(t *testing.T, e *Engine) {
	t.Helper()
	for i := 0; !s.joined; i++ {
		complete(t, e, Request{Prompt: numbers(1000*i, e.cfg.BlockSize), MaxTokens: 1, Rank: &s.rank})
		s.receive(t)
	}
}

// heldView is a rank's part of what the engine says it holds, in the consumer's terms.
func heldView(held []HeldBlock, rank int, loraKnown bool) (map[string]int, map[string]viewBlock) {
	copies, blocks := map[string]int{}, map[string]viewBlock{}
	for _, b := range held {
		if b.Rank != rank {
			continue
		}
		v := viewBlock{tokens: fmt.Sprint(b.Tokens), fingerprint: b.fingerprint}
		if loraKnown {
			v.lora = b.LoRA
		}
		if b.Parent != nil {
			v.parent = b.Parent.String()
		}
		copies[b.Hash.String()], blocks[b.Hash.String()] = b.Copies, v
	}
	return copies, blocks
}

// converge waits until a subscriber knows exactly what the engine holds.
func (s *subscriber) converge(t *testing.T, e *Engine) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s.receive(t)
		copies, blocks := heldView(e.Held(), s.rank, e.cfg.EventForm == EventMap || e.cfg.ArrayFields >= 8)
		if maps.Equal(copies, s.copies) {
			seen := maps.Clone(s.blocks)
			for h, b := range seen {
				b.salted = false
				seen[h] = b
			}
			if diff := cmp.Diff(blocks, seen, cmp.AllowUnexported(viewBlock{})); diff != "" {
				t.Fatalf("rank %d (-held +told by events):\n%s", s.rank, diff)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rank %d copies (-held +told by events):\n%s", s.rank, cmp.Diff(copies, s.copies))
		}
	}
}

// traffic sends random requests from several clients: growing conversations over a few shared heads, under
// adapters and salts, in a pool too small for them, with a reset now and then.
func traffic(t *testing.T, e *Engine, seed uint64) {
	t.Helper()
	var clients errgroup.Group
	for c := range uint64(4) {
		clients.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, c))
			var talk []uint32
			for range 30 {
				if len(talk) == 0 || len(talk) > 150 {
					talk = numbers(1000*rng.IntN(3), 20+rng.IntN(40))
				}
				resp, err := e.Complete(t.Context(), Request{
					Model:     pick(rng, "", "", "sql", "code"),
					CacheSalt: pick(rng, "", "", "", "tenant"),
					Prompt:    talk,
					MaxTokens: 1 + rng.IntN(30),
				})
				if err != nil {
					return err
				}
				talk = append(append(talk, resp.TokenIDs...), numbers(rng.IntN(10), rng.IntN(20))...)
				if rng.IntN(40) == 0 {
					e.Reset()
				}
			}
			return nil
		})
	}
	must(t, clients.Wait())
}

func pick(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

func TestEventsTellExactlyWhatThePoolHolds(t *testing.T) {
	forms := map[string]func(*Config){
		"map events":            nil,
		"map events, bytes":     func(c *Config) { c.HashForm = HashBytes },
		"two ranks":             func(c *Config) { c.Ranks = 2 },
		"a topic":               func(c *Config) { c.Topic = "kv@pod" },
		"resets kept for later": func(c *Config) { c.EagerClear = false },
		"two-frame replay":      func(c *Config) { c.ReplayForm = ReplayTwoFrame },
	}
	for _, n := range arrayFields {
		forms[fmt.Sprintf("arrays of %d", n)] = func(c *Config) { c.EventForm, c.ArrayFields = EventArray, n }
	}
	for name, change := range forms {
		t.Run(name, func(t *testing.T) {
			e := start(t, func(c *Config) {
				c.Blocks, c.BlockSize, c.Adapters = 50, 8, map[string]int{"sql": 1, "code": 2}
				if change != nil {
					change(c)
				}
			})
			var subs []*subscriber
			for rank := range e.cfg.Ranks {
				s := subscribe(t, e, rank)
				s.join(t, e)
				subs = append(subs, s)
			}
			traffic(t, e, 1)
			for _, s := range subs { // what a lazy reset left queued comes with the next batch
				complete(t, e, Request{Prompt: numbers(90_000, 9), MaxTokens: 1, Rank: &s.rank})
				s.converge(t, e)
			}
			compareFingerprints(t, e, subs)
		})
	}
}

// compareFingerprints checks the engine's own fingerprints against those derived from events.
func compareFingerprints(t *testing.T, e *Engine, subs []*subscriber) {
	t.Helper()
	if e.cfg.EventForm == EventArray && e.cfg.ArrayFields < 9 {
		return // the form does not tell salts or adapters
	}
	var told []RankFingerprints
	for _, s := range subs {
		sets := map[string][]uint64{}
		for _, b := range s.blocks {
			if !b.salted {
				sets[b.lora] = append(sets[b.lora], b.fingerprint)
			}
		}
		for _, lora := range slices.Sorted(maps.Keys(sets)) {
			slices.Sort(sets[lora])
			told = append(told, RankFingerprints{s.rank, lora, sets[lora]})
		}
	}
	if diff := cmp.Diff(e.Fingerprints(), told); diff != "" {
		t.Errorf("fingerprints (-engine +told by events):\n%s", diff)
	}
}
