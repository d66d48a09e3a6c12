package coflow

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"testbed/policies"
	"testbed/topo/units"
)

// Queues are queues of priority with thresholds that grow exponentially (Aalo,
// SIGCOMM 2015, discretized coflow-aware least-attained service): queue 0, the
// first served, ends at First, queue i at First times Growth to the power of i, and
// the last one nowhere.
type Queues struct {
	Count  int         // K, at least 1
	First  units.Bytes // Q0: the end of queue 0
	Growth float64     // E, at least 1
}

// DefaultQueues are those of Aalo, Saath and Philae: ten, from 10 MiB, tenfold.
func DefaultQueues() Queues { return Queues{Count: 10, First: 10 << 20, Growth: 10} }

// limits are where the queues end, all but the last one.
func (q Queues) limits(s *policies.Schedule) []int64 {
	return limits(s, q.Count, float64(q.First), q.Growth)
}

func limits(s *policies.Schedule, count int, first, growth float64) []int64 {
	l := s.Counts(max(count, 1) - 1)
	for i := range l {
		l[i] = math.MaxInt64
		if first < math.MaxInt64 {
			l[i] = int64(math.Round(first))
		}
		first = float64(first * growth)
	}
	return l
}

// after is the queue of x where a limit belongs to the queue that it ends.
func after(limits []int64, x int64) int {
	q := 0
	for q < len(limits) && limits[q] < x {
		q++
	}
	return q
}

// from is the queue of x where a limit belongs to the queue that it begins.
func from(limits []int64, x int64) int {
	q := 0
	for q < len(limits) && limits[q] <= x {
		q++
	}
	return q
}

// FIFO is what first in, first out goes by inside a queue.
type FIFO uint8

// The two moments a coflow may be in by, ties by the order of the View.
const (
	Entered FIFO = iota // when it entered the queue
	Arrived             // when it arrived: the order of IDs
)

// order are the coflows of queues 0 and up, by queue, inside one by FIFO. queue is
// parallel to the View's coflows; where it is negative the coflow is left out. A
// coflow whose label is not what it was enters now.
func order(v *policies.View, s *policies.Schedule, queue, label []int, by FIFO) []int {
	o := s.Ints(len(queue))[:0]
	for i, q := range queue {
		if q >= 0 {
			o = append(o, i)
		}
	}
	slices.SortFunc(o, func(a, b int) int {
		in := 0
		if by == Entered {
			in = cmp.Compare(entered(v, label, a), entered(v, label, b))
		}
		return cmp.Or(cmp.Compare(queue[a], queue[b]), in, cmp.Compare(a, b))
	})
	return o
}

func entered(v *policies.View, label []int, i int) time.Duration {
	if c := &v.Coflows[i]; label[i] == c.Queue {
		return c.Since
	}
	return v.Now
}

// runs calls serve for each queue that has coflows, with those, which o holds in
// order of their queue.
func runs(o, queue []int, serve func(q int, coflows []int)) {
	for len(o) > 0 {
		n := 1
		for n < len(o) && queue[o[n]] == queue[o[0]] {
			n++
		}
		serve(queue[o[0]], o[:n])
		o = o[n:]
	}
}

// product is a·b/c of what is not negative, rounded down, at most the largest
// number. Over 0 it is 0.
func product(a, b, c int64) int64 {
	if c <= 0 || a <= 0 || b <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// portCount is how many links are hosts' own: those before it in order of ID. Links
// between switches are no ports of the literature's one big switch, and every
// coflow between racks would share them.
func portCount(v *policies.View) int { return 2 * v.Fabric.Hosts() }

// atPorts are the links of a coflow that are ports: LinkStates come by Link.
func atPorts(c *policies.CoflowState, ports int) []policies.LinkState {
	lo, hi := 0, len(c.Links)
	for lo < hi {
		if mid := (lo + hi) / 2; int(c.Links[mid].Link) < ports {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return c.Links[:lo]
}

// crowds are how many coflows have unfinished flows at each port.
func crowds(v *policies.View, s *policies.Schedule) []int {
	n := s.Ints(portCount(v))
	for i := range v.Coflows {
		for _, l := range atPorts(&v.Coflows[i], len(n)) {
			n[l.Link]++
		}
	}
	return n
}

// contentions are, for each coflow, how many others of the same group have an
// unfinished flow at one of the ports where it has one. Negative groups have no
// members.
func contentions(v *policies.View, s *policies.Schedule, group []int) []int {
	if len(group) <= 64 {
		return fewContentions(v, s, group)
	}
	return manyContentions(v, s, group)
}

// manyContentions is contentions of any number of coflows.
func manyContentions(v *policies.View, s *policies.Schedule, group []int) []int {
	n, words := portCount(v), (len(group)+63)/64
	at := s.Words(n * words)
	for i, g := range group {
		if g < 0 {
			continue
		}
		for _, l := range atPorts(&v.Coflows[i], n) {
			at[int(l.Link)*words+i/64] |= 1 << (i % 64)
		}
	}
	out, met := s.Ints(len(group)), s.Words(words)
	for i, g := range group {
		if g < 0 {
			continue
		}
		clear(met)
		for _, l := range atPorts(&v.Coflows[i], n) {
			for w, m := range at[int(l.Link)*words:][:words] {
				met[w] |= m
			}
		}
		for w, m := range met {
			for ; m != 0; m &= m - 1 {
				if j := 64*w + bits.TrailingZeros64(m); j != i && group[j] == g {
					out[i]++
				}
			}
		}
	}
	return out
}

// fewContentions is contentions of at most 64 coflows.
func fewContentions(v *policies.View, s *policies.Schedule, group []int) []int {
	n := portCount(v)
	at, out := s.Words(n), s.Ints(len(group))
	for i, g := range group {
		if g < 0 {
			continue
		}
		ports := atPorts(&v.Coflows[i], n)
		for j := range ports {
			at[ports[j].Link] |= 1 << i
		}
	}
	for i, g := range group {
		if g < 0 {
			continue
		}
		others := uint64(0) // of the group
		for j, o := range group {
			if o == g && j != i {
				others |= 1 << j
			}
		}
		met := uint64(0)
		ports := atPorts(&v.Coflows[i], n)
		for j := 0; j < len(ports) && met&others != others; j++ {
			met |= at[ports[j].Link]
		}
		out[i] = bits.OnesCount64(met & others)
	}
	return out
}
