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

// CheckTasks checks the contract at a number of heartbeats of a cluster. Between two identical
// calls, the policy is called for the other cluster, to detect a state that it keeps.
func CheckTasks(s policies.TaskScheduler, c, other *TaskCluster, heartbeats int) error {
	if err := checkSlots(s, c.Slots); err != nil {
		return err
	}
	if err := checkSlots(s, other.Slots); err != nil {
		return err
	}
	c.Use(s)
	other.Use(s)
	needs := s.Needs()
	for n := range heartbeats {
		a, err := checkHeartbeat(s, c, other, needs)
		if f, ok := s.(policies.Fetcher); ok && err == nil {
			err = checkFetcher(f, c, other, uint64(n))
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
func checkHeartbeat(s policies.TaskScheduler, c, other *TaskCluster, needs policies.Needs) (*policies.Assignment, error) {
	shown := c.View(needs)
	before := c.View(needs)
	var answer policies.Assignment
	s.Assign(shown, &answer)
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("method Assign modified the View")
	}
	if err := CheckAssignment(shown, &answer); err != nil {
		return nil, err
	}
	first := copyOfAssignment(&answer)
	scribbleAssignment(&answer) // the caller owns it
	if !reflect.DeepEqual(shown, before) {
		return nil, errors.New("the assignment shares memory with the View: it must be a copy")
	}
	overwriteTasks(shown)
	repeat := func(problem string, v *policies.TaskView) error {
		answer.Reset()
		defer overwriteTasks(v)
		s.Assign(v, &answer)
		if got := copyOfAssignment(&answer); !reflect.DeepEqual(got, first) {
			return fmt.Errorf("%s: %s, before %s", problem, describeAssignment(got), describeAssignment(first))
		}
		return nil
	}
	if err := repeat("two identical calls of Assign return different assignments", c.View(needs)); err != nil {
		return nil, err
	}
	elsewhere := other.View(needs)
	var ignored policies.Assignment
	s.Assign(elsewhere, &ignored)
	overwriteTasks(elsewhere)
	if err := repeat("Assign depends on an earlier View", c.View(needs)); err != nil {
		return nil, err
	}
	all := policies.Needs{Sizes: true, Totals: true, LinkLoad: true, DiskUse: true, OracleLoad: true, Shuffle: true, OracleRatio: true, TaskProgress: true, History: true}
	if err := repeat("Assign depends on facts that Needs does not declare", c.View(all)); err != nil {
		return nil, err
	}
	// Memory may hold IDs or names.
	if len(before.Memory) == 0 && !slices.ContainsFunc(before.Jobs, func(j policies.TaskJob) bool { return j.Memory != [3]int64{} }) {
		if err := checkRenamed(s, c.View(needs), first); err != nil {
			return nil, err
		}
	}
	empty := c.View(needs)
	empty.Jobs = nil
	empty.Count()
	answer.Reset()
	s.Assign(empty, &answer)
	if err := CheckAssignment(empty, &answer); err != nil {
		return nil, fmt.Errorf("without jobs: %w", err)
	}
	return first, nil
}

// checkRenamed checks that decisions depend on the order of IDs, not on their values. It
// overwrites v.
func checkRenamed(s policies.TaskScheduler, v *policies.TaskView, want *policies.Assignment) error {
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
	var answer policies.Assignment
	s.Assign(v, &answer)
	got := copyOfAssignment(&answer)
	renamed := copyOfAssignment(want)
	for i := range renamed.Kill {
		renamed.Kill[i] = newID(renamed.Kill[i])
	}
	for i := range renamed.Backup {
		renamed.Backup[i] = newID(jobs.AttemptID{Task: renamed.Backup[i]}).Task
	}
	if !reflect.DeepEqual(got.Launch, renamed.Launch) || !reflect.DeepEqual(got.Backup, renamed.Backup) || !reflect.DeepEqual(got.Kill, renamed.Kill) {
		return fmt.Errorf("method Assign depends on the values of IDs, not only on their order: %s, before %s", describeAssignment(got), describeAssignment(renamed))
	}
	return nil
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
	seen := make([]bool, len(v.Jobs))
	for _, m := range a.Jobs {
		if m.Job < 0 || m.Job >= len(seen) || seen[m.Job] {
			return fmt.Errorf("memory of job index %d of %d: must be in range and occur once", m.Job, len(seen))
		}
		seen[m.Job] = true
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

// copyOfAssignment returns a deep copy without scratch memory. Empty slices except Memory become
// nil.
func copyOfAssignment(a *policies.Assignment) *policies.Assignment {
	return &policies.Assignment{Launch: cloned(a.Launch), Backup: cloned(a.Backup), Kill: cloned(a.Kill), Jobs: cloned(a.Jobs), Memory: slices.Clone(a.Memory)}
}

// scribbleAssignment overwrites a policy's assignment.
func scribbleAssignment(a *policies.Assignment) {
	fill(a.Launch, policies.Launch{Job: -1})
	fill(a.Backup, jobs.TaskID{Index: -1})
	fill(a.Kill, jobs.AttemptID{N: -1})
	fill(a.Jobs, policies.JobMemory{Job: -1})
	fill(a.Memory, -1)
}

func describeAssignment(a *policies.Assignment) string {
	return fmt.Sprintf("launches %+v, backups %+v, kills %+v, memory of jobs %v, memory %v", a.Launch, a.Backup, a.Kill, a.Jobs, a.Memory)
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
	clear(v.Memory)
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
