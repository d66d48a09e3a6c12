// Package palette has the colours of all drawings: the report page, figures for papers and drawings of a fabric. The
// same thing has the same colour in all of them. Those of arms and things are of Okabe and Ito, which suit all kinds
// of colour vision, and loads differ in lightness.
//
// It draws nothing.
package palette

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// Colour is a colour as 0xrrggbb.
type Colour uint32

// String returns the colour as #rrggbb.
func (c Colour) String() string { return fmt.Sprintf("#%06x", uint32(c)) }

// RGBA makes it a color.Color.
func (c Colour) RGBA() (r, g, b, a uint32) {
	return uint32(c) >> 16 & 255 * 257, uint32(c) >> 8 & 255 * 257, uint32(c) & 255 * 257, 0xffff
}

// Mix returns the colour of which share x, in [0, 1], is another one.
func (c Colour) Mix(with Colour, x float64) (out Colour) {
	for shift := 16; shift >= 0; shift -= 8 {
		from, to := float64(c>>shift&255), float64(with>>shift&255)
		out = out<<8 | Colour(math.Round(from+float64(x*(to-from))))
	}
	return out
}

// Tone is a colour on light and on dark ground.
type Tone struct{ Light, Dark Colour }

// tones are those with a name.
var tones = []struct {
	name string
	Tone
}{
	{"ground", Tone{0xffffff, 0x0f1419}},
	{"panel", Tone{0xf6f7f9, 0x181e25}},
	{"switch", Tone{0xddf4ff, 0x1b3a57}},
	{"ink", Tone{0x1b1f24, 0xe6edf3}},
	{"soft", Tone{0x57606a, 0x9aa5b1}},
	{"line", Tone{0xc4cbd3, 0x414b57}},
	{"grid", Tone{0xe3e7eb, 0x262e37}},
	{"accent", Tone{0x0072b2, 0x56b4e9}},
	{"pass", Tone{0x00694d, 0x3fd0a4}},
	{"warn", Tone{0x8a4b00, 0xf0b250}},
	{"bad", Tone{0xaa1111, 0xff8080}},
	{"warnground", Tone{0xfff3dc, 0x33270f}},

	{"blue", Tone{0x0072b2, 0x2f8fd0}},
	{"verm", Tone{0xd55e00, 0xe5702a}},
	{"green", Tone{0x009e73, 0x12a880}},
	{"purple", Tone{0xcc79a7, 0xd58fb8}},
	{"orange", Tone{0xe69f00, 0xe69f00}},
	{"sky", Tone{0x56b4e9, 0x7cc6f0}},
	{"olive", Tone{0x8a8200, 0xf0e442}},
	{"grey", Tone{0x8a929b, 0x76808b}},
}

// things are the names of the tones of what is drawn in parts.
var things = map[string]string{
	// Causes of times (results/breakdown).
	"held":           "grey",
	"setup":          "olive",
	"serialisation":  "blue",
	"queueing":       "verm",
	"retransmission": "purple",
	"host":           "ink",
	"latency":        "sky",
	"network":        "green",
	"disk":           "orange",
	// Phases of attempts of tasks, and parts of the times of jobs (results/figures).
	"reading a block":        "blue",
	"fetching outputs":       "verm",
	"waiting to compute":     "grey",
	"writing and committing": "orange",
	"waiting":                "grey",
	"mapping":                "blue",
	"shuffling":              "verm",
	"computing":              "green",
	"writing":                "orange",
	// Locality of maps (results/flows).
	"node":     "blue",
	"rack":     "green",
	"off-rack": "verm",
	// Classes of bytes between racks (results/breakdown).
	"shuffle":  "blue",
	"write":    "verm",
	"map-read": "green",
	"control":  "sky",
	// Parts of a timeline.
	"flow":      "blue",
	"last flow": "verm",
}

// Known reports whether a thing has a tone of its own.
func Known(thing string) bool { return things[thing] != "" }

