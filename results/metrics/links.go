package metrics

import (
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Rebin is a link's load in longer intervals: the shortest whole multiple of its own
// that is no shorter than asked. The last interval may be in part after the end.
func Rebin(s flows.LinkSeries, interval time.Duration) flows.LinkSeries {
	if s.Interval <= 0 || interval <= s.Interval {
		return s
	}
	n := int((interval + s.Interval - 1) / s.Interval)
	out := s
	out.Interval = time.Duration(n) * s.Interval
	out.Bytes, out.Queue = nil, nil
	for part := range slices.Chunk(s.Bytes, n) {
		var sum units.Bytes
		for _, b := range part {
			sum += b
		}
		out.Bytes = append(out.Bytes, sum)
	}
	for part := range slices.Chunk(s.Queue, n) {
		out.Queue = append(out.Queue, slices.Max(part))
	}
	return out
}

// Utilisation is the share of its rate that a link carried in each interval. A token
// bucket lets more than 1 pass in a short one.
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

// LinkUse sums up the load of a link.
type LinkUse struct {
	Mean, Peak     float64 // utilisation, of an interval the peak
	Queue          units.Bytes
	Drops, Suspect int
}

// UseOf sums up a link's load. Mean is over the time given, which may be longer than
// the series: a link whose series ends carried nothing after that.
func UseOf(s flows.LinkSeries, over time.Duration) LinkUse {
	u := LinkUse{Drops: s.Drops, Suspect: s.Suspect}
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

// BottleneckLinks are the links whose use decides (Chowdhury, Kandula and Stoica,
// SIGCOMM 2013, §1): those between leaves and spines where a rack's hosts together
// are faster than its uplinks or downlinks, else those of hosts.
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

// racksDecide tells whether some rack's hosts together are faster than its links.
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

// LinkCvs are the coefficients of variation of the utilisation of some links, one for
// each interval in which any of them carried something. The series are of links in
// order of ID, with one interval.
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

// Median is the middle of values, by Quantile; it is 0 for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return Quantile(0.5, sorted)
}
