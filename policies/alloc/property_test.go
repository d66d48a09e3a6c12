package alloc

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/drawntest"
)

// A network of racks of hosts. Host h sends over link 2h and receives over 2h+1. The uplink
// of rack r is link 2*hosts+2r, its downlink the next. One rack is a switch.
type network struct{ racks, hosts int }

func (n network) links() int { return 2*n.racks*n.hosts + 2*n.racks }

func (n network) path(src, dst int) []topo.LinkID {
	a, b := src/n.hosts, dst/n.hosts
	if a == b {
		return []topo.LinkID{topo.LinkID(2 * src), topo.LinkID(2*dst + 1)}
	}
	core := 2 * n.racks * n.hosts
	return []topo.LinkID{topo.LinkID(2 * src), topo.LinkID(core + 2*a), topo.LinkID(core + 2*b + 1), topo.LinkID(2*dst + 1)}
}

// instance is one input of Share, from which demands can be created repeatedly.
type instance struct {
	net      network
	capacity []float64
	coflows  [][]Flow
	ended    [][]bool
	pilots   [][]bool
	later    map[*Flow]int // flows that became pilot flows after the others: their position
	sch      policies.Schedule
	ceilings bool // of flows of rule Free
}

var rules = []policies.Rule{policies.Free, policies.MaxMin, policies.EqualSplit, policies.Greedy, policies.MADD, policies.SlowestRate, policies.ExclusivePorts, policies.Proportional}

func drawInstance(t *rapid.T, rules []policies.Rule) *instance {
	in := &instance{net: network{rapid.IntRange(1, 3).Draw(t, "racks"), rapid.IntRange(2, 5).Draw(t, "hosts")}}
	hosts := in.net.racks * in.net.hosts
	// The minimum is a small fraction of the maximum, but more than 1e-9.
	capacities := []float64{0, 1e4, 1e9, 1e9, 1e9, 2.5e9, 4e11}
	if rapid.Bool().Draw(t, "alike") {
		capacities = []float64{1e9}
	}
	for l := range in.net.links() {
		in.capacity = append(in.capacity, rapid.SampledFrom(capacities).Draw(t, fmt.Sprint("capacity ", l)))
	}
	sizes := []units.Bytes{1, 2, 1000, 1 << 20, 1 << 20, 1 << 50, math.MaxInt64}
	id := workloads.FlowID(0)
	for range rapid.IntRange(1, 5).Draw(t, "coflows") {
		var flows []Flow
		var pairs []int
		if rapid.Bool().Draw(t, "full") {
			from, to := rapid.IntRange(1, hosts).Draw(t, "senders"), rapid.IntRange(1, hosts).Draw(t, "receivers")
			for s := range from {
				for d := range to {
					pairs = append(pairs, s*hosts+d)
				}
			}
		} else {
			pairs = rapid.SliceOfNDistinct(rapid.IntRange(0, hosts*hosts-1), 1, 12, rapid.ID[int]).Draw(t, "pairs")
			if rapid.Bool().Draw(t, "in order") {
				slices.Sort(pairs)
			}
		}
		var ended, pilot []bool
		for _, p := range pairs {
			id += workloads.FlowID(rapid.IntRange(1, 2).Draw(t, "gap"))
			flows = append(flows, Flow{ID: id, Size: rapid.SampledFrom(sizes).Draw(t, "size"), Links: in.net.path(p/hosts, p%hosts)})
			ended = append(ended, rapid.IntRange(0, 3).Draw(t, "ended") == 0)
			pilot = append(pilot, rapid.IntRange(0, 3).Draw(t, "pilot") == 0)
		}
		if !slices.Contains(ended, false) {
			ended[0] = false
		}
		in.coflows, in.ended, in.pilots = append(in.coflows, flows), append(in.ended, ended), append(in.pilots, pilot)
	}
	in.drawSteps(t, rules)
	return in
}

