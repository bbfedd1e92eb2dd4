package kvevents

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// capturesEnv names a folder of recorded streams of real engines: NAME.jsonl.gz with the frames, one
// message a line, and NAME.truth.json.gz with what the engine held at the end.
const capturesEnv = "INFERENCECACHE_CAPTURES"

type capturedMessage struct {
	Port   string   `json:"port"`
	Dir    string   `json:"dir"`
	Rank   int      `json:"rank"`
	Frames []string `json:"frames"`
}

type truth struct {
	Held []struct {
		Hash   any             `json:"hash"` // a number, or 0x and the digest
		Tokens json.RawMessage `json:"tokens"`
		Index  int             `json:"index"`
		Size   int             `json:"block_size"` // 0 where not recorded
		LoRA   string          `json:"lora"`
		Salt   string          `json:"salt"`
		Group  *int32          `json:"group"`
		Medium string          `json:"medium"`
		Rank   int             `json:"rank"`
		Copies int             `json:"copies"`
	} `json:"held"`
	Summary map[string]int `json:"summary"`
}

// heldKey is what tells copies apart.
type heldKey struct {
	rank   int
	group  int32
	medium MediumClass
	hash   Hash
}

// heldBlock is one block as the event that stored it first said.
type heldBlock struct {
	copies int
	tokens []uint32
	size   int
	lora   string
	marked bool // something beyond tokens and adapter
}

// mirror follows a stream the way a consumer would, with one count per key.
type mirror struct {
	held                     map[heldKey]*heldBlock
	sequences                map[int]*Sequence
	groups, loras, marks     bool // whether the release sends such fields at all
	counts                   map[string]int
	malformed, unknown, gaps int
}

func TestDecodeFollowsCapturedStreamsToTheEnginesOwnState(t *testing.T) {
	folder := os.Getenv(capturesEnv)
	if folder == "" {
		t.Skipf("%s names no folder of captured streams", capturesEnv)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no *.jsonl.gz in %s (%v)", folder, err)
	}
	for _, file := range files {
		stem := strings.TrimSuffix(file, ".jsonl.gz")
		t.Run(filepath.Base(stem), func(t *testing.T) {
			m := newMirror()
			m.follow(t, file)
			if m.malformed > 0 || m.unknown > 0 || m.gaps > 0 {
				t.Errorf("%d malformed events, %d unknown tags or fields, %d gaps; want none", m.malformed, m.unknown, m.gaps)
			}
			want := readTruth(t, stem+".truth.json.gz")
			for name, n := range m.counts {
				if n != want.Summary[name] {
					t.Errorf("%d %s, want %d", n, name, want.Summary[name])
				}
			}
			m.compare(t, want)
		})
	}
}

func newMirror() *mirror {
	return &mirror{
		held: make(map[heldKey]*heldBlock), sequences: make(map[int]*Sequence), counts: make(map[string]int),
	}
}

