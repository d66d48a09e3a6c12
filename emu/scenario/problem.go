package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"testbed/topo/units"
	"testbed/topo/words"
)

// Problem is one error of a scenario: its place, and a text with the reason and the remedy.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	Col  int    `json:"col"`  // from 1, in characters, in traces bytes
	Path string `json:"path"` // of the key, such as "workload[0].path"; "" if no key has the error
	Text string `json:"text"`
}

func (p Problem) Error() string {
	if p.Path == "" {
		return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Col, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", p.File, p.Line, p.Col, p.Path, p.Text)
}

// maxProblems is the largest number of errors that one scenario reports in full.
const maxProblems = 100

// Errors are all errors of a scenario and its traces: first those of the
// scenario file, in the order of the file.
type Errors struct {
	Problems []Problem
	More     int    // number of problems that are left out
	at       string // name of the point of a sweep
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

// Unwrap returns the problems.
func (e *Errors) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// problems collects the errors of a scenario.
type problems struct {
	file string
	all  []Problem
}

func (p *problems) err() error {
	if len(p.all) == 0 {
		return nil
	}
	slices.SortStableFunc(p.all, func(a, b Problem) int {
		switch own, other := a.File == p.file, b.File == p.file; {
		case own && other:
			return cmp.Or(a.Line-b.Line, a.Col-b.Col)
		case own:
			return -1
		case other:
			return 1
		}
		return 0 // traces report theirs in order
	})
	e := &Errors{Problems: p.all}
	if len(p.all) > maxProblems {
		e.Problems, e.More = p.all[:maxProblems], len(p.all)-maxProblems
	}
	return e
}

// didYouMean returns ` (did you mean "x"?)` for the candidate nearest to word, or "" if
// none is near.
func didYouMean(word string, candidates []string) string {
	if best := words.Closest(word, candidates); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}

// clip shortens text that a message quotes.
func clip(s string) string { return units.Clip(s) }
