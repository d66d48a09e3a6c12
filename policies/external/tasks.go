package external

import (
	"fmt"
	"slices"
	"strconv"

	"testbed/policies"
	"testbed/policies/external/messages"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// TaskScheduler is a task scheduler that a process implements.
type TaskScheduler struct{ Policy }

// Tasks returns a task scheduler before its conversation.
func Tasks(s Settings) *TaskScheduler {
	return &TaskScheduler{Policy{Settings: s, role: "tasks"}}
}

// Slots implements policies.TaskScheduler: a host runs and computes on all its slots.
func (s *TaskScheduler) Slots(n [jobs.TaskKinds]int) policies.Limits {
	return policies.Limits{Running: n, Computing: n}
}

// New returns the instance that holds the conversation or, without one, answers from a log.
func (s *TaskScheduler) New() policies.TaskInstance {
	return &taskInstance{decisions{p: &s.Policy}}
}

type taskInstance struct{ decisions }

// Assign implements policies.TaskInstance.
func (x *taskInstance) Assign(v *policies.TaskView, a *policies.Assignment) {
	a.Answer, a.Latency, a.Err = x.decide(
		func(b []byte) []byte { return append(x.appendTasks(b, v), '}', '\n') },
		func(line []byte) (bool, error) { return x.read(line, v, a) })
}

// assignment is a decision of a process. Jobs are indices into those of the message.
type assignment struct {
	reply
	messages.Assignment
}

// read fills an assignment from a line. It reports whether the line is an answer.
func (x *taskInstance) read(line []byte, v *policies.TaskView, a *policies.Assignment) (bool, error) {
	var got assignment
	if is, err := x.parse(line, "assignment", "assign", &got, &got.reply); err != nil || !is {
		return false, err
	}
	host := v.Slots[v.Host]
	for i, l := range got.Launch {
		if l.Job < 0 || l.Job >= len(v.Jobs) || l.Stage < 0 || l.Stage >= len(v.Jobs[l.Job].Stages) {
			return false, fmt.Errorf("assignment: launch %d: no job %d with stage %d in the message \"assign\"", i, l.Job, l.Stage)
		}
		st := &v.Jobs[l.Job].Stages[l.Stage]
		if !host.Fits(st.Kind, st.Need) {
			return false, fmt.Errorf("assignment: launch %d: host %d lacks a slot, cores or memory for it", i, v.Host)
		}
		host.Add(st.Kind, st.Need)
		a.Launch = append(a.Launch, policies.Launch{Job: l.Job, Stage: l.Stage, Locality: policies.Locality(l.Locality)})
	}
	attempt := func(key string, r messages.Attempt) (jobs.AttemptID, error) {
		if r.Job < 0 || r.Job >= len(v.Jobs) {
			return jobs.AttemptID{}, fmt.Errorf("assignment: %s: job %d: must be an index of the %d jobs", key, r.Job, len(v.Jobs))
		}
		return jobs.AttemptID{Task: jobs.TaskID{Job: v.Jobs[r.Job].ID, Stage: r.Stage, Index: r.Index}, N: r.N}, nil
	}
	for _, r := range got.Backup {
		id, err := attempt("backup", r)
		if err != nil {
			return false, err
		}
		a.Backup = append(a.Backup, id.Task)
	}
	for _, r := range got.Kill {
		id, err := attempt("kill", r)
		if err != nil {
			return false, err
		}
		a.Kill = append(a.Kill, id)
	}
	return true, nil
}

// appendTasks appends the message "assign" but its last brace. Numbers that are 0 are left out.
func (x *taskInstance) appendTasks(b []byte, v *policies.TaskView) []byte {
	b = x.begin(b, "assign", v.Cluster)
	if x.p.needs.Has(policies.LinkLoad) {
		b = appendCluster(b, v.Cluster, x.p.needs)
	}
	b = number(b, `,"host":`, int64(v.Host))
	if x.p.needs.Has(policies.Slots) {
		b = list(b, `,"slots":[`, v.Slots, appendSlots)
	} else {
		b = list(b, `,"slots":[`, v.Slots[v.Host:v.Host+1], appendSlots)
	}
	return list(b, `,"jobs":[`, v.Jobs, x.appendJob)
}

// list appends a key and a list of elements.
func list[E any](b []byte, key string, of []E, each func([]byte, *E) []byte) []byte {
	b = append(b, key...)
	for i := range of {
		b = append(each(b, &of[i]), ',')
	}
	return closed(b)
}

// numbers appends a key and a list of numbers, unless all are 0.
func numbers[N ~int | ~int64](b []byte, key string, of []N) []byte {
	if !slices.ContainsFunc(of, func(n N) bool { return n != 0 }) {
		return b
	}
	return list(b, key, of, func(b []byte, n *N) []byte { return strconv.AppendInt(b, int64(*n), 10) })
}

// fraction appends a key and its value, unless that is 0.
func fraction(b []byte, key string, x float64) []byte {
	if x == 0 {
		return b
	}
	return strconv.AppendFloat(append(b, key...), x, 'g', -1, 64)
}

// object ends an object whose keys have a comma before each, from the given place on.
func object(b []byte, from int) []byte {
	if len(b) == from {
		return append(b, '{', '}')
	}
	b[from] = '{'
	return append(b, '}')
}

func appendSlots(b []byte, s *policies.SlotState) []byte {
	from := len(b)
	b = numbers(b, `,"total":[`, s.Total[:])
	b = numbers(b, `,"used":[`, s.Used[:])
	b = fraction(b, `,"cpu":`, s.Need.CPU)
	b = number(b, `,"memory":`, int64(s.Need.Memory))
	b = fraction(b, `,"cpu_capacity":`, s.Capacity.CPU)
	b = number(b, `,"memory_capacity":`, int64(s.Capacity.Memory))
	b = number(b, `,"space":`, int64(s.Space))
	b = number(b, `,"committed":`, int64(s.Committed))
	b = number(b, `,"committed_time":`, int64(s.CommittedTime))
	b = number(b, `,"lost":`, flag(s.Lost))
	return object(b, from)
}

func (x *taskInstance) appendJob(b []byte, j *policies.TaskJob) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), int64(j.ID), 10)
	b = text(b, `,"user":`, j.User)
	b = number(b, `,"priority":`, int64(j.Priority))
	b = text(b, `,"profile":`, j.Profile)
	b = number(b, `,"submit":`, int64(j.Submit))
	b = number(b, `,"input":`, int64(j.Input))
	b = list(b, `,"stages":[`, j.Stages, appendStage)
	if x.p.needs.Has(policies.Attempts) {
		b = list(b, `,"attempts":[`, j.Running, appendAttempt)
	}
	if s := j.Shuffle; s != nil {
		b = numbers(b, `,"intermediate":[`, s.Intermediate)
		b = numbers(b, `,"rack_maps":[`, s.Maps)
		b = numbers(b, `,"rack_reduces":[`, s.Reduces)
		b = list(b, `,"blocks":[`, s.Blocks, func(b []byte, p *policies.PlacedBlock) []byte {
			b = strconv.AppendInt(append(b, '['), int64(p.Size), 10)
			b = list(b, `,[`, p.Racks, func(b []byte, r *topo.RackID) []byte { return strconv.AppendInt(b, int64(*r), 10) })
			return append(b, ']')
		})
	}
	return append(b, '}')
}

