package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/rundir"
	"testbed/topo/units"
	"testbed/workloads"
)

// sameReport checks that a report on a run without captures, from the figures of its trials, is the run's own to the last byte.
func sameReport(t *testing.T, dir string) {
	t.Helper()
	again := filepath.Join(t.TempDir(), "again")
	if _, err := Report(t.Context(), dir, ReportOptions{Out: again}); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(again)
	if err != nil || len(list) < 6 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	for _, e := range list {
		if e.IsDir() { // of the scaled half
			continue
		}
		own, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := os.ReadFile(filepath.Join(again, e.Name())); err != nil || !bytes.Equal(own, got) {
			t.Errorf("%s is another (%v)", e.Name(), err)
		}
	}
}

// A simulation is reported on again from its trials.
func TestReportOfASimulation(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	for name, text := range map[string]string{"blocks": severalArms, "tasks": taskWork} {
		t.Run(name, func(t *testing.T) {
			out, err := Simulate(t.Context(), loadText(t, text), Options{Out: t.TempDir(), Version: "v1"})
			if err != nil {
				t.Fatal(err)
			}
			sameReport(t, out.Dir)
		})
	}
}

// Arms have their own fabrics and the same workload, which is that of the scenario without their changes: a load of half
// of the uplinks at 2:1 is the same bytes at 1:1.
func TestArmsWithTheirOwnFabrics(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	s := loadText(t, `
name: set
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 8, host_link: 20Mbps, oversubscription: "2:1", queue: 20ms}
disk: {write: 10MB/s, size: 640MB}
workload: [{kind: jobs, count: 12, load: 0.5, block: 1MB, packet: 32KB, window: 3}]
arms:
  - {name: two, coflow: fair, placement: hdfs}
  - {name: one, coflow: fair, placement: hdfs, set: {fabric: {oversubscription: "1:1"}}}
  - {name: slow, coflow: fair, placement: hdfs, set: {disk: {write: 1MB/s}}}
repeat: 2
`)
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for arm, values := range run.Manifest.Set {
		set[arm] = fmt.Sprint(values)
	}
	if d := cmp.Diff(map[string]string{
		"two":  "[{fabric.oversubscription 2:1} {disk.write 80Mbps}]",
		"one":  "[{fabric.oversubscription 1:1} {disk.write 80Mbps}]",
		"slow": "[{fabric.oversubscription 2:1} {disk.write 8Mbps}]",
	}, set); d != "" {
		t.Errorf("set keys in the manifest (-want +got):\n%s", d)
	}
	asked := map[string]string{}
	for _, b := range run.Blocks {
		asked[b.Arm] += fmt.Sprintln(b.Repeat, b.Block, b.Client, b.Size)
	}
	if asked["two"] == "" || asked["one"] != asked["two"] || asked["slow"] != asked["two"] {
		t.Errorf("arms have other blocks:\n%s", cmp.Diff(asked["two"], asked["one"]))
	}
	mean := map[string]float64{}
	for _, a := range out.Report.Summary.Arms {
		mean[a.Name] = a.WriteTime.MeanUS
	}
	if mean["one"] >= mean["two"] || mean["slow"] <= 2*mean["two"] {
		t.Errorf("write times %v: want less at 1:1, and more than twice as much on a tenth of the disk", mean)
	}
	for name, has := range map[string]bool{"two": false, "one": true, "slow": false} {
		if _, err := os.Stat(filepath.Join(out.Dir, name, "plan.txt")); (err == nil) != has {
			t.Errorf("%s has a plan of its own: %v, want %v", name, err, has)
		}
	}
	sameReport(t, out.Dir)
	got, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats, Version: "v1"})
	if err != nil || len(got.Repeats) != 6 {
		t.Fatalf("%d logs, %v", len(got.Repeats), err)
	}
	for _, r := range got.Repeats {
		if r.Differs != nil {
			t.Errorf("%s/%d: %v", r.Arm, r.Repeat, r.Differs)
		}
	}
	f, err := Predict(t.Context(), s, Options{})
	if err != nil || len(f.Load) != 3 || f.Load[2].Duration <= f.Load[0].Duration {
		t.Errorf("loads %+v, %v: want a longer time on a tenth of the disk", f.Load, err)
	}
}

