package fault

import (
	"slices"

	"testbed/topo"
)

// Routes holds the spines that each leaf uses toward each rack, as links go down and come
// back. A leaf knows the state of its own links at once. It knows that of the links
// between a spine and another leaf from a routing protocol: the owner calls
// Propagate when that has converged.
type Routes struct {
	f     *topo.Fabric
	down  []bool // by LinkID: the link passes nothing
	known []bool // by LinkID: down, as known to other leaves
}

// NewRoutes returns routes with all links up.
func NewRoutes(f *topo.Fabric) *Routes {
	return &Routes{f: f, down: make([]bool, len(f.Links())), known: make([]bool, len(f.Links()))}
}

// SetLink takes down one direction of a link, or brings it back.
func (r *Routes) SetLink(l topo.LinkID, up bool) { r.down[l] = !up }

// Up reports whether a link passes packets.
func (r *Routes) Up(l topo.LinkID) bool { return !r.down[l] }

// Propagate makes the current state of a link known to all leaves.
func (r *Routes) Propagate(l topo.LinkID) { r.known[l] = r.down[l] }

// Own returns the spines whose link from the leaf of a rack is up.
func (r *Routes) Own(rack topo.RackID) []int {
	var out []int
	for s := range r.f.Spines() {
		if !r.down[r.f.LeafUp(rack, s)] {
			out = append(out, s)
		}
	}
	return out
}

// Spines returns the spines that the leaf of src uses toward dst, in order: those that it
// reaches and that, as far as it knows, reach dst. If it knows of none, it continues to
// use all that it reaches.
func (r *Routes) Spines(src, dst topo.RackID) []int {
	own := r.Own(src)
	var out []int
	for _, s := range own {
		if !r.known[r.f.LeafDown(dst, s)] {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return own
	}
	return out
}

// Spine returns the spine of a flow by its hash: that of topo.Fabric.SpineFor if its leaf
// uses it, and otherwise one of those that the leaf uses. A leaf that reaches no spine
// keeps the flow's own. ok is false if the flow stays in its rack.
func (r *Routes) Spine(src, dst topo.HostID, hash uint32) (spine int, ok bool) {
	spine, ok = r.f.SpineFor(src, dst, hash)
	if !ok {
		return 0, false
	}
	from, to := r.f.RackOf(src), r.f.RackOf(dst)
	if !r.down[r.f.LeafUp(from, spine)] && !r.known[r.f.LeafDown(to, spine)] {
		return spine, true
	}
	use := r.Spines(from, to)
	if len(use) == 0 || slices.Contains(use, spine) {
		return spine, true
	}
	// SpineFor used the remainder of the hash.
	return use[int(hash/uint32(r.f.Spines()))%len(use)], true
}

// Path returns the links from src to dst through a spine, which is ignored within a
// rack.
func Path(f *topo.Fabric, src, dst topo.HostID, spine int) []topo.LinkID {
	switch a, b := f.RackOf(src), f.RackOf(dst); {
	case src == dst:
		return nil
	case a == b:
		return []topo.LinkID{f.HostUp(src), f.HostDown(dst)}
	default:
		return []topo.LinkID{f.HostUp(src), f.LeafUp(a, spine), f.LeafDown(b, spine), f.HostDown(dst)}
	}
}
