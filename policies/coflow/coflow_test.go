package coflow

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/drawntest"
)

const (
	kb = units.KB
	mb = units.MB
)

// bigSwitch returns a non-blocking switch with 1 Gbps ports, on which 1 MB takes 8 ms. Port p,
// 0 to 3, sends as host p and receives as host 4+p.
func bigSwitch(t testing.TB) *topo.Fabric {
	t.Helper()
	return fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 8, HostLink: units.Gbps})
}

// near compares rates in Mbit/s with a tolerance for rounding.
var near = cmpopts.EquateApprox(1e-9, 1e-6)

// Completion times of tiny cases, in ms, computed by hand.
func TestTinyCases(t *testing.T) {
	at := func(ms int, flows ...demandOf) job {
		return job{time.Duration(ms) * time.Millisecond, flows}
	}
	sharedSender := []job{at(0, demandOf{0, 5, 8 * mb}), at(0, demandOf{0, 6, 4 * mb})}
	sharedReceiver := []job{at(0, demandOf{0, 6, 8 * mb}), at(0, demandOf{1, 6, 4 * mb})}
	preempted := []job{at(0, demandOf{0, 5, 100 * mb}), at(100, demandOf{0, 6, 10 * mb})}
	long := []job{at(0, demandOf{0, 5, 4000 * mb}), at(20480, demandOf{0, 6, 50 * mb})}
	// Two mappers and two reducers of 8 and 4 MB, and one flow from the first to the second.
	shuffle := []job{at(0, demandOf{0, 6, 4 * mb}, demandOf{0, 7, 2 * mb}, demandOf{1, 6, 4 * mb}, demandOf{1, 7, 2 * mb}), at(0, demandOf{0, 7, 6 * mb})}
	local := []job{at(0, demandOf{0, 4, 8 * mb}), at(0, demandOf{0, 5, 8 * mb})}
	// The first coflow needs port 0 and has another flow, for which the third waits.
	behind := []job{at(0, demandOf{0, 4, 8 * mb}, demandOf{1, 5, 8 * mb}), at(0, demandOf{0, 6, 4 * mb}), at(0, demandOf{1, 7, 6 * mb})}

	fifo := Ordered{Sharing: Sharing{Allocation: Greedy}}
	coflowsim := Sharing{Backfill: FairShare, Pace: Pace{CoflowsOnly: true}}
	every := func(ms int) Pace { return Pace{Every: time.Duration(ms) * time.Millisecond} }
	for _, tt := range []struct {
		name     string
		policy   policies.CoflowScheduler
		arrivals []job
		want     []float64
	}{
		{"fair: shared sender", Fair{}, sharedSender, []float64{96, 64}},
		{"fair: shared receiver", Fair{}, sharedReceiver, []float64{96, 64}},
		{"fair: preempted", Fair{}, preempted, []float64{880, 160}},
		{"fair: long", Fair{}, long, []float64{32400, 800}},
		{"fair: local", Fair{}, local, []float64{128, 128}},
		{"equal share: shared sender", EqualShare{}, sharedSender, []float64{96, 64}},
		{"equal share: shuffle", EqualShare{}, shuffle, []float64{80, 96}},

		{"fifo: shared sender", fifo, sharedSender, []float64{64, 96}},
		{"fifo: shared receiver", fifo, sharedReceiver, []float64{64, 96}},
		{"fifo: preempted", fifo, preempted, []float64{800, 780}},
		{"fifo: long", fifo, long, []float64{32000, 11920}},
		{"fifo: local", fifo, local, []float64{64, 128}},
		{"fifo, madd: shuffle", Ordered{}, shuffle, []float64{64, 96}},
		{"fifo, coflowsim: shuffle", Ordered{Sharing: coflowsim}, shuffle, []float64{64, 96}},

		{"sebf: shared sender", SEBF{}, sharedSender, []float64{96, 32}},
		{"sebf: shared receiver", SEBF{}, sharedReceiver, []float64{96, 32}},
		{"sebf: preempted", SEBF{}, preempted, []float64{880, 80}},
		{"sebf: long", SEBF{}, long, []float64{32400, 400}},
		{"sebf: shuffle", SEBF{}, shuffle, []float64{96, 48}},
		{"sebf: local", SEBF{}, local, []float64{64, 128}},
		// The 4 MB end first, after 32 ms, then the 6 MB, alone on port 1, after 48 ms. The
		// flows of the first coflow wait for them: 32+64 and 48+64 ms.
		{"sebf: behind", SEBF{}, behind, []float64{112, 32, 48}},
		// The same without backfill, because the flows of each coflow have one port.
		{"sebf, no backfill: behind", SEBF{Sharing: Sharing{Backfill: None}}, behind, []float64{112, 32, 48}},
		// The first coflow is skipped until 48 ms, although port 0 is idle from 32 ms.
		{"sebf, coflowsim: behind", SEBF{Initial: true, Sharing: coflowsim}, behind, []float64{112, 32, 48}},
		{"sebf, greedy: shuffle", Ordered{By: Bottleneck, Sharing: Sharing{Allocation: Greedy}}, shuffle, []float64{96, 48}},
		// The same order by the state at arrival: 10 and 100 MB.
		{"sebf, initial: preempted", SEBF{Initial: true}, preempted, []float64{880, 80}},
		{"lcf: preempted", Ordered{By: Bytes}, preempted, []float64{880, 80}},
		{"scf: preempted", Ordered{By: LargestFlow}, preempted, []float64{880, 80}},
		{"ncf: preempted", Ordered{By: Width}, preempted, []float64{800, 780}},

		// At multiples of 30 ms: the second starts at 120 ms, when the first has sent for
		// 120 ms. The first waits 80 ms and 10 more, and ends at 890 ms.
		{"sebf, every 30 ms: preempted", SEBF{Sharing: Sharing{Pace: every(30)}}, preempted, []float64{890, 100}},
		{"fifo, every 50 ms: shared sender", Ordered{Sharing: Sharing{Allocation: Greedy, Pace: every(50)}}, sharedSender, []float64{64, 132}},

		{"sincronia: shared sender", DefaultSincronia(), sharedSender, []float64{96, 32}},
		{"sincronia: preempted", DefaultSincronia(), preempted, []float64{880, 80}},
		{"sincronia: long", DefaultSincronia(), long, []float64{32400, 400}},
		// Port 0 carries 12 MB, 6 of each coflow: a tie.
		{"sincronia: shuffle", DefaultSincronia(), shuffle, []float64{64, 96}},
		{"sincronia, earlier last: shuffle", Sincronia{Sharing: Sharing{Allocation: Greedy}, EarlierLast: true}, shuffle, []float64{96, 48}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []float64
			for _, d := range completionTimes(t, bigSwitch(t), tt.policy, tt.arrivals...) {
				got = append(got, d.Seconds()*1e3)
			}
			if d := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-4)); d != "" {
				t.Errorf("ms (-want +got):\n%s", d)
			}
		})
	}
}

