package flowsim

import (
	"math"
	"slices"

	"testbed/emu/simtime"
	"testbed/policies"
	"testbed/policies/alloc/maxmin"
)

// levels is the state of classes for rule Free, by link. A class has the rate at which the first link
// of its path is full, its bottleneck. This is the link's level. The end of a flow changes many
// levels, but the bottlenecks of few classes. So rates, bits and ends are kept by link, not by class:
// the bits that the link has served to each flow of its classes, their ends in these bits, and the
// numbers of their flows on other links.
type levels struct {
	maxmin.Filling
	every []int32 // all links

	level  []float64 // rate at which it was full; -1 if it is not full
	rising []bool    // its level is not final
	limits [][]int32 // classes whose bottleneck it is
	own    []float64 // flows of limits
	rows   [][]spill // flows of limits on other links

	bits, at []float64               // served to each flow of limits, at a time in ns since base
	ends     [][]maxmin.Entry[int32] // heap of limits by their ends: counts of bits; with outdated entries
	due      []float64               // ns from base to the first end of a flow of limits
	bonds    []bond                  // by class
	seen     []int32                 // by link: index in the row that is being extended, plus 1
}

// spill is flows that one link limits and that cross another.
type spill struct {
	link  int32
	flows float64
}

// bond is the bottleneck of a class.
type bond struct {
	link  int32       // -1 for none
	place int32       // in limits
	row   [most]int32 // index in rows, by link of its path
	end   float64     // count of bits of the link when its first flow ends
}

func newLevels(capacity []float64) levels {
	n := len(capacity)
	v := levels{
		Filling: maxmin.Filling{Capacity: capacity, Load: make([]float64, n), Weight: make([]float64, n)},
		level:   make([]float64, n), rising: make([]bool, n), limits: make([][]int32, n),
		own: make([]float64, n), rows: make([][]spill, n), bits: make([]float64, n), at: make([]float64, n),
		ends: make([][]maxmin.Entry[int32], n), due: make([]float64, n), seen: make([]int32, n),
	}
	for l := range n {
		v.every = append(v.every, int32(l))
	}
	v.clear()
	return v
}

// clear makes all links idle, at time 0.
func (v *levels) clear() {
	for l := range v.level {
		v.level[l], v.rising[l], v.due[l] = -1, false, far
		v.Load[l], v.Weight[l], v.own[l], v.bits[l], v.at[l] = 0, 0, 0, 0, 0
		v.limits[l], v.rows[l], v.ends[l] = v.limits[l][:0], v.rows[l][:0], v.ends[l][:0]
	}
	for i := range v.bonds {
		v.bonds[i].link = -1
	}
}

// served returns the bits that a link has served to each flow of its classes.
func (v *levels) served(l int32, now float64) float64 {
	return v.bits[l] + v.level[l]*(now-v.at[l])/1e9
}

// rateOf returns the rate of each flow of a class.
func (k *classes) rateOf(i int32) float64 {
	if k.rule != policies.Free {
		return k.class[i].rate
	}
	if l := k.bonds[i].link; l >= 0 {
		return k.level[l]
	}
	return 0
}

// refill recomputes the levels of at least the given rate.
func (k *classes) refill(least float64, now simtime.Moment) {
	least *= 1 - 1e-12
	for l, level := range k.level {
		if level < least {
			continue
		}
		k.rising[l] = true
		k.raise(int32(l), 1)
	}
	k.fill(now)
}

// raise makes the flows that a link limits rise from its level, or with sign -1, ends their rise there.
func (v *levels) raise(l int32, sign float64) {
	level := v.level[l]
	v.Weight[l] += sign * v.own[l]
	v.Load[l] -= sign * v.own[l] * level
	for _, e := range v.rows[l] {
		v.Weight[e.link] += sign * e.flows
		v.Load[e.link] -= sign * e.flows * level
	}
}

// fill raises the levels of the rising links, and the classes without a bottleneck, until links stop them.
func (k *classes) fill(now simtime.Moment) {
	k.Start(k.every)
	for l, rate := k.Next(); l >= 0; l, rate = k.Next() {
		if k.level[l] >= 0 && !k.rising[l] { // by rounding, a class has risen above a level that is final
			rate = k.level[l]
			k.raise(l, 1)
		}
		k.setLevel(l, rate, now)
		k.rising[l] = false
		k.gather(l, now)
		k.raise(l, -1)
		k.await(l)
	}
	for l, rising := range k.rising {
		if rising { // it limits nothing any more
			k.rising[l], k.level[l], k.due[l] = false, -1, far
		}
	}
}

