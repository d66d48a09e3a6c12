package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/words"
)

// rows assigns each series a band of the vertical axis, the first on top, with its name
// and a second line.
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

// row returns the middle of a series' band.
func (d *drawing) row(i int) float64 { return float64(len(d.series) - 1 - i) }

// box is a filled rectangle in the coordinates of the plot.
type box struct {
	x0, x1, y0, y1 float64
	fill           color.Color
	outline        bool
	least          vg.Length // least width
}

// boxes is a plotter of boxes, drawn in order.
type boxes []box

// DataRange returns the range of all corners.
func (b boxes) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, x := range b {
		xmin, xmax, ymin, ymax = min(xmin, x.x0), max(xmax, x.x1), min(ymin, x.y0), max(ymax, x.y1)
	}
	return xmin, xmax, ymin, ymax
}

// Plot draws the boxes.
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

// Thumbnail draws the area.
func (s swatch) Thumbnail(c *draw.Canvas) {
	mid := (c.Min.X + c.Max.X) / 2
	half := (c.Max.Y - c.Min.Y) * 0.7
	path := []vg.Point{{X: mid - half, Y: c.Min.Y}, {X: mid + half, Y: c.Min.Y}, {X: mid + half, Y: c.Max.Y}, {X: mid - half, Y: c.Max.Y}}
	c.FillPolygon(s.fill, path)
	c.StrokeLines(draw.LineStyle{Color: color.Black, Width: vg.Points(0.3)}, append(path, path[0]))
}

// repeatOf drops the series without the selected repeat, or in which it is void.
func (d *drawing) repeatOf() error {
	most := 0
	d.series = slices.DeleteFunc(d.series, func(s series) bool {
		a := s.run.Arm(s.arm)
		most = max(most, a.Numbers.Of(a.Repeats-1))
		if a.Numbers.Place(d.repeat, a.Repeats) < 0 {
			d.note("%s has no repeat %d", s.label, d.repeat)
			return true
		}
		return false
	})
	if len(d.series) == 0 {
		return fmt.Errorf("%w: no repeat %d: must be 0 to %d", ErrNoData, d.repeat, most)
	}
	return nil
}

func timeline(d *drawing) error {
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([][]flows.CoflowRecord, len(d.series))
	last, total := time.Duration(0), 0
	for i, s := range d.series {
		for _, c := range s.run.Coflows {
			if c.Arm == s.arm && c.Repeat == d.repeat && !c.Failed {
				all[i] = append(all[i], flows.CoflowRecord{Coflow: c.Coflow, Arrival: c.Arrival, End: c.End})
				last = max(last, c.End)
			}
		}
		figures.ByArrival(all[i])
		total += len(all[i])
	}
	if total == 0 {
		return fmt.Errorf("%w: no coflow completed in repeat %d", ErrNoData, d.repeat)
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
			d.add(bars)
			d.add(numbers{bars, all[i], text.Style{Color: colour("ink"), Font: d.font(0.6), YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}})
		}
		if i > 0 {
			d.add(rule{at: d.row(i) + 0.5})
		}
	}
	d.axes(d.since(unit)+fmt.Sprintf(", repeat %d", d.repeat), "")
	d.rows(second)
	d.p.X.Min = min(d.p.X.Min, 0)
	return nil
}

// numbers are the IDs of coflows next to their bars: as many as fit below each other.
type numbers struct {
	bars    boxes
	coflows []flows.CoflowRecord
	style   text.Style
}

// Plot draws the numbers right of the bars or, where the figure ends or another bar is, left of them.
func (n numbers) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	free := vg.Length(math.Inf(1)) // the lower end of the last number
	for i, b := range n.bars {
		label, mid := fmt.Sprint(n.coflows[i].Coflow), y((b.y0+b.y1)/2)
		half := n.style.Height(label) / 2
		if mid+half > free {
			continue
		}
		at, style := x(b.x1)+vg.Points(1.5), n.style
		covered := func(from, to vg.Length) bool { // by another bar
			return slices.ContainsFunc(n.bars, func(o box) bool {
				return o != b && y(o.y1) > mid-half && y(o.y0) < mid+half && x(o.x1) > from && x(o.x0) < to
			})
		}
		wide := style.Width(label)
		left := x(b.x0) - vg.Points(1.5)
		if at+wide > c.Max.X || covered(at, at+wide) {
			if at, style.XAlign = left, draw.XRight; left-wide < c.Min.X || covered(left-wide, left) {
				continue
			}
		}
		c.FillText(style, vg.Point{X: at, Y: mid + style.FontExtents().Descent/2}, label)
		free = mid - half
	}
}

