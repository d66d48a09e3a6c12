package experiment

import (
	"testing"

	"testbed/results/archive"
	"testbed/topo/units"
)

const readersScenario = `name: read
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, read: 1MB/s, size: 64MB}
workload:
  - {kind: writers, count: 2, blocks: 2, block: 1MB, packet: 16KB, window: 4, replicas: 2}
  - {kind: readers, hosts: [h0-00, h0-01, h0-02, h1-00, h1-01, h1-02], blocks: 2}
arms: {coflow: [fair], placement: [hdfs]}
`

// A simulated run has a coflow of one flow for each read that crosses the network, and
// none for those of a reader's own disk; none is faster than the disk that it is read from.
func TestReadsAreCoflows(t *testing.T) {
	r, err := archive.Open(simulate(t, readersScenario, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	// Each block is on 2 of 6 hosts: of 12 reads about 4 are local.
	if n := len(r.Coflows); n < 4 || n > 11 || len(r.Flows) != n {
		t.Fatalf("%d coflows, %d flows: want those of some of 12 reads", n, len(r.Flows))
	}
	disk := (8 * units.Mbps).TimeToSend(units.MB)
	for i, c := range r.Coflows {
		f := r.Flows[i]
		if c.Failed || c.Width != 1 || c.Size != units.MB || f.Coflow != c.Coflow || f.Src == f.Dst || c.CCT < disk || c.Arrival == 0 {
			t.Errorf("coflow %+v of flow %+v: want one flow of 1MB between hosts that takes %v or more", c, f, disk)
		}
	}
}
