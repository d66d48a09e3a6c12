package coflow

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// shown adds to a View of coflows the flows of those that are new.
func shown(v *policies.View, coflows ...[]demandOf) *policies.View {
	for i, flows := range coflows {
		c := &v.Coflows[i]
		for j, d := range flows {
			c.Flows = append(c.Flows, policies.FlowState{ID: workloads.FlowID(100*(i+1) + j), Src: d.src, Dst: d.dst, Path: v.Fabric.Path(d.src, d.dst, uint32(j))})
		}
	}
	return v
}

// all are flows from every sender to every receiver, of so many bytes each.
func all(senders, receivers []topo.HostID, bytes units.Bytes) (out []demandOf) {
	for _, s := range senders {
		for _, r := range receivers {
			out = append(out, demandOf{s, r, bytes})
		}
	}
	return out
}

func hosts(from, to topo.HostID) (out []topo.HostID) {
	for h := from; h <= to; h++ {
		out = append(out, h)
	}
	return out
}

// pilotsOf are the (sender, receiver) pairs that a policy makes pilots of.
func pilotsOf(v *policies.View, p policies.Scheduler) (out []string) {
	var s policies.Schedule
	p.Schedule(v, &s)
	for _, id := range s.Pilots {
		for i := range v.Coflows {
			for _, f := range v.Coflows[i].Flows {
				if f.ID == id {
					out = append(out, fmt.Sprintf("%d->%d", f.Src, f.Dst))
				}
			}
		}
	}
	return out
}

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
		if got := (Sampling{Rule: tt.rule, Fraction: tt.fraction, Number: tt.number}).pilots(&c); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestPilotChoice(t *testing.T) {
	f := eightMillis(t, 12)
	// Four senders, three receivers: hosts 0 to 3 to hosts 6 to 8.
	square := all(hosts(0, 3), hosts(6, 8), mib)
	with := func(n int) (Philae, PhilaeSim) {
		p, sim := DefaultPhilae(), DefaultPhilaeSim()
		p.Rule, p.Number = Constant, n
		sim.Sampling = p.Sampling
		return p, sim
	}
	busyAt := func(v *policies.View, links map[topo.LinkID]int) *policies.View {
		// A coflow that is being sampled, and has nothing else to do with the others.
		c := policies.CoflowState{ID: 99, Width: 8, Left: 8, Senders: 8, Receivers: 8, Pilots: 3, PilotsLeft: 3}
		for l, n := range links {
			c.Links = append(c.Links, policies.LinkState{Link: l, Flows: n, Pilots: n})
		}
		slices.SortFunc(c.Links, func(a, b policies.LinkState) int { return int(a.Link - b.Link) })
		v.Coflows = append(v.Coflows, c)
		return v
	}
	for _, tt := range []struct {
		name     string
		number   int
		busy     map[topo.LinkID]int
		coflows  [][]demandOf
		leastOf  []string // the paper's
		rankedBy []string // the simulator's
	}{
		// Every choice makes its ports busier, so that the next goes elsewhere; the paper's
		// fourth receiver is the first again. The simulator's order of senders is 3 2 1 0,
		// then 0 1 2 3, 2 1 3 0, 1 0 3 2 and 2 3 0 1, that of receivers 8 7 6, then 6 7 8,
		// 7 8 6, 6 8 7 and 7 8 6; the last time 2->7 is a pilot already.
		{"idle ports", 5, nil, [][]demandOf{square}, []string{"0->6", "1->7", "2->8", "3->6", "0->7"}, []string{"3->8", "0->6", "2->7", "1->6", "2->8"}},
		{"busy sender and receiver", 2, map[topo.LinkID]int{f.HostUp(0): 2, f.HostUp(1): 1, f.HostDown(6): 1}, [][]demandOf{square},
			[]string{"2->7", "3->8"}, []string{"3->8", "2->7"}},
		// Only one flow starts at the least busy port, and it goes to the busiest: the
		// paper takes it, the simulator takes the least sum of ranks (1 + 0).
		{"no flow between the least busy", 1, map[topo.LinkID]int{f.HostUp(0): 1, f.HostDown(8): 3},
			[][]demandOf{{{1, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}, {0, 7, 1}, {0, 8, 1}, {0, 6, 1}}}, []string{"1->8"}, []string{"0->7"}},
		// The second coflow finds the first one's pilot.
		{"two new ones", 1, nil, [][]demandOf{square, square}, []string{"0->6", "1->7"}, []string{"3->8", "2->7"}},
		// All flows, in turn. Senders 1 0, 0 1, 1 0, 0 1, 1 0, 0 1, receivers 8 7 6, 6 7 8,
		// 7 8 6, 6 8 7, 7 6 8.
		{"thin", 1, nil, [][]demandOf{all(hosts(0, 1), hosts(6, 8), mib)}, nil, []string{"1->8", "0->6", "1->7", "0->8", "1->6", "0->7"}},
	} {
		v := func() *policies.View { return busyAt(shown(view(f, tt.coflows...), tt.coflows...), tt.busy) }
		p, sim := with(tt.number)
		if d := cmp.Diff(tt.leastOf, pilotsOf(v(), p)); d != "" {
			t.Errorf("%s, least busy (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.rankedBy, pilotsOf(v(), sim)); d != "" {
			t.Errorf("%s, by rank (-want +got):\n%s", tt.name, d)
		}
	}
	p, _ := with(1)
	p.Metric = LeastContention
	if got := pilotsOf(shown(view(f, square), square), p); got != nil {
		t.Errorf("policy C takes pilots %v", got)
	}
}

// Random pilots are different flows, each about as often as any other, and others
// with other luck.
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
			t.Fatalf("pilots %v, want 3 different ones of each coflow", got)
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
		pair := fmt.Sprintf("%d->%d", d.src, d.dst)
		if n := float64(count[pair]); math.Abs(n-want) > 5*math.Sqrt(want) {
			t.Errorf("%s is a pilot %v times, want about %v", pair, n, want)
		}
	}
	v := shown(view(f, flows, flows), flows, flows)
	if got := pilotsOf(v, p); slices.Equal(got[:3], got[3:]) {
		t.Errorf("two coflows that arrive together draw the same: %v", got)
	}
}

