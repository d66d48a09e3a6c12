package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/words"
)

// Sentence states the result of a sweep: the range over its points of the significant speed-ups of each arm, the arm with
// the largest first, and how many verdicts are of each level.
func (s *Sweep) Sentence() string {
	type found struct {
		metrics.Estimate
		at string
	}
	by, unmodelled := map[string][]found{}, map[string]string{}
	points, levels := map[string]int{}, map[verdict.Level]int{}
	var arms []string
	var name, base string
	for _, p := range s.Points {
		m := p.Summary.MainTime()
		name, base = cmp.Or(name, m.Name), p.Summary.Baseline
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
			e, reason := p.Summary.Speedup(m, a)
			switch {
			case len(a.Unmodelled) > 0:
				unmodelled[a.Name] = reason
			case reason == "":
				by[a.Name] = append(by[a.Name], found{e, p.Dir})
			}
		}
	}
	for _, all := range by {
		slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.Value, b.Value) })
	}
	most := func(arm string) float64 {
		if all := by[arm]; len(all) > 0 {
			return all[len(all)-1].Value
		}
		return 0
	}
	slices.SortStableFunc(arms, func(a, b string) int { return cmp.Compare(most(b), most(a)) })
	var parts []string
	for _, arm := range arms[:min(len(arms), summary.MostNamed)] {
		text := fmt.Sprintf("%s differs significantly from %s (%s) at %d of %s", arm, base, name, len(by[arm]), words.Plural(points[arm], "point", "points"))
		if all := by[arm]; len(all) > 0 {
			least, most := all[0], all[len(all)-1]
			text += fmt.Sprintf(": %s at %s", most.Says(), most.at)
			if len(all) > 1 {
				text += fmt.Sprintf(" to %s at %s", least.Says(), least.at)
			}
		}
		if reason := unmodelled[arm]; reason != "" {
			text = arm + ": " + reason
		}
		parts = append(parts, text)
	}
	if more := len(arms) - summary.MostNamed; more > 0 {
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
	last := summary.NotMeasured
	if len(verdicts) > 0 {
		last = "verdicts: " + strings.Join(verdicts, ", ")
	}
	return strings.Join(append(parts, last), "; ") + "."
}
