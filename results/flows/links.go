package flows

import (
	"math"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// unknownSpine stands for the spine of packets whose path cannot be computed.
const unknownSpine = -1

// paths computes the paths of transfers through the fabric.
type paths struct {
	f    *topo.Fabric
	seed uint64
}

// hostAt returns the host with address a. ok is false if the fabric has no such host.
func hostAt(f *topo.Fabric, a addr) (host topo.HostID, ok bool) {
	rack, ok := rackOf(a, f.Racks(), f.Shape().HostsPerLeaf)
	if !ok {
		return 0, false
	}
	return f.HostIn(rack, int(a>>8&0xff)), true
}

// rackOf returns the rack of the host with address a. ok is false if a fabric of that
// size has no such host.
func rackOf(a addr, racks, perRack int) (topo.RackID, bool) {
	rack, place := int(a>>16&0xff), int(a>>8&0xff)
	return topo.RackID(rack), a>>24 == 10 && a&0xff == 1 && rack < racks && place < perRack
}

// otherRack reports whether a packet is from a host of one rack to one of another, by its
// addresses alone.
func otherRack(f *frame) bool {
	return f.src>>24 == 10 && f.dst>>24 == 10 && f.src>>16 != f.dst>>16
}

// hash returns the hash by which routing selects the path of a transfer. ok is false for a
// rebuilt pipeline: it keeps the hashes of the remaining hosts, which its header lacks.
func (p *paths) hash(h wire.Header) (hash uint32, ok bool) {
	if hash, ok := h.Hash(); ok {
		return hash, true
	}
	switch {
	case h.Kind == wire.KindFlow:
		return workloads.FlowHash(p.seed, workloads.FlowID(h.Member)), true
	case h.Kind == wire.KindBlock && h.Generation == 0:
		return workloads.HopHash(p.seed, workloads.BlockID(h.Group), int(h.Member)), true
	}
	return 0, false
}

// spine returns the spine that c's data cross, or unknownSpine.
func (p *paths) spine(c *conn) int16 {
	src, ok1 := hostAt(p.f, c.client)
	dst, ok2 := hostAt(p.f, c.server)
	hash, ok3 := p.hash(c.header)
	if ok1 && ok2 && ok3 {
		if s, crosses := p.f.SpineFor(src, dst, hash); crosses {
			return int16(s)
		}
	}
	return unknownSpine
}

// fabricLoad counts the bytes that hosts received over links between leaves and spines.
type fabricLoad struct {
	f              *topo.Fabric
	racks, perRack int         // of f
	first          topo.LinkID // ID of links[0]
	links          []series
	// up and down count, by rack, the packets that crossed an unknown spine.
	up, down []series
}

func newFabricLoad(f *topo.Fabric, intervals int) *fabricLoad {
	l := &fabricLoad{f: f, racks: f.Racks(), perRack: f.Shape().HostsPerLeaf, first: topo.LinkID(2 * f.Hosts())}
	for range f.Links()[l.first:] {
		l.links = append(l.links, newSeries(intervals))
	}
	for range f.Racks() {
		l.up, l.down = append(l.up, newSeries(intervals)), append(l.down, newSeries(intervals))
	}
	return l
}

// arrive counts a packet at its destination. c is its connection or nil; data is true if
// the packet travels in the direction of the connection's data.
func (l *fabricLoad) arrive(f *frame, c *conn, data bool, stamp int64, frame int) {
	if !otherRack(f) {
		return
	}
	up, ok1 := rackOf(f.src, l.racks, l.perRack)
	down, ok2 := rackOf(f.dst, l.racks, l.perRack)
	if !ok1 || !ok2 {
		return
	}
	if c == nil || !data || c.spine == unknownSpine {
		l.up[up].add(stamp, frame)
		l.down[down].add(stamp, frame)
		return
	}
	l.links[l.f.LeafUp(up, int(c.spine))-l.first].add(stamp, frame)
	l.links[l.f.LeafDown(down, int(c.spine))-l.first].add(stamp, frame)
}

// linkSeries computes the load of each link of the fabric.
func (a *assembly) linkSeries() {
	if a.fabric == nil {
		return
	}
	f := a.fabric
	all := make([][]*series, len(f.Links())) // a link's load is the sum of its series
	observed, payload := make([]bool, len(f.Links())), map[topo.LinkID]*series{}
	for _, c := range a.captures {
		rack, place, _ := topo.ParseHostName(c.Host)
		if int(rack) >= f.Racks() || place >= f.Shape().HostsPerLeaf {
			a.notef("%s: not a host of the fabric that the captures state: the load of its link is not known", c.Host)
			continue
		}
		h := f.HostIn(rack, place)
		up, down := f.HostUp(h), f.HostDown(h)
		all[up], all[down] = append(all[up], &c.up), append(all[down], &c.down)
		observed[up], observed[down] = true, true
		payload[down] = &c.payload
	}
	for _, l := range a.loads {
		for i := range l.links {
			all[l.first+topo.LinkID(i)] = append(all[l.first+topo.LinkID(i)], &l.links[i])
		}
	}
	seen := a.observedLinks(all, observed)
	width, n := a.grid()
	up, down := make([][]units.Bytes, f.Racks()), make([][]units.Bytes, f.Racks())
	for r := range f.Racks() {
		for _, l := range a.loads {
			up[r], down[r] = sum(up[r], n, a.zero, width, &l.up[r]), sum(down[r], n, a.zero, width, &l.down[r])
		}
	}
	none := make([]units.Bytes, n) // shared by all links that carried nothing
	for id, link := range f.Links() {
		l := LinkSeries{Link: link.ID, Name: f.LinkName(link.ID), Rate: link.Rate, Interval: time.Duration(width * parts), Queue: none, Observed: observed[id]}
		l.Bytes = sum(nil, n, a.zero, width, all[id]...)
		if _, ok := seen[link.ID]; !ok && link.Kind == topo.LeafUp {
			l.Bytes = addShare(l.Bytes, up[link.Rack], f.Spines())
		} else if !ok && link.Kind == topo.LeafDown {
			l.Bytes = addShare(l.Bytes, down[link.Rack], f.Spines())
		}
		if l.Bytes == nil {
			l.Bytes = none
		}
		if s := payload[link.ID]; s != nil {
			l.Payload = sum(nil, n, a.zero, width, s)
			if l.Payload == nil {
				l.Payload = none
			}
		}
		a.Links = append(a.Links, l)
	}
	a.queues()
	a.losses(seen)
}

// sum adds series to sums and returns it. It allocates sums if it is nil and a series is
// not empty.
func sum(sums []units.Bytes, n int, zero, width int64, list ...*series) []units.Bytes {
	for _, s := range list {
		if len(s.steps) == 0 {
			continue
		}
		if sums == nil {
			sums = make([]units.Bytes, n)
		}
		s.into(sums, zero, width)
	}
	return sums
}

// addShare adds whole, divided by shares, to sums and returns it. Remainders carry over to
// the next interval, so that no byte is lost.
func addShare(sums, whole []units.Bytes, shares int) []units.Bytes {
	if whole == nil {
		return sums
	}
	if sums == nil {
		sums = make([]units.Bytes, len(whole))
	}
	var rest units.Bytes
	for i, v := range whole {
		rest += v
		sums[i] += rest / units.Bytes(shares)
		rest %= units.Bytes(shares)
	}
	return sums
}

// grid returns the step width of all series in nanoseconds, and the number of intervals
// from zero to the last packet. Both depend only on the times of the first and the last
// packet.
func (a *assembly) grid() (width int64, n int) {
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for _, c := range a.captures {
		lo, hi = min(lo, c.firstAt), max(hi, c.lastAt)
	}
	for _, c := range a.switches {
		lo, hi = min(lo, c.firstAt), max(hi, c.lastAt)
	}
	if hi < lo {
		return int64(leastInterval) / parts, 0
	}
	width = widthFor(min(lo, a.zero), hi, a.opt.Intervals)
	return width, max(0, int((middle(number(hi, width), width)-a.zero)/(width*parts)+1))
}

// queues estimates the queue ahead of each link from the delay of checkpoints relative to
// the fastest one on the same path. A host's own queue is not included, because its
// capture records packets after they have left that queue.
func (a *assembly) queues() {
	type ends struct {
		src, dst topo.HostID
		spine    topo.LinkID
	}
	key := func(t *Trail) ends {
		k := ends{t.Src, t.Dst, -1}
		if len(t.Path) > 2 {
			k.spine = t.Path[1]
		}
		return k
	}
	fastest := map[ends]time.Duration{}
	each := func(take func(t *Trail, transit, at time.Duration)) {
		for i := range a.Trails {
			t := &a.Trails[i]
			if len(t.Path) < 2 {
				continue
			}
			held := t.Recovery // ascending
			for j := range min(len(t.Sent), len(t.Received)) {
				sent, at := t.Sent[j].At, t.Received[j].At
				for len(held) > 0 && held[0].To < sent {
					held = held[1:]
				}
				// During a recovery it may have waited for retransmissions.
				if at < sent || len(held) > 0 && held[0].From <= at {
					continue
				}
				take(t, at-sent, at)
			}
		}
	}
	each(func(t *Trail, transit, _ time.Duration) {
		k := key(t)
		if old, ok := fastest[k]; !ok || transit < old {
			fastest[k] = transit
		}
	})
	own := make([]bool, len(a.Links)) // whether Queue is not shared with other links
	each(func(t *Trail, transit, at time.Duration) {
		wait := transit - fastest[key(t)]
		i := int(at / a.Links[0].Interval)
		if wait <= 0 || at < 0 || i >= len(a.Links[0].Bytes) {
			return
		}
		most := t.Path[1]
		for _, id := range t.Path[2:] {
			if busier(a.Links[id], a.Links[most], i) {
				most = id
			}
		}
		l := &a.Links[most]
		if !own[most] {
			own[most], l.Queue = true, make([]units.Bytes, len(l.Bytes))
		}
		l.Queue[i] = max(l.Queue[i], min(l.Rate.BytesIn(wait), a.fabric.Link(most).Queue))
	})
}

// busier reports whether x had a higher utilization than y in an interval.
func busier(x, y LinkSeries, i int) bool {
	return float64(x.Bytes[i])*float64(y.Rate) > float64(y.Bytes[i])*float64(x.Rate)
}

// losses estimates LinkSeries.Drops. A lost packet that its sender's capture has was lost
// after the host's link; captures of ports narrow the place down further.
func (a *assembly) losses(seen seenAt) {
	lacking := map[string]bool{} // hosts whose captures lack packets
	for _, c := range a.captures {
		lacking[c.Host] = c.Stats.Dropped > 0 || !c.Whole
	}
	times := map[endpoints]int{}
	for _, t := range a.carried {
		times[t.endpoints]++
	}
	left := 0
	for i := range a.Trails {
		trail, t := &a.Trails[i], a.carried[i]
		if trail.Lost == 0 || len(trail.Path) < 2 {
			continue
		}
		if lacking[trail.SrcName] || lacking[trail.DstName] {
			left++
			continue
		}
		place := func(links []topo.LinkID, lost int) {
			if lost > 0 {
				a.Links[a.fullest(links, trail)].Drops += lost
			}
		}
		came, since := t.atClient.packets, 1 // after the host's link
		for j, id := range trail.Path {
			n := seen[id].of(t.endpoints)
			// The tally is 0 if the transfer took another path, as around a fault.
			if j == 0 || n == 0 || n > came || times[t.endpoints] > 1 {
				continue
			}
			place(trail.Path[since:j+1], came-n)
			came, since = n, j+1
		}
		// A packet missing after the last link's port was lost by the host's capture.
		if since < len(trail.Path) {
			place(trail.Path[since:], came-t.atServer.packets)
		}
	}
	if left > 0 {
		a.notef("captures lack packets: estimates of drops leave out the losses of %d transfers", left)
	}
}

// fullest returns the link with the highest load during a transfer's recoveries from
// losses, or during the whole transfer if none is known. links are in order of the path;
// the first of equally loaded ones counts.
func (a *assembly) fullest(links []topo.LinkID, t *Trail) topo.LinkID {
	during := t.Recovery
	if len(during) == 0 {
		during = []Span{{t.FirstSent, max(t.End, t.FirstByte)}}
	}
	load := func(id topo.LinkID) (use float64) {
		l := &a.Links[id]
		done := 0 // number of intervals added, so that none is added twice
		for _, s := range during {
			// A recovery begins about one round trip after the queue was full.
			from, to := max(int(max(s.From-t.RTTMedian, 0)/l.Interval), done), int(max(s.To, 0)/l.Interval)
			for i := from; i <= to && i < len(l.Bytes); i++ {
				use += float64(l.Bytes[i])
				done = i + 1
			}
		}
		return use / float64(l.Rate)
	}
	most, use := links[0], load(links[0])
	for _, id := range links[1:] {
		if x := load(id); x > use {
			most, use = id, x
		}
	}
	return most
}
