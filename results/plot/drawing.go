package plot

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/encoding/charmap"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"testbed/results/rundir"
	"testbed/topo/palette"
)

// Formats returns the formats of Draw, as file name extensions.
func Formats() []string { return []string{"pdf", "svg", "png"} }

// drawing is a figure while it is drawn.
type drawing struct {
	figure   Figure
	runs     []*rundir.Run
	o        Options
	repeat   int      // in figures of one repeat
	series   []series // the series that are drawn
	fluid    bool     // all runs are simulations
	p        *plot.Plot
	legend   []entry
	bar      *colourBar
	heading  string // above the legend
	baseline string // of speed-ups, as drawn
	notes    []string
	drawn    []plot.Plotter // in order; tests compare their data with the page's
}

// add adds a part of the figure.
func (d *drawing) add(p plot.Plotter) {
	d.p.Add(p)
	d.drawn = append(d.drawn, p)
}

// entry is one line of the legend.
type entry struct {
	text  string
	thumb plot.Thumbnailer
}

func newDrawing(f Figure, runs []*rundir.Run, o Options) *drawing {
	d := &drawing{figure: f, runs: runs, o: o, p: plot.New()}
	if o.Repeat != nil {
		d.repeat = *o.Repeat
	}
	p := d.p
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = d.font(1)
		a.Label.Padding = vg.Points(1)
		a.Tick.Label.Font = d.font(0.9)
		a.Tick.Length = vg.Points(3)
		a.Padding = vg.Points(2)
		a.Tick.Marker = linearTicks{}
	}
	p.Title.TextStyle.Font = d.font(1.1)
	p.Title.Padding = vg.Points(2)
	p.Title.Text = safe(o.Title)
	return d
}

// font returns the font of all text, at a multiple of the font size. A single face keeps
// the order of fonts in a PDF deterministic.
func (d *drawing) font(size float64) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, font.Length(size*d.o.FontSize))
}

func (d *drawing) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(d.notes, text) {
		d.notes = append(d.notes, text)
	}
}

// axes names both axes. Simulated values are marked as such.
func (d *drawing) axes(x, y string) {
	d.p.X.Label.Text, d.p.Y.Label.Text = x, y
	if d.fluid {
		d.p.X.Label.Text += ", fluid model"
	}
}

// since returns the name of the axis of the times of records. Those of simulations count from their start.
func (d *drawing) since(unit times) string {
	from := "the first arrival"
	if d.fluid {
		from = "the start"
	}
	return fmt.Sprintf("Time since %s (%s)", from, unit.name)
}

// logarithmic makes an axis logarithmic. All its values are positive.
func logarithmic(a *plot.Axis) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
}

var dashes = [][]vg.Length{nil, {4, 1.5}, {1.2, 1.2}, {5, 1.5, 1.2, 1.5}, {2.5, 1.2}}

// glyphs are those of the page as far as there are such: filled ones first, which are visible at any size.
var glyphs = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.PlusGlyph{}, draw.CrossGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}

// colour returns the colour of a thing on paper, as palette.Of.
func colour(thing string) palette.Colour { return palette.Of(thing).Light }

func (s series) colour() palette.Colour { return palette.Arm(s.style).Light }

func (s series) line() draw.LineStyle {
	return draw.LineStyle{Color: s.colour(), Width: vg.Points(1.1), Dashes: dashes[s.style%len(dashes)]}
}

func (s series) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.colour(), Radius: vg.Points(1.7), Shape: glyphs[s.style%len(glyphs)]}
}

func (d *drawing) grid(x, y bool) {
	g := plotter.NewGrid()
	g.Vertical.Width, g.Horizontal.Width = 0, 0
	if x {
		g.Vertical = draw.LineStyle{Color: colour("grid"), Width: vg.Points(0.4)}
	}
	if y {
		g.Horizontal = draw.LineStyle{Color: colour("grid"), Width: vg.Points(0.4)}
	}
	d.add(g)
}

// mostLabel is the maximum length of names in runes; a legend may shorten them further.
const mostLabel = 48

// safe returns a name that can be drawn: one line of printable characters, not too long.
func safe(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, name)
	return shorten(name, mostLabel)
}

func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:max(most-1, 0)]) + "…"
	}
	return s
}

// fit shortens a text to at most the width most.
func fit(sty text.Style, s string, most vg.Length) string {
	for n := len([]rune(s)); n > 1 && sty.Width(s) > most; n-- {
		s = shorten(s, n-1)
	}
	return s
}

