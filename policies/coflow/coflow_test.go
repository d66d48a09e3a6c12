package coflow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// demandOf is one flow of a test's coflow: bytes from host src to host dst.
type demandOf struct {
	src, dst  topo.HostID
	remaining units.Bytes
}

// viewOf is a View of coflows that arrived in the order given, with IDs from 1
// and flow IDs from 10·ID.
func viewOf(f *topo.Fabric, coflows ...[]demandOf) *policies.View {
	v := &policies.View{Fabric: f, Hosts: make([]policies.HostState, f.Hosts())}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	for i, flows := range coflows {
		c := policies.CoflowState{ID: workloads.CoflowID(i + 1), Width: len(flows)}
		for j, d := range flows {
			c.Flows = append(c.Flows, policies.FlowState{ID: workloads.FlowID(10*(i+1) + j), Src: d.src, Dst: d.dst,
				Path: f.Path(d.src, d.dst, uint32(j)), Size: d.remaining, Remaining: d.remaining})
		}
		v.Coflows = append(v.Coflows, c)
	}
	return v
}

func fabric(t testing.TB, s topo.LeafSpine) *topo.Fabric {
	t.Helper()
	s.Queue, s.MTU = topo.Queue{Time: time.Millisecond}, 1500
	if s.Oversubscription.Num == 0 {
		s.Oversubscription = units.Ratio{Num: 1, Den: 1}
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// grants pairs flow IDs with ceilings.
func grants(flowsAndCeilings ...units.Rate) (out []policies.Grant) {
	for i := 0; i < len(flowsAndCeilings); i += 2 {
		out = append(out, policies.Grant{Flow: workloads.FlowID(flowsAndCeilings[i]), Ceiling: flowsAndCeilings[i+1]})
	}
	return out
}

func TestContract(t *testing.T) {
	policytest.Allocator(t, Fair{})
	policytest.Allocator(t, SEBF{})
}

func TestFair(t *testing.T) {
	v := viewOf(fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 4, HostLink: units.Gbps}),
		[]demandOf{{0, 1, 8}, {0, 2, 9}}, []demandOf{{2, 3, 1}})
	want := []policies.Grant{{Flow: 10, Ceiling: policies.NoLimit}, {Flow: 11, Ceiling: policies.NoLimit}, {Flow: 20, Ceiling: policies.NoLimit}}
	if d := cmp.Diff(want, (Fair{}).Allocate(v)); d != "" {
		t.Error(d)
	}
}

// One allocation, by hand, on a non-blocking switch of 1 Gbps ports where port p
// sends as host p and receives as host 4+p, or on what the case says.
func TestSEBF(t *testing.T) {
	ports := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 8, HostLink: units.Gbps})
	// Two hosts a rack share one uplink of half their rate.
	narrow := fabric(t, topo.LeafSpine{Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 4, Den: 1}})
	const mb = units.MB
	for _, tt := range []struct {
		name    string
		fabric  *topo.Fabric
		coflows [][]demandOf
		want    []policies.Grant
	}{
		{"nothing", ports, nil, []policies.Grant{}},
		{"shared sender", ports, [][]demandOf{{{0, 5, 8 * mb}}, {{0, 6, 4 * mb}}},
			grants(20, units.Gbps)},
		{"shared receiver", ports, [][]demandOf{{{0, 6, 8 * mb}}, {{1, 6, 4 * mb}}},
			grants(20, units.Gbps)},
		{"a short coflow preempts", ports, [][]demandOf{{{0, 5, 100*mb - 12500000}}, {{0, 6, 10 * mb}}},
			grants(20, units.Gbps)},
		// The second coflow, at 6 MB, goes first and takes port 0's uplink and
		// port 3's downlink, both of which the first needs.
		{"skipped as a whole", ports, [][]demandOf{{{0, 6, 8 * mb}, {1, 6, 0}, {3, 4, 4 * mb}}, {{0, 7, 6 * mb}}},
			grants(20, units.Gbps)},
		{"both fit", ports, [][]demandOf{{{0, 4, 8 * mb}}, {{1, 5, 4 * mb}}},
			grants(20, units.Gbps, 10, units.Gbps)},
		{"tie by ID", ports, [][]demandOf{{{0, 4, 8 * mb}}, {{0, 5, 8 * mb}}},
			grants(10, units.Gbps)},
		// MADD: the flow that is not on the bottleneck is slowed down to end with it.
		{"ends together", ports, [][]demandOf{{{0, 4, 2 * mb}, {0, 5, 6 * mb}, {1, 6, 1 * mb}}},
			grants(10, 250*units.Mbps, 11, 750*units.Mbps, 12, 125*units.Mbps)},
		// The second coflow gets what the first left of host 1's uplink.
		{"on what is left", ports, [][]demandOf{{{0, 4, 2 * mb}, {1, 5, 1 * mb}}, {{1, 6, 4 * mb}}},
			grants(10, units.Gbps, 11, 500*units.Mbps, 20, 500*units.Mbps)},
		// Thirds do not come out whole: the bit left over goes to the first flow.
		{"rounding", ports, [][]demandOf{{{0, 4, mb}, {0, 5, mb}, {0, 6, mb}}},
			grants(10, 333333334, 11, 333333333, 12, 333333333)},
		{"no flow is stopped by rounding", ports, [][]demandOf{{{0, 4, 1}, {0, 5, 1e12}}},
			grants(10, 1, 11, 999999999)},
		// On host links alone coflow 1 (8 ms) would go before coflow 2 (12 ms);
		// over the 500 Mbps uplink both of its flows share it needs 32 ms.
		{"an uplink is the bottleneck", narrow, [][]demandOf{{{0, 2, mb}, {1, 3, mb}}, {{4, 5, 1500 * units.KB}}},
			grants(20, units.Gbps, 10, 250*units.Mbps, 11, 250*units.Mbps)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, (SEBF{}).Allocate(viewOf(tt.fabric, tt.coflows...))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The example that motivates Varys (SIGCOMM 2014, Figure 1): two coflows on a
// 3×3 switch, one of 3 units from a port and one of 4 units from the same port
// and 2 from another. SEBF runs the first alone on their shared port, and then
// slows the flow of 2 units down to end with that of 4. The figure is quoted from
// memory: its orders matter here, not its exact sizes.
func TestVarysSEBFMotivatingExample(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 6, HostLink: units.Gbps})
	const unit = units.MB
	v := viewOf(f, []demandOf{{0, 3, 4 * unit}, {1, 4, 2 * unit}}, []demandOf{{0, 4, 3 * unit}})
	got := SEBF{}.Allocate(v)
	// The second coflow (3 units) before the first (4 units), which is skipped:
	// nothing is left of port 0.
	if d := cmp.Diff([]policies.Grant{{Flow: 20, Ceiling: units.Gbps}}, got); d != "" {
		t.Errorf("at the start (-want +got):\n%s", d)
	}
	v = viewOf(f, []demandOf{{0, 3, 4 * unit}, {1, 4, 2 * unit}})
	if d := cmp.Diff([]policies.Grant{{Flow: 10, Ceiling: units.Gbps}, {Flow: 11, Ceiling: 500 * units.Mbps}}, SEBF{}.Allocate(v)); d != "" {
		t.Errorf("then (-want +got):\n%s", d)
	}
}

