package alloc

import (
	"math/bits"

	"testbed/policies"
)

// This file applies budgets: the residual capacity of a step with a budget, and what the
// step leaves of the budget.

// sameBudget returns the number of leading steps that are bound together: those of one
// budget, except with rule Greedy.
func sameBudget(steps []policies.Step) int {
	n := 1
	if st := &steps[0]; st.Budget > 0 && st.Rule != policies.Greedy {
		for n < len(steps) && steps[n].Budget == st.Budget && steps[n].Rule != policies.Greedy {
			n++
		}
	}
	return n
}

// bind sets avail and whole for steps of one budget: that fraction of the capacity of their
// links. For rule Greedy, bindLink does so when the step reaches a link.
func (s *Allocator) bind(steps []policies.Step, part float64) {
	s.avail, s.whole, s.owned = s.within, s.part, false
	if steps[0].Rule == policies.Greedy {
		if s.lazy = true; s.keeps {
			s.chain.bound()
		}
		s.bound = sized(s.bound, words(len(s.capacity)-1))
		return
	}
	budget := s.budget(&steps[0])
	spent := s.spent[budget]
	for _, links := range s.linksOf(steps) {
		for _, l := range links {
			v := s.capacity[l] * part
			s.whole[l] = v
			if spent {
				v = budget.left(s, l)
			}
			v = min(v, s.free[l])
			s.avail[l], s.before[l] = v, v
		}
	}
}

// bindLink is bind for one link of a step of rule Greedy, which does not use whole.
func (s *Allocator) bindLink(st *policies.Step, l int32) {
	s.bindWord(st, int(l/64), 1<<(l%64))
}

// bindWord is bindLink for the links of one word of a bit set.
func (s *Allocator) bindWord(st *policies.Step, word int, links uint64) {
	links &^= s.bound[word]
	if links == 0 {
		return
	}
	s.bound[word] |= links
	budget := s.budget(st)
	part, spent := s.parts[budget], s.spent[budget]
	for ; links != 0; links &= links - 1 {
		l := int32(word*64 + bits.TrailingZeros64(links))
		v := s.capacity[l] * part
		if spent {
			v = budget.left(s, l)
		}
		if s.free[l] < v {
			v = s.free[l]
		}
		s.avail[l], s.before[l] = v, v
	}
}

// unbind subtracts the rates of the steps from the residual capacity and from the budget.
func (s *Allocator) unbind(st *policies.Step) {
	budget := s.budget(st)
	s.spent[budget] = true
	if !s.lazy {
		for _, links := range s.links.lists {
			for _, l := range links {
				if s.charge(budget, l) {
					s.before[l] = s.avail[l] // the link may occur again
				}
			}
		}
		return
	}
	s.lazy = false
	s.stamp++
	for w, b := range s.bound {
		for ; b != 0; b &= b - 1 {
			l := int32(w*64 + bits.TrailingZeros64(b))
			if !s.charge(budget, l) {
				continue
			}
			if s.keeps {
				s.chain.charge(l, s.free[l])
			}
			if s.free[l] <= s.floor[l] {
				unset(s.idle, l)
			}
		}
	}
	if s.keeps {
		s.unbound(s.free)
	}
}

// charge is unbind for one link. It reports whether the steps used the link.
func (s *Allocator) charge(budget budget, l int32) bool {
	used := s.before[l] - s.avail[l]
	if used == 0 {
		return false
	}
	s.free[l] -= used
	if s.again {
		budget.take(s, l, used)
	}
	return true
}

// budget is an index into Schedule.Budgets.
type budget int

func (s *Allocator) budget(st *policies.Step) budget { return budget(st.Budget - 1) }

// left returns the residual budget of a link. No value is stored while no step has used it.
func (b budget) left(s *Allocator, l int32) float64 {
	links := len(s.capacity) - 1
	if s.begun[int(b)*words(links)+int(l/64)]>>(l%64)&1 != 0 {
		return s.budgets[int(b)*links+int(l)]
	}
	return s.capacity[l] * s.parts[b]
}

func (b budget) take(s *Allocator, l int32, used float64) {
	links := len(s.capacity) - 1
	s.budgets[int(b)*links+int(l)] = b.left(s, l) - used
	set(s.begun[int(b)*words(links):], l)
}

// linksOf returns the links that steps may use. They are valid until the next call.
func (s *Allocator) linksOf(steps []policies.Step) [][]int32 {
	s.links.begin()
	for i := range steps {
		if steps[i].Rule == policies.Explicit {
			s.links.add(s.every)
		}
		for _, c := range steps[i].Coflows {
			s.links.add(s.demands[c].links)
		}
	}
	return s.links.fewest(s.every)
}

// lists is a set of links as lists that may overlap.
type lists struct {
	lists [][]int32
	links int
}

func (k *lists) begin() { k.lists, k.links = k.lists[:0], 0 }

func (k *lists) add(links []int32) {
	k.lists = append(k.lists, links)
	k.links += len(links)
}

// fewest returns the lists, or all links if those are fewer.
func (k *lists) fewest(every []int32) [][]int32 {
	if k.links > len(every) {
		k.lists = append(k.lists[:0], every)
	}
	return k.lists
}
