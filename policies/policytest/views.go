package policytest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// fabrics are small leaf-spines, some of them one rack, some oversubscribed.
func fabrics() *rapid.Generator[*topo.Fabric] {
	return rapid.Custom(func(t *rapid.T) *topo.Fabric {
		s := topo.LeafSpine{
			Leaves:           rapid.IntRange(1, 5).Draw(t, "leaves"),
			Spines:           rapid.IntRange(1, 3).Draw(t, "spines"),
			HostsPerLeaf:     rapid.IntRange(2, 5).Draw(t, "hosts per leaf"),
			HostLink:         units.Rate(rapid.Int64Range(1e3, 1e10).Draw(t, "host link")),
			Oversubscription: units.Ratio{Num: rapid.Int64Range(1, 5).Draw(t, "oversubscription"), Den: 1},
			Queue:            topo.Queue{Time: time.Millisecond},
			MTU:              1500,
		}
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		return f
	})
}

// baseView is a cluster without work. Capacities are a little less than the
// links' rates, as on packets.
func baseView(t *rapid.T) *policies.View {
	f := fabrics().Draw(t, "fabric")
	v := &policies.View{
		Now:      time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "now")),
		Fabric:   f,
		DiskRate: units.Rate(rapid.SampledFrom([]int64{0, 1e6, 1e9}).Draw(t, "disk rate")),
		Hosts:    make([]policies.HostState, f.Hosts()),
	}
	faulty := rapid.IntRange(0, 3).Draw(t, "faulty") == 0
	for _, l := range f.Links() {
		rate := l.Rate - l.Rate/16
		if faulty && rapid.IntRange(0, 5).Draw(t, "down") == 0 {
			rate = 0 // a link that is down
		}
		v.Capacity = append(v.Capacity, rate)
	}
	return v
}

// sizes are small, ordinary and huge, though not so that those of a coflow together wrap.
func sizes() *rapid.Generator[units.Bytes] {
	return rapid.Map(rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 1e9), rapid.Int64Range(1, 1<<58)),
		func(n int64) units.Bytes { return units.Bytes(n) })
}

// PlacerViews are Views for placement policies, with nothing hidden: clusters with
// loads, disks in use and recent placements.
func PlacerViews() *rapid.Generator[*policies.View] {
	return rapid.Custom(func(t *rapid.T) *policies.View {
		v := baseView(t)
		fillHosts(t, v)
		fillRacks(t, v)
		for i := range rapid.IntRange(0, 4).Draw(t, "placements") {
			hosts := rapid.Permutation(allHosts(v)).Draw(t, "placed on")
			v.Placements = append(v.Placements, policies.Placement{
				At: max(v.Now-time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "ago")), 0), Block: workloads.BlockID(i), Client: hosts[0],
				Size: units.Bytes(rapid.Int64Range(1, 1e9).Draw(t, "placed size")), Hosts: hosts[:min(len(hosts), 3)],
			})
		}
		slices.SortStableFunc(v.Placements, func(a, b policies.Placement) int { return int(a.At - b.At) })
		return v
	})
}

func allHosts(v *policies.View) []topo.HostID {
	out := make([]topo.HostID, len(v.Hosts))
	for h := range out {
		out[h] = topo.HostID(h)
	}
	return out
}

// fillHosts draws what heartbeats and decisions told of the hosts. One in four
// clusters has tight disks, where a block may fit nowhere.
func fillHosts(t *rapid.T, v *policies.View) {
	disk := units.Bytes(rapid.SampledFrom([]int64{0, 1e12, 1e12, 3e9}).Draw(t, "disk"))
	faulty := rapid.IntRange(0, 3).Draw(t, "hosts lost") == 0
	for h := range v.Hosts {
		s := policies.HostState{LastReport: -1, NextReport: time.Second, Disk: disk}
		s.Lost = faulty && rapid.IntRange(0, 3).Draw(t, "lost") == 0
		if ago := rapid.Int64Range(-1, 2e9).Draw(t, "last report"); ago >= 0 && time.Duration(ago) <= v.Now {
			s.LastReport = v.Now - time.Duration(ago)
			s.NextReport = s.LastReport + time.Second
		}
		link := int64(v.Capacity[v.Fabric.HostDown(topo.HostID(h))])
		s.Rx = units.Rate(rapid.Int64Range(0, link).Draw(t, "rx"))
		s.Tx = units.Rate(rapid.Int64Range(0, link).Draw(t, "tx"))
		s.Writing = rapid.IntRange(0, 9).Draw(t, "writing")
		if disk > 0 {
			s.Used = units.Bytes(rapid.Int64Range(0, int64(disk)).Draw(t, "used"))
		}
		v.Hosts[h] = s
	}
}

