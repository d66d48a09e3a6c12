package breakdown

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// coflow divides one coflow's completion time by cause.
//
// The slowest flow, the last to end, determines the path; the bottleneck is the link of
// that path on which the coflow's own bytes take longest. The time from the arrival to the
// end is divided into cells, at the intervals of the links' loads and at all moments at
// which the state of a flow changes. Each cell is attributed in this order, and each cause
// gets at most the time that is left:
//
//  1. A cell in which no flow of the coflow over the bottleneck has payload in flight - it
//     has sent none yet, is quiet (see quiet), or has ended - has one cause. It is Setup if a
//     flow over the bottleneck is being set up (trail.setup); else Host if one waits for the
//     disk that it reads from; else Held if one has not been released or the policy sets
//     ceilings; else Host. Three things precede that cause. A lost SYN of the slowest flow is
//     Retransmission (see 4). While the slowest flow connects, bytes of others on its path
//     are Queueing. And packets are captured after the queue of their host's link, in which
//     some may wait: except in Held cells, bytes of others on the slowest flow's host link
//     are Queueing there.
//  2. Serialisation: the time of the coflow's own bytes in the cell at the bottleneck's
//     rate. If more bytes arrive than that, as when a gap is filled, the rest counts in
//     earlier cells, as far as these are free of bytes of others.
//  3. Host: the receiver's window of the slowest flow was closed.
//  4. Retransmission: the slowest flow was stalled by a loss (flows.Trail.Stalled). It has
//     nothing waiting on the links of its path then, independent of their load.
//  5. Queueing: the time of the bytes of others in the cell at a link's rate, the bottleneck
//     first, then the other links of the path, most loaded first. This includes the rest of
//     a recovery: there the flow's bytes wait in the same queues as without the loss. A frame
//     counts in the cell in which its transmission ends: the part that does not fit there
//     counts in earlier cells, back to the next one that is Held, Host or stalled; on a
//     captured link, at most one frame. Whether a frame of the flow waited there is unknown:
//     on a link with spare capacity it counts as Queueing all the same.
//  6. Retransmission during a recovery, because the sender sends less than the links of the
//     path allow; else Latency.
func (r *run) coflow(rec flows.CoflowRecord) (Coflow, error) {
	all := r.flows[rec.Coflow]
	if len(all) != rec.Width || rec.Width == 0 {
		return Coflow{}, fmt.Errorf("%d of its %d flows have a trail", len(all), rec.Width)
	}
	out := Coflow{Coflow: rec.Coflow, Background: rec.Background, CCT: rec.CCT(), Width: rec.Width, Size: rec.Size}
	if out.CCT < 0 {
		return Coflow{}, errors.New("its end is before its arrival")
	}
	slow, longest := all[0], units.Bytes(0)
	for _, t := range all {
		if t.record.End > slow.record.End { // the first of equal ones: they are in order of ID
			slow = t
		}
		longest = max(longest, t.record.Size)
	}
	out.Slowest = slow.record.Flow
	if rec.Size > 0 {
		out.Skew = float64(longest) * float64(rec.Width) / float64(rec.Size)
	}
	own := map[topo.LinkID]units.Bytes{}
	for _, t := range all {
		for _, l := range t.Path {
			own[l] += t.useful()
		}
	}
	for l, b := range own {
		out.Lone = max(out.Lone, r.fabric.Link(l).Rate.TimeToSend(b))
	}
	if out.Lone > 0 {
		out.Slowdown = float64(out.CCT) / float64(out.Lone)
	}
	path := r.byLoad(slow.Path, own, rec)
	var on []*trail // the flows over the bottleneck
	if len(path) > 0 {
		out.Bottleneck = r.fabric.LinkName(path[0])
		for _, t := range all {
			if slices.Contains(t.Path, path[0]) {
				on = append(on, t)
			}
		}
	} else {
		on = []*trail{slow}
	}
	g := r.grid(rec, slow, on)
	out.Shares = r.deal(g, slow, on, all, path)
	return out, nil
}

// useful returns the bytes of frames without retransmissions.
func (t *trail) useful() units.Bytes {
	return units.Bytes(math.Round(float64(t.Wire) * t.once()))
}

