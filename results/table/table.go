// Package table draws tables that fit a terminal. A table that is too wide shrinks in
// an order that it states: columns are dropped, long names are shortened, and text is
// wrapped. A table that still does not fit is drawn as several tables. Numbers are never
// cut.
//
// It computes no figures (results/metrics) and does not sort rows.
package table

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"testbed/topo/words"
)

// DefaultWidth is the default width of output in columns of a terminal.
const DefaultWidth = 100

// LeastWidth is the smallest width that a Style may have.
const LeastWidth = 40

// Style is the layout of text for a terminal.
type Style struct {
	Width int // in columns; 0 is DefaultWidth
	// ASCII replaces the non-ASCII signs that this program writes, for terminals without
	// UTF-8.
	ASCII bool
	// Plain draws no lines: columns are two spaces apart.
	Plain bool
}

// gap is the width of borders and padding: per column, and once per table.
func (s Style) gap() (each, once int) {
	if s.Plain {
		return plainGap, -plainGap
	}
	return 3, 1
}

// plainGap is the distance of columns without lines between them.
const plainGap = 2

func (s Style) width() int { return max(LeastWidth, cmp.Or(s.Width, DefaultWidth)) }

// signs maps the non-ASCII signs that this program writes to ASCII.
var signs = strings.NewReplacer("★", "*", "×", "x", "–", "-", "—", "-", "−", "-", "±", "+-", "≈", "~", "…", "..", "µ", "u", "≤", "<=", "≥", ">=", "≠", "!=", "→", "->", "·", "*", "●", "*", "§", "section ", "²", "^2", "⁶", "^6", "⁰", "0")

// Text returns s as the style shows it.
func (s Style) Text(text string) string {
	if s.ASCII {
		return signs.Replace(text)
	}
	return text
}

// Table is a heading and rows of cells, one per column.
type Table struct {
	Head []string
	Rows [][]string
	// Columns describes the columns by index; missing entries are zero Columns.
	Columns []Column
}

// Column describes how a column is drawn. The zero Column holds numbers: aligned to the
// right, never cut or dropped.
type Column struct {
	Left  bool   // aligned to the left, as text
	Short string // the heading if the table is too wide; "" keeps the heading
	// Drop is the order in which columns are dropped from a table that is too wide,
	// from 1; 0 means never. Names are shortened and text is wrapped first.
	Drop int
	// Fold is the least width to which names may be shortened, in the middle; 0 means
	// never.
	Fold int
	// Wrap is the least width to which text may be wrapped between words; 0 means never.
	Wrap int
}

// Names returns a column of names.
func Names() Column { return Column{Left: true, Fold: 16} }

// Prose returns a column of text.
func Prose() Column { return Column{Left: true, Wrap: 12} }

// Fitted lists the parts of a table that did not fit.
type Fitted struct {
	Dropped []string          // headings of dropped columns, in the table's order
	Folded  map[string]string // full names by their shortened forms
}

// Notes returns a line for the dropped columns and one for each shortened name.
func (f Fitted) Notes() []string {
	var out []string
	if len(f.Dropped) > 0 {
		out = append(out, "Columns hidden to fit the terminal: "+strings.Join(f.Dropped, ", ")+" (use --width).")
	}
	short := make([]string, 0, len(f.Folded))
	for s := range f.Folded {
		short = append(short, s)
	}
	slices.Sort(short)
	for _, s := range short {
		out = append(out, s+" is "+f.Folded[s]+".")
	}
	return out
}

// Width returns the number of columns that a text takes on a terminal.
func Width(text string) int { return twwidth.Width(text) }

// cell returns the text of a cell on one line, as words.Visible shows it.
func cell(s string) string { return words.Visible(strings.Join(strings.Fields(s), " ")) }

// layout is the state of fitting a table: the remaining columns, by index, with their
// cells and widths.
type layout struct {
	t     Table
	style Style
	short bool
	kept  []int
	wide  []int // natural width of each column
	least []int // least width of each column
}

