package metrics

import (
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Rebin returns a link's load in longer intervals: the shortest multiple of its own interval
// that is at least the given one. The last interval may extend past the end.
func Rebin(s flows.LinkSeries, interval time.Duration) flows.LinkSeries {
	if s.Interval <= 0 || interval <= s.Interval {
		return s
	}
	n := int((interval + s.Interval - 1) / s.Interval)
	out := s
	out.Interval = time.Duration(n) * s.Interval
	sums := func(list []units.Bytes) (out []units.Bytes) {
		for part := range slices.Chunk(list, n) {
			var sum units.Bytes
			for _, b := range part {
				sum += b
			}
			out = append(out, sum)
		}
		return out
	}
	out.Bytes, out.Payload, out.Queue = sums(s.Bytes), sums(s.Payload), nil
	for part := range slices.Chunk(s.Queue, n) {
		out.Queue = append(out.Queue, slices.Max(part))
	}
	return out
}

// Utilisation returns the share of its rate that a link carried in each interval. A token
// bucket can exceed 1 in a short interval.
func Utilisation(s flows.LinkSeries) []float64 {
	full := float64(s.Rate.BytesIn(s.Interval))
	out := make([]float64, len(s.Bytes))
	for i, b := range s.Bytes {
		if full > 0 {
			out[i] = float64(b) / full
		}
	}
	return out
}

// LinkUse summarizes the load of a link.
type LinkUse struct {
	Mean, Peak float64 // utilisation; Peak is that of the busiest interval
	Queue      units.Bytes
	Drops      int  // packets
	Counted    bool // whether Drops is the kernel's count and not an estimate (flows.LinkSeries)
}

// UseOf summarizes a link's load. Mean is over the given time, which may be longer than the
// series: after the end of its series a link carried nothing.
func UseOf(s flows.LinkSeries, over time.Duration) LinkUse {
	u := LinkUse{Drops: s.Drops, Counted: s.Counted}
	var sum units.Bytes
	for _, b := range s.Bytes {
		sum += b
	}
	if full := float64(s.Rate.BytesIn(over)); full > 0 {
		u.Mean = float64(sum) / full
	}
	for _, x := range Utilisation(s) {
		u.Peak = max(u.Peak, x)
	}
	for _, q := range s.Queue {
		u.Queue = max(u.Queue, q)
	}
	return u
}

// BottleneckLinks returns the bottleneck links (Chowdhury, Kandula and Stoica, SIGCOMM 2013,
// §1): those between leaves and spines if the hosts of a rack together are faster than its
// uplinks or downlinks, else those of hosts.
func BottleneckLinks(f *topo.Fabric) []topo.LinkID {
	racks := racksDecide(f)
	var out []topo.LinkID
	for _, l := range f.Links() {
		if ofHost := l.Kind == topo.HostUp || l.Kind == topo.HostDown; ofHost != racks {
			out = append(out, l.ID)
		}
	}
	return out
}

// racksDecide reports whether the hosts of any rack together are faster than its links.
func racksDecide(f *topo.Fabric) bool {
	hosts, up, down := make([]units.Rate, f.Racks()), make([]units.Rate, f.Racks()), make([]units.Rate, f.Racks())
	for _, l := range f.Links() {
		switch l.Kind {
		case topo.HostUp:
			hosts[l.Rack] += l.Rate
		case topo.HostDown:
		case topo.LeafUp:
			up[l.Rack] += l.Rate
		default:
			down[l.Rack] += l.Rate
		}
	}
	if f.Racks() > 1 {
		for r := range hosts {
			if hosts[r] > up[r] || hosts[r] > down[r] {
				return true
			}
		}
	}
	return false
}

// LinkCvs returns the coefficients of variation of the utilisation of some links, one for
// each interval in which any of them carried data. The series are in order of link ID, with
// one interval.
func LinkCvs(all []flows.LinkSeries, links []topo.LinkID) []float64 {
	n := 0
	var use [][]float64
	for _, l := range links {
		u := Utilisation(all[l])
		use = append(use, u)
		n = max(n, len(u))
	}
	var out []float64
	at := make([]float64, len(use))
	for i := range n {
		any := false
		for k, u := range use {
			at[k] = 0
			if i < len(u) {
				at[k] = u[i]
			}
			any = any || at[k] > 0
		}
		if any {
			out = append(out, Cv(at))
		}
	}
	return out
}

// Median returns the median of values, by Quantile; it is 0 for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return Quantile(0.5, sorted)
}
