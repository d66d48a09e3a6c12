package rates

import (
	"math/bits"
	"slices"

	"testbed/policies"
)

// grid is a demand's flows by the first and the last link of their paths, in sets of
// bits: what the rules that go flow by flow need to find the next flow that can have
// something without looking at those that cannot. A demand has one where its flows
// are in order of their first link, then of their last.
type grid struct {
	rows, cols   []int32 // the first links, the last ones, in order
	rowOf, colOf []int32 // by slot of a link: which of them it is, -1 for none

	// A row is width words, of a bit for each column; a column is height words, of a
	// bit for each row.
	width, height int
	all           []uint64 // by row: flows there were at first
	base          []int32  // parallel to all: the place of the first flow of a word
	live, pilot   []uint64 // by row: unfinished; a pilot, nil for none
	down          []uint64 // by column: unfinished

	inRow, inCol []int32 // unfinished flows

	// Rows and columns with unfinished flows, also by link.
	liveRows, liveCols []uint64
	senders, receivers []uint64

	rowGap, colGap []int32 // by row, by column: see gap; -1 for not known

	core bool // paths may have links between the first and the last

	// inner is which of ways a flow takes between its first and its last link, by
	// place. A way is two places in mids, of which 0 stands for none. It is nil where
	// paths may have more links there.
	inner []uint16
	ways  [][2]uint16
	wayOf map[[2]uint16]uint16
	mids  []int32 // the links, after none
	midOf []int32 // by slot of a link: its place in mids, 0 if it has none
	few   *few    // see counted; nil for not known

	byCol, byWay []float64 // see left

	// By parts, twice: links between which there was no unfinished flow of these, so
	// that there is none now either. Empty for not known.
	barren [2 * (others + pilots + 1)][]uint64

	records [2 * (others + pilots + 1)]*record // likewise; nil for none

	order            []int32   // see sorted
	open             []uint64  // see pour
	give, giveInside []float64 // by column, by way
}

// sparse is how many words a grid may have for each flow: one of less use than that
// is not worth its memory.
const sparse = 2

// newGrid is the grid of a demand, nil if its flows are in no order for one.
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
			return nil // the first link of one flow, the last of another
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
	g.rowGap, g.colGap = slices.Repeat([]int32{-1}, len(g.rows)), slices.Repeat([]int32{-1}, len(g.cols))
	g.core = d.stride > 2
	g.index(d)
	return g
}

// firstBits is a set of the numbers below n.
func firstBits(n int) []uint64 {
	s := make([]uint64, words(n))
	for i := range n {
		set(s, int32(i))
	}
	return s
}

func set(s []uint64, i int32)   { s[i/64] |= 1 << (i % 64) }
func unset(s []uint64, i int32) { s[i/64] &^= 1 << (i % 64) }

// ends are the first and the last link of a path.
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

// end takes a flow off.
func (g *grid) end(d *Demand, place int) {
	from, to := d.ends(place)
	r, c := g.rowOf[d.slot[from]], g.colOf[d.slot[to]]
	unset(g.live[int(r)*g.width:], c)
	unset(g.down[int(c)*g.height:], r)
	for _, k := range g.records {
		if k != nil {
			k.end(r, from, place)
		}
	}
	if g.few != nil {
		g.few.end(r, c, int(g.inner[place]))
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
	for i := range g.barren {
		g.barren[i] = g.barren[i][:0]
		if k := g.records[i]; k != nil {
			k.era = nil
		}
	}
	from, to := d.ends(place)
	set(g.pilot[int(g.rowOf[d.slot[from]])*g.width:], g.colOf[d.slot[to]])
}

// of is a word of a row's unfinished flows of some parts.
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

// left is Demand.left: what unfinished flows of some parts have left, added to bits, by
// slot.
func (g *grid) left(d *Demand, p parts, bits []float64) {
	g.byCol, g.byWay = sized(g.byCol, len(g.cols)), sized(g.byWay, len(g.ways))
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
				inner, ways := g.inner[first:first+n], g.byWay
				for j, bits := range left {
					ways[inner[j]] += bits
				}
			}
		}
		bits[d.slot[from]] += sum
	}
	for c, l := range g.cols {
		bits[d.slot[l]] += g.byCol[c]
	}
	for w, way := range g.ways {
		for _, m := range way {
			bits[d.slot[g.mids[m]]] += g.byWay[w]
		}
	}
	bits[len(d.links)] = 0
}

