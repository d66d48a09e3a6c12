package plot

import (
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/archive"
	"testbed/results/metrics"
	"testbed/results/report"
)

// Bins of time, at most.
const (
	mostColumns = 200 // of a map
	mostMoments = 60  // of a line
)

// loads is the load of links over time in bins of one length. Utilisation is of a
// link's rate, and NaN where nothing tells it.
type loads struct {
	links []string // in the order of the file
	bin   time.Duration
	used  [][]float64 // by link and bin
}

// loadsOf bins what the links of one repeat of an arm carried.
func loadsOf(s series, repeat, most int, keep func(link string) bool) loads {
	var out loads
	place := map[string]int{}
	end, step := time.Duration(0), time.Duration(0)
	var rows []archive.Load
	for _, l := range s.run.Links {
		if l.Arm != s.arm || l.Repeat != repeat || !keep(l.Link) || l.From < 0 {
			continue
		}
		if _, ok := place[l.Link]; !ok {
			place[l.Link] = len(out.links)
			out.links = append(out.links, l.Link)
		}
		end, step = max(end, l.From+l.Interval), max(step, l.Interval)
		rows = append(rows, l)
	}
	if len(rows) == 0 {
		return out
	}
	// Whole intervals, so that each falls into one bin.
	steps := int64((end + step - 1) / step)
	out.bin = step * time.Duration((steps+int64(most)-1)/int64(most))
	bins := int((end + out.bin - 1) / out.bin)
	out.used = make([][]float64, len(out.links))
	could := make([][]float64, len(out.links))
	for i := range out.used {
		out.used[i], could[i] = make([]float64, bins), make([]float64, bins)
	}
	for _, l := range rows {
		i, k := place[l.Link], int(l.From/out.bin)
		out.used[i][k] += float64(l.Bytes)
		could[i][k] += float64(l.Rate.BytesIn(l.Interval))
	}
	for i := range out.used {
		for k := range out.used[i] {
			out.used[i][k] /= could[i][k] // NaN without a row
		}
	}
	return out
}

// blues go from white to dark, and so they do in grey.
var blues = []color.RGBA{{255, 255, 255, 255}, {198, 219, 239, 255}, {107, 174, 214, 255}, {33, 113, 181, 255}, {8, 48, 107, 255}}

// levels of a colour scale.
const levels = 50

// shade is the colour of a level of levels.
func shade(level int) color.RGBA {
	at := float64(level) / levels * float64(len(blues)-1)
	i := min(int(at), len(blues)-2)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + (at-float64(i))*(float64(b)-float64(a)))) }
	a, b := blues[i], blues[i+1]
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

var unknown = color.RGBA{230, 210, 200, 255}

func (d *drawing) noLinks() error {
	return fmt.Errorf("%w: %s", ErrNoData, d.missing(report.LinksFile))
}