// Each key gives the same five coflows a different order.
func TestKeys(t *testing.T) {
	coflows := [][]demandOf{
		{{0, 4, 10 * mb}},
		{{1, 4, 4 * mb}, {1, 5, 4 * mb}, {1, 6, 4 * mb}},
		{{2, 4, 6 * mb}, {3, 5, 5 * mb}},
		{{0, 6, 3 * mb}, {1, 7, 3 * mb}, {2, 5, 3 * mb}},
		{{3, 4, 7 * mb}},
	}
	for _, tt := range []struct {
		by   Key
		want []workloads.CoflowID
	}{
		{Arrival, []workloads.CoflowID{1, 2, 3, 4, 5}},
		{LargestFlow, []workloads.CoflowID{4, 2, 3, 5, 1}}, // 10 4 6 3 7 MB
		{Width, []workloads.CoflowID{1, 2, 5, 3, 4}},       // 1 1 2 3 1
		{Bytes, []workloads.CoflowID{5, 4, 1, 3, 2}},       // 10 12 11 9 7 MB
		{Bottleneck, []workloads.CoflowID{4, 3, 5, 1, 2}},  // 10 12 6 3 7 MB
	} {
		for _, initial := range []bool{false, true} {
			if d := cmp.Diff(tt.want, viewOf(bigSwitch(t), coflows...).served(Ordered{By: tt.by, Initial: initial})); d != "" {
				t.Errorf("key %d, initial %v (-want +got):\n%s", tt.by, initial, d)
			}
		}
	}
}

