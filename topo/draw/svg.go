package draw

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"unicode/utf8"

	"testbed/topo"
	"testbed/topo/palette"
	"testbed/topo/units"
	"testbed/topo/words"
)

// shades are the names of loads, a fifth of [0, 1] each.
var shades = [...]string{"below 20%", "to 40%", "to 60%", "to 80%", "above"}

// tone returns the colour of the middle of a shade.
func tone(shade int) palette.Tone { return palette.Load((float64(shade) + 0.5) / float64(len(shades))) }

func shade(load float64) int { return min(int(load*float64(len(shades))), len(shades)-1) }

// Sizes of the drawing in pixels.
const (
	margin     = 16
	rowLabel   = 150 // left of the rows, for their labels
	switchW    = 72
	boxH       = 26
	spineTier  = 150 // from the top of the spines to that of the leaves
	leafTier   = 120 // from the top of the leaves to that of the hosts
	wideHost   = 72  // a host with a horizontal name
	narrowHost = 20  // a host with a vertical name
	narrowH    = 64
	rackGap    = 14
	fewHosts   = 16 // more hosts are narrow
	thickest   = 6.0
	thinHost   = 3.0 // the thickest link of narrow hosts, so that links do not touch
)

// The largest numbers of spines, leaves and hosts of a rack in a brief drawing.
const (
	mostSpines = 8
	mostLeaves = 6
	mostHosts  = 5
)

// SVG writes f as a self-contained picture: a row of spines, one of leaves and one of
// hosts. Faster links have thicker lines. The most frequent rate of a tier is written
// once, at the left, other rates at their links; every shape has a tooltip with its
// details. A link whose directions differ, or have loads, is drawn as two lines: each
// direction is the line on the right-hand side in the direction of travel. Colours follow
// the reader's preference for light or dark. Errors are those of w.
func SVG(w io.Writer, f *topo.Fabric, o Options) error {
	p := newPicture(f, o)
	p.b = bufio.NewWriter(w)
	p.head()
	p.rows()
	for _, c := range p.uplinks {
		if p.spines.shows(c.up.Spine) && p.leaves.shows(int(c.up.Rack)) {
			p.uplink(c)
		}
	}
	for h := range topo.HostID(f.Hosts()) {
		if p.showsHost(h) {
			p.hostLink(h)
		}
	}
	for s := range f.Spines() {
		if p.spines.shows(s) {
			p.box(p.spineX(s), p.spineY, switchW, boxH, "switch", topo.SpineName(s), "")
		}
	}
	for r := range topo.RackID(f.Racks()) {
		if p.leaves.shows(int(r)) {
			p.box(p.leafX(r), p.leafY, switchW, boxH, "switch", topo.LeafName(r), rackTitle(f, r))
		}
	}
	for h := range topo.HostID(f.Hosts()) {
		if p.showsHost(h) {
			p.box(p.hostX(h), p.hostY, p.hostW-4, p.hostH, "host", f.HostName(h), f.HostAddr(h).String())
		}
	}
	p.gaps()
	p.labels()
	p.legend()
	p.b.WriteString("</svg>\n")
	return p.b.Flush() // the first error of w, if any
}

// places are those of a row of equal things. Of more things than places, the last but one place is a gap.
type places struct{ n, of int }

func placesOf(n, most int, brief bool) places {
	if brief && n > most {
		return places{most, n}
	}
	return places{n, n}
}

// gap returns the number of things that are left out.
func (p places) gap() int { return p.of - p.n + min(1, p.of-p.n) }

// shows reports whether the i-th thing has a place.
func (p places) shows(i int) bool { return p.n == p.of || i < p.n-2 || i == p.of-1 }

// place returns the place of a thing that is shown.
func (p places) place(i int) float64 {
	if p.n < p.of && i == p.of-1 {
		return float64(p.n - 1)
	}
	return float64(i)
}

// showsHost reports whether a host has a place.
func (p *picture) showsHost(h topo.HostID) bool {
	r := p.f.RackOf(h)
	return p.leaves.shows(int(r)) && p.hosts.shows(int(h-p.f.HostIn(r, 0)))
}

// gaps states how many things are left out, in their rows.
func (p *picture) gaps() {
	more := func(x, y float64, n int) {
		p.write(label{x, y, "soft", fmt.Sprintf("… %d more", n), false}, "middle")
	}
	if n := p.spines.gap(); n > 0 {
		more(p.spineAt(float64(p.spines.n-2)), p.spineY+boxH/2+4, n)
	}
	if n := p.leaves.gap(); n > 0 {
		more(p.leafAt(float64(p.leaves.n-2)), p.leafY+boxH/2+4, n)
	}
	if n := p.hosts.gap(); n > 0 {
		for r := range topo.RackID(p.f.Racks()) {
			if p.leaves.shows(int(r)) {
				p.write(label{p.hostAt(r, float64(p.hosts.n-2)), p.hostY + p.hostH/2, "soft", fmt.Sprintf("… %d more", n), true}, "middle")
			}
		}
	}
}