// meet tells whether two sets have something in common.
func meet(a, b []uint64) bool {
	for i, w := range a {
		if w&b[i] != 0 {
			return true
		}
	}
	return false
}

// offer finds the links at which a flow may begin or end to get something by Greedy,
// Whole or Even: those with something left, or for Whole those left whole. It may name
// too many, when they have been taken or of a budget nothing is left, but not too few.
// What it says of links that no coflow of the step crosses means nothing if the step
// has a budget.
func (s *Sharer) offer(st *policies.Step) {
	links := len(s.capacity) - 1
	whole := st.Rule == policies.Whole
	if bound := st.Budget > 0 && !s.lazy; whole || bound {
		s.own = roomy(s.own, words(links))
		s.offers = s.own
		if bound && s.owned && !whole {
			return // what there is only becomes less
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
		clear(s.idle)
		floor := s.floor[:links]
		for l, free := range s.free[:links] {
			if free > floor[l] {
				s.idle[l/64] |= 1 << (l % 64)
			}
		}
	}
	s.offers = s.idle
	if s.lazy {
		s.own = append(s.own[:0], s.idle...)
		s.offers = s.own
	}
}

func (s *Sharer) offered(l int32, whole bool) bool {
	return s.open(l) && (!whole || s.untouched(l))
}

// pick is rules Greedy and Whole for a demand with a grid: the same as going through
// its flows one by one.
func (s *Sharer) pick(d *Demand, p parts, st *policies.Step) {
	g := d.grid
	if !meet(g.senders, s.offers) || !meet(g.receivers, s.offers) {
		return
	}
	if st.Rule == policies.Greedy && !g.core {
		s.pickPairs(d, p, st)
		return
	}
	left := s.offerCols(d, nil)
	for w, links := range g.senders {
		for b := links & s.offers[w]; b != 0; b &= b - 1 {
			from := int32(w*64 + bits.TrailingZeros64(b))
			left -= s.pickRow(d, from, p, st.Rule == policies.Whole)
			if left == 0 {
				return
			}
		}
	}
}

// offerCols puts in cols the receivers that have something left, and in news those
// of them that are not barren; it says how many they are.
func (s *Sharer) offerCols(d *Demand, barren []uint64) (left int) {
	g := d.grid
	s.cols, s.news = sized(s.cols, g.width), sized(s.news, g.width)
	for w, links := range g.receivers {
		for b := links & s.offers[w]; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			l := int32(w*64 + bit)
			if !s.open(l) {
				unset(s.offers, l)
				continue
			}
			c := g.colOf[d.slot[l]]
			set(s.cols, c)
			if len(barren) > 0 && barren[w]>>bit&1 == 0 {
				set(s.news, c)
			}
			left++
		}
	}
	return left
}

// offerNews is what offerCols does to news, where cols is known.
func (s *Sharer) offerNews(d *Demand, barren []uint64) {
	g := d.grid
	s.news = sized(s.news, g.width)
	for w, links := range g.receivers {
		for b := links & s.offers[w] &^ barren[w]; b != 0; b &= b - 1 {
			c := g.colOf[d.slot[w*64+bits.TrailingZeros64(b)]]
			s.news[c/64] |= s.cols[c/64] & (1 << (c % 64))
		}
	}
}

