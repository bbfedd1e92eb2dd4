package agent_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	zmq "github.com/pebbe/zmq4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// missed names the streams whose engine cannot be followed, and why: nothing of them may be in the index.
var missed = map[string]string{
	"sglang-0.5.3-tree": "hashes name the page's content, not its prefix, and a continued node is announced without its parent",
}

// mainGroup names the streams whose main attention is not cache group 0.
var mainGroup = map[string]int32{"vllm-0.32.0-hybrid": 1}

// capture is one recorded stream: frames per publisher, in order of arrival.
type capture struct {
	Meta struct {
		Engine string `json:"engine"`
		Ranks  int    `json:"ranks"`
		Topic  string `json:"topic"`
	} `json:"meta"`
	messages []captured
}

type captured struct {
	rank   int
	frames [][]byte
}

// heldBlock is a line of what the engine held at the end.
type heldBlock struct {
	Hash   json.RawMessage   `json:"hash"`
	Parent json.RawMessage   `json:"parent"`
	Tokens []json.RawMessage `json:"tokens"`
	LoRA   *string           `json:"lora"`
	Salt   *string           `json:"salt"`
	Group  *int32            `json:"group"`
	Medium *string           `json:"medium"`
	Rank   int               `json:"rank"`
}

// TestCaptures publishes recorded streams of real engines to a running agent and compares what the
// aggregator then holds with what the engine really held. The folder is named by
// INFERENCECACHE_CAPTURES.
func TestCaptures(t *testing.T) {
	dir := os.Getenv("INFERENCECACHE_CAPTURES")
	if dir == "" {
		t.Skip("INFERENCECACHE_CAPTURES names no folder of captured streams")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", dir, err)
	}
	for _, file := range files {
		stem := strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")
		t.Run(stem, func(t *testing.T) {
			truth := readTruth(t, filepath.Join(dir, stem+".truth.json.gz"), mainGroup[stem])
			c := readCapture(t, file)
			if why, ok := missed[stem]; ok {
				t.Logf("nothing of %d blocks is to be found: %s", len(truth), why)
				truth = []string{}
			}
			got := follow(t, c)
			missing, extra := subtract(truth, got), subtract(got, truth)
			t.Logf("%d messages, %d blocks in the truth, %d in the index, %d missing, %d extra",
				len(c.messages), len(truth), len(got), len(missing), len(extra))
			if diff := cmp.Diff(truth, got); diff != "" {
				t.Errorf("-engine +index:\n%s", diff)
			}
		})
	}
}

func subtract(a, b []string) (out []string) {
	for _, x := range a {
		if _, found := slices.BinarySearch(b, x); !found {
			out = append(out, x)
		}
	}
	return out
}

// follow publishes the stream to an agent and returns what the aggregator holds once it is told all.
func follow(t *testing.T, c capture) []string {
	t.Helper()
	publishers, engine := publish(t, c)
	client, agentHTTP := start(t, engine)
	for _, p := range publishers {
		p.awaitSubscriber(t)
	}
	for _, m := range c.messages {
		if _, err := publishers[m.rank].socket.SendMessage(m.frames); err != nil {
			t.Fatal(err)
		}
	}
	at := &site{t: t, http: "http://" + agentHTTP}
	at.await("the agent to read the stream", func() bool { return at.metric("messages_total{") == strconv.Itoa(len(c.messages)) })
	told := func() bool { return at.metric("uplink_in_step") == "1" }
	at.await("the aggregator to be told", told)
	// What was read last is sent within a window, and acknowledged soon after: it is waited for longer than that.
	var held []string
	at.await("the index to stay as it is", func() bool {
		before := held
		time.Sleep(500 * time.Millisecond)
		held = dump(t, client)
		return before != nil && slices.Equal(before, held) && told()
	})
	return held
}

// publisher is an XPUB socket: unlike PUB it tells when the subscriber has arrived.
type publisher struct {
	socket *zmq.Socket
	port   int
}

func (p publisher) awaitSubscriber(t *testing.T) {
	t.Helper()
	if _, err := p.socket.RecvBytes(0); err != nil {
		t.Fatalf("await the subscription: %v", err)
	}
}

// publish opens a publisher per rank on ports in a row and describes them as an engine.
func publish(t *testing.T, c capture) ([]publisher, config.Engine) {
	t.Helper()
	ranks := max(1, c.Meta.Ranks)
	for range 50 {
		if ps, ok := bindRow(t, ranks); ok {
			return ps, config.Engine{
				Name: "pod-a", Model: "m", Tenant: "t", HashScheme: c.Meta.Engine, Ranks: ranks, Topic: c.Meta.Topic,
				Events: fmt.Sprintf("tcp://127.0.0.1:%d", ps[0].port), Tier2: config.Tier2Observed,
				LoRANames: map[int64]string{1: "ad-a", 2: "ad-b"},
			}
		}
	}
	t.Fatal("no ports in a row are free")
	return nil, config.Engine{}
}

