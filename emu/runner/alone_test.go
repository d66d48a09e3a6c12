package runner

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/workloads"
)

// Jobs that never meet take exactly the time that they take alone under the first arm, whatever faults
// the scenario has; jobs submitted together take longer. Jobs of equal work share the time of the
// first.
func TestJobsAlone(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	const text = `
name: alone
fabric: {leaves: 3, hosts_per_leaf: 2, spines: 1, host_link: 40Mbps, oversubscription: "2:1"}
disk: {write: 3MB/s, size: 640MB}
heartbeat: {interval: 250ms}
workload:
  - {kind: tasks, generator: mix, jobs: 8, gap: GAP, block: 1MB, map_rate: 1MB/s, profiles: [{name: p, maps: 1-9, reduces: 0.3, keep_map: 0.5, keep_reduce: 0}]}
tasks: {map_slots: 2, output: {packet: 16KB}}
arms:
  - {name: fifo, coflow: fair, placement: hdfs, tasks: fifo}
  - {name: fair, coflow: fair, placement: hdfs, tasks: {name: fair, heartbeat_tasks: 0}}
MORE
`
	of := func(gap, more string) (alone, took map[workloads.JobID]time.Duration, first map[workloads.JobID]bool) {
		r, w := workOf(t, strings.NewReplacer("GAP", gap, "MORE", more).Replace(text), 0)
		rec := simulateTasks(t, r, w)[0] // sets r.faults
		var unknown string
		var err error
		if w.lone, unknown, err = r.alone(t.Context(), 0, w); err != nil || unknown != "" {
			t.Fatal(unknown, err)
		}
		meta := r.arms[0].trial(0, w).workloadMeta()
		meta.Join(&rec)
		alone, took, first = map[workloads.JobID]time.Duration{}, map[workloads.JobID]time.Duration{}, map[workloads.JobID]bool{}
		for _, j := range rec.Jobs {
			alone[j.Job], took[j.Job] = j.Lone, j.JobTime()
		}
		same := map[[32]byte]time.Duration{}
		for i := range w.tasks {
			id, key := w.tasks[i].ID, w.tasks[i].Digest()
			if same[key] == 0 {
				same[key], first[id] = alone[id], true
			}
			if alone[id] != same[key] || alone[id] == 0 {
				t.Errorf("job %d takes %v alone, an equal one %v", id, alone[id], same[key])
			}
		}
		return alone, took, first
	}
	alone, took, first := of("1h", "")
	if len(first) == 8 || len(first) < 4 {
		t.Fatalf("%d different jobs of 8: some must be equal", len(first))
	}
	for id := range first {
		if took[id] != alone[id] {
			t.Errorf("job %d takes %v an hour apart from the others, and %v alone", id, took[id], alone[id])
		}
	}
	if faulty, _, _ := of("1h", "faults: [{at: 0s, kind: slow-disk, host: h1-00, rate: 100KB/s, for: 24h}]"); !maps.Equal(alone, faulty) {
		t.Errorf("with slow disks jobs take %v alone, without %v", faulty, alone)
	}
	alone, took, _ = of("1us", "")
	for id := range took {
		if took[id] < alone[id] {
			t.Errorf("job %d takes %v together with others, and %v alone", id, took[id], alone[id])
		}
	}
	r, w := workOf(t, strings.NewReplacer("GAP", "1h", "MORE", "limits: {alone: 3}").Replace(text), 0)
	if times, unknown, err := r.alone(t.Context(), 0, w); err != nil || times != nil || !strings.Contains(unknown, "at most 3 are simulated alone (limits.alone)") {
		t.Errorf("%v, %q, %v", times, unknown, err)
	}
}

// A job alone writes blocks as large as in the run, in which other jobs may read the largest block: 20,000
// times its own input here. Each block ends with the delay of its pipeline, so that more blocks take longer.
func TestJobsAloneWriteTheBlocksOfTheRun(t *testing.T) {
	list := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(list, []byte(`testbed-jobs: 1
jobs:
- {submit: 1s, stages: [{kind: map, tasks: [{count: 1, input: 20MB, rate: 80Mbps}]}]}
- {submit: 1h, stages: [{kind: map, tasks: [{count: 1, input: 1KB, rate: 80Mbps, writes: 100MB}]}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := workOf(t, `
name: alone-blocks
fabric: {leaves: 1, hosts_per_leaf: 3, spines: 1, host_link: 1Gbps, delay: 5ms}
disk: {write: 50MB/s, size: 10GB}
heartbeat: {interval: 1s}
workload:
  - {kind: tasks, path: "`+list+`"}
arms:
  - {name: fifo, coflow: fair, placement: hdfs, tasks: fifo}
`, 0)
	rec := simulateTasks(t, r, w)[0]
	alone, unknown, err := r.alone(t.Context(), 0, w)
	if err != nil || unknown != "" || len(rec.Jobs) != 2 {
		t.Fatal(len(rec.Jobs), unknown, err)
	}
	for _, j := range rec.Jobs {
		if j.JobTime() != alone[j.Job] {
			t.Errorf("job %d takes %v in the run and %v alone", j.Job, j.JobTime(), alone[j.Job])
		}
	}
}

// Slowdowns of two runs are compared only if the jobs that both have take the same times alone.
func TestSameAlone(t *testing.T) {
	tasks, one, two := 1, time.Second, 2*time.Second
	of := func(lone ...*time.Duration) *rundir.Run {
		r := &rundir.Run{}
		for i, l := range lone {
			r.Jobs = append(r.Jobs, schema.Job{Job: workloads.JobID(i + 1), Tasks: &tasks, Lone: l})
		}
		return r
	}
	for _, tt := range []struct {
		a, b *rundir.Run
		want bool
	}{
		{of(&one, &two), of(&one, &two), true}, {of(&one, &two), of(&one), true}, {of(&one), of(&one, &two), true}, {of(nil), of(nil), true},
		{of(&one, &two), of(&one, &one), false}, {of(&one), of(nil), false}, {of(nil), of(&one), false},
	} {
		if got := sameAlone(tt.a, tt.b); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}
