package fluid_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// Hosts and leaves report at phases of their own, with the counters of that time.
func TestReportsAtPhases(t *testing.T) {
	f := racks(t, 2, 1, 1)
	b := fluid.New(f, fluid.Config{Heartbeat: 10 * ms, Needs: policies.LinkLoad | policies.Progress, DiskRate: units.Gbps,
		Phases: &engine.Phases{Hosts: []time.Duration{7 * ms, 2 * ms}, Leaves: []time.Duration{10 * ms, 2 * ms}}})
	do(t, b, start(1, 0, 1, mb, 400*units.Mbps)) // 50 KB each ms
	kb := func(n units.Bytes) units.Bytes { return n * units.KB }
	disk := &engine.DiskReport{}
	wants(t, b, engine.NextNever, 2*ms, engine.Heartbeat{Host: 1, Rx: kb(100), Disk: disk}, engine.RackReport{Rack: 1, Rx: kb(100)})
	wants(t, b, engine.NextNever, 7*ms, engine.Heartbeat{Host: 0, Tx: kb(350), Disk: disk})
	wants(t, b, engine.NextNever, 10*ms, engine.RackReport{Rack: 0, Tx: kb(500)})
	wants(t, b, engine.NextNever, 12*ms, engine.Heartbeat{Host: 1, Rx: kb(600), Disk: disk}, engine.RackReport{Rack: 1, Rx: kb(600)})
}

// Reports on which the engine does not act are returned with the next other event, with their own times, and at most
// one of each host at once. They are the same as those that are returned at their times.
func TestHeldReports(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := racks(t, 2, 3, 1)
		phases := engine.RandomPhases(f, 10*ms, rapid.Uint64().Draw(rt, "seed"))
		acts := rapid.SliceOfN(rapid.Bool(), f.Hosts(), f.Hosts()).Draw(rt, "acts")
		cfg := fluid.Config{Heartbeat: 10 * ms, Phases: phases, Needs: policies.LinkLoad, DiskRate: 300 * units.Mbps}
		at := func(now, at time.Duration) time.Duration {
			if at == 0 {
				return now
			}
			return at
		}
		run := func(cfg fluid.Config) (out []ending) {
			b := fluid.New(f, cfg)
			do(t, b, start(1, 0, 4, 3*mb, 400*units.Mbps), start(2, 2, 1, mb, 90*units.Mbps), block(1, 3, mb, 2, 5))
			seen := map[topo.HostID]bool{}
			for {
				now, evs := await(t, b, 97*ms)
				clear(seen)
				for _, ev := range evs {
					switch hb := ev.(type) {
					case engine.Heartbeat:
						if hb.At != 0 && seen[hb.Host] {
							t.Fatalf("at %v: two reports of host %d were held", now, hb.Host)
						}
						if cfg.ActsOnReport != nil && acts[hb.Host] && hb.At != 0 && hb.At != now {
							t.Fatalf("report of host %d at %v, returned at %v: the engine acts on it", hb.Host, hb.At, now)
						}
						seen[hb.Host] = true
						when := at(now, hb.At)
						hb.At = 0
						out = append(out, ending{when, hb})
					case engine.RackReport:
						when := at(now, hb.At)
						hb.At = 0
						out = append(out, ending{when, hb})
					default:
						out = append(out, ending{now, ev})
					}
				}
				if now >= 97*ms {
					break
				}
			}
			slices.SortStableFunc(out, func(a, b ending) int { return int(a.At - b.At) })
			return out
		}
		exact := run(cfg)
		cfg.ActsOnReport = func(h topo.HostID) bool { return acts[h] }
		if d := cmp.Diff(exact, run(cfg)); d != "" {
			t.Fatalf("(-at their times +held):\n%s", d)
		}
		if len(exact) < 8*f.Hosts() {
			t.Fatalf("%d events: want a report of each host every 10 ms", len(exact))
		}
	})
}

// With a resolution, reports are delayed to a multiple of it.
func TestReportsWithAResolution(t *testing.T) {
	b := fluid.New(racks(t, 1, 2, 1), fluid.Config{Needs: policies.Progress, Heartbeat: 10 * ms, Resolution: 4 * ms, Phases: &engine.Phases{Hosts: []time.Duration{3 * ms, 8 * ms}, Leaves: []time.Duration{ms}}})
	do(t, b, start(1, 0, 1, 100*mb, inf))
	for _, at := range []time.Duration{4 * ms, 8 * ms, 16 * ms, 20 * ms, 24 * ms} {
		if now, hbs := beats[engine.Heartbeat](t, b); now != at || len(hbs) != 1 {
			t.Errorf("at %v: %+v, want one report at %v", now, hbs, at)
		}
	}
}
