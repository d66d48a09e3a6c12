package fault

import (
	"testbed/topo"
)

// Routes is which spines each leaf sends over to each rack, as links go down and
// come back. A leaf knows at once of its own links. Of the links between a spine
// and another leaf it knows what a routing protocol has told it: the owner calls
// Tell when that has happened.
type Routes struct {
	f    *topo.Fabric
	down []bool // by LinkID: the link passes nothing
	told []bool // by LinkID: other leaves know that it does not
}

// NewRoutes has all links up.
func NewRoutes(f *topo.Fabric) *Routes {
	return &Routes{f: f, down: make([]bool, len(f.Links())), told: make([]bool, len(f.Links()))}
}

// SetLink takes down one direction of a link, or brings it back.
func (r *Routes) SetLink(l topo.LinkID, up bool) { r.down[l] = !up }

// Up tells whether a link passes packets.
func (r *Routes) Up(l topo.LinkID) bool { return !r.down[l] }

// Tell makes what is true of a link now known to all leaves.
func (r *Routes) Tell(l topo.LinkID) { r.told[l] = r.down[l] }

// Own are the spines whose link to the leaf of a rack is up.
func (r *Routes) Own(rack topo.RackID) []int {
	var out []int
	for s := range r.f.Spines() {
		if !r.down[r.f.LeafUp(rack, s)] {
			out = append(out, s)
		}
	}
	return out
}

// Spines are those that the leaf of src sends over to dst, in order: those it
// reaches and that, as far as it was told, reach dst. Where it was told of none
// it goes on sending over all that it reaches.
func (r *Routes) Spines(src, dst topo.RackID) []int {
	own := r.Own(src)
	var out []int
	for _, s := range own {
		if !r.told[r.f.LeafDown(dst, s)] {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return own
	}
	return out
}

// Spine is the spine of a flow by its hash: that of topo.Fabric.SpineFor where
// its leaf sends over it, and one of those the leaf does send over otherwise. A
// leaf that reaches no spine keeps the flow's own. ok is false where the flow
// stays in its rack.
func (r *Routes) Spine(src, dst topo.HostID, hash uint32) (spine int, ok bool) {
	spine, ok = r.f.SpineFor(src, dst, hash)
	if !ok {
		return 0, false
	}
	use := r.Spines(r.f.RackOf(src), r.f.RackOf(dst))
	for _, s := range use {
		if s == spine {
			return spine, true
		}
	}
	if len(use) == 0 {
		return spine, true
	}
	// The quotient is what SpineFor left of the hash.
	return use[int(hash/uint32(r.f.Spines()))%len(use)], true
}

// Path is the links from src to dst over a spine, which is not looked at inside a
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
