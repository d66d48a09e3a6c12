package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"testbed/results/report"
)

// decisionCosts writes the cost of each arm's decisions on packets.
func (s *philae) decisionCosts(run *report.Summary) error {
	var rows [][]string
	for _, a := range run.Arms {
		c := a.Coordinator
		if c == nil {
			continue
		}
		row := []string{a.Name, "–", fmt.Sprint(c.Decisions), "–", "–", "–"}
		if c.IntervalUS > 0 {
			row[1] = fmt.Sprintf("%d of %.4g ms", c.Intervals, c.IntervalUS/1e3)
		}
		if c.Missed != nil && c.IntervalUS > 0 {
			row[3] = fmt.Sprint(*c.Missed)
		}
		if c.Took != nil {
			row[4], row[5] = fmt.Sprintf("%.2f ms", c.Took.MeanUS/1e3), fmt.Sprintf("%.2f ms", c.Took.P99US/1e3)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	s.Say("Cost of decisions, over all repeats.\n")
	return s.Draw([]string{"arm", "intervals", "decisions", "missed", "average time per decision", "P99"}, rows)
}

// testbeds writes the paper's figures from its own testbeds. They are not compared with
// ours, since machines and sizes differ.
func (s *philae) testbeds() {
	for _, nodes := range slices.Sorted(maps.Keys(s.paper.Testbed)) {
		f := s.paper.Testbed[nodes]
		var missed []string
		for _, policy := range slices.Sorted(maps.Keys(s.paper.Missed[nodes])) {
			missed = append(missed, fmt.Sprintf("%.0f %% under %s", 100*s.paper.Missed[nodes][policy], policy))
		}
		s.Say("The paper's testbed of %d nodes, Philae relative to Aalo: average %s, median %s, P90 %s; missed intervals of %v: %s.\n",
			nodes, paperText(f.Avg), paperText(f.P50), paperText(f.P90), interval, strings.Join(missed, ", "))
	}
}