// worked is a coflow of 2 senders and 4 receivers whose one pilot of 2 MiB has
// ended, among others: one shares its sender 0, one its sender 0 and receiver 4.
func worked(t testing.TB) *policies.View {
	v := view(eightMillis(t, 12), all(hosts(0, 1), hosts(4, 7), 2*mib), []demandOf{{0, 8, mib}}, []demandOf{{0, 4, mib}})
	c := &v.Coflows[0]
	c.Pilots, c.PilotSent, c.Sent, c.Left = 1, 2*mib, 7*mib, 5
	return v
}

// Queues end at 10 MiB and 100 MiB. A: 2·8 = 16 MiB. B: 16-7 = 9. C: two other
// coflows. D: at sender 0 two others, at receiver 4 one, 3·2 = 6 MiB.
func TestPhilaeMetrics(t *testing.T) {
	for _, tt := range []struct {
		metric Metric
		value  int64
		queue  int
	}{{SmallestJob, int64(16 * mib), 1}, {ShortestRemaining, int64(9 * mib), 0}, {WeightedContention, int64(6 * mib), 0}} {
		v := worked(t)
		p := DefaultPhilae()
		p.Metric = tt.metric
		var s policies.Schedule
		if got := p.metric(&v.Coflows[0], crowds(v, &s)); got != tt.value {
			t.Errorf("metric %d is %d, want %d", tt.metric, got, tt.value)
		}
		s.Reset()
		p.Schedule(v, &s)
		// The other coflows are thin, and in no queue.
		if d := cmp.Diff([]int{tt.queue + 1, 0, 0}, s.Queues); d != "" {
			t.Errorf("metric %d: queues %s", tt.metric, d)
		}
		// A threshold at the metric ends the queue before it, one above it does not.
		for more, queue := range map[int64]int{0: 1, 1: 0} {
			p.First = units.Bytes(tt.value + more)
			s.Reset()
			p.Schedule(v, &s)
			if got := s.Queues[0] - 1; got != queue {
				t.Errorf("metric %d, threshold %d above: queue %d, want %d", tt.metric, more, got, queue)
			}
		}
	}
	v := worked(t)
	for first, queue := range map[float64]int{1: 1, 2: 1, 3: 0, 0.1: 2, 10485760: 0} {
		p := DefaultPhilae()
		p.Metric, p.FirstContention = LeastContention, first
		var s policies.Schedule
		p.Schedule(v, &s)
		if got := s.Queues[0] - 1; got != queue {
			t.Errorf("metric C, threshold %v: queue %d, want %d", first, got, queue)
		}
	}
	// What has been sent passes the estimate: nothing is left, as far as is known.
	v.Coflows[0].Sent = 17 * mib
	p := DefaultPhilae()
	p.Metric = ShortestRemaining
	if got := p.metric(&v.Coflows[0], nil); got != 0 {
		t.Errorf("%d bytes left", got)
	}
	// Three pilots of 10 bytes: 8 flows are 26⅔ bytes.
	c := policies.CoflowState{Width: 8, Pilots: 3, PilotSent: 10}
	if got := p.metric(&c, nil); got != 26 {
		t.Errorf("size %d, want 26", got)
	}
	c.PilotSent = math.MaxInt64
	if got := p.metric(&c, nil); got != math.MaxInt64 {
		t.Errorf("size %d, want the largest", got)
	}
}

