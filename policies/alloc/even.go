package alloc

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"testbed/policies"
)

// even applies rule EqualSplit. The number of flows on each link gives the link's share per flow,
// and the shares give the flows' rates.
func (s *Allocator) even(st *policies.Step) {
	p := of(st.Part)
	s.takers = s.takers[:0]
	s.taken.begin()
	for _, c := range st.Coflows {
		if d := s.demands[c]; s.takes(st, c) && s.reaches(d, p) {
			s.takers = append(s.takers, d)
			s.taken.add(d.links)
			s.count(d, p)
		}
	}
	lists := s.taken.fewest(s.every)
	for _, links := range lists {
		for _, l := range links {
			s.share[l] = 0
			if s.open(l) {
				s.share[l] = s.avail[l] / max(s.n[l], 1)
			}
		}
	}
	for _, d := range s.takers {
		s.spread(d, p, s.share, !s.last)
	}
	clear(s.takers)
	if s.last {
		return
	}
	for _, links := range lists {
		for _, l := range links {
			s.avail[l] = max(s.avail[l]-s.used[l], 0)
			s.used[l], s.n[l] = 0, 0
		}
	}
	none := len(s.used) - 1
	s.used[none], s.n[none] = 0, 0
}

// reaches reports whether a flow of a demand may have residual capacity. With a grid, it
// tests whether any sender and any receiver have.
func (s *Allocator) reaches(d *Demand, p parts) bool {
	if d.serves(p) == 0 {
		return false
	}
	g := d.grid
	return g == nil || s.anyOpen(g.senders) && s.anyOpen(g.receivers)
}

// anyOpen reports whether any offered link of a set has residual capacity for the step.
func (s *Allocator) anyOpen(links []uint64) bool {
	for w, set := range links {
		for b := set & s.offers[w]; b != 0; b &= b - 1 {
			l := int32(w*64 + bits.TrailingZeros64(b))
			if s.open(l) {
				return true
			}
			unset(s.offers, l)
		}
	}
	return false
}

// count adds to n the flows of a demand whose whole path has residual capacity.
func (s *Allocator) count(d *Demand, p parts) {
	shut := false
	for slot, l := range d.links {
		if !s.open(l) && d.crossing(slot, p) > 0 {
			shut = true
			break
		}
	}
	if !shut {
		for slot, l := range d.links {
			s.n[l] += float64(d.crossing(slot, p))
		}
		return
	}
	if d.grid != nil {
		s.countGrid(d, p)
		return
	}
	s.list = d.places(p, s.list)
	for _, i := range s.list {
		s.countFlow(d.route(i))
	}
}

func (s *Allocator) countFlow(path []int32) {
	for _, l := range path {
		if !s.open(l) {
			return
		}
	}
	for _, l := range path {
		s.n[l]++
	}
}

// countGrid is count for a demand with a grid. It uses bit sets where it need not
// distinguish flows.
func (s *Allocator) countGrid(d *Demand, p parts) {
	g := d.grid
	s.rows, s.cols = sized(s.rows, g.height), sized(s.cols, g.width)
	for r, l := range g.rows {
		if s.open(l) {
			set(s.rows, int32(r))
		}
	}
	for c, l := range g.cols {
		if s.open(l) {
			set(s.cols, int32(c))
		}
	}
	if g.core && (g.inner == nil || s.shutInside(d, p)) {
		g.each(s.rows, s.cols, p, func(at, bit int) { s.countFlow(d.route(g.place(at, bit))) })
		return
	}
	alive := 0
	if p == pilots|others || g.pilot == nil {
		alive = s.countLines(g.rows, g.inRow, g.live, s.rows, s.cols, g.liveCols)
		s.countLines(g.cols, g.inCol, g.down, s.cols, s.rows, g.liveRows)
	} else {
		g.each(s.rows, s.cols, p, func(at, bit int) {
			s.n[g.rows[at/g.width]]++
			s.n[g.cols[at%g.width*64+bit]]++
			alive++
		})
	}
	if g.core {
		s.countInside(d, p, alive)
	}
}

// countLines adds to n the flows of open rows or columns to open lines of the other side,
// and returns their number. These are all flows of a line unless a line of the other side
// with flows is shut.
func (s *Allocator) countLines(links, in []int32, live, open, others, alive []uint64) (flows int) {
	shut := uint64(0)
	for v, b := range alive {
		shut |= b &^ others[v]
	}
	for w, b := range open {
		for ; b != 0; b &= b - 1 {
			i := w*64 + bits.TrailingZeros64(b)
			n := int(in[i])
			if shut != 0 {
				n = 0
				for v, others := range others {
					n += bits.OnesCount64(live[i*len(alive)+v] & others)
				}
			}
			flows += n
			s.n[links[i]] += float64(n)
		}
	}
	return flows
}

// run returns the start and the length of the first run of consecutive bits in a nonempty
// set. In a grid, they represent consecutive flows.
func run(set uint64) (low, n int) {
	low = bits.TrailingZeros64(set)
	return low, bits.TrailingZeros64(^(set >> low))
}

