package policytest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// tasks is a task scheduler that calls a function.
type tasks struct {
	needs policies.Facts
	slots func(n [jobs.TaskKinds]int) policies.Limits // plain if nil
	f     assign
	make  func() assign // of each instance, in place of f
}

func (s *tasks) New() policies.TaskInstance {
	if s.make != nil {
		return &tasks{f: s.make()}
	}
	return s
}

func (s *tasks) Needs() policies.Facts                               { return s.needs }
func (s *tasks) Assign(v *policies.TaskView, a *policies.Assignment) { s.f(v, a) }
func (s *tasks) Slots(n [jobs.TaskKinds]int) policies.Limits {
	if s.slots == nil {
		return policies.Limits{Running: n, Computing: n}
	}
	return s.slots(n)
}

// first launches the pending tasks of all jobs in order.
func first(v *policies.TaskView, a *policies.Assignment) {
	s := v.Slots[v.Host]
	for i := range v.Jobs {
		for j := range v.Jobs[i].Stages {
			st := &v.Jobs[i].Stages[j]
			for l, n := range st.Pending {
				for ; n > 0 && s.Fits(st.Kind, st.Need); n-- {
					s.Add(st.Kind, st.Need)
					a.Launch = append(a.Launch, policies.Launch{Job: i, Stage: j, Locality: policies.Locality(l)})
				}
			}
		}
	}
}

// kills kills the first attempt of every node-local task.
func kills(v *policies.TaskView, a *policies.Assignment) {
	first(v, a)
	for i := range v.Jobs {
		for _, x := range v.Jobs[i].Running {
			if !x.Killing && x.ID.N == 0 && x.Locality == policies.NodeLocal {
				a.Kill = append(a.Kill, x.ID)
			}
		}
	}
}

func TestValidTaskSchedulersPass(t *testing.T) {
	Tasks(t, &tasks{f: first})
	Tasks(t, &tasks{f: func(*policies.TaskView, *policies.Assignment) {}})
	Tasks(t, &tasks{needs: policies.LinkLoad, f: func(v *policies.TaskView, a *policies.Assignment) {
		if v.Hosts[v.Host].Rx%2 == 0 {
			first(v, a)
		}
	}})
	Tasks(t, &tasks{f: first, slots: func(n [jobs.TaskKinds]int) policies.Limits {
		l := policies.Limits{Running: n, Computing: n}
		l.Running[jobs.Reduce] *= 3
		return l
	}})
	Tasks(t, &tasks{make: func() assign { // launches while no job is new, by a state of its own
		seen := map[jobs.JobID]bool{}
		return func(v *policies.TaskView, a *policies.Assignment) {
			before := len(seen)
			for i := range v.Jobs {
				seen[v.Jobs[i].ID] = true
			}
			if len(seen) == before {
				first(v, a)
			}
		}
	}})
}

