package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/archive"
	"testbed/results/metrics"
	"testbed/results/report"
)

// times says how durations are shown: in the unit that suits the longest.
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

func cctCDF(d *drawing) error {
	return d.timeCDF("Coflow completion time", "coflows", "no coflow completed", (*archive.Run).CCTs)
}

func fctCDF(d *drawing) error {
	return d.timeCDF("Flow completion time", "flows", "no flow completed", (*archive.Run).FCTs)
}

func writeCDF(d *drawing) error {
	return d.timeCDF("Block write time", "blocks", "no block was written", (*archive.Run).WriteTimes)
}

func (d *drawing) timeCDF(what, things, none string, items func(*archive.Run, string) []metrics.Item) error {
	all := make([][]metrics.Item, len(d.series))
	longest := time.Duration(0)
	for i, s := range d.series {
		all[i] = items(s.run, s.arm)
		for _, x := range all[i] {
			longest = max(longest, x.Time)
		}
	}
	unit := timesFor(longest)
	values := make([][]float64, len(all))
	for i := range all {
		for _, x := range all[i] {
			values[i] = append(values[i], unit.of(x.Time))
		}
	}
	d.axes(fmt.Sprintf("%s (%s)", what, unit.name), "Fraction of "+things)
	return d.cdf(values, "", none)
}

// mostSteps bounds the steps of a distribution: more are not told apart.
const mostSteps = 2000

// cdf draws the distribution of each series' values. Each is a fraction of all its
// values, also of those that a logarithmic axis cannot show.
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
			d.note("%s: %d of %d values are not positive and not on the logarithmic axis (--linear shows them)", s.label, hidden, n)
		}
		if hidden == n {
			continue
		}
		points := steps(v, hidden, mostSteps)
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.p.Add(line)
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

// steps are the corners of the distribution of ascending values without the first
// hidden ones, which count all the same. With more values than most, several make a
// step, and no fraction is off by more than one over most.
func steps(v []float64, hidden, most int) plotter.XYs {
	n, shown := len(v), len(v)-hidden
	count := min(shown, most)
	points := make(plotter.XYs, 0, 2*count)
	y := float64(hidden) / float64(n)
	for k := 1; k <= count; k++ {
		rank := hidden + k*shown/count // of the last value within this step
		points = append(points, plotter.XY{X: v[rank-1], Y: y})
		y = float64(rank) / float64(n)
		points = append(points, plotter.XY{X: v[rank-1], Y: y})
	}
	return points
}

// speedup is how much faster a coflow was than in the baseline.
type speedup struct {
	ratio float64
	size  float64 // MB
}

// speedups are those of each series over its run's baseline, which is no series any
// more.
func (d *drawing) speedups() ([][]speedup, error) {
	name, why := "", fmt.Errorf("%w: no arm besides the baseline has coflows that both completed", ErrNoData)
	var kept []series
	var out [][]speedup
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
		list := pair(s.run, base, s.arm)
		if len(list) == 0 {
			d.note("%s: no coflow completed in it and in %s", s.label, safe(base))
			continue
		}
		kept, out = append(kept, s), append(out, list)
	}
	if len(kept) == 0 {
		return nil, why
	}
	d.series, d.baseline = kept, name
	return out, nil
}

// pair compares each coflow of an arm with the same coflow in the baseline, as
// metrics.Pair does.
func pair(r *archive.Run, base, arm string) []speedup {
	type key struct{ repeat, id int }
	times, sizes := map[key]time.Duration{}, map[key]float64{}
	for _, x := range r.CCTs(base) {
		times[key{x.Repeat, x.ID}] = x.Time
	}
	for _, c := range r.Coflows {
		if c.Arm == arm {
			sizes[key{c.Repeat, int(c.Coflow)}] = float64(c.Size) / 1e6
		}
	}
	var out []speedup
	for _, x := range r.CCTs(arm) {
		k := key{x.Repeat, x.ID}
		if t := times[k]; t > 0 && x.Time > 0 {
			out = append(out, speedup{float64(t) / float64(x.Time), sizes[k]})
		}
	}
	return out
}

func speedupCDF(d *drawing) error {
	all, err := d.speedups()
	if err != nil {
		return err
	}
	values := make([][]float64, len(all))
	for i := range all {
		for _, x := range all[i] {
			values[i] = append(values[i], x.ratio)
		}
	}
	d.axes(fmt.Sprintf("Speed-up of a coflow over %s (×)", d.baseline), "Fraction of coflows")
	d.p.Add(rule{vertical: true, at: 1})
	return d.cdf(values, "", "no coflow completed in both arms")
}

func speedupBySize(d *drawing) error {
	all, err := d.speedups()
	if err != nil {
		return err
	}
	log := d.o.Scale != Linear
	d.axes("Coflow size (MB)", fmt.Sprintf("Speed-up over %s (×)", d.baseline))
	d.grid(true, true)
	d.p.Add(rule{at: 1})
	for i, s := range d.series {
		points := plotter.XYs{}
		for _, x := range all[i] {
			if x.size > 0 || !log {
				points = append(points, plotter.XY{X: x.size, Y: x.ratio})
			}
		}
		if hidden := len(all[i]) - len(points); hidden > 0 {
			d.note("%s: %d of %d coflows have no bytes and are not on the logarithmic axis", s.label, hidden, len(all[i]))
		}
		if len(points) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = s.glyph()
		d.p.Add(dots)
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
	d.axes("Slowdown: CCT over the coflow's time alone (×)", "Fraction of coflows")
	return d.cdf(values, "", "no coflow has a slowdown: "+d.missing("column slowdown in "+report.CoflowsFile))
}

// cvCDF is of the receiving bottleneck links, which Sinbad balances (SIGCOMM 2013);
// cvTime is of all links between switches.
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
	return d.cdf(values, "intervals", "no interval has a balance of links: there is no "+report.BalanceFile+", as without writers and jobs")
}

// missing says why what is made of packets is not there, and what to do.
func (d *drawing) missing(what string) string {
	if d.fluid {
		return fmt.Sprintf("there is no %s, as a simulation has no packets", what)
	}
	return fmt.Sprintf("there is no %s; testbed report %s writes it from the captures if they state their fabric", what, d.runs[0].Dir)
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

// Plot draws it.
func (r rule) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: color.RGBA{120, 120, 120, 255}, Width: vg.Points(0.6)}
	if r.vertical {
		c.StrokeLine2(sty, x(r.at), c.Min.Y, x(r.at), c.Max.Y)
	} else {
		c.StrokeLine2(sty, c.Min.X, y(r.at), c.Max.X, y(r.at))
	}
}
