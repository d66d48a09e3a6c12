package engine

import (
	"bytes"
	"context"
	"fmt"
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

const ms = time.Millisecond

// recorder is a policy with rule Free that records the times of its calls.
type recorder struct {
	triggers policies.Triggers
	needs    policies.Facts
	say      func(*policies.CoflowView, *policies.Schedule)
	asked    []time.Duration
}

func (r *recorder) Needs() policies.Facts        { return r.needs }
func (r *recorder) New() policies.CoflowInstance { return r }
func (r *recorder) Triggers() policies.Triggers  { return r.triggers }
func (r *recorder) Decide(v *policies.CoflowView, s *policies.Schedule) {
	r.asked = append(r.asked, v.Now)
	free(v, s)
	if r.say != nil {
		r.say(v, s)
	}
}

func at(n int) time.Duration { return time.Duration(n) * ms }

// A scheduler is called at the events of its Triggers, at the multiples of its interval, and
// whenever a link, a route or a host changes. NextWake returns these times and no others.
func TestWhen(t *testing.T) {
	fl := func(id workloads.FlowID, src, dst topo.HostID) workloads.Flow {
		return workloads.Flow{ID: id, Src: src, Dst: dst, Size: 1000}
	}
	arrive := coflowOf(1, fl(0, 0, 2), fl(1, 1, 3), fl(2, 0, 3))
	pilots := func(v *policies.CoflowView, s *policies.Schedule) {
		if v.Coflows[0].Pilots == 0 {
			s.Pilots = append(s.Pilots, 0, 1)
		}
	}
	watch := func(bytes ...int64) func(*policies.CoflowView, *policies.Schedule) {
		return func(v *policies.CoflowView, s *policies.Schedule) {
			for i := range v.Coflows {
				s.Watch = append(s.Watch, bytes[min(i, len(bytes)-1)])
			}
			// 8 kbit/s per flow: 1 byte per ms.
			s.Steps[0] = policies.Step{Rule: policies.Explicit}
			for _, c := range v.Coflows {
				for _, f := range c.Flows {
					s.Steps[0].Rates = append(s.Steps[0].Rates, policies.FlowRate{Flow: f.ID, Rate: 8000})
				}
			}
		}
	}
	moved := func(n ...units.Bytes) Event {
		ev := TransferProgressed{Received: n}
		for i := range n {
			ev.Flows = append(ev.Flows, workloads.FlowID(i))
		}
		return ev
	}
	type happens struct {
		at   int // ms
		evs  []Event
		next int // ms; -1 for never
	}
	up := testConfig(t, always(free), nil).Fabric.LeafUp(0, 0)
	every := policies.Triggers{Coflows: true, Every: 8 * ms}
	for _, tt := range []struct {
		name     string
		triggers policies.Triggers
		needs    policies.Facts
		say      func(*policies.CoflowView, *policies.Schedule)
		steps    []happens
		want     []int // ms
	}{
		{"arrivals and ends of coflows", policies.Triggers{Coflows: true}, visible, nil, []happens{
			{1, []Event{arrive}, -1}, {2, []Event{TransferFinished{0}}, -1}, {3, []Event{coflowOf(2, fl(7, 0, 1))}, -1}, {4, []Event{TransferFinished{7}}, -1},
			{5, []Event{Heartbeat{Host: 1}}, -1}, {6, []Event{TransferProgressed{Flows: []workloads.FlowID{1}, Received: []units.Bytes{10}}}, -1}, {7, []Event{TransferFinished{1}, TransferFinished{2}}, -1}}, []int{1, 3, 4}}, // at 7 the last coflow ends,
		{"ends of flows", policies.Triggers{Coflows: true, Flows: true}, visible, nil, []happens{
			{1, []Event{arrive}, -1}, {2, []Event{TransferFinished{0}}, -1}, {3, []Event{Heartbeat{Host: 1}}, -1}, {4, []Event{TransferFinished{1}, TransferFinished{2}}, -1}}, []int{1, 2}},
		{"pilots", policies.Triggers{Coflows: true, Pilots: true}, visible | policies.NewFlows, pilots, []happens{
			{1, []Event{arrive}, -1}, {2, []Event{TransferFinished{0}}, -1}, {3, []Event{TransferFinished{1}}, -1}}, []int{1, 3}},
		{"links, routes and hosts", policies.Triggers{Coflows: true}, visible, nil, []happens{
			{1, []Event{arrive}, -1}, {2, []Event{LinkChanged{up, 5 * units.Mbps}}, -1}, {3, []Event{PathChanged{0, 0}}, -1}, {4, []Event{HostLost{3}}, -1}, {5, []Event{TransferFinished{0}}, -1}}, []int{1, 2, 3, 4}},
		{"intervals", every, visible, nil, []happens{
			{1, []Event{arrive}, 8}, {8, nil, 16}, {16, nil, 24}, {20, []Event{TransferFinished{0}}, 24}, {24, nil, 32}, {33, nil, 40}, {35, []Event{LinkChanged{up, 0}}, 40}, {40, nil, 48}}, []int{8, 16, 24, 33, 35, 40}},
		{"an arrival at a multiple", every, visible, nil, []happens{{8, []Event{arrive}, 16}, {16, []Event{coflowOf(2, fl(7, 0, 1))}, 24}}, []int{8, 16}},
		{"intervals alone", policies.Triggers{Every: 8 * ms}, visible, nil, []happens{{1, []Event{arrive}, 8}, {8, nil, 16}}, []int{8}},
		{"nothing to watch", every, visible, func(v *policies.CoflowView, s *policies.Schedule) { s.Watch = make([]int64, len(v.Coflows)) }, []happens{
			{1, []Event{arrive}, 8}, {8, nil, -1}, {17, []Event{TransferFinished{0}}, -1}, {20, []Event{coflowOf(2, fl(7, 0, 1))}, 24}, {24, nil, -1}}, []int{8, 24}},
		// Three flows at 1 byte per ms pass 60 bytes after 20 ms at the earliest: at 28 from 8.
		{"watched", every, visible | policies.Flows, watch(60), []happens{
			{1, []Event{arrive}, 8}, {8, nil, 32}, {32, []Event{moved(20, 20, 20)}, 40}, {40, []Event{moved(20, 20, 21)}, 48}}, []int{8, 40}},
		// WatchMost is not supported here: the policy is called at every multiple.
		{"longest flow watched", every, visible | policies.Flows, func(v *policies.CoflowView, s *policies.Schedule) {
			watch(60)(v, s)
			s.WatchMost = make([]int64, len(v.Coflows))
		}, []happens{{1, []Event{arrive}, 8}, {8, nil, 16}, {16, nil, 24}}, []int{8, 16}},
		// Past the threshold, the policy is called at every multiple, and not between them.
		{"passed", every, visible | policies.Flows, watch(60), []happens{
			{1, []Event{arrive}, 8}, {8, nil, 32}, {30, []Event{moved(30, 30, 30), TransferFinished{0}}, 32}, {32, nil, 40}, {39, []Event{Heartbeat{Host: 1}}, 40}, {40, nil, 48}}, []int{8, 32, 40}},
		{"wake", policies.Triggers{Coflows: true}, visible, func(v *policies.CoflowView, s *policies.Schedule) { s.Wake = 10 * ms }, []happens{
			{1, []Event{arrive}, 10}, {5, []Event{Heartbeat{Host: 1}}, 10}, {10, nil, -1}, {11, []Event{coflowOf(2, fl(7, 0, 1))}, -1}}, []int{1, 10, 11}},
		{"wake at a multiple", every, visible, func(v *policies.CoflowView, s *policies.Schedule) {
			s.Wake, s.Watch = 10*ms, make([]int64, len(v.Coflows))
		}, []happens{{1, []Event{arrive}, 8}, {8, nil, 16}, {16, nil, -1}}, []int{8, 16}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{triggers: tt.triggers, needs: tt.needs, say: tt.say}
			e := newEngine(t, testConfig(t, r, nil))
			for _, s := range tt.steps {
				step(t, e, at(s.at), s.evs...)
				want := NextNever
				if s.next >= 0 {
					want = at(s.next)
				}
				if got := e.NextWake(); got != want {
					t.Errorf("after %v: wants to wake at %v, want %v", at(s.at), got, want)
				}
			}
			var want []time.Duration
			for _, n := range tt.want {
				want = append(want, at(n))
			}
			if d := cmp.Diff(want, r.asked); d != "" {
				t.Errorf("asked (-want +got):\n%s", d)
			}
			if got := e.Stats().Decisions; got != len(want) {
				t.Errorf("%d decisions, want %d", got, len(want))
			}
		})
	}
}

