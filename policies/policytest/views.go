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

// sizes are small, ordinary and huge.
func sizes() *rapid.Generator[units.Bytes] {
	return rapid.Map(rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 1e9), rapid.Int64Range(1, 1<<60)),
		func(n int64) units.Bytes { return units.Bytes(n) })
}

// allocatorView is a cluster with up to six coflows, some of whose flows have
// finished: IDs have gaps and are not in order of arrival.
func allocatorView() *rapid.Generator[*policies.View] {
	return rapid.Custom(func(t *rapid.T) *policies.View {
		v := baseView(t)
		n := rapid.IntRange(0, 6).Draw(t, "coflows")
		ids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "IDs")
		for i := range n {
			c := policies.CoflowState{
				ID:      workloads.CoflowID(ids[i]),
				Arrival: v.Now * time.Duration(i) / time.Duration(n),
			}
			flows := rapid.IntRange(1, 8).Draw(t, "flows")
			c.Width = flows + rapid.IntRange(0, 3).Draw(t, "finished flows")
			for j := range flows {
				src := topo.HostID(rapid.IntRange(0, v.Fabric.Hosts()-1).Draw(t, "src"))
				dst := topo.HostID(rapid.IntRange(0, v.Fabric.Hosts()-2).Draw(t, "dst"))
				if dst >= src {
					dst++
				}
				size := sizes().Draw(t, "size")
				sent := min(units.Bytes(rapid.Int64Range(0, 1<<60).Draw(t, "sent")), size-1)
				f := policies.FlowState{
					ID: workloads.FlowID(100*ids[i] + 2*j), Src: src, Dst: dst,
					Path: v.Fabric.Path(src, dst, uint32(rapid.IntRange(0, 5).Draw(t, "hash"))),
					Sent: sent, Size: size, Remaining: size - sent,
				}
				c.Sent += min(sent, 1<<56)
				c.Flows = append(c.Flows, f)
			}
			v.Coflows = append(v.Coflows, c)
		}
		fillHosts(t, v)
		return v
	})
}

// placerView is a cluster with loads, disks in use and recent placements.
func placerView() *rapid.Generator[*policies.View] {
	return rapid.Custom(func(t *rapid.T) *policies.View {
		v := baseView(t)
		fillHosts(t, v)
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
	c.Coflows = slices.Clone(v.Coflows)
	for i := range c.Coflows {
		c.Coflows[i].Flows = slices.Clone(c.Coflows[i].Flows)
		for j := range c.Coflows[i].Flows {
			f := &c.Coflows[i].Flows[j]
			f.Path = slices.Clone(f.Path)
		}
	}
	c.Placements = slices.Clone(v.Placements)
	for i := range c.Placements {
		c.Placements[i].Hosts = slices.Clone(c.Placements[i].Hosts)
	}
	return &c
}

// mask hides from a View what the needs do not declare, as the engine does.
func mask(v *policies.View, needs policies.Knowledge) *policies.View {
	m := clone(v)
	if needs&policies.Sizes == 0 {
		for i := range m.Coflows {
			for j := range m.Coflows[i].Flows {
				m.Coflows[i].Flows[j].Size, m.Coflows[i].Flows[j].Remaining = 0, 0
			}
		}
	}
	if needs&policies.LinkLoad == 0 {
		m.Placements = nil
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
