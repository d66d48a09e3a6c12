package plot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/topo"
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

// rackOver is the load of the links of a rack over time in some repeats.
type rackOver struct {
	rack      topo.RackID
	load      []float64 // sum over repeats, by interval
	saturated []int     // repeats, by interval
	time      time.Duration
	total     float64
}

// add adds a repeat.
func (r *rackOver) add(l metrics.RackLoad) {
	n := len(l.Up)
	r.load = append(r.load, make([]float64, max(0, n-len(r.load)))...)
	r.saturated = append(r.saturated, make([]int, max(0, n-len(r.saturated)))...)
	for k := range n {
		r.load[k] += l.Max(k)
		r.total += l.Max(k)
	}
	for _, x := range l.Saturated() {
		for k := x[0]; k < x[1]; k++ {
			r.saturated[k]++
		}
	}
	r.time += l.SaturatedTime(0, time.Duration(n)*l.Interval)
}

// racksOver returns the racks of the chosen repeats of an arm, the interval of their loads, and the length of each repeat.
func (d *drawing) racksOver(s series) (racks []*rackOver, interval time.Duration, lengths []time.Duration, err error) {
	repeats := []int{d.repeat}
	if a := s.run.Arm(s.arm); d.o.Repeat == nil {
		repeats = nil
		for k := range a.Repeats {
			repeats = append(repeats, a.Numbers.Of(k))
		}
	}
	place := map[topo.RackID]*rackOver{}
	for _, repeat := range repeats {
		all, err := rackLoads(s, repeat)
		if err != nil {
			return nil, 0, nil, err
		}
		if len(all) == 0 {
			continue
		}
		if interval > 0 && all[0].Interval != interval {
			return nil, 0, nil, fmt.Errorf("%s: intervals of %v in repeat %d, and of %v before: they must be equal", safe(s.label), all[0].Interval, repeat, interval)
		}
		interval = all[0].Interval
		lengths = append(lengths, time.Duration(len(all[0].Up))*interval)
		for _, l := range all {
			if place[l.Rack] == nil {
				place[l.Rack] = &rackOver{rack: l.Rack}
			}
			place[l.Rack].add(l)
		}
	}
	return slices.SortedFunc(maps.Values(place), func(a, b *rackOver) int { return cmp.Compare(a.rack, b.rack) }), interval, lengths, nil
}

// racks draws the load of the links of each rack over time, averaged over repeats, with bars above where they are saturated.
func racks(d *drawing) error {
	if err := d.chosenArm(); err != nil {
		return err
	}
	if d.o.Repeat != nil {
		if err := d.repeatOf(); err != nil {
			return err
		}
	}
	s := d.series[0]
	shown, interval, lengths, err := d.racksOver(s)
	if err != nil {
		return err
	}
	if len(shown) == 0 {
		return d.noLinks()
	}
	var end, measured time.Duration
	for _, l := range lengths {
		end, measured = max(end, l), measured+l
	}
	of := words.Plural(len(lengths), "repeat", "repeats")
	if d.o.Repeat != nil {
		of = fmt.Sprintf("repeat %d", d.repeat)
	}
	d.heading = fmt.Sprintf("%s, %s", s.named(len(shown), "racks"), of)
	if n := len(shown) - mostRacks; n > 0 {
		slices.SortFunc(shown, func(a, b *rackOver) int {
			return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(b.total, a.total), cmp.Compare(a.rack, b.rack))
		})
		d.note("not drawn: %s with less saturation or load", words.Plural(n, "rack", "racks"))
		shown = shown[:mostRacks]
		slices.SortFunc(shown, func(a, b *rackOver) int { return cmp.Compare(a.rack, b.rack) })
	}
	unit := timesFor(end)
	d.grid(true, true)
	high := 100.0
	for i, r := range shown {
		points := make(plotter.XYs, 0, 2*len(r.load))
		for k, sum := range r.load {
			y := 100 * sum / float64(len(lengths))
			high = max(high, y)
			points = append(points, plotter.XY{X: unit.of(interval * time.Duration(k)), Y: y}, plotter.XY{X: unit.of(interval * time.Duration(k+1)), Y: y})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = draw.LineStyle{Color: palette.Arm(i).Light, Width: vg.Points(1.1), Dashes: dashes[i%len(dashes)]}
		d.add(line)
		d.legend = append(d.legend, entry{fmt.Sprintf("rack %d, saturated %s", r.rack, units.Percent(r.time.Seconds()/measured.Seconds(), 0)), line})
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
		for from := 0; from < len(r.saturated); {
			to := from + 1
			for to < len(r.saturated) && r.saturated[to] == r.saturated[from] {
				to++
			}
			if n := r.saturated[from]; n > 0 {
				tall := 0.024 * high * float64(n) / float64(len(lengths))
				bars = append(bars, box{unit.of(interval * time.Duration(from)), unit.of(interval * time.Duration(to)), y, y + tall, palette.Arm(i).Light, false, 0})
			}
			from = to
		}
	}
	if len(bars) > 0 {
		d.add(bars)
		high *= 1.04 + 0.03*float64(len(shown))
	}
	d.note("bars above the lines mark saturated links: more than %s of the capacity for %d intervals of %v or more in a row", units.Percent(metrics.SaturatedShare, 0), metrics.SaturatedIntervals, interval)
	if n := len(lengths); n > 1 {
		d.note("lines are the mean of %d repeats, where one that has ended counts with no load; a bar is as high as the share of repeats that are saturated", n)
	}
	d.axes(d.since(unit), "Load of a rack's links (%)")
	d.p.X.Min, d.p.X.Max, d.p.Y.Min, d.p.Y.Max = 0, unit.of(end), 0, high
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	return nil
}