// fillRacks draws what the counters of switches told, and zones.
func fillRacks(t *rapid.T, v *policies.View) {
	v.LargestBlock = units.Bytes(rapid.Int64Range(0, 2e9).Draw(t, "largest block"))
	for r := range v.Fabric.Racks() {
		var s policies.RackState
		if v.Fabric.Spines() > 0 {
			link := int64(v.Capacity[v.Fabric.LeafDown(topo.RackID(r), 0)])
			s.Rx, s.Tx = units.Rate(rapid.Int64Range(0, link).Draw(t, "rack rx")), units.Rate(rapid.Int64Range(0, link).Draw(t, "rack tx"))
		}
		v.Racks = append(v.Racks, s)
	}
	if zones := rapid.IntRange(0, 3).Draw(t, "zones"); zones > 0 {
		for range v.Fabric.Racks() {
			v.Zone = append(v.Zone, rapid.IntRange(0, zones-1).Draw(t, "zone"))
		}
	}
	for _, rate := range v.Capacity {
		v.Load = append(v.Load, units.Rate(rapid.Int64Range(0, int64(rate)).Draw(t, "load")))
	}
}

// requests wait to be placed.
func requests(v *policies.View) *rapid.Generator[[]policies.Request] {
	return rapid.Custom(func(t *rapid.T) (out []policies.Request) {
		at := time.Duration(0)
		for i := range rapid.IntRange(0, 8).Draw(t, "requests") {
			at += time.Duration(rapid.Int64Range(0, 3).Draw(t, "after"))
			b := blockFor(v).Draw(t, "requested")
			b.ID = workloads.BlockID(i)
			out = append(out, policies.Request{Block: b, At: at, Left: rapid.IntRange(1, 4).Draw(t, "left")})
		}
		return out
	})
}

// blockFor is a block that a client of the cluster writes.
func blockFor(v *policies.View) *rapid.Generator[workloads.Block] {
	return rapid.Custom(func(t *rapid.T) workloads.Block {
		return workloads.Block{
			ID: 7, Writer: 3, Client: topo.HostID(rapid.IntRange(0, len(v.Hosts)-1).Draw(t, "client")),
			Size:     units.Bytes(rapid.Int64Range(1, 1e9).Draw(t, "block size")),
			Replicas: rapid.IntRange(1, min(4, len(v.Hosts))).Draw(t, "replicas"),
			Packet:   64 * units.KB, Window: 80,
		}
	})
}

// clone copies all of a View that a policy could write to.
func clone(v *policies.View) *policies.View {
	c := *v
	c.Capacity = slices.Clone(v.Capacity)
	c.Hosts = slices.Clone(v.Hosts)
	c.Racks = slices.Clone(v.Racks)
	c.Zone = slices.Clone(v.Zone)
	c.Load = slices.Clone(v.Load)
	c.Memory = slices.Clone(v.Memory)
	c.Coflows = slices.Clone(v.Coflows)
	for i := range c.Coflows {
		x := &c.Coflows[i]
		x.Links, x.Flows = slices.Clone(x.Links), slices.Clone(x.Flows)
		for j := range x.Flows {
			x.Flows[j].Path = slices.Clone(x.Flows[j].Path)
		}
	}
	c.Placements = slices.Clone(v.Placements)
	for i := range c.Placements {
		c.Placements[i].Hosts = slices.Clone(c.Placements[i].Hosts)
	}
	return &c
}

// Mask is a copy of a View from which is hidden what the needs do not declare, as
// the engine does it. With NewFlows, flows stay as they are: which coflows are new
// no View tells.
func Mask(v *policies.View, needs policies.Knowledge) *policies.View {
	m := clone(v)
	for i := range m.Coflows {
		c := &m.Coflows[i]
		if needs&(policies.Flows|policies.NewFlows|policies.PilotFlows) == 0 {
			c.Flows = nil
		}
		if needs&policies.MostSent == 0 {
			c.MostSent = 0
		}
		if needs&policies.Sizes != 0 {
			continue
		}
		c.Remaining = 0
		if needs&policies.Totals == 0 {
			c.Size, c.Largest, c.Bound = 0, 0, 0
		}
		for j := range c.Links {
			c.Links[j].Remaining = 0
		}
		for j := range c.Flows {
			c.Flows[j].Size, c.Flows[j].Remaining = 0, 0
		}
	}
	if needs&policies.LinkLoad == 0 {
		m.Placements = nil
		clear(m.Racks)
	}
	if needs&policies.TrueLoad == 0 {
		m.Load = nil
	}
	for h := range m.Hosts {
		if needs&policies.LinkLoad == 0 {
			m.Hosts[h].Rx, m.Hosts[h].Tx = 0, 0
		}
		if needs&policies.DiskUse == 0 {
			m.Hosts[h].Used, m.Hosts[h].Writing = 0, 0
		}
	}
	return m
}

// rename gives coflows and flows other IDs in the same order.
func rename(v *policies.View) *policies.View {
	r := clone(v)
	for i := range r.Coflows {
		c := &r.Coflows[i]
		c.ID = 3*c.ID + 5
		for j := range c.Flows {
			c.Flows[j].ID = newFlowID(c.Flows[j].ID)
		}
	}
	return r
}

func newFlowID(id workloads.FlowID) workloads.FlowID { return 3*id + 11 }
