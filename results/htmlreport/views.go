package htmlreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/metrics"
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
	Disks    *disks
	Spent    []spent
	Causes   []cause // causes that appear in any stack
	Traffic  *traffic
	Tasks    []bars
	// Left states what limits left out, by section.
	Left map[string][]string
}

// stack is one bar with its parts.
type stack struct {
	Label string
	Value string
	Parts []part
}

// part is a part of a stack, in percent of the longest stack.
type part struct {
	Width float64
	Class string
	Title string
	Text  string // drawn inside the part if it fits
}

// cause is an entry of the legend of stacks.
type cause struct{ Class, Name, What string }

// spent is a group of stacks of times, and the same times as a table.
type spent struct {
	Title, Lead string
	Stacks      []stack
	Table       Table
}

// traffic is the bytes sent between racks.
type traffic struct {
	Stacks  []stack
	Classes []cause
	Table   Table
}

// disks is the bytes stored by hosts, by arm.
type disks struct {
	Arms  []diskArm
	Most  string
	Table Table
}

type diskArm struct {
	Name string
	Cv   string
	Cols []column
	Mean float64 // in percent of the tallest column of all arms
}

// column is one host's bytes, in percent of the tallest column.
type column struct {
	Height float64
	Title  string
	Gap    bool // whether a new rack begins
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

func newViews(d *Data) *views {
	v := &views{Left: map[string][]string{}}
	v.charts = charts{Arms: []armName{}, CDFs: d.cdfs(), Speedups: []speedups{}, Timeline: d.timelines(), Balance: []balance{}}
	for _, a := range d.Arms {
		v.charts.Arms = append(v.charts.Arms, armName{a.Name, a.Void, a.mark()})
	}
	for _, c := range causes {
		v.charts.Causes = append(v.charts.Causes, string(c.cause))
		v.charts.Classes = append(v.charts.Classes, palette.Class(string(c.cause)))
	}
	for _, t := range v.charts.Timeline {
		v.Progress = v.Progress || slices.ContainsFunc(t.Bars, func(b bar) bool { return len(b.Flows) > 0 })
	}
	v.charts.Gantt, v.charts.Shares = d.taskCharts()
	v.charts.Phases = figures.PhaseNames()
	for _, name := range v.charts.Phases {
		v.charts.Fills = append(v.charts.Fills, palette.Variable(name))
	}
	v.tasks(d)
	v.compare(d)
	if b, ok := d.gather(); ok {
		v.charts.Links, v.charts.Balance = d.loads(b), d.balances()
		v.links(d)
	}
	v.disks(d)
	v.spent(d)
	v.traffic(d)
	v.leftOut(d)
	return v
}

// counted returns the label of an arm's bar with its number of items.
func (a *Arm) counted(n int, one, many string) string {
	out := fmt.Sprintf("%s, n = %s", a.Name, words.Plural(n, one, many))
	if m := a.mark(); m != "" {
		out += " (" + m + ")"
	}
	return out
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
		rows[l.Link] = &[]Cell{text(l.Name), figure("%v", l.Rate), text(from)}
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
			p.Lines = append(p.Lines, line{l.id, digits(x1+l.by, 1), y1, digits(x2+l.by, 1), y2, f.LinkName(l.id) + ", " + f.Link(l.id).Rate.String()})
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
	names := map[string]bool{}
	var fabric *topo.Fabric
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			if fabric == nil {
				fabric = r.Fabric
			}
			for _, b := range r.Records.Blocks {
				for _, h := range b.Hosts {
					names[h] = true
				}
			}
		}
	})
	if len(names) == 0 {
		return
	}
	// Hosts that store nothing count too, if the fabric is known.
	if fabric != nil {
		for h := range topo.HostID(fabric.Hosts()) {
			names[fabric.HostName(h)] = true
		}
	}
	hosts := slices.SortedFunc(maps.Keys(names), byPlace)
	type use struct {
		arm   *Arm
		bytes map[string]float64
	}
	var uses []use
	total := map[string]float64{}
	most := 0.0
	d.shown(func(_ int, a *Arm) {
		u := use{a, map[string]float64{}}
		for _, r := range a.Repeats {
			for _, b := range r.Records.Blocks {
				for _, h := range b.Hosts {
					u.bytes[h] += float64(b.Size) / float64(len(a.Repeats))
				}
			}
		}
		for _, h := range hosts {
			total[h] += u.bytes[h]
			most = max(most, u.bytes[h])
		}
		uses = append(uses, u)
	})
	all := hosts
	if len(hosts) > maxHosts {
		v.Left["disks"] = append(v.Left["disks"], fmt.Sprintf("The %d of %d hosts that store the most are shown; Cv is over all hosts.", maxHosts, len(hosts)))
		hosts = slices.Clone(hosts)
		slices.SortStableFunc(hosts, func(a, b string) int { return cmp.Compare(total[b], total[a]) })
		hosts = slices.SortedFunc(slices.Values(hosts[:maxHosts]), byPlace)
	}
	k := &disks{Most: units.Short(most, "B"), Table: Table{Title: "Bytes stored by host", Head: []string{"host"}}}
	rows := make([][]Cell, len(hosts))
	for i, h := range hosts {
		rows[i] = []Cell{text(h)}
	}
	for _, u := range uses {
		var x []float64
		sum := 0.0
		for _, h := range all {
			x = append(x, u.bytes[h])
			sum += u.bytes[h]
		}
		arm := diskArm{Name: u.arm.counted(len(all), "host", "hosts"), Cv: fmt.Sprintf("%.3f", metrics.Cv(x)), Mean: share100(sum/float64(len(all)), most)}
		k.Table.Head = append(k.Table.Head, u.arm.Name)
		rack := topo.RackID(-1)
		for i, h := range hosts {
			r, _, ok := topo.ParseHostName(h)
			arm.Cols = append(arm.Cols, column{Height: share100(u.bytes[h], most), Title: h + ": " + units.Short(u.bytes[h], "B"), Gap: ok && i > 0 && r != rack})
			rack = r
			rows[i] = append(rows[i], figure("%s", units.Short(u.bytes[h], "B")))
		}
		k.Arms = append(k.Arms, arm)
	}
	k.Table.Rows = rows
	v.Disks = k
}