// Of returns the tone of a thing, or of a name such as ink; that of grey for others.
func Of(thing string) Tone {
	name := cmp.Or(things[thing], thing)
	for _, t := range tones {
		if t.name == name {
			return t.Tone
		}
	}
	return Of("grey")
}

// Class returns the CSS class of a thing.
func Class(thing string) string { return "of-" + cmp.Or(things[thing], "grey") }

// Variable returns the CSS variable of a thing.
func Variable(thing string) string { return "--" + cmp.Or(things[thing], "grey") }

// arms are the tones of arms, users and racks.
var arms = []Tone{
	{0x1b1f24, 0xe6edf3},
	{0x0072b2, 0x4aa3e0},
	{0xd55e00, 0xf07f2e},
	{0x009e73, 0x1fc198},
	{0xcc79a7, 0xe29ac4},
	{0xb97f00, 0xe69f00},
	{0x3a94c9, 0x8fd0f5},
	{0x8a8200, 0xf0e442},
}

// Arms is the number of tones of arms.
var Arms = len(arms)

// Arm returns the tone of the i-th arm, which repeats after Arms.
func Arm(i int) Tone { return arms[i%len(arms)] }

// loads go from the colour of no load to that of full load. Only their lightness matters, which has one direction.
var loads = []Tone{
	{0xf9dfbb, 0x453f3c},
	{0xf8b878, 0x7a3b2c},
	{0xf0793f, 0xb8472f},
	{0xc4351c, 0xf0853f},
	{0x760000, 0xffe9a3},
}

// Load returns the tone of a load: 0 is none, and 1 the capacity.
func Load(x float64) Tone {
	at := min(1, max(0, x)) * float64(len(loads)-1)
	i := min(int(at), len(loads)-2)
	part := at - float64(i)
	return Tone{loads[i].Light.Mix(loads[i+1].Light, part), loads[i].Dark.Mix(loads[i+1].Dark, part)}
}

var written = regexp.MustCompile(`:#[0-9A-Fa-f]{6}\b`)

// Themed returns an SVG in which the variables of CSS replace colours on light ground, and that of ink black.
func Themed(svg string) string {
	variable := map[string]string{":#000000": ":var(--ink)"}
	for i, t := range arms {
		variable[":"+t.Light.String()] = fmt.Sprintf(":var(--a%d)", i)
	}
	for i, t := range loads {
		variable[":"+t.Light.String()] = fmt.Sprintf(":var(--load%d)", i)
	}
	for _, t := range tones {
		variable[":"+t.Light.String()] = fmt.Sprintf(":var(--%s)", t.name)
	}
	return written.ReplaceAllStringFunc(svg, func(c string) string { return cmp.Or(variable[strings.ToLower(c)], c) })
}

// CSS returns the style sheet of all tones: a variable for each name, such as --ink, for each arm, --a0 and so on, and
// for loads, --load0 and so on, and the classes of things, which set --c. The reader's preference, or the attribute
// data-theme of the root, decides between light and dark.
func CSS() string {
	variables := func(scheme string, of func(Tone) Colour) string {
		var b strings.Builder
		fmt.Fprintf(&b, "color-scheme:%s", scheme)
		for _, t := range tones {
			fmt.Fprintf(&b, ";--%s:%v", t.name, of(t.Tone))
		}
		for i, t := range arms {
			fmt.Fprintf(&b, ";--a%d:%v", i, of(t))
		}
		for i, t := range loads {
			fmt.Fprintf(&b, ";--load%d:%v", i, of(t))
		}
		return b.String()
	}
	dark := variables("dark", func(t Tone) Colour { return t.Dark })
	out := ":root{" + variables("light", func(t Tone) Colour { return t.Light }) + "}\n" +
		"@media (prefers-color-scheme:dark){:root:not([data-theme=light]){" + dark + "}}\n" +
		":root[data-theme=dark]{" + dark + "}\n"
	for _, t := range tones {
		out += fmt.Sprintf(".of-%s{--c:var(--%[1]s)}", t.name)
	}
	return out + "\n"
}
