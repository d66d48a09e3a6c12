package fluid_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/placement"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// beats returns the next events of type E and their time.
func beats[E engine.Event](t testing.TB, b *fluid.Backend) (time.Duration, []E) {
	t.Helper()
	for range 100 {
		now, evs := await(t, b, engine.NextNever)
		var out []E
		for _, ev := range evs {
			if e, ok := ev.(E); ok {
				out = append(out, e)
			}
		}
		if len(out) > 0 {
			return now, out
		}
	}
	t.Fatal("no report")
	return 0, nil
}

// Hosts report the used space of their disks and the blocks that began since the last
// report. A block counts with its full size from its begin until it is abandoned.
func TestReportsOfDisks(t *testing.T) {
	b := fluid.New(racks(t, 1, 4, 1), fluid.Config{Needs: policies.Progress, DiskRate: units.Gbps, Heartbeat: 10 * ms})
	ids := func(ids ...workloads.BlockID) []workloads.BlockID { return ids }
	want := func(at time.Duration, disks ...engine.DiskReport) {
		t.Helper()
		now, hbs := beats[engine.Heartbeat](t, b)
		var got []engine.DiskReport
		for _, hb := range hbs {
			got = append(got, *hb.Disk)
		}
		if d := cmp.Diff(disks, got); d != "" || now != at {
			t.Errorf("at %v, want %v (-want +got):\n%s", now, at, d)
		}
	}
	do(t, b, block(1, 0, mb, 1, 2), block(2, 3, 5*mb, 2)) // 1 MB takes 16 ms: both blocks write to host 2
	do(t, b, start(1, 3, 0, mb, units.Mbps))              // lasts beyond the test
	want(10*ms, engine.DiskReport{}, engine.DiskReport{Used: mb, Writing: ids(1)}, engine.DiskReport{Used: 6 * mb, Writing: ids(1, 2)}, engine.DiskReport{})
	do(t, b, block(3, 0, mb/100, 1))
	want(20*ms, engine.DiskReport{}, engine.DiskReport{Used: mb + mb/100, Ended: ids(3)}, engine.DiskReport{Used: 6 * mb, Writing: ids(2)}, engine.DiskReport{})
	do(t, b, engine.StopChain{Block: 2}, engine.StopChain{Block: 1}) // block 1 has ended
	want(30*ms, engine.DiskReport{}, engine.DiskReport{Used: mb + mb/100}, engine.DiskReport{Used: mb}, engine.DiskReport{})
}

// A durable block that is deleted takes no space on its hosts, and a disk that was wiped since then has
// none to free.
func TestReportsOfDeletedBlocks(t *testing.T) {
	f := faulty(t)
	for _, wiped := range []bool{false, true} {
		steps, err := fault.Compile(f, []fault.Fault{{Kind: fault.HostCrash, At: 50 * ms, For: 100 * ms, Host: 2, DiskLost: wiped}})
		if err != nil {
			t.Fatal(err)
		}
		b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: 8 * units.Mbps, Heartbeat: testBeat, Faults: steps, Detect: testDetect})
		do(t, b, block(1, 0, mb/1000, 1, 2), block(2, 0, mb/500, 1, 2), start(1, 3, 0, mb, units.Mbps)) // the flow lasts
		used := func(until time.Duration) (out []units.Bytes) {
			t.Helper()
			for {
				now, hbs := beats[engine.Heartbeat](t, b)
				if now > until {
					for _, hb := range hbs {
						out = append(out, hb.Disk.Used)
					}
					return out[1:3]
				}
			}
		}
		both := units.Bytes(mb/1000 + mb/500)
		want := []units.Bytes{both, both}
		if wiped {
			want[1] = 0
		}
		if got := used(200 * ms); !slices.Equal(got, want) {
			t.Fatalf("wiped: %v: hosts 1 and 2 store %v, want %v", wiped, got, want)
		}
		do(t, b, engine.DropBlock{Block: 1, Size: mb / 1000, Hosts: []topo.HostID{1, 2}, Durable: 10 * ms})
		for h := range want {
			want[h] = max(0, want[h]-mb/1000)
		}
		if got := used(300 * ms); !slices.Equal(got, want) {
			t.Errorf("wiped: %v: hosts 1 and 2 store %v after the deletion, want %v", wiped, got, want)
		}
	}
}