// mixed reports whether a link is an end of some paths and an inner link of others.
func (g *grid) mixed(d *Demand) bool {
	for _, l := range g.mids[min(1, len(g.mids)):] {
		if slot := d.slot[l]; g.rowOf[slot] >= 0 || g.colOf[slot] >= 0 {
			return true
		}
	}
	return false
}

// each calls f for the unfinished flows of some rows, columns and parts, with the word and
// the bit in it.
func (g *grid) each(rows, cols []uint64, p parts, f func(at, bit int)) {
	for w, set := range rows {
		for ; set != 0; set &= set - 1 {
			r := w*64 + bits.TrailingZeros64(set)
			for v, cols := range cols {
				at := r*g.width + v
				for b := g.of(at, p) & cols; b != 0; b &= b - 1 {
					f(at, bits.TrailingZeros64(b))
				}
			}
		}
	}
}

// place returns the place of the flow at a bit of a row's word.
func (g *grid) place(word, bit int) int32 {
	return g.base[word] + int32(bits.OnesCount64(g.all[word]&(1<<bit-1)))
}

// spread gives each flow of a demand the minimum share of the links on its path, and adds
// the rates to used. For a demand with a grid, it updates used only if needed is set.
func (s *Allocator) spread(d *Demand, p parts, share []float64, needed bool) {
	n := d.serves(p)
	s.gift.begin(p)
	switch {
	case n == 0:
		return
	case d.grid != nil && n > len(d.links):
		if needed {
			s.draw(d, p, share, true)
		}
		for _, l := range d.links {
			s.gift.share = append(s.gift.share, share[l])
		}
		s.hand(d)
		return
	}
	s.list = d.places(p, s.list)
	k, path, used := d.stride, d.path, s.used
	first, most, sum := d.none, 0.0, 0.0
	for _, i := range s.list {
		at := int(i) * k
		if path[at] != first {
			used[first] += sum
			first, most, sum = path[at], share[path[at]], 0
		}
		rate := spreadFlow(path[at+1:at+k], most, share, used)
		sum += rate
		if rate > 0 {
			s.gift.took = append(s.gift.took, took{i, rate})
		}
	}
	used[first] += sum
	s.hand(d)
}

// hand gives the demand the gift at once, unless it is stored.
func (s *Allocator) hand(d *Demand) {
	if !s.keeps {
		d.receive(&s.gift)
	}
}

// spreadFlow returns the rate of a flow, given the share of its first link, and adds it to
// used for the other links of its path.
func spreadFlow(path []int32, rate float64, share, used []float64) float64 {
	for _, l := range path {
		if v := share[l]; v < rate {
			rate = v
		}
	}
	for _, l := range path {
		used[l] += rate
	}
	return rate
}

// draw adds to used the rates of a demand with a grid if each flow gets the minimum share of
// the links on its path. If ends is false, it may omit the first and last links of paths.
func (s *Allocator) draw(d *Demand, p parts, share []float64, ends bool) {
	g := d.grid
	s.cols, s.give, s.got = sized(s.cols, g.width), roomy(s.give, len(g.cols)), sized(s.got, len(g.cols))
	for c, l := range g.cols {
		s.give[c] = share[l]
		if share[l] > 0 {
			set(s.cols, int32(c))
		}
	}
	switch {
	case g.core && g.inner == nil:
		s.drawFlows(d, p, share)
		return // used is complete
	case g.core:
		s.drawInside(d, p, share, ends)
	case d.serves(p) == d.unfinished:
		s.drawSorted(d, share)
	default:
		s.drawRows(d, p, share)
	}
	for c, l := range g.cols {
		s.used[l] += s.got[c]
	}
}

// drawFlows is draw for one flow after another.
func (s *Allocator) drawFlows(d *Demand, p parts, share []float64) {
	g := d.grid
	for r, from := range g.rows {
		most := share[from]
		if most == 0 {
			continue
		}
		sum := 0.0
		for v, cols := range s.cols {
			at := r*g.width + v
			for b := g.of(at, p) & cols; b != 0; b &= b - 1 {
				sum += spreadFlow(d.route(g.place(at, bits.TrailingZeros64(b)))[1:], most, share, s.used)
			}
		}
		s.used[from] += sum
	}
}

// drawRows is draw for flows without inner links.
func (s *Allocator) drawRows(d *Demand, p parts, share []float64) {
	g := d.grid
	for r, from := range g.rows {
		if most := share[from]; most > 0 {
			sum := 0.0
			for v, cols := range s.cols {
				sum += s.drawWord(g.of(r*g.width+v, p)&cols, v, most)
			}
			s.used[from] += sum
		}
	}
}

