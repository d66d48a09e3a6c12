package tasks

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/engine/tracker"
	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// unlimited are schedulers without limits of a heartbeat and without waiting.
func unlimited() map[string]Scheduler {
	return map[string]Scheduler{"fifo": {Order: FIFO{}}, "fair": {Order: Fair{}}, "fair, in order": {Order: Fair{Inside: InOrder}}, "drf": {Order: DRF{}}}
}

// fitting reports whether one more task of a stage fits on the host of the View after the
// launches.
func fitting(v *policies.TaskView, a *policies.Assignment, st *policies.StageState) bool {
	s := v.Slots[v.Host]
	for _, l := range a.Launch {
		x := v.Jobs[l.Job].Stages[l.Stage]
		s.Add(x.Kind, x.Need)
	}
	for _, id := range a.Backup {
		for i := range v.Jobs {
			if j := &v.Jobs[i]; j.ID == id.Job {
				s.Add(j.Stages[id.Stage].Kind, j.Stages[id.Stage].Need)
			}
		}
	}
	return s.Free(st.Kind) > 0 && (s.Capacity.CPU == 0 || s.Need.CPU+st.Need.CPU <= s.Capacity.CPU) && (s.Capacity.Memory == 0 || s.Need.Memory+st.Need.Memory <= s.Capacity.Memory)
}

// pendingOf returns the pending tasks of a stage that are not launched.
func pendingOf(v *policies.TaskView, a *policies.Assignment, job, stage int) int {
	p := v.Jobs[job].Stages[stage].Pending
	n := p[0] + p[1] + p[2]
	for _, l := range a.Launch {
		if l.Job == job && l.Stage == stage {
			n--
		}
	}
	return n
}

// Without waiting and limits, no slot stays free that a pending task could use.
func TestWorkConserving(t *testing.T) {
	for name, s := range unlimited() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := policytest.TaskClusters().Draw(t, "cluster")
				c.Run(t, s, rapid.IntRange(1, 30).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
					checkConserving(t, v, a)
				})
			})
		})
	}
}

// checkConserving fails t if a pending task fits on the host after a decision.
func checkConserving(t *rapid.T, v *policies.TaskView, a *policies.Assignment) {
	for i := range v.Jobs {
		for j := range v.Jobs[i].Stages {
			if n := pendingOf(v, a, i, j); n > 0 && !v.Slots[v.Host].Lost && fitting(v, a, &v.Jobs[i].Stages[j]) {
				t.Fatalf("%d tasks of job %d wait although one fits", n, v.Jobs[i].ID)
			}
		}
	}
}

// usage returns the running and pending tasks of a kind by user.
func usage(v *policies.TaskView, a *policies.Assignment, k jobs.TaskKind) (running, pending map[string]int) {
	running, pending = map[string]int{}, map[string]int{}
	for i := range v.Jobs {
		for j := range v.Jobs[i].Stages {
			if st := &v.Jobs[i].Stages[j]; st.Kind == k {
				left := pendingOf(v, a, i, j)
				pending[v.Jobs[i].User] += left
				running[v.Jobs[i].User] += st.Running + st.Pending[0] + st.Pending[1] + st.Pending[2] - left
			}
		}
	}
	return running, pending
}

// A slot goes to a pool that is not below its minimum share only if no pool below its own has a
// pending task.
func TestMinimumSharesComeFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := policytest.TaskClusters().Draw(t, "cluster")
		c.Resources = jobs.Resources{} // with it, a task may not fit
		least := map[string]int{}
		var pools []Pool
		for _, u := range []string{"ann", "bob", "cy"} {
			least[u] = rapid.IntRange(0, 3).Draw(t, u)
			pools = append(pools, Pool{Name: u, Min: [2]int{least[u], least[u]}})
		}
		s := Scheduler{Order: Fair{Pools: pools}}
		c.Run(t, s, rapid.IntRange(1, 40).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			slots := [jobs.TaskKinds]int{}
			for _, h := range v.Slots {
				for k := range slots {
					if !h.Lost {
						slots[k] += h.Total[k]
					}
				}
			}
			for n, l := range a.Launch { // as of each launch
				before := policies.Assignment{Launch: a.Launch[:n]}
				user, k := v.Jobs[l.Job].User, v.Jobs[l.Job].Stages[l.Stage].Kind
				running, pending := usage(v, &before, k)
				if least["ann"]+least["bob"]+least["cy"] > slots[k] || running[user] < least[user] {
					continue
				}
				for u := range least {
					if pending[u] > 0 && running[u] < least[u] {
						t.Fatalf("a slot for %q, which runs %d of at least %d, although %q runs %d of %d", user, running[user], least[user], u, running[u], least[u])
					}
				}
			}
		})
	})
}

