package flowsim_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// tiny is a trace of 4 ports in the public format.
func tiny(t testing.TB, coflows ...string) (*topo.Fabric, []workloads.Coflow) {
	t.Helper()
	trace, err := workloads.ParseTrace("tiny", strings.NewReader(strings.Join(append([]string{"4 " + string(rune('0'+len(coflows)))}, coflows...), "\n")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	f, cs, err := flowsim.Ports{}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	return f, cs
}

func run(t testing.TB, cfg flowsim.Config, coflows []workloads.Coflow) *flowsim.Result {
	t.Helper()
	r, err := flowsim.Run(t.Context(), cfg, coflows, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ccts(r *flowsim.Result) (ms []float64) {
	for _, c := range r.Coflows {
		ms = append(ms, c.CCT().Seconds()*1e3)
	}
	return ms
}

// Cases computed by hand, 8 ms per MB.
func TestTinyCases(t *testing.T) {
	aalo := coflow.DefaultAalo()
	aalo.Interval = 0
	fifo := coflow.Ordered{By: coflow.Arrival, Sharing: coflow.Sharing{Allocation: coflow.MaxMin}}
	ps := []policies.CoflowScheduler{coflow.Fair{}, fifo, coflow.SEBF{}, aalo}
	for _, tt := range []struct {
		name    string
		coflows []string
		want    [4][]float64 // fair, FIFO, SEBF, Aalo
	}{
		{"a shared sender", []string{"1 0 1 0 1 1:8.0", "2 0 1 0 1 2:4.0"}, [4][]float64{{96, 64}, {64, 96}, {96, 32}, {64, 96}}},
		{"a shared receiver", []string{"1 0 1 0 1 2:8.0", "2 0 1 1 1 2:4.0"}, [4][]float64{{96, 64}, {64, 96}, {96, 32}, {64, 96}}},
		{"preemption", []string{"1 0 1 0 1 1:100.0", "2 100 1 0 1 2:10.0"}, [4][]float64{{880, 160}, {800, 780}, {880, 80}, {880, 80}}},
		{"demotion", []string{"1 0 1 0 1 1:4000.0", "2 20480 1 0 1 2:50.0"}, [4][]float64{{32400, 800}, {32000, 11920}, {32400, 400}, {32400, 400}}},
		{"a port to itself", []string{"1 0 1 0 1 0:8.0", "2 0 1 0 1 1:8.0"}, [4][]float64{{128, 128}, {64, 128}, {64, 128}, {64, 128}}},
		{"beside a wide coflow", []string{"1 0 2 0 1 2 2:8.0 3:4.0", "2 0 1 0 1 3:6.0"}, [4][]float64{{80, 96}, {64, 96}, {96, 48}, {64, 96}}},
	} {
		f, cs := tiny(t, tt.coflows...)
		for i, p := range ps {
			if d := cmp.Diff(tt.want[i], ccts(run(t, flowsim.Config{Fabric: f, Scheduler: p}, cs))); d != "" {
				t.Errorf("%s, %T: CCTs in ms (-want +got):\n%s", tt.name, p, d)
			}
		}
	}
}

// 0→6 of 8 MB and 1→7 of 4 MB in one coflow, and 0→7 of 6 MB in another.
func TestPartialOverlap(t *testing.T) {
	f, err := topo.BigSwitch(8, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	cs := []workloads.Coflow{
		{ID: 1, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 6, Size: 8 * units.MB}, {ID: 1, Src: 1, Dst: 7, Size: 4 * units.MB}}},
		{ID: 2, Flows: []workloads.Flow{{ID: 2, Src: 0, Dst: 7, Size: 6 * units.MB}}},
	}
	// SEBF: 6 MB first, 48 ms; meanwhile 1→7 waits, then 8 MB of 0→6 take 64 more.
	for _, tt := range []struct {
		p    policies.CoflowScheduler
		want []float64
	}{
		{coflow.SEBF{}, []float64{112, 48}},
		// 0→6 has its port; 1→7 has all of its own; 0→7 waits for the first.
		{coflow.Ordered{By: coflow.Arrival, Sharing: coflow.Sharing{Allocation: coflow.Greedy}}, []float64{64, 112}},
	} {
		if d := cmp.Diff(tt.want, ccts(run(t, flowsim.Config{Fabric: f, Scheduler: tt.p}, cs))); d != "" {
			t.Errorf("%T: CCTs in ms (-want +got):\n%s", tt.p, d)
		}
	}
}

// The result of one coflow by hand, in all of its fields.
func TestResult(t *testing.T) {
	f, cs := tiny(t, "7 16 2 0 1 2 2:16.0 3:2.0")
	got := run(t, flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}}, cs)
	// 0→2 and 1→2 of 8 MB share receiver 2 while 1 MB each go to 3: 128 ms.
	want := &flowsim.Result{
		Coflows:  []flowsim.Coflow{{ID: 7, Arrival: 16 * time.Millisecond, Start: 16 * time.Millisecond, Finish: 144 * time.Millisecond, Queued: 16 * time.Millisecond, Width: 4, Size: 18 * units.MB, Largest: 8 * units.MB, Bound: 128 * time.Millisecond}},
		Makespan: 144 * time.Millisecond, Events: 3, Decisions: 1, FlowEnds: 4,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBatchesAndLocalFlows(t *testing.T) {
	trace, err := workloads.ParseTrace("tiny", strings.NewReader("4 3\n1 0 1 0 1 0:1.0\n2 10240 1 0 1 1:1.0\n3 10241 1 0 2 0:1.0 1:1.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, cs, err := flowsim.Ports{DropLocal: true, Batch: 10240 * time.Millisecond, MB: units.MiB}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	want := []workloads.Coflow{
		{ID: 2, Arrival: 0, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 5, Size: units.MiB}}},
		{ID: 3, Arrival: 10240 * time.Millisecond, Flows: []workloads.Flow{{ID: 1, Src: 0, Dst: 5, Size: units.MiB}}},
	}
	if d := cmp.Diff(want, cs); d != "" {
		t.Error(d)
	}
}

// In slotted time a flow ends at a multiple of the quantum and loses the rest of it: 1 MB at
// 134,217 B/ms takes 7.45 ms, 3 flows in a row three quanta.
func TestQuantum(t *testing.T) {
	trace, err := workloads.ParseTrace("tiny", strings.NewReader("4 2\n1 0 1 0 3 1:1.0 2:1.0 3:1.0\n2 3 1 1 1 2:1.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	f, cs, err := flowsim.Ports{Rate: 134_217 * 8000}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	greedy := coflow.Ordered{By: coflow.Arrival, Sharing: coflow.Sharing{Allocation: coflow.Greedy}}
	r := run(t, flowsim.Config{Fabric: f, Scheduler: greedy, Quantum: 8 * time.Millisecond}, cs)
	// The second arrives at 3 ms and is seen at 8, when port 2 is taken until 16.
	if d := cmp.Diff([]float64{24, 21}, ccts(r)); d != "" {
		t.Errorf("CCTs in ms (-want +got):\n%s", d)
	}
	fair := run(t, flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}, Quantum: 8 * time.Millisecond}, cs)
	for _, c := range fair.Coflows {
		if c.Finish%(8*time.Millisecond) != 0 {
			t.Errorf("coflow %d ends at %v under fair: want a multiple of 8 ms", c.ID, c.Finish)
		}
	}
}

// Resolution ends flows early, by at most its value.
func TestResolution(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 2:8.0", "2 0 1 1 1 3:8.5")
	exact := run(t, flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}}, cs)
	const resolution = 5 * time.Millisecond
	coarse := run(t, flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}, Resolution: resolution}, cs)
	if d := cmp.Diff([]float64{64, 68}, ccts(exact)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]float64{64, 64}, ccts(coarse)); d != "" || coarse.Events >= exact.Events {
		t.Errorf("%s\n%d events, %d without a resolution", d, coarse.Events, exact.Events)
	}
}

