package rates

import (
	"math"
	"math/bits"
)

// levels is progressive filling: all flows' rates rise together until a link is full;
// its flows keep what they have then, the link's level, and the others rise on. The
// rate of a flow is the lowest level on its path.
//
// Whoever uses it sets left and n, and calls next until nothing rises any more; for
// every link that next returns, it takes the flows that rose until then off the links
// on their paths. There is one link more than the fabric has: none, for paths that are
// filled up with it.
type levels struct {
	left  []float64 // by link: what flows that stopped rising leave; rounding may make it less than 0
	n     []float64 // by link: flows that rise
	level []float64 // by link: +Inf until it is full
	now   float64
	heap  []mark
}

// mark is a level below which a link is not full.
type mark struct {
	level float64
	link  int32
}

// begin puts n and left to 0 and the level of all links to +Inf.
func (f *levels) begin(links int) {
	f.left, f.n, f.level = sized(f.left, links), sized(f.n, links), sized(f.level, links)
	for l := range f.level {
		f.level[l] = math.Inf(1)
	}
}

// ready is to be called when left and n are set.
func (f *levels) ready() {
	f.heap, f.now = f.heap[:0], 0
	for l, n := range f.n[:len(f.n)-1] {
		if n > 0 {
			f.heap = append(f.heap, mark{f.left[l] / n, int32(l)})
		}
	}
	for i := len(f.heap)/2 - 1; i >= 0; i-- {
		f.sink(i)
	}
}

// next is the link that is full next, -1 if nothing rises any more.
func (f *levels) next() int32 {
	for len(f.heap) > 0 {
		top := &f.heap[0]
		l := top.link
		if f.n[l] == 0 {
			f.pop()
			continue
		}
		// Flows that stop let the others on a link rise further.
		if full := max(f.now, f.left[l]/f.n[l]); full > top.level {
			top.level = full
			f.sink(0)
			continue
		}
		f.now = max(f.now, top.level)
		f.pop()
		f.level[l], f.n[l] = f.now, 0
		return l
	}
	return -1
}

// stop takes so many flows that have stopped rising off a link.
func (f *levels) stop(l int32, flows float64) {
	f.n[l] -= flows
	f.left[l] -= float64(flows * f.now)
}

// rises tells whether a link is not full yet.
func (f *levels) rises(l int32) bool { return f.level[l] == math.Inf(1) }

func (f *levels) pop() {
	last := len(f.heap) - 1
	f.heap[0] = f.heap[last]
	f.heap = f.heap[:last]
	f.sink(0)
}

