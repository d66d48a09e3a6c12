package alloc

import (
	"math"
	"math/bits"
)

// record stores the rates that pickPairs last gave the flows of a grid, and the residual
// capacities at that time. The rates depend only on these and on the set of unfinished
// flows, sender by sender. pickPairs thus gives the same rates again up to the first sender
// with a change.
type record struct {
	capacityVersion *int      // Allocator.capacityVersion at that time, nil if nothing is recorded
	had             []float64 // by slot: residual capacity, for open links
	open            []uint64  // links with residual capacity
	cols            []uint64  // the receivers among them, by column
	gave            []gave    // one entry per sender with rates, in order of senders
	at              []int32   // by row: its index in gave, if that entry is of this row
	took            []took
	cut             int32 // the first sender with an ended flow that had a rate, or afterAll
}

// gave is the record of one sender. The rates of its flows are in record.took from first on.
type gave struct {
	row, from int32
	first     int32
	left      float64 // residual capacity of the link from
}

// took is the record of one flow with a rate.
type took struct {
	place, col int32
	rate       float64
	left       float64 // residual capacity of the receiver's link
}

// afterAll is a sender after all others.
const afterAll = math.MaxInt32

// forget clears the record, for a new version of the capacities.
func (r *record) forget(d *Demand, capacityVersion *int) {
	r.capacityVersion, r.cut = capacityVersion, afterAll
	r.had, r.open = sized(r.had, len(d.links)+1), sized(r.open, words(int(d.none)))
	r.cols = sized(r.cols, d.grid.width)
	r.gave, r.took = r.gave[:0], r.took[:0]
	r.at = sized(r.at, len(d.grid.rows))
}

// of returns the record of a row; it is empty if no flow of the row had a rate.
func (r *record) of(row int32) (flows []took, left float64) {
	at := int(r.at[row])
	if at >= len(r.gave) || r.gave[at].row != row {
		return nil, 0
	}
	return r.flows(at), r.gave[at].left
}

// flows returns the flows of the entry at an index in gave.
func (r *record) flows(at int) []took {
	end := len(r.took)
	if at+1 < len(r.gave) {
		end = int(r.gave[at+1].first)
	}
	return r.took[r.gave[at].first:end]
}

// end records that a flow has ended. This matters only if the flow had a rate: otherwise its
// sender or its receiver had no residual capacity for it.
func (r *record) end(row, from int32, place int) {
	if r.capacityVersion == nil {
		return
	}
	flows, _ := r.of(row)
	for i := range flows {
		if int(flows[i].place) == place {
			r.cut = min(r.cut, from)
		}
	}
}

// survey updates the record to the current residual capacities. It returns the first sender
// whose rates may differ from the recorded ones, or afterAll, and the number of receivers
// with residual capacity. It sets cols to these receivers and other to those whose capacity
// has changed.
func (s *Allocator) survey(d *Demand, r *record) (from int32, left int) {
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

// reached returns the first sender, at most limit, whose search reaches a receiver that had
// no residual capacity before.
func (s *Allocator) reached(g *grid, r *record, col, limit int32) int32 {
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
				continue // it has no capacity left before it reaches col
			}
			return from
		}
	}
	return limit
}

// replay gives the recorded rates of the senders before limit again. left is the number of
// receivers with residual capacity. It returns the sender, at most limit, from which the
// search must continue, and the remaining number of receivers. Only the replayed entries
// stay recorded.
func (s *Allocator) replay(d *Demand, r *record, limit int32, left int) (from int32, rest int) {
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
	r.cut = afterAll
	return limit, left
}
