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

// sampled is a value at a moment.
type sampled struct {
	at    time.Duration
	value float64
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
// each arm.
func (d *drawing) linkCurves(axis string, scale func(high float64) (string, float64), value func(samples.LinkPoint) (float64, bool)) error {
	curves := make([]map[string][]sampled, len(d.series))
	largest, link := -1.0, d.o.Link
	known := map[string]bool{}
	for i, s := range d.series {
		curves[i] = map[string][]sampled{}
		if err := d.samplesOf(s, func(r *samples.Reader) error {
			for p, err := range r.LinkPoints() {
				if err != nil {
					return err
				}
				known[p.Link] = true
				v, ok := value(p)
				if !ok || d.o.Link != "" && p.Link != d.o.Link {
					continue
				}
				curves[i][p.Link] = append(curves[i][p.Link], sampled{p.At, v})
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
	return d.curves(one, axis, scale)
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
				curves[i][p.Flow] = append(curves[i][p.Flow], sampled{p.At, value(p)})
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
	return d.curves(one, axis, scale)
}

// curves draws a line through the samples of each arm.
func (d *drawing) curves(all [][]sampled, axis string, scale func(high float64) (string, float64)) error {
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
		points := make(plotter.XYs, len(c))
		for k, p := range c {
			points[k] = plotter.XY{X: unit.of(p.at), Y: p.value / by}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.LineStyle = s.line()
		d.add(line)
		d.legend = append(d.legend, entry{s.named(len(all[i]), "samples"), line})
	}
	if len(d.legend) == 0 {
		return fmt.Errorf("%w: %s", ErrNoData, d.missing(samples.File))
	}
	if name != "" {
		axis += " (" + name + ")"
	}
	d.axes(fmt.Sprintf("Time (%s)", unit.name), axis)
	d.p.X.Min, d.p.Y.Min = 0, 0
	return nil
}

// thinned returns the samples from time 0 on with the largest values of each of mostSamples parts of the time.
func thinned(all []sampled, end time.Duration) []sampled {
	part := max(end/mostSamples, 1)
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
	return d.linkCurves("Queue", byteScale, func(p samples.LinkPoint) (float64, bool) {
		if p.Queue == nil {
			return 0, false
		}
		return float64(*p.Queue), true
	})
}

func throughput(d *drawing) error {
	return d.linkCurves("Throughput", rates, func(p samples.LinkPoint) (float64, bool) {
		if p.Rate == nil {
			return 0, false
		}
		return float64(*p.Rate), true
	})
}

func dropsOverTime(d *drawing) error {
	d.p.Y.Tick.Marker = whole
	return d.linkCurves("Packets dropped since the start", noScale, func(p samples.LinkPoint) (float64, bool) {
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
					all[i] = append(all[i], sampled{part * fairnessInterval, jain(now)})
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
	return d.curves(all, "Fairness of flows (Jain's index)", noScale)
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
