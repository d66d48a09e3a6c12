// Package tasks holds the policies that fill the free slots of hosts with tasks: the orders of
// jobs FIFO, FAIR and DRF, one filler that turns an order into launches, and the parts that can be around it: delay
// scheduling, copy-compute splitting, ShuffleWatcher, speculation, cloning and blacklists.
//
// This package starts no attempts and moves no data: the engine does.
package tasks

import (
	"iter"
	"time"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// Scheduler is a task scheduler: an order of jobs, from which one filler launches as many tasks as the limits of a
// heartbeat and the parts allow.
type Scheduler struct {
	Order // FIFO, Fair or DRF
	PerHeartbeat

	// The parts. The zero value of each is off.
	Delay
	Splitting
	Shuffle     Shuffling // ShuffleWatcher
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
	// finish completes the decision after all launches.
	finish()
}

var (
	mapsOnly    = []jobs.TaskKind{jobs.Map}
	reducesOnly = []jobs.TaskKind{jobs.Reduce}
	mapsFirst   = [][]jobs.TaskKind{mapsOnly, reducesOnly}
	bothKinds   = [][]jobs.TaskKind{{jobs.Map, jobs.Reduce}}
)

// DefaultFIFO returns the scheduler of Hadoop 0.20, JobQueueTaskScheduler.
func DefaultFIFO() Scheduler {
	return Scheduler{Order: DefaultLevels(), PerHeartbeat: PerHeartbeat{Reduces: 1, OffRack: 1, LoadFactor: true}}
}

// DefaultFair returns FAIR with equal pools, without killing.
func DefaultFair() Scheduler {
	return Scheduler{Order: Fair{Starvation: DefaultStarvation()}, PerHeartbeat: PerHeartbeat{Tasks: 1}}
}

// DefaultDRF returns dominant resource fairness, which fills all slots of a heartbeat.
func DefaultDRF() Scheduler { return Scheduler{Order: DRF{}} }

// Needs returns what the order and the parts need: the slots and attempts of all, for shares and limits. Killing, and delays by time, count from heartbeat to heartbeat, also
// where all slots are taken.
func (s Scheduler) Needs() policies.Facts {
	needs := policies.Slots | policies.Attempts | s.Shuffle.needs() | s.Cloning.needs()
	if fair, ok := s.Order.(Fair); ok && fair.Kill || s.Delay.Waiting == ByTime {
		needs |= policies.EveryHeartbeat
	}
	if s.Speculation.By != NoSpeculation {
		needs |= policies.EveryHeartbeat | policies.TaskProgress
	}
	if s.Blacklist.Above > 0 {
		needs |= policies.EveryHeartbeat | policies.TaskHistory
	}
	return needs
}

// AsksPending implements policies.PendingAsker.
func (Scheduler) AsksPending() bool { return true }

// New returns an instance that remembers nothing yet.
func (s Scheduler) New() policies.TaskInstance { return &instance{Scheduler: s} }

// instance is a Scheduler with what it remembers between decisions.
type instance struct {
	Scheduler
	last      time.Duration // the time of the previous decision
	jobs      []jobMemory   // parallel to TaskView.Jobs; empty if no part uses it
	netSat    measured
	learned   learned
	blacklist blacklist
	shortages shortages
}

// jobMemory is what the parts of a scheduler remember of a job.
type jobMemory struct {
	id jobs.JobID
	delayed
	copies []copies // of each stage; see cloning
	plan   plan
}

// follow makes what is remembered of jobs parallel to the jobs of a View. Those that have left are forgotten.
func (s *instance) follow(list []policies.TaskJob) {
	if s.Delay.Waiting == NoWait && !s.Shuffle.on() && !s.Cloning.On {
		return
	}
	same := 0
	for same < len(list) && same < len(s.jobs) && s.jobs[same].id == list[same].ID {
		same++
	}
	if same == len(list) && same == len(s.jobs) {
		return
	}
	rest := make(map[jobs.JobID]jobMemory, len(s.jobs)-same)
	for _, j := range s.jobs[same:] {
		rest[j.id] = j
	}
	s.jobs = s.jobs[:same]
	for i := range list[same:] {
		id := list[same+i].ID
		j := rest[id]
		j.id = id
		s.jobs = append(s.jobs, j)
	}
}

// Assign launches tasks on the host, in the order of jobs.
func (s *instance) Assign(v *policies.TaskView, a *policies.Assignment) {
	if v.Host < 0 || int(v.Host) >= len(v.Slots) || s.Order == nil {
		return
	}
	s.follow(v.Jobs)
	d := &decision{instance: s, v: v, a: a, host: v.Slots[v.Host]}
	x := s.Shuffle.begin(d)
	clones := s.Cloning.begin(d)
	s.blacklist.update(s.Blacklist, v)
	d.delay.start(d, s.Delay)
	q := s.start(d)
	f := filler{decision: d, queue: q, splitting: s.Splitting, cloning: clones}
	f.offRack = s.OffRack
	f.total, f.left = s.limits(d)
	if s.Speculation.By == ByMantri {
		f.prune(s.Speculation.Mantri)
	}
	if !d.host.Lost && !s.blacklist.skips(v) {
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
	q.finish()
	s.last = v.Now
}

// decision is the state of one decision. Slices by job are parallel to TaskView.Jobs.
type decision struct {
	*instance
	v        *policies.TaskView
	a        *policies.Assignment
	host     policies.SlotState // of v.Host, including what this decision has launched
	launches []int              // of this decision, by job
	delay    delaying
	totals   [jobs.TaskKinds]int // see slots
	counted  bool
}

// scan looks at all jobs. If u is not nil, it also finds their users.
func (d *decision) scan(u *users) {
	d.launches = d.a.Ints(len(d.v.Jobs))
	if u != nil {
		u.start(d)
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
