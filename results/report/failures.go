package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	tables "testbed/results/table"
	"testbed/workloads"
)

// Failure is a flow or block that a fault ended, or a replica that a block went on
// without.
type Failure struct {
	flows.Failure
	Why   string // as the master saw it, such as "h1-02 is lost"
	Fault string // that is to blame, such as "host-crash h1-02 at 2s"; "" where none is known
}

// FailureCount is how many of an arm's items did not complete.
type FailureCount struct {
	Coflows  int `json:"coflows"` // with at least one failed flow
	Flows    int `json:"flows"`
	Blocks   int `json:"blocks"`
	Replicas int `json:"replicas"` // of blocks that completed or failed without them
	// Completed of CoflowsAll and BlocksAll in all, over the repeats.
	CoflowsCompleted int `json:"coflows_completed"`
	BlocksCompleted  int `json:"blocks_completed"`
	// List is each failure, in order of repeat and time.
	List []FailureRow `json:"list"`
}

// FailureRow is one failure. Kind is that of flows.Failure, and the IDs are there
// where an item of the kind has them.
type FailureRow struct {
	Repeat int                 `json:"repeat"`
	AtUS   float64             `json:"at_us"`
	Kind   string              `json:"kind"`
	Coflow *workloads.CoflowID `json:"coflow,omitempty"` // of a flow
	Flow   *workloads.FlowID   `json:"flow,omitempty"`   // of a flow
	Block  *workloads.BlockID  `json:"block,omitempty"`  // of a block and a replica
	Host   string              `json:"host,omitempty"`   // that was lost, of a replica
	What   string              `json:"what"`             // the same for people, such as "flow 3 of coflow 1"
	Why    string              `json:"why,omitempty"`
	Fault  string              `json:"fault,omitempty"`
}

// failures counts what failed in an arm; nil where nothing did.
func (a Arm) failures() *FailureCount {
	c := &FailureCount{}
	for k, r := range a.Repeats {
		coflows, blocks := map[workloads.CoflowID]bool{}, map[workloads.BlockID]bool{}
		list := slices.Clone(r.Failures)
		slices.SortStableFunc(list, func(x, y Failure) int { return cmp.Compare(x.At, y.At) })
		for _, f := range list {
			row := FailureRow{Repeat: k, AtUS: micros(f.At), Kind: f.Kind, Why: f.Why, Fault: f.Fault}
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
			default:
				c.Replicas++
				row.Block, row.Host = &f.Block, f.Host
				row.What = fmt.Sprintf("replica of block %d on %s", f.Block, f.Host)
			}
			c.List = append(c.List, row)
		}
		c.Coflows += len(coflows)
		// What completed after the master had given it up has failed all the same.
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

// mostFailures bounds the rows of an arm on the terminal and on the page; all are
// in summary.json.
const mostFailures = 30

// failureTables are one of counts and one of what failed when; none where nothing
// failed.
func (r *Report) failureTables() []table {
	counts := table{title: "Failures", head: []string{"arm", "coflows completed", "flows failed", "blocks completed", "replicas lost"}, cols: []tables.Column{tables.Names()},
		notes: []string{"Coflows and blocks that failed have no completion time: averages are over those that completed, and paired speed-ups over those that completed in both arms."}}
	list := table{title: "What failed", head: []string{"arm", "repeat", "at", "what", "why", "fault"},
		cols: []tables.Column{tables.Names(), {}, {}, tables.Prose(), tables.Prose(), tables.Prose()}}
	for _, a := range r.Summary.Arms {
		f := a.Failures
		if f == nil {
			counts.rows = append(counts.rows, []string{a.Name, none, "0", none, "0"})
			continue
		}
		counts.rows = append(counts.rows, []string{a.Name, fmt.Sprintf("%d of %d", f.CoflowsCompleted, f.CoflowsCompleted+f.Coflows), fmt.Sprint(f.Flows),
			fmt.Sprintf("%d of %d", f.BlocksCompleted, f.BlocksCompleted+f.Blocks), fmt.Sprint(f.Replicas)})
		for i, x := range f.List {
			if i == mostFailures {
				list.notes = append(list.notes, fmt.Sprintf("%s: and %d more, see %s", a.Name, len(f.List)-mostFailures, SummaryFile))
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
