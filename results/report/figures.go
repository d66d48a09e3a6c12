package report

import (
	"cmp"
	"slices"

	"testbed/results/summary"
	tables "testbed/results/table"
)

// figureTables returns the tables of a section that some arm has figures for.
func (r *Report) figureTables(section string) (out []table) {
	for _, of := range summary.Tables(section, !r.in.FluidModel) {
		t := table{title: of.Title, head: []string{"arm"}, cols: []tables.Column{tables.Names()}, notes: of.Notes}
		for _, f := range of.Figures {
			t.head = append(t.head, f.Head)
			t.cols = append(t.cols, tables.Column{Short: f.Short, Drop: f.Drop, Left: f.Left})
		}
		any := false
		for i := range r.Summary.Arms {
			a := &r.Summary.Arms[i]
			rows := of.Rows(&a.Declared)
			any = any || rows != nil
			if rows == nil {
				t.rows = append(t.rows, cells(a, len(of.Figures), false, nil))
			}
			for _, row := range rows {
				for k := range row {
					row[k] = cmp.Or(row[k], none)
				}
				t.rows = append(t.rows, append([]string{a.Name}, row...))
			}
		}
		if any {
			out = append(out, t)
		}
	}
	return out
}

// figureDefinitions returns the definitions of these tables.
func (r *Report) figureDefinitions(section string) (out []string) {
	for _, t := range summary.Tables(section, !r.in.FluidModel) {
		if slices.ContainsFunc(r.Summary.Arms, func(a summary.Arm) bool { return t.Rows(&a.Declared) != nil }) {
			out = append(out, t.Define...)
		}
	}
	return out
}

// taskTables returns the tables of jobs of tasks and of the estimates of their scheduler.
func (r *Report) taskTables() []table {
	return append(r.figureTables("tasks"), r.figureTables("estimates")...)
}

// taskDefinitions returns the definitions of the figures of jobs of tasks.
func (r *Report) taskDefinitions() []string {
	if !r.in.attempts() {
		return nil
	}
	out := []string{"Jobs of tasks: job time: from the submission of the job to its mark done, which follows the commit of its " +
		"last task. Its shuffles are coflows, from the first fetch of a stage over the network to the end of its last; its " +
		"fetches and reads of input blocks are in no table of FCT, because arms cannot pair them."}
	return slices.Concat(out, r.figureDefinitions("tasks"), r.figureDefinitions("estimates"))
}
