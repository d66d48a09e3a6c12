package runner

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/compare"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
)

// A completion time of a report can be compared, under the same name.
func TestComparedMetricsAreThoseOfReports(t *testing.T) {
	var want []compare.Metric
	for f := range reflect.TypeFor[summary.Declared]().Fields() {
		if f.Type == reflect.TypeFor[*summary.Metric]() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want = append(want, compare.Metric(key))
		}
	}
	if d := cmp.Diff(want, compare.Metrics()); d != "" {
		t.Errorf("metrics of summary.Arm and compare.Metrics (-report +compare):\n%s", d)
	}
}

// comparable12 is a scenario of twelve coflows and two writers, two repeats.
const comparable12 = `
name: compared
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 2, block: 1MB, replicas: 2, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf], placement: [hdfs]}
repeat: 2
`

func simulate(t *testing.T, text, version string, edits ...string) string {
	t.Helper()
	var trace []string
	for i := range 12 {
		trace = append(trace, strings.NewReplacer("ID", string("123456789abc"[i:][:1]), "AT", string("000112233445"[i:][:1])+"00").Replace("ID AT 2 0 1 2 3:1.5 6:0.5"))
	}
	for i := range trace { // of whole numbers
		trace[i] = strings.Replace(strings.Replace(strings.Replace(trace[i], "a ", "10 ", 1), "b ", "11 ", 1), "c ", "12 ", 1)
	}
	s := loadText(t, strings.NewReplacer(edits...).Replace(text), trace...)
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return out.Dir
}

