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
	s := topo.LeafSpine{
		Leaves: f.Leaves, Spines: f.Spines, HostsPerLeaf: f.HostsPerLeaf, HostLink: f.HostLink,
		Oversubscription: f.Oversubscription, Uplink: f.Uplink, CrossRack: f.CrossRack,
		Queue: f.Queue, MTU: units.Bytes(f.MTU), Delay: f.Delay,
	}
	if f.Kind == kindSwitch {
		s.Leaves, s.HostsPerLeaf = 1, f.Ports
	}
	for _, h := range f.HostLinks {
		s.HostLinks = append(s.HostLinks, topo.HostLink(h))
	}
	for _, l := range f.Links {
		s.Links = append(s.Links, topo.LinkChange(l))
	}
	if f.RED != nil {
		red := topo.RED(*f.RED)
		s.RED = &red
	}
	return s
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
		path := fmt.Sprintf("workload[%d]", i)
		switch {
		case item.Writers != nil:
			writes = true
			c.writers(item.Writers, path)
		case item.Readers != nil:
			c.clients("readers", item.Readers.Count, item.Readers.Hosts, path)
		case item.Jobs != nil:
			writes = true
			c.jobs(item.Jobs, path)
		}
	}
	c.placed(writes)
	c.faults()
	c.capture()
}

// placed checks that a workload that writes blocks has disks and placement policies.
func (c *checker) placed(writes bool) {
	if writes && c.spec.Disk == nil && c.sound("disk") {
		c.failAt("disk", `missing: the workload writes blocks: want a mapping such as {write: 6.9MB/s, size: 256MB}`)
	}
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

const ethernetHeader units.Bytes = 14

// windowPart is the part of a block, one over it, that a writer's window may be. HDFS has
// 5 MB of a block of 64 to 256 MB. With more, the client has written much of a block
// before the slowest part of its pipeline holds it back.
const windowPart = 10

func (c *checker) writers(w *WritersItem, path string) {
	c.clients("writers", w.Count, w.Hosts, path)
	if c.shaped() {
		f := c.spec.Fabric.shape()
		hosts := f.Leaves * f.HostsPerLeaf
		if c.sound(path+".replicas") && w.Replicas > hosts {
			c.failAt(path+".replicas", "%d replicas on %d hosts: want at most one a host", w.Replicas, hosts)
		}
	}
	c.pipeline(path, w.Block, w.Packet, w.Window)
	if d := c.spec.Disk; d != nil && c.sound(path+".block", "disk.size") && w.Block > d.Size {
		c.failAt(path+".block", "%v on disks of %v: want a smaller block or a larger disk.size", w.Block, d.Size)
	}
}

// clients checks where writers or readers are.
func (c *checker) clients(what string, count int, names []string, path string) {
	f := c.spec.Fabric.shape()
	shaped := c.shaped()
	hosts := f.Leaves * f.HostsPerLeaf
	switch {
	case c.at[path+".count"] != nil && c.at[path+".hosts"] != nil:
		c.failAt(path+".hosts", "given beside count: want one of them")
	case c.at[path+".count"] == nil && c.at[path+".hosts"] == nil:
		c.failAt(path+".count", "missing: want the number of %s, or hosts with their names", what)
	case shaped && c.sound(path+".count") && count > hosts:
		c.failAt(path+".count", "%d %s on %d hosts: want at most one a host", count, what, hosts)
	}
	if shaped {
		c.hostNames(names, path)
	}
}

// pipeline checks the write pipeline of an item's blocks. Of jobs, the last block of a
// file may be smaller.
func (c *checker) pipeline(path string, block, packet units.Bytes, window int) {
	if c.sound(path+".packet", path+".block") && packet > block {
		c.failAt(path+".packet", "%v in a block of %v: want at most the block", packet, block)
	} else if c.sound(path+".packet", path+".block", path+".window") && int64(packet)*int64(window) > int64(block)/windowPart {
		advice := fmt.Sprintf("a window of %d", int64(block)/windowPart/int64(packet))
		if int64(packet) > int64(block)/windowPart {
			advice = fmt.Sprintf("packets of %v", units.Bytes(max(1, int64(block)/windowPart/int64(window))))
		}
		c.failAt(path+".window", "%d packets of %v, un-acknowledged, are %.1f %% of a block of %v, and the client would be ahead of the pipeline's slowest part by as much: want at most %d %%: %s or a larger block",
			window, packet, 100*float64(packet)*float64(window)/float64(block), block, 100/windowPart, advice)
	}
}

func (c *checker) hostNames(names []string, path string) {
	f := c.spec.Fabric.shape()
	first := map[string]int{}
	for i, name := range names {
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
