package alloc

import (
	"math/bits"

	"testbed/policies"
)

// grid stores the flows of a demand as bit sets, by the first and the last link of their
// paths (rows and columns). With it, the rules that serve one flow after another find the
// next flow with residual capacity without testing the others. A demand has a grid if its
// flows are sorted by first link, then by last link.
type grid struct {
	rows, cols   []int32 // first links and last links, sorted
	rowOf, colOf []int32 // by slot of a link: its index in rows or cols, -1 for none

	// A row has width words, with a bit per column; a column has height words, with a bit
	// per row.
	width, height int
	all           []uint64 // by row: all flows at the start
	base          []int32  // parallel to all: the place of the first flow of a word
	live, pilot   []uint64 // by row: unfinished flows; pilot flows, nil for none
	down          []uint64 // by column: unfinished flows

	inRow, inCol []int32 // numbers of unfinished flows

	// Sets of rows and columns with unfinished flows, and of their links.
	liveRows, liveCols []uint64
	senders, receivers []uint64

	core bool // paths may have links between the first and the last

	// inner is the index into corePaths of each flow, by place. A core path is the part of a
	// path between its first and its last link, as two indices into mids, of which 0 is no
	// link. inner is nil if core paths may have more than two links.
	inner         []uint16
	corePaths     [][2]uint16
	corePathOf    map[[2]uint16]uint16
	mids          []int32        // the inner links, after none
	midOf         []int32        // by slot of a link: its index in mids, 0 if it is not in mids
	minSideCounts *minSideCounts // see counted; nil if unknown

	byCol, byCorePath []float64 // see left

	order            []int32   // see sorted
	open             []uint64  // see pour
	give, giveInside []float64 // by column, by way
}

// sparse is the maximum number of words of a grid per flow: a sparser grid is not worth its
// memory.
const sparse = 2

// newGrid returns the grid of a demand, nil if its flows are not sorted for one.
func newGrid(d *Demand) *grid {
	n := len(d.Left)
	if d.stride < 2 || n == 0 || d.unlimited > 0 {
		return nil
	}
	last := make([]bool, len(d.links))
	rows := 0
	for i := range n {
		from, to := d.ends(i)
		if from == to {
			return nil
		}
		last[d.slot[to]] = true
		if i == 0 {
			rows++
			continue
		}
		switch f, t := d.ends(i - 1); {
		case from > f:
			rows++
		case from < f || to <= t:
			return nil
		}
	}
	g := &grid{rows: make([]int32, 0, rows), rowOf: make([]int32, len(d.links)+1), colOf: make([]int32, len(d.links)+1)}
	for s := range g.rowOf {
		g.rowOf[s], g.colOf[s] = -1, -1
	}
	for s, is := range last {
		if is {
			g.colOf[s] = int32(len(g.cols))
			g.cols = append(g.cols, d.links[s])
		}
	}
	g.width, g.height = words(len(g.cols)), words(rows)
	if rows*g.width > sparse*n+64 || len(g.cols)*g.height > sparse*n+64 {
		return nil
	}
	g.all, g.base = make([]uint64, rows*g.width), make([]int32, rows*g.width)
	g.down = make([]uint64, len(g.cols)*g.height)
	g.inRow, g.inCol = make([]int32, rows), make([]int32, len(g.cols))
	g.senders, g.receivers = make([]uint64, words(int(d.none))), make([]uint64, words(int(d.none)))
	for i := range n {
		from, to := d.ends(i)
		s := d.slot[from]
		if g.colOf[s] >= 0 {
			return nil // the first link of one flow is the last of another
		}
		if g.rowOf[s] < 0 {
			g.rowOf[s] = int32(len(g.rows))
			g.rows = append(g.rows, from)
			set(g.senders, from)
		}
		r, c := g.rowOf[s], g.colOf[d.slot[to]]
		w := int(r)*g.width + int(c/64)
		if g.all[w] == 0 {
			g.base[w] = int32(i)
		}
		g.all[w] |= 1 << (c % 64)
		set(g.down[int(c)*g.height:], r)
		g.inRow[r]++
		g.inCol[c]++
		set(g.receivers, to)
	}
	g.live = append(g.live, g.all...)
	g.liveRows, g.liveCols = firstBits(len(g.rows)), firstBits(len(g.cols))
	g.core = d.stride > 2
	g.index(d)
	return g
}

// firstBits returns the set of the numbers below n.
func firstBits(n int) []uint64 {
	s := make([]uint64, words(n))
	for i := range n {
		set(s, int32(i))
	}
	return s
}

func set(s []uint64, i int32)   { s[i/64] |= 1 << (i % 64) }
func unset(s []uint64, i int32) { s[i/64] &^= 1 << (i % 64) }

