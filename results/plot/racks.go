package plot

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/topo/palette"
	"testbed/topo/units"
	"testbed/topo/words"
)

// mostRacks is the largest number of racks in a figure: one for each colour.
var mostRacks = palette.Arms

// rackLoads returns the loads of racks in one repeat of an arm.
func rackLoads(s series, repeat int) ([]metrics.RackLoad, error) {
	var links []flows.LinkSeries
	place := map[string]int{}
	for _, l := range s.run.Links {
		if l.Arm != s.arm || l.Repeat != repeat || !fabricLink(l.Link) {
			continue
		}
		k, ok := place[l.Link]
		if !ok {
			k = len(links)
			place[l.Link] = k
			links = append(links, flows.LinkSeries{Name: l.Link, Rate: l.Rate, Interval: l.Interval})
		}
		x := &links[k]
		if l.Interval <= 0 || l.Interval != links[0].Interval || l.From != time.Duration(len(x.Bytes))*l.Interval {
			return nil, fmt.Errorf("%s: the intervals of %s must be equal for all links and follow each other from 0: link %s has one of %v at %v", safe(s.label), summary.LinksFile,
				safe(l.Link), l.Interval, l.From)
		}
		x.Bytes = append(x.Bytes, l.Bytes)
	}
	return metrics.RackLoads(links, metrics.SaturationInterval), nil
}

// racks draws the load of the links of each rack over time, with bars above where they are saturated.
func racks(d *drawing) error {
	if err := d.oneArm(); err != nil {
		return err
	}
	s := d.series[0]
	all, err := rackLoads(s, d.o.Repeat)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return d.noLinks()
	}
	type rack struct {
		metrics.RackLoad
		saturated time.Duration
		total     float64
	}
	end := time.Duration(len(all[0].Up)) * all[0].Interval
	shown := make([]rack, len(all))
	for i, l := range all {
		shown[i] = rack{l, l.SaturatedTime(0, end), 0}
		for k := range l.Up {
			shown[i].total += l.Max(k)
		}
	}
	if n := len(shown) - mostRacks; n > 0 {
		slices.SortFunc(shown, func(a, b rack) int {
			return cmp.Or(cmp.Compare(b.saturated, a.saturated), cmp.Compare(b.total, a.total), cmp.Compare(a.Rack, b.Rack))
		})
		d.note("not drawn: %s with less saturation or load", words.Plural(n, "rack", "racks"))
		shown = shown[:mostRacks]
		slices.SortFunc(shown, func(a, b rack) int { return cmp.Compare(a.Rack, b.Rack) })
	}
	unit := timesFor(end)
	d.grid(true, true)
	high := 100.0
	for i, r := range shown {
		points := make(plotter.XYs, 0, 2*len(r.Up))
		for k := range r.Up {
			y := 100 * r.Max(k)
			high = max(high, y)
			points = append(points, plotter.XY{X: unit.of(r.Interval * time.Duration(k)), Y: y}, plotter.XY{X: unit.of(r.Interval * time.Duration(k+1)), Y: y})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: palette.Arm(i).Light, Width: vg.Points(1.1), Dashes: dashes[i%len(dashes)]}
		d.add(line)
		d.legend = append(d.legend, entry{fmt.Sprintf("rack %d, saturated %s", r.Rack, units.Percent(r.saturated.Seconds()/end.Seconds(), 0)), line})
	}
	bound, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 100 * metrics.SaturatedShare}, {X: unit.of(end), Y: 100 * metrics.SaturatedShare}})
	if err != nil {
		return err
	}
	bound.LineStyle = draw.LineStyle{Color: colour("grey"), Width: vg.Points(0.6), Dashes: []vg.Length{vg.Points(1), vg.Points(2)}}
	d.add(bound)
	// A bar for each rack, above the lines.
	var bars boxes
	for i, r := range shown {
		y := high * (1.04 + 0.03*float64(i))
		for _, x := range r.Saturated() {
			bars = append(bars, box{unit.of(r.Interval * time.Duration(x[0])), unit.of(r.Interval * time.Duration(x[1])), y, y + 0.02*high, palette.Arm(i).Light, false, 0})
		}
	}
	if len(bars) > 0 {
		d.add(bars)
		high *= 1.04 + 0.03*float64(len(shown))
	}
	d.note("bars above the lines mark saturated links: more than %s of the capacity for %d intervals of %v or more in a row", units.Percent(metrics.SaturatedShare, 0), metrics.SaturatedIntervals, shown[0].Interval)
	d.heading = fmt.Sprintf("%s, repeat %d", s.named(len(all), "racks"), d.o.Repeat)
	d.axes(fmt.Sprintf("Time since the first arrival (%s)", unit.name), "Load of a rack's links (%)")
	d.p.X.Min, d.p.X.Max, d.p.Y.Min, d.p.Y.Max = 0, unit.of(end), 0, high
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	return nil
}
