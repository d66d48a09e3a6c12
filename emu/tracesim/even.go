package tracesim

import "testbed/emu/clock"

// even is what classes keep for rule Even, by link: a flow has the least share of a
// link on its path, so that its rate stays what it is unless that changes.
type even struct {
	flows   []float64 // unfinished, on whose path every link has a capacity
	share   []float64 // bit/s, what each of them may have
	changed []int32   // links whose flows are not those that share is for
	touched []bool    // whether it is one of these
}

// touch counts flows of a class that come, or go: n is below 0.
func (k *classes) touch(x *class, n float64) {
	path := x.path[:x.links]
	for _, l := range path {
		if k.capacity[l] == 0 {
			return
		}
	}
	for _, l := range path {
		k.flows[l] += n
		if !k.touched[l] {
			k.touched[l] = true
			k.changed = append(k.changed, l)
		}
	}
}

// spread computes the rates on links whose flows have changed.
func (k *classes) spread(now clock.Moment) {
	for _, l := range k.changed {
		k.share[l] = k.capacity[l] / max(k.flows[l], 1)
		k.touched[l] = false
	}
	for _, l := range k.changed {
		for _, i := range k.members[l] {
			if x := &k.class[i]; x.flows > 0 {
				k.give(i, x, now)
			}
		}
	}
	k.changed = k.changed[:0]
}

// spreadAll computes all rates.
func (k *classes) spreadAll(now clock.Moment) {
	for l, n := range k.flows {
		k.share[l] = k.capacity[l] / max(n, 1)
	}
	for i := range k.class {
		if x := &k.class[i]; x.flows > 0 {
			k.give(int32(i), x, now)
		}
	}
}

// give sets the rate of a class to what its links' shares allow.
func (k *classes) give(i int32, x *class, now clock.Moment) {
	rate := far
	for _, l := range x.path[:x.links] {
		rate = min(rate, k.share[l])
	}
	if rate != x.rate {
		k.set(i, x, rate, now)
	}
}