// Parts of a figure.
const (
	margin    = 2    // points around all
	thumbWide = 1.7  // width of a legend's thumbnail, in font sizes
	leastPlot = 0.35 // share of the height for the plot itself
)

// write draws title, legend and plot, and encodes them.
func (d *drawing) write(w io.Writer, format string) error {
	width, height := vg.Points(d.o.Width), vg.Points(d.o.Height)
	var out vg.CanvasWriterTo
	var canvas vg.CanvasSizer
	var lengths []vg.Length
	switch format {
	case "svg":
		c := vgsvg.New(width, height)
		out, canvas = c, measured{c, &lengths}
	case "pdf":
		c := vgpdf.New(width, height)
		out, canvas = c, western{c}
	case "png":
		if px := d.o.Width * d.o.Height * float64(d.o.DPI*d.o.DPI) / (Inch * Inch); px > mostPixels {
			return fmt.Errorf("%.0f million pixels: must be at most %.0f million (choose a smaller size or fewer dots per inch)", px/1e6, mostPixels/1e6)
		}
		c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(d.o.DPI))}
		out, canvas = c, c
	default:
		return fmt.Errorf("format %q: must be one of %s", format, strings.Join(Formats(), ", "))
	}
	dc := draw.New(canvas)
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	d.p.BackgroundColor = nil
	dc = draw.Crop(dc, margin, -margin-2, margin, -margin)
	if t := d.p.Title; t.Text != "" {
		t.Text = fit(t.TextStyle, t.Text, dc.Max.X-dc.Min.X)
		dc.FillText(t.TextStyle, vg.Point{X: dc.Center().X, Y: dc.Max.Y}, t.Text)
		dc.Max.Y -= t.TextStyle.Height(t.Text) + t.Padding
		d.p.Title.Text = ""
	}
	if d.heading != "" {
		sty := text.Style{Color: color.Black, Font: d.font(0.9), XAlign: draw.XLeft, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
		size := vg.Points(d.o.FontSize)
		dc.FillText(sty, vg.Point{X: dc.Min.X, Y: dc.Max.Y - size*0.6 + sty.FontExtents().Descent/2}, fit(sty, d.heading, dc.Max.X-dc.Min.X))
		dc.Max.Y -= size * 1.2
	}
	dc.Max.Y -= d.drawLegend(dc)
	if d.bar != nil {
		dc.Max.Y -= d.bar.draw(d, dc)
	}
	if float64(dc.Max.Y-dc.Min.Y) < leastPlot*d.o.Height {
		return fmt.Errorf("%w: a legend of %d lines (choose fewer --arms, a larger --figure-height or a smaller --font-size)", ErrNoRoom, len(d.legend))
	}
	for _, a := range []*plot.Axis{&d.p.X, &d.p.Y} { // the plot library would begin an axis of zeros at -1
		if a.Min == 0 && !(a.Max > 0) {
			a.Max = 1
		}
	}
	d.narrow(dc)
	d.p.Draw(d.drawLabels(dc))
	var b bytes.Buffer
	if _, err := out.WriteTo(&b); err != nil {
		return fmt.Errorf("encode %s: %w", format, err)
	}
	data := b.Bytes()
	if format == "pdf" {
		data = undated(data)
	}
	if format == "svg" {
		data = bytes.ReplaceAll(data, []byte(family+";"), []byte(family+",Arimo,Helvetica,Arial,sans-serif;"))
		data = textTags.ReplaceAllFunc(data, func(tag []byte) []byte {
			length := lengths[0].Points()
			lengths = lengths[1:]
			return fmt.Appendf(nil, `%s textLength="%.4g" lengthAdjust="spacingAndGlyphs"`, tag, length)
		})
	}
	_, err := w.Write(data)
	return err
}

