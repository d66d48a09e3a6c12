package alloc

import (
	"math/bits"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// This file maintains the counts of flows and remaining bits of a demand per link.

// number recomputes all values by slot.
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
	d.onLinks, d.unlimited, d.piloting = nil, 0, 0
	d.crossed = make([]uint64, words(int(d.none)))
	for w, set := range d.live {
		for ; set != 0; set &= set - 1 {
			d.load(w*64+bits.TrailingZeros64(set), 1)
		}
	}
	if d.sized {
		d.sum()
	}
}

// load adds a flow to the counts of its links (n = 1) or removes it (n = -1).
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
		if l == d.none {
			continue
		}
		if d.count[s] > 0 {
			set(d.crossed, l)
		} else {
			unset(d.crossed, l)
		}
		d.recount(s)
	}
}

// recount updates the flow counts of a slot in states, the result of Links.
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

// sum computes the remaining bits by slot.
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

// lefts are the remaining bits of unfinished flows of some parts, by slot, summed over
// flows. Demand.bits, which every Advance updates, may differ by rounding errors.
type lefts struct {
	bits  []float64
	valid bool // no flow has changed since
}

// left returns the remaining bits of unfinished flows of some parts, by slot.
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
	// Flows of one sender are consecutive: keep its sum in a local variable.
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

// take subtracts bits from the remaining bits of a flow's links.
func (d *Demand) take(place int, bits float64) {
	if !d.sized {
		return
	}
	d.whole -= bits
	for _, l := range d.path[place*d.stride : (place+1)*d.stride] {
		d.bits[d.slot[l]] -= bits
	}
}

// Links returns the links that unfinished flows cross, by LinkID, for CoflowState.Links of a
// View that shows facts. With Sizes it includes Remaining, rounded up; otherwise Remaining is 0. After
// the first call with Sizes, every Advance updates Remaining. The slice belongs to the
// demand and is valid until the next method call.
func (d *Demand) Links(shown policies.Facts) []policies.LinkState {
	sizes := shown.Has(policies.Sizes)
	if progress := shown.Has(policies.Progress); progress != d.progress {
		d.progress, d.listed = progress, false
	}
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

// list computes the links that unfinished flows cross.
func (d *Demand) list() {
	d.states, d.slotOf, d.listed, d.filled = d.states[:0], d.slotOf[:0], true, false
	for s, l := range d.links {
		d.stateOf[s] = -1
		if d.count[s] > 0 {
			d.stateOf[s] = int32(len(d.states))
			d.states = append(d.states, policies.LinkState{Link: topo.LinkID(l), Flows: int(d.count[s]), Pilots: int(d.pilots[s]), Begun: d.progress && d.begun[l]})
			d.slotOf = append(d.slotOf, int32(s))
		}
	}
}

// wholeBytes converts bits to bytes, rounded up, at least one per flow, because each of
// them has at least one remaining. A small fraction of a byte is rounding error.
func wholeBytes(bits float64, flows int) units.Bytes {
	up := bits/8 - 1e-3
	whole := units.Bytes(up)
	if float64(whole) < up { // faster than math.Ceil
		whole++
	}
	return max(whole, units.Bytes(flows))
}

// crossing returns the number of unfinished flows of some parts on the link of a slot.
func (d *Demand) crossing(slot int, p parts) int32 {
	switch p {
	case pilots:
		return d.pilots[slot]
	case others:
		return d.count[slot] - d.pilots[slot]
	}
	return d.count[slot]
}

// on returns the places of all flows that cross the link of a slot, including ended ones.
// Once computed, the lists are kept until a path changes.
func (d *Demand) on(slot int32) []int32 {
	n := len(d.links)
	if d.onLinks == nil {
		d.onLinks, d.onFrom = make([]int32, len(d.path)), make([]int32, n+2)
		for _, l := range d.path {
			d.onFrom[d.slot[l]+1]++
		}
		for s := range n + 1 {
			d.onFrom[s+1] += d.onFrom[s]
		}
		at := slices.Clone(d.onFrom)
		for i, l := range d.path {
			s := d.slot[l]
			d.onLinks[at[s]] = int32(i / d.stride)
			at[s]++
		}
	}
	return d.onLinks[d.onFrom[slot]:d.onFrom[slot+1]]
}

// in reports whether a flow is unfinished and of some parts.
func (d *Demand) in(place int32, p parts) bool {
	return !d.Ended(int(place)) && (p == pilots|others || d.Pilot(int(place)) == (p == pilots))
}
