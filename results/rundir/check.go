package rundir

import (
	"fmt"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/report"
	"testbed/results/schema"
)

// item is a row of one flow, coflow or block.
type item struct {
	key  schema.Key
	id   int
	from time.Duration
	to   time.Duration
	time time.Duration
}

// check checks the rows of a table of items: they belong to the run's arms, are unique, and
// have consistent times.
func (r *Run) check(what string) func(item) error {
	type id struct {
		arm        string
		repeat, id int
	}
	seen := map[id]bool{}
	return func(x item) error {
		if err := r.known(x.key); err != nil {
			return err
		}
		k := id{x.key.Arm, x.key.Repeat, x.id}
		if seen[k] {
			return fmt.Errorf("%s %d of arm %s, repeat %d, is duplicated", what, max(x.id, -x.id), x.key.Arm, x.key.Repeat)
		}
		seen[k] = true
		if x.to-x.from != x.time {
			return fmt.Errorf("%s %d takes %v, but goes from %v to %v", what, x.id, x.time, x.from, x.to)
		}
		return nil
	}
}

// known checks that a row belongs to a repeat of the summary.
func (r *Run) known(k schema.Key) error {
	a := r.Arm(k.Arm)
	switch {
	case a == nil:
		return fmt.Errorf("arm %q is not in %s, which has %s", k.Arm, report.SummaryFile, strings.Join(r.Arms(), ", "))
	case k.Repeat >= a.Repeats:
		return fmt.Errorf("repeat %d: %s has %d repeats of arm %s, counted from 0", k.Repeat, report.SummaryFile, a.Repeats, k.Arm)
	case k.Verdict != r.verdictOf(a, k.Repeat):
		return fmt.Errorf("verdict %q of arm %s, repeat %d: %s has %q", k.Verdict, k.Arm, k.Repeat, report.SummaryFile, r.verdictOf(a, k.Repeat))
	}
	return nil
}

// tables reads the CSV files.
func (r *Run) tables() (err error) {
	one := r.check("flow")
	if r.Flows, err = rows(r, report.FlowsFile, func(f *schema.Flow) error {
		return one(item{f.Key, int(f.Flow), f.Arrival, f.End, f.FCT})
	}); err != nil {
		return err
	}
	one = r.check("coflow")
	if r.Coflows, err = rows(r, report.CoflowsFile, func(c *schema.Coflow) error {
		return one(item{c.Key, int(c.Coflow), c.Arrival, c.End, c.CCT})
	}); err != nil {
		return err
	}
	one = r.check("block")
	if r.Blocks, err = rows(r, report.BlocksFile, func(b *schema.Block) error {
		return one(item{b.Key, int(b.Block), b.Requested, b.End, b.WriteTime})
	}); err != nil {
		return err
	}
	if err := r.joined(); err != nil {
		return err
	}
	for _, x := range []struct {
		name    string
		missing bool
	}{{report.FlowsFile, r.Flows == nil}, {report.CoflowsFile, r.Coflows == nil}, {report.BlocksFile, r.Blocks == nil}} {
		if x.missing {
			return fmt.Errorf("%s is missing (%s)", x.name, r.again())
		}
	}
	if r.Breakdown, err = rows(r, report.BreakdownFile, func(s *schema.Share) error { return r.known(s.Key) }); err != nil {
		return err
	}
	if r.Links, err = rows(r, report.LinksFile, func(l *schema.Load) error {
		if l.Interval <= 0 {
			return fmt.Errorf("interval_us %v: must be positive", l.Interval)
		}
		return r.known(l.Key)
	}); err != nil {
		return err
	}
	if r.Drops, err = rows(r, report.DropsFile, func(d *schema.Drop) error {
		if d.Source != report.DropsKernel && d.Source != report.DropsCaptures {
			return fmt.Errorf("source %q: must be %s or %s", d.Source, report.DropsKernel, report.DropsCaptures)
		}
		return r.known(d.Key)
	}); err != nil {
		return err
	}
	if r.Progress, err = rows(r, report.ProgressFile, r.progress()); err != nil {
		return err
	}
	if err := r.markFailed(); err != nil {
		return err
	}
	return r.counted()
}

