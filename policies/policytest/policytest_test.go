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

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// scheduler is a coflow policy made of a function.
type scheduler struct {
	needs policies.Knowledge
	when  policies.When
	f     func(*policies.View, *policies.Schedule)
}

func (s *scheduler) Needs() policies.Knowledge                         { return s.needs }
func (s *scheduler) When() policies.When                               { return s.when }
func (s *scheduler) Schedule(v *policies.View, out *policies.Schedule) { s.f(v, out) }

var arrivals = policies.When{Coflows: true}

// placer is a placement policy made of a function.
type placer struct {
	needs policies.Knowledge
	f     func(*policies.View, workloads.Block, *rand.Rand) ([]topo.HostID, error)
}

func (p *placer) Needs() policies.Knowledge { return p.needs }
func (p *placer) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.f(v, b, rng)
}

func free(v *policies.View, s *policies.Schedule) {
	s.Steps = append(s.Steps, policies.Step{Coflows: s.Order(len(v.Coflows)), Rule: policies.Free})
}

// rated gives every flow the rate that f says.
func rated(f func(*policies.View, *policies.FlowState) policies.FlowRate) func(*policies.View, *policies.Schedule) {
	return func(v *policies.View, s *policies.Schedule) {
		var rates []policies.FlowRate
		for i := range v.Coflows {
			for j := range v.Coflows[i].Flows {
				rates = append(rates, f(v, &v.Coflows[i].Flows[j]))
			}
		}
		s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: rates})
	}
}

// stateful is a policy that is within the contract and uses all of it: queues, pilots,
// budgets, memory.
func stateful(v *policies.View, s *policies.Schedule) {
	s.Memory = s.Counts(1)
	if len(v.Memory) > 0 {
		s.Memory[0] = v.Memory[0] + 1
	}
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
	s.Steps = append(s.Steps, policies.Step{Coflows: order, Rule: policies.Greedy, Part: policies.Pilots}, policies.Step{Coflows: order, Rule: policies.Even, Part: policies.Others, Budget: 1})
}

func TestGoodSchedulersPass(t *testing.T) {
	Scheduler(t, &scheduler{when: arrivals, f: free})
	Scheduler(t, &scheduler{when: arrivals, f: func(*policies.View, *policies.Schedule) {}})
	Scheduler(t, &scheduler{needs: policies.NewFlows, when: policies.When{Every: time.Second}, f: stateful})
	Scheduler(t, &scheduler{needs: policies.Flows | policies.Sizes, when: arrivals, f: rated(func(v *policies.View, f *policies.FlowState) policies.FlowRate {
		if slices.ContainsFunc(f.Path, func(l topo.LinkID) bool { return v.Capacity[l] == 0 }) {
			return policies.FlowRate{Flow: f.ID}
		}
		return policies.FlowRate{Flow: f.ID, Rate: float64(f.Remaining%2) / 100}
	})})
	byID := &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
		for i, c := range v.Coflows {
			if c.ID%2 == 0 {
				s.Steps = append(s.Steps, policies.Step{Coflows: append(s.Ints(0), i), Rule: policies.Free})
			}
		}
	}}
	SchedulerByID(t, byID)
}

