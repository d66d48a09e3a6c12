package policytest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// Tasks fails t if the policy breaks the contract of policies.TaskScheduler at any of the first decisions of several random
// clusters.
func Tasks(t rapid.TB, s policies.TaskScheduler) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		c, other := TaskClusters().Draw(t, "cluster"), TaskClusters().Draw(t, "other cluster")
		if err := CheckTasks(s, c, other, rapid.IntRange(1, 20).Draw(t, "decisions")); err != nil {
			t.Fatalf("%T: %v", s, err)
		}
	})
}

// instances are instances of one policy. The tracker of a cluster carries out the decisions of first. All but elsewhere see
// the heartbeats of this cluster: twin those of first, but its Views stay as they were; informed also what Needs does not
// declare; renamed other IDs. The instance elsewhere is that of another cluster, which continues between the others, to detect
// state that they share.
type instances struct {
	first, elsewhere, twin, informed, renamed policies.TaskInstance

	needs policies.Facts
	seen  *policies.TaskView   // of the newest decision, with all facts; nil if it was compared
	taken *policies.Assignment // the decision
	err   error                // the first problem of a method that the tracker has called
}

// driven is a policy with other needs and an instance that exists.
type driven struct {
	policies.TaskScheduler
	needs    policies.Facts
	instance policies.TaskInstance
}

func (s driven) Needs() policies.Facts      { return s.needs }
func (s driven) New() policies.TaskInstance { return s.instance }

// assign is an instance that calls a function.
type assign func(*policies.TaskView, *policies.Assignment)

func (f assign) Assign(v *policies.TaskView, a *policies.Assignment) { f(v, a) }

// CheckTasks checks the contract at a number of decisions of a cluster, or until its jobs have ended.
func CheckTasks(s policies.TaskScheduler, c, other *TaskCluster, decisions int) error {
	if err := errors.Join(checkSlots(s, c.Slots), checkSlots(s, other.Slots)); err != nil {
		return err
	}
	needs := s.Needs()
	all := needs | everything&^policies.EveryHeartbeat
	x := &instances{first: s.New(), elsewhere: s.New(), twin: s.New(), informed: s.New(), renamed: s.New(), needs: needs}
	var drives policies.TaskInstance = x
	if f, ok := x.first.(policies.Fetcher); ok {
		drives = &fetching{instances: x, first: f, elsewhere: x.elsewhere.(policies.Fetcher), twin: x.twin.(policies.Fetcher)}
	}
	elsewhere := assign(func(v *policies.TaskView, a *policies.Assignment) {
		shown := MaskTasks(v, needs)
		x.elsewhere.Assign(shown, a)
		overwriteTasks(shown)
	})
	if err := errors.Join(c.start(driven{s, all, drives}), other.start(driven{s, needs, elsewhere})); err != nil {
		return err
	}
	made := 0
	for range 20 * decisions { // heartbeats, at some of which nothing is asked
		if made == decisions || c.Unfinished() == 0 {
			break
		}
		err := c.next()
		if err = cmp.Or(x.err, err); err == nil && x.seen != nil {
			err = x.compare(other)
			made++
		}
		if err != nil {
			return fmt.Errorf("decision %d: %w", made+1, err)
		}
		if s.Needs() != needs {
			return fmt.Errorf("decision %d: method Needs returned %v, before %v", made, s.Needs(), needs)
		}
	}
	return nil
}

// checkSlots checks the limits of a host.
func checkSlots(s policies.TaskScheduler, n [jobs.TaskKinds]int) error {
	l := s.Slots(n)
	if again := s.Slots(n); again != l {
		return fmt.Errorf("two identical calls of Slots return %+v and %+v", l, again)
	}
	for k := range n {
		if run, compute := l.Running[k], l.Computing[k]; compute < min(n[k], 1) || compute > run {
			return fmt.Errorf("limits %+v of a host with slots %v: Computing must be from 1, or 0 without slots, to Running", l, n)
		}
	}
	return nil
}

// Assign lets the first instance decide.
func (x *instances) Assign(v *policies.TaskView, a *policies.Assignment) {
	x.seen = cloneTasks(v)
	shown, before := MaskTasks(v, x.needs), MaskTasks(v, x.needs)
	var answer policies.Assignment
	x.first.Assign(shown, &answer)
	if !reflect.DeepEqual(shown, before) {
		x.fail(errors.New("method Assign modified the View"))
	}
	x.fail(answer.Err)
	x.taken = copyOfAssignment(&answer)
	scribbleAssignment(&answer) // the caller owns it
	overwriteTasks(shown)
	a.Launch, a.Backup, a.Kill, a.Err = cloned(x.taken.Launch), cloned(x.taken.Backup), cloned(x.taken.Kill), x.err
}

// fail notes the first problem.
func (x *instances) fail(err error) { x.err = cmp.Or(x.err, err) }

