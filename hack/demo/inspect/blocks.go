// Package inspect compares what the index knows with what the engines hold, and reads the agent's
// counters.
package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/report"
)

// Block is one block in the cache of one engine.
type Block struct {
	Rank    int32
	Adapter string
	Hash    uint64
}

// Blocks is a set of blocks.
type Blocks map[Block]struct{}

// Add puts a block into the set.
func (b Blocks) Add(block Block) { b[block] = struct{}{} }

// Known returns what the index holds, by replica.
func Known(ctx context.Context, client icpb.CacheInspectionClient) (map[string]Blocks, error) {
	stream, err := client.DumpIndex(ctx, &icpb.DumpIndexRequest{})
	if err != nil {
		return nil, fmt.Errorf("dump the index: %w", err)
	}
	known := make(map[string]Blocks)
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return known, nil
		}
		if err != nil {
			return nil, fmt.Errorf("dump the index: %w", err)
		}
		for _, e := range batch.GetEntries() {
			if len(e.GetHash()) != 8 {
				return nil, fmt.Errorf("dump the index: the hash %x of %s has %d bytes, want 8", e.GetHash(), e.GetReplicaId(), len(e.GetHash()))
			}
			if known[e.GetReplicaId()] == nil {
				known[e.GetReplicaId()] = make(Blocks)
			}
			known[e.GetReplicaId()].Add(Block{e.GetRank(), e.GetAdapterId(), binary.BigEndian.Uint64(e.GetHash())})
		}
	}
}

// Compare counts in what the two sets of one engine differ.
func Compare(engine string, held, known Blocks) report.Cache {
	c := report.Cache{Engine: engine, Held: len(held), Known: len(known)}
	for b := range held {
		if _, ok := known[b]; !ok {
			c.Missing++
		}
	}
	c.Extra = c.Known - (c.Held - c.Missing)
	return c
}