func TestNewRejectsPoliciesThatAreNeverCalled(t *testing.T) {
	for _, tt := range []struct {
		triggers policies.Triggers
		latency  time.Duration
		want     string
	}{
		{policies.Triggers{Flows: true}, 0, "neither Triggers.Coflows nor Triggers.Every is set"},
		{policies.Triggers{Coflows: true, Every: -1}, 0, "must be 0 or more"},
		{policies.Triggers{Coflows: true}, -1, "latency"},
	} {
		c := testConfig(t, scheduler{triggers: tt.triggers, f: free}, nil)
		c.Control.Latency = tt.latency
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one that contains %q", tt.triggers, err, tt.want)
		}
	}
}

// If the coflow policy does not name Progress, no policy sees bytes sent, whether or not the engine
// received progress events.
func TestBlind(t *testing.T) {
	for _, tt := range []struct {
		needs policies.Facts
		want  []units.Bytes // total bytes sent, bytes sent by the unfinished flow
	}{
		{visible | policies.Flows, []units.Bytes{140, 40}},
		{policies.Flows | policies.Links, []units.Bytes{0, 0}},
	} {
		var got []units.Bytes
		p := scheduler{needs: tt.needs, triggers: policies.Triggers{Coflows: true, Flows: true}, f: func(v *policies.CoflowView, s *policies.Schedule) {
			got = []units.Bytes{v.Coflows[0].Sent, v.Coflows[0].Flows[0].Sent}
			free(v, s)
		}}
		e := newEngine(t, testConfig(t, p, nil))
		step(t, e, 1, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 1, Dst: 3, Size: 100}))
		step(t, e, 2, TransferProgressed{[]workloads.FlowID{1}, []units.Bytes{40}}, TransferFinished{0})
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("needs %+v (-want +got):\n%s", tt.needs, d)
		}
	}
	for _, bytes := range []int64{0, 5} {
		watch := scheduler{needs: policies.Links, triggers: policies.Triggers{Coflows: true}, f: func(v *policies.CoflowView, s *policies.Schedule) {
			free(v, s)
			s.Watch = append(s.Watch, bytes)
		}}
		_, err := newEngine(t, testConfig(t, watch, nil)).Step(1, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}))
		if bytes == 0 && err != nil || bytes > 0 && (err == nil || !strings.Contains(err.Error(), "needs Progress")) {
			t.Errorf("blind, and watches %d bytes: %v", bytes, err)
		}
	}
}