func bindRow(t *testing.T, ranks int) ([]publisher, bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	var row []publisher
	for r := range ranks {
		s, err := zmq.NewSocket(zmq.XPUB)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.SetLinger(0)
		_ = s.SetSndhwm(0)
		_ = s.SetRcvtimeo(patience)
		t.Cleanup(func() { _ = s.Close() })
		if s.Bind(fmt.Sprintf("tcp://127.0.0.1:%d", base+r)) != nil {
			return nil, false
		}
		row = append(row, publisher{s, base + r})
	}
	return row, true
}

// start runs an aggregator and an agent in this process, joined by loopback sockets. It returns a connection
// to the one and the HTTP address of the other.
func start(t *testing.T, engines ...config.Engine) (*grpc.ClientConn, string) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	agg, err := aggregator.New(aggregator.Config{GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "aggregator", agg.Run)
	a, err := agent.New(agent.Options{
		Engines: engines, Aggregators: []string{agg.GRPCAddr()}, HTTPAddress: "127.0.0.1:0", ID: "test", Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "agent", a.Run)
	conn, err := grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, a.HTTPAddr()
}

// run runs a part until the test ends, and fails the test if the part fails.
func run(t *testing.T, name string, part func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// dump lists what the aggregator holds as rank, adapter, tier and fingerprint.
func dump(t *testing.T, conn *grpc.ClientConn) []string {
	t.Helper()
	stream, err := pb.NewCacheInspectionClient(conn).DumpIndex(t.Context(), &pb.DumpIndexRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Entries {
			all = append(all, heldLine(int(e.Rank), e.AdapterId, e.Tier.String(), hex.EncodeToString(e.Hash)))
		}
	}
	slices.Sort(all)
	return all
}

func heldLine(rank int, adapter, tier, hash string) string {
	return fmt.Sprintf("%d/%s/%s/%s", rank, adapter, strings.TrimPrefix(tier, "CACHE_TIER_"), hash)
}

func readCapture(t *testing.T, file string) (c capture) {
	t.Helper()
	lines := bufio.NewScanner(gunzip(t, file))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l struct {
			capture
			Port   string   `json:"port"`
			Dir    string   `json:"dir"`
			Frames []string `json:"frames"`
			Rank   int      `json:"rank"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if l.Meta.Engine != "" {
			c.Meta = l.Meta
		}
		if l.Port != "pub" || l.Dir != "recv" || len(l.Frames) == 0 {
			continue
		}
		m := captured{rank: l.Rank}
		for _, f := range l.Frames {
			frame, err := hex.DecodeString(f)
			if err != nil {
				t.Fatal(err)
			}
			m.frames = append(m.frames, frame)
		}
		c.messages = append(c.messages, m)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func gunzip(t *testing.T, file string) io.Reader {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// readTruth lists what the index must hold: the fingerprint of each block of main attention whose
// chain carries no salt, in the warmest tier that has it.
func readTruth(t *testing.T, file string, main int32) []string {
	t.Helper()
	var f struct {
		Held []heldBlock `json:"held"`
	}
	if err := json.NewDecoder(gunzip(t, file)).Decode(&f); err != nil {
		t.Fatal(err)
	}
	chains := chains{t: t, byHash: map[string]heldBlock{}}
	for _, b := range f.Held {
		chains.byHash[b.key(b.Hash)] = b
	}
	tiers := map[string]string{}
	for _, b := range f.Held {
		if b.Group != nil && *b.Group != main {
			continue
		}
		print, salted := chains.print(b)
		if salted {
			continue
		}
		adapter := ""
		if b.LoRA != nil {
			adapter = *b.LoRA
		}
		key := heldLine(b.Rank, adapter, "%", fmt.Sprintf("%016x", print))
		if tier := b.tier(); tiers[key] == "" || tier < tiers[key] {
			tiers[key] = tier
		}
	}
	all := []string{}
	for key, tier := range tiers {
		all = append(all, strings.Replace(key, "%", tier, 1))
	}
	slices.Sort(all)
	return all
}

func (b heldBlock) tier() string {
	if b.Medium != nil && strings.HasPrefix(strings.ToUpper(*b.Medium), "CPU") {
		return "T2"
	}
	return "T1"
}

func (b heldBlock) key(hash json.RawMessage) string {
	group := int32(-1)
	if b.Group != nil {
		group = *b.Group
	}
	return fmt.Sprintf("%d/%d/%s", b.Rank, group, hash)
}

// chains computes fingerprints by following parents.
type chains struct {
	t      *testing.T
	byHash map[string]heldBlock
}

func (c chains) print(b heldBlock) (print uint64, salted bool) {
	print = fingerprint.Content(c.tokens(b))
	if parent := string(b.Parent); parent != "" && parent != "null" {
		up, ok := c.byHash[b.key(b.Parent)]
		if !ok {
			c.t.Fatalf("the truth lacks block %s", parent)
		}
		above, saltedAbove := c.print(up)
		return fingerprint.Child(above, print), saltedAbove || b.Salt != nil
	}
	return print, b.Salt != nil
}

// tokens reads token ids; of bigram pairs the first of each.
func (c chains) tokens(b heldBlock) []uint32 {
	out := make([]uint32, 0, len(b.Tokens))
	for _, raw := range b.Tokens {
		first, _, _ := strings.Cut(strings.Trim(string(raw), "[] "), ",")
		id, err := strconv.ParseUint(strings.TrimSpace(first), 10, 32)
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, uint32(id))
	}
	return out
}
