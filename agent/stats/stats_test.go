package stats

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const vllmLoad = `
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1
`

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func one(s *pb.ReplicaStats) []*pb.ReplicaStats { return []*pb.ReplicaStats{s} }

// twoRanks is a page of an engine with two data-parallel ranks.
const twoRanks = `
vllm:num_requests_running{engine="1",model_name="m"} 6
vllm:num_requests_running{engine="0",model_name="m"} 2
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="1",model_name="m"} 2
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 70
vllm:external_prefix_cache_queries_total{engine="1",model_name="m"} 30
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 7
vllm:external_prefix_cache_hits_total{engine="1",model_name="m"} 3
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:cache_config_info{engine="0",kv_cache_memory_bytes="4096"} 1
vllm:cache_config_info{engine="1",kv_cache_memory_bytes="4096"} 1
`

func TestScrape(t *testing.T) {
	for name, c := range map[string]struct {
		scheme string
		ranks  int
		first  int
		pages  []string // the last one counts
		want   []*pb.ReplicaStats
		err    string
	}{
		"pressure is running and waiting requests over the ceiling": {
			pages: []string{vllmLoad}, want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5}),
		},
		"pressure does not pass 1": {
			pages: []string{strings.ReplaceAll(vllmLoad, "} 3", "} 300")}, want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 1}),
		},
		"series split by priority are not counted again": {
			pages: []string{vllmLoad + "vllm:num_requests_waiting{priority=\"1\"} 9\n"},
			want:  one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5}),
		},
		"the hit rate is that of the time since the last scrape": {
			pages: []string{
				vllmLoad + "vllm:prefix_cache_queries_total 1000\nvllm:prefix_cache_hits_total 900\n",
				vllmLoad + "vllm:prefix_cache_queries_total 1100\nvllm:prefix_cache_hits_total 925\n",
			},
			want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5, HitRate: 0.25}),
		},
		"an idle engine keeps its hit rate": {
			pages: []string{
				vllmLoad + "vllm:prefix_cache_queries_total 0\nvllm:prefix_cache_hits_total 0\n",
				vllmLoad + "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 50\n",
				vllmLoad + "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 50\n",
			},
			want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5, HitRate: 0.5}),
		},
		"counters that went back start over": {
			pages: []string{
				vllmLoad + "vllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 50\n",
				vllmLoad + "vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 9\n",
			},
			want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5}),
		},
		"cache use is in bytes where the engine states its size": {
			pages: []string{vllmLoad + "vllm:kv_cache_usage_perc 0.25\nvllm:cache_config_info{kv_cache_memory_bytes=\"4096\"} 1\n"},
			want:  one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5, CacheMemoryBytes: 1024}),
		},
		"offload counters are passed on": {
			pages: []string{vllmLoad + "vllm:external_prefix_cache_queries_total 70\nvllm:external_prefix_cache_hits_total 7\n"},
			want:  one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.5, T2QueryTokens: 70, T2HitTokens: 7}),
		},
		"sglang has names of its own": {
			scheme: "sglang",
			pages:  []string{"sglang:num_running_reqs 2\nsglang:num_queue_reqs 0\nsglang:cache_hit_rate 0.75\n"},
			want:   one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 0.25, HitRate: 0.75}),
		},
		"sglang's counters tell the tiers apart": {
			scheme: "sglang",
			pages: []string{
				"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:prompt_tokens_total 0\nsglang:cached_tokens_total{cache_source=\"device\"} 0\n",
				"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:cache_hit_rate 0.9\nsglang:prompt_tokens_total 100\n" +
					"sglang:cached_tokens_total{cache_source=\"device\"} 40\nsglang:cached_tokens_total{cache_source=\"host\"} 10\n",
			},
			want: one(&pb.ReplicaStats{ReplicaId: "pod-a", HitRate: 0.5, T2HitTokens: 10, T2QueryTokens: 60}),
		},
		"each rank has statistics of its own": {
			ranks: 2,
			pages: []string{
				twoRanks + "vllm:prefix_cache_queries_total{engine=\"0\"} 0\nvllm:prefix_cache_hits_total{engine=\"0\"} 0\n" +
					"vllm:prefix_cache_queries_total{engine=\"1\"} 0\nvllm:prefix_cache_hits_total{engine=\"1\"} 0\n",
				twoRanks + "vllm:prefix_cache_queries_total{engine=\"0\"} 10\nvllm:prefix_cache_hits_total{engine=\"0\"} 5\n" +
					"vllm:prefix_cache_queries_total{engine=\"1\"} 8\nvllm:prefix_cache_hits_total{engine=\"1\"} 2\n",
			},
			want: []*pb.ReplicaStats{
				{ReplicaId: "pod-a", Pressure: 0.25, HitRate: 0.5, CacheMemoryBytes: 1024, T2QueryTokens: 70, T2HitTokens: 7},
				{ReplicaId: "pod-a", Pressure: 1, HitRate: 0.25, CacheMemoryBytes: 2048, T2QueryTokens: 30, T2HitTokens: 3},
			},
		},
		"sglang's ranks go by another label": {
			scheme: "sglang", ranks: 2,
			pages: []string{"sglang:num_running_reqs{dp_rank=\"0\"} 4\nsglang:num_queue_reqs{dp_rank=\"0\"} 0\n" +
				"sglang:num_running_reqs{dp_rank=\"1\"} 0\nsglang:num_queue_reqs{dp_rank=\"1\"} 2\n"},
			want: []*pb.ReplicaStats{{ReplicaId: "pod-a", Pressure: 0.5}, {ReplicaId: "pod-a", Pressure: 0.25}},
		},
		"of a page that is also that of others the own rank counts": {
			ranks: 1, first: 1, pages: []string{twoRanks},
			want: one(&pb.ReplicaStats{ReplicaId: "pod-a", Pressure: 1, CacheMemoryBytes: 2048, T2QueryTokens: 30, T2HitTokens: 3}),
		},
		"where ranks are not told apart they share the load, and one has the totals": {
			ranks: 3, pages: []string{twoRanks},
			want: []*pb.ReplicaStats{
				{ReplicaId: "pod-a", Pressure: 10. / 24, CacheMemoryBytes: 4096, T2QueryTokens: 100, T2HitTokens: 10},
				{ReplicaId: "pod-a", Pressure: 10. / 24},
				{ReplicaId: "pod-a", Pressure: 10. / 24},
			},
		},
		"a page without a load gauge is refused": {pages: []string{"vllm:num_requests_running 1\n"}, err: "vllm:num_requests_waiting"},
		"a load that is not a number is refused": {
			pages: []string{strings.ReplaceAll(vllmLoad, "} 3", "} NaN")}, err: "not finite",
		},
		"a page that is no metrics page is refused": {pages: []string{"<html>"}, err: "parse metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			var page atomic.Value
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, page.Load().(string))
			}))
			defer server.Close()
			s := New(Config{Replica: "pod-a", URL: server.URL, Scheme: c.scheme, Ranks: c.ranks, FirstRank: c.first, Ceiling: 8, Log: quiet()})
			var got []*pb.ReplicaStats
			var err error
			for _, p := range c.pages {
				page.Store(p)
				got, err = s.scrape(context.Background())
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAPageTellsOfTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		page  string
		ranks int
		want  Process
	}{
		"a page that says nothing": {vllmLoad, 1, Process{Ranks: []Rank{{}}}},
		"start, blocks, awake": {
			vllmLoad + "process_start_time_seconds 1795956757.5\nvllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"100\"} 1\n" +
				"vllm:engine_sleep_state{sleep_state=\"awake\"} 1\nvllm:engine_sleep_state{sleep_state=\"discard_all\"} 0\n", 1,
			Process{1795956757.5, []Rank{{GPUBlocks: 100}}},
		},
		"each rank by itself": {
			twoRanks + "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"100\"} 1\nvllm:cache_config_info{engine=\"1\",num_gpu_blocks=\"30\"} 1\n" +
				"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\nvllm:engine_sleep_state{engine=\"1\",sleep_state=\"awake\"} 1\n", 2,
			Process{0, []Rank{{true, 100}, {false, 30}}},
		},
		"a number that was set by hand is that of one rank": {
			twoRanks + "vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"260\",num_gpu_blocks_override=\"130\"} 1\n" +
				"vllm:cache_config_info{engine=\"1\",num_gpu_blocks=\"260\",num_gpu_blocks_override=\"None\"} 1\n", 2,
			Process{0, []Rank{{GPUBlocks: 130}, {GPUBlocks: 260}}},
		},
		"asleep":                          {vllmLoad + "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n", 1, Process{Ranks: []Rank{{Asleep: true}}}},
		"a number of blocks that is none": {vllmLoad + "vllm:cache_config_info{num_gpu_blocks=\"None\"} 1\n", 1, Process{Ranks: []Rank{{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.page) }))
			defer server.Close()
			var got Process
			s := New(Config{URL: server.URL, Ranks: c.ranks, Observe: func(p Process) { got = p }, Log: quiet()})
			if _, err := s.scrape(context.Background()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRunForgetsStatisticsThatStayAwayAndFindsThemAgain(t *testing.T) {
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, vllmLoad)
	}))
	defer server.Close()
	s := New(Config{Replica: "pod-a", URL: server.URL, Interval: time.Millisecond, Log: quiet()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	await := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s did not happen", what)
			}
		}
	}
	await("first statistics", func() bool { return s.Latest(0) != nil })
	down.Store(true)
	await("forgetting", func() bool { return s.Latest(0) == nil })
	down.Store(false)
	await("statistics again", func() bool { return s.Latest(0) != nil })
	if s.Failures.Load() < staleAfter {
		t.Errorf("%d failures counted", s.Failures.Load())
	}
}
