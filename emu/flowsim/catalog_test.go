package flowsim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// promise is a set of properties of a policy of the catalog with its defaults.
type promise struct {
	// conserves: no decision leaves capacity on every link of a flow's path that the flow
	// could use.
	conserves bool
	// busy: no decision lets a flow wait while all of its links are idle.
	busy bool
	// fair: a stream of coflows that fills the network does not starve another; starves: it does.
	fair, starves bool
	// byPort: among equal ports the one of the lower host is used, so renumbering hosts
	// changes nothing only if their order is the same.
	byPort bool
}

// promises are those of docs/policies.md. A policy that is not listed promises nothing.
var promises = map[string]promise{
	"aalo":        {busy: true, starves: true},
	"aalo-oracle": {busy: true, starves: true},
	"equal-share": {busy: true, fair: true},
	"fair":        {conserves: true, busy: true, fair: true},
	"fifo":        {conserves: true, busy: true, fair: true},
	"lcf":         {conserves: true, busy: true, starves: true},
	"ncf":         {conserves: true, busy: true, starves: true},
	"philae":      {busy: true, fair: true, byPort: true},
	"philae-sim":  {fair: true, byPort: true},
	"rack-limit":  {busy: true, fair: true},
	"saath":       {busy: true, fair: true},
	"scf":         {conserves: true, busy: true, starves: true},
	"sebf":        {conserves: true, busy: true, starves: true},
	"sincronia":   {conserves: true, busy: true, starves: true, byPort: true},
}

