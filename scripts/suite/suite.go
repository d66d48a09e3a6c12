// Package suite is what the suites that set figures beside a paper's have in common:
// a report that goes to the terminal and a file, the program that is run, and its
// figures.
package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/results/report"
	"testbed/results/table"
	"testbed/results/verdict"
)

// Report is what a suite prints, in Markdown. The first error of writing is kept.
type Report struct {
	out   io.Writer
	err   error
	file  *os.File // both of Begin
	began time.Time
}

// NewReport is a report on out.
func NewReport(out io.Writer) *Report { return &Report{out: out} }

// Write writes Markdown as it is.
func (r *Report) Write(text []byte) (int, error) {
	n, err := r.out.Write(text)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

// Say writes a paragraph.
func (r *Report) Say(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// Draw writes a table; its first column is names.
func (r *Report) Draw(head []string, rows [][]string) error {
	t := table.Table{Head: head, Rows: rows}
	for range head {
		t.Columns = append(t.Columns, table.Column{})
	}
	t.Columns[0] = table.Names()
	if err := t.Markdown(r); err != nil {
		return err
	}
	r.Say("")
	return nil
}

// Reasons says why figures differ from the paper's, of those of names for which one
// is known.
func (r *Report) Reasons(known map[string]string, names ...string) {
	said := false
	for _, name := range names {
		if why := known[name]; why != "" {
			r.Say("- %s: %s", name, strings.Join(strings.Fields(why), " "))
			said = true
		}
	}
	if said {
		r.Say("")
	}
}

// Program is testbed, and the directory that its runs are written to.
type Program struct{ Path, Dir string }

// exitVoid is the exit code of a run of which an arm is void.
const exitVoid = 3

// ErrVoid is that an arm's figures may not be believed.
var ErrVoid = errors.New("an arm is void")

// Command runs the program. What it tells on standard error goes to ours; a context
// that ends interrupts it and lets it clean up. Where an arm is void the error is
// ErrVoid, and the output is whole.
func (p Program) Command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == exitVoid:
		err = fmt.Errorf("testbed %s: %w", args[0], ErrVoid)
	case err != nil:
		err = fmt.Errorf("testbed %s: %w", args[0], err)
	}
	return out, err
}

// Run runs a scenario by a verb that leaves a run directory, and reads its figures.
// Those of a run with a void arm come with ErrVoid.
func (p Program) Run(ctx context.Context, verb, scenario string, more ...string) (*report.Summary, error) {
	text, err := p.Command(ctx, slices.Concat([]string{verb, scenario, "--out", p.Dir, "--json"}, more)...)
	if err != nil && !errors.Is(err, ErrVoid) {
		return nil, err
	}
	s := new(report.Summary)
	if bad := json.Unmarshal(text, s); bad != nil {
		return nil, fmt.Errorf("testbed %s --json: %w", verb, bad)
	}
	return s, err
}

// RunDir is the directory of a run.
func (p Program) RunDir(s *report.Summary) string { return filepath.Join(p.Dir, s.RunID) }

// Passed tells an arm's verdict, and how many of its repeats have verdict pass.
func Passed(a report.ArmSummary) string {
	if a.Verdict == nil {
		return "no verdict"
	}
	n := 0
	for _, v := range a.Verdicts {
		if v.Level == verdict.Pass {
			n++
		}
	}
	return fmt.Sprintf("%v (%d of %d pass)", *a.Verdict, n, len(a.Verdicts))
}

// MS is a time in µs as milliseconds.
func MS(us float64) string { return fmt.Sprintf("%.0f ms", us/1e3) }

// WhereTimeWent is each arm's average time of an item by cause, in ms: of coflows, or
// of blocks.
func (r *Report) WhereTimeWent(arms []report.ArmSummary, blocks bool) error {
	of := func(a report.ArmSummary) (map[string]float64, int) {
		times := map[string]float64{}
		m := a.CCT
		if a.Time == nil {
			return nil, 0
		}
		causes := a.Time.CoflowsUS
		if blocks {
			m, causes = a.WriteTime, a.Time.BlocksUS
		}
		if m == nil {
			return nil, 0
		}
		for c, us := range causes {
			times[fmt.Sprint(c)] = us
		}
		return times, m.N
	}
	var causes []string
	for _, a := range arms {
		times, _ := of(a)
		for c := range times {
			if !slices.Contains(causes, c) {
				causes = append(causes, c)
			}
		}
	}
	slices.Sort(causes)
	var rows [][]string
	for _, a := range arms {
		times, n := of(a)
		row := []string{a.Name}
		for _, c := range causes {
			cell := "–"
			if n > 0 {
				cell = fmt.Sprintf("%.1f", times[c]/1e3/float64(n))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return r.Draw(append([]string{"arm"}, causes...), rows)
}
