package runner

import (
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/workloads/jobs"
)

// chains is a scenario of jobs of six stages, one after the other, on an idle cluster, which fetch by each pattern. A task
// computes for a second.
const chains = `
name: chains
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 5, host_link: 10Mbps, queue: 20ms}
disk: {write: 5MB/s, size: 256MB}
heartbeat: {interval: 200ms}
tasks: {map_slots: 4, reduce_slots: 4, out_of_band: true, slowstart: 1, fetch_batch: 1, output: {packet: 1KB, window: 5}}
workload:
  - {kind: tasks, generator: bins, jobs: JOBS, largest: 20, phases: 6, pattern: all-to-all, gap: GAP, block: 50KB, map_rate: 50KB/s, users: 1}
  - {kind: tasks, generator: bins, jobs: JOBS, largest: 20, phases: 6, pattern: many-to-one, gap: GAP, block: 50KB, map_rate: 50KB/s, users: 1}
  - {kind: tasks, generator: bins, jobs: JOBS, largest: 20, phases: 6, pattern: one-to-one, gap: GAP, block: 50KB, map_rate: 50KB/s, users: 1}
arms:
  - {name: fair, coflow: fair, placement: hdfs, tasks: {name: fair, load_factor: true}}
`

// checkChains checks that every task of each stage has run once, after all of the stage before, and has computed for a second.
func checkChains(t *testing.T, attempts []flows.AttemptRecord, jobs, longest int) {
	t.Helper()
	type stage struct{ job, stage int }
	began, ended := map[stage]time.Duration{}, map[stage]time.Duration{}
	tasks, most := map[stage]int{}, 0
	for _, a := range attempts {
		at := stage{int(a.Job), a.Stage}
		most = max(most, a.Stage+1)
		if a.Outcome != flows.Committed {
			t.Errorf("attempt %+v", a)
			continue
		}
		if took := a.Computed - a.Compute; took < 950*time.Millisecond || took > 1300*time.Millisecond {
			t.Errorf("attempt of task %d of stage %d of job %d computed for %v, want 1 s", a.Task, a.Stage, a.Job, took)
		}
		if tasks[at] == 0 || a.Start < began[at] {
			began[at] = a.Start
		}
		tasks[at]++
		ended[at] = max(ended[at], a.End)
	}
	if most != longest {
		t.Errorf("jobs of up to %d stages, want %d", most, longest)
	}
	for j := range jobs {
		if tasks[stage{j + 1, 0}] == 0 {
			t.Errorf("job %d has not run", j+1)
		}
	}
	for at, n := range tasks {
		before := stage{at.job, at.stage - 1}
		if at.stage > 0 && (n > tasks[before] || began[at] < ended[before]) {
			t.Errorf("stage %d of job %d: %d tasks from %v on, after %d until %v", at.stage, at.job, n, began[at], tasks[before], ended[before])
		}
	}
}

// edge is a transfer between two tasks of a job.
type edge struct{ job, stage, task, fromStage, fromTask int }

// checkPatterns checks that each task has fetched what the tasks send it that its pattern selects, and from no other task.
func checkPatterns(t *testing.T, s *scenario.Scenario, attempts []flows.AttemptRecord, fetches []edge) {
	t.Helper()
	fabric, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := s.TaskJobs(fabric, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[jobs.Pattern]int{}
	for _, e := range fetches {
		st := list[e.job-1].Stages
		seen[st[e.stage].Pattern]++
		if e.fromStage != e.stage-1 || !st[e.stage].Pattern.Fetches(e.fromTask, len(st[e.fromStage].Tasks), e.task, len(st[e.stage].Tasks)) {
			t.Errorf("fetch %+v: %d tasks from %d, %v", e, len(st[e.stage].Tasks), len(st[e.fromStage].Tasks), st[e.stage].Pattern)
		}
	}
	if len(seen) != len(jobs.Patterns()) {
		t.Errorf("fetches by pattern: %v", seen)
	}
	for _, a := range attempts {
		if a.Stage > 0 && a.Input != list[a.Job-1].Fetched(a.Stage)[a.Task] {
			t.Errorf("task %d of stage %d of job %d has fetched %v, want %v", a.Task, a.Stage, a.Job, a.Input, list[a.Job-1].Fetched(a.Stage)[a.Task])
		}
	}
}

// edgesOf returns the fetches of flows.
func edgesOf(list []flows.FlowRecord) (all []edge) {
	for _, f := range list {
		if k := f.Task; k != nil && k.Outputs > 0 {
			all = append(all, edge{int(k.Job), k.Stage, k.Task, k.FromStage, k.FromTask})
		}
	}
	return all
}

// Chains of six stages run from end to end, on the fluid model and on packets.
func TestChains(t *testing.T) {
	s := loadText(t, strings.NewReplacer("JOBS", "20", "GAP", "36s").Replace(chains))
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var attempts []flows.AttemptRecord
	for i := range run.Attempts {
		attempts = append(attempts, run.Attempts[i].Record())
	}
	checkChains(t, attempts, 60, 6)
	var fetches []edge
	for _, f := range run.Flows {
		if f.FromTask != nil {
			fetches = append(fetches, edge{int(*f.Job), *f.Stage, *f.Task, *f.FromStage, *f.FromTask})
		}
	}
	checkPatterns(t, s, attempts, fetches)
}

func TestChainsOnPackets(t *testing.T) {
	longtest.Skip(t, "runs jobs on packets, 15 s")
	s := loadText(t, strings.NewReplacer("JOBS", "2", "GAP", "1500ms").Replace(chains))
	_, arms := onPackets(t, s)
	rep := arms["fair"]
	checkChains(t, rep.Records.Attempts, 6, 6)
	checkChains(t, rep.Fluid.Attempts, 6, 6)
	checkPatterns(t, s, rep.Records.Attempts, edgesOf(rep.Records.Flows))
	checkPatterns(t, s, rep.Fluid.Attempts, edgesOf(rep.Fluid.Flows))
}
