package philae

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

var update = flag.Bool("update", false, "rewrite coflows.txt and flows.txt")

const mb workloads.Megabytes = 1_000_000

// generated is the specification of coflows.txt: the bins of coflow traces (narrow and
// wide, with small and large flows), with sizes as in the Facebook trace but at most a
// hundred flows per coflow. The fraction of wide coflows is larger, because Philae gains
// relative to Aalo on these.
var generated = workloads.Synthetic{
	Name: "coflows.txt", Ports: 150, Coflows: 64, Span: 300 * time.Second,
	Bins: []workloads.SyntheticBin{
		{Share: 50, Mappers: [2]int{1, 3}, Reducers: [2]int{1, 2}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 16, Mappers: [2]int{3, 5}, Reducers: [2]int{3, 5}, Flow: [2]workloads.Megabytes{6 * mb, 48 * mb}},
		{Share: 20, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 14, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{8 * mb, 32 * mb}},
	},
}

// atOnce is the specification of flows.txt: coflows that begin within a second, with flows
// too large to end in that second.
var atOnce = workloads.Synthetic{
	Name: "flows.txt", Ports: 40, Coflows: 25, Span: time.Second,
	Bins: []workloads.SyntheticBin{
		{Share: 1, Mappers: [2]int{10, 10}, Reducers: [2]int{10, 10}, Flow: [2]workloads.Megabytes{mb / 4, mb}},
	},
}

// traces are the generated files of this directory.
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
			t.Errorf("%s differs from the generator's output: run go test -update here and read the diff", name)
		}
	}
}

// full is the rate of shaped packets per second that saturates two processors of a nested
// virtual machine. Scenarios with a required verdict stay at half of it.
const full = 62_000

// load loads a scenario with one repeat, and checks its load on the machine: at most the
// given number of shaped packets in the busiest second, the duration of every arm, and the
// number of coflows.
func load(t *testing.T, file string, set map[string]string, coflows int, packets float64, from, to time.Duration) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(file, scenario.Options{Set: set, Catalog: catalog.All()})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Repeat = scenario.Repeats{AtLeast: 1, AtMost: 1} // repeats on the fluid model differ only in paths
	forecast, err := runner.Predict(t.Context(), s, runner.Options{})
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

// simulate runs the arms of a scenario that keep names on the fluid model, and returns
// their summaries by name. Speed-ups are relative to the first arm.
func simulate(t *testing.T, s *scenario.Scenario, keep ...string) map[string]summary.Arm {
	t.Helper()
	one := *s
	one.Spec.Arms = nil
	for _, a := range s.Spec.Arms {
		if slices.Contains(keep, a.Name) {
			one.Spec.Arms = append(one.Spec.Arms, a)
		}
	}
	out, err := runner.Simulate(t.Context(), &one, runner.Options{Out: t.TempDir(), StateRoot: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	arms := map[string]summary.Arm{}
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

// The purpose of the scenarios: coflow by coflow each scheduler is significantly faster
// than the previous one, on the fluid model.
func TestScenarios(t *testing.T) {
	longtest.Skip(t, "simulates two complete scenarios, 3 s")
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
		if p == nil || p.GeoMeanCI.Low <= 1 {
			t.Errorf("%s relative to %s: %+v, want an interval above 1", pair[1], pair[0], p)
			continue
		}
		t.Logf("%s relative to %s: %.2f %.2f", pair[1], pair[0], p.GeoMean, p.GeoMeanCI)
	}
}

// Without latencies, two thousand flows are active at once in all arms.
func TestFlowsAtOnce(t *testing.T) {
	longtest.Skip(t, "simulates 2,000 flows at once, 3 s")
	s := load(t, "flows.yaml", nil, 25, math.Inf(1), 20*time.Second, 32*time.Second)
	out, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir(), StateRoot: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range s.Spec.Arms {
		if n := mostAtOnce(t, filepath.Join(out.Dir, "flows.csv"), a.Name); n < 2000 {
			t.Errorf("%s: %d flows at once at most, want 2000", a.Name, n)
		}
	}
}

// mostAtOnce returns the maximum number of concurrent flows of an arm.
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

// The coflows of the Facebook trace that the suite selects fit the machine, and with these
// too each scheduler is faster than the previous one.
func TestFacebook(t *testing.T) {
	carried, err := oracletest.Trace(t, oracletest.Facebook).Filter(workloads.TraceFilter{First: 64, MaxSize: 50_000 * mb})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "carried.flows")
	if err := safefile.Write(path, func(w io.Writer) error { return workloads.WriteTraceAs(w, carried, workloads.FormatFlows) }); err != nil {
		t.Fatal(err)
	}
	for fabric, set := range map[string]map[string]string{
		"switch":     {"ports": "12"},
		"leaf-spine": {"leaves": "3", "hosts_per_leaf": "4", "host_link": "125Mbps"},
	} {
		t.Run(fabric, func(t *testing.T) {
			set["trace"], set["size"], set["first_queue"] = path, "1/100", "104858B"
			inOrder(t, load(t, fabric+".yaml", set, 64, full/2, 12*time.Second, 20*time.Second))
		})
	}
}
