package coflow

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo/units"
)

// blind are policies that know no sizes, with settings that reach all their code.
func blind() map[string]policies.Scheduler {
	out := map[string]policies.Scheduler{}
	aalo, saath, philae, sim := DefaultAalo(), DefaultSaath(), DefaultPhilae(), DefaultPhilaeSim()
	out["aalo"] = aalo
	aalo.Weighted, aalo.Fill, aalo.FIFO, aalo.Interval = true, true, Arrived, 0
	out["aalo weighted"] = aalo
	out["saath"] = saath
	saath.PerFlow, saath.FIFO, saath.Deadline, saath.Dynamics, saath.Conserve = false, true, 0, false, false
	out["saath plain"] = saath
	for name, m := range map[string]Metric{"A": SmallestJob, "B": ShortestRemaining, "C": LeastContention, "D": WeightedContention} {
		p := philae
		p.Metric = m
		out["philae "+name] = p
		p.Thin, p.Number, p.Rule = 1, 2, Constant // clusters of tests have few flows
		p.First = 1000
		p.Random, p.ThinFirst, p.FIFO, p.Equal, p.Strict, p.Conserve = m%2 == 1, true, Arrived, true, m > 1, false
		out["philae "+name+" other"] = p
	}
	out["philae-sim"] = sim
	for impact := range 7 {
		p := sim
		p.Impact = impact
		p.Thin, p.Rule, p.Fraction, p.First, p.Slots = 0, OfFlows, 0.3, 3, 4
		out["philae-sim "+string(rune('0'+impact))] = p
	}
	return out
}

// What they keep of the contract goes for sizes too: each answers the same whether or
// not the View shows them.
func TestContractBlind(t *testing.T) {
	for name, p := range blind() {
		t.Run(name, func(t *testing.T) {
			if p.Needs()&^(policies.NewFlows|policies.PilotFlows|policies.MostSent) != 0 {
				t.Errorf("needs %b, want nothing but a look at new flows, pilots and what was sent", p.Needs())
			}
			policytest.Scheduler(t, p)
		})
	}
	policytest.Scheduler(t, AaloOracle(DefaultAalo()))
}

// learners are the policies that know no sizes, with their defaults, and what takes
// another way through their code.
func learners() []contender {
	aalo, saath, philae, sim := DefaultAalo(), DefaultSaath(), DefaultPhilae(), DefaultPhilaeSim()
	weighted, a, c, simC := aalo, philae, philae, sim
	weighted.Weighted, a.Metric, c.Metric, simC.Impact = true, SmallestJob, LeastContention, 4
	return []contender{
		{"aalo", aalo}, {"aalo-weighted", weighted}, {"aalo-oracle", AaloOracle(aalo)}, {"saath", saath},
		{"philae-a", a}, {"philae-c", c}, {"philae-d", philae},
		{"philae-c-event", forgetful{c}}, {"philae-d-event", forgetful{philae}}, // something has begun or ended at a port
		{"philae-sim", sim}, {"philae-sim-contention", simC},
	}
}

// forgetful is Philae without its memory, so that it finds contention out anew.
type forgetful struct{ Philae }

func (p forgetful) Schedule(v *policies.View, s *policies.Schedule) {
	kept := v.Memory
	v.Memory = nil
	p.Philae.Schedule(v, s)
	v.Memory = kept
}

// Whatever sizes flows have, a policy that knows none decides the same, as long as
// it is shown the same: until something ends.
func TestSizesUnseen(t *testing.T) {
	const hosts = 6
	f := eightMillis(t, hosts)
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, hosts)
		others := make([]job, len(jobs))
		for i, j := range jobs {
			others[i] = job{at: j.at, flows: rapid.Permutation(j.flows).Draw(t, "permuted")}
			for k, d := range j.flows {
				others[i].flows[k].src, others[i].flows[k].dst = d.src, d.dst
			}
			// The other sizes are longer by a factor, too.
			for k := range others[i].flows {
				others[i].flows[k].bytes *= units.Bytes(rapid.IntRange(1, 1000).Draw(t, "factor"))
			}
		}
		for name, p := range blind() {
			// The decisions before anything can have ended.
			decisions := func(jobs []job) (out []string) {
				l := loop{t: t, fabric: f, policy: p, until: 200 * time.Millisecond}
				over := false
				l.observe = func(v *policies.View, s *policies.Schedule) {
					arrived := 0
					for _, j := range jobs {
						if j.at <= v.Now {
							arrived++
						}
					}
					over = over || arrived > len(v.Coflows)
					for i := range v.Coflows {
						c := &v.Coflows[i]
						over = over || c.Finished > 0
					}
					if !over {
						out = append(out, fmt.Sprint(v.Now, steps(s), s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake, s.Memory))
					}
				}
				l.run(jobs)
				return out
			}
			a, b := decisions(jobs), decisions(others)
			n := min(len(a), len(b))
			if n == 0 {
				t.Fatalf("%s: no decision to compare", name)
			}
			if d := cmp.Diff(a[:n], b[:n]); d != "" {
				t.Fatalf("%s: other sizes, other decisions:\n%s", name, d)
			}
		}
	})
}

// A coflow that has sent much, or is long, shares its sender with a stream of small
// ones that fill the port. Where queues have shares, or there are deadlines, it ends
// meanwhile; under strict priority it does not.
func TestStarvation(t *testing.T) {
	f := eightMillis(t, 24)
	const stream = 8 * time.Second
	// A coflow of 16 MiB, of which 6 MiB are left when Aalo has moved it on, and as
	// much as the port carries in coflows of 2 MiB, 8 flows each.
	jobs := []job{{0, all(hosts(0, 0), hosts(1, 8), 2*mib)}}
	const each = 16 * time.Millisecond
	for at := each; at < stream; at += each {
		jobs = append(jobs, job{at, all(hosts(0, 0), hosts(9, 16), mib/4)})
	}
	aalo, weighted, saath, late := DefaultAalo(), DefaultAalo(), DefaultSaath(), DefaultSaath()
	weighted.Weighted, late.Deadline, late.Dynamics = true, 0, false
	philae, strict, sim, never := DefaultPhilae(), DefaultPhilae(), DefaultPhilaeSim(), DefaultPhilaeSim()
	philae.Metric, philae.First, strict.First = SmallestJob, 4*mib, 4*mib
	strict.Metric, strict.Strict = SmallestJob, true
	sim.Impact, sim.First, sim.Slots, never.Impact, never.First, never.Slots = 1, 4*mib, 32, 1, 4*mib, 0
	for _, tt := range []struct {
		name   string
		p      policies.Scheduler
		within bool
	}{
		{"aalo strict", aalo, false}, {"aalo weighted", weighted, true},
		{"saath without deadlines", late, false}, {"saath", saath, true},
		{"philae strict", strict, false}, {"philae", philae, true},
		{"philae-sim strict", never, false}, {"philae-sim", sim, true},
	} {
		l := &loop{t: t, fabric: f, policy: tt.p, skip: true, until: stream}
		cct := l.run(jobs)
		if ended := cct[0] > 0; ended != tt.within {
			t.Errorf("%s: ended %v (%v), want %v", tt.name, ended, cct[0], tt.within)
		}
		t.Logf("%s: %v, %d decisions", tt.name, cct[0], l.decisions)
	}
}
