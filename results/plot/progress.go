package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/archive"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/topo/units"
	"testbed/workloads"
)

// Bounds of what a figure tells apart.
const (
	mostFlows  = 200 // lines of flows in one figure: the longest
	mostLayers = 5   // flows with a colour of their own in a stack: the last to end
)

// transfer is the rows of one transfer.
type transfer struct {
	archive.Moment // the last
	moments        []metrics.Moment
}

func (t *transfer) end() time.Duration { return t.At }

// transfersOf are those of a repeat of an arm, in the order of the file.
func transfersOf(s series, repeat int, keep func(*archive.Moment) bool) []transfer {
	var out []transfer
	rows := s.run.Progress
	for i := range rows {
		m := &rows[i]
		if m.Arm != s.arm || m.Repeat != repeat || !keep(m) {
			continue
		}
		if n := len(out); n == 0 || !out[n-1].Same(m) {
			out = append(out, transfer{})
		}
		t := &out[len(out)-1]
		t.Moment, t.moments = *m, append(t.moments, metrics.Moment{Bytes: m.Received, At: m.At})
	}
	return out
}

// coflowOf makes the figure one of a coflow under one arm: the one that was asked for,
// or the slowest. Its flows come longest first.
func (d *drawing) coflowOf() (archive.Coflow, []transfer, error) {
	none := archive.Coflow{}
	if err := d.oneArm(); err != nil {
		return none, nil, err
	}
	s := d.series[0]
	if s.run.Progress == nil {
		return none, nil, fmt.Errorf("%w: %s", ErrNoData, d.missing(report.ProgressFile))
	}
	var chosen *archive.Coflow
	least, most, n := workloads.CoflowID(0), workloads.CoflowID(0), 0
	for i := range s.run.Coflows {
		c := &s.run.Coflows[i]
		if c.Arm != s.arm || c.Repeat != d.o.Repeat {
			continue
		}
		if n == 0 || c.Coflow < least {
			least = c.Coflow
		}
		most, n = max(most, c.Coflow), n+1
		if d.o.Coflow != nil && c.Coflow == *d.o.Coflow || d.o.Coflow == nil && (chosen == nil || c.CCT > chosen.CCT) {
			chosen = c
		}
	}
	switch {
	case n == 0:
		return none, nil, fmt.Errorf("%w: no coflow completed under %s in repeat %d", ErrNoData, s.label, d.o.Repeat)
	case chosen == nil:
		return none, nil, fmt.Errorf("%w: no coflow %d has completed under %s in repeat %d: those %d that have are numbered %d to %d", ErrNoData, *d.o.Coflow, s.label, d.o.Repeat, n, least, most)
	}
	if d.o.Coflow == nil {
		d.note("coflow %d is shown, the slowest of %s (--coflow chooses another)", chosen.Coflow, s.label)
	}
	flows := transfersOf(s, d.o.Repeat, func(m *archive.Moment) bool { return m.Kind == archive.KindFlow && *m.Coflow == chosen.Coflow })
	if len(flows) == 0 {
		return none, nil, fmt.Errorf("%w: %s has no flow of coflow %d of %s, repeat %d", ErrNoData, report.ProgressFile, chosen.Coflow, s.label, d.o.Repeat)
	}
	for i := range flows {
		for k := range flows[i].moments {
			flows[i].moments[k].At -= chosen.Arrival
		}
	}
	slices.SortStableFunc(flows, func(a, b transfer) int { return cmp.Compare(b.Size, a.Size) })
	if len(flows) < chosen.Width {
		d.note("%d of the %d flows of coflow %d are in %s", len(flows), chosen.Width, chosen.Coflow, report.ProgressFile)
	}
	mark := ""
	if s.mark != "" {
		mark = " (" + s.mark + ")"
	}
	d.heading = fmt.Sprintf("%s%s, repeat %d, coflow %d: n = %d flows, %s MB", s.label, mark, d.o.Repeat, chosen.Coflow, len(flows), short(float64(chosen.Size)/1e6))
	return *chosen, flows, nil
}

// short is a number with three digits.
func short(x float64) string { return fmt.Sprintf("%.3g", x) }

// oneArm leaves the series of the arm that was asked for, or the first.
func (d *drawing) oneArm() error {
	if len(d.runs) > 1 {
		return fmt.Errorf("%w: it shows one arm of one run, and there are %d runs", ErrNoData, len(d.runs))
	}
	if d.o.Arm != "" {
		d.series = slices.DeleteFunc(d.series, func(s series) bool { return s.arm != d.o.Arm })
		if len(d.series) == 0 {
			return fmt.Errorf("%w: arm %s is void or not among --arms", ErrNoData, safe(d.o.Arm))
		}
	}
	d.series = d.series[:1]
	return d.repeatOf()
}

