package runner

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/fidelity"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/rundir"
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
	r, err := rundir.Open(simulate(t, readersScenario, "v1"))
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

// readFrom has a reader whose rack has the replica of a host that crashes while it is
// read; the other replica is in the other rack.
const readFrom = `name: crash
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 2, host_link: 20Mbps, oversubscription: "1:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
heartbeat: {interval: 100ms, lost_after: 5}
workload:
  - {kind: writers, hosts: [h0-00], blocks: 1, block: 2MB, packet: 32KB, window: 4, replicas: 2}
  - {kind: readers, hosts: [h0-01], blocks: 1}
faults:
  - {at: 3s, kind: host-crash, host: h0-00}
arms: {coflow: [fair], placement: [hdfs]}
limits: {duration: 1m}
`

// On packets and on the fluid model alike, a read whose host crashes has failed, and
// another replica is read: as the class of traffic across racks that it is.
func TestReadGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs reads of hosts that fail, 6 s")
	out, arms := onPackets(t, loadText(t, readFrom))
	r := arms["fair+hdfs"]
	reads := slices.DeleteFunc(readSamples(t, filepath.Join(out.Dir, "fair+hdfs", "0")).Disks, func(d fidelity.Disk) bool { return !d.Reads })
	if len(reads) == 0 {
		t.Error("the verdict's samples have no reads of disks")
	}
	for _, d := range reads {
		if d.Rate != 8*units.Mbps {
			t.Errorf("the reads of the disk of %s are judged by %v, want 8Mbps", d.Host, d.Rate)
		}
	}
	if got := whatFailed(r); len(got) != 1 || !strings.HasPrefix(got[0], "flow of coflow 0: ") || !strings.Contains(got[0], "h0-00") {
		t.Errorf("failed %v, want the first coflow by the crash of h0-00", got)
	}
	for name, rec := range map[string]*flows.Records{"packets": &r.Records, "fluid": r.Fluid} {
		if len(rec.Coflows) != 1 || len(rec.Flows) != 1 || rec.Coflows[0].Coflow != 1 {
			t.Errorf("%s: coflows %+v, flows %+v, want the second alone", name, rec.Coflows, rec.Flows)
			continue
		}
		if f := rec.Flows[0]; f.Dst != "h0-01" || !slices.Contains([]string{"h1-00", "h1-01"}, f.Src) || f.Size != 2*units.MB || f.FCT().Seconds() < 1.9 {
			t.Errorf("%s: %+v, want 2MB from the other rack to h0-01, in 2 s or more", name, f)
		}
	}
	if r.Timing == nil || r.Timing.Traffic.CrossRack["map-read"] < 2*units.MB || r.Timing.Traffic.CrossRack["shuffle"] != 0 {
		t.Errorf("timing %+v, want map-reads across racks and no shuffle", r.Timing)
	}
}
