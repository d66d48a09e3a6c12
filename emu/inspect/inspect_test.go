package inspect

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

var start = time.Unix(1_800_000_000, 0)

// fabric returns 2 racks of 2 hosts at 20 Mbps and 2 spines at 10 Mbps.
func fabric(t *testing.T) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Oversubscription: units.Ratio{Num: 2, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// idle returns a reading of f before any packet.
func idle(f *topo.Fabric, at time.Time) Reading {
	r := Reading{}
	for _, l := range f.Links() {
		r[l.ID] = Sample{at, Counters{Rate: l.Rate, Limit: l.Queue, Up: true}}
	}
	return r
}

func TestLinks(t *testing.T) {
	base := Counters{Bytes: 1000, Packets: 10, Dropped: 2, Overlimits: 1, Rate: 20 * units.Mbps, Limit: 50 * units.KB, Up: true}
	tests := []struct {
		name     string
		was, now Counters
		took     time.Duration
		want     Link
	}{
		{
			"half busy", base,
			Counters{Bytes: 1000 + 2_500_000, Packets: 2010, Dropped: 5, Overlimits: 4, Backlog: 25_000, Rate: 20 * units.Mbps, Limit: 50 * units.KB, Up: true},
			2 * time.Second,
			Link{Rate: 20 * units.Mbps, Shaped: true, Up: true, Utilisation: 0.5, Sent: 2_500_000, Throughput: 10 * units.Mbps, Packets: 2000, PacketRate: 1000,
				Backlog: 25_000, Wait: 10 * time.Millisecond, Dropped: 3, DroppedAll: 5, Overlimits: 3, Limit: 50 * units.KB},
		},
		{
			"counters of 32 bits wrap", Counters{Bytes: 1000, Packets: math.MaxUint32 - 4, Dropped: math.MaxUint32, Overlimits: math.MaxUint32, Rate: 20 * units.Mbps, Up: true},
			Counters{Bytes: 3500, Packets: 5, Dropped: 0, Overlimits: 1, Rate: 20 * units.Mbps, Up: true},
			time.Millisecond,
			Link{Rate: 20 * units.Mbps, Shaped: true, Up: true, Utilisation: 1, Sent: 2500, Throughput: 20 * units.Mbps, Packets: 10, PacketRate: 10000, Dropped: 1, Overlimits: 2},
		},
		{
			"a replaced qdisc counts anew", base,
			Counters{Bytes: 500, Packets: 4, Rate: 10 * units.Mbps, Up: true},
			time.Second,
			Link{Rate: 10 * units.Mbps, Shaped: true, Up: true, Utilisation: 0.0004, Sent: 500, Throughput: 4000, Packets: 4, PacketRate: 4, Reset: true},
		},
		{
			"a replaced qdisc that has sent more than the old one", base,
			Counters{Bytes: 4000, Packets: 3, Dropped: 1, Rate: 20 * units.Mbps, Up: true},
			time.Second,
			Link{Rate: 20 * units.Mbps, Shaped: true, Up: true, Utilisation: 0.0016, Sent: 4000, Throughput: 32000, Packets: 3, PacketRate: 3, Dropped: 1, DroppedAll: 1, Reset: true},
		},
		{
			"no shaper, and down", base, Counters{Bytes: 1000, Packets: 10, Dropped: 2, Overlimits: 1, Backlog: 7},
			time.Second, Link{Backlog: 7, DroppedAll: 2},
		},
		{
			"no time between", base, Counters{Bytes: 2000, Packets: 11, Dropped: 2, Overlimits: 1, Rate: 20 * units.Mbps, Up: true},
			0, Link{Rate: 20 * units.Mbps, Shaped: true, Up: true, Sent: 1000, Packets: 1, DroppedAll: 2},
		},
	}
	f := fabric(t)
	id := f.HostUp(1)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			links := Links(f, Reading{id: {start, tt.was}, 99: {}}, Reading{id: {start.Add(tt.took), tt.now}, 0: {}})
			if len(links) != 1 {
				t.Fatalf("%d links, want the one that both readings have", len(links))
			}
			tt.want.ID, tt.want.Kind, tt.want.Name, tt.want.Plan, tt.want.PlanLimit = id, topo.HostUp, "h0-01>leaf0", 20*units.Mbps, 50*units.KB
			if links[0] != tt.want {
				t.Errorf("got  %+v\nwant %+v", links[0], tt.want)
			}
		})
	}
}