// joined reads the tables of a report that knows the workload. A file without figures in the
// summary belongs to another report.
func (r *Run) joined() (err error) {
	figures := func(of func(*report.ArmSummary) bool) bool {
		for i := range r.Summary.Arms {
			if of(&r.Summary.Arms[i]) {
				return true
			}
		}
		return false
	}
	if figures(func(a *report.ArmSummary) bool { return a.RequestTime != nil }) {
		one := r.check("writer")
		if r.Requests, err = rows(r, report.RequestsFile, func(x *schema.Request) error {
			return one(item{x.Key, int(x.Writer), x.Requested, x.End, x.RequestTime})
		}); err != nil {
			return err
		}
	}
	if figures(func(a *report.ArmSummary) bool { return a.JobTime != nil }) {
		one := r.check("job")
		if r.Jobs, err = rows(r, report.JobsFile, func(x *schema.Job) error {
			return one(item{x.Key, x.Item(), x.Arrival, x.End, x.JobTime})
		}); err != nil {
			return err
		}
	}
	if figures(func(a *report.ArmSummary) bool { return a.Tasks != nil }) {
		if r.Attempts, err = rows(r, report.AttemptsFile, r.attempts()); err != nil {
			return err
		}
		if err := r.partsOfJobs(); err != nil {
			return err
		}
	}
	if figures(func(a *report.ArmSummary) bool { return a.Placement != nil && a.Placement.Cv != nil }) {
		r.Balance, err = rows(r, report.BalanceFile, func(x *schema.Balance) error {
			if x.Interval <= 0 || x.Cv < 0 {
				return fmt.Errorf("interval_us %v, cv %v: must be positive, and 0 or more", x.Interval, x.Cv)
			}
			return r.known(x.Key)
		})
	}
	return err
}

// markFailed marks the rows of items that were given up before they ended, as the summary
// lists them.
func (r *Run) markFailed() error {
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
				return r.damaged(report.SummaryFile, 0, fmt.Sprintf("arm %q: entry %d of failures.list (%s) does not identify its item in kind, coflow, flow and block: an older version wrote it", a.Name, i, f.What))
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

// counted checks that the files have as many items as the summary, so that no figure comes
// from part of a file.
func (r *Run) counted() error {
	for _, a := range r.Summary.Arms {
		if a.Void() {
			continue
		}
		for _, x := range []struct {
			name string
			m    *report.Metric
			n    int
		}{
			{report.FlowsFile, a.FCT, len(r.FCTs(a.Name))},
			{report.CoflowsFile, a.CCT, len(r.CCTs(a.Name))},
			{report.BlocksFile, a.WriteTime, len(r.WriteTimes(a.Name))},
			{report.RequestsFile, a.RequestTime, len(r.RequestTimes(a.Name))},
			{report.JobsFile, a.JobTime, len(r.JobTimes(a.Name))},
		} {
			want := 0
			if x.m != nil {
				want = x.m.N
			}
			if x.n != want {
				return r.damaged(x.name, 0, fmt.Sprintf("it has %d completed items of arm %s, but %s has %d: the files are from different reports, or one was cut short", x.n, a.Name, report.SummaryFile, want))
			}
		}
		if err := r.countedTasks(&a); err != nil {
			return err
		}
		if p := a.Placement; p != nil && p.Cv != nil {
			n := 0
			for _, b := range r.Balance {
				if b.Arm == a.Name {
					n++
				}
			}
			if n != p.Cv.N {
				return r.damaged(report.BalanceFile, 0, fmt.Sprintf("it has %d samples of arm %s, but %s has %d: the files are from different reports, or one was cut short", n, a.Name, report.SummaryFile, p.Cv.N))
			}
		}
	}
	return nil
}
