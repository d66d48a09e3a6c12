package tasks

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/clone"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// A host on which 0.40 straggled in the last window and 0.10 in all gets no tasks for one window.
func TestBlacklist(t *testing.T) {
	s := Scheduler{Order: FIFO{}, Blacklist: clone.Blacklist{Above: 0.2, Window: 10 * time.Second}}
	w := newWorld(t, 1, [jobs.TaskKinds]int{4, 1})
	w.add("a", mapStage(0, 100))
	launches := func(at time.Duration, h topo.HostID) bool { return len(w.beat(s, at, h).Launch) > 0 }
	judge := func(judged, straggled int) {
		w.Slots[1].Judged += judged
		w.Slots[1].Straggled += straggled
	}
	judge(90, 6)
	launches(0, 0)
	judge(10, 4)
	if !launches(9*time.Second, 1) {
		t.Error("a host is skipped before the window ends")
	}
	if launches(10*time.Second, 1) || !launches(11*time.Second, 0) || launches(19*time.Second, 1) {
		t.Error("host 1 is not skipped in the window, or others are")
	}
	w.Slots[0].Lost, w.Slots[2].Lost = true, true
	if !launches(19*time.Second, 1) {
		t.Error("all hosts that are up are skipped")
	}
	w.Slots[0].Lost, w.Slots[2].Lost = false, false
	if !launches(20*time.Second, 1) {
		t.Error("a host is skipped in a second window although nothing ran on it")
	}
	s.Blacklist.Above = 0.25
	judge(0, 0)
	w.x = nil
	if launches(30*time.Second, 0); !launches(40*time.Second, 1) {
		t.Error("a host is skipped without stragglers in the last window")
	}
}

// On a blacklist, hosts get neither tasks nor backups nor clones, never all of them at once, and jobs end.
func TestBlacklistSkips(t *testing.T) {
	f := racks(t, 2, 3)
	skipped := 0
	rapid.Check(t, func(t *rapid.T) {
		s := dolly()
		s.Cloning.Budget = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "budget")
		s.Speculation = Speculation{By: ByLATE, LATE: clone.LATE{Cap: 1, TaskPercentile: 1}}
		s.Blacklist = clone.Blacklist{Above: rapid.SampledFrom([]float64{0.1, 0.3, 0.5}).Draw(t, "p"), Window: time.Duration(rapid.IntRange(100, 2000).Draw(t, "window")) * time.Millisecond}
		c := smallJobs(t, f, false)
		n := c.Unfinished()
		c.Run(t, s, int(3*time.Minute/c.Between), func(v *policies.TaskView, a *policies.Assignment) {
			x, listed := c.Instance().(*instance), 0
			for h := range v.Slots {
				if x.blacklist.hosts[h].skipped {
					listed++
				}
			}
			if here := x.blacklist.hosts[v.Host].skipped; here && listed < len(v.Slots) {
				if skipped++; len(a.Launch)+len(a.Backup) > 0 {
					t.Fatalf("launches %v and backups %v on a host that is skipped", a.Launch, a.Backup)
				}
			}
		})
		if len(c.Ended) != n {
			t.Fatalf("%d of %d jobs have ended", len(c.Ended), n)
		}
	})
	if skipped == 0 {
		t.Error("no host was skipped")
	}
}
