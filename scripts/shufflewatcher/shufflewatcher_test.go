package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
	"testbed/topo/units"
	"testbed/workloads"
)

// Each claim belongs to a part and to one of its variants.
func TestClaims(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range c.Claims {
		name, rest, _ := strings.Cut(x.ID, "/")
		if name == placement {
			continue
		}
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if at < 0 || !slices.ContainsFunc(parts[at].variants, func(v variant) bool {
			return slices.Contains([]string{v.id + "-bytes", v.id + "-throughput", v.id + "-time", v.id + "-relative"}, rest)
		}) {
			t.Errorf("claim %s: no variant of a part has it", x.ID)
		}
	}
}

// All variants can be loaded, and have the two arms that are compared.
func TestScenarios(t *testing.T) {
	for _, p := range parts {
		for _, v := range p.variants {
			set := map[string]string{}
			for _, s := range p.assignments(v) {
				name, value, _ := strings.Cut(s, "=")
				set[name] = value
			}
			s, err := scenario.Load(p.scenario, scenario.Options{Catalog: catalog.All(), Set: set})
			if err != nil {
				t.Errorf("%s/%s: %v", p.name, v.id, err)
				continue
			}
			if arms := s.ArmList(); len(arms) != 2 || arms[0].Name != base || arms[1].Name != watched {
				t.Errorf("%s/%s: arms %+v, want %s and %s", p.name, v.id, arms, base, watched)
			}
		}
	}
}

// On the fluid model, tasks are where SAMP and SARP have them. The worst of the cells in which all racks matter.
func TestPlacement(t *testing.T) {
	of := ideals[len(ideals)-1]
	for i, n := range sizes[:3] {
		set := map[string]string{}
		for _, s := range of.set(n) {
			name, value, _ := strings.Cut(s, "=")
			set[name] = value
		}
		s, err := scenario.Load("placement.yaml", scenario.Options{Catalog: catalog.All(), Set: set})
		if err != nil {
			t.Fatal(err)
		}
		out, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if got := crossing(&out.Report.Summary, n); math.Abs(got-of.bytes[i]) > 0.02 {
			t.Errorf("%d blocks: %.3f bytes across racks for each byte of input, want %.2f", n, got, of.bytes[i])
		}
	}
}

// Bytes count once for each flow of a task between racks, and a repeat that one arm lacks counts for neither.
func TestFigures(t *testing.T) {
	run := &rundir.Run{}
	job := func(arm string, repeat int, took time.Duration) {
		run.Jobs = append(run.Jobs, schema.Job{Key: schema.Key{Arm: arm, Repeat: repeat}, Arrival: time.Second, End: time.Second + took, JobTime: took})
	}
	flow := func(arm string, repeat int, of *workloads.JobID, src, dst string, size units.Bytes) {
		run.Flows = append(run.Flows, schema.Flow{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: of, Src: src, Dst: dst, Size: size})
	}
	one := workloads.JobID(1)
	for _, repeat := range []int{0, 1} {
		job(base, repeat, 4*time.Second)
		flow(base, repeat, &one, "h0-00", "h1-00", 200)
	}
	job(watched, 0, 2*time.Second)
	flow(watched, 0, &one, "h0-00", "h1-00", 50)
	flow(watched, 0, &one, "h0-00", "h0-01", 70) // within its rack
	flow(watched, 0, nil, "h0-00", "h1-00", 90)  // of no task
	got := figuresOf(run)
	if !slices.Equal(got.saved, []float64{75}) || !slices.Equal(got.time, []float64{0.5}) || !slices.Equal(got.throughput, []float64{2}) {
		t.Errorf("saved %v %%, job time %v, throughput %v: want 75, 0.5 and 2", got.saved, got.time, got.throughput)
	}
}

// On the fluid model, ShuffleWatcher saves bytes over delay scheduling in every repeat.
func TestSavesBytes(t *testing.T) {
	s, err := scenario.Load(small, scenario.Options{Catalog: catalog.All(), Set: map[string]string{"repeat": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := figuresOf(run).saved; len(got) != 3 || slices.Min(got) <= 0 {
		t.Errorf("saved %v %%: want three positive shares", got)
	}
}
