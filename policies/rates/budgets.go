package rates

import (
	"math/bits"

	"testbed/policies"
)

// What steps have of links by their budget, and what they leave of it.

// sameBudget is how many of the first steps are to be bound at once: those of one budget,
// but for rule Greedy.
func sameBudget(steps []policies.Step) int {
	n := 1
	if st := &steps[0]; st.Budget > 0 && st.Rule != policies.Greedy {
		for n < len(steps) && steps[n].Budget == st.Budget && steps[n].Rule != policies.Greedy {
			n++
		}
	}
	return n
}

// bind puts what steps of one budget have of their links in avail and whole: that part of
// their capacity. Of rule Greedy, bindLink does so when the step comes to a link.
func (s *Sharer) bind(steps []policies.Step, part float64) {
	s.avail, s.whole, s.owned = s.within, s.part, false
	if steps[0].Rule == policies.Greedy {
		s.lazy = true
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

// bindLink is bind for one link of a step of rule Greedy, which does not look at whole.
func (s *Sharer) bindLink(st *policies.Step, l int32) {
	s.bindWord(st, int(l/64), 1<<(l%64))
}

// bindWord is bindLink for the links of one word of a set.
func (s *Sharer) bindWord(st *policies.Step, word int, links uint64) {
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

// unbind takes what the steps took off what is left of their links and of their budget.
func (s *Sharer) unbind(st *policies.Step) {
	budget := s.budget(st)
	s.spent[budget] = true
	if !s.lazy {
		for _, links := range s.links.lists {
			for _, l := range links {
				if s.charge(budget, l) {
					s.before[l] = s.avail[l] // so that the link may come again
				}
			}
		}
		return
	}
	s.lazy = false
	for w, b := range s.bound {
		for ; b != 0; b &= b - 1 {
			l := int32(w*64 + bits.TrailingZeros64(b))
			if s.charge(budget, l) && s.free[l] <= s.floor[l] {
				unset(s.idle, l)
			}
		}
	}
}

// charge is unbind of one link. It tells whether anything was taken of it.
func (s *Sharer) charge(budget budget, l int32) bool {
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

// budget is a place in Schedule.Budgets.
type budget int

func (s *Sharer) budget(st *policies.Step) budget { return budget(st.Budget - 1) }

// left is what is left of a budget at a link. What no step has taken of, nothing is
// kept of.
func (b budget) left(s *Sharer, l int32) float64 {
	links := len(s.capacity) - 1
	if s.begun[int(b)*words(links)+int(l/64)]>>(l%64)&1 != 0 {
		return s.budgets[int(b)*links+int(l)]
	}
	return s.capacity[l] * s.parts[b]
}

func (b budget) take(s *Sharer, l int32, used float64) {
	links := len(s.capacity) - 1
	s.budgets[int(b)*links+int(l)] = b.left(s, l) - used
	set(s.begun[int(b)*words(links):], l)
}

// linksOf are the links that steps may take something of. They are valid until the next
// call.
func (s *Sharer) linksOf(steps []policies.Step) [][]int32 {
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

// lists are links, of which several lists may have the same.
type lists struct {
	lists [][]int32
	links int
}

func (k *lists) begin() { k.lists, k.links = k.lists[:0], 0 }

func (k *lists) add(links []int32) {
	k.lists = append(k.lists, links)
	k.links += len(links)
}

// fewest are the lists, or all links if those are fewer.
func (k *lists) fewest(every []int32) [][]int32 {
	if k.links > len(every) {
		k.lists = append(k.lists[:0], every)
	}
	return k.lists
}