// each runs a test for every policy of the catalog.
func each(t *testing.T, test func(t *testing.T, p policies.CoflowScheduler, is promise)) {
	t.Helper()
	names := catalog.All().Names(catalog.RoleCoflow)
	for name := range promises {
		if !slices.Contains(names, name) {
			t.Errorf("%s makes promises and is not in the catalog", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { test(t, policy(t, name, nil), promises[name]) })
	}
}

// few sets the number of drawn cases; with -whole it is that of -rapid.checks.
func few(t *testing.T, checks int, prop func(*rapid.T)) {
	t.Helper()
	if !*whole {
		atMost(t, checks)
	}
	rapid.Check(t, prop)
}

// audit passes a policy's decisions to a test, with the full state.
type audit struct {
	policies.CoflowScheduler
	look func(v *policies.CoflowView, s *policies.Schedule)
}

func (a audit) Needs() policies.Facts {
	return a.CoflowScheduler.Needs() | policies.Sizes | policies.Flows | policies.Links
}

func (a audit) New() policies.CoflowInstance { return observed{a.CoflowScheduler.New(), a.look} }

// observed passes the decisions of an instance to a function, which may change them.
type observed struct {
	policies.CoflowInstance
	look func(v *policies.CoflowView, s *policies.Schedule)
}

func (o observed) Decide(v *policies.CoflowView, s *policies.Schedule) {
	o.CoflowInstance.Decide(v, s)
	o.look(v, s)
}

// Properties of every decision: no link is overfilled, and no capacity is left that the
// policy promises to use.
func TestCatalogDecisions(t *testing.T) {
	each(t, func(t *testing.T, p policies.CoflowScheduler, is promise) {
		few(t, 20, func(t *rapid.T) {
			f := anyFabric(t)
			coflows := anyCoflows(t, f, rapid.Bool().Draw(t, "equal"))
			look := func(v *policies.CoflowView, _ *policies.Schedule) {
				free := make([]float64, len(v.Capacity))
				for l, r := range v.Capacity {
					free[l] = float64(r)
				}
				rates := ratesOf(p, v)
				flows := allFlows(v)
				for i, fl := range flows {
					for _, l := range fl.Path {
						free[l] -= rates[i]
					}
				}
				for l, left := range free {
					if left < -1e-9*float64(v.Capacity[l]) {
						t.Fatalf("at %v link %s is given %v bit/s more than it has", v.Now, f.LinkName(topo.LinkID(l)), -left)
					}
				}
				for i, fl := range flows {
					part := 1.0 // remaining share of the path's capacity
					for _, l := range fl.Path {
						part = min(part, free[l]/float64(v.Capacity[l]))
					}
					switch {
					case is.conserves && part > 1e-8:
						t.Fatalf("at %v flow %d has %v bit/s, and of all its links %v is left", v.Now, fl.ID, rates[i], part)
					case is.busy && part == 1:
						t.Fatalf("at %v flow %d waits, and all its links are idle", v.Now, fl.ID)
					}
				}
			}
			if _, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: audit{p, look}, Seed: 1}, coflows, nil); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func allFlows(v *policies.CoflowView) []policies.FlowState {
	var out []policies.FlowState
	for _, c := range v.Coflows {
		out = append(out, c.Flows...)
	}
	return out
}

// Every coflow ends, none before its bottleneck allows, and renumbering hosts changes
// nothing.
func TestCatalogRuns(t *testing.T) {
	const hosts = 7
	small, err := topo.BigSwitch(hosts, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	large, err := topo.BigSwitch(2*hosts, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, p policies.CoflowScheduler, is promise) {
		few(t, 20, func(t *rapid.T) {
			coflows := anyCoflows(t, small, false)
			var numbers []topo.HostID
			for h := range topo.HostID(2 * hosts) {
				numbers = append(numbers, h)
			}
			numbers = rapid.Permutation(numbers).Draw(t, "numbers")[:hosts]
			if is.byPort {
				slices.Sort(numbers)
			}
			var other []workloads.Coflow
			for _, c := range coflows {
				c.Flows = slices.Clone(c.Flows)
				for i := range c.Flows {
					fl := &c.Flows[i]
					fl.Src, fl.Dst = numbers[fl.Src], numbers[fl.Dst]
				}
				other = append(other, c)
			}
			a, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: small, Scheduler: p}, coflows, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: large, Scheduler: p}, other, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range a.Coflows {
				if c.CCT() < c.Bound-time.Nanosecond {
					t.Errorf("coflow %d takes %v, less than its bottleneck, %v", c.ID, c.CCT(), c.Bound)
				}
				if d := (c.Finish - b.Coflows[i].Finish).Abs(); d > 2*time.Nanosecond {
					t.Errorf("coflow %d ends at %v, with hosts renumbered to %v at %v", c.ID, c.Finish, numbers, b.Coflows[i].Finish)
				}
			}
		})
	})
}

// A coflow that every order except first in, first out puts last, and that does not fit in
// the first of Aalo's queues, competes with a stream of small ones that fills the two ports
// from which they all send. It ends before the stream does if no coflow starves, and
// otherwise after.
func TestCatalogStarvation(t *testing.T) {
	const (
		stream = 1000
		gap    = 32 * time.Millisecond // 4 MB on a port
	)
	f, err := topo.BigSwitch(16, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	next := workloads.FlowID(0)
	shuffle := func(id int, at time.Duration, senders, receivers int, size units.Bytes) workloads.Coflow {
		c := workloads.Coflow{ID: workloads.CoflowID(id), Arrival: at}
		for s := range senders {
			for r := range receivers {
				c.Flows = append(c.Flows, workloads.Flow{ID: next, Src: topo.HostID(s), Dst: topo.HostID(8 + r), Size: size})
				next++
			}
		}
		return c
	}
	coflows := []workloads.Coflow{shuffle(1, 0, 3, 4, 6*units.MB)}
	for i := range stream {
		coflows = append(coflows, shuffle(2+i, time.Duration(i)*gap, 2, 4, units.MB))
	}
	last := (stream - 1) * gap
	each(t, func(t *testing.T, p policies.CoflowScheduler, is promise) {
		r, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: p}, coflows, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Coflows[0].Finish; got < last && is.starves || got >= last && is.fair {
			t.Errorf("it ends at %v, the last of the stream arrives at %v: want it to starve: %v", got, last, is.starves)
		}
	})
}

// moments returns the decisions of a run until the end of a flow is visible.
func moments(t *rapid.T, f *topo.Fabric, p policies.CoflowScheduler, coflows []workloads.Coflow) (out []string) {
	seen, over := map[workloads.CoflowID]bool{}, false
	decide := p.New().Decide
	watch := script{p.Needs(), p.Triggers(), func(v *policies.CoflowView, s *policies.Schedule) {
		decide(v, s)
		left := 0 // of the earlier ones
		for _, c := range v.Coflows {
			over = over || c.Finished > 0
			if seen[c.ID] {
				left++
			}
		}
		if over = over || left < len(seen); over {
			return
		}
		for _, c := range v.Coflows {
			seen[c.ID] = true
		}
		out = append(out, fmt.Sprint(v.Now, s.Steps, s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake))
	}}
	if _, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: watch, Seed: 1}, coflows, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// reshuffled returns the same coflows, with the sizes of all flows in another order.
func reshuffled(coflows []workloads.Coflow, seed uint64) []workloads.Coflow {
	var sizes []units.Bytes
	for _, c := range coflows {
		for _, fl := range c.Flows {
			sizes = append(sizes, fl.Size)
		}
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	var out []workloads.Coflow
	for _, c := range coflows {
		c.Flows = slices.Clone(c.Flows)
		for i := range c.Flows {
			c.Flows[i].Size = sizes[0]
			sizes = sizes[1:]
		}
		out = append(out, c)
	}
	return out
}

// Until a flow has ended, sizes have no effect on a policy that does not declare Sizes or
// Totals; on one that does, they have.
func TestCatalogSeesNoSizes(t *testing.T) {
	each(t, func(t *testing.T, p policies.CoflowScheduler, _ promise) {
		blind := !p.Needs().Has(policies.Totals)
		differs, compared := false, 0
		compare := func(t *rapid.T) {
			f := anyFabric(t)
			coflows := anyCoflows(t, f, false)
			a := moments(t, f, p, coflows)
			b := moments(t, f, p, reshuffled(coflows, rapid.Uint64().Draw(t, "order")))
			n := min(len(a), len(b))
			compared += n
			if d := cmp.Diff(a[:n], b[:n]); d != "" {
				differs = true
				if blind {
					t.Fatalf("with sizes in another order (-before +after):\n%s", d)
				}
			}
		}
		few(t, 40, compare)
		// Some policies decide by sizes in few of the drawn cases.
		for more := 0; !blind && !differs && more < 10; more++ {
			few(t, 40, compare)
		}
		if !blind && !differs && !t.Failed() {
			t.Error("sizes in another order change no decision, though the policy declares to need them")
		}
		if compared == 0 {
			t.Error("no decision was compared")
		}
	})
}