// script is a scheduler whose answers a test sets.
type script struct {
	needs policies.Facts
	when  policies.Triggers
	do    func(v *policies.CoflowView, s *policies.Schedule)
}

// visible is what policies of these tests see, unless they test what is hidden.
const visible = policies.Progress | policies.Links

func (p script) Needs() policies.Facts                               { return p.needs }
func (p script) New() policies.CoflowInstance                        { return p }
func (p script) Triggers() policies.Triggers                         { return p.when }
func (p script) Decide(v *policies.CoflowView, s *policies.Schedule) { p.do(v, s) }

// A policy is shown no bytes and no links that it ignores, and completion times are the same.
func TestIgnored(t *testing.T) {
	f, err := topo.BigSwitch(4, 8*units.Mbps)
	if err != nil {
		t.Fatal(err)
	}
	coflows := []workloads.Coflow{
		{ID: 1, Flows: []workloads.Flow{{ID: 1, Src: 0, Dst: 2, Size: 3e6}, {ID: 2, Src: 1, Dst: 2, Size: 1e6}}},
		{ID: 2, Arrival: time.Second, Flows: []workloads.Flow{{ID: 3, Src: 0, Dst: 3, Size: 1e6}}},
	}
	run := func(needs policies.Facts) (finish []time.Duration, sent units.Bytes, links int) {
		p := script{needs, policies.Triggers{Coflows: true}, func(v *policies.CoflowView, s *policies.Schedule) {
			for _, c := range v.Coflows {
				sent += c.Sent
				links += len(c.Links)
			}
			greedily(v, s, policies.Free)
		}}
		r, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: p}, coflows, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Coflows {
			finish = append(finish, c.Finish)
		}
		return finish, sent, links
	}
	want, sent, links := run(visible)
	if sent == 0 || links == 0 {
		t.Errorf("%d bytes and %d links: must be shown to a policy that names them", sent, links)
	}
	got, sent, links := run(0)
	if sent != 0 || links != 0 {
		t.Errorf("%d bytes and %d links: must not be shown", sent, links)
	}
	if !slices.Equal(got, want) {
		t.Errorf("completion times %v, want %v", got, want)
	}
}

