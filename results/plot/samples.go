package plot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/topo/units"
	"testbed/workloads"
)

// mostSamples is the largest number of moments of a curve of samples: of those between two moments, the largest value
// is drawn.
const mostSamples = 600

// sampled is a value from a moment to another, which may be the same.
type sampled struct {
	from, at time.Duration
	value    float64
}

// samplesOf calls f with the samples of one repeat of an arm.
func (d *drawing) samplesOf(s series, f func(*samples.Reader) error) error {
	return s.run.Samples(func(k schema.Key, r *samples.Reader) error {
		if k.Arm != s.arm || k.Repeat != d.repeat {
			return nil
		}
		return f(r)
	})
}

// linkCurves draws what value returns of the readings of one link, by default that with the largest value: a curve for
// each arm. since reports whether a value is that of the time since the reading before.
func (d *drawing) linkCurves(axis string, since bool, scale func(high float64) (string, float64), value func(samples.LinkPoint) (float64, bool)) error {
	curves := make([]map[string][]sampled, len(d.series))
	largest, link := -1.0, d.o.Link
	known := map[string]bool{}
	for i, s := range d.series {
		curves[i] = map[string][]sampled{}
		before := map[string]time.Duration{}
		if err := d.samplesOf(s, func(r *samples.Reader) error {
			for p, err := range r.LinkPoints() {
				if err != nil {
					return err
				}
				known[p.Link] = true
				from := before[p.Link]
				before[p.Link] = p.At
				v, ok := value(p)
				if !ok || d.o.Link != "" && p.Link != d.o.Link {
					continue
				}
				if !since {
					from = p.At
				}
				curves[i][p.Link] = append(curves[i][p.Link], sampled{from, p.At, v})
				if d.o.Link == "" && v > largest {
					largest, link = v, p.Link
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if d.o.Link != "" && len(known) > 0 && !known[d.o.Link] {
		return fmt.Errorf("unknown link %q: %s", d.o.Link, suggest(d.o.Link, slices.Sorted(maps.Keys(known))))
	}
	one := make([][]sampled, len(d.series))
	for i := range curves {
		one[i] = curves[i][link]
	}
	d.heading = fmt.Sprintf("%s, repeat %d", safe(link), d.repeat)
	return d.curves(one, true, axis, scale)
}

// flowCurves is linkCurves for one flow, by default that with the most readings.
func (d *drawing) flowCurves(axis string, scale func(high float64) (string, float64), value func(samples.FlowPoint) float64) error {
	curves := make([]map[workloads.FlowID][]sampled, len(d.series))
	count := map[workloads.FlowID]int{}
	for i, s := range d.series {
		curves[i] = map[workloads.FlowID][]sampled{}
		if err := d.samplesOf(s, func(r *samples.Reader) error {
			for p, err := range r.FlowPoints() {
				if err != nil {
					return err
				}
				count[p.Flow]++
				curves[i][p.Flow] = append(curves[i][p.Flow], sampled{p.At, p.At, value(p)})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	flow := workloads.FlowID(-1)
	for f, n := range count {
		if flow < 0 || cmp.Or(cmp.Compare(n, count[flow]), cmp.Compare(flow, f)) > 0 {
			flow = f
		}
	}
	if d.o.Flow != nil {
		if flow = *d.o.Flow; len(count) > 0 && count[flow] == 0 {
			return fmt.Errorf("%w: flow %d has no samples in repeat %d", ErrNoData, flow, d.repeat)
		}
	}
	one := make([][]sampled, len(d.series))
	for i := range curves {
		one[i] = curves[i][flow]
	}
	d.heading = fmt.Sprintf("flow %d, repeat %d", flow, d.repeat)
	return d.curves(one, true, axis, scale)
}

// curves draws the samples of each arm as steps. held reports whether a value holds until the next one; else the line
// ends there.
func (d *drawing) curves(all [][]sampled, held bool, axis string, scale func(high float64) (string, float64)) error {
	end, high := time.Duration(0), 0.0
	for _, c := range all {
		for _, p := range c {
			end, high = max(end, p.at), max(high, p.value)
		}
	}
	unit := timesFor(end)
	name, by := scale(high)
	d.grid(true, true)
	for i, s := range d.series {
		c := thinned(all[i], end)
		if len(c) == 0 {
			d.note("%s: no samples in repeat %d", s.label, d.repeat)
			continue
		}
		for k, points := range steps(c, held, 2*partOf(end)) {
			for j := range points {
				points[j].X, points[j].Y = unit.of(time.Duration(points[j].X)), points[j].Y/by
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return err
			}
			line.LineStyle = s.line()
			d.add(line)
			if k == 0 {
				d.legend = append(d.legend, entry{s.named(len(all[i]), "samples"), line})
			}
		}
	}
	if len(d.legend) == 0 {
		why := fmt.Sprintf("no %s in %s", d.figure.Name, samples.File)
		if d.fluid {
			why += " (a simulation has no packets)"
		}
		return fmt.Errorf("%w: %s", ErrNoData, why)
	}
	if name != "" {
		axis += " (" + name + ")"
	}
	d.axes(d.since(unit), axis)
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}

// steps returns lines of steps through samples, with times in nanoseconds. Unless held, a line ends before a sample that
// is more than gap after the one before it.
func steps(all []sampled, held bool, gap time.Duration) (lines []plotter.XYs) {
	var line plotter.XYs
	for i, p := range all {
		if i > 0 && !held && p.from-all[i-1].at > gap {
			lines, line = append(lines, line), nil
		}
		if n := len(line); n > 0 && line[n-1].X < float64(p.from) {
			line = append(line, plotter.XY{X: float64(p.from), Y: line[n-1].Y})
		}
		line = append(line, plotter.XY{X: float64(max(p.from, 0)), Y: p.value})
		if p.at > p.from {
			line = append(line, plotter.XY{X: float64(p.at), Y: p.value})
		}
	}
	return append(lines, line)
}

// partOf returns the length of a part of the time of which one sample is drawn.
func partOf(end time.Duration) time.Duration { return max(end/mostSamples, 1) }

// thinned returns the samples from time 0 on with the largest values of each of mostSamples parts of the time.
func thinned(all []sampled, end time.Duration) []sampled {
	part := partOf(end)
	var out []sampled
	for _, p := range all {
		switch n := len(out); {
		case p.at < 0:
		case n == 0 || p.at/part != out[n-1].at/part:
			out = append(out, p)
		case p.value > out[n-1].value:
			out[n-1] = p
		}
	}
	return out
}

func byteScale(high float64) (string, float64) {
	if high >= 10e3 {
		return "KB", 1e3
	}
	return "bytes", 1
}

func noScale(float64) (string, float64) { return "", 1 }

func queues(d *drawing) error {
	return d.linkCurves("Queue", false, byteScale, func(p samples.LinkPoint) (float64, bool) {
		if p.Queue == nil {
			return 0, false
		}
		return float64(*p.Queue), true
	})
}

func throughput(d *drawing) error {
	return d.linkCurves("Throughput", true, rates, func(p samples.LinkPoint) (float64, bool) {
		if p.Rate == nil {
			return 0, false
		}
		return float64(*p.Rate), true
	})
}

func dropsOverTime(d *drawing) error {
	d.p.Y.Tick.Marker = whole
	return d.linkCurves("Packets dropped since the start", false, noScale, func(p samples.LinkPoint) (float64, bool) {
		if p.Dropped == nil {
			return 0, false
		}
		return float64(*p.Dropped), true
	})
}

func roundTrips(d *drawing) error {
	return d.flowCurves("Round-trip time", func(float64) (string, float64) { return "ms", 1e3 },
		func(p samples.FlowPoint) float64 { return float64(p.RTT.Microseconds()) })
}

func windows(d *drawing) error {
	d.p.Y.Tick.Marker = whole
	return d.flowCurves("Congestion window (packets)", noScale, func(p samples.FlowPoint) float64 { return float64(p.Window) })
}

// fairnessInterval is the length of the parts of the time in which the fairness of flows is computed.
const fairnessInterval = 200 * time.Millisecond

// fairness draws Jain's index of the delivery rates of the flows that send, for each arm.
func fairness(d *drawing) error {
	all := make([][]sampled, len(d.series))
	for i, s := range d.series {
		if err := d.samplesOf(s, func(r *samples.Reader) error {
			now := map[workloads.FlowID]units.Rate{} // in this part
			part := time.Duration(0)
			flush := func() {
				if len(now) >= 2 {
					all[i] = append(all[i], sampled{part * fairnessInterval, (part + 1) * fairnessInterval, jain(now)})
				}
				clear(now)
			}
			for p, err := range r.FlowPoints() {
				if err != nil {
					return err
				}
				if k := p.At / fairnessInterval; k != part {
					flush()
					part = k
				}
				if p.Delivery > 0 {
					now[p.Flow] = p.Delivery
				}
			}
			flush()
			return nil
		}); err != nil {
			return err
		}
	}
	d.note("Jain's index of the delivery rates of flows whose rate changed within %v, where there are 2 or more", fairnessInterval)
	d.heading = fmt.Sprintf("repeat %d", d.repeat)
	return d.curves(all, false, "Fairness of flows (Jain's index)", noScale)
}

// jain returns Jain's index: 1 for equal rates, 1/n if one of n flows has all.
func jain(rates map[workloads.FlowID]units.Rate) float64 {
	list := slices.Sorted(maps.Values(rates))
	sum, squares := 0.0, 0.0
	for _, x := range list {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(list)) * squares)
}
