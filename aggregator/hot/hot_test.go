package hot

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Unix(1_700_000_000, 0)

func use(c *Counter, model string, hash uint64, times int) {
	for range times {
		c.Use("t", model, hash)
	}
}

func TestAPrefixIsHotFromANumberOfUsesOn(t *testing.T) {
	c := New(3, t0)
	use(c, "m", 1, 2)
	use(c, "m", 2, 3)
	use(c, "m", 3, 4)
	use(c, "n", 4, 3)
	if m, n, all := c.Hot("t", "m"), c.Hot("t", "n"), c.Total(); m != 2 || n != 1 || all != 3 {
		t.Errorf("%d, %d, of all %d", m, n, all)
	}
	if got := c.Hot("u", "m"); got != 0 {
		t.Errorf("%d of a tenant that asked for nothing", got)
	}
}

func TestUsesAreForgotten(t *testing.T) {
	c := New(4, t0)
	use(c, "m", 1, 9)
	use(c, "n", 2, 1)
	c.Age(t0.Add(HalfLife - 1))
	if got := c.Hot("t", "m"); got != 1 {
		t.Errorf("%d before the half-life", got)
	}
	c.Age(t0.Add(HalfLife))
	c.Age(t0.Add(HalfLife + time.Minute)) // not yet again
	if got := c.Hot("t", "m"); got != 1 {
		t.Errorf("%d after one half-life: 9 uses are 4", got)
	}
	if models := len(*c.models.Load()); models != 1 {
		t.Errorf("%d models are remembered, one of them was not used since", models)
	}
	c.Age(t0.Add(2 * HalfLife))
	if got := c.Hot("t", "m"); got != 0 {
		t.Errorf("%d after two", got)
	}
}

func TestWhatIsCountedIsBounded(t *testing.T) {
	c := New(4, t0)
	use(c, "m", 1<<40, 1000)
	for i := range uint64(2 * shards * maxPerShard) {
		c.Use("t", "m", i)
		if i%100 == 0 {
			use(c, "m", 1<<40, 10) // a prefix that stays in use
		}
	}
	for i := range c.shards {
		if n := len(c.shards[i].counts); n > maxPerShard {
			t.Fatalf("a shard has %d prefixes", n)
		}
	}
	if got := c.Hot("t", "m"); got != 1 {
		t.Errorf("%d hot prefixes, want the one that is used again and again", got)
	}
	for i := range maxModels + 100 {
		use(c, fmt.Sprint(i), 1, 1)
	}
	if models := len(*c.models.Load()); models > maxModels {
		t.Errorf("%d models", models)
	}
}

func TestCountsAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type prefix struct {
			model string
			hash  uint64
		}
		c, now, model := New(3, t0), t0, map[prefix]int{}
		t.Repeat(map[string]func(*rapid.T){
			"use": func(t *rapid.T) {
				// Hashes of different models differ, as they do where they are made of their partition.
				m := rapid.IntRange(0, 2).Draw(t, "model")
				p := prefix{fmt.Sprint(m), uint64(10*m + rapid.IntRange(0, 4).Draw(t, "hash"))}
				c.Use("t", p.model, p.hash)
				model[p]++
			},
			"age": func(*rapid.T) {
				now = now.Add(HalfLife)
				c.Age(now)
				for p, n := range model {
					model[p] = n / 2
				}
			},
			"": func(t *rapid.T) {
				want := map[string]int64{}
				for p, n := range model {
					if n >= 3 {
						want[p.model]++
					}
				}
				for _, m := range []string{"0", "1", "2"} {
					if got := c.Hot("t", m); got != want[m] {
						t.Fatalf("model %s has %d hot prefixes, want %d", m, got, want[m])
					}
				}
			},
		})
	})
}

func TestManyUseItAtOnce(t *testing.T) {
	c := New(1, t0)
	var work sync.WaitGroup
	for w := range 8 {
		work.Go(func() {
			for i := range 1000 {
				c.Use("t", fmt.Sprint(w%2), uint64(i%100+1000*(w%2)))
				if i%500 == 0 {
					c.Total()
					c.Age(t0.Add(time.Duration(i) * time.Hour))
				}
			}
		})
	}
	work.Wait()
}

func TestAUseOfAKnownPrefixAllocatesNothing(t *testing.T) {
	c := New(0, t0)
	c.Use("t", "m", 1)
	if n := testing.AllocsPerRun(100, func() { c.Use("t", "m", 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkUse(b *testing.B) {
	c := New(0, t0)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := uint64(0); pb.Next(); i++ {
			c.Use("t", "m", i%4096)
		}
	})
}
