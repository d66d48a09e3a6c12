package alloc

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestDemandKnowsItsFlows(t *testing.T) {
	for _, ids := range [][]workloads.FlowID{{5}, {5, 6, 7}, {2, 3, 9, 40}} {
		var flows []Flow
		for i, id := range ids {
			flows = append(flows, Flow{ID: id, Size: 1, Links: link(0, i)})
		}
		d := NewDemand(flows, 8)
		for i, id := range ids {
			if d.ID(i) != id || d.Place(id) != i || !slices.Equal(d.Path(i), link(0, i)) {
				t.Errorf("%v: at %d ID %d, place %d of it, path %v", ids, i, d.ID(i), d.Place(id), d.Path(i))
			}
		}
		for _, id := range []workloads.FlowID{0, 4, 8, 41, math.MaxInt, math.MinInt} {
			if p := d.Place(id); p != -1 {
				t.Errorf("%v: flow %d is at %d, want -1", ids, id, p)
			}
		}
	}
}

func TestDemandErrors(t *testing.T) {
	good := Flow{ID: 3, Size: 1, Links: link(0, 1)}
	for name, flows := range map[string][]Flow{
		"order": {good, {ID: 2, Size: 1, Links: link(0, 1)}},
		"twice": {good, good},
		"size":  {{ID: 1, Links: link(0, 1)}},
		"link":  {good, {ID: 4, Size: 1, Links: []topo.LinkID{0, 8}}},
		"below": {{ID: 4, Size: 1, Links: []topo.LinkID{-1, 4}}, {ID: 5, Size: 1, Links: link(0, 1)}},
		"loop":  {{ID: 4, Size: 1, Links: []topo.LinkID{1, 4, 1}}},
		"none":  {good, {ID: 4, Size: 1}},
	} {
		d := NewDemand(flows, 8)
		var s Allocator
		if err := s.Share(&policies.Schedule{Steps: []policies.Step{all(policies.Greedy, 0)}}, []*Demand{d}, idle(8, 1), 0, false); err == nil || d.Rates()[0] != 0 {
			t.Errorf("%s: rates %v, want an error", name, d.Rates())
		}
	}
	d := NewDemand([]Flow{good}, 8)
	d.SetPath(0, []topo.LinkID{9})
	for _, capacity := range [][]float64{idle(8, 1), idle(7, 1), idle(8, -1), idle(8, math.NaN()), idle(8, math.Inf(1))} {
		var s Allocator
		if err := s.Share(&policies.Schedule{}, []*Demand{d}, capacity, 0, false); err == nil {
			t.Errorf("no error on capacities %v", capacity)
		}
		d = NewDemand([]Flow{good}, 8)
		capacity[0]++
	}
}

// Counts by link stay equal to a new count while flows send, end, become pilot flows and
// change paths.
func TestCountsStayCorrect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, []policies.Rule{policies.Greedy, policies.MADD, policies.EqualSplit, policies.MaxMin})
		for l := range in.capacity {
			in.capacity[l] = max(in.capacity[l], 1e4)
		}
		for c := range in.coflows {
			for i := range in.coflows[c] {
				in.coflows[c][i].Size = min(in.coflows[c][i].Size, 1<<30)
			}
		}
		ds := in.demands(true)
		var s, again Allocator
		for range rapid.IntRange(1, 30).Draw(t, "actions") {
			c := rapid.IntRange(0, len(ds)-1).Draw(t, "coflow")
			d := ds[c]
			place := rapid.IntRange(0, d.Flows()-1).Draw(t, "place")
			switch rapid.IntRange(0, 7).Draw(t, "action") {
			case 0:
				d.End(place)
				in.ended[c][place] = true
			case 1:
				d.MakePilot(place)
			case 2: // over a link that its demand may not cross yet
				p := slices.Clone(d.Path(place))
				extra := topo.LinkID(rapid.IntRange(0, len(in.capacity)-1).Draw(t, "extra"))
				if len(p) < 5 && !slices.Contains(p, extra) {
					d.SetPath(place, slices.Insert(p, 1, extra))
				}
			case 3:
				p := slices.Clone(d.Path(place))
				slices.Reverse(p)
				d.SetPath(place, p)
			case 4:
				d.SetLeft(place, d.Left[place]/2)
			case 5:
				in.share(t, &s, ds)
			case 6:
				d.Links(policies.Sizes)
			case 7:
				if soon := d.Soonest(); !math.IsInf(soon, 1) {
					before := slices.Clone(d.Left)
					d.Advance(soon)
					over := false
					for _, i := range d.Moving() {
						over = over || d.Left[i] <= 1e-9*before[i]
						if d.Left[i] < 0 || d.Left[i] > before[i] {
							t.Fatalf("flow at %d has %v left after %v", i, d.Left[i], before[i])
						}
					}
					if !over {
						t.Fatalf("no flow has ended after Soonest, %v s", soon)
					}
				}
			}
			checkLinks(t, d, in.coflows[c])
		}
		// A new demand with the remaining bits gets the same rates.
		in.share(t, &s, ds)
		var fresh []*Demand
		for _, d := range ds {
			var flows []Flow
			for i := range d.Left {
				flows = append(flows, Flow{ID: d.ID(i), Size: 1, Links: slices.Clone(d.Path(i))})
			}
			f := NewDemand(flows, len(in.capacity))
			f.grid = nil
			for _, i := range d.chosen { // in the order of part Chosen
				f.MakePilot(int(i))
			}
			for i, left := range d.Left {
				f.SetLeft(i, left)
				if d.Ended(i) {
					f.End(i)
				}
			}
			fresh = append(fresh, f)
		}
		in.share(t, &again, fresh)
		for c, d := range ds {
			for i, r := range d.Rates() {
				if f := fresh[c].Rates()[i]; math.Abs(r-f) > 1e-9*max(r, 1) {
					t.Fatalf("flow at %d of coflow %d has %v bit/s, %v in a new demand", i, c, r, f)
				}
			}
		}
	})
}

