package fluid

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// network is a set of classes and the capacities of their resources.
type network struct {
	capacity []float64
	classes  []*class
}

// share computes the rates of all classes.
func (n network) share() *sharing {
	var s sharing
	s.init(n.capacity)
	for i, c := range n.classes {
		c.listed = i
		s.list(c)
	}
	s.update(n.classes, nil)
	return &s
}

// fluids returns every fluid of the network for the slow model, and the class of each.
func (n network) fluids() (out []slowFluid, of []int) {
	for c, cl := range n.classes {
		times := map[int]float64{}
		for _, u := range cl.uses {
			times[int(u.resource)] += float64(u.times)
		}
		for range int(cl.fluids) {
			out, of = append(out, slowFluid{times, cl.ceiling}), append(of, c)
		}
	}
	return out, of
}

// networks generates up to 8 resources and 12 classes, with ceilings that often equal
// capacities and one another.
func networks() *rapid.Generator[network] {
	return rapid.Custom(func(t *rapid.T) network {
		var n network
		for range rapid.IntRange(1, 8).Draw(t, "resources") {
			n.capacity = append(n.capacity, float64(rapid.IntRange(1, 20).Draw(t, "capacity")))
		}
		for range rapid.IntRange(0, 12).Draw(t, "classes") {
			cl := &class{fluids: float64(rapid.IntRange(1, 4).Draw(t, "fluids")), ceiling: math.Inf(1), listed: -1}
			for r := range n.capacity {
				if times := rapid.IntRange(0, 3).Draw(t, "times"); times > 0 && rapid.Bool().Draw(t, "uses") {
					cl.uses = append(cl.uses, use{int32(r), int32(times)})
				}
			}
			if rapid.Bool().Draw(t, "limited") || len(cl.uses) == 0 {
				cl.ceiling = float64(rapid.IntRange(1, 20).Draw(t, "ceiling"))
			}
			n.classes = append(n.classes, cl)
		}
		return n
	})
}

const tolerance = 1e-9

func TestMaxMinAgreesWithSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks().Draw(t, "network")
		s := n.share()
		fluids, of := n.fluids()
		for i, want := range slowMaxMin(fluids, n.capacity) {
			if got := s.rateOf(n.classes[of[i]]); math.Abs(got-want) > tolerance*want {
				t.Fatalf("class %d: rate %v, want %v", of[i], got, want)
			}
		}
	})
}

// The invariants of a max-min fair allocation: no resource exceeds its capacity, and
// each fluid is at its ceiling or crosses a full resource on which no fluid has a higher
// rate.
func TestMaxMinInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks().Draw(t, "network")
		s := n.share()
		load := make([]float64, len(n.capacity))
		most := make([]float64, len(n.capacity))
		for _, cl := range n.classes {
			for _, u := range cl.uses {
				load[u.resource] += float64(u.times) * cl.fluids * s.rateOf(cl)
				most[u.resource] = max(most[u.resource], s.rateOf(cl))
			}
		}
		for r, l := range load {
			if l > n.capacity[r]*(1+tolerance) {
				t.Errorf("resource %d carries %v of %v", r, l, n.capacity[r])
			}
			if s.resources[r].watched && math.Abs(l-s.Load[r]) > tolerance*n.capacity[r] {
				t.Errorf("resource %d: stored load %v, want %v", r, s.Load[r], l)
			}
		}
		for c, cl := range n.classes {
			rate := s.rateOf(cl)
			if rate > cl.ceiling*(1+tolerance) {
				t.Errorf("class %d: rate %v over its ceiling %v", c, rate, cl.ceiling)
			}
			held := rate >= cl.ceiling*(1-tolerance)
			for _, u := range cl.uses {
				held = held || load[u.resource] >= n.capacity[u.resource]*(1-tolerance) && rate >= most[u.resource]*(1-tolerance)
			}
			if !held {
				t.Errorf("class %d: rate %v has no bottleneck", c, rate)
			}
		}
	})
}

