package runner

import (
	"runtime"
	"testing"

	"testbed/emu/longtest"
	"testbed/results/rundir"
)

// The work of a simulation with tasks stays near the stored numbers of allocations, which do not depend on
// the speed of the machine: those of the fluid model, the engine, the job tracker and the records.
func TestWorkOfSimulatedTasks(t *testing.T) {
	longtest.Computes(t)                      // and allocates more under the race detector
	const mostAllocs, mostBytes = 180, 18_000 // for each attempt
	s := loadText(t, `
name: work
fabric: {leaves: 5, spines: 4, hosts_per_leaf: 20, host_link: 1Gbps, oversubscription: "5:1"}
heartbeat: {interval: 3s}
disk: {write: 100MB/s, size: 1TB}
tasks: {map_slots: 4, reduce_slots: 2}
workload: [{kind: tasks, generator: mix, jobs: 80, gap: 500ms, users: 10}]
arms: [{name: fair, coflow: fair, placement: hdfs, tasks: fair}]
`)
	r, err := newRun(s, Options{}, rundir.Fluid)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.drawn(0)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rec, err := r.arms[0].trial(0, *w).simulate(t.Context(), "", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	attempts := uint64(len(rec.Attempts))
	if attempts < 800 {
		t.Fatalf("%d attempts, want 800 or more", attempts)
	}
	allocs, bytes := (after.Mallocs-before.Mallocs)/attempts, (after.TotalAlloc-before.TotalAlloc)/attempts
	if allocs > mostAllocs || bytes > mostBytes {
		t.Errorf("%d allocations and %d bytes for each attempt, want at most %d and %d", allocs, bytes, mostAllocs, mostBytes)
	}
}
