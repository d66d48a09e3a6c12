// Package draw draws a fabric: as SVG, in rows of spines, leaves and hosts, and
// as a graph in the DOT language for Graphviz. Both tell the rate of every link
// and, where it is known, how loaded it is. The same fabric and options give the
// same bytes.
//
// It does not know where loads come from, and it lays out leaf-spines only.
package draw

import (
	"math"

	"testbed/topo"
	"testbed/topo/units"
)

// Options are what a drawing shows besides the fabric. The zero value shows the
// fabric alone.
type Options struct {
	// Title is written above the drawing; without it there is none.
	Title string
	// Load is how busy a directed link is, from 0, idle, to 1, at its rate; ok is
	// false where that is not known. What is outside is drawn as the nearest of
	// the two. nil is as if none were known.
	Load func(topo.LinkID) (load float64, ok bool)
}

// load is the load of a link within [0, 1]. No number is no load that is known.
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

// cable is both directions of a link, as they are drawn: up is toward the spine.
type cable struct {
	upper, lower string // names of the ends
	up, down     topo.Link
}

// alike tells whether one line stands for both directions.
func (c cable) alike(o Options) bool {
	_, up := o.load(c.up.ID)
	_, down := o.load(c.down.ID)
	return c.up.Rate == c.down.Rate && !up && !down
}

// rates is what is written beside a cable: its rate, or both where they differ.
func (c cable) rates() string {
	if c.up.Rate == c.down.Rate {
		return c.up.Rate.String()
	}
	return "↑" + c.up.Rate.String() + " ↓" + c.down.Rate.String()
}

func hostCable(f *topo.Fabric, h topo.HostID) cable {
	return cable{topo.LeafName(f.RackOf(h)), f.HostName(h), f.Link(f.HostUp(h)), f.Link(f.HostDown(h))}
}

func uplinkCable(f *topo.Fabric, r topo.RackID, spine int) cable {
	return cable{topo.SpineName(spine), topo.LeafName(r), f.Link(f.LeafUp(r, spine)), f.Link(f.LeafDown(r, spine))}
}

// hostCables and uplinkCables are a fabric's, in order of their links.
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

// usual is what is written beside most of the cables, the first of equals: it is
// written once for all of them.
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

// fastest is the highest rate of a fabric's links.
func fastest(f *topo.Fabric) units.Rate {
	var top units.Rate
	for _, l := range f.Links() {
		top = max(top, l.Rate)
	}
	return top
}

// thickness of a line, from 1 to most: by the square root, so that rates a
// hundredfold apart can both be seen.
func thickness(rate, top units.Rate, most float64) float64 {
	return max(1, most*math.Sqrt(float64(rate)/float64(top)))
}
