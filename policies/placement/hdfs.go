// Package placement holds the policies that choose the hosts of a block's replicas.
//
// These policies set no rates: the flows of a block share the network as the coflow
// policy and the transport decide.
package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// HDFS is the default rack-aware placement of the Hadoop distributed file system
// (BlockPlacementPolicyDefault). The first replica is on the writer, the second on a
// random host in another rack, the third on another host in the second's rack, and the
// others are random. At most (r−1)/racks + 2 of r replicas share a rack. DefaultHDFS
// returns Hadoop's settings.
//
// Where Hadoop would write fewer replicas than requested, HDFS relaxes first
// ConsiderLoad, then the rack rules, then MinBlocks. It fails if too few hosts have room
// even then: runs whose blocks silently have different numbers of replicas cannot be
// compared.
type HDFS struct {
	// ConsiderLoad skips hosts that take part in more than twice as many writes as the
	// average host (Hadoop: dfs.replication.considerLoad).
	ConsiderLoad bool
	// MinBlocks is the number of blocks of this size for which a host must have room. 0
	// means 1. Hadoop 0.20 uses 5 (MIN_BLOCKS_FOR_WRITE).
	MinBlocks int
	// Hosts are the hosts that may hold replicas: see Constraints.Hosts.
	Hosts string
}

// DefaultHDFS returns HDFS with the settings of Hadoop 0.20.
func DefaultHDFS() HDFS { return HDFS{ConsiderLoad: true, MinBlocks: 5} }

// Needs returns DiskUse.
func (HDFS) Needs() policies.Facts { return policies.DiskUse }

// Place draws one random order of all hosts and takes the first eligible ones from it.
// An ineligible host thus does not change the choice of the others.
func (p HDFS) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), CheckHosts(p.Hosts)); err != nil {
		return nil, err
	}
	return p.place(v, b, shuffled(v, rng))
}

// check rejects blocks and Views that no placement can satisfy.
func check(v *policies.PlacementView, b workloads.Block) error {
	if b.Replicas < 1 || b.Replicas > len(v.Hosts) {
		return fmt.Errorf("%d replicas on %d hosts: must be from 1 to %d", b.Replicas, len(v.Hosts), len(v.Hosts))
	}
	if b.Client < 0 || int(b.Client) >= len(v.Hosts) {
		return fmt.Errorf("client %d: must be a host from 0 to %d", b.Client, len(v.Hosts)-1)
	}
	if v.Zone != nil && len(v.Zone) != v.Fabric.Racks() {
		return fmt.Errorf("zones of %d racks: must be given for all %d racks or for none", len(v.Zone), v.Fabric.Racks())
	}
	return nil
}

// shuffled returns a random order of all hosts. Every policy of this package draws
// exactly this order, first, so that different policies break a tie in the same way. It is in v.Scratch, if
// the caller of the policy has set that.
func shuffled(v *policies.PlacementView, rng *rand.Rand) []topo.HostID {
	hosts := v.Scratch
	if len(hosts) != len(v.Hosts) {
		hosts = make([]topo.HostID, len(v.Hosts))
	}
	for h := range hosts {
		hosts[h] = topo.HostID(h)
	}
	rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	return hosts
}

// relaxation is the set of rules that HDFS ignores when too few hosts are eligible; each
// level includes those before it.
type relaxation uint8

const (
	strict relaxation = iota
	ignoreLoad
	ignoreRacks
	ignoreMinBlocks
)

func (p HDFS) place(v *policies.PlacementView, b workloads.Block, order []topo.HostID) ([]topo.HostID, error) {
	allowed, err := allowedHosts(v.Fabric, p.Hosts)
	if err != nil {
		return nil, err
	}
	writing := 0
	for i := range v.Hosts {
		writing += v.Hosts[i].Writing
	}
	for r := strict; r <= ignoreMinBlocks; r++ {
		c := choice{p: p, v: v, b: b, allowed: allowed, writing: writing, relax: r, order: order}
		if hosts, ok := c.choose(); ok {
			return nearestNextChain(v.Fabric, b.Client, hosts), nil
		}
	}
	return nil, noRoom(v, b, allowed)
}

// ErrNoRoom reports that too few disks have room for a replica.
var ErrNoRoom = errors.New("too few disks have room")

// choice is one attempt to place a block.
type choice struct {
	p       HDFS
	v       *policies.PlacementView
	b       workloads.Block
	allowed []bool // from allowedHosts
	writing int    // replicas in progress, over all hosts
	relax   relaxation
	order   []topo.HostID
	chosen  []topo.HostID
}