// Received bytes change keys of remaining bytes and no others.
func TestKeysOfRemainingBytes(t *testing.T) {
	w := viewOf(bigSwitch(t), []demandOf{{0, 4, 10 * mb}, {1, 5, 2 * mb}}, []demandOf{{0, 5, 5 * mb}})
	w.demands[0].SetLeft(0, 8*2e6)
	w.refresh(0) // 10 MB and 5 MB at arrival; now 2+2 MB, 2 MB per link, and 5 MB
	for _, tt := range []struct {
		policy policies.CoflowScheduler
		want   []workloads.CoflowID
	}{
		{Ordered{By: Bytes}, []workloads.CoflowID{1, 2}},
		{Ordered{By: Bytes, Initial: true}, []workloads.CoflowID{2, 1}},
		{Ordered{By: Bottleneck}, []workloads.CoflowID{1, 2}},
		{Ordered{By: Bottleneck, Initial: true}, []workloads.CoflowID{2, 1}},
		{SEBF{}, []workloads.CoflowID{1, 2}},
		{SEBF{Initial: true}, []workloads.CoflowID{2, 1}},
		{Ordered{By: LargestFlow}, []workloads.CoflowID{2, 1}},
		{Sincronia{}, []workloads.CoflowID{1, 2}},
	} {
		if got := w.served(tt.policy); !slices.Equal(got, tt.want) {
			t.Errorf("%+v serves %v, want %v", tt.policy, got, tt.want)
		}
	}
}