// Draw writes the table, with box drawing characters unless the style is plain, and
// returns the parts that did not fit.
func (t Table) Draw(w io.Writer, s Style) (Fitted, error) {
	t = t.prepared(s)
	var f Fitted
	l := &layout{t: t, style: s}
	for i := range t.Head {
		l.kept = append(l.kept, i)
	}
	l.measure()
	if l.total(l.wide) > s.width() {
		l.short = true
		l.measure()
	}
	l.dropTo(s.width())
	for i, h := range t.Head {
		if !slices.Contains(l.kept, i) {
			f.Dropped = append(f.Dropped, h)
		}
	}
	first := true
	parts := l.parts(s.width())
	if len(parts) > 1 { // names are shortened in the same way in all parts
		for _, part := range parts {
			room := s.width() - l.width(part, l.least)
			l.wide[0] = min(l.wide[0], max(l.least[0], l.least[0]+room))
		}
	}
	for _, part := range parts {
		if !first {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return f, err
			}
		}
		first = false
		if err := l.draw(w, part, &f); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (t Table) prepared(s Style) Table {
	clean := func(row []string) []string {
		out := make([]string, len(t.Head))
		for i := range min(len(row), len(out)) {
			out[i] = s.Text(cell(row[i]))
		}
		return out
	}
	out := Table{Head: clean(t.Head), Columns: make([]Column, len(t.Head))}
	copy(out.Columns, t.Columns)
	for i := range out.Columns {
		out.Columns[i].Short = s.Text(out.Columns[i].Short)
	}
	for _, row := range t.Rows {
		out.Rows = append(out.Rows, clean(row))
	}
	return out
}

func (l *layout) head(i int) string {
	if l.short {
		return cmp.Or(l.t.Columns[i].Short, l.t.Head[i])
	}
	return l.t.Head[i]
}

// measure sets the natural and least widths of the columns.
func (l *layout) measure() {
	l.wide, l.least = make([]int, len(l.t.Head)), make([]int, len(l.t.Head))
	for i, c := range l.t.Columns {
		head := Width(l.head(i))
		l.wide[i] = head
		for _, row := range l.t.Rows {
			l.wide[i] = max(l.wide[i], Width(row[i]))
		}
		l.least[i] = l.wide[i]
		switch {
		case c.Fold > 0:
			l.least[i] = min(l.wide[i], max(c.Fold, head))
		case c.Wrap > 0:
			longest := max(c.Wrap, head)
			for _, row := range l.t.Rows {
				for word := range strings.FieldsSeq(row[i]) {
					longest = max(longest, Width(word))
				}
			}
			l.least[i] = min(l.wide[i], longest)
		}
	}
}

// longest returns the width of the longest cell of a column.
func (l *layout) longest(i int) int {
	n := 0
	for _, row := range l.t.Rows {
		n = max(n, Width(row[i]))
	}
	return n
}

// total returns the width of the kept columns with borders and padding.
func (l *layout) total(wide []int) int { return l.width(l.kept, wide) }

func (l *layout) width(columns, wide []int) int {
	each, n := l.style.gap()
	for _, i := range columns {
		n += wide[i] + each
	}
	return n
}

// dropTo drops columns in their order until the rest fits, then restores those that fit
// after all.
func (l *layout) dropTo(most int) {
	var order []int
	for _, i := range l.kept {
		if l.t.Columns[i].Drop > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.t.Columns[a].Drop, l.t.Columns[b].Drop) })
	gone := 0
	for ; gone < len(order) && l.total(l.least) > most; gone++ {
		l.kept = slices.DeleteFunc(l.kept, func(i int) bool { return i == order[gone] })
	}
	for k := gone - 1; k >= 0; k-- {
		with := append(slices.Clone(l.kept), order[k])
		slices.Sort(with)
		if l.width(with, l.least) <= most {
			l.kept = with
		}
	}
}

// parts returns the columns of each table to draw: one table with all columns or, if they
// do not fit, several tables that repeat the first column.
func (l *layout) parts(most int) [][]int {
	if len(l.kept) < 3 || l.total(l.least) <= most {
		return [][]int{l.kept}
	}
	var out [][]int
	part := []int{l.kept[0]}
	for _, i := range l.kept[1:] {
		if len(part) > 1 && l.width(append(slices.Clone(part), i), l.least) > most {
			out, part = append(out, part), []int{l.kept[0]}
		}
		part = append(part, i)
	}
	return append(out, part)
}

// draw writes one table with some of the columns.
func (l *layout) draw(w io.Writer, columns []int, f *Fitted) error {
	s, give := l.style, l.given(columns)
	part := Table{}
	for _, i := range columns {
		part.Head = append(part.Head, l.head(i))
		part.Columns = append(part.Columns, l.t.Columns[i])
	}
	folds := map[int]map[string]string{}
	for _, i := range columns {
		if c := l.t.Columns[i]; c.Fold > 0 && give[i] < l.longest(i) {
			folds[i] = l.fold(i, give[i], s)
			for name, short := range folds[i] {
				if short != name {
					if f.Folded == nil {
						f.Folded = map[string]string{}
					}
					f.Folded[short] = name
				}
			}
		}
	}
	for _, row := range l.t.Rows {
		var cells []string
		for _, i := range columns {
			text := row[i]
			switch c := l.t.Columns[i]; {
			case folds[i] != nil:
				text = folds[i][text]
			case c.Wrap > 0 && give[i] < l.wide[i]:
				text = strings.Join(Wrap(text, give[i]), "\n")
			}
			cells = append(cells, text)
		}
		part.Rows = append(part.Rows, cells)
	}
	box := tw.StyleLight
	if s.ASCII {
		box = tw.StyleASCII
	}
	look := tw.Rendition{Symbols: tw.NewSymbols(box)}
	if s.Plain {
		look = tw.Rendition{Borders: tw.BorderNone, Settings: tw.Settings{Lines: tw.LinesNone,
			Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off, ShowHeader: tw.Off}}}
		return part.render(w, renderer.NewBlueprint(look), tablewriter.WithPadding(tw.Padding{Right: strings.Repeat(" ", plainGap), Overwrite: true}))
	}
	return part.render(w, renderer.NewBlueprint(look))
}