// A host that a pipeline drops stores nothing of the block; a crashed host that returns
// with a new disk stores nothing.
func TestReportsOfDisksUnderFaults(t *testing.T) {
	f := faulty(t)
	for _, lost := range []bool{false, true} {
		steps, err := fault.Compile(f, []fault.Fault{{Kind: fault.HostCrash, At: 50 * ms, For: time.Second, Host: 2, DiskLost: lost}})
		if err != nil {
			t.Fatal(err)
		}
		b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: 8 * units.Mbps, Heartbeat: testBeat, Faults: steps, Detect: testDetect})
		do(t, b, block(1, 0, mb/1000, 2), block(2, 0, 3*mb, 1, 2))
		for {
			now, hbs := beats[engine.Heartbeat](t, b)
			if now == time.Second && (len(hbs) != 5 || hbs[1].Disk.Used != 3*mb) {
				t.Errorf("at %v: %+v", now, hbs)
			}
			if now < 1100*ms {
				continue
			}
			want := mb / 1000
			if lost {
				want = 0
			}
			if d := cmp.Diff(&engine.DiskReport{Used: want, Ended: []workloads.BlockID{1, 2}}, hbs[2].Disk); len(hbs) != 6 || hbs[1].Disk.Used != 3*mb || d != "" {
				t.Errorf("disk lost %v: %+v, and of the returned host (-want +got):\n%s", lost, hbs, d)
			}
			break
		}
	}
}

// The loads of links are reported before other events, only after a change and only if a
// policy needs them. The counters of racks exclude traffic inside the rack.
func TestLoadsAndRacks(t *testing.T) {
	f := racks(t, 2, 2, 2) // uplinks of 1 Gbps
	for _, needs := range []policies.Facts{policies.LinkLoad, policies.LinkLoad | policies.OracleLoad} {
		b := fluid.New(f, fluid.Config{Heartbeat: 10 * ms, Needs: needs | policies.Progress})
		loads := func(rates map[topo.LinkID]units.Rate) []engine.Event {
			if !needs.Has(policies.OracleLoad) {
				return nil
			}
			out := make([]units.Rate, len(f.Links()))
			for l, r := range rates {
				out[l] = r
			}
			return []engine.Event{engine.LinkLoads{Rates: out}}
		}
		do(t, b, start(1, 0, 1, 10*mb, 600*units.Mbps), start(2, 0, 2, mb/10, inf)) // flow 2 ends after 2 ms
		const half = 500 * units.Mbps
		both := map[topo.LinkID]units.Rate{f.HostUp(0): units.Gbps, f.HostDown(1): half, f.HostDown(2): half, f.LeafUp(0, 0): half, f.LeafDown(1, 0): half}
		wants(t, b, ms, ms, append(loads(both), progress(1, 62500, 2, 62500))...)
		wants(t, b, 1200*time.Microsecond, 1200*time.Microsecond, progress(1, 75000, 2, 75000)) // unchanged loads
		wants(t, b, engine.NextNever, 1600*time.Microsecond, progress(1, 100000, 2, 100000), finished(2))
		wants(t, b, 2*ms, 2*ms, append(loads(map[topo.LinkID]units.Rate{f.HostUp(0): 600 * units.Mbps, f.HostDown(1): 600 * units.Mbps}), progress(1, 130000))...)
		_, racks := beats[engine.RackReport](t, b)
		if d := cmp.Diff([]engine.RackReport{{Rack: 0, Tx: 100000}, {Rack: 1, Rx: 100000}}, racks); d != "" {
			t.Errorf("racks (-want +got):\n%s", d)
		}
	}
}

// Loads are those up to the current time: a flow that ends now is part of them.
func TestLoadsIncludeEnds(t *testing.T) {
	f := racks(t, 1, 2, 1)
	b := fluid.New(f, fluid.Config{Needs: policies.OracleLoad | policies.Progress})
	do(t, b, start(1, 0, 1, mb, inf))
	rates := make([]units.Rate, len(f.Links()))
	rates[f.HostUp(0)], rates[f.HostDown(1)] = units.Gbps, units.Gbps
	wants(t, b, engine.NextNever, 8*ms, engine.LinkLoads{Rates: rates}, progress(1, 1e6), finished(1))
}

