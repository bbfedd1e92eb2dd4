package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/uplink"
	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"
)

// The batch that the benchmarks use: one store of 32 blocks of 16 tokens behind the block stored
// before, as a long prefill makes it.
const (
	batchBlocks = 32
	blockTokens = 16
)

// batch encodes the store of batch n as vLLM does, and the removal of what batch n-live stored.
func batch(tb testing.TB, n, live int) []byte {
	tb.Helper()
	hashes, tokens := make([]uint64, batchBlocks), make([]uint32, batchBlocks*blockTokens)
	for i := range hashes {
		hashes[i] = uint64(n*batchBlocks+i) + 1<<40
	}
	for i := range tokens {
		tokens[i] = uint32(n*31+i*7) % 150_000
	}
	tokens[0] = uint32(n) // no two batches have the same content
	var parent any
	if n%16 != 0 { // chains of 512 blocks
		parent = hashes[0] - 1
	}
	events := []any{map[string]any{
		"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
		"block_size": blockTokens, "lora_id": nil, "medium": "GPU", "lora_name": nil, "group_idx": 0,
		"kv_cache_spec_kind": "full_attention",
	}}
	if n >= live {
		gone := make([]uint64, batchBlocks)
		for i := range gone {
			gone[i] = uint64((n-live)*batchBlocks+i) + 1<<40
		}
		events = append(events, map[string]any{"type": "BlockRemoved", "block_hashes": gone, "medium": "GPU", "group_idx": 0})
	}
	payload, err := msgpack.Marshal([]any{1.5, events, 0})
	if err != nil {
		tb.Fatal(err)
	}
	return payload
}

// BenchmarkDecodeTable decodes batches and applies them to a table that keeps the last 2,048: what an
// agent does per batch behind the socket.
func BenchmarkDecodeTable(b *testing.B) {
	const live, distinct = 2048, 8192
	payloads := make([][]byte, distinct)
	for n := range payloads {
		payloads[n] = batch(b, n, live)
	}
	table, decoder := blocktable.New(blocktable.Config{}), kvevents.NewDecoder()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%distinct == 0 {
			table.Reset(blocktable.Exact)
		}
		decoded, err := decoder.Decode(payloads[n%distinct])
		if err != nil {
			b.Fatal(err)
		}
		table.Apply(decoded.Events, index.At(time.Now()))
		n++
	}
	b.ReportMetric(float64(n*batchBlocks)/b.Elapsed().Seconds(), "blocks/s")
}

// fill returns a table with the given number of blocks in chains of 512.
func fill(tb testing.TB, blocks, uplinks int) *blocktable.Table {
	tb.Helper()
	table, decoder := blocktable.New(blocktable.Config{Uplinks: uplinks, MaxBlocks: 1 << 30}), kvevents.NewDecoder()
	for n := range blocks / batchBlocks {
		decoded, err := decoder.Decode(batch(tb, n, 1<<40))
		if err != nil {
			tb.Fatal(err)
		}
		table.Apply(decoded.Events, index.At(time.Now()))
	}
	return table
}

// pairs is the size that BENCH_PAIRS names, 1,000,000 by default.
func pairs(tb testing.TB) int {
	tb.Helper()
	n := 1_000_000
	if s := os.Getenv("BENCH_PAIRS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			tb.Fatalf("BENCH_PAIRS: %v", err)
		}
	}
	return n / batchBlocks * batchBlocks
}

