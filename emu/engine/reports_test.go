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

// Hosts start and end replicas at random times, and their reports are lost, or late in order.
// The disk use known to the master equals the sum of all allocations at every moment, as long
// as no replica is dropped. When everything has ended and a report has arrived, it equals the
// content of the disk, and no allocations are left.
func TestDiskUseIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const hosts = 3
		var given []topo.HostID // hosts of the next block
		c := testConfig(t, always(free), placeFunc(func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
			return slices.Clone(given), nil
		}))
		e := must(New(c))
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
			case 4: // in time, or late if an older report is in transit
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
				got := e.cluster(policies.DiskUse).Hosts[h]
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
		// Everything ends; reports in transit and one more arrive.
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

// Policies see the averages of racks and the loads of links only if they declare them.
func TestRacksAndLoads(t *testing.T) {
	e := newEngine(t, testConfig(t, always(none), nil))
	links := len(e.cfg.Capacity)
	if v := e.cluster(policies.LinkLoad | policies.OracleLoad); len(v.Load) != links || slices.Max(v.Load) != 0 || len(v.Racks) != 2 {
		t.Errorf("before any report: %v, %v", v.Load, v.Racks)
	}
	rates := slices.Repeat([]units.Rate{7}, links)
	step(t, e, time.Second, RackReport{Rack: 1, Rx: 100, Tx: 50}, LinkLoads{rates})
	step(t, e, 2*time.Second, RackReport{Rack: 1, Rx: 200, Tx: 50})
	none := *e.cluster(policies.Sizes | policies.Totals | policies.DiskUse)
	if d := cmp.Diff([]policies.RackState{{}, {}}, none.Racks); d != "" || none.Load != nil {
		t.Errorf("seen without need: %v, %s", none.Load, d)
	}
	load := *e.cluster(policies.LinkLoad)
	if d := cmp.Diff([]policies.RackState{{LastReport: -1, NextReport: time.Second}, {LastReport: 2 * time.Second, NextReport: 3 * time.Second, Rx: 8 * 36, Tx: 8 * 8, Received: 200, Sent: 50}}, load.Racks); d != "" || load.Load != nil {
		t.Errorf("with LinkLoad: %v, (-want +got):\n%s", load.Load, d)
	}
	truth := *e.cluster(policies.OracleLoad)
	if d := cmp.Diff(rates, truth.Load); d != "" || truth.Racks[1].Rx != 0 {
		t.Errorf("with OracleLoad: %v, (-want +got):\n%s", truth.Racks, d)
	}
	for _, tt := range []struct {
		ev   Event
		want string
	}{
		{RackReport{Rack: 2}, "unknown rack 2"}, {RackReport{Rack: -1}, "unknown rack -1"}, {RackReport{Made: -1}, "leaf0: made at -1ns"},
		{LinkLoads{rates[1:]}, "loads of"}, {LinkLoads{}, "loads of 0 links"}, {LinkLoads{append(slices.Clone(rates[1:]), -1)}, "load -1 of"},
		{Heartbeat{Made: -1}, "h0-00: made at -1ns"}, {Heartbeat{Host: 1, Disk: &DiskReport{Used: -1}}, "disk use -1"}, {Heartbeat{Host: -1}, "unknown host -1"},
	} {
		e := newEngine(t, testConfig(t, always(func(*policies.CoflowView, *policies.Schedule) {}), nil))
		if _, err := e.Step(time.Second, tt.ev); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want an error with %q", tt.ev, err, tt.want)
		}
	}
}
