package policytest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// Tasks fails t if the policy breaks the contract of policies.TaskScheduler at any of the first
// heartbeats of several random clusters.
func Tasks(t rapid.TB, s policies.TaskScheduler) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		c, other := TaskClusters().Draw(t, "cluster"), TaskClusters().Draw(t, "other cluster")
		if err := CheckTasks(s, c, other, rapid.IntRange(1, 20).Draw(t, "heartbeats")); err != nil {
			t.Fatalf("%T: %v", s, err)
		}
	})
}

// instances are instances of one policy. All but elsewhere see the heartbeats of the same cluster: twin those of first, but
// its Views stay as they were; informed also what Needs does not declare; renamed other IDs. The other cluster is that of
// elsewhere, which is called between the others, to detect state that they share.
type instances struct{ first, elsewhere, twin, informed, renamed policies.TaskInstance }

// CheckTasks checks the contract at a number of heartbeats of a cluster, and then without jobs.
func CheckTasks(s policies.TaskScheduler, c, other *TaskCluster, heartbeats int) error {
	if err := checkSlots(s, c.Slots); err != nil {
		return err
	}
	if err := checkSlots(s, other.Slots); err != nil {
		return err
	}
	needs := s.Needs()
	x := instances{c.Use(s), other.Use(s), s.New(), s.New(), s.New()}
	for n := range heartbeats {
		a, err := x.checkHeartbeat(c, other, needs)
		if err == nil {
			err = x.checkFetcher(c, other, uint64(n))
		}
		if err != nil {
			return fmt.Errorf("heartbeat %d: %w", n+1, err)
		}
		if s.Needs() != needs {
			return fmt.Errorf("heartbeat %d: method Needs returned %+v, before %+v", n+1, s.Needs(), needs)
		}
		c.Take(a)
		c.Next()
	}
	empty := c.View(needs)
	empty.Jobs = nil
	empty.Count()
	var answer policies.Assignment
	x.first.Assign(empty, &answer)
	if err := CheckAssignment(empty, &answer); err != nil {
		return fmt.Errorf("without jobs: %w", err)
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

// checkHeartbeat checks the contract at the current heartbeat and returns the decision.
func (x *instances) checkHeartbeat(c, other *TaskCluster, needs policies.Needs) (*policies.Assignment, error) {
	shown, before := c.View(needs), c.View(needs)
	var answer policies.Assignment
	x.first.Assign(shown, &answer)
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("method Assign modified the View")
	}
	if err := CheckAssignment(shown, &answer); err != nil {
		return nil, err
	}
	first := copyOfAssignment(&answer)
	scribbleAssignment(&answer) // the caller owns it
	overwriteTasks(shown)
	elsewhere := other.View(needs)
	var ignored policies.Assignment
	x.elsewhere.Assign(elsewhere, &ignored)
	overwriteTasks(elsewhere)
	repeat := func(problem string, x policies.TaskInstance, v *policies.TaskView, want *policies.Assignment) error {
		var answer policies.Assignment
		x.Assign(v, &answer)
		if got := copyOfAssignment(&answer); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s: %s, before %s", problem, describeAssignment(got), describeAssignment(want))
		}
		return nil
	}
	err := repeat("two instances with the same Views return different assignments", x.twin, c.View(needs), first)
	if err != nil {
		return nil, err
	}
	all := policies.Needs{Sizes: true, Totals: true, LinkLoad: true, DiskUse: true, OracleLoad: true, Shuffle: true, OracleRatio: true, TaskProgress: true, History: true}
	if err := repeat("Assign depends on facts that Needs does not declare", x.informed, c.View(all), first); err != nil {
		return nil, err
	}
	v, want := renamed(c.View(needs), first)
	return first, repeat("Assign depends on the values of IDs, not only on their order", x.renamed, v, want)
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

// The part of a host's cores that sums of cores may exceed it by.
const coresRounding = 1e-6

// CheckAssignment rejects assignments that are invalid for a View.
func CheckAssignment(v *policies.TaskView, a *policies.Assignment) error {
	host := v.Slots[v.Host]
	used := host.Used
	need := host.Need
	if len(a.Launch) > 0 && host.Lost {
		return fmt.Errorf("launches on host %d, which is lost", v.Host)
	}
	take := func(st *policies.StageState) error {
		if used[st.Kind]++; used[st.Kind] > host.Total[st.Kind] {
			return fmt.Errorf("launches and backups exceed the slots of kind %d: %d of %d in use before", st.Kind, host.Used[st.Kind], host.Total[st.Kind])
		}
		need.CPU += st.Need.CPU
		need.Memory += st.Need.Memory
		if has := host.Capacity; st.Need.CPU > 0 && has.CPU > 0 && need.CPU > has.CPU*(1+coresRounding) || st.Need.Memory > 0 && has.Memory > 0 && need.Memory > has.Memory {
			return fmt.Errorf("launches and backups need %+v of the host's %+v", need, has)
		}
		return nil
	}
	launched := map[policies.Launch]int{}
	for _, l := range a.Launch {
		if l.Job < 0 || l.Job >= len(v.Jobs) {
			return fmt.Errorf("launch of job index %d of %d", l.Job, len(v.Jobs))
		}
		j := &v.Jobs[l.Job]
		if l.Stage < 0 || l.Stage >= len(j.Stages) {
			return fmt.Errorf("launch of stage %d of job %d, which has %d", l.Stage, j.ID, len(j.Stages))
		}
		if l.Locality < 0 || l.Locality >= policies.Localities {
			return fmt.Errorf("launch of unknown locality %d", l.Locality)
		}
		st := &j.Stages[l.Stage]
		if launched[l]++; launched[l] > st.Pending[l.Locality] {
			return fmt.Errorf("%d launches of stage %d of job %d at distance %d: only %d pending", launched[l], l.Stage, j.ID, l.Locality, st.Pending[l.Locality])
		}
		if err := take(st); err != nil {
			return err
		}
	}
	for i, id := range a.Backup {
		st, attempts := taskOf(v, id)
		switch {
		case !slices.ContainsFunc(attempts, func(x policies.AttemptState) bool { return !x.Killing && !x.Spare }):
			return fmt.Errorf("backup of %+v, which has no attempt, or is done", id)
		case slices.ContainsFunc(attempts, func(x policies.AttemptState) bool { return x.Host == v.Host }) || slices.Contains(a.Backup[:i], id):
			return fmt.Errorf("backup of %+v on host %d, which has an attempt of it", id, v.Host)
		case host.Lost:
			return fmt.Errorf("backup on host %d, which is lost", v.Host)
		}
		if err := take(st); err != nil {
			return err
		}
	}
	for i, id := range a.Kill {
		var found *policies.AttemptState
		for n := range v.Jobs {
			for m := range v.Jobs[n].Running {
				if x := &v.Jobs[n].Running[m]; x.ID == id {
					found = x
				}
			}
		}
		switch {
		case found == nil:
			return fmt.Errorf("kill of %+v, which does not run", id)
		case found.Killing:
			return fmt.Errorf("kill of %+v, which is being killed", id)
		case slices.Contains(a.Kill[:i], id):
			return fmt.Errorf("two kills of %+v", id)
		}
	}
	return nil
}

// taskOf returns the stage of a task and its attempts.
func taskOf(v *policies.TaskView, id jobs.TaskID) (*policies.StageState, []policies.AttemptState) {
	for n := range v.Jobs {
		j := &v.Jobs[n]
		if j.ID != id.Job || id.Stage < 0 || id.Stage >= len(j.Stages) {
			continue
		}
		var attempts []policies.AttemptState
		for _, x := range j.Running {
			if x.ID.Task == id {
				attempts = append(attempts, x)
			}
		}
		return &j.Stages[id.Stage], attempts
	}
	return nil, nil
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
		clear(v.Jobs[i].Stages)
		clear(v.Jobs[i].Running)
	}
	clear(v.Jobs)
	clear(v.Slots)
	clear(v.Counts)
	if v.History != nil {
		for i := range v.History.Copies {
			clear(v.History.Copies[i].Lags)
			clear(v.History.Copies[i].Computing)
		}
		*v.History = policies.History{}
	}
	overwriteCluster(v.Cluster)
	*v = policies.TaskView{Cluster: &policies.Cluster{}}
}