func TestCompareArmsOfARun(t *testing.T) {
	dir := simulate(t, comparable12, "v1")
	r, err := Compare([]string{dir}, CompareOptions{Version: "v1"})
	if err != nil || len(r.Comparisons) != 1 || r.Comparisons[0].Base.Arm != "fair+hdfs" || r.Comparisons[0].Arm.Arm != "sebf+hdfs" || len(r.Comparisons[0].Figures) != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	// The figures equal those of the report.
	var s summary.Run
	b, err := os.ReadFile(filepath.Join(dir, summary.SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	for i, m := range []*summary.Metric{s.Arms[1].CCT, s.Arms[1].FCT, s.Arms[1].WriteTime, s.Arms[1].RequestTime} {
		f, p := r.Comparisons[0].Figures[i], m.Paired
		if f.Pairs != p.Pairs || f.Clusters != p.Clusters || f.GeoMean.Value != p.GeoMean || f.GeoMean.CI != p.GeoMeanCI || f.MedianRatio.CI != p.MedianCI || f.MeanRatio.CI != p.MeanRatioCI || f.MeanRatio.Value != *m.Speedup {
			t.Errorf("%s: compare has %+v, the report %+v and speed-up %v", f.Metric, f, *p, *m.Speedup)
		}
	}
	if f := r.Comparisons[0].Figures[0]; f.Pairs != 24 || f.Clusters != 12 {
		t.Errorf("CCT: %d pairs of %d clusters, want 24 of 12", f.Pairs, f.Clusters)
	}
	other, err := Compare([]string{dir}, CompareOptions{Baseline: "sebf+hdfs"})
	if err != nil || other.Comparisons[0].Arm.Arm != "fair+hdfs" {
		t.Errorf("another baseline: %+v, %v", other, err)
	}
}

func TestCompareRuns(t *testing.T) {
	t.Parallel()
	a, b := simulate(t, comparable12, "v1"), simulate(t, comparable12, "v1", "name: compared", "name: again", "repeat: 2", "repeat: 3", "[fair, sebf]", "[sebf, fair]")
	r, err := Compare([]string{a, a, b}, CompareOptions{Version: "v1"})
	if err != nil || len(r.Comparisons) != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, c := range r.Comparisons {
		if c.Base.Arm != c.Arm.Arm || c.Base.Run != "A" {
			t.Errorf("%v against %v", c.Arm, c.Base)
		}
		for _, f := range c.Figures {
			if f.MeanRatio != (compare.Estimate{Estimate: metrics.Estimate{Value: 1, CI: f.MeanRatio.CI}, Outcome: f.MeanRatio.Outcome}) || f.MeanRatio.CI.Known() && f.MeanRatio.CI != (metrics.Interval{Low: 1, High: 1}) || f.MeanRatio.CI.Known() != (f.Clusters >= 8) || f.Clusters >= 8 && f.MeanRatio.Outcome != compare.NoneYet {
				t.Errorf("%v against %v: %+v, want no difference", c.Arm, c.Base, f)
			}
			if (f.Unpaired > 0) != (c.Arm.Run == "C") {
				t.Errorf("%v against %v: %d unpaired", c.Arm, c.Base, f.Unpaired)
			}
		}
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "A has 2 repeats and C has 3") {
		t.Errorf("notes %q", r.Notes)
	}
	if r, err := Compare([]string{a, b}, CompareOptions{Version: "v1", Arms: []string{"fair+hdfs=sebf+hdfs", "sebf+hdfs"}}); err != nil || len(r.Comparisons) != 2 || r.Comparisons[0].Figures[0].MeanRatio.Value == 1 || r.Comparisons[1].Figures[0].MeanRatio.Value != 1 {
		t.Errorf("chosen arms: %+v, %v", r, err)
	}
	newer := simulate(t, comparable12, "v2", "[fair, sebf]", "[fair]")
	if r, err := Compare([]string{a, newer}, CompareOptions{Version: "v2"}); err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "version of testbed differs: v1 in A, v2 in B") {
		t.Errorf("another version: %+v, %v", r, err)
	}
}

func TestCompareRefusals(t *testing.T) {
	t.Parallel()
	a := simulate(t, comparable12, "v1")
	for _, tt := range []struct {
		name  string
		edits []string
		want  []string
	}{
		{"rate", []string{"host_link: 20Mbps", "host_link: 25Mbps"}, []string{"fabric.host_link: 20Mbps at " + a + "/scenario.yaml:3:", "25Mbps at "}},
		{"block and seed", []string{"block: 1MB", "block: 2MB", "repeat: 2", "seed: 5"}, []string{"workload[1].block: 1MB at ", "seed: 1 by default in ", "5 at "}},
		{"heartbeat", []string{"repeat: 2", "heartbeat: {interval: 100ms}"}, []string{"heartbeat.interval: 250ms by default"}},
		{"disk", []string{"write: 2MB/s", "write: 3MB/s"}, []string{"disk.write: "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := simulate(t, comparable12, "v1", tt.edits...)
			_, err := Compare([]string{a, b}, CompareOptions{Version: "v1"})
			var bad *WorkloadError
			if !errors.As(err, &bad) || len(bad.Differs) == 0 {
				t.Fatalf("error %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %v, want %q", err, w)
				}
			}
		})
	}
	t.Run("changed after the run", func(t *testing.T) {
		b := simulate(t, comparable12, "v1", "host_link: 20Mbps", "host_link: 25Mbps")
		path := filepath.Join(b, "scenario.yaml")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), "25Mbps", "20Mbps", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Compare([]string{a, b}, CompareOptions{Version: "v1"}); err == nil || !strings.Contains(err.Error(), "was changed after the run") {
			t.Errorf("error %v", err)
		}
	})
	other := simulate(t, comparable12, "v1", "arms: {coflow: [fair, sebf], placement: [hdfs]}", "arms: [{name: other, coflow: fair, placement: hdfs}]")
	for _, tt := range []struct {
		dirs []string
		o    CompareOptions
		want string
	}{
		{nil, CompareOptions{}, "expected one or more run directories"},
		{[]string{a}, CompareOptions{Baseline: "x"}, `no arm "x" (available: fair+hdfs, sebf+hdfs)`},
		{[]string{a}, CompareOptions{Arms: []string{"x"}}, `no arm "x"`},
		{[]string{a}, CompareOptions{Arms: []string{"fair+hdfs"}}, `arm "fair+hdfs" is the baseline`},
		{[]string{other}, CompareOptions{}, "has one arm, other"},
		{[]string{a, other}, CompareOptions{Version: "v1"}, "select arms as NAME=OTHER"},
		{[]string{a, a}, CompareOptions{Baseline: "fair+hdfs"}, "the first run is the baseline"},
		{[]string{a, a}, CompareOptions{Arms: []string{"fair+hdfs=x"}}, `no arm "x"`},
		{[]string{a, t.TempDir()}, CompareOptions{}, "it is not a run directory"},
	} {
		if _, err := Compare(tt.dirs, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %+v: %v, want %q", tt.dirs, tt.o, err, tt.want)
		}
	}
}