func greedily(v *policies.CoflowView, s *policies.Schedule, rule policies.Rule) {
	s.Steps = append(s.Steps, policies.Step{Coflows: s.Order(len(v.Coflows)), Rule: rule})
}

// Times at which a scheduler is called.
func TestWhen(t *testing.T) {
	const ms = time.Millisecond
	// Two flows from port 0, 8 and 16 ms alone.
	two := []string{"1 3 1 0 2 1:1.0 2:2.0"}
	for _, tt := range []struct {
		name string
		when policies.Triggers
		rule policies.Rule
		do   func(v *policies.CoflowView, s *policies.Schedule)
		want []time.Duration
	}{
		{name: "coflows", when: policies.Triggers{Coflows: true}, rule: policies.MaxMin, want: []time.Duration{3 * ms}},
		{name: "flows", when: policies.Triggers{Coflows: true, Flows: true}, rule: policies.Greedy, want: []time.Duration{3 * ms, 11 * ms}},
		{name: "free is not asked", when: policies.Triggers{Coflows: true}, rule: policies.Free, want: []time.Duration{3 * ms}},
		{name: "every", when: policies.Triggers{Every: 10 * ms}, rule: policies.Greedy, want: []time.Duration{10 * ms, 20 * ms, 30 * ms}},
		{name: "every, nothing watched", when: policies.Triggers{Coflows: true, Flows: true, Every: 10 * ms}, rule: policies.Greedy,
			do: func(_ *policies.CoflowView, s *policies.Schedule) { s.Watch = append(s.Watch, 0) }, want: []time.Duration{10 * ms, 20 * ms}},
		{name: "every, watched", when: policies.Triggers{Coflows: true, Every: ms}, rule: policies.MaxMin,
			// 125,000 bytes a millisecond from 3 ms on: the watch is reached at 13 ms, and passed at 14.
			do: func(v *policies.CoflowView, s *policies.Schedule) {
				next := int64(1_250_000)
				if v.Coflows[0].Sent > units.Bytes(next) {
					next = 0
				}
				s.Watch = append(s.Watch, next)
			}, want: []time.Duration{3 * ms, 14 * ms}},
		{name: "wake", when: policies.Triggers{Coflows: true}, rule: policies.MaxMin,
			do: func(v *policies.CoflowView, s *policies.Schedule) { s.Wake = 5 * ms }, want: []time.Duration{3 * ms, 5 * ms}},
		{name: "wake at a multiple", when: policies.Triggers{Coflows: true, Every: 4 * ms}, rule: policies.MaxMin,
			do: func(v *policies.CoflowView, s *policies.Schedule) {
				s.Wake, s.Watch = 9*ms, append(s.Watch, 0)
			}, want: []time.Duration{4 * ms, 12 * ms}},
		{name: "pilots", when: policies.Triggers{Coflows: true, Pilots: true}, rule: policies.MaxMin,
			do: func(v *policies.CoflowView, s *policies.Schedule) {
				if v.Coflows[0].Pilots == 0 {
					s.Pilots = append(s.Pilots, 0)
				}
			}, want: []time.Duration{3 * ms, 19 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, cs := tiny(t, two...)
			var asked []time.Duration
			run(t, flowsim.Config{Fabric: f, Scheduler: script{visible, tt.when, func(v *policies.CoflowView, s *policies.Schedule) {
				asked = append(asked, v.Now)
				greedily(v, s, tt.rule)
				if tt.do != nil {
					tt.do(v, s)
				}
			}}}, cs)
			if d := cmp.Diff(tt.want, asked); d != "" {
				t.Errorf("asked at (-want +got):\n%s", d)
			}
		})
	}
}

