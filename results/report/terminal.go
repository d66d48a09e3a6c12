package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// mostProblems is how many problems of an arm the terminal shows; the Markdown
// page has them all.
const mostProblems = 5

// draw renders t, headings as they are and figures to the right.
func draw(w io.Writer, t table, r tw.Renderer) error {
	align := make([]tw.Align, len(t.head))
	for i := range align {
		align[i] = tw.AlignRight
	}
	align[0] = tw.AlignLeft
	if t.head[len(t.head)-1] == "verdict" {
		align[len(align)-1] = tw.AlignLeft
	}
	cells := tw.CellAlignment{PerColumn: align}
	tab := tablewriter.NewTable(w,
		tablewriter.WithRenderer(r),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(cells),
		tablewriter.WithRowAlignmentConfig(cells),
	)
	tab.Header(t.head)
	if err := tab.Bulk(t.rows); err != nil {
		return fmt.Errorf("table %q: %w", t.title, err)
	}
	if err := tab.Render(); err != nil {
		return fmt.Errorf("table %q: %w", t.title, err)
	}
	return nil
}

// Terminal writes the tables, and below them what limits their worth.
func (r *Report) Terminal(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Run %s, scenario %s\n%s\n", r.in.RunID, r.in.Scenario, r.source())
	if r.in.Partial != nil {
		fmt.Fprintf(&b, "\n%s\n", r.in.Partial.String())
	}
	tables := append(r.tables(), r.timeTables()...)
	if len(tables) == 0 {
		b.WriteString("\nNothing was measured: no coflow, flow or block has a record.\n")
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "\n%s\n", t.title)
		if err := draw(&b, t, renderer.NewBlueprint(tw.Rendition{Symbols: tw.NewSymbols(tw.StyleLight)})); err != nil {
			return err
		}
		for _, n := range t.notes {
			fmt.Fprintf(&b, "%s\n", n)
		}
	}
	if c := r.Summary.ScaleCheck; c != nil {
		if err := r.scaleTerminal(&b, c); err != nil {
			return err
		}
	}
	for _, reason := range r.reasons() {
		fmt.Fprintf(&b, "\n%s\n", reason.heading)
		for _, c := range reason.checks {
			fmt.Fprintf(&b, "  - %s\n", c)
		}
	}
	for _, a := range r.Summary.Arms {
		if len(a.Problems) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\nProblems in the records of %s:\n", a.Name)
		for _, p := range a.Problems[:min(mostProblems, len(a.Problems))] {
			fmt.Fprintf(&b, "  - %s\n", p)
		}
		if more := len(a.Problems) - mostProblems; more > 0 {
			fmt.Fprintf(&b, "  - and %d more: see %s\n", more, MarkdownFile)
		}
	}
	// Cells are padded to equal width, also the last.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}
