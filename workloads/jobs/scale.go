package jobs

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Scale changes the scale of a workload without changing the experiment. All times of an
// experiment scale by Size / Rate: those of transfers and of computation do so on their own, those
// of submissions are scaled, and those of timers, such as heartbeats and timeouts, must be.
//
// Two of Rate, Size and Time determine the third. Given Rate alone, sizes do not change; given Size
// or Time alone, rates do not. A zero Factor is not given.
type Scale struct {
	Rate workloads.Factor // of processing; links and disks must have the same
	Size workloads.Factor // of inputs, outputs and writes, and of memory
	Time workloads.Factor // of submissions; timers must have the same
	// Gaps changes the load: it multiplies the times of submissions in addition to Time.
	Gaps workloads.Factor
}

// Complete returns s with all factors, or an error if they contradict each other.
func (s Scale) Complete() (Scale, error) {
	var none workloads.Factor
	for _, x := range []struct {
		name string
		f    workloads.Factor
	}{{"rate", s.Rate}, {"size", s.Size}, {"time", s.Time}, {"gaps", s.Gaps}} {
		if x.f != none && (x.f.Num < 1 || x.f.Den < 1) {
			return s, fmt.Errorf("scale: %s %d/%d: must be two positive numbers", x.name, x.f.Num, x.f.Den)
		}
	}
	one := workloads.Factor{Num: 1, Den: 1}
	if s.Gaps == none {
		s.Gaps = one
	}
	if s.Rate == none && (s.Size == none || s.Time == none) {
		s.Rate = one
	}
	over := false
	times := func(a, b workloads.Factor) workloads.Factor {
		f, ok := a.Times(b)
		over = over || !ok
		return f
	}
	inverse := func(f workloads.Factor) workloads.Factor { return workloads.Factor{Num: f.Den, Den: f.Num} }
	switch {
	case s.Size == none && s.Time == none:
		s.Size, s.Time = one, inverse(s.Rate)
	case s.Size == none:
		s.Size = times(s.Rate, s.Time)
	case s.Time == none:
		s.Time = times(s.Size, inverse(s.Rate))
	case s.Rate == none:
		s.Rate = times(s.Size, inverse(s.Time))
	default:
		if product := times(s.Rate, s.Time); !over && big.NewRat(product.Num, product.Den).Cmp(big.NewRat(s.Size.Num, s.Size.Den)) != 0 {
			return s, fmt.Errorf("scale: size %v is not rate %v times time %v: give two of them", s.Size, s.Rate, s.Time)
		}
	}
	if over {
		return s, errors.New("scale: the product of factors is out of range: use simpler ones")
	}
	return s, nil
}

// Apply returns scaled jobs. Sizes round up to a byte, rates to the nearest bit per second and at
// least one, times down to a nanosecond; 0 stays 0.
func (s Scale) Apply(list []Job) ([]Job, error) {
	s, err := s.Complete()
	if err != nil {
		return nil, err
	}
	var fails checks
	size := func(n units.Bytes) units.Bytes {
		x, exact, ok := mulDiv(int64(n), s.Size.Num, s.Size.Den)
		if !exact {
			x++
		}
		if n > 0 && (!ok || units.Bytes(x) > maxSize) && len(fails) == 0 {
			fails.add(true, "scale: %v times %v: must be at most %v", n, s.Size, maxSize)
		}
		return units.Bytes(x)
	}
	rate := func(r units.Rate) units.Rate {
		if r == 0 {
			return 0
		}
		// Twice the rate, rounded down, plus one, halved: the nearest.
		x, _, ok := mulDiv(2*int64(r), s.Rate.Num, s.Rate.Den)
		out := units.Rate(max(1, (x+1)/2))
		if (!ok || out > maxRate) && len(fails) == 0 {
			fails.add(true, "scale: %v times %v: must be at most %v", r, s.Rate, maxRate)
		}
		return out
	}
	at := func(d time.Duration) time.Duration {
		out, ok := s.Time.Duration(d)
		if ok {
			out, ok = s.Gaps.Duration(out)
		}
		if (!ok || out > maxTime) && len(fails) == 0 {
			fails.add(true, "scale: %v times %v times %v: must be at most %v", d, s.Time, s.Gaps, maxTime)
		}
		return out
	}
	scaled := slices.Clone(list)
	for i := range scaled {
		j := &scaled[i]
		j.Submit = at(j.Submit)
		j.Stages = slices.Clone(j.Stages)
		for k := range j.Stages {
			j.Stages[k].Tasks = slices.Clone(j.Stages[k].Tasks)
			var last, out []units.Bytes // of the task before, and scaled
			for n := range j.Stages[k].Tasks {
				t := &j.Stages[k].Tasks[n]
				t.InputSize, t.Writes, t.Need.Memory = size(t.InputSize), size(t.Writes), size(t.Need.Memory)
				t.Rate, t.SortRate = rate(t.Rate), rate(t.SortRate)
				if !shared(last, t.Output) {
					last, out = t.Output, make([]units.Bytes, len(t.Output))
					for x, b := range last {
						out[x] = size(b)
					}
				}
				t.Output = slices.Clip(out)
			}
		}
	}
	return scaled, errors.Join(fails...)
}
