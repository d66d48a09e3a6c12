package words

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// hidden reports whether a terminal could act on r instead of showing it: control characters
// except the ends of lines and tabs, and characters that reverse the order of text.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return true
	}
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Visible returns text with every character that a terminal could act on written as \u001b
// is, which is also its form in JSON. Names in files of others may contain such characters.
func Visible(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteString(text[:size]) // also bytes that are not UTF-8
		}
		text = text[size:]
	}
	return b.String()
}

// VisibleWriter returns a writer of Visible text to w.
func VisibleWriter(w io.Writer) io.Writer { return visible{w} }

type visible struct{ w io.Writer }

func (v visible) Write(p []byte) (int, error) {
	text := string(p)
	if shown := Visible(text); shown != text {
		if _, err := io.WriteString(v.w, shown); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return v.w.Write(p)
}

// CSV writes rows as comma-separated values. Spreadsheets open all cells as they are: text
// that they would take for a formula has an apostrophe before it, and control characters are
// visible.
type CSV struct {
	*csv.Writer
	cells *[]string // of the row being written
}

// NewCSV returns a CSV that writes to w.
func NewCSV(w io.Writer) CSV { return CSV{csv.NewWriter(w), new([]string)} }

// Write writes one row. Flush must follow the last.
func (c CSV) Write(row []string) error {
	cells := (*c.cells)[:0]
	for _, cell := range row {
		cells = append(cells, quoteFormula(Visible(cell)))
	}
	*c.cells = cells
	return c.Writer.Write(cells)
}

// WriteAll writes rows and flushes them.
func (c CSV) WriteAll(rows [][]string) error {
	for _, row := range rows {
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

const apostrophe = "'"

// formula reports whether a spreadsheet takes a cell for a formula, apart from apostrophes.
func formula(cell string) bool {
	cell = strings.TrimLeft(cell, apostrophe)
	return cell != "" && strings.ContainsRune("=+-@\t", rune(cell[0]))
}

func quoteFormula(cell string) string {
	if !formula(cell) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return apostrophe + cell
}

// Text returns the text of a cell that CSV wrote.
func Text(cell string) string {
	if strings.HasPrefix(cell, apostrophe) && formula(cell) {
		return cell[1:]
	}
	return cell
}
