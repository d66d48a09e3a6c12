package fluid

import (
	"math"

	"testbed/emu/simtime"
)

// clock is the progress of fluids that all have the same rate: the bits that each of them has got
// since a time in the past. A change of their rate costs the same for one fluid and for thousands.
type clock struct {
	bits   float64 // up to since
	since  simtime.Moment
	rate   float64  // bit/s, since then
	fluids []*fluid // a heap by end
	queued int      // index in a list of finishes plus 1; 0 if none of its fluids finishes
}

// mostBits is the reading at which a clock is set back to 0, so that it stays exact to less than a
// millionth of a bit.
const mostBits = 1 << 30

// at returns the reading of a clock.
func (k *clock) at(now simtime.Moment) float64 {
	ns := now.Since(k.since)
	if ns == 0 {
		return k.bits // also at an infinite rate
	}
	return k.bits + float64(bitsIn(k.rate, ns))
}

// set changes the rate from now on.
func (k *clock) set(now simtime.Moment, rate float64) {
	if len(k.fluids) == 0 {
		k.bits = 0
	} else if k.bits = k.at(now); k.bits > mostBits {
		for _, f := range k.fluids {
			f.left -= k.bits
		}
		k.bits = 0
	}
	k.since, k.rate = now, rate
}

// start adds a fluid.
func (k *clock) start(f *fluid, now simtime.Moment) {
	f.left += k.at(now)
	f.clock, f.place = k, len(k.fluids)
	k.fluids = append(k.fluids, f)
	k.fix(f.place)
}

// stop removes a fluid.
func (k *clock) stop(f *fluid, now simtime.Moment) {
	left := f.leftAt(now)
	at, end := f.place, len(k.fluids)-1
	k.swap(at, end)
	k.fluids[end] = nil
	k.fluids = k.fluids[:end]
	if at < end {
		k.fix(at)
	}
	f.left, f.clock = max(left, 0), nil
}

// end is the reading of its clock at which a fluid ends, or turns.
func (f *fluid) end() float64 { return f.left - f.turn }

func (k *clock) swap(i, j int) {
	k.fluids[i], k.fluids[j] = k.fluids[j], k.fluids[i]
	k.fluids[i].place, k.fluids[j].place = i, j
}

// fix restores the heap order after the fluid at index i changed.
func (k *clock) fix(i int) {
	for i > 0 && k.fluids[i].end() < k.fluids[(i-1)/2].end() {
		k.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		kid := 2*i + 1
		if kid+1 < len(k.fluids) && k.fluids[kid+1].end() < k.fluids[kid].end() {
			kid++
		}
		if kid >= len(k.fluids) || k.fluids[kid].end() >= k.fluids[i].end() {
			return
		}
		k.swap(i, kid)
		i = kid
	}
}

// until calls visit for each fluid in the subtree of index i that ends before a reading.
func (k *clock) until(i int, reading float64, visit func(*fluid)) {
	if i >= len(k.fluids) || k.fluids[i].end() > reading {
		return
	}
	visit(k.fluids[i])
	k.until(2*i+1, reading, visit)
	k.until(2*i+2, reading, visit)
}

// finishes is a heap of the clocks by the time at which the first of their fluids ends at its current rate.
// Those of the same time are in no defined order; callers process all of them together.
type finishes []finish

// finish is a clock and when its first fluid ends.
type finish struct {
	simtime.Moment
	clock *clock
}

func (h finishes) before(i, j int) bool {
	a, b := &h[i], &h[j]
	return a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac
}

func (h finishes) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].clock.queued, h[j].clock.queued = i+1, j+1
}

// put inserts a clock, changes its place, or removes it if none of its fluids ends.
func (h *finishes) put(k *clock) {
	ns := math.Inf(1)
	if len(k.fluids) > 0 && k.rate > 0 {
		ns = max(k.fluids[0].end()-k.bits, 0) * 1e9 / k.rate
	}
	if ns > horizon {
		h.drop(k)
		return
	}
	if k.queued == 0 {
		*h = append(*h, finish{})
		k.queued = len(*h)
	}
	(*h)[k.queued-1] = finish{k.since.Plus(ns), k}
	h.fix(k.queued - 1)
}

// drop removes a clock, if present.
func (h *finishes) drop(k *clock) {
	if k.queued == 0 {
		return
	}
	at, end := k.queued-1, len(*h)-1
	h.swap(at, end)
	(*h)[end] = finish{}
	*h = (*h)[:end]
	k.queued = 0
	if at < end {
		h.fix(at)
	}
}

// fix restores the heap order after the clock at index i changed.
func (h finishes) fix(i int) {
	for i > 0 && h.before(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		kid := 2*i + 1
		if kid+1 < len(h) && h.before(kid+1, kid) {
			kid++
		}
		if kid >= len(h) || !h.before(kid, i) {
			return
		}
		h.swap(i, kid)
		i = kid
	}
}

// until calls visit for each fluid of the clocks in the subtree of index i that ends at most ns after m.
func (h finishes) until(i int, m simtime.Moment, ns float64, visit func(*fluid)) {
	if i >= len(h) || h[i].Since(m) > ns {
		return
	}
	k := h[i].clock
	k.until(0, k.bits+float64(bitsIn(k.rate, m.Since(k.since)+ns)), visit)
	h.until(2*i+1, m, ns, visit)
	h.until(2*i+2, m, ns, visit)
}
