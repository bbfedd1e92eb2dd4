package command_test

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/cmd/inferencecache/command"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/loopback"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// result is what one run of the command line did.
type result struct {
	code           int
	stdout, stderr string
}

func run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	root := command.New()
	root.SetIn(strings.NewReader(stdin))
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), root, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func TestHelp_IsWhatTheGoldenFilesSay(t *testing.T) {
	for _, verb := range []string{"", "lookup", "render", "state", "agent-status", "dump", "hash", "version"} {
		t.Run("help "+verb, func(t *testing.T) {
			got := run(t, "", append(strings.Fields(verb), "--help")...)
			if got.code != cli.ExitOK || got.stderr != "" {
				t.Fatalf("--help exits %d, stderr %q", got.code, got.stderr)
			}
			file := filepath.Join("testdata", "help", strings.Trim("inferencecache-"+verb, "-")+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got.stdout), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.stdout); diff != "" {
				t.Errorf("help changed (-golden +got; accept with go test ./cmd/inferencecache/command -update):\n%s", diff)
			}
		})
	}
}

func TestHash_PrintsOneHashPerFullBlock(t *testing.T) {
	tests := []struct {
		name, stdin string
		args        []string
		want        string
	}{
		{
			"in prompt order", "",
			[]string{"--block-size", "4", "--tokens", "1,2,3,4,5,6,7,8"},
			"cb38e4d7fb2dca5c\n44a2b2379d6d3c3d\n",
		},
		{
			"behind a parent", "",
			[]string{"--block-size", "4", "--parent", "cb38e4d7fb2dca5c", "--tokens", "5,6,7,8"},
			"44a2b2379d6d3c3d\n",
		},
		{
			"from standard input, without the tail", "[1,2,3,4,5]",
			[]string{"--block-size", "4", "--tokens-file", "-"},
			"cb38e4d7fb2dca5c\n",
		},
		{
			"as JSON", "",
			[]string{"--block-size", "4", "--tokens", "1,2,3,4", "-o", "json"},
			`[{"hash":"cb38e4d7fb2dca5c","tokens":4}]` + "\n",
		},
		{"as an empty JSON array", "", []string{"--tokens", "1", "-o", "json"}, "[]\n"},
		{
			"with the frozen hash of the ids 1 to 16", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
			[]string{"--tokens-file", "-"},
			"ea06fc71a5ee6e88\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, tt.stdin, append([]string{"hash"}, tt.args...)...)
			if got.code != cli.ExitOK || got.stdout != tt.want {
				t.Fatalf("exit %d, stdout %q, stderr %q, want %q", got.code, got.stdout, got.stderr, tt.want)
			}
		})
	}
}