// The scheduler sees the actual state, and no more than it needs.
func TestView(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 3 1:1.0 2:2.0 3:3.0")
	views := map[policies.Facts][]policies.CoflowState{}
	for _, needs := range []policies.Facts{
		policies.MostSent | policies.Links, policies.Sizes | policies.Flows | policies.MostSent | policies.Links,
		visible | policies.NewFlows, visible | policies.NewFlows | policies.PilotFlows,
	} {
		run(t, flowsim.Config{Fabric: f, Scheduler: script{needs, policies.Triggers{Coflows: true, Flows: true}, func(v *policies.CoflowView, s *policies.Schedule) {
			c := v.Coflows[0]
			c.Links, c.Flows = append([]policies.LinkState(nil), c.Links...), append([]policies.FlowState(nil), c.Flows...)
			views[needs] = append(views[needs], c)
			if c.Pilots == 0 {
				s.Pilots = append(s.Pilots, 1)
			}
			s.Queues = append(s.Queues, c.Finished)
			greedily(v, s, policies.Greedy)
		}}}, cs)
	}
	const mb, ms = units.MB, time.Millisecond
	up, down := f.HostUp(0), func(h topo.HostID) topo.LinkID { return f.HostDown(4 + h) }
	second := policies.CoflowState{ID: 1, Width: 3, Senders: 1, Receivers: 3, Left: 2, Sent: mb, MostSent: mb, Finished: 1, Median: mb, Pilots: 1, PilotsLeft: 1,
		Links: []policies.LinkState{{Link: up, Flows: 2, Pilots: 1, Begun: true}, {Link: down(2), Flows: 1, Pilots: 1}, {Link: down(3), Flows: 1}}}
	third := policies.CoflowState{ID: 1, Width: 3, Senders: 1, Receivers: 3, Left: 1, Sent: 3 * mb, MostSent: 2 * mb, Finished: 2, Median: mb, Queue: 1, Since: 8 * ms, Pilots: 1, PilotSent: 2 * mb,
		Links: []policies.LinkState{{Link: up, Flows: 1, Begun: true}, {Link: down(3), Flows: 1}}}
	if d := cmp.Diff([]policies.CoflowState{second, third}, views[policies.MostSent|policies.Links][1:]); d != "" {
		t.Errorf("without sizes (-want +got):\n%s", d)
	}
	third.Size, third.Largest, third.Remaining, third.Bound = 6*mb, 3*mb, 3*mb, 48*ms
	for i := range third.Links {
		third.Links[i].Remaining = 3 * mb
	}
	third.Flows = []policies.FlowState{{ID: 2, Src: 0, Dst: 7, Path: []topo.LinkID{up, down(3)}, Size: 3 * mb, Remaining: 3 * mb}}
	if d := cmp.Diff(third, views[policies.Sizes|policies.Flows|policies.MostSent|policies.Links][2]); d != "" {
		t.Errorf("with sizes and flows (-want +got):\n%s", d)
	}
	for i, v := range views[visible|policies.NewFlows] {
		if want := map[int]int{0: 3}[i]; len(v.Flows) != want {
			t.Errorf("decision %d: %d new flows, want %d", i, len(v.Flows), want)
		}
	}
	for i, v := range views[visible|policies.NewFlows|policies.PilotFlows] {
		want := [][]workloads.FlowID{{0, 1, 2}, {1}, nil}[i]
		var got []workloads.FlowID
		for _, fl := range v.Flows {
			got = append(got, fl.ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("decision %d: the flows shown, all and then pilots (-want +got):\n%s", i, d)
		}
	}
	if s := views[visible|policies.NewFlows][2].MostSent; s != 0 {
		t.Errorf("the longest flow shows as %v", s)
	}
	if s := views[visible|policies.NewFlows][0].Flows[0].Size; s != 0 {
		t.Errorf("the size %v of a new flow shows", s)
	}
}

// counting is a policy whose instances count their decisions.
type counting struct {
	script
	made *[]*int
}

func (c counting) New() policies.CoflowInstance {
	n := new(int)
	*c.made = append(*c.made, n)
	return script{do: func(v *policies.CoflowView, s *policies.Schedule) {
		*n++
		greedily(v, s, policies.Greedy)
	}}
}

// Each run has an instance of its own.
func TestInstances(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 3 1:1.0 2:2.0 3:3.0")
	var got []*int
	p := counting{script{when: policies.Triggers{Coflows: true, Flows: true}}, &got}
	for range 2 {
		run(t, flowsim.Config{Fabric: f, Scheduler: p}, cs)
	}
	three := 3
	if d := cmp.Diff([]*int{&three, &three}, got); d != "" {
		t.Error(d)
	}
}

// A rate cap is kept while the flows without one share the rest.
func TestFreeBesideCeilings(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:3.0", "2 0 1 0 2 2:2.0 3:1.0")
	r := run(t, flowsim.Config{Fabric: f, Scheduler: script{visible, policies.Triggers{Coflows: true}, func(v *policies.CoflowView, s *policies.Schedule) {
		for i, c := range v.Coflows {
			if c.ID == 1 {
				s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 0, Rate: 0.5e9}}})
			} else {
				s.Steps = append(s.Steps, policies.Step{Coflows: []int{i}, Rule: policies.Free})
			}
		}
	}}}, cs)
	// Half the port for 3 MB: 48 ms. The others share the other half, 32 ms for 1 MB
	// each, and then the second has the half alone for its other MB: 48 ms.
	if d := cmp.Diff([]float64{48, 48}, ccts(r)); d != "" {
		t.Errorf("CCTs in ms (-want +got):\n%s", d)
	}
}

