package index

// MatchGrowing is Match for a chain of total keys that cost time to make. It asks for the first key,
// then for more and more of them (keys returns the first n), and stops as soon as no cache holds all
// that it has asked for: so a miss costs one key, and a full match little more than one lookup.
func MatchGrowing(x Index, q Query, total int, keys func(n int) Keys, dst []Match) []Match {
	start := len(dst)
	for n := 1; total > 0; n *= 8 {
		n = min(n, total)
		q.Keys = keys(n)
		dst = x.Match(q, dst[:start])
		longest := 0
		for _, m := range dst[start:] {
			longest = max(longest, m.Blocks)
		}
		if longest < n || n == total {
			break
		}
	}
	return dst
}