// sink puts the mark at i in its place; of the same level the lower link comes first.
func (f *levels) sink(i int) {
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

// filling computes max-min fair rates of the flows of demands.
type filling struct {
	levels
	members []member
	sets    []uint64 // of members

	// Flows of demands whose grid does not do, one by one.
	stride  int
	path    []int32 // stride links each
	begins  []int32 // by link: its first in crosses
	crosses []int32 // flows, by the links they cross
}

// member is a demand that takes part in a filling.
type member struct {
	d    *Demand
	p    parts
	rows []uint64 // of its grid, that are not full; nil where its flows are in path
	cols []uint64
}

// start empties the filling, for flows that share what the step has.
func (f *filling) start(s *Sharer) {
	f.begin(len(s.avail))
	for l := range f.left {
		if s.open(int32(l)) {
			f.left[l] = s.avail[l]
		}
	}
	f.members, f.path, f.stride = f.members[:0], f.path[:0], 1
	for _, d := range s.demands {
		f.stride = max(f.stride, d.stride)
	}
}

// join adds the flows of some parts of a demand.
func (f *filling) join(d *Demand, p parts) {
	if p != 0 && d.serves(p) > 0 {
		f.members = append(f.members, member{d: d, p: p})
		for slot, l := range d.links {
			f.n[l] += float64(d.crossing(slot, p))
		}
	}
}

// run sets the flows' rates.
func (f *filling) run(s *Sharer) {
	f.split(s)
	f.ready()
	for l := f.next(); l >= 0; l = f.next() {
		for i := range f.members {
			if m := &f.members[i]; m.rows != nil {
				f.stopGrid(m, l)
			}
		}
		if len(f.path) > 0 {
			f.stopListed(l)
		}
	}
	for _, m := range f.members {
		s.spread(m.d, m.p, f.level)
	}
	for _, m := range f.members {
		s.settle(m.d)
	}
	clear(f.members)
}

// split prepares grids, and lists the flows of demands whose grid does not do: those
// of part of a coflow, and those that cross more than two links.
func (f *filling) split(s *Sharer) {
	need := 0
	for _, m := range f.members {
		if f.gridded(m) {
			need += m.d.grid.width + m.d.grid.height
		}
	}
	f.sets = sized(f.sets, need)
	used := 0
	for i := range f.members {
		m := &f.members[i]
		if f.gridded(*m) {
			g := m.d.grid
			m.rows, m.cols = f.sets[used:used+g.height], f.sets[used+g.height:used+g.height+g.width]
			used += g.height + g.width
			for i := range m.rows {
				m.rows[i] = math.MaxUint64
			}
			for i := range m.cols {
				m.cols[i] = math.MaxUint64
			}
			continue
		}
		s.list = m.d.places(m.p, s.list)
		for _, i := range s.list {
			p := m.d.route(i)
			f.path = append(f.path, p...)
			for range f.stride - len(p) {
				f.path = append(f.path, m.d.none)
			}
		}
	}
	if len(f.path) > 0 {
		f.index(int32(len(s.avail) - 1))
	}
}

func (f *filling) gridded(m member) bool {
	return m.d.grid != nil && !m.d.grid.core && m.d.serves(m.p) == m.d.unfinished
}

// stopGrid takes the flows of a full link off the links at their other ends.
func (f *filling) stopGrid(m *member, l int32) {
	g, slot := m.d.grid, m.d.slot[l]
	if r := g.rowOf[slot]; r >= 0 {
		unset(m.rows, r)
		f.stopSet(g.live[int(r)*g.width:int(r+1)*g.width], m.cols, g.cols)
	} else if c := g.colOf[slot]; c >= 0 {
		unset(m.cols, c)
		f.stopSet(g.down[int(c)*g.height:int(c+1)*g.height], m.rows, g.rows)
	}
}

func (f *filling) stopSet(flows, rise []uint64, links []int32) {
	for w, b := range flows {
		for b &= rise[w]; b != 0; b &= b - 1 {
			f.stop(links[w*64+bits.TrailingZeros64(b)], 1)
		}
	}
}

// index lists the flows that cross each link.
func (f *filling) index(none int32) {
	f.begins = sized(f.begins, int(none)+2)
	for _, l := range f.path {
		f.begins[l+1]++
	}
	f.begins[none+1] = 0
	for l := range none + 1 {
		f.begins[l+1] += f.begins[l]
	}
	f.crosses = sized(f.crosses, int(f.begins[none]))
	for i, l := range f.path {
		if l != none {
			f.crosses[f.begins[l]] = int32(i / f.stride)
			f.begins[l]++
		}
	}
	for l := none; l > 0; l-- {
		f.begins[l] = f.begins[l-1]
	}
	f.begins[0] = 0
}

// stopListed takes those of a full link's listed flows off their links that rose until
// now: each in path, which none then stands in for.
func (f *filling) stopListed(l int32) {
	none := int32(len(f.level) - 1)
	for _, i := range f.crosses[f.begins[l]:f.begins[l+1]] {
		p := f.path[int(i)*f.stride : int(i+1)*f.stride]
		if p[0] == none {
			continue // it has stopped
		}
		for _, m := range p {
			if m != none {
				f.stop(m, 1)
			}
		}
		p[0] = none
	}
}
