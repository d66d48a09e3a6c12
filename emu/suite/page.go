package suite

import (
	"fmt"
	"io"
	"math"
	"strings"

	"testbed/results/htmlreport"
	"testbed/topo/words"
)

// levels of outcomes in the palette of verdicts.
var outcomeLevels = map[Outcome]string{
	Reproduced: "pass", InRange: "near", DirectionOnly: "degraded", NotSignificant: "degraded",
	NotReproduced: "void", NotRun: "unverified",
}

const legend = "Orange: the paper's figure; blue: ours, with its 95 % confidence interval; grey: the range expected here."

// page writes the claims of the parts that ran as a page: a row for each, the paper's figure next to ours.
func (p *Plan) page(w io.Writer) error {
	c := &p.Claims
	d := htmlreport.Document{Kind: "testbed suite", Title: c.Paper, Lead: []string{c.rule()}}
	for _, checks := range []bool{false, true} {
		list := c.listed(checks)
		if len(list) == 0 {
			continue
		}
		s := htmlreport.DocumentSection{ID: "claims", Title: "Claims", Lead: counts(list, "claim") + " " + legend}
		if checks {
			s.ID, s.Title = "checks", "Checks"
			s.Lead = counts(list, "check") + " The paper has no figure for these."
		}
		t := tableOf(list, checks)
		out := htmlreport.Table{Title: "Figures of the " + strings.ToLower(s.Title), Rows: make([][]htmlreport.Cell, len(list))}
		for j, head := range t.Head {
			if j == 2 {
				out.Head = append(out.Head, "figures")
			}
			if head == relative { // the line shows it
				continue
			}
			out.Head = append(out.Head, head)
			for i, x := range list {
				if j == 2 {
					out.Rows[i] = append(out.Rows[i], x.strip())
				}
				out.Rows[i] = append(out.Rows[i], htmlreport.Cell{Text: t.Rows[i][j], Figure: !t.Columns[j].Left})
			}
		}
		for i, x := range list {
			out.Rows[i][len(out.Rows[i])-1].Level = outcomeLevels[x.Outcome]
		}
		s.Tables = []htmlreport.Table{out}
		d.Sections = append(d.Sections, s)
	}
	reasons := htmlreport.DocumentSection{ID: "reasons", Title: "Reasons"}
	reasons.Lead = "What is measured, and why the range is as it is."
	c.reasons(func(where string) {
		reasons.Lists = append(reasons.Lists, htmlreport.List{Heading: where})
	}, func(text string) {
		of := &reasons.Lists[len(reasons.Lists)-1]
		of.Items = append(of.Items, text)
	})
	d.Sections = append(d.Sections, reasons)
	return d.Write(w)
}

// strip returns a cell with the figures of a claim on a line that includes all of them.
func (c *Claim) strip() htmlreport.Cell {
	m := c.Measured
	if m == nil {
		return htmlreport.Cell{Text: "–"}
	}
	spread, known := m.spread()
	low, high := m.Value, m.Value
	for _, b := range []*Bounds{c.Paper, &c.Range, &spread} {
		if b == nil || b == &spread && !known {
			continue
		}
		for _, x := range []float64{b.Low, b.High} {
			if !math.IsInf(x, 0) {
				low, high = min(low, x), max(high, x)
			}
		}
	}
	const margin = 0.05
	all := max(high-low, 1e-9)
	low -= margin * all
	width := all * (1 + 2*margin)
	at := func(x float64) float64 { return math.Round(1000*min(max((x-low)/width, 0), 1)) / 10 }
	span := func(b Bounds) htmlreport.Span { return htmlreport.Span{Left: at(b.Low), Width: at(b.High) - at(b.Low)} }
	s := &htmlreport.Strip{Expected: span(c.Range), Value: at(m.Value)}
	s.Text = fmt.Sprintf("ours %s, expected %s", m.text(c.Unit), c.Range.text(c.Unit))
	if c.Paper != nil {
		s.Paper = span(*c.Paper)
		s.Text = "paper " + c.Paper.text(c.Unit) + ", " + s.Text
	} else {
		s.Paper.Left = -100 // outside
	}
	if known {
		x := span(spread)
		s.Ours = &x
	}
	return htmlreport.Cell{Strip: s}
}

// counts returns the number of claims by outcome as a sentence.
func counts(list []Claim, what string) string {
	var by []string
	for _, o := range outcomes {
		n := 0
		for _, x := range list {
			if x.Outcome == o {
				n++
			}
		}
		if n > 0 {
			by = append(by, fmt.Sprintf("%d %s", n, o))
		}
	}
	return fmt.Sprintf("%s: %s.", words.Plural(len(list), what, what+"s"), strings.Join(by, ", "))
}
