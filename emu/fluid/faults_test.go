package fluid_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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

// faulty returns a fabric of three racks of two hosts and two spines, all links 1 Gbps.
func faulty(t testing.TB) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: 3, Spines: 2, HostsPerLeaf: 2, HostLink: units.Gbps,
		Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: ms}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// chosen is a placement policy that places every block on the same hosts.
type chosen []topo.HostID

func (chosen) Needs() policies.Facts { return 0 }
func (c chosen) Place(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) ([]topo.HostID, error) {
	for _, h := range c {
		if v.Hosts[h].Lost {
			return nil, errors.New("a chosen host is lost")
		}
	}
	return slices.Clone(c), nil
}

const (
	testBeat   = 100 * ms
	testDetect = 200 * ms
	testStuck  = 3 * time.Second
)

// outcome contains the end times of a run's flows and blocks, and its failures.
type outcome struct {
	ends     map[string]time.Duration
	failures []string
}

// runAndReplay runs an engine until all arrivals have ended, for at most an hour, and checks that it replays
// from its log.
func runAndReplay(t rapid.TB, cfg engine.Config, b engine.Backend, arrivals []engine.Arrival, observe engine.Observer) {
	t.Helper()
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l := engine.NewLog(&log)
	err = engine.Run(context.Background(), e, b, arrivals, func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		if now > time.Hour {
			return fmt.Errorf("still running at %v: %s", now, e.Unfinished())
		}
		if err := observe(now, evs, cmds); err != nil {
			return err
		}
		return l.Observe(now, evs, cmds)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !e.Idle() {
		t.Fatalf("run ended with %s unfinished", e.Unfinished())
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	again, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := engine.Replay(context.Background(), &log, again); err != nil || got.Differs != nil || got.Unfinished != "" {
		t.Fatalf("replay: %+v, %v", got, err)
	}
}

// runFaults runs a workload under faults to its end and checks that its log replays.
func runFaults(t rapid.TB, f *topo.Fabric, w workloads.Workload, placer policies.Placer, disk units.Rate, faults ...fault.Fault) outcome {
	t.Helper()
	steps, err := fault.Compile(f, faults)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Fabric: f, Coflow: coflow.SEBF{}, Placement: placer, DiskRate: disk, Heartbeat: testBeat, Alpha: 0.2, Seed: 5, Stuck: testStuck}
	out := outcome{ends: map[string]time.Duration{}}
	b := fluid.New(f, fluid.Config{Needs: policies.Progress, DiskRate: disk, Heartbeat: testBeat, Faults: steps, Detect: testDetect, Convergence: 50 * ms})
	runAndReplay(t, cfg, b, engine.Arrivals(w), func(now time.Duration, evs []engine.Event, cmds []engine.Command) error {
		for _, ev := range evs {
			switch ev := ev.(type) {
			case engine.TransferFinished:
				out.ends[fmt.Sprint("flow ", ev.Flow)] = now
			case engine.BlockDurable:
				out.ends[fmt.Sprint("block ", ev.Block)] = now
			}
		}
		for _, x := range engine.Failures(now, evs, cmds) {
			switch x.Kind {
			case engine.FlowFailure:
				out.failures = append(out.failures, fmt.Sprintf("%v flow %d of coflow %d: %s", x.At, x.Flow, x.Coflow, x.Why))
			case engine.BlockFailure:
				out.failures = append(out.failures, fmt.Sprintf("%v block %d: %s", x.At, x.Block, x.Why))
			case engine.ReplicaFailure:
				out.failures = append(out.failures, fmt.Sprintf("%v replica of block %d on %s", x.At, x.Block, f.HostName(x.Host)))
			}
		}
		return nil
	})
	return out
}

func one(flows ...workloads.Flow) workloads.Workload {
	return workloads.Workload{Coflows: []workloads.Coflow{{ID: 1, Flows: flows}}}
}

func writing(client topo.HostID, blocks int, size units.Bytes) workloads.Workload {
	wr := workloads.Writer{ID: 0, Client: client}
	for i := range blocks {
		wr.Blocks = append(wr.Blocks, workloads.Block{ID: workloads.BlockID(i), Client: client, Size: size, Replicas: 3, Packet: 64000, Window: 8})
	}
	return workloads.Workload{Writers: []workloads.Writer{wr}}
}

// spineOf returns the spine that the engine's hash selects for a flow.
func spineOf(f *topo.Fabric, id workloads.FlowID, src, dst topo.HostID) int {
	s, _ := f.SpineFor(src, dst, workloads.Stream(5, "path", int(id)).Uint32())
	return s
}

// The expected times are computed by hand: 125 MB take 1 s at 1 Gbps.
func TestFaults(t *testing.T) {
	f := faulty(t)
	const size = 125 * units.MB
	inRack := one(workloads.Flow{ID: 0, Src: 0, Dst: 1, Size: size})
	across := one(workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: size})
	own := spineOf(f, 0, 0, 2)
	link := func(pattern string) []topo.LinkID {
		links, err := f.FindLinks(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return links
	}
	half := 500 * ms
	for _, tt := range []struct {
		name   string
		w      workloads.Workload
		on     chosen
		disk   units.Rate
		faults []fault.Fault
		ends   map[string]time.Duration
		fails  []string
	}{
		{"link down for a while", inRack, nil, 0, []fault.Fault{{Kind: fault.LinkDown, At: half, For: 250 * ms, Links: link("h0-01<>leaf0")}},
			map[string]time.Duration{"flow 0": 1250 * ms}, nil},
		{"flapping link", inRack, nil, 0, []fault.Fault{{Kind: fault.LinkFlap, At: 100 * ms, Down: 50 * ms, Up: 150 * ms, Times: 3, Links: link("h0-00<>leaf0")}},
			map[string]time.Duration{"flow 0": 1150 * ms}, nil},
		{"slow link", inRack, nil, 0, []fault.Fault{{Kind: fault.LinkRate, At: half, Rate: 500 * units.Mbps, Links: link("leaf0>h0-01")}},
			map[string]time.Duration{"flow 0": 1500 * ms}, nil},
		{"link down for good", inRack, nil, 0, []fault.Fault{{Kind: fault.LinkDown, At: half, Links: link("h0-01<>leaf0")}},
			nil, []string{"3.5s flow 0 of coflow 1: no path for 3s"}},
		{"spine down: the leaf sees it at once", across, nil, 0, []fault.Fault{{Kind: fault.SpineDown, At: half, Spine: own}},
			map[string]time.Duration{"flow 0": time.Second}, nil},
		{"link behind the spine down: the leaf is told", across, nil, 0, []fault.Fault{{Kind: fault.LinkDown, At: half, Links: link(fmt.Sprintf("leaf1<>spine%d", own))}},
			map[string]time.Duration{"flow 0": 1050 * ms}, nil},
		{"down before the flow starts", across, nil, 0, []fault.Fault{{Kind: fault.SpineDown, Spine: own}},
			map[string]time.Duration{"flow 0": time.Second}, nil},
		{"all spines down for a while", across, nil, 0, []fault.Fault{{Kind: fault.SpineDown, At: half, For: half, Spine: 0}, {Kind: fault.SpineDown, At: half, For: 600 * ms, Spine: 1}},
			map[string]time.Duration{"flow 0": 1500 * ms}, nil},
		{"receiver crashes", one(workloads.Flow{ID: 0, Src: 0, Dst: 1, Size: size}, workloads.Flow{ID: 1, Src: 2, Dst: 3, Size: size}), nil, 0,
			[]fault.Fault{{Kind: fault.HostCrash, At: half, Host: 1}},
			map[string]time.Duration{"flow 1": time.Second}, []string{"700ms flow 0 of coflow 1: h0-01 is lost"}},
		{"sender starts again before it is missed", inRack, nil, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, For: 100 * ms, Host: 0}},
			nil, []string{"600ms flow 0 of coflow 1: h0-00 started again"}},
		{"middle of a pipeline crashes", writing(0, 1, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, Host: 2}},
			map[string]time.Duration{"block 0": 1200 * ms}, []string{"700ms replica of block 0 on h1-00"}},
		{"two hosts of a pipeline crash", writing(0, 1, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, Host: 2}, {Kind: fault.HostCrash, At: half, Host: 3}},
			// The writer's own replica crosses no link, and no disk limits it.
			map[string]time.Duration{"block 0": 900 * ms}, []string{"700ms replica of block 0 on h1-00", "900ms replica of block 0 on h1-01"}},
		{"a host of a pipeline starts again before it is missed", writing(0, 1, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, For: 100 * ms, Host: 3}},
			map[string]time.Duration{"block 0": 1100 * ms}, []string{"600ms replica of block 0 on h1-01"}},
		{"a pipeline rides out a short cut", writing(0, 1, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.LinkDown, At: half, For: 150 * ms, Links: link("leaf1<>h1-00")}},
			map[string]time.Duration{"block 0": 1150 * ms}, nil},
		{"all hosts of a pipeline crash", writing(0, 1, size), chosen{2, 3, 4}, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, Host: 2}, {Kind: fault.HostCrash, At: half, Host: 3}, {Kind: fault.HostCrash, At: half, Host: 4}},
			nil, []string{"700ms replica of block 0 on h1-00", "900ms replica of block 0 on h1-01", "1.1s block 0: no host of its pipeline is left", "1.1s replica of block 0 on h2-00"}},
		{"writer crashes", writing(0, 3, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.HostCrash, At: 1500 * ms, Host: 0}},
			map[string]time.Duration{"block 0": time.Second}, []string{"1.7s block 1: h0-00 is lost", "1.7s block 2: h0-00 is lost"}},
		{"no host to place on", writing(0, 2, size), chosen{0, 2, 3}, 0, []fault.Fault{{Kind: fault.HostCrash, At: half, Host: 2}},
			map[string]time.Duration{"block 0": 1200 * ms}, []string{"700ms replica of block 0 on h1-00", "1.2s block 1: no place with 1 hosts lost: a chosen host is lost"}},
		{"slow disk", writing(0, 1, size), chosen{0, 2, 3}, units.Gbps, []fault.Fault{{Kind: fault.SlowDisk, At: half, For: 800 * ms, Host: 3, Rate: 250 * units.Mbps}},
			map[string]time.Duration{"block 0": 1600 * ms}, nil},
		{"slow processor", inRack, nil, 0, []fault.Fault{{Kind: fault.SlowCPU, At: half, Host: 0, Share: 0.25}},
			map[string]time.Duration{"flow 0": 2500 * ms}, nil},
		{"arrives at a lost host", workloads.Workload{Coflows: []workloads.Coflow{{ID: 1, Arrival: time.Second, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 1, Size: size}}}}}, nil, 0,
			[]fault.Fault{{Kind: fault.HostCrash, At: half, Host: 0}}, nil, []string{"1s flow 0 of coflow 1: h0-00 is lost"}},
		{"arrives at a host that is back", workloads.Workload{Coflows: []workloads.Coflow{{ID: 1, Arrival: time.Second, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 1, Size: size}}}}}, nil, 0,
			[]fault.Fault{{Kind: fault.HostCrash, At: 0, For: half, Host: 0}}, map[string]time.Duration{"flow 0": 2 * time.Second}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.faults {
				tt.faults[i].Name = string(tt.faults[i].Kind)
			}
			var placer policies.Placer
			if tt.on != nil {
				placer = tt.on
			}
			got := runFaults(t, f, tt.w, placer, tt.disk, tt.faults...)
			if tt.ends == nil {
				tt.ends = map[string]time.Duration{}
			}
			if d := cmp.Diff(tt.ends, got.ends); d != "" {
				t.Errorf("ends (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.fails, got.failures); d != "" {
				t.Errorf("failures (-want +got):\n%s", d)
			}
		})
	}
}

