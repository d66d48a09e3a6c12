package plot

import (
	"fmt"
	"image/color"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/workloads/jobs"
)

// gain is the paired speed-up of an arm's completion times: their geometric mean.
type gain struct {
	n     int // pairs
	value float64
	ci    metrics.Interval
}

// gainOf returns the speed-up of an arm's items relative to a baseline. metric is its key in the summary, which states that
// relative to the run's own baseline.
func gainOf(s series, base, key string, metric *summary.Metric, items func(arm string) []metrics.Item) gain {
	if base == s.run.Summary.Baseline && metric != nil && metric.Paired != nil {
		return gain{metric.Paired.Pairs, metric.Paired.GeoMean, metric.Paired.GeoMeanCI}
	}
	pairs := metrics.Block{Base: items(base), Arm: items(s.arm)}
	p := metrics.PairBlocks([]metrics.Block{pairs}, 0, s.run.Summary.Noise.Of(key), s.run.Summary.Looks)
	return gain{p.N, p.GeoMean, p.GeoMeanCI}
}

type place struct{ repeat, item int }

// tasksOf returns the number of tasks of each job of an arm.
func tasksOf(r *rundir.Run, arm string) map[place]*int {
	out := map[place]*int{}
	for i := range r.Jobs {
		if j := &r.Jobs[i]; j.Arm == arm {
			out[place{j.Repeat, j.Item()}] = j.Tasks
		}
	}
	return out
}

// gainBySize draws the speed-ups of job times by the number of tasks of the job.
func gainBySize(d *drawing) error {
	var all [][jobs.SizeClasses]gain
	err := d.relative("job of tasks", func(s series, base string) (none string) {
		var of [jobs.SizeClasses]gain
		any := false
		for class := range of {
			key := jobSizeKey(class)
			of[class] = gainOf(s, base, "job_time_by_tasks."+key, s.run.Arm(s.arm).JobSizes[key], func(arm string) []metrics.Item {
				tasks := tasksOf(s.run, arm)
				return slices.DeleteFunc(s.run.Times("job_time", arm), func(x metrics.Item) bool {
					n := tasks[place{x.Repeat, x.ID}]
					return n == nil || jobs.SizeClass(*n) != class
				})
			})
			any = any || of[class].n > 0
		}
		if !any {
			return "no job of tasks completed both in it and in " + safe(base)
		}
		all = append(all, of)
		return ""
	})
	if err != nil {
		return err
	}
	var classes []int
	for class := range jobs.SizeClasses {
		if slices.ContainsFunc(all, func(of [jobs.SizeClasses]gain) bool { return of[class].n > 0 }) {
			classes = append(classes, class)
		}
	}
	d.grid(true, false)
	d.add(rule{vertical: true, at: 1})
	ticks := plot.ConstantTicks{}
	few := false
	for row, class := range classes {
		y := float64(len(classes) - 1 - row)
		ticks = append(ticks, plot.Tick{Value: y, Label: jobs.SizeName(class)})
		for i, s := range d.series {
			g := all[i][class]
			if g.n == 0 {
				continue
			}
			at := y + 0.7*(0.5-(float64(i)+0.5)/float64(len(d.series)))
			w := whisker{g.value, g.value, g.value, at, s.colour()}
			if w.low, w.high = g.ci.Low, g.ci.High; !g.ci.Known() {
				w.low, w.high, few = g.value, g.value, true
			}
			d.add(w)
			dots, err := plotter.NewScatter(plotter.XYs{{X: g.value, Y: at}})
			if err != nil {
				return err
			}
			dots.GlyphStyle = s.glyph()
			d.add(dots)
		}
		if row > 0 {
			d.add(rule{at: y + 0.5})
		}
	}
	for i, s := range d.series {
		n := 0
		for _, g := range all[i] {
			n += g.n
		}
		d.legend = append(d.legend, entry{s.named(n, "pairs"), glyph{s.glyph()}})
	}
	if few {
		d.note("points without an interval have fewer than %d independent pairs", metrics.LeastPairs)
	}
	d.axes(fmt.Sprintf("Speed-up of jobs relative to %s (×), 95 %% intervals", d.baseline), "")
	d.p.Y.Tick.Marker, d.p.Y.Tick.Length = ticks, 0
	d.p.Y.Min, d.p.Y.Max = -0.5, float64(len(classes))-0.5
	return nil
}

func jobSizeKey(class int) string {
	least, _ := jobs.SizeBounds(class)
	return strconv.Itoa(least)
}

// glyph is the thumbnail of a point.
type glyph struct{ draw.GlyphStyle }

// Thumbnail draws the point.
func (g glyph) Thumbnail(c *draw.Canvas) { c.DrawGlyph(g.GlyphStyle, c.Center()) }

// bar is a vertical interval.
type bar struct {
	x, low, high float64
	colour       color.Color
}

// DataRange returns the interval.
func (b bar) DataRange() (xmin, xmax, ymin, ymax float64) { return b.x, b.x, b.low, b.high }

// GlyphBoxes returns the room for its ends.
func (b bar) GlyphBoxes(p *plot.Plot) (out []plot.GlyphBox) {
	room := vg.Rectangle{Min: vg.Point{X: -vg.Points(2), Y: -vg.Points(0.5)}, Max: vg.Point{X: vg.Points(2), Y: vg.Points(0.5)}}
	for _, y := range []float64{b.low, b.high} {
		out = append(out, plot.GlyphBox{X: p.X.Norm(b.x), Y: p.Y.Norm(y), Rectangle: room})
	}
	return out
}

// Plot draws the bar.
func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: b.colour, Width: vg.Points(0.8)}
	c.StrokeLine2(sty, x(b.x), y(b.low), x(b.x), y(b.high))
	for _, v := range []float64{b.low, b.high} {
		c.StrokeLine2(sty, x(b.x)-vg.Points(2), y(v), x(b.x)+vg.Points(2), y(v))
	}
}
