package workloads

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Facebook specifies a generated trace that resembles the public trace of one hour of a
// Facebook cluster (FB2010-1Hr-150-0, published with Varys, SIGCOMM 2014). It replaces the
// file where it is not available, or where one hour, 150 ports or one sample are not
// enough. The zero value has the 526 coflows, 150 ports and load of the trace.
//
// There are thirteen kinds of coflows: the four bins, divided by one or more mappers, one
// or more reducers, equal or different flows and, for the bin with nearly all bytes, by
// size. Each kind has its share of the coflows, and the trace's quantiles of mappers,
// reducers, the largest flow, the skew (largest divided by smallest flow) and the position
// of the mean between the two. A hidden factor correlates them. As in the trace, flows are
// at least one whole MB, each reducer fetches the same amount from every mapper, and
// successive gaps between arrivals are correlated.
//
// It does not reproduce jobs that recur with the same size within minutes, reducers of a
// coflow in multiples of one task's output, groups of ports that are used together, and
// the three unused ports.
type Facebook struct {
	Name    string        // of the trace; "facebook" if empty
	Coflows int           // 0 for FacebookCoflows
	Ports   int           // 0 for FacebookPorts; with fewer, wide coflows have proportionally fewer mappers and reducers
	Span    time.Duration // from the first arrival to the last; 0 for gaps as in the trace, 6.9 s on average
	// Load is an alternative to Span: the share of the capacity of all ports that the
	// bytes use within the span, 0.52 in the trace. 0 leaves Span in effect.
	Load float64
	// PerMB is the time in which a port moves 1 MB, for Load; 0 for DefaultPerMB.
	PerMB time.Duration
	// NoTail replaces the largest coflows, 1 in 35 with 92 % of the bytes, by coflows of
	// the next kind: no coflow then has more than about 1.5 TB.
	NoTail bool
}

// Properties of the trace, which are the defaults of Facebook.
const (
	FacebookCoflows = 526
	FacebookPorts   = 150
)

// kind is a class of coflows of the Facebook trace.
type kind struct {
	name  string
	bin   Bin
	giant bool
	share int // coflows of the trace
	mapper, reducer,
	length, // largest flow, MB
	skew, // largest divided by smallest flow
	middle curve // (mean - smallest) / (largest - smallest), if they differ
	// tie is the correlation of each with the hidden factor, from -1 to 1, in the order of
	// the curves: the correlation of two is about the product of their ties.
	tie [5]float64
}

// Generate draws the trace for a seed.
func (f Facebook) Generate(seed uint64) (*Trace, error) {
	if f.Name == "" {
		f.Name = "facebook"
	}
	if f.Coflows == 0 {
		f.Coflows = FacebookCoflows
	}
	if f.Ports == 0 {
		f.Ports = FacebookPorts
	}
	if f.PerMB == 0 {
		f.PerMB = DefaultPerMB
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("generated trace %s: %w", f.Name, err)
	}
	coflows := f.shapes(seed)
	Stream(seed, "facebook-order").Shuffle(len(coflows), func(i, j int) { coflows[i], coflows[j] = coflows[j], coflows[i] })
	t := &Trace{Name: f.Name, Ports: f.Ports}
	size := 0.0
	for _, s := range coflows {
		c := s.coflow()
		size += float64(c.Size() / megabyte)
		t.Coflows = append(t.Coflows, c)
	}
	f.place(seed, t.Coflows)
	span := f.Span
	if f.Load > 0 {
		ms := size * (float64(f.PerMB) / float64(time.Millisecond)) / (f.Load * float64(f.Ports))
		if ms > float64(maxTraceArrival) {
			return nil, fmt.Errorf("generated trace %s: load %v takes %v ms: must be at most %v", f.Name, f.Load, ms, maxTraceArrival)
		}
		span = time.Duration(ms) * time.Millisecond
	}
	for i, at := range arrivals(seed, f.Coflows, span) {
		t.Coflows[i].ID, t.Coflows[i].Arrival = CoflowID(i+1), at
	}
	return t, t.check()
}