// A policy that does not name Links is shown none.
func TestHidesLinks(t *testing.T) {
	for _, needs := range []policies.Facts{0, policies.Links} {
		links := -1
		p := scheduler{needs: needs, triggers: policies.Triggers{Coflows: true}, f: func(v *policies.CoflowView, s *policies.Schedule) {
			links = len(v.Coflows[0].Links)
			free(v, s)
		}}
		step(t, newEngine(t, testConfig(t, p, nil)), 1, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}))
		if (links == 0) != (needs == 0) || links < 0 {
			t.Errorf("needs %v: %d links", needs, links)
		}
	}
}

// The View shows queues and their times until they change, and pilot flows permanently.
func TestWhatThePolicyKeeps(t *testing.T) {
	var seen []policies.CoflowState
	var flows [][]workloads.FlowID
	p := scheduler{needs: visible | policies.MostSent | policies.NewFlows | policies.PilotFlows, triggers: policies.Triggers{Coflows: true, Flows: true}, f: func(v *policies.CoflowView, s *policies.Schedule) {
		c := v.Coflows[0]
		flows = append(flows, nil)
		for _, f := range c.Flows {
			flows[len(flows)-1] = append(flows[len(flows)-1], f.ID)
		}
		c.Links, c.Flows = slices.Clone(c.Links), nil
		seen = append(seen, c)
		free(v, s)
		switch len(seen) {
		case 1:
			s.Queues, s.Pilots = append(s.Queues, 3), []workloads.FlowID{1, 2}
		case 2:
			s.Queues = append(s.Queues, 3)
		case 3:
			s.Queues = append(s.Queues, 4)
		}
	}}
	e := newEngine(t, testConfig(t, p, nil))
	fl := func(id workloads.FlowID, size units.Bytes) workloads.Flow {
		return workloads.Flow{ID: id, Src: 0, Dst: 2, Size: size}
	}
	step(t, e, 1, coflowOf(1, fl(0, 100), fl(1, 30), fl(2, 20), fl(3, 500)))
	step(t, e, 2, TransferFinished{1})
	step(t, e, 3, TransferProgressed{[]workloads.FlowID{3}, []units.Bytes{40}}, TransferFinished{2})
	step(t, e, 4, TransferProgressed{[]workloads.FlowID{0}, []units.Bytes{60}}, TransferFailed{0, "reset"})
	up := e.cfg.Fabric.HostUp(0)
	type kept struct {
		Left, Finished, Queue, Pilots, PilotsLeft, UpPilots int
		Since                                               time.Duration
		Sent, MostSent, Median, PilotSent                   units.Bytes
	}
	var got []kept
	for _, c := range seen {
		k := kept{Left: c.Left, Finished: c.Finished, Queue: c.Queue, Pilots: c.Pilots, PilotsLeft: c.PilotsLeft, Since: c.Since, Sent: c.Sent, MostSent: c.MostSent, Median: c.Median, PilotSent: c.PilotSent}
		for _, l := range c.Links {
			if l.Link == up {
				k.UpPilots = l.Pilots
			}
		}
		got = append(got, k)
	}
	want := []kept{
		{Left: 4, Since: 1},
		{Left: 3, Finished: 1, Queue: 3, Since: 1, Pilots: 2, PilotsLeft: 1, UpPilots: 1, Sent: 30, MostSent: 30, Median: 30, PilotSent: 30},
		{Left: 2, Finished: 2, Queue: 3, Since: 1, Pilots: 2, Sent: 90, MostSent: 40, Median: 20, PilotSent: 50},
		{Left: 1, Finished: 2, Queue: 4, Since: 3, Pilots: 2, Sent: 150, MostSent: 60, Median: 20, PilotSent: 50},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("shown (-want +got):\n%s", d)
	}
	if d := cmp.Diff([][]workloads.FlowID{{0, 1, 2, 3}, {2}, nil, nil}, flows); d != "" {
		t.Errorf("flows shown, all and then pilots (-want +got):\n%s", d)
	}
}