// Lost reports never arrive. Late reports arrive in order, with the counters of the time
// of their creation, unless their host crashes before. Other reports are unaffected.
func TestReportFaults(t *testing.T) {
	f := racks(t, 1, 4, 1)
	steps, err := fault.Compile(f, []fault.Fault{
		{Kind: fault.LostReports, At: 20 * ms, For: 15 * ms, Hosts: []topo.HostID{1}},
		{Kind: fault.LateReports, At: 20 * ms, For: 15 * ms, By: 25 * ms, Hosts: []topo.HostID{2, 3}},
		{Kind: fault.HostCrash, At: 44 * ms, Host: 3}})
	if err != nil {
		t.Fatal(err)
	}
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, Heartbeat: 10 * ms, Faults: steps, Detect: time.Second})
	do(t, b, start(1, 0, 1, 100*mb, 80*units.Mbps), start(2, 0, 2, 100*mb, 80*units.Mbps)) // 10 KB per ms
	var got []string
	for {
		now, hbs := beats[engine.Heartbeat](t, b)
		if now > 80*ms {
			break
		}
		for _, hb := range hbs {
			if hb.Host > 0 {
				got = append(got, fmt.Sprintf("%v h%d %v %v", now, hb.Host, hb.Rx, hb.Made))
			}
		}
	}
	want := []string{
		"10ms h1 100KB 0s", "10ms h2 100KB 0s", "10ms h3 0B 0s",
		"40ms h1 400KB 0s", // those of 20 and 30 ms are lost
		"45ms h2 200KB 20ms",
		"50ms h1 500KB 0s",
		"55ms h2 300KB 30ms", "55ms h2 400KB 40ms", "55ms h2 500KB 50ms", // reports made after the fault wait for the last late one
		"60ms h1 600KB 0s", "60ms h2 600KB 0s", "70ms h1 700KB 0s", "70ms h2 700KB 0s", "80ms h1 800KB 0s", "80ms h2 800KB 0s",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// issued is a command of the engine and its time.
type issued struct {
	At  time.Duration
	Cmd engine.Command
}

// runReports runs a workload to its end and checks that its log replays.
func runReports(t testing.TB, f *topo.Fabric, w workloads.Workload, p policies.Placer, faults ...fault.Fault) []issued {
	t.Helper()
	steps, err := fault.Compile(f, faults)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Fabric: f, Coflow: coflow.SEBF{}, Placement: p, DiskRate: units.Gbps, DiskSize: units.GB, Heartbeat: testBeat, Alpha: 0.2, Seed: 5}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out []issued
	var buf bytes.Buffer
	l := engine.NewLog(&buf)
	b := fluid.New(f, fluid.Config{DiskRate: cfg.DiskRate, Heartbeat: testBeat, Needs: e.Needs(), Faults: steps, Detect: testDetect})
	err = engine.Run(t.Context(), e, b, engine.Arrivals(w), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, c := range cmds {
			out = append(out, issued{now, c})
		}
		return l.Observe(now, evs, cmds)
	})
	if err := errors.Join(err, l.Flush()); err != nil {
		t.Fatal(err)
	}
	again, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := engine.Replay(t.Context(), &buf, again); err != nil || got.Differs != nil || got.Unfinished != "" || got.Commands != len(out) {
		t.Fatalf("replay: %+v, %v", got, err)
	}
	return out
}

// blocksFrom returns writers of one small block each, every 10 ms; the network is idle
// between them.
func blocksFrom(n int) workloads.Workload {
	var w workloads.Workload
	for i := range n {
		w.Writers = append(w.Writers, workloads.Writer{ID: workloads.WriterID(i), Client: 0, Start: time.Duration(i)*10*ms + 5*ms,
			Blocks: []workloads.Block{{ID: workloads.BlockID(i), Writer: workloads.WriterID(i), Client: 0, Size: 1000, Replicas: 3, Packet: 1000, Window: 1}}})
	}
	return w
}