// byPlace orders hosts as in the fabric, and other names after them.
func byPlace(a, b string) int {
	ra, ia, oka := topo.ParseHostName(a)
	rb, ib, okb := topo.ParseHostName(b)
	switch {
	case oka && okb:
		return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(ia, ib))
	case oka != okb:
		if oka {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

func share100(x, most float64) float64 {
	if most <= 0 {
		return 0
	}
	return digits(100*x/most, 2)
}

// textFrom is the minimum width of a part, in percent, that has its share drawn inside.
const textFrom = 7

// times is a row of a stack of times before scaling.
type times struct {
	label  string
	extra  []Cell
	shares []breakdown.Share
	by     float64 // divisor
	total  time.Duration
}

func (v *views) spent(d *Data) {
	seen := map[breakdown.Cause]bool{}
	human := d.Human
	build := func(title, lead string, head []string, rows []times) {
		if len(rows) == 0 {
			return
		}
		s := spent{Title: title, Lead: lead, Table: Table{Title: title, Head: append(slices.Clone(head), "time")}}
		most := time.Duration(0)
		used := map[breakdown.Cause]bool{}
		for _, r := range rows {
			most = max(most, r.total)
			for _, x := range r.shares {
				if x.Time > 0 {
					used[x.Cause], seen[x.Cause] = true, true
				}
			}
		}
		for i, c := range causes {
			if used[c.cause] {
				s.Table.Head = append(s.Table.Head, string(causes[i].cause))
			}
		}
		for _, r := range rows {
			sum := map[breakdown.Cause]float64{}
			for _, x := range r.shares {
				sum[x.Cause] += float64(x.Time) / r.by
			}
			st := stack{Label: r.label, Value: human(r.total)}
			row := append(slices.Clone(r.extra), figure("%s", human(r.total)))
			for _, c := range causes {
				if !used[c.cause] {
					continue
				}
				t := time.Duration(sum[c.cause])
				of := share100(float64(t), float64(r.total))
				row = append(row, figure("%s (%.0f %%)", human(t), of))
				if t <= 0 {
					continue
				}
				p := part{Width: share100(float64(t), float64(most)), Class: palette.Class(string(c.cause)), Title: fmt.Sprintf("%s: %s, %.1f %%", c.cause, human(t), of)}
				if p.Width >= textFrom {
					p.Text = fmt.Sprintf("%.0f %%", of)
				}
				st.Parts = append(st.Parts, p)
			}
			s.Stacks, s.Table.Rows = append(s.Stacks, st), append(s.Table.Rows, row)
		}
		v.Spent = append(v.Spent, s)
	}

	var coflows, blocks []times
	d.shown(func(_ int, a *Arm) {
		var c, b times
		var nc, nb int
		var tc, tb time.Duration
		for _, r := range a.Repeats {
			if r.Timing == nil {
				continue
			}
			c.shares, b.shares = append(c.shares, r.Timing.CoflowTotal...), append(b.shares, r.Timing.BlockTotal...)
			for x := range r.Timing.Counted() {
				nc, tc = nc+1, tc+x.CCT
			}
			for _, x := range r.Timing.Blocks {
				nb, tb = nb+1, tb+x.WriteTime
			}
		}
		if nc > 0 {
			coflows = append(coflows, times{a.counted(nc, "coflow", "coflows"), []Cell{text(a.Name), figure("%d", nc)}, c.shares, float64(nc), tc / time.Duration(nc)})
		}
		if nb > 0 {
			blocks = append(blocks, times{a.counted(nb, "block", "blocks"), []Cell{text(a.Name), figure("%d", nb)}, b.shares, float64(nb), tb / time.Duration(nb)})
		}
	})
	build("Average coflow completion time", "Mean per coflow of an arm, over its repeats.", []string{"arm", "coflows"}, coflows)
	build("Average block write time", "Mean per block of an arm, over its repeats.", []string{"arm", "blocks"}, blocks)
	d.shown(func(_ int, a *Arm) {
		type one struct {
			repeat int
			c      breakdown.Coflow
		}
		var all []one
		for k, r := range a.numbered(len(a.Repeats)) {
			if r.Timing != nil {
				for c := range r.Timing.Counted() {
					all = append(all, one{k, c})
				}
			}
		}
		slices.SortStableFunc(all, func(x, y one) int { return cmp.Compare(y.c.CCT, x.c.CCT) })
		var rows []times
		for _, x := range all[:min(len(all), slowest)] {
			label := fmt.Sprintf("coflow %d", x.c.Coflow)
			if len(a.Repeats) > 1 {
				label += fmt.Sprintf(", repeat %d", x.repeat)
			}
			slow, lone := none, none
			if x.c.Lone > 0 {
				slow, lone = fmt.Sprintf("%.2f×", x.c.Slowdown), human(x.c.Lone)
			}
			rows = append(rows, times{label, []Cell{text(label), figure("%d", x.c.Width), figure("%s", units.Short(float64(x.c.Size), "B")), text(cmp.Or(x.c.Bottleneck, none)), figure("%s", lone), figure("%s", slow)},
				x.c.Shares, 1, x.c.CCT})
		}
		build("Slowest coflows of "+a.Name, "Lone time: the time that the coflow alone would need on its bottleneck. Slowdown: completion time over lone time.",
			[]string{"coflow", "flows", "size", "bottleneck", "lone", "slowdown"}, rows)
	})
	for _, c := range causes {
		if seen[c.cause] {
			v.Causes = append(v.Causes, cause{palette.Class(string(c.cause)), string(c.cause), c.what})
		}
	}
}

func (v *views) traffic(d *Data) {
	classes := map[string]bool{}
	type arm struct {
		name      string
		label     string
		bytes     map[string]float64
		total     float64
		makespan  time.Duration
		imbalance float64
	}
	var arms []arm
	most := 0.0
	d.shown(func(_ int, a *Arm) {
		x := arm{name: a.Name, bytes: map[string]float64{}}
		n := 0
		for _, r := range a.Repeats {
			if r.Timing == nil || r.Timing.Traffic.CrossRack == nil {
				continue
			}
			n++
			for class, b := range r.Timing.Traffic.CrossRack {
				classes[class] = true
				x.bytes[class] += float64(b)
			}
			x.makespan += r.Timing.Traffic.Makespan
			x.imbalance += r.Timing.Traffic.DiskImbalance
		}
		if n == 0 {
			return
		}
		for _, class := range slices.Sorted(maps.Keys(x.bytes)) { // floating-point sums depend on the order
			x.bytes[class] /= float64(n)
			x.total += x.bytes[class]
		}
		x.label = a.counted(n, "repeat", "repeats")
		x.makespan /= time.Duration(n)
		x.imbalance /= float64(n)
		most = max(most, x.total)
		arms = append(arms, x)
	})
	if len(arms) == 0 {
		return
	}
	order := slices.Collect(maps.Keys(classes))
	figures.Classes(order)
	t := &traffic{Table: Table{Title: "Bytes between racks", Head: append(append([]string{"arm"}, order...), "all", "makespan", "disk Cv"),
		Notes: []string{"Bytes of frames sent between racks, per repeat. Makespan: from the first arrival to the last completion. Disk Cv: coefficient of variation of the bytes stored by each host."}}}
	for _, c := range order {
		t.Classes = append(t.Classes, things(c)...)
	}
	for _, x := range arms {
		row := []Cell{text(x.name)}
		st := stack{Label: x.label, Value: units.Short(x.total, "B")}
		for _, c := range order {
			row = append(row, figure("%s", units.Short(x.bytes[c], "B")))
			if x.bytes[c] > 0 {
				p := part{Width: share100(x.bytes[c], most), Class: palette.Class(c), Title: c + ": " + units.Short(x.bytes[c], "B")}
				if p.Width >= 2*textFrom {
					p.Text = units.Short(x.bytes[c], "B")
				}
				st.Parts = append(st.Parts, p)
			}
		}
		t.Table.Rows = append(t.Table.Rows, append(row, figure("%s", units.Short(x.total, "B")), figure("%s", d.Human(x.makespan)), figure("%.3f", x.imbalance)))
		t.Stacks = append(t.Stacks, st)
	}
	v.Traffic = t
}
