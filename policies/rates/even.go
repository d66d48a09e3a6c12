package rates

import (
	"math/bits"

	"testbed/policies"
)

// even is rule Even: what a flow can have of each link follows from how many flows
// there are, and the flows' rates from that.
func (s *Sharer) even(st *policies.Step) {
	p := of(st.Part)
	s.offer(st)
	s.takers = s.takers[:0]
	for _, c := range st.Coflows {
		if d := s.demands[c]; s.takes(st, c) && s.reaches(d, p) {
			s.takers = append(s.takers, d)
			s.count(d, p)
		}
	}
	for _, d := range s.takers {
		for _, l := range d.links {
			s.share[l] = 0
			if s.open(l) {
				s.share[l] = s.avail[l] / max(s.n[l], 1)
			}
		}
	}
	for _, d := range s.takers {
		s.spread(d, p, s.share)
	}
	for _, d := range s.takers {
		s.settle(d)
	}
	clear(s.takers)
}

// settle takes what is used of a demand's links off them.
func (s *Sharer) settle(d *Demand) {
	for _, l := range d.links {
		s.avail[l] = max(s.avail[l]-s.used[l], 0)
		s.used[l], s.n[l] = 0, 0
	}
	s.used[d.none], s.n[d.none] = 0, 0
}

// reaches tells whether some flow of a demand may get something: where it has a grid,
// whether a sender and a receiver have.
func (s *Sharer) reaches(d *Demand, p parts) bool {
	if d.serves(p) == 0 {
		return false
	}
	g := d.grid
	return g == nil || s.anyOpen(g.senders) && s.anyOpen(g.receivers)
}

