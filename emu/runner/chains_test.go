package runner

import (
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/rundir"
)

// chains is a scenario of jobs of six stages, one after the other, on an idle cluster. A task computes for a second.
const chains = `
name: chains
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 5, host_link: 10Mbps, queue: 20ms}
disk: {write: 5MB/s, size: 256MB}
heartbeat: {interval: 200ms}
tasks: {map_slots: 4, reduce_slots: 4, out_of_band: true, slowstart: 1, output: {packet: 1KB, window: 5}}
workload:
  - {kind: tasks, generator: bins, jobs: JOBS, largest: 20, phases: 6, gap: GAP, block: 50KB, map_rate: 50KB/s, users: 1}
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

// Chains of six stages run from end to end, on the fluid model and on packets.
func TestChains(t *testing.T) {
	s := loadText(t, strings.NewReplacer("JOBS", "20", "GAP", "12s").Replace(chains))
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
	checkChains(t, attempts, 20, 6)
}

func TestChainsOnPackets(t *testing.T) {
	longtest.Skip(t, "runs jobs on packets, 15 s")
	s := loadText(t, strings.NewReplacer("JOBS", "6", "GAP", "500ms").Replace(chains))
	_, arms := onPackets(t, s)
	rep := arms["fair"]
	checkChains(t, rep.Records.Attempts, 6, 6)
	checkChains(t, rep.Fluid.Attempts, 6, 6)
}
