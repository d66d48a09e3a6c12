package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/figures"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/topo/units"
)

// times returns the unit of durations: one that suits the longest.
type times struct {
	name string
	unit time.Duration
}

func timesFor(longest time.Duration) times {
	switch {
	case longest >= 100*time.Millisecond:
		return times{"s", time.Second}
	case longest >= 100*time.Microsecond:
		return times{"ms", time.Millisecond}
	}
	return times{"µs", time.Microsecond}
}

func (t times) of(d time.Duration) float64 { return float64(d) / float64(t.unit) }

// timeCDFs returns a figure for each kind of completion time: its distribution.
func timeCDFs() (out []Figure) {
	for _, kind := range metrics.Times() {
		name := strings.TrimSuffix(kind.Key, "_time") + "-cdf"
		title := strings.ToLower(kind.Title) + "s" + strings.TrimPrefix(kind.Heading(), kind.Title)
		draw := func(d *drawing) error { return d.timeCDF(kind) }
		out = append(out, Figure{name, "distribution of " + title + " of each arm", true, draw})
	}
	return out
}

func (d *drawing) timeCDF(kind metrics.Time) error {
	all := make([][]time.Duration, len(d.series))
	longest := time.Duration(0)
	for i, s := range d.series {
		all[i] = figures.Times(s.run.Times(kind.Key, s.arm))
		if n := len(all[i]); n > 0 {
			longest = max(longest, all[i][n-1])
		}
	}
	unit := timesFor(longest)
	values := make([][]float64, len(all))
	for i := range all {
		for _, x := range all[i] {
			values[i] = append(values[i], unit.of(x))
		}
	}
	d.axes(fmt.Sprintf("%s (%s)", kind.Title, unit.name), fmt.Sprintf("Fraction of %ss", kind.Noun))
	return d.cdf(values, "", fmt.Sprintf("no %s completed", kind.Noun))
}

// mostSteps is the maximum number of steps of a distribution; more are not visible.
const mostSteps = 2000

// cdf draws the distribution of each series' values. Fractions refer to all values,
// including those that a logarithmic axis cannot show.
func (d *drawing) cdf(values [][]float64, of, none string) error {
	log := d.o.Scale != Linear
	d.grid(true, true)
	for i, s := range d.series {
		v := slices.Sorted(slices.Values(values[i]))
		n := len(v)
		if n == 0 {
			d.note("%s: %s", s.label, none)
			continue
		}
		hidden := 0
		if log {
			for hidden < n && v[hidden] <= 0 {
				hidden++
			}
		}
		if hidden > 0 {
			d.note("%s: %d of %d values are not positive and are missing from the logarithmic axis (--linear shows them)", s.label, hidden, n)
		}
		if hidden == n {
			continue
		}
		points := make(plotter.XYs, 0, 2*min(n, mostSteps))
		for _, x := range figures.Steps(v, hidden, mostSteps) {
			points = append(points, plotter.XY{X: x.Value, Y: x.Below}, plotter.XY{X: x.Value, Y: x.End})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.add(line)
		d.legend = append(d.legend, entry{s.named(n, of), line})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, none)
	}
	d.p.Y.Min, d.p.Y.Max = 0, 1
	if log {
		logarithmic(&d.p.X)
		if d.p.X.Min == d.p.X.Max {
			d.p.X.Min, d.p.X.Max = d.p.X.Min/2, d.p.X.Max*2
		}
	} else {
		d.p.X.Min = min(d.p.X.Min, 0)
	}
	return nil
}

// speedups returns the speed-ups of each series' coflows.
func (d *drawing) speedups() (out [][]figures.Speedup, err error) {
	err = d.relative("coflow", func(s series, base string) (none string) {
		list := pair(s.run, base, s.arm)
		if len(list) == 0 {
			return fmt.Sprintf("no coflow completed both in it and in %s", safe(base))
		}
		out = append(out, list)
		return ""
	})
	return out, err
}

// relative calls keep for each series with its run's baseline, and removes the baselines and the series for which keep
// returns a reason.
func (d *drawing) relative(item string, keep func(s series, base string) (why string)) error {
	name, why := "", fmt.Errorf("%w: no arm other than the baseline has a %s that completed in both", ErrNoData, item)
	var kept []series
	for _, s := range d.series {
		base := d.o.Baseline
		if base == "" {
			base = s.run.Summary.Baseline
		}
		a := s.run.Arm(base)
		if a == nil {
			d.note("%s: its run has no arm %s to compare with", s.label, safe(base))
			continue
		}
		if a.Void() {
			why = fmt.Errorf("%w: the baseline %s is void (--baseline chooses another)", ErrNoData, safe(base))
			continue
		}
		if s.arm == base {
			continue
		}
		if name == "" {
			name = safe(base)
		} else if name != safe(base) {
			name = "the baseline"
		}
		if level, ok := s.run.Level(base); ok && s.mark == "" && level.String() != "pass" {
			s.mark = "baseline " + level.String()
		}
		if not := keep(s, base); not != "" {
			d.note("%s: %s", s.label, not)
			continue
		}
		kept = append(kept, s)
	}
	if len(kept) == 0 {
		return why
	}
	d.series, d.baseline = kept, name
	return nil
}

