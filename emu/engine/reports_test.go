package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// The disk use that a report lacks is what was allocated and is in no report, also
// of blocks that ended in between; a report without any leaves it to the decisions.
func TestDiskUse(t *testing.T) {
	const s = time.Second
	ids := func(ids ...workloads.BlockID) []workloads.BlockID { return ids }
	beat := func(used units.Bytes, writing, ended []workloads.BlockID) Event {
		return Heartbeat{Host: 3, Disk: &DiskReport{Used: used, Writing: writing, Ended: ended}}
	}
	late := func(made time.Duration, used units.Bytes, writing ...workloads.BlockID) Event {
		return Heartbeat{Host: 3, Made: made, Disk: &DiskReport{Used: used, Writing: writing}}
	}
	write := func(id workloads.BlockID) Event { return writerOf(block(id, 0, 1)) } // of 1000 bytes
	type at struct {
		now     time.Duration
		ev      Event
		used    units.Bytes
		writing int
	}
	for _, tt := range []struct {
		name  string
		steps []at
	}{
		{"seen while it is written", []at{{1, write(1), 1000, 1}, {1 * s, beat(1000, ids(1), nil), 1000, 1}, {1*s + 1, BlockDurable{1}, 1000, 0}, {2 * s, beat(1000, nil, nil), 1000, 0}}},
		{"begun and ended between two reports", []at{{1, write(1), 1000, 1}, {2, BlockDurable{1}, 1000, 0}, {1 * s, beat(1000, nil, ids(1)), 1000, 0}, {2 * s, beat(1000, nil, nil), 1000, 0}}},
		{"not begun yet", []at{{1, write(1), 1000, 1}, {1 * s, beat(0, nil, nil), 1000, 1}, {2 * s, beat(1000, ids(1), nil), 1000, 1}, {3 * s, beat(1000, nil, nil), 1000, 0}, {3*s + 1, BlockDurable{1}, 1000, 0}}},
		{"on this disk but not durable", []at{{1, write(1), 1000, 1}, {1 * s, beat(1000, nil, ids(1)), 1000, 0}, {1*s + 1, BlockDurable{1}, 1000, 0}}},
		{"what others put there", []at{{1, write(1), 1000, 1}, {1 * s, beat(51_000, ids(1, 77), nil), 51_000, 1}, {1*s + 1, write(2), 52_000, 2}}},
		{"dropped before a report", []at{{1, write(1), 1000, 1}, {2, BlockFailed{1, "x"}, 0, 0}, {1 * s, beat(0, nil, ids(1)), 0, 0}}},
		{"dropped after a report, and the host does not know", []at{{1, write(1), 1000, 1}, {1 * s, beat(1000, ids(1), nil), 1000, 1}, {1*s + 1, BlockFailed{1, "x"}, 1000, 0}, {2 * s, beat(1000, ids(1), nil), 1000, 0}, {3 * s, beat(0, nil, nil), 0, 0}}},
		{"a late report of before", []at{{1, write(1), 1000, 1}, {2, BlockDurable{1}, 1000, 0}, {1 * s, late(1, 0), 1000, 0}, {2 * s, late(2, 1000, 1), 1000, 0}, {3 * s, beat(1000, nil, nil), 1000, 0}}},
		{"gone from a disk that had it", []at{{1, write(1), 1000, 1}, {2, BlockDurable{1}, 1000, 0}, {1 * s, beat(0, nil, nil), 0, 0}}},
		{"no disk use in the report", []at{{1, write(1), 1000, 1}, {2, BlockDurable{1}, 1000, 0}, {1 * s, Heartbeat{Host: 3}, 1000, 0}, {1*s + 1, write(2), 2000, 1}, {2 * s, Heartbeat{Host: 3}, 2000, 1}, {2*s + 1, BlockFailed{2, "x"}, 1000, 0}}},
		{"back with an empty disk", []at{{1, write(1), 1000, 1}, {2, BlockDurable{1}, 1000, 0}, {3, write(2), 2000, 1}, {4, HostBack{Host: 3, DiskLost: true}, 0, 0}, {1 * s, beat(0, nil, nil), 0, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, testConfig(t, always(free), onHosts(3)))
			told := -1
			for _, x := range tt.steps {
				step(t, e, x.now, x.ev)
				if h, writing := e.view(policies.DiskUse).Hosts[3], e.hosts[3].writing; h.Used != x.used || writing != x.writing {
					t.Errorf("after %+v at %v: %d bytes, %d writing, want %d, %d", x.ev, x.now, h.Used, writing, x.used, x.writing)
				}
				if hb, ok := x.ev.(Heartbeat); ok && hb.Disk != nil {
					told = len(hb.Disk.Writing)
				} else if told < 0 {
					if got := e.view(policies.DiskUse).Hosts[3].Writing; got != x.writing {
						t.Errorf("after %+v at %v, without reports: %d writing shown, want %d", x.ev, x.now, got, x.writing)
					}
				}
				if _, back := x.ev.(HostBack); back {
					told = min(told, 0)
				}
				if got := e.view(policies.DiskUse).Hosts[3].Writing; told >= 0 && got != told {
					t.Errorf("after %+v at %v: %d writing shown, want those of the newest report, %d", x.ev, x.now, got, told)
				}
			}
			if h := e.hosts[3]; h.writing == 0 && len(h.allocated) > 0 {
				t.Errorf("still kept at the end: %+v", h.allocated)
			}
		})
	}
}

