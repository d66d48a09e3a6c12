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
	left  []float64 // by link: what flows that stopped rising leave, but for blocks; rounding may make it less than 0
	n     []float64 // by link: flows that rise, but for blocks
	level []float64 // by link: +Inf until it is full
	now   float64
	heap  []mark

	// A block is flows from each of some links to each of some others, told at once. On
	// each of one side's links as many of them rise as there are links on the other
	// side that are not full, and what has stopped is what those have that are. 2*i is
	// the first links of block i, 2*i+1 its last ones.
	sides []side
	heads []int32 // by link: its first place in meets, -1 for none
	meets []meeting

	// The same once all are known, link by link: at is most of what filling takes.
	spans  []span  // by link: its part of across
	across []int32 // the other sides of blocks that it is in
}

type side struct {
	rising  float64 // links that are not full
	stopped float64 // the levels of the others, added up
}

type span struct{ from, to int32 }

// meeting is the other side of a block that a link is in.
type meeting struct {
	side int32
	line int32 // the link's row or column
	gap  int32 // the only link of the other side that it has no flow to, noGap or gaps
	next int32 // in meets, -1 for none
}

const (
	noGap = -1 - iota
	gaps  // more than one
)

// at is what flows that have stopped leave of a link, and how many rise on it.
func (f *levels) at(l int32) (left, n float64) {
	left, n = f.left[l], f.n[l]
	in := f.spans[l]
	for _, i := range f.across[in.from:in.to] {
		s := &f.sides[i]
		left -= s.stopped
		n += s.rising
	}
	return left, n
}

// meet notes that a link is in a block.
func (f *levels) meet(l int32, m meeting) {
	m.next = f.heads[l]
	f.meets = append(f.meets, m)
	f.heads[l] = int32(len(f.meets) - 1)
}

// gather puts the other sides of the blocks that a link is in side by side.
func (f *levels) gather(l int32) {
	from := int32(len(f.across))
	for i := f.heads[l]; i >= 0; i = f.meets[i].next {
		f.across = append(f.across, f.meets[i].side)
	}
	f.spans[l] = span{from, int32(len(f.across))}
}

// mark is a level below which a link is not full.
type mark struct {
	level float64
	link  int32
}

// begin puts n and left to 0 and the level of all links to +Inf.
func (f *levels) begin(links int) {
	f.left, f.n, f.level = sized(f.left, links), sized(f.n, links), sized(f.level, links)
	f.heads, f.meets = roomy(f.heads, links), f.meets[:0]
	for l := range f.level {
		f.level[l], f.heads[l] = math.Inf(1), -1
	}
}

// ready is to be called when left and n are set.
func (f *levels) ready() {
	f.reset()
	for l := range int32(len(f.n) - 1) {
		f.gather(l)
		if left, n := f.at(l); n > 0 {
			f.heap = append(f.heap, mark{left / n, l})
		}
	}
	f.order()
}

// readyAt is ready where all flows are on some of the links.
func (f *levels) readyAt(links []int32) {
	f.reset()
	for _, l := range links {
		f.gather(l)
		if left, n := f.at(l); n > 0 {
			f.heap = append(f.heap, mark{left / n, l})
		}
	}
	f.order()
}

func (f *levels) reset() {
	f.heap, f.now = f.heap[:0], 0
	f.spans, f.across = roomy(f.spans, len(f.n)), f.across[:0]
}

func (f *levels) order() {
	for i := len(f.heap)/2 - 1; i >= 0; i-- {
		f.sink(i)
	}
}

