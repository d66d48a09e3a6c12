package alloc

import (
	"cmp"
	"math"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Reference computes rates by iterating over all flows, as the rules of package policies are
// documented. It is the specification of Allocator, with which it shares no code: property tests
// compare the two. It checks nothing, and is too slow for traces.
type Reference struct {
	Capacity []float64 // bit/s, by LinkID
	Flows    []ReferenceFlow

	free    []float64
	outcome map[int]string
}

// ReferenceFlow is one unfinished flow of a Reference.
type ReferenceFlow struct {
	Coflow int // index into the View's coflows
	ID     workloads.FlowID
	Links  []topo.LinkID // path, not empty
	Left   float64       // remaining bits
	Pilot  bool
	Turn   int     // its position among the coflow's pilot flows
	Rate   float64 // bit/s: the result of Share
}

// Share adds the rates that a schedule gives to Rate of each flow.
func (s *Reference) Share(sch *policies.Schedule) {
	s.free = slices.Clone(s.Capacity)
	s.outcome = map[int]string{}
	budgets := make([][]float64, len(sch.Budgets))
	for b, part := range sch.Budgets {
		for _, c := range s.Capacity {
			budgets[b] = append(budgets[b], c*part)
		}
	}
	var freeFlows []*ReferenceFlow
	for _, st := range sch.Steps {
		avail, whole := slices.Clone(s.free), slices.Clone(s.Capacity)
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
					if !slices.Contains(freeFlows, f) {
						freeFlows = append(freeFlows, f)
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
	s.maxmin(freeFlows, s.free)
}

// serves returns the flows of one coflow that a step serves.
func (s *Reference) serves(st *policies.Step, c int) []*ReferenceFlow {
	if st.Only == policies.Skipped && s.outcome[c] != "skipped" || st.Only == policies.Served && s.outcome[c] != "served" {
		return nil
	}
	var fs []*ReferenceFlow
	for i := range s.Flows {
		f := &s.Flows[i]
		if f.Coflow == c && (st.Part == policies.All || f.Pilot == (st.Part == policies.Pilots || st.Part == policies.Chosen)) {
			fs = append(fs, f)
		}
	}
	slices.SortFunc(fs, func(a, b *ReferenceFlow) int {
		if st.Part == policies.Chosen {
			return a.Turn - b.Turn
		}
		return cmp.Compare(a.ID, b.ID)
	})
	return fs
}

func (s *Reference) has(avail []float64, l topo.LinkID) bool { return avail[l] > 1e-9*s.Capacity[l] }

func (s *Reference) step(st *policies.Step, avail, whole []float64) {
	give := func(f *ReferenceFlow, rate float64) {
		f.Rate += rate
		for _, l := range f.Links {
			avail[l] -= rate
		}
	}
	least := func(f *ReferenceFlow, of func(l topo.LinkID) float64) float64 {
		v := math.Inf(1)
		for _, l := range f.Links {
			if !s.has(avail, l) {
				return 0
			}
			v = min(v, of(l))
		}
		return v
	}
	left := func(l topo.LinkID) float64 { return avail[l] }
	var allOrNone []*ReferenceFlow
	for _, c := range st.Coflows {
		fs := s.serves(st, c)
		allOrNone = append(allOrNone, fs...)
		switch st.Rule {
		case policies.Greedy:
			for _, f := range fs {
				give(f, least(f, left))
			}
		case policies.ExclusivePorts:
			for _, f := range fs {
				alone := math.Inf(1)
				for _, l := range f.Links {
					alone = min(alone, whole[l])
				}
				fits := least(f, left) >= alone*(1-1e-9) && alone > 0
				for _, l := range []topo.LinkID{f.Links[0], f.Links[len(f.Links)-1]} {
					fits = fits && avail[l] >= whole[l]*(1-1e-9)
				}
				if fits {
					give(f, least(f, left))
				}
			}
		case policies.MADD, policies.SlowestRate:
			if len(fs) == 0 {
				continue
			}
			bits, n := make([]float64, len(avail)), make([]float64, len(avail))
			s.outcome[c] = "served"
			for _, f := range fs {
				for _, l := range f.Links {
					bits[l] += f.Left
					n[l]++
					if !s.has(avail, l) {
						s.outcome[c] = "skipped"
					}
				}
			}
			if s.outcome[c] == "skipped" {
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
					s.outcome[c] = "skipped"
					continue
				}
				takes = max(takes, w)
			}
			for _, f := range fs {
				if st.Rule == policies.SlowestRate {
					give(f, rate)
				} else if f.Left > 0 {
					give(f, f.Left/takes)
				}
			}
		}
	}
	switch st.Rule {
	case policies.MaxMin:
		s.maxmin(allOrNone, avail)
	case policies.EqualSplit:
		n := make([]float64, len(avail))
		var fs []*ReferenceFlow
		for _, f := range allOrNone {
			if least(f, left) > 0 {
				fs = append(fs, f)
				for _, l := range f.Links {
					n[l]++
				}
			}
		}
		rates := make([]float64, len(fs))
		for i, f := range fs {
			rates[i] = least(f, func(l topo.LinkID) float64 { return avail[l] / n[l] })
		}
		for i, f := range fs {
			give(f, rates[i])
		}
	case policies.Proportional:
		used, has := make([]float64, len(avail)), slices.Clone(avail)
		for _, f := range allOrNone {
			for _, l := range f.Links {
				used[l] += f.Rate
			}
		}
		more := make([]float64, len(allOrNone))
		for i, f := range allOrNone {
			if f.Rate > 0 {
				more[i] = f.Rate * least(f, func(l topo.LinkID) float64 { return has[l] / used[l] })
			}
		}
		for i, f := range allOrNone {
			give(f, more[i])
		}
	case policies.Explicit:
		for _, r := range st.Rates {
			for i := range s.Flows {
				if s.Flows[i].ID == r.Flow {
					give(&s.Flows[i], r.Rate)
				}
			}
		}
	}
	for l := range avail {
		avail[l] = max(avail[l], 0)
	}
}

// maxmin raises all rates by the same amount until a link is full, stops its flows, and
// continues with the others.
func (s *Reference) maxmin(fs []*ReferenceFlow, avail []float64) {
	scale := slices.Clone(avail)
	for len(fs) > 0 {
		var rise []*ReferenceFlow
		for _, f := range fs {
			if !slices.ContainsFunc(f.Links, func(l topo.LinkID) bool { return !s.has(avail, l) || avail[l] <= 1e-12*scale[l] }) {
				rise = append(rise, f)
			}
		}
		if fs = rise; len(fs) == 0 {
			return
		}
		n := make([]float64, len(avail))
		for _, f := range fs {
			for _, l := range f.Links {
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
			f.Rate += by
			for _, l := range f.Links {
				avail[l] -= by
			}
		}
	}
}
