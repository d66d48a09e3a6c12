package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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
		if len(p.pairs) > 1 && len(p.variants) > 1 {
			t.Errorf("%s: variants and pairs: claims of a pair would be those of several variants", p.name)
		}
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
	for _, x := range c.Claims {
		if !known[x.ID] {
			t.Errorf("claim %s: no part has such a figure", x.ID)
		}
	}
}

// Figures compare the same jobs, count small ones apart, and leave out a repeat that an arm lacks.
func TestFigures(t *testing.T) {
	run := &rundir.Run{}
	job := func(arm string, repeat int, id workloads.JobID, tasks int, took time.Duration) {
		run.Jobs = append(run.Jobs, schema.Job{Key: schema.Key{Arm: arm, Repeat: repeat}, Job: id, Tasks: &tasks, JobTime: took})
	}
	attempt := func(arm string, id workloads.JobID, took time.Duration, outcome string) {
		run.Attempts = append(run.Attempts, schema.Attempt{Key: schema.Key{Arm: arm}, Job: id, Outcome: outcome, Time: took})
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
	attempt("late", 1, time.Second, flows.Committed)
	attempt("late", 1, time.Second, flows.Committed)
	attempt("late", 1, 6*time.Second, flows.Committed)
	attempt("late", 3, time.Second, flows.Committed) // of a large job
	attempt("late", 3, 9*time.Second, flows.Committed)
	attempt("dolly", 1, time.Second, flows.Committed)
	attempt("dolly", 1, 3*time.Second, flows.Committed)
	attempt("dolly", 1, 9*time.Second, flows.Killed)
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
		{"slowest", got.slowest, 1.5}, {"slowest before", got.baseSlowest, 6}, {"bytes", got.relativeBytes, 1.5}, {"absolute bytes", got.bytes, 300}} {
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