// next is the link that is full next, -1 if nothing rises any more.
func (f *levels) next() int32 {
	for len(f.heap) > 0 {
		top := &f.heap[0]
		l := top.link
		left, n := f.at(l)
		if n == 0 {
			f.pop()
			continue
		}
		// Flows that stop let the others on a link rise further.
		if full := max(f.now, left/n); full > top.level {
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
	singles []int32  // by link: the first in chain of the members whose grid is no block, -1 for none
	chain   []single

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

// member is a demand that takes part in a filling.
type member struct {
	d    *Demand
	p    parts
	rows []uint64 // of its grid, that have flows and are not full; nil where its flows are in path
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

// load prepares all links for the members' flows. What flows cross between their ends
// may be left out, as if it were without limits.
func (f *filling) load(s *Sharer, inside bool) {
	links := len(s.avail)
	if len(f.members) == 1 { // only its links are looked at
		d := f.members[0].d
		f.left, f.n, f.level = roomy(f.left, links), roomy(f.n, links), roomy(f.level, links)
		f.heads, f.meets, f.singles = roomy(f.heads, links), f.meets[:0], roomy(f.singles, links)
		f.heads[d.none], f.singles[d.none] = -1, -1
		for _, l := range d.links {
			f.left[l], f.n[l], f.level[l], f.heads[l], f.singles[l] = 0, 0, math.Inf(1), -1, -1
			if s.open(l) {
				f.left[l] = s.avail[l]
			}
		}
		f.left[d.none], f.n[d.none], f.level[d.none] = math.Inf(1), 0, math.Inf(1)
	} else {
		f.begin(links)
		f.singles = roomy(f.singles, links)
		for l := range f.left {
			f.singles[l] = -1
			if s.open(int32(l)) {
				f.left[l] = s.avail[l]
			}
		}
	}
	for _, m := range f.members {
		for slot, l := range m.d.links {
			f.n[l] += float64(m.d.crossing(slot, m.p))
		}
	}
	if inside {
		return
	}
	for _, m := range f.members {
		for _, l := range m.d.grid.mids {
			f.n[l] = 0 // also of flows that begin or end there
		}
	}
}

// arm is ready for the members' links.
func (f *filling) arm() {
	if len(f.members) == 1 {
		f.readyAt(f.members[0].d.links)
		return
	}
	f.ready()
}

// run sets the flows' rates.
func (f *filling) run(s *Sharer) {
	if len(f.members) == 0 {
		return
	}
	if !f.within(s) {
		f.load(s, true)
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
			s.spread(m.d, m.p, f.level)
		}
	}
	for _, m := range f.members {
		s.settle(m.d)
	}
	clear(f.members)
}

// within sets the rates that flows would have if links between the ends of their paths
// had no limits, and tells whether these are kept all the same: then they are the
// max-min fair ones. If not, it has changed nothing. It does without going through the
// flows one by one, and is for members that all have a grid.
func (f *filling) within(s *Sharer) bool {
	core := false
	for _, m := range f.members {
		g := m.d.grid
		if g == nil || m.d.serves(m.p) != m.d.unfinished || g.core && g.inner == nil || g.mixed(m.d) {
			return false
		}
		core = core || len(g.mids) > 1
	}
	if !core {
		return false
	}
	f.load(s, false)
	f.bits()
	for i := range f.members {
		f.block(i)
	}
	f.arm()
	for l := f.next(); l >= 0; l = f.next() {
		f.stopGrids(l)
	}
	for _, m := range f.members {
		s.draw(m.d, m.p, f.level)
	}
	kept := true
	for _, m := range f.members {
		for _, l := range m.d.grid.mids[min(1, len(m.d.grid.mids)):] {
			kept = kept && (s.used[l] == 0 || s.open(l) && s.used[l] <= s.avail[l])
		}
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
	f.chain = f.chain[:0]
	f.sides = sized(f.sides, 2*len(f.members))
}

// block makes a member with a grid a block, if it has at least half of the flows that
// there could be between its senders and its receivers. Those that are not there are
// taken off n, and as they would have stopped, put back.
func (f *filling) block(i int) {
	m := &f.members[i]
	g, d := m.d.grid, m.d
	rows, cols := 0, 0
	for w, b := range g.liveRows {
		m.rows[w] = b
		rows += bits.OnesCount64(b)
	}
	for w, b := range g.liveCols {
		m.cols[w] = b
		cols += bits.OnesCount64(b)
	}
	if 2*d.unfinished < rows*cols {
		f.touch(int32(i), m.rows, g.rows, true)
		f.touch(int32(i), m.cols, g.cols, false)
		return
	}
	f.sides[2*i].rising, f.sides[2*i+1].rising = float64(rows), float64(cols)
	for w, b := range m.rows {
		for ; b != 0; b &= b - 1 {
			r := int32(w*64 + bits.TrailingZeros64(b))
			l := g.rows[r]
			f.n[l] -= float64(cols)
			f.meet(l, meeting{side: int32(2*i + 1), line: r, gap: gap(cols-int(d.count[d.slot[l]]), &g.rowGap[r], g.live[int(r)*g.width:], m.cols)})
		}
	}
	for w, b := range m.cols {
		for ; b != 0; b &= b - 1 {
			c := int32(w*64 + bits.TrailingZeros64(b))
			l := g.cols[c]
			f.n[l] -= float64(rows)
			f.meet(l, meeting{side: int32(2 * i), line: c, gap: gap(rows-int(d.count[d.slot[l]]), &g.colGap[c], g.down[int(c)*g.height:], m.rows)})
		}
	}
}

// gap is meeting.gap of a row or column that lacks so many of the other side's lines.
// Of some that lacks one, which is known from the last time: most do for as long as
// their coflow lasts, where every host sends to all others.
func gap(lacks int, known *int32, live, lines []uint64) int32 {
	switch lacks {
	case 0:
		return noGap
	case 1:
	default:
		return gaps
	}
	if k := *known; k >= 0 && lines[k/64]>>(k%64)&1 != 0 {
		return k
	}
	for w, b := range lines {
		if b &^= live[w]; b != 0 {
			*known = int32(w*64 + bits.TrailingZeros64(b))
			break
		}
	}
	return *known
}

// touch notes that some of the links of a member's rows or columns are its own.
func (f *filling) touch(member int32, lines []uint64, links []int32, row bool) {
	for w, b := range lines {
		for ; b != 0; b &= b - 1 {
			line := int32(w*64 + bits.TrailingZeros64(b))
			l := links[line]
			f.chain = append(f.chain, single{member, line, row, f.singles[l]})
			f.singles[l] = int32(len(f.chain) - 1)
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
	for at := f.heads[l]; at >= 0; at = f.meets[at].next {
		meets := &f.meets[at]
		own := meets.side ^ 1 // of the link itself
		f.sides[own].rising--
		f.sides[own].stopped += f.now
		m := &f.members[own/2]
		m.fill(meets.line, own&1 == 0)
		if meets.gap == noGap {
			continue
		}
		if gap := meets.gap; gap >= 0 {
			rise, links := m.rows, m.d.grid.rows
			if own&1 == 0 {
				rise, links = m.cols, m.d.grid.cols
			}
			if rise[gap/64]>>(gap%64)&1 != 0 {
				l := links[gap]
				f.n[l]++
				f.left[l] += f.now
			}
			continue
		}
		flows, rise, links := m.others(meets.line, own&1 == 0)
		for w, b := range flows {
			for b = rise[w] &^ b; b != 0; b &= b - 1 { // no such flow
				l := links[w*64+bits.TrailingZeros64(b)]
				f.n[l]++
				f.left[l] += f.now
			}
		}
	}
	for at := f.singles[l]; at >= 0; at = f.chain[at].next {
		on := f.chain[at]
		m := &f.members[on.member]
		m.fill(on.line, on.row)
		flows, rise, links := m.others(on.line, on.row)
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

// others are the flows of a row or column, by their other ends, which of those rise,
// and what links these are.
func (m *member) others(line int32, row bool) (flows, rise []uint64, links []int32) {
	g := m.d.grid
	if row {
		return g.live[int(line)*g.width : int(line+1)*g.width], m.cols, g.cols
	}
	return g.down[int(line)*g.height : int(line+1)*g.height], m.rows, g.rows
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
