package report

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/results/flows/flowstest"
	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/topo"
	"testbed/topo/units"
)

// taskRun has two arms with jobs of tasks, of which the second reads more blocks from its own hosts,
// clones tasks and loses a job.
func taskRun() Input {
	c := flowstest.Default()
	c.Copies = 0
	slots := &metrics.TaskSlots{Hosts: c.Hosts(), Map: c.MapSlots, Reduce: c.ReduceSlots}
	repeat := func(node, pace float64, seed uint64) summary.Repeat {
		c.Node, c.Pace = node, pace
		return summary.Repeat{Records: c.Records(seed), Slots: slots}
	}
	in := Input{RunID: "tasks-1", Scenario: "tasks", FluidModel: true, Arms: []Arm{
		{Name: "fifo", Repeats: []summary.Repeat{repeat(0.3, 1, 1), repeat(0.3, 1, 2)}}}}
	c.Copies = 0.3
	in.Arms = append(in.Arms, Arm{Name: "fair", Repeats: []summary.Repeat{repeat(0.9, 1.4, 1), repeat(0.9, 1.4, 2)}})
	late := &in.Arms[1].Repeats[1]
	late.Records.Jobs = late.Records.Jobs[1:]
	late.Failures = []summary.Failure{{Failure: flows.Failure{Kind: flows.FailedJob, Job: 1, Host: "h0-00", At: 3 * time.Second}}}
	return in
}

func TestTasksGolden(t *testing.T) {
	r, err := New(taskRun())
	if err != nil {
		t.Fatal(err)
	}
	var terminal, markdown, doc bytes.Buffer
	if err := r.TerminalIn(&terminal, tables.Style{Width: 140}); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	if err := r.JSON(&doc); err != nil {
		t.Fatal(err)
	}
	golden(t, "tasks-terminal.txt", elided(r, terminal.String()))
	golden(t, "tasks-"+summary.MarkdownFile, elided(r, markdown.String()))
	goldenSummary(t, "tasks-"+summary.SummaryFile, doc.Bytes())
}

// The summary pools the repeats of an arm: counts are sums, times and bytes averages of a repeat.
func TestTaskSummary(t *testing.T) {
	in := taskRun()
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range in.Arms {
		s := r.Summary.Arms[i].Tasks
		of := func(key string) float64 { x, _ := r.Summary.Arms[i].Get("tasks." + key); return x }
		count := func(key string) int { return int(of(key)) }
		var each []*metrics.Tasks
		for k := range a.Repeats {
			each = append(each, metrics.TasksOf(&a.Repeats[k].Records, a.Repeats[k].Slots))
		}
		x, y := each[0], each[1]
		if count("jobs") != x.Jobs+y.Jobs || count("attempts.started") != x.Attempts()+y.Attempts() ||
			count("locality.n") != x.Locality.Total()+y.Locality.Total() || count("stragglers.stages") != len(x.Stragglers)+len(y.Stragglers) {
			t.Errorf("%s: counts of %+v are not the sums of %+v and %+v", a.Name, s, x, y)
		}
		for what, of := range map[string][2]float64{
			"makespan":   {of("makespan_us"), micros(x.Makespan+y.Makespan) / 2},
			"wasted":     {of("wasted_slot_us"), micros(x.WastedTime+y.WastedTime) / 2},
			"bytes":      {of("bytes.fetched_cross_rack"), float64(x.Moved.FetchedCrossRack+y.Moved.FetchedCrossRack) / 2},
			"throughput": {of("jobs_per_hour"), of("jobs") / (x.Makespan + y.Makespan).Hours()},
			"slots": {of("slot_use.map"), float64(x.Busy[flows.MapTask]+y.Busy[flows.MapTask]) /
				(float64(x.Makespan+y.Makespan) * float64(x.Slots.Of(flows.MapTask)))},
		} {
			if metrics.Round6(of[1]) != of[0] {
				t.Errorf("%s: %s %v, want %v", a.Name, what, of[0], of[1])
			}
		}
		sum := 0.0
		for _, part := range []string{"waiting", "mapping", "shuffling", "computing", "writing"} {
			sum += of("job_parts." + part + "_us")
		}
		if mean := r.Summary.Arms[i].JobTime.MeanUS; of("job_parts.jobs") != of("jobs") || sum < mean-0.01 || sum > mean+0.01 {
			t.Errorf("%s: parts of %v µs, want the mean job time, %v", a.Name, sum, mean)
		}
		n := 0
		for _, l := range s.ByMaps {
			n += l.N
			if d := l.Node + l.Rack + l.OffRack - 1; d < -1e-5 || d > 1e-5 {
				t.Errorf("%s: shares of %+v do not add up to 1", a.Name, l)
			}
		}
		if n != count("locality.n") {
			t.Errorf("%s: classes of %d maps, want %d", a.Name, n, count("locality.n"))
		}
	}
	f := r.Summary.Arms[1].Failures
	if d := cmp.Diff([]string{"job 1"}, []string{f.List[0].What}); d != "" || f.Jobs != 1 {
		t.Errorf("failures %+v", f)
	}
}

// What is not known is left out, and a run without attempts has no table.
func TestTasksUnknown(t *testing.T) {
	in := taskRun()
	for i := range in.Arms {
		for k := range in.Arms[i].Repeats {
			rep := &in.Arms[i].Repeats[k]
			rep.Slots = nil
			for j := range rep.Records.Jobs {
				rep.Records.Jobs[j].Lone = 0
			}
		}
	}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if s := r.Summary.Arms[0].Tasks; !s.SlotUse.Map.IsZero() || !s.MeanSlowdown.IsZero() || s.MedianSlowdown != nil || !strings.Contains(strings.Join(strings.Fields(b.String()), " "), " – | – | | fair |") {
		t.Errorf("%+v", s)
	}
	r, err = New(fluidRun())
	if err != nil {
		t.Fatal(err)
	}
	if b.Reset(); r.Markdown(&b) != nil || strings.Contains(b.String(), "Tasks") || r.Summary.Arms[0].Tasks != nil {
		t.Error("tables of tasks without tasks")
	}
}