// minFacebookPorts is the minimum number of ports on which a coflow can have more than
// NarrowCoflow flows.
const minFacebookPorts = 8

func (f Facebook) check() error {
	if f.Ports < minFacebookPorts || f.Ports > MaxTracePorts || f.Coflows < 1 || f.Coflows > MaxTraceCoflows {
		return fmt.Errorf("%d coflows on %d ports: expected 1 to %d on %d to %d", f.Coflows, f.Ports, MaxTraceCoflows, minFacebookPorts, MaxTracePorts)
	}
	if f.Span < 0 || f.Span > 0 && f.Span < time.Millisecond {
		return fmt.Errorf("span %v: must be at least a millisecond", f.Span)
	}
	if f.Load < 0 || math.IsNaN(f.Load) || f.Load > 1000 {
		return fmt.Errorf("load %v: expected a share of the ports' capacity above 0, such as 0.5", f.Load)
	}
	if f.Load > 0 && f.Span > 0 {
		return fmt.Errorf("span %v and load %v: mutually exclusive: specify only one", f.Span, f.Load)
	}
	if f.PerMB < time.Millisecond || f.PerMB > time.Hour {
		return fmt.Errorf("%v for 1 MB: must be 1ms to 1h", f.PerMB)
	}
	return nil
}

// shape is a coflow without ports and arrival.
type shape struct {
	mappers int
	flows   []int64 // MB that each reducer fetches from every mapper
}

// shapes draws all coflows, grouped by kind.
func (f Facebook) shapes(seed uint64) []shape {
	shares := make([]int, len(facebookKinds))
	for i, k := range facebookKinds {
		shares[i] = k.share
	}
	var shapes []shape
	for i, n := range quotas(f.Coflows, shares) {
		k := facebookKinds[i]
		if k.giant && f.NoTail {
			k = facebookKinds[i-1]
		}
		shapes = append(shapes, k.shapes(Stream(seed, "facebook-kind", i), n, f.Ports)...)
	}
	return shapes
}

// shapes draws n coflows of the kind.
func (k kind) shapes(rng *rand.Rand, n, ports int) []shape {
	factor := make([]float64, n)
	for i := range factor {
		factor[i] = rng.Float64() - 0.5
	}
	var dealt [5][]float64
	for d, tie := range k.tie {
		own := math.Sqrt(1 - float64(tie*tie))
		scores := make([]float64, n)
		for i := range scores {
			scores[i] = float64(tie*factor[i]) + float64(own*(rng.Float64()-0.5))
		}
		dealt[d] = deal(rng, scores)
	}
	shapes := make([]shape, n)
	for i := range shapes {
		m := int(math.Round(k.mapper.at(dealt[0][i])))
		r := int(math.Round(k.reducer.at(dealt[1][i])))
		m, r = k.fit(m, r, ports)
		length := int64(math.Round(k.length.at(dealt[2][i])))
		least := max(1, int64(math.Round(float64(length)/k.skew.at(dealt[3][i]))))
		if r == 1 {
			least = length
		}
		shapes[i] = shape{m, flowsOf(rng, r, least, length, k.middle.at(dealt[4][i]))}
	}
	return shapes
}

// fit adapts the numbers of mappers and reducers to the number of ports. If the trace has
// more ports, a wide coflow gets proportionally fewer, at most one per port, but the coflow
// stays on its kind's side of NarrowCoflow.
func (k kind) fit(m, r, ports int) (int, int) {
	if k.bin == ShortNarrow || k.bin == LongNarrow {
		m = min(m, ports)
		return m, min(r, ports, max(1, NarrowCoflow/m))
	}
	if ports < FacebookPorts {
		m = (m*ports + FacebookPorts - 1) / FacebookPorts
		r = (r*ports + FacebookPorts - 1) / FacebookPorts
	}
	if m*r <= NarrowCoflow {
		r = min(ports, NarrowCoflow/m+1)
	}
	if m*r <= NarrowCoflow {
		m = NarrowCoflow/r + 1
	}
	return m, r
}

