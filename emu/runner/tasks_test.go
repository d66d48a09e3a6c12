package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/topo/units"
	"testbed/workloads"
)

// On the fluid model every arm completes every job, reads the same input and replays from its log.
func TestSimulateTasks(t *testing.T) {
	s := loadText(t, taskWork)
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range out.Report.Summary.Arms {
		if a.JobTime.N != 24 {
			t.Errorf("%s: %d jobs have a completion time, want 24", a.Name, a.JobTime.N)
		}
	}
	r, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats, Version: "v1"})
	if err != nil || len(r.Repeats) != 4 {
		t.Fatalf("%d repeats, %v", len(r.Repeats), err)
	}
	for _, x := range r.Repeats {
		if x.Differs != nil {
			t.Errorf("%s/%d: %v", x.Arm, x.Repeat, x.Differs)
		}
	}
}

// Without records of the transfers of tasks and logs, all figures of a simulation are the same.
func TestSimulateJobsOnly(t *testing.T) {
	t.Parallel()
	all, err := Simulate(t.Context(), loadText(t, taskWork), Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	only, err := Simulate(t.Context(), loadText(t, taskWork+"fluid: {jobs_only: true}\n"), Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(inJSON(t, all.Report.Summary.Arms), inJSON(t, only.Report.Summary.Arms)); d != "" {
		t.Errorf("figures (-all +jobs only):\n%s", d)
	}
	read := func(dir string) *rundir.Run {
		r, err := rundir.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := read(all.Dir), read(only.Dir)
	if len(a.Flows) < 100 || len(b.Flows) != 0 {
		t.Errorf("%d flows, %d without records of transfers of tasks: want 100 or more, and none", len(a.Flows), len(b.Flows))
	}
	var crossed, sum units.Bytes
	for _, f := range a.Flows {
		if f.Job != nil && strings.Split(f.Src, "-")[0] != strings.Split(f.Dst, "-")[0] {
			crossed += f.Size
		}
	}
	for _, j := range a.Jobs {
		sum += *j.CrossRack
	}
	if crossed == 0 || sum != crossed {
		t.Errorf("flows of tasks carry %d bytes between racks, jobs state %d", crossed, sum)
	}
	if d := cmp.Diff(a.Jobs, b.Jobs) + cmp.Diff(a.Attempts, b.Attempts) + cmp.Diff(a.Coflows, b.Coflows) + cmp.Diff(a.Blocks, b.Blocks); d != "" {
		t.Errorf("jobs, attempts, coflows and blocks (-all +jobs only):\n%s", d)
	}
	if _, err := Replay(t.Context(), only.Dir, ReplayOptions{Repeat: AllRepeats}); err == nil || !strings.Contains(err.Error(), "fifo/0 has no log: fluid.jobs_only of its scenario leaves it out") {
		t.Errorf("replay: error %v", err)
	}
}

// A resolution changes job times a little: an end that is delayed past a heartbeat waits for the next.
func TestSimulateResolution(t *testing.T) {
	const resolution = time.Millisecond
	r, w := workOf(t, taskWork, 0)
	exact := simulateTasks(t, r, w)
	for _, a := range r.arms {
		a.s.Spec.Fluid.Resolution = resolution
	}
	for arm, rec := range simulateTasks(t, r, w) {
		var sum, more time.Duration
		for i, j := range rec.Jobs {
			was := exact[arm].Jobs[i].JobTime()
			sum, more = sum+was, more+j.JobTime()-was
		}
		if more == 0 || max(more, -more) > sum/20 {
			t.Errorf("%s: jobs take %v in total, and %v more with a resolution of %v: want another time, up to 5 %% apart", r.arms[arm].Name, sum, more, resolution)
		}
	}
}

// Workers submit their next job when their job has ended, so that each has one at a time, in every arm.
func TestSimulateWorkers(t *testing.T) {
	t.Parallel()
	s := loadText(t, strings.Replace(taskWork, "gap: 500ms", "workers: 3, gap: 100ms", 1))
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]time.Duration{}
	slices.SortStableFunc(run.Jobs, func(a, b schema.Job) int { return int(a.Arrival - b.Arrival) })
	submitted := map[string]bool{}
	for _, j := range run.Jobs {
		who := fmt.Sprint(j.Arm, j.Repeat, j.User)
		if j.Arrival < ends[who] {
			t.Errorf("%s submits job %d at %v, before the end of its job at %v", who, j.Job, j.Arrival, ends[who])
		}
		ends[who] = j.End
		submitted[fmt.Sprint(j.Job, j.Repeat, j.Arrival)] = true
	}
	if len(ends) != 3*len(out.Report.Summary.Arms)*s.Spec.Repeat.AtMost || len(submitted) <= len(run.Jobs)/2 {
		t.Errorf("%d workers; %d of %d jobs have a time of submission of their own", len(ends), len(submitted), len(run.Jobs))
	}
	r, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Repeats {
		if x.Differs != nil || x.Unfinished != "" {
			t.Errorf("%s/%d: %v, unfinished: %s", x.Arm, x.Repeat, x.Differs, x.Unfinished)
		}
	}
}

// simulateTasks returns the records of the arms of a scenario, in repeat 0.
func simulateTasks(t *testing.T, r *run, w work) (all []flows.Records) {
	t.Helper()
	for _, a := range r.arms {
		rec, err := a.trial(0, w).simulate(t.Context(), "", nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
	return all
}

// Every task commits once and reads its input, and at half the rates and sizes all jobs take as long.
func TestScaledTasks(t *testing.T) {
	r, w := workOf(t, taskWork, 0)
	half, err := r.s.Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := newRun(half, Options{}, rundir.Fluid)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := h.drawn(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.stored {
		if !cmp.Equal(w.stored[i].Hosts, hw.stored[i].Hosts) || w.stored[i].Size != 2*hw.stored[i].Size {
			t.Fatalf("stored block %+v, at half the scale %+v", w.stored[i], hw.stored[i])
		}
	}
	full, scaled := simulateTasks(t, r, w), simulateTasks(t, h, *hw)
	for arm := range r.arms {
		committed := map[[3]int]bool{}
		for _, a := range full[arm].Attempts {
			id := [3]int{int(a.Job), a.Stage, a.Task}
			if a.Outcome == flows.Committed && committed[id] {
				t.Errorf("%s: task %v commits twice", r.arms[arm].Name, id)
			}
			committed[id] = committed[id] || a.Outcome == flows.Committed
		}
		tasks := 0
		for _, j := range w.tasks {
			for _, stage := range j.Stages {
				tasks += len(stage.Tasks)
			}
		}
		if len(committed) != tasks || len(full[arm].Jobs) != len(w.tasks) || len(scaled[arm].Jobs) != len(w.tasks) {
			t.Fatalf("%s: %d tasks of %d and %d jobs of %d committed", r.arms[arm].Name, len(committed), tasks, len(full[arm].Jobs), len(w.tasks))
		}
		for i, j := range full[arm].Jobs {
			if d := j.JobTime() - scaled[arm].Jobs[i].JobTime(); d < -time.Millisecond || d > time.Millisecond {
				t.Errorf("%s: job %d takes %v, at half the scale %v", r.arms[arm].Name, j.Job, j.JobTime(), scaled[arm].Jobs[i].JobTime())
			}
		}
	}
}

// A barrier delays the fetches of a stage until the last task of the stage before has committed.
func TestShuffleBarrier(t *testing.T) {
	for _, shuffle := range []string{"barrier", "pull"} {
		r, w := workOf(t, strings.Replace(taskWork, "shuffle: barrier", "shuffle: "+shuffle, 1), 0)
		early := 0
		for _, rec := range simulateTasks(t, r, w) {
			maps := map[workloads.JobID]time.Duration{}
			for _, a := range rec.Attempts {
				if a.Stage == 0 {
					maps[a.Job] = max(maps[a.Job], a.End)
				}
			}
			for _, f := range rec.Flows {
				if f.Task != nil && f.Task.Outputs > 0 && f.Start < maps[f.Task.Job] {
					early++
				}
			}
		}
		if (early > 0) != (shuffle == "pull") {
			t.Errorf("shuffle %s: %d fetches start before the maps of their job have ended", shuffle, early)
		}
	}
}

// Limiters of racks on a network without oversubscription do on average what oversubscribed links do.
func TestSimulateRackLimit(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	average := func(text string) float64 {
		o, err := Simulate(t.Context(), loadText(t, text), Options{Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return o.Report.Summary.Arms[0].JobTime.MeanUS
	}
	narrow := strings.NewReplacer(`"3:1"`, `"6:1"`, "replicas: 2", "replicas: 1",
		"  - {kind: writers, count: 2, blocks: 2, block: 1MB, packet: 16KB, start: 1s}\n", "").Replace(taskWork) // limiters ignore writes
	wide := strings.ReplaceAll(narrow, `"6:1"`, `"1:1"`)
	links := average(narrow)
	limited := average(strings.ReplaceAll(wide, "coflow: fair", "coflow: {name: rack-limit, limit: 0.166666667}"))
	if ratio := limited / links; ratio < 0.98 || ratio > 1.02 {
		t.Errorf("with limiters, jobs take %.3f times as long as with links of that capacity", ratio)
	}
	if ratio := average(wide) / links; ratio > 0.9 {
		t.Errorf("without either, jobs take %.3f times as long: the test has no power", ratio)
	}
}
