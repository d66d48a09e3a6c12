package plot

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/plotter"

	"testbed/results/summary"
)

// overRacks draws a figure by rack of the summary: a line for each arm.
func overRacks(d *drawing, f *summary.Figure) error {
	all, most, racks := make([][]float64, len(d.series)), 0.0, 0
	for i, s := range d.series {
		all[i] = f.ByRack(&s.run.Arm(s.arm).Declared)
		racks = max(racks, len(all[i]))
		for _, x := range all[i] {
			if x > most { // not NaN
				most = x
			}
		}
	}
	name, per := axisOf(f.Unit, most)
	d.grid(false, true)
	for i, s := range d.series {
		var points plotter.XYs
		for rack, x := range all[i] {
			if !math.IsNaN(x) {
				points = append(points, plotter.XY{X: float64(rack), Y: x * per})
			}
		}
		if len(points) == 0 {
			d.note("%s: no %s in %s", s.label, f.Key, summary.SummaryFile)
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.LineStyle, dots.GlyphStyle = s.line(), s.glyph()
		d.add(line)
		d.add(dots)
		d.legend = append(d.legend, entry{s.named(len(points), "racks"), line})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: no %s in %s", ErrNoData, f.Key, summary.SummaryFile)
	}
	d.axes("Rack", f.Key+name)
	d.p.X.Tick.Marker = whole
	d.p.X.Min, d.p.X.Max, d.p.Y.Min = -0.5, float64(racks)-0.5, 0
	return nil
}