func TestBadSchedulersAreCaught(t *testing.T) {
	saying := func(say func(v *policies.View, s *policies.Schedule)) *scheduler {
		return &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if free(v, s); len(v.Coflows) > 0 {
				say(v, s)
			}
		}}
	}
	calls, moments := 0, 0
	var kept []int
	var last *topo.Fabric
	every := func(rate func(*policies.View, *policies.FlowState) policies.FlowRate) *scheduler {
		return &scheduler{needs: policies.Flows, when: arrivals, f: rated(rate)}
	}
	of := func(f workloads.FlowID, rate float64) policies.FlowRate {
		return policies.FlowRate{Flow: f, Rate: rate}
	}
	for _, tt := range []struct {
		name   string
		policy policies.Scheduler
		want   string // in the error; empty where luck decides which check it meets
	}{
		{"writes a capacity", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			v.Capacity[0]--
			free(v, s)
		}}, "wrote to the View"},
		{"writes what a link has left", saying(func(v *policies.View, s *policies.Schedule) { v.Coflows[0].Links[0].Flows-- }), "wrote to the View"},
		{"sorts the coflows in place", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) { slices.Reverse(v.Coflows) }}, "wrote to the View"},
		{"shares the View's memory", func() *scheduler {
			return &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
				if s.Memory = v.Memory; s.Memory == nil {
					s.Memory = s.Counts(1)
				}
			}}
		}(), "shares memory with the View"},
		{"overfills", every(func(v *policies.View, f *policies.FlowState) policies.FlowRate {
			return of(f.ID, float64(v.Capacity[f.Path[0]]))
		}), "overfill link"},
		{"rate of a link that is down", every(func(v *policies.View, f *policies.FlowState) policies.FlowRate {
			if slices.ContainsFunc(f.Path, func(l topo.LinkID) bool { return v.Capacity[l] == 0 }) {
				return of(f.ID, 1)
			}
			return of(f.ID, 0)
		}), "overfill link"},
		{"negative", every(func(v *policies.View, f *policies.FlowState) policies.FlowRate { return of(f.ID, -1) }), "0 or more"},
		{"no number", every(func(v *policies.View, f *policies.FlowState) policies.FlowRate { return of(f.ID, math.NaN()) }), "want a number"},
		{"infinite", every(func(v *policies.View, f *policies.FlowState) policies.FlowRate { return of(f.ID, math.Inf(1)) }), "want a number"},
		{"two rates", &scheduler{needs: policies.Flows, when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if len(v.Coflows) > 0 {
				f := v.Coflows[0].Flows[0].ID
				s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: []policies.FlowRate{of(f, 0), of(f, 0)}})
			}
		}}, "two rates"},
		{"rate for a stranger", saying(func(v *policies.View, s *policies.Schedule) {
			s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: []policies.FlowRate{of(99999, 0)}})
		}), "unknown or has ended"},
		{"rates of another rule", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Rates = []policies.FlowRate{of(0, 0)} }), "not Explicit"},
		{"counts its calls", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if calls++; calls%2 == 0 {
				free(v, s)
			}
		}}, "asked twice"},
		{"keeps its answer", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if last != v.Fabric || len(kept) != len(v.Coflows) {
				last, kept = v.Fabric, make([]int, len(v.Coflows))
				for i := range kept {
					kept[i] = i
				}
			}
			s.Steps = append(s.Steps, policies.Step{Coflows: kept})
		}}, "asked twice"},
		{"remembers the View before", func() *scheduler {
			var before, now *topo.Fabric
			return &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
				if v.Fabric != now {
					before, now = now, v.Fabric
				}
				if before == nil || before.Hosts() <= v.Fabric.Hosts() {
					free(v, s)
				}
			}}
		}(), "remembers another View"},
		{"draws from a global source", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if rand.IntN(2) == 0 {
				free(v, s)
			}
		}}, ""},
		{"clairvoyant in secret", saying(func(v *policies.View, s *policies.Schedule) {
			if v.Coflows[0].Remaining > 1000 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"knows what links have left in secret", saying(func(v *policies.View, s *policies.Schedule) {
			if v.Coflows[0].Links[0].Remaining > 1000 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"looks at flows in secret", saying(func(v *policies.View, s *policies.Schedule) {
			if len(v.Coflows[0].Flows) > 1 {
				s.Steps = nil
			}
		}), "does not declare"},
		{"knows the sizes of new flows in secret", func() *scheduler {
			p := saying(func(v *policies.View, s *policies.Schedule) {
				if f := v.Coflows[0].Flows; len(f) > 0 && f[0].Size > 1000 {
					s.Steps = nil
				}
			})
			p.needs = policies.NewFlows
			return p
		}(), "does not declare"},
		{"reads meaning into IDs", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			if len(v.Coflows) > 0 && v.Coflows[0].ID%4 == 0 {
				free(v, s)
			}
		}}, "what the IDs are"},
		{"serves a stranger", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Coflows[0] = len(v.Coflows) }), "want each place once"},
		{"serves one twice", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Coflows = []int{0, 0} }), "want each place once"},
		{"serves where there is nobody", &scheduler{when: arrivals, f: func(v *policies.View, s *policies.Schedule) {
			s.Steps = append(s.Steps, policies.Step{Coflows: []int{0}})
		}}, ""},
		{"unknown rule", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Rule = 99 }), "unknown rule"},
		{"unknown part", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Part = policies.Chosen + 1 }), "unknown part"},
		{"unknown choice", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Only = 3 }), "unknown choice"},
		{"unknown budget", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Budget = 1 }), "budget 1 of 0"},
		{"free within a budget", saying(func(v *policies.View, s *policies.Schedule) {
			s.Steps[0].Budget, s.Budgets = 1, append(s.Budgets, 0.5)
		}), "only the transport limits"},
		{"budget above 1", saying(func(v *policies.View, s *policies.Schedule) { s.Budgets = append(s.Budgets, 1.01) }), "want 0 to 1"},
		{"budget of no number", saying(func(v *policies.View, s *policies.Schedule) { s.Budgets = append(s.Budgets, math.NaN()) }), "want 0 to 1"},
		{"MADD without sizes", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Rule = policies.MADD }), "needs Sizes"},
		{"within of another rule", saying(func(v *policies.View, s *policies.Schedule) { s.Steps[0].Within = 1 }), "and MADD"},
		{"too many queues", saying(func(v *policies.View, s *policies.Schedule) { s.Queues = make([]int, len(v.Coflows)+1) }), "queues for"},
		{"watches too many", saying(func(v *policies.View, s *policies.Schedule) { s.Watch = make([]int64, len(v.Coflows)+1) }), "watches"},
		{"watches for less than nothing", saying(func(v *policies.View, s *policies.Schedule) {
			s.Watch = make([]int64, len(v.Coflows))
			s.Watch[0] = -1
		}), "want 0 or more"},
		{"wakes before the start", saying(func(v *policies.View, s *policies.Schedule) { s.Wake = -1 }), "want 0 or more"},
		{"pilot that it cannot see", saying(func(v *policies.View, s *policies.Schedule) {
			s.Pilots = append(s.Pilots, workloads.FlowID(100*v.Coflows[0].ID))
		}), "which is not shown"},
		{"pilot twice", func() *scheduler {
			p := saying(func(v *policies.View, s *policies.Schedule) { s.Pilots = append(s.Pilots, v.Coflows[0].Flows[0].ID) })
			p.needs = policies.Flows
			return p
		}(), "pilot twice"},
		{"is never asked", &scheduler{f: free}, "want it asked"},
		{"is asked at intervals of less than nothing", &scheduler{when: policies.When{Coflows: true, Every: -1}, f: free}, "want it asked"},
		{"changes its mind about when", whenever{&scheduler{when: arrivals, f: free}, &moments}, "answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 300 {
				err := CheckScheduler(tt.policy, Clusters().Example(seed), Clusters().Example(seed+1000))
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("caught for %q, want %q", err, tt.want)
					}
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// whenever is asked at other moments each time it is asked when.
type whenever struct {
	*scheduler
	n *int
}

