package live

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// heard is an event and when it came.
type heard[E engine.Event] struct {
	now time.Duration
	ev  E
}

// listen collects events until enough is heard, within ten seconds.
func (r *rig) listen(t *testing.T, enough func(now time.Duration, ev engine.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(10*time.Second))
	defer cancel()
	for {
		now, evs, err := r.Await(ctx, engine.NextNever)
		if err != nil {
			t.Fatal(err)
		}
		done := false
		for _, ev := range evs {
			done = enough(now, ev) || done
		}
		if done {
			return
		}
	}
}

// Hosts and leaves report at their phases, never before, and each of them in time at least once.
func TestReportsAtPhasesOnPackets(t *testing.T) {
	const interval, late = 600 * time.Millisecond, 60 * time.Millisecond
	at := func(hundreds ...time.Duration) (out []time.Duration) {
		for _, n := range hundreds {
			out = append(out, n*100*time.Millisecond)
		}
		return out
	}
	phases := &engine.Phases{Hosts: at(5, 1, 3, 6, 2, 4), Leaves: at(6, 2)}
	r := newRigWith(t, 20*units.Mbps, nil, nil, nil, func(c *Config) {
		c.Heartbeat, c.Phases, c.Needs = interval, phases, policies.LinkLoad
	})
	least := map[engine.Reporter]time.Duration{}
	note := func(who engine.Reporter, made time.Duration) {
		over := made - who.First
		if over < 0 {
			t.Errorf("%+v reported at %v", who, made)
		}
		if was, ok := least[who]; !ok || over%interval < was {
			least[who] = over % interval
		}
	}
	r.listen(t, func(now time.Duration, ev engine.Event) bool {
		switch ev := ev.(type) {
		case engine.Heartbeat:
			note(engine.Reporter{First: phases.Hosts[ev.Host], ID: int(ev.Host)}, ev.Made)
		case engine.RackReport:
			note(engine.Reporter{First: phases.Leaves[ev.Rack], Leaf: true, ID: int(ev.Rack)}, ev.Made)
		}
		return now > 4*interval
	})
	for who, over := range least {
		if over > late {
			t.Errorf("%+v was always %v late or more, want a report within %v", who, over, late)
		}
	}
	if len(least) != r.fabric.Hosts()+r.fabric.Racks() {
		t.Errorf("%d hosts and leaves reported, want %d", len(least), r.fabric.Hosts()+r.fabric.Racks())
	}
}

// Hosts report the contents of their disks, a few hosts at a time, and leaves the load of their ports to the spines. If a
// policy needs them, the loads of all links are reported.
func TestReportsOnPackets(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, 20*units.Mbps, slices.Repeat([]units.Rate{10 * units.Mbps}, 6), nil, policies.LinkLoad|policies.OracleLoad)
	f := r.fabric
	const size, small = 600 * units.KB, 2 * units.KB // half a second on a disk, and next to nothing
	of := func(id workloads.BlockID, size units.Bytes) workloads.Block {
		return workloads.Block{ID: id, Client: 0, Size: size, Replicas: 2, Packet: 16 * units.KB, Window: 8}
	}
	r.do(t, engine.StartChain{Block: of(3, size), Targets: []topo.HostID{1, 4}, Hashes: []uint32{1, 2}},
		engine.StartChain{Block: of(7, small), Targets: []topo.HostID{2, 1}, Hashes: []uint32{1, 2}})
	beats := make([][]heard[engine.Heartbeat], f.Hosts())
	racks := make([][]heard[engine.RackReport], f.Racks())
	var loads []heard[engine.LinkLoads]
	durable, after := 0, 0
	r.listen(t, func(now time.Duration, ev engine.Event) bool {
		switch ev := ev.(type) {
		case engine.Heartbeat:
			beats[ev.Host] = append(beats[ev.Host], heard[engine.Heartbeat]{now, ev})
		case engine.RackReport:
			racks[ev.Rack] = append(racks[ev.Rack], heard[engine.RackReport]{now, ev})
			if durable == 2 && ev.Rack == 1 {
				after++
			}
		case engine.LinkLoads:
			loads = append(loads, heard[engine.LinkLoads]{now, ev})
		case engine.BlockDurable:
			durable++
		}
		return after >= 2
	})
	stored := []units.Bytes{0, size + small, small, 0, size, 0}
	named := [][]workloads.BlockID{nil, {3, 7}, {7}, nil, {3}, nil}
	for h, all := range beats {
		var names []workloads.BlockID
		made := time.Duration(0)
		for _, b := range all {
			names = append(append(names, b.ev.Disk.Writing...), b.ev.Disk.Ended...)
			if b.ev.Made <= made {
				t.Errorf("host %d reported at %v and then at %v", h, made, b.ev.Made)
			}
			made = b.ev.Made
		}
		slices.Sort(names)
		if names = slices.Compact(names); !slices.Equal(names, named[h]) {
			t.Errorf("host %d named replicas %v, want %v", h, names, named[h])
		}
		if d := all[len(all)-1].ev.Disk; d.Used != stored[h] || len(d.Writing) > 0 {
			t.Errorf("at the end the disk of host %d has %+v, want %v", h, d, stored[h])
		}
	}
	for i, b := range beats[4] { // hosts report in groups of Settings.Beats
		if gap := b.ev.Made - beats[3][i].ev.Made; gap < r.cfg.Settings.BeatGap {
			t.Errorf("hosts 3 and 4 reported %v apart, want at least %v", gap, r.cfg.Settings.BeatGap)
		}
	}
	if !slices.ContainsFunc(beats[4], func(b heard[engine.Heartbeat]) bool {
		return slices.Equal(b.ev.Disk.Writing, named[4]) && b.ev.Disk.Used == size
	}) {
		t.Errorf("host 4 never told that it writes: %+v", beats[4])
	}
	// The second replica of block 3 crosses from rack 0 to rack 1; the rest stays in rack 0.
	from, to := racks[0][len(racks[0])-1].ev, racks[1][len(racks[1])-1].ev
	for name, n := range map[string]units.Bytes{"away from rack 0": from.Tx, "toward rack 1": to.Rx} {
		if n < size || n > size+size/5 {
			t.Errorf("%v went %s, want %v and its headers", n, name, size)
		}
	}
	if from.Rx > size/5 || to.Tx > size/5 {
		t.Errorf("%v and %v went the other way", from.Rx, to.Tx)
	}
	busiest := make([]units.Rate, len(f.Links()))
	for _, l := range loads {
		for id, rate := range l.ev.Rates {
			busiest[id] = max(busiest[id], rate)
		}
	}
	// More than the link's rate in a look is what a token bucket had saved up.
	if got := busiest[f.HostDown(4)]; got < units.Mbps || got > 40*units.Mbps || busiest[f.HostDown(5)] > units.Mbps/2 {
		t.Errorf("the busiest looks show %v toward host 4 and %v toward host 5", got, busiest[f.HostDown(5)])
	}
	m, _ := r.finish(t)
	i := slices.IndexFunc(m.Notes, func(s string) bool { return strings.Contains(s, "true loads") })
	if i < 0 {
		t.Fatalf("no word of what the looks cost: %v", m.Notes)
	}
	t.Log(m.Notes[i])
}

