package fluid

import "testbed/emu/clock"

// finishes is the fluids that finish at their rates, as a heap by when they do. At
// one moment their order says nothing: who takes one takes all.
type finishes []*fluid

func (h finishes) before(i, j int) bool {
	a, b := h[i].finish, h[j].finish
	return a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac
}

func (h finishes) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].queued, h[j].queued = i+1, j+1
}

// put puts a fluid in, or where it belongs with another finish.
func (h *finishes) put(f *fluid) {
	if f.queued == 0 {
		*h = append(*h, f)
		f.queued = len(*h)
	}
	h.fix(f.queued - 1)
}

// empty takes all out; add puts one in without order, which is made by order.
func (h *finishes) empty() {
	for _, f := range *h {
		f.queued = 0
	}
	clear(*h)
	*h = (*h)[:0]
}

func (h *finishes) add(f *fluid) {
	*h = append(*h, f)
	f.queued = len(*h)
}

func (h finishes) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// drop takes a fluid out, if it is in.
func (h *finishes) drop(f *fluid) {
	if f.queued == 0 {
		return
	}
	at, end := f.queued-1, len(*h)-1
	h.swap(at, end)
	(*h)[end] = nil
	*h = (*h)[:end]
	f.queued = 0
	if at < end {
		h.fix(at)
	}
}

// fix moves the fluid at a place to where it belongs.
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

// until tells of the fluids below a place that finish up to so many ns after a moment.
func (h finishes) until(i int, m clock.Moment, ns float64, tell func(*fluid)) {
	if i >= len(h) || h[i].finish.Since(m) > ns {
		return
	}
	tell(h[i])
	h.until(2*i+1, m, ns, tell)
	h.until(2*i+2, m, ns, tell)
}