// once returns the share of the sender's frames that carry bytes for the first time.
func (t *trail) once() float64 {
	if len(t.Sent) == 0 {
		return 1
	}
	stream := t.Sent[len(t.Sent)-1].Bytes
	if stream <= 0 {
		return 1
	}
	return float64(stream) / float64(stream+max(0, t.ResentBytes))
}

// byLoad returns the path, the bottleneck first, then by load during the coflow. If the
// coflow loads several links equally, the bottleneck is the one with the most bytes in all and, of links that differ by
// less than one interval carries, which is what crosses the ends of intervals on the way, the first: the queue is there.
func (r *run) byLoad(way []topo.LinkID, own map[topo.LinkID]units.Bytes, rec flows.CoflowRecord) []topo.LinkID {
	path := slices.Clone(way)
	load := map[topo.LinkID]time.Duration{}
	for _, l := range path {
		s := &r.res.Links[l]
		var sum units.Bytes
		first, last := int(rec.Arrival/s.Interval), int(rec.End/s.Interval)
		for i := max(0, first); i <= last && i < len(s.Bytes); i++ {
			sum += s.Bytes[i]
		}
		load[l] = r.fabric.Link(l).Rate.TimeToSend(sum)
	}
	byLoad := func(a, b topo.LinkID) int { return cmp.Compare(load[b], load[a]) }
	takes := func(l topo.LinkID) time.Duration { return r.fabric.Link(l).Rate.TimeToSend(own[l]) }
	slices.SortStableFunc(path, func(a, b topo.LinkID) int { return cmp.Or(cmp.Compare(takes(b), takes(a)), byLoad(a, b)) })
	if len(path) > 1 {
		most := path[0]
		first := way[slices.IndexFunc(way, func(l topo.LinkID) bool {
			return takes(l) == takes(most) && load[most]-load[l] < r.res.Links[l].Interval
		})]
		at := slices.Index(path, first)
		path[0], path[at] = first, most
		slices.SortStableFunc(path[1:], byLoad)
	}
	return path
}

// grid is the ascending borders of cells: cell i begins after border i and ends at border
// i+1, inclusive.
type grid []time.Duration

func (r *run) grid(rec flows.CoflowRecord, slow *trail, on []*trail) grid {
	g := grid{rec.Arrival, rec.End}
	cut := func(at time.Duration) {
		if at > rec.Arrival && at < rec.End {
			g = append(g, at)
		}
	}
	interval := r.res.Links[0].Interval
	for at := rec.Arrival / interval * interval; at < rec.End; at += interval {
		cut(at)
	}
	for _, t := range on {
		setup := t.setup()
		cut(setup.From)
		cut(setup.To)
		cut(t.FirstSent)
		cut(t.record.End)
		for _, s := range t.quiet {
			cut(s.From)
			cut(s.To)
		}
	}
	for _, list := range [][]flows.Span{slow.Closed, slow.Stalled, slow.Recovery, {slow.connects()}} {
		for _, s := range list {
			cut(s.From)
			cut(s.To)
		}
	}
	slices.Sort(g)
	return slices.Compact(g)
}

func (g grid) cells() int { return max(0, len(g)-1) }

func (g grid) length(cell int) time.Duration { return g[cell+1] - g[cell] }

// at returns the cell of a moment; it may be beyond both ends.
func (g grid) at(t time.Duration) int {
	i, _ := slices.BinarySearch(g, t)
	return i - 1
}

// from returns the first cell after a moment, from 0 to the number of cells.
func (g grid) from(t time.Duration) int {
	i, _ := slices.BinarySearch(g, t)
	return min(i, g.cells())
}

// within reports for each cell whether it is in one of the spans, whose borders are all in
// the grid.
func (g grid) within(spans []flows.Span) []bool {
	in := make([]bool, g.cells())
	for _, s := range spans {
		for i := g.from(s.From); i < g.from(s.To); i++ {
			in[i] = true
		}
	}
	return in
}

