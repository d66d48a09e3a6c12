// Package plot draws figures for papers from run directories, as SVG, PDF or PNG:
// distributions of completion times, speed-ups, schedules, breakdowns of the time by
// cause, and link loads.
//
// Figures have the width of a column. Their colours suit all kinds of colour vision, and
// dashes and markers distinguish the curves in grey print. A legend shows the number of
// items and doubtful verdicts; void arms are omitted, and notes say so. The same runs and
// options give the same bytes.
//
// It computes no statistics that results/metrics has, reads no files (results/rundir)
// and draws no page (results/report).
package plot

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/palette"
	"testbed/topo/words"
	"testbed/workloads"
)

// ErrNoData is the error of a figure for which the runs have no data.
var ErrNoData = errors.New("no data")

// ErrNoRoom is the error of a figure whose legend leaves no room for the plot.
var ErrNoRoom = errors.New("no room for the plot")

// Figure is one kind of figure.
type Figure struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Scales reports whether the axis of the values can be logarithmic or linear.
	Scales bool `json:"scales"`
	draw   func(*drawing) error
}

// Figures returns all figures in the order of the list.
func Figures() []Figure {
	return append(timeCDFs(), []Figure{
		{"speedup-cdf", "distribution of each coflow's speed-up relative to the same coflow in the baseline", true, speedupCDF},
		{"speedup-by-size", "each coflow's speed-up relative to the baseline, by the coflow's size", true, speedupBySize},
		{"slowdown-cdf", "distribution of CCT divided by the time that the coflow takes alone", true, slowdownCDF},
		{"fct-slowdown", "slowdown of flows by size in each arm: FCT divided by that of the same flow alone on the idle fabric", true, fctSlowdown},
		{"timeline", "coflows of one repeat from arrival to end, one bar each, by arm", false, timeline},
		{"breakdown", "average CCT of each arm, divided by cause", false, timeByCause},
		{"write-breakdown", "average block write time of each arm, divided by cause", false, writeTimeByCause},
		{"slowest", "CCT of the slowest coflows of one arm, divided by cause", false, slowest},
		{"disks", "bytes of blocks that each host stores in one arm, averaged over its repeats", false, disks},
		{"job-parts", "average job time of each arm, divided into waiting, mapping, shuffling, computing and writing", false, jobParts},
		{"locality", "maps of each arm by where the replica was that they read, by size of the job", false, locality},
		{"gain-by-size", "paired speed-up of the jobs of tasks relative to the baseline, with 95 % intervals, by number of tasks", false, gainBySize},
		{"gain-by-parameter", "paired speed-up of jobs, coflows or block writes relative to the baseline, with 95 % intervals, over a variable of a sweep or the number at the end of the arms' names, such as dolly-0.05", false, gainByParameter},
		{"gantt", "attempts of tasks of one arm and repeat by host and slot over time, with their phases", false, gantt},
		{"extra-slots", "slots in use by clones and backups of tasks over time, in one repeat of each arm", false, extraSlots},
		{"shares", "slots in use by the jobs of each user over time, in one arm and repeat", false, userShares},
		{"utilisation", "load of each link of one arm and repeat over time", false, utilisation},
		{"racks", "load of the links of each rack to and from the spines over time, with saturation marked, in one arm: the mean of its repeats", false, racks},
		{"queue", "length of the queue ahead of a link over time in each arm (--link; default: that with the longest)", false, queues},
		{"throughput", "throughput of a link over time in each arm (--link; default: that with the highest)", false, throughput},
		{"drops", "packets that the queue ahead of a link has dropped, over time in each arm (--link; default: that with the most)", false, dropsOverTime},
		{"rtt", "smoothed round-trip time of a flow's connection over time in each arm (--flow; default: that with the most samples)", false, roundTrips},
		{"cwnd", "congestion window of a flow's connection over time in each arm (--flow; default: that with the most samples)", false, windows},
		{"fairness", "fairness of the delivery rates of flows over time in each arm: Jain's index", false, fairness},
		{"progress", "progress of each flow of a coflow over time, in one arm", false, progress},
		{"goodput", "goodput of each arm over time or, with --coflow, of that coflow's flows in one arm", false, goodput},
		{"incast", "goodput of coflows with one receiver against the number of their senders, in each arm", true, incast},
		{"cv-time", "imbalance of the links between switches over time: coefficient of variation (Cv) of their load", false, cvTime},
		{"cv-cdf", "distribution of the imbalance (Cv) of the links that placement balances, per heartbeat interval", false, cvCDF},
		{"repeats", "average CCT of each repeat (write time if there are no coflows), and their mean with its 95 % confidence interval", true, repeats},
		{"bytes", "bytes that crossed racks in each arm, by class", false, bytesByClass},
	}...)
}