// Hosts that begin and end replicas when they like and whose reports are lost, or
// late in order, against the sum of all that they were given: it is what the master
// reckons at every moment, as long as nothing is dropped; and when everything has
// ended and a report has come in, the master has what the disk has and keeps no more.
func TestDiskUseIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const hosts = 3
		var given []topo.HostID // of the next block
		c := testConfig(t, always(free), placeFunc(func(*policies.View, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
			return slices.Clone(given), nil
		}))
		e, err := New(c)
		if err != nil {
			rt.Fatal(err)
		}
		type replica struct {
			size               units.Bytes
			begun, ended, gone bool
		}
		disks := [hosts]map[workloads.BlockID]*replica{{}, {}, {}}
		var news [hosts][]workloads.BlockID
		var onWay [hosts][]Heartbeat
		var allocated [hosts]units.Bytes
		targets := map[workloads.BlockID][]topo.HostID{}
		now := time.Duration(1)
		do := func(evs ...Event) {
			if _, err := e.Step(now, evs...); err != nil {
				rt.Fatal(err)
			}
		}
		onDisk := func(h topo.HostID) (used units.Bytes) {
			for _, r := range disks[h] {
				if r.begun && !r.gone {
					used += r.size
				}
			}
			return used
		}
		report := func(h topo.HostID) Heartbeat {
			d := &DiskReport{Used: onDisk(h)}
			for id := range workloads.BlockID(100) {
				if r := disks[h][id]; r != nil && r.begun && !r.ended && !r.gone {
					d.Writing = append(d.Writing, id)
				}
			}
			for _, id := range news[h] {
				if !slices.Contains(d.Writing, id) {
					d.Ended = append(d.Ended, id)
				}
			}
			return Heartbeat{Host: h, Made: now, Disk: d}
		}
		next := workloads.BlockID(0)
		pick := func() (workloads.BlockID, topo.HostID, bool) {
			if len(targets) == 0 {
				return 0, 0, false
			}
			var open []workloads.BlockID
			for id := range next {
				if len(targets[id]) > 0 {
					open = append(open, id)
				}
			}
			id := rapid.SampledFrom(open).Draw(rt, "block")
			return id, rapid.SampledFrom(targets[id]).Draw(rt, "of"), true
		}
		all := func(id workloads.BlockID) bool {
			return !slices.ContainsFunc(targets[id], func(h topo.HostID) bool { return !disks[h][id].ended })
		}
		drops := rapid.Bool().Draw(rt, "drops")
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			now += time.Duration(rapid.IntRange(0, 1).Draw(rt, "time"))
			h := topo.HostID(rapid.IntRange(0, hosts-1).Draw(rt, "host"))
			switch what := rapid.IntRange(0, 7).Draw(rt, "what"); what {
			case 0:
				given = rapid.Permutation([]topo.HostID{0, 1, 2}).Draw(rt, "given")[:rapid.IntRange(1, 3).Draw(rt, "replicas")]
				b := block(next, 3, len(given))
				b.Size = units.Bytes(rapid.IntRange(1, 9).Draw(rt, "size"))
				for _, h := range given {
					disks[h][next] = &replica{size: b.Size}
					allocated[h] += b.Size
				}
				targets[next] = slices.Clone(given)
				do(writerOf(b))
				next++
			case 1, 2:
				id, h, ok := pick()
				if !ok {
					continue
				}
				if r := disks[h][id]; !r.begun {
					r.begun = true
					news[h] = append(news[h], id)
				} else {
					r.ended = true
				}
			case 3:
				if id, _, ok := pick(); ok && all(id) {
					do(BlockDurable{id})
					delete(targets, id)
				}
			case 4: // in time, or late where one is
				hb := report(h)
				news[h] = nil
				if len(onWay[h]) > 0 {
					onWay[h] = append(onWay[h], hb)
				} else {
					do(hb)
				}
			case 5:
				_ = report(h) // lost
			case 6:
				onWay[h] = append(onWay[h], report(h))
				news[h] = nil
				if n := rapid.IntRange(0, len(onWay[h])).Draw(rt, "in"); n > 0 {
					for _, hb := range onWay[h][:n] {
						do(hb)
					}
					onWay[h] = onWay[h][n:]
				}
			case 7:
				if id, h, ok := pick(); ok && drops && len(targets[id]) > 1 {
					disks[h][id].gone = true
					allocated[h] -= disks[h][id].size
					targets[id] = slices.DeleteFunc(targets[id], func(x topo.HostID) bool { return x == h })
					do(ReplicaLost{Block: id, Host: h})
				}
			}
			for h := range topo.HostID(hosts) {
				got := e.view(policies.DiskUse).Hosts[h]
				if !drops && got.Used != allocated[h] {
					rt.Fatalf("at %d host %d has %d bytes for the master, and was given %d", now, h, got.Used, allocated[h])
				}
				least, most := 0, 0
				for id, hs := range targets {
					if slices.Contains(hs, h) {
						most++
						if !disks[h][id].ended {
							least++
						}
					}
				}
				if writing := e.hosts[h].writing; writing < least || writing > most {
					rt.Fatalf("at %d host %d writes %d replicas for the master, want %d to %d", now, h, writing, least, most)
				}
			}
		}
		// All ends; what is on its way comes in, and one report more.
		for id := range next {
			if len(targets[id]) == 0 {
				continue
			}
			for _, h := range targets[id] {
				if r := disks[h][id]; !r.begun {
					r.begun = true
					news[h] = append(news[h], id)
				}
				disks[h][id].ended = true
			}
			do(BlockDurable{id})
		}
		now++
		for h := range topo.HostID(hosts) {
			for _, hb := range append(onWay[h], report(h)) {
				do(hb)
			}
			if x := e.hosts[h]; x.used != onDisk(h) || x.writing != 0 || len(x.allocated) > 0 || x.used != allocated[h] {
				rt.Errorf("at the end host %d has %d bytes, and was given %d: %+v", h, onDisk(h), allocated[h], x)
			}
		}
	})
}

