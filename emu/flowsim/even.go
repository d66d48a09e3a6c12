package flowsim

import "testbed/emu/simtime"

// even is the state of classes for rule EqualSplit, by link: a flow has the smallest share of a
// link on its path, so its rate is unchanged unless that share changes.
type even struct {
	flows   []float64 // unfinished, on whose path every link has a capacity
	share   []float64 // bit/s, of each of them
	changed []int32   // links whose share is outdated
	touched []bool    // whether a link is in changed
}

// touch counts flows of a class that are added, or removed if n is negative.
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
func (k *classes) spread(now simtime.Moment) {
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
func (k *classes) spreadAll(now simtime.Moment) {
	for l, n := range k.flows {
		k.share[l] = k.capacity[l] / max(n, 1)
	}
	for i := range k.class {
		if x := &k.class[i]; x.flows > 0 {
			k.give(int32(i), x, now)
		}
	}
}

// give sets the rate of a class to the minimum of its links' shares.
func (k *classes) give(i int32, x *class, now simtime.Moment) {
	rate := far
	for _, l := range x.path[:x.links] {
		rate = min(rate, k.share[l])
	}
	if rate != x.rate {
		k.set(i, x, rate, now)
	}
}