// Rates of one decision, in Mbit/s, by coflow and flow.
func TestRates(t *testing.T) {
	// The two hosts of a rack share one uplink of half their rate.
	narrow := fabric(t, topo.LeafSpine{Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 4, Den: 1}})
	fan := [][]demandOf{{{0, 4, 6 * mb}, {0, 5, 2 * mb}, {0, 6, 2 * mb}, {1, 4, mb}}}
	// The second, with 6 MB, goes first and takes all of port 0. The first and the third are
	// skipped and share port 3.
	skipped := [][]demandOf{{{0, 6, 8 * mb}, {3, 4, 4 * mb}}, {{0, 7, 6 * mb}, {1, 6, 3 * mb}}, {{0, 5, 9 * mb}, {3, 5, 4 * mb}}}
	// The second goes first and takes port 0. The three skipped coflows have one flow each
	// on port 3, and that of the last one shares port 6 with three more. The residual
	// capacity of port 3 goes to the first in arrival, although the third has a smaller key.
	late := [][]demandOf{{{0, 6, 20 * mb}, {3, 4, mb}}, {{0, 7, 6 * mb}}, {{0, 5, 9 * mb}, {3, 5, mb}}, {{0, 5, 30 * mb}, {3, 6, mb}, {2, 6, mb}, {1, 6, mb}, {7, 6, mb}}}
	classes := [][]demandOf{{{0, 4, mb}}, {{1, 5, mb}}, {{1, 6, mb}}}
	for _, tt := range []struct {
		name    string
		fabric  *topo.Fabric
		policy  policies.CoflowScheduler
		coflows [][]demandOf
		want    [][]float64
	}{
		{"nothing", bigSwitch(t), SEBF{}, nil, [][]float64{}},
		{"nothing, fair", bigSwitch(t), Fair{}, nil, [][]float64{}},
		{"nothing, equal share", bigSwitch(t), EqualShare{}, nil, [][]float64{}},
		{"nothing, sincronia", bigSwitch(t), DefaultSincronia(), nil, [][]float64{}},
		{"shared sender", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 5, 8 * mb}}, {{0, 6, 4 * mb}}}, [][]float64{{0}, {1000}}},
		{"both fit", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 4, 8 * mb}}, {{1, 5, 4 * mb}}}, [][]float64{{1000}, {1000}}},
		{"tie by ID", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 4, 8 * mb}}, {{0, 5, 8 * mb}}}, [][]float64{{1000}, {0}}},
		{"a byte less", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 4, 8*mb + 1}}, {{0, 5, 8 * mb}}}, [][]float64{{0}, {1000}}},
		// The second coflow gets the residual capacity of host 1's uplink.
		{"on what is left", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 4, 2 * mb}, {1, 5, mb}}, {{1, 6, 4 * mb}}}, [][]float64{{1000, 500}, {500}}},
		// By host links alone, coflow 1 (8 ms) would go before coflow 2 (12 ms). Its two
		// flows share a 500 Mbps uplink, on which it needs 32 ms.
		{"an uplink is the bottleneck", narrow, SEBF{}, [][]demandOf{{{0, 2, mb}, {1, 3, mb}}, {{0, 1, 1500 * kb}}}, [][]float64{{0, 500}, {1000}}},
		{"no flow is stopped by a large one", bigSwitch(t), SEBF{}, [][]demandOf{{{0, 4, 1}, {0, 5, 1e12}}}, [][]float64{{1e3 / 1000000000001, 1e3 * 1e12 / 1000000000001}}},

		{"fair", bigSwitch(t), Fair{}, fan, [][]float64{{1000. / 3, 1000. / 3, 1000. / 3, 2000. / 3}}},
		{"equal share", bigSwitch(t), EqualShare{}, fan, [][]float64{{1000. / 3, 1000. / 3, 1000. / 3, 500}}},
		{"madd", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: None}}, fan, [][]float64{{600, 200, 200, 100}}},
		{"madd, top-up", bigSwitch(t), SEBF{}, fan, [][]float64{{600, 200, 200, 400}}},
		{"greedy", bigSwitch(t), SEBF{Sharing: Sharing{Allocation: Greedy}}, fan, [][]float64{{1000, 0, 0, 0}}},
		{"even", bigSwitch(t), SEBF{Sharing: Sharing{Allocation: EqualSplit, Backfill: None}}, fan, [][]float64{{1000. / 3, 1000. / 3, 1000. / 3, 500}}},
		{"even, top-up", bigSwitch(t), SEBF{Sharing: Sharing{Allocation: EqualSplit}}, fan, [][]float64{{1000. / 3, 1000. / 3, 1000. / 3, 2000. / 3}}},
		{"maxmin", bigSwitch(t), SEBF{Sharing: Sharing{Allocation: MaxMin, Backfill: None}}, fan, [][]float64{{1000. / 3, 1000. / 3, 1000. / 3, 2000. / 3}}},

		// Flows 1 and 4 share a receiver with 300 left, 3/7 of their 700. Port 0 is full.
		{"madd, proportional", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: Proportional}}, fan, [][]float64{{600, 200, 200, 1000. / 7}}},
		// MADD takes 128 ms, with 375 and 125 from port 0. The residual 500 are divided 3 to 1.
		{"proportional at a sender", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: Proportional}}, [][]demandOf{{{0, 4, 6 * mb}, {0, 5, 2 * mb}, {1, 6, 16 * mb}}}, [][]float64{{750, 250, 1000}}},
		{"skipped, none", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: None}}, skipped, [][]float64{{0, 0}, {1000, 500}, {0, 0}}},
		{"skipped, top-up", bigSwitch(t), SEBF{}, skipped, [][]float64{{0, 1000}, {1000, 1000}, {0, 0}}},
		{"skipped, top-up of those served", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: TopUpServed}}, skipped, [][]float64{{0, 0}, {1000, 1000}, {0, 0}}},
		{"skipped, proportional", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: Proportional}}, skipped, [][]float64{{0, 0}, {1000, 1000}, {0, 0}}},
		{"skipped, fair share", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: FairShare}}, skipped, [][]float64{{0, 500}, {1000, 1000}, {0, 500}}},

		{"skipped, fair share and then arrival", bigSwitch(t), SEBF{Sharing: Sharing{Backfill: FairShare}}, late,
			[][]float64{{0, 1250. / 3}, {1000}, {0, 1000. / 3}, {0, 250, 250, 250, 250}}},

		{"a class for each", bigSwitch(t), Ordered{Sharing: Sharing{Allocation: MaxMin}}, classes, [][]float64{{1000}, {1000}, {0}}},
		{"three classes", bigSwitch(t), Ordered{Sharing: Sharing{Allocation: MaxMin, Priorities: 3}}, classes, [][]float64{{1000}, {1000}, {0}}},
		{"two classes", bigSwitch(t), Ordered{Sharing: Sharing{Allocation: MaxMin, Priorities: 2}}, classes, [][]float64{{1000}, {500}, {500}}},
		{"one class", bigSwitch(t), Ordered{Sharing: Sharing{Allocation: MaxMin, Priorities: 1}}, [][]demandOf{{{0, 4, mb}}, {{0, 5, mb}}}, [][]float64{{500}, {500}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, viewOf(tt.fabric, tt.coflows...).rates(t, tt.policy), near); d != "" {
				t.Errorf("Mbit/s (-want +got):\n%s", d)
			}
		})
	}
}

