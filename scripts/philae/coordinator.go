package main

import (
	"fmt"

	"testbed/results/report"
)

// decisionCosts writes the cost of each arm's decisions on packets on a fabric.
func (s *philae) decisionCosts(fabric string, run *report.Summary) error {
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
			s.claims.Exact("packets/missed/"+fabric+"/"+a.Name, 100*float64(*c.Missed)/float64(c.Intervals))
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
