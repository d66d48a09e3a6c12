package rates

import (
	"math"
	"math/bits"
)

// What flows cross between the first and the last link of their paths: which way each
// takes there, how many take it, and what they get.

// index makes inner, where paths have at most two links between their ends.
func (g *grid) index(d *Demand) {
	g.few = nil
	g.inner, g.ways, g.wayOf, g.mids, g.midOf = nil, nil, nil, nil, nil
	if d.stride < 3 || d.stride > 4 || len(d.links) > math.MaxUint16 {
		return
	}
	g.inner, g.mids, g.midOf = make([]uint16, len(d.Left)), []int32{d.none}, make([]int32, len(d.links)+1)
	g.ways, g.wayOf = [][2]uint16{{}}, map[[2]uint16]uint16{{}: 0}
	for i := range d.Left {
		g.cross(d, i)
	}
}

// cross writes what is in inner of a flow.
func (g *grid) cross(d *Demand, place int) {
	if g.inner == nil {
		return
	}
	g.few = nil
	_, last := d.ends(place)
	var way [2]uint16
	for j, l := range d.route(int32(place))[1:] {
		if l == last {
			break
		}
		s := d.slot[l]
		if g.midOf[s] == 0 {
			g.midOf[s] = int32(len(g.mids))
			g.mids = append(g.mids, l)
		}
		way[j] = uint16(g.midOf[s])
	}
	w, known := g.wayOf[way]
	switch {
	case known:
	case len(g.ways) > math.MaxUint16:
		g.inner, g.ways, g.wayOf, g.mids, g.midOf = nil, nil, nil, nil, nil
		return
	default:
		w = uint16(len(g.ways))
		g.ways, g.wayOf[way] = append(g.ways, way), w
	}
	g.inner[place] = w
}

// few is how many unfinished flows take each way, by line of that side of a grid that has
// fewer. Where a coflow has fewer receivers than senders, say, these tend to be what
// limits its flows: all of one receiver get the same then, and what they get on each way
// follows from how many they are.
type few struct {
	row  bool // the lines are rows
	ways int
	n    []int32 // by line, by way

	// The ways that a line had flows on at first, line after line.
	some  []uint16
	begin []int32 // by line, with one more at the end: its first in some
}

// counted is few, nil where that is not worth it: where there is no way inside, where
// some links are the end of some paths and inside of others, and where there are few
// flows for so many lines and ways.
func (g *grid) counted(d *Demand) *few {
	if g.few != nil {
		return g.few
	}
	lines := min(len(g.rows), len(g.cols))
	if g.inner == nil || 2*lines*len(g.ways) > d.unfinished || g.mixed(d) {
		return nil
	}
	k := &few{row: len(g.rows) < len(g.cols), ways: len(g.ways), n: make([]int32, lines*len(g.ways))}
	for r := range g.rows {
		for v := range g.width {
			at := r*g.width + v
			for b := g.live[at]; b != 0; {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first := int(g.place(at, low))
				for j, way := range g.inner[first : first+n] {
					*k.at(int32(r), int32(v*64+low+j), int(way))++
				}
			}
		}
	}
	k.begin = make([]int32, 1, lines+1)
	for i := range lines {
		for w, n := range k.n[i*k.ways : (i+1)*k.ways] {
			if n > 0 {
				k.some = append(k.some, uint16(w))
			}
		}
		k.begin = append(k.begin, int32(len(k.some)))
	}
	g.few = k
	return k
}

// at is the count of a flow's line and way.
func (k *few) at(row, col int32, way int) *int32 {
	line := col
	if k.row {
		line = row
	}
	return &k.n[int(line)*k.ways+way]
}

func (k *few) end(row, col int32, way int) { *k.at(row, col, way)-- }

// by is the counts of a line, by way, and the ways that there may be some of.
func (k *few) by(line int) (n []int32, some []uint16) {
	return k.n[line*k.ways : (line+1)*k.ways], k.some[k.begin[line]:k.begin[line+1]]
}

