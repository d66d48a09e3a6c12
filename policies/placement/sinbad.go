package placement

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Sinbad steers replicas away from congested receive links (Chowdhury, Kandula
// and Stoica, SIGCOMM 2013). The first replica stays with the writer; the other
// two go to the remote rack whose link has the most expected capacity, and in it
// to the two hosts whose links do. Expected capacity is what the smoothed
// estimate of a link's load leaves, at most what a disk can write.
//
// Three things differ from the paper. Read literally, its selection puts the two
// remote replicas into two racks, which moves more bytes between racks than HDFS
// does; here both share one, as HDFS's do, so that the two compare at the same
// cost. Requests are not held back to be reordered (q = 0, as in its cluster
// experiments). And the links are always taken from the rack level down, also in
// a fabric that is not oversubscribed.
//
// More than three replicas go two by two to the next best racks. Where there is
// one rack only, the replicas go to its best hosts. Where too few hosts satisfy
// the constraints, the block is placed by Fallback. Ties are broken by the same
// random order of hosts that HDFS draws, so that an idle cluster sees both
// policies place alike.
type Sinbad struct {
	// Threshold is the size below which a block is left to Fallback, since small
	// blocks are many but few bytes. 0 lets Sinbad place all. The paper has the
	// threshold but not its value, and a useful one depends on the block size.
	Threshold units.Bytes
	// Tolerance is how much more of its disk, in percent, a host may have in use
	// than the average host before it gets no more replicas. The paper has 10.
	Tolerance int
	// Fallback is the default placement.
	Fallback HDFS
}

// DefaultSinbad is Sinbad as in the paper's cluster experiments.
func DefaultSinbad() Sinbad { return Sinbad{Threshold: 0, Tolerance: 10, Fallback: DefaultHDFS()} }

// Needs is the load of the links and the use of the disks.
func (Sinbad) Needs() policies.Knowledge { return policies.LinkLoad | policies.DiskUse }

// minDelta is the shortest time over which a placement is expected to spread
// before its links report: it only keeps the division from failing.
const minDelta = time.Millisecond

// Place implements policies.Placer.
func (p Sinbad) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := check(v, b); err != nil {
		return nil, err
	}
	if p.Tolerance < 0 {
		return nil, fmt.Errorf("sinbad: tolerance %d%%: want 0 or more", p.Tolerance)
	}
	order := shuffled(v, rng)
	if b.Size >= p.Threshold && hasRoom(v, b.Client, b.Size, 1) {
		if hosts, ok := p.steer(v, b, order, estimate(v)); ok {
			return hosts, nil
		}
	}
	return p.Fallback.place(v, b, order)
}

// steer chooses the hosts, or tells that too few satisfy the constraints.
func (p Sinbad) steer(v *policies.View, b workloads.Block, order []topo.HostID, loads *loads) ([]topo.HostID, bool) {
	chosen := []topo.HostID{b.Client}
	if b.Replicas == 1 {
		return chosen, true
	}
	balanced := p.balance(v)
	// The candidates by rack, in the random order: a rack's place in a tie is
	// that of its first host.
	var racks []topo.RackID
	in := make([][]topo.HostID, v.Fabric.Racks())
	home := v.Fabric.RackOf(b.Client)
	for _, h := range order {
		r := v.Fabric.RackOf(h)
		if h == b.Client || r == home && v.Fabric.Racks() > 1 || !balanced(h) || !hasRoom(v, h, b.Size, 1) {
			continue
		}
		if len(in[r]) == 0 {
			racks = append(racks, r)
		}
		in[r] = append(in[r], h)
	}
	slices.SortStableFunc(racks, func(x, y topo.RackID) int { return cmp.Compare(loads.ofRack(y), loads.ofRack(x)) })
	for _, r := range racks {
		want := min(b.Replicas-len(chosen), 2)
		if v.Fabric.Racks() == 1 {
			want = b.Replicas - len(chosen)
		}
		if len(in[r]) < want {
			continue
		}
		slices.SortStableFunc(in[r], func(x, y topo.HostID) int { return cmp.Compare(loads.ofHost(y), loads.ofHost(x)) })
		if chosen = append(chosen, in[r][:want]...); len(chosen) == b.Replicas {
			return chosen, true
		}
	}
	return nil, false
}

