package policytest

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// scheduler is a coflow policy that calls a function.
type scheduler struct {
	needs    policies.Facts
	triggers policies.Triggers
	f        decide
	make     func() decide // of each instance, in place of f
}

type decide func(*policies.CoflowView, *policies.Schedule)

func (s *scheduler) New() policies.CoflowInstance {
	if s.make != nil {
		return &scheduler{f: s.make()}
	}
	return s
}

// visible is what policies of these tests see, unless they test what is hidden.
const visible = policies.Progress | policies.Links

func (s *scheduler) Needs() policies.Facts                                 { return s.needs }
func (s *scheduler) Triggers() policies.Triggers                           { return s.triggers }
func (s *scheduler) Decide(v *policies.CoflowView, out *policies.Schedule) { s.f(v, out) }

var arrivals = policies.Triggers{Coflows: true}

// placer is a placement policy that calls a function.
type placer struct {
	needs policies.Facts
	f     func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error)
}

func (p *placer) Needs() policies.Facts { return p.needs }
func (p *placer) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.f(v, b, rng)
}

func free(v *policies.CoflowView, s *policies.Schedule) {
	s.Steps = append(s.Steps, policies.Step{Coflows: s.Order(len(v.Coflows)), Rule: policies.Free})
}

// rated gives every flow the rate that f returns.
func rated(f func(*policies.CoflowView, *policies.FlowState) policies.FlowRate) func(*policies.CoflowView, *policies.Schedule) {
	return func(v *policies.CoflowView, s *policies.Schedule) {
		var rates []policies.FlowRate
		for i := range v.Coflows {
			for j := range v.Coflows[i].Flows {
				rates = append(rates, f(v, &v.Coflows[i].Flows[j]))
			}
		}
		s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: rates})
	}
}

// stateful is a valid policy that uses queues, pilot flows and budgets.
func stateful(v *policies.CoflowView, s *policies.Schedule) {
	order := s.Order(len(v.Coflows))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(v.Coflows[a].Queue, v.Coflows[b].Queue) })
	for _, c := range v.Coflows {
		s.Queues = append(s.Queues, min(c.Queue+1, 5))
		s.Watch = append(s.Watch, int64(c.Sent)+1000)
		if len(c.Flows) > 0 && c.Pilots == 0 {
			s.Pilots = append(s.Pilots, c.Flows[0].ID)
		}
	}
	s.Budgets = append(s.Budgets, 0.25)
	s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy, Part: policies.Pilots}, policies.Step{Coflows: order, Rule: policies.EqualSplit, Part: policies.Others, Budget: 1})
}

func TestValidSchedulersPass(t *testing.T) {
	Scheduler(t, &scheduler{triggers: arrivals, f: free})
	Scheduler(t, &scheduler{triggers: arrivals, f: func(*policies.CoflowView, *policies.Schedule) {}})
	Scheduler(t, &scheduler{needs: visible | policies.NewFlows, triggers: policies.Triggers{Every: time.Second}, f: stateful})
	Scheduler(t, &scheduler{needs: policies.Sizes | policies.Flows | policies.Links, triggers: arrivals, f: rated(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate {
		if slices.ContainsFunc(f.Path, func(l topo.LinkID) bool { return v.Capacity[l] == 0 }) {
			return policies.FlowRate{Flow: f.ID}
		}
		return policies.FlowRate{Flow: f.ID, Rate: float64(f.Remaining%2) / 100}
	})})
	Scheduler(t, &scheduler{triggers: arrivals, make: func() decide { // serves coflows that it has seen before
		seen := map[workloads.CoflowID]bool{}
		return func(v *policies.CoflowView, s *policies.Schedule) {
			for i, c := range v.Coflows {
				if seen[c.ID] {
					s.Steps = append(s.Steps, policies.Step{Coflows: append(s.Ints(0), i), Rule: policies.Free})
				}
				seen[c.ID] = true
			}
		}
	}})
	byID := &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
		for i, c := range v.Coflows {
			if c.ID%2 == 0 {
				s.Steps = append(s.Steps, policies.Step{Coflows: append(s.Ints(0), i), Rule: policies.Free})
			}
		}
	}}
	SchedulerByID(t, byID)
}

