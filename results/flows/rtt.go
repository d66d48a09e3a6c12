package flows

import "slices"

const (
	timed   = 16 // packets under way that are timed at once
	samples = 64 // round-trip times that are kept for their median
)

// roundTrips measures the time from payload to the acknowledgement that covers it:
// one sample for an acknowledgement, of the last packet that it covers among those
// that were timed. Bytes that were sent again give none (Karn and Partridge 1987), and
// neither do those that were under way behind them, whose acknowledgement waits for
// the gap.
type roundTrips struct {
	n      int32 // packets in ring
	skip   int32 // samples until the next that is kept
	ring   [timed]struct{ end, at int64 }
	least  int64
	most   int64
	keep   []int64 // every stride-th sample, at most samples of them
	stride int32
}

// sent starts to time a packet of new bytes up to end.
func (r *roundTrips) sent(end, stamp int64) {
	if r.n < timed {
		r.ring[r.n].end, r.ring[r.n].at = end, stamp
		r.n++
	}
}

// resent forgets what an acknowledgement would be ambiguous for.
func (r *roundTrips) resent(off int64) {
	for r.n > 0 && r.ring[r.n-1].end > off {
		r.n--
	}
}

func (r *roundTrips) acknowledged(to, stamp int64) {
	k := int32(0)
	for k < r.n && r.ring[k].end <= to {
		k++
	}
	if k == 0 {
		return
	}
	d := stamp - r.ring[k-1].at
	copy(r.ring[:], r.ring[k:r.n])
	r.n -= k
	if d <= 0 {
		return
	}
	if r.least == 0 || d < r.least {
		r.least = d
	}
	r.most = max(r.most, d)
	if r.skip > 0 {
		r.skip--
		return
	}
	if len(r.keep) == samples {
		for i := range samples / 2 {
			r.keep[i] = r.keep[2*i]
		}
		r.keep = r.keep[:samples/2]
		r.stride = 2 * max(r.stride, 1)
	}
	if r.keep == nil {
		r.keep = make([]int64, 0, samples/4)
	}
	r.keep = append(r.keep, d)
	r.skip = max(r.stride, 1) - 1
}

// median is that of the samples that were kept: all of the first 64, then every
// second, fourth and so on. 0 where there is none.
func (r *roundTrips) median() int64 {
	if len(r.keep) == 0 {
		return 0
	}
	v := slices.Clone(r.keep)
	slices.Sort(v)
	return v[len(v)/2]
}