var (
	plain   = draw.LineStyle{Color: color.RGBA{86, 160, 211, 255}, Width: vg.Points(0.5)}
	slow    = draw.LineStyle{Color: color.RGBA{213, 94, 0, 255}, Width: vg.Points(1.3)}
	overall = draw.LineStyle{Color: color.Black, Width: vg.Points(1.3), Dashes: []vg.Length{vg.Points(4), vg.Points(1.5)}}
)

// progress shows how far each flow of a coflow was over time.
func progress(d *drawing) error {
	c, flows, err := d.coflowOf()
	if err != nil {
		return err
	}
	unit := timesFor(c.CCT)
	d.grid(true, true)
	last := 0
	total := units.Bytes(0)
	for i := range flows {
		if flows[i].end() > flows[last].end() {
			last = i
		}
		total += flows[i].Size
	}
	if len(flows) > mostFlows {
		d.note("of %d flows the %d longest are drawn, and the one that ended last", len(flows), mostFlows)
	}
	draw := func(moments []metrics.Moment, of units.Bytes, sty draw.LineStyle) (*plotter.Line, error) {
		points := make(plotter.XYs, 0, len(moments))
		for _, m := range moments {
			y := float64(m.Bytes) / 1e6
			if !d.o.Bytes {
				y = 100 * float64(m.Bytes) / float64(max(1, of))
			}
			points = append(points, plotter.XY{X: unit.of(m.At), Y: y})
		}
		line, err := plotter.NewLine(points)
		if err == nil {
			line.LineStyle = sty
			d.p.Add(line)
		}
		return line, err
	}
	var one *plotter.Line
	for i := range flows[:min(len(flows), mostFlows)] {
		if i == last {
			continue
		}
		if one, err = draw(flows[i].moments, flows[i].Size, plain); err != nil {
			return err
		}
	}
	if one != nil {
		d.legend = append(d.legend, entry{"each flow", one})
	}
	if len(flows) > 1 && !d.o.Bytes {
		line, err := draw(together(flows), total, overall)
		if err != nil {
			return err
		}
		d.legend = append(d.legend, entry{"coflow in all", line})
	}
	line, err := draw(flows[last].moments, flows[last].Size, slow)
	if err != nil {
		return err
	}
	d.legend = append(d.legend, entry{fmt.Sprintf("last to end: flow %d", *flows[last].Flow), line})
	y := "Received (% of the flow)"
	if d.o.Bytes {
		y = "Received of each flow (MB)"
	} else {
		d.p.Y.Max = 100
	}
	d.axes(fmt.Sprintf("Time since the coflow arrived (%s)", unit.name), y)
	d.p.X.Min, d.p.Y.Min = min(0, d.p.X.Min), 0
	d.note("each flow is drawn through up to %d moments, straight between them", longestOf(flows))
	return nil
}

func longestOf(list []transfer) int {
	n := 0
	for _, t := range list {
		n = max(n, len(t.moments))
	}
	return n
}

