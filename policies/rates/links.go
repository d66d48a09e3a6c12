package rates

import (
	"math"
	"math/bits"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// What a demand has to do with each link: how many flows cross it, and what they
// have left.

// number counts anew what is kept by slot.
func (d *Demand) number() {
	for l := range d.slot {
		d.slot[l] = int32(len(d.links))
	}
	for s, l := range d.links {
		d.slot[l] = int32(s)
	}
	n := len(d.links) + 1
	d.count, d.pilots, d.bits = make([]int32, n), make([]int32, n), make([]float64, n)
	d.states, d.listed = make([]policies.LinkState, 0, n), false
	d.stateOf, d.slotOf = make([]int32, n), make([]int32, 0, n)
	d.unlimited, d.piloting = 0, 0
	for w, set := range d.live {
		for ; set != 0; set &= set - 1 {
			d.load(w*64+bits.TrailingZeros64(set), 1)
		}
	}
	if d.sized {
		d.sum()
	}
}

// load adds a flow to the counts of its links, or takes it off: n is 1 or -1.
func (d *Demand) load(place int, n int32) {
	p := d.path[place*d.stride : (place+1)*d.stride]
	if p[0] == d.none {
		d.unlimited += int(n)
	}
	pilot := d.Pilot(place)
	if pilot {
		d.piloting += int(n)
	}
	for _, l := range p {
		s := d.slot[l]
		d.count[s] += n
		if pilot {
			d.pilots[s] += n
		}
		if l != d.none {
			d.recount(s)
		}
	}
}

// recount brings what Links says of the flows of a slot up to date.
func (d *Demand) recount(slot int32) {
	if !d.listed {
		return
	}
	at := d.stateOf[slot]
	if at < 0 || d.count[slot] == 0 {
		d.listed = false
		return
	}
	d.states[at].Flows, d.states[at].Pilots = int(d.count[slot]), int(d.pilots[slot])
}

// sum adds up what is left by slot.
func (d *Demand) sum() {
	clear(d.bits)
	d.whole = 0
	for i, left := range d.Left {
		d.whole += left
		for _, l := range d.path[i*d.stride : (i+1)*d.stride] {
			d.bits[d.slot[l]] += left
		}
	}
	d.summed()
}

// lefts is what unfinished flows of some parts have left, by slot, added up flow by
// flow: bits, which follow every Advance, may have come away from it by rounding.
type lefts struct {
	bits  []float64
	valid bool // no flow's has changed since
}

// left is what unfinished flows of some parts have left, by slot.
func (d *Demand) left(p parts) []float64 {
	s := &d.lefts[p]
	if s.valid {
		return s.bits
	}
	s.bits, s.valid = sized(s.bits, len(d.links)+1), true
	if g := d.grid; g != nil && (!g.core || g.inner != nil) {
		g.left(d, p, s.bits)
		return s.bits
	}
	// Flows of one sender follow one another: its sum is kept at hand.
	k, path, slot, n := d.stride, d.path, d.slot, s.bits
	first, sum := d.none, 0.0
	d.each(p, func(place int) {
		v := d.Left[place]
		at := place * k
		if path[at] != first {
			n[slot[first]] += sum
			first, sum = path[at], 0
		}
		sum += v
		for _, l := range path[at+1 : at+k] {
			n[slot[l]] += v
		}
	})
	n[slot[first]] += sum
	n[len(d.links)] = 0
	return n
}

// take lowers what is left on a flow's links.
func (d *Demand) take(place int, bits float64) {
	if !d.sized {
		return
	}
	d.whole -= bits
	for _, l := range d.path[place*d.stride : (place+1)*d.stride] {
		d.bits[d.slot[l]] -= bits
	}
}

// Links are the links that unfinished flows cross, by LinkID: View's
// CoflowState.Links. Remaining, rounded up, is filled in if sizes is true, else 0;
// from the first time on that it is asked for, it is kept up to date by every
// Advance. The slice is the demand's own and valid until the next call of a method.
func (d *Demand) Links(sizes bool) []policies.LinkState {
	if sizes && !d.sized {
		d.sized = true
		d.sum()
	}
	if !d.listed {
		d.list()
	}
	if sizes || d.filled {
		d.filled = sizes
		for i := range d.states {
			st := &d.states[i]
			st.Remaining = 0
			if sizes {
				st.Remaining = wholeBytes(d.bits[d.slotOf[i]]*d.Scale(), st.Flows)
			}
		}
	}
	return d.states
}

// list finds the links that unfinished flows cross.
func (d *Demand) list() {
	d.states, d.slotOf, d.listed, d.filled = d.states[:0], d.slotOf[:0], true, false
	for s, l := range d.links {
		d.stateOf[s] = -1
		if d.count[s] > 0 {
			d.stateOf[s] = int32(len(d.states))
			d.states = append(d.states, policies.LinkState{Link: topo.LinkID(l), Flows: int(d.count[s]), Pilots: int(d.pilots[s]), Begun: d.begun[l]})
			d.slotOf = append(d.slotOf, int32(s))
		}
	}
}

// wholeBytes are bits in bytes, rounded up: at least one for every flow, as each of
// them has that left. A small fraction of a byte is what rounding left behind.
func wholeBytes(bits float64, flows int) units.Bytes {
	return units.Bytes(max(math.Ceil(bits/8-1e-3), float64(flows)))
}

// crossing is how many unfinished flows of some parts cross the link of a slot.
func (d *Demand) crossing(slot int, p parts) int32 {
	switch p {
	case pilots:
		return d.pilots[slot]
	case others:
		return d.count[slot] - d.pilots[slot]
	}
	return d.count[slot]
}
