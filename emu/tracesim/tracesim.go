// Package tracesim is the fluid model at the scale of whole traces: it simulates
// coflows, hundreds of thousands of flows of them, on a fabric without disks and
// faults, under the same policies.Scheduler values that run on packets. It steps
// from event to event; rates are those of package rates, and between events every
// flow is a fluid. Given the same input its results are those of emu/engine on
// emu/fluid, but for rounding: there ceilings are whole bits per second, and what
// policies are told whole bytes of every flow; here only their sums are whole.
//
// Links carry payload at their full capacity, propagation takes no time and a
// decision applies at the moment it is taken.
//
// It has no packets, blocks, disks or faults, and no heartbeats: a scheduler that
// needs LinkLoad or DiskUse is refused.
package tracesim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config is what a simulation needs to know besides its coflows.
type Config struct {
	Fabric *topo.Fabric
	// Capacity is the payload each link carries, by LinkID. Nil stands for the
	// links' own rates.
	Capacity  []units.Rate
	Scheduler policies.Scheduler
	// Seed keys the choice of paths, as the engine's does: workloads.FlowHash.
	Seed uint64
	// MaxTime is how long a run may be in simulated time; 0 stands for DefaultMaxTime.
	MaxTime time.Duration
	// MaxIdle is how long, in simulated time, a scheduler may let nothing move while
	// coflows are unfinished and none is to arrive, though it is asked; 0 stands for
	// DefaultMaxIdle.
	MaxIdle time.Duration
	// Resolution is by how much flows may end too early: those that would end within
	// it after another flow has ended are taken to end together with it. No flow gets
	// more than its rate times Resolution for nothing, and every event is at most that
	// much early given what was decided before; a decision taken between the two may
	// be another than the exact one. 0 is exact: only what coincides within rounding,
	// a thousandth of a nanosecond, is one event.
	Resolution time.Duration
	// Quantum makes time slotted, as in the simulators that were published: rates
	// change only at its whole multiples, a flow's end shows at the first multiple that
	// is not before it, and what the flow leaves of the slot is lost. When.Every must be
	// a multiple of it; where it is 0, what When names is acted upon at the
	// next multiple of Quantum. 0 is continuous time.
	Quantum time.Duration
	// Interval is the interval in which the coordinator's load is counted
	// (Result.Coordinator); 0 leaves it uncounted, which saves time.
	Interval time.Duration
}

// Defaults of Config.
const (
	DefaultMaxTime = 10 * 365 * 24 * time.Hour
	DefaultMaxIdle = time.Hour
)

// Progress tells how far a run is. It is reported whenever a coflow has ended.
type Progress struct {
	Now                        time.Duration // simulated
	Coflows, Arrived, Finished int
	Events, Decisions          int64
}

// Result is what a run came to.
type Result struct {
	Coflows  []Coflow      // in the order they were given
	Makespan time.Duration // from time 0 to the end of the last coflow
	// Events is how many moments the run went through, Decisions how often the
	// scheduler was asked, and FlowEnds the number of flows, all of which have ended.
	Events, Decisions, FlowEnds int64
	Coordinator                 Coordinator
}

// Coflow is what became of one coflow. Times are since the start of the run, to the
// nearest nanosecond.
type Coflow struct {
	ID      workloads.CoflowID
	Arrival time.Duration
	Start   time.Duration // when the first of its flows began to move
	Finish  time.Duration // when the last had ended
	Width   int           // flows
	Size    units.Bytes
	Largest units.Bytes // flow
	// Queue is where the scheduler last had it (Schedule.Queues), Queued since when, from its
	// arrival where that never changed, and
	// QueuedSent how much it had sent by then.
	Queue      int
	Queued     time.Duration
	QueuedSent units.Bytes
	// Pilots is how many of its flows were pilots and PilotSent their size together;
	// Sampled is when the last of them had ended and SampledSent how much the coflow had
	// sent by then.
	Pilots                 int
	PilotSent, SampledSent units.Bytes
	Sampled                time.Duration
	// Bound is the least time it takes alone: the bytes of its bottleneck over that
	// link's capacity, or its rate where that is 0, rounded up.
	Bound time.Duration
}

// CCT is the coflow completion time, from arrival to the end of the last flow.
func (c Coflow) CCT() time.Duration { return c.Finish - c.Arrival }

// Run simulates the coflows until all have ended. They may be in any order;
// FlowIDs are unique over all of them. Rates of a coflow's flows are computed
// fastest if the order of their IDs is that of their Src, then Dst. report, which may
// be nil, is told of progress. Nothing it is given is changed.
//
// An error names mistakes of the input, of the scheduler's answers, or the coflows
// that the scheduler never lets move.
func Run(ctx context.Context, cfg Config, coflows []workloads.Coflow, report func(Progress)) (*Result, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("trace simulation: %w", err)
	}
	if err := check(cfg.Fabric, coflows); err != nil {
		return nil, fmt.Errorf("trace simulation: %w", err)
	}
	s := newSim(cfg, coflows, report)
	if err := s.run(ctx); err != nil {
		return nil, fmt.Errorf("trace simulation: %T at %v: %w", cfg.Scheduler, s.now.Round(), err)
	}
	return &s.result, nil
}