// setLevel changes the level of a link. A rate that differs by rounding alone is kept.
func (k *classes) setLevel(l int32, rate float64, now simtime.Moment) {
	const same = 1e-15
	ns := now.Since(k.base)
	old := k.level[l]
	if old >= 0 {
		if math.Abs(rate-old) <= same*old {
			return
		}
		k.bits[l] = k.served(l, ns)
	}
	k.level[l], k.at[l] = rate, ns
	if k.follows {
		for _, i := range k.limits[l] {
			k.setRate(i, rate, now)
		}
	}
}

// gather makes a link the bottleneck of the other classes on it that rise.
func (k *classes) gather(l int32, now simtime.Moment) {
	if k.Weight[l]-k.own[l] < 0.5 { // whole flows: none
		return
	}
	if most := len(k.members[l]); cap(k.limits[l]) < most {
		k.limits[l] = slices.Grow(k.limits[l], most)
		k.rows[l] = slices.Grow(k.rows[l], most)
		k.ends[l] = slices.Grow(k.ends[l], 2*most)
	}
	ns := now.Since(k.base)
	for j, e := range k.rows[l] {
		k.seen[e.link] = int32(j) + 1
	}
	for _, i := range k.members[l] {
		x, b := &k.class[i], &k.bonds[i]
		switch {
		case b.link == l || x.flows == 0 || b.link < 0 && !x.rising || b.link >= 0 && !k.rising[b.link]:
			continue
		case b.link >= 0:
			k.leave(i, ns)
		}
		x.rising = false
		b.link, b.place = l, int32(len(k.limits[l]))
		k.limits[l] = append(k.limits[l], i)
		k.own[l] += x.flows
		for j, m := range x.path[:x.links] {
			if m == l {
				continue
			}
			if k.seen[m] == 0 {
				k.rows[l] = append(k.rows[l], spill{link: m})
				k.seen[m] = int32(len(k.rows[l]))
			}
			b.row[j] = k.seen[m] - 1
			k.rows[l][b.row[j]].flows += x.flows
		}
		x.at = k.served(l, ns)
		k.expect(i)
		if k.follows {
			k.setRate(i, k.level[l], now)
		}
	}
	for _, e := range k.rows[l] {
		k.seen[e.link] = 0
	}
}

// leave takes a class from its bottleneck.
func (k *classes) leave(i int32, ns float64) {
	x, b := &k.class[i], &k.bonds[i]
	k.serve(i, ns)
	k.crowd(i, -x.flows)
	limits := k.limits[b.link]
	last := limits[len(limits)-1]
	limits[b.place] = last
	k.bonds[last].place = b.place
	k.limits[b.link] = limits[:len(limits)-1]
	b.link = -1
}

// crowd adds flows to a class that has a bottleneck, or removes them.
func (k *classes) crowd(i int32, flows float64) {
	x, b := &k.class[i], &k.bonds[i]
	k.own[b.link] += flows
	for j, m := range x.path[:x.links] {
		if m != b.link {
			k.rows[b.link][b.row[j]].flows += flows
		}
	}
}

// expect notes when the first flow of a class ends. The caller calls await.
func (k *classes) expect(i int32) {
	x, b := &k.class[i], &k.bonds[i]
	b.end = x.at + max(x.next-x.served, 0)
	ends := maxmin.Push(k.ends[b.link], maxmin.Entry[int32]{Key: b.end, Value: i})
	if len(ends) > 2*len(k.limits[b.link])+64 {
		ends = slices.DeleteFunc(ends, func(e maxmin.Entry[int32]) bool { return !k.expected(b.link, e) })
		maxmin.Init(ends)
	}
	k.ends[b.link] = ends
}

// expected reports whether an entry of the ends of a link is not outdated.
func (k *classes) expected(l int32, e maxmin.Entry[int32]) bool {
	b := &k.bonds[e.Value]
	return b.link == l && b.end == e.Key
}

// await computes when the first flow that a link limits ends.
func (k *classes) await(l int32) {
	ends := k.ends[l]
	for len(ends) > 0 && !k.expected(l, ends[0]) {
		ends = maxmin.Pop(ends)
	}
	k.ends[l], k.due[l] = ends, far
	if len(ends) > 0 && k.level[l] > 0 {
		k.due[l] = k.at[l] + max(ends[0].Key-k.bits[l], 0)/k.level[l]*1e9
	}
}

// endOn removes the flows that end within slack of now and that a link limits.
func (k *classes) endOn(l int32, at simtime.Moment, now, slack float64) {
	for k.due[l] <= now+slack {
		i := k.ends[l][0].Value
		k.ends[l] = maxmin.Pop(k.ends[l])
		flows := k.end(i, at, now, slack)
		k.crowd(i, -flows)
		for _, m := range k.class[i].path[:k.class[i].links] {
			k.Load[m] -= flows * k.level[l]
		}
		if k.class[i].flows == 0 {
			k.leave(i, now)
		} else {
			k.expect(i)
		}
		k.await(l)
	}
}
