package htmlreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"testbed/results/figures"
	"testbed/topo"
	"testbed/topo/palette"
	"testbed/topo/units"
	"testbed/topo/words"
)

// views is the template's data besides Data: everything that needs no script.
type views struct {
	charts   charts
	Compared bool   // whether there are arms to compare
	Progress bool   // whether any coflow has the progress of its flows
	NoPairs  string // why there are no speed-ups; "" if there are
	Picture  *picture
	Loads    *Table // utilisation of links
	Disks    *Table // bytes stored by host
	// Left states what limits left out, by section.
	Left map[string][]string
}

// picture is the drawing of the fabric.
type picture struct {
	Width, Height float64
	Lines         []line
	Boxes         []box
	What          string // description for screen readers
}

type line struct {
	Link           topo.LinkID
	X1, Y1, X2, Y2 float64
	Title          string
}

type box struct {
	X, Y, W, H, TextX, TextY float64
	Class, Name              string
	Down                     bool // whether the name is written downward
}

func newViews(d *Data) (*views, error) {
	v := &views{Left: map[string][]string{}}
	v.charts = charts{Arms: []armName{}, CDFs: d.cdfs(), Speedups: []speedups{}, Timeline: d.timelines(), Balance: []balance{}}
	for _, a := range d.Arms {
		v.charts.Arms = append(v.charts.Arms, armName{a.Name, a.Void, a.mark()})
	}
	for _, c := range causes {
		v.charts.Causes = append(v.charts.Causes, string(c))
		v.charts.Classes = append(v.charts.Classes, palette.Class(string(c)))
	}
	for _, t := range v.charts.Timeline {
		v.Progress = v.Progress || slices.ContainsFunc(t.Bars, func(b bar) bool { return len(b.Flows) > 0 })
	}
	v.charts.Gantt, v.charts.Shares = d.taskCharts()
	v.charts.Phases = figures.PhaseNames()
	for _, name := range v.charts.Phases {
		v.charts.Fills = append(v.charts.Fills, palette.Variable(name))
	}
	v.compare(d)
	if b, ok := d.gather(); ok {
		v.charts.Links, v.charts.Balance = d.loads(b), d.balances()
		v.links(d)
	}
	v.disks(d)
	v.leftOut(d)
	from, to := d.span()
	v.charts.Span = [2]float64{us(from), us(to)}
	var err error
	v.charts.Series, err = d.series(func(format string, args ...any) {
		v.Left["series"] = append(v.Left["series"], fmt.Sprintf(format, args...))
	})
	return v, err
}

// OverTime reports whether the page has charts over time.
func (v *views) OverTime() bool {
	c := &v.charts
	return c.Series != nil || c.Links != nil || len(c.Gantt)+len(c.Timeline)+len(c.Balance) > 0
}

// mark returns the arm's verdict if figures must state it.
func (a *Arm) mark() string {
	if a.Level == "pass" {
		return ""
	}
	return a.Level
}

func (v *views) compare(d *Data) {
	if len(d.Arms) < 2 || len(v.charts.CDFs) == 0 || v.charts.CDFs[0].ID != "cct" {
		return
	}
	v.Compared, v.charts.Speedups = true, d.speedups()
	switch {
	case d.Arms[0].Void:
		v.NoPairs = fmt.Sprintf("The baseline %s is void, so there are no speed-ups.", d.Arms[0].Name)
	case len(v.charts.Speedups) == 0:
		v.NoPairs = "No arm completed a coflow that the baseline completed too."
	}
}

// leftOut states what limits left out.
func (v *views) leftOut(d *Data) {
	say := func(id, format string, args ...any) { v.Left[id] = append(v.Left[id], fmt.Sprintf(format, args...)) }
	for _, c := range v.charts.CDFs {
		for _, x := range c.Curves {
			if x.N > len(x.Times) {
				say(c.ID, "%s: the curve shows %d quantiles of %d items.", d.Arms[x.Arm].Name, len(x.Times), x.N)
			}
		}
	}
	for _, s := range v.charts.Speedups {
		if s.N > len(s.Pair) {
			say("speedups", "%s: %d of %d coflows are drawn, evenly spread by speed-up.", d.Arms[s.Arm].Name, len(s.Pair), s.N)
		}
	}
	for _, t := range v.charts.Timeline {
		if t.Cut > 0 {
			say("progress", "%s, repeat %d: this page has the progress of the %d slowest of %d coflows; progress.csv has all.", d.Arms[t.Arm].Name, t.Repeat, len(t.Bars)-t.Cut, len(t.Bars))
		}
		if t.N > len(t.Bars) {
			say("timeline", "%s, repeat %d: the %d longest of %d coflows are drawn.", d.Arms[t.Arm].Name, t.Repeat, len(t.Bars), t.N)
		}
	}
	v.leftOutTasks(d, say)
	d.shown(func(_ int, a *Arm) {
		if n := len(a.Repeats); n > maxRepeats {
			for _, id := range []string{"timeline", "links", "gantt"} {
				say(id, "%s: the first %d of %d repeats are drawn.", a.Name, maxRepeats, n)
			}
		}
	})
}

