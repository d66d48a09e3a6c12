package plot

import (
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/topo/palette"
)

// mostUsers is the number of users with a colour of their own: those with most slot time.
const mostUsers = 7

// records returns the jobs and attempts of a series in the selected repeat.
func (d *drawing) records(s series) (r flows.Records, err error) {
	for i := range s.run.Attempts {
		if a := &s.run.Attempts[i]; a.Arm == s.arm && a.Repeat == d.repeat {
			r.Attempts = append(r.Attempts, a.Record())
		}
	}
	for _, j := range s.run.Jobs {
		if j.Arm == s.arm && j.Repeat == d.repeat {
			r.Jobs = append(r.Jobs, flows.JobRecord{Job: j.Job, User: j.User})
		}
	}
	if len(r.Attempts) == 0 {
		return r, fmt.Errorf("%w: no attempt of a task in repeat %d of %s", ErrNoData, d.repeat, s.label)
	}
	return r, nil
}

// Ends of attempts that a Gantt chart marks: of tasks with backups, the first to commit.
const (
	won    = "committed first"
	copied = "copied"
	lost   = "killed or failed"
)

// gantt draws the attempts of one arm and repeat by slot, with their phases.
func gantt(d *drawing) error {
	if err := d.oneArm(); err != nil {
		return err
	}
	s := d.series[0]
	r, err := d.records(s)
	if err != nil {
		return err
	}
	slots := figures.SlotsOf(r.Attempts)
	row := map[figures.Slot]int{}
	for i, slot := range slots {
		row[slot] = i
	}
	var last time.Duration
	for i := range r.Attempts {
		last = max(last, r.Attempts[i].End)
	}
	unit := timesFor(last)
	d.grid(true, false)
	phases := figures.PhaseNames()
	parts := make([]boxes, len(phases))
	ended := map[string]*marks{}
	mark := func(name string, shape draw.GlyphDrawer, at point) {
		if ended[name] == nil {
			ended[name] = &marks{shape: shape}
		}
		ended[name].at = append(ended[name].at, at)
	}
	var backups underlines
	roles := metrics.RolesOf(r.Attempts)
	for i := range r.Attempts {
		a := &r.Attempts[i]
		y := -float64(row[figures.SlotOf(a)])
		for _, x := range figures.Stretches(a) {
			fill := colour(phases[x.Phase])
			if a.Outcome != flows.Committed {
				fill = fill.Mix(colour("ground"), 0.55)
			}
			parts[x.Phase] = append(parts[x.Phase], box{unit.of(x.From), unit.of(x.To), y - 0.42, y + 0.42, fill, false, vg.Points(0.2)})
		}
		end := point{unit.of(a.End), y}
		switch {
		case a.Outcome == flows.Copied:
			mark(copied, draw.RingGlyph{}, end)
		case a.Outcome != flows.Committed:
			mark(lost, draw.CrossGlyph{}, end)
		case roles[i] != metrics.Single:
			mark(won, draw.PyramidGlyph{}, end)
		}
		if roles[i] == metrics.Backup {
			backups.boxes = append(backups.boxes, box{unit.of(a.Start), unit.of(a.End), y - 0.42, y - 0.26, color.Black, false, vg.Points(0.2)})
		}
	}
	for k, name := range phases {
		if len(parts[k]) > 0 {
			d.add(parts[k])
			d.legend = append(d.legend, entry{name, swatch{colour(name)}})
		}
	}
	if n := len(backups.boxes); n > 0 {
		d.add(backups)
		d.legend = append(d.legend, entry{fmt.Sprintf("backup, n = %d", n), backups})
	}
	for _, name := range []string{won, copied, lost} {
		if m := ended[name]; m != nil {
			d.add(m)
			d.legend = append(d.legend, entry{fmt.Sprintf("%s, n = %d", name, len(m.at)), m})
		}
	}
	ticks := plot.ConstantTicks{}
	hosts := slotsByHost(slots)
	first := 0
	for i, n := range hosts {
		ticks = append(ticks, plot.Tick{Value: -(float64(first) + float64(n-1)/2), Label: safe(slots[first].Host)})
		if i > 0 {
			d.add(rule{at: 0.5 - float64(first)})
		}
		first += n
	}
	d.p.Y.Tick.Marker = ticks
	d.p.Y.Tick.Length = 0
	d.heading = fmt.Sprintf("%s, in %d slots, repeat %d", s.named(len(r.Attempts), "attempts"), len(slots), d.repeat)
	d.axes(d.since(unit), "")
	d.p.X.Min, d.p.Y.Min, d.p.Y.Max = 0, 0.5-float64(len(slots)), 0.5
	d.p.Y.Padding = 0
	return nil
}

