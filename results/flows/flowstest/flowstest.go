// Package flowstest invents records of jobs of tasks for tests of packages that use them.
//
// Its schedule is first in, first out, and no more than plausible: slots do not overlap, phases are
// in order, and flows match the attempts that they serve.
package flowstest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cluster is the cluster and the jobs of invented records.
type Cluster struct {
	Racks, HostsPerRack int
	MapSlots            int // of each host
	ReduceSlots         int
	Jobs                int
	Users               int
	Pace                float64 // divides all times of attempts
	Node                float64 // share of maps whose replica is on their host; half of the rest is in its rack
	// Copies is the share of maps with a clone that ends after the first attempt and copies, if a map slot is free when the
	// first starts. The last reduce of their job then has a clone, which fetches from the copies and is killed.
	Copies float64
}

// Default has 8 hosts in 2 racks and 12 jobs of 3 users.
func Default() Cluster {
	return Cluster{Racks: 2, HostsPerRack: 4, MapSlots: 2, ReduceSlots: 1, Jobs: 12, Users: 3, Pace: 1, Node: 0.5, Copies: 0.3}
}

// Hosts returns the number of hosts.
func (c Cluster) Hosts() int { return c.Racks * c.HostsPerRack }

func (c Cluster) host(i int) string {
	return fmt.Sprintf("h%d-%02d", i/c.HostsPerRack, i%c.HostsPerRack)
}

type slot struct {
	host, n int
	free    time.Duration
}

func (c Cluster) slots(each int) (out []slot) {
	for n := range each {
		for h := range c.Hosts() {
			out = append(out, slot{host: h, n: n})
		}
	}
	return out
}

// next returns the slot that is free first.
func next(slots []slot) *slot {
	best := 0
	for i := range slots {
		if slots[i].free < slots[best].free {
			best = i
		}
	}
	return &slots[best]
}

