package index_test

import (
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/index"
)

func TestAt_ClampsToItsRange(t *testing.T) {
	for name, c := range map[string]struct {
		in   time.Time
		want index.Instant
	}{
		"before 1970":     {time.Unix(-1, 0), 0},
		"a plain instant": {time.Unix(1_800_000_000, 999), 1_800_000_000},
		"after 2106":      {time.Unix(1<<40, 0), 1<<32 - 1},
	} {
		if got := index.At(c.in); got != c.want {
			t.Errorf("%s: At(%v) = %d, want %d", name, c.in, got, c.want)
		}
	}
}

func TestInstant_BeforeStopsAtZero(t *testing.T) {
	if got := index.Instant(100).Before(30 * time.Second); got != 70 {
		t.Errorf("Before = %d, want 70", got)
	}
	if got := index.Instant(10).Before(time.Minute); got != 0 {
		t.Errorf("Before = %d, want 0", got)
	}
}

func TestTokensThrough_Saturates(t *testing.T) {
	if got := index.TokensThrough(10, 16, 2); got != 42 {
		t.Errorf("TokensThrough = %d, want 42", got)
	}
	if got := index.TokensThrough(1<<31-1, 1<<31-1, 1<<30); got != 1<<31-1 {
		t.Errorf("TokensThrough = %d, want the largest int32", got)
	}
}

func TestDigest_AddUndoesItself(t *testing.T) {
	var d index.Digest
	d.Add(index.T1, 5, 1)
	d.Add(index.T3, 9, 1)
	if d.Count[0] != 1 || d.XOR[0] != 5 || d.Count[1] != 0 {
		t.Errorf("digest = %+v", d)
	}
	d.Add(index.T1, 5, -1)
	if d != (index.Digest{}) {
		t.Errorf("digest = %+v, want zero", d)
	}
}