// drawSteps draws a schedule for the coflows.
func (in *instance) drawSteps(t *rapid.T, rules []policies.Rule) {
	in.sch.Reset()
	in.sch.Budgets = rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1e-3, .1, .5, 1}), 0, 2).Draw(t, "budgets")
	for range rapid.IntRange(1, 5).Draw(t, "steps") {
		st := policies.Step{
			Rule:    rapid.SampledFrom(rules).Draw(t, "rule"),
			Coflows: rapid.Permutation(in.sch.Order(len(in.coflows))).Draw(t, "order"),
			Part:    policies.Part(rapid.IntRange(0, 3).Draw(t, "part")),
			Only:    policies.Only(rapid.IntRange(0, 2).Draw(t, "only")),
		}
		st.Coflows = st.Coflows[:rapid.IntRange(0, len(st.Coflows)).Draw(t, "of them")]
		if st.Rule != policies.Free {
			st.Budget = rapid.IntRange(0, len(in.sch.Budgets)).Draw(t, "budget")
		}
		if st.Rule == policies.MADD {
			st.Within = rapid.SampledFrom([]time.Duration{0, 0, time.Nanosecond, time.Millisecond, time.Hour}).Draw(t, "within")
		}
		in.sch.Steps = append(in.sch.Steps, st)
	}
}

func (in *instance) demands(grids bool) []*Demand {
	var ds []*Demand
	for c, flows := range in.coflows {
		d := NewDemand(flows, in.net.links())
		if !grids {
			d.grid = nil
		}
		for i := range flows {
			if in.pilots[c][i] {
				d.MakePilot(i)
			}
			if in.ended[c][i] {
				d.End(i)
			}
		}
		ds = append(ds, d)
	}
	return ds
}

func (in *instance) reference() *Reference {
	s := &Reference{Capacity: in.capacity}
	for c, flows := range in.coflows {
		for i, f := range flows {
			if in.ended[c][i] {
				continue
			}
			rf := ReferenceFlow{Coflow: c, ID: f.ID, Links: f.Links, Left: 8 * float64(f.Size), Pilot: in.pilots[c][i], Turn: i}
			if turn, ok := in.later[&flows[i]]; ok {
				rf.Turn = len(flows) + turn
			}
			s.Flows = append(s.Flows, rf)
		}
	}
	return s
}

// bottleneck returns the minimum capacity of a path.
func (in *instance) bottleneck(f Flow) float64 {
	least := math.Inf(1)
	for _, l := range f.Links {
		least = min(least, in.capacity[l])
	}
	return least
}

func (in *instance) share(t *rapid.T, s *Allocator, ds []*Demand) {
	if err := s.Share(&in.sch, ds, in.capacity, policies.Sizes, in.ceilings); err != nil {
		t.Fatal(err)
	}
	in.check(t, ds)
}

// check tests properties of all rates: no link exceeds its capacity, ended flows have no
// rate, and Moving contains exactly the flows with a rate.
func (in *instance) check(t *rapid.T, ds []*Demand) {
	load := make([]float64, len(in.capacity))
	for c, d := range ds {
		d.Moving()
		var moving []int32
		for i, r := range d.Rates() {
			if !(r >= 0) || in.ended[c][i] && r != 0 {
				t.Fatalf("coflow %d: flow at %d has a rate of %v, ended %v", c, i, r, in.ended[c][i])
			}
			if r > 0 {
				moving = append(moving, int32(i))
			}
			if math.IsInf(r, 1) && in.ceilings {
				continue // the flow has no rate cap
			}
			for _, l := range d.Path(i) {
				load[l] += r
			}
		}
		if !slices.Equal(moving, d.Moving()) {
			t.Fatalf("coflow %d: moving %v, want %v", c, d.Moving(), moving)
		}
	}
	for l, c := range in.capacity {
		if load[l] > c*(1+1e-12) {
			t.Fatalf("link %d carries %v of %v bit/s", l, load[l], c)
		}
	}
}

// compare compares rates with the reference, and with demands without grids.
func (in *instance) compare(t *rapid.T, with, without []*Demand) {
	want := in.reference()
	want.Share(&in.sch)
	for _, f := range want.Flows {
		d := with[f.Coflow]
		place := d.Place(f.ID)
		if got := d.Rates()[place]; math.Abs(got-f.Rate) > 1e-7*in.bottleneck(in.coflows[f.Coflow][place]) {
			t.Fatalf("flow %d of coflow %d has %v bit/s, want %v", f.ID, f.Coflow, got, f.Rate)
		}
	}
	for c := range with {
		for i, r := range with[c].Rates() {
			if p := without[c].Rates()[i]; math.Abs(r-p) > 1e-12*in.bottleneck(in.coflows[c][i]) {
				t.Fatalf("flow at %d of coflow %d has %v bit/s with a grid, %v without", i, c, r, p)
			}
		}
	}
}