// The flows of a coflow on links that are up are served although another link is down. By
// remaining time the coflow comes last; BSSI ignores the link.
func TestLinkDown(t *testing.T) {
	for _, tt := range []struct {
		policy policies.CoflowScheduler
		order  []workloads.CoflowID
		want   [][]float64
	}{
		{SEBF{}, []workloads.CoflowID{2, 3, 1}, [][]float64{{0, 0, 0}, {1000}, {0}}},
		{Ordered{By: Bottleneck, Sharing: Sharing{Allocation: Greedy}}, []workloads.CoflowID{2, 3, 1}, [][]float64{{0, 0, 0}, {1000}, {0}}},
		// Port 6, with 28 MB, puts the third last, because the 30 MB of port 0 are ignored and
		// port 4 has 20. Then port 4 puts the first last.
		{DefaultSincronia(), []workloads.CoflowID{2, 1, 3}, [][]float64{{0, 0, 0}, {1000}, {0}}},
	} {
		w := viewOf(bigSwitch(t), []demandOf{{0, 4, 20 * mb}, {0, 7, 10 * mb}, {1, 5, 9 * mb}}, []demandOf{{1, 6, 8 * mb}}, []demandOf{{2, 6, 20 * mb}})
		down := w.Fabric.Path(0, 4, 0)[0]
		w.Capacity[down], w.capacity[down] = 0, 0
		if got := w.served(tt.policy); !slices.Equal(got, tt.order) {
			t.Errorf("%T serves %v, want %v", tt.policy, got, tt.order)
		}
		if d := cmp.Diff(tt.want, w.rates(t, tt.policy), near); d != "" {
			t.Errorf("%T: Mbit/s (-want +got):\n%s", tt.policy, d)
		}
	}
}

