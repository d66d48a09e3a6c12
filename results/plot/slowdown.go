package plot

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/topo/units"
)

// fctSlowdown draws the median, P95 and P99 of the slowdown of each arm's flows by range of their sizes.
func fctSlowdown(d *drawing) error {
	all := make([][]metrics.SlowdownOf, len(d.series))
	var ranges []metrics.SlowdownOf // without figures
	bare := func(s metrics.SlowdownOf) metrics.SlowdownOf { return metrics.SlowdownOf{Above: s.Above, UpTo: s.UpTo} }
	for i, s := range d.series {
		var sizes []units.Bytes
		var slowdowns []float64
		for _, f := range s.run.Flows {
			if f.Arm == s.arm && f.Slowdown != nil && !f.Failed && !f.Background && f.Job == nil {
				sizes, slowdowns = append(sizes, f.Size), append(slowdowns, *f.Slowdown)
			}
		}
		all[i] = metrics.SlowdownBySize(sizes, slowdowns)
		for _, x := range all[i] {
			if !slices.Contains(ranges, bare(x)) {
				ranges = append(ranges, bare(x))
			}
		}
	}
	if len(ranges) == 0 {
		return fmt.Errorf("%w: no flow has a slowdown: %s", ErrNoData, d.missing("column slowdown in "+summary.FlowsFile))
	}
	slices.SortFunc(ranges, func(a, b metrics.SlowdownOf) int { return int(a.Above - b.Above) })
	d.grid(false, true)
	d.add(rule{at: 1})
	ticks := plot.ConstantTicks{}
	for k, r := range ranges {
		ticks = append(ticks, plot.Tick{Value: float64(k), Label: r.Sizes()})
	}
	for i, s := range d.series {
		n := 0
		var medians, tails plotter.XYs
		for _, x := range all[i] {
			at := float64(slices.Index(ranges, bare(x))) + 0.6*((float64(i)+0.5)/float64(len(d.series))-0.5)
			d.add(bar{at, x.P50, x.P99, s.colour()})
			medians, tails = append(medians, plotter.XY{X: at, Y: x.P50}), append(tails, plotter.XY{X: at, Y: x.P95})
			n += x.N
		}
		if n == 0 {
			d.note("%s: no flow has a slowdown", s.label)
			continue
		}
		line, err := plotter.NewLine(medians)
		if err != nil {
			return err
		}
		dots, err := plotter.NewScatter(tails)
		if err != nil {
			return err
		}
		line.LineStyle, dots.GlyphStyle = s.line(), s.glyph()
		d.add(line)
		d.add(dots)
		d.legend = append(d.legend, entry{s.named(n, "flows"), line})
	}
	d.axes("Flow size", "FCT slowdown (×)")
	d.p.X.Tick.Marker, d.p.X.Tick.Length = ticks, 0
	d.p.X.Min, d.p.X.Max = -0.5, float64(len(ranges))-0.5
	if d.o.Scale == Log {
		logarithmic(&d.p.Y)
	}
	d.note("lines: medians; bars: from the median to P99; points: P95")
	return nil
}