// anyOpen tells whether the step has something left of any of some offered links.
func (s *Sharer) anyOpen(links []uint64) bool {
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

// count adds to n the flows of a demand on whose path every link has something left.
func (s *Sharer) count(d *Demand, p parts) {
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

func (s *Sharer) countFlow(path []int32) {
	for _, l := range path {
		if !s.open(l) {
			return
		}
	}
	for _, l := range path {
		s.n[l]++
	}
}

// countGrid is count for a demand with a grid: by sets of bits, where flows are not to
// be told apart.
func (s *Sharer) countGrid(d *Demand, p parts) {
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
	whole := p == pilots|others || g.pilot == nil
	alive := 0
	for w, rows := range s.rows {
		for ; rows != 0; rows &= rows - 1 {
			r := w*64 + bits.TrailingZeros64(rows)
			n := 0
			for v, cols := range s.cols {
				b := g.of(r*g.width+v, p) & cols
				n += bits.OnesCount64(b)
				if !whole {
					for ; b != 0; b &= b - 1 {
						s.n[g.cols[v*64+bits.TrailingZeros64(b)]]++
					}
				}
			}
			alive += n
			s.n[g.rows[r]] += float64(n)
		}
	}
	if whole {
		for w, cols := range s.cols {
			for ; cols != 0; cols &= cols - 1 {
				c := w*64 + bits.TrailingZeros64(cols)
				n := 0
				for v, rows := range s.rows {
					n += bits.OnesCount64(g.down[c*g.height+v] & rows)
				}
				s.n[g.cols[c]] += float64(n)
			}
		}
	}
	if g.core {
		s.countInside(d, p, alive)
	}
}

// shutInside tells whether a link is shut that flows cross between their ends.
func (s *Sharer) shutInside(d *Demand, p parts) bool {
	for _, l := range d.grid.mids[1:] {
		if !s.open(l) && d.crossing(int(d.slot[l]), p) > 0 {
			return true
		}
	}
	return false
}

// countInside adds to n, for links between the ends of paths, the flows of rows and
// cols, of which there are so many: by going through them, or through the others if
// those are fewer.
func (s *Sharer) countInside(d *Demand, p parts, alive int) {
	g := d.grid
	by := 1.0
	if d.serves(p)-alive < alive && !g.mixed(d) {
		by = -1
		for _, l := range g.mids[1:] {
			s.n[l] += float64(d.crossing(int(d.slot[l]), p))
		}
	}
	s.tally = sized(s.tally, len(g.mids))
	for r := range g.rows {
		open := s.rows[r/64]>>(r%64)&1 != 0
		if by > 0 && !open {
			continue
		}
		for v, cols := range s.cols {
			at := r*g.width + v
			b := g.of(at, p)
			switch {
			case by > 0:
				b &= cols
			case open:
				b &^= cols
			}
			for b != 0 {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first := int(g.place(at, low))
				for _, x := range g.inner[2*first : 2*(first+n)] {
					s.tally[x]++
				}
			}
		}
	}
	for m, n := range s.tally[1:] {
		s.n[g.mids[m+1]] += by * float64(n)
	}
}

// run is the first bits that follow one another in a set that has some: where they
// begin and how many there are. In a grid they stand for flows that do so too.
func run(set uint64) (low, n int) {
	low = bits.TrailingZeros64(set)
	return low, bits.TrailingZeros64(^(set >> low))
}

// mixed tells whether some link is the end of some paths and inside of others.
func (g *grid) mixed(d *Demand) bool {
	for _, l := range g.mids[min(1, len(g.mids)):] {
		if slot := d.slot[l]; g.rowOf[slot] >= 0 || g.colOf[slot] >= 0 {
			return true
		}
	}
	return false
}

// each goes through the unfinished flows of some rows and columns and parts, by the
// word and the bit in it.
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

// place is that of the flow at a bit of a row's word.
func (g *grid) place(word, bit int) int32 {
	return g.base[word] + int32(bits.OnesCount64(g.all[word]&(1<<bit-1)))
}

// spread gives each flow of a demand the least share of a link on its path, and adds
// it up in used.
func (s *Sharer) spread(d *Demand, p parts, share []float64) {
	n := d.serves(p)
	if n == 0 {
		return
	}
	to := d.reserve(n)
	if d.grid != nil {
		s.spreadGrid(d, p, share, &to)
		d.raised(to)
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
		to.raise(i, rate)
	}
	used[first] += sum
	d.raised(to)
}

// spreadFlow is the rate of a flow that its first link lets have so much, added up for
// the other links of its path.
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

// spreadGrid is spread for a demand with a grid: senders and receivers that have
// nothing cost nothing. Without to, it tells used alone.
func (s *Sharer) spreadGrid(d *Demand, p parts, share []float64, to *raising) {
	g := d.grid
	s.cols, s.give, s.got = sized(s.cols, g.width), roomy(s.give, len(g.cols)), sized(s.got, len(g.cols))
	for c, l := range g.cols {
		s.give[c] = share[l]
		if share[l] > 0 {
			set(s.cols, int32(c))
		}
	}
	s.giveInside, s.gotInside = roomy(s.giveInside, len(g.mids)), sized(s.gotInside, len(g.mids))
	limits := g.core && g.inner == nil // links inside may limit flows
	for m, l := range g.mids {
		s.giveInside[m] = share[l]
		limits = limits || share[l] == 0
	}
	fresh := to != nil && to.n == 0 && !limits // no flow has a rate yet, and all will have one
	for r, from := range g.rows {
		most := share[from]
		if most == 0 {
			continue
		}
		sum := 0.0
		for v, cols := range s.cols {
			at := r*g.width + v
			b := g.of(at, p) & cols
			if b == 0 {
				continue
			}
			give, got := s.give[v*64:], s.got[v*64:]
			switch {
			case fresh:
				for b != 0 {
					low, n := run(b)
					b &^= ^uint64(0) >> (64 - n) << low
					first := g.place(at, low)
					if g.core {
						sum += s.runInside(to, g.inner[2*first:2*int(first)+2*n], first, most, give[low:low+n], got[low:low+n])
					} else {
						sum += to.run(first, most, give[low:low+n], got[low:low+n])
					}
				}
			case g.core && g.inner == nil:
				for ; b != 0; b &= b - 1 {
					place := g.place(at, bits.TrailingZeros64(b))
					rate := spreadFlow(d.route(place)[1:], most, share, s.used)
					sum += rate
					to.raise(place, rate)
				}
			default:
				for ; b != 0; b &= b - 1 {
					bit := bits.TrailingZeros64(b)
					place := g.place(at, bit)
					rate := min(most, give[bit])
					if g.core {
						x, y := g.inner[2*place], g.inner[2*place+1]
						rate = min(rate, s.giveInside[x], s.giveInside[y])
						s.gotInside[x] += rate
						s.gotInside[y] += rate
					}
					got[bit] += rate
					sum += rate
					if to != nil {
						to.raise(place, rate)
					}
				}
			}
		}
		s.used[from] += sum
	}
	if g.core && g.inner == nil {
		return // used is told already
	}
	for c, l := range g.cols {
		s.used[l] += s.got[c]
	}
	for m, l := range g.mids {
		s.used[l] += s.gotInside[m]
	}
}

// run raises the rates of flows that follow one another, from a place on, and have had
// none: each to what the other end gives it, but not above most, and adds it to what
// that end's flows got. It returns the sum of the rates.
func (r *raising) run(place int32, most float64, give, got []float64) float64 {
	rate, moving := r.rate[place:int(place)+len(give)], r.moving[r.n:r.n+len(give)]
	got = got[:len(give)]
	sum := 0.0
	for j, v := range give {
		v = min(v, most)
		rate[j] = v
		moving[j] = place + int32(j)
		got[j] += v
		sum += v
	}
	r.n += len(give)
	return sum
}

// runInside is run for flows that cross links between their ends.
func (s *Sharer) runInside(r *raising, inner []uint16, place int32, most float64, give, got []float64) float64 {
	rate, moving := r.rate[place:int(place)+len(give)], r.moving[r.n:r.n+len(give)]
	got, inner = got[:len(give)], inner[:2*len(give)]
	giveInside, gotInside := s.giveInside, s.gotInside[:len(s.giveInside)]
	sum := 0.0
	for j, v := range give {
		x, y := inner[2*j], inner[2*j+1]
		v = min(v, most, giveInside[x], giveInside[y])
		rate[j] = v
		moving[j] = place + int32(j)
		got[j] += v
		gotInside[x] += v
		gotInside[y] += v
		sum += v
	}
	r.n += len(give)
	return sum
}