// spread adds bytes evenly over a period, or all at its end if it is empty. Bytes outside of
// the grid are ignored.
func (g grid) spread(into []float64, from, to time.Duration, bytes float64) {
	if to <= from {
		if i := g.at(to); i >= 0 && i < len(into) {
			into[i] += bytes
		}
		return
	}
	rate := bytes / float64(to-from)
	for i := max(0, g.at(from)); i < len(into) && g[i] < to; i++ {
		if d := min(to, g[i+1]) - max(from, g[i]); d > 0 {
			into[i] += float64(rate * float64(d))
		}
	}
}

// progress adds a transfer's bytes by its checkpoints, evenly between two of them except
// quiet spans. Each byte of the stream counts scale.
func (g grid) progress(into []float64, points []flows.Point, quiet []flows.Span, scale float64) {
	var before units.Bytes
	for i, p := range points {
		bytes := float64(scale * float64(p.Bytes-before))
		before = p.Bytes
		if bytes <= 0 {
			continue
		}
		if i == 0 || p.At <= points[i-1].At {
			g.spread(into, p.At, p.At, bytes)
			continue
		}
		from, to := points[i-1].At, p.At
		active := to - from
		for _, q := range quiet {
			active -= max(0, min(to, q.To)-max(from, q.From))
		}
		if active <= 0 {
			g.spread(into, to, to, bytes)
			continue
		}
		share := bytes / float64(active)
		for _, q := range quiet {
			if q.To <= from || q.From >= to {
				continue
			}
			if q.From > from {
				g.spread(into, from, q.From, float64(share*float64(q.From-from)))
			}
			from = max(from, q.To)
		}
		if from < to {
			g.spread(into, from, to, float64(share*float64(to-from)))
		}
	}
}

// own returns the bytes of flows on a link in each cell; sent includes retransmissions.
func (r *run) own(g grid, link topo.LinkID, all []*trail, sent bool) []float64 {
	cells := make([]float64, g.cells())
	for _, t := range all {
		if !slices.Contains(t.Path, link) {
			continue
		}
		points := t.Received
		if r.fabric.Link(link).Kind == topo.HostUp {
			points = t.Sent
		}
		if len(points) == 0 || points[len(points)-1].Bytes <= 0 {
			continue
		}
		scale := float64(t.Wire) / float64(points[len(points)-1].Bytes)
		if !sent {
			scale = float64(scale * t.once())
		}
		g.progress(cells, points, t.quiet, scale)
	}
	return cells
}

// others returns the bytes on a link in each cell besides those of the flows.
//
// A link's load counts whole frames in the interval in which they pass, but the flows' bytes
// are interpolated, so the difference oscillates around the true value. Its running sum is
// replaced by the largest non-decreasing function that is nowhere above it: pure
// oscillation becomes zero.
func (r *run) others(g grid, link topo.LinkID, all []*trail) []float64 {
	s := &r.res.Links[link]
	// A link did not carry bytes that were lost before it.
	own := r.own(g, link, all, r.fabric.Link(link).Kind == topo.HostUp)
	sum := make([]float64, len(g))
	for i := range own {
		bytes := -own[i]
		if k := int(g[i] / s.Interval); k >= 0 && k < len(s.Bytes) { // a cell is within an interval
			bytes += float64(float64(s.Bytes[k]) * float64(g.length(i)) / float64(s.Interval))
		}
		sum[i+1] = sum[i] + bytes
	}
	for i := len(sum) - 2; i >= 0; i-- {
		sum[i] = min(sum[i], sum[i+1])
	}
	for i := range own {
		own[i] = max(0, sum[i+1]) - max(0, sum[i])
	}
	return own
}

// perByte returns the nanoseconds per byte on a link.
func (r *run) perByte(link topo.LinkID) float64 {
	return float64(r.fabric.Link(link).Rate.TimeToSend(units.MB)) / float64(units.MB)
}

// idle reports for each cell whether no flow has payload in flight.
func idle(g grid, on []*trail) []bool {
	change := make([]int, len(g)+1)
	busy := func(from, to time.Duration, by int) {
		if a, b := g.from(from), g.from(to); a < b {
			change[a] += by
			change[b] -= by
		}
	}
	for _, t := range on {
		busy(t.FirstSent, t.record.End, 1)
		for _, q := range t.quiet {
			busy(max(q.From, t.FirstSent), min(q.To, t.record.End), -1)
		}
	}
	out := make([]bool, g.cells())
	n := 0
	for i := range out {
		n += change[i]
		out[i] = n <= 0
	}
	return out
}