// together is what all transfers have received at each moment of any, by
// straight lines between the moments of each.
func together(list []transfer) []metrics.Moment {
	var at []time.Duration
	for _, t := range list {
		for _, m := range t.moments {
			at = append(at, m.At)
		}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	out := make([]metrics.Moment, len(at))
	for i := range at {
		out[i].At = at[i]
	}
	for _, t := range list {
		k := 0 // the moments up to here are past
		for i := range out {
			for k < len(t.moments) && t.moments[k].At <= out[i].At {
				k++
			}
			switch {
			case k == 0:
			case k == len(t.moments):
				out[i].Bytes += t.moments[k-1].Bytes
			default:
				a, b := t.moments[k-1], t.moments[k]
				out[i].Bytes += a.Bytes + units.Bytes(float64(b.Bytes-a.Bytes)*(float64(out[i].At-a.At)/float64(b.At-a.At)))
			}
		}
	}
	return out
}

// roundBin is the shortest bin of 1, 2 or 5 times a power of ten of which at most so
// many last to an end.
func roundBin(end time.Duration, most int) time.Duration {
	for bin := time.Microsecond; ; bin *= 10 {
		for _, m := range []time.Duration{1, 2, 5} {
			if end/(bin*m) < time.Duration(most) {
				return bin * m
			}
		}
	}
}

// rates says how goodput is shown: in the unit that suits the highest, bits a second.
func rates(high float64) (name string, unit float64) {
	switch {
	case high >= 2e9:
		return "Gbps", 1e9
	case high >= 2e6:
		return "Mbps", 1e6
	}
	return "Kbps", 1e3
}

// goodput shows the goodput of all transfers of each arm or, of a coflow, that of its
// flows on top of each other.
func goodput(d *drawing) error {
	if d.o.Coflow != nil {
		return d.coflowGoodput()
	}
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([][]transfer, len(d.series))
	end, had := time.Duration(0), false
	for i, s := range d.series {
		had = had || len(s.run.Progress) > 0
		all[i] = transfersOf(s, d.o.Repeat, func(*archive.Moment) bool { return true })
		for _, t := range all[i] {
			end = max(end, t.end())
		}
	}
	if !had {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing(report.ProgressFile))
	}
	bin := roundBin(end, mostMoments)
	curves := make([][]float64, len(all))
	high := 0.0
	for i, list := range all {
		own := time.Duration(0)
		for _, t := range list {
			own = max(own, t.end())
		}
		curves[i] = make([]float64, int(own/bin)+1)
		for _, t := range list {
			metrics.Goodput(curves[i], bin, t.moments)
		}
		for k := range curves[i] {
			curves[i][k] *= 8 / bin.Seconds()
			high = max(high, curves[i][k])
		}
	}
	unit := timesFor(end)
	name, scale := rates(high)
	d.grid(true, true)
	for i, s := range d.series {
		if len(all[i]) == 0 {
			d.note("%s: nothing was received in repeat %d", s.label, d.o.Repeat)
			continue
		}
		var points plotter.XYs
		for k, v := range curves[i] {
			points = append(points, plotter.XY{X: unit.of(bin*time.Duration(k) + bin/2), Y: v / scale})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.p.Add(line)
		d.legend = append(d.legend, entry{s.named(len(all[i]), "transfers"), line})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: nothing was received in repeat %d", ErrNoData, d.o.Repeat)
	}
	d.note("each point is of %v; payload of flows and of each hop of blocks, as it is there without a gap", bin)
	d.axes(fmt.Sprintf("Time since the first arrival (%s), repeat %d", unit.name, d.o.Repeat), fmt.Sprintf("Goodput (%s)", name))
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}

// coflowGoodput stacks the goodput of the flows of a coflow.
func (d *drawing) coflowGoodput() error {
	c, flows, err := d.coflowOf()
	if err != nil {
		return err
	}
	bin := roundBin(c.CCT, mostMoments)
	bins := int(c.CCT/bin) + 1
	slices.SortStableFunc(flows, func(a, b transfer) int { return cmp.Compare(b.end(), a.end()) })
	layers := min(len(flows), mostLayers)
	var stacked [][]float64
	var names []string
	for i := range flows {
		if i < layers {
			stacked, names = append(stacked, make([]float64, bins)), append(names, fmt.Sprintf("flow %d, %s MB", *flows[i].Flow, short(float64(flows[i].Size)/1e6)))
		} else if i == layers {
			stacked, names = append(stacked, make([]float64, bins)), append(names, fmt.Sprintf("others, n = %d", len(flows)-layers))
		}
		metrics.Goodput(stacked[len(stacked)-1], bin, flows[i].moments)
	}
	sum := make([]float64, bins)
	high := 0.0
	for k := range sum {
		for _, layer := range stacked {
			layer[k] *= 8 / bin.Seconds()
			sum[k] += layer[k]
		}
		high = max(high, sum[k])
	}
	unit := timesFor(c.CCT)
	name, scale := rates(high)
	d.grid(false, true)
	low := make([]float64, bins)
	for i, layer := range stacked {
		a := area{bin: unit.of(bin), low: slices.Clone(low), fill: shades[i%len(shades)]}
		if i == mostLayers {
			a.fill = grey
		}
		for k := range low {
			low[k] += layer[k] / scale
		}
		a.high = slices.Clone(low)
		d.p.Add(a)
		d.legend = append(d.legend, entry{names[i], swatch{a.fill}})
	}
	d.axes(fmt.Sprintf("Time since the coflow arrived (%s)", unit.name), fmt.Sprintf("Goodput (%s)", name))
	d.p.X.Min, d.p.Y.Min = 0, 0
	d.p.X.Max, d.p.Y.Max = unit.of(bin)*float64(bins), high/scale*1.04
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	d.note("each step is of %v; payload as it is there without a gap, straight between up to %d moments of each flow", bin, longestOf(flows))
	return nil
}

// area is what is between two step functions.
type area struct {
	bin       float64
	low, high []float64
	fill      color.Color
}

// DataRange is that of both.
func (a area) DataRange() (xmin, xmax, ymin, ymax float64) {
	return 0, a.bin * float64(len(a.high)), 0, slices.Max(a.high)
}

// Plot draws it, each stretch in which it is not empty by itself.
func (a area) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for from := 0; from < len(a.high); {
		if a.high[from] <= a.low[from] {
			from++
			continue
		}
		to := from
		var top, bottom []vg.Point
		for ; to < len(a.high) && a.high[to] > a.low[to]; to++ {
			x0, x1 := x(a.bin*float64(to)), x(a.bin*float64(to+1))
			top = append(top, vg.Point{X: x0, Y: y(a.high[to])}, vg.Point{X: x1, Y: y(a.high[to])})
			bottom = append(bottom, vg.Point{X: x0, Y: y(a.low[to])}, vg.Point{X: x1, Y: y(a.low[to])})
		}
		slices.Reverse(bottom)
		path := append(top, bottom...)
		c.FillPolygon(a.fill, path)
		c.StrokeLines(draw.LineStyle{Color: color.Black, Width: vg.Points(0.25)}, append(path, path[0]))
		from = to
	}
}
