package metrics

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/results/flows"
	"testbed/results/flows/flowstest"
	"testbed/topo/units"
	"testbed/workloads"
)

const sec = time.Second

// A map, and a reduce that starts before the map ends.
func oneJob() flows.Records {
	return flows.Records{
		Jobs: []flows.JobRecord{{Job: 1, User: "a", Tasks: 2, Arrival: 1 * sec, End: 20 * sec, Lone: 10 * sec}},
		Attempts: []flows.AttemptRecord{
			{Job: 1, Kind: flows.MapTask, Host: "h0-00", Locality: flows.RackLocal, Input: 100, Start: 3 * sec, InputEnd: 6 * sec, Compute: 3 * sec, Computed: 7 * sec, End: 8 * sec, Outcome: flows.Committed},
			{Job: 1, Stage: 1, Kind: flows.ReduceTask, Host: "h1-00", Input: 40, Start: 5 * sec, InputEnd: 9 * sec, Compute: 10 * sec, Computed: 14 * sec, End: 15 * sec, Outcome: flows.Failed},
			{Job: 1, Stage: 1, Attempt: 1, Kind: flows.ReduceTask, Host: "h1-00", Input: 50, Start: 15 * sec, InputEnd: 16 * sec, Compute: 16 * sec, Computed: 18 * sec, End: 20 * sec, Outcome: flows.Committed},
		},
		Flows: []flows.FlowRecord{
			{Src: "h0-01", Dst: "h0-00", Size: 100, Task: &flows.TaskTransfer{Job: 1}},
			{Src: "h0-00", Dst: "h1-00", Size: 40, Task: &flows.TaskTransfer{Job: 1, Stage: 1, Outputs: 1}},
			{Src: "h0-00", Dst: "h0-00", Size: 7, Task: &flows.TaskTransfer{Job: 1, Stage: 1, Outputs: 1}},
			{Src: "h0-00", Dst: "h1-00", Size: 1000}, // serves no task
		},
	}
}

func TestTasksOf(t *testing.T) {
	r := oneJob()
	slots := &TaskSlots{Hosts: 2, Map: 2, Reduce: 1}
	got := TasksOf(&r, slots)
	want := &Tasks{Jobs: 1, Makespan: 19 * sec, Committed: 2, Failed: 1, WastedTime: 10 * sec, WastedInput: 40,
		Locality: Locality{Rack: 1}, ByMaps: [4]Locality{{Rack: 1}}, Moved: TaskBytes{Read: 100, Fetched: 40, FetchedCrossRack: 40},
		Busy:  map[string]time.Duration{flows.MapTask: 5 * sec, flows.ReduceTask: 15 * sec},
		Slots: slots, Divided: 1, Slowdowns: []float64{1.9},
		// Waiting 1–3; mapping 3–7; shuffling 7–10 and 15–16; computing 10–14 and 16–18; writing the rest.
		Parts: [JobParts]time.Duration{JobWaiting: 2 * sec, JobMapping: 4 * sec, JobShuffling: 4 * sec, JobComputing: 6 * sec, JobWriting: 3 * sec},
		// One map gives no number of racks. What the reduce fetched without a flow was on its host.
		// The map's output is stored from 8 to 20 s.
		Shuffle: &ShuffleFigures{ReducesAtData: Average{1, 1}, ShuffleCrossing: Average{0, 50}, SpacePeak: Average{50, 1}, SpaceMean: Average{50 * 12. / 19, 1}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got.Attempts() != 3 || slots.Of(flows.MapTask) != 4 || slots.Of(flows.ReduceTask) != 2 {
		t.Errorf("%d attempts, %d and %d slots: want 3, 4 and 2", got.Attempts(), slots.Of(flows.MapTask), slots.Of(flows.ReduceTask))
	}
	if TasksOf(&flows.Records{Jobs: r.Jobs}, slots) != nil {
		t.Error("figures without attempts")
	}
}

// What an attempt that was killed while it read had of its input is not known, and not counted.
func TestWastedInput(t *testing.T) {
	r := oneJob()
	killed := flows.AttemptRecord{Job: 1, Attempt: 1, Kind: flows.MapTask, Host: "h0-01", Locality: flows.OffRack, Input: 100, Start: 3 * sec, Compute: 3 * sec, End: 4 * sec, Outcome: flows.Killed}
	r.Attempts = slices.Insert(r.Attempts, 1, killed)
	if got := TasksOf(&r, nil); got.WastedInput != 40 || got.WastedTime != 11*sec {
		t.Errorf("wasted input %v and slot time %v, want 40B and 11s", got.WastedInput, got.WastedTime)
	}
	r.Attempts[1].InputEnd = 4 * sec
	if got := TasksOf(&r, nil); got.WastedInput != 140 {
		t.Errorf("wasted input %v, want 140B", got.WastedInput)
	}
}

func TestPhasesOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		a    flows.AttemptRecord
		want [AttemptPhases + 1]time.Duration
	}{
		{"map", flows.AttemptRecord{Locality: flows.NodeLocal, Start: 1, Compute: 1, InputEnd: 5, Computed: 6, End: 8}, [5]time.Duration{1, 5, 5, 6, 8}},
		{"reduce", flows.AttemptRecord{Start: 1, InputEnd: 5, Compute: 6, Computed: 7, End: 8}, [5]time.Duration{1, 5, 6, 7, 8}},
		{"killed while it fetched", flows.AttemptRecord{Start: 1, End: 8}, [5]time.Duration{1, 8, 8, 8, 8}},
		{"killed while it waited", flows.AttemptRecord{Start: 1, InputEnd: 2, End: 8}, [5]time.Duration{1, 2, 8, 8, 8}},
		{"nothing to read", flows.AttemptRecord{Start: 4, InputEnd: 4, Compute: 4, Computed: 4, End: 4}, [5]time.Duration{4, 4, 4, 4, 4}},
		{"times out of order", flows.AttemptRecord{Start: 4, InputEnd: 9, Compute: 2, Computed: 3, End: 8}, [5]time.Duration{4, 8, 8, 8, 8}},
	} {
		if got := PhasesOf(&tt.a); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The parts of a job's time add up to it, and each moment counts to the part that its definition says.
func TestJobPartsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) time.Duration { return time.Duration(rapid.IntRange(0, 40).Draw(t, name)) }
		j := flows.JobRecord{Job: 1, Arrival: number("arrival")}
		j.End = j.Arrival + number("time")
		var all []flows.AttemptRecord
		for range rapid.IntRange(0, 6).Draw(t, "attempts") {
			a := flows.AttemptRecord{Start: number("start"), InputEnd: number("input"), Compute: number("compute"), Computed: number("computed"), End: number("end")}
			a.Locality = rapid.SampledFrom([]string{"", flows.NodeLocal}).Draw(t, "locality")
			all = append(all, a)
		}
		var want [JobParts]time.Duration
		for at := j.Arrival; at < j.End; at++ {
			part := JobWaiting
			for i := range all {
				b := PhasesOf(&all[i])
				switch reads := all[i].Locality != ""; {
				case at < b[0] || at >= b[AttemptPhases]:
				case at >= b[WritingOutput]:
					part = min(part, JobWriting)
				case reads:
					part = min(part, JobMapping)
				case at >= b[ComputingTask]:
					part = min(part, JobComputing)
				default:
					part = min(part, JobShuffling)
				}
			}
			want[part]++
		}
		if got := JobPartsOf(j, all); got != want {
			t.Fatalf("parts %v, want %v", got, want)
		}
	})
}