func (c *choice) choose() ([]topo.HostID, bool) {
	f := c.v.Fabric
	home := f.RackOf(c.b.Client)
	anywhere := func(topo.HostID) bool { return true }
	in := func(r topo.RackID) func(topo.HostID) bool {
		return func(h topo.HostID) bool { return f.RackOf(h) == r }
	}
	outside := func(r topo.RackID) func(topo.HostID) bool {
		return func(h topo.HostID) bool { return f.RackOf(h) != r }
	}
	oneRack := f.Racks() == 1 || c.relax >= ignoreRacks
	for len(c.chosen) < c.b.Replicas {
		var ok bool
		switch len(c.chosen) {
		case 0:
			ok = c.take(func(h topo.HostID) bool { return h == c.b.Client }) || c.take(in(home)) || c.take(anywhere)
		case 1:
			ok = c.take(outside(f.RackOf(c.chosen[0]))) || oneRack && c.take(anywhere)
		case 2:
			first, second := f.RackOf(c.chosen[0]), f.RackOf(c.chosen[1])
			if first == second {
				ok = c.take(outside(first))
			} else {
				ok = c.take(in(second))
			}
			ok = ok || c.take(anywhere)
		default:
			ok = c.take(anywhere)
		}
		if !ok {
			return nil, false
		}
	}
	return c.chosen, true
}

// take chooses the first good target that matches, and reports whether there is one.
func (c *choice) take(matches func(topo.HostID) bool) bool {
	i := slices.IndexFunc(c.order, func(h topo.HostID) bool { return matches(h) && c.isGoodTarget(h) })
	if i < 0 {
		return false
	}
	c.chosen = append(c.chosen, c.order[i])
	return true
}

// isGoodTarget is Hadoop's method of that name.
func (c *choice) isGoodTarget(h topo.HostID) bool {
	if slices.Contains(c.chosen, h) || c.allowed != nil && !c.allowed[h] {
		return false
	}
	blocks := max(c.p.MinBlocks, 1)
	if c.relax >= ignoreMinBlocks {
		blocks = 1
	}
	if !hasRoom(c.v, h, c.b.Size, blocks) {
		return false
	}
	if c.p.ConsiderLoad && c.relax < ignoreLoad && c.overloaded(h) {
		return false
	}
	if c.relax < ignoreRacks {
		same := 0
		for _, o := range c.chosen {
			if c.v.Fabric.RackOf(o) == c.v.Fabric.RackOf(h) {
				same++
			}
		}
		return same < maxPerRack(c.b.Replicas, c.v.Fabric.Racks())
	}
	return true
}

// maxPerRack returns the maximum number of replicas of a block in one rack.
func maxPerRack(replicas, racks int) int { return (replicas-1)/racks + 2 }

// hasRoom reports whether a host is up and its disk has room for the given number of
// blocks of a size. Replicas in progress count as stored. A disk with capacity 0 is
// never full.
func hasRoom(v *policies.PlacementView, h topo.HostID, size units.Bytes, blocks int) bool {
	s := &v.Hosts[h]
	if s.Lost {
		return false
	}
	return s.Disk == 0 || size <= 0 || (s.Disk-s.Used)/size >= units.Bytes(blocks)
}

// overloaded reports whether a host takes part in more than twice as many writes as the
// average host.
func (c *choice) overloaded(h topo.HostID) bool {
	return c.v.Hosts[h].Writing*len(c.v.Hosts) > 2*c.writing
}

// nearestNextChain orders a pipeline as Hadoop does: first the host nearest to the
// writer, then the host nearest to that one, and so on. Ties go to the host chosen first.
func nearestNextChain(f *topo.Fabric, writer topo.HostID, hosts []topo.HostID) []topo.HostID {
	rest := slices.Clone(hosts)
	chain := make([]topo.HostID, 0, len(rest))
	at := writer
	for len(rest) > 0 {
		best := 0
		for i := range rest {
			if distance(f, at, rest[i]) < distance(f, at, rest[best]) {
				best = i
			}
		}
		at = rest[best]
		chain = append(chain, at)
		rest = slices.Delete(rest, best, best+1)
	}
	return chain
}

// distance is Hadoop's distance in tree hops: 0 to the host itself, 2 inside a rack, 4
// between racks.
func distance(f *topo.Fabric, a, b topo.HostID) int {
	switch {
	case a == b:
		return 0
	case f.RackOf(a) == f.RackOf(b):
		return 2
	default:
		return 4
	}
}