func (c *Config) complete() error {
	if c.Fabric == nil || c.Scheduler == nil {
		return errors.New("want a fabric and a scheduler")
	}
	if c.Capacity == nil {
		for _, l := range c.Fabric.Links() {
			c.Capacity = append(c.Capacity, l.Rate)
		}
	}
	c.Capacity = slices.Clone(c.Capacity)
	if len(c.Capacity) != len(c.Fabric.Links()) {
		return fmt.Errorf("%d capacities for %d links", len(c.Capacity), len(c.Fabric.Links()))
	}
	for l, r := range c.Capacity {
		if r < 0 {
			return fmt.Errorf("capacity of link %s: %v: want 0 or more", c.Fabric.LinkName(topo.LinkID(l)), r)
		}
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"max time", c.MaxTime}, {"max idle", c.MaxIdle}, {"resolution", c.Resolution}, {"quantum", c.Quantum}, {"interval", c.Interval}} {
		if d.v < 0 || d.v > DefaultMaxTime {
			return fmt.Errorf("%s %v: want 0 to %v", d.name, d.v, DefaultMaxTime)
		}
	}
	c.MaxTime = cmp.Or(c.MaxTime, DefaultMaxTime)
	c.MaxIdle = cmp.Or(c.MaxIdle, DefaultMaxIdle)
	if n := c.Scheduler.Needs(); n&(policies.LinkLoad|policies.DiskUse) != 0 {
		return fmt.Errorf("%T needs the load of links or disks: hosts send no heartbeats here", c.Scheduler)
	}
	w := c.Scheduler.When()
	switch {
	case w.Every < 0 || w.Every > DefaultMaxTime:
		return fmt.Errorf("%T is to be asked every %v: want 0 to %v", c.Scheduler, w.Every, DefaultMaxTime)
	case w.Every == 0 && !w.Coflows:
		return fmt.Errorf("%T is asked neither when a coflow arrives nor at intervals: nothing would ever be sent", c.Scheduler)
	case c.Quantum > 0 && w.Every%c.Quantum != 0:
		return fmt.Errorf("%T is to be asked every %v: want a multiple of the quantum %v", c.Scheduler, w.Every, c.Quantum)
	}
	return nil
}

// check finds mistakes in the coflows.
func check(f *topo.Fabric, coflows []workloads.Coflow) error {
	ids := make(map[workloads.CoflowID]bool, len(coflows))
	known := func(h topo.HostID) bool { return h >= 0 && int(h) < f.Hosts() }
	var total units.Bytes
	highest, ascending := workloads.FlowID(math.MinInt), true
	for _, c := range coflows {
		if ids[c.ID] {
			return fmt.Errorf("two coflows have ID %d", c.ID)
		}
		ids[c.ID] = true
		if len(c.Flows) == 0 || len(c.Flows) > math.MaxInt32 {
			return fmt.Errorf("coflow %d has %d flows: want 1 to %d", c.ID, len(c.Flows), math.MaxInt32)
		}
		if c.Arrival < 0 || c.Arrival > DefaultMaxTime {
			return fmt.Errorf("coflow %d arrives at %v: want 0 to %v", c.ID, c.Arrival, DefaultMaxTime)
		}
		for _, fl := range c.Flows {
			if fl.Src == fl.Dst || fl.Size <= 0 || !known(fl.Src) || !known(fl.Dst) {
				return fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: want a positive size and two different hosts of the fabric", c.ID, fl.ID, fl.Size, fl.Src, fl.Dst)
			}
			if fl.Size > maxSize-total {
				return fmt.Errorf("coflow %d: flow %d of %v: more than %v in all", c.ID, fl.ID, fl.Size, maxSize)
			}
			total += fl.Size
			ascending = ascending && fl.ID > highest
			highest = max(highest, fl.ID)
		}
	}
	if ascending {
		return nil
	}
	seen := map[workloads.FlowID]bool{}
	for _, c := range coflows {
		for _, fl := range c.Flows {
			if seen[fl.ID] {
				return fmt.Errorf("coflow %d: another flow has ID %d too", c.ID, fl.ID)
			}
			seen[fl.ID] = true
		}
	}
	return nil
}

const (
	// maxSize keeps sums of bits within 63 bits.
	maxSize units.Bytes = math.MaxInt64 / 16
	// together is how many ns apart two moments may be computed and still be one.
	together = 1e-3
	// imprecision bounds what repeated subtraction makes of a flow's bits, relative
	// to its size.
	imprecision = 1e-13
	// nearlyWhole is by how many bytes arithmetic may miss a whole number of them.
	nearlyWhole = 1e-6
)
