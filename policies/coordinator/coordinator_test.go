package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo/units"
)

const ms = time.Millisecond

// policy is a policy that declares something and schedules nothing.
type policy struct {
	needs    policies.Facts
	triggers policies.Triggers
}

func (p policy) Needs() policies.Facts                           { return p.needs }
func (p policy) New() policies.CoflowInstance                    { return p }
func (p policy) Triggers() policies.Triggers                     { return p.triggers }
func (p policy) Decide(*policies.CoflowView, *policies.Schedule) {}

func newCoordinator(t *testing.T, p policy, quantum time.Duration) *Coordinator {
	t.Helper()
	c, err := New(p, quantum, true)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// A coflow arrives at 1 ms. Every schedule is accepted when it is due, until 40 ms.
func TestDecisions(t *testing.T) {
	type events = map[int]func(*Coordinator, time.Duration) // by time in ms
	changed := (*Coordinator).CoflowChanged
	flow := func(c *Coordinator, at time.Duration) { c.FlowEnded(at, false) }
	pilot := func(c *Coordinator, at time.Duration) { c.FlowEnded(at, true) }
	most := policies.MostSent
	for _, tt := range []struct {
		name     string
		policy   policy
		quantum  time.Duration
		schedule policies.Schedule
		passes   int // ms; a coflow passes its threshold from then on
		events   events
		want     []int // ms
	}{
		{"coflows", policy{triggers: policies.Triggers{Coflows: true}}, 0, policies.Schedule{}, 0, events{2: flow, 3: pilot, 5: changed}, []int{1, 5}},
		{"flows", policy{triggers: policies.Triggers{Coflows: true, Flows: true}}, 0, policies.Schedule{}, 0, events{2: flow, 3: pilot}, []int{1, 2, 3}},
		{"pilots", policy{triggers: policies.Triggers{Coflows: true, Pilots: true}}, 0, policies.Schedule{}, 0, events{2: flow, 3: pilot}, []int{1, 3}},
		{"interval", policy{triggers: policies.Triggers{Every: 10 * ms}}, 0, policies.Schedule{}, 0, events{12: changed}, []int{10, 20, 30, 40}},
		{"events wait for the quantum", policy{triggers: policies.Triggers{Coflows: true}}, 4 * ms, policies.Schedule{}, 0, events{16: changed, 17: changed, 18: changed}, []int{4, 16, 20}},
		{"wake", policy{triggers: policies.Triggers{Coflows: true}}, 0, policies.Schedule{Wake: 7 * ms}, 0, nil, []int{1, 7}},
		{"wake at a multiple", policy{triggers: policies.Triggers{Coflows: true, Every: 10 * ms}}, 0, policies.Schedule{Wake: 25 * ms, Watch: []int64{0}}, 0, nil, []int{10, 30}},
		{"nothing watched", policy{triggers: policies.Triggers{Coflows: true, Every: 10 * ms}}, 0, policies.Schedule{Watch: []int64{0}}, 0, events{22: changed}, []int{10, 30}},
		{"watched", policy{triggers: policies.Triggers{Coflows: true, Every: 10 * ms}}, 0, policies.Schedule{Watch: []int64{5}}, 26, nil, []int{10, 30, 40}},
		{"longest flow watched", policy{most, policies.Triggers{Coflows: true, Every: 10 * ms}}, 0, policies.Schedule{WatchMost: []int64{5}}, 26, nil, []int{10, 30, 40}},
		{"longest flow watched, but not declared", policy{triggers: policies.Triggers{Coflows: true, Every: 10 * ms}}, 0, policies.Schedule{WatchMost: []int64{5}}, 26, nil, []int{10, 20, 30, 40}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCoordinator(t, tt.policy, tt.quantum)
			var got []int
			for i := 1; i <= 40; i++ {
				now := time.Duration(i) * ms
				if i == 1 {
					c.CoflowChanged(now)
				}
				if event := tt.events[i]; event != nil {
					event(c, now)
				}
				since := c.Due(now, func() time.Duration {
					if tt.passes > 0 {
						return max(now, time.Duration(tt.passes)*ms)
					}
					return Never
				})
				if since > now {
					continue
				}
				if since != now {
					t.Errorf("at %v: due since %v", now, since)
				}
				got = append(got, i)
				c.Accept(now, &tt.schedule)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("decisions in ms (-want +got):\n%s", d)
			}
		})
	}
}