func (w whenever) When() policies.When {
	*w.n++
	return policies.When{Coflows: true, Every: time.Duration(*w.n)}
}

// What a cluster shows fits together, whatever has happened to it.
func TestViewsFitTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Views().Draw(t, "view")
		for _, c := range v.Coflows {
			flows, remaining := 0, units.Bytes(0)
			on, begun := map[topo.LinkID]policies.LinkState{}, map[topo.LinkID]bool{}
			for _, f := range c.Flows {
				flows++
				remaining += f.Remaining
				for _, l := range f.Path {
					begun[l] = begun[l] || f.Sent > 0
					on[l] = policies.LinkState{Link: l, Flows: on[l].Flows + 1, Remaining: on[l].Remaining + f.Remaining}
				}
			}
			if flows != c.Left || remaining != c.Remaining || c.Left+c.Finished != c.Width || c.Left == 0 || c.Sent > c.Size || c.MostSent > c.Largest || c.Median > c.Largest || c.Arrival > v.Now || len(on) != len(c.Links) {
				t.Errorf("coflow %+v", c)
			}
			for _, l := range c.Links {
				if begun[l.Link] && !l.Begun {
					t.Errorf("coflow %d: nothing has begun at link %d, though a flow has sent", c.ID, l.Link)
				}
				l.Begun = false // what has begun may have ended
				if on[l.Link] != l {
					t.Errorf("coflow %d: link %+v, want %+v", c.ID, l, on[l.Link])
				}
			}
		}
	})
}

// anyHosts places from the client on, over the hosts in order.
func anyHosts(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
	for i := range b.Replicas {
		out = append(out, topo.HostID((int(b.Client)+i)%len(v.Hosts)))
	}
	return out, nil
}

