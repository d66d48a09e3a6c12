package metrics

import (
	"cmp"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Clones are figures of the tasks that had several attempts at the same time: clones from the start, or backups of a
// running attempt. Of such a task, the attempts that did not commit are extra.
type Clones struct {
	Backups
	// Used is the slot time of all attempts, and that of Extra attempts, by class of the number of tasks of the job
	// (jobs.SizeClass).
	Used, ExtraOf [jobs.SizeClasses]time.Duration
	// Beyond is the slot time of attempts beyond the first of a task that runs, and PeakSlots the largest number of slots that
	// they used at the same time.
	Beyond    time.Duration
	PeakSlots int
	Bytes     ExtraBytes
	Copies    [jobs.SizeClasses]Copies // by class of the number of tasks of the job
}

// Backups are the attempts that started while another attempt of their task ran.
type Backups struct {
	Tasks int // that had any
	// Started of them, and how they ended; the others failed.
	Started, Won, Copied, Killed int
	// Extra is the slot time of the attempts of these tasks that did not commit.
	Extra time.Duration
}

// Add adds other backups.
func (b *Backups) Add(o Backups) {
	b.Tasks, b.Started, b.Extra = b.Tasks+o.Tasks, b.Started+o.Started, b.Extra+o.Extra
	b.Won, b.Copied, b.Killed = b.Won+o.Won, b.Copied+o.Copied, b.Killed+o.Killed
}

// Add adds other figures; nil for none.
func (c *Clones) Add(o *Clones) {
	if o == nil {
		return
	}
	c.Backups.Add(o.Backups)
	for k := range c.Used {
		c.Used[k], c.ExtraOf[k] = c.Used[k]+o.Used[k], c.ExtraOf[k]+o.ExtraOf[k]
	}
	c.Beyond, c.PeakSlots = c.Beyond+o.Beyond, max(c.PeakSlots, o.PeakSlots)
	c.Bytes.Add(o.Bytes)
	for k := range c.Copies {
		c.Copies[k].Add(o.Copies[k])
	}
}

// AllCopies returns the sum of the copies of all classes.
func (c *Clones) AllCopies() (all Copies) {
	for _, x := range c.Copies {
		all.Add(x)
	}
	return all
}

// isBackup reports whether the i-th attempt of a task, of attempts by number, started while another one ran.
func isBackup(task []flows.AttemptRecord, i int) bool {
	return slices.ContainsFunc(task[:i], func(first flows.AttemptRecord) bool { return task[i].Start < first.End })
}

// Role is the part of an attempt in its task.
type Role int

const (
	Single   Role = iota // its task has no backup
	Original             // its task has one, and this is none
	Backup               // it started while another attempt ran
)

// RolesOf returns the roles of attempts, which are in order of job, stage, task and attempt.
func RolesOf(attempts []flows.AttemptRecord) []Role {
	out := make([]Role, 0, len(attempts))
	for _, task := range chunks(attempts, sameTask) {
		var roles []Role
		for i := range task {
			role := Original
			if isBackup(task, i) {
				role = Backup
			}
			roles = append(roles, role)
		}
		if !slices.Contains(roles, Backup) {
			clear(roles)
		}
		out = append(out, roles...)
	}
	return out
}

func sameTask(a, b *flows.AttemptRecord) bool {
	return a.Job == b.Job && a.Stage == b.Stage && a.Task == b.Task
}

// task adds the attempts of a task, by number, and reports whether any is a backup.
func (b *Backups) task(of []flows.AttemptRecord) bool {
	started := 0
	var extra time.Duration
	for i := range of {
		a := &of[i]
		if isBackup(of, i) {
			started++
			switch a.Outcome {
			case flows.Committed:
				b.Won++
			case flows.Copied:
				b.Copied++
			case flows.Killed:
				b.Killed++
			}
		}
		if a.Outcome != flows.Committed {
			extra += a.End - a.Start
		}
	}
	if started > 0 {
		b.Tasks, b.Started, b.Extra = b.Tasks+1, b.Started+started, b.Extra+extra
	}
	return started > 0
}

// ExtraBytes is payload that transfers of Extra attempts carried between hosts, those that were stopped included as far
// as they got. These are known from captures alone.
type ExtraBytes struct {
	Read    units.Bytes // input blocks
	Fetched units.Bytes // outputs of tasks
	Further units.Bytes // the part of Fetched that came from copies that were not the first
	All     units.Bytes // of all reads and fetches
	// Written is what hops between hosts carried of block writes of extra attempts: of blocks that were stopped as far as they got,
	// of complete ones in their last pipeline.
	Written units.Bytes
}

// Add adds other bytes.
func (b *ExtraBytes) Add(o ExtraBytes) {
	b.Read, b.Fetched, b.Further, b.All = b.Read+o.Read, b.Fetched+o.Fetched, b.Further+o.Further, b.All+o.All
	b.Written += o.Written
}

// Fetches is a number of fetches with their payload and the sum of their times.
type Fetches struct {
	N    int
	Size units.Bytes
	Busy time.Duration
}

func (f *Fetches) add(o Fetches) { f.N, f.Size, f.Busy = f.N+o.N, f.Size+o.Size, f.Busy+o.Busy }

// Copies are figures of the fetches over the network by tasks with two or more attempts that fetched.
type Copies struct {
	// Alone are the complete fetches from copies that no other attempt of the same task was fetching at any time of them,
	// and Shared the others.
	Alone, Shared Fetches
	// Attempts is the number of attempts that fetched, and Waited the time in which they ran, a first copy of an output
	// was complete that they fetched later, and none of their fetches ran.
	Attempts int
	Waited   time.Duration
}

// Add adds other figures.
func (c *Copies) Add(o Copies) {
	c.Alone.add(o.Alone)
	c.Shared.add(o.Shared)
	c.Attempts, c.Waited = c.Attempts+o.Attempts, c.Waited+o.Waited
}

// SharedShare returns the share of the fetches that were not alone: p_c of Dolly (NSDI 2013). It is false without fetches.
func (c Copies) SharedShare() (float64, bool) {
	n := c.Alone.N + c.Shared.N
	return float64(c.Shared.N) / float64(max(1, n)), n > 0
}

// taskID identifies a task of a repeat.
type taskID struct {
	job         workloads.JobID
	stage, task int
}

// ClonesOf returns the figures of one repeat; nil if no task had several attempts at the same time.
func ClonesOf(r *flows.Records) *Clones {
	c := &Clones{}
	class := map[workloads.JobID]int{}
	for _, j := range r.Jobs {
		if j.Tasks > 0 {
			class[j.Job] = jobs.SizeClass(j.Tasks)
		}
	}
	cloned, committed := map[taskID]bool{}, map[flows.AttemptKey]bool{}
	for _, of := range ByJob(r.Attempts) {
		tasks := chunks(of, sameTask)
		k, ok := class[of[0].Job]
		if !ok {
			k = jobs.SizeClass(len(tasks)) // a job that failed has no record
			class[of[0].Job] = k
		}
		for _, task := range tasks {
			before := c.Extra
			if c.task(task) {
				cloned[taskID{task[0].Job, task[0].Stage, task[0].Task}] = true
			}
			c.ExtraOf[k] += c.Extra - before
			for _, a := range task {
				c.Used[k] += a.End - a.Start
				committed[a.Key()] = a.Outcome == flows.Committed
			}
		}
	}
	if c.Started == 0 {
		return nil
	}
	eachExtra(r, func(from, to time.Duration, n int) {
		c.Beyond += time.Duration(n) * (to - from)
		c.PeakSlots = max(c.PeakSlots, n)
	})
	for f := range r.Carried() {
		t := f.Task
		if t == nil || f.Src == f.Dst {
			continue
		}
		c.Bytes.All += f.Size
		won, known := committed[flows.AttemptKey{Job: t.Job, Stage: t.Stage, Task: t.Task, Attempt: t.Attempt}]
		switch {
		case !known || won || !cloned[taskID{t.Job, t.Stage, t.Task}]:
		case t.Outputs == 0:
			c.Bytes.Read += f.Size
		default:
			c.Bytes.Fetched += f.Size
			if first, known := committed[flows.AttemptKey{Job: t.Job, Stage: t.FromStage, Task: t.FromTask, Attempt: t.FromAttempt}]; known && !first {
				c.Bytes.Further += f.Size
			}
		}
	}
	extra := func(k flows.AttemptKey) bool {
		won, known := committed[k]
		return known && !won && cloned[taskID{k.Job, k.Stage, k.Task}]
	}
	for _, w := range r.StoppedWrites {
		if extra(w.Attempt) {
			c.Bytes.Written += w.Sent
		}
	}
	for _, b := range r.Blocks {
		if extra(b.Attempt) {
			for _, h := range b.Hosts {
				if h != b.Client {
					c.Bytes.Written += b.Size
				}
			}
		}
	}
	c.Copies = copiesOf(r, class)
	return c
}

// extraChange is a change of the number of slots that attempts beyond the first of a task use.
type extraChange struct {
	at time.Duration
	by int
}

// eachExtra calls f for each period in which that number is n, in order, except 0.
func eachExtra(r *flows.Records, f func(from, to time.Duration, n int)) {
	var all []extraChange
	for _, task := range chunks(r.Attempts, sameTask) {
		var runs []extraChange
		for _, a := range task {
			runs = append(runs, extraChange{a.Start, 1}, extraChange{a.End, -1})
		}
		slices.SortStableFunc(runs, func(a, b extraChange) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
		n := 0
		for _, x := range runs {
			before := max(0, n-1)
			n += x.by
			if by := max(0, n-1) - before; by != 0 {
				all = append(all, extraChange{x.at, by})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b extraChange) int { return cmp.Compare(a.at, b.at) })
	n := 0
	for i, x := range all {
		if n += x.by; n > 0 && all[i+1].at > x.at {
			f(x.at, all[i+1].at, n)
		}
	}
}

// ExtraSlotsOf returns the average number of slots that attempts beyond the first of a task use, in intervals from 0 to the
// end of the last attempt.
func ExtraSlotsOf(r *flows.Records, interval time.Duration) []float64 {
	var end time.Duration
	for i := range r.Attempts {
		end = max(end, r.Attempts[i].End)
	}
	out := make([]float64, (end+interval-1)/interval)
	eachExtra(r, func(from, to time.Duration, n int) {
		addBytes(out, interval, from, to, float64(n)*(to-from).Seconds()/interval.Seconds())
	})
	return out
}

// copiesOf returns the figures of fetches of one repeat, by class of the job.
func copiesOf(r *flows.Records, class map[workloads.JobID]int) (all [jobs.SizeClasses]Copies) {
	first := map[taskID]time.Duration{} // end of the first complete copy
	attempts := map[flows.AttemptKey]*flows.AttemptRecord{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		attempts[a.Key()] = a
		id := taskID{a.Job, a.Stage, a.Task}
		if end, ok := first[id]; (a.Outcome == flows.Committed || a.Outcome == flows.Copied) && (!ok || a.End < end) {
			first[id] = a.End
		}
	}
	type fetch struct {
		*flows.FlowRecord
		whole bool
	}
	fetchers := map[taskID]map[int][]fetch{} // by attempt
	add := func(list []flows.FlowRecord, whole bool) {
		for i := range list {
			f := &list[i]
			if t := f.Task; t != nil && t.Outputs > 0 {
				id := taskID{t.Job, t.Stage, t.Task}
				if fetchers[id] == nil {
					fetchers[id] = map[int][]fetch{}
				}
				fetchers[id][t.Attempt] = append(fetchers[id][t.Attempt], fetch{f, whole})
			}
		}
	}
	add(r.Flows, true)
	add(r.Stopped, false)
	for id, by := range fetchers {
		if len(by) < 2 {
			continue
		}
		c := &all[class[id.job]]
		sources := map[[3]int][]fetch{} // by copy
		for _, list := range by {
			for _, f := range list {
				k := [3]int{f.Task.FromStage, f.Task.FromTask, f.Task.FromAttempt}
				sources[k] = append(sources[k], f)
			}
		}
		for _, list := range sources {
			for _, f := range list {
				if !f.whole {
					continue
				}
				to := &c.Alone
				if slices.ContainsFunc(list, func(o fetch) bool {
					return o.Task.Attempt != f.Task.Attempt && o.Start < f.End && f.Start < o.End
				}) {
					to = &c.Shared
				}
				to.add(Fetches{1, f.Size, f.End - f.Start})
			}
		}
		for n, list := range by {
			a := attempts[flows.AttemptKey{Job: id.job, Stage: id.stage, Task: id.task, Attempt: n}]
			if a == nil {
				continue
			}
			var changes []extraChange // of fetches that are due, and by a large number of those that run
			const runs = 1 << 32
			for _, f := range list {
				if ready, ok := first[taskID{id.job, f.Task.FromStage, f.Task.FromTask}]; ok {
					if ready = max(ready, a.Start); ready < f.Start {
						changes = append(changes, extraChange{ready, 1}, extraChange{f.Start, -1})
					}
				}
				changes = append(changes, extraChange{f.Start, runs}, extraChange{f.End, -runs})
			}
			slices.SortFunc(changes, func(a, b extraChange) int { return cmp.Compare(a.at, b.at) })
			due := 0
			for i, x := range changes {
				if due += x.by; 0 < due && due < runs {
					c.Waited += changes[i+1].at - x.at
				}
			}
			c.Attempts++
		}
	}
	return all
}
