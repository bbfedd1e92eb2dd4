package client_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/client"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// A gateway asks before it routes, and routes by itself whenever it gets no hint.
func Example() {
	address, stop, err := startAggregator()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	tokens := make([]uint32, 128) // of the prompt
	if err := reportPrompt(address, "vllm-0", tokens); err != nil {
		fmt.Println(err)
		return
	}

	c, err := client.New(client.Config{
		Target: address, Deadline: 2 * time.Second, // a gateway would give it milliseconds
		Observe: func(a client.Answer) {
			if a.Misconfigured() {
				fmt.Println("names differ between gateway and engines:", a.Reason())
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	req := &pb.LookupRouteRequest{TenantId: "default", ModelId: "llama-3.1-8b", HashScheme: "vllm"}
	if err := client.SetPrompt(req, tokens, 16); err != nil {
		fmt.Println(err)
		return
	}
	route := func() {
		if best, ok := c.LookupRoute(context.Background(), req).Best(nil); ok {
			fmt.Printf("to %s, which holds %d tokens\n", best.ReplicaId, best.MatchedTokens)
		} else {
			fmt.Println("round robin")
		}
	}
	route()
	req.ModelId = "llama-3.1"
	route()
	// Output:
	// to vllm-0, which holds 128 tokens
	// names differ between gateway and engines: UNKNOWN_MODEL
	// round robin
}

// reportPrompt does what a node agent does: it says that a replica holds a prompt.
func reportPrompt(address, replica string, tokens []uint32) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := pb.NewInferenceCacheClient(conn).ReportCacheState(context.Background())
	if err != nil {
		return err
	}
	entry := &pb.PrefixEntry{}
	for _, h := range fingerprint.Chain(tokens, 16) {
		key := fingerprint.Key(h)
		entry.BlockHashes = append(entry.BlockHashes, key[:])
		entry.BlockTokenCounts = append(entry.BlockTokenCounts, 16)
	}
	if err := stream.Send(&pb.CacheStateUpdate{
		ReplicaId: replica, TenantId: "default", ModelId: "llama-3.1-8b", HashScheme: "vllm",
		Prefixes: []*pb.PrefixEntry{entry},
	}); err != nil {
		return err
	}
	_, err = stream.CloseAndRecv()
	return err
}