// Rates equal those of the reference, with and without grids.
func TestSameAsReference(t *testing.T) {
	var grid, plain Allocator // reused: they must keep no state between draws
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, rules)
		with, without := in.demands(true), in.demands(false)
		in.share(t, &grid, with)
		in.share(t, &plain, without)
		in.compare(t, with, without)
	})
}

// The same after changes of demands since the last decision: flows end, send in part, become
// pilot flows, and change to paths of other lengths.
func TestSameAsReferenceLater(t *testing.T) {
	var grid, plain Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, rules)
		in.later = map[*Flow]int{}
		with, without := in.demands(true), in.demands(false)
		in.share(t, &grid, with)
		in.share(t, &plain, without)
		for c, d := range with {
			both := []*Demand{d, without[c]}
			for i := range in.coflows[c] {
				f := &in.coflows[c][i]
				switch rapid.IntRange(0, 7).Draw(t, "happens") {
				case 0:
					if d.Unfinished() > 1 {
						in.ended[c][i] = true
						both[0].End(i)
						both[1].End(i)
					}
				case 1:
					f.Size = max(f.Size/2, 1)
					both[0].SetLeft(i, 8*float64(f.Size))
					both[1].SetLeft(i, 8*float64(f.Size))
				case 2:
					if !in.pilots[c][i] {
						in.later[f] = len(in.later)
					}
					in.pilots[c][i] = true
					both[0].MakePilot(i)
					both[1].MakePilot(i)
				case 3, 4:
					ends := f.Links
					all := rapid.Permutation(links(in.net.links())).Draw(t, "links")
					all = slices.DeleteFunc(all, func(l topo.LinkID) bool { return l == ends[0] || l == ends[len(ends)-1] })
					inside := all[:rapid.IntRange(0, 3).Draw(t, "inside")]
					f.Links = slices.Concat(ends[:1], inside, ends[len(ends)-1:])
					both[0].SetPath(i, f.Links)
					both[1].SetPath(i, f.Links)
				}
			}
			without[c].grid = nil // new paths may have created one
		}
		in.share(t, &grid, with)
		in.share(t, &plain, without)
		in.compare(t, with, without)
	})
}

// sameAsNew compares the rates of demands that have records of earlier decisions with those
// of new demands.
func (in *instance) sameAsNew(t *rapid.T, old, fresh *Allocator, ds []*Demand) {
	in.share(t, old, ds)
	again := in.demands(true)
	in.share(t, fresh, again)
	for c, d := range ds {
		if diff := cmp.Diff(again[c].Rates(), d.Rates()); diff != "" {
			t.Fatalf("coflow %d (-new +old):\n%s", c, diff)
		}
	}
}

// Records of earlier decisions do not change rates: after each of several decisions, between
// which flows end or become pilot flows and capacities change, rates equal those of new
// demands.
func TestSameAsNew(t *testing.T) {
	var old, fresh Allocator
	rapid.Check(t, func(t *rapid.T) {
		minSideCounts := []policies.Rule{policies.Greedy, policies.Greedy, policies.Greedy, policies.SlowestRate, policies.EqualSplit, policies.ExclusivePorts}
		ceilings := rapid.Bool().Draw(t, "ceilings")
		if ceilings {
			minSideCounts = append(minSideCounts, policies.Free, policies.Free)
		}
		in := drawInstance(t, minSideCounts)
		in.ceilings = ceilings
		ds := in.demands(true)
		for range rapid.IntRange(2, 8).Draw(t, "decisions") {
			in.sameAsNew(t, &old, &fresh, ds)
			for c, d := range ds {
				for range rapid.IntRange(0, 3).Draw(t, "changes") {
					i := rapid.IntRange(0, len(in.coflows[c])-1).Draw(t, "flow")
					if rapid.Bool().Draw(t, "ends") && d.Unfinished() > 1 {
						in.ended[c][i] = true
						d.End(i)
					} else if !in.ended[c][i] {
						in.pilots[c][i] = true
						d.MakePilot(i)
						slices.Sort(d.chosen) // in the order of a new demand
					}
				}
			}
			if rapid.Bool().Draw(t, "other steps") {
				in.drawSteps(t, minSideCounts)
			}
			if rapid.IntRange(0, 3).Draw(t, "other capacities") == 0 {
				l := rapid.IntRange(0, len(in.capacity)-1).Draw(t, "link")
				in.capacity[l] = rapid.SampledFrom([]float64{0, 1, 1e9, 4e11}).Draw(t, "capacity")
			}
		}
	})
}