// Sinbad ranks a host whose report is overdue last, until the host reports again. From one
// and a half intervals after its last report, such a host gets no block that another host
// can store.
func TestSinbadRanksSilentHostsLast(t *testing.T) {
	f := racks(t, 3, 4, 2)
	const silent = 5 // a host of rack 1
	w := blocksFrom(200)
	run := func(faults ...fault.Fault) (chosen func(h topo.HostID, from, until time.Duration) int) {
		cmds := runReports(t, f, w, placement.DefaultSinbad(), faults...)
		return func(h topo.HostID, from, until time.Duration) (n int) {
			for _, c := range cmds {
				if s, ok := c.Cmd.(engine.StartChain); ok && c.At >= from && c.At < until && slices.Contains(s.Targets[1:], h) {
					n++
				}
			}
			return n
		}
	}
	const last, end = 400 * ms, 2 * time.Second
	baseline := run()
	if baseline(silent, 0, end) < 20 {
		t.Fatalf("without faults only %d blocks of 200 go to the host: too few for the comparison", baseline(silent, 0, end))
	}
	for _, tt := range []struct {
		name        string
		x           fault.Fault
		from, until time.Duration // interval in which the report is overdue
	}{
		{"lost", fault.Fault{Kind: fault.LostReports, At: last + ms, For: 799 * ms}, 551 * ms, 1200 * ms},
		{"late", fault.Fault{Kind: fault.LateReports, At: last + ms, For: 799 * ms, By: 450 * ms}, 551 * ms, 950 * ms}, // the report of 500 ms
		{"a little late", fault.Fault{Kind: fault.LateReports, At: last + ms, For: 799 * ms, By: 40 * ms}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.x.Hosts = []topo.HostID{silent}
			chosen := run(tt.x)
			if n := chosen(silent, tt.from, tt.until); n != 0 {
				t.Errorf("%d blocks while its reports are overdue", n)
			}
			missed := min(tt.from, 500*ms) // from then on, earlier blocks still count against the host
			before, after := chosen(silent, 0, missed), chosen(silent, tt.until, end)
			if before != baseline(silent, 0, missed) || after == 0 {
				t.Errorf("%d blocks before, want %d as without the fault, and %d after, want some", before, baseline(silent, 0, missed), after)
			}
			if tt.from == tt.until && chosen(silent, 0, end) < 20 {
				t.Errorf("%d blocks of 200", chosen(silent, 0, end))
			}
		})
	}
}

// Lost or late reports do not change a run whose policies do not read reports, to the
// nanosecond.
func TestReportFaultsTouchNothingElse(t *testing.T) {
	f := racks(t, 3, 4, 2)
	w := blocksFrom(40)
	for i := range 12 {
		w.Coflows = append(w.Coflows, workloads.Coflow{ID: workloads.CoflowID(i), Arrival: time.Duration(i) * 17 * ms, Flows: []workloads.Flow{
			{ID: workloads.FlowID(2 * i), Src: topo.HostID(i), Dst: topo.HostID((i + 5) % 12), Size: 3*mb + units.Bytes(i)}, {ID: workloads.FlowID(2*i + 1), Src: topo.HostID(i), Dst: topo.HostID((i + 1) % 12), Size: mb}}})
	}
	want := runReports(t, f, w, chosen{4, 5, 8})
	all := make([]topo.HostID, f.Hosts())
	for h := range all {
		all[h] = topo.HostID(h)
	}
	got := runReports(t, f, w, chosen{4, 5, 8}, fault.Fault{Kind: fault.LostReports, At: 111 * ms, For: 123 * ms, Hosts: all[:6]}, fault.Fault{Kind: fault.LateReports, At: 97 * ms, By: 33 * ms, Hosts: all[4:]})
	if d := cmp.Diff(want, got); d != "" || len(want) < 100 {
		t.Errorf("of %d commands (-want +got):\n%s", len(want), d)
	}
}

// BenchmarkHeartbeats produces one report of each of 3,000 hosts and 150 racks, while each
// host writes a replica.
func BenchmarkHeartbeats(b *testing.B) {
	f, err := topo.LeafSpine{Leaves: 150, Spines: 10, HostsPerLeaf: 20, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: ms}, MTU: 1500}.Build()
	if err != nil {
		b.Fatal(err)
	}
	be := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: units.Gbps, Heartbeat: ms})
	for i := range 1000 {
		h := topo.HostID(3 * i % 3000)
		do(b, be, block(workloads.BlockID(i), h, 1e15, (h+1)%3000, (h+21)%3000, (h+22)%3000))
	}
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += ms
		if at, evs := await(b, be, now); at != now || len(evs) != 3150 {
			b.Fatalf("%d events at %v, want 3150 at %v", len(evs), at, now)
		}
	}
}
