package flows

import "slices"

const (
	timed   = 16 // maximum number of packets in flight that are timed concurrently
	samples = 64 // maximum number of round-trip times kept for the median
)

// roundTrips measures round-trip times: from payload to its acknowledgement. Each
// acknowledgement gives one sample, for the last timed packet that it covers. Resent bytes
// give no sample, because it would be ambiguous (Karn and Partridge 1987), and neither do
// later bytes in flight, whose acknowledgement waits for the gap to be filled.
type roundTrips struct {
	n      int32                          // number of packets in ring
	skip   int32                          // number of samples to skip before the next one is kept
	ring   [timed]struct{ end, at int64 } // end offset and send time of the timed packets
	least  int64                          // minimum, ns; 0 without samples
	most   int64                          // maximum, ns
	keep   []int64                        // every stride-th sample, at most samples of them
	stride int32
}

// sent starts timing a packet of new bytes that ends at offset end, if ring has room.
func (r *roundTrips) sent(end, stamp int64) {
	if r.n < timed {
		r.ring[r.n].end, r.ring[r.n].at = end, stamp
		r.n++
	}
}

// resent stops timing the packets with bytes from off on, which have no unambiguous
// acknowledgement.
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

// median returns the median of the kept samples, or 0 if there are none: the first 64,
// and of longer series every second, fourth, and so on.
func (r *roundTrips) median() int64 {
	if len(r.keep) == 0 {
		return 0
	}
	v := slices.Clone(r.keep)
	slices.Sort(v)
	return v[len(v)/2]
}