// drawWide draws coflows on a switch in which every host sends to every other, with some pairs
// of hosts missing.
func drawWide(t *rapid.T, hosts, coflows int, there func(pair int) bool) *instance {
	in := &instance{net: network{1, hosts}}
	for range in.net.links() {
		in.capacity = append(in.capacity, rapid.SampledFrom([]float64{1e9, 2e9, 3e9}).Draw(t, "capacity"))
	}
	for c := range coflows {
		var flows []Flow
		for p := range hosts * hosts {
			if there(p) {
				flows = append(flows, Flow{ID: workloads.FlowID(c*hosts*hosts + p), Size: 1 << 20, Links: in.net.path(p/hosts, p%hosts)})
			}
		}
		in.coflows = append(in.coflows, flows)
		in.ended, in.pilots = append(in.ended, make([]bool, len(flows))), append(in.pilots, make([]bool, len(flows)))
	}
	return in
}

// The same for wide coflows on one switch, served by Greedy steps in some order, with and
// without budgets: residual capacities increase and decrease between decisions.
func TestSameAsNewWide(t *testing.T) {
	var old, fresh Allocator
	rapid.Check(t, func(t *rapid.T) {
		const hosts, coflows = 5, 3
		in := drawWide(t, hosts, coflows, func(p int) bool { return rapid.IntRange(0, 4).Draw(t, "there") > 0 || p == 0 })
		ds := in.demands(true)
		for range rapid.IntRange(4, 12).Draw(t, "decisions") {
			in.sch.Reset()
			in.sch.Budgets = []float64{rapid.SampledFrom([]float64{.25, .5}).Draw(t, "budget")}
			order := rapid.Permutation(in.sch.Order(coflows)).Draw(t, "order")
			in.sch.Steps = []policies.Step{
				{Rule: policies.Greedy, Coflows: order[:rapid.IntRange(0, coflows).Draw(t, "bound")], Budget: 1},
				{Rule: policies.Greedy, Coflows: order},
			}
			in.sameAsNew(t, &old, &fresh, ds)
			c := rapid.IntRange(0, coflows-1).Draw(t, "coflow")
			if i := rapid.IntRange(0, len(in.coflows[c])-1).Draw(t, "flow"); ds[c].Unfinished() > 1 {
				in.ended[c][i] = true
				ds[c].End(i)
			}
		}
	})
}

// The same for max-min rates of coflows in which every host sends to every other, whose flows
// end one by one and host by host: a cached missing peer may have no flows left.
func TestSameAsNewMaxMin(t *testing.T) {
	var old, fresh Allocator
	rapid.Check(t, func(t *rapid.T) {
		const hosts, coflows = 4, 2
		in := drawWide(t, hosts, coflows, func(int) bool { return true })
		in.sch.Steps = []policies.Step{{Rule: policies.MaxMin, Coflows: in.sch.Order(coflows)}}
		ds := in.demands(true)
		for range rapid.IntRange(8, 40).Draw(t, "decisions") {
			in.sameAsNew(t, &old, &fresh, ds)
			c, host := rapid.IntRange(0, coflows-1).Draw(t, "coflow"), rapid.IntRange(0, hosts-1).Draw(t, "host")
			one := rapid.IntRange(-3, hosts-1).Draw(t, "of flows only")
			sends := rapid.Bool().Draw(t, "sends")
			for i := range in.coflows[c] {
				src, dst := i/hosts, i%hosts
				if !sends {
					src, dst = dst, src
				}
				if src == host && (one < 0 || dst == one) && !in.ended[c][i] && ds[c].Unfinished() > 1 {
					in.ended[c][i] = true
					ds[c].End(i)
				}
			}
		}
	})
}

func links(n int) []topo.LinkID {
	var out []topo.LinkID
	for l := range n {
		out = append(out, topo.LinkID(l))
	}
	return out
}

