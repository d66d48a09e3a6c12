package rates

import (
	"math"
	"math/bits"
)

// filling computes max-min fair rates of the flows of demands.
type filling struct {
	levels
	members []member
	sets    []uint64 // of members
	chain   []single
	lacks   []lack

	mids   []int32 // see apart
	inside []uint64

	// Flows of demands whose grid does not do, one by one.
	stride  int
	path    []int32 // stride links each
	begins  []int32 // by link: its first in crosses
	crosses []int32 // flows, by the links they cross
}

// single is a link of a member whose grid is no block.
type single struct {
	member int32
	line   int32 // the link's row or column
	row    bool
	next   int32 // in filling.chain, -1 for none
}

// lack is what a link has no flow to in a block, where it is not its mate alone.
type lack struct {
	link   int32 // this alone, or -1 for all that the flows of a line are not to
	member int32
	line   int32
	row    bool
	next   int32 // in filling.lacks, -1 for none
}

// member is a demand that takes part in a filling.
type member struct {
	d    *Demand
	p    parts
	rows []uint64 // of its grid, that have flows and are not full; nil where it is a block, and where its flows are in path
	cols []uint64
}

// start empties the filling, for flows that share what the step has.
func (f *filling) start(s *Sharer) {
	f.members, f.stride = f.members[:0], 1
	for _, d := range s.demands {
		f.stride = max(f.stride, d.stride)
	}
}

// join adds the flows of some parts of a demand.
func (f *filling) join(d *Demand, p parts) {
	if p != 0 && d.serves(p) > 0 {
		f.members = append(f.members, member{d: d, p: p})
	}
}

// load prepares all links, for no flows yet.
func (f *filling) load(s *Sharer) {
	links := len(s.avail)
	f.links, f.level, f.meets = roomy(f.links, links), roomy(f.level, links), f.meets[:0]
	some := s.every
	if len(f.members) == 1 { // only its links are looked at
		some = f.members[0].d.links
	}
	for _, l := range some {
		f.links[l], f.level[l] = unused(), math.Inf(1)
		if s.open(l) {
			f.links[l].left = s.avail[l]
		}
	}
	none := links - 1
	f.links[none], f.level[none] = unused(), math.Inf(1)
	f.links[none].left = math.Inf(1)
	f.chain, f.lacks = f.chain[:0], f.lacks[:0]
	f.sides = sized(f.sides, 2*len(f.members))
	f.rise, f.loose = 0, false
}

// arm is ready for the members' links. A sole member is likely to be limited by the links
// of that side of its grid that has fewer.
func (f *filling) arm() {
	if len(f.members) > 1 {
		f.ready()
		return
	}
	d := f.members[0].d
	switch g := d.grid; {
	case f.loose:
		f.readyAt(d.links, nil)
	case len(g.rows) < len(g.cols):
		f.readyAt(g.rows, g.cols)
	default:
		f.readyAt(g.cols, g.rows)
	}
}

// run sets the flows' rates.
func (f *filling) run(s *Sharer) {
	if len(f.members) == 0 {
		return
	}
	if !f.within(s) {
		f.load(s)
		f.path = f.path[:0]
		f.split(s)
		f.arm()
		for l := f.next(); l >= 0; l = f.next() {
			f.stopGrids(l)
			if len(f.path) > 0 {
				f.stopListed(l)
			}
		}
		for _, m := range f.members {
			s.spread(m.d, m.p, f.level, false)
		}
	}
	s.taken.begin()
	for _, m := range f.members {
		s.taken.add(m.d.links)
	}
	for _, links := range s.taken.fewest(s.every) {
		for _, l := range links {
			s.used[l] = 0
			if !s.last && s.open(l) {
				s.avail[l] = f.rest(l)
			}
		}
	}
	s.used[len(s.used)-1] = 0
	clear(f.members)
}

