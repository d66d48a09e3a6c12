package plot

import (
	"fmt"
	"maps"
	"slices"

	"gonum.org/v1/plot/plotter"

	"testbed/results/metrics"
	"testbed/results/schema"
	"testbed/workloads"
)

// incastOf returns the goodputs of an arm's coflows that have one receiver, in bits per second by number of senders.
func incastOf(s series) map[int][]float64 {
	type id struct {
		schema.Key
		coflow workloads.CoflowID
	}
	type ends struct{ from, to map[string]bool }
	of := map[id]*ends{}
	for _, f := range s.run.Flows {
		if f.Arm != s.arm {
			continue
		}
		k := id{f.Key, f.Coflow}
		if of[k] == nil {
			of[k] = &ends{map[string]bool{}, map[string]bool{}}
		}
		of[k].from[f.Src], of[k].to[f.Dst] = true, true
	}
	out := map[int][]float64{}
	for _, c := range s.run.Coflows {
		if x := of[id{c.Key, c.Coflow}]; x != nil && len(x.to) == 1 && c.CCT > 0 && !c.Failed && !c.Background {
			out[len(x.from)] = append(out[len(x.from)], float64(c.Size)*8/c.CCT.Seconds())
		}
	}
	return out
}

// incast draws the goodput of coflows with one receiver against the number of their senders. Arms of the same name in
// several runs, such as points of a sweep over the number of senders, are a line.
func incast(d *drawing) error {
	all := map[string]map[int][]float64{}
	var kept []series
	high := 0.0
	for _, s := range d.series {
		of := incastOf(s)
		if len(of) == 0 {
			d.note("%s: no coflow with one receiver completed", s.label)
			continue
		}
		if all[s.arm] == nil {
			all[s.arm] = map[int][]float64{}
			s.label, s.style = safe(s.arm), len(kept)
			kept = append(kept, s)
		}
		for n, x := range of {
			all[s.arm][n] = append(all[s.arm][n], x...)
			high = max(high, slices.Max(x))
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("%w: no coflow with one receiver completed", ErrNoData)
	}
	d.series = kept
	name, scale := rates(high)
	d.grid(true, true)
	for _, s := range kept {
		var points plotter.XYs
		total := 0
		for _, n := range slices.Sorted(maps.Keys(all[s.arm])) {
			x := all[s.arm][n]
			total += len(x)
			points = append(points, plotter.XY{X: float64(n), Y: metrics.Median(x) / scale})
			if len(x) > 1 {
				d.add(bar{float64(n), slices.Min(x) / scale, slices.Max(x) / scale, s.colour()})
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.LineStyle, dots.GlyphStyle = s.line(), s.glyph()
		d.add(line)
		d.add(dots)
		d.legend = append(d.legend, entry{s.named(total, "coflows"), line})
	}
	d.axes("Senders", fmt.Sprintf("Goodput (%s)", name))
	d.p.Y.Min = 0
	if d.o.Scale == Log {
		logarithmic(&d.p.X)
	} else {
		d.p.X.Min, d.p.X.Tick.Marker = 0, whole
	}
	d.note("goodput: payload of a coflow over its completion time; points: medians; bars: ranges")
	return nil
}