// given returns the widths of columns by index: while their total is too wide, the widest
// column that may shrink does.
func (l *layout) given(columns []int) []int {
	give := slices.Clone(l.wide)
	for over := l.width(columns, give) - l.style.width(); over > 0; over-- {
		widest := -1
		for _, i := range columns {
			if give[i] > l.least[i] && (widest < 0 || give[i] > give[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		give[widest]--
	}
	return give
}

// fold shortens the names of a column; different names stay different.
func (l *layout) fold(column, most int, s Style) map[string]string {
	out, taken := map[string]string{}, map[string]bool{}
	for _, row := range l.t.Rows {
		name := row[column]
		if _, ok := out[name]; ok {
			continue
		}
		short := Fold(name, most, s.Text("…"))
		for n := 2; taken[short]; n++ {
			short = Fold(name, most-len(fmt.Sprint(n))-1, s.Text("…")) + fmt.Sprintf("#%d", n)
		}
		out[name], taken[short] = short, true
	}
	return out
}

// Markdown writes the whole table as Markdown. Cells are not escaped.
func (t Table) Markdown(w io.Writer) error {
	t.Columns = append(slices.Clone(t.Columns), make([]Column, max(0, len(t.Head)-len(t.Columns)))...)
	return t.render(w, renderer.NewMarkdown())
}

func (t Table) render(w io.Writer, r tw.Renderer, options ...tablewriter.Option) error {
	align := make([]tw.Align, len(t.Head))
	for i := range align {
		align[i] = tw.AlignRight
		if t.Columns[i].Left {
			align[i] = tw.AlignLeft
		}
	}
	cells := tw.CellAlignment{PerColumn: align}
	var b bytes.Buffer // tablewriter does not return write errors
	tab := tablewriter.NewTable(&b, append([]tablewriter.Option{
		tablewriter.WithRenderer(r),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(cells),
		tablewriter.WithRowAlignmentConfig(cells),
	}, options...)...)
	tab.Header(t.Head)
	if err := tab.Bulk(t.Rows); err != nil {
		return fmt.Errorf("table of %s: %w", strings.Join(t.Head, ", "), err)
	}
	if err := tab.Render(); err != nil {
		return fmt.Errorf("table of %s: %w", strings.Join(t.Head, ", "), err)
	}
	var out bytes.Buffer
	for line := range strings.Lines(b.String()) { // removes the padding of the last cell
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	_, err := w.Write(out.Bytes())
	return err
}

// Fold shortens a text to a number of columns by replacing its middle with dots.
func Fold(text string, most int, dots string) string {
	if Width(text) <= most {
		return text
	}
	room := max(2, most-Width(dots))
	runes := []rune(text)
	head, tail := 0, len(runes)
	for used, front := 0, true; head < tail; front = !front {
		next := runes[head]
		if !front {
			next = runes[tail-1]
		}
		if used += Width(string(next)); used > room {
			break
		}
		if front {
			head++
		} else {
			tail--
		}
	}
	return string(runes[:head]) + dots + string(runes[tail:])
}

// Wrap breaks a text at spaces into lines of at most a number of columns; a longer word
// gets its own line.
func Wrap(text string, most int) []string {
	var lines []string
	line, used := "", 0
	for word := range strings.FieldsSeq(text) {
		n := Width(word)
		switch {
		case line == "":
			line, used = word, n
		case used+1+n <= most:
			line, used = line+" "+word, used+1+n
		default:
			lines, line, used = append(lines, line), word, n
		}
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}
	return lines
}

// Paragraph writes a text wrapped to the style's width; first precedes the first line,
// rest the others.
func (s Style) Paragraph(w io.Writer, first, rest, text string) error {
	begin := first
	var b strings.Builder
	for _, line := range Wrap(words.Visible(s.Text(text)), s.width()-max(Width(first), Width(rest))) {
		b.WriteString(strings.TrimRight(begin+line, " ") + "\n")
		begin = rest
	}
	_, err := io.WriteString(w, b.String())
	return err
}
