package coflow

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Contender is a policy whose decisions are benchmarked and must not allocate.
type Contender struct {
	Name   string
	Policy policies.CoflowScheduler
}

// Contenders returns the policies of the package with their defaults, and variants that
// reach other branches.
func Contenders() []Contender {
	greedy := Sharing{Allocation: Greedy}
	return append(learners(), []Contender{
		{"fair", Fair{}},
		{"equal-share", EqualShare{}},
		{"rack-limit", RackLimit{Share: 0.2}},
		{"fifo", Ordered{Sharing: greedy}},
		{"fifo-madd-fair-share", Ordered{Sharing: Sharing{Backfill: FairShare}}},
		{"scf", Ordered{By: LargestFlow}},
		{"ncf", Ordered{By: Width, Sharing: greedy}},
		{"lcf", Ordered{By: Bytes}},
		{"sebf", SEBF{Deadline: DefaultDeadline()}},
		{"sebf-initial", SEBF{Initial: true}},
		{"sebf-deadline", SEBF{Deadline: Deadline{Factor: 3, Padding: 0.1, Least: 200 * time.Millisecond}}},
		{"sincronia", DefaultSincronia()},
		{"sincronia-always", Sincronia{Sharing: greedy, Always: true}},
		{"sincronia-8-classes", Sincronia{Sharing: Sharing{Allocation: MaxMin, Priorities: 8}}},
	}...)
}

// cluster returns a fabric with a number of hosts, at most 150 per rack.
func cluster(t testing.TB, hosts int) *topo.Fabric {
	t.Helper()
	s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: units.Gbps}
	if hosts > 150 {
		s.Leaves, s.HostsPerLeaf, s.Spines = hosts/150, 150, 4
	}
	return fabric(t, s)
}

// mostFlows is the maximum width of a coflow of traceLike: the widest coflow of the public
// Facebook trace has 21,170 flows.
const mostFlows = 21170

// traceLike returns a world of unfinished coflows with widths as in the public Facebook
// trace. Of 20 coflows, 12 have at most 50 flows, 4 have hundreds or thousands, and 4 send
// from nearly all hosts. Flow sizes are from 1 to 100 MB.
func traceLike(t testing.TB, hosts, coflows int, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(cluster(t, hosts))
	some := func(n int) []topo.HostID {
		var out []topo.HostID
		for _, h := range rng.Perm(hosts)[:n] {
			out = append(out, topo.HostID(h))
		}
		return out
	}
	for i := range coflows {
		w.Now += 100 * time.Millisecond
		senders, receivers := 1+rng.IntN(10), 1+rng.IntN(5)
		switch {
		case i%20 >= 16:
			senders = hosts * 97 / 100
			receivers = min(senders, mostFlows/senders)
		case i%20 >= 12:
			senders, receivers = 10+rng.IntN(hosts/3), 10+rng.IntN(30)
		}
		flows := bipartite(some(senders), some(receivers), func() units.Bytes { return units.Bytes(1+rng.IntN(100)) * units.MB })
		if len(flows) == 0 { // the only sender is the only receiver
			flows = []demandOf{{0, 1, units.MB}}
		}
		w.arrive(workloads.CoflowID(i+1), flows)
		// The pilot flows of nine in ten coflows have ended.
		c, d := &w.Coflows[i], w.demands[i]
		c.Pilots = max(c.Senders/20, 1)
		if c.PilotSent = units.Bytes(c.Pilots) * 10 * units.MB; i%10 == 0 {
			c.PilotsLeft, c.PilotSent = c.Pilots, 0
			for place := range c.Pilots {
				d.MakePilot(place)
			}
			c.Links = slices.Clone(d.Links(policies.Sizes))
		}
	}
	return w
}

// BenchDecisions measures decisions for 100 coflows at 150, 900 and 3,000 ports, whose
// targets are 0.2, 2 and 10 ms. Between decisions, one flow of every active coflow receives
// bytes. A decision includes the rate of every flow, from Demand.Moving, which all callers
// need. Part schedule is only the policy, part ceilings a decision of the engine on packets,
// and part rates one of the flow-level simulator, which computes the rates of flows of rule
// Free too.
func BenchDecisions(b *testing.B, contenders []Contender) {
	for _, hosts := range []int{150, 900, 3000} {
		w := traceLike(b, hosts, 100, 1)
		for _, c := range contenders {
			w.policy = nil
			for i := range w.Coflows {
				w.Coflows[i].Queue = 0
			}
			w.decide(b, c.Policy) // queues and state stay constant from here on
			p := w.of(c.Policy)
			name := fmt.Sprintf("ports=%d/policy=%s/part=", hosts, c.Name)
			b.Run(name+"schedule", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.schedule.Reset()
					p.Decide(w.CoflowView, &w.schedule)
				}
			})
			b.Run(name+"ceilings", func(b *testing.B) { w.timeDecision(b, c.Policy, true) })
			b.Run(name+"rates", func(b *testing.B) { w.timeDecision(b, c.Policy, false) })
		}
	}
}

func (w *world) timeDecision(b *testing.B, p policies.CoflowScheduler, ceilings bool) {
	first := make([]int, len(w.demands)) // first flow with a rate, -1 for none
	for i, d := range w.demands {
		first[i] = -1
		if moving := d.Moving(); len(moving) > 0 {
			first[i] = int(moving[0])
		}
	}
	moving, instance := 0, w.of(p)
	b.ReportAllocs()
	for b.Loop() {
		for i, d := range w.demands {
			if at := first[i]; at >= 0 {
				d.SetLeft(at, d.Left[at]-1)
			}
		}
		w.schedule.Reset()
		instance.Decide(w.CoflowView, &w.schedule)
		if err := w.share.Share(&w.schedule, w.demands, w.capacity, p.Needs(), ceilings); err != nil {
			b.Fatal(err)
		}
		moving = 0
		for _, d := range w.demands {
			moving += len(d.Moving())
		}
	}
	b.ReportMetric(float64(moving), "moving")
}

// CheckNoAllocation checks that decisions do not allocate after the first few.
func CheckNoAllocation(t *testing.T, contenders []Contender) {
	w := traceLike(t, 60, 40, 2)
	for _, c := range contenders {
		p := c.Policy.New()
		for i := range w.Coflows {
			w.Coflows[i].Queue = 0
		}
		for range 3 {
			w.schedule.Reset()
			p.Decide(w.CoflowView, &w.schedule)
		}
		if n := testing.AllocsPerRun(10, func() {
			w.schedule.Reset()
			p.Decide(w.CoflowView, &w.schedule)
		}); n > 0 {
			t.Errorf("%s: %v allocations per decision", c.Name, n)
		}
	}
}
