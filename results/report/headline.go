package report

import (
	"io"
	"strconv"

	"testbed/results/summary"
	"testbed/topo/words"
)

// HeadlineCSV writes one row for each arm and metric: the figures of Summary in its units,
// in columns named as its keys. A void arm has its verdict and no figures. Missing figures
// are empty. The columns are in the package documentation.
func (r *Report) HeadlineCSV(w io.Writer) error {
	c := words.NewCSV(w)
	if err := c.Write(headlineColumns()); err != nil {
		return err
	}
	if err := r.headlines(c.Write); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// headlines calls do for each row of HeadlineCSV.
func (r *Report) headlines(do func(row []string) error) error {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		level := summary.SourceFluidModel
		if a.Verdict != nil {
			level = a.Verdict.String()
		}
		for _, m := range r.in.metrics() {
			f := m.get(a)
			if f == nil && (!a.Void() || !r.measured(m)) {
				continue // nothing was measured
			}
			if err := do(append([]string{a.Name, m.Key, level, strconv.Itoa(a.Repeats)}, f.Cells()...)); err != nil {
				return err
			}
		}
	}
	return nil
}

func headlineColumns() []string {
	out := []string{"arm", "metric", "verdict", "repeats"}
	for _, f := range summary.TimeColumns() {
		out = append(out, f.CSV)
	}
	return out
}
