package live

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/hosts"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// play gives a rig's backend a timeline that starts now, as if it had been
// configured with it.
func (r *rig) play(t *testing.T, faults ...fault.Fault) {
	t.Helper()
	now := time.Since(r.zero)
	for i := range faults {
		faults[i].At += now
		faults[i].Name = fmt.Sprintf("%s %d", faults[i].Kind, i)
	}
	steps, err := fault.Compile(r.fabric, faults)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		r.faults.at(s.At, func(ctx context.Context) error { return r.faults.carryOut(ctx, s) })
	}
	r.faults.mu.Lock()
	r.faults.active = true
	r.faults.mu.Unlock()
	r.work.Go(func() error {
		if err := r.faults.run(r.workCtx); err != nil {
			r.fail(err)
		}
		return nil
	})
}

// A flow stalls while its link is cut, continues when the link is back, and completes. The engine is
// notified of the link immediately, both times. A link that is slowed carries its new rate.
func TestLinkFaultsOnPackets(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) bool {
		r := newRig(t, 20*units.Mbps, nil)
		const size = 2500 * units.KB // 1 s and a little
		flow := workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: size}
		cut := []topo.LinkID{r.fabric.HostUp(1), r.fabric.HostDown(1)}
		r.play(t, fault.Fault{Kind: fault.LinkDown, At: 300 * time.Millisecond, For: 400 * time.Millisecond, Links: cut})
		start := time.Since(r.zero)
		r.do(t, engine.StartTransfer{Coflow: 1, Flow: flow, Ceiling: policies.NoLimit})
		down := r.sees(t, engine.LinkChanged{Link: cut[0], Rate: 0}) - start
		during := received(r.agents[1], 1)
		up := r.sees(t, engine.LinkChanged{Link: cut[0], Rate: plan.Payload(20*units.Mbps, r.fabric.Shape().MTU)}) - start
		after := received(r.agents[1], 1)
		end := r.sees(t, engine.TransferFinished{Flow: 1}) - start
		m, _ := r.finish(t)
		if moved := after - during; moved > 100*units.KB {
			t.Errorf("%v came over a link that is down", moved)
		}
		if m.Exempt["h0-01>leaf0"] == "" || m.Exempt["leaf0>h0-01"] == "" || m.Exempt["h0-00>leaf0"] != "" {
			t.Errorf("exempt are %v, want both directions of the link and no other", m.Exempt)
		}
		t.Logf("down at %v, up at %v, flow ended at %v", down, up, end)
		// TCP detects that the link is back at its next retransmission.
		return down < 450*time.Millisecond && up < 900*time.Millisecond && end > 1350*time.Millisecond && end < 2600*time.Millisecond
	})
}

// With one spine down, flows take the other: existing flows move there, the engine is notified, and new
// flows begin there. When the spine is back, its flows return.
func TestSpineFaultOnPackets(t *testing.T) {
	t.Parallel()
	r := newRig(t, 20*units.Mbps, nil)
	f := r.fabric
	hash := uint32(1) // spine 1
	// The second flow must end while the spine is down, and the first after it.
	slower := netnstest.Patience(1)
	first := 4 * units.MB * units.Bytes(slower)
	r.play(t, fault.Fault{Kind: fault.SpineDown, At: 300 * time.Millisecond, For: 2 * time.Second * slower, Spine: 1})
	r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: 1, Host: 0, Parts: 2, Size: first + 200*units.KB},
		engine.StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: 1, Src: 0, Dst: 3, Size: first}, Hash: hash, Ceiling: policies.NoLimit})
	r.sees(t, engine.PathChanged{Flow: 1, Spine: 0})
	was := settled(t, r, 1)
	r.do(t, engine.StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: 2, Src: 1, Dst: 4, Size: 200 * units.KB}, Hash: hash, Ceiling: policies.NoLimit})
	r.sees(t, engine.TransferFinished{Flow: 2})
	if n := spinePackets(t, r, 1) - was; n != 0 {
		t.Errorf("a spine that is down passed %d packets", n)
	}
	r.sees(t, engine.PathChanged{Flow: 1, Spine: 1})
	was = spinePackets(t, r, 1)
	r.sees(t, engine.TransferFinished{Flow: 1})
	if n := spinePackets(t, r, 1) - was; n < 50 {
		t.Errorf("the spine that is back passed %d packets", n)
	}
	m, res := r.finish(t)
	if len(res.Flows) != 2 {
		t.Errorf("captures show %d flows, want 2: %v", len(res.Flows), res.Problems)
	}
	if m.Exempt[f.LinkName(f.LeafUp(0, 1))] == "" || m.Exempt[f.LinkName(f.LeafUp(0, 0))] != "" {
		t.Errorf("exempt are %v, want the links of spine1", m.Exempt)
	}
}