// within sets the rates that flows would have if links between the ends of their paths
// had no limits, and tells whether these are kept all the same: then they are the
// max-min fair ones. If not, it has changed nothing. It does without going through the
// flows one by one, and is for members that all have a grid.
func (f *filling) within(s *Sharer) bool {
	if !f.apart(s) || len(f.mids) == 0 {
		return false
	}
	f.load(s)
	f.bits()
	for i := range f.members {
		f.block(i)
	}
	for _, l := range f.mids {
		f.links[l].n = 0
	}
	f.arm()
	for l := f.next(); l >= 0; l = f.next() {
		f.stopGrids(l)
	}
	for _, m := range f.members {
		if len(m.d.grid.mids) > 1 {
			s.draw(m.d, m.p, f.level, false)
		}
	}
	kept := true
	for _, l := range f.mids {
		kept = kept && (s.used[l] == 0 || s.open(l) && s.used[l] <= s.avail[l])
		f.links[l].left -= s.used[l]
	}
	for _, m := range f.members {
		if kept {
			m.d.lay(m.p, f.level)
			continue
		}
		for _, l := range m.d.links {
			s.used[l] = 0
		}
		s.used[m.d.none] = 0
	}
	return kept
}

// apart finds the links that members' flows cross between the ends of their paths, mids,
// and tells whether all members have a grid that knows them, and none of these links is
// the end of any path.
func (f *filling) apart(s *Sharer) bool {
	f.mids, f.inside = f.mids[:0], sized(f.inside, words(len(s.avail)-1))
	for _, m := range f.members {
		g := m.d.grid
		if g == nil || m.d.serves(m.p) != m.d.unfinished || g.core && g.inner == nil || g.mixed(m.d) {
			return false
		}
		for _, l := range g.mids[min(1, len(g.mids)):] {
			if f.inside[l/64]>>(l%64)&1 == 0 {
				set(f.inside, l)
				f.mids = append(f.mids, l)
			}
		}
	}
	for _, m := range f.members {
		if meet(m.d.grid.senders, f.inside) || meet(m.d.grid.receivers, f.inside) {
			return false
		}
	}
	return true
}

// bits gives every member that has a grid its sets of bits.
func (f *filling) bits() {
	need := 0
	for _, m := range f.members {
		if m.d.grid != nil {
			need += m.d.grid.width + m.d.grid.height
		}
	}
	f.sets = sized(f.sets, need)
	used := 0
	for i := range f.members {
		m := &f.members[i]
		if g := m.d.grid; g != nil {
			m.rows, m.cols = f.sets[used:used+g.height], f.sets[used+g.height:used+g.height+g.width]
			used += g.height + g.width
		}
	}
}

// block makes a member with a grid a block, if it has at least half of the flows that
// there could be between its senders and its receivers. Those that are not there are
// taken off n, and as they would have stopped, put back. Of other members it counts the
// flows.
func (f *filling) block(i int) {
	m := &f.members[i]
	g, d := m.d.grid, m.d
	rows, cols := 0, 0
	for _, b := range g.liveRows {
		rows += bits.OnesCount64(b)
	}
	for _, b := range g.liveCols {
		cols += bits.OnesCount64(b)
	}
	if 2*d.unfinished < rows*cols {
		f.count(m)
		copy(m.rows, g.liveRows)
		copy(m.cols, g.liveCols)
		f.touch(int32(i), m.rows, g.rows, true)
		f.touch(int32(i), m.cols, g.cols, false)
		return
	}
	m.rows, m.cols = nil, nil
	f.sides[2*i].rising, f.sides[2*i+1].rising = float64(rows), float64(cols)
	f.rise++
	f.side(int32(i), true, cols)
	f.side(int32(i), false, rows)
}

// count counts the flows of a member that is no block by link.
func (f *filling) count(m *member) {
	f.loose = true
	for slot, l := range m.d.links {
		f.links[l].n += float64(m.d.crossing(slot, m.p))
	}
}

