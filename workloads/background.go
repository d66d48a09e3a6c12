package workloads

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// BackgroundSpec specifies background load: shuffles from other racks into all leaves, most
// of it into a few hot leaves. The placement of replicas matters if other traffic than that
// of writers loads the links toward the racks unevenly (Sinbad, SIGCOMM 2013, assumes that
// such load lasts longer than the write of a block).
type BackgroundSpec struct {
	// Key identifies the spec within a workload: specs with different keys have
	// independent random draws.
	Key int
	// Hot is the number of leaves that are hot at any time, less than all.
	Hot int
	// Intensity is the load into all leaves, as a share of the capacity of all their
	// downlinks, and HotShare is the part of it into hot leaves; each in (0, 1]. The load
	// is even among hot leaves, and among the others.
	Intensity, HotShare float64
	// Persist is the time for which leaves stay hot before others are drawn.
	Persist time.Duration
	// Transfer is the size of one coflow, from Senders different hosts of other racks
	// to one host of the leaf.
	Transfer units.Bytes
	Senders  int
	// Start is the begin of the load, and For the time in which coflows arrive.
	Start, For time.Duration
	// MaxFlows is the maximum number of flows, ErrTooManyFlows above it; 0 for no limit.
	MaxFlows int
}

// HotLeaves returns the leaves that are hot at a given time, in order; none before the
// start and after the end of the load.
func (s BackgroundSpec) HotLeaves(f *topo.Fabric, seed uint64, at time.Duration) []topo.RackID {
	if at < s.Start || at-s.Start >= s.For || s.Persist <= 0 {
		return nil
	}
	return s.hot(f, seed, int((at-s.Start)/s.Persist))
}

// hot returns the hot leaves of a period of Persist, from 0.
func (s BackgroundSpec) hot(f *topo.Fabric, seed uint64, epoch int) []topo.RackID {
	var hot []topo.RackID
	for _, r := range Stream(seed, "background-hot", s.Key, epoch).Perm(f.Racks())[:s.Hot] {
		hot = append(hot, topo.RackID(r))
	}
	slices.Sort(hot)
	return hot
}

// LeafLoads returns the load into a hot leaf and into another leaf, as shares of the
// capacity of its downlinks; if leaves differ, the largest shares.
func (s BackgroundSpec) LeafLoads(f *topo.Fabric) (hot, other float64) {
	least := inwardOf(f, 0)
	for r := range topo.RackID(f.Racks()) {
		least = min(least, inwardOf(f, r))
	}
	total := s.Intensity * float64(Inward(f)) / float64(least)
	return total * s.HotShare / float64(s.Hot), total * (1 - s.HotShare) / float64(f.Racks()-s.Hot)
}

// Background draws the coflows of a spec from a seed, marked as background, with IDs
// and FlowIDs from 0 in order of arrival. The bytes into a leaf follow the load to within
// one transfer at any time: coflow n of a leaf arrives at a random time in the interval in
// which the load grows from n to n+1 transfers.
func Background(s BackgroundSpec, f *topo.Fabric, seed uint64) ([]Coflow, error) {
	if err := s.check(f); err != nil {
		return nil, err
	}
	perSecond := s.Intensity * float64(Inward(f)) / 8
	racks := f.Racks()
	into := make([]float64, racks) // load so far, in transfers
	placed := make([]bool, racks)  // whether a transfer has its arrival time
	waiting := make([]float64, racks)
	count := make([]int, racks)
	var coflows []Coflow
	for epoch, from := 0, time.Duration(0); from < s.For; epoch, from = epoch+1, from+s.Persist {
		lasts := min(s.Persist, s.For-from)
		hot := s.hot(f, seed, epoch)
		for r := range racks {
			share := (1 - s.HotShare) / float64(racks-s.Hot)
			if slices.Contains(hot, topo.RackID(r)) {
				share = s.HotShare / float64(s.Hot)
			}
			if share <= 0 {
				continue
			}
			rate := perSecond * share / float64(s.Transfer) / float64(time.Second) // transfers per nanosecond
			ends := into[r] + float64(rate*float64(lasts))
			for {
				if !placed[r] {
					waiting[r] = float64(count[r]) + Stream(seed, "background-at", s.Key, r, count[r]).Float64()
					placed[r] = true
				}
				if waiting[r] >= ends {
					break
				}
				at := from + min(time.Duration(max(0, waiting[r]-into[r])/rate), lasts-1)
				coflows = append(coflows, s.coflow(f, Stream(seed, "background-hosts", s.Key, r, count[r]), topo.RackID(r), s.Start+at))
				if len(coflows) > MaxTraceCoflows {
					return nil, fmt.Errorf("background: more than %d coflows: use larger transfers or a shorter time", MaxTraceCoflows)
				}
				count[r]++
				placed[r] = false
			}
			into[r] = ends
		}
	}
	slices.SortStableFunc(coflows, func(a, b Coflow) int { return cmp.Compare(a.Arrival, b.Arrival) })
	w := Workload{Coflows: coflows}
	w.number()
	return coflows, nil
}