func checkLinks(t *rapid.T, d *Demand, flows []Flow) {
	var want []policies.LinkState
	bits := map[topo.LinkID]float64{}
	states := map[topo.LinkID]policies.LinkState{}
	unfinished, silent := 0, 0
	begun := map[topo.LinkID]bool{}
	for i, left := range d.Left {
		if left < 8*float64(flows[i].Size) && !d.Ended(i) {
			for _, l := range d.Path(i) {
				begun[l] = true
			}
		}
		if d.Ended(i) {
			continue
		}
		unfinished++
		if d.sent[i/64]>>(i%64)&1 == 0 {
			silent++
		}
		for _, l := range d.Path(i) {
			st := states[l]
			st.Link, st.Flows = l, st.Flows+1
			if d.Pilot(i) {
				st.Pilots++
			}
			bits[l] += d.Left[i]
			states[l] = st
		}
	}
	if d.Unfinished() != unfinished {
		t.Fatalf("%d unfinished, want %d", d.Unfinished(), unfinished)
	}
	if d.silent != silent {
		t.Fatalf("%d unfinished flows have delivered nothing, want %d", d.silent, silent)
	}
	for l := range topo.LinkID(d.none) {
		if st, ok := states[l]; ok {
			want = append(want, st)
		}
	}
	sizes, shown := d.sized, policies.Progress // sizes are maintained after the first use
	if sizes {
		shown = policies.Sizes
	}
	got := slices.Clone(d.Links(shown))
	for i := range got {
		if sizes {
			exact := max(bits[got[i].Link]/8, float64(got[i].Flows))
			if diff := float64(got[i].Remaining) - exact; diff < -1-1e-9*exact || diff > 1+1e-9*exact {
				t.Fatalf("link %d has %d remaining bytes, want %v", got[i].Link, got[i].Remaining, exact)
			}
		}
		if !got[i].Begun && begun[got[i].Link] {
			t.Fatalf("link %d has not begun although bytes were sent", got[i].Link)
		}
		got[i].Remaining, got[i].Begun = 0, false // a flow that has changed its path may have begun there
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("links, -want +got:\n%s", diff)
	}
}

