package metrics

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/results/flows/flowstest"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// ran is an attempt of job 2 that reads 100 bytes, between seconds.
func ran(stage, task, n int, from, to time.Duration, outcome string) flows.AttemptRecord {
	a := flows.AttemptRecord{Job: 2, Stage: stage, Task: task, Attempt: n, Kind: flows.MapTask, Host: "h0-00", Locality: flows.NodeLocal, Input: 100, Start: from * sec, End: to * sec, Outcome: outcome}
	if stage > 0 {
		a.Kind, a.Locality, a.InputEnd = flows.ReduceTask, "", a.End
	}
	return a
}

// cloned has a map with two complete copies, the second at 6 s, and a reduce of which three attempts fetch: the first and the
// second at the same time from the first copy, the third from the second copy, alone. The third wins. A map of another job
// runs once.
func cloned() *flows.Records {
	fetch := func(id, attempt, from int, start, end time.Duration, size units.Bytes) flows.FlowRecord {
		return flows.FlowRecord{Flow: 0, Src: "h0-00", Dst: "h1-00", Size: size, Start: start * sec, End: end * sec,
			Task: &flows.TaskTransfer{Job: 2, Stage: 1, Attempt: attempt, FromAttempt: from, Outputs: 1}}
	}
	read := func(attempt int, size units.Bytes) flows.FlowRecord {
		return flows.FlowRecord{Src: "h1-00", Dst: "h0-00", Size: size, Task: &flows.TaskTransfer{Job: 2, Attempt: attempt}}
	}
	other := ran(0, 0, 0, 0, 30, flows.Committed)
	other.Job = 3
	alone := ran(0, 0, 0, 0, 3, flows.Killed)
	alone.Job, alone.Host = 4, "h0-01"
	return &flows.Records{
		Jobs: []flows.JobRecord{{Job: 2, Tasks: 2, End: 20 * sec}, {Job: 3, Tasks: 11, End: 30 * sec}},
		Attempts: []flows.AttemptRecord{
			ran(0, 0, 0, 0, 4, flows.Committed), ran(0, 0, 1, 0, 6, flows.Copied), ran(0, 0, 2, 1, 5, flows.Killed),
			ran(1, 0, 0, 3, 14, flows.Killed), ran(1, 0, 1, 4, 14, flows.Killed), ran(1, 0, 2, 4, 14, flows.Committed),
			other, alone,
		},
		Flows:   []flows.FlowRecord{read(0, 100), read(1, 100), fetch(1, 0, 0, 5, 8, 30), fetch(2, 2, 1, 7, 9, 40)},
		Stopped: []flows.FlowRecord{read(2, 60), fetch(3, 1, 0, 7, 14, 20)},
		// The second one is of an attempt that is killed and has no clone.
		StoppedWrites: []flows.StoppedWrite{{Block: 1, Sent: 9, Attempt: flows.AttemptKey{Job: 2, Stage: 1}}, {Block: 2, Sent: 8, Attempt: alone.Key()}},
		// One of an attempt that loses, on two other hosts, one of the attempt that wins, and one of no task.
		Blocks: []flows.BlockRecord{{Block: 3, Client: "h0-00", Hosts: []string{"h0-00", "h1-00", "h2-00"}, Size: 1000, Attempt: flows.AttemptKey{Job: 2, Stage: 1}},
			{Block: 4, Client: "h0-00", Hosts: []string{"h1-00"}, Size: 1, Attempt: flows.AttemptKey{Job: 2, Stage: 1, Attempt: 2}}, {Block: 5, Client: "h0-00", Hosts: []string{"h1-00"}, Size: 1}},
	}
}

// A backup starts while another attempt runs. An attempt after a failure is none.
func TestBackups(t *testing.T) {
	r := oneJob()
	r.Attempts = append(r.Attempts,
		ran(0, 0, 0, 1, 9, flows.Killed), ran(0, 0, 1, 3, 9, flows.Committed), ran(0, 0, 2, 4, 9, flows.Killed),
		ran(0, 1, 0, 1, 4, flows.Committed), ran(0, 1, 1, 2, 4, flows.Killed),
		ran(0, 2, 0, 1, 2, flows.Failed), ran(0, 2, 1, 2, 4, flows.Committed))
	if got, want := TasksOf(&r, nil).Clones.Backups, (Backups{Tasks: 2, Started: 3, Won: 1, Killed: 2, Extra: (8 + 5 + 2) * sec}); got != want {
		t.Errorf("backups %+v, want %+v", got, want)
	}
	roles := []Role{Single, Single, Single, Original, Backup, Backup, Original, Backup, Single, Single}
	if got := RolesOf(r.Attempts); !slices.Equal(roles, got) {
		t.Errorf("roles %v, want %v", got, roles)
	}
	r = oneJob()
	if got := TasksOf(&r, nil).Clones; got != nil {
		t.Errorf("clones %+v without attempts at the same time", got)
	}
}