type picture struct {
	f              *topo.Fabric
	spines, leaves places
	hosts          places // of a rack
	o              Options
	b              *bufio.Writer
	top            units.Rate
	uplinks        []cable
	usualUp        string
	usualHost      string
	loaded         bool
	odd            bool // some host has its rate below it
	hostW, hostH   float64
	width, height  float64
	rackW          float64
	spineY, leafY  float64
	hostY, legendY float64
	text           []label // drawn last, above the lines
}

type label struct {
	x, y  float64
	class string
	text  string
	down  bool // vertical
}

func newPicture(f *topo.Fabric, o Options) *picture {
	p := &picture{f: f, o: o, top: fastest(f), uplinks: uplinkCables(f), hostW: wideHost, hostH: boxH}
	hosts := hostCables(f)
	p.usualUp, p.usualHost = usual(p.uplinks), usual(hosts)
	for _, c := range hosts {
		p.odd = p.odd || c.rates() != p.usualHost
	}
	for _, l := range f.Links() {
		_, ok := o.load(l.ID)
		p.loaded = p.loaded || ok
	}
	p.spines, p.leaves = placesOf(f.Spines(), mostSpines, o.Brief), placesOf(f.Racks(), mostLeaves, o.Brief)
	p.hosts = placesOf(f.Hosts()/f.Racks(), mostHosts, o.Brief)
	if f.Hosts() > fewHosts {
		p.hostW, p.hostH = narrowHost, narrowH
	}
	p.rackW = max(float64(p.hosts.n)*p.hostW, switchW) + rackGap
	p.width = 2*margin + rowLabel + max(float64(p.leaves.n)*p.rackW, float64(p.spines.n)*(switchW+rackGap), 300)
	y := float64(margin)
	if o.Title != "" {
		y += 30
	}
	p.spineY = y
	if f.Spines() > 0 {
		y += spineTier
	}
	p.leafY = y
	p.hostY = y + leafTier
	y = p.hostY + p.hostH
	if p.odd && p.hostW == narrowHost {
		y += 110 // rates are vertical
	} else if p.odd {
		y += 34
	}
	p.legendY = y + 16
	p.height = p.legendY
	if p.loaded {
		p.height += 30
	}
	return p
}

func (p *picture) innerX() float64 { return margin + rowLabel }

func (p *picture) innerW() float64 { return p.width - 2*margin - rowLabel }

// Centres of boxes.
func (p *picture) spineX(s int) float64 { return p.spineAt(p.spines.place(s)) }

func (p *picture) leafX(r topo.RackID) float64 { return p.leafAt(p.leaves.place(int(r))) }

func (p *picture) hostX(h topo.HostID) float64 {
	r := p.f.RackOf(h)
	return p.hostAt(r, p.hosts.place(int(h-p.f.HostIn(r, 0))))
}

// Centres of places.
func (p *picture) spineAt(place float64) float64 {
	return p.innerX() + p.innerW()*(place+0.5)/float64(p.spines.n)
}

func (p *picture) leafAt(place float64) float64 {
	free := p.innerW() - float64(p.leaves.n)*p.rackW
	return p.innerX() + free/2 + (place+0.5)*p.rackW
}

func (p *picture) hostAt(r topo.RackID, place float64) float64 {
	return p.leafX(r) + (place-float64(p.hosts.n-1)/2)*p.hostW
}