func TestFreeWithCeilings(t *testing.T) {
	d := coflow(0, 8, []units.Bytes{100}, link(0, 1), link(0, 2))
	d.MakePilot(1)
	var s Allocator
	sch := &policies.Schedule{Steps: []policies.Step{{Rule: policies.Free, Coflows: []int{0}, Part: policies.Pilots}, {Rule: policies.Greedy, Coflows: []int{0}}}}
	if err := s.Share(sch, []*Demand{d}, idle(8, 120), 0, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{120, math.Inf(1)}, d.Rates()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	d.End(1)
	if diff := cmp.Diff([]int32{0}, d.Moving()); diff != "" {
		t.Errorf("moving, -want +got:\n%s", diff)
	}
}

// Decisions do not allocate after the first few.
func TestNoAllocation(t *testing.T) {
	for _, net := range []network{{1, 20}, {4, 5}} {
		ds := wide(net, 5, 15, 15)
		for i := range 5 {
			ds[i].MakePilot(3)
			if (ds[i].grid == nil) != (i == 4) {
				ds[i].grid = nil // a demand without a grid
			}
		}
		var s Allocator
		capacity := idle(net.links(), 1e9)
		sch := &policies.Schedule{Budgets: []float64{.4}}
		order := sch.Order(len(ds))
		for _, r := range rules {
			st := policies.Step{Rule: r, Coflows: order}
			if r != policies.Free {
				st.Budget = 1
			}
			sch.Steps = append(sch.Steps, st, policies.Step{Rule: r, Coflows: order, Part: policies.Others}, policies.Step{Rule: r, Coflows: order, Part: policies.Pilots, Only: policies.Skipped})
		}
		if n := testing.AllocsPerRun(50, func() {
			for i := 1; i <= len(sch.Steps); i++ {
				part := *sch
				part.Steps = sch.Steps[:i]
				if err := s.Share(&part, ds, capacity, policies.Sizes, false); err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					d.Advance(1e-6 * d.Soonest())
					d.Links(policies.Sizes)
					d.Moving()
				}
			}
		}); n != 0 {
			t.Errorf("%d racks: %v allocations per round, want 0", net.racks, n)
		}
	}
}

// Part Chosen serves the pilot flow chosen first, not the one with the lower ID, if there is
// capacity for one. Begun is set on links of flows that have sent or ended.
func TestChosenAndBegun(t *testing.T) {
	flows := []Flow{{ID: 1, Size: 100, Links: []topo.LinkID{0, 2}}, {ID: 2, Size: 100, Links: []topo.LinkID{1, 2}}, {ID: 3, Size: 100, Links: []topo.LinkID{1, 3}}, {ID: 4, Size: 100, Links: []topo.LinkID{4, 5}}}
	for _, tt := range []struct {
		part policies.Part
		rule policies.Rule
		want []float64
	}{
		{policies.Pilots, policies.ExclusivePorts, []float64{8, 0, 0, 0}},
		{policies.Chosen, policies.ExclusivePorts, []float64{0, 8, 0, 0}},
		{policies.Chosen, policies.Greedy, []float64{0, 8, 0, 0}},
		{policies.Chosen, policies.EqualSplit, []float64{4, 4, 0, 0}},
		{policies.All, policies.ExclusivePorts, []float64{8, 0, 8, 8}},
	} {
		d := NewDemand(flows, 6)
		d.MakePilot(1)
		d.MakePilot(0)
		var s Allocator
		sch := &policies.Schedule{Steps: []policies.Step{{Coflows: []int{0}, Part: tt.part, Rule: tt.rule}}}
		capacity := []float64{8, 8, 8, 8, 8, 8}
		if err := s.Share(sch, []*Demand{d}, capacity, 0, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, d.Rates()); diff != "" {
			t.Errorf("part %d, %v, -want +got:\n%s", tt.part, tt.rule, diff)
		}
		if tt.part != policies.Chosen || tt.rule != policies.ExclusivePorts {
			continue
		}
		begun := func() (links []topo.LinkID) {
			for _, l := range d.Links(policies.Progress) {
				if l.Begun {
					links = append(links, l.Link)
				}
			}
			return links
		}
		if got := begun(); got != nil {
			t.Errorf("begun at links %v before any flow has sent", got)
		}
		d.Advance(1)
		if diff := cmp.Diff([]topo.LinkID{1, 2}, begun()); diff != "" {
			t.Errorf("links at which a flow has begun, -want +got:\n%s", diff)
		}
		// The flow ends, and the other pilot flow is next.
		d.End(1)
		if err := s.Share(sch, []*Demand{d}, capacity, 0, false); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]float64{8, 0, 0, 0}, d.Rates()); diff != "" {
			t.Errorf("after the end of the first pilot, -want +got:\n%s", diff)
		}
		d.SetLeft(3, 799)
		if diff := cmp.Diff([]topo.LinkID{1, 2, 4, 5}, begun()); diff != "" {
			t.Errorf("links at which a flow has begun, by SetLeft, -want +got:\n%s", diff)
		}
	}
}
