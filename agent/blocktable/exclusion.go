package blocktable

import (
	"github.com/inferencecache/inferencecache/kvevents"
)

// Exclusion says why a block is kept out of the index although the engine holds it.
type Exclusion uint8

// Reasons for exclusion.
const (
	included         Exclusion = iota
	ExcludedSalt               // a cache salt is part of its identity
	ExcludedMedia              // an image or another multimodal item is
	ExcludedEmbeds             // prompt embeddings are
	ExcludedExtra              // something the decoder does not know is
	ExcludedAdapter            // its adapter has no stable name
	ExcludedGroup              // its cache group does not hold whole prefixes (window, state space)
	ExcludedReused             // the engine used its hash for two different prefixes
	ExcludedContent            // its hash names its content alone, and it may begin a prompt or not
	exclusionReasons           // their number
)

var exclusionNames = [exclusionReasons]string{
	ExcludedSalt:    "salt",
	ExcludedMedia:   "multimodal",
	ExcludedEmbeds:  "prompt_embeds",
	ExcludedExtra:   "unknown_extra_key",
	ExcludedAdapter: "adapter_unmapped",
	ExcludedGroup:   "window_group",
	ExcludedReused:  "hash_reused",
	ExcludedContent: "hash_of_content",
}

// String returns the value of the metric label.
func (e Exclusion) String() string { return exclusionNames[e] }

// exclusionOf reads what the event says of one block beside its tokens.
func exclusionOf(x kvevents.Extra) Exclusion {
	switch {
	case x&kvevents.ExtraSalt != 0:
		return ExcludedSalt
	case x&kvevents.ExtraMultimodal != 0:
		return ExcludedMedia
	case x&kvevents.ExtraEmbeds != 0:
		return ExcludedEmbeds
	case x != 0:
		return ExcludedExtra
	default:
		return included
	}
}

// adapterOf returns the number of the event's adapter. An adapter id without a name is refused: ids
// are given by load order, so the same id may be another adapter on another replica.
func (t *Table) adapterOf(e *kvevents.Event) (uint16, Exclusion) {
	name := e.LoRAName
	if name == "" {
		if !e.HasLoRAID {
			return 0, included
		}
		if name = t.cfg.LoRANames[e.LoRAID]; name == "" {
			return 0, ExcludedAdapter
		}
	}
	n, ok := t.adapterNumber(name)
	if !ok {
		return 0, ExcludedAdapter
	}
	return n, included
}

// identityOf returns the number of the event's adapter, and what beside it and the tokens identifies all of
// its blocks.
func (t *Table) identityOf(e *kvevents.Event) (uint16, Exclusion) {
	adapter, why := t.adapterOf(e)
	if adapter != 0 || why != included || e.Salted || e.Extra != nil {
		t.chunks.mixed = true
	}
	switch {
	case why != included:
	case !mainAttention(e.SpecKind):
		why = ExcludedGroup
	case e.Salted:
		why = ExcludedSalt
	}
	return adapter, why
}

// mainAttention says whether a cache group keeps every block of a prefix, so that holding a block
// there means being able to serve it. Releases that name groups without their kinds leave that open;
// retier sees to it that no one of their groups decides alone.
func mainAttention(kind string) bool {
	switch kind {
	case "", "full_attention", "mla_attention", "sink_full_attention":
		return true
	default:
		return false
	}
}

// mediumOf folds the engine's medium name into what the table counts. Copies on disk and in remote
// storage do not count: engines announce them and never their removal.
func (t *Table) mediumOf(name string) (at medium, counts bool) {
	switch kvevents.MediumTier(name) {
	case kvevents.MediumT1:
		return onGPU, true
	case kvevents.MediumT2:
		return offload, t.cfg.Tier2 == Tier2Observed
	default:
		return 0, false
	}
}