// flowsOf returns n sizes in random order, which include the smallest and the largest. Their
// mean is at the given fraction between the two, as far as whole MB allow. Sizes increase
// as p / (p + c(1-p)): with a mean well below the middle most are small, and few are near
// the largest.
func flowsOf(rng *rand.Rand, n int, least, most int64, middle float64) []int64 {
	at := func(c float64, i int) float64 {
		p := float64(i) / float64(n-1)
		return p / (p + float64(c*(1-p)))
	}
	c := 1.0
	if n > 2 && most > least {
		// The mean decreases with c.
		low, high := 1e-6, 1e6
		for range 60 {
			c = math.Sqrt(low * high)
			mean := 0.0
			for i := range n {
				mean += at(c, i) / float64(n)
			}
			if mean > middle {
				low = c
			} else {
				high = c
			}
		}
	}
	flows := make([]int64, n)
	for i := range flows {
		flows[i] = most
		if i < n-1 {
			flows[i] = least + int64(math.Round(float64(at(c, i)*float64(most-least))))
		}
	}
	rng.Shuffle(n, func(i, j int) { flows[i], flows[j] = flows[j], flows[i] })
	return flows
}

// coflow returns a coflow with this shape, without ports.
func (s shape) coflow() TraceCoflow {
	c := TraceCoflow{Mappers: make([]int, s.mappers), Reducers: make([]TraceReducer, len(s.flows))}
	for i, f := range s.flows {
		c.Reducers[i].Size = Megabytes(f*int64(s.mappers)) * megabyte
	}
	return c
}

// place assigns ports to coflows. Narrow coflows prefer some ports, and other ports as
// senders than as receivers; wide coflows do not. Mappers and reducers are drawn
// independently, so a mapper and a reducer may share a port.
func (f Facebook) place(seed uint64, coflows []TraceCoflow) {
	var weights [2][]int
	for side, popularity := range []curve{facebookSenders, facebookReceivers} {
		rng := Stream(seed, "facebook-ports", side)
		weights[side] = make([]int, f.Ports)
		order := rng.Perm(f.Ports)
		for i, port := range order {
			weights[side][port] = int(math.Round(popularity.at((float64(i) + 0.5) / float64(f.Ports))))
		}
	}
	for i := range coflows {
		c := &coflows[i]
		rng := Stream(seed, "facebook-place", i)
		senders, receivers := weights[0], weights[1]
		if len(c.Mappers)*len(c.Reducers) > NarrowCoflow {
			senders, receivers = nil, nil
		}
		c.Mappers = draw(rng, f.Ports, len(c.Mappers), senders)
		for j, port := range draw(rng, f.Ports, len(c.Reducers), receivers) {
			c.Reducers[j].Port = port
		}
	}
}

// gapTie is the correlation of successive gaps between arrivals.
const gapTie = 0.3

// arrivals returns n arrival times from 0, over the span or, if it is 0, with the gaps of
// the trace.
func arrivals(seed uint64, n int, span time.Duration) []time.Duration {
	rng := Stream(seed, "facebook-arrivals")
	scores := make([]float64, n-1)
	for i := range scores {
		scores[i] = rng.Float64() - 0.5
		if i > 0 {
			scores[i] = float64(gapTie*scores[i-1]) + float64(math.Sqrt(1-gapTie*gapTie)*scores[i])
		}
	}
	at := make([]float64, n) // ms
	for i, p := range deal(rng, scores) {
		at[i+1] = at[i] + math.Round(facebookGaps.at(p))
	}
	scale := 1.0
	if span > 0 && n > 1 {
		scale = float64(span.Milliseconds()) / at[n-1]
	}
	moments := make([]time.Duration, n)
	for i := range moments {
		moments[i] = time.Duration(math.Round(at[i]*scale)) * time.Millisecond
	}
	return moments
}
