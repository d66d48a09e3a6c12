package rundir

import (
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/schema"
	"testbed/topo/words"
)

// attempts checks the rows of attempts.csv: each is unique, its phases are in order, and its slot is
// not in use by another one.
func (r *Run) attempts() func(*schema.Attempt) error {
	type id struct {
		arm                              string
		repeat, job, stage, task, number int
	}
	type slot struct {
		arm    string
		repeat int
		host   string
		kind   string
		number int
	}
	seen, used := map[id]bool{}, map[slot][]*schema.Attempt{}
	return func(a *schema.Attempt) error {
		if err := r.known(a.Key); err != nil {
			return err
		}
		name := attemptName(int(a.Job), a.Stage, a.Task, a.Attempt)
		switch k := (id{a.Arm, a.Repeat, int(a.Job), a.Stage, a.Task, a.Attempt}); {
		case seen[k]:
			return fmt.Errorf("%s of arm %s, repeat %d, is duplicated", name, a.Arm, a.Repeat)
		case !slices.Contains(metrics.TaskKinds(), a.Kind):
			return fmt.Errorf("kind %q: must be %s or %s", a.Kind, flows.MapTask, flows.ReduceTask)
		case a.Locality != "" && !slices.Contains([]string{flows.NodeLocal, flows.RackLocal, flows.OffRack}, a.Locality):
			return fmt.Errorf("locality %q: must be empty, %s, %s or %s", a.Locality, flows.NodeLocal, flows.RackLocal, flows.OffRack)
		case !slices.Contains(flows.Outcomes(), a.Outcome):
			return fmt.Errorf("outcome %q: must be %s", a.Outcome, words.Or(flows.Outcomes()))
		case a.End-a.Start != a.Time:
			return fmt.Errorf("%s takes %v, but goes from %v to %v", name, a.Time, a.Start, a.End)
		default:
			seen[k] = true
		}
		for _, t := range []*time.Duration{a.InputEnd, a.Compute, a.Computed} {
			if t != nil && (*t < a.Start || *t > a.End) {
				return fmt.Errorf("%s goes from %v to %v, but reaches a phase at %v", name, a.Start, a.End, *t)
			}
		}
		if a.Start == a.End {
			return nil
		}
		kept, s := *a, slot{a.Arm, a.Repeat, a.Host, a.Kind, a.Slot}
		at, _ := slices.BinarySearchFunc(used[s], a.Start, func(x *schema.Attempt, t time.Duration) int { return int(min(1, max(-1, x.Start-t))) })
		for _, k := range []int{at - 1, at} {
			if k < 0 || k >= len(used[s]) {
				continue
			}
			if x := used[s][k]; x.Start < a.End && a.Start < x.End {
				return fmt.Errorf("%s is in %s slot %d of %s from %v to %v, but so is an attempt of job %d from %v to %v", name, a.Kind, a.Slot, a.Host, a.Start, a.End, x.Job, x.Start, x.End)
			}
		}
		used[s] = slices.Insert(used[s], at, &kept)
		return nil
	}
}

// partsOfJobs checks that the parts of the time of each job in jobs.csv are those that its attempts
// have.
func (r *Run) partsOfJobs() error {
	type id struct {
		arm         string
		repeat, job int
	}
	attempts := map[id][]flows.AttemptRecord{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		k := id{a.Arm, a.Repeat, int(a.Job)}
		attempts[k] = append(attempts[k], a.Record())
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		has := j.Parts()
		of := attempts[id{j.Arm, j.Repeat, int(j.Job)}]
		if of == nil && j.Waiting == nil {
			continue
		}
		for k, part := range metrics.JobPartsOf(flows.JobRecord{Arrival: j.Arrival, End: j.End}, of) {
			if has[k] == nil || *has[k] != part {
				return r.damaged(report.JobsFile, 0, fmt.Sprintf("the parts of the time of job %d of arm %s, repeat %d, are not those of its attempts in %s", j.Job, j.Arm, j.Repeat, report.AttemptsFile))
			}
		}
	}
	return nil
}

