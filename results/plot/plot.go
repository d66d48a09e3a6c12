// Package plot draws figures for papers from run directories that were read back:
// distributions of completion times, speed-ups, schedules, where the time went and
// how links were loaded, as SVG, PDF or PNG.
//
// Figures are of the size of a column, in colours that people with any colour vision
// tell apart, with dashes and markers so that they also print in grey. A legend names
// the number of items and what is doubtful; arms that are void are left out, and
// notes say so. The same runs and options give the same bytes.
//
// It computes no figure that results/metrics could, reads no files
// (results/archive) and draws no page (results/report).
package plot

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"testbed/results/archive"
	"testbed/results/report"
	"testbed/results/verdict"
	"testbed/workloads"
)

// ErrNoData is of a figure for which the runs hold nothing.
var ErrNoData = errors.New("no data")

// Figure is one kind of figure.
type Figure struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Scales tells that the axis of the values can be logarithmic or linear.
	Scales bool `json:"scales"`
	draw   func(*drawing) error
}

// Figures are all figures, in the order in which they are listed.
func Figures() []Figure {
	return []Figure{
		{"cct-cdf", "distribution of coflow completion times (CCT) of each arm", true, cctCDF},
		{"fct-cdf", "distribution of flow completion times (FCT) of each arm", true, fctCDF},
		{"write-cdf", "distribution of block write times of each arm", true, writeCDF},
		{"speedup-cdf", "distribution of each coflow's speed-up over the same coflow in the baseline", true, speedupCDF},
		{"speedup-by-size", "each coflow's speed-up over the baseline, by the coflow's size", true, speedupBySize},
		{"slowdown-cdf", "distribution of CCT over the time that the coflow takes alone", true, slowdownCDF},
		{"timeline", "coflows of one repeat from arrival to end, a bar each, by arm", false, timeline},
		{"breakdown", "average CCT of each arm, taken apart by cause", false, breakdown},
		{"utilisation", "load of each link of one arm and repeat over time", false, utilisation},
		{"progress", "how far each flow of a coflow was over time, under one arm", false, progress},
		{"goodput", "goodput of each arm over time or, with --coflow, of that coflow's flows under one arm", false, goodput},
		{"cv-time", "imbalance of the links between switches over time: coefficient of variation (Cv) of their load", false, cvTime},
		{"cv-cdf", "distribution of the imbalance (Cv) of the links that placement balances, over the intervals of heartbeats", false, cvCDF},
		{"repeats", "average CCT (write time without coflows) of each repeat, and their mean with its 95 % interval", true, repeats},
		{"bytes", "bytes that crossed racks in each arm, by class", false, bytesByClass},
	}
}

