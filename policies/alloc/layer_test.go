package alloc

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Rates are bitwise equal whether layers are written immediately, or after flows have ended,
// become pilot flows, sent in part or changed paths.
func TestWrittenLater(t *testing.T) {
	var one, other Allocator
	layers := 0
	property := func(t *rapid.T) {
		in := drawInstance(t, rules)
		now, later := in.demands(true), in.demands(true)
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			if err := one.Share(&in.sch, now, in.capacity, policies.Sizes, false); err != nil {
				t.Fatal(err)
			}
			if err := other.Share(&in.sch, later, in.capacity, policies.Sizes, false); err != nil {
				t.Fatal(err)
			}
			for _, d := range now {
				layers += len(d.layers)
				d.Moving()
			}
			for range rapid.IntRange(0, 20).Draw(t, "actions") {
				c := rapid.IntRange(0, len(now)-1).Draw(t, "coflow")
				place := rapid.IntRange(0, now[c].Flows()-1).Draw(t, "place")
				action := rapid.IntRange(0, 5).Draw(t, "action")
				for _, d := range []*Demand{now[c], later[c]} {
					switch action {
					case 0, 1:
						d.End(place)
					case 2:
						d.MakePilot(place)
					case 3:
						d.SetLeft(place, d.Left[place]/2)
					case 4:
						p := slices.Clone(d.Path(place))
						slices.Reverse(p)
						d.SetPath(place, p)
					case 5:
						d.Advance(1e-9)
					}
				}
			}
			for c, d := range now {
				if a, b := d.Soonest(), later[c].Soonest(); a != b {
					t.Fatalf("coflow %d: soonest %v, written at once %v", c, b, a)
				}
				if a, b := d.Moving(), later[c].Moving(); !slices.Equal(a, b) {
					t.Fatalf("coflow %d: moving %v, written at once %v", c, b, a)
				}
				if !slices.Equal(d.Rates(), later[c].Rates()) || !slices.Equal(d.Left, later[c].Left) {
					t.Fatalf("coflow %d: rates %v of %v, written at once %v of %v", c, later[c].Rates(), later[c].Left, d.Rates(), d.Left)
				}
			}
		}
	}
	// Few cases have layers: 2 of 60 sets of 100 cases had none. A set of -short has 20.
	for n := 0; n < 5 || layers == 0 && n < 50; n++ {
		rapid.Check(t, property)
	}
	if layers == 0 {
		t.Error("no layer was written later")
	}
}

// drawSorted computes the same used capacity as a sum over flows, for any ended flows and any
// shares.
func TestDrawSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		senders, receivers := rapid.IntRange(1, 90).Draw(t, "senders"), rapid.IntRange(1, 90).Draw(t, "receivers")
		var flows []Flow
		for s := range senders {
			for r := range receivers {
				flows = append(flows, Flow{ID: workloads.FlowID(len(flows)), Size: units.Bytes(1), Links: []topo.LinkID{topo.LinkID(s), topo.LinkID(senders + r)}})
			}
		}
		links := senders + receivers
		d := NewDemand(flows, links)
		if d.grid == nil {
			t.Fatal("no grid")
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ends := rapid.SampledFrom([]float64{0, .01, .2, .5, .99}).Draw(t, "ended")
		empty := rapid.SampledFrom([]float64{0, .2}).Draw(t, "senders that ended")
		for s := range senders {
			all := rng.Float64() < empty
			for r := range receivers {
				if all || rng.Float64() < ends {
					d.End(s*receivers + r)
				}
			}
		}
		gives := rapid.SliceOfNDistinct(rapid.SampledFrom([]float64{0, 1, 1, 3, 1e5, 7e8, 1e9}), 1, 4, rapid.ID[float64]).Draw(t, "gives")
		s := Allocator{used: make([]float64, links+1)}
		for range 3 { // the order of columns is reused
			share := make([]float64, links+1)
			for l := range links {
				share[l] = gives[rng.IntN(len(gives))] * (1 + float64(rng.IntN(3))*rng.Float64())
			}
			infinite := rng.IntN(3) // 0: no share is infinite; else some shares of one side are
			for l := range links {
				if infinite == 1 && l < senders && rng.IntN(4) == 0 || infinite == 2 && l >= senders && rng.IntN(4) == 0 {
					share[l] = math.Inf(1)
				}
			}
			share[links] = math.Inf(1)
			want, scale := make([]float64, links), make([]float64, links)
			for i := range flows {
				a, b := i/receivers, senders+i%receivers
				rate := min(share[a], share[b])
				scale[a] += rate
				scale[b] += rate
				if !d.Ended(i) {
					want[a] += rate
					want[b] += rate
				}
			}
			clear(s.used)
			s.draw(d, pilots|others, share, true)
			for l, w := range want {
				if got := s.used[l]; !(math.Abs(got-w) <= 1e-13*scale[l]) { // also rejects NaN
					t.Fatalf("link %d: used %v, want %v", l, got, w)
				}
			}
		}
	})
}