// way is that of the flow between a line of the side that has fewer and one of the other.
func (k *few) way(g *grid, line, far int32) uint16 {
	r, c := far, line
	if k.row {
		r, c = line, far
	}
	return g.inner[g.place(int(r)*g.width+int(c/64), int(c%64))]
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
	if s.countCounted(d, p, alive) {
		return
	}
	by := 1.0
	if d.serves(p)-alive < alive && !g.mixed(d) {
		by = -1
		for _, l := range g.mids[1:] {
			s.n[l] += float64(d.crossing(int(d.slot[l]), p))
		}
	}
	s.tally = sized(s.tally, len(g.ways))
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
				for _, way := range g.inner[first : first+n] {
					s.tally[way]++
				}
			}
		}
	}
	for w, way := range g.ways {
		for _, m := range way {
			if m > 0 {
				s.n[g.mids[m]] += by * float64(s.tally[w])
			}
		}
	}
}

// countCounted is countInside by few, for all unfinished flows, if that is less work.
func (s *Sharer) countCounted(d *Demand, p parts, alive int) bool {
	g := d.grid
	if p != pilots|others && g.pilot != nil {
		return false
	}
	k := g.counted(d)
	if k == nil {
		return false
	}
	lines, in, far := s.cols, g.inCol, s.rows
	if k.row {
		lines, in, far = s.rows, g.inRow, s.cols
	}
	shut := -alive // flows at open lines of the one side and shut ones of the other
	for i, n := range in {
		if lines[i/64]>>(i%64)&1 != 0 {
			shut += int(n)
		}
	}
	if shut > alive {
		return false
	}
	s.tally = sized(s.tally, len(g.ways))
	tally := s.tally
	for i := range in {
		if lines[i/64]>>(i%64)&1 != 0 {
			n, some := k.by(i)
			for _, w := range some {
				tally[w] += n[w]
			}
		}
	}
	if shut > 0 {
		for j := range int32(max(len(g.rows), len(g.cols))) {
			if far[j/64]>>(j%64)&1 != 0 {
				continue
			}
			flows, _, _ := g.line(j, !k.row)
			for w, b := range flows {
				for b &= lines[w]; b != 0; b &= b - 1 {
					tally[k.way(g, int32(w*64+bits.TrailingZeros64(b)), j)]--
				}
			}
		}
	}
	for w, way := range g.ways {
		for _, m := range way {
			if m > 0 {
				s.n[g.mids[m]] += float64(tally[w])
			}
		}
	}
	return true
}

// drawInside is draw where flows cross at most two links between their ends.
func (s *Sharer) drawInside(d *Demand, p parts, share []float64, ends bool) {
	g := d.grid
	s.giveInside, s.gotInside = roomy(s.giveInside, len(g.ways)), sized(s.gotInside, len(g.ways))
	tightest := math.Inf(1) // inside
	for w, way := range g.ways {
		s.giveInside[w] = min(share[g.mids[way[0]]], share[g.mids[way[1]]])
		tightest = min(tightest, s.giveInside[w])
	}
	if s.drawCounted(d, p, share, ends) {
		return
	}
	giveInside, gotInside := s.giveInside, s.gotInside[:len(s.giveInside)]
	for r, from := range g.rows {
		most := share[from]
		if most == 0 {
			continue
		}
		sum := 0.0
		for v, cols := range s.cols {
			at := r*g.width + v
			for b := g.of(at, p) & cols; b != 0; {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first := int(g.place(at, low))
				give, got, inner := s.give[v*64+low:][:n], s.got[v*64+low:][:n], g.inner[first:][:n]
				if most <= tightest {
					for j, rate := range give {
						rate = min(rate, most)
						got[j] += rate
						gotInside[inner[j]] += rate
						sum += rate
					}
					continue
				}
				for j, rate := range give {
					way := inner[j]
					rate = min(rate, most, giveInside[way])
					got[j] += rate
					gotInside[way] += rate
					sum += rate
				}
			}
		}
		s.used[from] += sum
	}
	s.useInside(g)
}

func (s *Sharer) useInside(g *grid) {
	for w, way := range g.ways {
		for _, m := range way {
			s.used[g.mids[m]] += s.gotInside[w]
		}
	}
}