// Reports are lost, or late by at least the time stated and in order; packets and the
// verdict have nothing of it.
func TestReportFaultsOnPackets(t *testing.T) {
	r := newRig(t, 20*units.Mbps, nil)
	const late = 250 * time.Millisecond
	r.play(t, fault.Fault{Kind: fault.LostReports, At: 200 * time.Millisecond, For: 400 * time.Millisecond, Hosts: []topo.HostID{1}},
		fault.Fault{Kind: fault.LateReports, At: 200 * time.Millisecond, For: 400 * time.Millisecond, By: late, Hosts: []topo.HostID{2}})
	begin := time.Since(r.zero)
	made := make([][]heard[engine.Heartbeat], r.fabric.Hosts())
	rounds := 0
	r.listen(t, func(now time.Duration, ev engine.Event) bool {
		hb, ok := ev.(engine.Heartbeat)
		if !ok {
			return false
		}
		made[hb.Host] = append(made[hb.Host], heard[engine.Heartbeat]{now, hb})
		if hb.Host == 0 {
			rounds++
		}
		return hb.Host == 5 && now-begin > 1500*time.Millisecond
	})
	for h, all := range made {
		if !slices.IsSortedFunc(all, func(a, b heard[engine.Heartbeat]) int { return int(a.ev.Made - b.ev.Made) }) {
			t.Errorf("reports of host %d overtake one another: %+v", h, all)
		}
		want := rounds
		if h == 1 {
			want = len(all) // judged below
		}
		if len(all) != want {
			t.Errorf("%d reports of host %d, want %d", len(all), h, want)
		}
	}
	missed := rounds - len(made[1])
	if last := made[1][len(made[1])-1]; missed == 0 || missed > rounds/2 || last.now-begin < time.Second {
		t.Errorf("%d of %d reports are lost, the last came at %v", missed, rounds, last.now-begin)
	}
	behind := 0
	for _, x := range made[2] {
		// Where the master was held up itself, a report may seem late that is not.
		if since := x.now - x.ev.Made; since >= late {
			behind++
		}
	}
	if behind == 0 || behind > rounds/2 {
		t.Errorf("%d of %d reports are %v late", behind, rounds, late)
	}
	m, _ := r.finish(t)
	if r.faults.met() || len(m.Exempt) > 0 || len(m.Lossy) > 0 {
		t.Errorf("lost reports touched %v and %v", m.Exempt, m.Lossy)
	}
}

// The bytes that links carried between two samples are reported as payload.
func TestLoads(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Second}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	after := func(d time.Duration, bytes units.Bytes) sent { return sent{begin.Add(d), bytes} }
	const ms = time.Millisecond
	got := loads(f, []sent{after(0, 5000), after(1*ms, 5000), after(2*ms, 7000), after(3*ms, 0)},
		[]sent{after(25*ms, 5000+31_250), after(26*ms, 5000), after(52*ms, 7000+31_250), after(28*ms, 31_250)})
	full := plan.PayloadCapacity(f)[0]
	want := []units.Rate{full, 0, full / 2, full}
	for l := range want {
		if d := got[l] - want[l]; d < -1 || d > 1 {
			t.Errorf("loads() = %v, want %v", got, want)
			break
		}
	}
	if got := loads(f, []sent{after(0, 9), after(0, 9), after(0, 9), after(0, 9)}, []sent{after(0, 0), after(0, 9), after(ms, 0), after(ms, 9)}); slices.Max(got) != 0 {
		t.Errorf("counters that begin anew and time that stands still: %v", got)
	}
}
