// Package suite is the common part of suites that compare figures with those of a paper: a
// report to the terminal and a file, the program under test and its figures, and the claims of the
// paper with their outcomes.
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
	"syscall"
	"time"

	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/table"
	"testbed/results/verdict"
)

// Report is the output of a suite, in Markdown. It keeps the first write error.
type Report struct {
	out   io.Writer
	err   error
	file  *os.File // set by Begin, as is began
	began time.Time
}

// NewReport returns a report that writes to out.
func NewReport(out io.Writer) *Report { return &Report{out: out} }

// Write writes Markdown unchanged.
func (r *Report) Write(text []byte) (int, error) {
	n, err := r.out.Write(text)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n, err
}

// Say writes a paragraph.
func (r *Report) Say(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// Draw writes a table. Its first column contains names.
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

// Program is testbed, and the directory that its runs are written to.
type Program struct{ Path, Dir string }

// exitVoid is the exit code of a run with a void arm.
const exitVoid = 3

// ErrVoid is the error of a run with a void arm.
var ErrVoid = errors.New("an arm is void")

// Command runs the program with our standard error. The end of the context interrupts it once and
// lets it clean up: it is in a process group of its own, because an interrupt of the terminal is sent to
// a whole group, and a second one would end it before it has cleaned up. If an arm is void the error is ErrVoid, and the output is complete.
func (p Program) Command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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

// Run runs a scenario with a command that creates a run directory, and returns its figures.
// If an arm is void, it returns the figures and ErrVoid.
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

// RunDir returns the directory of a run.
func (p Program) RunDir(s *report.Summary) string { return filepath.Join(p.Dir, s.RunID) }

// Comparison has the ratios of two arms that testbed compare prints, by metric.
type Comparison struct {
	Unlike                []string // reasons for which the arms are not comparable like for like
	Mean, Median, GeoMean map[string]metrics.Estimate
}

// Compare runs testbed compare for an arm of a run and its baseline. A void arm has no ratios.
func (p Program) Compare(ctx context.Context, run *report.Summary, base, arm string) (Comparison, error) {
	c := Comparison{Mean: map[string]metrics.Estimate{}, Median: map[string]metrics.Estimate{}, GeoMean: map[string]metrics.Estimate{}}
	text, err := p.Command(ctx, "compare", p.RunDir(run), "--baseline", base, "--arms", arm, "--json")
	if err != nil && !errors.Is(err, ErrVoid) {
		return c, err
	}
	var all struct {
		Comparisons []struct {
			Arm     struct{ Arm string } `json:"arm"`
			Unlike  []string             `json:"not_like_for_like"`
			Figures []struct {
				Metric  string            `json:"metric"`
				Mean    *metrics.Estimate `json:"mean_ratio"`
				Median  *metrics.Estimate `json:"median"`
				GeoMean *metrics.Estimate `json:"geo_mean"`
			} `json:"figures"`
		} `json:"comparisons"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return c, fmt.Errorf("testbed compare --json: %w", err)
	}
	for _, x := range all.Comparisons {
		if x.Arm.Arm != arm {
			continue
		}
		c.Unlike = x.Unlike
		for _, f := range x.Figures {
			if f.Mean != nil && f.Median != nil && f.GeoMean != nil {
				c.Mean[f.Metric], c.Median[f.Metric], c.GeoMean[f.Metric] = *f.Mean, *f.Median, *f.GeoMean
			}
		}
	}
	return c, nil
}

// Passed returns the verdict of an arm, and the number of its repeats with verdict pass.
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

// VerdictOf is Passed, and "fluid model" for an arm without packets.
func VerdictOf(a report.ArmSummary) string {
	if a.Verdict == nil {
		return "fluid model"
	}
	return Passed(a)
}

// MS formats a time in µs as milliseconds.
func MS(us float64) string { return fmt.Sprintf("%.0f ms", us/1e3) }

// WhereTimeWent writes the average time of a coflow or, if blocks is true, of a block by
// cause, in ms, for each arm.
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
