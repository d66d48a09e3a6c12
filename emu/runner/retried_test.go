package runner

import (
	"testing"

	"testbed/results/compare"
	"testbed/results/flows"
	"testbed/results/rundir"
)

// A shuffle of which a fetch fails and is retried has a completion time: in the summary, in tables and
// in comparisons.
func TestRetriedFetchKeepsItsShuffle(t *testing.T) {
	s := loadText(t, `
name: retried
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 8Mbps}
disk: {write: 10MB/s, size: 640MB}
heartbeat: {interval: 250ms}
workload:
  - {kind: tasks, generator: mix, jobs: 1, gap: 0s, block: 1MB, map_rate: 1MB/s, profiles: [{name: p, maps: 8-8, reduces: 0.5, keep_map: 4, keep_reduce: 0}]}
tasks: {shuffle: barrier, penalty: 1s, fetch_failures: 1000}
limits: {stuck: 500ms}
faults: [{at: 4s, kind: link-down, link: "leaf0<>spine0", for: 3s}]
arms: [{name: fifo, coflow: fair, placement: hdfs, tasks: fifo}]
repeat: 1
`)
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	a := r.Arm("fifo")
	failed := 0
	if a.Failures != nil {
		for _, f := range a.Failures.List {
			if f.Kind == flows.FailedFlow {
				failed++
			}
		}
	}
	if failed == 0 || a.JobTime.N != 1 {
		t.Fatalf("%d fetches fail, and jobs take %+v", failed, a.JobTime)
	}
	if a.CCT == nil || a.CCT.N != 1 {
		t.Errorf("CCT %+v: want that of the shuffle", a.CCT)
	}
	if len(r.Coflows) != 1 || r.Coflows[0].Failed || r.Coflows[0].CCT.Seconds() < 3 {
		t.Errorf("coflows %+v: want the shuffle, which lasts longer than the fault", r.Coflows)
	}
	if items := armOf(r, "fifo", "").Items[compare.CCT]; len(items) != 1 {
		t.Errorf("%d coflows are compared", len(items))
	}
}