// The fluid model says of arms that differ in what it does not know that they are not modelled, and compares others.
func TestArmsThatTheFluidModelDoesNotKnow(t *testing.T) {
	out, err := Simulate(t.Context(), loadText(t, `
name: control
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 20Mbps, oversubscription: "2:1", queue: 20ms}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms:
  - {name: cubic}
  - {name: reno, set: {fabric: {congestion_control: reno, queue: 5ms}}}
  - {name: one, set: {fabric: {congestion_control: reno, oversubscription: "1:1"}}}
repeat: 2
`, "1 0 2 0 1 2 4:1 5:1", "2 10 1 1 1 6:2"), Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	arms := out.Report.Summary.Arms
	if d := cmp.Diff([]string{"fabric.congestion_control", "fabric.queue"}, arms[1].Unmodelled); d != "" || arms[1].CCT.Speedup != nil || arms[1].CCT.Paired != nil {
		t.Errorf("reno: %s%+v", d, arms[1].CCT)
	}
	compared, err := Compare([]string{out.Dir}, CompareOptions{Version: "v1"})
	if err != nil || compared.Void() || len(compared.Comparisons) != 2 {
		t.Fatalf("%+v, %v", compared, err)
	}
	why := compared.Comparisons[0].Refused
	if want := "does not model fabric.congestion_control and fabric.queue"; !strings.Contains(why, want) || compared.Comparisons[1].Refused != "" {
		t.Errorf("compare refuses with %q and %q, want %q and nothing", why, compared.Comparisons[1].Refused, want)
	}
	if arms[2].Unmodelled != nil || arms[2].CCT.Speedup == nil {
		t.Errorf("one: not modelled %v, %+v", arms[2].Unmodelled, arms[2].CCT)
	}
	sameReport(t, out.Dir)
}

// A run with a scaled half has the sums of the half's files as they are at its end, also if it was interrupted and goes on.
func TestSumsOfAScaledHalf(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	s := loadText(t, severalArms)
	whole, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1", CheckScale: workloads.Factor{Num: 2, Den: 1}})
	if err != nil {
		t.Fatal(err)
	}
	part, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1", CheckScale: workloads.Factor{Num: 2, Den: 1}, Choice: Choice{Repeats: Span{0, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Resume(t.Context(), part.Dir, rundir.Fluid, Options{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{whole.Dir, again.Dir} {
		if m, changes, err := rundir.Inspect(dir); err != nil || len(changes) > 0 || m.State != rundir.Complete || m.Partial != nil {
			t.Errorf("%s: changes %v, %v", dir, changes, err)
		}
		sameReport(t, dir)
	}
	if d := cmp.Diff(whole.Report.Summary.ScaleCheck.Compared, again.Report.Summary.ScaleCheck.Compared); d != "" {
		t.Errorf("the check of the scale (-whole +resumed):\n%s", d)
	}
}

// Loads of an arm with its own fabric are relative to that fabric's links.
func TestLoadsOfAnArmWithItsOwnFabric(t *testing.T) {
	netnstest.Require(t)
	out, err := Execute(t.Context(), loadText(t, `
name: loads
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 20Mbps, oversubscription: "1:1", queue: 20ms}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms:
  - {name: one}
  - {name: four, set: {fabric: {oversubscription: "4:1"}}}
`, "1 0 1 1 1 2:0.5"), options(t))
	if err != nil {
		t.Fatal(err)
	}
	least := 0.3 // of the time in which links are measured
	if netnstest.NotJudged(t) {
		least = 0.01
	}
	for arm, want := range map[string]units.Rate{"one": 40 * units.Mbps, "four": 10 * units.Mbps} {
		l, err := Loads(t.Context(), out.Dir, arm, 0)
		if err != nil {
			t.Fatal(err)
		}
		up := l.Fabric.LeafUp(1, 0)
		if got := l.Fabric.Link(up).Rate; got != want || l.Links[up] < least || l.Links[up] > 1.1 {
			t.Errorf("%s: uplink of %v, load %.2f, want %v and a load below 1", arm, got, l.Links[up], want)
		}
	}
}

// The key of a trial is of its arm, repeat and backend, and not of the other arms or of the number of repeats.
func TestKeysOfTrials(t *testing.T) {
	const text = `
name: keys
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 20Mbps, queue: 20ms}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms: [{name: a}, {name: b, set: {fabric: {queue: 5ms}}}]
`
	keys := func(text, backend string) (all []string) {
		r, err := newRun(loadText(t, text, "1 0 1 0 1 2:0.5"), Options{}, backend)
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range r.trials() {
			key, err := tr.key()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, key)
		}
		return all
	}
	two := keys(text+"repeat: 2\n", rundir.Fluid)
	for i, key := range keys(text+"repeat: 5\n", rundir.Fluid)[:4] {
		if key != two[i] {
			t.Errorf("trial %d has another key with five repeats than with two", i)
		}
	}
	if more := keys(strings.Replace(text, "}}}]", "}}}, {name: c, coflow: sebf}]", 1), rundir.Fluid); more[0] != two[0] || more[1] != two[1] {
		t.Error("a third arm changes the keys of two")
	}
	distinct := map[string]bool{}
	for _, key := range append(two, keys(text, rundir.Packets)...) {
		distinct[key] = true
	}
	if len(distinct) != 6 {
		t.Errorf("%d keys of six trials", len(distinct))
	}
}