// compare checks the newest decision, which the tracker has accepted, and lets the other instances decide.
func (x *instances) compare(other *TaskCluster) error {
	seen := x.seen
	x.seen = nil
	if err := checkAssignment(seen, x.taken); err != nil {
		return err
	}
	if err := other.next(); err != nil {
		return err
	}
	repeat := func(problem string, x policies.TaskInstance, v *policies.TaskView, want *policies.Assignment) error {
		var answer policies.Assignment
		x.Assign(v, &answer)
		if got := copyOfAssignment(&answer); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: %s, before %s", problem, describeAssignment(got), describeAssignment(want))
		}
		return nil
	}
	err := repeat("two instances with the same Views return different assignments", x.twin, MaskTasks(seen, x.needs), x.taken)
	if err != nil {
		return err
	}
	if err := repeat("Assign depends on facts that Needs does not declare", x.informed, cloneTasks(seen), x.taken); err != nil {
		return err
	}
	v, want := renamed(MaskTasks(seen, x.needs), x.taken)
	return repeat("Assign depends on the values of IDs, not only on their order", x.renamed, v, want)
}

// renamed overwrites a View and returns it with other IDs in the same order, and a copy of the decision for it.
func renamed(v *policies.TaskView, a *policies.Assignment) (*policies.TaskView, *policies.Assignment) {
	newID := func(id jobs.AttemptID) jobs.AttemptID {
		id.Task.Job = 3*id.Task.Job + 5
		return id
	}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		j.ID = 3*j.ID + 5
		for n := range j.Running {
			j.Running[n].ID = newID(j.Running[n].ID)
		}
	}
	a = copyOfAssignment(a)
	for i := range a.Kill {
		a.Kill[i] = newID(a.Kill[i])
	}
	for i := range a.Backup {
		a.Backup[i] = newID(jobs.AttemptID{Task: a.Backup[i]}).Task
	}
	return v, a
}

// checkAssignment rejects assignments for a View that the tracker accepts: launches that exceed the resources of the host, and
// kills of attempts that have ended, are being killed or are named twice.
func checkAssignment(v *policies.TaskView, a *policies.Assignment) error {
	const rounding = 1e-6 // of a sum of cores
	host := v.Slots[v.Host]
	need := host.Need
	fits := func(st *policies.StageState) bool {
		need.CPU += st.Need.CPU
		need.Memory += st.Need.Memory
		return (st.Need.CPU <= 0 || host.Capacity.CPU <= 0 || need.CPU <= host.Capacity.CPU*(1+rounding)) &&
			(st.Need.Memory <= 0 || host.Capacity.Memory <= 0 || need.Memory <= host.Capacity.Memory)
	}
	fit := true
	for _, l := range a.Launch {
		fit = fits(&v.Jobs[l.Job].Stages[l.Stage]) && fit
	}
	running := map[jobs.AttemptID]policies.AttemptState{}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		for _, x := range j.Running {
			running[x.ID] = x
		}
		for _, id := range a.Backup {
			fit = (id.Job != j.ID || fits(&j.Stages[id.Stage])) && fit
		}
	}
	if !fit {
		return fmt.Errorf("launches and backups need %+v of the host's %+v", need, host.Capacity)
	}
	for i, id := range a.Kill {
		x, runs := running[id]
		switch {
		case !runs:
			return fmt.Errorf("kill of %+v, which does not run", id)
		case x.Killing:
			return fmt.Errorf("kill of %+v, which is being killed", id)
		case slices.Contains(a.Kill[:i], id):
			return fmt.Errorf("two kills of %+v", id)
		}
	}
	return nil
}

// copyOfAssignment returns a deep copy without scratch memory. Empty slices become nil.
func copyOfAssignment(a *policies.Assignment) *policies.Assignment {
	return &policies.Assignment{Launch: cloned(a.Launch), Backup: cloned(a.Backup), Kill: cloned(a.Kill)}
}

// scribbleAssignment overwrites a policy's assignment.
func scribbleAssignment(a *policies.Assignment) {
	fill(a.Launch, policies.Launch{Job: -1})
	fill(a.Backup, jobs.TaskID{Index: -1})
	fill(a.Kill, jobs.AttemptID{N: -1})
}

func describeAssignment(a *policies.Assignment) string {
	return fmt.Sprintf("launches %+v, backups %+v, kills %+v", a.Launch, a.Backup, a.Kill)
}

// overwriteTasks clears a View after its use, as the next View would.
func overwriteTasks(v *policies.TaskView) {
	for i := range v.Jobs {
		j := &v.Jobs[i]
		clear(j.Stages)
		clear(j.Running)
		if j.Shuffle != nil {
			*j.Shuffle = policies.ShuffleState{}
		}
	}
	clear(v.Jobs)
	clear(v.Slots)
	clear(v.Counts)
	clear(v.Profiles)
	clear(v.EndedProfiles)
	if v.History != nil {
		*v.History = policies.History{}
	}
	overwriteCluster(v.Cluster)
	*v = policies.TaskView{Cluster: &policies.Cluster{}}
}
