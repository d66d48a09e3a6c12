package rates

import "math"

// levels is progressive filling: all flows' rates rise together until a link is full;
// its flows keep what they have then, the link's level, and the others rise on. The
// rate of a flow is the lowest level on its path.
//
// Whoever uses it sets links, calls ready, and then next until nothing rises any more; for
// every link that next returns, it takes the flows that rose until then off the links
// on their paths. There is one link more than the fabric has: none, for paths that are
// filled up with it.
type levels struct {
	links []state
	level []float64 // by link: +Inf until it is full
	now   float64
	heap  []mark

	parked []mark  // those that are not in heap yet
	least  float64 // the lowest level of these; +Inf for none
	empty  []int32 // links that are full at once, which need no heap

	// A block is flows from each of some links to each of some others, told at once. On
	// each of one side's links as many of them rise as there are links on the other
	// side that are not full, and what has stopped is what those have that are. 2*i is
	// the first links of block i, 2*i+1 its last ones.
	sides []side
	meets []meeting
	rise  int  // blocks of which flows rise
	loose bool // there are flows in no block

	// The same once all are known, link by link: at and stopBlocks are most of what
	// filling takes.
	across []int32 // the other sides of blocks that a link is in
}

// state is that of a link.
type state struct {
	left float64 // what flows that stopped rising leave, but for blocks; rounding may make it less than 0
	n    float64 // flows that rise, but for blocks
	in   span    // its part of across
	meet int32   // its first place in meets, -1 for none

	single int32   // the first in filling.chain of the members whose grid is no block, -1 for none
	lack   int32   // its first in filling.lacks, -1 for none
	mate   int32   // the link that it has no flow to in most of its blocks that lack one: a host does not send to itself
	mates  float64 // those blocks
}

// unused is a link that no flow crosses.
func unused() state { return state{meet: -1, single: -1, lack: -1} }

type side struct {
	rising  float64 // links that are not full
	stopped float64 // the levels of the others, added up
}

type span struct{ from, to int32 }

// meeting is the other side of a block that a link is in.
type meeting struct {
	side int32
	next int32 // in meets, -1 for none
}

// at is what flows that have stopped leave of a link, and how many rise on it.
func (f *levels) at(l int32) (left, n float64) {
	on := &f.links[l]
	left, n = on.left, on.n
	for _, i := range f.across[on.in.from:on.in.to] {
		s := &f.sides[i]
		left -= s.stopped
		n += s.rising
	}
	return left, n
}

// rest is what the flows on a link leave of it once nothing rises any more.
func (f *levels) rest(l int32) float64 {
	if !math.IsInf(f.level[l], 1) {
		return 0
	}
	left, _ := f.at(l)
	return max(left, 0)
}

// meet notes that a link is in a block, and which is the block's other side.
func (f *levels) meet(l, side int32) {
	on := &f.links[l]
	f.meets = append(f.meets, meeting{side, on.meet})
	on.meet = int32(len(f.meets) - 1)
}

// gather puts the other sides of the blocks that a link is in side by side, and tells how
// many flows rise there.
func (f *levels) gather(on *state) (n float64) {
	from := int32(len(f.across))
	for i := on.meet; i >= 0; i = f.meets[i].next {
		side := f.meets[i].side
		f.across = append(f.across, side)
		n += f.sides[side].rising
	}
	on.in = span{from, int32(len(f.across))}
	return n
}

// mark is a level below which a link is not full.
type mark struct {
	level float64
	link  int32
}

// ready is to be called when links are set.
func (f *levels) ready() {
	f.reset()
	for l := range int32(len(f.links) - 1) {
		f.add(l, math.Inf(1))
	}
	f.order()
}

// readyAt is ready where all flows are on some of the links. Of the others, those that
// are full later than all of these, as it looks now, come into the heap when one of them
// may be full next: often none is before all flows have stopped.
func (f *levels) readyAt(links, others []int32) {
	f.reset()
	for _, l := range links {
		f.add(l, math.Inf(1))
	}
	last := 0.0
	for _, m := range f.heap {
		last = max(last, m.level)
	}
	for _, l := range others {
		f.add(l, last)
	}
	f.order()
}

// add adds a link to the heap; if it may be full later than last, to those that wait.
func (f *levels) add(l int32, last float64) {
	on := &f.links[l]
	left, n := on.left, on.n+f.gather(on)
	switch level := left / n; {
	case n <= 0:
	case left <= 0:
		f.empty = append(f.empty, l)
	case level <= last:
		f.heap = append(f.heap, mark{level, l})
	default:
		f.parked = append(f.parked, mark{level, l})
		f.least = min(f.least, level)
	}
}

func (f *levels) reset() {
	f.heap, f.now = f.heap[:0], 0
	f.parked, f.least, f.empty = f.parked[:0], math.Inf(1), f.empty[:0]
	f.across = f.across[:0]
}

func (f *levels) order() {
	for i := len(f.heap)/2 - 1; i >= 0; i-- {
		f.sink(i)
	}
}

// next is the link that is full next, -1 if nothing rises any more.
func (f *levels) next() int32 {
	for n := len(f.empty); n > 0; n = len(f.empty) {
		l := f.empty[n-1]
		f.empty = f.empty[:n-1]
		if _, n := f.at(l); n > 0 {
			f.level[l], f.links[l].n = 0, 0
			return l
		}
	}
	for f.rise > 0 || f.loose {
		if len(f.parked) > 0 && (len(f.heap) == 0 || f.heap[0].level >= f.least) {
			f.heap = append(f.heap, f.parked...)
			f.parked, f.least = f.parked[:0], math.Inf(1)
			f.order()
		}
		if len(f.heap) == 0 {
			break
		}
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
		f.level[l], f.links[l].n = f.now, 0
		return l
	}
	return -1
}

// stop takes so many flows that have stopped rising off a link.
func (f *levels) stop(l int32, flows float64) {
	on := &f.links[l]
	on.n -= flows
	on.left -= float64(flows * f.now)
}

// stopBlocks takes the flows of a link that is full off the other links of its blocks.
func (f *levels) stopBlocks(l int32) {
	in := f.links[l].in
	for _, i := range f.across[in.from:in.to] {
		own := &f.sides[i^1]
		own.rising--
		own.stopped += f.now
		if own.rising == 0 && f.sides[i].rising > 0 {
			f.rise--
		}
	}
}

// rises tells whether a link is not full.
func (f *levels) rises(l int32) bool { return f.level[l] > f.now }

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
