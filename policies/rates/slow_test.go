package rates

import (
	"math"
	"slices"

	"testbed/policies"
)

// slow computes rates by going through all flows again and again, as the comments of
// the rules say. It shares no code with Sharer.
type slow struct {
	flows    []slowFlow
	capacity []float64
	free     []float64
	fate     map[int]string
}

type slowFlow struct {
	coflow, id int
	path       []int
	left       float64
	pilot      bool
	turn       int // in which it became a pilot, of the coflow's
	rate       float64
}

func (s *slow) share(sch *policies.Schedule) {
	s.free = slices.Clone(s.capacity)
	s.fate = map[int]string{}
	budgets := make([][]float64, len(sch.Budgets))
	for b, part := range sch.Budgets {
		for _, c := range s.capacity {
			budgets[b] = append(budgets[b], c*part)
		}
	}
	var freely []*slowFlow
	for _, st := range sch.Steps {
		avail, whole := slices.Clone(s.free), slices.Clone(s.capacity)
		if st.Budget > 0 {
			for l := range avail {
				avail[l] = min(avail[l], budgets[st.Budget-1][l])
				whole[l] *= sch.Budgets[st.Budget-1]
			}
		}
		before := slices.Clone(avail)
		if st.Rule == policies.Free {
			for _, c := range st.Coflows {
				for _, f := range s.serves(&st, c) {
					if !slices.Contains(freely, f) {
						freely = append(freely, f)
					}
				}
			}
			continue
		}
		s.step(&st, avail, whole)
		for l := range avail {
			s.free[l] -= before[l] - avail[l]
			if st.Budget > 0 {
				budgets[st.Budget-1][l] -= before[l] - avail[l]
			}
		}
	}
	s.maxmin(freely, s.free)
}

// serves are the flows a step serves of one coflow.
func (s *slow) serves(st *policies.Step, c int) []*slowFlow {
	if st.Only == policies.Skipped && s.fate[c] != "skipped" || st.Only == policies.Served && s.fate[c] != "served" {
		return nil
	}
	var fs []*slowFlow
	for i := range s.flows {
		f := &s.flows[i]
		if f.coflow == c && (st.Part == policies.All || f.pilot == (st.Part == policies.Pilots || st.Part == policies.Chosen)) {
			fs = append(fs, f)
		}
	}
	slices.SortFunc(fs, func(a, b *slowFlow) int {
		if st.Part == policies.Chosen {
			return a.turn - b.turn
		}
		return a.id - b.id
	})
	return fs
}

func (s *slow) has(avail []float64, l int) bool { return avail[l] > 1e-9*s.capacity[l] }

func (s *slow) step(st *policies.Step, avail, whole []float64) {
	give := func(f *slowFlow, rate float64) {
		f.rate += rate
		for _, l := range f.path {
			avail[l] -= rate
		}
	}
	least := func(f *slowFlow, of func(l int) float64) float64 {
		v := math.Inf(1)
		for _, l := range f.path {
			if !s.has(avail, l) {
				return 0
			}
			v = min(v, of(l))
		}
		return v
	}
	left := func(l int) float64 { return avail[l] }
	var together []*slowFlow
	for _, c := range st.Coflows {
		fs := s.serves(st, c)
		together = append(together, fs...)
		switch st.Rule {
		case policies.Greedy:
			for _, f := range fs {
				give(f, least(f, left))
			}
		case policies.Whole:
			for _, f := range fs {
				alone := math.Inf(1)
				for _, l := range f.path {
					alone = min(alone, whole[l])
				}
				fits := least(f, left) >= alone*(1-1e-9) && alone > 0
				for _, l := range []int{f.path[0], f.path[len(f.path)-1]} {
					fits = fits && avail[l] >= whole[l]*(1-1e-9)
				}
				if fits {
					give(f, least(f, left))
				}
			}
		case policies.MADD, policies.Equal:
			if len(fs) == 0 {
				continue
			}
			bits, n := make([]float64, len(avail)), make([]float64, len(avail))
			s.fate[c] = "served"
			for _, f := range fs {
				for _, l := range f.path {
					bits[l] += f.left
					n[l]++
					if !s.has(avail, l) {
						s.fate[c] = "skipped"
					}
				}
			}
			if s.fate[c] == "skipped" {
				continue
			}
			takes, rate := 0.0, math.Inf(1)
			for l := range avail {
				if n[l] > 0 {
					takes, rate = max(takes, bits[l]/avail[l]), min(rate, avail[l]/n[l])
				}
			}
			if w := st.Within.Seconds(); w > 0 {
				if takes > w*(1+1e-9) {
					s.fate[c] = "skipped"
					continue
				}
				takes = max(takes, w)
			}
			for _, f := range fs {
				if st.Rule == policies.Equal {
					give(f, rate)
				} else if f.left > 0 {
					give(f, f.left/takes)
				}
			}
		}
	}
	switch st.Rule {
	case policies.MaxMin:
		s.maxmin(together, avail)
	case policies.Even:
		n := make([]float64, len(avail))
		var fs []*slowFlow
		for _, f := range together {
			if least(f, left) > 0 {
				fs = append(fs, f)
				for _, l := range f.path {
					n[l]++
				}
			}
		}
		rates := make([]float64, len(fs))
		for i, f := range fs {
			rates[i] = least(f, func(l int) float64 { return avail[l] / n[l] })
		}
		for i, f := range fs {
			give(f, rates[i])
		}
	case policies.Proportional:
		used, has := make([]float64, len(avail)), slices.Clone(avail)
		for _, f := range together {
			for _, l := range f.path {
				used[l] += f.rate
			}
		}
		more := make([]float64, len(together))
		for i, f := range together {
			if f.rate > 0 {
				more[i] = f.rate * least(f, func(l int) float64 { return has[l] / used[l] })
			}
		}
		for i, f := range together {
			give(f, more[i])
		}
	case policies.Explicit:
		for _, r := range st.Rates {
			for i := range s.flows {
				if s.flows[i].id == int(r.Flow) {
					give(&s.flows[i], r.Rate)
				}
			}
		}
	}
	for l := range avail {
		avail[l] = max(avail[l], 0)
	}
}

// maxmin raises all rates by the same step until a link is full, stops the flows on
// it, and goes on with the others.
func (s *slow) maxmin(fs []*slowFlow, avail []float64) {
	scale := slices.Clone(avail)
	for len(fs) > 0 {
		var rise []*slowFlow
		for _, f := range fs {
			if !slices.ContainsFunc(f.path, func(l int) bool { return !s.has(avail, l) || avail[l] <= 1e-12*scale[l] }) {
				rise = append(rise, f)
			}
		}
		if fs = rise; len(fs) == 0 {
			return
		}
		n := make([]float64, len(avail))
		for _, f := range fs {
			for _, l := range f.path {
				n[l]++
			}
		}
		by := math.Inf(1)
		for l := range avail {
			if n[l] > 0 {
				by = min(by, avail[l]/n[l])
			}
		}
		for _, f := range fs {
			f.rate += by
			for _, l := range f.path {
				avail[l] -= by
			}
		}
	}
}