func TestTasksByClassAndStragglers(t *testing.T) {
	var r flows.Records
	job := func(id workloads.JobID, maps int, locality string) {
		r.Jobs = append(r.Jobs, flows.JobRecord{Job: id, Tasks: maps, End: 9 * sec})
		for m := range maps {
			end := 2 * sec
			if m == 0 {
				end = 3 * sec
			}
			r.Attempts = append(r.Attempts, flows.AttemptRecord{Job: id, Task: m, Kind: flows.MapTask, Locality: locality, End: end, Outcome: flows.Committed})
		}
	}
	job(1, 2, flows.OffRack)
	job(2, 10, flows.RackLocal)
	job(3, 100, flows.NodeLocal)
	job(4, 101, flows.NodeLocal)
	// A second attempt does not make the job larger.
	r.Attempts = slices.Insert(r.Attempts, 2, flows.AttemptRecord{Job: 1, Task: 1, Attempt: 1, Kind: flows.MapTask, Locality: flows.NodeLocal, End: sec, Outcome: flows.Killed})
	got := TasksOf(&r, nil)
	if d := cmp.Diff([4]Locality{{OffRack: 2}, {Rack: 10}, {Node: 100}, {Node: 101}}, got.ByMaps); d != "" {
		t.Errorf("by class (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]float64{1.5, 1.5, 1.5}, got.Stragglers); d != "" {
		t.Errorf("stragglers, of stages with %d tasks or more (-want +got):\n%s", LeastStage, d)
	}
	if got.Locality.Total() != 213 || got.Killed != 1 || got.WastedTime != sec {
		t.Errorf("%+v", got)
	}
}

func TestJain(t *testing.T) {
	attempt := func(job workloads.JobID, from, to time.Duration) flows.AttemptRecord {
		return flows.AttemptRecord{Job: job, Kind: flows.MapTask, Start: from, End: to, Outcome: flows.Committed}
	}
	jobs := []flows.JobRecord{{Job: 1, User: "a", Tasks: 1, End: 10 * sec}, {Job: 2, User: "b", Tasks: 1, Arrival: 2 * sec, End: 10 * sec}, {Job: 3, User: "b", Tasks: 1, Arrival: 4 * sec, End: 12 * sec}}
	for _, tt := range []struct {
		name     string
		attempts []flows.AttemptRecord
		want     float64
		over     time.Duration
	}{
		{"equal", []flows.AttemptRecord{attempt(1, 0, 10*sec), attempt(2, 2*sec, 10*sec)}, 1, 8 * sec},
		{"one has all", []flows.AttemptRecord{attempt(1, 0, 10*sec), attempt(1, 0, 10*sec)}, 0.5, 8 * sec},
		{"3 to 1", []flows.AttemptRecord{attempt(1, 0, 10*sec), attempt(2, 2*sec, 10*sec), attempt(3, 4*sec, 12*sec), attempt(3, 4*sec, 12*sec)}, (2*1 + 6*0.8) / 8, 8 * sec},
		{"idle time does not count", []flows.AttemptRecord{attempt(1, 0, 3*sec)}, 0.5, sec},
		{"jobs without a record do not count", []flows.AttemptRecord{attempt(1, 0, 3*sec), attempt(7, 0, 10*sec)}, 0.5, sec},
	} {
		got := TasksOf(&flows.Records{Jobs: jobs, Attempts: tt.attempts}, nil)
		if math.Abs(got.Jain-tt.want) > 1e-12 || got.JainTime != tt.over {
			t.Errorf("%s: %v over %v, want %v over %v", tt.name, got.Jain, got.JainTime, tt.want, tt.over)
		}
	}
	got := TasksOf(&flows.Records{Jobs: jobs[1:], Attempts: []flows.AttemptRecord{attempt(2, 0, 3*sec)}}, nil)
	if got.JainTime != 0 {
		t.Errorf("one user: %v over %v, want no index", got.Jain, got.JainTime)
	}
}

// Shares of users sum to the slots in use.
func TestSharesOf(t *testing.T) {
	r := flowstest.Default().Records(1)
	const interval = 300 * time.Millisecond
	all := SharesOf(&r, interval)
	if len(all) != 3 {
		t.Fatalf("%d users, want 3", len(all))
	}
	var slots float64
	var used time.Duration
	for i, u := range all {
		if i > 0 && u.Time > all[i-1].Time {
			t.Errorf("%s after %s, but has more slot time", u.User, all[i-1].User)
		}
		for _, x := range u.Slots {
			slots += x * float64(interval)
		}
	}
	for _, a := range r.Attempts {
		used += a.End - a.Start
	}
	if math.Abs(slots-float64(used)) > 1000 {
		t.Errorf("users have %v of slot time, want %v", time.Duration(slots), used)
	}
}

// Figures of larger records are consistent with each other.
func TestTasksAddUp(t *testing.T) {
	c := flowstest.Default()
	r := c.Records(3)
	got := TasksOf(&r, &TaskSlots{c.Hosts(), c.MapSlots, c.ReduceSlots})
	var classes Locality
	for _, l := range got.ByMaps {
		classes.Add(l)
	}
	var total, parts time.Duration
	for _, j := range r.Jobs {
		total += j.JobTime()
	}
	for _, p := range got.Parts {
		parts += p
	}
	if classes != got.Locality || parts != total || got.Attempts() != len(r.Attempts) || got.Killed == 0 || got.Failed == 0 || got.Divided != c.Jobs {
		t.Errorf("%+v: classes %+v, parts %v of %v", got, classes, parts, total)
	}
	for _, kind := range TaskKinds() {
		if share := got.Busy[kind].Seconds() / (got.Makespan.Seconds() * float64(got.Slots.Of(kind))); !(share > 0.1 && share <= 1) {
			t.Errorf("%s slots: %v of their time in use", kind, share)
		}
	}
	if m := got.Moved; m.ReadCrossRack == 0 || m.ReadCrossRack >= m.Read || m.FetchedCrossRack == 0 || m.FetchedCrossRack >= m.Fetched {
		t.Errorf("bytes %+v: some of both kinds must cross racks, and some not", m)
	}
}

func TestJoinKeepsJobsOfTasks(t *testing.T) {
	meta := WorkloadMeta{Heartbeat: sec, TaskJobs: []AskedTaskJob{{Job: 1, User: "b", Profile: "sort", Maps: 4, Reduces: 3, Input: 99, Lone: 3 * sec}}, Slots: &TaskSlots{Hosts: 2, Map: 1}}
	if err := meta.Check(); err != nil {
		t.Fatal(err)
	}
	r := oneJob()
	r.Jobs = append(r.Jobs, flows.JobRecord{Job: 2, End: sec}, flows.JobRecord{Job: 3, User: "c", Tasks: 1, End: sec})
	want := []flows.JobRecord{{Job: 1, User: "b", Profile: "sort", Tasks: 7, Input: 99, Arrival: sec, End: 20 * sec, Lone: 3 * sec}, {Job: 3, User: "c", Tasks: 1, End: sec}}
	for range 2 {
		meta.Join(&r)
		if d := cmp.Diff(want, r.Jobs); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	bad := WorkloadMeta{Heartbeat: sec, TaskJobs: []AskedTaskJob{{Job: 1, Maps: 1}, {Job: 1, Maps: 1}, {Job: 2, Maps: 1, Input: -1 * units.Byte}, {Job: 3}}, Slots: &TaskSlots{}}
	if err := bad.Check(); err == nil || len(err.(interface{ Unwrap() []error }).Unwrap()) != 4 {
		t.Errorf("errors %v: want one for each of two jobs 1, a negative input, no tasks and no hosts", err)
	}
}
