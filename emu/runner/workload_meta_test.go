package runner

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// A run stores the facts about its workload. Its results on write requests and placement
// follow from them and the records.
func TestWorkloadMetaIsKept(t *testing.T) {
	dir := simulate(t, comparable12, "v1")
	meta, err := readWorkloadMeta(repeatFiles{dir: filepath.Join(dir, "sebf+hdfs", "1")})
	if err != nil || meta == nil || len(meta.Writers) != 2 || len(meta.Writers[1].Blocks) != 2 || meta.DiskSize != 64*units.MB || meta.DiskRate != 16*units.Mbps || meta.Heartbeat <= 0 {
		t.Fatalf("%+v, %v", meta, err)
	}
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.Arms() {
		a := r.Arm(name)
		if a.RequestTime == nil || a.RequestTime.N != 4 || len(r.Times("request_time", name)) != 4 || a.JobTime != nil {
			t.Errorf("%s: request times %+v, job times %+v: want 4 requests and no job", name, a.RequestTime, a.JobTime)
		}
		p := a.Placement
		if p == nil || p.Cv == nil || p.Cv.N == 0 || p.DiskImbalance.Sum <= 0 || p.Bytes().Writes < 4e6 || p.Bounds == nil || p.Bounds.OverLone.Sum < p.Bounds.OverLone.N || p.Wait.Sum != 0 {
			t.Errorf("%s: placement %+v", name, p)
		}
	}
	// A request takes as long as its blocks, one after the other.
	for _, x := range r.Requests {
		var sum time.Duration
		for _, b := range r.Blocks {
			if b.Key == x.Key && int(b.Block)/2 == int(x.Writer) {
				sum += b.WriteTime
			}
		}
		if x.RequestTime != sum {
			t.Errorf("%+v: its blocks take %v", x, sum)
		}
	}
}

// The imbalance of disks is relative to all disks of a host, as the engine sees them.
func TestDiskImbalanceOfSeveralDisks(t *testing.T) {
	dir := simulate(t, comparable12, "v1", "size: 64MB", "size: 16MB, count: 4")
	meta, err := readWorkloadMeta(repeatFiles{dir: filepath.Join(dir, "fair+hdfs", "0")})
	if err != nil || meta == nil || meta.DiskSize != 64*units.MB || meta.DiskRate != 16*units.Mbps {
		t.Fatalf("%+v, %v: want disks of 64MB of each host, each of 16Mbps", meta, err)
	}
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0 // mean over the repeats
	for repeat := range 2 {
		stored := map[string]float64{}
		sum, squares := 0.0, 0.0
		for _, b := range r.Blocks {
			if b.Arm == "fair+hdfs" && b.Repeat == repeat {
				for _, h := range b.Hosts {
					stored[h] += float64(b.Size)
				}
			}
		}
		for _, x := range stored {
			sum += x
			squares += x * x
		}
		const hosts = 9
		want += math.Sqrt(squares/hosts-sum/hosts*sum/hosts) / 64e6 / 2
	}
	if p := r.Arm("fair+hdfs").Placement; p == nil || math.Abs(p.DiskImbalance.Sum/p.DiskImbalance.N-want) > 1e-6 {
		t.Errorf("placement %+v: want a disk imbalance of %v", p, want)
	}
}

func TestWorkloadMetaIsDamaged(t *testing.T) {
	dir := t.TempDir()
	if a, err := readWorkloadMeta(repeatFiles{dir: dir}); a != nil || err != nil {
		t.Errorf("%+v, %v of a directory without the file", a, err)
	}
	for text, want := range map[string]string{
		`{"heartbeat_ns": 1, "writers": [{"writer": 1, "job": 4, "blocks": [2]}]}`: "writer 1 belongs to job 4, which does not exist (without the file",
		`{"heartbeat_ns": 1`: "asked.json: unexpected end",
		`{}`:                 "heartbeat_ns 0",
		`{"heartbeat_ns": 1, "disk_rate": "fast"}`: "asked.json",
	} {
		if err := os.WriteFile(filepath.Join(dir, summary.AskedFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readWorkloadMeta(repeatFiles{dir: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// The waiting time of a block is in its mark, and therefore in its record.
func TestObservedWait(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	o := observe(f, false)
	b := workloads.Block{ID: 4, Client: 1, Size: 10, Replicas: 1}
	step := func(now time.Duration, evs []engine.Event, cmds ...engine.Command) {
		t.Helper()
		if err := o.step(now, evs, cmds); err != nil {
			t.Fatal(err)
		}
	}
	step(5*time.Second, nil, engine.Mark{Kind: engine.MarkWrite, ID: 4, Host: 1, Parts: 1, Size: 10, Waited: 2 * time.Second}, engine.StartChain{Block: b, Targets: []topo.HostID{1}, Hashes: []uint32{0}})
	step(6*time.Second, []engine.Event{engine.BlockDurable{Block: 4}})
	if got := o.records().Blocks; len(got) != 1 || got[0].Waited != 2*time.Second || got[0].Requested != 5*time.Second || got[0].WriteTime() != time.Second {
		t.Errorf("%+v: want 1 s to write, after 2 s of waiting", got)
	}
}