// Due returns to a late caller the time at which the decision became due, a deferred multiple is skipped, and nothing
// is due after Reset until another coflow arrives.
func TestDueSince(t *testing.T) {
	c := newCoordinator(t, policy{triggers: policies.Triggers{Coflows: true, Every: 10 * ms}}, 0)
	passed := func() time.Duration { return 0 }
	c.CoflowChanged(5 * ms)
	if got := c.Due(33*ms, passed); got != 10*ms {
		t.Errorf("at 33 ms: due since %v, want 10 ms", got)
	}
	c.Accept(33*ms, &policies.Schedule{Watch: []int64{1}})
	if c.Defer(51 * ms); c.Next() != 60*ms || c.Due(50*ms, passed) <= 50*ms || c.Due(60*ms, passed) != 60*ms {
		t.Errorf("deferred to 51 ms: next at %v, want 60 ms", c.Next())
	}
	if c.Defer(10 * ms); c.Next() != 60*ms {
		t.Errorf("deferred to 10 ms: next at %v, want still 60 ms", c.Next())
	}
	if c.Due(60*ms, func() time.Duration { return 85 * ms }) <= 60*ms || c.Next() != 90*ms {
		t.Errorf("no coflow can pass before 85 ms: next at %v, want 90 ms", c.Next())
	}
	if c.Reset(); c.Requested() != Never {
		t.Errorf("after Reset: requested at %v", c.Requested())
	}
	if c.CoflowChanged(61 * ms); c.Next() != 70*ms || c.Requested() != 70*ms {
		t.Errorf("after an arrival at 61 ms: next at %v, requested at %v, want 70 ms", c.Next(), c.Requested())
	}
}

// Hosts report in every interval once the policy depends on bytes sent.
func TestReports(t *testing.T) {
	every := policies.Triggers{Coflows: true, Every: ms}
	for _, tt := range []struct {
		triggers policies.Triggers
		watch    []int64
		want     bool
	}{{policies.Triggers{Coflows: true}, nil, false}, {every, nil, true}, {every, []int64{0, 0}, false}, {every, []int64{0, 1}, true}} {
		c := newCoordinator(t, policy{triggers: tt.triggers}, 0)
		c.Accept(ms, &policies.Schedule{Watch: tt.watch})
		if c.Reports != tt.want {
			t.Errorf("%+v, watch %v: reports %v", tt.triggers, tt.watch, c.Reports)
		}
		c.Accept(2*ms, &policies.Schedule{Watch: []int64{0, 0}})
		if c.Reports != tt.want || c.WatchingMost {
			t.Errorf("%+v, watch %v: after another decision reports %v, watching longest flows %v", tt.triggers, tt.watch, c.Reports, c.WatchingMost)
		}
	}
}

