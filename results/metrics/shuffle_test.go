package metrics

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// shuffleJobs has two jobs.
//
// Job 1 has maps on racks 0, 0, 0 and 1, which end after 2, 3, 5 and 4 s and take 2, 3, 4 and 3 s. Its
// reduces of stage 1 are on racks 0, 1 and 1, and fetched 60, 30 and 10 bytes: from rack 0 30 (20 of them
// on the own host), 30 and 5, and from rack 1 30, 0 and 5 (on the own host). Its stage 2 does not count
// for waits.
//
// Job 2 has one map, and a reduce in another rack.
func shuffleJobs() flows.Records {
	var r flows.Records
	add := func(job workloads.JobID, stage, task, attempt int, host, locality string, input units.Bytes, start, end time.Duration, outcome string) {
		kind := flows.MapTask
		if locality == "" {
			kind = flows.ReduceTask
		}
		r.Attempts = append(r.Attempts, flows.AttemptRecord{Job: job, Stage: stage, Task: task, Attempt: attempt, Kind: kind, Host: host, Locality: locality,
			Input: input, Start: start, InputEnd: end, Compute: end, Computed: end, End: end, Outcome: outcome})
	}
	add(1, 0, 0, 0, "h0-00", flows.NodeLocal, 100, 0, 2*sec, flows.Committed)
	add(1, 0, 1, 0, "h0-01", flows.NodeLocal, 100, 0, 3*sec, flows.Committed)
	add(1, 0, 2, 0, "h1-01", flows.OffRack, 100, 0, sec, flows.Killed)
	add(1, 0, 2, 1, "h0-01", flows.NodeLocal, 100, sec, 5*sec, flows.Committed)
	add(1, 0, 3, 0, "h1-00", flows.OffRack, 100, sec, 4*sec, flows.Committed)
	add(1, 1, 0, 0, "h0-00", "", 60, sec, 9*sec, flows.Committed)
	add(1, 1, 1, 0, "h1-00", "", 30, 4*sec, 9*sec, flows.Committed)
	add(1, 1, 2, 0, "h1-01", "", 9, 2*sec, 7*sec, flows.Failed)
	add(1, 1, 2, 1, "h1-00", "", 10, 7*sec, 9*sec, flows.Committed)
	add(1, 1, 3, 0, "h0-01", "", 0, 8*sec, 9*sec, flows.Committed) // an empty partition
	add(1, 2, 0, 0, "h1-00", "", 0, 20*sec, 21*sec, flows.Committed)
	add(2, 0, 0, 0, "h0-00", flows.NodeLocal, 100, 0, 2*sec, flows.Committed)
	add(2, 1, 0, 0, "h1-00", "", 100, 5*sec, 9*sec, flows.Committed)
	fetch := func(job workloads.JobID, task, attempt int, from, to string, size units.Bytes) {
		r.Flows = append(r.Flows, flows.FlowRecord{Src: from, Dst: to, Size: size, Task: &flows.TaskTransfer{Job: job, Stage: 1, Task: task, Attempt: attempt, Outputs: 1}})
	}
	fetch(1, 0, 0, "h0-01", "h0-00", 10)
	fetch(1, 0, 0, "h1-00", "h0-00", 30)
	fetch(1, 1, 0, "h0-00", "h1-00", 20)
	fetch(1, 1, 0, "h0-01", "h1-00", 10)
	fetch(1, 2, 0, "h0-00", "h1-01", 9) // of the failed attempt
	fetch(1, 2, 1, "h0-00", "h1-00", 5)
	fetch(2, 0, 0, "h0-00", "h1-00", 100)
	// No fetches: an input block, and a flow of no task.
	r.Flows = append(r.Flows, flows.FlowRecord{Src: "h0-00", Dst: "h1-00", Size: 100, Task: &flows.TaskTransfer{Job: 1, Task: 3}}, flows.FlowRecord{Src: "h0-00", Dst: "h1-00", Size: 1000})
	return r
}

func TestShuffleOf(t *testing.T) {
	r := shuffleJobs()
	want := &ShuffleFigures{
		// Shares 3/4 and 1/4: 1 / (9/16 + 1/16).
		MapRacks: Average{1.6, 1},
		// Job 1: data 65 and 35 of 100, so 1.95 and 1.05 of 3 reduces: 2 and 1. There are 1 and 2. Job 2: its
		// data is in rack 0, its reduce in rack 1.
		ReducesAtData:   Average{2, 4},
		ShuffleCrossing: Average{30 + 30 + 5 + 100, 100 + 100},
		// Starts at 1 and 4 s and a first map at 2 s in job 1, 5 s and 2 s in job 2. Second attempts do not count.
		ReduceWait: Average{float64(0 + 2*sec + 3*sec), 3},
		// The medians of the maps are 3 and 2 s.
		ReducesDelayed: Average{1, 3},
	}
	got := ShuffleOf(&r)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if v, ok := got.ReduceWait.Value(); !ok || v != float64(5*sec)/3 {
		t.Errorf("average wait %v", v)
	}
	got.Add(want)
	if v, ok := got.ReducesAtData.Value(); !ok || v != 0.5 || got.ReducesAtData.N != 8 {
		t.Errorf("two repeats: %+v, want the same share of twice the reduces", got.ReducesAtData)
	}
	if _, ok := (Average{}).Value(); ok {
		t.Error("an average of no values")
	}
	maps := slices.DeleteFunc(r.Attempts, func(a flows.AttemptRecord) bool { return isReduce(&a) })
	if got := ShuffleOf(&flows.Records{Attempts: maps}); got != nil {
		t.Errorf("no task has fetched: %+v, want nil", got)
	}
}