// sees awaits an event of any kind, within ten seconds on real processors.
func (r *rig) sees(t *testing.T, want engine.Event) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(10*time.Second))
	defer cancel()
	for {
		now, evs, err := r.Await(ctx, engine.NextNever)
		if err != nil {
			t.Fatalf("waiting for %T %+v: %v", want, want, err)
		}
		if slices.ContainsFunc(evs, func(ev engine.Event) bool { return reflect.DeepEqual(ev, want) }) {
			return now
		}
	}
}

// settled is spinePackets after those that were on the way when the spine went down, within a second.
func settled(t *testing.T, r *rig, spine int) uint64 {
	t.Helper()
	was := spinePackets(t, r, spine)
	for range 20 {
		time.Sleep(netnstest.Patience(50 * time.Millisecond))
		now := spinePackets(t, r, spine)
		if now == was {
			break
		}
		was = now
	}
	return was
}

// spinePackets is what a spine has got from all leaves.
func spinePackets(t *testing.T, r *rig, spine int) (n uint64) {
	t.Helper()
	links, err := r.ns[topo.SpineName(spine)].Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Device != "lo" {
			n += l.Rx.Packets
		}
	}
	return n
}

// A host that crashes is missed after Detect, and flows that are then given up do
// not hold up the end of the run.
func TestCrashOnPackets(t *testing.T) {
	t.Parallel()
	r := newRig(t, 20*units.Mbps, nil)
	r.cfg.Detect = 500 * time.Millisecond
	r.play(t, fault.Fault{Kind: fault.HostCrash, At: 200 * time.Millisecond, Host: 1})
	r.do(t, engine.StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: 4 * units.MB}, Ceiling: policies.NoLimit},
		engine.StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: 2, Src: 0, Dst: 2, Size: 500 * units.KB}, Ceiling: policies.NoLimit})
	lost := r.sees(t, engine.HostLost{Host: 1})
	r.do(t, engine.StopTransfer{Flow: 1, Src: 0, Dst: 1}, engine.Mark{Kind: engine.MarkFlowFailed, ID: 1, Host: 1, Parts: 1, Size: 4 * units.MB})
	if got := received(r.agents[2], 2); got < 500*units.KB {
		r.sees(t, engine.TransferFinished{Flow: 2})
	}
	if lost < 700*time.Millisecond {
		t.Errorf("the host was missed at %v, want not before 700ms", lost)
	}
	m, _ := r.finish(t)
	if m.Exempt["h0-01"] == "" {
		t.Errorf("exempt are %v, want h0-01", m.Exempt)
	}
}

// received is how much of a flow a host has.
func received(a *hosts.Agent, flow workloads.FlowID) units.Bytes {
	if n := a.Received(flow); n != nil {
		return n.Arrived()
	}
	return 0
}

// Agents, faults and scenario files have the same minimum share of a processor: an agent clamps a
// share below its own without a word.
func TestMinimumSharesAgree(t *testing.T) {
	t.Parallel()
	if hosts.MinCPUShare != fault.MinShare {
		t.Errorf("agents have a minimum share of %v, faults of %v", hosts.MinCPUShare, fault.MinShare)
	}
	share, _ := reflect.TypeFor[scenario.SlowCPUFault]().FieldByName("Share")
	if tag, want := share.Tag.Get("jsonschema"), fmt.Sprintf("minimum=%v,", fault.MinShare); !strings.Contains(tag, want) {
		t.Errorf("scenario files have %q, faults %q", tag, want)
	}
}