// Queues remain until a schedule replaces them; thresholds do not.
func TestTake(t *testing.T) {
	c := newCoordinator(t, policy{policies.MostSent | policies.NewFlows | policies.PilotFlows, policies.Triggers{Coflows: true, Every: ms}}, 0)
	xs := []Coflow{{State: policies.CoflowState{Since: ms}}, {State: policies.CoflowState{Since: 2 * ms}}}
	if all, pilots := c.Shows(&xs[0]); !all || pilots {
		t.Errorf("new coflow: shows all flows %v, pilot flows %v", all, pilots)
	}
	xs[0].AddPilot()
	type taken struct {
		Queue            int
		Since            time.Duration
		Watch, WatchMost units.Bytes
		Moved            bool
	}
	for _, tt := range []struct {
		now  time.Duration
		s    policies.Schedule
		want [2]taken
	}{
		{3 * ms, policies.Schedule{Queues: []int{0, 4}, Watch: []int64{5, 0}, WatchMost: []int64{6, 7}}, [2]taken{{0, ms, 5, 6, false}, {4, 3 * ms, 0, 7, true}}},
		{4 * ms, policies.Schedule{Queues: []int{1, 4}, WatchMost: []int64{6, 0}}, [2]taken{{1, 4 * ms, 0, 6, true}, {4, 3 * ms, 0, 0, false}}},
		{5 * ms, policies.Schedule{}, [2]taken{{1, 4 * ms, 0, 0, false}, {4, 3 * ms, 0, 0, false}}},
	} {
		c.Accept(tt.now, &tt.s)
		var got [2]taken
		for i := range xs {
			moved := c.Take(&tt.s, i, &xs[i])
			got[i] = taken{xs[i].State.Queue, xs[i].State.Since, xs[i].Watch, xs[i].WatchMost, moved}
		}
		if most := len(tt.s.WatchMost) > 0; c.Watching != most || c.WatchingMost != most {
			t.Errorf("at %v: watching %v, longest flows %v, want %v", tt.now, c.Watching, c.WatchingMost, most)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("at %v (-want +got):\n%s", tt.now, d)
		}
	}
	if all, pilots := c.Shows(&xs[0]); all || !pilots {
		t.Errorf("coflow with a pilot: shows all flows %v, pilot flows %v", all, pilots)
	}
	if xs[0].AddPilot(); xs[0].PilotEnded(3) || !xs[0].PilotEnded(4) {
		t.Error("the first end of two pilot flows is the last, or the second is not")
	}
	if st := xs[0].State; st.Pilots != 2 || st.PilotsLeft != 0 || st.PilotSent != 7 {
		t.Errorf("%d pilot flows, %d left, %d bytes, want 2, 0, 7", st.Pilots, st.PilotsLeft, st.PilotSent)
	}
	if _, pilots := c.Shows(&xs[0]); pilots {
		t.Error("shows ended pilot flows")
	}
}

func TestErrors(t *testing.T) {
	watching, blind := Coordinator{Needs: policies.Progress}, Coordinator{}
	v := &policies.CoflowView{Coflows: []policies.CoflowState{{ID: 3}, {ID: 5}}}
	for want, err := range map[string]error{
		"Queues has 1 values":                watching.Check(v, &policies.Schedule{Queues: []int{1}}),
		"Watch has 3 values":                 watching.Check(v, &policies.Schedule{Watch: make([]int64, 3)}),
		"WatchMost has 1 values":             watching.Check(v, &policies.Schedule{WatchMost: make([]int64, 1)}),
		"Watch of coflow 5: -1 bytes":        watching.Check(v, &policies.Schedule{Watch: []int64{0, -1}}),
		"WatchMost of coflow 3: -2 bytes":    watching.Check(v, &policies.Schedule{WatchMost: []int64{-2, 0}}),
		"Watch is set, which needs Progress": blind.Check(v, &policies.Schedule{Watch: []int64{0, 1}}),
		"Wake is -1ns":                       watching.Check(v, &policies.Schedule{Wake: -1}),
		"<nil>":                              blind.Check(v, &policies.Schedule{Queues: []int{1, 2}, Watch: make([]int64, 2)}),
		"interval -1ns":                      errorOf(policy{triggers: policies.Triggers{Coflows: true, Every: -1}}, 0),
		"neither Triggers.Coflows nor Triggers.Every is set": errorOf(policy{triggers: policies.Triggers{Flows: true}}, 0),
		"multiple of the quantum 8ms":                        errorOf(policy{triggers: policies.Triggers{Every: 12 * ms}}, 8*ms),
	} {
		if got := "<nil>"; err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func errorOf(p policy, quantum time.Duration) error {
	_, err := New(p, quantum, true)
	return err
}

// A policy that is Unlimited must let all flows of all coflows send.
func TestUnlimited(t *testing.T) {
	v := &policies.CoflowView{Coflows: make([]policies.CoflowState, 2)}
	c := Coordinator{Unlimited: true}
	free := policies.Step{Rule: policies.Free, Coflows: []int{0, 1}}
	for name, steps := range map[string][]policies.Step{"all": {free}, "none": nil, "two": {free, free}, "one coflow": {{Rule: policies.Free, Coflows: []int{1}}}, "rates": {{Rule: policies.MADD, Coflows: []int{0, 1}}}} {
		if err := c.Check(v, &policies.Schedule{Steps: steps}); (err == nil) != (name == "all") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
