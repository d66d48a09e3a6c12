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

// contender is a policy whose decisions are timed and must not allocate.
type contender struct {
	name   string
	policy policies.Scheduler
}

// contenders are all policies of the catalog with their defaults, and some variants
// that take another way through the code.
func contenders() []contender {
	greedy := Sharing{Allocation: Greedy}
	return append(learners(), []contender{
		{"fair", Fair{}},
		{"equal-share", EqualShare{}},
		{"fifo", Ordered{Sharing: greedy}},
		{"fifo-madd-fair-share", Ordered{Sharing: Sharing{Backfill: FairShare}}},
		{"scf", Ordered{By: LargestFlow}},
		{"ncf", Ordered{By: Width, Sharing: greedy}},
		{"lcf", Ordered{By: Bytes}},
		{"srtf", Ordered{By: Bottleneck, Sharing: greedy}},
		{"sebf", SEBF{Deadline: DefaultDeadline()}},
		{"sebf-initial", SEBF{Initial: true}},
		{"sebf-deadline", SEBF{Deadline: Deadline{Factor: 3, Padding: 0.1, Least: 200 * time.Millisecond}}},
		{"sincronia", DefaultSincronia()},
		{"sincronia-always", Sincronia{Sharing: greedy, Always: true}},
		{"sincronia-8-classes", Sincronia{Sharing: Sharing{Allocation: MaxMin, Priorities: 8}}},
	}...)
}

// cluster is a fabric of that many hosts, at most 150 of them in a rack.
func cluster(t testing.TB, hosts int) *topo.Fabric {
	t.Helper()
	s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: units.Gbps}
	if hosts > 150 {
		s.Leaves, s.HostsPerLeaf, s.Spines = hosts/150, 150, 4
	}
	return fabric(t, s)
}

// mostFlows is how many flows a wide coflow of traceLike has at most: the widest of
// the public Facebook trace has 21,170.
const mostFlows = 21170

// traceLike is a world of coflows as they are found unfinished on the public Facebook
// trace: of any 20, 12 have at most 50 flows and 4 some hundreds or thousands; 4 send
// from nearly all hosts. Sizes of flows are from 1 to 100 MB.
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
		if len(flows) == 0 { // its one sender is its one receiver
			flows = []demandOf{{0, 1, units.MB}}
		}
		w.arrive(workloads.CoflowID(i+1), flows)
		// The pilots of nine of ten have ended.
		c, d := &w.Coflows[i], w.demands[i]
		c.Pilots = max(c.Senders/20, 1)
		if c.PilotSent = units.Bytes(c.Pilots) * 10 * units.MB; i%10 == 0 {
			c.PilotsLeft, c.PilotSent = c.Pilots, 0
			for place := range c.Pilots {
				d.MakePilot(place)
			}
			c.Links = slices.Clone(d.Links(true))
		}
	}
	return w
}

// Decisions of 100 coflows, at 150, 900 and 3,000 ports, which are to take at most 0.2,
// 2 and 10 ms: schedule is the policy's part alone, decision with the rates. Between
// decisions a flow of every coflow that moves has received something.
//
// Rates are what rates.Share leaves, which for wide coflows is what each link gives its
// flows; writing them out flow by flow, which Demand.Moving does for whoever wants them,
// is not in it. The slowest of 150 ports take 0.13 to 0.18 ms (fair, aalo-weighted, and
// CoflowSim's fair share), of 900 ports 1.9 to 2.1 ms (aalo-weighted), of 3,000 ports 4 ms
// (sebf-deadline).
func BenchmarkDecision(b *testing.B) {
	for _, hosts := range []int{150, 900, 3000} {
		w := traceLike(b, hosts, 100, 1)
		for _, c := range contenders() {
			w.Memory = nil
			for i := range w.Coflows {
				w.Coflows[i].Queue = 0
			}
			w.decide(b, c.policy) // what the policy keeps from here on, it keeps
			b.Run(fmt.Sprintf("ports=%d/policy=%s/part=schedule", hosts, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					w.schedule.Reset()
					c.policy.Schedule(w.View, &w.schedule)
				}
			})
			b.Run(fmt.Sprintf("ports=%d/policy=%s/part=decision", hosts, c.name), func(b *testing.B) {
				first := make([]int, len(w.demands)) // of the flows that move, -1 for none
				for i, d := range w.demands {
					first[i] = -1
					if moving := d.Moving(); len(moving) > 0 {
						first[i] = int(moving[0])
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					for i, d := range w.demands {
						if at := first[i]; at >= 0 {
							d.SetLeft(at, d.Left[at]-1)
						}
					}
					w.schedule.Reset()
					c.policy.Schedule(w.View, &w.schedule)
					if err := w.share.Share(&w.schedule, w.demands, w.capacity, c.policy.Needs(), false); err != nil {
						b.Fatal(err)
					}
				}
				moving := 0
				for _, d := range w.demands {
					moving += len(d.Moving())
				}
				b.ReportMetric(float64(moving), "moving")
			})
		}
	}
}

// After the first few decisions none takes memory.
func TestNoAllocation(t *testing.T) {
	w := traceLike(t, 60, 40, 2)
	for _, c := range contenders() {
		w.Memory = nil
		for i := range w.Coflows {
			w.Coflows[i].Queue = 0
		}
		for range 3 {
			w.schedule.Reset()
			c.policy.Schedule(w.View, &w.schedule)
		}
		if n := testing.AllocsPerRun(10, func() {
			w.schedule.Reset()
			c.policy.Schedule(w.View, &w.schedule)
		}); n > 0 {
			t.Errorf("%s: %v allocations in a decision", c.name, n)
		}
	}
}
