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
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
	"testbed/topo/units"
	"testbed/workloads"
)

// Each claim belongs to a part, to one of its comparisons, and to a figure, and each comparison has an ID of its own.
func TestClaims(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range parts {
		for _, v := range p.variants {
			for _, x := range p.pairs {
				id := p.name + "/" + p.id(v, x)
				if known[id+"-all"] {
					t.Errorf("%s: two comparisons have this ID", id)
				}
				for _, f := range (figures{}).claimed() {
					known[id+"-"+f.name] = true
				}
				known[id+"-wire"] = p.packets
			}
		}
	}
	for _, name := range errorsOf {
		known["estimates/"+learned+"-error-"+name] = true
	}
	for _, x := range c.Claims {
		if !known[x.ID] {
			t.Errorf("claim %s: no part has such a figure", x.ID)
		}
	}
}

// All variants can be loaded, and have the arms that are compared.
func TestScenarios(t *testing.T) {
	for _, p := range parts {
		for _, v := range p.variants {
			s := load(t, p.scenario, p.assignments(v)...)
			if s == nil {
				continue
			}
			var arms []string
			for _, a := range s.ArmList() {
				arms = append(arms, a.Name)
			}
			for _, x := range p.pairs {
				if !slices.Contains(arms, x.base) || !slices.Contains(arms, x.arm) {
					t.Errorf("%s/%s: arms %q, want %s and %s", p.name, p.id(v, x), arms, x.base, x.arm)
				}
			}
		}
	}
}

// load loads a scenario with assignments to its variables.
func load(t *testing.T, path string, assignments ...string) *scenario.Scenario {
	t.Helper()
	set := map[string]string{}
	for _, s := range assignments {
		name, value, _ := strings.Cut(s, "=")
		set[name] = value
	}
	s, err := scenario.Load(path, scenario.Options{Catalog: catalog.All(), Set: set})
	if err != nil {
		t.Errorf("%s %q: %v", path, assignments, err)
	}
	return s
}

// On the fluid model, Dolly saves time of small jobs over LATE in every repeat, and costs nothing without stragglers.
func TestDollySavesTime(t *testing.T) {
	for _, tt := range []struct {
		scenario, base, arm string
		set                 []string
		least               float64
	}{{small, "late", "dolly", nil, 3}, {cluster, "base", "dolly", []string{"jobs=60", "repeat=2"}, 3}, {cluster, "base", "dolly", []string{"jobs=40", "repeat=2", "probability=0", "base=none", "with=none"}, -3}} {
		s := load(t, tt.scenario, tt.set...)
		if s == nil {
			continue
		}
		out, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		run, err := rundir.Open(out.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := figuresOf(run, tt.base, tt.arm).small; len(got) < 2 || slices.Min(got) < tt.least {
			t.Errorf("%s %q: saved %v %% of the time of small jobs, want at least %v in each repeat", tt.scenario, tt.set, got, tt.least)
		}
	}
}

// Figures compare the same jobs, count small ones apart, and leave out a repeat that an arm lacks.
func TestFigures(t *testing.T) {
	run := &rundir.Run{}
	job := func(arm string, repeat int, id workloads.JobID, tasks int, took time.Duration) {
		run.Jobs = append(run.Jobs, schema.Job{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: id, Tasks: &tasks, JobTime: took})
	}
	attempt := func(arm string, id workloads.JobID, task int, start, end time.Duration, outcome string) {
		run.Attempts = append(run.Attempts, schema.Attempt{Key: schema.Key{Arm: arm}, Job: id, Task: task, Start: start, End: end, Outcome: outcome})
	}
	flow := func(arm string, of *workloads.JobID, size units.Bytes, failed bool) {
		run.Flows = append(run.Flows, schema.Flow{Key: schema.Key{Arm: arm}, Job: of, Size: size, Failed: failed})
	}
	one := workloads.JobID(1)
	job("late", 1, 1, 5, time.Second) // the other arm is void
	for arm, took := range map[string]time.Duration{"late": 4 * time.Second, "dolly": time.Second} {
		job(arm, 0, 1, smallJob, took)
		job(arm, 0, 2, smallJob, 4*time.Second)
		job(arm, 0, 3, smallJob+1, 8*time.Second)
	}
	attempt("late", 1, 0, 0, time.Second, flows.Committed)
	attempt("late", 1, 1, 0, time.Second, flows.Committed)
	attempt("late", 1, 2, 5*time.Second, 6*time.Second, flows.Committed) // a backup after 5 s
	attempt("late", 1, 2, 0, 6*time.Second, flows.Killed)
	attempt("late", 3, 0, 0, time.Second, flows.Committed) // of a large job
	attempt("late", 3, 1, 0, 9*time.Second, flows.Committed)
	attempt("dolly", 1, 0, time.Second, 2*time.Second, flows.Committed)
	attempt("dolly", 1, 1, time.Second, 4*time.Second, flows.Committed)
	attempt("dolly", 1, 2, 0, 9*time.Second, flows.Killed)
	flow("late", &one, 200, false)
	flow("dolly", &one, 300, false)
	flow("dolly", &one, 500, true)
	flow("dolly", nil, 500, false)
	got := figuresOf(run, "late", "dolly")
	for _, x := range []struct {
		name string
		got  []float64
		want float64
	}{{"all", got.all, 100 * 3. / 16}, {"small", got.small, 100 * 3. / 8}, {"p75", got.p75, 75 * 0.75}, {"p90", got.p90, 75 * 0.9},
		{"slowest", got.slowest.mean, 1.5}, {"slowest before", got.left.mean, 6}, {"95th percentile of it", got.left.p95, 6}, {"bytes", got.relativeBytes, 1.5}, {"absolute bytes", got.bytes, 300}} {
		if len(x.got) != 1 || math.Abs(x.got[0]-x.want) > 1e-9 {
			t.Errorf("%s: %v, want one repeat with %v", x.name, x.got, x.want)
		}
	}
	if cells := got.cells(); slices.Contains(cells, "–") || !strings.Contains(cells[4], "6.00 → 1.50") {
		t.Errorf("cells %q", cells)
	}
	if cells := figuresOf(run, "late", "void").cells(); cells[0] != "–" || cells[2] != "–" {
		t.Errorf("cells of a void arm: %q", cells)
	}
}