// slotsByHost returns the number of slots of each host.
func slotsByHost(slots []figures.Slot) (out []int) {
	for i, x := range slots {
		if i == 0 || x.Host != slots[i-1].Host {
			out = append(out, 0)
		}
		out[len(out)-1]++
	}
	return out
}

type point struct{ x, y float64 }

// marks are the ends of attempts with the same outcome.
type marks struct {
	at    []point
	shape draw.GlyphDrawer
}

// DataRange returns the range of the points.
func (m *marks) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = m.at[0].x, m.at[0].x, m.at[0].y, m.at[0].y
	for _, p := range m.at {
		xmin, xmax, ymin, ymax = min(xmin, p.x), max(xmax, p.x), min(ymin, p.y), max(ymax, p.y)
	}
	return xmin, xmax, ymin, ymax
}

// GlyphBoxes returns the room for the marks.
func (m *marks) GlyphBoxes(p *plot.Plot) (out []plot.GlyphBox) {
	for _, at := range m.at {
		out = append(out, plot.GlyphBox{X: p.X.Norm(at.x), Y: p.Y.Norm(at.y), Rectangle: m.glyph().Rectangle()})
	}
	return out
}

func (m *marks) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: color.Black, Radius: vg.Points(1.6), Shape: m.shape}
}

// Plot draws the marks.
func (m *marks) Plot(c draw.Canvas, of *plot.Plot) {
	x, y := of.Transforms(&c)
	for _, p := range m.at {
		c.DrawGlyph(m.glyph(), vg.Point{X: x(p.x), Y: y(p.y)})
	}
}

// Thumbnail draws one mark.
func (m *marks) Thumbnail(c *draw.Canvas) { c.DrawGlyph(m.glyph(), c.Center()) }

// underlines mark bars with a line along their lower edge.
type underlines struct{ boxes }

// Thumbnail draws a line.
func (underlines) Thumbnail(c *draw.Canvas) {
	c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: vg.Points(1)}, c.Min.X, c.Min.Y, c.Max.X, c.Min.Y)
}

// userShares draws the slots that the jobs of each user have over time, in one arm and repeat.
func userShares(d *drawing) error {
	if err := d.oneArm(); err != nil {
		return err
	}
	s := d.series[0]
	r, err := d.records(s)
	if err != nil {
		return err
	}
	var last time.Duration
	for i := range r.Attempts {
		last = max(last, r.Attempts[i].End)
	}
	bin := figures.RoundBin(last, figures.MostMoments)
	users := figures.TopUsers(metrics.SharesOf(&r, bin), mostUsers)
	unit := timesFor(last)
	d.grid(false, true)
	low, high := make([]float64, len(users[0].Slots)), 0.0
	for i, u := range users {
		a := area{bin: unit.of(bin), low: slices.Clone(low), fill: palette.Arm(i).Light}
		if i == mostUsers {
			a.fill = colour("grey")
		}
		for k, x := range u.Slots {
			low[k] += x
		}
		a.high = slices.Clone(low)
		high = slices.Max(append(low, high))
		d.add(a)
		name := u.User
		if name == "" {
			name = "(no user)"
		}
		d.legend = append(d.legend, entry{safe(name), swatch{a.fill}})
	}
	d.heading = fmt.Sprintf("%s, repeat %d", s.named(len(r.Attempts), "attempts"), d.repeat)
	d.axes(d.since(unit), "Slots in use")
	d.p.Y.Tick.Marker = whole
	d.p.X.Min, d.p.Y.Min, d.p.X.Max, d.p.Y.Max = 0, 0, unit.of(bin)*float64(len(low)), high*1.04
	d.p.X.Padding, d.p.Y.Padding = 0, 0
	d.note("each step covers %v", bin)
	return nil
}

