package coflow

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/policies/coflow/coflowtest"
	"testbed/policies/coflow/ports"
	"testbed/topo"
	"testbed/topo/units"
)

func TestPilotNumbers(t *testing.T) {
	for _, tt := range []struct {
		rule           PilotRule
		fraction       float64
		senders, flows int
		number, want   int
	}{
		{OfSenders, 0.05, 1, 100, 0, 1},
		{OfSenders, 0.05, 39, 100, 0, 1},
		{OfSenders, 0.05, 40, 100, 0, 2},
		{OfSenders, 0.05, 140, 20000, 0, 7},
		{OfSenders, 0.29, 100, 100, 0, 29}, // 0.29·100 is less than 29 in binary
		{OfFlows, 0.01, 3, 199, 0, 1},
		{OfFlows, 0.01, 3, 200, 0, 2},
		{OfFlows, 1, 3, 8, 0, 8},
		{Constant, 0, 3, 20, 5, 5},
		{Constant, 0, 3, 20, 50, 20},
		{OfFlows, 0, 3, 20, 50, 1},
	} {
		c := policies.CoflowState{Senders: tt.senders, Width: tt.flows, Flows: make([]policies.FlowState, tt.flows)}
		if got := (Sampling{Rule: tt.rule, Fraction: tt.fraction, Number: tt.number}).PilotCount(&c); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestPilotChoice(t *testing.T) {
	f := eightMillis(t, 12)
	// Four senders, three receivers: hosts 0 to 3 to hosts 6 to 8.
	square := all(hosts(0, 3), hosts(6, 8), mib)
	for _, tt := range []struct {
		name    string
		number  int
		busy    map[topo.LinkID]int
		coflows [][]demandOf
		want    []string
	}{
		// Every choice makes its ports busier, so the next one uses other ports; the fourth
		// receiver is the first again.
		{"idle ports", 5, nil, [][]demandOf{square}, []string{"0->6", "1->7", "2->8", "3->6", "0->7"}},
		{"busy sender and receiver", 2, map[topo.LinkID]int{f.HostUp(0): 2, f.HostUp(1): 1, f.HostDown(6): 1}, [][]demandOf{square},
			[]string{"2->7", "3->8"}},
		// Only one flow starts at the least busy port, and it goes to the busiest port.
		{"no flow between the least busy", 1, map[topo.LinkID]int{f.HostUp(0): 1, f.HostDown(8): 3},
			[][]demandOf{{{1, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}}}, []string{"1->8"}},
		// The second coflow sees the pilot flow of the first.
		{"two new ones", 1, nil, [][]demandOf{square, square}, []string{"0->6", "1->7"}},
	} {
		p := DefaultPhilae()
		p.Rule, p.Number = Constant, tt.number
		v := coflowtest.Sampled(shown(view(f, tt.coflows...), tt.coflows...), tt.busy)
		if d := cmp.Diff(tt.want, pilotsOf(v, p)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	p := DefaultPhilae()
	p.Metric = LeastContention
	if got := pilotsOf(shown(view(f, square), square), p); got != nil {
		t.Errorf("policy C takes pilots %v", got)
	}
}

// Random pilot flows are distinct, have equal probability and depend on the seed.
func TestRandomPilots(t *testing.T) {
	f := eightMillis(t, 12)
	flows := all(hosts(0, 3), hosts(6, 8), mib)
	p := DefaultPhilae()
	p.Rule, p.Number, p.Random = Constant, 3, true
	count := map[string]int{}
	const runs = 4000
	for i := range runs {
		v := shown(view(f, flows, flows), flows, flows)
		p.Seed = int64(i)
		got := pilotsOf(v, p)
		if len(got) != 6 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] {
			t.Fatalf("pilots %v, want 3 distinct ones per coflow", got)
		}
		for _, g := range got {
			count[g]++
		}
		if again := pilotsOf(v, p); !slices.Equal(got, again) {
			t.Fatalf("pilots %v, then %v", got, again)
		}
	}
	want := float64(6*runs) / 12
	for _, d := range flows {
		pair := fmt.Sprintf("%d->%d", d.Src, d.Dst)
		if n := float64(count[pair]); math.Abs(n-want) > 5*math.Sqrt(want) {
			t.Errorf("%s is a pilot %v times, want about %v", pair, n, want)
		}
	}
	v := shown(view(f, flows, flows), flows, flows)
	if got := pilotsOf(v, p); slices.Equal(got[:3], got[3:]) {
		t.Errorf("two coflows that arrive together draw the same pilot flows: %v", got)
	}
}

// Thresholds are 10 MiB and 100 MiB. A: 2·8 = 16 MiB. B: 16-7 = 9. C: two other coflows.
// D: two others at sender 0 and one at receiver 4, 3·2 = 6 MiB.
func TestPhilaeMetrics(t *testing.T) {
	for _, tt := range []struct {
		metric Metric
		value  int64
		queue  int
	}{{SmallestJob, int64(16 * mib), 1}, {ShortestRemaining, int64(9 * mib), 0}, {WeightedContention, int64(6 * mib), 0}} {
		v := coflowtest.Worked(t)
		p := DefaultPhilae()
		p.Metric = tt.metric
		var s policies.Schedule
		if got := p.metric(&v.Coflows[0], ports.Coflows(v, &s)); got != tt.value {
			t.Errorf("metric %d is %d, want %d", tt.metric, got, tt.value)
		}
		s.Reset()
		p.New().Decide(v, &s)
		// The other coflows are thin and in no queue.
		if d := cmp.Diff([]int{tt.queue + 1, 0, 0}, s.Queues); d != "" {
			t.Errorf("metric %d: queues %s", tt.metric, d)
		}
		// A threshold equal to the metric is passed, a larger one is not.
		for more, queue := range map[int64]int{0: 1, 1: 0} {
			p.First = units.Bytes(tt.value + more)
			s.Reset()
			p.New().Decide(v, &s)
			if got := s.Queues[0] - 1; got != queue {
				t.Errorf("metric %d, threshold %d above: queue %d, want %d", tt.metric, more, got, queue)
			}
		}
	}
	v := coflowtest.Worked(t)
	for first, queue := range map[float64]int{1: 1, 2: 1, 3: 0, 0.1: 2, 10485760: 0} {
		p := DefaultPhilae()
		p.Metric, p.FirstContention = LeastContention, first
		var s policies.Schedule
		p.New().Decide(v, &s)
		if got := s.Queues[0] - 1; got != queue {
			t.Errorf("metric C, threshold %v: queue %d, want %d", first, got, queue)
		}
	}
	// The bytes sent exceed the estimate: the estimated rest is 0.
	v.Coflows[0].Sent = 17 * mib
	p := DefaultPhilae()
	p.Metric = ShortestRemaining
	if got := p.metric(&v.Coflows[0], nil); got != 0 {
		t.Errorf("%d bytes left", got)
	}
	// Policy D with the data that is left: (16-7)/8·3 MiB, and 0 of a coflow that has sent all.
	p.Metric, p.Dynamics = WeightedContention, true
	var s policies.Schedule
	for sent, want := range map[units.Bytes]int64{7 * mib: int64(27 * mib / 8), 17 * mib: 0} {
		v.Coflows[0].Sent = sent
		if got := p.metric(&v.Coflows[0], ports.Coflows(v, &s)); got != want {
			t.Errorf("D with dynamics, %v sent: %d, want %d", sent, got, want)
		}
	}
	p.Metric = ShortestRemaining
	// Three pilot flows with 10 bytes in total: 8 flows have 26⅔ bytes.
	c := policies.CoflowState{Width: 8, Pilots: 3, PilotSent: 10}
	if got := p.metric(&c, nil); got != 26 {
		t.Errorf("size %d, want 26", got)
	}
	c.PilotSent = math.MaxInt64
	if got := p.metric(&c, nil); got != math.MaxInt64 {
		t.Errorf("size %d, want the largest", got)
	}
}

// Queues stay the same while no coflow begins or ends at a port, and are updated when one
// does. The memory does not change any decision.
func TestPhilaeMemory(t *testing.T) {
	for _, metric := range []Metric{LeastContention, WeightedContention} {
		v := coflowtest.Worked(t)
		p := DefaultPhilae()
		p.Metric, p.First, p.FirstContention, p.Growth = metric, mib, 1, 2
		x := p.New().(*philae)
		check := func(what string, computes bool) {
			var with, without policies.Schedule
			facts := slices.Clone(x.facts)
			x.Decide(v, &with)
			if computed := !slices.Equal(facts, x.facts); computed != computes {
				t.Errorf("metric %d, %s: contention is computed: %v, want %v", metric, what, computed, computes)
			}
			p.New().Decide(v, &without)
			if d := cmp.Diff(without.Queues, with.Queues); d != "" {
				t.Errorf("metric %d, %s: without memory (-) and with it (+): %s", metric, what, d)
			}
			for i, q := range with.Queues {
				v.Coflows[i].Queue = q
			}
		}
		check("at first", true)
		check("again", false)
		v.Coflows[0].Sent++
		check("after a byte", false)
		v.Coflows = v.Coflows[:2]
		check("after a coflow's end", true)
		c := &v.Coflows[0]
		c.Links = slices.Delete(slices.Clone(c.Links), 0, 1)
		check("after the last flow at a port", true)
		if q := v.Coflows[0].Queue; q != 1 {
			t.Errorf("metric %d: without contention in queue %d", metric, q-1)
		}
		check("again", false)
	}
}

// Coflows 0 and 3 are thin, 1 and 2 are being sampled, 4 and 6 are in queue 0, 5 in
// queue 2.
func TestPhilaeSteps(t *testing.T) {
	f := eightMillis(t, 12)
	wide, thin := all(hosts(0, 1), hosts(4, 7), 1), []demandOf{{0, 4, 1}}
	v := view(f, thin, wide, wide, thin, wide, wide, wide)
	v.Now = time.Second
	for i, pilots := range []units.Bytes{1: 0, 2: 0, 4: 1, 5: 40 * mib, 6: 1} {
		c := &v.Coflows[i]
		if c.Width > 7 {
			c.Pilots, c.PilotSent = 1, pilots
			if pilots == 0 {
				c.PilotsLeft = 1
			} else {
				c.Queue = 1
			}
		}
	}
	v.Coflows[4].Since, v.Coflows[6].Since = 7, 5
	for _, tt := range []struct {
		name    string
		change  func(*Philae)
		budgets []float64
		want    []string
	}{
		{"default", func(*Philae) {}, []float64{1 / 1.01, 0.01 / 1.01},
			[]string{"[0] all Greedy 0", "[1 2] pilots Greedy 0", "[3] all Greedy 0", "[6 4] all Greedy 1", "[5] all Greedy 2", "[6 4 5] all Greedy 0", "[1 2] others Greedy 0"}},
		{"other choices", func(p *Philae) { p.ThinFirst, p.FIFO, p.Equal, p.Conserve, p.Weight = true, Arrived, true, false, 2 }, []float64{0.8, 0.2},
			[]string{"[0 3] all Greedy 0", "[1 2] pilots Greedy 0", "[4 6] all SlowestRate 1", "[5] all SlowestRate 2", "[4 6 5] all Greedy 0"}},
		{"strict", func(p *Philae) { p.Strict = true }, nil,
			[]string{"[0] all Greedy 0", "[1 2] pilots Greedy 0", "[3] all Greedy 0", "[6 4 5] all Greedy 0", "[1 2] others Greedy 0"}},
	} {
		p := DefaultPhilae()
		p.Metric = SmallestJob
		tt.change(&p)
		var s policies.Schedule
		p.New().Decide(v, &s)
		if d := cmp.Diff(tt.want, steps(&s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.budgets, s.Budgets, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })); d != "" {
			t.Errorf("%s: budgets (-want +got):\n%s", tt.name, d)
		}
	}
}

// Completion times of coflows under Philae. One coflow has eight flows of 1 MiB from host
// 0. Its pilot flow takes 8 ms, and the others wait because they need the same port; they
// follow one after another: 64 ms in total. With a second sender, that sender's flows do
// not wait: 32 ms.
func TestPhilaeCompletionTimes(t *testing.T) {
	f := eightMillis(t, 17)
	one, two := all(hosts(0, 0), hosts(4, 11), mib), all(hosts(0, 1), hosts(4, 7), mib)
	idle := DefaultPhilae()
	idle.Conserve = false
	strict, dynamics := DefaultPhilae(), DefaultPhilae()
	strict.Strict, dynamics.Strict, dynamics.Dynamics = true, true, true
	// At 768 ms a coflow that has sent 96 of its 128 MiB meets one of 64 MiB at its sender.
	rest := []job{
		{0, all(hosts(0, 0), hosts(1, 8), 16*mib)},
		{768 * time.Millisecond, all(hosts(0, 0), hosts(9, 16), 8*mib)},
	}
	for _, tt := range []struct {
		name string
		p    Philae
		jobs []job
		want []time.Duration
	}{
		{"one sender", DefaultPhilae(), []job{{0, one}}, millis(64)},
		{"two senders", DefaultPhilae(), []job{{0, two}}, millis(32)},
		{"two senders, idle", idle, []job{{0, two}}, millis(40)},
		// A pilot flow goes before the flows of a coflow whose pilot flows have ended: at
		// 20 ms it delays the current flow of the first by 8 ms. Then both coflows have l =
		// 1 MiB and D = 1 at their one common port: FIFO. The second has sent 1 MiB by then;
		// the first ends at 72 ms, the second at 128.
		{"a pilot first", DefaultPhilae(), []job{{0, one}, {20 * time.Millisecond, all(hosts(0, 0), hosts(4, 11), mib)}}, millis(72, 108)},
		// A thin coflow does not wait for later pilot flows.
		{"thin", DefaultPhilae(), []job{{0, []demandOf{{0, 4, 2 * mib}}}, {0, one}}, millis(16, 80)},
		// The pilot flow of the second goes first. Then D is l = 16 MiB for the first, in queue
		// 1, and 8 for the second, in queue 0, which ends first although it has more left. With
		// the data that is left D is 32/8 and 56/8 MiB: both are in queue 0, the first in front.
		{"length weighted by contention", strict, rest, millis(1536, 512)},
		{"data left weighted by contention", dynamics, rest, millis(1088, 768)},
	} {
		l := &coflowtest.Loop{T: t, Fabric: f, Policy: tt.p}
		if d := cmp.Diff(tt.want, l.Run(tt.jobs), about); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