// Find is the figure of a name. Its error has the nearest name, or all.
func Find(name string) (Figure, error) {
	all := Figures()
	var names []string
	for _, f := range all {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Figure{}, fmt.Errorf("no figure %q: %s", name, suggest(name, names))
}

// Scale is that of the axis of the values.
type Scale int

// Scales. AutoScale is what suits the figure.
const (
	AutoScale Scale = iota
	Log
	Linear
)

// Points of 1/72 inch, the unit of lengths in Options.
const (
	Inch       = 72.0
	Centimetre = 72 / 2.54
)

// Bounds and defaults of Options.
const (
	DefaultWidth    = 3.4 * Inch // one column of a two-column paper
	DefaultHeight   = 2.3 * Inch
	DefaultFontSize = 8.0
	LeastSide       = 1 * Inch
	MostSide        = 100 * Inch
	LeastFontSize   = 3.0
	MostFontSize    = 72.0
	LeastDPI        = 36
	MostDPI         = 1200
	DefaultDPI      = 300
	mostPixels      = 100e6
)

// Options say how a figure is drawn. The zero value of each is its default.
type Options struct {
	Width, Height float64 // points
	FontSize      float64 // points, of axis labels; tick labels and legend are 0.9 of it
	DPI           int     // of PNG
	Scale         Scale
	Title         string
	Arms          []string // which, in order; all of them without it
	Baseline      string   // arm that speed-ups are over; the run's own without it
	Arm           string   // of figures of one arm; the first without it
	Repeat        int      // of figures of one repeat, from 0
	// Coflow is that of figures of one coflow; the slowest without it.
	Coflow *workloads.CoflowID
	Bytes  bool     // of progress: bytes, not shares
	Names  []string // of the runs in legends; with one run there is none
}

func (o *Options) check(f Figure, runs int) error {
	set := func(v *float64, to float64) {
		if *v == 0 {
			*v = to
		}
	}
	set(&o.Width, DefaultWidth)
	set(&o.Height, DefaultHeight)
	set(&o.FontSize, DefaultFontSize)
	if o.DPI == 0 {
		o.DPI = DefaultDPI
	}
	inside := func(x, low, high float64) bool { return low <= x && x <= high } // false for NaN
	switch {
	case !inside(o.Width, LeastSide, MostSide) || !inside(o.Height, LeastSide, MostSide):
		return fmt.Errorf("size %.4g in × %.4g in: want sides of %v to %v in", o.Width/Inch, o.Height/Inch, LeastSide/Inch, MostSide/Inch)
	case !inside(o.FontSize, LeastFontSize, MostFontSize):
		return fmt.Errorf("font size %.4g pt: want %v to %v pt", o.FontSize, LeastFontSize, MostFontSize)
	case o.DPI < LeastDPI || o.DPI > MostDPI:
		return fmt.Errorf("%d dots per inch: want %d to %d", o.DPI, LeastDPI, MostDPI)
	case o.Scale != AutoScale && !f.Scales:
		return fmt.Errorf("figure %s has no axis that could be logarithmic: leave out --log and --linear", f.Name)
	case o.Coflow != nil && f.Name != "progress" && f.Name != "goodput":
		return fmt.Errorf("figure %s is not of one coflow: leave out --coflow", f.Name)
	case o.Bytes && f.Name != "progress":
		return fmt.Errorf("figure %s shows no shares of flows: leave out --bytes", f.Name)
	case o.Repeat < 0:
		return fmt.Errorf("repeat %d: want 0 or more", o.Repeat)
	case len(o.Names) > 0 && len(o.Names) != runs:
		return fmt.Errorf("%d names of %d runs: want a name for each run", len(o.Names), runs)
	}
	return nil
}

// Draw draws a figure of runs in a format, "svg", "pdf" or "png". Notes are what a
// reader of the figure has to know and does not see in it: arms that are void and
// left out, values that an axis cannot show.
//
// The error is ErrNoData, with the reason, where the runs have nothing to draw.
// Nothing is written then, nor with any other error but one of w itself.
func Draw(w io.Writer, runs []*archive.Run, f Figure, format string, o Options) (notes []string, err error) {
	fail := func(err error) ([]string, error) { return nil, fmt.Errorf("figure %s: %w", f.Name, err) }
	if f.draw == nil {
		return fail(errors.New("want one of Figures"))
	}
	if len(runs) == 0 {
		return fail(errors.New("no run"))
	}
	if err := o.check(f, len(runs)); err != nil {
		return fail(err)
	}
	d := newDrawing(f, runs, o)
	if err := d.choose(); err != nil {
		return fail(err)
	}
	if err := f.draw(d); err != nil {
		return fail(err)
	}
	if err := d.write(w, format); err != nil {
		return fail(err)
	}
	return d.notes, nil
}

// series is one arm of one run.
type series struct {
	run   *archive.Run
	arm   string
	label string // safe to draw
	mark  string // "degraded", "unverified", or "fluid model" beside measured runs
	style int
}

// named is the label with the number of items, for a legend.
func (s series) named(n int, of string) string {
	text := fmt.Sprintf("%s, n = %d", s.label, n)
	if of != "" {
		text += " " + of
	}
	if s.mark != "" {
		text += " (" + s.mark + ")"
	}
	return text
}

// choose fills in the series: the arms that were asked for, without those that are
// void.
func (d *drawing) choose() error {
	simulated := 0
	have := []string{}
	for _, r := range d.runs {
		if r.Simulated() {
			simulated++
		}
		for _, name := range r.Arms() {
			if !slices.Contains(have, name) {
				have = append(have, name)
			}
		}
	}
	d.fluid = simulated == len(d.runs)
	var asked []string
	for _, name := range append(slices.Clone(d.o.Arms), d.o.Arm, d.o.Baseline) {
		if name != "" && !slices.Contains(have, name) {
			asked = append(asked, fmt.Sprintf("%q: %s", name, suggest(name, have)))
		}
	}
	if len(asked) > 0 {
		return fmt.Errorf("no arm %s", strings.Join(asked, "; no arm "))
	}
	for i, r := range d.runs {
		arms := d.o.Arms
		if len(arms) == 0 {
			arms = r.Arms()
		}
		for _, name := range arms {
			a := r.Arm(name)
			if a == nil {
				d.note("%s has no arm %s", d.runName(i), name)
				continue
			}
			s := series{run: r, arm: name, label: safe(name)}
			if len(d.runs) > 1 {
				s.label += ", " + d.runName(i)
			}
			if a.Void() {
				d.note("arm %s is void and left out (testbed report shows why)", s.label)
				continue
			}
			switch level, ok := r.Level(name); {
			case !ok && !d.fluid:
				s.mark = report.SourceFluidModel
			case ok && level != verdict.Pass:
				s.mark = level.String()
			}
			s.style = len(d.series)
			d.series = append(d.series, s)
		}
	}
	if len(d.series) == 0 {
		return fmt.Errorf("%w: every arm is void", ErrNoData)
	}
	return nil
}

func (d *drawing) runName(i int) string {
	if len(d.o.Names) > 0 {
		return safe(d.o.Names[i])
	}
	return safe(d.runs[i].Summary.RunID)
}

// suggest is the name that was meant, or all there are.
func suggest(name string, have []string) string {
	best, least := "", 4
	for _, h := range have {
		if n := distance(strings.ToLower(name), strings.ToLower(h)); n < least {
			best, least = h, n
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "have " + strings.Join(have, ", ")
}

// distance is the number of letters to insert, delete or replace (Levenshtein).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		last := row[0]
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			last, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, last+cost)
		}
	}
	return row[len(y)]
}