// A flow that loses its spine shares the other spine with the flows there.
func TestSpineFailureHalvesWhatTwoFlowsHave(t *testing.T) {
	f := faulty(t)
	var w workloads.Workload
	spines := map[int]bool{}
	for id := workloads.FlowID(0); len(spines) < 2; id++ {
		src, dst := topo.HostID(len(spines)), topo.HostID(2+len(spines))
		if s := spineOf(f, id, src, dst); !spines[s] {
			spines[s] = true
			w.Coflows = append(w.Coflows, workloads.Coflow{ID: workloads.CoflowID(id), Flows: []workloads.Flow{{ID: id, Src: src, Dst: dst, Size: 125 * mb}}})
		}
	}
	whole := runFaults(t, f, w, nil, 0)
	cut := runFaults(t, f, w, nil, 0, fault.Fault{Kind: fault.SpineDown, Name: "x", At: 500 * ms, Spine: 1})
	last := func(o outcome) (end time.Duration) {
		for _, at := range o.ends {
			end = max(end, at)
		}
		return end
	}
	if len(cut.ends) != 2 || last(whole) != time.Second || last(cut) != 1500*ms {
		t.Errorf("the last flow ends at %v, with a spine down at %v (%v), want 1s and 1.5s", last(whole), last(cut), cut)
	}
}

