package rundir

import (
	"fmt"
	"slices"
	"strings"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo/words"
)

// known checks that a row belongs to a repeat of the summary.
func (r *Run) known(k schema.Key) error {
	a, at := r.Arm(k.Arm), 0
	if a != nil {
		at = a.Numbers.Place(k.Repeat, a.Repeats)
	}
	switch {
	case a == nil:
		return fmt.Errorf("arm %q is not in %s, which has %s", k.Arm, summary.SummaryFile, strings.Join(r.Arms(), ", "))
	case at < 0:
		return fmt.Errorf("repeat %d: %s has %d repeats of arm %s, and not this one", k.Repeat, summary.SummaryFile, a.Repeats, k.Arm)
	case k.Verdict != r.verdictOf(a, at):
		return fmt.Errorf("verdict %q of arm %s, repeat %d: %s has %q", k.Verdict, k.Arm, k.Repeat, summary.SummaryFile, r.verdictOf(a, at))
	}
	return nil
}

// tables reads the CSV files.
func (r *Run) tables() (err error) {
	if r.Flows, err = rows(r, summary.FlowsFile, func(f *schema.Flow) error { return r.known(f.Key) }); err != nil {
		return err
	}
	if r.Coflows, err = rows(r, summary.CoflowsFile, func(c *schema.Coflow) error { return r.known(c.Key) }); err != nil {
		return err
	}
	if r.Blocks, err = rows(r, summary.BlocksFile, func(b *schema.Block) error { return r.known(b.Key) }); err != nil {
		return err
	}
	if r.Requests, err = rows(r, summary.RequestsFile, func(x *schema.Request) error { return r.known(x.Key) }); err != nil {
		return err
	}
	if r.Jobs, err = rows(r, summary.JobsFile, func(x *schema.Job) error { return r.known(x.Key) }); err != nil {
		return err
	}
	if r.Attempts, err = rows(r, summary.AttemptsFile, r.attempt); err != nil {
		return err
	}
	if r.Balance, err = rows(r, summary.BalanceFile, func(x *schema.Balance) error {
		if x.Interval <= 0 || x.Cv < 0 {
			return fmt.Errorf("interval_us %v, cv %v: must be positive, and 0 or more", x.Interval, x.Cv)
		}
		return r.known(x.Key)
	}); err != nil {
		return err
	}
	if r.Breakdown, err = rows(r, summary.BreakdownFile, func(s *schema.Share) error { return r.known(s.Key) }); err != nil {
		return err
	}
	if r.Links, err = rows(r, summary.LinksFile, func(l *schema.Load) error {
		if l.Interval <= 0 {
			return fmt.Errorf("interval_us %v: must be positive", l.Interval)
		}
		return r.known(l.Key)
	}); err != nil {
		return err
	}
	if r.Drops, err = rows(r, summary.DropsFile, func(d *schema.Drop) error {
		if d.Source != summary.DropsKernel && d.Source != summary.DropsCaptures {
			return fmt.Errorf("source %q: must be %s or %s", d.Source, summary.DropsKernel, summary.DropsCaptures)
		}
		return r.known(d.Key)
	}); err != nil {
		return err
	}
	if r.Progress, err = rows(r, summary.ProgressFile, r.progress); err != nil {
		return err
	}
	return r.MarkFailed()
}

// MarkFailed marks the rows of items that were given up before they ended, as the summary
// lists them.
func (r *Run) MarkFailed() error {
	type id struct {
		arm        string
		repeat, id int
	}
	flow, coflow, block := map[id]bool{}, map[id]bool{}, map[id]bool{}
	for _, a := range r.Summary.Arms {
		if a.Failures == nil {
			continue
		}
		for i, f := range a.Failures.List {
			at := func(n int) id { return id{a.Name, f.Repeat, n} }
			switch {
			case f.Kind == flows.FailedFlow && f.Flow != nil && f.Coflow != nil:
				flow[at(int(*f.Flow))], coflow[at(int(*f.Coflow))] = true, true
			case f.Kind == flows.FailedBlock && f.Block != nil:
				block[at(int(*f.Block))] = true
			case f.Kind == flows.FailedReplica, f.Kind == flows.FailedJob: // no row of theirs has a mark
			default:
				return r.damaged(summary.SummaryFile, 0, fmt.Sprintf("arm %q: entry %d of failures.list (%s) does not identify its item in kind, coflow, flow and block: an older version wrote it", a.Name, i, f.What))
			}
		}
	}
	for i := range r.Flows {
		x := &r.Flows[i]
		x.Failed = flow[id{x.Arm, x.Repeat, int(x.Flow)}]
	}
	for i := range r.Coflows {
		x := &r.Coflows[i]
		x.Failed = x.Job == nil && coflow[id{x.Arm, x.Repeat, int(x.Coflow)}] // shuffles retry their fetches
	}
	for i := range r.Blocks {
		x := &r.Blocks[i]
		x.Failed = block[id{x.Arm, x.Repeat, int(x.Block)}]
	}
	return nil
}

// attempt checks a row of attempts.csv.
func (r *Run) attempt(a *schema.Attempt) error {
	locality := []string{"", flows.NodeLocal, flows.RackLocal, flows.OffRack}
	switch {
	case !slices.Contains(metrics.TaskKinds(), a.Kind):
		return fmt.Errorf("kind %q: must be %s or %s", a.Kind, flows.MapTask, flows.ReduceTask)
	case !slices.Contains(locality, a.Locality):
		return fmt.Errorf("locality %q: must be empty, %s", a.Locality, words.Or(locality[1:]))
	case !slices.Contains(flows.Outcomes(), a.Outcome):
		return fmt.Errorf("outcome %q: must be %s", a.Outcome, words.Or(flows.Outcomes()))
	}
	return r.known(a.Key)
}