// ends returns the first and the last link of a path.
func (d *Demand) ends(place int) (first, last int32) {
	p := d.path[place*d.stride : (place+1)*d.stride]
	first, last = p[0], p[0]
	for _, l := range p {
		if l != d.none {
			last = l
		}
	}
	return first, last
}

// end removes a flow.
func (g *grid) end(d *Demand, place int) {
	from, to := d.ends(place)
	r, c := g.rowOf[d.slot[from]], g.colOf[d.slot[to]]
	unset(g.live[int(r)*g.width:], c)
	unset(g.down[int(c)*g.height:], r)
	if g.minSideCounts != nil {
		g.minSideCounts.end(r, c, int(g.inner[place]))
	}
	if g.inRow[r]--; g.inRow[r] == 0 {
		unset(g.senders, from)
		unset(g.liveRows, r)
	}
	if g.inCol[c]--; g.inCol[c] == 0 {
		unset(g.receivers, to)
		unset(g.liveCols, c)
	}
}

func (g *grid) makePilot(d *Demand, place int) {
	if g.pilot == nil {
		g.pilot = make([]uint64, len(g.all))
	}
	from, to := d.ends(place)
	set(g.pilot[int(g.rowOf[d.slot[from]])*g.width:], g.colOf[d.slot[to]])
}

// of returns a word of a row's unfinished flows of some parts.
func (g *grid) of(w int, p parts) uint64 {
	switch {
	case p == pilots|others || p == others && g.pilot == nil:
		return g.live[w]
	case g.pilot == nil:
		return 0
	case p == pilots:
		return g.live[w] & g.pilot[w]
	}
	return g.live[w] &^ g.pilot[w]
}

// left adds the remaining bits of unfinished flows of some parts to bits, by slot, for
// Demand.left.
func (g *grid) left(d *Demand, p parts, bits []float64) {
	g.byCol, g.byCorePath = sized(g.byCol, len(g.cols)), sized(g.byCorePath, len(g.corePaths))
	for r, from := range g.rows {
		sum := 0.0
		for v := range g.width {
			at := r*g.width + v
			for b := g.of(at, p); b != 0; {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first := int(g.place(at, low))
				cols := g.byCol[v*64+low : v*64+low+n]
				left := d.Left[first : first+n]
				for j, bits := range left {
					sum += bits
					cols[j] += bits
				}
				if !g.core {
					continue
				}
				inner, corePaths := g.inner[first:first+n], g.byCorePath
				for j, bits := range left {
					corePaths[inner[j]] += bits
				}
			}
		}
		bits[d.slot[from]] += sum
	}
	for c, l := range g.cols {
		bits[d.slot[l]] += g.byCol[c]
	}
	for w, corePath := range g.corePaths {
		for _, m := range corePath {
			bits[d.slot[g.mids[m]]] += g.byCorePath[w]
		}
	}
	bits[len(d.links)] = 0
}

// intersects reports whether two sets have a common element.
func intersects(a, b []uint64) bool {
	for i, w := range a {
		if w&b[i] != 0 {
			return true
		}
	}
	return false
}

// offer sets offers to the links that the ends of a flow may use with Greedy, ExclusivePorts or EqualSplit:
// those with residual capacity, or for ExclusivePorts the unused ones. The set may contain too many
// links, whose capacity or budget has been used meanwhile, but not too few. If the step has
// a budget, links that no coflow of the step crosses are undefined.
func (s *Allocator) offer(st *policies.Step) {
	links := len(s.capacity) - 1
	whole := st.Rule == policies.ExclusivePorts
	if bound := st.Budget > 0 && !s.lazy; whole || bound {
		s.own = roomy(s.own, words(links))
		s.offers = s.own
		if bound && s.owned && !whole {
			return // the residual capacity only decreases
		}
		lists := s.links.lists
		if !bound {
			lists = s.linksOf([]policies.Step{*st})
		}
		s.owned = bound && !whole
		for _, links := range lists {
			for _, l := range links {
				if s.offered(l, whole) {
					set(s.offers, l)
				} else {
					unset(s.offers, l)
				}
			}
		}
		return
	}
	if !s.lasting {
		s.lasting = true
		for w := range s.idle {
			free := s.free[w*64 : min((w+1)*64, links)]
			floor, word := s.floor[w*64:][:len(free)], uint64(0)
			for i, free := range free {
				if free > floor[i] {
					word |= 1 << i
				}
			}
			s.idle[w] = word
		}
	}
	s.offers = s.idle
	if s.lazy {
		s.own = append(s.own[:0], s.idle...)
		s.offers = s.own
	}
}

