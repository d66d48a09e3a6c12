// Package placement holds the policies that choose the hosts of a block's
// replicas.
//
// They place; they do not rate what they placed: a block's bytes are not paced,
// and its flows share the network as the coflow policy and the transport decide.
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

// HDFS is the default rack-aware placement of the Hadoop distributed file
// system (BlockPlacementPolicyDefault): the first replica at the writer, the
// second on a random host of another rack, the third on another host of the
// second's rack, the rest at random. At most (r−1)/racks + 2 of r replicas share
// a rack. Use DefaultHDFS for Hadoop's settings.
//
// Where Hadoop would write fewer replicas than asked for, HDFS first gives up
// ConsiderLoad, then its rules about racks, then MinBlocks, and fails if even so
// there are too few hosts with room: a run in which blocks silently have
// different numbers of replicas compares nothing.
type HDFS struct {
	// ConsiderLoad passes over hosts that take part in more than twice as many
	// writes as the average host (Hadoop: dfs.replication.considerLoad).
	ConsiderLoad bool
	// MinBlocks is for how many blocks of this size a host must have room. 0
	// stands for 1. Hadoop 0.20 has 5 (MIN_BLOCKS_FOR_WRITE).
	MinBlocks int
	// Hosts are those that may hold replicas: Constraints.Hosts.
	Hosts string
}

// DefaultHDFS is HDFS as Hadoop 0.20 sets it.
func DefaultHDFS() HDFS { return HDFS{ConsiderLoad: true, MinBlocks: 5} }

// Needs is the use of the disks.
func (HDFS) Needs() policies.Knowledge { return policies.DiskUse }

// Place draws one random order of all hosts and takes from it the first that
// fit, so that a host that does not fit changes the choice of no other.
func (p HDFS) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	if err := errors.Join(check(v, b), CheckHosts(p.Hosts)); err != nil {
		return nil, err
	}
	return p.place(v, b, shuffled(v, rng))
}

// check refuses what no placement can satisfy.
func check(v *policies.View, b workloads.Block) error {
	if b.Replicas < 1 || b.Replicas > len(v.Hosts) {
		return fmt.Errorf("%d replicas on %d hosts: want 1 to %d", b.Replicas, len(v.Hosts), len(v.Hosts))
	}
	if b.Client < 0 || int(b.Client) >= len(v.Hosts) {
		return fmt.Errorf("client %d: want a host of 0 to %d", b.Client, len(v.Hosts)-1)
	}
	if v.Zone != nil && len(v.Zone) != v.Fabric.Racks() {
		return fmt.Errorf("zones of %d racks: want those of all %d, or none", len(v.Zone), v.Fabric.Racks())
	}
	return nil
}

// shuffled is a random order of all hosts. Every policy of this package draws
// it, and it alone, first: what is a tie to two policies they then break alike.
func shuffled(v *policies.View, rng *rand.Rand) []topo.HostID {
	hosts := make([]topo.HostID, len(v.Hosts))
	for h := range hosts {
		hosts[h] = topo.HostID(h)
	}
	rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	return hosts
}

// relaxation is what HDFS gives up when too few hosts fit.
type relaxation uint8

const (
	strict relaxation = iota
	ignoreLoad
	ignoreRacks
	ignoreMinBlocks
)

func (p HDFS) place(v *policies.View, b workloads.Block, order []topo.HostID) ([]topo.HostID, error) {
	may, err := allowed(v.Fabric, p.Hosts)
	if err != nil {
		return nil, err
	}
	writing := 0
	for i := range v.Hosts {
		writing += v.Hosts[i].Writing
	}
	for r := strict; r <= ignoreMinBlocks; r++ {
		c := choice{p: p, v: v, b: b, may: may, writing: writing, relax: r, order: order}
		if hosts, ok := c.choose(); ok {
			return nearestNextChain(v.Fabric, b.Client, hosts), nil
		}
	}
	return nil, noRoom(v, b, may)
}

// ErrNoRoom tells that too few disks have room for a replica.
var ErrNoRoom = errors.New("too few disks have room")

// choice is one attempt at a block.
type choice struct {
	p       HDFS
	v       *policies.View
	b       workloads.Block
	may     []bool // of allowed
	writing int    // replicas being written, over all hosts
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

// take chooses the first good host that the place allows.
func (c *choice) take(allowed func(topo.HostID) bool) bool {
	i := slices.IndexFunc(c.order, func(h topo.HostID) bool { return allowed(h) && c.good(h) })
	if i < 0 {
		return false
	}
	c.chosen = append(c.chosen, c.order[i])
	return true
}

// good is Hadoop's isGoodTarget.
func (c *choice) good(h topo.HostID) bool {
	if slices.Contains(c.chosen, h) || c.may != nil && !c.may[h] {
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

// maxPerRack is how many of a block's replicas one rack may hold.
func maxPerRack(replicas, racks int) int { return (replicas-1)/racks + 2 }

// hasRoom tells whether a host is there and its disk takes so many more blocks of
// a size. What is being written counts as stored. A capacity of 0 stands for a disk that is
// never full.
func hasRoom(v *policies.View, h topo.HostID, size units.Bytes, blocks int) bool {
	s := &v.Hosts[h]
	if s.Lost {
		return false
	}
	return s.Disk == 0 || size <= 0 || (s.Disk-s.Used)/size >= units.Bytes(blocks)
}

// overloaded tells whether a host takes part in more than twice as many writes
// as the average.
func (c *choice) overloaded(h topo.HostID) bool {
	return c.v.Hosts[h].Writing*len(c.v.Hosts) > 2*c.writing
}

// nearestNextChain orders a pipeline as Hadoop does: the host nearest to the
// writer first, then the one nearest to that, and so on; at the same distance
// the one chosen first.
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

// distance is Hadoop's, in hops of the tree: 0 to itself, 2 in a rack, 4 beyond.
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
