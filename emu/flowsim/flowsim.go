// Package flowsim is the flow-level simulator for whole traces: it simulates coflows with
// hundreds of thousands of flows on a fabric without disks and faults, under the same
// policies.CoflowScheduler values that run on packets. It advances from event to event; rates
// come from package alloc, and between events every flow is a fluid. Its results equal
// those of emu/engine on emu/fluid for the same input, except for rounding: there rate
// caps are whole bits per second and policies see whole bytes of every flow; here only
// sums are whole.
//
// Links carry payload at their full capacity, propagation takes no time and a decision
// applies immediately.
//
// It has no packets, blocks, disks, faults or heartbeats: a scheduler that needs LinkLoad
// or DiskUse is refused.
package flowsim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coordinator"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Config is the input of a simulation except its coflows.
type Config struct {
	Fabric *topo.Fabric
	// Capacity is the payload that each link carries, by LinkID. Nil means the links' own
	// rates.
	Capacity  []units.Rate
	Scheduler policies.CoflowScheduler
	// Seed keys the choice of paths, as in the engine: workloads.FlowHash.
	Seed uint64
	// MaxTime bounds the simulated time of a run; 0 means DefaultMaxTime.
	MaxTime time.Duration
	// MaxIdle bounds the simulated time in which a scheduler, although it is called, lets no
	// flow move while coflows are unfinished and none will arrive; 0 means DefaultMaxIdle.
	MaxIdle time.Duration
	// Resolution bounds how early flows may end: those that would end within it after
	// another flow end together with it. No flow gains more than its rate times
	// Resolution, and every event is at most that early, given the earlier decisions; a
	// decision between the two may differ from the exact one. 0 is exact: only events
	// that coincide within rounding, a thousandth of a nanosecond, are one event.
	Resolution time.Duration
	// Quantum makes time slotted, as in published simulators: rates change only at its
	// whole multiples, the end of a flow is visible at the first multiple not before it,
	// and the rest of the flow's slot is lost. Triggers.Every must be a multiple of it; if
	// Every is 0, the events of Triggers are handled at the next multiple of Quantum. 0 is
	// continuous time.
	Quantum time.Duration
	// Memory bounds the memory of the coflows that have arrived and not ended, computed by
	// MemoryOf; a run that needs more ends with a *MemoryError. 0 is no limit.
	Memory units.Bytes
	// Interval is the interval in which the coordinator's load is counted
	// (Result.Coordinator); 0 does not count it, which saves time.
	Interval time.Duration
}

// Defaults of Config.
const (
	DefaultMaxTime = 10 * 365 * 24 * time.Hour
	DefaultMaxIdle = time.Hour
)

// Progress is the progress of a run. It is reported whenever a coflow has ended.
type Progress struct {
	Now                        time.Duration // simulated
	Coflows, Arrived, Finished int
	Events, Decisions          int64
}

// Result is the result of a run.
type Result struct {
	Coflows  []Coflow      // in the order they were given
	Makespan time.Duration // from time 0 to the end of the last coflow
	// Events is the number of distinct times of the run, Decisions the number of calls of
	// the scheduler, and FlowEnds the number of flows, all of which have ended.
	Events, Decisions, FlowEnds int64
	Coordinator                 Coordinator
}

// Coflow is the result of one coflow. Times are since the start of the run, rounded to a
// nanosecond.
type Coflow struct {
	ID      workloads.CoflowID
	Arrival time.Duration
	Start   time.Duration // when the first of its flows began to move
	Finish  time.Duration // when the last had ended
	Width   int           // number of flows
	Size    units.Bytes
	Largest units.Bytes // flow
	// Queue is its last queue in the scheduler (Schedule.Queues), Queued the time of
	// entering it, or its arrival if the queue never changed, and QueuedSent the bytes
	// that it had sent by then.
	Queue      int
	Queued     time.Duration
	QueuedSent units.Bytes
	// Pilots is the number of its pilot flows and PilotSent their total size; Sampled is
	// when the last of them had ended and SampledSent the bytes that the coflow had sent
	// by then.
	Pilots                 int
	PilotSent, SampledSent units.Bytes
	Sampled                time.Duration
	// Bound is its minimum time alone: the bytes of its bottleneck divided by that link's
	// capacity, or its rate if that is 0, rounded up.
	Bound time.Duration
}