func TestInvalidSchedulersAreCaught(t *testing.T) {
	// The order of a map may be the same the first times.
	const eitherOrder = "two instances|that Needs does not declare|values of IDs"
	with := func(change func(v *policies.CoflowView, s *policies.Schedule)) *scheduler {
		return &scheduler{needs: visible, triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if free(v, s); len(v.Coflows) > 0 {
				change(v, s)
			}
		}}
	}
	calls, moments := 0, 0
	every := func(rate func(*policies.CoflowView, *policies.FlowState) policies.FlowRate) *scheduler {
		return &scheduler{needs: visible | policies.Flows, triggers: arrivals, f: rated(rate)}
	}
	of := func(f workloads.FlowID, rate float64) policies.FlowRate {
		return policies.FlowRate{Flow: f, Rate: rate}
	}
	for _, tt := range []struct {
		name   string
		policy policies.CoflowScheduler
		want   string // substring of the error; empty if the check that fails is random
	}{
		{"writes a capacity", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			v.Capacity[0]--
			free(v, s)
		}}, "modified the View"},
		{"writes to a link", with(func(v *policies.CoflowView, s *policies.Schedule) { v.Coflows[0].Links[0].Flows-- }), "modified the View"},
		{"sorts the coflows in place", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) { slices.Reverse(v.Coflows) }}, "modified the View"},
		{"exceeds a capacity", every(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate {
			return of(f.ID, float64(v.Capacity[f.Path[0]]))
		}), "exceeds the residual capacity"},
		{"rate of a link that is down", every(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate {
			if slices.ContainsFunc(f.Path, func(l topo.LinkID) bool { return v.Capacity[l] == 0 }) {
				return of(f.ID, 1)
			}
			return of(f.ID, 0)
		}), "exceeds the residual capacity"},
		{"negative", every(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate { return of(f.ID, -1) }), "0 or more"},
		{"NaN", every(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate { return of(f.ID, math.NaN()) }), "must be finite"},
		{"infinite", every(func(v *policies.CoflowView, f *policies.FlowState) policies.FlowRate { return of(f.ID, math.Inf(1)) }), "must be finite"},
		{"two rates", &scheduler{needs: visible | policies.Flows, triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if len(v.Coflows) > 0 {
				f := v.Coflows[0].Flows[0].ID
				s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: []policies.FlowRate{of(f, 0), of(f, 0)}})
			}
		}}, "two rates"},
		{"rate of an unknown flow", with(func(v *policies.CoflowView, s *policies.Schedule) {
			s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: []policies.FlowRate{of(99999, 0)}})
		}), "no unfinished flow has this ID"},
		{"rates of another rule", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Rates = []policies.FlowRate{of(0, 0)} }), "only with rule Explicit"},
		{"counts the calls of all instances", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if calls++; calls%3 == 0 {
				free(v, s)
			}
		}}, "two instances"},
		{"keeps its answer", &scheduler{triggers: arrivals, make: func() decide {
			var kept []int
			return func(v *policies.CoflowView, s *policies.Schedule) {
				if len(kept) != len(v.Coflows) {
					kept = make([]int, len(v.Coflows))
					for i := range kept {
						kept[i] = i
					}
				}
				s.Steps = append(s.Steps, policies.Step{Coflows: kept})
			}
		}}, "coflow -1: the view has only"},
		{"shares state between instances", func() *scheduler {
			var before, now *topo.Fabric
			return &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
				if v.Fabric != now {
					before, now = now, v.Fabric
				}
				if before == nil || before.Hosts() <= v.Fabric.Hosts() {
					free(v, s)
				}
			}}
		}(), "two instances"},
		{"ranges over a map", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			coflows := map[int]bool{}
			for i := range v.Coflows {
				coflows[i] = true
			}
			for i := range coflows {
				s.Steps = append(s.Steps, policies.Step{Coflows: append(s.Ints(0), i), Rule: policies.Greedy})
			}
		}}, eitherOrder},
		{"keeps the View", &scheduler{triggers: arrivals, make: func() decide {
			var at *policies.CoflowView // as first shown
			return func(v *policies.CoflowView, s *policies.Schedule) {
				at = cmp.Or(at, v)
				if len(at.Coflows) == len(v.Coflows) {
					free(v, s)
				}
			}
		}}, "two instances"},
		{"keeps the Cluster of the View", &scheduler{triggers: arrivals, make: func() decide {
			var at *policies.Cluster // as first shown
			return func(v *policies.CoflowView, s *policies.Schedule) {
				at = cmp.Or(at, v.Cluster)
				if len(at.Hosts) == len(v.Hosts) {
					free(v, s)
				}
			}
		}}, "two instances"},
		{"keeps the capacities of the View", &scheduler{triggers: arrivals, make: func() decide {
			var capacity []units.Rate // as first shown
			return func(v *policies.CoflowView, s *policies.Schedule) {
				if capacity == nil {
					capacity = v.Capacity
				}
				if slices.Equal(capacity, v.Capacity) {
					free(v, s)
				}
			}
		}}, "two instances"},
		{"draws from a global source", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if rand.IntN(2) == 0 {
				free(v, s)
			}
		}}, ""},
		{"undeclared use of sizes", with(func(v *policies.CoflowView, s *policies.Schedule) {
			if v.Coflows[0].Remaining > 1000 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"undeclared use of remaining bytes of links", with(func(v *policies.CoflowView, s *policies.Schedule) {
			if v.Coflows[0].Links[0].Remaining > 1000 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"undeclared use of progress", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if free(v, s); len(v.Coflows) > 0 && v.Coflows[0].Sent > 0 {
				s.Steps = nil
			}
		}}, "does not declare"},
		{"undeclared use of links", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if free(v, s); len(v.Coflows) > 0 && len(v.Coflows[0].Links) > 1 {
				s.Steps = nil
			}
		}}, "does not declare"},
		{"undeclared use of flows", with(func(v *policies.CoflowView, s *policies.Schedule) {
			if len(v.Coflows[0].Flows) > 1 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"undeclared use of sizes of new flows", func() *scheduler {
			p := with(func(v *policies.CoflowView, s *policies.Schedule) {
				if f := v.Coflows[0].Flows; len(f) > 0 && f[0].Size > 1000 {
					s.Steps = nil
				}
			})
			p.needs = visible | policies.NewFlows
			return p
		}(), "does not declare"},
		{"depends on IDs", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			if len(v.Coflows) > 0 && v.Coflows[0].ID%4 == 0 {
				free(v, s)
			}
		}}, "values of IDs"},
		{"serves an unknown coflow", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Coflows[0] = len(v.Coflows) }), "the view has only"},
		{"serves one twice", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Coflows = []int{0, 0} }), "occurs twice"},
		{"serves although there is no coflow", &scheduler{triggers: arrivals, f: func(v *policies.CoflowView, s *policies.Schedule) {
			s.Steps = append(s.Steps, policies.Step{Coflows: []int{0}})
		}}, ""},
		{"unknown rule", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Rule = 99 }), "unknown rule"},
		{"unknown part", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Part = policies.Chosen + 1 }), "unknown part"},
		{"unknown selection", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Only = 3 }), "unknown selection"},
		{"unknown budget", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Budget = 1 }), "budget 1 of 0"},
		{"free within a budget", with(func(v *policies.CoflowView, s *policies.Schedule) {
			s.Steps[0].Budget, s.Budgets = 1, append(s.Budgets, 0.5)
		}), "a budget cannot limit free flows"},
		{"budget above 1", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Budgets = append(s.Budgets, 1.01) }), "must be from 0 to 1"},
		{"NaN budget", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Budgets = append(s.Budgets, math.NaN()) }), "must be from 0 to 1"},
		{"MADD without sizes", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Rule = policies.MADD }), "name Sizes in its Needs"},
		{"within of another rule", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Steps[0].Within = 1 }), "with rule MADD"},
		{"too many queues", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Queues = make([]int, len(v.Coflows)+1) }), "Queues has"},
		{"watches too many", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Watch = make([]int64, len(v.Coflows)+1) }), "Watch has"},
		{"negative watch", with(func(v *policies.CoflowView, s *policies.Schedule) {
			s.Watch = make([]int64, len(v.Coflows))
			s.Watch[0] = -1
		}), "must be 0 or more"},
		{"wakes before the start", with(func(v *policies.CoflowView, s *policies.Schedule) { s.Wake = -1 }), "must be 0 or more"},
		{"pilot flow that is not shown", with(func(v *policies.CoflowView, s *policies.Schedule) {
			s.Pilots = append(s.Pilots, workloads.FlowID(100*v.Coflows[0].ID))
		}), "not in the View"},
		{"pilot twice", func() *scheduler {
			p := with(func(v *policies.CoflowView, s *policies.Schedule) {
				s.Pilots = append(s.Pilots, v.Coflows[0].Flows[0].ID)
			})
			p.needs = visible | policies.Flows
			return p
		}(), "pilot flow twice"},
		{"is never called", &scheduler{f: free}, "neither Triggers.Coflows nor Triggers.Every is set"},
		{"negative interval", &scheduler{triggers: policies.Triggers{Coflows: true, Every: -1}, f: free}, "interval -1ns"},
		{"changes Triggers", changingTriggers{&scheduler{triggers: arrivals, f: free}, &moments}, "returned"},
	} {
		caught(t, tt.name, tt.want, func(seed int) error {
			return CheckScheduler(tt.policy, Clusters().Example(seed), Clusters().Example(seed+1000))
		})
	}
}

