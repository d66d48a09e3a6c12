// Package tasks holds the policies that fill the free slots of hosts with tasks: the orders of
// jobs FIFO, FAIR and DRF, one filler that turns an order into launches, and the restrictions
// that wrap it: delay scheduling, copy-compute splitting, ShuffleWatcher, speculation, cloning and blacklists.
//
// This package starts no attempts and moves no data: the engine does.
package tasks

import (
	"iter"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// Scheduler is a task scheduler: an order of jobs, from which one filler launches as many tasks
// as the limits of a heartbeat, delay scheduling and copy-compute splitting allow.
type Scheduler struct {
	Order // FIFO, Fair or DRF
	PerHeartbeat
	Delay
	Splitting
	Shuffle     Shuffling // ShuffleWatcher; its zero value is off
	Speculation Speculation
	Cloning     Cloning
	Blacklist   clone.Blacklist
}

// Order selects the jobs that get slots first. Its implementations are FIFO, Fair and DRF.
type Order interface {
	// start returns the order for one heartbeat.
	start(d *decision) queue
}

// queue is an order of jobs during one decision.
type queue interface {
	// kinds returns groups of kinds of slots. The groups are filled one after the other, the
	// kinds of a group together.
	kinds() [][]jobs.TaskKind
	// jobs returns the jobs that have pending tasks of one of the kinds of a group, by index in
	// TaskView.Jobs, in the order in which they get the next slot. It may include others.
	jobs(kinds []jobs.TaskKind) iter.Seq[int]
	// launched notifies the queue that a task of the job was launched.
	launched(job int, st *policies.StageState)
	// starving reports whether the job's maps may ignore delay scheduling.
	starving(job int) bool
	// finish completes the decision after all launches. It returns what the queue must remember.
	finish() []int64
}

var (
	mapsOnly    = []jobs.TaskKind{jobs.Map}
	reducesOnly = []jobs.TaskKind{jobs.Reduce}
	mapsFirst   = [][]jobs.TaskKind{mapsOnly, reducesOnly}
	bothKinds   = [][]jobs.TaskKind{{jobs.Map, jobs.Reduce}}
)

// DefaultFIFO returns the scheduler of Hadoop 0.20, JobQueueTaskScheduler, without delay
// scheduling and splitting.
func DefaultFIFO() Scheduler {
	return Scheduler{Order: DefaultLevels(), PerHeartbeat: PerHeartbeat{Reduces: 1, OffRack: 1, LoadFactor: true}, Delay: DefaultDelay(), Splitting: DefaultSplitting(), Shuffle: DefaultShuffling(), Speculation: DefaultSpeculation(), Cloning: DefaultCloning(), Blacklist: clone.DefaultBlacklist()}
}

// DefaultFair returns FAIR with equal pools, without killing, delay scheduling and splitting.
func DefaultFair() Scheduler {
	return Scheduler{Order: Fair{Starvation: DefaultStarvation()}, PerHeartbeat: PerHeartbeat{Tasks: 1}, Delay: DefaultDelay(), Splitting: DefaultSplitting(), Shuffle: DefaultShuffling(), Speculation: DefaultSpeculation(), Cloning: DefaultCloning(), Blacklist: clone.DefaultBlacklist()}
}

// DefaultDRF returns dominant resource fairness, which fills all slots of a heartbeat.
func DefaultDRF() Scheduler {
	return Scheduler{Order: DRF{}, Delay: DefaultDelay(), Splitting: DefaultSplitting(), Shuffle: DefaultShuffling(), Speculation: DefaultSpeculation(), Cloning: DefaultCloning(), Blacklist: clone.DefaultBlacklist()}
}

// Needs returns neither sizes nor loads, which a scheduler of tasks does not read. Killing, and
// delays by time, count from heartbeat to heartbeat, also where all slots are taken.
func (s Scheduler) Needs() policies.Needs {
	fair, ok := s.Order.(Fair)
	return policies.Needs{EveryHeartbeat: ok && fair.Kill || s.Delay.remembersTime() || s.Shuffle.NASS || s.Speculation.By != NoSpeculation || s.Cloning.On || s.Blacklist.Above > 0,
		TaskProgress: s.Speculation.By != NoSpeculation || s.Cloning.On && (s.Cloning.Learn != GivenEstimates || s.Cloning.Admission == clone.Preemption), History: s.Cloning.On && s.Cloning.Learn != GivenEstimates || s.Blacklist.Above > 0, LinkLoad: s.Shuffle.NASS && !s.Shuffle.TrueLoad, OracleLoad: s.Shuffle.NASS && s.Shuffle.TrueLoad,
		Shuffle: s.Shuffle.on(), OracleRatio: s.Shuffle.on() && s.Shuffle.Ratios > AtEnd,
		Hints: policies.Hints{AsksPending: true}}
}

// The number of leading elements of TaskView.Memory that do not belong to the order.
const ownMemory = 1

// Assign launches tasks on the host, in the order of jobs.
func (s Scheduler) Assign(v *policies.TaskView, a *policies.Assignment) {
	if v.Host < 0 || int(v.Host) >= len(v.Slots) || s.Order == nil {
		return
	}
	d := &decision{v: v, a: a, host: v.Slots[v.Host]}
	if len(v.Memory) >= ownMemory {
		d.remembered = v.Memory[ownMemory:]
	}
	part := func(size int) (first []int64) {
		first, d.remembered = d.remembered[:size], d.remembered[size:]
		return first
	}
	x := s.Shuffle.begin(d, part(s.Shuffle.size(d.remembered)))
	clones := s.Cloning.begin(d, part(s.Cloning.size(d.remembered)))
	blacklist := beginBlacklist(s.Blacklist, d, part(blacklistSize(s.Blacklist, d.remembered)))
	d.delay.start(d, s.Delay)
	q := s.start(d)
	f := filler{decision: d, queue: q, splitting: s.Splitting, cloning: clones}
	f.offRack = s.OffRack
	f.total, f.left = s.limits(d)
	if s.Speculation.By == ByMantri {
		f.prune(s.Speculation.Mantri)
	}
	if !d.host.Lost && !blacklist.skips() {
		f.runClones()
		if s.Speculation.By == ByMantri {
			f.mantri(s.Speculation.Mantri, true)
		}
		if x != nil {
			f.runShuffling(x)
		} else {
			for _, kinds := range q.kinds() {
				f.run(kinds)
			}
		}
		if s.Speculation.By != NoSpeculation {
			f.speculate(s.Speculation)
		}
	}
	d.delay.finish(d)
	parts := [][]int64{x.memory(), clones.memory(), blacklist.memory(), q.finish()}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size == 0 && !s.Delay.remembersTime() {
		if len(v.Memory) > 0 {
			a.Memory = []int64{}
		}
		return
	}
	a.Memory = a.Counts(ownMemory + size)
	a.Memory[0] = int64(v.Now)
	rest := a.Memory[ownMemory:]
	for _, p := range parts {
		rest = rest[copy(rest, p):]
	}
}

// decision is the state of one decision. Slices by job are parallel to TaskView.Jobs.
type decision struct {
	v          *policies.TaskView
	a          *policies.Assignment
	host       policies.SlotState // of v.Host, including what this decision has launched
	launches   []int              // of this decision, by job
	delay      delaying
	remembered []int64             // by the queue
	totals     [jobs.TaskKinds]int // see slots
	counted    bool
}

// scan looks at all jobs. If u is not nil, it also finds their users.
func (d *decision) scan(u *users) {
	d.launches = d.a.Ints(len(d.v.Jobs))
	if u != nil {
		u.start(d)
	}
	if d.delay.Waiting != NoWait {
		for i := range d.v.Jobs {
			d.delay.add(i, &d.v.Jobs[i].Memory)
		}
	}
}

// pending and running return the tasks of a job and a kind. Launches move a task from one to the other.
func (d *decision) pending(k jobs.TaskKind, job int) int {
	return d.v.Counts[job].Pending[k] - d.launched(k, job)
}
func (d *decision) running(k jobs.TaskKind, job int) int {
	return d.v.Counts[job].Running[k] + d.launched(k, job)
}

// launched returns the number of launches of tasks of a job and a kind.
func (d *decision) launched(k jobs.TaskKind, job int) (n int) {
	if d.launches[job] == 0 {
		return 0
	}
	for _, x := range d.a.Launch {
		if x.Job == job && d.v.Jobs[job].Stages[x.Stage].Kind == k {
			n++
		}
	}
	return n
}

// slots returns the number of slots of the cluster by kind, without those of lost hosts.
func (d *decision) slots() [jobs.TaskKinds]int {
	if !d.counted {
		d.counted = true
		for h := range d.v.Slots {
			if s := &d.v.Slots[h]; !s.Lost {
				for k, n := range s.Total {
					d.totals[k] += n
				}
			}
		}
	}
	return d.totals
}

// remaining returns the tasks of a stage that can still be launched, by distance.
func (d *decision) remaining(job, stage int) [policies.Localities]int {
	left := d.v.Pending(job, stage)
	if d.launches[job] > 0 {
		for _, x := range d.a.Launch {
			if x.Job == job && x.Stage == stage {
				left[x.Locality]--
			}
		}
	}
	return left
}

// countOn returns the attempts of a job on a host that match.
func countOn(j *policies.TaskJob, h topo.HostID, match func(*policies.AttemptState) bool) (n int) {
	for i := range j.Running {
		if x := &j.Running[i]; x.Host == h && match(x) {
			n++
		}
	}
	return n
}
