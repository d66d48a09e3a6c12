// Package draw draws a fabric: as SVG, in rows of spines, leaves and hosts, and
// as a graph in the DOT language for Graphviz. Both show the rate and, if known, the
// load of every link. The same fabric and options give the same bytes.
package draw

import (
	"math"

	"testbed/topo"
	"testbed/topo/units"
)

// Options are the parts of a drawing besides the fabric. The zero value draws the fabric
// only.
type Options struct {
	// Title is the text above the drawing; empty for none.
	Title string
	// Load returns the load of a directed link, from 0 (idle) to 1 (at its rate); ok is
	// false if it is unknown. Values outside are clamped. nil means that all loads are
	// unknown.
	Load func(topo.LinkID) (load float64, ok bool)
	// Brief leaves out spines, leaves and hosts of a large fabric, and states their numbers. It has no effect on DOT.
	Brief bool
}

// load returns the load of a link, clamped to [0, 1]. NaN counts as unknown.
func (o Options) load(id topo.LinkID) (float64, bool) {
	if o.Load == nil {
		return 0, false
	}
	x, ok := o.Load(id)
	if !ok || math.IsNaN(x) {
		return 0, false
	}
	return min(max(x, 0), 1), true
}

// cable is both directions of a link, as drawn: up is toward the spine.
type cable struct {
	upper, lower string // names of the ends
	up, down     topo.Link
}

// alike reports whether one line represents both directions.
func (c cable) alike(o Options) bool {
	_, up := o.load(c.up.ID)
	_, down := o.load(c.down.ID)
	return c.up.Rate == c.down.Rate && c.up.Queue == c.down.Queue && c.up.Delay == c.down.Delay && !up && !down
}

// rates returns the label of a cable: its rate, or both rates if they differ.
func (c cable) rates() string {
	if c.up.Rate == c.down.Rate {
		return c.up.Rate.Rounded().String()
	}
	return "↑" + c.up.Rate.Rounded().String() + " ↓" + c.down.Rate.Rounded().String()
}

func hostCable(f *topo.Fabric, h topo.HostID) cable {
	return cable{topo.LeafName(f.RackOf(h)), f.HostName(h), f.Link(f.HostUp(h)), f.Link(f.HostDown(h))}
}

func uplinkCable(f *topo.Fabric, r topo.RackID, spine int) cable {
	return cable{topo.SpineName(spine), topo.LeafName(r), f.Link(f.LeafUp(r, spine)), f.Link(f.LeafDown(r, spine))}
}

// hostCables and uplinkCables return the cables of a fabric, in order of their links.
func hostCables(f *topo.Fabric) []cable {
	var all []cable
	for h := range topo.HostID(f.Hosts()) {
		all = append(all, hostCable(f, h))
	}
	return all
}

func uplinkCables(f *topo.Fabric) []cable {
	var all []cable
	for r := range topo.RackID(f.Racks()) {
		for s := range f.Spines() {
			all = append(all, uplinkCable(f, r, s))
		}
	}
	return all
}

// usual returns the most frequent label of the cables, the first one of equals. The
// drawing shows it once for all of them.
func usual(cables []cable) string {
	count := map[string]int{}
	best := ""
	for _, c := range cables {
		count[c.rates()]++
	}
	for _, c := range cables {
		if count[c.rates()] > count[best] {
			best = c.rates()
		}
	}
	return best
}

// fastest returns the highest rate of a fabric's links.
func fastest(f *topo.Fabric) units.Rate {
	var top units.Rate
	for _, l := range f.Links() {
		top = max(top, l.Rate)
	}
	return top
}

// thickness returns the thickness of a line, from 1 to most. It grows with the square
// root of the rate, so that rates a hundredfold apart are both visible.
func thickness(rate, top units.Rate, most float64) float64 {
	return max(1, most*math.Sqrt(float64(rate)/float64(top)))
}
