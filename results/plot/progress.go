package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/hosts/wire"
	"testbed/results/figures"
	"testbed/results/metrics"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo/palette"
	"testbed/topo/units"
	"testbed/workloads"
)

// Maximum numbers of curves that a figure distinguishes.
const (
	mostFlows  = 200 // flows drawn in one figure: the longest
	mostLayers = 5   // flows with their own colour in a stack: the last to end
)

// transfersOf returns the transfers in a repeat of an arm, in the order of the file.
func transfersOf(s series, repeat int, keep func(*schema.Moment) bool) []*metrics.Progress {
	var out []*metrics.Progress
	rows := s.run.Progress
	var last *schema.Moment
	for i := range rows {
		m := &rows[i]
		if m.Arm != s.arm || m.Repeat != repeat || !keep(m) {
			continue
		}
		if last == nil || last.Transfer() != m.Transfer() {
			t := &metrics.Progress{Kind: wire.KindBlock, Size: m.Size}
			if m.Kind == schema.KindFlow {
				t.Kind, t.Group, t.Member = wire.KindFlow, uint32(*m.Coflow), uint32(*m.Flow)
			}
			out = append(out, t)
		}
		t := out[len(out)-1]
		t.Moments = append(t.Moments, metrics.Moment{Bytes: m.Received, At: m.At})
		last = m
	}
	return out
}

// coflowOf selects the coflow of a figure of one arm: the given one, or the slowest. It
// returns its flows, the longest first.
func (d *drawing) coflowOf() (schema.Coflow, []*metrics.Progress, error) {
	none := schema.Coflow{}
	if err := d.oneArm(); err != nil {
		return none, nil, err
	}
	s := d.series[0]
	if s.run.Progress == nil {
		return none, nil, fmt.Errorf("%w: %s", ErrNoData, d.missing(summary.ProgressFile))
	}
	var chosen *schema.Coflow
	least, most, n := workloads.CoflowID(0), workloads.CoflowID(0), 0
	for i := range s.run.Coflows {
		c := &s.run.Coflows[i]
		if c.Arm != s.arm || c.Repeat != d.repeat {
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
		return none, nil, fmt.Errorf("%w: no coflow completed under %s in repeat %d", ErrNoData, s.label, d.repeat)
	case chosen == nil:
		return none, nil, fmt.Errorf("%w: coflow %d did not complete under %s in repeat %d: the %d completed coflows have numbers from %d to %d", ErrNoData, *d.o.Coflow, s.label, d.repeat, n, least, most)
	}
	if d.o.Coflow == nil {
		d.note("coflow %d is shown, the slowest of %s (--coflow selects another)", chosen.Coflow, s.label)
	}
	flows := transfersOf(s, d.repeat, func(m *schema.Moment) bool { return m.Kind == schema.KindFlow && *m.Coflow == chosen.Coflow })
	if len(flows) == 0 {
		return none, nil, fmt.Errorf("%w: %s has no flow of coflow %d of %s, repeat %d", ErrNoData, summary.ProgressFile, chosen.Coflow, s.label, d.repeat)
	}
	for _, t := range flows {
		for k := range t.Moments {
			t.Moments[k].At -= chosen.Arrival
		}
	}
	figures.LongestFirst(flows)
	if len(flows) < chosen.Width {
		d.note("%d of the %d flows of coflow %d are in %s", len(flows), chosen.Width, chosen.Coflow, summary.ProgressFile)
	}
	mark := ""
	if s.mark != "" {
		mark = " (" + s.mark + ")"
	}
	d.heading = fmt.Sprintf("%s%s, repeat %d, coflow %d: n = %d flows, %s", s.label, mark, d.repeat, chosen.Coflow, len(flows), units.Short(float64(chosen.Size), "B"))
	return *chosen, flows, nil
}

// oneArm keeps only the series of the selected arm, or the first, which must have the selected repeat.
func (d *drawing) oneArm() error {
	if err := d.chosenArm(); err != nil {
		return err
	}
	return d.repeatOf()
}

// chosenArm keeps only the series of the selected arm, or the first.
func (d *drawing) chosenArm() error {
	if len(d.runs) > 1 {
		return fmt.Errorf("%w: the figure shows one arm of one run, but there are %d runs", ErrNoData, len(d.runs))
	}
	if d.o.Arm != "" {
		d.series = slices.DeleteFunc(d.series, func(s series) bool { return s.arm != d.o.Arm })
		if len(d.series) == 0 {
			return fmt.Errorf("%w: arm %s is void or not among --arms", ErrNoData, safe(d.o.Arm))
		}
	}
	d.series = d.series[:1]
	return nil
}

var (
	plain   = draw.LineStyle{Color: colour("flow"), Width: vg.Points(0.5)}
	slow    = draw.LineStyle{Color: colour("last flow"), Width: vg.Points(1.3)}
	overall = draw.LineStyle{Color: color.Black, Width: vg.Points(1.3), Dashes: []vg.Length{vg.Points(4), vg.Points(1.5)}}
)

// progress draws the received share of each flow of a coflow over time.
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
		if figures.End(flows[i]) > figures.End(flows[last]) {
			last = i
		}
		total += flows[i].Size
	}
	if len(flows) > mostFlows {
		d.note("of %d flows, the %d longest and the one that ended last are drawn", len(flows), mostFlows)
	}
	draw := func(moments []metrics.Moment, of units.Bytes, sty draw.LineStyle) (*plotter.Line, error) {
		points := make(plotter.XYs, 0, len(moments))
		for _, m := range moments {
			y := float64(m.Bytes) / 1e6
			if !d.o.Bytes {
				y = 100 * figures.Received(m, of)
			}
			points = append(points, plotter.XY{X: unit.of(m.At), Y: y})
		}
		line, err := plotter.NewLine(points)
		if err == nil {
			line.LineStyle = sty
			d.add(line)
		}
		return line, err
	}
	var one *plotter.Line
	for i := range flows[:min(len(flows), mostFlows)] {
		if i == last {
			continue
		}
		if one, err = draw(flows[i].Moments, flows[i].Size, plain); err != nil {
			return err
		}
	}
	if one != nil {
		d.legend = append(d.legend, entry{"each flow", one})
	}
	if len(flows) > 1 && !d.o.Bytes {
		line, err := draw(figures.Together(flows), total, overall)
		if err != nil {
			return err
		}
		d.legend = append(d.legend, entry{"coflow in all", line})
	}
	line, err := draw(flows[last].Moments, flows[last].Size, slow)
	if err != nil {
		return err
	}
	d.legend = append(d.legend, entry{fmt.Sprintf("last to end: flow %d", flows[last].Member), line})
	y := "Received (% of the flow)"
	if d.o.Bytes {
		y = "Received of each flow (MB)"
	} else {
		d.p.Y.Max = 100
	}
	d.axes(fmt.Sprintf("Time since the coflow arrived (%s)", unit.name), y)
	d.p.X.Min, d.p.Y.Min = min(0, d.p.X.Min), 0
	d.note("each flow is interpolated linearly between up to %d points", longestOf(flows))
	return nil
}

