// Package ports counts coflows and pilot flows at ports: the links of hosts. They are the
// ports of the literature's one big switch. Links between switches are not: every coflow
// between racks would share them.
//
// It decides nothing: the policies of package coflow do.
package ports

import (
	"math/bits"

	"testbed/policies"
)

// Count returns the number of ports. Their IDs are those below it.
func Count(v *policies.CoflowView) int { return 2 * v.Fabric.Hosts() }

// Of returns the links of a coflow that are ports. count is that of Count; c.Links is
// sorted by Link.
func Of(c *policies.CoflowState, count int) []policies.LinkState {
	lo, hi := 0, len(c.Links)
	for lo < hi {
		if mid := (lo + hi) / 2; int(c.Links[mid].Link) < count {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return c.Links[:lo]
}

// Coflows returns the number of coflows with unfinished flows at each port.
func Coflows(v *policies.CoflowView, s *policies.Schedule) []int {
	n := s.Ints(Count(v))
	for i := range v.Coflows {
		for _, l := range Of(&v.Coflows[i], len(n)) {
			n[l.Link]++
		}
	}
	return n
}

// Pilots returns the number of unfinished pilot flows at each port.
func Pilots(v *policies.CoflowView, s *policies.Schedule) []int {
	n := s.Ints(Count(v))
	for i := range v.Coflows {
		for _, l := range Of(&v.Coflows[i], len(n)) {
			n[l.Link] += l.Pilots
		}
	}
	return n
}

// Contentions returns the contention of each coflow: the number of other coflows in its
// group with unfinished flows at a port where it has unfinished flows. Coflows with a
// negative group belong to none.
func Contentions(v *policies.CoflowView, s *policies.Schedule, group []int) []int {
	if len(group) <= 64 {
		return contentions64(v, s, group)
	}
	return contentionsAny(v, s, group)
}

// contentionsAny is Contentions for any number of coflows.
func contentionsAny(v *policies.CoflowView, s *policies.Schedule, group []int) []int {
	n, words := Count(v), (len(group)+63)/64
	at := s.Words(n * words)
	for i, g := range group {
		if g < 0 {
			continue
		}
		for _, l := range Of(&v.Coflows[i], n) {
			at[int(l.Link)*words+i/64] |= 1 << (i % 64)
		}
	}
	out, met := s.Ints(len(group)), s.Words(words)
	for i, g := range group {
		if g < 0 {
			continue
		}
		clear(met)
		for _, l := range Of(&v.Coflows[i], n) {
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

// contentions64 is Contentions for at most 64 coflows, which fit into one word.
func contentions64(v *policies.CoflowView, s *policies.Schedule, group []int) []int {
	n := Count(v)
	at, out := s.Words(n), s.Ints(len(group))
	for i, g := range group {
		if g < 0 {
			continue
		}
		ports := Of(&v.Coflows[i], n)
		for j := range ports {
			at[ports[j].Link] |= 1 << i
		}
	}
	for i, g := range group {
		if g < 0 {
			continue
		}
		others := uint64(0) // other coflows of the group
		for j, o := range group {
			if o == g && j != i {
				others |= 1 << j
			}
		}
		met := uint64(0)
		ports := Of(&v.Coflows[i], n)
		for j := 0; j < len(ports) && met&others != others; j++ {
			met |= at[ports[j].Link]
		}
		out[i] = bits.OnesCount64(met & others)
	}
	return out
}
