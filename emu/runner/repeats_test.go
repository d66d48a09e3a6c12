package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/workloads"
)

const adaptive = `
name: adaptive
vars: {over: }
sweep: {over: ["2:1", "6:1"]}
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 6, host_link: 20Mbps, oversubscription: "${over}", queue: 20ms}
disk: {write: 10MB/s, size: 640MB}
workload: [{kind: jobs, count: 12, load: 0.3, mappers: 3, reducers: 2, block: 1MB, packet: 32KB, window: 3}]
arms: {coflow: [fair, fifo], placement: [hdfs]}
repeat: {at_least: 2, at_most: 6, until: {cct: 40%}}
`

// tablesOf returns the tables of the points of a sweep, by directory.
func tablesOf(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, point := range []string{"over=2to1", "over=6to1"} {
		tables := rundirtest.Tables(t, filepath.Join(dir, point))
		for name, text := range tables {
			tables[name] = strings.ReplaceAll(text, filepath.Base(dir), "RUN")
		}
		out[point] = tables
	}
	return out
}

// Each point of a sweep stops at a look of its own, with the same tables in one run, in one that goes on after a kill,
// and merged from parts.
func TestLooksDecideRepeats(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	s := loadText(t, adaptive)
	simulate := func(c Choice) string {
		out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1", Choice: c})
		if err != nil {
			t.Fatal(err)
		}
		return out.Dir
	}
	whole := simulate(Choice{})
	want := tablesOf(t, whole)
	for dir, repeats := range map[string]int{"over=2to1": 4, "over=6to1": 6} {
		dir = filepath.Join(whole, dir)
		r, err := rundir.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		trials, err := filepath.Glob(filepath.Join(dir, "*", "*", rundir.TrialFile))
		l := r.Summary.Looks
		if err != nil || l == nil || !slices.Equal(l.At, []int{2, 4, 6}) || l.Repeats != repeats || l.Made != repeats/2 || l.Why == "" ||
			l.Confidence != 98.333333 || r.Manifest.Repeats != repeats || len(trials) != 2*repeats || r.Summary.Partial != nil {
			t.Errorf("%s: %v, manifest %d, %d trials, %v: want %d repeats", dir, l, r.Manifest.Repeats, len(trials), err, repeats)
		}
		if !cmp.Equal(l, r.Manifest.Looks) {
			t.Errorf("%s: %v in the summary, %v in the manifest", dir, l, r.Manifest.Looks)
		}
		// An interval of the report is the wider one of the looks, and so is that of compare.
		of, err := Compare([]string{dir}, CompareOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shown, compared := r.Summary.Arms[1].CCT.Paired.GeoMeanCI, of.Comparisons[0].Figures[0].GeoMean.CI
		bare := metrics.Pair(r.Times("cct", "fair+hdfs"), r.Times("cct", "fifo+hdfs"), 0, nil).GeoMeanCI
		if wider := func(i metrics.Interval) bool { return i.Low < bare.Low && i.High > bare.High }; !wider(shown) || !wider(compared) {
			t.Errorf("%s: intervals %v and %v, without looks %v", dir, shown, compared, bare)
		}
		sameReport(t, dir)
	}
	// A trial of a later look is lost, and one point has none yet.
	for _, lost := range []string{"over=2to1/fifo+hdfs/3", "over=6to1"} {
		if err := os.RemoveAll(filepath.Join(whole, lost)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Resume(t.Context(), whole, rundir.Fluid, Options{Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, tablesOf(t, whole)); diff != "" {
		t.Errorf("a run that went on stops elsewhere: %s", diff)
	}

	shards, err := Shards(s, 0)
	if diff := cmp.Diff([]Part{{"1/2", 12}, {"2/2", 12}}, shards); diff != "" || err != nil {
		t.Errorf("shards %s, %v", diff, err)
	}
	merged, err := Merge([]string{simulate(Choice{Shard: 1, Shards: 2}), simulate(Choice{Shard: 2, Shards: 2})}, Options{Out: t.TempDir()})
	if err != nil || len(merged.Missing) > 0 {
		t.Fatalf("%+v, %v", merged, err)
	}
	if diff := cmp.Diff(want, tablesOf(t, merged.Dir)); diff != "" {
		t.Errorf("a merged run stops elsewhere: %s", diff)
	}
}

// What would leave a look without some of its trials is refused.
func TestLooksNeedAllTrials(t *testing.T) {
	s := loadText(t, adaptive)
	const needs = "looks decide the number of repeats, and need all arms and repeats of a point"
	for want, c := range map[string]Choice{
		"--arm fair+hdfs: " + needs: {Arms: []string{"fair+hdfs"}},
		"--repeats 0..1: " + needs:  {Repeats: Span{0, 2}},
		"must be 1 to 2, the number of points and repeats (of points, if l": {Shards: 3},
	} {
		var err error
		if c.Shards > 0 {
			_, err = Shards(s, c.Shards)
		} else {
			_, err = Simulate(t.Context(), s, Options{Out: t.TempDir(), Choice: c})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	one := strings.NewReplacer("vars: {over: }\n", "", "sweep: {over: [\"2:1\", \"6:1\"]}\n", "", "${over}", "2:1").Replace(adaptive)
	_, err := Simulate(t.Context(), loadText(t, one), Options{Out: t.TempDir(), CheckScale: workloads.Factor{Num: 10, Den: 1}})
	if want := ":7:9: repeat: looks decide the number of repeats, which a check of the scale cannot repeat"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// A plan takes the number of repeats from a first run of the scenario or from a noise calibration, and refuses runs that
// say nothing about it.
func TestPlanRepeats(t *testing.T) {
	one := strings.NewReplacer(`sweep: {over: ["2:1", "6:1"]}`, "", "vars: {over: }", "", "${over}", "2:1").Replace(adaptive)
	of := func(repeat string) string {
		return strings.Replace(one, "{at_least: 2, at_most: 6, until: {cct: 40%}}", repeat, 1)
	}
	run := func(text string) string {
		out, err := Simulate(t.Context(), loadText(t, text), Options{Out: t.TempDir(), Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		return out.Dir
	}
	first, single := run(of("3")), run(of("1"))
	var planned [2]int // with a fixed number, and with looks
	for i, text := range []string{of("3"), one} {
		var f Forecast
		if err := f.PlanRepeats(loadText(t, text), first, nil); err != nil {
			t.Fatal(err)
		}
		if len(f.Planned) < 2 || f.Planned[0].Metric != "cct" || f.Planned[0].Arm != "fifo+hdfs" || f.Planned[0].From != "run "+filepath.Base(first) {
			t.Fatalf("planned %+v", f.Planned)
		}
		for _, p := range f.Planned {
			if p.Metric == "job_time" {
				planned[i] = p.Repeats
			}
		}
	}
	if planned[0] < 2 || planned[1] <= planned[0] {
		t.Errorf("job_time: %d repeats, with looks %d: want more than 1, and more", planned[0], planned[1])
	}
	for from, want := range map[string]string{
		single:                             "cct of fifo+hdfs: 1 repeats of 12 items: must be 2 repeats and 8 items or more",
		filepath.Join(t.TempDir(), "none"): "no such file",
	} {
		if err := new(Forecast).PlanRepeats(loadText(t, one), from, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	other := strings.Replace(one, "count: 12", "count: 13", 1)
	want := "plan from " + first + ": workload[0].count: 12 there, 13 here: make a first run of this scenario"
	if err := new(Forecast).PlanRepeats(loadText(t, other), first, nil); err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}

	// Two runs of which 4 % are noise, 3 % within clusters: with 40 pairs, at the upper limit of its variance.
	noise := &metrics.Noise{
		Pairs: 40, Total: map[string]metrics.Deviations{"cct": {GeoMean: 0.05}},
		Between: map[string]metrics.Deviations{"cct": {GeoMean: 0.04}},
	}
	f := Forecast{Coflows: 12, Blocks: 3}
	if err := f.PlanRepeats(loadText(t, one), "", noise); err != nil {
		t.Fatal(err)
	}
	if len(f.Planned) != 1 || f.Planned[0].Metric != "cct" || f.Planned[0].Repeats < 3 || f.Planned[0].Repeats > 12 {
		t.Errorf("planned %+v", f.Planned)
	}
	if err := f.PlanRepeats(loadText(t, one), "", nil); err != nil || f.Planned != nil {
		t.Errorf("without a calibration: %+v, %v", f.Planned, err)
	}
}
