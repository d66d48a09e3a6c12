package scenario

import (
	"fmt"

	"testbed/topo"
	"testbed/topo/units"
)

// checker finds what no single value shows: values that do not go together.
type checker struct {
	*decoder
	spec *Spec
}

func (f Fabric) shape() topo.LeafSpine {
	return topo.LeafSpine{
		Leaves: f.Leaves, Spines: f.Spines, HostsPerLeaf: f.HostsPerLeaf, HostLink: f.HostLink,
		Oversubscription: f.Oversubscription, Queue: f.Queue, MTU: units.Bytes(f.MTU),
	}
}

// Rates of a leaf's link to a spine that make sense.
const (
	minUplink = 100 * units.Kbps
	maxUplink = 1000 * units.Gbps
)

func (c *checker) check() {
	c.fabric()
	writes := false
	for i, item := range c.spec.Workload {
		if item.Writers != nil {
			writes = true
			c.writers(item.Writers, fmt.Sprintf("workload[%d]", i))
		}
	}
	if writes && c.spec.Disk == nil && c.sound("disk") {
		c.failAt("disk", `missing: the workload writes blocks: want a mapping such as {write: 6.9MB/s, size: 256MB}`)
	}
	c.faults()
	for i, arm := range c.spec.Arms {
		path := fmt.Sprintf("arms[%d].placement", i)
		if c.at[parent(path)] == nil { // a mapping of policies
			path = "arms.placement"
		}
		if writes && arm.Placement.Name == "" && c.sound(path) && !c.badWithin(path) {
			c.failAt(path, "missing: the workload writes blocks: want a placement policy such as hdfs")
		}
	}
}

func (c *checker) fabric() {
	f := c.spec.Fabric
	if c.sound("fabric.leaves", "fabric.spines") && f.Leaves > 1 && f.Spines == 0 {
		c.failAt("fabric.spines", "0 with %d leaves: want at least one, or the leaves have no way to each other", f.Leaves)
		return
	}
	rates := c.sound("fabric.hosts_per_leaf", "fabric.host_link", "fabric.oversubscription", "fabric.spines")
	var uplink units.Rate
	if rates && f.Spines > 0 {
		// In floating point first: an absurd ratio must not wrap.
		each := float64(f.HostLink) * float64(f.HostsPerLeaf) / f.Oversubscription.Float() / float64(f.Spines)
		if each < float64(minUplink) || each > float64(maxUplink) {
			c.failAt("fabric.oversubscription", "%v: %d hosts of %v and %d spines make each uplink %.0f bps: want %v to %v",
				f.Oversubscription, f.HostsPerLeaf, f.HostLink, f.Spines, each, minUplink, maxUplink)
			return
		}
		uplink = units.Rate(each)
	}
	if !c.sound("fabric.queue", "fabric.mtu", "fabric.host_link") {
		return
	}
	least := 2 * (units.Bytes(f.MTU) + ethernetHeader)
	for _, link := range []struct {
		what string
		rate units.Rate
	}{{"a host's link", f.HostLink}, {"an uplink", uplink}} {
		if q := f.Queue.On(link.rate); link.rate > 0 && q < least {
			c.failAt("fabric.queue", "%v: %d bytes ahead of %s of %v: want at least two frames, %d bytes", f.Queue, q, link.what, link.rate, least)
			return
		} else if q > units.GB {
			c.failAt("fabric.queue", "%v: %v ahead of %s of %v: want at most 1GB", f.Queue, q, link.what, link.rate)
			return
		}
	}
}

const ethernetHeader units.Bytes = 14

func (c *checker) writers(w *WritersItem, path string) {
	f := c.spec.Fabric
	shaped := c.sound("fabric.leaves", "fabric.hosts_per_leaf")
	hosts := f.Leaves * f.HostsPerLeaf
	switch {
	case c.at[path+".count"] != nil && c.at[path+".hosts"] != nil:
		c.failAt(path+".hosts", "given beside count: want one of them")
	case c.at[path+".count"] == nil && c.at[path+".hosts"] == nil:
		c.failAt(path+".count", "missing: want the number of writers, or hosts with their names")
	case shaped && c.sound(path+".count") && w.Count > hosts:
		c.failAt(path+".count", "%d writers on %d hosts: want at most one a host", w.Count, hosts)
	}
	if shaped {
		c.hostNames(w, path)
		if c.sound(path+".replicas") && w.Replicas > hosts {
			c.failAt(path+".replicas", "%d replicas on %d hosts: want at most one a host", w.Replicas, hosts)
		}
	}
	if c.sound(path+".packet", path+".block") && w.Packet > w.Block {
		c.failAt(path+".packet", "%v in a block of %v: want at most the block", w.Packet, w.Block)
	} else if c.sound(path+".packet", path+".block", path+".window") && int64(w.Packet)*int64(w.Window) > int64(w.Block) {
		c.failAt(path+".window", "%d packets of %v are more than a block of %v: want a smaller window or packet, so that the pipeline pushes back", w.Window, w.Packet, w.Block)
	}
	if d := c.spec.Disk; d != nil && c.sound(path+".block", "disk.size") && w.Block > d.Size {
		c.failAt(path+".block", "%v on disks of %v: want a smaller block or a larger disk.size", w.Block, d.Size)
	}
}

func (c *checker) hostNames(w *WritersItem, path string) {
	f := c.spec.Fabric
	first := map[string]int{}
	for i, name := range w.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		if !c.sound(at) {
			continue
		}
		rack, host, ok := topo.ParseHostName(name)
		if !ok || int(rack) >= f.Leaves || host >= f.HostsPerLeaf {
			c.failAt(at, "%q: no such host: want h0-00 to h%d-%02d", clip(name), f.Leaves-1, f.HostsPerLeaf-1)
		} else if j, again := first[name]; again {
			c.failAt(at, "%q again, it is hosts[%d]: want each host once", name, j)
		} else {
			first[name] = i
		}
	}
}