// Coflows on links that are down are ordered by ID.
func TestTieOverLinksDown(t *testing.T) {
	w := viewOf(bigSwitch(t), []demandOf{{0, 4, 9 * mb}}, []demandOf{{0, 5, mb}}, []demandOf{{1, 6, 50 * mb}})
	down := w.Fabric.Path(0, 4, 0)[0]
	w.Capacity[down], w.capacity[down] = 0, 0
	if got, want := w.served(SEBF{}), []workloads.CoflowID{3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("served %v, want %v", got, want)
	}
}

// The motivating example of Varys (SIGCOMM 2014, Figure 1): two coflows on a 3×3 switch,
// one with 3 units from a port, and one with 4 units from the same port and 2 from another.
// SEBF serves the first alone on their shared port, then slows the flow of 2 units down to
// end with the flow of 4. Only the orders are taken from the figure, not its exact sizes.
func TestVarysSEBFMotivatingExample(t *testing.T) {
	pure := SEBF{Sharing: Sharing{Backfill: None}}
	first := viewOf(bigSwitch(t), []demandOf{{0, 4, 4 * mb}, {1, 5, 2 * mb}}, []demandOf{{0, 5, 3 * mb}})
	// The second coflow (3 units) goes before the first (4 units), which is skipped because
	// port 0 has no residual capacity.
	if d := cmp.Diff([][]float64{{0, 0}, {1000}}, first.rates(t, pure), near); d != "" {
		t.Errorf("at the start (-want +got):\n%s", d)
	}
	if d := cmp.Diff([][]float64{{1000, 500}}, viewOf(bigSwitch(t), []demandOf{{0, 4, 4 * mb}, {1, 5, 2 * mb}}).rates(t, pure), near); d != "" {
		t.Errorf("then (-want +got):\n%s", d)
	}
}

func TestHugeSizes(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 6, HostLink: 400 * units.Gbps})
	for _, p := range ordering() {
		w := viewOf(f, []demandOf{{0, 3, math.MaxInt64 / 3}, {0, 4, math.MaxInt64 / 3}, {0, 5, math.MaxInt64 / 3}}, []demandOf{{0, 3, math.MaxInt64 - 1}})
		sum := 0.0
		for _, flows := range w.rates(t, p) {
			for _, r := range flows {
				sum += r
			}
		}
		if _, idle := p.(EqualShare); !idle && math.Abs(sum-400e3) > 1e-3 {
			t.Errorf("%+v: the sender's flows sum to %v Mbit/s, want 400000", p, sum)
		}
	}
}

// ordering holds one ordering policy of every kind.
func ordering() []policies.CoflowScheduler {
	out := []policies.CoflowScheduler{Fair{}, EqualShare{}, DefaultSincronia(), Sincronia{EarlierLast: true, Always: true},
		SEBF{Deadline: Deadline{Factor: 2, Padding: 0.1}}, SEBF{Deadline: Deadline{Factor: 5, Least: time.Millisecond, RejectedLast: true}}}
	for by := Arrival; by <= Bottleneck; by++ {
		for a := MADD; a <= MaxMin; a++ {
			out = append(out, Ordered{By: by, Initial: (int(by)+int(a))%2 == 0, Sharing: Sharing{Allocation: a}})
		}
	}
	return append(out, SEBF{}, SEBF{Sharing: Sharing{Backfill: FairShare}}, Ordered{Sharing: Sharing{Allocation: MaxMin, Priorities: 2}})
}

const testHosts = 6

// randomCoflows draws up to five coflows with distinct sizes.
func randomCoflows() *rapid.Generator[[][]demandOf] {
	return rapid.Custom(func(t *rapid.T) [][]demandOf {
		host := rapid.IntRange(0, testHosts-1)
		var coflows [][]demandOf
		for range rapid.IntRange(1, 5).Draw(t, "coflows") {
			var flows []demandOf
			for range rapid.IntRange(1, 6).Draw(t, "flows") {
				src, dst := host.Draw(t, "src"), host.Draw(t, "dst")
				if src == dst {
					dst = (dst + 1) % testHosts
				}
				flows = append(flows, demandOf{topo.HostID(src), topo.HostID(dst), units.Bytes(rapid.Int64Range(1e3, 1e9).Draw(t, "bytes"))})
			}
			coflows = append(coflows, flows)
		}
		return coflows
	})
}