// balance tells of a host whether the used part of its disk is at most
// Tolerance above that of all disks together. Disks that are never full are
// always in balance.
func (p Sinbad) balance(v *policies.View) func(topo.HostID) bool {
	var used, disk uint64
	for i := range v.Hosts {
		if v.Hosts[i].Disk > 0 {
			used += uint64(v.Hosts[i].Used)
			disk += uint64(v.Hosts[i].Disk)
		}
	}
	limit := 100*used + uint64(p.Tolerance)*disk
	return func(h topo.HostID) bool {
		s := v.Hosts[h]
		// Used/Disk ≤ used/disk + Tolerance/100, multiplied out to 128 bits.
		lhi, llo := bits.Mul64(100*uint64(s.Used), disk)
		rhi, rlo := bits.Mul64(uint64(s.Disk), limit)
		return s.Disk == 0 || lhi < rhi || lhi == rhi && llo <= rlo
	}
}

// loads is the traffic toward each host and each rack that a decision must
// reckon with.
type loads struct {
	host, rack       []units.Rate // the paper's vCur, at most the capacity
	hostCap, rackCap []units.Rate
	disk             units.Rate
}

// ofHost and ofRack are the expected capacity of the link toward a host, or of
// all links toward a rack: what the load leaves, at most what a disk can write.
func (l *loads) ofHost(h topo.HostID) units.Rate {
	return min(l.hostCap[h]-l.host[h], l.disk)
}

func (l *loads) ofRack(r topo.RackID) units.Rate {
	return min(l.rackCap[r]-l.rack[r], l.disk)
}

// estimate computes the loads: the smoothed measurements, the whole capacity
// where a report is overdue, and on top what has been placed since the reports.
//
// A rack's load is the sum over its hosts, as in the paper. It counts traffic
// inside the rack too, so it errs on the careful side.
func estimate(v *policies.View) *loads {
	f := v.Fabric
	l := &loads{
		host: make([]units.Rate, f.Hosts()), rack: make([]units.Rate, f.Racks()),
		hostCap: make([]units.Rate, f.Hosts()), rackCap: make([]units.Rate, f.Racks()),
		disk: v.DiskRate,
	}
	if l.disk == 0 {
		l.disk = units.MaxRate
	}
	for r := range l.rackCap {
		for s := range f.Spines() {
			l.rackCap[r] += v.Capacity[f.LeafDown(topo.RackID(r), s)]
		}
	}
	for i := range l.host {
		h := topo.HostID(i)
		r := f.RackOf(h)
		l.hostCap[h] = v.Capacity[f.HostDown(h)]
		load := min(v.Hosts[h].Rx, l.hostCap[h])
		if overdue(v, h) {
			load = l.hostCap[h]
		}
		l.host[h] = load
		l.rack[r] = min(l.rack[r]+load, l.rackCap[r])
	}
	for _, p := range v.Placements {
		l.expect(v, p)
	}
	return l
}

// reports are when a host last reported, 0 before it ever did, and when it is
// due to.
func reports(s policies.HostState) (last, next time.Duration) {
	return max(s.LastReport, 0), s.NextReport
}

// overdue tells whether the report after the last should have come for longer
// than half the time between two.
func overdue(v *policies.View, h topo.HostID) bool {
	last, next := reports(v.Hosts[h])
	return next > last && v.Now-next > (next-last)/2
}

// expect adds what a placement will bring to the links on which it is not
// measured yet (the paper's hysteresis): its size over the time from the
// decision to the link's next report, once for each host that receives it over
// the network and once for their rack.
func (l *loads) expect(v *policies.View, p policies.Placement) {
	var racks []topo.RackID
	for _, h := range p.Hosts {
		last, next := reports(v.Hosts[h])
		if h == p.Client || p.At < last {
			continue
		}
		rate := units.RateOf(p.Size, max(next-p.At, minDelta))
		l.host[h] += min(l.hostCap[h]-l.host[h], rate)
		r := v.Fabric.RackOf(h)
		if r != v.Fabric.RackOf(p.Client) && !slices.Contains(racks, r) {
			racks = append(racks, r)
			l.rack[r] += min(l.rackCap[r]-l.rack[r], rate)
		}
	}
}
