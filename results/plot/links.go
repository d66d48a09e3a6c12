package plot

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/figures"
	"testbed/results/metrics"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo/palette"
)

// Maximum numbers of time bins.
const (
	mostColumns = 200 // of a map
	mostMoments = figures.MostMoments
)

// loads holds the load of links over time.
type loads struct {
	links []string // in the order of the file
	*figures.Loads
}

// binFor returns the bin for the loads of links in a repeat of some arms, or in all (-1).
func binFor(all []series, repeat, most int, keep func(link string) bool) time.Duration {
	end, step := time.Duration(0), time.Duration(1)
	for _, s := range all {
		for _, l := range s.run.Links {
			if l.Arm == s.arm && (repeat < 0 || l.Repeat == repeat) && keep(l.Link) && l.From >= 0 {
				end, step = max(end, l.From+l.Interval), max(step, l.Interval)
			}
		}
	}
	return figures.BinOf(end, step, most)
}

// loadsOf returns the loads of the links in one repeat of an arm.
func loadsOf(s series, repeat int, bin time.Duration, keep func(link string) bool) loads {
	var out loads
	place := map[string]int{}
	end := time.Duration(0)
	var rows []schema.Load
	for _, l := range s.run.Links {
		if l.Arm != s.arm || l.Repeat != repeat || !keep(l.Link) || l.From < 0 {
			continue
		}
		if _, ok := place[l.Link]; !ok {
			place[l.Link] = len(out.links)
			out.links = append(out.links, l.Link)
		}
		end = max(end, l.From+l.Interval)
		rows = append(rows, l)
	}
	if len(rows) == 0 {
		return out
	}
	out.Loads = figures.NewLoads(len(out.links), end, bin)
	for _, l := range rows {
		out.Add(place[l.Link], l.Rate, l.From, l.Interval, l.Bytes)
	}
	return out
}

// end returns the end of the last bin.
func (l loads) end() time.Duration { return l.Bin * time.Duration(l.Bins) }

// levels is the number of levels of a colour scale.
const levels = 50

// shade returns the colour of a level.
func shade(level int) palette.Colour { return palette.Load(float64(level) / levels).Light }

func (d *drawing) noLinks() error {
	return fmt.Errorf("%w: %s", ErrNoData, d.missing(summary.LinksFile))
}

func utilisation(d *drawing) error {
	if err := d.oneArm(); err != nil {
		return err
	}
	s := d.series[0]
	each := func(string) bool { return true }
	l := loadsOf(s, d.repeat, binFor(d.series, d.repeat, mostColumns, each), each)
	if len(l.links) == 0 {
		return d.noLinks()
	}
	unit := timesFor(l.end())
	var cells boxes
	high := 1.0
	ticks := plot.ConstantTicks{}
	for i, name := range l.links {
		y := float64(len(l.links) - 1 - i)
		ticks = append(ticks, plot.Tick{Value: y, Label: safe(name)})
		level := func(u float64) int {
			if math.IsNaN(u) {
				return -1
			}
			return min(int(math.Round(max(u, 0)*levels)), levels)
		}
		used := make([]float64, l.Bins)
		for k := range used {
			used[k] = l.Of(i, k)
		}
		for from := 0; from < len(used); {
			to := from + 1
			for to < len(used) && level(used[to]) == level(used[from]) {
				to++
			}
			if v := level(used[from]); v != 0 {
				fill := colour("line")
				if v > 0 {
					fill = shade(v)
				}
				cells = append(cells, box{unit.of(l.Bin * time.Duration(from)), unit.of(l.Bin * time.Duration(to)), y - 0.5, y + 0.5, fill, false, 0})
			}
			from = to
		}
		for _, u := range used {
			if !math.IsNaN(u) {
				high = max(high, u)
			}
		}
	}
	if high > 1.005 {
		d.note("loads of up to %.0f %% of the rate within %v are drawn as 100 %% (the token bucket allows a burst)", high*100, l.Bin)
	}
	if len(cells) > 0 {
		d.add(cells)
	}
	d.p.X.Min, d.p.X.Max = 0, unit.of(l.end())
	d.p.Y.Min, d.p.Y.Max = -0.5, float64(len(l.links))-0.5
	d.p.Y.Tick.Marker, d.p.Y.Tick.Length = ticks, vg.Points(1.5)
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	small := d.font(0.9)
	small.Size *= 0.85
	d.p.Y.Tick.Label.Font = small
	d.axes(d.since(unit), "")
	mark := ""
	if s.mark != "" {
		mark = " (" + s.mark + ")"
	}
	d.bar = &colourBar{title: fmt.Sprintf("Load of links, %s%s, repeat %d, n = %d links", s.label, mark, d.repeat, len(l.links)), from: "0", to: "100 %"}
	return nil
}