// caught fails t unless one of several clusters detects a fault for the reason wanted, or one of several that | separates.
func caught(t *testing.T, name, want string, check func(seed int) error) {
	t.Run(name, func(t *testing.T) {
		for seed := range 300 {
			if err := check(seed); err != nil {
				t.Logf("cluster %d: %v", seed+1, err)
				if !slices.ContainsFunc(strings.Split(want, "|"), func(s string) bool { return strings.Contains(err.Error(), s) }) {
					t.Errorf("want %q", want)
				}
				return
			}
		}
		t.Error("not caught")
	})
}

// changingTriggers is a scheduler whose Triggers returns a different value on each call.
type changingTriggers struct {
	*scheduler
	n *int
}

func (w changingTriggers) Triggers() policies.Triggers {
	*w.n++
	return policies.Triggers{Coflows: true, Every: time.Duration(*w.n)}
}

// anyHosts places replicas on the client and the hosts after it that are not lost.
func anyHosts(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
	for i := range v.Hosts {
		if h := topo.HostID((int(b.Client) + i) % len(v.Hosts)); len(out) < b.Replicas && !v.Hosts[h].Lost {
			out = append(out, h)
		}
	}
	if len(out) < b.Replicas {
		return nil, errors.New("no room")
	}
	return out, nil
}