// countedTasks checks that attempts.csv and jobs.csv give the counts, the wasted time and the locality
// of the summary of an arm.
func (r *Run) countedTasks(a *report.ArmSummary) error {
	if a.Tasks == nil {
		return nil
	}
	var n report.AttemptCount
	var l metrics.Locality
	var wasted time.Duration
	attempts := map[int][]flows.AttemptRecord{} // by repeat
	for i := range r.Attempts {
		x := &r.Attempts[i]
		if x.Arm != a.Name {
			continue
		}
		n.Started++
		attempts[x.Repeat] = append(attempts[x.Repeat], x.Record())
		switch x.Outcome {
		case flows.Committed:
			n.Committed++
			l.Count(x.Locality)
			continue
		case flows.Copied:
			n.Copied++
		case flows.Killed:
			n.Killed++
		default:
			n.Failed++
		}
		wasted += x.Time
	}
	differs := func(name, what string, got, want any) error {
		return r.damaged(name, 0, fmt.Sprintf("it has %v %s of arm %s, but %s has %v: the files are from different reports, or one was cut short", got, what, a.Name, report.SummaryFile, want))
	}
	for k, of := range attempts {
		if name := copyWithoutCommit(of); name != "" {
			return r.damaged(report.AttemptsFile, 0, fmt.Sprintf("%s of arm %s, repeat %d, copied, but no attempt of its task had committed", name, a.Name, k))
		}
	}
	if n != a.Tasks.Attempts {
		return differs(report.AttemptsFile, "attempts (started, committed, copied, killed, failed)", n, a.Tasks.Attempts)
	}
	if got := metrics.Round6(float64(wasted) / float64(time.Microsecond) / float64(r.repeatsWithTasks(a.Name))); got != a.Tasks.WastedUS {
		return differs(report.AttemptsFile, "µs of wasted slot time in a repeat", got, a.Tasks.WastedUS)
	}
	if s := a.Tasks.Locality; s != nil && (s.N != l.Total() || s.Node != metrics.Round6(float64(l.Node)/float64(max(1, l.Total())))) || s == nil && l.Total() > 0 {
		return differs(report.AttemptsFile, "committed attempts that read blocks", l, s)
	}
	var clones metrics.Clones
	var straggling metrics.Straggling
	for _, of := range attempts {
		clones.Add(metrics.ClonesOf(&flows.Records{Attempts: of}))
		straggling.Add(metrics.StragglingOf(of))
	}
	var b report.BackupSummary
	if a.Tasks.Backups != nil {
		b = *a.Tasks.Backups
	}
	extra := metrics.Round6(float64(clones.Extra) / float64(time.Microsecond) / float64(r.repeatsWithTasks(a.Name)))
	if got, want := [3]int{clones.Tasks, clones.Started, clones.Won}, [3]int{b.Tasks, b.Started, b.Won}; got != want || extra != b.ExtraUS {
		return differs(report.AttemptsFile, "clones and backups (tasks, started, won; extra slot time in µs)", fmt.Sprint(got, extra), fmt.Sprint(want, b.ExtraUS))
	}
	if s := a.Tasks.Straggling; s != nil && (s.Judged != straggling.Judged || s.Slow != straggling.Slow) {
		return differs(report.AttemptsFile, "attempts with known progress rate (judged, slow, unknown)", straggling, *s)
	}
	jobs := 0
	for i := range r.Jobs {
		if r.Jobs[i].Arm == a.Name && r.Jobs[i].Tasks != nil {
			jobs++
		}
	}
	if jobs != a.Tasks.Jobs {
		return differs(report.JobsFile, "jobs of tasks", jobs, a.Tasks.Jobs)
	}
	return nil
}

// copyWithoutCommit returns an attempt that copied before any attempt of its task committed; "" if there is none.
func copyWithoutCommit(attempts []flows.AttemptRecord) string {
	type task struct{ job, stage, task int }
	committed := map[task]time.Duration{}
	for _, a := range attempts {
		k := task{int(a.Job), a.Stage, a.Task}
		if end, ok := committed[k]; a.Outcome == flows.Committed && (!ok || a.End < end) {
			committed[k] = a.End
		}
	}
	for _, a := range attempts {
		if end, ok := committed[task{int(a.Job), a.Stage, a.Task}]; a.Outcome == flows.Copied && (!ok || a.End < end) {
			return attemptName(int(a.Job), a.Stage, a.Task, a.Attempt)
		}
	}
	return ""
}

func attemptName(job, stage, task, attempt int) string {
	return fmt.Sprintf("attempt %d of task %d of stage %d of job %d", attempt, task, stage, job)
}

// repeatsWithTasks returns the number of repeats of an arm that have attempts, at least 1.
func (r *Run) repeatsWithTasks(arm string) int {
	seen := map[int]bool{}
	for i := range r.Attempts {
		if r.Attempts[i].Arm == arm {
			seen[r.Attempts[i].Repeat] = true
		}
	}
	return max(1, len(seen))
}