// pair returns the speed-ups of an arm relative to a baseline.
func pair(r *rundir.Run, base, arm string) []figures.Speedup {
	sizes := map[figures.Place]units.Bytes{}
	for _, c := range r.Coflows {
		if c.Arm == arm {
			sizes[figures.Place{Repeat: c.Repeat, ID: int(c.Coflow)}] = c.Size
		}
	}
	return figures.Speedups(r.Times("cct", base), r.Times("cct", arm), sizes)
}

func speedupCDF(d *drawing) error {
	all, err := d.speedups()
	if err != nil {
		return err
	}
	values := make([][]float64, len(all))
	for i := range all {
		for _, x := range all[i] {
			values[i] = append(values[i], x.Ratio)
		}
	}
	d.axes(fmt.Sprintf("Speed-up of a coflow relative to %s (×)", d.baseline), "Fraction of coflows")
	d.add(rule{vertical: true, at: 1})
	return d.cdf(values, "", "no coflow completed in both arms")
}

func speedupBySize(d *drawing) error {
	all, err := d.speedups()
	if err != nil {
		return err
	}
	log := d.o.Scale != Linear
	d.axes("Coflow size (MB)", fmt.Sprintf("Speed-up relative to %s (×)", d.baseline))
	d.grid(true, true)
	d.add(rule{at: 1})
	for i, s := range d.series {
		points := plotter.XYs{}
		for _, x := range all[i] {
			if x.Size > 0 || !log {
				points = append(points, plotter.XY{X: float64(x.Size) / 1e6, Y: x.Ratio})
			}
		}
		if hidden := len(all[i]) - len(points); hidden > 0 {
			d.note("%s: %d of %d coflows have no bytes and are missing from the logarithmic axis", s.label, hidden, len(all[i]))
		}
		if len(points) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = s.glyph()
		d.add(dots)
		d.legend = append(d.legend, entry{s.named(len(points), ""), dots})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: no coflow has a size", ErrNoData)
	}
	if log {
		logarithmic(&d.p.X)
		logarithmic(&d.p.Y)
		if d.p.X.Min == d.p.X.Max {
			d.p.X.Min, d.p.X.Max = d.p.X.Min/2, d.p.X.Max*2
		}
		d.p.Y.Min, d.p.Y.Max = min(d.p.Y.Min, 0.8), max(d.p.Y.Max, 1.25)
	} else {
		d.p.X.Min, d.p.Y.Min = 0, 0
	}
	return nil
}

func slowdownCDF(d *drawing) error {
	values := make([][]float64, len(d.series))
	for i, s := range d.series {
		for _, c := range s.run.Coflows {
			if c.Arm == s.arm && !c.Failed && !c.Background && c.Slowdown != nil {
				values[i] = append(values[i], *c.Slowdown)
			}
		}
	}
	d.axes("Slowdown: CCT / time of the coflow alone (×)", "Fraction of coflows")
	return d.cdf(values, "", "no coflow has a slowdown: "+d.missing("column slowdown in "+summary.CoflowsFile))
}

// cvCDF covers the receiving bottleneck links, which Sinbad balances (SIGCOMM 2013);
// cvTime covers all links between switches.
func cvCDF(d *drawing) error {
	d.o.Scale = Linear
	values := make([][]float64, len(d.series))
	for i, s := range d.series {
		for _, b := range s.run.Balance {
			if b.Arm == s.arm {
				values[i] = append(values[i], b.Cv)
			}
		}
	}
	d.axes("Cv of the bottleneck links' load", "Fraction of intervals")
	return d.cdf(values, "intervals", "no interval has link balances: there is no "+summary.BalanceFile+" (only writers and jobs produce it)")
}

// missing returns why data from packets is missing, and the remedy.
func (d *drawing) missing(what string) string {
	if d.fluid {
		return fmt.Sprintf("there is no %s (a simulation has no packets)", what)
	}
	return fmt.Sprintf("there is no %s (testbed report %s writes it from the captures, if they state their fabric)", what, d.runs[0].Dir)
}

// rule is a thin line across the plot.
type rule struct {
	vertical bool
	at       float64
}

// DataRange keeps the rule within the axes.
func (r rule) DataRange() (xmin, xmax, ymin, ymax float64) {
	none, all := math.Inf(1), math.Inf(-1)
	if r.vertical {
		return r.at, r.at, none, all
	}
	return none, all, r.at, r.at
}

// Plot draws the rule.
func (r rule) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: colour("grey"), Width: vg.Points(0.6)}
	if r.vertical {
		c.StrokeLine2(sty, x(r.at), c.Min.Y, x(r.at), c.Max.Y)
	} else {
		c.StrokeLine2(sty, c.Min.X, y(r.at), c.Max.X, y(r.at))
	}
}