func TestInvalidTaskSchedulersAreCaught(t *testing.T) {
	with := func(change func(v *policies.TaskView, a *policies.Assignment)) *tasks {
		return &tasks{needs: policies.Attempts, f: func(v *policies.TaskView, a *policies.Assignment) {
			if first(v, a); len(v.Jobs) > 0 {
				change(v, a)
			}
		}}
	}
	limited := func(l func(n [jobs.TaskKinds]int) policies.Limits) *tasks { return &tasks{f: first, slots: l} }
	running := func(v *policies.TaskView) (out []policies.AttemptState) {
		for i := range v.Jobs {
			out = append(out, v.Jobs[i].Running...)
		}
		return out
	}
	calls := 0
	for _, tt := range []struct {
		name   string
		policy policies.TaskScheduler
		want   string // substring of the error; empty if the check that fails is random
	}{
		{"writes to a slot", with(func(v *policies.TaskView, a *policies.Assignment) { v.Slots[v.Host].Used[0]++ }), "modified the View"},
		{"writes to a stage", with(func(v *policies.TaskView, a *policies.Assignment) { v.Jobs[0].Stages[0].Pending[0]-- }), "modified the View"},
		{"writes to an attempt", with(func(v *policies.TaskView, a *policies.Assignment) {
			for i := range v.Jobs {
				for j := range v.Jobs[i].Running {
					v.Jobs[i].Running[j].Killing = true
				}
			}
		}), "modified the View"},
		{"launches a task twice", with(func(v *policies.TaskView, a *policies.Assignment) {
			if n := len(a.Launch); n > 0 {
				l := a.Launch[0]
				a.Launch = a.Launch[:0]
				for range v.Jobs[l.Job].Stages[l.Stage].Pending[l.Locality] + 1 {
					a.Launch = append(a.Launch, l)
				}
			}
		}), ""},
		{"launches at another distance", with(func(v *policies.TaskView, a *policies.Assignment) {
			for i, l := range a.Launch {
				if v.Jobs[l.Job].Stages[l.Stage].Pending[policies.RackLocal] == 0 {
					a.Launch[i].Locality = policies.RackLocal
				}
			}
		}), "none is pending"},
		{"launches before a stage may begin", with(func(v *policies.TaskView, a *policies.Assignment) {
			for i := range v.Jobs {
				for j, st := range v.Jobs[i].Stages {
					if st.Pending == [3]int{} && st.Waiting > 0 && v.Slots[v.Host].Free(st.Kind) > 0 {
						a.Launch = []policies.Launch{{Job: i, Stage: j, Locality: policies.OffRack}}
					}
				}
			}
		}), "none is pending"},
		{"exceeds the slots", &tasks{f: func(v *policies.TaskView, a *policies.Assignment) {
			for i := range v.Jobs {
				if n := v.Jobs[i].Stages[0].Pending[policies.OffRack]; n > 0 && !v.Slots[v.Host].Lost && v.Jobs[i].Stages[0].Need == (jobs.Resources{}) {
					for range n {
						a.Launch = append(a.Launch, policies.Launch{Job: i, Locality: policies.OffRack})
					}
				}
			}
		}}, "is free"},
		{"exceeds the resources", &tasks{f: func(v *policies.TaskView, a *policies.Assignment) {
			for i := range v.Jobs {
				for l, n := range v.Jobs[i].Stages[0].Pending {
					for range n {
						if !v.Slots[v.Host].Lost && v.Slots[v.Host].Free(jobs.Map) > len(a.Launch) {
							a.Launch = append(a.Launch, policies.Launch{Job: i, Locality: policies.Locality(l)})
						}
					}
				}
			}
		}}, "need"},
		{"launches an unknown job", with(func(v *policies.TaskView, a *policies.Assignment) {
			a.Launch = []policies.Launch{{Job: len(v.Jobs)}}
		}), ""},
		{"launches an unknown stage", with(func(v *policies.TaskView, a *policies.Assignment) { a.Launch = []policies.Launch{{Stage: 2}} }), ""},
		{"launches at an unknown distance", with(func(v *policies.TaskView, a *policies.Assignment) { a.Launch = []policies.Launch{{Locality: 3}} }), ""},
		{"kills an attempt that does not run", with(func(v *policies.TaskView, a *policies.Assignment) {
			a.Kill = append(a.Kill, jobs.AttemptID{Task: jobs.TaskID{Job: v.Jobs[0].ID}, N: 1000})
		}), "unknown attempt"},
		{"kills twice", with(func(v *policies.TaskView, a *policies.Assignment) {
			if r := running(v); len(r) > 0 {
				a.Kill = append(a.Kill, r[0].ID, r[0].ID)
			}
		}), "two kills"},
		{"kills again", with(func(v *policies.TaskView, a *policies.Assignment) {
			for _, x := range running(v) {
				a.Kill = append(a.Kill, x.ID)
			}
		}), ""},
		{"counts the calls of all instances", with(func(v *policies.TaskView, a *policies.Assignment) {
			if calls++; calls%3 == 0 {
				a.Launch = a.Launch[:0]
			}
		}), "two instances"},
		{"draws random numbers", with(func(v *policies.TaskView, a *policies.Assignment) {
			a.Launch = a.Launch[:rand.IntN(len(a.Launch)+1)]
		}), "two instances"},
		{"reads a clock", with(func(v *policies.TaskView, a *policies.Assignment) {
			if time.Now().Nanosecond()%1024 < 512 {
				a.Launch = a.Launch[:0]
			}
		}), "two instances"},
		{"ranges over a map", &tasks{f: func(v *policies.TaskView, a *policies.Assignment) {
			var all policies.Assignment
			first(v, &all)
			launches := map[int]policies.Launch{}
			for i, l := range all.Launch {
				launches[i] = l
			}
			for _, l := range launches {
				a.Launch = append(a.Launch, l)
			}
		}}, "two instances"},
		{"keeps the View", &tasks{make: func() assign {
			var kept *policies.TaskView
			return func(v *policies.TaskView, a *policies.Assignment) {
				if kept == nil {
					kept = v
				}
				if len(kept.Jobs) == len(v.Jobs) {
					first(v, a)
				}
			}
		}}, "two instances"},
		{"keeps the jobs of the View", &tasks{make: func() assign {
			var kept []policies.TaskJob
			return func(v *policies.TaskView, a *policies.Assignment) {
				if len(kept) == 0 {
					kept = v.Jobs
				}
				if len(v.Jobs) > 0 && kept[0].ID == v.Jobs[0].ID {
					first(v, a)
				}
			}
		}}, "two instances"},
		{"shares state between instances", func() *tasks {
			var before, now *topo.Fabric
			return &tasks{f: func(v *policies.TaskView, a *policies.Assignment) {
				if v.Fabric != now {
					before, now = now, v.Fabric
				}
				if before == nil || before.Hosts() <= v.Fabric.Hosts() {
					first(v, a)
				}
			}}
		}(), "two instances"},
		{"reads hidden loads", with(func(v *policies.TaskView, a *policies.Assignment) {
			if v.Hosts[v.Host].Rx > 0 {
				a.Launch = a.Launch[:0]
			}
		}), "does not declare"},
		{"depends on IDs", with(func(v *policies.TaskView, a *policies.Assignment) {
			if v.Jobs[0].ID%2 == 0 {
				a.Launch = a.Launch[:0]
			}
		}), "values of IDs"},
		{"limits without Computing", limited(func(n [jobs.TaskKinds]int) policies.Limits { return policies.Limits{Running: n} }), "limits"},
		{"Computing above Running", limited(func(n [jobs.TaskKinds]int) policies.Limits {
			return policies.Limits{Running: n, Computing: [2]int{n[0] + 1, n[1]}}
		}), "limits"},
		{"limits that change", limited(func(n [jobs.TaskKinds]int) policies.Limits {
			calls++
			n[0] += calls % 2
			return policies.Limits{Running: n, Computing: n}
		}), "identical calls of Slots"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls = 0
			found := ""
			for seed := range 400 {
				c, other := TaskClusters().Example(2*seed), TaskClusters().Example(2*seed+1)
				if err := CheckTasks(tt.policy, c, other, 12); err != nil {
					if found = err.Error(); tt.want == "" || strings.Contains(found, tt.want) {
						return
					}
				}
			}
			t.Errorf("not caught (%q, want %q)", found, tt.want)
		})
	}
}

// A policy that kills passes, and its attempts run again.
func TestKilledTasksRunAgain(t *testing.T) {
	s := &tasks{needs: policies.Attempts, f: kills}
	Tasks(t, s)
	rapid.Check(t, func(t *rapid.T) {
		c := TaskClusters().Draw(t, "cluster")
		c.Slots, c.Resources = [jobs.TaskKinds]int{2, 1}, jobs.Resources{}
		c.Run(t, s, 100000, nil)
		if c.Unfinished() > 0 {
			t.Fatalf("%d jobs have not ended", c.Unfinished())
		}
	})
}
