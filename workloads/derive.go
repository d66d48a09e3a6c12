package workloads

import (
	"fmt"
	"math/big"
	"slices"
)

// Replicate returns a trace of n independent copies of t on disjoint ranges of ports: copy
// k is on the ports from k × t.Ports. The trace has n times the ports, coflows, flows and
// bytes, but the same load per port, and the same width and lower bound per coflow.
// Without contention between the copies completion times are those of t; only the work of
// the coordinator grows. Philae's evaluation (USENIX ATC 2019) extends the trace from 150
// to 900 ports in this way, with n = 6 and an interval between decisions 6 times as long.
//
// Copy k of coflow c has the ID n × c + k. Exceeding the limits of a trace is an error.
func Replicate(t *Trace, n int) (*Trace, error) {
	if n < 1 || n > MaxTracePorts/max(1, t.Ports) || n > MaxTraceCoflows/max(1, len(t.Coflows)) {
		return nil, fmt.Errorf("trace %s: %d copies of %d ports and %d coflows: expected 1 or more copies, and at most %d ports and %d coflows in total",
			t.Name, n, t.Ports, len(t.Coflows), MaxTracePorts, MaxTraceCoflows)
	}
	out := t.with(make([]TraceCoflow, 0, n*len(t.Coflows)))
	out.Ports *= n
	for _, c := range t.Coflows {
		if c.ID > maxTraceID/CoflowID(n)-1 {
			return nil, fmt.Errorf("trace %s: coflow %d: %d copies need IDs above %d: renumber the coflows first", t.Name, c.ID, n, maxTraceID)
		}
		for k := range n {
			copied := c
			copied.ID = c.ID*CoflowID(n) + CoflowID(k)
			copied.Mappers = slices.Clone(c.Mappers)
			copied.Reducers = slices.Clone(c.Reducers)
			for i := range copied.Mappers {
				copied.Mappers[i] += k * t.Ports
			}
			for i := range copied.Reducers {
				copied.Reducers[i].Port += k * t.Ports
			}
			out.Coflows = append(out.Coflows, copied)
		}
	}
	return out, out.check()
}

// with returns t with other coflows.
func (t *Trace) with(coflows []TraceCoflow) *Trace {
	out := *t
	out.Coflows = coflows
	return &out
}

// keep returns t with the coflows for which want is true; ids, arrivals and ports do not
// change. It is an error if none remains; what describes the condition.
func (t *Trace) keep(want func(TraceCoflow) bool, what string) (*Trace, error) {
	var kept []TraceCoflow
	for _, c := range t.Coflows {
		if want(c) {
			kept = append(kept, c)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("trace %s: none of its %d coflows has %s", t.Name, len(t.Coflows), what)
	}
	return t.with(kept), nil
}

// LowSkewFiltered returns t without coflows of low skew: it keeps those whose largest flow is
// more than k times their smallest. To estimate a size from a sample of flows is trivial if
// all flows are equal, as in 384 of the 526 coflows of the Facebook trace. Philae's
// evaluation (USENIX ATC 2019) is therefore repeated on coflows with a skew above 1 to 5.
//
// Exact arithmetic gives 142, 100, 64, 50 and 43 coflows. The paper has 142, 100, 65, 51
// and 43: 31 coflows have a skew of exactly 3 and 10 of exactly 4, and floating-point
// quotients put one of them above its bound (65 results from lengths in GB, or in seconds
// at 8 ms for 1 MB).
func LowSkewFiltered(t *Trace, k Factor) (*Trace, error) {
	if err := k.check(); err != nil {
		return nil, fmt.Errorf("trace %s: least skew: %w", t.Name, err)
	}
	return t.keep(func(c TraceCoflow) bool { return c.SkewAbove(k) }, fmt.Sprintf("a largest flow of more than %v times its smallest", k))
}

// SkewAbove reports whether the largest flow is more than k times the smallest.
func (c TraceCoflow) SkewAbove(k Factor) bool {
	var least, most *big.Rat
	for j := range c.Reducers {
		mappers := len(c.Mappers)
		if c.Reducers[j].Flows == nil {
			mappers = min(mappers, 1) // the others are equal
		}
		for i := range mappers {
			size, over := c.Flow(i, j)
			if size == 0 {
				continue
			}
			f := big.NewRat(int64(size), over)
			if least == nil || f.Cmp(least) < 0 {
				least = f
			}
			if most == nil || f.Cmp(most) > 0 {
				most = f
			}
		}
	}
	if least == nil {
		return false
	}
	k = k.orOne()
	return most.Cmp(new(big.Rat).Mul(least, big.NewRat(k.Num, k.Den))) > 0
}

// WideOnly returns t without thin coflows: it keeps coflows with more than thin flows, 7 in
// Philae's evaluation (USENIX ATC 2019).
func WideOnly(t *Trace, thin int) (*Trace, error) {
	if thin < 0 {
		return nil, fmt.Errorf("trace %s: coflows of more than %d flows: must be 0 or more", t.Name, thin)
	}
	return t.keep(func(c TraceCoflow) bool { return c.Width() > thin }, fmt.Sprintf("more than %d flows", thin))
}