// Under random faults, every run ends and replays from its log, and every flow and block
// that arrived has either ended or failed.
func TestAnyFaultsEnd(t *testing.T) {
	f := faulty(t)
	rapid.Check(t, func(t *rapid.T) {
		var w workloads.Workload
		flow := workloads.FlowID(0)
		for c := range rapid.IntRange(0, 4).Draw(t, "coflows") {
			co := workloads.Coflow{ID: workloads.CoflowID(c), Job: workloads.JobID(c + 1), Arrival: ms * time.Duration(rapid.IntRange(0, 3000).Draw(t, "arrival"))}
			for range rapid.IntRange(1, 4).Draw(t, "flows") {
				src := rapid.IntRange(0, 5).Draw(t, "src")
				dst := (src + rapid.IntRange(1, 5).Draw(t, "to")) % 6
				co.Flows = append(co.Flows, workloads.Flow{ID: flow, Src: topo.HostID(src), Dst: topo.HostID(dst), Size: units.Bytes(rapid.IntRange(1, 200e6).Draw(t, "size"))})
				flow++
			}
			w.Coflows = append(w.Coflows, co)
		}
		block := workloads.BlockID(0)
		for i := range rapid.IntRange(0, 3).Draw(t, "writers") {
			wr := workloads.Writer{ID: workloads.WriterID(i), Client: topo.HostID(rapid.IntRange(0, 5).Draw(t, "client")), Start: ms * time.Duration(rapid.IntRange(0, 2000).Draw(t, "start")),
				Job: workloads.JobID(rapid.IntRange(0, len(w.Coflows)).Draw(t, "job"))} // after a coflow, or not
			for range rapid.IntRange(1, 3).Draw(t, "blocks") {
				wr.Blocks = append(wr.Blocks, workloads.Block{ID: block, Writer: wr.ID, Client: wr.Client, Size: units.Bytes(rapid.IntRange(1, 100e6).Draw(t, "block")),
					Replicas: rapid.IntRange(1, 4).Draw(t, "replicas"), Packet: 64000, Window: 8})
				block++
			}
			w.Writers = append(w.Writers, wr)
		}
		var faults []fault.Fault
		for i := range rapid.IntRange(0, 6).Draw(t, "faults") {
			x := fault.Fault{Name: fmt.Sprint("fault ", i), Kind: rapid.SampledFrom([]fault.Kind{fault.LinkDown, fault.LinkFlap, fault.LinkRate, fault.HostCrash, fault.SlowDisk, fault.SlowCPU, fault.SpineDown}).Draw(t, "kind"),
				At: ms * time.Duration(rapid.IntRange(0, 3000).Draw(t, "at")), For: ms * time.Duration(rapid.SampledFrom([]int{0, 1, 50, 150, 1000}).Draw(t, "for")),
				Host: topo.HostID(rapid.IntRange(0, 5).Draw(t, "host")), Spine: rapid.IntRange(0, 1).Draw(t, "spine"), DiskLost: rapid.Bool().Draw(t, "disk lost"),
				Rate: units.Rate(rapid.SampledFrom([]int{1e7, 1e8, 2e9}).Draw(t, "rate")), Share: 0.25, Down: 100 * ms, Up: 70 * ms, Times: 4}
			l := topo.LinkID(2 * rapid.IntRange(0, len(f.Links())/2-1).Draw(t, "link"))
			x.Links = []topo.LinkID{l, fault.Reverse(l)}
			faults = append(faults, x)
		}
		got := runFaults(t, f, w, placement.DefaultHDFS(), rapid.SampledFrom([]units.Rate{0, units.Gbps}).Draw(t, "disk"), faults...)
		has := func(part string) bool {
			return slices.ContainsFunc(got.failures, func(s string) bool { return strings.Contains(s, part) })
		}
		for id := range flow {
			_, ended := got.ends[fmt.Sprint("flow ", id)]
			if failed := has(fmt.Sprintf(" flow %d of ", id)); ended == failed {
				t.Fatalf("flow %d: ended %v, failed %v", id, ended, failed)
			}
		}
		for id := range block {
			_, ended := got.ends[fmt.Sprint("block ", id)]
			if failed := has(fmt.Sprintf("s block %d: ", id)); ended == failed {
				t.Fatalf("block %d: ended %v, failed %v (%v)", id, ended, failed, got.failures)
			}
		}
	})
}