// Find returns the figure with a name, or a bar for each arm of the figure of arms with that key (summary.Find), or a
// line over racks (summary.FindByRack). Its error suggests the most similar name, or lists all.
func Find(name string) (Figure, error) {
	all := Figures()
	var names []string
	for _, f := range all {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	if f := summary.Find(name); f != nil {
		return Figure{name, f.Doc, false, func(d *drawing) error { return arms(d, name, f.Unit) }}, nil
	}
	if f := summary.FindByRack(name); f != nil {
		return Figure{name, f.Doc, false, func(d *drawing) error { return overRacks(d, f) }}, nil
	}
	return Figure{}, fmt.Errorf("unknown figure %q (%s)", name, suggest(name, names))
}

// Scale is the scale of the axis of the values.
type Scale int

// The scales. AutoScale depends on the figure.
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

// Options holds the options of a figure. The zero value of each is its default.
type Options struct {
	Width, Height float64 // points
	FontSize      float64 // points, of axis labels; tick labels and legend are 0.9 of it
	DPI           int     // of PNG
	Scale         Scale
	Title         string
	Arms          []string // in this order; default: all
	Baseline      string   // of speed-ups; default: the run's baseline
	Arm           string   // in figures of one arm; default: the first
	Repeat        *int     // in figures of one repeat, counted from 0; default: 0, in racks all
	// Coflow is the coflow in figures of one coflow; default: the slowest.
	Coflow *workloads.CoflowID
	Bytes  bool              // in progress: bytes, not shares
	Names  []string          // of the runs in legends; unused with one run
	Link   string            // in figures of one link
	Flow   *workloads.FlowID // in figures of one flow
	Over   string            // in gain-by-parameter: the swept variable of its axis; default: that with the most values
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
		return fmt.Errorf("size %.4g in × %.4g in: sides must be %v to %v in", o.Width/Inch, o.Height/Inch, LeastSide/Inch, MostSide/Inch)
	case !inside(o.FontSize, LeastFontSize, MostFontSize):
		return fmt.Errorf("font size %.4g pt: must be %v to %v pt", o.FontSize, LeastFontSize, MostFontSize)
	case o.DPI < LeastDPI || o.DPI > MostDPI:
		return fmt.Errorf("%d dots per inch: must be %d to %d", o.DPI, LeastDPI, MostDPI)
	case o.Scale != AutoScale && !f.Scales:
		return fmt.Errorf("figure %s has no axis that can be logarithmic: omit --log and --linear", f.Name)
	case o.Coflow != nil && f.Name != "progress" && f.Name != "goodput":
		return fmt.Errorf("figure %s does not show one coflow: omit --coflow", f.Name)
	case o.Bytes && f.Name != "progress":
		return fmt.Errorf("figure %s shows no shares of flows: omit --bytes", f.Name)
	case o.Link != "" && !slices.Contains([]string{"queue", "throughput", "drops"}, f.Name):
		return fmt.Errorf("figure %s does not show one link: omit --link", f.Name)
	case o.Flow != nil && f.Name != "rtt" && f.Name != "cwnd":
		return fmt.Errorf("figure %s does not show one flow: omit --flow", f.Name)
	case o.Over != "" && f.Name != "gain-by-parameter":
		return fmt.Errorf("figure %s shows no swept variable: omit --over", f.Name)
	case o.Repeat != nil && *o.Repeat < 0:
		return fmt.Errorf("repeat %d: must be 0 or more", *o.Repeat)
	case len(o.Names) > 0 && len(o.Names) != runs:
		return fmt.Errorf("%d names for %d runs: expected one name per run", len(o.Names), runs)
	}
	return nil
}