func (s *Allocator) offered(l int32, whole bool) bool {
	return s.open(l) && (!whole || s.untouched(l))
}

// pick applies rule Greedy or ExclusivePorts to a demand with a grid. The result is the same as for
// its flows one by one.
func (s *Allocator) pick(d *Demand, p parts, st *policies.Step) {
	g := d.grid
	if !intersects(g.senders, s.offers) || !intersects(g.receivers, s.offers) {
		return
	}
	if st.Rule == policies.Greedy && !g.core {
		s.pickPairs(d, p, st)
		return
	}
	left := s.offerCols(d)
	for w, links := range g.senders {
		for b := links & s.offers[w]; b != 0; b &= b - 1 {
			from := int32(w*64 + bits.TrailingZeros64(b))
			left -= s.pickRow(d, from, p, st.Rule == policies.ExclusivePorts)
			if left == 0 {
				return
			}
		}
	}
}

// offerCols sets cols to the receivers with residual capacity, and returns their number.
func (s *Allocator) offerCols(d *Demand) (left int) {
	g := d.grid
	s.cols = sized(s.cols, g.width)
	for w, links := range g.receivers {
		for b := links & s.offers[w]; b != 0; b &= b - 1 {
			l := int32(w*64 + bits.TrailingZeros64(b))
			if !s.open(l) {
				unset(s.offers, l)
				continue
			}
			set(s.cols, g.colOf[d.slot[l]])
			left++
		}
	}
	return left
}

// pickPairs is pick with rule Greedy for flows without inner links.
func (s *Allocator) pickPairs(d *Demand, p parts, st *policies.Step) {
	g := d.grid
	if s.lazy {
		for w, links := range g.senders {
			s.bindWord(st, w, (links|g.receivers[w])&s.offers[w])
		}
	}
	left := s.offerCols(d)
	for w, senders := range g.senders {
		for links := senders & s.offers[w]; links != 0 && left > 0; links &= links - 1 {
			left -= s.pickRowPairs(d, int32(w*64+bits.TrailingZeros64(links)), p)
		}
	}
}

// pickRowPairs is pickPairs for the flows of one sender. It returns the number of receivers without
// residual capacity afterwards.
func (s *Allocator) pickRowPairs(d *Demand, from int32, p parts) (gone int) {
	g, avail, floor := d.grid, s.avail, s.floor
	free, least := avail[from], floor[from]
	if free <= least {
		unset(s.offers, from)
		return 0
	}
	row := int(g.rowOf[d.slot[from]]) * g.width
	for w, cols := range s.cols {
		for b := g.of(row+w, p) & cols; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			to := g.cols[w*64+bit]
			have := avail[to]
			rate := free
			if have < rate {
				rate = have
			}
			s.gift.took = append(s.gift.took, took{g.place(row+w, bit), rate})
			free -= rate
			have -= rate
			avail[to] = have
			if have <= floor[to] {
				s.withdraw(w, bit, to)
				gone++
			}
			if free <= least {
				avail[from] = free
				unset(s.offers, from)
				return gone
			}
		}
	}
	avail[from] = free
	return gone
}

// pickRow is pick for the flows of one sender. It returns the number of receivers that are
// no longer offered.
func (s *Allocator) pickRow(d *Demand, from int32, p parts, whole bool) (gone int) {
	g := d.grid
	if !s.offered(from, whole) {
		unset(s.offers, from)
		return 0
	}
	row := int(g.rowOf[d.slot[from]]) * g.width
	for w, cols := range s.cols {
		for b := g.of(row+w, p) & cols; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			to := g.cols[w*64+bit]
			if !s.offered(to, whole) {
				s.withdraw(w, bit, to)
				gone++
				continue
			}
			place := g.place(row+w, bit)
			path := d.route(place)
			rate := 0.0
			if whole {
				rate = s.wholeRate(path, d.none)
			} else {
				rate = s.least(path)
			}
			if rate == 0 {
				continue
			}
			s.grant(place, path, rate)
			if !s.offered(to, whole) {
				s.withdraw(w, bit, to)
				gone++
			}
			if !s.offered(from, whole) {
				unset(s.offers, from)
				return gone
			}
		}
	}
	return gone
}

func (s *Allocator) withdraw(word, bit int, to int32) {
	s.cols[word] &^= 1 << bit
	unset(s.offers, to)
}

// line returns the unfinished flows of a row or column as a set of peers, the set of peers
// with any flow, and the links of the peers.
func (g *grid) line(line int32, row bool) (flows, far []uint64, links []int32) {
	if row {
		return g.live[int(line)*g.width : int(line+1)*g.width], g.liveCols, g.cols
	}
	return g.down[int(line)*g.height : int(line+1)*g.height], g.liveRows, g.rows
}