func TestMaxMinRenumbered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := networks().Draw(t, "network")
		s := n.share()
		resources := rapid.Permutation(seq(len(n.capacity))).Draw(t, "new resources")
		order := rapid.Permutation(seq(len(n.classes))).Draw(t, "new classes")
		m := network{capacity: make([]float64, len(n.capacity))}
		for r, to := range resources {
			m.capacity[to] = n.capacity[r]
		}
		for _, c := range order {
			moved := class{fluids: n.classes[c].fluids, ceiling: n.classes[c].ceiling}
			for _, u := range n.classes[c].uses {
				moved.uses = append(moved.uses, use{int32(resources[u.resource]), u.times})
			}
			m.classes = append(m.classes, &moved)
		}
		renumbered := m.share()
		for i, c := range order {
			if a, b := s.rateOf(n.classes[c]), renumbered.rateOf(m.classes[i]); math.Abs(a-b) > tolerance*a {
				t.Errorf("class %d: rate %v, renumbered %v", c, a, b)
			}
		}
	})
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestMaxMinByHand(t *testing.T) {
	inf := math.Inf(1)
	on := func(ceiling float64, uses ...use) *class { return &class{uses: uses, fluids: 1, ceiling: ceiling} }
	for _, tt := range []struct {
		name     string
		capacity []float64
		classes  []*class
		want     []float64
	}{
		{"nothing", []float64{10}, nil, nil},
		{"alone", []float64{10}, []*class{on(inf, use{0, 1})}, []float64{10}},
		{"twice over a link", []float64{10}, []*class{on(inf, use{0, 2})}, []float64{5}},
		{"twice against once", []float64{12}, []*class{on(inf, use{0, 2}), on(inf, use{0, 1})}, []float64{4, 4}},
		{"a ceiling leaves room", []float64{10}, []*class{on(2, use{0, 1}), on(inf, use{0, 1})}, []float64{2, 8}},
		{"a ceiling above the share", []float64{10}, []*class{on(7, use{0, 1}), on(inf, use{0, 1})}, []float64{5, 5}},
		{"no resource, no ceiling", []float64{10}, []*class{on(inf), on(inf, use{0, 1})}, []float64{inf, 10}},
		{"no resource, ceiling", []float64{10}, []*class{on(3), on(inf, use{0, 1})}, []float64{3, 10}},
		// The example of Bertsekas and Gallager: a long flow over two links, one
		// short flow on the first link, two on the second.
		{"parking lot", []float64{10, 9}, []*class{on(inf, use{0, 1}, use{1, 1}), on(inf, use{0, 1}), on(inf, use{1, 1}), on(inf, use{1, 1})}, []float64{3, 7, 3, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := network{tt.capacity, tt.classes}.share()
			for i, cl := range tt.classes {
				if rate := s.rateOf(cl); rate != tt.want[i] {
					t.Errorf("class %d: rate %v, want %v", i, rate, tt.want[i])
				}
			}
		})
	}
}

// A class rises at most once in a round. Otherwise, two resources that rounding makes full at nearly
// the same rate could raise a class in turn, without end.
func TestRiseOnce(t *testing.T) {
	c := &class{fluids: 1, ceiling: math.Inf(1), uses: []use{{0, 1}}}
	s := network{[]float64{10}, []*class{c}}.share()
	if s.loosen(c); c.rising || s.rateOf(c) != 10 {
		t.Errorf("the class rises again after it got %v", s.rateOf(c))
	}
}

// BenchmarkRates computes the rates of 10,000 flows between 300 hosts, each in a class
// of its own.
func BenchmarkRates(b *testing.B) {
	for _, kind := range []string{"free", "limited", "mixed"} {
		b.Run(fmt.Sprintf("ceilings=%s/flows=10000", kind), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			capacity := make([]float64, 600+40)
			for r := range capacity {
				capacity[r] = 1e9
			}
			classes := make([]*class, 10000)
			for i := range classes {
				src, dst := rng.IntN(300), rng.IntN(300)
				classes[i] = &class{fluids: 1, ceiling: math.Inf(1), uses: []use{
					{int32(2 * src), 1}, {int32(600 + src/15*2), 1}, {int32(601 + dst/15*2), 1}, {int32(2*dst + 1), 1}}}
				if kind == "limited" || kind == "mixed" && i%2 == 0 {
					classes[i].ceiling = 1e5 + float64(rng.IntN(5e6))
				}
			}
			s := network{capacity, classes}.share()
			b.ReportAllocs()
			for b.Loop() {
				s.update(classes, nil)
			}
		})
	}
}
