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
	whole := p == pilots|others || g.pilot == nil
	for w, rows := range s.rows {
		for ; rows != 0; rows &= rows - 1 {
			r := w*64 + bits.TrailingZeros64(rows)
			n := 0
			for v, cols := range s.cols {
				at := r*g.width + v
				b := g.of(at, p) & cols
				n += bits.OnesCount64(b)
				switch {
				case g.core:
					for ; b != 0; b &= b - 1 {
						s.countFlow(d.route(g.place(at, bits.TrailingZeros64(b))))
					}
				case !whole:
					for ; b != 0; b &= b - 1 {
						s.n[g.cols[v*64+bits.TrailingZeros64(b)]]++
					}
				}
			}
			if !g.core {
				s.n[g.rows[r]] += float64(n)
			}
		}
	}
	if g.core || !whole {
		return
	}
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
// nothing cost nothing.
func (s *Sharer) spreadGrid(d *Demand, p parts, share []float64, to *raising) {
	g := d.grid
	s.cols, s.give, s.got = sized(s.cols, g.width), roomy(s.give, len(g.cols)), sized(s.got, len(g.cols))
	for c, l := range g.cols {
		s.give[c] = share[l]
		if share[l] > 0 {
			set(s.cols, int32(c))
		}
	}
	fresh := to.n == 0 // no flow has a rate yet
	k := d.stride
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
			low := bits.TrailingZeros64(b)
			n := bits.OnesCount64(b)
			switch {
			case g.core:
				for ; b != 0; b &= b - 1 {
					place := g.place(at, bits.TrailingZeros64(b))
					first := int(place) * k
					rate := spreadFlow(d.path[first+1:first+k], most, share, s.used)
					sum += rate
					to.raise(place, rate)
				}
			case fresh && b == g.all[at] && b>>low == 1<<n-1:
				sum += to.run(g.base[at], most, give[low:low+n], got[low:low+n])
			default:
				for ; b != 0; b &= b - 1 {
					bit := bits.TrailingZeros64(b)
					rate := min(most, give[bit])
					got[bit] += rate
					sum += rate
					to.raise(g.place(at, bit), rate)
				}
			}
		}
		s.used[from] += sum
	}
	if !g.core {
		for c, l := range g.cols {
			s.used[l] += s.got[c]
		}
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