// Rate caps take effect after the latency, also for new flows, which wait with rate cap 0.
// Flows that end before get no command.
func TestLatency(t *testing.T) {
	rate := 4e6
	p := always(func(v *policies.CoflowView, s *policies.Schedule) {
		explicit(policies.FlowRate{Flow: 0, Rate: rate})(v, s)
		rate /= 2
	})
	c := testConfig(t, p, nil)
	c.Control.Latency = 5 * ms
	e := newEngine(t, c)
	f0, f1, f2 := workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 1, Dst: 3, Size: 50}, workloads.Flow{ID: 2, Src: 1, Dst: 3, Size: 50}
	got := step(t, e, at(1), coflowOf(7, f0, f1, f2))
	want := []Command{
		Mark{Kind: MarkCoflow, ID: 7, Host: 0, Parts: 3, Size: 200},
		StartTransfer{Coflow: 7, Flow: f0, Hash: got[1].(StartTransfer).Hash}, StartTransfer{Coflow: 7, Flow: f1, Hash: got[2].(StartTransfer).Hash}, StartTransfer{Coflow: 7, Flow: f2, Hash: got[3].(StartTransfer).Hash},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("at arrival (-want +got):\n%s", d)
	}
	if got := step(t, e, at(3), TransferFinished{1}); len(got) != 0 || e.NextWake() != at(6) {
		t.Errorf("before anything came through: %v, next %v", got, e.NextWake())
	}
	if d := cmp.Diff([]Command{SetCeiling{0, 4 * units.Mbps}}, step(t, e, at(6))); d != "" || e.NextWake() != at(8) {
		t.Errorf("after 5 ms (-want +got):\n%s, next %v", d, e.NextWake())
	}
	if d := cmp.Diff([]Command{SetCeiling{0, 2 * units.Mbps}}, step(t, e, at(8))); d != "" || e.NextWake() != NextNever {
		t.Errorf("of the second decision (-want +got):\n%s, next %v", d, e.NextWake())
	}
	step(t, e, at(9), TransferFinished{2})
	if got := step(t, e, at(10), TransferFinished{0}); len(got) != 0 || e.NextWake() != NextNever || !e.Idle() {
		t.Errorf("at the end: %v, next %v", got, e.NextWake())
	}
	if got := step(t, e, at(20)); len(got) != 0 {
		t.Errorf("after the end: %v", got)
	}
}

