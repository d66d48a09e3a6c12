package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake: where it is, and what is wrong, why and what to do.
type Problem struct {
	File      string
	Line, Col int    // from 1; Col counts characters, in traces bytes
	Path      string // of the key, such as "workload[0].path"; "" where none is to blame
	Text      string
}

func (p Problem) Error() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Col, p.Path, p.Text)
}

// maxProblems is how many mistakes of one scenario are told in full.
const maxProblems = 100

// Errors are all mistakes found in a scenario and its traces, those of the
// scenario file first, in the order of the file.
type Errors struct {
	Problems []Problem
	More     int // that are left out
}

func (e *Errors) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// Unwrap gives each Problem.
func (e *Errors) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// problems gathers mistakes while a scenario is read.
type problems struct {
	file string
	all  []Problem
}

func (p *problems) err() error {
	if len(p.all) == 0 {
		return nil
	}
	slices.SortStableFunc(p.all, func(a, b Problem) int {
		switch {
		case (a.File == p.file) != (b.File == p.file):
			if a.File == p.file {
				return -1
			}
			return 1
		case a.File != p.file:
			return 0 // traces tell theirs in order
		case a.Line != b.Line:
			return a.Line - b.Line
		}
		return a.Col - b.Col
	})
	e := &Errors{Problems: p.all}
	if len(p.all) > maxProblems {
		e.Problems, e.More = p.all[:maxProblems], len(p.all)-maxProblems
	}
	return e
}

// didYouMean is `, did you mean "x"?` for the candidate nearest to word, "" where
// none is near.
func didYouMean(word string, candidates []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := editDistance(word, c); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// editDistance is Levenshtein's, in bytes, of words clipped to 64.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// clip shortens what a message quotes.
func clip(s string) string {
	r := []rune(s)
	if len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