func (m *mirror) follow(t *testing.T, file string) {
	d := NewDecoder()
	lines := bufio.NewScanner(openGzip(t, file))
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var msg capturedMessage
		if err := json.Unmarshal(lines.Bytes(), &msg); err != nil {
			t.Fatal(err)
		}
		if msg.Dir != "recv" || len(msg.Frames) < 2 {
			continue
		}
		frames := make([][]byte, len(msg.Frames))
		for i, f := range msg.Frames {
			frames[i] = unhex(t, f)
		}
		payload := frames[len(frames)-1]
		if len(payload) == 0 { // the end marker of a replay
			continue
		}
		batch, err := d.Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		m.malformed += batch.Malformed
		m.unknown += batch.UnknownTags + batch.UnknownFields
		if msg.Port == "pub" {
			m.apply(msg.Rank, binary.BigEndian.Uint64(frames[1]), batch)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func (m *mirror) apply(rank int, seq uint64, batch *Batch) {
	if m.sequences[rank] == nil {
		m.sequences[rank] = &Sequence{}
	}
	step := m.sequences[rank].Observe(seq)
	if step.Gap > 0 {
		m.gaps++
	}
	if step.Restart {
		m.clear(func(k heldKey) bool { return k.rank == rank })
	}
	m.counts["batches"]++
	for i := range batch.Events {
		ev := &batch.Events[i]
		m.counts[ev.Kind.String()+" events"]++
		if ev.Kind != Cleared {
			m.counts[ev.Kind.String()+" hashes"] += len(ev.Hashes)
		}
		m.groups = m.groups || ev.Group >= 0
		m.loras = m.loras || ev.LoRAName != ""
		m.marks = m.marks || ev.Extra != nil || ev.Salted
		m.applyEvent(rank, ev)
	}
}

func (m *mirror) applyEvent(rank int, ev *Event) {
	if ev.Kind == Cleared {
		m.clear(func(k heldKey) bool { return k.rank == rank && k.medium == MediumT1 })
		return
	}
	for i, h := range ev.Hashes {
		key := heldKey{rank, ev.Group, MediumTier(ev.Medium), h}
		block := m.held[key]
		if ev.Kind == Removed {
			if block.copies--; block.copies == 0 {
				delete(m.held, key)
			}
			continue
		}
		if block == nil {
			block = &heldBlock{lora: ev.LoRAName, size: ev.BlockSize, marked: ev.Salted || ev.Extra != nil && ev.Extra[i] != 0}
			if len(ev.Tokens) > 0 && !ev.TokenMismatch {
				block.tokens = slices.Clone(ev.Tokens[i*ev.BlockSize : (i+1)*ev.BlockSize])
			}
			m.held[key] = block
		}
		block.copies++
	}
}

func (m *mirror) clear(which func(heldKey) bool) {
	for key := range m.held {
		if which(key) {
			delete(m.held, key)
		}
	}
}

func (m *mirror) compare(t *testing.T, want truth) {
	if len(m.held) != len(want.Held) {
		t.Errorf("%d blocks held, want %d", len(m.held), len(want.Held))
	}
	for _, w := range want.Held {
		key := heldKey{w.Rank, -1, MediumTier(w.Medium), truthHash(t, w.Hash)}
		if m.groups && w.Group != nil {
			key.group = *w.Group
		}
		got := m.held[key]
		if got == nil || got.copies != w.Copies {
			t.Errorf("block %+v: %+v, want %d copies", key, got, w.Copies)
			continue
		}
		if tokens := truthTokens(t, w.Tokens); got.tokens != nil && !cmp.Equal(got.tokens, tokens) {
			t.Errorf("block %+v: its tokens are not those of the engine", key)
		}
		if got.tokens != nil && w.Size > 0 && got.size != w.Size {
			t.Errorf("block %+v: block size %d, want %d", key, got.size, w.Size)
		}
		if m.loras && got.tokens != nil && got.lora != w.LoRA {
			t.Errorf("block %+v: adapter %q, want %q", key, got.lora, w.LoRA)
		}
		if m.marks && key.medium == MediumT1 && w.Index == 0 && w.Salt != "" && !got.marked {
			t.Errorf("block %+v is salted and not marked as such", key)
		}
	}
}

func readTruth(t *testing.T, file string) truth {
	t.Helper()
	decoder := json.NewDecoder(openGzip(t, file))
	decoder.UseNumber() // hashes do not fit a float
	var want truth
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	return want
}

func truthHash(t *testing.T, v any) Hash {
	t.Helper()
	switch v := v.(type) {
	case json.Number:
		n, ok := new(big.Int).SetString(v.String(), 10)
		if !ok {
			t.Fatalf("hash %q is no number", v)
		}
		if n.Sign() < 0 {
			return Hash(n.Int64())
		}
		return Hash(n.Uint64())
	case string:
		digest, err := hex.DecodeString(strings.TrimPrefix(v, "0x"))
		if err != nil {
			t.Fatal(err)
		}
		return Hash(binary.BigEndian.Uint64(digest[len(digest)-8:]))
	default:
		t.Fatalf("hash of type %T", v)
		return 0
	}
}

// truthTokens reads plain tokens, or the first of each pair.
func truthTokens(t *testing.T, raw json.RawMessage) []uint32 {
	t.Helper()
	var plain []uint32
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var pairs [][2]uint32
	if err := json.Unmarshal(raw, &pairs); err != nil {
		t.Fatal(err)
	}
	plain = nil
	for _, p := range pairs {
		plain = append(plain, p[0])
	}
	return plain
}

func openGzip(t *testing.T, file string) *gzip.Reader {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}
