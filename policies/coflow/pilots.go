package coflow

import (
	"cmp"
	"slices"

	"testbed/policies"
	"testbed/topo"
)

// Sampling is how Philae (Jajoo, Hu and Lin, ATC 2019) learns the size of a
// coflow: from a few flows, its pilots, that are sent before the others.
type Sampling struct {
	// Thin is T, the most flows a coflow may have that is not sampled but served at
	// once.
	Thin int
	Rule PilotRule
	// Fraction is of what Rule says, in (0, 1]; rounded down, at least one pilot.
	Fraction float64
	Number   int // for Constant
	// Random draws pilots at random, every flow as likely as any other. Otherwise
	// they are between the least busy ports.
	Random bool
	// Seed keys what Random draws, with the coflow's arrival and the place of the
	// flow in it: the contract has no source of luck, and what is drawn depends on
	// no ID.
	Seed int64
}

// PilotRule is what the number of pilots follows from.
type PilotRule uint8

// The rules.
const (
	OfSenders PilotRule = iota // a fraction of the hosts that send
	OfFlows                    // a fraction of the flows
	Constant                   // a number
)

// DefaultSampling is the paper's: coflows of 7 flows are thin, of others one pilot
// for every 20 senders.
func DefaultSampling() Sampling { return Sampling{Thin: 7, Rule: OfSenders, Fraction: 0.05, Number: 5} }

// thin tells whether the coflow is not sampled.
func (p Sampling) thin(c *policies.CoflowState) bool { return c.Width <= p.Thin }

// pilots is how many pilots the coflow gets.
func (p Sampling) pilots(c *policies.CoflowState) int {
	of := func(n int) int { return int(p.Fraction*float64(n) + 1e-9) } // a fraction in decimals may fall just short
	n := p.Number
	switch p.Rule {
	case OfSenders:
		n = of(c.Senders)
	case OfFlows:
		n = of(c.Width)
	}
	return min(max(n, 1), len(c.Flows))
}

// busy are how many unfinished pilots there are at each port.
func busy(v *policies.View, s *policies.Schedule) []int {
	n := s.Ints(portCount(v))
	for i := range v.Coflows {
		for _, l := range atPorts(&v.Coflows[i], len(n)) {
			n[l.Link] += l.Pilots
		}
	}
	return n
}

// pilot makes flow j of a coflow one, and its ports so much busier.
func pilot(v *policies.View, s *policies.Schedule, c *policies.CoflowState, j int, busy []int) {
	f := &c.Flows[j]
	s.Pilots = append(s.Pilots, f.ID)
	busy[v.Fabric.HostUp(f.Src)]++
	busy[v.Fabric.HostDown(f.Dst)]++
}

// leastBusy chooses pilots as the paper does: one by one, the least busy sending
// port, then of its flows that to the least busy receiving port. Ties go to the
// lower host, then the lower flow.
func (p Sampling) leastBusy(v *policies.View, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	hosts := v.Fabric.Hosts()
	// Flows by sender, in order of ID: those of host h are list[end[h]-left[h] : end[h]].
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
		pilot(v, s, c, flows[best], busy)
		copy(flows[1:best+1], flows[:best])
		left[from]--
	}
}

// leastRank chooses pilots as Philae's simulator does: one by one, the flow with the
// least sum of its sender's place among the coflow's senders and its receiver's
// among the receivers, each in order of how busy they are, those that are as busy as
// one another in the reverse of the order they had for the pilot before. At first
// that is the order in which the coflow's flows name them. Ties go to the sender in
// front, then to the lower flow.
func (p Sampling) leastRank(v *policies.View, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	rank, used := s.Ints(len(busy)), s.Words((len(c.Flows)+63)/64)
	senders, receivers := s.Ints(len(c.Flows))[:0], s.Ints(len(c.Flows))[:0]
	name := func(to []int, l topo.LinkID) []int {
		if rank[l] != 0 {
			return to
		}
		rank[l] = 1
		return append(to, int(l))
	}
	for j := range c.Flows {
		senders = name(senders, v.Fabric.HostUp(c.Flows[j].Src))
		receivers = name(receivers, v.Fabric.HostDown(c.Flows[j].Dst))
	}
	for range number {
		for _, ports := range [][]int{senders, receivers} {
			slices.Reverse(ports)
			slices.SortStableFunc(ports, func(a, b int) int { return cmp.Compare(busy[a], busy[b]) })
			for i, l := range ports {
				rank[l] = i
			}
		}
		best, least := -1, [2]int{}
		for j := range c.Flows {
			if used[j/64]>>(j%64)&1 != 0 {
				continue
			}
			up := rank[v.Fabric.HostUp(c.Flows[j].Src)]
			if r := [2]int{up + rank[v.Fabric.HostDown(c.Flows[j].Dst)], up}; best < 0 || slices.Compare(r[:], least[:]) < 0 {
				best, least = j, r
			}
		}
		used[best/64] |= 1 << (best % 64)
		pilot(v, s, c, best, busy)
	}
}

// random draws pilots: the first flows of a shuffle.
func (p Sampling) random(v *policies.View, s *policies.Schedule, c *policies.CoflowState, number int, busy []int) {
	key := mix(mix(uint64(p.Seed)) ^ uint64(c.Arrival))
	// Coflows that arrive together draw apart.
	for i := range v.Coflows {
		if o := &v.Coflows[i]; o.Arrival == c.Arrival && o.ID < c.ID {
			key = mix(key)
		}
	}
	list := s.Order(len(c.Flows))
	for i := range number {
		j := i + int(mix(key+uint64(i))%uint64(len(list)-i))
		list[i], list[j] = list[j], list[i]
		pilot(v, s, c, list[i], busy)
	}
}

// mix is a step of the generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a
// number that depends on every bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