// CCT returns the coflow completion time, from arrival to the end of the last flow.
func (c Coflow) CCT() time.Duration { return c.Finish - c.Arrival }

// Run simulates the coflows until all have ended. They may be in any order; FlowIDs are
// unique over all of them. Rates of a coflow's flows are computed fastest if the order
// of their IDs is that of their Src, then Dst. report, which may be nil, is called with
// the progress. Run does not change its arguments.
//
// The error names invalid input, an invalid answer of the scheduler, or the coflows that
// the scheduler never lets move.
func Run(ctx context.Context, cfg Config, coflows []workloads.Coflow, report func(Progress)) (*Result, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("trace simulation: %w", err)
	}
	if err := check(cfg.Fabric, coflows); err != nil {
		return nil, fmt.Errorf("trace simulation: %w", err)
	}
	c, err := coordinator.New(cfg.Scheduler, cfg.Quantum, true)
	if err != nil {
		return nil, fmt.Errorf("trace simulation: %w", err)
	}
	s := newSim(cfg, c, coflows, report)
	if err := s.run(ctx); err != nil {
		return nil, fmt.Errorf("trace simulation at %v: %w", s.now.Round(), err)
	}
	return &s.result, nil
}

func (c *Config) complete() error {
	if c.Fabric == nil || c.Scheduler == nil {
		return errors.New("a fabric or a scheduler is missing")
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
			return fmt.Errorf("capacity of link %s: %v: must be 0 or more", c.Fabric.LinkName(topo.LinkID(l)), r)
		}
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"max time", c.MaxTime}, {"max idle", c.MaxIdle}, {"resolution", c.Resolution}, {"quantum", c.Quantum}, {"interval", c.Interval}} {
		if d.v < 0 || d.v > DefaultMaxTime {
			return fmt.Errorf("%s %v: must be 0 to %v", d.name, d.v, DefaultMaxTime)
		}
	}
	c.MaxTime = cmp.Or(c.MaxTime, DefaultMaxTime)
	c.MaxIdle = cmp.Or(c.MaxIdle, DefaultMaxIdle)
	if c.Scheduler.Needs()&(policies.LinkLoad|policies.DiskUse) != 0 {
		return errors.New("the policy needs the load of links or disks: simulated hosts send no heartbeats")
	}
	if every := c.Scheduler.Triggers().Every; every > DefaultMaxTime {
		return fmt.Errorf("interval %v: must be 0 to %v", every, DefaultMaxTime)
	}
	return nil
}

// check validates the coflows.
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
			return fmt.Errorf("coflow %d has %d flows: must be 1 to %d", c.ID, len(c.Flows), math.MaxInt32)
		}
		if c.Arrival < 0 || c.Arrival > DefaultMaxTime {
			return fmt.Errorf("coflow %d arrives at %v: must be 0 to %v", c.ID, c.Arrival, DefaultMaxTime)
		}
		for _, fl := range c.Flows {
			if fl.Src == fl.Dst || fl.Size <= 0 || !known(fl.Src) || !known(fl.Dst) {
				return fmt.Errorf("coflow %d: flow %d of %v from host %d to host %d: the size must be positive and the hosts different ones of the fabric", c.ID, fl.ID, fl.Size, fl.Src, fl.Dst)
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
	// together is the difference in ns between two computed times that count as one.
	together = 1e-3
	// imprecision bounds the rounding error of a flow's bits after repeated subtraction,
	// relative to its size.
	imprecision = 1e-13
	// nearlyWhole is the difference in bytes from a whole number that counts as rounding.
	nearlyWhole = 1e-6
)
