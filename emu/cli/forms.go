package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	tables "testbed/results/table"
)

// forms holds the flags for the output format of figures.
type forms struct {
	markdown, csv, html bool
	width               widthFlag
}

// add adds the flags. A row of the CSV is for what row says.
func (f *forms) add(cmd *cobra.Command, row string) {
	cmd.Flags().BoolVar(&f.markdown, "markdown", false, "write Markdown")
	addCSV(cmd, &f.csv, "one row per "+row)
	f.width.add(cmd)
}

// check rejects flags that exclude each other, before anything is done.
func (f *forms) check(a *app) error {
	var given []string
	for _, form := range []struct {
		set  bool
		name string
	}{{f.markdown, "--markdown"}, {f.csv, "--csv"}, {f.html, "--html"}, {a.json, "--json"}} {
		if form.set {
			given = append(given, form.name)
		}
	}
	if len(given) > 1 {
		return usageError{fmt.Errorf("%s exclude each other: give one of them", strings.Join(given, " and "))}
	}
	return f.width.check()
}

// written holds the writers of the same figures in each format.
type written struct {
	data     any // as JSON
	terminal func(io.Writer, tables.Style) error
	markdown func(io.Writer) error
	csv      func(io.Writer) error
	html     func(io.Writer) error
}

// show writes figures in the selected format.
func (a *app) show(f *forms, w written) error {
	switch {
	case f.markdown:
		return w.markdown(a.stdout)
	case f.csv:
		return w.csv(a.stdout)
	case f.html:
		return w.html(a.stdout)
	}
	return a.print(w.data, func(out io.Writer) error {
		return w.terminal(out, f.width.style(a))
	})
}

// terminalWidth returns the width of the terminal w, or the default.
func terminalWidth(w io.Writer) int {
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return tables.DefaultWidth
}

// terminalStyle returns the layout of text in a number of columns; 0 is the default.
func terminalStyle(width int) tables.Style {
	return tables.Style{Width: width, ASCII: asciiLocale(os.Getenv)}
}

// plainStyle returns terminalStyle for tables without lines.
func plainStyle(width int) tables.Style {
	s := terminalStyle(width)
	s.Plain = true
	return s
}

// unlimited is a width that no table has.
const unlimited = 1 << 20

// listStyle returns plainStyle for standard output: of the terminal's width or, for a file or pipe, without a limit,
// since programs need whole names.
func (a *app) listStyle() tables.Style {
	if file, ok := a.stdout.w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return plainStyle(terminalWidth(file))
	}
	return plainStyle(unlimited)
}

// drawTable draws a table and, below it, notes on what did not fit.
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

// asciiLocale reports whether the locale names a character set other than UTF-8, or none,
// as C and POSIX do. Without any locale, as in containers and services, it is false.
func asciiLocale(env func(string) string) bool {
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	return locale != "" && !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8")
}