// Draw draws a figure of runs in a format, "svg", "pdf" or "png". It returns notes on what
// the figure does not show: void arms, and values outside a logarithmic axis.
//
// The error is ErrNoData, with the reason, if the runs have no data for the figure. On any
// error except one of w itself, nothing is written.
func Draw(w io.Writer, runs []*rundir.Run, f Figure, format string, o Options) (notes []string, err error) {
	d, err := drawn(runs, f, o)
	if err == nil {
		err = d.write(w, format)
	}
	if err != nil {
		return nil, fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return d.notes, nil
}

// Sizes of the figures of a page in points.
const (
	pageWidth = 300 // legible on a phone
	pageFont  = 9
)

// OnPage draws a figure of a run, or of one arm, as an SVG inside a page: without a header, in the colours of the page's
// style sheet (palette.CSS), and as high as its rows need. It returns "" if the run has no data for it.
func OnPage(run *rundir.Run, figure, arm string) (svg string, notes []string, err error) {
	f, err := Find(figure)
	if err != nil {
		return "", nil, err
	}
	o := Options{Width: pageWidth, FontSize: pageFont, Arm: arm, Height: MostSide} // figures leave out what has no room; as high as its rows below
	d, err := drawn([]*rundir.Run{run}, f, o)
	if errors.Is(err, ErrNoData) {
		return "", nil, nil
	}
	var b strings.Builder
	if err == nil {
		d.o.Height = DefaultHeight
		if ticks, ok := d.p.Y.Tick.Marker.(plot.ConstantTicks); ok {
			d.o.Height = d.o.FontSize * (7 + 2.5*float64(len(ticks)) + 0.7*float64(len(d.legend)))
		}
		err = d.write(&b, "svg")
	}
	if err != nil {
		return "", nil, fmt.Errorf("figure %s: %w", f.Name, err)
	}
	_, body, _ := strings.Cut(b.String(), "<svg")
	return palette.Themed("<svg" + body), d.notes, nil
}

// drawn returns the figure before it is encoded.
func drawn(runs []*rundir.Run, f Figure, o Options) (*drawing, error) {
	switch {
	case f.draw == nil:
		return nil, errors.New("not one of Figures")
	case len(runs) == 0:
		return nil, errors.New("no run")
	}
	if err := o.check(f, len(runs)); err != nil {
		return nil, err
	}
	d := newDrawing(f, runs, o)
	if err := d.choose(); err != nil {
		return nil, err
	}
	return d, f.draw(d)
}

// series is one arm of one run.
type series struct {
	run   *rundir.Run
	arm   string
	label string // safe to draw
	mark  string // "degraded", "unverified", or "fluid model" among measured runs
	style int
}

// named returns the label with the number of items, for a legend.
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

// choose sets the series: the selected arms without void ones.
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
		return fmt.Errorf("unknown arm %s", strings.Join(asked, "; unknown arm "))
	}
	style := -1 // of arms in order, void or not, so that an arm has the colour that it has on the page
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
			style++
			if a.Void() {
				if d.o.Arm != "" && d.o.Arm != name {
					continue
				}
				d.note("arm %s is void and omitted (testbed report shows the reasons)", s.label)
				continue
			}
			switch level, ok := r.Level(name); {
			case !ok && !d.fluid:
				s.mark = summary.SourceFluidModel
			case ok && level != verdict.Pass:
				s.mark = level.String()
			}
			s.style = style
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
	if v := vars(d.runs[i]); len(v) > 0 { // the ID of a point of a sweep says nothing
		same := func(r *rundir.Run) bool { return slices.Equal(vars(r), v) }
		if i == slices.IndexFunc(d.runs, same) && !slices.ContainsFunc(d.runs[i+1:], same) {
			var parts []string
			for _, x := range v {
				parts = append(parts, x.Name+"="+x.Value)
			}
			return safe(strings.Join(parts, ", "))
		}
	}
	return safe(d.runs[i].Summary.RunID)
}

// suggest returns the most similar name, or all names.
func suggest(name string, have []string) string {
	if best := words.Closest(name, have); best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "must be one of " + strings.Join(have, ", ")
}