// Records returns the records of one repeat. The tasks of a job depend on the seed alone, so that arms
// with the same seed and other fields have the same jobs.
func (c Cluster) Records(seed uint64) flows.Records {
	var r flows.Records
	maps, reduces := c.slots(c.MapSlots), c.slots(c.ReduceSlots)
	const block = 8 * units.MB
	flow, read := 0, c.Jobs // shuffles have the numbers before, the same ones whatever is read
	for id := range c.Jobs {
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		took := func(least, most time.Duration) time.Duration {
			return time.Duration(float64(least+time.Duration(rng.Int64N(int64(most-least)))) / c.Pace)
		}
		j := flows.JobRecord{Job: workloads.JobID(id + 1), User: fmt.Sprintf("u%d", 1+rng.IntN(c.Users)), Profile: []string{"grep", "sort"}[id%2],
			Arrival: time.Duration(id) * 700 * time.Millisecond}
		j.Lone = took(2*time.Second, 4*time.Second)
		n := []int{1, 2, 5, 10, 30, 120}[rng.IntN(6)]
		reducers := 1 + n/8
		if id%5 == 4 {
			reducers = 0
		}
		j.Tasks, j.Input = n+reducers, units.Bytes(n)*block
		var sources, winners []int              // hosts and attempts of map outputs
		copies := map[int]flows.AttemptRecord{} // by map
		clones := rand.New(rand.NewPCG(^seed, uint64(id)))
		// clone returns a further attempt of the task of the newest one, if a slot of another host was free at its start.
		clone := func(slots []slot) (y flows.AttemptRecord, s *slot) {
			x := r.Attempts[len(r.Attempts)-1]
			if s = next(slots); s.free > x.Start || c.host(s.host) == x.Host {
				return y, nil
			}
			y = x
			y.Attempt, y.Host, y.Slot = x.Attempt+1, c.host(s.host), s.n
			return y, s
		}
		var ends []time.Duration
		add := func(f flows.FlowRecord, coflow int) {
			f.Coflow, f.Flow = workloads.CoflowID(coflow), workloads.FlowID(flow)
			flow++
			f.Arrival, f.Packets, f.Wire = f.Start, int(f.Size/1448)+1, f.Size+f.Size/20
			r.Flows = append(r.Flows, f)
		}
		// attempts calls run for each attempt of a task until one commits.
		attempts := func(a flows.AttemptRecord, slots []slot, after time.Duration, run func(*flows.AttemptRecord, *slot)) {
			for ; ; a.Attempt++ {
				s := next(slots)
				x := a
				x.Host, x.Slot, x.Start, x.Outcome = c.host(s.host), s.n, max(s.free, after), flows.Committed
				run(&x, s)
				if p := rng.Float64(); a.Attempt == 0 && p < 0.05 {
					if x.Outcome = flows.Killed; p < 0.02 {
						x.Outcome = flows.Failed
					}
					x.End = x.Start + (x.End-x.Start)/2
					for _, t := range []*time.Duration{&x.InputEnd, &x.Compute, &x.Computed} {
						if *t > x.End {
							*t = 0
						}
					}
					if x.InputEnd == 0 {
						x.Input /= 2
					}
				}
				s.free, after = x.End, x.End
				r.Attempts = append(r.Attempts, x)
				if x.Outcome == flows.Committed {
					sources, ends, winners = append(sources, s.host), append(ends, x.End), append(winners, x.Attempt)
					return
				}
			}
		}
		job := flows.AttemptRecord{Job: j.Job, Kind: flows.MapTask}
		for m := range n {
			a := job
			a.Task, a.Input = m, block
			place := rng.Float64()
			attempts(a, maps, j.Arrival, func(a *flows.AttemptRecord, s *slot) {
				a.Compute, a.InputEnd = a.Start, a.Start+took(500*time.Millisecond, 1500*time.Millisecond)
				from := s.host
				switch a.Locality = flows.NodeLocal; {
				case place >= c.Node+(1-c.Node)/2:
					a.Locality, from = flows.OffRack, (s.host+c.HostsPerRack)%c.Hosts()
				case place >= c.Node:
					a.Locality, from = flows.RackLocal, s.host/c.HostsPerRack*c.HostsPerRack+(s.host+1)%c.HostsPerRack
				}
				a.Computed = a.InputEnd + took(10*time.Millisecond, 50*time.Millisecond)
				a.End = a.Computed + took(20*time.Millisecond, 200*time.Millisecond)
				if from != s.host {
					add(flows.FlowRecord{Src: c.host(from), Dst: a.Host, Size: block, Start: a.Start + time.Millisecond, End: a.InputEnd,
						Task: &flows.TaskTransfer{Job: a.Job, Task: a.Task, Attempt: a.Attempt}}, read)
					read++ // a read has no record of a coflow
				}
			})
			if clones.Float64() >= c.Copies {
				continue
			}
			if y, s := clone(maps); s != nil {
				const later = 300 * time.Millisecond
				y.InputEnd, y.Computed, y.End, y.Outcome = y.InputEnd+later, y.Computed+later, y.End+later, flows.Copied
				s.free, copies[m] = y.End, y
				r.Attempts = append(r.Attempts, y)
			}
		}
		mapped := slices.Clone(sources)
		slices.Sort(ends)
		j.End = ends[len(ends)-1]
		first := len(r.Flows)
		for k := range reducers {
			a := job
			a.Stage, a.Task, a.Kind, a.Input = 1, k, flows.ReduceTask, units.Bytes(n)*block/units.Bytes(4*reducers)
			done := ends[len(mapped)-1]
			attempts(a, reduces, ends[0], func(a *flows.AttemptRecord, s *slot) {
				a.InputEnd = max(a.Start, done) + took(100*time.Millisecond, 800*time.Millisecond)
				a.Compute = a.InputEnd + took(0+1, 200*time.Millisecond)
				a.Computed = a.Compute + took(200*time.Millisecond, time.Second)
				a.End = a.Computed + took(100*time.Millisecond, 600*time.Millisecond)
				for m, from := range mapped {
					if from != s.host {
						add(flows.FlowRecord{Src: c.host(from), Dst: a.Host, Size: a.Input / units.Bytes(n), Start: max(a.Start, ends[m]), End: a.InputEnd,
							Task: &flows.TaskTransfer{Job: a.Job, Stage: 1, Task: k, Attempt: a.Attempt, FromTask: m, FromAttempt: winners[m], Outputs: 1}}, id)
					}
				}
			})
			j.End = max(j.End, r.Attempts[len(r.Attempts)-1].End)
			if k < reducers-1 || len(copies) == 0 {
				continue
			}
			if y, s := clone(reduces); s != nil {
				y.InputEnd, y.Compute, y.Computed, y.Outcome, y.Why = 0, 0, 0, flows.Killed, "another attempt has committed"
				s.free = y.End
				r.Attempts = append(r.Attempts, y)
				for m := range mapped {
					from, ok := copies[m]
					at := max(y.Start, from.End)
					if !ok || from.Host == y.Host || at+100*time.Millisecond > y.End {
						continue
					}
					add(flows.FlowRecord{Src: from.Host, Dst: y.Host, Size: y.Input / units.Bytes(n), Start: at, End: at + 100*time.Millisecond,
						Task: &flows.TaskTransfer{Job: y.Job, Stage: 1, Task: k, Attempt: y.Attempt, FromTask: m, FromAttempt: from.Attempt, Outputs: 1}}, id)
				}
			}
		}
		if fetches := r.Flows[first:]; len(fetches) > 0 {
			x := flows.CoflowRecord{Coflow: workloads.CoflowID(id), Width: len(fetches), Arrival: fetches[0].Start}
			for _, f := range fetches {
				x.Size += f.Size
				x.Arrival, x.End = min(x.Arrival, f.Start), max(x.End, f.End)
			}
			r.Coflows = append(r.Coflows, x)
		}
		r.Jobs = append(r.Jobs, j)
	}
	slices.SortStableFunc(r.Attempts, func(a, b flows.AttemptRecord) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	return r
}