// idleCause returns the cause of each cell in which no flow has payload in flight.
func (r *run) idleCause(g grid, on []*trail) []Cause {
	out := make([]Cause, g.cells())
	fill := func(from, to time.Duration, c Cause) {
		for i := g.from(from); i < g.from(to); i++ {
			out[i] = c
		}
	}
	for i := range out {
		if out[i] = Host; r.res.Meta.Holds {
			out[i] = Held
		}
	}
	for _, t := range on {
		fill(g[0], t.setup().From, Held)
	}
	for _, t := range on {
		fill(t.setup().To, t.FirstSent, Host)
	}
	for _, t := range on {
		s := t.setup()
		fill(s.From, s.To, Setup)
	}
	return out
}

// deal attributes all cells.
func (r *run) deal(g grid, slow *trail, on, all []*trail, path []topo.LinkID) []Share {
	none, idly := idle(g, on), r.idleCause(g, on)
	connects := g.within([]flows.Span{slow.connects()})
	closed, stalled, recovery := g.within(slow.Closed), g.within(slow.Stalled), g.within(slow.Recovery)
	wait := make([][]time.Duration, len(path)) // time of others' bytes, by link of the path
	for k, link := range path {
		bytes, per := r.others(g, link, all), r.perByte(link)
		wait[k] = make([]time.Duration, len(bytes))
		for i, b := range bytes {
			wait[k][i] = time.Duration(float64(b * per))
		}
	}
	serial := make([]time.Duration, g.cells())
	if len(path) > 0 {
		serial = serialise(g, r.own(g, path[0], all, false), r.perByte(path[0]), none, wait[0])
	}
	var l ledger
	left := make([]time.Duration, g.cells()) // time left in each cell
	for i := range left {
		left[i] = g.length(i)
	}
	take := func(i int, c Cause, link string, d time.Duration) {
		d = max(0, min(d, left[i]))
		left[i] -= d
		l.add(c, link, d)
	}
	open := make([]bool, g.cells()) // cells that queueing may use
	for i := range left {
		switch {
		case none[i]:
			if idly[i] == Setup && stalled[i] {
				take(i, Retransmission, "", left[i])
			}
			open[i] = idly[i] != Held
		default:
			take(i, Serialisation, "", serial[i])
			if closed[i] {
				take(i, Host, "", left[i])
			} else if stalled[i] {
				take(i, Retransmission, "", left[i])
			}
			open[i] = !closed[i] && !stalled[i]
		}
	}
	for k, link := range path {
		name, ahead := r.fabric.LinkName(link), r.fabric.Link(link).Kind == topo.HostUp // before the capture point
		frame := r.fabric.Link(link).Rate.TimeToSend(r.fabric.Shape().MTU + etherHeader)
		var carry time.Duration
		for i := len(left) - 1; i >= 0; i-- {
			if !open[i] || none[i] && !ahead && !(idly[i] == Setup && connects[i]) {
				carry = 0
				continue
			}
			carry += wait[k][i]
			d := min(carry, left[i])
			take(i, Queueing, name, d)
			if carry -= d; r.res.Links[link].Observed {
				carry = min(carry, frame)
			}
		}
	}
	for i := range left {
		if none[i] {
			take(i, idly[i], "", left[i])
		}
		if recovery[i] {
			take(i, Retransmission, "", left[i])
		}
		take(i, Latency, "", left[i])
	}
	return l.shares(CoflowCauses())
}

// serialise returns the time of the bytes in each cell. Bytes that do not fit into a cell
// were on the wire in earlier ones.
func serialise(g grid, bytes []float64, perByte float64, none []bool, others []time.Duration) []time.Duration {
	out := make([]time.Duration, len(bytes))
	var carry time.Duration
	for i := len(bytes) - 1; i >= 0; i-- {
		need, room := time.Duration(math.Round(float64(bytes[i]*perByte))), g.length(i)
		if none[i] {
			carry += need
			continue
		}
		out[i] = min(need, room)
		carry += need - out[i]
		if more := min(carry, max(0, room-out[i]-others[i])); more > 0 {
			out[i] += more
			carry -= more
		}
	}
	return out
}
