package alloc

import "math"

// layer is the result of a step for a demand in compact form: each flow of some parts gets
// the minimum share of the links on its path. Demand.write converts it to rates per flow
// when they are requested.
type layer struct {
	p     parts
	share []float64 // by slot
}

// lay adds a layer: each flow gets the minimum share of the links on its path in addition to
// its rate. share is by slot, and is copied.
func (d *Demand) lay(p parts, share []float64) {
	n := len(d.layers)
	if n == cap(d.layers) {
		d.layers = append(d.layers, layer{})
	}
	d.layers = d.layers[:n+1]
	at := &d.layers[n]
	at.p = p
	at.share = append(append(at.share[:0], share...), math.Inf(1))
}

// write converts the layers to rates per flow, in rate and moving.
func (d *Demand) write() {
	if len(d.layers) == 0 {
		return
	}
	for i := range d.layers {
		at := &d.layers[i]
		to := d.reserve(d.serves(at.p))
		d.grid.pour(d, at, &to)
		d.raised(to)
	}
	d.layers = d.layers[:0]
	d.sort()
}

// pour adds the rates of a layer to the rates of its flows.
func (g *grid) pour(d *Demand, at *layer, to *raising) {
	p, share := at.p, at.share
	g.open, g.give, g.giveInside = sized(g.open, g.width), roomy(g.give, len(g.cols)), roomy(g.giveInside, len(g.corePaths))
	for c, l := range g.cols {
		g.give[c] = share[d.slot[l]]
		if g.give[c] > 0 {
			set(g.open, int32(c))
		}
	}
	limits := g.core && g.inner == nil // inner links may stop flows
	for w, corePath := range g.corePaths {
		g.giveInside[w] = min(share[d.slot[g.mids[corePath[0]]]], share[d.slot[g.mids[corePath[1]]]])
		limits = limits || g.giveInside[w] == 0
	}
	fresh := to.n == 0 && !limits // no flow has a rate yet, and all will get one
	for r, from := range g.rows {
		most := share[d.slot[from]]
		if most == 0 {
			continue
		}
		for v, cols := range g.open {
			w := r*g.width + v
			for b := g.of(w, p) & cols; b != 0; {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first, give := g.place(w, low), g.give[v*64+low:][:n]
				switch {
				case fresh && g.core:
					to.runInside(g.inner[first:int(first)+n], first, most, give, g.giveInside)
				case fresh:
					to.run(first, most, give)
				default:
					for j, rate := range give {
						place := first + int32(j)
						to.raise(place, g.least(d, place, min(rate, most), share))
					}
				}
			}
		}
	}
}

// least returns the rate of a flow that the ends of its path limit to rate, limited by its
// inner links too.
func (g *grid) least(d *Demand, place int32, rate float64, share []float64) float64 {
	switch {
	case g.inner != nil:
		rate = min(rate, g.giveInside[g.inner[place]])
	case g.core:
		for _, l := range d.route(place) {
			rate = min(rate, share[d.slot[l]])
		}
	}
	return rate
}

// run sets the rates of consecutive flows without a rate, from index place on: each to the
// share of its other end, at most to most.
func (r *raising) run(place int32, most float64, give []float64) {
	rate, moving := r.rate[place:int(place)+len(give)], r.moving[r.n:r.n+len(give)]
	for j, v := range give {
		rate[j] = min(v, most)
		moving[j] = place + int32(j)
	}
	r.n += len(give)
}

// runInside is run for flows with inner links.
func (r *raising) runInside(inner []uint16, place int32, most float64, give, giveInside []float64) {
	rate, moving := r.rate[place:int(place)+len(give)], r.moving[r.n:r.n+len(give)]
	inner = inner[:len(give)]
	for j, v := range give {
		rate[j] = min(v, most, giveInside[inner[j]])
		moving[j] = place + int32(j)
	}
	r.n += len(give)
}