// drawWord adds to got the rates of the flows at some bits of a word, given the share of
// their first link, and returns their sum.
func (s *Allocator) drawWord(b uint64, word int, most float64) float64 {
	sum := 0.0
	for b != 0 {
		low, n := run(b)
		b &^= ^uint64(0) >> (64 - n) << low
		give, got := s.give[word*64+low:][:n], s.got[word*64+low:][:n]
		for j, rate := range give {
			rate = min(rate, most)
			got[j] += rate
			sum += rate
		}
	}
	return sum
}

// drawSorted is drawRows for all unfinished flows, without iterating over them. Receivers
// are sorted by share: a sender's flows to the first of them get the receivers' shares, and
// its flows to the others get the sender's share. Missing flows are subtracted afterwards.
// Senders and receivers with many missing flows, or with an infinite share, are computed
// flow by flow.
func (s *Allocator) drawSorted(d *Demand, share []float64) {
	g := d.grid
	s.rows = sized(s.rows, g.height)
	rows := 0
	for r, from := range g.rows {
		if share[from] > 0 && g.inRow[r] > 0 {
			set(s.rows, int32(r))
			rows++
		}
	}
	order := g.sorted(s.give)
	s.sums, s.order = roomy(s.sums, 4*(len(order)+1)), roomy(s.order, len(order))
	for c, give := range s.give { // receivers that are computed flow by flow
		if give == 0 {
			continue
		}
		live := int(g.inCol[c])
		if 4*(rows-live) <= rows && !math.IsInf(give, 1) {
			continue
		}
		unset(s.cols, int32(c))
		got := 0.0
		for v, set := range s.rows {
			for b := g.down[c*g.height+v] & set; b != 0; b &= b - 1 {
				from := g.rows[v*64+bits.TrailingZeros64(b)]
				rate := min(give, share[from])
				s.used[from] += rate
				got += rate
			}
		}
		s.got[c] = got
	}
	cols := s.order[:0] // the other receivers, sorted by share
	for _, c := range order {
		if s.cols[c/64]>>(c%64)&1 != 0 {
			cols = append(cols, c)
		}
	}
	n := len(cols)
	// By index into cols: the share; the sum of the shares before it; the number and the sum
	// of the sender shares that are above the share before it and at most this one.
	give, before, senders, gives := s.sums[:n], s.sums[n:2*n+1], s.sums[2*n+1:3*n+2], s.sums[3*n+2:4*n+3]
	clear(senders)
	clear(gives)
	sum := 0.0
	for i, c := range cols {
		give[i], before[i] = s.give[c], sum
		sum += s.give[c]
	}
	before[n] = sum
	full, lo := 0.0, 0
	for r, from := range g.rows {
		if s.rows[r/64]>>(r%64)&1 == 0 {
			continue
		}
		most, live := share[from], 0
		for v, set := range s.cols {
			live += bits.OnesCount64(g.live[r*g.width+v] & set)
		}
		if sum := 0.0; 4*(n-live) > n || math.IsInf(most, 1) {
			for v, set := range s.cols {
				sum += s.drawWord(g.live[r*g.width+v]&set, v, most)
			}
			s.used[from] += sum
			continue
		}
		lo = below(give, most, lo)
		full++
		senders[lo]++
		gives[lo] += most
		sum := before[lo] + float64(most*float64(n-lo))
		if live < n {
			for v, set := range s.cols {
				for b := set &^ g.live[r*g.width+v]; b != 0; b &= b - 1 {
					c := v*64 + bits.TrailingZeros64(b)
					rate := min(s.give[c], most)
					s.got[c] -= rate
					sum -= rate
				}
			}
		}
		s.used[from] += sum
	}
	fewer, sum := 0.0, 0.0 // number and sum of the sender shares up to this one
	for i, c := range cols {
		fewer += senders[i]
		sum += gives[i]
		s.got[c] = max(s.got[c]+sum+float64(give[i]*(full-fewer)), 0)
	}
}

// below returns the number of sorted values that are below v. guess is a probable result.
func below(values []float64, v float64, guess int) int {
	lo, hi := 0, len(values)
	switch {
	case guess < hi && values[guess] < v:
		lo = guess + 1
	case guess > 0 && !(values[guess-1] < v):
		hi = guess - 1
	default:
		return guess
	}
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); values[mid] < v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// sorted returns the columns sorted by share. The order is kept between calls, because it
// usually changes little.
func (g *grid) sorted(give []float64) []int32 {
	if g.order == nil {
		g.order = make([]int32, len(g.cols))
		for c := range g.order {
			g.order[c] = int32(c)
		}
	}
	o := g.order
	moves := 8 * len(o) // limit of insertion sort, beyond which a full sort is faster
	for i := 1; i < len(o); i++ {
		c := o[i]
		v, j := give[c], i
		for ; j > 0 && give[o[j-1]] > v; j-- {
			o[j] = o[j-1]
		}
		o[j] = c
		if moves -= i - j; moves < 0 {
			slices.SortFunc(o, func(a, b int32) int { return cmp.Compare(give[a], give[b]) })
			break
		}
	}
	return o
}