// Since the fabric was built, the totals of the kernel count.
func TestZero(t *testing.T) {
	f := fabric(t)
	now := idle(f, start.Add(10*time.Second))
	s := now[0]
	s.Bytes, s.Packets = 5*units.MB, 3_000_000_000
	now[0] = s
	got := Links(f, Zero(now, start), now)[0]
	if got.Utilisation != 0.2 || got.Packets != 3_000_000_000 || got.Reset {
		t.Errorf("got %+v, want 20 %% of 20 Mbps and no reset", got)
	}
}

func TestOffPlan(t *testing.T) {
	tests := []struct {
		rate, plan units.Rate
		want       bool
	}{
		{20 * units.Mbps, 20 * units.Mbps, false},
		{20 * units.Mbps, 20*units.Mbps + 7, false}, // the kernel counts bytes a second
		{20 * units.Mbps, 20*units.Mbps + 8, true},
		{10 * units.Mbps, 20 * units.Mbps, true},
	}
	for _, tt := range tests {
		if got := (Link{Rate: tt.rate, Plan: tt.plan, Shaped: true}).OffPlan(); got != tt.want {
			t.Errorf("OffPlan of %d for %d = %t, want %t", tt.rate, tt.plan, got, tt.want)
		}
	}
	if !(Link{Plan: units.Mbps}).OffPlan() {
		t.Error("a link without a shaper is as planned")
	}
}

func TestSwitchesAndSummary(t *testing.T) {
	f := fabric(t)
	was, now := idle(f, start), idle(f, start.Add(time.Second))
	// One flow from h0-00 to h1-01 over spine1 at 8 Mbps, losing at the uplink.
	for _, id := range f.Path(0, 3, 1) {
		s := now[id]
		s.Bytes = units.MB
		now[id] = s
	}
	up := now[f.LeafUp(0, 1)]
	up.Dropped, up.Backlog, up.Rate = 7, 1000, 16*units.Mbps
	now[f.LeafUp(0, 1)] = up
	down := now[f.LeafDown(1, 0)]
	down.Up = false
	now[f.LeafDown(1, 0)] = down

	links := Links(f, was, now)
	sum := Summarize(links)
	if sum.Links != len(f.Links()) || sum.Busiest != "spine1>leaf1" || sum.Utilisation != 0.8 || sum.Dropped != 7 {
		t.Errorf("summary %+v, want spine1>leaf1 at 0.8 and 7 drops", sum)
	}
	// One of four links carries everything: the standard deviation is √3 times the mean.
	if sum.CvUp == nil || math.Abs(*sum.CvUp-math.Sqrt(3)) > 1e-12 || sum.CvDown == nil || math.Abs(*sum.CvDown-math.Sqrt(3)) > 1e-12 {
		t.Errorf("Cv %v and %v, want √3", sum.CvUp, sum.CvDown)
	}
	if strings.Join(sum.OffPlan, " ") != "leaf0>spine1" || strings.Join(sum.Down, " ") != "spine0>leaf1" {
		t.Errorf("off plan %v, down %v", sum.OffPlan, sum.Down)
	}
	want := map[string]Switch{
		"leaf0":  {In: 8 * units.Mbps, Out: 8 * units.Mbps, Backlog: 1000, Dropped: 7, DroppedAll: 7},
		"leaf1":  {In: 8 * units.Mbps, Out: 8 * units.Mbps},
		"spine0": {},
		"spine1": {In: 8 * units.Mbps, Out: 8 * units.Mbps},
	}
	got := Switches(f, links)
	if len(got) != len(want) {
		t.Errorf("%d switches, want %d", len(got), len(want))
	}
	for _, s := range got {
		w := want[s.Name]
		if w.Name = s.Name; s != w {
			t.Errorf("got %+v, want %+v", s, w)
		}
	}
	if got := Switches(f, links[:1]); len(got) != 1 || got[0].Name != "leaf0" {
		t.Errorf("switches of %s: %+v, want leaf0 alone", links[0].Name, got)
	}

	for by, first := range map[Order]string{ByUtilisation: "spine1>leaf1", ByBacklog: "leaf0>spine1", ByDrops: "leaf0>spine1", ByName: "h0-00>leaf0"} {
		if Sort(links, by); links[0].Name != first {
			t.Errorf("by %s %s is first, want %s", by, links[0].Name, first)
		}
	}
	if _, err := ParseOrder("size"); err == nil {
		t.Error("an order by size")
	}
}

func TestJSONHasNumbers(t *testing.T) {
	f := fabric(t)
	b, err := json.Marshal(Links(f, idle(f, start), idle(f, start.Add(time.Second)))[0])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"link": "h0-00>leaf0", "rate_bps": 20e6, "queue_limit_bytes": 50e3, "sent_bytes": 0.0, "up": true} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}
