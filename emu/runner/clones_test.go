package runner

import (
	"fmt"
	"testing"
	"time"

	"testbed/emu/fault"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/workloads"
)

// cloned are small jobs whose tasks have copies that make copies of their outputs.
const cloned = `
name: clones
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "2:1"}
disk: {write: 4MB/s, size: 256MB}
heartbeat: {interval: 100ms, lost_after: 3}
workload:
  - {kind: tasks, generator: mix, jobs: 3, gap: 1s, block: 500KB, map_rate: 1MB/s, reduce_rate: 1MB/s, spread: 0.5, profiles: [{name: sort, maps: 1-3, reduces: 0.5, keep_map: 1, keep_reduce: 0.5}]}
tasks: {map_slots: 2, reduce_slots: 2, input: {replicas: 3}, output: {packet: 8KB, replicas: 2}}
arms:
  - {name: first, coflow: fair, placement: hdfs, tasks: {name: fifo, with: [{cloning: {budget: 1, utilization: 1, reads: first}}]}}
  - {name: exclusive, coflow: fair, placement: hdfs, tasks: {name: fifo, with: [{cloning: {budget: 1, utilization: 1, reads: exclusive}}]}}
  - {name: delay, coflow: fair, placement: hdfs, tasks: {name: fifo, with: [{cloning: {budget: 1, utilization: 1, reads: delay, wait: 300ms}}]}}
`

// checkCloned checks that all jobs are done, that the tasks of their last stages were committed once, and that no attempt has
// fetched an output twice. It counts the attempts that made copies, and the fetches from them.
func checkCloned(r *flows.Records, want int) (copies, fetched int, err error) {
	for _, f := range r.Failed {
		if f.Kind == flows.FailedJob {
			return 0, 0, fmt.Errorf("job %d failed: %s", f.Job, f.Why)
		}
	}
	if len(r.Jobs) != want || len(r.Problems) > 0 {
		return 0, 0, fmt.Errorf("%d jobs are done, want %d; problems %v", len(r.Jobs), want, r.Problems)
	}
	copied, commits := map[[4]int]bool{}, map[[3]int]int{}
	for _, a := range r.Attempts {
		switch a.Outcome {
		case flows.Copied:
			copied[[4]int{int(a.Job), a.Stage, a.Task, a.Attempt}] = true
		case flows.Committed:
			id := [3]int{int(a.Job), a.Stage, a.Task}
			if commits[id]++; commits[id] > 1 && a.Kind == flows.ReduceTask {
				return 0, 0, fmt.Errorf("reduce %v commits %d times", id, commits[id])
			}
		}
	}
	seen := map[[6]int]bool{}
	for f := range r.Transfers() {
		x := f.Task
		if x == nil || x.Outputs != 1 {
			continue
		}
		id := [6]int{int(x.Job), x.Stage, x.Task, x.Attempt, x.FromStage, x.FromTask}
		if seen[id] {
			return 0, 0, fmt.Errorf("attempt %v has fetched an output twice", id)
		}
		seen[id] = true
		if copied[[4]int{int(x.Job), x.FromStage, x.FromTask, x.FromAttempt}] {
			fetched++
		}
	}
	return len(copied), fetched, nil
}

// A host that crashes at an arbitrary time while clones run fails no job, on the fluid model: a copy replaces a lost
// output, or the task runs again.
func TestCrashesAmongClones(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	histories := 3000
	if testing.Short() {
		histories = 60
	}
	// Histories are independent of each other, so that shards of them run on all processors.
	var shards [8]struct{ copies, fetched [3]int }
	t.Run("histories", func(t *testing.T) {
		for k := range shards {
			t.Run(fmt.Sprint("shard=", k), func(t *testing.T) {
				t.Parallel()
				for n := k; n < histories; n += len(shards) {
					arm := n % 3
					c, f := crashAmongClones(t, n, arm)
					shards[k].copies[arm] += c
					shards[k].fetched[arm] += f
				}
			})
		}
	})
	var copies, fetched [3]int
	for _, s := range shards {
		for arm := range copies {
			copies[arm], fetched[arm] = copies[arm]+s.copies[arm], fetched[arm]+s.fetched[arm]
		}
	}
	t.Logf("%v attempts made copies, and %v fetches were from these, with reads first, exclusive and delay", copies, fetched)
	if copies[0] > 0 || copies[1] == 0 || copies[2] == 0 || fetched[1] == 0 || fetched[2] == 0 {
		t.Errorf("copies %v, fetches from them %v: want none with reads first, and some with the others", copies, fetched)
	}
}

// crashAmongClones simulates drawn history n under an arm, and returns the counts of checkCloned.
func crashAmongClones(t *testing.T, n, arm int) (copies, fetched int) {
	t.Helper()
	rng := workloads.Stream(1, "crashes", n)
	r, w := workOf(t, cloned+fmt.Sprintf("seed: %d\n", n%50), 0)
	var list []fault.Fault
	for i := range 1 + rng.IntN(2) {
		list = append(list, fault.Fault{Name: fmt.Sprint("crash ", i), Kind: fault.HostCrash, At: time.Duration(rng.Int64N(int64(8 * time.Second))),
			For: time.Duration(100+rng.IntN(3000)) * time.Millisecond, Host: topo.HostID(rng.IntN(6)), DiskLost: rng.IntN(4) == 0})
	}
	a := r.arms[arm]
	var err error
	if a.faults, err = fault.Compile(r.fabric, list); err != nil {
		t.Fatal(err)
	}
	rec, err := a.trial(0, w).simulate(t.Context(), "", nil, nil, nil)
	if err != nil {
		t.Fatalf("history %d: %v", n, err)
	}
	copies, fetched, err = checkCloned(&rec, 3)
	if err != nil {
		t.Errorf("history %d, arm %s, faults %+v: %v", n, a.Name, list, err)
	}
	return copies, fetched
}
