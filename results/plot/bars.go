package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/archive"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/timing"
)

// rows gives each series a band of the vertical axis, the first on top, with its
// name and a second line.
func (d *drawing) rows(second []string) {
	ticks := plot.ConstantTicks{}
	for i, s := range d.series {
		label := s.label + "\n" + second[i]
		if s.mark != "" {
			label += ", " + s.mark
		}
		ticks = append(ticks, plot.Tick{Value: d.row(i), Label: label})
	}
	d.p.Y.Tick.Marker = ticks
	d.p.Y.Tick.Length = 0
	d.p.Y.Min, d.p.Y.Max = -0.5, float64(len(d.series))-0.5
}

// row is the middle of a series' band.
func (d *drawing) row(i int) float64 { return float64(len(d.series) - 1 - i) }

// box is a filled rectangle in the coordinates of the plot.
type box struct {
	x0, x1, y0, y1 float64
	fill           color.Color
	outline        bool
	least          vg.Length // width below which it is not drawn narrower
}

// boxes are drawn in their order.
type boxes []box

// DataRange is that of all corners.
func (b boxes) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, x := range b {
		xmin, xmax, ymin, ymax = min(xmin, x.x0), max(xmax, x.x1), min(ymin, x.y0), max(ymax, x.y1)
	}
	return xmin, xmax, ymin, ymax
}

// Plot draws them.
func (b boxes) Plot(c draw.Canvas, p *plot.Plot) {
	tx, ty := p.Transforms(&c)
	for _, x := range b {
		x0, x1, y0, y1 := tx(x.x0), tx(x.x1), ty(x.y0), ty(x.y1)
		x1 = max(x1, x0+x.least)
		path := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
		c.FillPolygon(x.fill, path)
		if x.outline {
			c.StrokeLines(draw.LineStyle{Color: color.Black, Width: vg.Points(0.3)}, append(path, path[0]))
		}
	}
}

// swatch is the thumbnail of a filled area.
type swatch struct{ fill color.Color }

// Thumbnail draws it.
func (s swatch) Thumbnail(c *draw.Canvas) {
	mid := (c.Min.X + c.Max.X) / 2
	half := (c.Max.Y - c.Min.Y) * 0.7
	path := []vg.Point{{X: mid - half, Y: c.Min.Y}, {X: mid + half, Y: c.Min.Y}, {X: mid + half, Y: c.Max.Y}, {X: mid - half, Y: c.Max.Y}}
	c.FillPolygon(s.fill, path)
	c.StrokeLines(draw.LineStyle{Color: color.Black, Width: vg.Points(0.3)}, append(path, path[0]))
}

// repeatOf drops the series that have not the repeat that was asked for, or whose
// repeat is void.
func (d *drawing) repeatOf() error {
	most := 0
	d.series = slices.DeleteFunc(d.series, func(s series) bool {
		n := s.run.Arm(s.arm).Repeats
		most = max(most, n)
		if d.o.Repeat >= n {
			d.note("%s has no repeat %d", s.label, d.o.Repeat)
			return true
		}
		return false
	})
	if len(d.series) == 0 {
		return fmt.Errorf("%w: no repeat %d: have 0 to %d", ErrNoData, d.o.Repeat, most-1)
	}
	return nil
}

func timeline(d *drawing) error {
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([][]archive.Coflow, len(d.series))
	last, total := time.Duration(0), 0
	for i, s := range d.series {
		for _, c := range s.run.Coflows {
			if c.Arm == s.arm && c.Repeat == d.o.Repeat && !c.Failed {
				all[i] = append(all[i], c)
				last = max(last, c.End)
			}
		}
		slices.SortStableFunc(all[i], func(a, b archive.Coflow) int {
			return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Coflow, b.Coflow))
		})
		total += len(all[i])
	}
	if total == 0 {
		return fmt.Errorf("%w: no coflow completed in repeat %d", ErrNoData, d.o.Repeat)
	}
	unit := timesFor(last)
	d.grid(true, false)
	second := make([]string, len(d.series))
	for i, s := range d.series {
		second[i] = fmt.Sprintf("n = %d", len(all[i]))
		top, each := d.row(i)+0.45, 0.9/float64(max(len(all[i]), 1))
		var bars boxes
		for k, c := range all[i] {
			y := top - each*float64(k)
			bars = append(bars, box{unit.of(c.Arrival), unit.of(c.End), y - each*0.85, y, s.colour(), false, vg.Points(0.4)})
		}
		if len(bars) > 0 {
			d.p.Add(bars)
		}
		if i > 0 {
			d.p.Add(rule{at: d.row(i) + 0.5})
		}
	}
	d.axes(fmt.Sprintf("Time since the first arrival (%s), repeat %d", unit.name, d.o.Repeat), "")
	d.rows(second)
	d.p.X.Min = min(d.p.X.Min, 0)
	return nil
}