func longestOf(list []*metrics.Progress) int {
	n := 0
	for _, t := range list {
		n = max(n, len(t.Moments))
	}
	return n
}

// rates returns the unit of goodput, in bits per second: one that suits the highest.
func rates(high float64) (name string, unit float64) {
	switch {
	case high >= 2e9:
		return "Gbps", 1e9
	case high >= 2e6:
		return "Mbps", 1e6
	}
	return "Kbps", 1e3
}

// goodput draws the goodput of all receivers of each arm or, for one coflow, the stacked
// goodput of its flows.
func goodput(d *drawing) error {
	if d.o.Coflow != nil {
		return d.coflowGoodput()
	}
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([][]schema.Load, len(d.series))
	end, step, had := time.Duration(0), time.Duration(1), false
	for i, s := range d.series {
		for _, l := range s.run.Links {
			if l.Arm != s.arm || l.Repeat != d.repeat || l.Payload == nil || l.From < 0 {
				continue
			}
			had, all[i] = true, append(all[i], l)
			if *l.Payload > 0 {
				end = max(end, l.From+l.Interval)
			}
			step = max(step, l.Interval)
		}
	}
	if !had {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing("column payload_bytes in "+summary.LinksFile))
	}
	bin := figures.BinOf(end, step, mostMoments)
	curves := make([][]float64, len(all))
	high := 0.0
	for i, list := range all {
		curves[i] = make([]float64, int((end+bin-1)/bin))
		for _, l := range list {
			if *l.Payload > 0 {
				curves[i][l.From/bin] += float64(*l.Payload) * 8 / bin.Seconds()
			}
		}
		high = max(high, slices.Max(append(curves[i], 0)))
	}
	unit := timesFor(end)
	name, scale := rates(high)
	d.grid(true, true)
	for i, s := range d.series {
		if slices.Max(append(curves[i], 0)) == 0 {
			d.note("%s: nothing was received in repeat %d", s.label, d.repeat)
			continue
		}
		var points plotter.XYs
		hosts := map[string]bool{}
		for k, v := range curves[i] {
			points = append(points, plotter.XY{X: unit.of(bin*time.Duration(k) + bin/2), Y: v / scale})
		}
		for _, l := range all[i] {
			hosts[l.Link] = hosts[l.Link] || *l.Payload > 0
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.add(line)
		maps.DeleteFunc(hosts, func(_ string, received bool) bool { return !received })
		d.legend = append(d.legend, entry{s.named(len(hosts), "receivers"), line})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: nothing was received in repeat %d", ErrNoData, d.repeat)
	}
	d.note("each point covers %v; payload of flows and of each hop of blocks at the interfaces of receivers, each byte once", bin)
	d.axes(d.since(unit)+fmt.Sprintf(", repeat %d", d.repeat), fmt.Sprintf("Goodput (%s)", name))
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}

