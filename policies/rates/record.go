package rates

import (
	"math"
	"math/bits"
)

// record is what pickPairs gave the flows of a grid the last time, and what the step
// had of their links then. What it gives follows from that and from which flows are
// unfinished alone, sender by sender: up to the first sender of which something is
// other than it was it gives the same again.
type record struct {
	era  *int      // Sharer.era of then, nil for nothing recorded
	had  []float64 // by slot: what the step had of the link, of those that are open
	open []uint64  // links of which the step had something
	cols []uint64  // the receivers among them, by column
	gave []gave    // in order of senders; those that gave nothing have none
	at   []int32   // by row: its place in gave, if that is of this row
	took []took
	cut  int32 // the first sender of an ended flow that took something, or after
}

// gave is one sender: its flows took what is in record.took from first on.
type gave struct {
	row, from int32
	first     int32
	left      float64 // of the link from
}

// took is one flow.
type took struct {
	place, col int32
	rate       float64
	left       float64 // of the receiver's link
}

// beyond is a sender after all others.
const beyond = math.MaxInt32

// forget begins anew, for the capacities of an era.
func (r *record) forget(d *Demand, era *int) {
	r.era, r.cut = era, beyond
	r.had, r.open = sized(r.had, len(d.links)+1), sized(r.open, words(int(d.none)))
	r.cols = sized(r.cols, d.grid.width)
	r.gave, r.took = r.gave[:0], r.took[:0]
	r.at = sized(r.at, len(d.grid.rows))
}

// of is what a row gave, if it gave something.
func (r *record) of(row int32) (flows []took, left float64) {
	at := int(r.at[row])
	if at >= len(r.gave) || r.gave[at].row != row {
		return nil, 0
	}
	return r.flows(at), r.gave[at].left
}

// flows are those of a place in gave.
func (r *record) flows(at int) []took {
	end := len(r.took)
	if at+1 < len(r.gave) {
		end = int(r.gave[at+1].first)
	}
	return r.took[r.gave[at].first:end]
}

// end notes that a flow has ended. It makes a difference only if it took something:
// otherwise its sender or its receiver had nothing left for it.
func (r *record) end(row, from int32, place int) {
	if r.era == nil {
		return
	}
	flows, _ := r.of(row)
	for i := range flows {
		if int(flows[i].place) == place {
			r.cut = min(r.cut, from)
		}
	}
}

// survey finds the links of a demand of which the step has something, and the first
// sender that may give something else than what is recorded, or after. It puts the
// receivers in cols, and those of which the step has not what it had in other; it says
// how many receivers there are.
func (s *Sharer) survey(d *Demand, r *record) (from int32, left int) {
	g, avail, floor, had := d.grid, s.avail, s.floor, r.had
	s.other, s.opened = sized(s.other, g.width), s.opened[:0]
	from = r.cut
	for w, was := range r.open {
		links := g.senders[w] | g.receivers[w]
		is, changed := links&s.offers[w], uint64(0)
		for b := is; b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			l := int32(w*64 + bit)
			have := avail[l]
			if have <= floor[l] {
				is &^= 1 << bit
				continue
			}
			if at := &had[d.slot[l]]; *at != have {
				*at = have
				changed |= 1 << bit
			}
		}
		s.offers[w] &^= links &^ is
		r.open[w] = is
		for b := changed | (was ^ is); b != 0; b &= b - 1 {
			bit := bits.TrailingZeros64(b)
			l := int32(w*64 + bit)
			c := g.colOf[d.slot[l]]
			if c < 0 {
				from = min(from, l)
				continue
			}
			set(s.other, c)
			switch {
			case is>>bit&1 == 0:
				unset(r.cols, c)
			case was>>bit&1 == 0:
				set(r.cols, c)
				s.opened = append(s.opened, c)
			}
		}
	}
	s.cols = append(s.cols[:0], r.cols...)
	for _, cols := range r.cols {
		left += bits.OnesCount64(cols)
	}
	for _, c := range s.opened {
		from = s.reached(g, r, c, from)
	}
	return from, left
}

// reached is the first sender, before limit, that comes to a receiver of which it had
// nothing before.
func (s *Sharer) reached(g *grid, r *record, col, limit int32) int32 {
	for w, rows := range g.down[int(col)*g.height:][:g.height] {
		for ; rows != 0; rows &= rows - 1 {
			row := int32(w*64 + bits.TrailingZeros64(rows))
			from := g.rows[row]
			if from >= limit {
				return limit
			}
			if r.open[from/64]>>(from%64)&1 == 0 {
				continue
			}
			flows, left := r.of(row)
			if n := len(flows); n > 0 && left <= s.floor[from] && flows[n-1].col < col {
				continue // it has nothing left when it would come there
			}
			return from
		}
	}
	return limit
}

// replay gives again what is recorded of the senders before limit, of which there are
// so many receivers left; it says from which sender on, at most limit, there is to be
// searched. No more than what it gave stays recorded.
func (s *Sharer) replay(d *Demand, r *record, limit int32, left int) (from int32, rest int) {
	g, avail, floor := d.grid, s.avail, s.floor
	for i := range r.gave {
		at := &r.gave[i]
		flows := r.flows(i)
		if at.from < limit {
			for j := range flows {
				if c := flows[j].col; s.other[c/64]>>(c%64)&1 != 0 {
					limit = at.from
					break
				}
			}
		}
		if at.from >= limit {
			r.took, r.gave = r.took[:at.first], r.gave[:i]
			break
		}
		for j := range flows {
			t := &flows[j]
			d.add(t.place, t.rate)
			to := g.cols[t.col]
			avail[to] = t.left
			if t.left <= floor[to] {
				s.withdraw(int(t.col/64), int(t.col%64), to)
				left--
			}
		}
		avail[at.from] = at.left
		if at.left <= floor[at.from] {
			unset(s.offers, at.from)
		}
	}
	r.cut = beyond
	return limit, left
}