// Queues stay while nothing begins or ends at a port, and follow when it does; what
// the memory keeps changes no answer.
func TestPhilaeMemory(t *testing.T) {
	for _, metric := range []Metric{LeastContention, WeightedContention} {
		v := worked(t)
		p := DefaultPhilae()
		p.Metric, p.First, p.FirstContention, p.Growth = metric, mib, 1, 2
		ask := func() (queues []int, memory []int64) {
			var s policies.Schedule
			p.Schedule(v, &s)
			return s.Queues, s.Memory
		}
		check := func(what string, wantMemory bool) {
			got, memory := ask()
			if (memory != nil) != wantMemory {
				t.Errorf("metric %d, %s: memory %v", metric, what, memory)
			}
			kept := v.Memory
			v.Memory = nil
			want, all := ask()
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("metric %d, %s: without memory (-) and with it (+): %s", metric, what, d)
			}
			v.Memory = kept
			if memory != nil {
				v.Memory = all
			}
			for i, q := range got {
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
			t.Errorf("metric %d: no contention is left, but it is in queue %d", metric, q-1)
		}
		check("again", false)
	}
}

// steps is a schedule's, for reading.
func steps(s *policies.Schedule) (out []string) {
	for _, st := range s.Steps {
		part := [...]string{"all", "pilots", "others", "chosen"}[st.Part]
		out = append(out, fmt.Sprint(st.Coflows, " ", part, " ", st.Rule, " ", st.Budget))
	}
	return out
}

// Coflows: 0 and 3 thin, 1 and 2 being sampled, 4 and 6 in queue 0, 5 in queue 2.
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
			[]string{"[0 3] all Greedy 0", "[1 2] pilots Greedy 0", "[4 6] all Equal 1", "[5] all Equal 2", "[4 6 5] all Greedy 0"}},
		{"strict", func(p *Philae) { p.Strict = true }, nil,
			[]string{"[0] all Greedy 0", "[1 2] pilots Greedy 0", "[3] all Greedy 0", "[6 4 5] all Greedy 0", "[1 2] others Greedy 0"}},
	} {
		p := DefaultPhilae()
		p.Metric = SmallestJob
		tt.change(&p)
		var s policies.Schedule
		p.Schedule(v, &s)
		if d := cmp.Diff(tt.want, steps(&s)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if d := cmp.Diff(tt.budgets, s.Budgets, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })); d != "" {
			t.Errorf("%s: budgets (-want +got):\n%s", tt.name, d)
		}
	}
}

// A coflow's whole life. Eight flows of 1 MiB from host 0; its pilot takes 8 ms, and
// the others wait for it, since their port is its own; then one after the other:
// 64 ms. Alone with a second sender, the others of that sender do not wait: 32 ms.
func TestPhilaeLife(t *testing.T) {
	f := eightMillis(t, 16)
	one, two := all(hosts(0, 0), hosts(4, 11), mib), all(hosts(0, 1), hosts(4, 7), mib)
	idle := DefaultPhilae()
	idle.Conserve = false
	for _, tt := range []struct {
		name string
		p    Philae
		jobs []job
		want []time.Duration
	}{
		{"one sender", DefaultPhilae(), []job{{0, one}}, millis(64)},
		{"two senders", DefaultPhilae(), []job{{0, two}}, millis(32)},
		{"two senders, idle", idle, []job{{0, two}}, millis(40)},
		// Its pilot goes before the flows of one whose pilots have ended: at 20 ms the
		// flow of the first that is under way is put off by 8 ms. Then both have l = 1
		// MiB, and D is 1 for both at their one common port: FIFO. The second has sent
		// 1 MiB by then, the first ends at 72, the second at 128.
		{"a pilot first", DefaultPhilae(), []job{{0, one}, {20 * time.Millisecond, all(hosts(0, 0), hosts(4, 11), mib)}}, millis(72, 108)},
		// A thin coflow does not wait for pilots that came later.
		{"thin", DefaultPhilae(), []job{{0, []demandOf{{0, 4, 2 * mib}}}, {0, one}}, millis(16, 80)},
	} {
		l := &loop{t: t, fabric: f, policy: tt.p}
		if d := cmp.Diff(tt.want, l.run(tt.jobs), about); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}
