package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"flag"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"testbed/emu/experiment"
	"testbed/emu/scenario"
	"testbed/results/report"
	"testbed/scripts/suite"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

var update = flag.Bool("update", false, "rewrite coflows.txt and flows.txt")

const mb workloads.Megabytes = 1_000_000

// generated is what coflows.txt was generated from: the bins of coflow traces, narrow
// and wide, of small flows and of large ones, of the sizes of the Facebook trace, but
// with coflows of a hundred flows at most. What Philae gains over Aalo is on the wide
// ones, whose number is raised.
var generated = workloads.Synthetic{
	Name: "coflows.txt", Ports: 150, Coflows: 64, Span: 300 * time.Second,
	Bins: []workloads.SyntheticBin{
		{Share: 50, Mappers: [2]int{1, 3}, Reducers: [2]int{1, 2}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 16, Mappers: [2]int{3, 5}, Reducers: [2]int{3, 5}, Flow: [2]workloads.Megabytes{6 * mb, 48 * mb}},
		{Share: 20, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 14, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{8 * mb, 32 * mb}},
	},
}

// atOnce is what flows.txt was generated from: coflows that begin within a second, and
// whose flows are too large for any to end in it.
var atOnce = workloads.Synthetic{
	Name: "flows.txt", Ports: 40, Coflows: 25, Span: time.Second,
	Bins: []workloads.SyntheticBin{
		{Share: 1, Mappers: [2]int{10, 10}, Reducers: [2]int{10, 10}, Flow: [2]workloads.Megabytes{mb / 4, mb}},
	},
}

// traces are the files here that are generated.
var traces = map[string]struct {
	workloads.Synthetic
	seed uint64
}{"coflows.txt": {generated, 3}, "flows.txt": {atOnce, 1}}

func TestTracesAreGenerated(t *testing.T) {
	for name, from := range traces {
		trace, err := from.Generate(from.seed)
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		if err := workloads.WriteTrace(&want, trace); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(name, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what its generator writes: run go test -update here and read the diff", name)
		}
	}
}

// full is how many shaped packets a second fill two processors of a nested virtual
// machine. Scenarios that are to pass stay at half of it.
const full = 62_000

// load loads one of the scenarios for a repeat, and checks what it asks of the
// machine: how many packets are shaped in its busiest second at most, how long an arm
// takes, from and to, and how many coflows there are.
func load(t *testing.T, file string, set map[string]string, coflows int, packets float64, from, to time.Duration) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(file, scenario.Options{Set: set, CheckPolicy: experiment.CheckPolicy})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Repeat = 1 // on the fluid model only paths differ
	forecast, err := experiment.Predict(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if forecast.Coflows != coflows || forecast.Plan == nil {
		t.Errorf("%d coflows and the plan %v, want %d and one", forecast.Coflows, forecast.Plan, coflows)
	}
	for _, l := range forecast.Load {
		t.Logf("%s: %v, %.0f shaped packets/s at most, %d flows", l.Arm, l.Duration, l.PeakPackets, forecast.Flows)
		if l.Duration < from || l.Duration > to {
			t.Errorf("%s takes %v, want %v to %v", l.Arm, l.Duration, from, to)
		}
		if l.PeakPackets > packets {
			t.Errorf("%s has %.0f shaped packets/s in its busiest second, want %.0f or less", l.Arm, l.PeakPackets, packets)
		}
	}
	return s
}

// simulate is what the fluid model makes of the arms of a scenario that keep names, by
// name; all speed-ups are over the first.
func simulate(t *testing.T, s *scenario.Scenario, keep ...string) map[string]report.ArmSummary {
	t.Helper()
	one := *s
	one.Spec.Arms = nil
	for _, a := range s.Spec.Arms {
		if slices.Contains(keep, a.Name) {
			one.Spec.Arms = append(one.Spec.Arms, a)
		}
	}
	out, err := experiment.Simulate(t.Context(), &one, experiment.Options{Out: t.TempDir(), StateRoot: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	arms := map[string]report.ArmSummary{}
	for _, a := range out.Report.Summary.Arms {
		arms[a.Name] = a
	}
	for _, name := range keep {
		if a := arms[name]; a.CCT == nil || a.CCT.MeanUS <= 0 {
			t.Fatalf("%s: CCT %+v, want one", name, a.CCT)
		}
	}
	return arms
}

// What the scenarios are for: coflow by coflow each scheduler is faster than the one
// before it, by more than chance, as far as the model without packets goes.
func TestScenarios(t *testing.T) {
	for _, file := range []string{"switch.yaml", "leaf-spine.yaml"} {
		t.Run(file, func(t *testing.T) {
			inOrder(t, load(t, file, nil, 64, full/2, 12*time.Second, 20*time.Second))
		})
	}
}

func inOrder(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	for _, pair := range [][2]string{{"fair", "aalo"}, {"aalo", "philae"}, {"philae", "sebf"}} {
		p := simulate(t, s, pair[:]...)[pair[1]].CCT.Paired
		if p == nil || p.GeoMeanCI[0] <= 1 {
			t.Errorf("%s over %s: %+v, want an interval above 1", pair[1], pair[0], p)
			continue
		}
		t.Logf("%s over %s: %.2f %.2f", pair[1], pair[0], p.GeoMean, p.GeoMeanCI)
	}
}

// Two thousand flows are there at once in all arms, were there no latencies.
func TestFlowsAtOnce(t *testing.T) {
	s := load(t, "flows.yaml", nil, 25, math.Inf(1), 20*time.Second, 32*time.Second)
	out, err := experiment.Simulate(t.Context(), s, experiment.Options{Out: t.TempDir(), StateRoot: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range s.Spec.Arms {
		if n := mostAtOnce(t, filepath.Join(out.Dir, "flows.csv"), a.Name); n < 2000 {
			t.Errorf("%s: %d flows at once at most, want 2000", a.Name, n)
		}
	}
}

// mostAtOnce is how many flows of an arm were between arrival and completion at most.
func mostAtOnce(t *testing.T, path, arm string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	type change struct {
		at float64
		by int
	}
	var all []change
	for _, r := range rows[1:] {
		if r[column("arm")] != arm {
			continue
		}
		from, err := strconv.ParseFloat(r[column("arrival_us")], 64)
		if err != nil {
			t.Fatal(err)
		}
		takes, err := strconv.ParseFloat(r[column("fct_us")], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, change{from, 1}, change{from + takes, -1})
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, most := 0, 0
	for _, c := range all {
		now += c.by
		most = max(most, now)
	}
	return most
}

// What the suite carries of the Facebook trace fits the machine, and there too each
// scheduler is faster than the one before it.
func TestFacebook(t *testing.T) {
	trace := oracletest.Trace(t, oracletest.Facebook)
	ph := &philae{options: options{from: oracletest.Path(t, oracletest.Facebook)}, trace: trace, Report: suite.NewReport(io.Discard)}
	ph.Dir = t.TempDir()
	path, err := ph.carry()
	if err != nil {
		t.Fatal(err)
	}
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			set := maps.Clone(public[fabric])
			set["trace"] = path
			inOrder(t, load(t, fabric+".yaml", set, 64, full/2, 12*time.Second, 20*time.Second))
		})
	}
}
