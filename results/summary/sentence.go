package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"testbed/results/metrics"
	"testbed/results/verdict"
	"testbed/topo/words"
)

// MostNamed is the number of arms that a sentence names of each kind.
const MostNamed = 3

// MainTime is the completion time that sums up a run.
type MainTime struct {
	Name string
	Of   func(*Arm) *Metric // nil if the arm has none
}

// MainTime returns the time of jobs, of coflows or of block writes, the first that an arm has; its name is "" if none has
// any.
func (s *Run) MainTime() MainTime {
	for _, m := range []MainTime{
		{"job time", func(a *Arm) *Metric { return a.JobTime }},
		{"CCT", func(a *Arm) *Metric { return a.CCT }},
		{"block write time", func(a *Arm) *Metric { return a.WriteTime }},
	} {
		if slices.ContainsFunc(s.Arms, func(a Arm) bool { return m.Of(&a) != nil }) {
			return m
		}
	}
	return MainTime{Of: func(*Arm) *Metric { return nil }}
}

// Speedup returns the paired speed-up of an arm, and what keeps it from being stated, "" if it is significant.
func (s *Run) Speedup(m MainTime, a *Arm) (e metrics.Estimate, reason string) {
	f := m.Of(a)
	switch {
	case len(a.Unmodelled) > 0:
		return e, "the fluid model does not model " + strings.Join(a.Unmodelled, " and ")
	case f == nil || f.Paired == nil:
		return e, "nothing in common with " + s.Baseline
	case !f.Paired.GeoMeanCI.Known():
		return e, metrics.FewPairs
	}
	if e = f.Paired.Estimate(); e.Says() == "" {
		return e, "not significantly different from " + s.Baseline
	}
	return e, ""
}

// Sentence states the result of a run: the speed-ups of its arms, the largest first, and the verdicts.
func (s *Run) Sentence() string {
	m, base := s.MainTime(), &s.Arms[0]
	var parts []string
	switch f := m.Of(base); {
	case m.Name == "" && !base.Void():
		parts = append(parts, "nothing was measured")
	case f == nil && len(s.Arms) > 1:
		parts = append(parts, fmt.Sprintf("there are no speed-ups, because the baseline %s has no figures", base.Name))
	case f == nil:
		parts = append(parts, fmt.Sprintf("%s has no figures", base.Name))
	case len(s.Arms) == 1:
		mean := Micros.Show(f.MeanUS)
		parts = append(parts, fmt.Sprintf("%s has an average %s of %s (n = %d)", base.Name, m.Name, mean, f.N))
	default:
		parts = s.speedups(m)
	}
	if s.Partial != nil {
		parts = append(parts, "the run does not have all of its trials")
	}
	return strings.Join(append(parts, s.verdicts()...), "; ") + "."
}

// speedups states the significant speed-ups, and names the arms without one by the reason.
func (s *Run) speedups(m MainTime) (parts []string) {
	var reasons []string
	by := map[string][]string{}
	var found []*Arm
	for i := range s.Arms[1:] {
		a := &s.Arms[i+1]
		_, reason := s.Speedup(m, a)
		switch {
		case a.Void(): // verdicts names it
			continue
		case reason == "":
			found = append(found, a)
			continue
		case by[reason] == nil:
			reasons = append(reasons, reason)
		}
		by[reason] = append(by[reason], a.Name)
	}
	value := func(a *Arm) float64 { return m.Of(a).Paired.GeoMean }
	slices.SortStableFunc(found, func(a, b *Arm) int { return cmp.Compare(value(b), value(a)) })
	for i, a := range found[:min(len(found), MostNamed)] {
		text := fmt.Sprintf("%s is %s", a.Name, m.Of(a).Paired.Estimate().Says())
		if i == 0 {
			text += fmt.Sprintf(" than %s (%s)", s.Baseline, m.Name)
		}
		if a.Placement != nil && len(a.Placement.NotLikeForLike) > 0 {
			text += ", not like for like"
		}
		parts = append(parts, text)
	}
	if more := len(found) - MostNamed; more > 0 {
		parts = append(parts, words.Plural(more, "more arm differs", "more arms differ")+" significantly")
	}
	for _, reason := range reasons {
		parts = append(parts, words.First(by[reason], MostNamed)+": "+reason)
	}
	return parts
}

// NotMeasured ends the sentence of a simulation.
const NotMeasured = "computed by the fluid model, not measured"

// verdicts states how many arms pass, and which do not.
func (s *Run) verdicts() []string {
	if s.Source == SourceFluidModel {
		return []string{NotMeasured}
	}
	by := map[verdict.Level][]string{}
	for _, a := range s.Arms {
		by[*a.Verdict] = append(by[*a.Verdict], a.Name)
	}
	passed, all := len(by[verdict.Pass]), len(s.Arms)
	text := fmt.Sprintf("%d of %s pass", passed, words.Plural(all, "arm", "arms"))
	switch {
	case passed == all && all == 1:
		text = "it passes"
	case passed == all && all == 2:
		text = "both arms pass"
	case passed == all:
		text = fmt.Sprintf("all %d arms pass", all)
	}
	parts := []string{text}
	for level := verdict.Pass + 1; level <= verdict.Void; level++ {
		if names := by[level]; len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%v: %s", level, words.First(names, MostNamed)))
		}
	}
	return parts
}
