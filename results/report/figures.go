package report

import (
	"slices"

	"testbed/results/summary"
	tables "testbed/results/table"
)

// figures returns the figures of a section in the summary of an arm.
func (a *ArmSummary) figures(s *summary.Section) summary.Values {
	return *a.Section(s.Key)
}

// has reports whether a table of a section is shown.
func (r *Report) has(s *summary.Section, t summary.Table) bool {
	return t.If == "" || slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.figures(s).Has(t.If) })
}

// figureTables returns the tables of a section.
func (r *Report) figureTables(s *summary.Section) (out []table) {
	for _, t := range s.Tables {
		if r.has(s, t) {
			out = append(out, r.figureTable(s, t))
		}
	}
	return out
}

// figureDefinitions returns the definitions of the tables of a section.
func (r *Report) figureDefinitions(s *summary.Section) (out []string) {
	for _, t := range s.Tables {
		if t.Define != nil && r.has(s, t) {
			out = append(out, s.Definitions(t, !r.in.FluidModel)...)
		}
	}
	return out
}

func (r *Report) figureTable(s *summary.Section, of summary.Table) table {
	t := table{title: of.Title, head: []string{"arm"}, cols: []tables.Column{tables.Names()}}
	figures := s.Columns(of)
	list := listOf(figures)
	if list != nil {
		t.head, t.cols = append(t.head, list.List.Head), append(t.cols, tables.Column{Left: true})
		figures = nil
		for i := range list.List.Figures {
			figures = append(figures, &list.List.Figures[i])
		}
	}
	for _, f := range figures {
		t.head, t.cols = append(t.head, f.Head), append(t.cols, tables.Column{Short: f.Short, Drop: f.Drop})
	}
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		v := a.figures(s)
		var base summary.Values
		if i > 0 {
			base = r.Summary.Arms[0].figures(s)
		}
		if list == nil {
			t.rows = append(t.rows, a.cells(len(t.head)-1, v != nil, func() []string { return cells(figures, v, base) }))
			continue
		}
		rows := v.Rows(list.Key)
		if len(rows) == 0 {
			t.rows = append(t.rows, a.cells(len(t.head)-1, false, nil))
			continue
		}
		if whole := list.List.Whole; whole != "" {
			t.rows = append(t.rows, append([]string{a.Name, "all"}, cells(figures, v.Below(whole), nil)...))
		}
		for _, row := range rows {
			t.rows = append(t.rows, append([]string{a.Name, list.List.Name(row)}, cells(figures, row, nil)...))
		}
	}
	return t
}

// listOf returns the list whose objects are the rows of a table; nil if they are arms.
func listOf(figures []*summary.Figure) *summary.Figure {
	for _, f := range figures {
		if f.List != nil && f.Cell == nil {
			return f
		}
	}
	return nil
}

// cells returns the cells of figures.
func cells(figures []*summary.Figure, v, base summary.Values) (row []string) {
	for _, f := range figures {
		cell := ""
		if x, ok := v.Get(f.Key); f.Cell != nil {
			cell = f.Cell(v, base)
		} else if ok {
			cell = f.Unit.Show(x)
		}
		if cell == "" {
			cell = none
		}
		row = append(row, cell)
	}
	return row
}

// taskTables returns the tables of jobs of tasks and of the estimates of their scheduler; none without such jobs.
func (r *Report) taskTables() (out []table) {
	if !r.in.attempts() {
		return nil
	}
	for _, s := range summary.Sections() {
		out = append(out, r.figureTables(s)...)
	}
	return append(out, r.estimateTables()...)
}

// taskDefinitions returns the definitions of the figures of jobs of tasks.
func (r *Report) taskDefinitions() []string {
	if !r.in.attempts() {
		return nil
	}
	out := []string{"Jobs of tasks: job time: from the submission of the job to its mark done, which follows the commit " +
		"of its last task. Its shuffles are coflows, from the first fetch of a stage over the network to the end of its " +
		"last; its fetches and reads of input blocks are in no table of FCT, because arms cannot pair them."}
	for _, s := range summary.Sections() {
		out = append(out, r.figureDefinitions(s)...)
	}
	return append(out, r.estimateDefinitions()...)
}
