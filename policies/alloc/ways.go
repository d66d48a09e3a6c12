package alloc

import (
	"math"
	"math/bits"
)

// This file handles core paths: the links of a path between its first and its last link. It
// maintains the core path of each flow, and computes the number and rates of the flows on
// each core path.

// index builds inner, if paths have at most two inner links.
func (g *grid) index(d *Demand) {
	g.minSideCounts = nil
	g.inner, g.corePaths, g.corePathOf, g.mids, g.midOf = nil, nil, nil, nil, nil
	if d.stride < 3 || d.stride > 4 || len(d.links) > math.MaxUint16 {
		return
	}
	g.inner, g.mids, g.midOf = make([]uint16, len(d.Left)), []int32{d.none}, make([]int32, len(d.links)+1)
	g.corePaths, g.corePathOf = [][2]uint16{{}}, map[[2]uint16]uint16{{}: 0}
	for i := range d.Left {
		g.cross(d, i)
	}
}

// cross sets inner for a flow.
func (g *grid) cross(d *Demand, place int) {
	if g.inner == nil {
		return
	}
	g.minSideCounts = nil
	_, last := d.ends(place)
	var corePath [2]uint16
	for j, l := range d.route(int32(place))[1:] {
		if l == last {
			break
		}
		s := d.slot[l]
		if g.midOf[s] == 0 {
			g.midOf[s] = int32(len(g.mids))
			g.mids = append(g.mids, l)
		}
		corePath[j] = uint16(g.midOf[s])
	}
	w, known := g.corePathOf[corePath]
	switch {
	case known:
	case len(g.corePaths) > math.MaxUint16:
		g.inner, g.corePaths, g.corePathOf, g.mids, g.midOf = nil, nil, nil, nil, nil
		return
	default:
		w = uint16(len(g.corePaths))
		g.corePaths, g.corePathOf[corePath] = append(g.corePaths, corePath), w
	}
	g.inner[place] = w
}

// minSideCounts holds the number of unfinished flows on each core path, by line of the side
// of a grid that has fewer lines. If a coflow has fewer receivers than senders, for
// example, the receivers usually limit its flows. All flows of a receiver then have the same
// rate, and their total on each core path follows from their number.
type minSideCounts struct {
	row       bool // the lines are rows
	corePaths int
	n         []int32 // by line, by way

	// The core paths on which a line had flows at the start, line after line.
	some  []uint16
	begin []int32 // by line, with one more at the end: its first index into some
}

// counted returns minSideCounts, or nil if it is not worthwhile: without inner, if some
// links are ends of some paths and inner links of others, or if there are few flows compared
// with lines and core paths.
func (g *grid) counted(d *Demand) *minSideCounts {
	if g.minSideCounts != nil {
		return g.minSideCounts
	}
	lines := min(len(g.rows), len(g.cols))
	if g.inner == nil || 2*lines*len(g.corePaths) > d.unfinished || g.mixed(d) {
		return nil
	}
	k := &minSideCounts{row: len(g.rows) < len(g.cols), corePaths: len(g.corePaths), n: make([]int32, lines*len(g.corePaths))}
	for r := range g.rows {
		for v := range g.width {
			at := r*g.width + v
			for b := g.live[at]; b != 0; {
				low, n := run(b)
				b &^= ^uint64(0) >> (64 - n) << low
				first := int(g.place(at, low))
				for j, corePath := range g.inner[first : first+n] {
					*k.at(int32(r), int32(v*64+low+j), int(corePath))++
				}
			}
		}
	}
	k.begin = make([]int32, 1, lines+1)
	for i := range lines {
		for w, n := range k.n[i*k.corePaths : (i+1)*k.corePaths] {
			if n > 0 {
				k.some = append(k.some, uint16(w))
			}
		}
		k.begin = append(k.begin, int32(len(k.some)))
	}
	g.minSideCounts = k
	return k
}

// at returns the count for a flow's line and core path.
func (k *minSideCounts) at(row, col int32, corePath int) *int32 {
	line := col
	if k.row {
		line = row
	}
	return &k.n[int(line)*k.corePaths+corePath]
}

func (k *minSideCounts) end(row, col int32, corePath int) { *k.at(row, col, corePath)-- }

// by returns the counts of a line, by core path, and the core paths that may have flows.
func (k *minSideCounts) by(line int) (n []int32, some []uint16) {
	return k.n[line*k.corePaths : (line+1)*k.corePaths], k.some[k.begin[line]:k.begin[line+1]]
}