// Runs may differ in the keys that are named, if their workloads are equal.
func TestCompareVarying(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	a := simulate(t, comparable12, "v1")
	b := simulate(t, comparable12, "v2", "host_link: 20Mbps", "host_link: 25Mbps", "queue: 20ms", "queue: 10ms")
	r, err := Compare([]string{a, b}, CompareOptions{Version: "v2", Varying: []string{"fabric.host_link", "fabric.queue", VaryVersion, VaryMachine}})
	if err != nil {
		t.Fatal(err)
	}
	var varied []string
	for _, v := range r.Varied {
		varied = append(varied, v.String())
	}
	if d := cmp.Diff([]string{"fabric.host_link: 20Mbps in A, 25Mbps in B", "fabric.queue: 20ms in A, 10ms in B", "version: v1 in A, v2 in B"}, varied); d != "" {
		t.Errorf("varied (-want +got):\n%s", d)
	}
	if f := r.Comparisons[0].Figures[0]; f.Pairs != 24 || f.MeanRatio.Value <= 1.1 || len(r.Notes) != 0 {
		t.Errorf("%+v, notes %q: want 24 pairs, faster, and no note on versions", f, r.Notes)
	}
	hosts := simulate(t, comparable12, "v1", "leaves: 3", "leaves: 4")
	seed := simulate(t, comparable12, "v1", "repeat: 2", "repeat: 2\nseed: 2")
	for _, tt := range []struct {
		name    string
		dirs    []string
		varying []string
		want    []string
	}{
		{"one of two keys", []string{a, b}, []string{"fabric.queue"}, []string{"fabric.host_link: 20Mbps at ", "name it: --varying fabric.host_link"}},
		{"other hosts, by the key above", []string{a, hosts}, []string{"fabric"}, []string{"fabric.leaves: 3 at ", "(fabric.leaves decides which work exists, and on which hosts: runs that differ in it have no pairs)"}},
		{"other hosts, named", []string{a, hosts}, []string{"fabric.leaves"}, []string{"--varying: key fabric.leaves: "}},
		{"another workload, named", []string{a, a}, []string{"workload"}, []string{"--varying: key workload: "}},
		{"no key", []string{a, b}, []string{"fabric.queu"}, []string{`unknown key "fabric.queu"`}},
		{"seeds that are not named", []string{a, seed}, nil, []string{"name it: --varying seed"}},
		{"unequal numbers", []string{a, a, seed}, []string{"seed"}, []string{"seed 1 has 2 runs and seed 2 has 1"}},
		{"another order", []string{a, b, seed, seed}, []string{"seed", "fabric"}, []string{"would be pooled, but differ in fabric."}},
	} {
		_, err := Compare(tt.dirs, CompareOptions{Version: "v1", Varying: tt.varying})
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want %q", tt.name, err, w)
			}
		}
	}
}