func TestSEBFHugeSizes(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 6, HostLink: 400 * units.Gbps})
	v := viewOf(f, []demandOf{{0, 3, math.MaxInt64}, {0, 4, math.MaxInt64}, {0, 5, math.MaxInt64}}, []demandOf{{0, 3, math.MaxInt64 - 1}})
	var sum units.Rate
	for _, g := range (SEBF{}).Allocate(v) {
		if g.Ceiling <= 0 {
			t.Errorf("flow %d: ceiling %d", g.Flow, g.Ceiling)
		}
		sum += g.Ceiling
	}
	if sum != 400*units.Gbps {
		t.Errorf("the sender's flows sum to %v, want 400Gbps", sum)
	}
}

// What must hold of any allocation: the bottleneck of the first coflow is used
// whole but for rounding, its flows end within rounding of one another, and
// renumbering hosts changes nothing.
func TestSEBFInvariants(t *testing.T) {
	const hosts = 6
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: units.Gbps})
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.IntRange(0, hosts-1)
		var coflows [][]demandOf
		for range rapid.IntRange(1, 5).Draw(t, "coflows") {
			var flows []demandOf
			for range rapid.IntRange(1, 6).Draw(t, "flows") {
				src, dst := host.Draw(t, "src"), host.Draw(t, "dst")
				if src == dst {
					dst = (dst + 1) % hosts
				}
				flows = append(flows, demandOf{topo.HostID(src), topo.HostID(dst), units.Bytes(rapid.Int64Range(1e3, 1e9).Draw(t, "bytes"))})
			}
			coflows = append(coflows, flows)
		}
		v := viewOf(f, coflows...)
		got := SEBF{}.Allocate(v)

		first := v.Coflows[(got[0].Flow-10)/10]
		load := make([]units.Rate, len(v.Capacity))
		var soonest, latest float64
		for i, fl := range first.Flows {
			if got[i].Flow != fl.ID {
				t.Fatalf("grant %d is for flow %d, want %d", i, got[i].Flow, fl.ID)
			}
			lo, hi := float64(fl.Remaining)/float64(got[i].Ceiling+1), float64(fl.Remaining)/float64(max(got[i].Ceiling-1, 1))
			if i == 0 {
				soonest, latest = hi, lo
			}
			soonest, latest = min(soonest, hi), max(latest, lo)
			for _, l := range fl.Path {
				load[l] += got[i].Ceiling
			}
		}
		if latest > soonest {
			t.Errorf("flows of the first coflow end apart: %v", got[:len(first.Flows)])
		}
		var most units.Rate
		for _, l := range load {
			most = max(most, l)
		}
		if most < units.Gbps-units.Rate(len(first.Flows)) {
			t.Errorf("the first coflow's bottleneck carries %v of 1Gbps", most)
		}

		to := rapid.Permutation([]topo.HostID{0, 1, 2, 3, 4, 5}).Draw(t, "renumbered")
		for _, flows := range coflows {
			for i := range flows {
				flows[i].src, flows[i].dst = to[flows[i].src], to[flows[i].dst]
			}
		}
		if d := cmp.Diff(got, (SEBF{}).Allocate(viewOf(f, coflows...))); d != "" {
			t.Errorf("hosts renumbered (-before +after):\n%s", d)
		}
	})
}

func BenchmarkAllocate(b *testing.B) {
	f := fabric(b, topo.LeafSpine{Leaves: 20, Spines: 4, HostsPerLeaf: 15, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 5, Den: 1}})
	rng := rand.New(rand.NewPCG(1, 2))
	var coflows [][]demandOf
	for range 100 {
		var flows []demandOf
		for range 100 {
			src := rng.IntN(300)
			flows = append(flows, demandOf{topo.HostID(src), topo.HostID((src + 1 + rng.IntN(299)) % 300), units.Bytes(1 + rng.Int64N(1e9))})
		}
		coflows = append(coflows, flows)
	}
	v := viewOf(f, coflows...)
	for name, p := range map[string]policies.Allocator{"fair": Fair{}, "sebf": SEBF{}} {
		b.Run(fmt.Sprintf("policy=%s/flows=10000", name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Allocate(v)
			}
		})
	}
}
