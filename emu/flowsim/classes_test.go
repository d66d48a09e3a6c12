package flowsim_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/topo/units"
	"testbed/workloads"
)

// shown is the input of a decision.
type shown struct {
	Now     time.Duration
	Coflows []policies.CoflowState
}

// records runs a policy and keeps its inputs. With more it declares to need more than it
// does, which shows no more here, but makes rates be kept flow by flow.
func records(ctx context.Context, cfg flowsim.Config, coflows []workloads.Coflow, more policies.Facts) (*flowsim.Result, []shown, error) {
	p := cfg.Scheduler
	decide := p.New().Decide
	var out []shown
	cfg.Scheduler = script{p.Needs() | visible | more, p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
		decide(v, s)
		now := shown{Now: v.Now}
		for _, c := range v.Coflows {
			c.Links, c.Flows = slices.Clone(c.Links), slices.Clone(c.Flows)
			if more != 0 {
				c.Size, c.Largest, c.Remaining, c.Bound = 0, 0, 0, 0
				for i := range c.Links {
					c.Links[i].Remaining = 0
				}
				for i := range c.Flows {
					c.Flows[i].Size, c.Flows[i].Remaining = 0, 0
				}
				switch needs := p.Needs(); {
				case needs.Has(policies.NewFlows) && c.Arrival == v.Now && c.Sent == 0:
				case needs.Has(policies.PilotFlows):
					c.Flows = slices.DeleteFunc(c.Flows, func(f policies.FlowState) bool { return !f.Pilot })
				default:
					c.Flows = nil
				}
			}
			if len(c.Flows) == 0 {
				c.Flows = nil
			}
			now.Coflows = append(now.Coflows, c)
		}
		out = append(out, now)
	}}
	r, err := flowsim.Run(ctx, cfg, coflows, nil)
	return r, out, err
}

// mixture changes its rule as flows end, chooses pilots, and may need more or less.
type mixture struct {
	rules  []policies.Rule
	needs  policies.Facts
	when   policies.Triggers
	pilots bool
}

func (m mixture) Needs() policies.Facts        { return m.needs }
func (m mixture) New() policies.CoflowInstance { return m }
func (m mixture) Triggers() policies.Triggers  { return m.when }
func (m mixture) Decide(v *policies.CoflowView, s *policies.Schedule) {
	ended := 0
	for _, c := range v.Coflows {
		ended += c.Finished
		if m.pilots && c.Pilots == 0 && len(c.Flows) > 0 {
			s.Pilots = append(s.Pilots, c.Flows[0].ID)
		}
		s.Queues = append(s.Queues, c.Left%3)
	}
	greedily(v, s, m.rules[ended/2%len(m.rules)])
}

// Rates by classes equal rates flow by flow, and the policy sees the same on the way.
func TestClasses(t *testing.T) {
	always := policies.Triggers{Coflows: true, Flows: true}
	const free, even = policies.Free, policies.EqualSplit
	for name, p := range map[string]policies.CoflowScheduler{
		"fair":                  coflow.Fair{},
		"equal-share":           coflow.EqualShare{},
		"free at ends of flows": mixture{rules: []policies.Rule{free}, when: always},
		"free with pilots":      mixture{rules: []policies.Rule{free}, when: policies.Triggers{Coflows: true, Pilots: true}, needs: visible | policies.NewFlows, pilots: true},
		"even with pilots":      mixture{rules: []policies.Rule{even}, when: always, needs: visible | policies.NewFlows | policies.PilotFlows, pilots: true},
		"even, longest":         mixture{rules: []policies.Rule{even}, when: always, needs: policies.MostSent | policies.Links},
		"even at coflows alone": mixture{rules: []policies.Rule{even}, when: policies.Triggers{Coflows: true}},
		"even and free":         mixture{rules: []policies.Rule{even, free}, when: always},
		"in turn":               mixture{rules: []policies.Rule{free, policies.Greedy, even, policies.MaxMin}, when: always},
		"in turn with pilots":   mixture{rules: []policies.Rule{even, policies.Greedy, free}, when: always, needs: policies.NewFlows | policies.MostSent | policies.Links, pilots: true},
	} {
		t.Run(name, func(t *testing.T) {
			few(t, 30, func(t *rapid.T) {
				f := anyFabric(t)
				coflows := anyCoflows(t, f, rapid.Bool().Draw(t, "equal"))
				cfg := flowsim.Config{Fabric: f, Scheduler: p, Seed: rapid.Uint64().Draw(t, "seed")}
				if rapid.IntRange(0, 3).Draw(t, "down") == 0 {
					for _, l := range f.Links() {
						cfg.Capacity = append(cfg.Capacity, l.Rate)
					}
					cfg.Capacity[rapid.IntRange(0, len(f.Links())-1).Draw(t, "link")] = 0
				}
				if rapid.IntRange(0, 3).Draw(t, "coarse") == 0 {
					// Nothing else is a multiple of it, so rounding does not decide which flows
					// end within it.
					cfg.Resolution = 2_718_281 * time.Nanosecond
				}
				got, views, err := records(t.Context(), cfg, coflows, 0)
				want, wantViews, wantErr := records(t.Context(), cfg, coflows, policies.Sizes|policies.Flows|policies.Links)
				if err != nil || wantErr != nil {
					if err == nil || wantErr == nil || cfg.Capacity == nil || !strings.Contains(err.Error(), "deadlock") || !strings.Contains(wantErr.Error(), "deadlock") {
						t.Fatalf("error %v, flow by flow %v", err, wantErr)
					}
				}
				near := cmp.Options{ // except for rounding
					cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 1 }),
					cmp.Comparer(func(a, b units.Bytes) bool { return max(a-b, b-a) <= 1 }),
				}
				if d := cmp.Diff(wantViews, views, near); d != "" {
					t.Errorf("shown by classes (-flow by flow +by classes):\n%s", d)
				}
				if d := cmp.Diff(want, got, near); d != "" {
					t.Errorf("result (-flow by flow +by classes):\n%s", d)
				}
			})
		})
	}
}
