package external

import (
	"encoding/json"
	"math/rand/v2"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// AppendSchedule appends the message "schedule" that states s, without keys that have their default.
func AppendSchedule(b []byte, s *policies.Schedule) []byte {
	type plainStep struct {
		Rule    string `json:"rule"`
		Coflows []int  `json:"coflows"`
		Part    string `json:"part,omitempty"`
		Only    string `json:"only,omitempty"`
		Budget  int    `json:"budget,omitempty"`
		Within  int64  `json:"within,omitempty"`
		Rates   []rate `json:"rates,omitempty"`
	}
	name := func(names []string, n uint8) string {
		if n == 0 || int(n) >= len(names) {
			return ""
		}
		return names[n]
	}
	out := struct {
		Type      string      `json:"type"`
		Steps     []plainStep `json:"steps"`
		Budgets   []float64   `json:"budgets,omitempty"`
		Queues    []int       `json:"queues,omitempty"`
		Watch     []int64     `json:"watch,omitempty"`
		WatchMost []int64     `json:"watch_most,omitempty"`
		Pilots    any         `json:"pilots,omitempty"`
		Wake      int64       `json:"wake,omitempty"`
	}{"schedule", []plainStep{}, s.Budgets, s.Queues, s.Watch, s.WatchMost, nil, int64(s.Wake)}
	if len(s.Pilots) > 0 {
		out.Pilots = s.Pilots
	}
	for _, st := range s.Steps {
		step := plainStep{
			Rule: Rules[min(int(st.Rule), len(Rules)-1)], Coflows: st.Coflows, Part: name(Parts, uint8(st.Part)),
			Only: name(Onlys, uint8(st.Only)), Budget: st.Budget, Within: int64(st.Within),
		}
		for _, r := range st.Rates {
			step.Rates = append(step.Rates, rate(r))
		}
		out.Steps = append(out.Steps, step)
	}
	return appendJSON(b, out)
}

// AppendAssignment appends the message "assignment" that states a, a decision with v.
func AppendAssignment(b []byte, v *policies.TaskView, a *policies.Assignment) []byte {
	job := func(id jobs.JobID) int {
		return slices.IndexFunc(v.Jobs, func(j policies.TaskJob) bool { return j.ID == id })
	}
	out := struct {
		Type   string    `json:"type"`
		Launch []launch  `json:"launch,omitempty"`
		Backup []running `json:"backup,omitempty"`
		Kill   []running `json:"kill,omitempty"`
	}{Type: "assignment"}
	for _, l := range a.Launch {
		out.Launch = append(out.Launch, launch{l.Job, l.Stage, int(l.Locality)})
	}
	for _, t := range a.Backup {
		out.Backup = append(out.Backup, running{Job: job(t.Job), Stage: t.Stage, Index: t.Index})
	}
	for _, k := range a.Kill {
		out.Kill = append(out.Kill, running{job(k.Task.Job), k.Task.Stage, k.Task.Index, k.N})
	}
	return appendJSON(b, out)
}

// AppendPlacement appends the message "placement" that states the hosts of a block, or that there are none. The reason
// is for people, and is left out.
func AppendPlacement(b []byte, hosts []topo.HostID, failed error) []byte {
	out := struct {
		Type  string        `json:"type"`
		Hosts []topo.HostID `json:"hosts,omitempty"`
		None  bool          `json:"none,omitempty"`
	}{"placement", hosts, failed != nil}
	return appendJSON(b, out)
}

func appendJSON(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // numbers that JSON does not have, of an invalid answer
		text, _ = json.Marshal(map[string]string{"error": err.Error()})
	}
	return append(b, text...)
}

// CoflowMessage returns the message "decide" of number n with a view that shows sizes.
func CoflowMessage(n int, v *policies.CoflowView) []byte {
	x := instance{decisions: decisions{p: &Policy{}, n: n}, sizes: true}
	return append(x.appendView(nil, v), '}')
}

// TasksMessage returns the message "assign" of number n with a view that shows all hosts and attempts.
func TasksMessage(n int, v *policies.TaskView) []byte {
	x := taskInstance{decisions{p: &Policy{}, n: n}, policies.Needs{LinkLoad: true, DiskUse: true}, true, true}
	return append(x.appendTasks(nil, v), '}')
}

// PlacementMessage returns the message "place" of number n with a view that shows loads and disks.
func PlacementMessage(n int, v *policies.PlacementView, block workloads.Block, rng *rand.Rand) []byte {
	p := Placement(Settings{})
	p.n, p.greeting.Needs = n, []string{"link_load", "disk_use"}
	return append(p.appendPlace(nil, v, block, rng), '}')
}