// stack draws a stacked bar for each series.
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
				bars = append(bars, box{before, before + v, d.row(i) - 0.3, d.row(i) + 0.3, colour(parts[k]), true, 0})
			}
		}
		if len(bars) > 0 {
			d.add(bars)
			d.legend = append(d.legend, entry{parts[k], swatch{colour(parts[k])}})
		}
	}
	d.p.X.Min, d.p.X.Max = 0, d.p.X.Max*1.03
}

// shares returns the known shares of an item's time, in the order of causes.
func shares(causes []breakdown.Cause, times ...*time.Duration) (out []breakdown.Share) {
	for i, t := range times {
		if t != nil {
			out = append(out, breakdown.Share{Cause: causes[i], Time: *t})
		}
	}
	return out
}

// causesOf returns the time of an arm's coflows, or of one of them, by cause.
func causesOf(s series, only *schema.Coflow) (out figures.Breakdown) {
	kept := map[figures.Place]bool{}
	for i := range s.run.Coflows {
		c := &s.run.Coflows[i]
		if c.Arm != s.arm || c.Failed || c.Background || only != nil && only != c {
			continue
		}
		kept[figures.Place{Repeat: c.Repeat, ID: int(c.Coflow)}] = true
		if list := shares(breakdown.CoflowCauses(), c.Held, c.Setup, c.Serialisation, c.Queueing, c.Retransmission, c.Host, c.Latency); list != nil {
			out.Add(list)
		}
	}
	if out.N > 0 {
		return out
	}
	// The table of shares has the same figures by place.
	byPlace := map[figures.Place][]breakdown.Share{}
	for _, x := range s.run.Breakdown {
		if k := (figures.Place{Repeat: x.Repeat, ID: int(x.Coflow)}); x.Arm == s.arm && kept[k] {
			byPlace[k] = append(byPlace[k], breakdown.Share{Cause: x.Cause, Time: x.Time})
		}
	}
	for _, list := range byPlace {
		out.Add(list)
	}
	return out
}

func timeByCause(d *drawing) error {
	return d.byCause("coflow completion time", breakdown.CoflowCauses(), summary.BreakdownFile+", nor causes in "+summary.CoflowsFile,
		func(s series) figures.Breakdown { return causesOf(s, nil) })
}

func writeTimeByCause(d *drawing) error {
	return d.byCause("block write time", breakdown.BlockCauses(), "column of causes in "+summary.BlocksFile, func(s series) (out figures.Breakdown) {
		for i := range s.run.Blocks {
			b := &s.run.Blocks[i]
			if list := shares(breakdown.BlockCauses(), b.Held, b.Network, b.Disk, b.Host); b.Arm == s.arm && !b.Failed && list != nil {
				out.Add(list)
			}
		}
		return out
	})
}

// byCause draws the average time of each arm's items, divided by cause.
func (d *drawing) byCause(what string, causes []breakdown.Cause, from string, of func(series) figures.Breakdown) error {
	var kept []series
	var all []figures.Breakdown
	var second []string
	for _, s := range d.series {
		b := of(s)
		if b.N == 0 {
			d.note("%s: no breakdown of its time is recorded", s.label)
			continue
		}
		kept, all, second = append(kept, s), append(all, b), append(second, fmt.Sprintf("n = %d", b.N))
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing(from))
	}
	d.series = kept
	return d.stackCauses("Average "+what, causes, all, second)
}

// stackCauses draws times divided by cause, one row for each series.
func (d *drawing) stackCauses(axis string, causes []breakdown.Cause, all []figures.Breakdown, second []string) error {
	longest := time.Duration(0)
	for i, b := range all {
		total := time.Duration(0)
		for cause := range b.Sum {
			if !slices.Contains(causes, cause) {
				return fmt.Errorf("arm %s: unknown cause of time %q", d.series[i].label, safe(string(cause)))
			}
			total += b.Of(cause)
		}
		longest = max(longest, total)
	}
	unit := timesFor(longest)
	names := make([]string, len(causes))
	values := make([][]float64, len(all))
	for k, cause := range causes {
		names[k] = string(cause)
		for i := range all {
			values[i] = append(values[i], unit.of(all[i].Of(cause)))
		}
	}
	d.axes(fmt.Sprintf("%s (%s)", axis, unit.name), "")
	d.stack(names, values)
	d.rows(second)
	return nil
}

// mostSlowest is the number of coflows in the figure of the slowest ones.
const mostSlowest = 10

