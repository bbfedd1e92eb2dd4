package blocktable

import "maps"

// NameAdapters says what the engine's adapter ids stand for from here on. Blocks that were kept out of the
// index because their adapter had no name stay out for as long as they live.
func (t *Table) NameAdapters(names map[int64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.LoRANames = maps.Clone(names)
}