// Properties of every decision: it leaves no capacity that a flow could use, unless the
// policy is not work conserving; only the order of IDs matters; renumbering hosts changes
// nothing.
func TestInvariants(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: testHosts, HostLink: units.Gbps})
	cases, untied := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		coflows := randomCoflows().Draw(t, "workload")
		cases++
		if !tied(viewOf(f, coflows...)) {
			untied++
		}
		to := rapid.Permutation([]topo.HostID{0, 1, 2, 3, 4, 5}).Draw(t, "renumbered")
		renumbered := make([][]demandOf, len(coflows))
		for i, flows := range coflows {
			for _, d := range flows {
				renumbered[i] = append(renumbered[i], demandOf{to[d.Src], to[d.Dst], d.Bytes})
			}
		}
		for _, p := range ordering() {
			name := fmt.Sprintf("%T %+v", p, p)
			w := viewOf(f, coflows...)
			got := w.rates(t, p)
			load := slices.Clone(w.capacity)
			for i, d := range w.demands {
				for place := range d.Flows() {
					for _, l := range d.Path(place) {
						load[l] -= got[i][place] * 1e6
					}
				}
			}
			if _, idle := p.(EqualShare); !idle {
				for i, d := range w.demands {
					for place := range d.Flows() {
						if p := d.Path(place); load[p[0]] > 1e3 && load[p[1]] > 1e3 {
							t.Fatalf("%s: flow %d of coflow %d could have %v bit/s more: %v", name, place, i+1, min(load[p[0]], load[p[1]]), got)
						}
					}
				}
			}
			for l, left := range load {
				if left < -1 {
					t.Fatalf("%s: link %d is overfull by %v bit/s", name, l, -left)
				}
			}
			if !p.Needs().Has(policies.Totals) {
				blind := viewOf(f, coflows...)
				for i := range blind.Coflows {
					c := &blind.Coflows[i]
					c.Size, c.Largest, c.Remaining, c.Bound = 0, 0, 0, 0
					for j := range c.Links {
						c.Links[j].Remaining = 0
					}
				}
				if d := cmp.Diff(got, blind.rates(t, p)); d != "" {
					t.Fatalf("%s: with sizes hidden (-shown +hidden):\n%s", name, d)
				}
			}
			if tied(w) {
				continue
			}
			if d := cmp.Diff(got, viewOf(f, renumbered...).rates(t, p), near); d != "" {
				t.Fatalf("%s: hosts renumbered (-before +after):\n%s", name, d)
			}
		}
	})
	// Of 400 workloads 352 had no tie.
	drawntest.AtLeast(t, "workloads with hosts renumbered", untied, cases, 0.8)
}

// tied reports whether some subset of the coflows has equal demand on two links, with
// different demands per coflow. Sincronia's bottleneck is then the link with the lower ID,
// which renumbering may change.
func tied(w *world) bool {
	for some := 1; some < 1<<len(w.Coflows); some++ {
		seen := map[units.Bytes][]units.Bytes{} // demands of each coflow, by their sum
		for l := range w.Capacity {
			var sum units.Bytes
			each := make([]units.Bytes, len(w.Coflows))
			for i := range w.Coflows {
				for _, at := range w.Coflows[i].Links {
					if int(at.Link) == l && some>>i&1 != 0 {
						each[i] = at.Remaining
						sum += at.Remaining
					}
				}
			}
			if before, again := seen[sum]; again && !slices.Equal(before, each) {
				return true
			}
			seen[sum] = each
		}
	}
	return false
}