// roomy places replicas on the first host with room, the first in another rack, then
// the first others.
func roomy(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
	for _, spread := range []bool{true, false} {
		for h := range topo.HostID(len(v.Hosts)) {
			s := v.Hosts[h]
			switch {
			case s.Lost || s.Disk != 0 && s.Disk-s.Used < b.Size || slices.Contains(out, h) || len(out) == b.Replicas:
			case spread && (len(out) > 1 || len(out) == 1 && v.Fabric.RackOf(h) == v.Fabric.RackOf(out[0])):
			default:
				out = append(out, h)
			}
		}
	}
	if len(out) < b.Replicas {
		return nil, errors.New("no room")
	}
	return out, nil
}

func TestValidPlacerPasses(t *testing.T) {
	Placer(t, &placer{policies.DiskUse, roomy})
}

// batcher is a policy that queues requests.
type batcher struct {
	placer
	every func() time.Duration
	order func([]policies.Request) []int
}

func (p *batcher) Every() time.Duration             { return p.every() }
func (p *batcher) Order(w []policies.Request) []int { return p.order(w) }

func TestBatchers(t *testing.T) {
	calls := 0
	second := func() time.Duration { return time.Second }
	reverse := func(w []policies.Request) (out []int) {
		for i := range w {
			out = append(out, len(w)-1-i)
		}
		return out
	}
	Placer(t, &batcher{placer{policies.DiskUse, roomy}, second, reverse})
	for _, tt := range []struct {
		name  string
		every func() time.Duration
		order func([]policies.Request) []int
		want  string
	}{
		{"none", second, func([]policies.Request) []int { return nil }, "each of them once"},
		{"one twice", second, func(w []policies.Request) []int { return make([]int, len(w)) }, "each of them once"},
		{"too many", second, func(w []policies.Request) []int { return append(reverse(w), 0) }, "each of them once"},
		{"unknown request", second, func(w []policies.Request) []int { return append(reverse(w[1:]), len(w)) }, "each of them once"},
		{"writes", second, func(w []policies.Request) []int { w[0].Left++; return reverse(w) }, "modified the requests"},
		{"negative", func() time.Duration { return -1 }, reverse, "method Every"},
		{"changes Every", func() time.Duration { calls++; return time.Duration(calls) }, reverse, "method Every"},
		{"keeps state", second, func(w []policies.Request) []int {
			out := reverse(w)
			if calls++; calls%2 == 0 {
				slices.Sort(out)
			}
			return out
		}, "two identical calls"},
	} {
		p := &batcher{placer{policies.DiskUse, roomy}, tt.every, tt.order}
		caught(t, tt.name, tt.want, func(seed int) error {
			return CheckPlacer(p, Clusters().Example(seed), Clusters().Example(seed+1000))
		})
	}
}