// Rounded rates use links completely, and rounding pauses no flow with a rate.
func TestCeilingsAreWhole(t *testing.T) {
	var rates []policies.FlowRate
	p := always(func(v *policies.CoflowView, s *policies.Schedule) { explicit(rates...)(v, s) })
	for i, r := range []float64{1e7 / 3, 1e7 / 3, 1e7/3 - 0.5, 0.25, 0} {
		rates = append(rates, policies.FlowRate{Flow: workloads.FlowID(i), Rate: r})
	}
	e := newEngine(t, testConfig(t, p, nil))
	var flows []workloads.Flow
	for i := range rates {
		flows = append(flows, workloads.Flow{ID: workloads.FlowID(i), Src: 0, Dst: 1, Size: 100})
	}
	var got []units.Rate
	for _, c := range step(t, e, 0, coflowOf(1, flows...))[1:] {
		got = append(got, c.(StartTransfer).Ceiling)
	}
	if d := cmp.Diff([]units.Rate{3333334, 3333333, 3333332, 1, 0}, got); d != "" {
		t.Errorf("ceilings (-want +got):\n%s", d)
	}
}

// Stats, computed by hand.
func TestStats(t *testing.T) {
	fl := func(id workloads.FlowID, src, dst topo.HostID) workloads.Flow {
		return workloads.Flow{ID: id, Src: src, Dst: dst, Size: 1000}
	}
	flows := coflowOf(1, fl(0, 0, 2), fl(1, 0, 3), fl(2, 1, 3), fl(3, 2, 1))
	for _, tt := range []struct {
		name     string
		triggers policies.Triggers
		say      func(*policies.CoflowView, *policies.Schedule)
		want     Stats
	}{
		// Decisions at 1, 9, 17 and 18 ms; after the last end no decision is necessary.
		{"events", policies.Triggers{Coflows: true, Flows: true}, nil, Stats{Decisions: 4, Flushes: 1, Told: 3, Updates: 4}},
		// Reports at 8: three hosts; at 16: three, host 0 with an ended flow; at 24: hosts 0
		// and 2, whose flows have all ended, and host 1; at 32: host 1; for 40: its end. The
		// decision due at 24 is executed at 32, one interval late.
		{"intervals", policies.Triggers{Coflows: true, Every: 8 * ms}, nil, Stats{Intervals: 4, Decisions: 3, Flushes: 1, Told: 3, Updates: 3 + 3 + 3 + 1 + 1, Late: 1}},
		{"only ends", policies.Triggers{Coflows: true, Every: 8 * ms}, func(v *policies.CoflowView, s *policies.Schedule) { s.Watch = make([]int64, len(v.Coflows)) },
			Stats{Intervals: 4, Decisions: 1, Flushes: 1, Told: 3, Updates: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{triggers: tt.triggers, say: tt.say}
			e := newEngine(t, testConfig(t, r, nil))
			step(t, e, at(1), flows)
			if tt.triggers.Every > 0 {
				step(t, e, at(8))
			}
			step(t, e, at(9), TransferFinished{0})
			if tt.triggers.Every > 0 {
				step(t, e, at(16))
			}
			step(t, e, at(17), TransferFinished{1}) // two ends of different hosts in one interval
			step(t, e, at(18), TransferFinished{3})
			if tt.triggers.Every > 0 {
				step(t, e, at(32))
			}
			step(t, e, at(39), TransferFinished{2})
			if d := cmp.Diff(tt.want, e.Stats()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The View of coflows is consistent with their flows after any sequence of events.
func TestViewFollowsFromFlows(t *testing.T) {
	f := testConfig(t, always(free), nil).Fabric
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 1))
		type end struct{ finished, failed bool }
		ends := map[workloads.FlowID]end{}
		sent := map[workloads.FlowID]units.Bytes{}
		coflows := map[workloads.CoflowID][]workloads.Flow{}
		pilot := map[workloads.FlowID]bool{}
		checked := 0
		p := scheduler{needs: policies.Sizes | policies.MostSent | policies.Flows | policies.Links, triggers: policies.Triggers{Coflows: true, Flows: true}}
		p.f = func(v *policies.CoflowView, s *policies.Schedule) {
			for _, c := range v.Coflows {
				checked++
				var want policies.CoflowState
				links := make([]policies.LinkState, len(v.Capacity))
				var over []units.Bytes
				shown := 0
				for _, fl := range coflows[c.ID] {
					want.Width++
					want.Size += fl.Size
					want.Largest = max(want.Largest, fl.Size)
					want.Sent += sent[fl.ID]
					want.MostSent = max(want.MostSent, sent[fl.ID])
					for _, l := range f.Path(fl.Src, fl.Dst, 0) {
						links[l].Begun = links[l].Begun || sent[fl.ID] > 0
					}
					if pilot[fl.ID] {
						want.Pilots++
					}
					if x := ends[fl.ID]; x.finished || x.failed {
						if x.finished {
							over = append(over, fl.Size)
						}
						if pilot[fl.ID] {
							want.PilotSent += sent[fl.ID]
						}
						continue
					}
					if pilot[fl.ID] {
						want.PilotsLeft++
					}
					want.Left++
					left := max(fl.Size-sent[fl.ID], 1)
					want.Remaining += left
					if got := c.Flows[shown]; got.ID != fl.ID || got.Sent != sent[fl.ID] || got.Remaining != left || got.Size != fl.Size || got.Pilot != pilot[fl.ID] {
						t.Errorf("flow %d: %+v", fl.ID, got)
					}
					shown++
					for _, l := range f.Path(fl.Src, fl.Dst, 0) {
						links[l].Link = l
						links[l].Flows++
						links[l].Remaining += left
						if pilot[fl.ID] {
							links[l].Pilots++
						}
					}
				}
				slices.Sort(over)
				if want.Finished = len(over); len(over) > 0 {
					want.Median = over[(len(over)-1)/2]
				}
				want.Links = slices.DeleteFunc(links, func(l policies.LinkState) bool { return l.Flows == 0 })
				want.ID, want.Arrival, want.Since, want.Senders, want.Receivers, want.Bound, want.Flows = c.ID, c.Arrival, c.Since, c.Senders, c.Receivers, c.Bound, c.Flows
				if d := cmp.Diff(want, c); d != "" {
					t.Errorf("coflow %d (-want +got):\n%s", c.ID, d)
				}
			}
			free(v, s)
			for _, c := range v.Coflows {
				if fl := c.Flows[random.IntN(len(c.Flows))]; random.IntN(3) == 0 && !fl.Pilot {
					s.Pilots = append(s.Pilots, fl.ID)
					pilot[fl.ID] = true
				}
			}
		}
		e := must(New(Config{Fabric: f, Coflow: p, Heartbeat: time.Second, Alpha: 0.2, Seed: 1}))
		next := workloads.FlowID(0)
		for now := range 40 {
			var evs []Event
			if random.IntN(4) == 0 {
				c := workloads.Coflow{ID: workloads.CoflowID(now)}
				for range 1 + random.IntN(6) {
					src := topo.HostID(random.IntN(4))
					c.Flows = append(c.Flows, workloads.Flow{ID: next, Src: src, Dst: (src + topo.HostID(1+random.IntN(3))) % 4, Size: units.Bytes(1 + random.IntN(1000))})
					next++
				}
				coflows[c.ID] = slices.Clone(c.Flows)
				evs = append(evs, CoflowArrived{Coflow: c})
			}
			for id := range next {
				at := e.coflows.byFlow[id]
				if at == nil {
					continue
				}
				switch random.IntN(8) {
				case 0:
					evs = append(evs, TransferFinished{id})
					ends[id], sent[id] = end{finished: true}, at.Size
				case 1:
					evs = append(evs, TransferFailed{id, "reset"})
					ends[id] = end{failed: true}
				case 2:
					n := at.sent + units.Bytes(random.Int64N(int64(at.Size-at.sent)+1))
					evs = append(evs, TransferProgressed{[]workloads.FlowID{id}, []units.Bytes{n}})
					sent[id] = n
				}
			}
			must(e.Step(time.Duration(now)*ms, evs...))
		}
		if checked == 0 && len(coflows) > 0 {
			t.Errorf("%d coflows came and none was shown", len(coflows))
		}
	})
}

// slowly is a backend on which every flow sends at its rate cap, and which reports at the
// requested wake times.
type slowly struct {
	now   time.Duration
	flows map[workloads.FlowID]*slowFlow
}

type slowFlow struct {
	size, sent float64
	told       units.Bytes
	ceiling    units.Rate
}

func (b *slowly) Do(_ context.Context, cmds []Command) error {
	for _, c := range cmds {
		switch c := c.(type) {
		case StartTransfer:
			b.flows[c.Flow.ID] = &slowFlow{size: float64(c.Flow.Size), ceiling: c.Ceiling}
		case SetCeiling:
			b.flows[c.Flow].ceiling = c.Ceiling
		}
	}
	return nil
}

func (b *slowly) Await(ctx context.Context, wake time.Duration) (time.Duration, []Event, error) {
	if err := ctx.Err(); err != nil {
		return b.now, nil, err
	}
	next := wake
	for _, f := range b.flows {
		if f.ceiling > 0 {
			next = min(next, b.now+1+time.Duration((f.size-f.sent)*8e9/float64(f.ceiling)))
		}
	}
	if next == NextNever {
		return b.now, nil, fmt.Errorf("nothing moves at %v", b.now)
	}
	past := max(next-b.now, 0)
	b.now += past
	var p TransferProgressed
	var evs []Event
	for id := range workloads.FlowID(1000) {
		f := b.flows[id]
		if f == nil {
			continue
		}
		f.sent += float64(f.ceiling) * past.Seconds() / 8
		if f.sent >= f.size {
			delete(b.flows, id)
			evs = append(evs, TransferFinished{id})
		} else if n := units.Bytes(f.sent); n > f.told {
			f.told = n
			p.Flows, p.Received = append(p.Flows, id), append(p.Received, n)
		}
	}
	if len(p.Flows) > 0 {
		evs = append([]Event{p}, evs...)
	}
	return b.now, evs, nil
}

// demoting is a small Aalo with two queues by bytes sent.
var demoting = scheduler{needs: visible, triggers: policies.Triggers{Coflows: true, Flows: true, Every: 8 * ms}, f: func(v *policies.CoflowView, s *policies.Schedule) {
	const threshold = 3000
	for q := range 2 {
		for i, c := range v.Coflows {
			if c.Sent > threshold == (q == 1) {
				s.Steps = append(s.Steps, policies.Step{Rule: policies.MaxMin, Coflows: append(s.Ints(1)[:0], i)})
			}
		}
	}
	for _, c := range v.Coflows {
		if c.Sent > threshold {
			s.Queues, s.Watch = append(s.Queues, 1), append(s.Watch, 0)
		} else {
			s.Queues, s.Watch = append(s.Queues, 0), append(s.Watch, threshold)
		}
	}
}}

// A run with intervals, wake times and delayed rate caps replays from its log, including
// steps without events. Intervals that Watch skips do not change the run.
func TestIntervalsReplay(t *testing.T) {
	w := workloads.Workload{}
	for i := range 6 {
		src := topo.HostID(i % 4)
		w.Coflows = append(w.Coflows, workloads.Coflow{ID: workloads.CoflowID(i), Arrival: time.Duration(i) * 1300 * time.Microsecond, Flows: []workloads.Flow{
			{ID: workloads.FlowID(2 * i), Src: src, Dst: (src + 1) % 4, Size: units.Bytes(2003*(i+1) + 7)}, {ID: workloads.FlowID(2*i + 1), Src: src, Dst: (src + 2) % 4, Size: 40009}}})
	}
	watched := func(s scheduler) policies.CoflowScheduler { return s }
	unwatched := func(s scheduler) policies.CoflowScheduler {
		f := s.f
		s.f = func(v *policies.CoflowView, out *policies.Schedule) {
			f(v, out)
			out.Watch = nil
		}
		return s
	}
	for _, latency := range []time.Duration{0, 3 * ms} {
		ends := map[string][]time.Duration{}
		decisions := map[string]int{}
		for name, as := range map[string]func(scheduler) policies.CoflowScheduler{"watched": watched, "unwatched": unwatched} {
			cfg := testConfig(t, as(demoting), nil)
			cfg.Control.Latency = latency
			e := newEngine(t, cfg)
			var buf bytes.Buffer
			log := NewLog(&buf)
			empty := 0
			observe := func(now time.Duration, evs []Event, cmds []Command) error {
				if len(evs) == 0 {
					empty++
				}
				for _, ev := range evs {
					if _, ok := ev.(TransferFinished); ok {
						ends[name] = append(ends[name], now)
					}
				}
				return log.Observe(now, evs, cmds)
			}
			check(t, Run(t.Context(), e, &slowly{flows: map[workloads.FlowID]*slowFlow{}}, Arrivals(w), observe))
			check(t, log.Flush())
			decisions[name] = e.Stats().Decisions
			again := newEngine(t, cfg)
			got, err := Replay(t.Context(), bytes.NewReader(buf.Bytes()), again)
			if err != nil || got.Differs != nil || got.Unfinished != "" || again.Stats() != e.Stats() {
				t.Errorf("%s, latency %v: replay %+v, %v, stats %+v and %+v", name, latency, got, err, again.Stats(), e.Stats())
			}
			if latency > 0 && empty == 0 {
				t.Errorf("%s, latency %v: no step without events", name, latency)
			}
		}
		if len(ends["watched"]) != 12 {
			t.Errorf("latency %v: %d flows ended, want 12", latency, len(ends["watched"]))
		}
		rounding := cmp.Comparer(func(x, y time.Duration) bool { return (x - y).Abs() < 100 })
		if d := cmp.Diff(ends["watched"], ends["unwatched"], rounding); d != "" {
			t.Errorf("latency %v: with what is watched another schedule (-watched +unwatched):\n%s", latency, d)
		}
		if decisions["watched"] >= decisions["unwatched"] {
			t.Errorf("latency %v: %d decisions with what is watched, %d without: want fewer", latency, decisions["watched"], decisions["unwatched"])
		}
	}
}

// After the first decisions, a decision allocates its commands and little else.
func BenchmarkDecision(b *testing.B) {
	for _, hosts := range []int{40, 150} {
		b.Run(fmt.Sprintf("hosts=%d/coflows=20/flows=8000", hosts), func(b *testing.B) {
			f := must(topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: ms}, MTU: 1500}.Build())
			e, err := New(Config{Fabric: f, Heartbeat: time.Second, Alpha: 0.2, Coflow: scheduler{triggers: policies.Triggers{Coflows: true, Every: ms}, f: func(v *policies.CoflowView, s *policies.Schedule) {
				order := s.Order(len(v.Coflows))
				if v.Now/ms%2 == 0 {
					slices.Reverse(order)
				}
				s.Steps = append(s.Steps, policies.Step{Rule: policies.Greedy, Coflows: order})
			}}})
			if err != nil {
				b.Fatal(err)
			}
			var evs []Event
			for c := range 20 {
				var flows []workloads.Flow
				for i := range 400 {
					src := topo.HostID((c + i/20) % hosts)
					flows = append(flows, workloads.Flow{ID: workloads.FlowID(c*400 + i), Src: src, Dst: (src + topo.HostID(1+i%20)) % topo.HostID(hosts), Size: 1e9})
				}
				evs = append(evs, coflowOf(workloads.CoflowID(c), flows...))
			}
			must(e.Step(0, evs...))
			now := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now += ms
				must(e.Step(now))
			}
		})
	}
}
