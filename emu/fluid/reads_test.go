package fluid_test

import (
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// runReads runs a workload with reads on disks with the given write and read rates. It
// returns the end time of each read attempt and the reasons of failures, and checks that
// the run replays from its log.
func runReads(t *testing.T, f *topo.Fabric, w workloads.Workload, on chosen, write, read units.Rate, count int, faults ...fault.Fault) (ends map[workloads.FlowID]time.Duration, failed map[workloads.FlowID]string) {
	t.Helper()
	steps, err := fault.Compile(f, faults)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Fabric: f, Coflow: coflow.Fair{}, Placement: on, DiskRate: write, Heartbeat: testBeat, Alpha: 0.2, Seed: 5, Stuck: testStuck, IDs: w.NextIDs()}
	ends, failed = map[workloads.FlowID]time.Duration{}, map[workloads.FlowID]string{}
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: write, ReadRate: read, Disks: count, Heartbeat: testBeat, Faults: steps, Detect: testDetect, Convergence: 50 * ms})
	runAndReplay(t, cfg, b, engine.Arrivals(w), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, ev := range evs {
			if ev, ok := ev.(engine.TransferFinished); ok {
				ends[ev.Flow] = now
			}
		}
		for _, f := range engine.Failures(now, evs, cmds) {
			if f.Kind == engine.FlowFailure {
				failed[f.Flow] = f.Why
			}
		}
		return nil
	})
	return ends, failed
}

// reading returns a workload with a writer on host 2, which writes the given number of
// blocks of 125 MB with one replica, and a reader of all blocks on each client.
func reading(blocks int, start time.Duration, clients ...topo.HostID) workloads.Workload {
	w := writing(2, blocks, 125*units.MB)
	for i := range w.Writers[0].Blocks {
		w.Writers[0].Blocks[i].Replicas = 1
	}
	for i, h := range clients {
		r := workloads.Reader{ID: workloads.ReaderID(i), Client: h, Start: start}
		for _, b := range w.Writers[0].Blocks {
			r.Reads = append(r.Reads, workloads.Read{Block: b.ID, Size: b.Size})
		}
		w.Readers = append(w.Readers, r)
	}
	return w
}

// A read starts when its block is durable and runs at the rate of the slower of disk and
// path. Readers of a disk share its read rate; they compete neither with readers of the
// host's other disks nor with writes. 125 MB take 1 s at 1 Gbps.
func TestReadRates(t *testing.T) {
	f := faulty(t) // hosts {0, 1}, {2, 3}, {4, 5}
	near := func(got, want time.Duration) bool { return got > want-ms && got < want+ms }
	for name, x := range map[string]struct {
		w     workloads.Workload
		read  units.Rate
		disks int
		want  map[workloads.FlowID]time.Duration
	}{
		"the path":              {reading(1, 0, 4), 4 * units.Gbps, 1, map[workloads.FlowID]time.Duration{0: 2 * time.Second}},
		"no disk":               {reading(1, 0, 4), 0, 1, map[workloads.FlowID]time.Duration{0: 2 * time.Second}},
		"the disk":              {reading(1, 0, 4), 250 * units.Mbps, 1, map[workloads.FlowID]time.Duration{0: 5 * time.Second}},
		"its own disk":          {reading(1, 0, 2), 250 * units.Mbps, 1, map[workloads.FlowID]time.Duration{0: 5 * time.Second}},
		"its own, no limit":     {reading(1, 0, 2), 0, 1, map[workloads.FlowID]time.Duration{0: time.Second}},
		"two share a disk":      {reading(1, 0, 4, 5), 500 * units.Mbps, 1, map[workloads.FlowID]time.Duration{0: 5 * time.Second, 1: 5 * time.Second}},
		"one after another":     {reading(2, 3*time.Second, 4), 500 * units.Mbps, 1, map[workloads.FlowID]time.Duration{0: 5 * time.Second, 1: 7 * time.Second}},
		"beside what it writes": {reading(2, 0, 4), 500 * units.Mbps, 1, map[workloads.FlowID]time.Duration{0: 3 * time.Second, 1: 5 * time.Second}},
	} {
		ends, failed := runReads(t, f, x.w, chosen{2}, units.Gbps, x.read, x.disks)
		if len(ends) != len(x.want) || len(failed) > 0 {
			t.Errorf("%s: ends %v, failed %v", name, ends, failed)
		}
		for flow, want := range x.want {
			if !near(ends[flow], want) {
				t.Errorf("%s: flow %d ended at %v, want %v", name, flow, ends[flow], want)
			}
		}
	}
	// Each of the host's two disks stores one of two blocks.
	w := reading(2, 3*time.Second, 4, 5)
	w.Readers[0].Reads, w.Readers[1].Reads = w.Readers[0].Reads[:1], w.Readers[1].Reads[1:]
	ends, _ := runReads(t, f, w, chosen{2}, units.Gbps, 250*units.Mbps, 2)
	if !near(ends[0], 7*time.Second) || !near(ends[1], 7*time.Second) {
		t.Errorf("two disks: %v, want 7s each", ends)
	}
}

// When the host that a reader reads from crashes, the reader restarts at another replica
// after the master detects the crash. If no replica is left, the read fails. A reader on
// the crashed host stops.
func TestReadsUnderFaults(t *testing.T) {
	f := faulty(t)
	crash := func(host topo.HostID, at time.Duration) fault.Fault {
		return fault.Fault{Name: f.HostName(host), Kind: fault.HostCrash, At: at, Host: host}
	}
	w := reading(1, 2*time.Second, 4)
	w.Writers[0].Blocks[0].Replicas = 2
	ends, failed := runReads(t, f, w, chosen{2, 0}, units.Gbps, 500*units.Mbps, 1, crash(2, 2500*ms), crash(0, 2500*ms))
	if len(ends) > 0 || len(failed) != 2 {
		t.Errorf("without any replica: ends %v, failed %v", ends, failed)
	}
	first := topo.HostID(-1) // the host that the reader reads from first
	for _, h := range []topo.HostID{2, 0} {
		ends, failed = runReads(t, f, w, chosen{2, 0}, units.Gbps, 500*units.Mbps, 1, crash(h, 2500*ms))
		switch {
		case len(failed) == 1:
			first = h
			if got, want := ends[1], 4700*ms; got < want-ms || got > want+ms || failed[0] != f.HostName(h)+" is lost" {
				t.Errorf("ends %v, failed %v: want flow 1 to end at %v", ends, failed, want)
			}
		case len(failed) > 1 || ends[0] < 4*time.Second-ms || ends[0] > 4*time.Second+ms:
			t.Errorf("crash of a replica that is not being read: ends %v, failed %v", ends, failed)
		}
	}
	if first < 0 {
		t.Error("no crash interrupted the read")
	}
	// The reader reads from its own disk and its host crashes: no end or failure is reported.
	w = reading(1, 2*time.Second, 2)
	ends, failed = runReads(t, f, w, chosen{2}, units.Gbps, 500*units.Mbps, 1, crash(2, 2500*ms))
	if len(ends) > 0 || len(failed) != 1 || failed[1] != f.HostName(2)+" is lost" {
		t.Errorf("reader on the crashed host: ends %v, failed %v", ends, failed)
	}
}
