package engine

import (
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// cluster is the policies.Cluster for policies that declare the same facts. They share it, and a
// host that changes is updated (hostChanged).
type cluster struct {
	policies.Cluster
	facts   policies.Facts
	current bool // except for Hosts, updated in this step
}

// cluster returns the Cluster for a policy with the given needs. Its memory is reused.
func (c *core) cluster(needs policies.Facts) *policies.Cluster {
	known := needs & (policies.LinkLoad | policies.DiskUse | policies.OracleLoad)
	at := slices.IndexFunc(c.clusters, func(shown *cluster) bool { return shown.facts == known })
	if at < 0 {
		at = len(c.clusters)
		c.clusters = append(c.clusters, &cluster{facts: known})
	}
	shown := c.clusters[at]
	if shown.current {
		return &shown.Cluster
	}
	shown.current = true
	shown.Cluster = policies.Cluster{
		Now: c.now, Fabric: c.cfg.Fabric, Capacity: c.cfg.Capacity, DiskRate: c.cfg.DiskRate, Zone: c.cfg.Zone,
		Hosts: shown.Hosts, Racks: slices.Grow(shown.Racks[:0], len(c.racks)),
	}
	for h := len(shown.Hosts); h < len(c.hosts); h++ { // when it is new
		shown.Hosts = append(shown.Hosts, c.hostState(topo.HostID(h), known))
	}
	for _, r := range c.racks {
		var s policies.RackState
		if known.Has(policies.LinkLoad) {
			s.LastReport, s.NextReport = r.lastReport, r.nextReport
			s.Rx, s.Tx = units.Rate(r.rx), units.Rate(r.tx)
			s.Received, s.Sent = r.rxSeen, r.txSeen
		}
		shown.Racks = append(shown.Racks, s)
	}
	if known.Has(policies.OracleLoad) {
		shown.Load = c.load
	}
	return &shown.Cluster
}

// hostState returns the state of a host for policies that may know the given facts.
func (c *core) hostState(id topo.HostID, known policies.Facts) policies.HostState {
	h := &c.hosts[id]
	s := policies.HostState{LastReport: h.lastReport, NextReport: h.nextReport, Disk: c.cfg.DiskSize, Lost: h.lost}
	if known.Has(policies.LinkLoad) {
		s.Rx, s.Tx = units.Rate(h.rx), units.Rate(h.tx)
	}
	if known.Has(policies.DiskUse) {
		if s.Writing, s.Used = h.load, h.used; h.load < 0 {
			s.Writing = h.writing
		}
		if h.full { // it has no room, even if the known disk use suggests otherwise
			s.Used = max(h.used, s.Disk, 1)
			s.Disk = s.Used
		}
	}
	return s
}

// clusterChanged requires Clusters to be updated: a step begins, or loads have changed.
func (c *core) clusterChanged() {
	for _, shown := range c.clusters {
		shown.current = false
	}
}

// hostChanged updates a host in Clusters. It must follow each change of a host.
func (c *core) hostChanged(h topo.HostID) {
	for _, shown := range c.clusters {
		shown.Hosts[h] = c.hostState(h, shown.facts)
	}
}
