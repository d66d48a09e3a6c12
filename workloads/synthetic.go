package workloads

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Synthetic specifies a generated trace: a mix of the four bins of the coflow literature,
// where most coflows are small and a few carry nearly all bytes.
type Synthetic struct {
	Name    string
	Ports   int
	Coflows int
	// Span is the time in which all coflows arrive, at uniformly drawn times: a Poisson
	// process conditioned on its number of arrivals.
	Span time.Duration
	// ReduceWeights are the relative probabilities with which ports are drawn as reducers,
	// by port; nil for equal ones. Real clusters are uneven: the busiest port of the
	// Facebook trace receives 1.9 times the average.
	ReduceWeights []int
	Bins          []SyntheticBin
}

// SyntheticBin is one class of coflows.
type SyntheticBin struct {
	Share    int    // of the coflows, relative to other bins
	Mappers  [2]int // from and to, inclusive
	Reducers [2]int
	// Flow is the range of the size of a flow, in whole thousandths of a MB. Each reducer
	// of a coflow draws its own: first an octave, then a size in it, so that all octaves
	// are equally likely.
	Flow [2]Megabytes
}

const kilobyte = megabyte / 1000

// Generate draws the trace for a seed. Each bin has its share of the coflows, as nearly as
// their number allows.
func (s Synthetic) Generate(seed uint64) (*Trace, error) {
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("synthetic trace %s: %w", s.Name, err)
	}
	bins := s.quotas()
	Stream(seed, "synthetic-bins").Shuffle(len(bins), func(i, j int) { bins[i], bins[j] = bins[j], bins[i] })
	arrivals := make([]int64, s.Coflows)
	for i := range arrivals {
		arrivals[i] = Stream(seed, "synthetic-arrival", i).Int64N(s.Span.Milliseconds())
	}
	slices.Sort(arrivals)
	t := &Trace{Name: s.Name, Ports: s.Ports}
	for i, b := range bins {
		rng := Stream(seed, "synthetic-coflow", i)
		between := func(r [2]int) int { return r[0] + rng.IntN(r[1]-r[0]+1) }
		c := TraceCoflow{ID: CoflowID(i + 1), Arrival: time.Duration(arrivals[i]) * time.Millisecond}
		c.Mappers = draw(rng, s.Ports, between(s.Bins[b].Mappers), nil)
		for _, port := range draw(rng, s.Ports, between(s.Bins[b].Reducers), s.ReduceWeights) {
			lo, hi := int64(s.Bins[b].Flow[0]/kilobyte), int64(s.Bins[b].Flow[1]/kilobyte)
			octaves := 1
			for lo<<octaves < hi {
				octaves++
			}
			from := lo << rng.IntN(octaves)
			flow := from + rng.Int64N(min(2*from, hi+1)-from)
			c.Reducers = append(c.Reducers, TraceReducer{Port: port, Size: Megabytes(flow*int64(len(c.Mappers))) * kilobyte})
		}
		t.Coflows = append(t.Coflows, c)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return t, nil
}

// draw draws n different ports, in order, by the weights of the remaining ports.
func draw(rng *rand.Rand, ports, n int, weights []int) []int {
	left := make([]int, ports)
	total := 0
	for port := range left {
		left[port] = 1
		if weights != nil {
			left[port] = weights[port]
		}
		total += left[port]
	}
	var drawn []int
	for range n {
		at := rng.IntN(total)
		for port, w := range left {
			if at -= w; at < 0 {
				drawn = append(drawn, port)
				total -= w
				left[port] = 0
				break
			}
		}
	}
	slices.Sort(drawn)
	return drawn
}

// quotas returns the bin of each coflow, before they are shuffled: shares rounded down, and
// the rest by largest remainder.
func (s Synthetic) quotas() []int {
	total := 0
	for _, b := range s.Bins {
		total += b.Share
	}
	var bins []int
	byRemainder := make([]int, len(s.Bins))
	for i, b := range s.Bins {
		byRemainder[i] = i
		for range b.Share * s.Coflows / total {
			bins = append(bins, i)
		}
	}
	sort.SliceStable(byRemainder, func(i, j int) bool {
		return s.Bins[byRemainder[i]].Share*s.Coflows%total > s.Bins[byRemainder[j]].Share*s.Coflows%total
	})
	for i := 0; len(bins) < s.Coflows; i++ {
		bins = append(bins, byRemainder[i])
	}
	return bins
}

func (s Synthetic) check() error {
	if s.Ports < 2 || s.Ports > MaxTracePorts || s.Coflows < 1 || s.Coflows > MaxTraceCoflows {
		return fmt.Errorf("%d coflows on %d ports: must be at least one on two, at most %d on %d", s.Coflows, s.Ports, MaxTraceCoflows, MaxTracePorts)
	}
	if s.Span < time.Millisecond {
		return fmt.Errorf("span %v: must be at least a millisecond", s.Span)
	}
	if s.ReduceWeights != nil && len(s.ReduceWeights) != s.Ports {
		return fmt.Errorf("%d weights for %d ports: expected one per port", len(s.ReduceWeights), s.Ports)
	}
	for port, w := range s.ReduceWeights {
		if w < 1 || w > 1_000_000 {
			return fmt.Errorf("weight %d of port %d: must be 1 to 1000000", w, port)
		}
	}
	total := 0
	for i, b := range s.Bins {
		ports := func(r [2]int) bool { return 1 <= r[0] && r[0] <= r[1] && r[1] <= s.Ports }
		flow := kilobyte <= b.Flow[0] && b.Flow[0] <= b.Flow[1] && b.Flow[1] <= maxReducerSize/Megabytes(s.Ports) &&
			b.Flow[0]%kilobyte == 0 && b.Flow[1]%kilobyte == 0
		if b.Share < 0 || b.Share > 1_000_000 || !ports(b.Mappers) || !ports(b.Reducers) || !flow {
			return fmt.Errorf("bin %d: %+v: expected a share of 0 to 1000000, 1 to %d mappers and reducers and flows in whole thousandths of a MB, each from low to high", i, b, s.Ports)
		}
		total += b.Share
	}
	if total == 0 {
		return fmt.Errorf("no bin has a share: expected at least one")
	}
	return nil
}