// extraSlots draws the slots that attempts beyond the first of a task have over time, in one repeat of each arm.
func extraSlots(d *drawing) error {
	if err := d.repeatOf(); err != nil {
		return err
	}
	all, end, extra := make([]flows.Records, len(d.series)), time.Duration(0), false
	for i, s := range d.series {
		r, err := d.records(s)
		if err != nil {
			return err
		}
		for k := range r.Attempts {
			end = max(end, r.Attempts[k].End)
		}
		all[i] = r
		extra = extra || slices.ContainsFunc(metrics.RolesOf(r.Attempts), func(x metrics.Role) bool { return x == metrics.Backup })
	}
	if !extra {
		return fmt.Errorf("%w: no task has a clone or backup in repeat %d", ErrNoData, d.repeat)
	}
	bin, unit := figures.RoundBin(end, figures.MostMoments), timesFor(end)
	d.grid(true, true)
	for i, s := range d.series {
		var points plotter.XYs
		for k, n := range metrics.ExtraSlotsOf(&all[i], bin) {
			points = append(points, plotter.XY{X: unit.of(bin * time.Duration(k)), Y: n}, plotter.XY{X: unit.of(bin * time.Duration(k+1)), Y: n})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.add(line)
		d.legend = append(d.legend, entry{s.named(len(all[i].Attempts), "attempts"), line})
	}
	d.axes(d.since(unit)+fmt.Sprintf(", repeat %d", d.repeat), "Slots of clones and backups")
	d.p.Y.Tick.Marker = whole
	d.p.X.Min, d.p.Y.Min = 0, 0
	d.note("each step covers %v", bin)
	return nil
}

// jobParts draws the average job time of each arm by part.
func jobParts(d *drawing) error {
	var kept []series
	var second []string
	var sums [][]time.Duration
	longest := time.Duration(0)
	for _, s := range d.series {
		sum, n, total := make([]time.Duration, len(figures.Parts)), 0, time.Duration(0)
		for i := range s.run.Jobs {
			j := &s.run.Jobs[i]
			if j.Arm != s.arm || j.Waiting == nil {
				continue
			}
			n++
			total += j.JobTime
			of := j.Parts()
			for k, p := range figures.Parts {
				sum[k] += *of[p.Part]
			}
		}
		if n == 0 {
			d.note("%s: no job has parts", s.label)
			continue
		}
		for k := range sum {
			sum[k] /= time.Duration(n)
		}
		longest = max(longest, total/time.Duration(n))
		kept, sums, second = append(kept, s), append(sums, sum), append(second, fmt.Sprintf("n = %d", n))
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: no job in %s has parts (only jobs of tasks have them)", ErrNoData, summary.JobsFile)
	}
	d.series = kept
	unit := timesFor(longest)
	names, values := make([]string, len(figures.Parts)), make([][]float64, len(kept))
	for k, p := range figures.Parts {
		names[k] = p.Name
		for i := range kept {
			values[i] = append(values[i], unit.of(sums[i][k]))
		}
	}
	d.axes(fmt.Sprintf("Average job time (%s)", unit.name), "")
	d.stack(names, values)
	d.rows(second)
	return nil
}

// locality draws the shares of maps by where their replica was, for each arm and, if there is room,
// class of jobs.
func locality(d *drawing) error {
	var kept []series
	var labels []string
	var values [][]float64
	rows := 0
	for _, s := range d.series {
		if t := s.run.Arm(s.arm).Tasks; t != nil {
			rows += 1 + len(t.ByMaps)
		}
	}
	room := float64(rows)*d.o.FontSize <= 0.75*d.o.Height
	if !room {
		d.note("there is no room for %d rows by size of the job (a larger --figure-height or fewer --arms show them)", rows)
	}
	for _, s := range d.series {
		t := s.run.Arm(s.arm).Tasks
		if t == nil || t.Locality == nil {
			d.note("%s: no task read a block", s.label)
			continue
		}
		add := func(label string, l summary.Locality) {
			if n := fmt.Sprintf("n = %d", l.N); room {
				label += ", " + n
			} else {
				label = n // below the name of the arm
			}
			kept, labels = append(kept, s), append(labels, label)
			values = append(values, []float64{100 * l.Node, 100 * l.Rack, 100 * l.OffRack})
		}
		label := s.label
		if s.mark != "" {
			label += " (" + s.mark + ")"
		}
		add(label, *t.Locality)
		for _, l := range t.ByMaps {
			if room {
				add(l.Name(), l.Locality)
			}
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: no task read a block", ErrNoData)
	}
	d.series = kept
	d.axes("Maps that committed (%)", "")
	d.stack([]string{flows.NodeLocal, flows.RackLocal, flows.OffRack}, values)
	d.p.X.Max = 100
	d.rows(labels)
	if room {
		d.oneLine(labels)
	}
	return nil
}