// Slot time, bytes and fetches of clones. The second fetch of the reduce waits for the second copy from 4 s to 7 s, the first
// one from 4 s to 5 s, and the one that is stopped from 4 s to 7 s.
func TestClonesOf(t *testing.T) {
	r := cloned()
	want := &Clones{
		Backups: Backups{Tasks: 2, Started: 4, Won: 1, Copied: 1, Killed: 2, Extra: (6 + 4 + 11 + 10) * sec},
		Used:    [jobs.SizeClasses]time.Duration{(4 + 6 + 4 + 11 + 10 + 10 + 3) * sec, 30 * sec}, ExtraOf: [jobs.SizeClasses]time.Duration{31 * sec},
		// Maps: 1 extra from 0 s, 2 from 1 s, 1 from 4 s to 5 s. Reduces: 2 from 4 s to 14 s.
		Beyond: (1 + 2*3 + 1 + 2*10) * sec, PeakSlots: 3,
		Bytes:  ExtraBytes{Read: 160, Fetched: 50, Further: 0, All: 350, Written: 2009},
		Copies: [jobs.SizeClasses]Copies{{Alone: Fetches{1, 40, 2 * sec}, Shared: Fetches{1, 30, 3 * sec}, Attempts: 3, Waited: (1 + 3 + 3) * sec}},
	}
	got := ClonesOf(r)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if share, ok := got.AllCopies().SharedShare(); share != 0.5 || !ok {
		t.Errorf("share of shared fetches %v, %v: want 0.5", share, ok)
	}
	if share, ok := (Copies{}).SharedShare(); share != 0 || ok {
		t.Errorf("share of no fetches %v, %v", share, ok)
	}
	// The other attempt wins: what the third fetched from the second copy is extra.
	r.Attempts[4].Outcome, r.Attempts[5].Outcome = flows.Committed, flows.Killed
	if got := ClonesOf(r).Bytes; got != (ExtraBytes{Read: 160, Fetched: 70, Further: 40, All: 350, Written: 2010}) {
		t.Errorf("bytes %+v", got)
	}
	slots := ExtraSlotsOf(r, 10*sec)
	for i := range slots {
		slots[i] = Round6(slots[i])
	}
	if want := []float64{(1 + 6 + 1 + 12) / 10.0, 0.8, 0}; !slices.Equal(want, slots) {
		t.Errorf("extra slots %v, want %v", slots, want)
	}
	twice := *want
	twice.Add(want)
	twice.Add(nil)
	if twice.Extra != 2*want.Extra || twice.Beyond != 2*want.Beyond || twice.PeakSlots != 3 || twice.AllCopies().Attempts != 6 || twice.Bytes.All != 700 {
		t.Errorf("two repeats: %+v", twice)
	}
}

// A fetch from a copy does not wait while the attempt fetches something else.
func TestWaitsForCopiesWhileIdle(t *testing.T) {
	r := cloned()
	r.Attempts = append(r.Attempts, ran(0, 1, 0, 0, 4, flows.Committed))
	slices.SortStableFunc(r.Attempts, func(a, b flows.AttemptRecord) int {
		return int(a.Job-b.Job)*100 + (a.Stage-b.Stage)*10 + a.Task - b.Task
	})
	r.Flows = append(r.Flows, flows.FlowRecord{Src: "h0-00", Dst: "h1-00", Size: 5, Start: 4 * sec, End: 6 * sec, Task: &flows.TaskTransfer{Job: 2, Stage: 1, Attempt: 2, FromTask: 1, Outputs: 1}})
	if got, want := ClonesOf(r).AllCopies().Waited, (1+3+1)*sec; got != want {
		t.Errorf("waited %v, want %v: the third attempt from 6 s to 7 s only", got, want)
	}
}

// The rates of a stage are 25, 20, 20 and 9 bytes/s: one of the attempts that ended is slow. An attempt killed after 11 s of
// 100 bytes is slow, one after 5 s is not known to be.
func TestStraggling(t *testing.T) {
	fetched := ran(1, 0, 0, 0, 50, flows.Killed) // how much is not known
	fetched.InputEnd = 0
	r := &flows.Records{Attempts: []flows.AttemptRecord{
		ran(0, 0, 0, 0, 4, flows.Committed), ran(0, 1, 0, 0, 5, flows.Committed), ran(0, 2, 0, 0, 5, flows.Copied), ran(0, 3, 0, 0, 11, flows.Committed),
		ran(0, 4, 0, 0, 11, flows.Killed), ran(0, 5, 0, 0, 5, flows.Killed),
		fetched, ran(1, 1, 0, 0, 1, flows.Committed), ran(1, 2, 0, 0, 1, flows.Committed),
		ran(2, 0, 0, 0, 1, flows.Committed), ran(2, 1, 0, 0, 90, flows.Killed), // one alone has no median
	}}
	if got, want := TasksOf(r, nil).Straggling, (Straggling{Judged: 7, Slow: 2, Unknown: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (Straggling{Judged: 7, Slow: 2}).Share(); got != 2.0/7 {
		t.Errorf("share %v", got)
	}
}

// In invented records the figures agree with those of all attempts.
func TestClonesOfInventedRecords(t *testing.T) {
	c := flowstest.Default()
	found := false
	for seed := range uint64(20) {
		r := c.Records(seed)
		tasks, got := TasksOf(&r, nil), ClonesOf(&r)
		if got == nil || tasks.Copied == 0 {
			continue
		}
		found = found || got.AllCopies().Attempts > 0
		var used, extra time.Duration
		for k := range got.Used {
			used, extra = used+got.Used[k], extra+got.ExtraOf[k]
		}
		all := time.Duration(0)
		for _, a := range r.Attempts {
			all += a.End - a.Start
		}
		slots := 0.0
		for _, n := range ExtraSlotsOf(&r, sec) {
			slots += n
		}
		if used != all || extra != got.Extra || got.Extra > tasks.WastedTime || got.Backups.Copied > tasks.Copied || got.Beyond > got.Extra ||
			(slots-got.Beyond.Seconds()) > 1e-6 || (got.Beyond.Seconds()-slots) > 1e-6 {
			t.Errorf("seed %d: %+v; slot time %v of all, %v s beyond the first; %+v", seed, got, all, slots, tasks)
		}
	}
	if !found {
		t.Error("no records with copies")
	}
}