// roomy places on the first host that has room, the first of another rack, and
// then the first others.
func roomy(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
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

func TestGoodPlacerPasses(t *testing.T) {
	Placer(t, &placer{policies.DiskUse, roomy})
}

// batcher is a policy that lets requests wait.
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
	backwards := func(w []policies.Request) (out []int) {
		for i := range w {
			out = append(out, len(w)-1-i)
		}
		return out
	}
	Placer(t, &batcher{placer{policies.DiskUse, roomy}, second, backwards})
	for _, tt := range []struct {
		name  string
		every func() time.Duration
		order func([]policies.Request) []int
		want  string
	}{
		{"none", second, func([]policies.Request) []int { return nil }, "each of them once"},
		{"one twice", second, func(w []policies.Request) []int { return make([]int, len(w)) }, "each of them once"},
		{"too many", second, func(w []policies.Request) []int { return append(backwards(w), 0) }, "each of them once"},
		{"a stranger", second, func(w []policies.Request) []int { return append(backwards(w[1:]), len(w)) }, "each of them once"},
		{"writes", second, func(w []policies.Request) []int { w[0].Left++; return backwards(w) }, "wrote to the requests"},
		{"negative", func() time.Duration { return -1 }, backwards, "method Every"},
		{"another each time", func() time.Duration { calls++; return time.Duration(calls) }, backwards, "method Every"},
		{"remembers", second, func(w []policies.Request) []int {
			out := backwards(w)
			if calls++; calls%2 == 0 {
				slices.Sort(out)
			}
			return out
		}, "asked twice"},
	} {
		waiting := []policies.Request{{Left: 1}, {Left: 2}}
		if err := checkBatcher(&batcher{every: tt.every, order: tt.order}, waiting); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestBadPlacersAreCaught(t *testing.T) {
	calls := 0
	for _, tt := range []struct {
		name   string
		policy *placer
		want   string // in the error; empty where luck decides which check it meets
	}{
		{"writes to the hosts", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			v.Hosts[0].Writing++
			return roomy(v, b, rng)
		}}, "wrote to the View"},
		{"writes to a placement", &placer{policies.DiskUse | policies.LinkLoad, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			for _, p := range v.Placements {
				p.Hosts[0] = 99
			}
			return roomy(v, b, rng)
		}}, "wrote to the View"},
		{"full disks", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			empty := clone(v)
			for h := range empty.Hosts {
				empty.Hosts[h].Used = 0
			}
			return roomy(empty, b, rng)
		}}, "no room"},
		{"lost hosts", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			there := clone(v)
			for h := range there.Hosts {
				there.Hosts[h].Lost = false
			}
			return roomy(there, b, rng)
		}}, "is lost"},
		{"one rack", &placer{0, anyHosts}, "in one rack"},
		{"same host twice", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return make([]topo.HostID, b.Replicas), nil
		}}, "two replicas on host 0"},
		{"a stranger", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			hosts[0] = topo.HostID(len(v.Hosts))
			return hosts, err
		}}, "want 0 to"},
		{"too few", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return []topo.HostID{b.Client}, nil
		}}, "1 hosts"},
		{"gives up", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return nil, errors.New("tired")
		}}, "tired"},
		{"keeps count", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if calls++; calls%2 == 0 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "asked twice"},
		{"luck of its own", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			return hosts, err
		}}, ""},
		{"looks at loads in secret", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && v.Hosts[hosts[0]].Rx > v.Hosts[hosts[1]].Rx {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"looks at true loads in secret", &placer{policies.DiskUse | policies.LinkLoad, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && len(v.Load) > 0 && v.Load[0]%2 == 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"looks at counters of racks in secret", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && v.Racks[0].Rx%2 == 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"writes to the zones", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			if v.Zone != nil {
				v.Zone[0]++
			}
			return roomy(v, b, rng)
		}}, "wrote to the View"},
		{"reads meaning into the block's ID", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if b.ID > 100 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "ID of the block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 300 {
				v := PlacerViews().Example(seed)
				err := CheckPlacer(tt.policy, v, PlacerViews().Example(seed+1000), blockFor(v).Example(seed), uint64(seed))
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("caught for %q, want %q", err, tt.want)
					}
					return
				}
			}
			t.Error("not caught")
		})
	}
}