func TestWrongUsage_ExitsWith2AndNamesTheCause(t *testing.T) {
	tests := []struct{ name, args, want string }{
		{"no tokens", "hash", "at least one of the flags in the group [tokens tokens-file] is required"},
		{"two prompts", "lookup --model m --tokens 1 --prefix-hash aa", "none of the others can be"},
		{"a bad token", "hash --tokens 1,x", `--tokens: line 1, column 3: id 2 is "x"`},
		{"a missing file", "hash --tokens-file no/such/file", "--tokens-file no/such/file: no such file or directory"},
		{"a block size of 0", "hash --tokens 1 --block-size 0", "--block-size 0: must be more than 0"},
		{"a short parent", "hash --tokens 1 --parent abcd", `--parent "abcd": want 16 hexadecimal digits`},
		{"no model", "lookup --tokens 1", `required flag(s) "model" not set`},
		{"an empty prompt", "lookup --model m --tokens-file /dev/null", "the prompt has no token ids"},
		{"an odd hash", "lookup --model m --prefix-hash abc", `--prefix-hash: "abc" is no hash`},
		{"an odd hash in a chain", "lookup --model m --block-hashes aa,zz", `--block-hashes: hash 2: "zz" is no hash`},
		{"an address without a port", "state --model m --server localhost", `--server "localhost": want host:port`},
		{"an address without a host", "dump --server :9090", `--server ":9090": want host:port`},
		{"a port that is none", "dump --server h:http", "the port must be a number from 1 to 65535"},
		{"a timeout of 0", "dump --timeout 0s", "--timeout 0s: must be more than 0"},
		{"an unknown output form", "dump -o yaml", "must be one of text, json"},
		{"an argument", "dump all", `unknown command "all"`},
		{"an unknown verb", "dmup", `unknown command "dmup"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, "", strings.Fields(tt.args)...)
			if got.code != cli.ExitUsage || !strings.Contains(got.stderr, tt.want) || got.stdout != "" {
				t.Fatalf("exit %d, stdout %q, stderr %q, want %q in it", got.code, got.stdout, got.stderr, tt.want)
			}
		})
	}
}

// scripted is a server that answers with what the test gives it, over a real connection: answers
// that an aggregator gives only rarely can be had no other way.
type scripted struct {
	icpb.UnimplementedInferenceCacheServer
	icpb.UnimplementedCacheInspectionServer

	lookup   *icpb.LookupRouteResponse
	state    *icpb.GetCacheStateResponse
	batches  []*icpb.DumpIndexResponse
	dumpEnds func(context.Context) error

	asked     *icpb.LookupRouteRequest
	askedDump *icpb.DumpIndexRequest
}

func (s *scripted) LookupRoute(_ context.Context, r *icpb.LookupRouteRequest) (*icpb.LookupRouteResponse, error) {
	s.asked = r
	return s.lookup, nil
}

func (s *scripted) GetCacheState(context.Context, *icpb.GetCacheStateRequest) (*icpb.GetCacheStateResponse, error) {
	return s.state, nil
}

func (s *scripted) DumpIndex(r *icpb.DumpIndexRequest, stream grpc.ServerStreamingServer[icpb.DumpIndexResponse]) error {
	s.askedDump = r
	for _, b := range s.batches {
		if err := stream.Send(b); err != nil {
			return err
		}
	}
	if s.dumpEnds == nil {
		return nil
	}
	return s.dumpEnds(stream.Context())
}

// serve starts the server and returns its address.
func (s *scripted) serve(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	icpb.RegisterInferenceCacheServer(server, s)
	icpb.RegisterCacheInspectionServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestLookup_SendsThePromptInTheFormGiven(t *testing.T) {
	s := &scripted{lookup: &icpb.LookupRouteResponse{ReasonCode: "NO_HINT"}}
	address := s.serve(t)
	scope := func(r *icpb.LookupRouteRequest) *icpb.LookupRouteRequest {
		r.ModelId, r.TenantId, r.HashScheme, r.AdapterId = "m", "t", "sglang", "sql"
		return r
	}
	tests := []struct {
		name, args string
		want       *icpb.LookupRouteRequest
	}{
		{"token ids", "--tokens 1,2", scope(&icpb.LookupRouteRequest{TokenIds: []uint32{1, 2}})},
		{"one hash", "--prefix-hash 00ff --prefix-tokens 32", scope(&icpb.LookupRouteRequest{PrefixHash: []byte{0, 255}, PrefixTokenCount: 32})},
		{"a chain", "--block-hashes 01,02 --block-hashes 03 --block-size 8", scope(&icpb.LookupRouteRequest{
			BlockHashes: [][]byte{{1}, {2}, {3}}, BlockTokenCounts: []int32{8, 8, 8},
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := "lookup --server " + address + " --model m --tenant t --hash-scheme sglang --adapter sql " + tt.args
			if got := run(t, "", strings.Fields(args)...); got.code != cli.ExitOK {
				t.Fatalf("exit %d: %s", got.code, got.stderr)
			}
			if got, want := s.asked.String(), tt.want.String(); got != want {
				t.Fatalf("sent %s, want %s", got, want)
			}
		})
	}
}

func TestLookup_PrintsTheAnswer(t *testing.T) {
	s := &scripted{lookup: &icpb.LookupRouteResponse{
		ReasonCode: "PREFIX_MATCH", LookupLatencyUs: 41,
		ReplicaScores: []*icpb.ReplicaScore{
			{ReplicaId: "vllm-0", Score: 128, MatchedTokens: 256, EstimatedCacheHitProb: 1, Tier: icpb.CacheTier_CACHE_TIER_T1},
			{ReplicaId: "vllm-10", Score: 0.5, MatchedTokens: 64, EstimatedCacheHitProb: 0.5, DataParallelRank: 1},
		},
	}}
	args := []string{"lookup", "--server", s.serve(t), "--model", "m", "--tokens", "1"}
	want := `PREFIX_MATCH in 41 µs
REPLICA  RANK  MATCHED  TIER  SCORE  HIT PROB
vllm-0   0     256      T1    128.0  1.000
vllm-10  1     64       -     0.5    0.500
`
	if got := run(t, "", args...); got.stdout != want {
		t.Errorf("text is\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
	}
	want = `{"replicaScores":[` +
		`{"replicaId":"vllm-0","score":128,"matchedTokens":256,"estimatedCacheHitProb":1,"tier":"CACHE_TIER_T1","dataParallelRank":0},` +
		`{"replicaId":"vllm-10","score":0.5,"matchedTokens":64,"estimatedCacheHitProb":0.5,"tier":"CACHE_TIER_UNSPECIFIED","dataParallelRank":1}],` +
		`"reasonCode":"PREFIX_MATCH","lookupLatencyUs":"41","tokenIds":[],"adapterId":"","explanation":null,"textReason":""}` + "\n"
	if got := run(t, "", append(args, "-o", "json")...); got.stdout != want {
		t.Errorf("JSON is\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
	}
}

func TestState_PrintsTheAnswer(t *testing.T) {
	s := &scripted{state: &icpb.GetCacheStateResponse{
		Summary:  &icpb.CacheSummary{TotalPrefixes: 12, HotPrefixes: 3},
		Replicas: []*icpb.ReplicaStats{{ReplicaId: "vllm-0", Pressure: 0.25, HitRate: 0.5, CacheMemoryBytes: 1024}},
		Views: []*icpb.CacheView{
			{ReplicaId: "vllm-0", HashScheme: "vllm", Certainty: icpb.ViewCertainty_VIEW_CERTAINTY_EXACT, AgentId: "node-1", AgentVersion: "v2", Live: true},
			{ReplicaId: "vllm-0", Rank: 1, HashScheme: "vllm", Certainty: icpb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN, AgentId: "node-2", AgentVersion: "v1"},
			{ReplicaId: "vllm-1", HashScheme: "vllm", Live: true},
		},
		AggregatorVersion: "v2",
	}}
	args := []string{"state", "--server", s.serve(t), "--model", "m"}
	want := `12 prefixes, 3 of them hot
REPLICA  PRESSURE  HIT RATE  CACHE BYTES  T2 HIT TOKENS  T2 QUERY TOKENS  CLIENT
vllm-0   0.250     0.500     1024         0              0                -

REPLICA  RANK  SCHEME  LIVE   CERTAINTY  AGENT   AGENT VERSION
vllm-0   0     vllm    true   exact      node-1  v2
vllm-0   1     vllm    false  uncertain  node-2  v1 *
vllm-1   0     vllm    true   -          -       -
* not the aggregator's version, v2
`
	if got := run(t, "", args...); got.stdout != want {
		t.Errorf("text is\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
	}
	s.state.Views = s.state.Views[1:2]
	want = `{"replicas":[{"replicaId":"vllm-0","cacheMemoryBytes":"1024","hitRate":0.5,"pressure":0.25,"clientVersion":"",` +
		`"t2HitTokens":"0","t2QueryTokens":"0"}],"summary":{"totalPrefixes":"12","hotPrefixes":"3"},` +
		`"views":[{"replicaId":"vllm-0","rank":1,"hashScheme":"vllm","certainty":"VIEW_CERTAINTY_UNCERTAIN","agentId":"node-2","agentVersion":"v1","live":false}],` +
		`"aggregatorVersion":"v2"}` + "\n"
	if got := run(t, "", append(args, "-o", "json")...); got.stdout != want {
		t.Errorf("JSON is\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
	}
}

func dumpAnswer() []*icpb.DumpIndexResponse {
	entry := func(replica string, rank int32) *icpb.IndexEntry {
		return &icpb.IndexEntry{
			TenantId: "t", ModelId: "org/<model>", HashScheme: "vllm", ReplicaId: replica, Rank: rank,
			Tier: icpb.CacheTier_CACHE_TIER_T1, Hash: []byte{0, 1, 2, 3, 4, 5, 6, 7}, Tokens: 16, PrefixTokens: 32, AgeSeconds: 3,
		}
	}
	return []*icpb.DumpIndexResponse{
		{Entries: []*icpb.IndexEntry{entry("a", 0), entry("b", 1)}},
		{Entries: []*icpb.IndexEntry{entry("longer-name", 0)}},
	}
}

const dumpedJSON = `{"tenant":"t","model":"org/<model>","hashScheme":"vllm","adapter":"","replica":"a","rank":0,"tier":"T1","hash":"0001020304050607","tokens":16,"prefixTokens":32,"ageSeconds":3}
{"tenant":"t","model":"org/<model>","hashScheme":"vllm","adapter":"","replica":"b","rank":1,"tier":"T1","hash":"0001020304050607","tokens":16,"prefixTokens":32,"ageSeconds":3}
{"tenant":"t","model":"org/<model>","hashScheme":"vllm","adapter":"","replica":"longer-name","rank":0,"tier":"T1","hash":"0001020304050607","tokens":16,"prefixTokens":32,"ageSeconds":3}
`

func TestDump_PrintsOneBlockALine(t *testing.T) {
	s := &scripted{batches: dumpAnswer()}
	args := []string{"dump", "--server", s.serve(t), "--tenant", "t", "--model", "m", "--replica", "r"}
	if got := run(t, "", append(args, "-o", "json")...); got.stdout != dumpedJSON || got.code != cli.ExitOK {
		t.Errorf("exit %d, JSON is\n%s%s\nwant\n%s", got.code, got.stdout, got.stderr, dumpedJSON)
	}
	want := `TENANT  MODEL        SCHEME  ADAPTER  REPLICA  RANK  TIER  HASH              TOKENS  PREFIX  AGE
t       org/<model>  vllm    -        a        0     T1    0001020304050607  16      32      3s
t       org/<model>  vllm    -        b        1     T1    0001020304050607  16      32      3s
t       org/<model>  vllm    -        longer-name  0     T1    0001020304050607  16      32      3s
`
	if got := run(t, "", args...); got.stdout != want {
		t.Errorf("text is\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
	}
	if q := s.askedDump; q.GetTenantId() != "t" || q.GetModelId() != "m" || q.GetReplicaId() != "r" {
		t.Errorf("asked for %v", q)
	}
}

func TestDump_OfAnEmptyIndexPrintsNothing(t *testing.T) {
	s := &scripted{}
	if got := run(t, "", "dump", "--server", s.serve(t)); got != (result{}) {
		t.Errorf("got %+v", got)
	}
}

func TestDump_CutShortPrintsWhatCameAndExitsWith1(t *testing.T) {
	tests := []struct {
		name string
		ends func(context.Context) error
		want string
	}{
		{
			"by an error", func(context.Context) error { return status.Error(codes.Internal, "index closed") },
			"dump the index at ADDRESS: Internal: index closed",
		},
		{
			"by a server that falls silent", func(ctx context.Context) error { <-ctx.Done(); return nil },
			"dump the index: no answer from ADDRESS within 200ms (see --timeout)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scripted{batches: dumpAnswer(), dumpEnds: tt.ends}
			address := s.serve(t)
			got := run(t, "", "dump", "--server", address, "--timeout", "200ms", "-o", "json")
			want := "inferencecache dump: " + strings.ReplaceAll(tt.want, "ADDRESS", address) + "\n"
			if got.code != cli.ExitError || got.stdout != dumpedJSON || got.stderr != want {
				t.Errorf("exit %d, stderr %q, want %q; stdout %q", got.code, got.stderr, want, got.stdout)
			}
		})
	}
}

func TestServer_ThatIsNotThereExitsWith1(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("INFERENCECACHE_SERVER", address)
	for _, args := range []string{"lookup --model m --tokens 1", "state --model m", "dump"} {
		got := run(t, "", strings.Fields(args)...)
		if got.code != cli.ExitError || !strings.Contains(got.stderr, "at "+address+": Unavailable") || !strings.Contains(got.stderr, "INFERENCECACHE_SERVER") {
			t.Errorf("%s: exit %d, stderr %q", args, got.code, got.stderr)
		}
	}
}

func TestServer_OfAnotherKindIsNamed(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	got := run(t, "", "state", "--model", "m", "--server", listener.Addr().String(), "--timeout", (10 * time.Second).String())
	if got.code != cli.ExitError || !strings.Contains(got.stderr, "the server is no aggregator of InferenceCache") {
		t.Errorf("exit %d, stderr %q", got.code, got.stderr)
	}
}