// The summary pools the shuffles of the repeats, and has the saturated links of racks if loads are known.
func TestShuffleSummary(t *testing.T) {
	in := taskRun()
	f, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 4, HostLink: 8 * units.Mbps, Uplink: 8 * units.Mbps, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	// In the first repeat alone, the uplink of rack 1 is loaded from 1 to 5 s.
	for k := range in.Arms[0].Repeats {
		r := &in.Arms[0].Repeats[k]
		for _, l := range f.Links() {
			s := flows.LinkSeries{Link: l.ID, Name: f.LinkName(l.ID), Rate: l.Rate, Interval: time.Second, Bytes: make([]units.Bytes, 6)}
			if k == 0 && l.Kind == topo.LeafUp && l.Rack == 1 {
				for i := 1; i < 5; i++ {
					s.Bytes[i] = 900 * units.KB
				}
			}
			r.Links = append(r.Links, s)
		}
	}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	var each []*metrics.Tasks
	pooled := &metrics.ShuffleFigures{}
	for k := range in.Arms[0].Repeats {
		each = append(each, metrics.TasksOf(&in.Arms[0].Repeats[k].Records, nil))
		pooled.Add(each[k].Shuffle)
	}
	s := r.Summary.Arms[0].Tasks
	for what, x := range map[string]struct {
		key  string
		want metrics.Average
		unit float64
	}{
		"racks of maps":   {"map_racks", pooled.MapRacks, 1},
		"reduces at data": {"reduces_at_data", pooled.ReducesAtData, 1},
		"crossing":        {"shuffle_crossing", pooled.ShuffleCrossing, 1},
		"wait":            {"reduce_wait_us", pooled.ReduceWait, 1000},
		"delayed":         {"reduces_delayed", pooled.ReducesDelayed, 1},
	} {
		want, ok := x.want.Value()
		if want = metrics.Round6(want / x.unit); !ok || want == 0 {
			t.Errorf("%s: no figure", what)
		} else if got, ok := r.Summary.Arms[0].Get("tasks.shuffle." + x.key); !ok || got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	share := (4 * time.Second).Seconds() / (each[0].Makespan + each[1].Makespan).Seconds()
	got := s.Shuffle.Saturated
	mean, _ := r.Summary.Arms[0].Get("tasks.shuffle.saturated_mean")
	if len(got) != 2 || got[0].Sum != 0 || math.Abs(got[1].Sum/got[1].N-share) > 1e-6 || mean != metrics.Round6(share/2) {
		t.Errorf("saturated %v, %+v", mean, got)
	}
	all := r.taskTables()
	shuffle := all[slices.IndexFunc(all, func(t table) bool { return t.title == "Shuffle of jobs" })]
	most := slices.Index(shuffle.head, "most saturated rack")
	if got := shuffle.rows[0][most]; got != "1: "+units.Percent(share, 1) {
		t.Errorf("most saturated rack: %q", got)
	}
	if s := r.Summary.Arms[1].Tasks; s.Shuffle.Saturated != nil || !s.Shuffle.SaturatedMean.IsZero() || shuffle.rows[1][most] != none {
		t.Errorf("saturation without loads of links: %+v", s)
	}
}

// Figures of clones are sums and averages over the repeats. Bytes of writes that were stopped are known on packets alone.
func TestBackupSummary(t *testing.T) {
	in := taskRun()
	for _, fluid := range []bool{true, false} {
		in.FluidModel = fluid
		var all metrics.Clones
		for i := range in.Arms {
			for k := range in.Arms[i].Repeats {
				in.Arms[i].Repeats[k].Verdict = pass()
			}
		}
		for _, rep := range in.Arms[1].Repeats {
			all.Add(metrics.ClonesOf(&rep.Records))
		}
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		b := r.Summary.Arms[1].Tasks.Backups
		of := func(key string) float64 { x, _ := r.Summary.Arms[1].Get("tasks.backups." + key); return x }
		if r.Summary.Arms[0].Tasks.Backups != nil || int(of("started")) != all.Started || int(of("copied")) != all.Backups.Copied ||
			of("copied") == 0 || of("extra_us") != metrics.Round6(micros(all.Extra)/2) {
			t.Errorf("backups %+v of %+v", b, all)
		}
		slots, extra := 24.0, 0.0
		for _, row := range b.ExtraOf {
			x, _ := row.ShareOfExtra.Value()
			extra += x
		}
		if mean, peak := of("slots.mean"), of("slots.peak"); peak != metrics.Round6(float64(all.PeakSlots)/slots) || mean <= 0 || mean >= peak || extra < 0.99999 || extra > 1.00001 {
			t.Errorf("slots %+v, classes %+v", b, extra)
		}
		if further := of("extra_bytes.fetched_further"); of("extra_bytes.fetched") != metrics.Round6(float64(all.Bytes.Fetched)/2) ||
			further <= 0 || further > of("extra_bytes.fetched") || b.ExtraBytes.Written.IsZero() != fluid {
			t.Errorf("bytes %+v of %+v", b, all.Bytes)
		}
		copies := all.AllCopies()
		if int(of("copies.fetches")) != copies.Alone.N+copies.Shared.N || of("copies.wait_us") != metrics.Round6(micros(copies.Waited)/float64(copies.Attempts)) {
			t.Errorf("copies %+v of %+v", b, copies)
		}
	}
}
