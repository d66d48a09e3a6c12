package rates

import "math"

// filling computes max-min fair rates by progressive filling: all flows' rates rise
// together until a link is full; its flows keep what they have then, the link's
// level, and the others rise on. The rate of a flow is the lowest level on its path.
type filling struct {
	left  []float64 // by link: what flows that stopped rising leave
	n     []float64 // by link: flows that rise
	level []float64 // by link: +Inf until it is full
	heap  []mark

	stride  int
	flows   []member
	path    []int32 // of flows, stride links each
	begin   []int32 // by link: its first in crosses
	crosses []int32 // flows, by the links they cross
}

type member struct {
	d     *Demand
	place int32
}

// mark is a level below which a link is not full.
type mark struct {
	level float64
	link  int32
}

// start empties the filling, for flows that share what the step has.
func (f *filling) start(s *Sharer) {
	links := len(s.avail)
	f.left, f.n, f.level = sized(f.left, links), sized(f.n, links), sized(f.level, links)
	f.begin = sized(f.begin, links+1)
	for l := range f.level {
		f.level[l] = math.Inf(1)
		if s.open(int32(l)) {
			f.left[l] = s.avail[l]
		}
	}
	f.stride, f.flows = 1, f.flows[:0]
	for _, d := range s.demands {
		f.stride = max(f.stride, d.stride)
	}
	f.path = f.path[:0]
}

// join adds flows.
func (f *filling) join(d *Demand, places []int32) {
	for _, i := range places {
		f.flows = append(f.flows, member{d, i})
		p := d.route(i)
		f.path = append(f.path, p...)
		for range f.stride - len(p) {
			f.path = append(f.path, d.none)
		}
		for _, l := range p {
			f.n[l]++
		}
	}
}

// run sets the flows' rates.
func (f *filling) run(s *Sharer) {
	none := int32(len(f.level) - 1)
	f.n[none] = 0
	f.index(none)
	f.heap = f.heap[:0]
	for l, n := range f.n {
		if n > 0 {
			f.heap = append(f.heap, mark{f.left[l] / n, int32(l)})
		}
	}
	for i := len(f.heap)/2 - 1; i >= 0; i-- {
		f.sink(i)
	}
	level := 0.0
	for len(f.heap) > 0 {
		top := &f.heap[0]
		l := top.link
		if f.n[l] == 0 {
			f.pop()
			continue
		}
		// Flows that stop let the others on a link rise further: a mark is where the
		// link was last known to be full at the earliest.
		if now := max(level, f.left[l]/f.n[l]); now > top.level {
			top.level = now
			f.sink(0)
			continue
		}
		level = max(level, top.level)
		f.pop()
		f.stop(l, level)
	}
	for i, m := range f.flows {
		p := f.path[i*f.stride : (i+1)*f.stride]
		rate := math.Inf(1)
		for _, l := range p {
			rate = min(rate, f.level[l])
		}
		m.d.add(m.place, rate)
		for _, l := range p {
			s.avail[l] = max(s.avail[l]-rate, 0)
		}
	}
	clear(f.flows)
}

// index lists the flows that cross each link.
func (f *filling) index(none int32) {
	for _, l := range f.path {
		f.begin[l+1]++
	}
	f.begin[none+1] = 0
	for l := range none + 1 {
		f.begin[l+1] += f.begin[l]
	}
	f.crosses = sized(f.crosses, int(f.begin[none]))
	for i, l := range f.path {
		if l != none {
			f.crosses[f.begin[l]] = int32(i / f.stride)
			f.begin[l]++
		}
	}
	for l := none; l > 0; l-- {
		f.begin[l] = f.begin[l-1]
	}
	f.begin[0] = 0
}

// stop fills a link.
func (f *filling) stop(l int32, level float64) {
	for _, i := range f.crosses[f.begin[l]:f.begin[l+1]] {
		p := f.path[int(i)*f.stride : (int(i)+1)*f.stride]
		if f.stopped(p) {
			continue
		}
		for _, m := range p {
			f.n[m]--
			f.left[m] = max(f.left[m]-level, 0)
		}
	}
	f.n[l], f.level[l] = 0, level
}

func (f *filling) stopped(path []int32) bool {
	for _, l := range path {
		if f.level[l] < math.Inf(1) {
			return true
		}
	}
	return false
}

func (f *filling) pop() {
	last := len(f.heap) - 1
	f.heap[0] = f.heap[last]
	f.heap = f.heap[:last]
	f.sink(0)
}

// sink puts the mark at i in its place; of the same level the lower link comes first.
func (f *filling) sink(i int) {
	h := f.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && less(h[c+1], h[c]) {
			c++
		}
		if !less(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func less(a, b mark) bool { return a.level < b.level || a.level == b.level && a.link < b.link }
