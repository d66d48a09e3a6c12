package policytest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// fabrics generates small leaf-spine fabrics, some with one rack, some oversubscribed.
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

// baseCluster draws a cluster without work. Capacities are slightly below the links' rates,
// as on packets.
func baseCluster(t *rapid.T) *policies.Cluster {
	f := fabrics().Draw(t, "fabric")
	v := &policies.Cluster{
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

// sizes generates tiny, ordinary and huge sizes, whose sum over a coflow does not overflow.
func sizes() *rapid.Generator[units.Bytes] {
	return rapid.Map(rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 1e9), rapid.Int64Range(1, 1<<58)),
		func(n int64) units.Bytes { return units.Bytes(n) })
}

// fillHosts draws the state of the hosts as known from heartbeats and decisions. One in
// four clusters has small disks, on which a block may fit nowhere.
func fillHosts(t *rapid.T, v *policies.Cluster) {
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

// clone returns a copy of a View that shares no memory that a policy could modify.
func clone(v *policies.CoflowView) *policies.CoflowView {
	c := &policies.CoflowView{Cluster: cloneCluster(v.Cluster), Coflows: slices.Clone(v.Coflows)}
	for i := range c.Coflows {
		x := &c.Coflows[i]
		x.Links, x.Flows = slices.Clone(x.Links), slices.Clone(x.Flows)
		for j := range x.Flows {
			x.Flows[j].Path = slices.Clone(x.Flows[j].Path)
		}
	}
	return c
}

// clonePlacement is clone for the View of a placement policy.
func clonePlacement(v *policies.PlacementView) *policies.PlacementView {
	c := &policies.PlacementView{Cluster: cloneCluster(v.Cluster), LargestBlock: v.LargestBlock, Placements: slices.Clone(v.Placements)}
	for i := range c.Placements {
		c.Placements[i].Hosts = slices.Clone(c.Placements[i].Hosts)
	}
	return c
}

func cloneCluster(c *policies.Cluster) *policies.Cluster {
	d := *c
	d.Capacity, d.Hosts, d.Racks = slices.Clone(c.Capacity), slices.Clone(c.Hosts), slices.Clone(c.Racks)
	d.Zone, d.Load = slices.Clone(c.Zone), slices.Clone(c.Load)
	return &d
}

// overwrite clears a View after its use, as the next View would. A policy that keeps the
// View, its Cluster or a slice of them then decides differently.
func overwrite(v *policies.CoflowView) {
	for i := range v.Coflows {
		clear(v.Coflows[i].Links)
		clear(v.Coflows[i].Flows)
	}
	clear(v.Coflows)
	overwriteCluster(v.Cluster)
	*v = policies.CoflowView{Cluster: &policies.Cluster{}}
}

// overwritePlacement is overwrite for the View of a placement policy.
func overwritePlacement(v *policies.PlacementView) {
	clear(v.Placements)
	overwriteCluster(v.Cluster)
	*v = policies.PlacementView{Cluster: &policies.Cluster{}}
}

func overwriteCluster(c *policies.Cluster) {
	clear(c.Capacity)
	clear(c.Hosts)
	clear(c.Racks)
	clear(c.Zone)
	clear(c.Load)
	*c = policies.Cluster{}
}

// everything is all facts.
const everything = ^policies.Facts(0)

// Mask returns a copy of a View without the facts that needs does not declare, as the
// engine shows it. With NewFlows, it keeps the flows of all coflows, because a View does
// not show which coflows are new.
func Mask(v *policies.CoflowView, needs policies.Facts) *policies.CoflowView {
	m := clone(v)
	maskCluster(m.Cluster, needs)
	for i := range m.Coflows {
		c := &m.Coflows[i]
		if needs&policies.Flows == 0 {
			c.Flows = nil
		}
		if !needs.Has(policies.MostSent) {
			c.MostSent = 0
		}
		if !needs.Has(policies.Links) {
			c.Links = nil
		}
		if !needs.Has(policies.Progress) {
			c.Sent = 0
			for j := range c.Links {
				c.Links[j].Begun = false
			}
			for j := range c.Flows {
				c.Flows[j].Sent = 0
			}
		}
		if needs.Has(policies.Sizes) {
			continue
		}
		c.Remaining = 0
		if !needs.Has(policies.Totals) {
			c.Size, c.Largest, c.Bound = 0, 0, 0
		}
		for j := range c.Links {
			c.Links[j].Remaining = 0
		}
		for j := range c.Flows {
			c.Flows[j].Size, c.Flows[j].Remaining = 0, 0
		}
	}
	return m
}

// MaskPlacement is Mask for the View of a placement policy.
func MaskPlacement(v *policies.PlacementView, needs policies.Facts) *policies.PlacementView {
	m := clonePlacement(v)
	maskCluster(m.Cluster, needs)
	if !needs.Has(policies.LinkLoad) {
		m.Placements = nil
	}
	return m
}

func maskCluster(c *policies.Cluster, needs policies.Facts) {
	if !needs.Has(policies.LinkLoad) {
		clear(c.Racks)
	}
	if !needs.Has(policies.OracleLoad) {
		c.Load = nil
	}
	for h := range c.Hosts {
		if !needs.Has(policies.LinkLoad) {
			c.Hosts[h].Rx, c.Hosts[h].Tx = 0, 0
		}
		if !needs.Has(policies.DiskUse) {
			c.Hosts[h].Used, c.Hosts[h].Writing = 0, 0
		}
	}
}

// rename returns a copy of v with different IDs in the same order.
func rename(v *policies.CoflowView) *policies.CoflowView {
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

// cloneTasks is clone for the View of a task scheduler. The copy shares the input blocks of jobs.
func cloneTasks(v *policies.TaskView) *policies.TaskView {
	c := *v
	c.Cluster, c.Slots, c.Jobs, c.Counts = cloneCluster(v.Cluster), slices.Clone(v.Slots), slices.Clone(v.Jobs), slices.Clone(v.Counts)
	c.Profiles, c.EndedProfiles = maps.Clone(v.Profiles), maps.Clone(v.EndedProfiles)
	for i := range c.Jobs {
		j := &c.Jobs[i]
		j.Stages, j.Running = slices.Clone(j.Stages), slices.Clone(j.Running)
		for k := range j.Stages {
			j.Stages[k].Durations = slices.Clone(j.Stages[k].Durations)
		}
		if j.Shuffle != nil {
			s := *j.Shuffle
			s.Intermediate, s.Maps, s.Reduces = slices.Clone(s.Intermediate), slices.Clone(s.Maps), slices.Clone(s.Reduces)
			j.Shuffle = &s
		}
	}
	if v.History != nil {
		h := *v.History
		for i := range h.Copies {
			h.Copies[i].Lags, h.Copies[i].Computing = slices.Clone(h.Copies[i].Lags), slices.Clone(h.Copies[i].Computing)
		}
		c.History = &h
	}
	return &c
}

// MaskTasks is Mask for the View of a task scheduler.
func MaskTasks(v *policies.TaskView, needs policies.Facts) *policies.TaskView {
	m := cloneTasks(v)
	maskCluster(m.Cluster, needs)
	if !needs.Has(policies.Slots) {
		own := m.Slots[m.Host]
		clear(m.Slots)
		m.Slots[m.Host] = own
	}
	if !needs.Has(policies.TaskHistory) {
		m.History = nil
		for h := range m.Slots {
			m.Slots[h].Judged, m.Slots[h].Straggled = 0, 0
		}
	}
	for i := range m.Jobs {
		j := &m.Jobs[i]
		if !needs.Has(policies.Attempts) {
			j.Running = nil
		}
		if !needs.Has(policies.Shuffle) {
			j.Shuffle = nil
		} else if j.Shuffle != nil && !needs.Has(policies.OracleRatio) {
			j.Shuffle.Ratio = 0
		}
		for k := range j.Stages {
			if !needs.Has(policies.TaskProgress) {
				j.Stages[k].Durations = nil
			}
		}
		for k := range j.Running {
			if !needs.Has(policies.TaskProgress) {
				j.Running[k].Progress = 0
			}
		}
	}
	return m
}
