package plot

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/topo/units"
)

// numbered is the name of an arm that ends in a number by itself: the value of a parameter. That of sinbad-v1 is
// part of a name.
var numbered = regexp.MustCompile(`^(?:(.*?)[ =_-]+)?([0-9]+(?:\.[0-9]+)?)%?$`)

// parameter is what the horizontal axis shows: a swept variable or, if its name is "", the number at the end of arms' names.
type parameter struct {
	name   string
	values []string // of the variable, in order of the axis
	at     []float64
}

// parameter returns the swept variable that Options.Over names or, by default, the first with the most values.
func (d *drawing) parameter() (p parameter, err error) {
	var names []string
	values := map[string][]string{}
	for _, r := range d.runs {
		for _, v := range vars(r) {
			if values[v.Name] == nil {
				names = append(names, v.Name)
			}
			if !slices.Contains(values[v.Name], v.Value) {
				values[v.Name] = append(values[v.Name], v.Value)
			}
		}
	}
	for _, name := range names {
		if len(values[name]) > len(values[p.name]) {
			p.name = name
		}
	}
	if over := d.o.Over; over != "" && values[over] == nil {
		return p, fmt.Errorf("no swept variable %q: %s", over, suggest(over, names))
	}
	p.name = cmp.Or(d.o.Over, p.name)
	p.values = values[p.name]
	for _, v := range p.values {
		x, ok := number(v)
		if !ok { // values without an order are drawn at equal distances
			p.at = nil
			for i := range p.values {
				p.at = append(p.at, float64(i))
			}
			break
		}
		p.at = append(p.at, x)
	}
	return p, nil
}

func vars(r *rundir.Run) []rundir.Value {
	if r.Manifest == nil {
		return nil
	}
	return r.Manifest.Vars
}

// number returns a value of a variable as a number: a ratio, duration, rate or size in its basic unit.
func number(text string) (float64, bool) {
	if x, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64); err == nil && !math.IsInf(x, 0) && !math.IsNaN(x) {
		return x, true
	}
	if x, err := units.ParseRatio(text); err == nil {
		return x.Float(), true
	}
	if x, err := time.ParseDuration(text); err == nil {
		return x.Seconds(), true
	}
	if x, err := units.ParseRate(text); err == nil {
		return float64(x), true
	}
	x, err := units.ParseBytes(text)
	return float64(x), err == nil
}

// of returns the place of an arm on the axis and the name of its line; ok is false if it has none.
func (p parameter) of(d *drawing, s series) (x float64, line string, ok bool) {
	if p.name == "" {
		m := numbered.FindStringSubmatch(s.arm)
		if m == nil {
			return 0, "", false
		}
		if x, _ = strconv.ParseFloat(m[2], 64); len(d.runs) > 1 {
			return x, m[1] + ", " + d.runName(slices.Index(d.runs, s.run)), true
		}
		return x, m[1], true
	}
	line = s.arm
	for _, v := range vars(s.run) {
		if v.Name == p.name {
			x, ok = p.at[slices.Index(p.values, v.Value)], true
		} else {
			line += fmt.Sprintf(", %s=%s", v.Name, v.Value)
		}
	}
	return x, line, ok
}

// mostTicks is the largest number of values of a variable that its axis names.
const mostTicks = 8

// axis shows the parameter on the horizontal axis.
func (p parameter) axis(d *drawing, y string) {
	if p.name == "" {
		d.axes("Number at the end of the arm's name", y)
		d.p.X.Min = min(d.p.X.Min, 0)
		return
	}
	d.axes(safe(p.name), y)
	var ticks plot.ConstantTicks
	every := (len(p.values) + mostTicks - 1) / mostTicks
	for i, v := range p.values {
		t := plot.Tick{Value: p.at[i]}
		if i%every == 0 {
			t.Label = safe(v)
		}
		ticks = append(ticks, t)
	}
	d.p.X.Tick.Marker = ticks
	least, most := slices.Min(p.at), slices.Max(p.at)
	apart := cmp.Or((most-least)/20, 1)
	d.p.X.Min, d.p.X.Max = least-apart, most+apart
}

// kinds are the completion times of which the first that all runs have is drawn.
var kinds = []string{"job_time", "cct", "write_time"}

// gainByParameter draws the speed-ups of all jobs, coflows or block writes over a parameter. Arms of the same name in runs
// that differ in the parameter alone are a line.
func gainByParameter(d *drawing) error {
	over, err := d.parameter()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(d.series, func(s series) bool { _, _, ok := over.of(d, s); return ok }) {
		return fmt.Errorf("%w: the runs are of no sweep, and no name of an arm ends in a number, such as dolly-0.05", ErrNoData)
	}
	kind := kinds[0]
	for _, k := range slices.Backward(kinds) {
		if !slices.ContainsFunc(d.series, func(s series) bool { return *s.run.Arm(s.arm).Metric(k) == nil }) {
			kind = k
		}
	}
	time, _ := metrics.TimeOf(kind)
	var kept []gain
	var at []float64
	var lines []string
	err = d.relative(time.Noun, func(s series, base string) (none string) {
		x, line, ok := over.of(d, s)
		switch {
		case !ok && over.name == "":
			return "no number by itself at the end of its name"
		case !ok:
			return "its run does not vary " + over.name
		case len(s.run.Arm(s.arm).Unmodelled) > 0:
			return "the fluid model does not model " + strings.Join(s.run.Arm(s.arm).Unmodelled, " and ")
		}
		g := gainOf(s, base, kind, *s.run.Arm(s.arm).Metric(kind), func(arm string) []metrics.Item { return s.run.Times(kind, arm) })
		if g.n == 0 {
			return fmt.Sprintf("no %s completed both in it and in %s", time.Noun, safe(base))
		}
		kept, at, lines = append(kept, g), append(at, x), append(lines, line)
		return ""
	})
	if err != nil {
		return err
	}
	d.grid(true, true)
	d.add(rule{at: 1})
	series := d.series
	for _, name := range slices.Compact(slices.Sorted(slices.Values(lines))) {
		first := slices.Index(lines, name)
		s := series[first]
		s.style = len(d.legend)
		var points plotter.XYs
		var marks []string
		n := math.MaxInt
		for i, g := range kept {
			if lines[i] != name {
				continue
			}
			points = append(points, plotter.XY{X: at[i], Y: g.value})
			n = min(n, g.n)
			if mark := series[i].mark; mark != "" && !slices.Contains(marks, mark) {
				marks = append(marks, mark)
			}
			if g.ci.Known() {
				d.add(bar{at[i], g.ci.Low, g.ci.High, s.colour()})
			} else {
				d.note("%s: no interval: fewer than %d independent pairs", series[i].label, metrics.LeastPairs)
			}
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.LineStyle, dots.GlyphStyle = s.line(), s.glyph()
		d.add(line)
		d.add(dots)
		text := fmt.Sprintf("%s, n ≥ %d pairs", safe(name), n)
		if len(marks) > 0 {
			text += " (" + strings.Join(marks, ", ") + ")"
		}
		d.legend = append(d.legend, entry{text, line})
	}
	over.axis(d, fmt.Sprintf("Speed-up of %ss relative to %s (×)", time.Noun, d.baseline))
	return nil
}
