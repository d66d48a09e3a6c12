package placement

import (
	"errors"
	"fmt"
	"math/bits"
	"path"
	"slices"
	"strings"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Constraints say which hosts may hold a block and how its replicas must be
// spread. The zero value asks for room only, in disks that are as full as the
// average one or less: use DefaultConstraints.
type Constraints struct {
	// Hosts are the hosts that may hold replicas, as patterns of path.Match over
	// host names with commas between them, such as "h0-*,h1-0?". Empty stands for
	// all. No policy ever gives this up. A writer outside them gets no local replica.
	Hosts string
	// Tolerance is how much more of its disk, in percent, a host may have in use
	// than all disks together before it gets no more replicas; 100 or more is no
	// limit. The paper of Sinbad has 10. A writer's own replica is exempt.
	Tolerance int
	// Faults is f: the replicas span f+1 racks, or as many as there are racks or
	// replicas. With 1 or more the writer's rack holds no second one where a
	// policy chooses by racks.
	Faults int
	// Partitions is p: the replicas span p of View.Zone, or as many as there are
	// zones or replicas. 0 and 1 ask for nothing.
	Partitions int
}

// DefaultConstraints are those of Sinbad's paper, with racks as fault domains.
func DefaultConstraints() Constraints { return Constraints{Tolerance: 10, Faults: 1, Partitions: 1} }

// NoTolerance is the Tolerance that sets no limit.
const NoTolerance = 100

func (c Constraints) check() error {
	var errs []error
	for _, x := range []struct {
		name string
		n    int
	}{{"tolerance", c.Tolerance}, {"faults", c.Faults}, {"partitions", c.Partitions}} {
		if x.n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: want 0 or more", x.name, x.n))
		}
	}
	return errors.Join(append(errs, CheckHosts(c.Hosts))...)
}

// CheckHosts tells what is wrong with patterns of Constraints.Hosts in any fabric.
func CheckHosts(patterns string) error {
	if patterns == "" {
		return nil
	}
	for p := range strings.SplitSeq(patterns, ",") {
		if _, err := path.Match(p, ""); p == "" || err != nil {
			return fmt.Errorf("hosts %q: pattern %q: want patterns of host names with commas between them, such as %q", patterns, p, "h0-*,h1-0?")
		}
	}
	return nil
}

// allowed tells of each host whether the patterns name it; nil where all may be
// used. A pattern that names no host is an error. They are well-formed.
func allowed(f *topo.Fabric, patterns string) ([]bool, error) {
	if patterns == "" {
		return nil, nil
	}
	may := make([]bool, f.Hosts())
	list := strings.Split(patterns, ",")
	named := make([]bool, len(list))
	for h := range may {
		name := f.HostName(topo.HostID(h))
		for i, p := range list {
			if may[h] && named[i] {
				continue
			}
			if ok, _ := path.Match(p, name); ok { // it is well-formed: CheckHosts
				may[h], named[i] = true, true
			}
		}
	}
	if i := slices.Index(named, false); i >= 0 {
		_, err := f.FindHosts(list[i])
		return nil, err
	}
	return may, nil
}

// storable tells of a host whether it may store the block at all: it is there,
// is allowed, and has room.
func storable(v *policies.View, b workloads.Block, may []bool, h topo.HostID) bool {
	return (may == nil || may[h]) && hasRoom(v, h, b.Size, 1)
}

// noRoom is the error of a block for which too few hosts are left.
func noRoom(v *policies.View, b workloads.Block, may []bool) error {
	room, hosts := 0, len(v.Hosts)
	for h := range topo.HostID(len(v.Hosts)) {
		if storable(v, b, may, h) {
			room++
		}
		if may != nil && !may[h] {
			hosts--
		}
	}
	return fmt.Errorf("%d replicas of %v: %w: %d of %d hosts have room: use fewer replicas, larger disks or a smaller workload", b.Replicas, b.Size, ErrNoRoom, room, hosts)
}

// balance is the storage limit.
type balance struct {
	limit, disk uint64 // a host may use limit/disk of its disk, in percent; disk 0: as much as it has
}

func (c Constraints) balance(v *policies.View) balance {
	if c.Tolerance >= NoTolerance {
		return balance{}
	}
	var used, disk uint64
	for i := range v.Hosts {
		if v.Hosts[i].Disk > 0 {
			used += uint64(v.Hosts[i].Used)
			disk += uint64(v.Hosts[i].Disk)
		}
	}
	return balance{100*used + uint64(c.Tolerance)*disk, disk}
}

// keeps tells whether the used part of a host's disk is at most Tolerance above
// that of all disks together. Disks that are never full are always in balance.
func (l balance) keeps(s *policies.HostState) bool {
	if l.disk == 0 || s.Disk == 0 {
		return true
	}
	// Used/Disk ≤ used/disk + Tolerance/100, multiplied out to 128 bits.
	lhi, llo := bits.Mul64(100*uint64(s.Used), l.disk)
	rhi, rlo := bits.Mul64(uint64(s.Disk), l.limit)
	return lhi < rhi || lhi == rhi && llo <= rlo
}

// spread follows how many racks and zones the replicas still have to reach.
type spread struct {
	zone         []int
	racks        []topo.RackID // that hold a replica
	zones        []int
	wantR, wantZ int
	left         int // replicas to choose
}

func (c Constraints) spread(v *policies.View, replicas int) spread {
	s := spread{zone: v.Zone, left: replicas, wantR: min(c.Faults, replicas-1, v.Fabric.Racks()-1) + 1, wantZ: 1}
	if c.Partitions > 1 && v.Zone != nil {
		var zones []int
		for _, z := range v.Zone {
			if !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
		s.wantZ = min(c.Partitions, replicas, len(zones))
	}
	return s
}

func (s *spread) zoneOf(r topo.RackID) int {
	if s.zone == nil {
		return 0
	}
	return s.zone[r]
}

// add counts a replica in a rack.
func (s *spread) add(r topo.RackID) {
	s.left--
	if !slices.Contains(s.racks, r) {
		s.racks = append(s.racks, r)
	}
	if z := s.zoneOf(r); !slices.Contains(s.zones, z) {
		s.zones = append(s.zones, z)
	}
}

// fits tells whether n more replicas in a rack leave enough of them for the racks
// and zones that are still to be reached. A new zone is a new rack too, so that
// one replica counts for both, and who only ever adds what fits gets stuck only
// where there is no way at all.
func (s *spread) fits(r topo.RackID, n int) bool {
	needR, needZ := s.wantR-len(s.racks), s.wantZ-len(s.zones)
	if max(needR, needZ) <= s.left-n {
		return true
	}
	if !slices.Contains(s.racks, r) {
		needR--
	}
	if !slices.Contains(s.zones, s.zoneOf(r)) {
		needZ--
	}
	return max(needR, needZ) <= s.left-n
}
