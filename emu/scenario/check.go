package scenario

import (
	"fmt"
	"reflect"

	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/yamltree"
)

// checker finds values that contradict each other.
type checker struct {
	*decoder
	spec *Spec
}

func (f Fabric) shape() topo.LeafSpine {
	s := topo.LeafSpine{
		Leaves: f.Leaves, Spines: f.Spines, HostsPerLeaf: f.HostsPerLeaf, HostLink: f.HostLink,
		Oversubscription: f.Oversubscription, Uplink: f.Uplink, CrossRack: f.CrossRack,
		Queue: f.Queue, MTU: units.Bytes(f.MTU), Delay: f.Delay, StoreAndForward: f.LinkModel == "store-and-forward",
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

func (c *checker) check() {
	c.fabric()
	writes, tasks := false, false
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
		case item.Tasks != nil:
			tasks = true
			c.tasksItem(item.Tasks, path)
		}
	}
	c.required(writes, tasks)
	c.forks()
	c.tasks(tasks)
	c.faults()
	c.capture()
}

// required checks that a workload that writes blocks or has jobs of tasks has disks, and every arm the
// policies that the workload requires, which have defaults, and none that it cannot use.
func (c *checker) required(writes, tasks bool) {
	is := map[string]bool{catalog.WritesBlocks: writes, catalog.RunsTasks: tasks}
	if c.spec.Disk == nil && c.sound("disk") {
		switch {
		case writes:
			c.failAt("disk", `missing: the workload writes blocks: add a mapping such as {write: 6.9MB/s, size: 256MB}`)
		case tasks:
			c.failAt("disk", `missing: the workload has jobs of tasks, which read blocks: add a mapping such as {write: 6.9MB/s, size: 256MB}`)
		}
	}
	for i, arm := range c.spec.Arms {
		for _, r := range c.catalog {
			path := fmt.Sprintf("arms[%d].%s", i, r.Name)
			if c.at[parent(path)] == nil { // a mapping of policies
				path = "arms." + r.Name
			}
			if !c.sound(path) || c.badWithin(path) {
				continue
			}
			switch named := arm.Policies[r.Name].Name != ""; {
			case !named && is[r.Required] && r.Default != "":
				arm.Policies[r.Name] = Policy{Name: r.Default}
			case !named && is[r.Required]:
				c.failAt(path, "missing: %s: add a %s policy such as %s", r.Required, r.Name, r.Examples[0])
			case named && r.Required == catalog.RunsTasks && !tasks:
				c.failAt(path, "no effect: a %s policy requires a workload with jobs of tasks: remove it, or add an item of kind tasks", r.Name)
			}
		}
	}
}

// forks checks that arms with a shared past differ in nothing but the policy that can be replaced during a run.
func (c *checker) forks() {
	if c.spec.ForkAt == 0 {
		return
	}
	for i, arm := range c.spec.Arms {
		first := c.spec.Arms[0]
		for _, r := range c.catalog {
			path := fmt.Sprintf("arms[%d].%s", i, r.Name)
			if catalog.IsExternal(arm.Policies[r.Name].Name) && c.sound(path) {
				c.failAt(path, "a policy outside of the program cannot decide from fork_at on: name a policy of the program, or remove fork_at")
			}
			same := reflect.DeepEqual(arm.Policies[r.Name], first.Policies[r.Name])
			if r.Name != catalog.RoleCoflow && c.sound(path) && !same {
				c.failAt(path, "differs from that of arm %s, but fork_at gives all arms the same past: only coflow policies "+
					"can differ, which decide again at any moment", first.Name)
			}
		}
		if path := fmt.Sprintf("arms[%d].set", i); len(arm.Set) > 0 && c.sound(path) {
			c.failAt(path, "changes the scenario of an arm, but fork_at gives all arms the same past: only coflow policies "+
				"can differ")
		}
	}
}

const ethernetHeader units.Bytes = 14

// windowPart bounds the window of a writer: at most 1/windowPart of a block. HDFS uses 5 MB for
// blocks of 64 to 256 MB. With a larger window, the client has written much of a block
// before the slowest part of its pipeline limits it.
const windowPart = 10

func (c *checker) writers(w *WritersItem, path string) {
	c.clients("writers", w.Count, w.Hosts, path)
	if c.shaped() {
		f := c.spec.Fabric.shape()
		hosts := f.Leaves * f.HostsPerLeaf
		if c.sound(path+".replicas") && w.Replicas > hosts {
			c.failAt(path+".replicas", "%d replicas on %d hosts: must be at most one per host", w.Replicas, hosts)
		}
	}
	c.pipeline(path, w.Block, w.Packet, w.Window)
}

// oneOf reports whether an item has exactly one of two keys.
func (c *checker) oneOf(path, first, second, missing string) bool {
	a, b := c.given(yamltree.Join(path, first)), c.given(yamltree.Join(path, second))
	if a && b {
		c.failAt(yamltree.Join(path, second), "excludes %s: remove one of them", first)
	} else if !a && !b {
		c.failAt(yamltree.Join(path, first), "missing: state %s", missing)
	}
	return a != b
}

// clients checks the hosts of writers or readers.
func (c *checker) clients(what string, count int, names []string, path string) {
	f := c.spec.Fabric.shape()
	shaped := c.shaped()
	hosts := f.Leaves * f.HostsPerLeaf
	switch {
	case !c.oneOf(path, "count", "hosts", "the number of "+what+", or hosts with their names"):
	case shaped && c.sound(path+".count") && count > hosts:
		c.failAt(path+".count", "%d %s on %d hosts: must be at most one per host", count, what, hosts)
	}
	if shaped {
		c.hostNames(names, path)
	}
}

// pipeline checks the disks and the write pipeline of an item's blocks. The last block of a file
// of a job may be smaller.
func (c *checker) pipeline(path string, block, packet units.Bytes, window int) {
	if d := c.spec.Disk; d != nil && c.sound(path+".block", "disk.size") && block > d.Size {
		c.failAt(path+".block", "%v on disks of %v: use a smaller block or a larger disk.size", block, d.Size)
	}
	if c.sound(path+".packet", path+".block") && packet > block {
		c.failAt(path+".packet", "%v in a block of %v: must be at most the block", packet, block)
	} else if c.sound(path+".packet", path+".block", path+".window") && int64(packet)*int64(window) > int64(block)/windowPart {
		advice := fmt.Sprintf("a window of %d", int64(block)/windowPart/int64(packet))
		if int64(packet) > int64(block)/windowPart {
			advice = fmt.Sprintf("packets of %v", units.Bytes(max(1, int64(block)/windowPart/int64(window))))
		}
		c.failAt(path+".window", "%d unacknowledged packets of %v are %.1f %% of a block of %v: must be at most %d %%, because the client runs ahead of the slowest part of the pipeline by that amount: use %s or a larger block",
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
			c.failAt(at, "%q: no such host: expected h0-00 to h%d-%02d", clip(name), f.Leaves-1, f.HostsPerLeaf-1)
		} else if j, again := first[name]; again {
			c.failAt(at, "%q is also hosts[%d]: name each host once", name, j)
		} else {
			first[name] = i
		}
	}
}