// drawLabels draws the labels of the axes and returns the rest of the canvas for the plot.
// The plot library would reserve room next to a logarithmic axis for a label at the
// arithmetic middle.
func (d *drawing) drawLabels(dc draw.Canvas) draw.Canvas {
	left := dc
	x, y := &d.p.X.Label, &d.p.Y.Label
	if x.Text != "" {
		left.Min.Y += x.TextStyle.Height(x.Text) + x.TextStyle.FontExtents().Descent + x.Padding
	}
	if y.Text != "" {
		left.Min.X += y.TextStyle.Height(y.Text) + y.TextStyle.FontExtents().Descent + y.Padding
	}
	xText, yText := x.Text, y.Text
	x.Text, y.Text = "", ""
	at := d.p.DataCanvas(left)
	// Centred below the axis, but within the figure.
	half := x.TextStyle.Width(xText) / 2
	mid := max(min(at.Center().X, dc.Max.X-half), dc.Min.X+half)
	dc.FillText(x.TextStyle, vg.Point{X: mid, Y: dc.Min.Y + x.TextStyle.FontExtents().Descent}, xText)
	sty := y.TextStyle
	sty.Rotation = math.Pi / 2
	half = y.TextStyle.Width(yText) / 2
	mid = max(min(at.Center().Y, dc.Max.Y-half), dc.Min.Y+half)
	dc.FillText(sty, vg.Point{X: dc.Min.X + y.TextStyle.Height(yText), Y: mid}, yText)
	return left
}

// narrow shortens labels that do not fit in the figure.
func (d *drawing) narrow(dc draw.Canvas) {
	if ticks, ok := d.p.Y.Tick.Marker.(plot.ConstantTicks); ok {
		short := slices.Clone(ticks)
		for i, t := range short {
			lines := strings.Split(t.Label, "\n")
			for k := range lines {
				lines[k] = fit(d.p.Y.Tick.Label, lines[k], (dc.Max.X-dc.Min.X)*0.4)
			}
			short[i].Label = strings.Join(lines, "\n")
		}
		d.p.Y.Tick.Marker = d.apart(short, dc)
	}
	if ticks, ok := d.p.X.Tick.Marker.(plot.ConstantTicks); ok {
		d.p.X.Tick.Marker = d.apartAcross(ticks, dc)
	}
	d.p.X.Label.Text = fit(d.p.X.Label.TextStyle, d.p.X.Label.Text, dc.Max.X-dc.Min.X)
	d.p.Y.Label.Text = fit(d.p.Y.Label.TextStyle, d.p.Y.Label.Text, dc.Max.Y-dc.Min.Y)
}

// apart returns the ticks of the vertical axis without those whose label would touch the one above it.
func (d *drawing) apart(ticks plot.ConstantTicks, dc draw.Canvas) (out plot.ConstantTicks) {
	below := dc
	if x := &d.p.X.Label; x.Text != "" {
		below.Min.Y += x.TextStyle.Height(x.Text) + x.TextStyle.FontExtents().Descent + x.Padding
	}
	at := d.p.DataCanvas(below)
	slices.SortStableFunc(ticks, func(a, b plot.Tick) int { return cmp.Compare(b.Value, a.Value) })
	sty := d.p.Y.Tick.Label
	free := vg.Length(math.Inf(1)) // the lower end of the last label
	for _, t := range ticks {
		mid, half := at.Y(d.p.Y.Norm(t.Value)), sty.Height(t.Label)/2
		if mid+half > free {
			continue
		}
		out, free = append(out, t), mid-half
	}
	return out
}

// apartAcross returns the ticks of the horizontal axis without the labels that would touch the one before.
func (d *drawing) apartAcross(ticks plot.ConstantTicks, dc draw.Canvas) plot.ConstantTicks {
	at, sty := d.p.DataCanvas(dc), d.p.X.Tick.Label
	out := slices.Clone(ticks)
	slices.SortStableFunc(out, func(a, b plot.Tick) int { return cmp.Compare(a.Value, b.Value) })
	free := vg.Length(math.Inf(-1)) // the right end of the last label
	for i, t := range out {
		if t.Label == "" {
			continue
		}
		mid, half := at.X(d.p.X.Norm(t.Value)), sty.Width(t.Label)/2
		if mid-half < free {
			out[i].Label = ""
			continue
		}
		free = mid + half + sty.Font.Size/2
	}
	return out
}