// coflow returns a transfer into a leaf.
func (s BackgroundSpec) coflow(f *topo.Fabric, rng *rand.Rand, leaf topo.RackID, at time.Duration) Coflow {
	perRack := f.Hosts() / f.Racks()
	dst := f.HostIn(leaf, rng.IntN(perRack))
	c := Coflow{Arrival: at, Background: true}
	for n := range s.Senders {
		size := s.Transfer / units.Bytes(s.Senders)
		if units.Bytes(n) < s.Transfer%units.Bytes(s.Senders) {
			size++
		}
		src := topo.HostID(0)
		for again := true; again; {
			src = topo.HostID(rng.IntN(f.Hosts() - perRack))
			if src >= f.HostIn(leaf, 0) {
				src += topo.HostID(perRack)
			}
			again = slices.ContainsFunc(c.Flows, func(fl Flow) bool { return fl.Src == src })
		}
		c.Flows = append(c.Flows, Flow{Src: src, Dst: dst, Size: size})
	}
	return c
}

func (s BackgroundSpec) check(f *topo.Fabric) error {
	share := func(x float64) bool { return x > 0 && x <= 1 } // false for NaN
	switch perRack := f.Hosts() / f.Racks(); {
	case f.Racks() < 2 || s.Hot < 1 || s.Hot >= f.Racks():
		return fmt.Errorf("background: %d hot leaves of %d: must be one or more, and less than all", s.Hot, f.Racks())
	case !share(s.Intensity) || !share(s.HotShare):
		return fmt.Errorf("background: intensity %v, hot share %v: each must be above 0 and at most 1", s.Intensity, s.HotShare)
	case s.Persist <= 0 || s.For <= 0 || s.Start < 0 || s.Start > maxWorkloadTime || s.For > maxWorkloadTime || s.Persist > maxWorkloadTime:
		return fmt.Errorf("background: hot for %v, start %v, for %v: expected positive times of at most %v, and a start of 0 or more", s.Persist, s.Start, s.For, maxWorkloadTime)
	case s.For/s.Persist > MaxTraceCoflows:
		return fmt.Errorf("background: other hot leaves every %v for %v: must change at most %d times", s.Persist, s.For, MaxTraceCoflows)
	case s.Senders < 1 || s.Senders > f.Hosts()-perRack:
		return fmt.Errorf("background: %d senders: must be 1 or more, at most the %d hosts of other racks", s.Senders, f.Hosts()-perRack)
	case s.Transfer < units.Bytes(s.Senders) || s.Transfer > maxBlockSize:
		return fmt.Errorf("background: transfers of %v from %d senders: must be at least a byte from each, and at most %v", s.Transfer, s.Senders, maxBlockSize)
	case s.Intensity*float64(Inward(f))/8/float64(s.Transfer)*s.For.Seconds() > MaxTraceCoflows:
		return fmt.Errorf("background: more than %d coflows: use larger transfers or a shorter time", MaxTraceCoflows)
	}
	if flows := s.Intensity * float64(Inward(f)) / 8 / float64(s.Transfer) * s.For.Seconds() * float64(s.Senders); s.MaxFlows > 0 && flows > float64(s.MaxFlows) {
		return fmt.Errorf("background: %w: %.0f, the limit is %d", ErrTooManyFlows, flows, s.MaxFlows)
	}
	const most = 1 + 1e-9 // shares are rounded
	if hot, other := s.LeafLoads(f); hot > most || other > most || math.IsNaN(hot) {
		return fmt.Errorf("background: %.0f%% of the downlinks of a hot leaf and %.0f%% of another's: must be at most 100%%, since load would accumulate: use more hot leaves, less intensity or another hot share", 100*hot, 100*other)
	}
	return nil
}
