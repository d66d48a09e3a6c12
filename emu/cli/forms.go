package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	tables "testbed/results/table"
)

// forms are the flags of verbs that print figures: in which form, and how wide.
type forms struct {
	markdown, csv bool
	width         int
	given         func() bool // whether the width was asked for
}

func (f *forms) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.markdown, "markdown", false, "print Markdown instead of tables for the terminal")
	cmd.Flags().BoolVar(&f.csv, "csv", false, "print CSV: one row for each arm and metric")
	cmd.Flags().IntVar(&f.width, "width", tables.DefaultWidth, "columns that tables are to fit in; on a narrower terminal its own, where not given")
	f.given = func() bool { return cmd.Flags().Changed("width") }
}

// check refuses what cannot be had, before anything is done.
func (f *forms) check(a *app) error {
	n := 0
	for _, set := range []bool{f.markdown, f.csv, a.json} {
		if set {
			n++
		}
	}
	if n > 1 {
		return usageError{fmt.Errorf("--markdown, --csv and --json: want one of them")}
	}
	if f.width < tables.LeastWidth {
		return usageError{fmt.Errorf("--width %d: want %d columns or more", f.width, tables.LeastWidth)}
	}
	return nil
}

// written are the ways to write the same figures.
type written struct {
	data     any // as JSON
	terminal func(io.Writer, tables.Style) error
	markdown func(io.Writer) error
	csv      func(io.Writer) error
}

// show writes figures in the form that was asked for.
func (a *app) show(f *forms, w written) error {
	switch {
	case f.markdown:
		return w.markdown(a.stdout)
	case f.csv:
		return w.csv(a.stdout)
	}
	return a.print(w.data, func(out io.Writer) error {
		width := f.width
		if !f.given() {
			width = min(width, terminalWidth(a.stdout))
		}
		return w.terminal(out, terminalStyle(width))
	})
}

// terminalWidth is the columns of the terminal that w is, or the default.
func terminalWidth(w io.Writer) int {
	if file, ok := w.(*os.File); ok && isatty.IsTerminal(file.Fd()) {
		if width, _, err := cwriter.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return tables.DefaultWidth
}

// terminalStyle is how text is laid out in so many columns; 0 is the default.
func terminalStyle(width int) tables.Style {
	return tables.Style{Width: width, ASCII: asciiLocale(os.Getenv)}
}

// plainStyle is terminalStyle for tables without lines.
func plainStyle(width int) tables.Style {
	s := terminalStyle(width)
	s.Plain = true
	return s
}

// drawTable draws a table and, below it, what did not fit.
func drawTable(w io.Writer, t tables.Table, s tables.Style) error {
	fitted, err := t.Draw(w, s)
	if err != nil {
		return err
	}
	for _, n := range fitted.Notes() {
		if err := s.Paragraph(w, "", "", n); err != nil {
			return err
		}
	}
	return nil
}

// asciiLocale tells a locale that states another character set than UTF-8, or none
// as C and POSIX do. Where no locale is set at all, as in containers and services,
// UTF-8 is what terminals have.
func asciiLocale(env func(string) string) bool {
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	return locale != "" && !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8")
}
