package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/topo/words"
)

// mostNamed is the number of arms that a sentence names of each kind.
const mostNamed = 3

// mainTime is the completion time that sums up a run.
type mainTime struct {
	name string
	of   func(*ArmSummary) *Metric // nil if the arm has none
}

// mainTime returns the time of jobs, of coflows or of block writes, the first that an arm has; its name is "" if none has
// any.
func (s *Summary) mainTime() mainTime {
	for _, m := range []mainTime{
		{"job time", func(a *ArmSummary) *Metric { return a.JobTime }},
		{"CCT", func(a *ArmSummary) *Metric { return a.CCT }},
		{"block write time", func(a *ArmSummary) *Metric { return a.WriteTime }},
	} {
		if slices.ContainsFunc(s.Arms, func(a ArmSummary) bool { return m.of(&a) != nil }) {
			return m
		}
	}
	return mainTime{of: func(*ArmSummary) *Metric { return nil }}
}

// speedup returns the paired speed-up of an arm, and what keeps it from being stated, "" if it is significant.
func (s *Summary) speedup(m mainTime, a *ArmSummary) (e metrics.Estimate, reason string) {
	f := m.of(a)
	switch {
	case len(a.Unmodelled) > 0:
		return e, "the fluid model does not model " + strings.Join(a.Unmodelled, " and ")
	case f == nil || f.Paired == nil:
		return e, "nothing in common with " + s.Baseline
	case !f.Paired.GeoMeanCI.Known():
		return e, metrics.FewPairs
	}
	if e = f.Paired.estimate(); e.Says() == "" {
		return e, "not significantly different from " + s.Baseline
	}
	return e, ""
}

// Sentence states the result of a run: the speed-ups of its arms, the largest first, and the verdicts.
func (s *Summary) Sentence() string {
	m, base := s.mainTime(), &s.Arms[0]
	var parts []string
	switch f := m.of(base); {
	case m.name == "" && !base.Void():
		parts = append(parts, "nothing was measured")
	case f == nil && len(s.Arms) > 1:
		parts = append(parts, fmt.Sprintf("there are no speed-ups, because the baseline %s has no figures", base.Name))
	case f == nil:
		parts = append(parts, fmt.Sprintf("%s has no figures", base.Name))
	case len(s.Arms) == 1:
		mean := units.Human(time.Duration(f.MeanUS * float64(time.Microsecond)))
		parts = append(parts, fmt.Sprintf("%s has an average %s of %s (n = %d)", base.Name, m.name, mean, f.N))
	default:
		parts = s.speedups(m)
	}
	if s.Partial != nil {
		parts = append(parts, "the run does not have all of its trials")
	}
	return sentence(append(parts, s.verdicts()...))
}

// sentence joins parts.
func sentence(parts []string) string { return strings.Join(parts, "; ") + "." }

// speedups states the significant speed-ups, and names the arms without one by the reason.
func (s *Summary) speedups(m mainTime) (parts []string) {
	var reasons []string
	by := map[string][]string{}
	var found []*ArmSummary
	for i := range s.Arms[1:] {
		a := &s.Arms[i+1]
		_, reason := s.speedup(m, a)
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
	value := func(a *ArmSummary) float64 { return m.of(a).Paired.GeoMean }
	slices.SortStableFunc(found, func(a, b *ArmSummary) int { return cmp.Compare(value(b), value(a)) })
	for i, a := range found[:min(len(found), mostNamed)] {
		text := fmt.Sprintf("%s is %s", a.Name, m.of(a).Paired.estimate().Says())
		if i == 0 {
			text += fmt.Sprintf(" than %s (%s)", s.Baseline, m.name)
		}
		if a.Placement != nil && len(a.Placement.NotLikeForLike) > 0 {
			text += ", not like for like"
		}
		parts = append(parts, text)
	}
	if more := len(found) - mostNamed; more > 0 {
		parts = append(parts, words.Plural(more, "more arm differs", "more arms differ")+" significantly")
	}
	for _, reason := range reasons {
		parts = append(parts, words.First(by[reason], mostNamed)+": "+reason)
	}
	return parts
}

// notMeasured ends the sentence of a simulation.
const notMeasured = "computed by the fluid model, not measured"

// verdicts states how many arms pass, and which do not.
func (s *Summary) verdicts() []string {
	if s.Source == SourceFluidModel {
		return []string{notMeasured}
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
			parts = append(parts, fmt.Sprintf("%v: %s", level, words.First(names, mostNamed)))
		}
	}
	return parts
}

// Sentence states the result of a sweep: the range over its points of the significant speed-ups of each arm, the arm with
// the largest first, and how many verdicts are of each level.
func (s *Sweep) Sentence() string {
	type found struct {
		metrics.Estimate
		at string
	}
	by := map[string][]found{}
	points, levels := map[string]int{}, map[verdict.Level]int{}
	var arms []string
	var name, base string
	for _, p := range s.Points {
		m := p.Summary.mainTime()
		name, base = cmp.Or(name, m.name), p.Summary.Baseline
		for i := range p.Summary.Arms {
			a := &p.Summary.Arms[i]
			if a.Verdict != nil {
				levels[*a.Verdict]++
			}
			if i == 0 {
				continue
			}
			if points[a.Name]++; points[a.Name] == 1 {
				arms = append(arms, a.Name)
			}
			if e, reason := p.Summary.speedup(m, a); reason == "" {
				by[a.Name] = append(by[a.Name], found{e, p.Dir})
			}
		}
	}
	most := func(arm string) (value float64) {
		slices.SortStableFunc(by[arm], func(a, b found) int { return cmp.Compare(a.Value, b.Value) })
		for _, x := range by[arm] {
			value = x.Value
		}
		return value
	}
	slices.SortStableFunc(arms, func(a, b string) int { return cmp.Compare(most(b), most(a)) })
	var parts []string
	for _, arm := range arms[:min(len(arms), mostNamed)] {
		text := fmt.Sprintf("%s differs significantly from %s (%s) at %d of %s", arm, base, name, len(by[arm]), words.Plural(points[arm], "point", "points"))
		if all := by[arm]; len(all) > 0 {
			least, most := all[0], all[len(all)-1]
			text += fmt.Sprintf(": %s at %s", most.Says(), most.at)
			if len(all) > 1 {
				text += fmt.Sprintf(" to %s at %s", least.Says(), least.at)
			}
		}
		parts = append(parts, text)
	}
	if more := len(arms) - mostNamed; more > 0 {
		parts = append(parts, words.Plural(more, "more arm", "more arms"))
	}
	if len(s.Missing) > 0 {
		parts = append(parts, "no trial has ended of "+words.Plural(len(s.Missing), "point", "points"))
	}
	var verdicts []string
	for level := verdict.Pass; level <= verdict.Void; level++ {
		if levels[level] > 0 {
			verdicts = append(verdicts, fmt.Sprintf("%d %v", levels[level], level))
		}
	}
	if len(verdicts) == 0 {
		return sentence(append(parts, notMeasured))
	}
	return sentence(append(parts, "verdicts: "+strings.Join(verdicts, ", ")))
}