func utilisation(d *drawing) error {
	if err := d.oneArm(); err != nil {
		return err
	}
	s := d.series[0]
	l := loadsOf(s, d.o.Repeat, mostColumns, func(string) bool { return true })
	if len(l.links) == 0 {
		return d.noLinks()
	}
	unit := timesFor(l.bin * time.Duration(len(l.used[0])))
	var cells boxes
	high := 1.0
	ticks := plot.ConstantTicks{}
	// As many names as there is room for.
	every := int(math.Ceil(float64(len(l.links)) * d.o.FontSize / (d.o.Height * 0.7)))
	for i, name := range l.links {
		y := float64(len(l.links) - 1 - i)
		if i%every == 0 {
			ticks = append(ticks, plot.Tick{Value: y, Label: safe(name)})
		}
		level := func(u float64) int {
			if math.IsNaN(u) {
				return -1
			}
			return min(int(math.Round(max(u, 0)*levels)), levels)
		}
		used := l.used[i]
		for from := 0; from < len(used); {
			to := from + 1
			for to < len(used) && level(used[to]) == level(used[from]) {
				to++
			}
			if v := level(used[from]); v != 0 {
				fill := unknown
				if v > 0 {
					fill = shade(v)
				}
				cells = append(cells, box{unit.of(l.bin * time.Duration(from)), unit.of(l.bin * time.Duration(to)), y - 0.5, y + 0.5, fill, false, 0})
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
		d.note("loads of up to %.0f %% of the rate within %v are drawn as 100 %% (a bucket holds a burst)", high*100, l.bin)
	}
	if len(cells) > 0 {
		d.p.Add(cells)
	}
	d.p.X.Min, d.p.X.Max = 0, unit.of(l.bin*time.Duration(len(l.used[0])))
	d.p.Y.Min, d.p.Y.Max = -0.5, float64(len(l.links))-0.5
	d.p.Y.Tick.Marker, d.p.Y.Tick.Length = ticks, vg.Points(1.5)
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	small := d.font(0.9)
	small.Size *= 0.85
	d.p.Y.Tick.Label.Font = small
	d.axes(fmt.Sprintf("Time since the first arrival (%s)", unit.name), "")
	mark := ""
	if s.mark != "" {
		mark = " (" + s.mark + ")"
	}
	d.bar = &colourBar{title: fmt.Sprintf("Load of links, %s%s, repeat %d, n = %d links", s.label, mark, d.o.Repeat, len(l.links)), from: "0", to: "100 %"}
	return nil
}

// colourBar tells what colours mean, above the plot.
type colourBar struct{ title, from, to string }

// draw returns the bar's height.
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

// fabricLink is the name of a link between a leaf and a spine, in either direction.
var fabricLink = regexp.MustCompile(`^(leaf\d+>spine\d+|spine\d+>leaf\d+)$`)

func cvTime(d *drawing) error {
	if err := d.repeatOf(); err != nil {
		return err
	}
	all := make([]loads, len(d.series))
	end := time.Duration(0)
	only := false
	for i, s := range d.series {
		only = only || len(s.run.Links) > 0
		all[i] = loadsOf(s, d.o.Repeat, mostMoments, fabricLink.MatchString)
		if len(all[i].links) > 0 {
			end = max(end, all[i].bin*time.Duration(len(all[i].used[0])))
		}
	}
	unit := timesFor(end)
	d.grid(true, true)
	for i, s := range d.series {
		l := all[i]
		if len(l.links) < 2 {
			if only {
				d.note("%s: links.csv has %d links between switches, and an imbalance needs two", s.label, len(l.links))
			}
			continue
		}
		// Where nothing is under way there is nothing to be uneven, and the line has a gap.
		var lines []plotter.XYs
		gap := true
		for k := range l.used[0] {
			var used []float64
			for _, link := range l.used {
				if !math.IsNaN(link[k]) {
					used = append(used, link[k])
				}
			}
			if len(used) < 2 || slices.Max(used) == 0 {
				gap = true
				continue
			}
			if gap {
				lines = append(lines, nil)
			}
			gap = false
			last := &lines[len(lines)-1]
			*last = append(*last, plotter.XY{X: unit.of(l.bin*time.Duration(k) + l.bin/2), Y: metrics.Cv(used)})
		}
		for k, points := range lines {
			if len(points) == 1 { // a point alone shows as a short line
				p := points[0]
				half := unit.of(l.bin) / 2
				points = plotter.XYs{{X: p.X - half, Y: p.Y}, {X: p.X + half, Y: p.Y}}
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return err
			}
			line.LineStyle = s.line()
			d.p.Add(line)
			if k == 0 {
				d.legend = append(d.legend, entry{s.named(len(l.links), "links"), line})
			}
		}
		if len(lines) == 0 {
			d.note("%s: nothing crossed its links between switches", s.label)
			continue
		}
		d.note("%s: each point is of %v", s.label, l.bin)
	}
	if len(d.legend) == 0 {
		if only {
			return fmt.Errorf("%w: no arm has two links between switches that carried something in repeat %d", ErrNoData, d.o.Repeat)
		}
		return d.noLinks()
	}
	d.axes(fmt.Sprintf("Time since the first arrival (%s), repeat %d", unit.name, d.o.Repeat), "Cv of link loads")
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}