// BenchmarkAgentMemory measures the heap of a table per block, with one aggregator in step.
func BenchmarkAgentMemory(b *testing.B) {
	n := pairs(b)
	for b.Loop() {
		before := heap()
		table := fill(b, n, 1)
		table.Resend(0)
		for more := true; more; {
			_, more = table.Collect(0, 1, 8192, &pb.Delta{}, 100)
		}
		b.ReportMetric(float64(heap()-before)/float64(n), "B/block")
		runtime.KeepAlive(table)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkDeltaSize measures the encoded size of deltas per block change: stores of 32 blocks, and
// removals of as many, as a full cache makes them.
func BenchmarkDeltaSize(b *testing.B) {
	const live, batches = 1024, 8192
	for b.Loop() {
		table, decoder := blocktable.New(blocktable.Config{Uplinks: 1}), kvevents.NewDecoder()
		table.Resend(0)
		bytes, changes := 0, 0
		for n := range batches {
			decoded, err := decoder.Decode(batch(b, n, live))
			if err != nil {
				b.Fatal(err)
			}
			table.Apply(decoded.Events, index.At(time.Now()))
			d := &pb.Delta{Seq: uint64(n)}
			sent, _ := table.Collect(0, 1, 8192, d, 100)
			bytes, changes = bytes+proto.Size(d), changes+sent
		}
		b.ReportMetric(float64(bytes)/float64(changes), "B/change")
	}
}

// BenchmarkSocketToIndex publishes batches on a ZMQ socket and waits until the aggregator has
// acknowledged what is left of them: socket, decoding, table, delta, gRPC, index.
func BenchmarkSocketToIndex(b *testing.B) {
	const live, distinct = 2048, 8192
	payloads := make([][]byte, distinct)
	for n := range payloads {
		payloads[n] = batch(b, n, live)
	}
	p := benchPublisher(b)
	conn := benchAggregator(b)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	a, err := agent.New(agent.Options{
		Engines: []config.Engine{{
			Name: "pod-a", Model: "m", Tenant: "t", HashScheme: "vllm", Ranks: 1, Events: p.address, Tier2: config.Tier2Observed,
		}},
		Aggregators: []string{conn.Target()}, HTTPAddress: "127.0.0.1:0", ID: "bench", Log: log,
	})
	if err != nil {
		b.Fatal(err)
	}
	runBench(b, a.Run)
	if _, err := p.socket.RecvBytes(0); err != nil { // the subscription
		b.Fatal(err)
	}
	sent := 0
	for b.Loop() {
		for n := range distinct {
			seq := []byte{0, 0, 0, 0, byte(sent >> 24), byte(sent >> 16), byte(sent >> 8), byte(sent)}
			if _, err := p.socket.SendMessage("", seq, payloads[n]); err != nil {
				b.Fatal(err)
			}
			sent++
		}
		awaitPrefixes(b, conn, live*batchBlocks)
	}
	b.ReportMetric(float64(sent*batchBlocks)/b.Elapsed().Seconds(), "blocks/s")
}

type benchSocket struct {
	socket  *zmq.Socket
	address string
}

func benchPublisher(b *testing.B) benchSocket {
	b.Helper()
	s, err := zmq.NewSocket(zmq.XPUB)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	_ = s.SetLinger(0)
	_ = s.SetSndhwm(0)
	if err := s.Bind("tcp://127.0.0.1:*"); err != nil {
		b.Fatal(err)
	}
	address, err := s.GetLastEndpoint()
	if err != nil {
		b.Fatal(err)
	}
	return benchSocket{s, address}
}

func benchAggregator(b *testing.B) *grpc.ClientConn {
	b.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	agg, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: blockTokens, MaxIndexEntries: 1 << 30, Log: log,
	})
	if err != nil {
		b.Fatal(err)
	}
	runBench(b, agg.Run)
	conn, err := grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func runBench(b *testing.B, part func(context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
}

// awaitPrefixes waits until the aggregator knows of exactly so many prefixes.
func awaitPrefixes(b *testing.B, conn *grpc.ClientConn, want int) {
	b.Helper()
	client := pb.NewInferenceCacheClient(conn)
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		state, err := client.GetCacheState(b.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
		if err != nil {
			b.Fatal(err)
		}
		if state.Summary.TotalPrefixes == int64(want) {
			return
		}
	}
	b.Fatal("the aggregator does not get whole")
}

// BenchmarkResync measures the seconds from the start of an aggregator until it holds the whole table
// of an agent, over loopback.
func BenchmarkResync(b *testing.B) {
	n := pairs(b)
	b.Run(fmt.Sprintf("pairs=%d", n), func(b *testing.B) {
		table := fill(b, n, 1)
		caches := []*uplink.Cache{{
			Table: table, View: &pb.View{Ref: 1, ReplicaId: "pod-a", TenantId: "t", ModelId: "m", HashScheme: "vllm"},
		}}
		for b.Loop() {
			conn := benchAggregator(b)
			up := uplink.New(conn, uplink.Config{
				Target: conn.Target(), AgentID: "bench", Epoch: 1, Caches: func() []*uplink.Cache { return caches },
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			})
			began := time.Now()
			runBench(b, up.Run)
			awaitPrefixes(b, conn, n)
			b.ReportMetric(time.Since(began).Seconds(), "s/resync")
			table.Detach(0)
		}
	})
}