// After Greedy for all coflows, no flow could have a higher rate.
func TestGreedyLeavesNothing(t *testing.T) {
	var s Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, rules)
		in.sch.Steps = slices.DeleteFunc(in.sch.Steps, func(st policies.Step) bool { return st.Rule == policies.Free })
		in.sch.Steps = append(in.sch.Steps, policies.Step{Rule: policies.Greedy, Coflows: in.sch.Order(len(in.coflows))})
		ds := in.demands(true)
		in.share(t, &s, ds)
		left := slices.Clone(in.capacity)
		for _, d := range ds {
			for i, r := range d.Rates() {
				for _, l := range d.Path(i) {
					left[l] -= r
				}
			}
		}
		for c, d := range ds {
			for i := range d.Rates() {
				if d.Ended(i) {
					continue
				}
				if !slices.ContainsFunc(d.Path(i), func(l topo.LinkID) bool { return left[l] <= 2e-9*in.capacity[l] }) {
					t.Fatalf("flow at %d of coflow %d could have a higher rate", i, c)
				}
			}
		}
	})
}

// Rules that do not depend on the order of flows give the same rates after renumbering hosts
// and the flows of a coflow.
func TestRelabelling(t *testing.T) {
	var s Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, []policies.Rule{policies.Free, policies.MaxMin, policies.EqualSplit, policies.MADD, policies.SlowestRate})
		ds := in.demands(true)
		in.share(t, &s, ds)

		links := make([]int, len(in.capacity))
		for l := range links {
			links[l] = l
		}
		links = rapid.Permutation(links).Draw(t, "links")
		other := *in
		other.capacity = make([]float64, len(in.capacity))
		for l, to := range links {
			other.capacity[to] = in.capacity[l]
		}
		other.coflows, other.ended, other.pilots = nil, nil, nil
		for c, flows := range in.coflows {
			var renamed []Flow
			for i := len(flows) - 1; i >= 0; i-- {
				f := Flow{ID: -flows[i].ID, Size: flows[i].Size}
				for _, l := range flows[i].Links {
					f.Links = append(f.Links, topo.LinkID(links[l]))
				}
				renamed = append(renamed, f)
			}
			ended, pilot := slices.Clone(in.ended[c]), slices.Clone(in.pilots[c])
			slices.Reverse(ended)
			slices.Reverse(pilot)
			other.coflows, other.ended, other.pilots = append(other.coflows, renamed), append(other.ended, ended), append(other.pilots, pilot)
		}
		renamed := other.demands(true)
		other.share(t, &s, renamed)
		for c, d := range ds {
			for i, r := range d.Rates() {
				if o := renamed[c].Rates()[d.Flows()-1-i]; math.Abs(o-r) > 1e-7*in.bottleneck(in.coflows[c][i]) {
					t.Fatalf("flow at %d of coflow %d has %v bit/s, relabelled %v", i, c, r, o)
				}
			}
		}
	})
}

// With only MADD, all flows of a coflow end together; with only SlowestRate, they have one rate. Both
// fill a link.
func TestTogether(t *testing.T) {
	var s Allocator
	cases, moving := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, rules)
		rule := rapid.SampledFrom([]policies.Rule{policies.MADD, policies.SlowestRate}).Draw(t, "together")
		in.sch.Steps = []policies.Step{{Rule: rule, Coflows: []int{0}}}
		ds := in.demands(true)
		in.share(t, &s, ds)
		d := ds[0]
		load := make([]float64, len(in.capacity))
		var rate, takes float64
		down := false
		for i, r := range d.Rates() {
			if d.Ended(i) {
				continue
			}
			rate, takes = r, d.Left[i]/r
			for _, l := range d.Path(i) {
				load[l] += r
				down = down || in.capacity[l] == 0
			}
		}
		if down != (len(d.Moving()) == 0) {
			t.Fatalf("%d flows have a rate, a link is down: %v", len(d.Moving()), down)
		}
		cases++
		if down {
			return
		}
		moving++
		fills := false
		for l := range load {
			fills = fills || load[l] >= in.capacity[l]*(1-1e-9) && load[l] > 0
		}
		if !fills {
			t.Fatal("no link is full")
		}
		for _, i := range d.Moving() {
			if rule == policies.SlowestRate && d.Rates()[i] != rate || rule == policies.MADD && math.Abs(d.Left[i]/d.Rates()[i]-takes) > 1e-12*takes {
				t.Fatalf("flow at %d has %v of %v bit/s, another takes %v s or has %v bit/s", i, d.Rates()[i], d.Left[i], takes, rate)
			}
		}
	})
	// 1,020 of 1,500 coflows had none.
	drawntest.AtLeast(t, "coflows without a link that is down", moving, cases, 0.6)
}