// shades are light and dark in turn, so that neighbours in a stack differ in grey.
var shades = []color.RGBA{
	{187, 187, 187, 255}, {0, 76, 127, 255}, {230, 159, 0, 255}, {150, 40, 30, 255}, {154, 208, 245, 255}, {255, 255, 255, 255},
}

// stack draws a bar of parts for each series.
func (d *drawing) stack(parts []string, values [][]float64) {
	d.grid(true, false)
	for k := range parts {
		var bars boxes
		for i := range d.series {
			before := 0.0
			for _, v := range values[i][:k] {
				before += v
			}
			if v := values[i][k]; v > 0 {
				bars = append(bars, box{before, before + v, d.row(i) - 0.3, d.row(i) + 0.3, shades[k%len(shades)], true, 0})
			}
		}
		if len(bars) > 0 {
			d.p.Add(bars)
			d.legend = append(d.legend, entry{parts[k], swatch{shades[k%len(shades)]}})
		}
	}
	d.p.X.Min, d.p.X.Max = 0, d.p.X.Max*1.03
}

// causes are those of a coflow's time, in the order of a stack.
var causes = []timing.Cause{timing.Held, timing.Serialisation, timing.Queueing, timing.Retransmission, timing.Host, timing.Latency}

// causesOf is where the time of an arm's coflows went, and how many coflows that is
// of.
func causesOf(s series) (sum map[timing.Cause]time.Duration, n int) {
	sum = map[timing.Cause]time.Duration{}
	type key struct{ repeat, id int }
	counted := map[key]bool{}
	for _, c := range s.run.Coflows {
		if c.Arm != s.arm || c.Failed || c.Background {
			continue
		}
		k := key{c.Repeat, int(c.Coflow)}
		for cause, t := range map[timing.Cause]*time.Duration{timing.Held: c.Held, timing.Serialisation: c.Serialisation, timing.Queueing: c.Queueing,
			timing.Retransmission: c.Retransmission, timing.Host: c.Host, timing.Latency: c.Latency} {
			if t != nil {
				sum[cause] += *t
				counted[k] = true
			}
		}
	}
	if len(counted) > 0 {
		return sum, len(counted)
	}
	// The table of shares has the same by place.
	failed := map[key]bool{}
	for _, c := range s.run.Coflows {
		if c.Arm == s.arm && c.Failed {
			failed[key{c.Repeat, int(c.Coflow)}] = true
		}
	}
	for _, x := range s.run.Breakdown {
		k := key{x.Repeat, int(x.Coflow)}
		if x.Arm == s.arm && !failed[k] {
			sum[x.Cause] += x.Time
			counted[k] = true
		}
	}
	return sum, len(counted)
}

func breakdown(d *drawing) error {
	var kept []series
	var means []map[timing.Cause]time.Duration
	var second []string
	longest := time.Duration(0)
	for _, s := range d.series {
		sum, n := causesOf(s)
		if n == 0 {
			d.note("%s: nothing tells where its time went", s.label)
			continue
		}
		total := time.Duration(0)
		for cause := range sum {
			if !slices.Contains(causes, cause) {
				return fmt.Errorf("arm %s: time of an unknown cause, %q", s.label, safe(string(cause)))
			}
			sum[cause] /= time.Duration(n)
			total += sum[cause]
		}
		longest = max(longest, total)
		kept, means, second = append(kept, s), append(means, sum), append(second, fmt.Sprintf("n = %d", n))
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing(report.BreakdownFile+", nor causes in "+report.CoflowsFile))
	}
	d.series = kept
	unit := timesFor(longest)
	names := make([]string, len(causes))
	values := make([][]float64, len(kept))
	for k, cause := range causes {
		names[k] = string(cause)
		for i := range kept {
			values[i] = append(values[i], unit.of(means[i][cause]))
		}
	}
	d.axes(fmt.Sprintf("Average coflow completion time (%s)", unit.name), "")
	d.stack(names, values)
	d.rows(second)
	return nil
}

