package ingest

import (
	"encoding/binary"
	"math"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// runs returns what an entry says as runs: its chain, and the whole prefix if it names one too. What
// is malformed is dropped; a malformed chain takes the whole entry with it.
func (s *Service) runs(e *pb.PrefixEntry, adapter string, r report) []index.Run {
	if len(adapter) > contract.MaxNameBytes {
		r.drop(contract.NameTooLong, 1)
		return nil
	}
	base := index.Run{Tier: contract.TierIn(e.GetTier()), Evidence: index.At(r.at)}
	var runs []index.Run
	chained := len(e.GetBlockHashes()) > 0 || len(e.GetBlockTokenCounts()) > 0
	if chained {
		if reason := checkChain(e.GetBlockHashes(), e.GetBlockTokenCounts()); reason != "" {
			r.drop(reason, 1)
			return nil
		}
		runs = chainRuns(e.GetBlockHashes(), e.GetBlockTokenCounts(), base)
	}
	if chained && len(e.GetPrefixHash()) == 0 {
		return runs
	}
	if reason := checkPrefix(e); reason != "" {
		r.drop(reason, 1)
		return runs
	}
	base.Keys, base.BlockTokens = keys([][]byte{e.GetPrefixHash()}), e.GetTokenCount()
	return append(runs, base)
}

func checkPrefix(e *pb.PrefixEntry) string {
	switch {
	case len(e.GetPrefixHash()) == 0:
		return contract.EmptyHash
	case len(e.GetPrefixHash()) > contract.MaxHashBytes:
		return contract.HashTooLong
	case e.GetTokenCount() <= 0:
		return contract.InvalidTokenCount
	default:
		return ""
	}
}

func checkChain(hashes [][]byte, counts []int32) string {
	if len(hashes) != len(counts) {
		return contract.RaggedChain
	}
	var total int64
	for i, h := range hashes {
		switch {
		case len(h) == 0:
			return contract.EmptyBlockHash
		case len(h) > contract.MaxHashBytes:
			return contract.HashTooLong
		case counts[i] <= 0:
			return contract.InvalidTokenCount
		}
		if total += int64(counts[i]); total > math.MaxInt32 {
			return contract.TokenOverflow
		}
	}
	return ""
}

// chainRuns cuts a chain, which is well formed, where the block size changes.
func chainRuns(hashes [][]byte, counts []int32, base index.Run) []index.Run {
	var runs []index.Run
	for len(hashes) > 0 {
		n := 1
		for n < len(hashes) && counts[n] == counts[0] {
			n++
		}
		run := base
		run.Keys, run.BlockTokens = keys(hashes[:n]), counts[0]
		runs = append(runs, run)
		base.StartTokens += counts[0] * int32(n) // the chain's sum fits
		if last := hashes[n-1]; len(last) == 8 {
			base.Parent, base.HasParent = binary.BigEndian.Uint64(last), true
		} else {
			base.Parent, base.HasParent = 0, false
		}
		hashes, counts = hashes[n:], counts[n:]
	}
	return runs
}

// keys copies hashes into the index's form.
func keys(hashes [][]byte) index.Keys {
	words := make([]uint64, 0, len(hashes))
	for _, h := range hashes {
		if len(h) != 8 {
			return index.Keys{Wide: wide(hashes)}
		}
		words = append(words, binary.BigEndian.Uint64(h))
	}
	return index.Keys{Words: words}
}

func wide(hashes [][]byte) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = string(h)
	}
	return out
}