// drawCounted is drawInside by few, for all unfinished flows, where no link inside gives
// less than the lines of that side, and few lines of the other side do: what flows would
// get but for those is taken off again.
func (s *Sharer) drawCounted(d *Demand, p parts, share []float64, ends bool) bool {
	g := d.grid
	if d.serves(p) != d.unfinished {
		return false
	}
	k := g.counted(d)
	if k == nil {
		return false
	}
	near, inNear, nearLive, far, inFar := g.cols, g.inCol, g.liveCols, g.rows, g.inRow
	if k.row {
		near, inNear, nearLive, far, inFar = g.rows, g.inRow, g.liveRows, g.cols, g.inCol
	}
	top, sum := 0.0, 0.0
	for i, l := range near {
		give := share[l]
		if nearLive[i/64]>>(i%64)&1 == 0 {
			continue
		}
		n, some := k.by(i)
		for _, w := range some {
			if n[w] > 0 && give > s.giveInside[w] {
				return false
			}
		}
		top, sum = max(top, give), sum+give
	}
	s.list = s.list[:0] // the lines of the other side that give less
	less, open := 0, 0  // flows
	for j, l := range far {
		n, most := int(inFar[j]), share[l]
		if most < top && n > 0 {
			s.list = append(s.list, int32(j))
			less += n
		}
		if most > 0 {
			open += n
		}
	}
	if math.IsInf(top, 1) || 2*less > open {
		return false
	}
	got := s.gotInside
	for i, l := range near {
		if give := share[l]; give > 0 {
			n, some := k.by(i)
			for _, w := range some {
				got[w] += give * float64(n[w])
			}
			s.used[l] += give * float64(inNear[i])
		}
	}
	for _, j := range s.list {
		if k.row {
			s.limitCol(d, j, share)
		} else {
			s.limitRow(d, int(j), share)
		}
	}
	if ends {
		s.drawWhole(d, !k.row, share, top, sum)
	}
	for _, l := range near {
		s.used[l] = max(s.used[l], 0)
	}
	for w := range got {
		got[w] = max(got[w], 0)
	}
	s.useInside(g)
	return true
}

// drawWhole adds up in used what flows get whose rows or columns give no less than top,
// and so do not limit them; sum is what all lines of the other side give.
func (s *Sharer) drawWhole(d *Demand, row bool, share []float64, top, sum float64) {
	g := d.grid
	lines, in := g.rows, g.inRow
	if !row {
		lines, in = g.cols, g.inCol
	}
	for j, l := range lines {
		if share[l] < top || in[j] == 0 {
			continue
		}
		flows, live, near := g.line(int32(j), row)
		all := sum
		for w, b := range live {
			for b &^= flows[w]; b != 0; b &= b - 1 { // no such flow
				all -= share[near[w*64+bits.TrailingZeros64(b)]]
			}
		}
		s.used[l] += max(all, 0)
	}
}

// limitRow adds up in used what a row's flows get, and takes off of their columns and
// ways, where it is there, what they do not: all that its link gives each is less.
func (s *Sharer) limitRow(d *Demand, r int, share []float64) {
	g := d.grid
	most, all, got := share[g.rows[r]], 0.0, s.gotInside
	for v := range g.width {
		at := r*g.width + v
		for b := g.live[at]; b != 0; {
			low, n := run(b)
			b &^= ^uint64(0) >> (64 - n) << low
			first, cols := int(g.place(at, low)), g.cols[v*64+low:][:n]
			for j, way := range g.inner[first : first+n] {
				give := share[cols[j]]
				if give > most {
					got[way] -= give - most
					s.used[cols[j]] -= give - most
					give = most
				}
				all += give
			}
		}
	}
	s.used[g.rows[r]] += all
}

// limitCol is limitRow for a column.
func (s *Sharer) limitCol(d *Demand, c int32, share []float64) {
	g := d.grid
	most, all, got := share[g.cols[c]], 0.0, s.gotInside
	for w, b := range g.down[int(c)*g.height : int(c+1)*g.height] {
		for ; b != 0; b &= b - 1 {
			r := w*64 + bits.TrailingZeros64(b)
			give := share[g.rows[r]]
			if give > most {
				got[g.inner[g.place(r*g.width+int(c/64), int(c%64))]] -= give - most
				s.used[g.rows[r]] -= give - most
				give = most
			}
			all += give
		}
	}
	s.used[g.cols[c]] += all
}
