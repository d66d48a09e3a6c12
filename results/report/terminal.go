package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"testbed/results/summary"
	tables "testbed/results/table"
)

// mostProblems is the number of problems of an arm on the terminal; the Markdown report
// has all of them.
const mostProblems = 5

// drawn returns the table to draw. Its first column has names.
func (t table) drawn() tables.Table {
	cols := make([]tables.Column, len(t.head))
	copy(cols, t.cols)
	cols[0].Left = true
	return tables.Table{Head: t.head, Rows: t.rows, Columns: cols}
}

// markdown writes the whole table without its notes.
func (t table) markdown(w io.Writer) error {
	if err := t.drawn().Markdown(w); err != nil {
		return fmt.Errorf("table %q: %w", t.title, err)
	}
	return nil
}

// text draws the table to fit a terminal, followed by the hidden columns and its notes.
func (t table) text(w io.Writer, style tables.Style) error {
	fitted, err := t.drawn().Draw(w, style)
	if err != nil {
		return fmt.Errorf("table %q: %w", t.title, err)
	}
	for _, n := range append(fitted.Notes(), t.notes...) {
		if err := style.Paragraph(w, "", "", n); err != nil {
			return err
		}
	}
	return nil
}

// Terminal writes the tables and their caveats in the default style.
func (r *Report) Terminal(w io.Writer) error { return r.TerminalIn(w, tables.Style{}) }

// TerminalIn writes Terminal in a style. No line is wider than the style, except for single
// words that are. Numbers are never cut; hidden columns are named.
func (r *Report) TerminalIn(w io.Writer, style tables.Style) error {
	var b bytes.Buffer
	// Writing to a buffer cannot fail.
	say := func(first, rest, format string, args ...any) {
		_ = style.Paragraph(&b, first, rest, fmt.Sprintf(format, args...))
	}
	say("", "", "Run %s, scenario %s", r.in.RunID, r.in.Scenario)
	say("", "", "%s", r.source())
	if r.in.Partial != nil {
		b.WriteByte('\n')
		say("", "", "%s", r.in.Partial.String())
	}
	all := append(r.tables(), r.timeTables()...)
	if len(all) == 0 {
		b.WriteByte('\n')
		say("", "", "Nothing was measured: there is no record of any coflow, flow or block.")
	}
	for _, t := range all {
		fmt.Fprintf(&b, "\n%s\n", style.Text(t.title))
		if err := t.text(&b, style); err != nil {
			return err
		}
	}
	if lines := r.lossLines(); len(lines) > 0 {
		b.WriteByte('\n')
		for _, l := range lines {
			say("", "  ", "%s", l)
		}
	}
	if l := legend(all, style); l != "" {
		b.WriteByte('\n')
		say("", "", "%s", l)
	}
	for _, s := range r.intervals() {
		b.WriteByte('\n')
		say("", "", "%s", s)
	}
	if c := r.Summary.ScaleCheck; c != nil {
		if err := scaleTerminal(c, &b, style); err != nil {
			return err
		}
	}
	for _, reason := range r.reasons() {
		b.WriteByte('\n')
		say("", "", "%s", reason.heading)
		for _, c := range reason.checks {
			say("  - ", "    ", "%s", c)
		}
	}
	for _, a := range r.Summary.Arms {
		if len(a.Problems) == 0 {
			continue
		}
		b.WriteByte('\n')
		say("", "", "Problems in the records of %s:", a.Name)
		for _, p := range a.Problems[:min(mostProblems, len(a.Problems))] {
			say("  - ", "    ", "%s", p)
		}
		if more := len(a.Problems) - mostProblems; more > 0 {
			say("  - ", "    ", "%d more in %s", more, summary.MarkdownFile)
		}
	}
	b.WriteByte('\n')
	say("", "", "Result: %s", r.Summary.Sentence())
	// Cells are padded to equal width, including the last.
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}