// A report that is late tells of the time until it was made; when it comes in is
// when the master has heard of the host.
func TestLateReports(t *testing.T) {
	e := newEngine(t, testConfig(t, always(none), nil))
	const s = time.Second
	for i, x := range []struct {
		now  time.Duration
		hb   Heartbeat
		want float64 // bytes a second
	}{
		{1 * s, Heartbeat{Rx: 100}, 20},
		{4 * s, Heartbeat{Rx: 200, Made: 2 * s}, 36}, // 100 in a second, not in three
		{4 * s, Heartbeat{Rx: 200, Made: 3 * s}, 28.8},
		{6 * s, Heartbeat{Rx: 500, Made: 6*s + 1}, 43.04}, // 100 a second; made when it came in
		{7 * s, Heartbeat{Rx: 700}, 74.432},               // lost none
	} {
		step(t, e, x.now, x.hb)
		if got := e.hosts[0].rx / 8; got < x.want-1e-6 || got > x.want+1e-6 {
			t.Errorf("after report %d: %v, want %v", i+1, got, x.want)
		}
		if h := e.hosts[0]; h.lastReport != x.now || h.nextReport != x.now+s {
			t.Errorf("after report %d: reports at %v and %v", i+1, h.lastReport, h.nextReport)
		}
	}
}

// Policies see the averages of racks and the loads of links if they need them, and
// only then.
func TestRacksAndLoads(t *testing.T) {
	e := newEngine(t, testConfig(t, always(none), nil))
	links := len(e.cfg.Capacity)
	if v := e.view(policies.TrueLoad | policies.LinkLoad); len(v.Load) != links || slices.Max(v.Load) != 0 || len(v.Racks) != 2 {
		t.Errorf("before any report: %v, %v", v.Load, v.Racks)
	}
	rates := slices.Repeat([]units.Rate{7}, links)
	step(t, e, time.Second, RackReport{Rack: 1, Rx: 100, Tx: 50}, LinkLoads{rates})
	step(t, e, 2*time.Second, RackReport{Rack: 1, Rx: 200, Tx: 50})
	none := *e.view(^(policies.LinkLoad | policies.TrueLoad))
	if d := cmp.Diff([]policies.RackState{{}, {}}, none.Racks); d != "" || none.Load != nil {
		t.Errorf("seen without need: %v, %s", none.Load, d)
	}
	load := *e.view(policies.LinkLoad)
	if d := cmp.Diff([]policies.RackState{{}, {Rx: 8 * 36, Tx: 8 * 8}}, load.Racks); d != "" || load.Load != nil {
		t.Errorf("with LinkLoad: %v, (-want +got):\n%s", load.Load, d)
	}
	truth := *e.view(policies.TrueLoad)
	if d := cmp.Diff(rates, truth.Load); d != "" || truth.Racks[1].Rx != 0 {
		t.Errorf("with TrueLoad: %v, (-want +got):\n%s", truth.Racks, d)
	}
	for _, tt := range []struct {
		ev   Event
		want string
	}{
		{RackReport{Rack: 2}, "unknown rack 2"}, {RackReport{Rack: -1}, "unknown rack -1"}, {RackReport{Made: -1}, "leaf0: made at -1ns"},
		{LinkLoads{rates[1:]}, "loads of"}, {LinkLoads{}, "loads of 0 links"}, {LinkLoads{append(slices.Clone(rates[1:]), -1)}, "load -1 of"},
		{Heartbeat{Made: -1}, "h0-00: made at -1ns"}, {Heartbeat{Host: 1, Disk: &DiskReport{Used: -1}}, "disk use -1"}, {Heartbeat{Host: -1}, "unknown host -1"},
	} {
		e := newEngine(t, testConfig(t, always(func(*policies.View, *policies.Schedule) {}), nil))
		if _, err := e.Step(time.Second, tt.ev); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want an error with %q", tt.ev, err, tt.want)
		}
	}
}