// Job 1 keeps 25 bytes of each of its four maps, of 100 that its reduces fetched, and job 2 all of 100.
func TestSpace(t *testing.T) {
	r := shuffleJobs()
	r.Jobs = []flows.JobRecord{{Job: 1, Tasks: 9, End: 10 * sec}, {Job: 2, Tasks: 2, End: 20 * sec}}
	got := ShuffleOf(&r)
	// 125 bytes from 2 s on, 150 from 3 s, 175 from 4 s, 200 from 5 s, and 100 from 10 to 20 s.
	if peak, mean := (Average{200, 1}), (Average{122.5, 1}); got.SpacePeak != peak || got.SpaceMean != mean {
		t.Errorf("peak %v and mean %v, want %v and %v", got.SpacePeak, got.SpaceMean, peak, mean)
	}
	r.Jobs = r.Jobs[:1] // job 2 did not complete
	if got := ShuffleOf(&r); got.SpacePeak != (Average{100, 1}) {
		t.Errorf("without job 2: peak %v, want 100", got.SpacePeak)
	}
}

// The delay of a reduce is measured from the first map, whatever the order of tasks, and only in the
// first stage with reduces.
func TestReduceWaitStages(t *testing.T) {
	r := shuffleJobs()
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.Stage == 2 {
			a.Input = 5
		}
		if a := &r.Attempts[i]; a.Job == 1 && a.Stage == 0 && a.Task == 3 {
			a.End = 1500 * time.Millisecond
		}
	}
	if got := ShuffleOf(&r); got.ReduceWait != (Average{float64(2500*time.Millisecond + 3*sec), 3}) || got.ReducesAtData.N != 5 {
		t.Errorf("%+v", got)
	}
}

// Sums of transfers have no attempts: data is divided like maps, and all attempts count.
func TestShuffleOfSums(t *testing.T) {
	r := shuffleJobs()
	r.Flows = nil
	sum := func(job workloads.JobID, from, to string, size units.Bytes, outputs int) {
		r.Summed = append(r.Summed, flows.FlowRecord{Src: from, Dst: to, Size: size, Task: &flows.TaskTransfer{Job: job, Stage: 1, Outputs: outputs}})
	}
	sum(1, "h0-01", "h0-00", 10, 1)
	sum(1, "h1-00", "h0-00", 74, 1)
	sum(1, "h1-00", "h0-00", 500, 0) // an input block
	sum(2, "h0-00", "h1-00", 100, 1)
	got := ShuffleOf(&r)
	// Job 1: 3 and 1 of 4 maps, so 2.25 and 0.75 of 3 reduces: 2 and 1. There are 1 and 2.
	if got.ReducesAtData != (Average{2, 4}) || got.ShuffleCrossing != (Average{174, 109 + 100}) || got.MapRacks != (Average{1.6, 1}) {
		t.Errorf("%+v", got)
	}
	r.Summed[1].Size = 400 // more than attempts that finished had fetched
	if got := ShuffleOf(&r); got.ShuffleCrossing != (Average{500, 410 + 100}) {
		t.Errorf("crossed %+v", got.ShuffleCrossing)
	}
}

func TestPreferred(t *testing.T) {
	for _, tt := range []struct {
		reduces int
		data    map[int]units.Bytes
		want    map[int]int
	}{
		{4, map[int]units.Bytes{0: 1, 1: 1}, map[int]int{0: 2, 1: 2}},
		{3, map[int]units.Bytes{0: 1, 1: 1}, map[int]int{0: 2, 1: 1}}, // equal remainders: the lower rack
		{1, map[int]units.Bytes{2: 10, 5: 11}, map[int]int{2: 0, 5: 1}},
		{10, map[int]units.Bytes{0: 47, 1: 16, 2: 16, 3: 12, 4: 6, 5: 3}, map[int]int{0: 5, 1: 2, 2: 2, 3: 1, 4: 0, 5: 0}}, // three remainders of 0.6
		{2, map[int]units.Bytes{0: 0}, map[int]int{}},
		{2, map[int]units.Bytes{0: math.MaxInt64, 1: math.MaxInt64, 2: math.MaxInt64, 3: -5}, map[int]int{0: 1, 1: 1, 2: 0, 3: 0}},
	} {
		if d := cmp.Diff(tt.want, preferred(tt.reduces, tt.data)); d != "" {
			t.Errorf("preferred(%d, %v) (-want +got):\n%s", tt.reduces, tt.data, d)
		}
	}
}

