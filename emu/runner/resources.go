package runner

import (
	"cmp"
	"slices"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/topo"
)

// FabricResources returns the resources for the construction of a fabric.
func FabricResources(f *topo.Fabric) kernel.Resources {
	return kernel.ResourcesOf(f.Hosts()+f.Racks()+f.Spines(), len(f.Links())/2)
}

// resources returns the resources of the run of a scenario whose arms are predicted to behave as
// in records. Without records, it returns the resources before the first transfer.
func resources(s *scenario.Scenario, f *topo.Fabric, records []flows.Records) kernel.Resources {
	captures := f.Hosts()
	if links, err := s.CapturedLinks(f); err == nil {
		switches := map[string]bool{}
		for _, l := range links {
			name, _ := plan.Egress(f, l)
			switches[name] = true
		}
		captures += len(switches)
	}
	namespaces := f.Hosts() + f.Racks() + f.Spines()
	need := FabricResources(f).Plus(kernel.ResourcesOfOpen(namespaces, captures, max(s.Spec.Capture.Ring, leastRing))).Plus(kernel.ResourcesOfNotices(namespaces))
	const filesOfHost = 3 // two listeners, and a socket for marks
	need.Files += filesOfHost * f.Hosts()
	if d := s.Spec.Disk; d != nil && d.Throttle == scenario.KernelThrottle {
		need.Loops = f.Hosts() * d.Count
		need.Files += need.Loops
	}
	var most, blocks int
	for _, r := range records {
		c, b := atOnce(r)
		most, blocks = max(most, c), max(blocks, b)
	}
	need = need.Plus(kernel.ResourcesOfConnections(most))
	need.Files += blocks   // a file for each replica
	need.Threads += blocks // a thread blocked in a write for each replica
	return need
}

// atOnce returns the largest numbers of simultaneous connections and of replicas in transfer.
func atOnce(rec flows.Records) (connections, replicas int) {
	type change struct {
		at                    time.Duration
		connections, replicas int
	}
	var all []change
	add := func(from, to time.Duration, connections, replicas int) {
		all = append(all, change{from, connections, replicas}, change{to, -connections, -replicas})
	}
	for _, f := range rec.Flows {
		add(f.Arrival, f.End, 1, 0)
	}
	for _, b := range rec.Blocks {
		add(b.Requested, b.End, len(b.Hosts), len(b.Hosts))
	}
	slices.SortFunc(all, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.connections, b.connections))
	})
	var c, r int
	for _, x := range all {
		c, r = c+x.connections, r+x.replicas
		connections, replicas = max(connections, c), max(replicas, r)
	}
	return connections, replicas
}
