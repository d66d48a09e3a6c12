package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/scripts/suite"
)

// Each claim belongs to a part, and the claims of the simulation are the report's.
func TestClaims(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range c.Claims {
		if part, _, _ := strings.Cut(x.ID, "/"); part == "slowdown" && x.Paper != nil || part == "batch" {
			got[x.ID] = c.Figure(x.ID)
		}
	}
	want := map[string]string{"slowdown/fifo-max": "at most 90×", "slowdown/fair": "2×", "slowdown/kill": "2×", "slowdown/splitting": "2×", "slowdown/batch": "at least 1×", "batch/gain": "19 %"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the report's figures (-want +got):\n%s", d)
	}
}

// The scenarios have the arms that the parts compare, and can be loaded.
func TestScenarios(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte("testbed-jobs: 1\njobs:\n- stages:\n  - {kind: map, tasks: 1, input: 1MB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := map[string]map[string]string{"swim.yaml": {"jobs": path}}
	for name, arms := range map[string][]string{
		"batch.yaml": {"fifo", "fair"}, "locality.yaml": {"fair", "delay"}, "sticky.yaml": {"fair", "delay"}, "throughput.yaml": {"fair", "delay"}, "response.yaml": {"fair", "delay"},
		"biasing.yaml": {"none", "untuned", "biasing"}, "single.yaml": {"fair", "splitting"}, "slowdown.yaml": {"fifo", "fair", "kill", "splitting"},
		"macro-splitting.yaml": {"fair", "fair-split"}, "macro.yaml": {"fifo", "fair", "fifo-split", "fair-split", "fair-split-delay"}, "swim.yaml": {"fifo", "fair", "delay", "delay-split"},
	} {
		s, err := scenario.Load(name, scenario.Options{Catalog: catalog.All(), Set: set[name]})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, a := range s.ArmList() {
			got = append(got, a.Name)
		}
		if d := cmp.Diff(arms, got); d != "" {
			t.Errorf("%s: arms (-want +got):\n%s", name, d)
		}
	}
}

// On the fluid model, the gain of FIFO for the batch is significant, and docs/fair.md states it.
func TestBatch(t *testing.T) {
	s, err := scenario.Load("batch.yaml", scenario.Options{Catalog: catalog.All()})
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
	gain := metrics.OverRepeats(runs{run}.gains())
	if !(gain.CI.Low > 0) {
		t.Errorf("gain of FIFO %s %%: not significant", gain.Decimals(1))
	}
	doc, err := os.ReadFile("../../docs/fair.md")
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| gain of FIFO for a batch of large jobs | 19 %% | 5 %% to 20 %% | %.1f %% [%.1f, %.1f] | reproduced |\n", gain.Value, gain.CI.Low, gain.CI.High)
	if !strings.Contains(string(doc), row) {
		t.Errorf("docs/fair.md has no row %q", row)
	}
}

// Without its trace, the part swim says why it does not run, and so do its claims.
func TestWithoutTrace(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	f := &fair{claims: c, Report: suite.NewReport(&text)}
	if err := f.swim(t.Context()); err != nil {
		t.Fatal(err)
	}
	const why = "needs the trace SWIM-FB-2009, which is not part of this project: -trace SWIM-FB-2009-0.tsv"
	if got, want := text.String(), "Not run: "+why+".\n"; !strings.Contains(got, want) {
		t.Errorf("report %q: want %q in it", got, want)
	}
	n := 0
	for _, x := range c.Claims {
		if strings.HasPrefix(x.ID, "swim/") {
			if n++; x.NotRun != why {
				t.Errorf("%s: not run: %q, want %q", x.ID, x.NotRun, why)
			}
		}
	}
	if n == 0 {
		t.Error("no claim of the part swim")
	}
}

// Throughput counts the jobs of a profile that end before the first user has no job left.
func TestThroughput(t *testing.T) {
	job := func(arm, user, profile string, end time.Duration) schema.Job {
		return schema.Job{Key: schema.Key{Arm: arm}, User: user, Profile: profile, End: end * time.Hour}
	}
	run := &rundir.Run{Jobs: []schema.Job{
		// Until 4: two scans.
		job("a", "u1", "scan", 2), job("a", "u1", "scan", 4), job("a", "u1", "compute", 3), job("a", "u1", "compute", 5), job("a", "u2", "scan", 6),
		// Until 2: two scans.
		job("b", "u1", "scan", 1), job("b", "u1", "scan", 2), job("b", "u1", "compute", 5), job("b", "u2", "scan", 6)}}
	if got := throughput(run, "b", "a", "scan"); !slices.Equal(got, []float64{2}) {
		t.Errorf("throughput of %v: want twice", got)
	}
}

// Shares and makespans are those of an arm, by repeat, over all runs.
func TestFiguresByRepeat(t *testing.T) {
	job := func(arm string, repeat int, from, to time.Duration) schema.Job {
		return schema.Job{Key: schema.Key{Arm: arm, Repeat: repeat}, Arrival: from, End: to}
	}
	read := func(arm string, repeat int, locality string) schema.Attempt {
		return schema.Attempt{Key: schema.Key{Arm: arm, Repeat: repeat}, Locality: locality, Outcome: flows.Committed}
	}
	r := runs{
		{Jobs: []schema.Job{job("a", 0, 2, 10), job("a", 0, 1, 5), job("b", 0, 1, 4), job("a", 1, 0, 6), job("b", 1, 0, 4)},
			Attempts: []schema.Attempt{read("a", 0, flows.NodeLocal), read("a", 0, flows.OffRack), read("a", 1, flows.NodeLocal), read("b", 0, flows.OffRack), read("a", 0, "")}},
		{Attempts: []schema.Attempt{read("a", 0, flows.RackLocal), {Key: schema.Key{Arm: "a"}, Locality: flows.NodeLocal, Outcome: flows.Killed}, read("a", 0, flows.NodeLocal)}},
	}
	if got := r.node("a", nil); !slices.Equal(got, []float64{50, 100}) {
		t.Errorf("node-local maps of %v %%: want 50 and 100", got)
	}
	// Job 1 of repeat 0 runs from 1 to 5, and the other from 2 to 10: both from 2 to 5.
	starts := func(repeat int, at time.Duration) bool {
		return full(r[0])(&schema.Attempt{Key: schema.Key{Arm: "a", Repeat: repeat}, Start: at})
	}
	if starts(0, 1) || !starts(0, 2) || !starts(0, 4) || starts(0, 5) || !starts(1, 0) {
		t.Error("times at which all jobs run: want 2 to 5 in repeat 0, and from 0 in repeat 1")
	}
	if got := r[:1].makespans("a", "b"); !slices.Equal(got, []float64{3, 1.5}) {
		t.Errorf("makespans %v: want 3 and 1.5 times", got)
	}
	// A void arm has no figures.
	if got := append(r.makespans("c", "a"), r.node("c", nil)...); len(got) > 0 || average(got) != "–" {
		t.Errorf("figures %v of an arm without jobs", got)
	}
}