// colourBar is the key of the colours, above the plot.
type colourBar struct{ title, from, to string }

// draw draws the bar and returns its height.
func (b colourBar) draw(d *drawing, dc draw.Canvas) vg.Length {
	sty := text.Style{Color: color.Black, Font: d.font(0.9), XAlign: draw.XLeft, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	size := vg.Points(d.o.FontSize)
	drop := sty.FontExtents().Descent / 2
	room := dc.Max.X - dc.Min.X
	y := dc.Max.Y - size*0.6
	dc.FillText(sty, vg.Point{X: dc.Min.X, Y: y + drop}, fit(sty, b.title, room))
	y -= size * 1.2
	wide := room - sty.Width(b.from) - sty.Width(b.to) - size
	x := dc.Min.X
	dc.FillText(sty, vg.Point{X: x, Y: y + drop}, b.from)
	x += sty.Width(b.from) + size/2
	for i := range levels {
		x0, x1 := x+wide*vg.Length(i)/levels, x+wide*vg.Length(i+1)/levels
		dc.FillPolygon(shade(i+1), []vg.Point{{X: x0, Y: y - size*0.3}, {X: x1, Y: y - size*0.3}, {X: x1, Y: y + size*0.3}, {X: x0, Y: y + size*0.3}})
	}
	dc.StrokeLines(draw.LineStyle{Color: color.Black, Width: vg.Points(0.3)}, []vg.Point{{X: x, Y: y - size*0.3}, {X: x + wide, Y: y - size*0.3},
		{X: x + wide, Y: y + size*0.3}, {X: x, Y: y + size*0.3}, {X: x, Y: y - size*0.3}})
	dc.FillText(sty, vg.Point{X: x + wide + size/2, Y: y + drop}, b.to)
	return size*2.4 + vg.Points(2)
}

// fabricLink reports whether a name is that of a link between a leaf and a spine, in either direction.
func fabricLink(name string) bool {
	_, _, ok := metrics.RackOfLink(name)
	return ok
}

func cvTime(d *drawing) error {
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([]loads, len(d.series))
	end := time.Duration(0)
	only := false
	bin := binFor(d.series, -1, mostMoments, fabricLink)
	for i, s := range d.series {
		only = only || len(s.run.Links) > 0
		all[i] = loadsOf(s, d.repeat, bin, fabricLink)
		if len(all[i].links) > 0 {
			end = max(end, all[i].end())
		}
	}
	unit := timesFor(end)
	d.grid(true, true)
	for i, s := range d.series {
		l := all[i]
		if len(l.links) < 2 {
			if only {
				d.note("%s: links.csv has %d links between switches, but an imbalance requires two", s.label, len(l.links))
			}
			continue
		}
		// Without traffic there is no imbalance, and the line has a gap.
		var lines []plotter.XYs
		gap := true
		for k, cv := range l.Imbalance() {
			if math.IsNaN(cv) {
				gap = true
				continue
			}
			if gap {
				lines = append(lines, nil)
			}
			gap = false
			last := &lines[len(lines)-1]
			*last = append(*last, plotter.XY{X: unit.of(l.Bin*time.Duration(k) + l.Bin/2), Y: cv})
		}
		for k, points := range lines {
			if len(points) == 1 { // a single point appears as a short line
				p := points[0]
				half := unit.of(l.Bin) / 2
				points = plotter.XYs{{X: p.X - half, Y: p.Y}, {X: p.X + half, Y: p.Y}}
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return err
			}
			line.LineStyle = s.line()
			d.add(line)
			if k == 0 {
				d.legend = append(d.legend, entry{s.named(len(l.links), "links"), line})
			}
		}
		if len(lines) == 0 {
			d.note("%s: no traffic on its links between switches", s.label)
			continue
		}
		d.note("each point covers %v", l.Bin)
	}
	if len(d.legend) == 0 {
		if only {
			return fmt.Errorf("%w: no arm has two links between switches with traffic in repeat %d", ErrNoData, d.repeat)
		}
		return d.noLinks()
	}
	d.axes(d.since(unit)+fmt.Sprintf(", repeat %d", d.repeat), "Cv of link loads")
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}
