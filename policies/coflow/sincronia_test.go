package coflow

import (
	"cmp"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestBSSI(t *testing.T) {
	// The two hosts of a rack share one uplink of half their rate.
	narrow := fabric(t, topo.LeafSpine{Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 4, Den: 1}})
	for _, tt := range []struct {
		name    string
		fabric  *topo.Fabric
		policy  Sincronia
		coflows [][]demandOf
		want    []workloads.CoflowID
	}{
		{"one", bigSwitch(t), Sincronia{}, [][]demandOf{{{0, 4, mb}}}, []workloads.CoflowID{1}},
		{"smaller first", bigSwitch(t), Sincronia{}, [][]demandOf{{{0, 4, 2 * mb}}, {{0, 5, mb}}}, []workloads.CoflowID{2, 1}},
		// Port 0 has 8 MB, port 1 has 7 MB. The first coflow has 5 MB on port 0: it goes
		// last, and the weight of the second decreases to 1-3/5. Then port 1 has the largest
		// demand, and 0.4/3 is less than 1/4: the second is next to last, although the third
		// is larger.
		{"weights", bigSwitch(t), Sincronia{}, [][]demandOf{{{0, 4, 5 * mb}}, {{0, 5, 3 * mb}, {1, 6, 3 * mb}}, {{1, 7, 4 * mb}}}, []workloads.CoflowID{3, 2, 1}},
		// The same with 1 MB of the first elsewhere: port 0 and port 1 do not change.
		{"other ports", bigSwitch(t), Sincronia{}, [][]demandOf{{{0, 4, 5 * mb}, {2, 5, mb}}, {{0, 5, 3 * mb}, {1, 6, 3 * mb}}, {{1, 7, 4 * mb}}}, []workloads.CoflowID{3, 2, 1}},
		{"ties", bigSwitch(t), Sincronia{}, [][]demandOf{{{0, 4, mb}}, {{0, 5, mb}}, {{0, 6, mb}}}, []workloads.CoflowID{1, 2, 3}},
		{"ties, earlier last", bigSwitch(t), Sincronia{EarlierLast: true}, [][]demandOf{{{0, 4, mb}}, {{0, 5, mb}}, {{0, 6, mb}}}, []workloads.CoflowID{3, 2, 1}},
		// Ports 0 and 1 have 5 MB each, and the tie goes to port 0.
		{"tied links", bigSwitch(t), Sincronia{}, [][]demandOf{{{1, 7, 4 * mb}}, {{0, 5, mb}, {1, 6, mb}}, {{0, 4, 4 * mb}}}, []workloads.CoflowID{2, 1, 3}},
		// The 500 Mbps uplink needs 24 ms for the first two coflows, port 4 needs 20 ms for
		// the last two. The first goes last, the weight of the second decreases to 1/2, and
		// 0.5/1 is less than 1/1.5.
		{"an uplink is the bottleneck", narrow, Sincronia{}, [][]demandOf{{{0, 2, mb}}, {{1, 3, 500 * kb}, {4, 5, 1000 * kb}}, {{4, 5, 1500 * kb}}}, []workloads.CoflowID{3, 2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := viewOf(tt.fabric, tt.coflows...).served(tt.policy); !slices.Equal(got, tt.want) {
				t.Errorf("order %v, want %v", got, tt.want)
			}
		})
	}
}

// slowBSSI is the paper's algorithm as written, in exact arithmetic, for links of equal
// capacity.
func slowBSSI(v *policies.CoflowView) []workloads.CoflowID {
	n := len(v.Coflows)
	demand := func(i, l int) *big.Rat {
		for _, x := range v.Coflows[i].Links {
			if int(x.Link) == l {
				return new(big.Rat).SetInt64(int64(x.Remaining))
			}
		}
		return new(big.Rat)
	}
	weight := make([]*big.Rat, n)
	var left []int
	for i := range n {
		weight[i] = big.NewRat(1, 1)
		left = append(left, i)
	}
	order := make([]workloads.CoflowID, n)
	for k := n - 1; k >= 0; k-- {
		b, most := -1, new(big.Rat)
		for l := range v.Capacity {
			sum := new(big.Rat)
			for _, i := range left {
				sum.Add(sum, demand(i, l))
			}
			if sum.Cmp(most) > 0 {
				b, most = l, sum
			}
		}
		of := func(i int) *big.Rat { return new(big.Rat).Quo(weight[i], demand(i, b)) }
		last := -1
		for _, i := range left {
			if demand(i, b).Sign() > 0 && (last < 0 || cmp.Or(of(i).Cmp(of(last)), -cmp.Compare(v.Coflows[i].ID, v.Coflows[last].ID)) < 0) {
				last = i
			}
		}
		order[k] = v.Coflows[last].ID
		left = slices.DeleteFunc(left, func(i int) bool { return i == last })
		for _, i := range left {
			fall := new(big.Rat).Mul(weight[last], demand(i, b))
			weight[i] = new(big.Rat).Sub(weight[i], fall.Quo(fall, demand(last, b)))
		}
	}
	return order
}

