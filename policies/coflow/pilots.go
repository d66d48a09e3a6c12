package coflow

import (
	"cmp"

	"testbed/policies"
)

// Sampling configures how Philae (Jajoo, Hu and Lin, ATC 2019) estimates the size of a
// coflow: from a few pilot flows, which are sent before the others.
type Sampling struct {
	// Thin is T, the maximum number of flows of a thin coflow, which is not sampled but
	// served immediately.
	Thin int
	Rule PilotRule
	// Fraction is the fraction of senders or flows, in (0, 1]; the number of pilot flows is
	// rounded down, and at least one.
	Fraction float64
	Number   int // for Constant
	// Random draws pilot flows with equal probability. Otherwise they are between the ports
	// with the fewest unfinished pilot flows.
	Random bool
	// Seed keys the random draws, with the coflow's arrival and the flow's position in it.
	// The contract of a Scheduler includes no random source, and the draws depend on no ID.
	Seed int64
}

// PilotRule selects how the number of pilot flows is computed.
type PilotRule uint8

// The rules.
const (
	OfSenders PilotRule = iota // a fraction of the sending hosts
	OfFlows                    // a fraction of the flows
	Constant                   // a fixed number
)

// DefaultSampling returns the paper's settings: coflows with at most 7 flows are thin, and
// others have one pilot flow per 20 senders.
func DefaultSampling() Sampling { return Sampling{Thin: 7, Rule: OfSenders, Fraction: 0.05, Number: 5} }

// IsThin reports whether the coflow is thin and thus not sampled.
func (p Sampling) IsThin(c *policies.CoflowState) bool { return c.Width <= p.Thin }

// PilotCount returns the number of pilot flows of the coflow.
func (p Sampling) PilotCount(c *policies.CoflowState) int {
	of := func(n int) int { return int(p.Fraction*float64(n) + 1e-9) } // a decimal fraction may round to just below a whole number
	n := p.Number
	switch p.Rule {
	case OfSenders:
		n = of(c.Senders)
	case OfFlows:
		n = of(c.Width)
	}
	return min(max(n, 1), len(c.Flows))
}

// AddPilot makes flow j of a coflow a pilot flow and counts it in busy, the number of
// unfinished pilot flows at each port (ports.Pilots).
func AddPilot(v *policies.CoflowView, s *policies.Schedule, c *policies.CoflowState, j int, busy []int) {
	f := &c.Flows[j]
	s.Pilots = append(s.Pilots, f.ID)
	busy[v.Fabric.HostUp(f.Src)]++
	busy[v.Fabric.HostDown(f.Dst)]++
}

// leastBusy chooses pilot flows as the paper does. For each, it selects the least busy
// sending port, then that port's flow to the least busy receiving port. Ties go to the
// lower host, then the lower flow.
func (p Sampling) leastBusy(v *policies.CoflowView, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	hosts := v.Fabric.Hosts()
	// Flows by sender, by ID: those of host h are list[end[h]-left[h] : end[h]].
	end, left, list := s.Ints(hosts), s.Ints(hosts), s.Ints(len(c.Flows))
	for j := range c.Flows {
		left[c.Flows[j].Src]++
	}
	sum := 0
	for h, n := range left {
		end[h] = sum
		sum += n
	}
	for j := range c.Flows {
		h := c.Flows[j].Src
		list[end[h]] = j
		end[h]++
	}
	for range number {
		from := -1
		for h, n := range left {
			if n > 0 && (from < 0 || busy[2*h] < busy[2*from]) {
				from = h
			}
		}
		flows := list[end[from]-left[from] : end[from]]
		best := 0
		for at, j := range flows {
			a, b := c.Flows[j].Dst, c.Flows[flows[best]].Dst
			if cmp.Or(cmp.Compare(busy[v.Fabric.HostDown(a)], busy[v.Fabric.HostDown(b)]), cmp.Compare(a, b)) < 0 {
				best = at
			}
		}
		AddPilot(v, s, c, flows[best], busy)
		copy(flows[1:best+1], flows[:best])
		left[from]--
	}
}

// Draw chooses pilot flows with equal probability: the first flows of a shuffle. It counts
// them in busy, as AddPilot does.
func (p Sampling) Draw(v *policies.CoflowView, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	key := mix(mix(uint64(p.Seed)) ^ uint64(c.Arrival))
	// Coflows that arrive at the same time draw independently.
	for i := range v.Coflows {
		if o := &v.Coflows[i]; o.Arrival == c.Arrival && o.ID < c.ID {
			key = mix(key)
		}
	}
	list := s.Order(len(c.Flows))
	for i := range number {
		j := i + int(mix(key+uint64(i))%uint64(len(list)-i))
		list[i], list[j] = list[j], list[i]
		AddPilot(v, s, c, list[i], busy)
	}
}

// mix is one step of the generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Its
// result depends on every bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