// Each rack gets its share rounded down or up, and all reduces have a rack.
func TestPreferredProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reduces := rapid.IntRange(1, 500).Draw(t, "reduces")
		data, total := map[int]units.Bytes{}, 0.0
		for rack := range rapid.IntRange(1, 9).Draw(t, "racks") {
			data[rack] = units.Bytes(rapid.IntRange(1, 1000).Draw(t, "bytes"))
			total += float64(data[rack])
		}
		sum := 0
		for rack, n := range preferred(reduces, data) {
			sum += n
			if share := float64(reduces) * float64(data[rack]) / total; math.Abs(float64(n)-share) >= 1 {
				t.Fatalf("rack %d has %d reduces, its share is %v", rack, n, share)
			}
		}
		if sum != reduces {
			t.Fatalf("%d reduces are placed, want %d", sum, reduces)
		}
	})
}

// rackSeries has two racks and two spines with links of 8 Mbps, 1 MB/s each, and loads of the uplinks and
// downlinks of each rack in MB for each second, which the first spine's links carry up to their capacity.
func rackSeries(t *testing.T, up, down [2][]float64) (out []flows.LinkSeries) {
	t.Helper()
	f := fabricOf(t, 2, 2, "8Mbps")
	for _, l := range f.Links() {
		s := flows.LinkSeries{Link: l.ID, Name: f.LinkName(l.ID), Rate: l.Rate, Interval: 500 * time.Millisecond}
		var load []float64
		switch l.Kind {
		case topo.LeafUp:
			load = up[l.Rack]
		case topo.LeafDown:
			load = down[l.Rack]
		default: // loads of hosts' links do not count
			load = slices.Repeat([]float64{2}, 8)
		}
		for _, x := range load {
			x = min(1, max(0, x-float64(l.Spine)))
			// All in the first half of the second: an interval lasts for a second.
			s.Bytes = append(s.Bytes, units.Bytes(math.Round(x*1e6)), 0)
		}
		out = append(out, s)
	}
	return out
}

func TestSaturated(t *testing.T) {
	links := rackSeries(t,
		[2][]float64{{0, 1.7, 1.7, 0, 1.7, 0, 0, 0}, {1.7, 1.7, 0, 2, 2, 1.6, 1.7, 1.7}},
		[2][]float64{{0, 0, 0, 1.8, 0, 1.9, 0, 0}, {}})
	racks := RackLoads(links, SaturationInterval)
	if len(racks) != 2 || racks[1].Rack != 1 || racks[0].Interval != time.Second {
		t.Fatalf("%+v", racks)
	}
	if d := cmp.Diff([]float64{0, 0.85, 0.85, 0, 0.85, 0, 0, 0}, racks[0].Up); d != "" {
		t.Errorf("share of both uplinks (-want +got):\n%s", d)
	}
	if d := cmp.Diff(make([]float64, 8), racks[1].Down); d != "" {
		t.Errorf("downlinks without traffic (-want +got):\n%s", d)
	}
	// Rack 0: seconds 1 to 5, whichever direction is loaded. Rack 1: two seconds in a row are too few,
	// and 80 % is not above 80 %.
	if d := cmp.Diff([][2]int{{1, 6}}, racks[0].Saturated()); d != "" {
		t.Errorf("rack 0 (-want +got):\n%s", d)
	}
	if got := racks[1].Saturated(); got != nil {
		t.Errorf("rack 1 is saturated in %v", got)
	}
	for _, tt := range []struct{ from, to, want time.Duration }{
		{0, 8 * sec, 5 * sec}, {0, 3500 * time.Millisecond, 2500 * time.Millisecond}, {2 * sec, 30 * sec, 4 * sec}, {6 * sec, 9 * sec, 0}, {0, 0, 0},
	} {
		if got := racks[0].SaturatedTime(tt.from, tt.to); got != tt.want {
			t.Errorf("%v to %v: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
	short := slices.Clone(links)
	for i := range short { // a series that ends early carried nothing afterwards
		if short[i].Name == "spine1>leaf0" {
			short[i].Bytes = short[i].Bytes[:8]
		}
	}
	if got := RackLoads(short, sec)[0].Down; len(got) != 8 || got[3] != 0.9 || got[5] != 0.5 {
		t.Errorf("loads of a rack with a short series: %v", got)
	}
	if got := RackLoads(links[:4], sec); got != nil {
		t.Errorf("loads of racks from links of hosts: %v", got)
	}
	links[len(links)-1].Interval = time.Second
	if got := RackLoads(links, sec); got != nil {
		t.Errorf("loads of racks with different intervals: %v", got)
	}
}

func TestRackOfLink(t *testing.T) {
	for name, want := range map[string][3]int{"leaf3>spine1": {3, 1, 1}, "spine4>leaf12": {12, 0, 1}, "h1-00>leaf1": {}, "leaf1>h1-00": {}, "leaf1>spine": {}, "": {},
		"leaf99999999999999999999>spine1": {}} {
		rack, up, ok := RackOfLink(name)
		if ok != (want[2] == 1) || ok && (int(rack) != want[0] || up != (want[1] == 1)) {
			t.Errorf("%q: rack %d, up %v, %v", name, rack, up, ok)
		}
	}
}