// square returns a coflow from each of n hosts to each of n others.
func square(n int) []Flow {
	var flows []Flow
	for i := range n * n {
		flows = append(flows, Flow{ID: workloads.FlowID(i), Size: units.Bytes(1 + i%7), Links: []topo.LinkID{topo.LinkID(i / n), topo.LinkID(n + i%n)}})
	}
	return flows
}

// A flow that becomes a pilot flow after a decision keeps its rate.
func TestPilotKeepsRate(t *testing.T) {
	d := NewDemand(square(5), 10)
	d.MakePilot(0)
	var s Allocator
	sch := &policies.Schedule{Steps: []policies.Step{{Rule: policies.EqualSplit, Coflows: []int{0}, Part: policies.Others}}}
	if err := s.Share(sch, []*Demand{d}, idle(10, 100), 0, false); err != nil {
		t.Fatal(err)
	}
	if len(d.layers) == 0 {
		t.Fatal("rates are written already")
	}
	d.MakePilot(7)
	d.Moving()
	if d.Rates()[0] != 0 || d.Rates()[7] != 20 {
		t.Errorf("the earlier pilot flow has %v, the new one %v, want 0 and 20", d.Rates()[0], d.Rates()[7])
	}
}

// Joint rates of MADD add to the rates of other rules.
func TestJointOverLayers(t *testing.T) {
	plain, joint := NewDemand(square(5), 10), NewDemand(square(5), 10)
	joint.Join()
	sch := &policies.Schedule{Budgets: []float64{.5}, Steps: []policies.Step{{Rule: policies.MADD, Coflows: []int{0}, Budget: 1}, {Rule: policies.EqualSplit, Coflows: []int{0}}}}
	for _, d := range []*Demand{plain, joint} {
		var s Allocator
		if err := s.Share(sch, []*Demand{d}, idle(10, 100), policies.Sizes, false); err != nil {
			t.Fatal(err)
		}
		d.Moving()
	}
	for i, r := range plain.Rates() {
		if got := joint.Rates()[i]; !(math.Abs(got-r) <= 1e-9) || r <= 10 {
			t.Errorf("flow at %d has %v, without Join %v: must be equal, and more than the half from MADD", i, got, r)
		}
	}
}

func TestBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SampledFrom([]float64{0, 5e-324, 1, 1, 2, 1e9, math.Nextafter(1e9, 2e9), math.MaxFloat64, math.Inf(1)})
		values, v := rapid.SliceOfN(some, 0, 20).Draw(t, "values"), some.Draw(t, "v")
		slices.Sort(values)
		want := 0
		for want < len(values) && values[want] < v {
			want++
		}
		for guess := range len(values) + 1 {
			if got := below(values, v, guess); got != want {
				t.Errorf("below(%v, %v, %d) = %d, want %d", values, v, guess, got, want)
			}
		}
	})
}