// receivers returns the link to the receiver of each flow of a coflow, and its rate, as far as they are known.
func (s series) receivers(repeat int, c workloads.CoflowID) (link map[uint32]string, rate map[string]units.Rate) {
	link, rate = map[uint32]string{}, map[string]units.Rate{}
	for _, l := range s.run.Links {
		if l.Arm == s.arm && l.Repeat == repeat {
			_, to, _ := strings.Cut(l.Link, ">")
			rate[to] = l.Rate
		}
	}
	for _, f := range s.run.Flows {
		if f.Arm == s.arm && f.Repeat == repeat && f.Coflow == c && rate[f.Dst] > 0 {
			link[uint32(f.Flow)] = f.Dst
		}
	}
	return link, rate
}

// coflowGoodput draws the stacked goodput of the flows of a coflow.
func (d *drawing) coflowGoodput() error {
	c, flows, err := d.coflowOf()
	if err != nil {
		return err
	}
	bin := figures.RoundBin(c.CCT, mostMoments)
	bins := int(c.CCT/bin) + 1
	slices.SortStableFunc(flows, func(a, b *metrics.Progress) int { return cmp.Compare(figures.End(b), figures.End(a)) })
	layers := min(len(flows), mostLayers)
	link, rate := d.series[0].receivers(d.repeat, c.Coflow)
	byLink := map[string][][]float64{}
	each := make([][]float64, len(flows))
	for i, f := range flows {
		each[i] = make([]float64, bins)
		metrics.Goodput(each[i], bin, f.Moments)
		if to, ok := link[f.Member]; ok {
			byLink[to] = append(byLink[to], each[i])
		}
	}
	for to, rows := range byLink {
		metrics.Within(rows, float64(rate[to].BytesIn(bin)))
	}
	var stacked [][]float64
	var names []string
	for i := range flows {
		if i < layers {
			stacked, names = append(stacked, make([]float64, bins)), append(names, fmt.Sprintf("flow %d, %s", flows[i].Member, units.Short(float64(flows[i].Size), "B")))
		} else if i == layers {
			stacked, names = append(stacked, make([]float64, bins)), append(names, fmt.Sprintf("others, n = %d", len(flows)-layers))
		}
		for k, bytes := range each[i] {
			stacked[len(stacked)-1][k] += bytes
		}
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
		a := area{bin: unit.of(bin), low: slices.Clone(low), fill: palette.Arm(i).Light}
		if i == mostLayers {
			a.fill = colour("grey")
		}
		for k := range low {
			low[k] += layer[k] / scale
		}
		a.high = slices.Clone(low)
		d.add(a)
		d.legend = append(d.legend, entry{names[i], swatch{a.fill}})
	}
	d.axes(fmt.Sprintf("Time since the coflow arrived (%s)", unit.name), fmt.Sprintf("Goodput (%s)", name))
	d.p.X.Min, d.p.Y.Min = 0, 0
	d.p.X.Max, d.p.Y.Max = unit.of(bin)*float64(bins), high/scale*1.04
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	d.note("each step covers %v; payload interpolated linearly between up to %d points of each flow, at most at the rate of the receiver's link", bin, longestOf(flows))
	return nil
}

// area is the area between two step functions.
type area struct {
	bin       float64
	low, high []float64
	fill      color.Color
}

// DataRange returns the range of both.
func (a area) DataRange() (xmin, xmax, ymin, ymax float64) {
	return 0, a.bin * float64(len(a.high)), 0, slices.Max(a.high)
}

// Plot draws each non-empty stretch of the area.
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