// side puts a member's rows or columns into its block, in which each could have flows to
// so many others.
func (f *filling) side(member int32, row bool, others int) {
	g := f.members[member].d.grid
	lines, links, in, known, far, farLinks, across := g.liveRows, g.rows, g.inRow, g.rowGap, g.liveCols, g.cols, 2*member+1
	if !row {
		lines, links, in, known, far, farLinks, across = g.liveCols, g.cols, g.inCol, g.colGap, g.liveRows, g.rows, 2*member
	}
	for w, b := range lines {
		for ; b != 0; b &= b - 1 {
			line := int32(w*64 + bits.TrailingZeros64(b))
			l := links[line]
			f.meet(l, across)
			none := others - int(in[line])
			if none == 0 {
				continue
			}
			f.links[l].n -= float64(none)
			gap := int32(-1)
			if none == 1 {
				gap = known[line]
				if gap < 0 || far[gap/64]>>(gap%64)&1 == 0 {
					gap = g.gap(line, row)
					known[line] = gap
				}
				gap = farLinks[gap]
				if on := &f.links[l]; on.mates == 0 || on.mate == gap {
					on.mate = gap
					on.mates++
					continue
				}
			}
			f.lacks = append(f.lacks, lack{gap, member, line, row, f.links[l].lack})
			f.links[l].lack = int32(len(f.lacks) - 1)
		}
	}
}

// gap is the first line of the other side to which a row or column has no flow, while
// others have. It is kept for a line that lacks only one: most do for as long as their
// coflow lasts, where every host sends to all others.
func (g *grid) gap(line int32, row bool) int32 {
	flows, far, _ := g.line(line, row)
	for w, b := range far {
		if b &^= flows[w]; b != 0 {
			return int32(w*64 + bits.TrailingZeros64(b))
		}
	}
	return -1
}

// line is the unfinished flows of a row or column, by their other ends, which lines of
// those there are flows at, and what links these are.
func (g *grid) line(line int32, row bool) (flows, far []uint64, links []int32) {
	if row {
		return g.live[int(line)*g.width : int(line+1)*g.width], g.liveCols, g.cols
	}
	return g.down[int(line)*g.height : int(line+1)*g.height], g.liveRows, g.rows
}

// touch notes that some of the links of a member's rows or columns are its own.
func (f *filling) touch(member int32, lines []uint64, links []int32, row bool) {
	for w, b := range lines {
		for ; b != 0; b &= b - 1 {
			line := int32(w*64 + bits.TrailingZeros64(b))
			l := links[line]
			f.chain = append(f.chain, single{member, line, row, f.links[l].single})
			f.links[l].single = int32(len(f.chain) - 1)
		}
	}
}

// split prepares grids, and lists the flows of demands whose grid does not do: those
// of part of a coflow, and those that cross more than two links.
func (f *filling) split(s *Sharer) {
	f.bits()
	for i := range f.members {
		m := &f.members[i]
		if f.gridded(*m) {
			f.block(i)
			continue
		}
		m.rows, m.cols = nil, nil
		f.count(m)
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

// stopGrids takes the flows of a full link off the links at their other ends.
func (f *filling) stopGrids(l int32) {
	f.stopBlocks(l)
	on := f.links[l]
	if on.mates > 0 && f.rises(on.mate) {
		f.stop(on.mate, -on.mates)
	}
	for at := on.lack; at >= 0; at = f.lacks[at].next {
		no := f.lacks[at]
		if no.link >= 0 {
			if f.rises(no.link) {
				f.stop(no.link, -1)
			}
			continue
		}
		flows, far, links := f.members[no.member].d.grid.line(no.line, no.row)
		for w, b := range far {
			for b &^= flows[w]; b != 0; b &= b - 1 {
				if l := links[w*64+bits.TrailingZeros64(b)]; f.rises(l) {
					f.stop(l, -1)
				}
			}
		}
	}
	for at := on.single; at >= 0; at = f.chain[at].next {
		on := f.chain[at]
		m := &f.members[on.member]
		m.fill(on.line, on.row)
		flows, _, links := m.d.grid.line(on.line, on.row)
		rise := m.cols
		if !on.row {
			rise = m.rows
		}
		for w, b := range flows {
			for b &= rise[w]; b != 0; b &= b - 1 {
				f.stop(links[w*64+bits.TrailingZeros64(b)], 1)
			}
		}
	}
}

// fill notes that a row or column is full.
func (m *member) fill(line int32, row bool) {
	if row {
		unset(m.rows, line)
	} else {
		unset(m.cols, line)
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
