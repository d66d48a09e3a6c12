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

// Constraints define which hosts may hold a block and how its replicas must be spread.
// The zero value requires only room on a disk that is at most as full as the average.
// Use DefaultConstraints.
type Constraints struct {
	// Hosts are the hosts that may hold replicas, as comma-separated path.Match patterns
	// of host names, such as "h0-*,h1-0?". Empty means all hosts. No policy ever relaxes
	// this. A writer outside them gets no local replica.
	Hosts string
	// Tolerance is the storage limit, in percentage points: a host gets no more replicas
	// if its disk is fuller than all disks together by more than Tolerance. 100 or more is
	// no limit. Sinbad's paper uses 10. The writer's own replica is exempt.
	Tolerance int
	// Faults is f: the replicas span f+1 racks, or as many as there are racks or
	// replicas. If it is at least 1, the writer's rack holds no second replica where a
	// policy chooses by racks.
	Faults int
	// Partitions is p: the replicas span p zones of View.Zone, or as many as there are
	// zones or replicas. 0 and 1 require nothing.
	Partitions int
}

// DefaultConstraints returns the constraints of Sinbad's paper, with racks as fault
// domains.
func DefaultConstraints() Constraints { return Constraints{Tolerance: 10, Faults: 1, Partitions: 1} }

// NoTolerance is the Tolerance without a limit.
const NoTolerance = 100

func (c Constraints) check() error {
	var errs []error
	for _, x := range []struct {
		name string
		n    int
	}{{"tolerance", c.Tolerance}, {"faults", c.Faults}, {"partitions", c.Partitions}} {
		if x.n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: must be 0 or more", x.name, x.n))
		}
	}
	return errors.Join(append(errs, CheckHosts(c.Hosts))...)
}

// CheckHosts returns an error if Constraints.Hosts patterns are malformed, independently
// of a fabric.
func CheckHosts(patterns string) error {
	if patterns == "" {
		return nil
	}
	for p := range strings.SplitSeq(patterns, ",") {
		if _, err := path.Match(p, ""); p == "" || err != nil {
			return fmt.Errorf("hosts %q: pattern %q: expected comma-separated host name patterns such as %q", patterns, p, "h0-*,h1-0?")
		}
	}
	return nil
}

// allowedHosts returns, by HostID, whether the patterns match a host; nil if all hosts
// are allowed. A pattern without a match is an error. The patterns must be well-formed.
func allowedHosts(f *topo.Fabric, patterns string) ([]bool, error) {
	if patterns == "" {
		return nil, nil
	}
	allowed := make([]bool, f.Hosts())
	list := strings.Split(patterns, ",")
	matched := make([]bool, len(list))
	for h := range allowed {
		name := f.HostName(topo.HostID(h))
		for i, p := range list {
			if allowed[h] && matched[i] {
				continue
			}
			if ok, _ := path.Match(p, name); ok { // CheckHosts has checked the syntax
				allowed[h], matched[i] = true, true
			}
		}
	}
	if i := slices.Index(matched, false); i >= 0 {
		_, err := f.FindHosts(list[i])
		return nil, err
	}
	return allowed, nil
}

// storable reports whether a host can store the block at all: it is up, allowed and has
// room.
func storable(v *policies.PlacementView, b workloads.Block, allowed []bool, h topo.HostID) bool {
	return (allowed == nil || allowed[h]) && hasRoom(v, h, b.Size, 1)
}

// noRoom returns the error for a block with too few eligible hosts.
func noRoom(v *policies.PlacementView, b workloads.Block, allowed []bool) error {
	room, hosts := 0, len(v.Hosts)
	for h := range topo.HostID(len(v.Hosts)) {
		if storable(v, b, allowed, h) {
			room++
		}
		if allowed != nil && !allowed[h] {
			hosts--
		}
	}
	return fmt.Errorf("%d replicas of %v: %w: %d of %d hosts have room: use fewer replicas, larger disks or a smaller workload", b.Replicas, b.Size, ErrNoRoom, room, hosts)
}

// balance is the storage limit: a host may use limit/disk percent of its disk. If disk is
// 0, there is no limit.
type balance struct {
	limit, disk uint64
}

func (c Constraints) balance(v *policies.PlacementView) balance {
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

// allows reports whether the used fraction of a host's disk exceeds that of all disks
// together by at most Tolerance. Disks that are never full are always in balance.
func (l balance) allows(s *policies.HostState) bool {
	if l.disk == 0 || s.Disk == 0 {
		return true
	}
	// Used/Disk ≤ used/disk + Tolerance/100, cross-multiplied in 128 bits.
	lhi, llo := bits.Mul64(100*uint64(s.Used), l.disk)
	rhi, rlo := bits.Mul64(uint64(s.Disk), l.limit)
	return lhi < rhi || lhi == rhi && llo <= rlo
}

// spread counts the racks and zones that the replicas span and must span.
type spread struct {
	zone               []int
	racks              []topo.RackID // racks that hold a replica
	zones              []int         // zones that hold a replica
	minRacks, minZones int
	left               int // number of replicas to choose
}

func (c Constraints) spread(v *policies.PlacementView, replicas int) spread {
	s := spread{zone: v.Zone, left: replicas, minRacks: min(c.Faults, replicas-1, v.Fabric.Racks()-1) + 1, minZones: 1}
	if c.Partitions > 1 && v.Zone != nil {
		var zones []int
		for _, z := range v.Zone {
			if !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
		s.minZones = min(c.Partitions, replicas, len(zones))
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

// fits reports whether, after n more replicas in rack r, enough replicas remain for the
// missing racks and zones. A new zone is also a new rack, so one replica counts for both.
// If each step fits, the choice fails only when no valid choice exists.
func (s *spread) fits(r topo.RackID, n int) bool {
	needR, needZ := s.minRacks-len(s.racks), s.minZones-len(s.zones)
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