func appendStage(b []byte, s *policies.StageState) []byte {
	from := len(b)
	b = number(b, `,"kind":`, int64(s.Kind))
	b = number(b, `,"tasks":`, int64(s.Tasks))
	b = number(b, `,"done":`, int64(s.Done))
	b = number(b, `,"running":`, int64(s.Running))
	b = numbers(b, `,"pending":[`, s.Pending[:])
	b = number(b, `,"waiting":`, int64(s.Waiting))
	b = fraction(b, `,"cpu":`, s.Need.CPU)
	b = number(b, `,"memory":`, int64(s.Need.Memory))
	b = number(b, `,"output":`, int64(s.Output))
	b = number(b, `,"anywhere":`, flag(s.Anywhere))
	b = number(b, `,"outputs":`, int64(s.Outputs))
	b = number(b, `,"read":`, int64(s.Read))
	b = number(b, `,"busy":`, int64(s.Busy))
	b = number(b, `,"consumed":`, int64(s.Input))
	b = number(b, `,"produced":`, int64(s.Consumption.Output))
	b = numbers(b, `,"durations":[`, s.Durations)
	return object(b, from)
}

// appendAttempt appends a row.
func appendAttempt(b []byte, a *policies.AttemptState) []byte {
	b = row(b, int64(a.ID.Task.Stage), int64(a.ID.Task.Index), int64(a.ID.N),
		int64(a.Host), int64(a.Locality), int64(a.Start), int64(a.Phase),
		flag(a.Killing), flag(a.Paused), flag(a.Spare))
	b = append(b[:len(b)-2], ',')
	return append(strconv.AppendFloat(b, a.Progress, 'g', -1, 64), ']')
}
