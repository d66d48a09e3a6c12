package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/results/archive"
	"testbed/results/report"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// A run keeps what was asked, and its figures of write requests and placement come
// from that and the records.
func TestAskedIsKept(t *testing.T) {
	dir := simulate(t, comparable12, "v1")
	asked, err := readAsked(filepath.Join(dir, "sebf+hdfs", "1"))
	if err != nil || asked == nil || len(asked.Writers) != 2 || len(asked.Writers[1].Blocks) != 2 || asked.DiskSize != 64*units.MB || asked.DiskRate != 16*units.Mbps || asked.Heartbeat <= 0 {
		t.Fatalf("%+v, %v", asked, err)
	}
	r, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.Arms() {
		a := r.Arm(name)
		if a.RequestTime == nil || a.RequestTime.N != 4 || len(r.RequestTimes(name)) != 4 || a.JobTime != nil {
			t.Errorf("%s: request times %+v, job times %+v: want 4 requests and no job", name, a.RequestTime, a.JobTime)
		}
		p := a.Placement
		if p == nil || p.Cv == nil || p.Cv.N == 0 || p.DiskImbalance == nil || *p.DiskImbalance <= 0 || p.CrossRackWriteBytes < 4e6 || p.Bounds == nil || p.Bounds.OverLone < 1 || p.WaitUS != 0 {
			t.Errorf("%s: placement %+v", name, p)
		}
	}
	// A request is as long as its blocks, one after the other.
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

func TestAskedIsDamaged(t *testing.T) {
	dir := t.TempDir()
	if a, err := readAsked(dir); a != nil || err != nil {
		t.Errorf("%+v, %v of a directory without the file", a, err)
	}
	for text, want := range map[string]string{
		`{"heartbeat_ns": 1, "writers": [{"writer": 1, "job": 4, "blocks": [2]}]}`: "writer 1 is of job 4, which is not there (without the file",
		`{"heartbeat_ns": 1`: "asked.json: unexpected end",
		`{}`:                 "heartbeat_ns 0",
		`{"heartbeat_ns": 1, "disk_rate": "fast"}`: "asked.json",
	} {
		if err := os.WriteFile(filepath.Join(dir, report.AskedFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readAsked(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a block waited is on its mark, and so in its record.
func TestObservedWait(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	o := observe(f)
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