// endless returns a cluster with one user who always has pending tasks, and jobs of others.
func endless(t *rapid.T, f *topo.Fabric) *policytest.TaskCluster {
	list := []policytest.Job{{ID: 1, User: "hog", Maps: 5000, Length: time.Second}}
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		list = append(list, policytest.Job{ID: jobs.JobID(i + 2), User: fmt.Sprint("user ", rapid.IntRange(1, 3).Draw(t, "user")), Submit: time.Duration(rapid.IntRange(0, 5000).Draw(t, "submit")) * time.Millisecond,
			Maps: rapid.IntRange(1, 6).Draw(t, "maps"), Reduces: rapid.IntRange(0, 2).Draw(t, "reduces"), Length: time.Duration(rapid.IntRange(1, 1500).Draw(t, "length")) * time.Millisecond})
	}
	return policytest.NewTaskCluster(f, list)
}

// Under FAIR, jobs end although another user always has pending tasks: each of 4 slots is free
// at least every 1.5 s, and every other one of them is for the others.
func TestFairDoesNotStarve(t *testing.T) {
	f := racks(t, 2, 2)
	for name, s := range map[string]Scheduler{
		"fair":       DefaultFair(),
		"in order":   {Order: Fair{Inside: InOrder}, PerHeartbeat: PerHeartbeat{Tasks: 1}},
		"delay":      {Order: Fair{Starvation: DefaultStarvation()}, Delay: Delay{Waiting: ByTime, T1: time.Second, T2: time.Second}},
		"kill":       {Order: Fair{Starvation: Starvation{FairTimeout: time.Second, Fraction: 1, Kill: true, Every: time.Second}}},
		"drf, too":   DefaultDRF(),
		"split, too": {Order: Fair{}, Splitting: Splitting{Factor: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := endless(t, f)
				others := c.Unfinished() - 1
				c.Run(t, s, int(time.Minute/c.Between), nil)
				if len(c.Ended) < others {
					t.Fatalf("after %v, %d of %d jobs have ended", c.Now(), len(c.Ended), others)
				}
			})
		})
	}
}

// Kills reach the fair share and stop: a pool that holds all slots keeps its share, and no more
// attempts are killed than the starving pool can use.
func TestKillsReachTheShare(t *testing.T) {
	f := racks(t, 2, 3)
	rapid.Check(t, func(t *rapid.T) {
		late := rapid.IntRange(1, 10).Draw(t, "maps of the late job")
		c := policytest.NewTaskCluster(f, []policytest.Job{{ID: 1, User: "hog", Maps: 100, Length: time.Hour},
			{ID: 2, User: "late", Maps: late, Length: time.Hour, Submit: 2 * time.Second}})
		c.Slots = [jobs.TaskKinds]int{rapid.IntRange(1, 3).Draw(t, "slots"), 0}
		s := Scheduler{Order: Fair{Starvation: Starvation{FairTimeout: time.Second, Fraction: 1, Kill: true, Every: time.Duration(rapid.IntRange(0, 1500).Draw(t, "every")) * time.Millisecond}}}
		kills, running := 0, map[string]int{}
		c.Run(t, s, int(20*time.Second/c.Between), func(v *policies.TaskView, a *policies.Assignment) {
			kills += len(a.Kill)
			running, _ = usage(v, a, jobs.Map)
		})
		if want := min(late, 3*c.Slots[jobs.Map]); running["late"] != want || kills != want {
			t.Fatalf("the late job runs %d tasks after %d kills, want %d", running["late"], kills, want)
		}
	})
}

// Decisions do not depend on the names of users, on the order of the settings of pools, on pools
// without jobs, or on jobs that run nothing and have nothing to run.
func TestUnrelatedInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := contenders()[rapid.SampledFrom([]string{"fair, all", "fair, skips", "drf", "fifo, delay"}).Draw(t, "policy")]
		c, other := policytest.TaskClusters().Draw(t, "cluster"), s
		rename := map[string]string{"ann": "zoe", "bob": "bill", "cy": "", "": "cy", "dee": "x", "eve": "a"}
		if fair, ok := s.Order.(Fair); ok {
			fair.Pools = append(rapid.Permutation(fair.Pools).Draw(t, "pools"), Pool{Name: "unused", Weight: 9, Min: [2]int{100, 100}})
			for i := range fair.Pools {
				fair.Pools[i].Name = cmp.Or(rename[fair.Pools[i].Name], fair.Pools[i].Name)
			}
			other.Order = fair
		}
		y := other.New()
		c.Run(t, s, rapid.IntRange(1, 30).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
			u := policytest.MaskTasks(v, s.Needs())
			for i := range u.Jobs {
				u.Jobs[i].User = rename[u.Jobs[i].User]
			}
			at := rapid.IntRange(0, len(u.Jobs)).Draw(t, "idle job before")
			u.Jobs = slices.Insert(u.Jobs, at, policies.TaskJob{ID: 1000, User: "idle", Stages: []policies.StageState{{Kind: jobs.Map, Tasks: 1, Done: 1, Need: jobs.Resources{CPU: 1, Memory: units.GB}}}})
			u.Count()
			var b policies.Assignment
			y.Assign(u, &b)
			for i := range b.Launch {
				if b.Launch[i].Job > at {
					b.Launch[i].Job--
				}
			}
			if !slices.Equal(a.Launch, b.Launch) || !slices.Equal(a.Kill, b.Kill) {
				t.Fatalf("launches %+v and kills %+v, with unrelated changes %+v and %+v", a.Launch, a.Kill, b.Launch, b.Kill)
			}
		})
	})
}