// pickPairs is pick of rule Greedy for flows that cross no links but their first and
// their last. It passes over what is known to be barren. What it leaves is so too: of
// the ends of a flow that it gave something, at least one has nothing left.
func (s *Sharer) pickPairs(d *Demand, p parts, st *policies.Step) {
	g := d.grid
	kept := 2 * p // with a budget other links have something left than without
	if s.lazy {
		kept++
	}
	known := &g.barren[kept]
	barren := *known
	rows, cols := len(barren) == 0, len(barren) == 0 // that are not barren
	for w, b := range barren {
		offers := s.offers[w] &^ b
		rows, cols = rows || offers&g.senders[w] != 0, cols || offers&g.receivers[w] != 0
	}
	if !rows && !cols {
		return
	}
	if s.lazy {
		for w, links := range g.senders {
			s.bindWord(st, w, (links|g.receivers[w])&s.offers[w])
		}
	}
	var r *record
	first, left := int32(0), 0
	if s.varies {
		left = s.offerCols(d, barren)
	} else {
		if r = g.records[kept]; r == nil {
			r = new(record)
			g.records[kept] = r
		}
		if r.era != s.era {
			r.forget(d, s.era)
		}
		first, left = s.survey(d, r)
		first, left = s.replay(d, r, first, left)
		if len(barren) > 0 && first < beyond {
			s.offerNews(d, barren)
		}
	}
	for w := int(first / 64); w < len(g.senders) && left > 0; w++ {
		links := g.senders[w] & s.offers[w]
		if w == int(first/64) {
			links &= ^uint64(0) << (first % 64)
		}
		old := uint64(0)
		if len(barren) > 0 {
			old = barren[w]
			if !cols {
				links &^= old
			}
		}
		for ; links != 0 && left > 0; links &= links - 1 {
			bit := bits.TrailingZeros64(links)
			among := s.cols
			if old>>bit&1 != 0 {
				among = s.news
			}
			if r == nil {
				left -= s.pickRowPairs(d, int32(w*64+bit), p, among)
			} else {
				left -= s.pickRecorded(d, r, int32(w*64+bit), p, among)
			}
		}
	}
	*known = append(barren[:0], s.offers...)
}

// pickRowPairs is pickPairs for the flows of one sender to some of the receivers. It
// says how many receivers are no longer offered.
func (s *Sharer) pickRowPairs(d *Demand, from int32, p parts, among []uint64) (gone int) {
	g, avail, floor := d.grid, s.avail, s.floor
	free, least := avail[from], floor[from]
	if free <= least {
		unset(s.offers, from)
		return 0
	}
	row := int(g.rowOf[d.slot[from]]) * g.width
	for w, cols := range among {
		// Those that were withdrawn are in cols no longer.
		for b := g.of(row+w, p) & cols & s.cols[w]; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			to := g.cols[w*64+bit]
			have := avail[to]
			rate := free
			if have < rate {
				rate = have
			}
			d.add(g.place(row+w, bit), rate)
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

// pickRecorded is pickRowPairs for a sender that has something left, and records what
// it gives. The two are apart because each is most of what its policies take.
func (s *Sharer) pickRecorded(d *Demand, r *record, from int32, p parts, among []uint64) (gone int) {
	g, avail, floor := d.grid, s.avail, s.floor
	free, least := avail[from], floor[from]
	row := g.rowOf[d.slot[from]]
	first := len(r.took)
search:
	for w, cols := range among {
		at := int(row)*g.width + w
		for b := g.of(at, p) & cols & s.cols[w]; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			to := g.cols[w*64+bit]
			have := avail[to]
			rate := free
			if have < rate {
				rate = have
			}
			place := g.place(at, bit)
			d.add(place, rate)
			free -= rate
			have -= rate
			avail[to] = have
			r.took = append(r.took, took{place, int32(w*64 + bit), rate, have})
			if have <= floor[to] {
				s.withdraw(w, bit, to)
				gone++
			}
			if free <= least {
				unset(s.offers, from)
				break search
			}
		}
	}
	if len(r.took) > first {
		avail[from] = free
		r.at[row] = int32(len(r.gave))
		r.gave = append(r.gave, gave{row, from, int32(first), free})
	}
	return gone
}

// pickRow is pick for the flows of one sender. It says how many receivers are no
// longer offered.
func (s *Sharer) pickRow(d *Demand, from int32, p parts, whole bool) (gone int) {
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
				rate = s.alike(path, d.none)
			} else {
				rate = s.least(path)
			}
			if rate == 0 {
				continue
			}
			s.grant(d, place, path, rate)
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

func (s *Sharer) withdraw(word, bit int, to int32) {
	s.cols[word] &^= 1 << bit
	unset(s.offers, to)
}