func figure(format string, args ...any) Cell {
	return Cell{Text: fmt.Sprintf(format, args...), Figure: true}
}

func text(s string) Cell { return Cell{Text: s} }

// none stands for a missing value.
const none = "–"

// links adds the picture of the fabric and the table of link utilisation.
func (v *views) links(d *Data) {
	var fabric *topo.Fabric
	observed := map[topo.LinkID]bool{}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			if fabric == nil {
				fabric = r.Fabric
			}
			for _, l := range r.Links {
				observed[l.Link] = observed[l.Link] || l.Observed
			}
		}
	})
	if fabric != nil && fabric.Hosts() <= maxPicture {
		v.Picture = newPicture(fabric)
	} else if fabric != nil {
		v.Left["links"] = append(v.Left["links"], fmt.Sprintf("The fabric has %d hosts, too many for a picture.", fabric.Hosts()))
	}
	shown := d.linksShown()
	all := map[topo.LinkID]bool{}
	t := &Table{Title: "Link utilisation", Head: []string{"link", "rate", "source"},
		Notes: []string{"Mean: bytes of frames over the link's capacity from the start of the repeat to its last packet, averaged over the repeats. Peak: the busiest interval of links.csv in any repeat. " +
			"Drops: packets of all kinds that the queue ahead of the link dropped in all repeats, counted by the kernel; ≈ marks an estimate from captures, for payload packets. The utilisation of a link that was not captured is inferred from the traffic of the hosts and the paths of their flows."}}
	d.shown(func(_ int, a *Arm) { t.Head = append(t.Head, a.Name+": mean", "peak", "drops") })
	rows := map[topo.LinkID]*[]Cell{}
	for _, l := range shown {
		from := "inferred"
		if observed[l.Link] {
			from = "captured"
		}
		rows[l.Link] = &[]Cell{text(l.Name), figure("%v", l.Rate.Rounded()), text(from)}
	}
	d.shown(func(_ int, a *Arm) {
		type load struct {
			mean, peak float64
			n, drops   int
			estimated  bool
		}
		loads := map[topo.LinkID]load{}
		for _, r := range a.Repeats {
			uses := figures.LinkUses(r.Links, d.LinkInterval)
			for k, l := range r.Links {
				all[l.Link] = true
				x := loads[l.Link]
				loads[l.Link] = load{x.mean + uses[k].Mean, max(x.peak, uses[k].Peak), x.n + 1, x.drops + l.Drops, x.estimated || !l.Counted}
			}
		}
		for id, row := range rows {
			if x, ok := loads[id]; ok {
				*row = append(*row, figure("%s", units.Percent(x.mean/float64(x.n), 1)), figure("%s", units.Percent(x.peak, 1)), figure("%s%d", map[bool]string{true: "≈"}[x.estimated], x.drops))
			} else {
				*row = append(*row, figure(none), figure(none), figure(none))
			}
		}
	})
	for _, l := range shown {
		t.Rows = append(t.Rows, *rows[l.Link])
	}
	if n := len(all); n > len(shown) {
		v.Left["links"] = append(v.Left["links"], fmt.Sprintf("%d of %d links are shown: those between leaves and spines, then the busiest.", len(shown), n))
	}
	v.Loads = t
}

// Sizes of the picture of the fabric in pixels.
const (
	hostW, hostH   = 24.0, 58.0
	switchW        = 66.0
	boxH           = 24.0
	rackGap        = 20.0
	tier           = 120.0
	pictureMargin  = 8.0
	directionsPart = 2.6 // half the distance between a cable's two lines
)

