package compare

import (
	"fmt"
	"io"
	"strings"

	"testbed/results/htmlreport"
)

// Page writes the comparison as one self-contained HTML file: the sentences of its result first.
func (r *Result) Page(w io.Writer) error {
	d := htmlreport.Document{Kind: "testbed compare", Title: "Comparison"}
	tables := htmlreport.DocumentSection{ID: "ratios", Title: "Ratios of times"}
	result := htmlreport.DocumentSection{ID: "result", Title: "Result"}
	for _, m := range r.metrics {
		t, title, sentences, ok := r.table(m)
		if !ok {
			continue
		}
		out := htmlreport.Table{Title: title, Head: t.Head}
		for _, row := range t.Rows {
			var cells []htmlreport.Cell
			for j, text := range row {
				c := htmlreport.Cell{Text: text, Figure: !t.Columns[j].Left}
				if j == len(row)-1 {
					c.Level, _, _ = strings.Cut(text, " ")
				}
				cells = append(cells, c)
			}
			out.Rows = append(out.Rows, cells)
		}
		tables.Tables = append(tables.Tables, out)
		result.Lists = append(result.Lists, htmlreport.List{Heading: m.Title(), Items: sentences})
	}
	var nothing []string
	r.nothing(len(tables.Tables), func(text string) { nothing = append(nothing, text) })
	if len(nothing) > 0 {
		result.Lists = append(result.Lists, htmlreport.List{Heading: "Not compared", Items: nothing})
	}
	if unlike := r.unlike(); len(unlike) > 0 {
		result.Lists = append(result.Lists, htmlreport.List{Heading: "Not like for like", Items: unlike})
	}
	d.Sections = append(d.Sections, result)
	if len(tables.Tables) > 0 {
		d.Sections = append(d.Sections, tables)
	}
	runs := htmlreport.DocumentSection{ID: "runs", Title: "Runs"}
	runs.Lists = append(runs.Lists, htmlreport.List{Heading: "What was compared", Items: r.head()})
	r.footnotes(func(heading string, lines []string) {
		runs.Lists = append(runs.Lists, htmlreport.List{Heading: heading, Items: lines})
	})
	d.Sections = append(d.Sections, runs)
	if err := d.Write(w); err != nil {
		return fmt.Errorf("comparison: %w", err)
	}
	return nil
}