func TestBSSIAgreesWithThePaper(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: testHosts, HostLink: units.Gbps})
	rapid.Check(t, func(t *rapid.T) {
		w := viewOf(f, randomCoflows().Draw(t, "workload")...)
		if got, want := w.served(Sincronia{}), slowBSSI(w.CoflowView); !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	})
}

// Between arrivals and ends of coflows the order stays the same, even if the remaining
// bytes imply another one; after them it is recomputed.
func TestSincroniaKeepsItsOrder(t *testing.T) {
	w := viewOf(bigSwitch(t), []demandOf{{0, 4, 8 * mb}}, []demandOf{{0, 5, 5 * mb}}, []demandOf{{1, 6, mb}})
	order := func(p Sincronia, want ...workloads.CoflowID) {
		t.Helper()
		w.decide(t, p)
		got := []workloads.CoflowID{}
		for _, i := range w.schedule.Steps[0].Coflows {
			got = append(got, w.Coflows[i].ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	}
	keeps := DefaultSincronia()
	always := Sincronia{Sharing: keeps.Sharing, Always: true}
	order(keeps, 3, 2, 1)
	w.demands[0].SetLeft(0, 8*2e6) // 2 and 5 MB remain
	w.refresh(0)
	order(keeps, 3, 2, 1)
	if len(w.schedule.Queues) > 0 {
		t.Errorf("an unchanged order is set again: %v", w.schedule.Queues)
	}
	w.Coflows, w.demands, w.ended, w.sizes = w.Coflows[:2], w.demands[:2], w.ended[:2], w.sizes[:2] // the third ends
	order(keeps, 1, 2)
	w.demands[0].SetLeft(0, 8*7e6)
	w.refresh(0)
	order(keeps, 1, 2)
	kept := w.of(keeps)
	order(always, 2, 1)
	w.policy, w.instance = keeps, kept
	// One ends while another arrives: their number stays the same.
	w.Coflows, w.demands, w.ended, w.sizes = w.Coflows[:1], w.demands[:1], w.ended[:1], w.sizes[:1]
	w.arrive(4, []demandOf{{0, 7, mb}})
	order(keeps, 4, 1)
}

// The bottleneck is the first link with the longest demand, as in a scan of all links, while
// demands decrease. A link that is down is none.
func TestBottleneck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d demands
		d.reset(rapid.SliceOfN(rapid.SampledFrom([]units.Rate{0, units.Gbps, units.Gbps, units.Gbps, 3 * units.Gbps}), 1, 3*block).Draw(t, "capacity"))
		for l := range d.links {
			d.links[l].bytes = rapid.Int64Range(0, 6).Draw(t, "bytes")
		}
		for range rapid.IntRange(1, 20).Draw(t, "searches") {
			want, most := none, new(big.Rat)
			for l, at := range d.links {
				if at.bytes > 0 && at.rate > 0 {
					if takes := big.NewRat(at.bytes, at.rate); takes.Cmp(most) > 0 {
						want, most = l, takes
					}
				}
			}
			if got := d.bottleneck(); got != want {
				t.Fatalf("bottleneck %d, want %d, of %v", got, want, d.links)
			}
			for range rapid.IntRange(0, 9).Draw(t, "decreases") {
				l := rapid.IntRange(0, len(d.links)-1).Draw(t, "link")
				d.decrease([]use{{link: int32(l), bytes: min(d.links[l].bytes, 2)}})
			}
			if want != none {
				d.decrease([]use{{link: int32(want), bytes: d.links[want].bytes}})
			}
		}
	})
}
