package tasks

import (
	"math"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// PerHeartbeat are the limits of one heartbeat. They stop one host from taking all tasks of a
// job that has just arrived.
type PerHeartbeat struct {
	Tasks   int // maximum number of launches; 0 for no limit. FAIR: 1 unless assign-multiple
	Maps    int // maximum number of maps; 0 for no limit
	Reduces int // maximum number of reduces; 0 for no limit. Hadoop's FIFO: 1
	// OffRack is the number of maps with off-rack input after which no more maps are launched;
	// 0 for no limit. Hadoop's FIFO: 1.
	OffRack int
	// LoadFactor limits the slots of a host that may be in use to ⌈its slots × unfinished tasks ÷
	// slots of the cluster⌉, where only tasks that may run count. It spreads small jobs over
	// hosts (Hadoop's FIFO).
	LoadFactor bool
}

// limits returns the number of tasks that may be launched in total and by kind.
func (p PerHeartbeat) limits(d *decision) (total int, left [jobs.TaskKinds]int) {
	total = math.MaxInt
	if p.Tasks > 0 {
		total = p.Tasks
	}
	for k, most := range [jobs.TaskKinds]int{jobs.Map: p.Maps, jobs.Reduce: p.Reduces} {
		left[k] = d.host.Free(jobs.TaskKind(k))
		if most > 0 {
			left[k] = min(left[k], most)
		}
		if p.LoadFactor && left[k] > 0 {
			tasks := 0
			for i := range d.v.Counts {
				tasks += d.pending(jobs.TaskKind(k), i) + d.running(jobs.TaskKind(k), i)
			}
			if slots := d.slots()[k]; slots > 0 && tasks < slots {
				left[k] = min(left[k], ceilDiv(tasks*d.host.Total[k], slots)-d.host.Used[k])
			}
		}
	}
	return total, left
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// filler turns an order of jobs into launches.
type filler struct {
	*decision
	queue     queue
	splitting Splitting
	cloning   *cloning            // nil for none
	offRack   int                 // PerHeartbeat.OffRack
	total     int                 // launches left
	left      [jobs.TaskKinds]int // launches left, by kind
	far       int                 // maps launched off-rack
	// For backups: whether these are known, the numbers of backups and of tasks that run, and whether the host is slow.
	surveyed        bool
	backups, active int
	slow            bool
}

// run fills slots of the given kinds until no job has a task that may be launched. A job that
// could launch none cannot later in the same heartbeat: everything that stops it only grows.
func (f *filler) run(kinds []jobs.TaskKind) {
	if !f.open(kinds) {
		return
	}
	refused := f.a.Ints(len(f.v.Jobs))
	for f.open(kinds) {
		launched := false
		for i := range f.queue.jobs(kinds) {
			if refused[i] != 0 {
				continue
			}
			if stage, l, ok := f.choose(i, kinds); ok {
				f.launch(i, stage, l)
				launched = true
				break
			}
			refused[i] = 1
		}
		if !launched {
			return
		}
	}
}

// open reports whether a task of one of the kinds may be launched.
func (f *filler) open(kinds []jobs.TaskKind) bool {
	for _, k := range kinds {
		if f.total > 0 && f.left[k] > 0 {
			return true
		}
	}
	return false
}

// choose returns the task of a job to launch: the closest map, else a reduce.
func (f *filler) choose(job int, kinds []jobs.TaskKind) (stage int, l policies.Locality, ok bool) {
	for _, k := range kinds {
		if f.left[k] <= 0 || f.pending(k, job) <= 0 {
			continue
		}
		allowed := policies.OffRack
		if k == jobs.Map {
			allowed = f.delay.allowed(f.decision, f.queue, job)
		}
		stage, l, waits := f.closest(job, k, allowed)
		if l < policies.Localities {
			return stage, l, true
		}
		if waits {
			f.delay.skip(job)
		}
	}
	return 0, 0, false
}

// closest returns the task of a job and a kind that fits on the host and has the closest input, no farther than
// allowed; policies.Localities if there is none. waits reports that farther ones were passed over.
func (f *filler) closest(job int, k jobs.TaskKind, allowed policies.Locality) (stage int, best policies.Locality, waits bool) {
	stages := f.v.Jobs[job].Stages
	best = policies.Localities
	for j := range stages {
		st := &stages[j]
		if st.Kind != k {
			continue
		}
		left, l := f.remaining(job, j), policies.NodeLocal
		for l < policies.Localities && left[l] <= 0 {
			l++
		}
		switch {
		case l >= best || !f.fits(st) || k == jobs.Reduce && !f.splitting.admits(f.decision, job):
		case l > allowed && !st.Anywhere:
			waits = true
		default:
			best, stage = l, j
		}
	}
	return stage, best, waits
}

// fits reports whether the host has what a task of a stage needs.
func (f *filler) fits(st *policies.StageState) bool {
	return f.host.Fits(st.Kind, st.Need) && f.host.HasRoom(st.Output)
}

// take gives the host one more attempt of a stage.
func (f *filler) take(st *policies.StageState) {
	f.host.Add(st.Kind, st.Need)
	if f.host.Space > 0 {
		f.host.Space -= st.Output
	}
	f.total--
	f.left[st.Kind]--
}

// launch launches a task, which counts for delay scheduling.
func (f *filler) launch(job, stage int, l policies.Locality) {
	if st := &f.v.Jobs[job].Stages[stage]; st.Kind == jobs.Map && !st.Anywhere {
		f.delay.launched(job, l)
	}
	f.place(job, stage, l)
}

// place launches a task without regard to delay scheduling.
func (f *filler) place(job, stage int, l policies.Locality) {
	st := &f.v.Jobs[job].Stages[stage]
	f.a.Launch = append(f.a.Launch, policies.Launch{Job: job, Stage: stage, Locality: l})
	f.launches[job]++
	f.take(st)
	if st.Kind == jobs.Map && l == policies.OffRack {
		if f.far++; f.far == f.offRack {
			f.left[st.Kind] = 0
		}
	}
	f.queue.launched(job, st)
	f.cloning.launched(job, stage)
}