func bytesByClass(d *drawing) error {
	classes := []string{}
	var kept []series
	for _, s := range d.series {
		by := s.run.CrossRack(s.arm)
		if by == nil {
			continue
		}
		kept = append(kept, s)
		for class := range by {
			if !slices.Contains(classes, class) {
				classes = append(classes, class)
			}
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing("traffic in "+report.SummaryFile))
	}
	// Those that are known come first, in the order of the model.
	known := []string{"shuffle", "write", "map-read", "control"}
	slices.SortFunc(classes, func(a, b string) int {
		place := func(s string) int {
			if i := slices.Index(known, s); i >= 0 {
				return i
			}
			return len(known)
		}
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
	})
	d.series = kept
	var second []string
	values := make([][]float64, len(kept))
	for i, s := range kept {
		for _, class := range classes {
			values[i] = append(values[i], s.run.CrossRack(s.arm)[class]/1e6)
		}
		second = append(second, repeatsText(s.run.Arm(s.arm).Repeats))
	}
	for i, class := range classes {
		classes[i] = safe(class)
	}
	d.axes("Bytes between racks in a repeat (MB)", "")
	d.stack(classes, values)
	d.rows(second)
	return nil
}

func repeatsText(n int) string {
	if n == 1 {
		return "n = 1 repeat"
	}
	return fmt.Sprintf("n = %d repeats", n)
}

func repeats(d *drawing) error {
	what, items := "coflow completion time", (*archive.Run).CCTs
	if !slices.ContainsFunc(d.series, func(s series) bool { return len(s.run.CCTs(s.arm)) > 0 }) {
		what, items = "block write time", (*archive.Run).WriteTimes
	}
	var kept []series
	var averages [][]time.Duration
	longest := time.Duration(0)
	for _, s := range d.series {
		by := map[int][]metrics.Item{}
		for _, x := range items(s.run, s.arm) {
			by[x.Repeat] = append(by[x.Repeat], x)
		}
		var means []time.Duration
		for k := range s.run.Arm(s.arm).Repeats {
			if len(by[k]) > 0 {
				m := metrics.Summarize(by[k]).Mean
				means, longest = append(means, m), max(longest, m)
			}
		}
		if len(means) == 0 {
			d.note("%s: nothing completed", s.label)
			continue
		}
		kept, averages = append(kept, s), append(averages, means)
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: no coflow and no block completed", ErrNoData)
	}
	d.series = kept
	log := d.o.Scale == Log
	unit := timesFor(longest)
	d.grid(true, false)
	second := make([]string, len(kept))
	for i, s := range kept {
		var x []float64
		points := plotter.XYs{}
		for k, m := range averages[i] {
			x = append(x, unit.of(m))
			// A little apart, so that equal averages show as several.
			points = append(points, plotter.XY{X: unit.of(m), Y: d.row(i) + 0.3*(0.5-(float64(k)+0.5)/float64(len(averages[i])))})
		}
		second[i] = repeatsText(len(x))
		if log && slices.Min(x) <= 0 {
			return fmt.Errorf("%s: an average of 0 has no place on a logarithmic axis: leave out --log", s.label)
		}
		if len(x) > 1 {
			low, high := interval(x)
			if log && low <= 0 {
				d.note("%s: its interval begins at %.3g %s and is cut off on the logarithmic axis", s.label, low, unit.name)
				low = slices.Min(x)
			}
			d.p.Add(whisker{low, stat.Mean(x, nil), high, d.row(i), s.colour()})
		} else {
			d.note("%s: one repeat has no interval", s.label)
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = s.glyph()
		d.p.Add(dots)
	}
	d.axes(fmt.Sprintf("Average %s of a repeat (%s)", what, unit.name), "")
	d.rows(second)
	if log {
		logarithmic(&d.p.X)
	} else {
		d.p.X.Min, d.p.X.Max = min(d.p.X.Min, 0), d.p.X.Max*1.05
	}
	return nil
}

// interval is the 95 % interval of the mean by Student's distribution, which takes
// the repeats as independent and their averages as near to normal.
func interval(x []float64) (low, high float64) {
	mean, deviation := stat.MeanStdDev(x, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}.Quantile(0.975)
	half := t * deviation / math.Sqrt(float64(len(x)))
	return mean - half, mean + half
}

// whisker is an interval with the mean in it.
type whisker struct {
	low, mean, high, y float64
	colour             color.Color
}

// DataRange is the interval.
func (w whisker) DataRange() (xmin, xmax, ymin, ymax float64) { return w.low, w.high, w.y, w.y }

// Plot draws it.
func (w whisker) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: w.colour, Width: vg.Points(0.8)}
	end := vg.Points(2.5)
	c.StrokeLine2(sty, x(w.low), y(w.y), x(w.high), y(w.y))
	for _, v := range []float64{w.low, w.high} {
		c.StrokeLine2(sty, x(v), y(w.y)-end, x(v), y(w.y)+end)
	}
	sty.Width = vg.Points(1.6)
	c.StrokeLine2(sty, x(w.mean), y(w.y)-1.8*end, x(w.mean), y(w.y)+1.8*end)
}
