package fluid

import "testbed/emu/simtime"

// finishes is a heap of the fluids that finish at their current rates, by finish time.
// Fluids that finish at the same time are in no defined order; callers process all of
// them together.
type finishes []finish

// finish is a fluid and when it finishes.
type finish struct {
	simtime.Moment
	fluid *fluid
}

func (h finishes) before(i, j int) bool {
	a, b := &h[i], &h[j]
	return a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac
}

func (h finishes) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].fluid.queued, h[j].fluid.queued = i+1, j+1
}

// put inserts a fluid, or changes when it finishes.
func (h *finishes) put(f *fluid, at simtime.Moment) {
	if f.queued == 0 {
		*h = append(*h, finish{})
		f.queued = len(*h)
	}
	(*h)[f.queued-1] = finish{at, f}
	h.fix(f.queued - 1)
}

// drop removes a fluid, if present.
func (h *finishes) drop(f *fluid) {
	if f.queued == 0 {
		return
	}
	at, end := f.queued-1, len(*h)-1
	h.swap(at, end)
	(*h)[end] = finish{}
	*h = (*h)[:end]
	f.queued = 0
	if at < end {
		h.fix(at)
	}
}

// fix restores the heap order after the fluid at index i changed.
func (h finishes) fix(i int) {
	for i > 0 && h.before(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	h.sink(i)
}

func (h finishes) sink(i int) {
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

// until calls visit for each fluid in the subtree of index i that finishes at most ns
// after m.
func (h finishes) until(i int, m simtime.Moment, ns float64, visit func(*fluid)) {
	if i >= len(h) || h[i].Since(m) > ns {
		return
	}
	visit(h[i].fluid)
	h.until(2*i+1, m, ns, visit)
	h.until(2*i+2, m, ns, visit)
}
