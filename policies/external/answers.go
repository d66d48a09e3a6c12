package external

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"testbed/policies"
	"testbed/policies/external/messages"
	"testbed/topo"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// FormatSchedule returns the message "schedule" that states s, without keys that have their default.
func FormatSchedule(s *policies.Schedule) []byte {
	name := func(names []string, n uint8) string {
		if n == 0 || int(n) >= len(names) {
			return ""
		}
		return names[n]
	}
	out := messages.Schedule{
		Steps:     []messages.Step{},
		Budgets:   s.Budgets,
		Queues:    s.Queues,
		Watch:     s.Watch,
		WatchMost: s.WatchMost,
		Wake:      s.Wake,
	}
	for _, f := range s.Pilots {
		out.Pilots = append(out.Pilots, int(f))
	}
	for _, st := range s.Steps {
		step := messages.Step{
			Rule:    Rules[min(int(st.Rule), len(Rules)-1)],
			Coflows: st.Coflows,
			Part:    name(Parts, uint8(st.Part)),
			Only:    name(Onlys, uint8(st.Only)),
			Budget:  st.Budget,
			Within:  st.Within,
		}
		for _, r := range st.Rates {
			step.Rates = append(step.Rates, messages.Rate{Flow: int(r.Flow), Rate: r.Rate})
		}
		out.Steps = append(out.Steps, step)
	}
	return encode(struct {
		Type string `json:"type"`
		messages.Schedule
	}{"schedule", out})
}

// FormatAssignment returns the message "assignment" that states a, a decision with v.
func FormatAssignment(v *policies.TaskView, a *policies.Assignment) []byte {
	job := func(id jobs.JobID) int {
		return slices.IndexFunc(v.Jobs, func(j policies.TaskJob) bool { return j.ID == id })
	}
	var out messages.Assignment
	for _, l := range a.Launch {
		out.Launch = append(out.Launch, messages.Launch{Job: l.Job, Stage: l.Stage, Locality: int(l.Locality)})
	}
	for _, t := range a.Backup {
		out.Backup = append(out.Backup, messages.Attempt{Job: job(t.Job), Stage: t.Stage, Index: t.Index})
	}
	for _, k := range a.Kill {
		out.Kill = append(out.Kill, messages.Attempt{Job: job(k.Task.Job), Stage: k.Task.Stage, Index: k.Task.Index, N: k.N})
	}
	return encode(struct {
		Type string `json:"type"`
		messages.Assignment
	}{"assignment", out})
}

// FormatPlacement returns the message "placement" that states the hosts of a block, or that there are none. The reason
// is for people, and is left out.
func FormatPlacement(hosts []topo.HostID, failed error) []byte {
	return encode(struct {
		Type  string        `json:"type"`
		Hosts []topo.HostID `json:"hosts,omitempty"`
		None  bool          `json:"none,omitempty"`
	}{"placement", hosts, failed != nil})
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // numbers that JSON does not have, of an invalid answer
		text, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return text
}

// CoflowMessage returns the message "decide" of number n with a view that shows sizes.
func CoflowMessage(n int, v *policies.CoflowView) []byte {
	x := instance{decisions: decisions{p: &Policy{needs: policies.Sizes}, n: n}}
	return append(x.appendView(nil, v), '}')
}

// TasksMessage returns the message "assign" of number n with a view that shows all hosts and attempts.
func TasksMessage(n int, v *policies.TaskView) []byte {
	x := taskInstance{decisions{p: &Policy{needs: policies.LinkLoad | policies.DiskUse | policies.Slots | policies.Attempts}, n: n}}
	return append(x.appendTasks(nil, v), '}')
}

// PlacementMessage returns the message "place" of number n with a view that shows loads and disks.
func PlacementMessage(n int, v *policies.PlacementView, block workloads.Block, rng *rand.Rand) []byte {
	p := Placement(Settings{})
	p.n, p.needs = n, policies.LinkLoad|policies.DiskUse
	return append(p.appendPlace(nil, v, block, rng), '}')
}