func TestInvalidPlacersAreCaught(t *testing.T) {
	calls := 0
	for _, tt := range []struct {
		name   string
		policy *placer
		want   string // substring of the error; empty if the check that fails is random
	}{
		{"writes to the hosts", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			v.Hosts[0].Writing++
			return roomy(v, b, rng)
		}}, "modified the View"},
		{"returns the scratch memory", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			return append(v.Scratch[:0], hosts...), err
		}}, "different hosts"},
		{"writes to a placement", &placer{policies.DiskUse | policies.LinkLoad, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			for _, p := range v.Placements {
				p.Hosts[0] = 99
			}
			return roomy(v, b, rng)
		}}, "modified the View"},
		{"full disks", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			empty := clonePlacement(v)
			for h := range empty.Hosts {
				empty.Hosts[h].Used = 0
			}
			return roomy(empty, b, rng)
		}}, "no room"},
		{"lost hosts", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			there := clonePlacement(v)
			for h := range there.Hosts {
				there.Hosts[h].Lost = false
			}
			return roomy(there, b, rng)
		}}, "not lost"},
		{"one rack", &placer{0, anyHosts}, "in one rack"},
		{"same host twice", &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return make([]topo.HostID, b.Replicas), nil
		}}, "must be different hosts"},
		{"unknown host", &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			hosts[0] = topo.HostID(len(v.Hosts))
			return hosts, err
		}}, "hosts of the fabric"},
		{"too few", &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return []topo.HostID{b.Client}, nil
		}}, "1 hosts"},
		{"gives up", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return nil, errors.New("gave up")
		}}, "gave up"},
		{"counts its calls", &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if calls++; calls%2 == 0 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "two identical calls"},
		{"draws from a global source", &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			return hosts, err
		}}, ""},
		{"keeps the View", func() *placer {
			var at *policies.PlacementView
			return &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
				at = cmp.Or(at, v)
				if len(at.Hosts) == 0 {
					return nil, nil
				}
				return anyHosts(v, b, rng)
			}}
		}(), "two identical calls"},
		{"keeps the Cluster of the View", func() *placer {
			var at *policies.Cluster
			return &placer{0, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
				at = cmp.Or(at, v.Cluster)
				if len(at.Hosts) == 0 {
					return nil, nil
				}
				return anyHosts(v, b, rng)
			}}
		}(), "two identical calls"},
		{"undeclared use of loads", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && v.Hosts[hosts[0]].Rx > v.Hosts[hosts[1]].Rx {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"undeclared use of true loads", &placer{policies.DiskUse | policies.LinkLoad, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && len(v.Load) > 0 && v.Load[0]%2 == 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"undeclared use of rack counters", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && v.Racks[0].Rx%2 == 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"writes to the zones", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			if v.Zone != nil {
				v.Zone[0]++
			}
			return roomy(v, b, rng)
		}}, "modified the View"},
		{"depends on the block's ID", &placer{policies.DiskUse, func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if b.ID > 100 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "ID of the block"},
	} {
		caught(t, tt.name, tt.want, func(seed int) error {
			return CheckPlacer(tt.policy, Clusters().Example(seed), Clusters().Example(seed+1000))
		})
	}
}
