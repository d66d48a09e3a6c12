package sinbad

import (
	"maps"
	"math"
	"strings"
	"testing"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/workloads"
)

// load reads a scenario with values of variables.
func load(t *testing.T, path string, set map[string]string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load(path, scenario.Options{Catalog: catalog.All(), Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// simulate runs a scenario on the fluid model.
func simulate(t *testing.T, path string, set map[string]string) (*runner.Outcome, *rundir.Run) {
	t.Helper()
	out, err := runner.Simulate(t.Context(), load(t, path, set), runner.Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return out, run
}

// The profiles of tasks.yaml are the paper's bins: of all jobs and bytes each has the share of its bin, and
// its jobs write for a share of their time within the bin's if they are alone.
func TestBinsOfTasks(t *testing.T) {
	bins := workloads.SinbadBins()
	written, total := make([]float64, len(bins)), 0.0
	profiles := load(t, "tasks.yaml", nil).Spec.Workload[0].Tasks.Profiles
	if len(profiles) != len(bins) {
		t.Fatalf("%d profiles, want %d", len(profiles), len(bins))
	}
	for i, p := range profiles {
		if p.Weight != bins[i].Jobs {
			t.Errorf("%s: %d %% of the jobs, want %d", p.Name, p.Weight, bins[i].Jobs)
		}
		written[i] = float64(p.Weight*(p.Maps.From+p.Maps.To)) / 2 * p.KeepMap
		if p.Reduces > 0 {
			written[i] *= p.KeepReduce
		}
		total += written[i]
	}
	for i, w := range written {
		if got := 100 * w / total; math.Abs(got-float64(bins[i].Bytes)) > 2 {
			t.Errorf("%s: %.1f %% of the bytes, want %d", profiles[i].Name, got, bins[i].Bytes)
		}
	}
	idle := map[string]string{"jobs": "30", "gap": "60s", "stragglers": "0", "intensity": "0.000001", "for": "1s", "crash": "1ms", "repeat": "1"}
	_, run := simulate(t, "tasks.yaml", idle)
	shares := map[string][]float64{}
	for _, j := range run.Jobs {
		shares[j.Profile] = append(shares[j.Profile], j.Writing.Seconds()/j.JobTime.Seconds())
	}
	for i, p := range profiles {
		mean := 0.0
		for _, x := range shares[p.Name] {
			mean += x / float64(len(shares[p.Name]))
		}
		// The last bin, of jobs that only write, is 90 % and more in the paper.
		if from, to := min(bins[i].From, 0.9)-0.005, bins[i].To; mean < from || mean > to {
			t.Errorf("%s: jobs write for %.3f of their time, want %.2f to %.2f", p.Name, mean, from, to)
		}
	}
}

// Under both placements all jobs complete although hosts are lost: attempts that fail run again, and
// blocks lose replicas.
func TestTasksWithFailures(t *testing.T) {
	const jobs = 20
	out, run := simulate(t, "tasks.yaml", map[string]string{"jobs": "20", "gap": "6s", "repeat": "1"})
	if a := out.Report.Summary.Arms; a[0].Failures == nil || a[0].Failures.Replicas == 0 && a[1].Failures.Replicas == 0 {
		t.Errorf("no arm loses a replica: %+v", a[0].Failures)
	}
	type task struct{ job, stage, task int }
	for _, arm := range []string{"hdfs", "sinbad"} {
		done := 0
		for _, j := range run.Jobs {
			if j.Arm == arm {
				done++
			}
		}
		lost, again := map[task]bool{}, map[task]bool{}
		for _, a := range run.Attempts {
			of := task{int(a.Job), a.Stage, a.Task}
			switch {
			case a.Arm != arm:
			case a.Outcome == flows.Failed && strings.HasSuffix(a.Why, "is lost"):
				lost[of] = true
			case a.Outcome == flows.Committed && lost[of]:
				again[of] = true
			}
		}
		if done != jobs || len(lost) == 0 || !maps.Equal(lost, again) {
			t.Errorf("%s: %d of %d jobs; attempts of %d tasks are lost, and %d of these commit later", arm, done, jobs, len(lost), len(again))
		}
	}
}