// corePath returns the core path of the flow between a line of the side with fewer lines and
// a line of the other side.
func (k *minSideCounts) corePath(g *grid, line, far int32) uint16 {
	r, c := far, line
	if k.row {
		r, c = line, far
	}
	return g.inner[g.place(int(r)*g.width+int(c/64), int(c%64))]
}

// shutInside reports whether an inner link of unfinished flows has no residual capacity.
func (s *Allocator) shutInside(d *Demand, p parts) bool {
	for _, l := range d.grid.mids[1:] {
		if !s.open(l) && d.crossing(int(d.slot[l]), p) > 0 {
			return true
		}
	}
	return false
}

// countInside adds the flows of open rows and columns to n for inner links. alive is their
// number. It iterates over these flows, or over the others if those are fewer.
func (s *Allocator) countInside(d *Demand, p parts, alive int) {
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
	s.tally = sized(s.tally, len(g.corePaths))
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
				for _, corePath := range g.inner[first : first+n] {
					s.tally[corePath]++
				}
			}
		}
	}
	for w, corePath := range g.corePaths {
		for _, m := range corePath {
			if m > 0 {
				s.n[g.mids[m]] += by * float64(s.tally[w])
			}
		}
	}
}

// countCounted is countInside with minSideCounts, for all unfinished flows, if that is less
// work. It reports whether it is.
func (s *Allocator) countCounted(d *Demand, p parts, alive int) bool {
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
	shut := -alive // flows between open lines of this side and shut lines of the other
	for i, n := range in {
		if lines[i/64]>>(i%64)&1 != 0 {
			shut += int(n)
		}
	}
	if shut > alive {
		return false
	}
	s.tally = sized(s.tally, len(g.corePaths))
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
					tally[k.corePath(g, int32(w*64+bits.TrailingZeros64(b)), j)]--
				}
			}
		}
	}
	for w, corePath := range g.corePaths {
		for _, m := range corePath {
			if m > 0 {
				s.n[g.mids[m]] += float64(tally[w])
			}
		}
	}
	return true
}

// drawInside is draw for flows with at most two inner links.
func (s *Allocator) drawInside(d *Demand, p parts, share []float64, ends bool) {
	g := d.grid
	s.giveInside, s.gotInside = roomy(s.giveInside, len(g.corePaths)), sized(s.gotInside, len(g.corePaths))
	tightest := math.Inf(1) // minimum share of a core path
	for w, corePath := range g.corePaths {
		s.giveInside[w] = min(share[g.mids[corePath[0]]], share[g.mids[corePath[1]]])
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
					corePath := inner[j]
					rate = min(rate, most, giveInside[corePath])
					got[j] += rate
					gotInside[corePath] += rate
					sum += rate
				}
			}
		}
		s.used[from] += sum
	}
	s.useInside(g)
}

func (s *Allocator) useInside(g *grid) {
	for w, corePath := range g.corePaths {
		for _, m := range corePath {
			s.used[g.mids[m]] += s.gotInside[w]
		}
	}
}

// drawCounted is drawInside with minSideCounts, for all unfinished flows. It requires that
// no inner link has a smaller share than the lines of that side, and that few lines of the
// other side do; it corrects the rates for these. It reports whether this applies.
func (s *Allocator) drawCounted(d *Demand, p parts, share []float64, ends bool) bool {
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
	s.list = s.list[:0] // lines of the other side with smaller shares
	less, open := 0, 0  // numbers of flows
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

// drawWhole adds to used the rates of flows whose rows or columns have shares of at least
// top and thus do not limit them. sum is the sum of the shares of the other side.
func (s *Allocator) drawWhole(d *Demand, row bool, share []float64, top, sum float64) {
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
			for b &^= flows[w]; b != 0; b &= b - 1 { // missing flows
				all -= share[near[w*64+bits.TrailingZeros64(b)]]
			}
		}
		s.used[l] += max(all, 0)
	}
}

// limitRow adds the rates of a row's flows to used for the row's link, whose share limits
// them. It subtracts the difference to the shares of their columns from the columns and
// core paths.
func (s *Allocator) limitRow(d *Demand, r int, share []float64) {
	g := d.grid
	most, all, got := share[g.rows[r]], 0.0, s.gotInside
	for v := range g.width {
		at := r*g.width + v
		for b := g.live[at]; b != 0; {
			low, n := run(b)
			b &^= ^uint64(0) >> (64 - n) << low
			first, cols := int(g.place(at, low)), g.cols[v*64+low:][:n]
			for j, corePath := range g.inner[first : first+n] {
				give := share[cols[j]]
				if give > most {
					got[corePath] -= give - most
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
func (s *Allocator) limitCol(d *Demand, c int32, share []float64) {
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
