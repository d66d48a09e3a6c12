package flows

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/hosts/wire"
	"testbed/workloads"
)

// at returns a moment of an attempt of task 0 of job 1.
func at(m wire.Moment, s int, attempt int, change func(*TaskMoment)) TaskMoment {
	out := TaskMoment{Moment: m, At: time.Duration(s) * time.Second, Job: 1, Attempt: attempt, Host: "h0-00", Kind: MapTask, Locality: OffRack, Size: 100}
	if change != nil {
		change(&out)
	}
	return out
}

func because(why string) func(*TaskMoment) { return func(m *TaskMoment) { m.Why = why } }

// Attempts have the times of their moments, the locality of their last read and the lowest free slot.
func TestAddTasks(t *testing.T) {
	second := func(m *TaskMoment) { m.Task = 1 }
	reduce := func(m *TaskMoment) { m.Stage, m.Kind, m.Locality, m.Size = 1, ReduceTask, "", 0 }
	var r Records
	r.AddTasks([]TaskMoment{
		at(wire.JobSubmitted, 1, 0, func(m *TaskMoment) { m.Tasks, m.User, m.Profile = 3, "ann", "sort" }),
		at(wire.AttemptStarted, 2, 0, nil), at(wire.AttemptStarted, 3, 0, second),
		at(wire.AttemptKilled, 4, 0, because("slot")),
		at(wire.AttemptStarted, 4, 1, nil),
		at(wire.AttemptStarted, 4, 0, reduce),
		at(wire.InputComplete, 5, 1, func(m *TaskMoment) { m.Locality = NodeLocal }),
		at(wire.Computed, 6, 1, nil), at(wire.AttemptCommitted, 7, 1, nil),
		at(wire.AttemptFailed, 8, 0, func(m *TaskMoment) { second(m); m.Why = "disk" }),
		at(wire.InputComplete, 8, 0, func(m *TaskMoment) { reduce(m); m.Size = 40 }),
		at(wire.ComputeStarted, 9, 0, reduce), at(wire.Computed, 10, 0, reduce), at(wire.AttemptCommitted, 11, 0, reduce),
		at(wire.JobDone, 12, 0, nil),
	})
	s := time.Second
	want := Records{
		Jobs: []JobRecord{{Job: 1, Arrival: s, End: 12 * s, User: "ann", Profile: "sort", Tasks: 3, Input: 100}},
		Attempts: []AttemptRecord{
			{Job: 1, Kind: MapTask, Host: "h0-00", Locality: OffRack, Input: 100, Start: 2 * s, Compute: 2 * s, End: 4 * s, Outcome: Killed, Why: "slot"},
			{Job: 1, Attempt: 1, Kind: MapTask, Host: "h0-00", Locality: NodeLocal, Input: 100, Start: 4 * s, InputEnd: 5 * s, Compute: 4 * s, Computed: 6 * s, End: 7 * s, Outcome: Committed},
			{Job: 1, Task: 1, Kind: MapTask, Host: "h0-00", Slot: 1, Locality: OffRack, Input: 100, Start: 3 * s, Compute: 3 * s, End: 8 * s, Outcome: Failed, Why: "disk"},
			{Job: 1, Stage: 1, Kind: ReduceTask, Host: "h0-00", Input: 40, Start: 4 * s, InputEnd: 8 * s, Compute: 9 * s, Computed: 10 * s, End: 11 * s, Outcome: Committed},
		},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
}

// An attempt that ends after another one has committed is a copy. An output is fetched once into an attempt, from either.
func TestCopiedAttempts(t *testing.T) {
	fetch := func(flow, attempt, from, outputs int) FlowRecord {
		return FlowRecord{Flow: workloads.FlowID(flow), Task: &TaskTransfer{Job: 1, Stage: 1, Attempt: attempt, FromAttempt: from, Outputs: outputs}}
	}
	run := func(fetches ...FlowRecord) Records {
		r := Records{Flows: fetches}
		r.AddTasks([]TaskMoment{at(wire.JobSubmitted, 1, 0, nil), at(wire.AttemptStarted, 2, 0, nil), at(wire.AttemptStarted, 2, 1, nil),
			at(wire.InputComplete, 3, 0, nil), at(wire.Computed, 3, 0, nil), at(wire.AttemptCommitted, 4, 0, nil),
			at(wire.InputComplete, 5, 1, nil), at(wire.Computed, 5, 1, nil), at(wire.AttemptCopied, 6, 1, nil), at(wire.JobDone, 7, 0, nil)})
		return r
	}
	r := run(fetch(7, 0, 0, 1), fetch(8, 1, 1, 1), FlowRecord{Flow: 9, Task: &TaskTransfer{Job: 1}}, FlowRecord{Flow: 10, Task: &TaskTransfer{Job: 1}}, FlowRecord{Flow: 11})
	if len(r.Problems) > 0 || len(r.Attempts) != 2 || r.Attempts[0].Outcome != Committed || r.Attempts[1].Outcome != Copied || r.Attempts[1].End != 6*time.Second {
		t.Errorf("attempts %+v, problems %q", r.Attempts, r.Problems)
	}
	r = run(fetch(7, 0, 0, 1), fetch(9, 0, 1, 1))
	if want := "attempt 0 of task 0 of stage 1 of job 1 fetched the output of task 0 of stage 0 twice, with flows 7 and 9"; len(r.Problems) != 1 || r.Problems[0] != want {
		t.Errorf("problems %q, want %q", r.Problems, want)
	}
}

// Moments that do not fit together are problems, and what they are about has no record.
func TestAddTasksProblems(t *testing.T) {
	var r Records
	r.AddTasks([]TaskMoment{
		at(wire.AttemptCommitted, 1, 0, nil),
		at(wire.JobSubmitted, 1, 0, nil), at(wire.JobSubmitted, 2, 0, nil),
		at(wire.AttemptStarted, 2, 1, nil), at(wire.AttemptKilled, 3, 1, nil), at(wire.AttemptCommitted, 4, 1, nil),
		at(wire.AttemptStarted, 4, 2, nil),
	})
	want := []string{
		"attempt 0 of task 0 of stage 0 of job 1: committed at 1s, but its beginning is not marked",
		"attempt 1 of task 0 of stage 0 of job 1: committed at 4s, after its end",
		"attempt 2 of task 0 of stage 0 of job 1 has no end",
		"job 1 has no end",
		"job 1: submitted twice: the first counts",
	}
	if d := cmp.Diff(want, r.Problems); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	if len(r.Jobs) != 0 || len(r.Attempts) != 1 {
		t.Errorf("%d jobs and %d attempts: want 0 and the killed attempt", len(r.Jobs), len(r.Attempts))
	}
}

// A failed job has no record, but a failure.
func TestAddTasksFailedJob(t *testing.T) {
	var r Records
	r.AddTasks([]TaskMoment{at(wire.JobSubmitted, 1, 0, nil), at(wire.JobFailed, 3, 0, because("disk"))})
	if d := cmp.Diff(Records{Failed: []Failure{{Kind: FailedJob, Job: 1, Host: "h0-00", At: 3 * time.Second, Why: "disk"}}}, r); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
}