// slowest draws the CCT of the slowest coflows of an arm, divided by cause.
func slowest(d *drawing) error {
	if err := d.chosenArm(); err != nil {
		return err
	}
	s := d.series[0]
	var coflows []*schema.Coflow
	for i := range s.run.Coflows {
		if c := &s.run.Coflows[i]; c.Arm == s.arm && !c.Failed && !c.Background {
			coflows = append(coflows, c)
		}
	}
	slices.SortStableFunc(coflows, func(a, b *schema.Coflow) int { return cmp.Compare(b.CCT, a.CCT) })
	d.heading = s.named(len(coflows), "coflows")
	d.series = nil
	var all []figures.Breakdown
	var labels []string
	for _, c := range coflows[:min(len(coflows), mostSlowest)] {
		if b := causesOf(s, c); b.N > 0 {
			label := fmt.Sprintf("coflow %d", c.Coflow)
			if s.run.Arm(s.arm).Repeats > 1 {
				label += fmt.Sprintf(", repeat %d", c.Repeat)
			}
			d.series, all, labels = append(d.series, s), append(all, b), append(labels, label)
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing(summary.BreakdownFile+", nor causes in "+summary.CoflowsFile))
	}
	if err := d.stackCauses("Completion time of the slowest coflows", breakdown.CoflowCauses(), all, labels); err != nil {
		return err
	}
	d.oneLine(labels)
	return nil
}

// oneLine labels the rows.
func (d *drawing) oneLine(labels []string) {
	ticks := plot.ConstantTicks{}
	for i, label := range labels {
		ticks = append(ticks, plot.Tick{Value: d.row(i), Label: label})
	}
	d.p.Y.Tick.Marker = ticks
}

// disks draws the bytes of blocks that each host stores under one arm, averaged over its repeats.
func disks(d *drawing) error {
	if err := d.chosenArm(); err != nil {
		return err
	}
	s := d.series[0]
	stored := map[string]float64{}
	ends := func(link string) { // hosts that store nothing count too, if they are known
		for host := range strings.SplitSeq(link, ">") {
			if _, _, ok := topo.ParseHostName(host); ok {
				stored[host] = 0
			}
		}
	}
	for _, l := range s.run.Links {
		ends(l.Link)
	}
	if err := s.run.Samples(func(_ schema.Key, in *samples.Reader) error {
		for _, l := range in.Links {
			ends(l.Name)
		}
		return nil
	}); err != nil {
		return err
	}
	repeats := float64(s.run.Arm(s.arm).Repeats)
	n := 0
	for _, b := range s.run.Blocks {
		for _, h := range b.Hosts {
			stored[h] += 0
			if b.Arm == s.arm && !b.Failed {
				stored[h] += float64(b.Size) / 1e6 / repeats
				n++
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("%w: no block was written", ErrNoData)
	}
	hosts := slices.SortedFunc(maps.Keys(stored), figures.CompareHosts)
	var columns boxes
	var used []float64
	ticks := plot.ConstantTicks{}
	for i, h := range hosts {
		x := float64(i)
		columns = append(columns, box{x - 0.4, x + 0.4, 0, stored[h], colour("write"), false, 0})
		used = append(used, stored[h])
		rack, _, ok := topo.ParseHostName(h)
		if !ok {
			continue
		}
		if k := slices.IndexFunc(hosts, func(o string) bool { r, _, ok := topo.ParseHostName(o); return ok && r == rack }); k == i {
			ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("rack %d", rack)})
			if i > 0 {
				d.add(rule{vertical: true, at: x - 0.5})
			}
		}
	}
	d.grid(false, true)
	d.add(columns)
	d.add(rule{at: stat.Mean(used, nil)})
	d.heading = fmt.Sprintf("%s, Cv %.3f", s.named(len(hosts), "hosts"), metrics.Cv(used))
	d.axes("Host", "Stored in a repeat (MB)")
	d.p.X.Tick.Marker = ticks
	d.p.X.Min, d.p.X.Max, d.p.Y.Min, d.p.Y.Max = -0.5, float64(len(hosts))-0.5, 0, 1.03*slices.Max(used)
	d.note("the line across is the mean")
	return nil
}

func bytesByClass(d *drawing) error {
	classes := breakdown.Classes()
	var values [][]float64
	var kept []series
	var second []string
	for _, s := range d.series {
		arm := s.run.Arm(s.arm)
		if arm.Traffic == nil {
			continue
		}
		var row []float64
		for _, class := range classes {
			x, _ := arm.Get("traffic.cross_rack_bytes." + class)
			row = append(row, x/1e6)
		}
		kept, values = append(kept, s), append(values, row)
		second = append(second, "n = "+words.Plural(arm.Repeats, "repeat", "repeats"))
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing("traffic in "+summary.SummaryFile))
	}
	d.series = kept
	d.axes("Bytes between racks in a repeat (MB)", "")
	d.stack(classes, values)
	d.rows(second)
	return nil
}