func TestInvalidInput(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:1.0", "2 0 1 0 1 1:1.0")
	always := policies.Triggers{Coflows: true, Flows: true}
	says := func(do func(v *policies.CoflowView, s *policies.Schedule)) flowsim.Config {
		return flowsim.Config{Fabric: f, Scheduler: script{visible, always, do}}
	}
	flow := func(fl workloads.Flow) []workloads.Coflow {
		return []workloads.Coflow{{ID: 1, Flows: []workloads.Flow{fl}}}
	}
	fair := flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}}
	with := func(change func(*flowsim.Config)) flowsim.Config {
		c := fair
		change(&c)
		return c
	}
	down := make([]units.Rate, len(f.Links()))
	for _, tt := range []struct {
		name    string
		cfg     flowsim.Config
		coflows []workloads.Coflow
		want    string
	}{
		{"nothing", flowsim.Config{}, cs, "a fabric or a scheduler is missing"},
		{"capacities", with(func(c *flowsim.Config) { c.Capacity = down[:3] }), cs, "3 capacities for 16 links"},
		{"negative capacity", with(func(c *flowsim.Config) { c.Capacity = append([]units.Rate{-1}, down[1:]...) }), cs, "capacity of link h0-00>leaf0"},
		{"negative time", with(func(c *flowsim.Config) { c.Interval = -1 }), cs, "interval -1ns"},
		{"heartbeats", flowsim.Config{Fabric: f, Scheduler: script{policies.LinkLoad, always, nil}}, cs, "no heartbeats"},
		{"never asked", flowsim.Config{Fabric: f, Scheduler: script{visible, policies.Triggers{Flows: true}, nil}}, cs, "no flow would ever be sent"},
		{"off the quantum", flowsim.Config{Fabric: f, Scheduler: script{visible, policies.Triggers{Every: 12 * time.Millisecond}, nil}, Quantum: 8 * time.Millisecond}, cs, "multiple of the quantum"},
		{"twice", fair, append(cs[:1:1], cs[0]), "two coflows have ID 1"},
		{"empty", fair, []workloads.Coflow{{ID: 1}}, "coflow 1 has 0 flows"},
		{"to itself", fair, flow(workloads.Flow{Src: 1, Dst: 1, Size: 1}), "the hosts different ones"},
		{"stranger", fair, flow(workloads.Flow{Src: 1, Dst: 99, Size: 1}), "from host 1 to host 99"},
		{"nothing to send", fair, flow(workloads.Flow{Src: 1, Dst: 2}), "size must be positive"},
		{"too much", fair, flow(workloads.Flow{Src: 1, Dst: 2, Size: math.MaxInt64}), "in all"},
		{"early", fair, []workloads.Coflow{{ID: 1, Arrival: -1, Flows: cs[0].Flows}}, "arrives at -1ns"},
		{"flow twice", fair, []workloads.Coflow{{ID: 1, Flows: cs[0].Flows}, {ID: 2, Flows: cs[0].Flows}}, "another flow has ID 0"},
		{"links down", with(func(c *flowsim.Config) { c.Capacity = down }), cs, "deadlock: nothing moves and nothing is due: unfinished are coflow 1 (1 of 1 flows left, 0B of 1MB received, queue 0), coflow 2"},
		{"idle", says(func(*policies.CoflowView, *policies.Schedule) {}), cs, "deadlock: nothing moves"},
		{"idle for ever", flowsim.Config{Fabric: f, MaxIdle: time.Minute, Scheduler: script{visible, policies.Triggers{Every: time.Millisecond}, func(*policies.CoflowView, *policies.Schedule) {}}}, cs, "nothing has moved for 1m0s"},
		{"too long", with(func(c *flowsim.Config) { c.MaxTime = time.Millisecond }), cs, "later than the most a run may take, 1ms"},
		{"queues", says(func(v *policies.CoflowView, s *policies.Schedule) { s.Queues = append(s.Queues, 1) }), cs, "Queues has 1 values: must be one for each of 2 coflows"},
		{"watches", says(func(v *policies.CoflowView, s *policies.Schedule) { s.Watch = append(s.Watch, 1, -1) }), cs, "Watch of coflow 2: -1 bytes"},
		{"watches of flows", says(func(v *policies.CoflowView, s *policies.Schedule) { s.WatchMost = append(s.WatchMost, 1) }), cs, "WatchMost has 1 values: must be one for each of 2 coflows"},
		{"negative watch of a flow", says(func(v *policies.CoflowView, s *policies.Schedule) { s.WatchMost = append(s.WatchMost, 1, -1) }), cs, "WatchMost of coflow 2: -1 bytes"},
		{"pilots", says(func(v *policies.CoflowView, s *policies.Schedule) { s.Pilots = append(s.Pilots, 9) }), cs, "pilot 9: no such flow"},
		{"steps", says(func(v *policies.CoflowView, s *policies.Schedule) {
			s.Steps = append(s.Steps, policies.Step{Coflows: []int{5}})
		}), cs, "coflow 5: the view has only 2 coflows"},
		{"sizes", says(func(v *policies.CoflowView, s *policies.Schedule) { greedily(v, s, policies.MADD) }), cs, "needs flow sizes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := flowsim.Run(t.Context(), tt.cfg, tt.coflows, nil)
			if err == nil || r != nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("result %v, error %v, want one with %q", r, err, tt.want)
			}
		})
	}
	for _, o := range []flowsim.Ports{{Rate: -1}, {MB: 5}, {Batch: -1}} {
		if _, _, err := o.Coflows(&workloads.Trace{Name: "x", Ports: 2}); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestCancel(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:1.0")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := flowsim.Run(ctx, flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}}, cs, nil); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestProgress(t *testing.T) {
	f, cs := tiny(t, "1 0 1 0 1 1:1.0", "2 0 1 0 1 2:2.0")
	var got []flowsim.Progress
	if _, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: coflow.Fair{}}, cs, func(p flowsim.Progress) { got = append(got, p) }); err != nil {
		t.Fatal(err)
	}
	want := []flowsim.Progress{
		{Now: 16 * time.Millisecond, Coflows: 2, Arrived: 2, Finished: 1, Events: 2, Decisions: 1},
		{Now: 24 * time.Millisecond, Coflows: 2, Arrived: 2, Finished: 2, Events: 3, Decisions: 2},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The coordinator's load, by hand, in intervals of 10 ms.
func TestCoordinator(t *testing.T) {
	const ms = time.Millisecond
	// Ports 0 and 1 send 1 MB each from 0 to 8 ms; from 45 ms port 2 sends 3 MB to
	// port 3 and port 0 one to port 1: until 69 and 53 ms.
	f, cs := tiny(t, "1 0 1 0 1 2:1.0", "2 0 1 1 1 3:1.0", "3 45 1 2 1 3:3.0", "4 45 1 0 1 1:1.0")
	for _, tt := range []struct {
		name string
		p    policies.CoflowScheduler
		want flowsim.Coordinator
	}{
		// Intervals 0, 4, 5 and 6 are busy; in 4 no flow ends. Decisions at 0, 8 and 45 ms,
		// of which the second, without coflows, does not count, and at 53 ms without changes.
		{"at events", coflow.Ordered{By: coflow.Arrival, Sharing: coflow.Sharing{Allocation: coflow.Greedy}},
			flowsim.Coordinator{Interval: 10 * ms, Intervals: 4, Updates: 4, Silent: 1, Flushes: 2, Told: 4, Unflushed: 2}},
		// Called, and with reports, at every multiple of 10 ms: the first two from 0 on, the
		// others from 50 on; these end at 74 and 58 ms.
		{"at intervals", script{visible, policies.Triggers{Every: 10 * ms}, func(v *policies.CoflowView, s *policies.Schedule) { greedily(v, s, policies.Greedy) }},
			flowsim.Coordinator{Interval: 10 * ms, Intervals: 5, Updates: 2 + 2 + 2 + 1 + 1, Flushes: 2, Told: 4, Unflushed: 3}},
		{"free", coflow.Fair{}, flowsim.Coordinator{Interval: 10 * ms, Intervals: 4, Updates: 4, Silent: 1, Flushes: 2, Told: 4, Unflushed: 2}},
	} {
		if d := cmp.Diff(tt.want, run(t, flowsim.Config{Fabric: f, Scheduler: tt.p, Interval: 10 * ms}, cs).Coordinator); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// Without options a trace has the same bytes in a scenario and in the flow-level simulator.
func TestDefaultMB(t *testing.T) {
	trace, err := workloads.ParseTrace("t", strings.NewReader("4 1\n1 0 1 0 1 1:100.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, simulated, err := flowsim.Ports{}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	fabric, err := topo.BigSwitch(4, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	replayed, _, err := workloads.Replay(trace, fabric, workloads.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []units.Bytes{simulated[0].Flows[0].Size, replayed[0].Flows[0].Size} {
		if got != 100*workloads.DefaultMB {
			t.Errorf("a flow of 100 MB has %v, want %v", got, 100*workloads.DefaultMB)
		}
	}
}