// A user never has more reduces on a host than PerUser, with and without splitting, and no slot stays
// free that the reduce of a user below it could use.
func TestReducesPerUser(t *testing.T) {
	for name, s := range map[string]Scheduler{
		"fifo":  {Order: FIFO{}, Splitting: Splitting{PerUser: 1}},
		"fair":  {Order: Fair{}, Splitting: Splitting{PerUser: 1}},
		"split": {Order: Fair{}, Splitting: Splitting{Factor: 3, PerJob: 100, PerUser: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			c := policytest.NewTaskCluster(racks(t, 1, 1), []policytest.Job{
				{ID: 1, User: "ann", Maps: 1, Reduces: 6, Length: 150 * time.Millisecond},
			})
			c.Slots = [jobs.TaskKinds]int{1, 5}
			if !checkReducesPerUser(t, c, s, 10) {
				t.Fatal("the user did not reach the limit")
			}
			rapid.Check(t, func(t *rapid.T) {
				checkReducesPerUser(t, policytest.TaskClusters().Draw(t, "cluster"), s, rapid.IntRange(1, 30).Draw(t, "heartbeats"))
			})
		})
	}
}

// checkReducesPerUser runs heartbeats and reports whether a reduce waited because of the limit.
func checkReducesPerUser(t rapid.TB, c *policytest.TaskCluster, s Scheduler, heartbeats int) (reached bool) {
	c.Run(t, s, heartbeats, func(v *policies.TaskView, a *policies.Assignment) {
		on := map[string]int{}
		for i := range v.Jobs {
			on[v.Jobs[i].User] += countOn(&v.Jobs[i], v.Host, func(x *policies.AttemptState) bool { return x.Kind == jobs.Reduce })
		}
		for _, l := range a.Launch {
			if v.Jobs[l.Job].Stages[l.Stage].Kind == jobs.Reduce {
				on[v.Jobs[l.Job].User]++
			}
		}
		for i := range v.Jobs {
			n := on[v.Jobs[i].User]
			if n > s.PerUser {
				t.Fatalf("user %s has %d reduces on host %d, at most %d may run", v.Jobs[i].User, n, v.Host, s.PerUser)
			}
			for j := range v.Jobs[i].Stages {
				st := &v.Jobs[i].Stages[j]
				if st.Kind != jobs.Reduce || pendingOf(v, a, i, j) == 0 || v.Slots[v.Host].Lost || !fitting(v, a, st) {
					continue
				}
				if n < s.PerUser {
					t.Fatalf("a reduce of user %s waits, who has %d on host %d", v.Jobs[i].User, n, v.Host)
				}
				reached = true
			}
		}
	})
	return reached
}

// Launches leave room for the outputs of all, and no slot stays free that a task with room could use.
func TestRoomForOutputs(t *testing.T) {
	refused := false
	for name, s := range unlimited() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := policytest.TaskClusters().Draw(t, "cluster")
				c.Space, c.Evict = units.Bytes(rapid.IntRange(0, 3).Draw(t, "space"))*40*units.MB, tracker.EvictLatest
				c.Run(t, s, rapid.IntRange(1, 60).Draw(t, "heartbeats"), func(v *policies.TaskView, a *policies.Assignment) {
					left := v.Slots[v.Host].Space
					limited := left >= 0
					for _, l := range a.Launch {
						left -= v.Jobs[l.Job].Stages[l.Stage].Output
					}
					if limited && left < 0 {
						t.Fatalf("launches exceed the space of %v by %v", v.Slots[v.Host].Space, -left)
					}
					for i := range v.Jobs {
						for j := range v.Jobs[i].Stages {
							st := &v.Jobs[i].Stages[j]
							if pendingOf(v, a, i, j) == 0 || !fitting(v, a, st) {
								continue
							}
							if !limited || st.Output <= left {
								t.Fatalf("a task with an output of %v waits, with %v left", st.Output, left)
							}
							refused = true
						}
					}
				})
			})
		})
	}
	if !refused {
		t.Error("no task was refused")
	}
}
