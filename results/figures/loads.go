package figures

import (
	"math"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo/units"
)

// Loads is the load of links over time in bins of equal length.
type Loads struct {
	Bin   time.Duration
	Bins  int
	rate  []units.Rate
	bytes [][]float64       // by link and bin
	known [][]time.Duration // parts of the bin that were measured
}

// BinOf returns the bin that divides a time into at most a number of bins: a multiple of the
// interval of the measurement, so that each interval falls into one bin.
func BinOf(end, interval time.Duration, most int) time.Duration {
	steps := int64((end + interval - 1) / interval)
	return interval * time.Duration(max(1, (steps+int64(most)-1)/int64(most)))
}

// MostMoments is the largest number of bins of a line over time.
const MostMoments = 60

// NewLoads returns the loads of links from 0 to an end, all of them unknown.
func NewLoads(links int, end, bin time.Duration) *Loads {
	l := &Loads{Bin: bin, Bins: int((end + bin - 1) / bin), rate: make([]units.Rate, links)}
	for range links {
		l.bytes, l.known = append(l.bytes, make([]float64, l.Bins)), append(l.known, make([]time.Duration, l.Bins))
	}
	return l
}

// Add adds the bytes that a link carried in an interval, which is within one bin.
func (l *Loads) Add(link int, rate units.Rate, from, interval time.Duration, bytes units.Bytes) {
	k := int(from / l.Bin)
	l.rate[link] = rate
	l.bytes[link][k] += float64(bytes)
	l.known[link][k] += interval
}

// Of returns the share of a link's rate that was used in a bin; NaN if it is unknown. The
// burst of a token bucket may exceed 1.
func (l *Loads) Of(link, bin int) float64 {
	could := float64(l.rate[link]) * l.known[link][bin].Seconds()
	if could <= 0 {
		return math.NaN()
	}
	return l.bytes[link][bin] * 8 / could
}

// Imbalance returns the coefficient of variation (Cv) of the loads of all links in each bin;
// NaN in a bin without traffic, or with fewer than two known loads.
func (l *Loads) Imbalance() []float64 {
	out := make([]float64, l.Bins)
	for k := range out {
		var used []float64
		for i := range l.rate {
			if u := l.Of(i, k); !math.IsNaN(u) {
				used = append(used, u)
			}
		}
		out[k] = math.NaN()
		if len(used) >= 2 && slices.Max(used) > 0 {
			out[k] = metrics.Cv(used)
		}
	}
	return out
}

// Intervals returns the number of intervals of the longest series.
func Intervals(links []flows.LinkSeries) int {
	n := 0
	for _, l := range links {
		n = max(n, len(l.Bytes))
	}
	return n
}

// LoadsOf returns the loads of links with one interval, in bins of a multiple of it. A link
// carried nothing after the end of its series.
func LoadsOf(links []flows.LinkSeries, bin time.Duration) *Loads {
	if len(links) == 0 {
		return NewLoads(0, 0, bin)
	}
	n, interval := Intervals(links), links[0].Interval
	out := NewLoads(len(links), time.Duration(n)*interval, bin)
	for i, l := range links {
		for k := range n {
			var b units.Bytes
			if k < len(l.Bytes) {
				b = l.Bytes[k]
			}
			out.Add(i, l.Rate, time.Duration(k)*interval, interval, b)
		}
	}
	return out
}

// InIntervals returns the loads of links in intervals of at least the given length
// (metrics.Rebin), and the time that the longest series covers.
func InIntervals(links []flows.LinkSeries, interval time.Duration) (out []flows.LinkSeries, over time.Duration) {
	for _, l := range links {
		over = max(over, time.Duration(len(l.Bytes))*l.Interval)
		out = append(out, metrics.Rebin(l, interval))
	}
	return out, over
}

// LinkUses returns the mean and the peak load of each link: the mean over the time that the
// longest series covers, and the peak in intervals of at least the given length.
func LinkUses(links []flows.LinkSeries, interval time.Duration) []metrics.LinkUse {
	rebinned, over := InIntervals(links, interval)
	out := make([]metrics.LinkUse, len(links))
	for i, l := range rebinned {
		out[i] = metrics.UseOf(l, over)
	}
	return out
}
