package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"testbed/emu/experiment"
	"testbed/emu/scenario"
	"testbed/workloads"
)

var (
	update = flag.Bool("update", false, "rewrite coflows.txt")
	whole  = flag.Bool("whole", false, "also compare completion times, on the fluid model, and by the Facebook trace (half a minute)")
)

const mb workloads.Megabytes = 1_000_000

// generated is what coflows.txt was generated from: the four bins of coflow traces, narrow
// and wide, of small flows and of large ones, with the flows of the Facebook trace but
// for the widest coflows. A coflow has at most 144 flows, on 20 hosts up to 100.
var generated = workloads.Synthetic{
	Name: "coflows.txt", Ports: 150, Coflows: 64, Span: 300 * time.Second,
	Bins: []workloads.SyntheticBin{
		{Share: 50, Mappers: [2]int{1, 3}, Reducers: [2]int{1, 2}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 16, Mappers: [2]int{3, 5}, Reducers: [2]int{3, 5}, Flow: [2]workloads.Megabytes{6 * mb, 48 * mb}},
		{Share: 20, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{1 * mb, 3 * mb}},
		{Share: 14, Mappers: [2]int{6, 10}, Reducers: [2]int{6, 10}, Flow: [2]workloads.Megabytes{8 * mb, 32 * mb}},
	},
}

const coflowsSeed = 3

func TestCoflowsAreGenerated(t *testing.T) {
	trace, err := generated.Generate(coflowsSeed)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := workloads.WriteTrace(&want, trace); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("coflows.txt", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("coflows.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("coflows.txt is not what its generator writes: run go test -update here and read the diff")
	}
}

// check loads and plans a scenario, and with -whole simulates it, as the commands do.
// Under fair its average CCT is to be at least so many times that under sebf.
func check(t *testing.T, file string, set map[string]string, ratio float64) {
	s, err := scenario.Load(file, scenario.Options{Set: set, CheckPolicy: experiment.CheckPolicy})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.Repeat != 5 {
		t.Errorf("%d repeats, want 5", s.Spec.Repeat)
	}
	s.Spec.Repeat = 1 // on the fluid model only paths differ
	forecast, err := experiment.Predict(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if forecast.Coflows != 100 || forecast.Plan == nil {
		t.Errorf("%d coflows and the plan %v, want 100 and one", forecast.Coflows, forecast.Plan)
	}
	for _, load := range forecast.Load {
		t.Logf("%s: %v, %.0f shaped packets/s at most, %d flows", load.Arm, load.Duration, load.PeakPackets, forecast.Flows)
		if load.Duration < 18*time.Second || load.Duration > 25*time.Second {
			t.Errorf("%s takes %v, want 18 to 25 s", load.Arm, load.Duration)
		}
		// 62,000 fill two processors of a nested virtual machine.
		if load.PeakPackets > 35_000 {
			t.Errorf("%s has %.0f shaped packets/s in its busiest second, want 35,000 or less", load.Arm, load.PeakPackets)
		}
	}
	if !*whole {
		return
	}
	out, err := experiment.Simulate(t.Context(), s, experiment.Options{Out: t.TempDir(), StateRoot: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	mean := map[string]float64{}
	for _, a := range out.Report.Summary.Arms {
		if a.CCT == nil || a.CCT.N != 100 {
			t.Fatalf("%s: CCT %+v, want one of 100 coflows", a.Name, a.CCT)
		}
		t.Logf("%s: %+v", a.Name, *a.CCT)
		mean[a.Name] = a.CCT.MeanUS
	}
	if mean["sebf"] <= 0 || mean["fair"] < ratio*mean["sebf"] {
		t.Errorf("the average CCT is %.0f µs under fair and %.0f under sebf, want %g times as much or more", mean["fair"], mean["sebf"], ratio)
	}
}

func TestScenarios(t *testing.T) {
	for _, file := range []string{"switch.yaml", "leaf-spine.yaml"} {
		t.Run(file, func(t *testing.T) { check(t, file, nil, 1.3) })
	}
}

func TestFacebook(t *testing.T) {
	if !*whole {
		t.Skip("needs -whole, and the trace")
	}
	trace, err := filepath.Abs(filepath.Join("..", "..", "..", "shared", "traces", "FB2010-1Hr-150-0.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(trace); os.IsNotExist(err) {
		t.Skipf("no %s: the trace is not part of the project; get it from github.com/coflow/coflow-benchmark", trace)
	}
	for _, file := range []string{"switch.yaml", "leaf-spine.yaml"} {
		t.Run(file, func(t *testing.T) { check(t, file, map[string]string{"trace": trace}, 1.1) })
	}
}

// The generated trace has about as many bytes as what it stands for: 1.25 million MB.
func TestCoflowsHaveTheSize(t *testing.T) {
	trace, err := generated.Generate(coflowsSeed)
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, c := range trace.Coflows {
		for _, r := range c.Reducers {
			total += float64(r.Size) / float64(mb)
		}
	}
	if total < 1.0e6 || total > 1.5e6 {
		t.Errorf("%.0f MB, want 1.0 to 1.5 million", total)
	}
}
