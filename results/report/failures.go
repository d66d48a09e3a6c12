package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/workloads"
)

// failures counts the failures of an arm; nil if there are none.
func (a Arm) failures() *summary.FailureCount {
	c := &summary.FailureCount{}
	for k, r := range a.Repeats {
		coflows, blocks := map[workloads.CoflowID]bool{}, map[workloads.BlockID]bool{}
		list := slices.Clone(r.Failures)
		slices.SortStableFunc(list, func(x, y summary.Failure) int { return cmp.Compare(x.At, y.At) })
		for _, f := range list {
			row := summary.FailureRow{Repeat: a.Numbers.Of(k), AtUS: micros(f.At), Kind: f.Kind, Why: f.Why, Fault: f.Fault}
			switch f.Kind {
			case flows.FailedFlow:
				c.Flows++
				coflows[f.Coflow] = true
				row.Coflow, row.Flow = &f.Coflow, &f.Flow
				row.What = fmt.Sprintf("flow %d of coflow %d", f.Flow, f.Coflow)
			case flows.FailedBlock:
				c.Blocks++
				blocks[f.Block] = true
				row.Block = &f.Block
				row.What = fmt.Sprintf("block %d", f.Block)
			case flows.FailedJob:
				c.Jobs++
				row.Job = &f.Job
				row.What = fmt.Sprintf("job %d", f.Job)
			default:
				c.Replicas++
				row.Block, row.Host = &f.Block, f.Host
				row.What = fmt.Sprintf("replica of block %d on %s", f.Block, f.Host)
			}
			c.List = append(c.List, row)
		}
		c.Coflows += len(coflows)
		// Items that completed after the master had given them up count as failed.
		for _, x := range r.Records.Coflows {
			if !coflows[x.Coflow] {
				c.CoflowsCompleted++
			}
		}
		for _, x := range r.Records.Blocks {
			if !blocks[x.Block] {
				c.BlocksCompleted++
			}
		}
	}
	if len(c.List) == 0 {
		return nil
	}
	return c
}

// mostFailures is the number of rows of an arm on the terminal and on the page;
// summary.json has all failures.
const mostFailures = 30

// failureTables returns a table of counts and a list of failures; none if nothing failed.
func (r *Report) failureTables() []table {
	counts := table{title: "Failures", head: []string{"arm", "coflows completed", "flows failed", "blocks completed", "replicas lost"}, cols: []tables.Column{tables.Names()},
		notes: []string{"Failed coflows and blocks have no completion time. Averages include those that completed; paired speed-ups include those that completed in both arms."}}
	list := table{title: "List of failures", head: []string{"arm", "repeat", "time", "item", "reason", "fault"},
		cols: []tables.Column{tables.Names(), {}, {}, tables.Prose(), tables.Prose(), tables.Prose()}}
	jobs := slices.ContainsFunc(r.Summary.Arms, func(a summary.Arm) bool { return a.Failures != nil && a.Failures.Jobs > 0 })
	if jobs {
		counts.head = append(counts.head, "jobs failed")
	}
	for _, a := range r.Summary.Arms {
		f := a.Failures
		row := []string{a.Name, none, "0", none, "0"}
		if f != nil {
			row = []string{a.Name, fmt.Sprintf("%d of %d", f.CoflowsCompleted, f.CoflowsCompleted+f.Coflows), fmt.Sprint(f.Flows),
				fmt.Sprintf("%d of %d", f.BlocksCompleted, f.BlocksCompleted+f.Blocks), fmt.Sprint(f.Replicas)}
		} else {
			f = &summary.FailureCount{}
		}
		if jobs {
			row = append(row, fmt.Sprint(f.Jobs))
		}
		counts.rows = append(counts.rows, row)
		for i, x := range f.List {
			if i == mostFailures {
				list.notes = append(list.notes, fmt.Sprintf("%s: %d more in %s.", a.Name, len(f.List)-mostFailures, summary.SummaryFile))
				break
			}
			at := time.Duration(x.AtUS * float64(time.Microsecond)).Round(time.Millisecond)
			list.rows = append(list.rows, []string{a.Name, fmt.Sprint(x.Repeat), at.String(), x.What, cmp.Or(x.Why, none), cmp.Or(x.Fault, none)})
		}
	}
	if len(list.rows) == 0 {
		return nil
	}
	return []table{counts, list}
}
