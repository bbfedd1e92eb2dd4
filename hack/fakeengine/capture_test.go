package fakeengine

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// TestCaptureEncodesAsRecorded decodes batches that real releases published and encodes them again: apart
// from the timestamp, byte for byte the same. It needs a folder of recorded streams.
func TestCaptureEncodesAsRecorded(t *testing.T) {
	dir := os.Getenv("INFERENCECACHE_CAPTURES")
	if dir == "" {
		t.Skip("INFERENCECACHE_CAPTURES names no folder of recorded streams")
	}
	for stem, change := range map[string]func(*Config){
		"vllm-0.10.2-pool":       func(c *Config) { c.EventForm, c.ArrayFields, c.BlockSize = EventArray, 7, 16 },
		"vllm-0.15.1-base":       func(c *Config) { c.EventForm, c.ArrayFields, c.BlockSize = EventArray, 8, 32 },
		"vllm-0.23.0-base":       func(c *Config) { c.EventForm, c.ArrayFields, c.BlockSize = EventArray, 12, 32 },
		"vllm-0.23.0-pool-bytes": func(c *Config) { c.EventForm, c.ArrayFields, c.BlockSize, c.HashForm = EventArray, 12, 16, HashBytes },
		"vllm-0.26.0-base":       func(c *Config) { c.BlockSize = 32 },
		"vllm-0.32.0-dp2":        func(c *Config) { c.BlockSize = 32 },
	} {
		t.Run(stem, func(t *testing.T) {
			cfg := DefaultConfig()
			change(&cfg)
			same := 0
			for _, want := range recordedPayloads(t, filepath.Join(dir, stem+".jsonl.gz")) {
				events, rank, ok := recordedEvents(t, want)
				if !ok {
					continue
				}
				got, err := newEncoder(&cfg, rank).encode(batch{time.Now(), events})
				must(t, err)
				const stamp = 10 // array of 3, then a float of 9 bytes
				if !bytes.Equal(got[stamp:], want[stamp:]) {
					t.Fatalf("got  %x\nwant %x", got, want)
				}
				same++
			}
			t.Logf("%d batches are encoded as recorded", same)
			if same < 20 {
				t.Errorf("only %d batches could be compared", same)
			}
		})
	}
}

func recordedPayloads(t *testing.T, path string) (payloads [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	lines := json.NewDecoder(z)
	for lines.More() {
		var line struct {
			Port   string
			Frames []string
		}
		must(t, lines.Decode(&line))
		if line.Port == "pub" && len(line.Frames) == 3 {
			payload, err := hex.DecodeString(line.Frames[2])
			must(t, err)
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// recordedEvents turns a recorded batch into the engine's terms. It returns false for events with fields
// that this engine does not have: images and sessions.
func recordedEvents(t *testing.T, payload []byte) (events []event, rank int, ok bool) {
	t.Helper()
	var outer []any
	must(t, msgpack.Unmarshal(payload, &outer))
	for _, recorded := range outer[1].([]any) {
		fields := named(recorded)
		if fields["session_id"] != nil {
			return nil, 0, false
		}
		ev := event{hashes: recordedHashes(fields["block_hashes"])}
		switch fields["type"] {
		case "AllBlocksCleared":
			ev.kind = allCleared
		case "BlockRemoved":
			ev.kind = blockRemoved
		case "BlockStored":
			if ok := recordedStore(fields, &ev); !ok {
				return nil, 0, false
			}
		}
		events = append(events, ev)
	}
	return events, int(unsigned(outer[2])), true
}

func recordedStore(fields map[string]any, ev *event) bool {
	if p := fields["parent_block_hash"]; p != nil {
		parent := recordedHashes([]any{p})[0]
		ev.parent, ev.first = &parent, 1
	}
	for _, id := range fields["token_ids"].([]any) {
		ev.tokens = append(ev.tokens, uint32(unsigned(id)))
	}
	if id := fields["lora_id"]; id != nil {
		ev.id.lora, _ = fields["lora_name"].(string)
		if ev.id.lora == "" {
			ev.id.lora = "unnamed in this release"
		}
		ev.id.loraID = int(unsigned(id))
	}
	extra, _ := fields["extra_keys"].([]any)
	for i, keys := range extra {
		for _, key := range anySlice(keys) {
			text, isText := key.(string)
			switch {
			case !isText:
				return false
			case text != ev.id.lora && i == 0 && ev.first == 0:
				ev.id.salt = text
			case text != ev.id.lora:
				return false
			}
		}
	}
	return true
}

func anySlice(v any) []any {
	s, _ := v.([]any)
	return s
}

func recordedHashes(v any) (hashes []blockHash) {
	for _, h := range anySlice(v) {
		if digest, ok := h.([]byte); ok {
			hashes = append(hashes, blockHash(digest))
			continue
		}
		hashes = append(hashes, wireHash(unsigned(h)))
	}
	return hashes
}
