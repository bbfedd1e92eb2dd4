package uplink

import (
	"slices"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// views lists all views of the cache.
func (c *Cache) views() []*pb.View {
	if len(c.Aliases) == 0 {
		return []*pb.View{c.View}
	}
	return append([]*pb.View{c.View}, c.Aliases...)
}

// has says whether one of the numbers is that of a view of the cache.
func (c *Cache) has(refs []uint32) bool {
	return slices.ContainsFunc(c.views(), func(v *pb.View) bool { return slices.Contains(refs, v.Ref) })
}

// filled says how much of what can be repeated there is in a delta.
type filled struct{ cleared, changes, confirms, stats int }

func fill(d *pb.Delta) filled {
	return filled{len(d.Cleared), len(d.Changes), len(d.Confirms), len(d.Stats)}
}

// repeat says again, of each alias, what has been put into the delta since of the view. The blocks
// themselves are shared, not copied.
func (c *Cache) repeat(d *pb.Delta, since filled) {
	now := fill(d)
	for _, alias := range c.Aliases {
		for range d.Cleared[since.cleared:now.cleared] {
			d.Cleared = append(d.Cleared, alias.Ref)
		}
		for _, ch := range d.Changes[since.changes:now.changes] {
			d.Changes = append(d.Changes, &pb.Change{View: alias.Ref, AdapterId: ch.AdapterId, Stored: ch.Stored, Removed: ch.Removed})
		}
		for _, cf := range d.Confirms[since.confirms:now.confirms] {
			d.Confirms = append(d.Confirms, &pb.Confirm{
				View: alias.Ref, AdapterId: cf.AdapterId, T1Only: cf.T1Only,
				T1Count: cf.T1Count, T1Xor: cf.T1Xor, T2Count: cf.T2Count, T2Xor: cf.T2Xor,
			})
		}
		for _, st := range d.Stats[since.stats:now.stats] {
			d.Stats = append(d.Stats, &pb.ViewStats{View: alias.Ref, Stats: st.Stats})
		}
	}
}
