package flows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Consumed is the end of a read of an input block: its attempt has consumed the last byte.
type Consumed struct {
	Job                  workloads.JobID
	Stage, Task, Attempt int
	Flow                 workloads.FlowID // that carried the block, or the number of a local read
	At                   time.Duration
	// Lag is the longest time from the last packet to At: the attempt consumes meanwhile what its host
	// holds. It is 0 for a local read.
	Lag time.Duration
}

// moment is a mark of a task.
type moment struct {
	mark
	time int64 // Unix ns
}

// taskName describes the subject of a mark of a task.
func taskName(t wire.Task) string { return taskMoment(t).name() }

var localities = [...]string{wire.NodeLocal: NodeLocal, wire.RackLocal: RackLocal, wire.OffRack: OffRack}

func taskMoment(t wire.Task) TaskMoment {
	m := TaskMoment{Moment: t.Moment, Job: workloads.JobID(t.Job), Stage: int(t.Stage), Task: int(t.Index), Attempt: int(t.Attempt), Kind: MapTask}
	if t.Reduce {
		m.Kind = ReduceTask
	}
	return m
}

// taskTransfer returns the task of a flow, or nil.
func taskTransfer(t wire.Task) *TaskTransfer {
	if t.Job == 0 {
		return nil
	}
	return &TaskTransfer{Job: workloads.JobID(t.Job), Stage: int(t.Stage), Task: int(t.Index), Attempt: int(t.Attempt),
		FromStage: int(t.FromStage), FromTask: int(t.FromIndex), FromAttempt: int(t.FromAttempt), Outputs: int(t.Outputs)}
}

// tasks builds the records of jobs of tasks and their attempts.
func (a *assembly) tasks() {
	for _, m := range a.consumed {
		t := m.Task
		a.Consumed = append(a.Consumed, Consumed{Job: workloads.JobID(t.Job), Stage: int(t.Stage), Task: int(t.Index), Attempt: int(t.Attempt),
			Flow: workloads.FlowID(m.Member), At: a.since(m.time), Lag: m.Lag()})
	}
	slices.SortStableFunc(a.Consumed, func(x, y Consumed) int { return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Flow, y.Flow)) })
	if len(a.moments) == 0 {
		return
	}
	slices.SortStableFunc(a.moments, func(x, y moment) int {
		return cmp.Or(cmp.Compare(x.time, y.time), cmp.Compare(x.Task.Moment, y.Task.Moment))
	})
	list := make([]TaskMoment, len(a.moments))
	for i, m := range a.moments {
		t := taskMoment(m.Task)
		t.At, t.Size, t.Tasks, t.Host = a.since(m.time), units.Bytes(m.Size), int(m.Parts), m.note.Host
		t.User, t.Profile, t.Why = m.note.User, m.note.Profile, m.note.Why
		if m.Read {
			t.Locality = localities[m.Task.Locality]
		}
		if _, _, ok := topo.ParseHostName(t.Host); !ok {
			a.Problems = append(a.Problems, fmt.Sprintf("%s: its mark names %q, which is no host", t.name(), strings.ToValidUTF8(t.Host, "?")))
			t.Host = m.host
		}
		list[i] = t
	}
	a.AddTasks(list)
}