// Runs of several seeds are compared seed by seed: their pairs are those of all seeds.
func TestComparePoolsSeeds(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	seeded := func(n, link string) string {
		return simulate(t, comparable12, "v1", "repeat: 2", "repeat: 2\nseed: "+n, "host_link: 20Mbps", "host_link: "+link)
	}
	a, b, a2, b2 := seeded("1", "20Mbps"), seeded("1", "25Mbps"), seeded("2", "20Mbps"), seeded("2", "25Mbps")
	o := CompareOptions{Version: "v1", Varying: []string{"seed", "fabric.host_link"}}
	r, err := Compare([]string{a, a2, b, b2}, o)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Comparisons[0].Figures[0]; len(r.Comparisons) != 2 || r.Comparisons[0].Base.Run != "A+B" || r.Comparisons[0].Arm.Run != "C+D" || f.Pairs != 48 || f.Clusters != 24 || f.Unpaired != 0 || r.Varied[1].String() != "seed: 1 in A C, 2 in B D" {
		t.Errorf("%+v, varied %v: want 48 pairs of 24 clusters, of A+B and C+D", r.Comparisons, r.Varied)
	}
	// The ratio of averages is that of the sums of both seeds.
	sums := [2]float64{}
	for i, dirs := range [][]string{{a, a2}, {b, b2}} {
		for _, dir := range dirs {
			x, err := rundir.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range x.Coflows {
				if c.Arm == "fair+hdfs" {
					sums[i] += float64(c.CCT)
				}
			}
		}
	}
	if got, want := r.Comparisons[0].Figures[0].MeanRatio.Value, metrics.Round6(sums[0]/sums[1]); got != want {
		t.Errorf("ratio of averages %v, want %v", got, want)
	}
	r, err = Compare([]string{a, a2}, o)
	if err != nil || len(r.Comparisons) != 1 || r.Comparisons[0].Arm.Run != "A+B" || r.Comparisons[0].Figures[0].Clusters != 24 {
		t.Errorf("one run of each seed: %+v, %v, want the arms of each run, pooled", r, err)
	}
}

// A load depends on the capacity of the fabric: with another one, the runs have other arrivals.
func TestCompareRefusesOtherArrivals(t *testing.T) {
	const load = `
name: loaded
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 8, host_link: 20Mbps, oversubscription: "2:1"}
disk: {write: 10MB/s, size: 640MB}
workload: [{kind: jobs, count: 12, load: 0.5, block: 1MB, packet: 32KB, window: 3}]
arms: {coflow: [fair, sebf], placement: [hdfs]}
`
	a, b := simulate(t, load, "v1"), simulate(t, load, "v1", `"2:1"`, `"1:1"`)
	o := CompareOptions{Version: "v1", Varying: []string{"fabric.oversubscription"}}
	if _, err := Compare([]string{a, b}, o); err == nil || !strings.Contains(err.Error(), "different workloads, because of fabric.oversubscription") {
		t.Errorf("error %v, want a refusal", err)
	}
}

// On the quickstart SEBF is faster than fair sharing by more than chance.
func TestCompareQuickstart(t *testing.T) {
	s, err := scenario.Load("../../scripts/quickstart/scenario.yaml", scenario.Options{Catalog: catalog.All()})
	if err != nil {
		t.Fatal(err)
	}
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Compare([]string{out.Dir}, CompareOptions{Arms: []string{"sebf+hdfs"}})
	if err != nil {
		t.Fatal(err)
	}
	f := r.Comparisons[0].Figures[0]
	t.Logf("CCT: averages %v, median %v, geometric mean %v of %d pairs", f.MeanRatio, f.MedianRatio, f.GeoMean, f.Pairs)
	// Few of the 22 coflows make up most of the averages, and these gain least.
	if f.Metric != compare.CCT || f.MeanRatio.Value < 1.4 || f.MeanRatio.Outcome != compare.NoneYet || f.MedianRatio.Outcome != compare.Faster || f.GeoMean.Outcome != compare.Faster {
		t.Errorf("%+v, want faster by median and geometric mean, and averages that do not differ significantly", f)
	}
}
