package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/htmlreport"
	"testbed/results/safefile"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/topo/words"
)

// Sweep holds the reports on the points of a sweep.
type Sweep struct {
	RunID    string       `json:"run_id"`
	Scenario string       `json:"scenario"`
	Points   []SweepPoint `json:"points"` // those of which a trial has ended
	// Missing are the points of which none has.
	Missing []string `json:"missing,omitempty"`
}

// SweepPoint is a point of a sweep.
type SweepPoint struct {
	Dir     string       `json:"directory"` // in that of the sweep
	Values  []Setting    `json:"values"`    // of the swept variables
	Report  *Report      `json:"-"`
	Summary *summary.Run `json:"summary"`
}

// Files of a sweep besides the directories of its points. SweepCSV has the columns of Report.HeadlineCSV after those of
// the variables.
const (
	SweepCSV      = "sweep.csv"
	SweepSummary  = "sweep-summary.json"
	SweepMarkdown = "sweep.md"
)

// CSV writes one row for each point, arm and metric.
func (s *Sweep) CSV(w io.Writer) error {
	c := words.NewCSV(w)
	for i, p := range s.Points {
		var names, values []string
		for _, v := range p.Values {
			names, values = append(names, v.Key), append(values, v.Value)
		}
		if i == 0 {
			if err := c.Write(append(names, headlineColumns()...)); err != nil {
				return err
			}
		}
		if err := p.Report.headlines(func(row []string) error { return c.Write(append(slices.Clone(values), row...)) }); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// tables returns a table for each metric, with a row for each point and arm.
func (s *Sweep) tables() (out []table) {
	for _, m := range allMetrics() {
		var all table
		for _, p := range s.Points {
			if !p.Report.measured(m) {
				continue
			}
			t := p.Report.table(m)
			if all.head == nil {
				all.title = m.Heading()
				for _, v := range p.Values {
					all.head, all.cols = append(all.head, v.Key), append(all.cols, tables.Names())
				}
				all.head, all.cols = append(all.head, t.head...), append(all.cols, t.cols...)
			}
			for _, cells := range t.rows {
				row := make([]string, len(all.head))
				for i, name := range all.head[len(p.Values):] { // points may have other optional columns
					row[len(p.Values)+i] = none
					if at := slices.Index(t.head, name); at >= 0 {
						row[len(p.Values)+i] = cells[at]
					}
				}
				for i, v := range p.Values {
					row[i] = v.Value
				}
				all.rows = append(all.rows, row)
			}
			for _, n := range t.notes {
				if !slices.Contains(all.notes, n) {
					all.notes = append(all.notes, n)
				}
			}
		}
		if all.head != nil {
			out = append(out, all)
		}
	}
	return out
}

// heading states what the sweep is, and which points it lacks.
func (s *Sweep) heading() []string {
	out := []string{fmt.Sprintf("Run %s, scenario %s: a sweep of %s.", s.RunID, s.Scenario, words.Plural(len(s.Points)+len(s.Missing), "point", "points"))}
	if len(s.Points) > 0 {
		out = append(out, s.Points[0].Report.source())
	}
	for _, p := range s.Points {
		if of := p.Report.in.Partial; of != nil {
			out = append(out, p.Dir+": "+of.String())
		}
		if l := p.Summary.Looks; l != nil {
			out = append(out, p.Dir+": "+l.String())
		}
	}
	if len(s.Missing) > 0 {
		out = append(out, "No trial has ended of "+strings.Join(s.Missing, "; ")+".")
	}
	return out
}

// Terminal writes the tables in a style.
func (s *Sweep) Terminal(w io.Writer, style tables.Style) error {
	var b bytes.Buffer
	for _, line := range s.heading() {
		_ = style.Paragraph(&b, "", "", line) // writing to a buffer cannot fail
	}
	all := s.tables()
	for _, t := range all {
		fmt.Fprintf(&b, "\n%s\n", style.Text(t.title))
		if err := t.text(&b, style); err != nil {
			return err
		}
	}
	if l := legend(all, style); l != "" {
		b.WriteByte('\n')
		_ = style.Paragraph(&b, "", "", l)
	}
	b.WriteByte('\n')
	_ = style.Paragraph(&b, "", "", "Result: "+s.Sentence())
	_, err := w.Write(b.Bytes())
	return err
}

// Markdown writes the same tables.
func (s *Sweep) Markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n", plain(s.Scenario))
	for _, line := range s.heading() {
		fmt.Fprintf(&b, "\n%s\n", plain(line))
	}
	all := s.tables()
	for _, t := range all {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		if err := t.markdown(&b); err != nil {
			return err
		}
		for _, n := range t.notes {
			fmt.Fprintf(&b, "\n%s\n", plain(n))
		}
	}
	if l := legend(all, tables.Style{}); l != "" {
		fmt.Fprintf(&b, "\n%s\n", l)
	}
	fmt.Fprintf(&b, "\n## Result\n\n%s\n", plain(s.Sentence()))
	_, err := w.Write(b.Bytes())
	return err
}

// Page writes the same tables as HTML, with links to the pages of the points.
func (s *Sweep) Page(w io.Writer) error {
	all := s.tables()
	results := htmlreport.DocumentSection{ID: "results", Title: "Results"}
	results.Lead = strings.Replace(legend(all, tables.Style{}), best, "Best:", 1)
	for _, t := range all {
		results.Tables = append(results.Tables, plainTable(t))
	}
	points := htmlreport.DocumentSection{ID: "points", Title: "Reports on the points"}
	for _, p := range s.Points {
		var values []string
		for _, v := range p.Values {
			values = append(values, v.Key+" "+v.Value)
		}
		to := htmlreport.Link{Text: strings.Join(values, ", "), Address: p.Dir + "/" + summary.PageFile}
		points.Links = append(points.Links, to)
	}
	d := htmlreport.Document{
		Kind:     "testbed report of a sweep",
		Title:    s.Scenario,
		Lead:     append(s.heading(), "Result: "+s.Sentence()),
		Sections: []htmlreport.DocumentSection{results, points},
	}
	return d.Write(w)
}

// Write writes the files of a sweep that has points.
func (s *Sweep) Write(dir string) error {
	data := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	for name, write := range map[string]func(io.Writer) error{
		SweepCSV: s.CSV, SweepMarkdown: s.Markdown, summary.PageFile: s.Page, SweepSummary: data,
	} {
		if err := safefile.Write(filepath.Join(dir, name), write); err != nil {
			return err
		}
	}
	return nil
}