// drawLegend draws the legend above the plot, in as many columns as fit, and returns its
// height.
func (d *drawing) drawLegend(dc draw.Canvas) vg.Length {
	if len(d.legend) == 0 {
		return 0
	}
	sty := text.Style{Color: color.Black, Font: d.font(0.9), XAlign: draw.XLeft, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	size := vg.Points(d.o.FontSize)
	thumb, gap, step := thumbWide*size, size/2, size*1.2
	room := dc.Max.X - dc.Min.X
	var wide []vg.Length
	for columns := len(d.legend); columns >= 1; columns-- {
		wide = make([]vg.Length, columns)
		sum := vg.Length(0)
		for i, e := range d.legend {
			wide[i%columns] = max(wide[i%columns], thumb+gap/2+sty.Width(e.text)+gap*0.8)
		}
		for _, w := range wide {
			sum += w
		}
		if sum-gap*0.8 <= room {
			break
		}
	}
	columns := len(wide)
	for i, e := range d.legend {
		x := dc.Min.X
		for _, w := range wide[:i%columns] {
			x += w
		}
		y := dc.Max.Y - step*vg.Length(i/columns) - step/2
		icon := &draw.Canvas{Canvas: dc.Canvas, Rectangle: vg.Rectangle{Min: vg.Point{X: x, Y: y - size*0.35}, Max: vg.Point{X: x + thumb, Y: y + size*0.35}}}
		e.thumb.Thumbnail(icon)
		dc.FillText(sty, vg.Point{X: x + thumb + gap/2, Y: y + sty.FontExtents().Descent/2}, fit(sty, e.text, room-thumb-gap/2))
	}
	rows := (len(d.legend) + columns - 1) / columns
	return step*vg.Length(rows) + vg.Points(2)
}

// measured notes the lengths of texts, so that a program that has other fonts draws them as long.
type measured struct {
	*vgsvg.Canvas
	lengths *[]vg.Length
}

func (c measured) FillString(face font.Face, pt vg.Point, s string) {
	*c.lengths = append(*c.lengths, face.Width(s))
	c.Canvas.FillString(face, pt, s)
}

var textTags = regexp.MustCompile(`<text x="[^"]*" y="[^"]*"`)

// western converts text to code page 1252, the encoding of the fonts embedded in a PDF.
// Other characters become question marks.
type western struct{ *vgpdf.Canvas }

func (c western) FillString(face font.Face, pt vg.Point, s string) {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		x, ok := charmap.Windows1252.EncodeRune(r)
		if !ok {
			x = '?'
		}
		b = append(b, x)
	}
	c.Canvas.FillString(face, pt, string(b))
}

var dates = regexp.MustCompile(`/(CreationDate|ModDate) \(D:\d{14}\)`)

// family is the start of a font reference in an SVG, which does not embed the font. Fonts
// with the same widths are added as alternatives, since many machines have one of those.
// Labels cannot contain it: their quotes are escaped.
const family = `style="font-family:Liberation Sans`

// undated replaces the creation dates of a PDF by a fixed one of the same length, so that
// the offsets in its table remain valid.
func undated(pdf []byte) []byte {
	return dates.ReplaceAll(pdf, []byte("/$1 (D:20000101000000)"))
}

// linearTicks labels a few round numbers: multiples of a number, unless it is 0.
type linearTicks struct{ of float64 }

// Ticks returns the marks of an axis.
func (t linearTicks) Ticks(low, high float64) []plot.Tick {
	if !(low < high) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, by := range []float64{0.1, 0.2, 0.25, 0.5, 1, 2} {
		if (high-low)/(step*by) <= 6 && (t.of == 0 || math.Mod(step*by, t.of) == 0) {
			step *= by
			break
		}
	}
	step = max(step, t.of)
	var ticks []plot.Tick
	decimals := 0
	for x := step; decimals < 12 && math.Abs(x-math.Round(x)) > 1e-6*math.Abs(x); x *= 10 {
		decimals++
	}
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		v := min(max(i*step, low), high)
		label := strconv.FormatFloat(i*step+0, 'f', decimals, 64)
		if math.Abs(i*step) >= 1e6 {
			label = strconv.FormatFloat(i*step, 'g', 4, 64)
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}

// whole labels counts and numbers of things.
var whole = linearTicks{of: 1}

// logTicks labels powers of ten, and their multiples by 2 and 5 if there are few.
type logTicks struct{}

// Ticks returns the marks of an axis.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	if !(0 < low && low < high) {
		return nil
	}
	decades := math.Log10(high / low)
	if decades < 0.7 {
		return linearTicks{}.Ticks(low, high)
	}
	labelled := []int{1}
	if decades < 2.2 {
		labelled = []int{1, 2, 5}
	}
	every := max(1, int(math.Ceil(decades/7)))
	var ticks []plot.Tick
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for i := 1; i < 10; i++ {
			v := float64(i) * math.Pow(10, float64(e))
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: min(max(v, low), high)}
			if slices.Contains(labelled, i) && e%every == 0 {
				t.Label = strconv.FormatFloat(v, 'g', 3, 64)
				if e >= 0 && e < 6 {
					t.Label = strconv.FormatFloat(v, 'f', 0, 64)
				}
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
