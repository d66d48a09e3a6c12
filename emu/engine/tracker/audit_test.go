package tracker

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// audit compares the counts and indices of a tracker with slow ones.
func audit(t rapid.TB, k *Tracker) {
	var launchable [2]int
	for p, j := range k.order {
		var live, running int
		sums := policies.TaskCount{User: k.users[j.User]}
		for _, st := range j.stages {
			var count [3]int
			lost := 0
			for i := range st.tasks {
				x := &st.tasks[i]
				count[x.status]++
				live += len(x.attempts)
				if x.status == done && x.at < 0 {
					lost++
				}
				if (x.status == done && x.copies == nil || x.status == pending) && len(x.attempts) > 0 || x.status == inProgress && len(x.attempts) == 0 {
					t.Errorf("task %v has status %d and %d attempts", st.id(int32(i)), x.status, len(x.attempts))
				}
				if int(x.failures) >= k.cfg.Attempts {
					t.Errorf("task %v has failed %d times", st.id(int32(i)), x.failures)
				}
			}
			if count != st.count || lost != st.lost {
				t.Errorf("stage %d.%d counts %v, %d lost; has %v, %d", j.ID, st.index, st.count, st.lost, count, lost)
			}
			want := 0
			if st.mayBegin() {
				want = st.count[pending]
			}
			launchable[st.Kind] += want
			if st.state.Pending != [3]int{0, 0, want} || st.state.Waiting != count[pending] || st.state.Done != count[done] || st.state.Running != count[inProgress] {
				t.Errorf("stage %d.%d shows %+v, has %v", j.ID, st.index, *st.state, count)
			}
			sums.Add(st.state)
		}
		if k.view.Counts[p] != sums {
			t.Errorf("job %d shows %+v, has %+v", j.ID, k.view.Counts[p], sums)
		}
		for _, a := range k.view.Jobs[p].Running {
			if !a.Killing {
				running++
			}
		}
		if !k.needs.Has(policies.Attempts) {
			live = 0 // shown
		}
		if j.place != p || k.view.Jobs[p].ID != j.ID || running != live || !slices.IsSortedFunc(k.view.Jobs[p].Running, byLaunch) {
			t.Errorf("job %d at %d of %d shows %d of %d attempts", j.ID, j.place, p, running, live)
		}
	}
	if launchable != k.launchable {
		t.Errorf("%v tasks may be launched, counted %v", launchable, k.launchable)
	}
	stored := make([]units.Bytes, len(k.hosts))
	for _, j := range k.order {
		for _, st := range j.stages {
			for i := range st.tasks {
				x := &st.tasks[i]
				for _, c := range x.complete() {
					stored[c.at] += outputOf(&st.Tasks[i])
				}
				for _, a := range x.attempts {
					if a.Spare != (x.status == done) {
						t.Errorf("%v is spare %t, its task has status %d", a.ID, a.Spare, x.status)
					}
				}
			}
		}
	}
	auditFetches(t, k)
	for h := range k.hosts {
		id := topo.HostID(h)
		var used, computing, paused [2]int
		var cpu float64
		memory := k.hosts[h].promised[0] + k.hosts[h].promised[1]
		for _, a := range k.hosts[h].attempts {
			if a.Paused {
				paused[a.Kind]++
			} else {
				used[a.Kind]++
			}
			if !a.st.fetches() || !k.limits.ByMemory || a.Phase == policies.Computing {
				memory += a.st.Tasks[a.i].Need.Memory
			}
			cpu += a.st.Tasks[a.i].Need.CPU
			stored[h] += outputOf(&a.st.Tasks[a.i])
			if a.Phase == policies.Computing {
				computing[a.Kind]++
			}
			if a.Killing != (k.stopping[a.ID] == a) {
				t.Errorf("attempt %v is being stopped: %t, listed %t", a.ID, a.Killing, !a.Killing)
			}
		}
		slots := k.slots[h]
		if slots.Used != used || k.hosts[h].computing != computing || math.Abs(slots.Need.CPU-cpu) > 1e-9 || slots.Need.Memory != memory || k.hosts[h].paused != paused || k.hosts[h].stored != stored[h] {
			t.Errorf("host %d: %+v, stored %v, computing %v; has %v, %v cores, %v, %v", h, slots, k.hosts[h].stored, k.hosts[h].computing, used, cpu, stored[h], computing)
		}
		if k.cfg.Space > 0 && slots.Space != k.cfg.Space-stored[h] || slots.Lost != k.hosts[h].lost || slots.Lost == (slots.Total != [2]int{}) {
			t.Errorf("host %d, which stores %v, shows %+v", h, stored[h], slots)
		}
		k.show(id)
		k.view.Host = id
		for _, j := range k.order {
			for _, st := range j.stages {
				if st.fetches() || st.shown == 0 {
					continue
				}
				var want [3]int
				lowest := [3]int32{-1, -1, -1}
				for i := range st.tasks {
					if st.tasks[i].status != pending {
						continue
					}
					near := policies.OffRack
					for _, r := range st.replicas[i] {
						if k.live(r) && r == id {
							near = policies.NodeLocal
						} else if k.live(r) && k.rackOf(r) == k.rackOf(id) {
							near = min(near, policies.RackLocal)
						}
					}
					if want[near]++; lowest[near] < 0 {
						lowest[near] = int32(i)
					}
				}
				var got [3]int32
				for l := range got {
					got[l] = k.nearest(st, id, policies.Locality(l))
				}
				if asked := k.pending(j.place, st.index); !k.hosts[h].lost && asked != want {
					t.Errorf("host %d asks for stage %d.%d and gets %v, want %v", h, j.ID, st.index, asked, want)
				}
				if !k.hosts[h].lost && (st.state.Pending != want || got != lowest) {
					t.Errorf("host %d sees %v of stage %d.%d, want %v; nearest %v, want %v", h, st.state.Pending, j.ID, st.index, want, got, lowest)
				}
			}
		}
		k.hide(id)
	}
}

// auditFetches compares the counts of fetches by host, and what is observed of ended ones.
func auditFetches(t rapid.TB, k *Tracker) {
	fetching, serving := make([]int, len(k.hosts)), make([]int, len(k.hosts))
	for _, f := range k.fetch {
		fetching[f.a.Host]++
		serving[f.a.st.sources[f.source].host]++
		if f.flows < 1 || f.flows > int(k.last) {
			t.Errorf("fetch %d began with %d flows on its links", f.id, f.flows)
		}
	}
	for h, x := range k.hosts {
		if x.fetching != fetching[h] || x.serving != serving[h] {
			t.Errorf("host %d counts %d fetches to it and %d from it; has %d and %d", h, x.fetching, x.serving, fetching[h], serving[h])
		}
	}
	if k.history.Fetches != len(k.fetch) {
		t.Errorf("the history shows %d fetches under way, of %d", k.history.Fetches, len(k.fetch))
	}
	for class := range k.history.Copies {
		c := &k.history.Copies[class]
		var alone, shared policies.Fetched
		for _, l := range c.ByFlows {
			for _, x := range []struct{ to, of *policies.Fetched }{{&alone, &l.Alone}, {&shared, &l.Shared}} {
				x.to.Count, x.to.Size, x.to.Busy = x.to.Count+x.of.Count, x.to.Size+x.of.Size, x.to.Busy+x.of.Busy
			}
		}
		if alone != c.Alone || shared != c.Shared {
			t.Errorf("class %d: fetches by flows %+v and %+v, all %+v and %+v", class, alone, shared, c.Alone, c.Shared)
		}
	}
}

const inProgress = running