func (p *picture) head() {
	fmt.Fprintf(p.b, `<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img" font-family="sans-serif" font-size="12">`+"\n", p.width, p.height, p.width, p.height)
	style := func(of func(palette.Tone) palette.Colour) {
		c := func(name string) palette.Colour { return of(palette.Of(name)) }
		fmt.Fprintf(p.b, ".drawing .ground{fill:%v}.drawing text{fill:%v}.drawing .soft{fill:%v}.drawing .rate{stroke:%v;stroke-width:3;paint-order:stroke;font-size:11px}",
			c("ground"), c("ink"), c("soft"), c("ground"))
		fmt.Fprintf(p.b, ".drawing line{stroke:%v}.drawing .switch{fill:%v;stroke:%[1]v}.drawing .host{fill:%[3]v;stroke:%[1]v}\n",
			c("grey"), c("switch"), c("panel"))
		for i := range shades {
			fmt.Fprintf(p.b, ".drawing .l%d{stroke:%v}", i, of(tone(i)))
		}
		p.b.WriteString("\n")
	}
	p.b.WriteString("<style>\n")
	style(func(t palette.Tone) palette.Colour { return t.Light })
	p.b.WriteString("@media (prefers-color-scheme: dark) {\n")
	style(func(t palette.Tone) palette.Colour { return t.Dark })
	p.b.WriteString("}\n</style>\n")
	p.b.WriteString(`<rect class="ground" width="100%" height="100%"/>` + "\n")
	if p.o.Title != "" {
		fmt.Fprintf(p.b, `<title>%s</title><text x="%d" y="%d" font-size="%.3g" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.o.Title), margin, margin+14, titleSize(p.o.Title, p.width-2*margin), html.EscapeString(p.o.Title))
	}
}

// rows writes the labels of rows and tiers of links.
func (p *picture) rows() {
	left := func(y float64, text string) {
		fmt.Fprintf(p.b, `<text class="soft" x="%d" y="%.1f">%s</text>`+"\n", margin, y, html.EscapeString(text))
	}
	if n := p.f.Spines(); n > 0 {
		left(p.spineY+17, words.Plural(n, "spine", "spines"))
		left(p.spineY+boxH+(spineTier-boxH)/2+4, "uplinks "+p.usualUp)
		left(p.spineY+boxH+(spineTier-boxH)/2+20, oversubscription(p.f))
		if n := p.hidden(); n > 0 {
			left(p.spineY+boxH+(spineTier-boxH)/2+36, words.Plural(n, "other rate hidden", "other rates hidden"))
		}
		left(p.leafY+17, words.Plural(p.f.Racks(), "leaf", "leaves"))
	} else {
		left(p.leafY+17, "1 switch")
	}
	left(p.leafY+boxH+(leafTier-boxH)/2+4, "host links "+p.usualHost)
	left(p.hostY+p.hostH/2+4, words.Plural(p.f.Hosts(), "host", "hosts"))
}

// oversubscription returns that of the racks as text.
func oversubscription(f *topo.Fabric) string {
	least, most := math.Inf(1), 0.0
	for r := range topo.RackID(f.Racks()) {
		x := f.Oversubscription(r)
		least, most = min(least, x), max(most, x)
	}
	if low, high := fmt.Sprintf("%.3g:1", least), fmt.Sprintf("%.3g:1", most); low != high {
		return fmt.Sprintf("oversubscribed %s to %s", low, high)
	}
	return fmt.Sprintf("oversubscribed %.3g:1", most)
}

// hidden returns the number of links that are left out and have another rate than the drawing states.
func (p *picture) hidden() (n int) {
	for _, c := range p.uplinks {
		if c.rates() != p.usualUp && !(p.spines.shows(c.up.Spine) && p.leaves.shows(int(c.up.Rack))) {
			n++
		}
	}
	for h := range topo.HostID(p.f.Hosts()) {
		if hostCable(p.f, h).rates() != p.usualHost && !p.showsHost(h) {
			n++
		}
	}
	return n
}

func (p *picture) uplink(c cable) {
	x1, y1 := p.leafX(c.up.Rack), p.leafY
	x2, y2 := p.spineX(c.up.Spine), p.spineY+boxH
	p.cable(c, thickest, x1, y1, x2, y2)
	// Rates that differ from the usual one stand near the leaf, where lines to different
	// spines are apart, and at two heights.
	if c.rates() != p.usualUp {
		at := 0.2
		if c.up.Spine%2 == 1 {
			at = 0.34
		}
		p.text = append(p.text, label{x1 + (x2-x1)*at, y1 + (y2-y1)*at + 4, "rate", c.rates(), false})
	}
}

func (p *picture) hostLink(h topo.HostID) {
	c := hostCable(p.f, h)
	x := p.hostX(h)
	most := thickest
	if p.hostW == narrowHost {
		most = thinHost
	}
	p.cable(c, most, x, p.hostY, p.leafX(c.up.Rack), p.leafY+boxH)
	if c.rates() == p.usualHost {
		return
	}
	if p.hostW == narrowHost {
		p.text = append(p.text, label{x, p.hostY + p.hostH + 6, "rate", c.rates(), true})
		return
	}
	if c.up.Rate == c.down.Rate {
		p.text = append(p.text, label{x, p.hostY + p.hostH + 15, "rate", c.rates(), false})
		return
	}
	p.text = append(p.text, label{x, p.hostY + p.hostH + 15, "rate", "↑" + c.up.Rate.Rounded().String(), false},
		label{x, p.hostY + p.hostH + 29, "rate", "↓" + c.down.Rate.Rounded().String(), false})
}

// cable draws a link from its lower end to its upper end, with a maximum thickness.
func (p *picture) cable(c cable, most, x1, y1, x2, y2 float64) {
	if c.alike(p.o) {
		p.line(x1, y1, x2, y2, c.up, most, c.lower+"<>"+c.upper)
		return
	}
	// Side by side: half of both widths, and a pixel.
	apart := (thickness(c.up.Rate, p.top, most)+thickness(c.down.Rate, p.top, most))/4 + 0.5
	length := math.Hypot(x2-x1, y2-y1)
	dx, dy := apart*(y2-y1)/length, -apart*(x2-x1)/length
	p.line(x1-dx, y1-dy, x2-dx, y2-dy, c.up, most, c.lower+">"+c.upper)
	p.line(x1+dx, y1+dy, x2+dx, y2+dy, c.down, most, c.upper+">"+c.lower)
}

func (p *picture) line(x1, y1, x2, y2 float64, l topo.Link, most float64, name string) {
	class, title := "", fmt.Sprintf("%s %v, queue %v", name, l.Rate.Rounded(), l.Queue)
	if l.Delay > 0 {
		title += fmt.Sprintf(", delay %v", l.Delay)
	}
	if x, ok := p.o.load(l.ID); ok {
		class = fmt.Sprintf(` class="l%d"`, shade(x))
		title += ", " + units.Percent(x, 0) + " loaded"
	}
	fmt.Fprintf(p.b, `<line%s x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke-width="%.1f"><title>%s</title></line>`+"\n",
		class, x1, y1, x2, y2, thickness(l.Rate, p.top, most), html.EscapeString(title))
}

// box draws a node around x, below y.
func (p *picture) box(x, y, w, h float64, class, name, title string) {
	if title != "" {
		title = ": " + title
	}
	fmt.Fprintf(p.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"><title>%s</title></rect>`, class, x-w/2, y, w, h, html.EscapeString(name+title))
	if w < h {
		p.write(label{x, y + h/2, "", name, true}, "middle")
		return
	}
	p.write(label{x, y + h/2 + 4, "", name, false}, "middle")
}

func (p *picture) write(l label, anchor string) {
	turn := ""
	if l.down {
		turn = fmt.Sprintf(` transform="rotate(90 %.1f %.1f)"`, l.x, l.y)
		l.y += 4 // vertical centring, which not all viewers support
	}
	class := ""
	if l.class != "" {
		class = fmt.Sprintf(` class="%s"`, l.class)
	}
	fmt.Fprintf(p.b, `<text%s x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", class, l.x, l.y, anchor, turn, html.EscapeString(l.text))
}

func (p *picture) labels() {
	for _, l := range p.text {
		if l.down {
			p.write(l, "start")
		} else {
			p.write(l, "middle")
		}
	}
}

func (p *picture) legend() {
	if !p.loaded {
		return
	}
	x, y := float64(margin), p.legendY+8
	fmt.Fprintf(p.b, `<text class="soft" x="%.0f" y="%.0f">load</text>`+"\n", x, y+4)
	x += 40
	for i, s := range shades {
		fmt.Fprintf(p.b, `<line class="l%d" x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f" stroke-width="6"/><text class="soft" x="%.0f" y="%.0f">%s</text>`+"\n", i, x, y, x+20, y, x+25, y+4, s)
		x += 95
	}
}

// titleSize returns the font size with which a title fits a width: 16, or less for a long
// title. A bold sans-serif letter is about 0.65 of the font size wide.
func titleSize(title string, width float64) float64 {
	const usual, least, perLetter = 16, 6, 0.65
	return min(usual, max(least, width/(perLetter*float64(max(utf8.RuneCountInString(title), 1)))))
}

// rackTitle returns the tooltip of a leaf: the load in and out of its rack.
func rackTitle(f *topo.Fabric, r topo.RackID) string {
	var down, up units.Rate
	for i := range f.Hosts() / f.Racks() {
		down += f.Link(f.HostUp(f.HostIn(r, i))).Rate
	}
	for s := range f.Spines() {
		up += f.Link(f.LeafUp(r, s)).Rate
	}
	if f.Spines() == 0 {
		return fmt.Sprintf("%v of hosts", down.Rounded())
	}
	return fmt.Sprintf("%v of hosts, %v of uplinks", down.Rounded(), up.Rounded())
}
