package flows

import (
	"math"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// unknownSpine is the spine of packets whose path only the switches know.
const unknownSpine = -1

// paths tells which links packets take.
type paths struct {
	f    *topo.Fabric
	seed uint64
}

// host is the host with an address, where the fabric has it.
func hostAt(f *topo.Fabric, a addr) (topo.HostID, bool) {
	rack, ok := rackOf(a, f.Racks(), f.Shape().HostsPerLeaf)
	if !ok {
		return 0, false
	}
	return f.HostIn(rack, int(a>>8&0xff)), true
}

// rackOf is the rack of the host with an address, where a fabric of so many racks and
// hosts in each has it.
func rackOf(a addr, racks, perRack int) (topo.RackID, bool) {
	rack, place := int(a>>16&0xff), int(a>>8&0xff)
	return topo.RackID(rack), a>>24 == 10 && a&0xff == 1 && rack < racks && place < perRack
}

// hash is what routing chooses the path of a transfer by. A pipeline that was made
// anew keeps the hashes of the hosts that are left, which its header does not tell:
// ok is false for it.
func (p *paths) hash(h wire.Header) (hash uint32, ok bool) {
	switch {
	case h.Kind == wire.KindFlow:
		return workloads.FlowHash(p.seed, workloads.FlowID(h.Member)), true
	case h.Kind == wire.KindBlock && h.Generation == 0:
		return workloads.HopHash(p.seed, workloads.BlockID(h.Group), int(h.Member)), true
	}
	return 0, false
}

// spine is the one that c's data cross, or unknownSpine.
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

// fabricLoad counts what came to hosts over the links between leaves and spines.
type fabricLoad struct {
	f              *topo.Fabric
	racks, perRack int         // of f
	first          topo.LinkID // of links
	links          []series
	// What crossed one of the spines, but it is not known which, by rack.
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

// arrive takes a packet that came to its destination. c is its connection, where it
// has one, and data whether it went with the data of it.
func (l *fabricLoad) arrive(f *frame, c *conn, data bool, stamp int64, frame int) {
	from, to := f.src>>16, f.dst>>16
	if from == to { // in one rack
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

// linkSeries puts together the load of each link of the fabric.
func (a *assembly) linkSeries() {
	if a.fabric == nil {
		return
	}
	f := a.fabric
	all := make([][]*series, len(f.Links())) // that a link's load is the sum of
	observed := make([]bool, len(f.Links()))
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
	none := make([]units.Bytes, n) // of all links that carried nothing
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
		a.Links = append(a.Links, l)
	}
	a.queues()
	a.losses(seen)
}

// sum adds series to sums, which it makes where there is something to add and they are nil.
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

// addShare adds one of so many even shares to sums. Remainders are carried on, so that
// none is lost.
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

// grid is the width of the steps of all series, and how many intervals there are from
// zero to the last packet. It does not depend on which packets were counted together.
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

// queues estimates the queues ahead of links from how much longer than the fastest on
// the same path the checkpoints of transfers were under way. The capture of a host
// sees a packet when it has left the host's own queue: that one is never part of it.
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
			held := t.Recovery // in order
			for j := range min(len(t.Sent), len(t.Received)) {
				sent, at := t.Sent[j].At, t.Received[j].At
				for len(held) > 0 && held[0].To < sent {
					held = held[1:]
				}
				// It may have waited for bytes before it to be sent again.
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
	own := make([]bool, len(a.Links)) // has a Queue of its own
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

// busier tells whether x carried a larger share of its rate than y in an interval.
func busier(x, y LinkSeries, i int) bool {
	return float64(x.Bytes[i])*float64(y.Rate) > float64(y.Bytes[i])*float64(x.Rate)
}

// losses tells where packets were lost. Those that a host's own queue dropped are in
// no capture: a packet that was seen was lost behind its host's link. Captured ports
// narrow it down further.
func (a *assembly) losses(seen seenAt) {
	doubtful := map[string]bool{} // hosts whose captures lost packets themselves
	for _, c := range a.captures {
		doubtful[c.Host] = c.Stats.Dropped > 0 || !c.Whole
	}
	times := map[endpoints]int{}
	for _, t := range a.carried {
		times[t.endpoints]++
	}
	for i := range a.Trails {
		trail, t := &a.Trails[i], a.carried[i]
		if trail.Lost == 0 || len(trail.Path) < 2 {
			continue
		}
		sure := !doubtful[trail.SrcName] && !doubtful[trail.DstName]
		blame := func(links []topo.LinkID, lost int) {
			switch {
			case lost <= 0:
			case len(links) == 1 && sure:
				a.Links[links[0]].Drops += lost
			default:
				for _, id := range links {
					a.Links[id].Suspect += lost
				}
			}
		}
		came, since := t.atClient.packets, 1 // behind the host's link
		for j, id := range trail.Path {
			n := seen[id].of(t.endpoints)
			// None where the path is another than it should be, as around a fault.
			if j == 0 || n == 0 || n > came || times[t.endpoints] > 1 {
				continue
			}
			blame(trail.Path[since:j+1], came-n)
			came, since = n, j+1
		}
		// Behind the port of the last link nothing can be lost but in the host's capture.
		if since < len(trail.Path) {
			blame(trail.Path[since:], came-t.atServer.packets)
		}
	}
}