// arms draws a figure of the summary, by its key.
func arms(d *drawing, key string, unit summary.Unit) error {
	var kept []series
	var values [][]float64
	var second []string
	most := 0.0
	for _, s := range d.series {
		x, ok := s.run.Arm(s.arm).Get(key)
		if !ok {
			d.note("%s: no %s in %s", s.label, key, summary.SummaryFile)
			continue
		}
		most = max(most, x)
		kept, values = append(kept, s), append(values, []float64{x})
		second = append(second, "n = "+words.Plural(s.run.Arm(s.arm).Repeats, "repeat", "repeats"))
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: no %s in %s", ErrNoData, key, summary.SummaryFile)
	}
	name, per := axisOf(unit, most)
	for _, v := range values {
		v[0] *= per
	}
	d.series = kept
	d.axes(key+name, "")
	d.stack([]string{key}, values)
	d.rows(second)
	return nil
}

// axisOf returns the unit of an axis up to a value, in brackets, and how many of it one of a unit is.
func axisOf(unit summary.Unit, most float64) (name string, per float64) {
	name, per = unit.Name(), 1
	switch unit {
	case summary.Micros:
		times := timesFor(time.Duration(most * float64(time.Microsecond)))
		name, per = times.name, times.of(time.Microsecond)
	case summary.Bytes:
		name, per = "MB", 1e-6
	case summary.Share, summary.Fine:
		name, per = "%", 100
	}
	if name != "" {
		name = " (" + name + ")"
	}
	return name, per
}

func repeats(d *drawing) error {
	what, key := "coflow completion time", "cct"
	if !slices.ContainsFunc(d.series, func(s series) bool { return len(s.run.Times(key, s.arm)) > 0 }) {
		what, key = "block write time", "write_time"
	}
	var kept []series
	var averages [][]time.Duration
	longest := time.Duration(0)
	for _, s := range d.series {
		by := map[int][]metrics.Item{}
		for _, x := range s.run.Times(key, s.arm) {
			by[x.Repeat] = append(by[x.Repeat], x)
		}
		var means []time.Duration
		for _, k := range slices.Sorted(maps.Keys(by)) {
			m := metrics.Summarize(by[k]).Mean
			means, longest = append(means, m), max(longest, m)
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
			// Slightly apart, so that equal averages stay visible.
			points = append(points, plotter.XY{X: unit.of(m), Y: d.row(i) + 0.3*(0.5-(float64(k)+0.5)/float64(len(averages[i])))})
		}
		second[i] = "n = " + words.Plural(len(x), "repeat", "repeats")
		if log && slices.Min(x) <= 0 {
			return fmt.Errorf("%s: an average of 0 cannot be shown on a logarithmic axis: omit --log", s.label)
		}
		if len(x) >= metrics.LeastPairs {
			low, high := interval(x)
			if log && low <= 0 {
				d.note("%s: its interval begins at %.3g %s and is cut off by the logarithmic axis", s.label, low, unit.name)
				low = slices.Min(x)
			}
			d.add(whisker{low, stat.Mean(x, nil), high, d.row(i), s.colour()})
		} else {
			d.note("%s: no interval: fewer than %d independent repeats", s.label, metrics.LeastPairs)
			mean := stat.Mean(x, nil)
			d.add(whisker{mean, mean, mean, d.row(i), s.colour()})
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = s.glyph()
		d.add(dots)
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

// interval returns the 95 % confidence interval of the mean by Student's t-distribution,
// which assumes independent repeats with nearly normal averages.
func interval(x []float64) (low, high float64) {
	mean, deviation := stat.MeanStdDev(x, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(len(x) - 1)}.Quantile(0.975)
	half := t * deviation / math.Sqrt(float64(len(x)))
	return mean - half, mean + half
}

// whisker is an interval with its mean.
type whisker struct {
	low, mean, high, y float64
	colour             color.Color
}

// DataRange returns the interval.
func (w whisker) DataRange() (xmin, xmax, ymin, ymax float64) { return w.low, w.high, w.y, w.y }

// GlyphBoxes returns the room for its ends.
func (w whisker) GlyphBoxes(p *plot.Plot) (out []plot.GlyphBox) {
	half := vg.Points(1.8 * 2.5)
	room := vg.Rectangle{Min: vg.Point{X: -vg.Points(0.8), Y: -half}, Max: vg.Point{X: vg.Points(0.8), Y: half}}
	for _, x := range []float64{w.low, w.mean, w.high} {
		out = append(out, plot.GlyphBox{X: p.X.Norm(x), Y: p.Y.Norm(w.y), Rectangle: room})
	}
	return out
}

// Plot draws the whisker.
func (w whisker) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	sty := draw.LineStyle{Color: w.colour, Width: vg.Points(0.8)}
	end := vg.Points(2.5)
	if w.low < w.high {
		c.StrokeLine2(sty, x(w.low), y(w.y), x(w.high), y(w.y))
		for _, v := range []float64{w.low, w.high} {
			c.StrokeLine2(sty, x(v), y(w.y)-end, x(v), y(w.y)+end)
		}
	}
	sty.Width = vg.Points(1.6)
	c.StrokeLine2(sty, x(w.mean), y(w.y)-1.8*end, x(w.mean), y(w.y)+1.8*end)
}