func newPicture(f *topo.Fabric) *picture {
	perRack := f.Hosts() / f.Racks()
	rackW := max(float64(perRack)*hostW, switchW) + rackGap
	p := &picture{Width: 2*pictureMargin + max(float64(f.Racks())*rackW, float64(f.Spines())*(switchW+rackGap))}
	p.What = fmt.Sprintf("%s, %s, %s", words.Plural(f.Spines(), "spine", "spines"), words.Plural(f.Racks(), "leaf", "leaves"), words.Plural(f.Hosts(), "host", "hosts"))
	spineY, leafY := pictureMargin, pictureMargin
	if f.Spines() > 0 {
		leafY += tier
	}
	hostY := leafY + tier
	p.Height = hostY + hostH + pictureMargin
	spineX := func(s int) float64 { return p.Width * (float64(s) + 0.5) / float64(f.Spines()) }
	leafX := func(r topo.RackID) float64 {
		return p.Width/2 + (float64(r)-float64(f.Racks()-1)/2)*rackW
	}
	hostX := func(h topo.HostID) float64 {
		r := f.RackOf(h)
		return leafX(r) + (float64(h-f.HostIn(r, 0))-float64(perRack-1)/2)*hostW
	}
	// A cable is two lines; the one on the right carries traffic in the direction of travel.
	cable := func(up, down topo.LinkID, x1, y1, x2, y2 float64) {
		dx := directionsPart
		for _, l := range []struct {
			id topo.LinkID
			by float64
		}{{up, dx}, {down, -dx}} {
			title := f.LinkName(l.id) + ", " + f.Link(l.id).Rate.Rounded().String()
			p.Lines = append(p.Lines, line{l.id, digits(x1+l.by, 1), y1, digits(x2+l.by, 1), y2, title})
		}
	}
	for r := range topo.RackID(f.Racks()) {
		for s := range f.Spines() {
			cable(f.LeafUp(r, s), f.LeafDown(r, s), leafX(r), leafY, spineX(s), spineY+boxH)
		}
	}
	for h := range topo.HostID(f.Hosts()) {
		cable(f.HostUp(h), f.HostDown(h), hostX(h), hostY, leafX(f.RackOf(h))+(hostX(h)-leafX(f.RackOf(h)))/4, leafY+boxH)
	}
	node := func(x, y, w, h float64, class, name string) {
		down := w < h
		b := box{X: digits(x-w/2, 1), Y: y, W: w, H: h, TextX: digits(x, 1), TextY: y + h/2 + 4, Class: class, Name: name, Down: down}
		if down {
			b.TextX, b.TextY = digits(x-4, 1), y+h/2
		}
		p.Boxes = append(p.Boxes, b)
	}
	for s := range f.Spines() {
		node(spineX(s), spineY, switchW, boxH, "switch", topo.SpineName(s))
	}
	for r := range topo.RackID(f.Racks()) {
		node(leafX(r), leafY, switchW, boxH, "switch", topo.LeafName(r))
	}
	for h := range topo.HostID(f.Hosts()) {
		node(hostX(h), hostY, hostW-4, hostH, "host", f.HostName(h))
	}
	return p
}

// disks adds the bytes of completed blocks that hosts store, averaged over the repeats.
func (v *views) disks(d *Data) {
	stored := map[string][]float64{} // by arm
	total := map[string]float64{}
	t := &Table{Title: "Bytes stored by host", Head: []string{"host"}}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			for _, b := range r.Records.Blocks {
				for _, h := range b.Hosts {
					for len(stored[h]) < len(t.Head) {
						stored[h] = append(stored[h], 0)
					}
					x := float64(b.Size) / float64(len(a.Repeats))
					stored[h][len(t.Head)-1] += x
					total[h] += x
				}
			}
		}
		t.Head = append(t.Head, a.Name)
	})
	hosts := slices.SortedFunc(maps.Keys(total), func(a, b string) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), figures.CompareHosts(a, b))
	})
	if len(hosts) == 0 {
		return
	}
	if len(hosts) > maxHosts {
		v.Left["disks"] = append(v.Left["disks"], fmt.Sprintf("The table has the %d of %d hosts that store the most.", maxHosts, len(hosts)))
		hosts = hosts[:maxHosts]
	}
	slices.SortFunc(hosts, figures.CompareHosts)
	for _, h := range hosts {
		row := []Cell{text(h)}
		for k := range t.Head[1:] {
			x := 0.0
			if k < len(stored[h]) {
				x = stored[h][k]
			}
			row = append(row, figure("%s", units.Short(x, "B")))
		}
		t.Rows = append(t.Rows, row)
	}
	v.Disks = t
}