// Two instances of a policy decide the same, with another View between them, and do not modify the View.
func TestPure(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: testHosts, HostLink: units.Gbps})
	rapid.Check(t, func(t *rapid.T) {
		w, other := viewOf(f, randomCoflows().Draw(t, "workload")...), viewOf(f, randomCoflows().Draw(t, "other")...)
		for i := range w.Coflows {
			w.Coflows[i].Queue = rapid.IntRange(-1, 5).Draw(t, "queue")
		}
		for _, p := range ordering() {
			before := viewOf(f)
			before.Coflows = slices.Clone(w.Coflows)
			ask := func(v *policies.CoflowView) policies.Schedule {
				var s policies.Schedule
				p.New().Decide(v, &s)
				return policies.Schedule{Steps: s.Steps, Queues: s.Queues, Watch: s.Watch}
			}
			first := ask(w.CoflowView)
			ask(other.CoflowView)
			if again := ask(w.CoflowView); !reflect.DeepEqual(first, again) {
				t.Fatalf("%+v: %+v, before %+v", p, again, first)
			}
			if !reflect.DeepEqual(before.Coflows, w.Coflows) {
				t.Fatalf("%+v modified the View", p)
			}
		}
	})
}

func TestWhen(t *testing.T) {
	for _, tt := range []struct {
		policy policies.CoflowScheduler
		want   policies.Triggers
		watch  bool // multiples of Every are skipped
	}{
		{Fair{}, policies.Triggers{Coflows: true}, false},
		{EqualShare{}, policies.Triggers{Coflows: true, Flows: true}, false},
		{SEBF{}, policies.Triggers{Coflows: true, Flows: true}, false},
		{SEBF{Sharing: Sharing{Pace: Pace{CoflowsOnly: true}}}, policies.Triggers{Coflows: true}, false},
		// Remaining bytes, and MADD's rates with them, change all the time.
		{SEBF{Sharing: Sharing{Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, false},
		{Ordered{Sharing: Sharing{Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, false},
		{Ordered{By: Bytes, Sharing: Sharing{Allocation: Greedy, Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, false},
		{Ordered{By: Bytes, Initial: true, Sharing: Sharing{Allocation: Greedy, Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, true},
		{Ordered{Sharing: Sharing{Allocation: EqualSplit, Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, true},
		{Sincronia{Sharing: Sharing{Allocation: Greedy, Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, true},
		{Sincronia{Always: true, Sharing: Sharing{Allocation: Greedy, Pace: Pace{Every: time.Second}}}, policies.Triggers{Coflows: true, Flows: true, Every: time.Second}, false},
	} {
		if got := tt.policy.Triggers(); got != tt.want {
			t.Errorf("%+v: Triggers() = %+v, want %+v", tt.policy, got, tt.want)
		}
		w := viewOf(bigSwitch(t), []demandOf{{0, 4, mb}}, []demandOf{{1, 4, mb}})
		w.rates(t, tt.policy)
		want := []int64{}
		if tt.watch {
			want = []int64{0, 0}
		}
		if d := cmp.Diff(want, w.schedule.Watch, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%+v watches (-want +got):\n%s", tt.policy, d)
		}
	}
}

// The tests of the catalog cover the other parameters.
func TestContract(t *testing.T) {
	for _, p := range []policies.CoflowScheduler{Fair{}, EqualShare{}, RackLimit{0.2}, DefaultSincronia(), Sincronia{EarlierLast: true, Always: true},
		SEBF{Deadline: Deadline{Factor: 2, Padding: 0.1}}, SEBF{Deadline: Deadline{Factor: 5, Least: time.Millisecond, RejectedLast: true}},
		SEBF{}, SEBF{Sharing: Sharing{Backfill: FairShare}}, Ordered{Sharing: Sharing{Allocation: MaxMin, Priorities: 2}}} {
		t.Run(fmt.Sprintf("%T %+v", p, p), func(t *testing.T) { policytest.Scheduler(t, p) })
	}
}
