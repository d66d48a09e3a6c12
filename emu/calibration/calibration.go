// Package calibration holds the measured capabilities of a machine: the token buckets
// that are accurate for each link rate and MTU, the packets per second that the machine
// carries, and the rate of its disk. It keeps them in one file per machine and kernel,
// and derives the bucket of a link from them.
//
// It measures nothing (emu/calibration/measure does) and does not use the kernel.
package calibration

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/plan"
	"testbed/results/metrics"
	"testbed/topo/units"
)

// Version is the version of the file's format.
const Version = 1

// Tolerances of an accepted link, and the size of a short flow unless the scenario states
// one (scenario.Fabric.ShortFlow has the same default).
const (
	RateTolerance                = 0.01 // of the rate of a saturated link
	FlowTolerance                = 0.05 // of the time of a short flow after an idle period
	DefaultShortFlow units.Bytes = 50 * units.KB
)

// Calibration holds the measurements of one machine.
type Calibration struct {
	Version int           `json:"version"`
	Tool    string        `json:"tool"` // version of testbed
	Date    time.Time     `json:"date"`
	Machine string        `json:"machine"` // MachineID
	Kernel  string        `json:"kernel"`
	CPUs    int           `json:"cpus"`
	Took    time.Duration `json:"took_ns"`
	Links   []Link        `json:"links"`
	// Flows are by link and by the number of links of their path; nil in files of older versions.
	Flows []Flow `json:"flows,omitempty"`
	// Capacity is by MTU.
	Capacity []Capacity `json:"capacity"`
	Build    Build      `json:"build"`
	Disk     Disk       `json:"disk"`
	// Noise is the difference between identical runs; nil until it is measured.
	Noise *Noise `json:"noise,omitempty"`
}

// Noise is the difference between identical runs, and how often a report would call it
// significant.
type Noise struct {
	metrics.Noise
	Took time.Duration `json:"took_ns"`
	// Void counts pairs that were not used because one of their runs was void.
	Void    int              `json:"void_pairs"`
	Figures []FalsePositives `json:"figures"`
}

// FalsePositives counts the intervals of a statistic of two identical runs that exclude 1.
// At the 95 % level 5 % are expected.
type FalsePositives struct {
	Metric    string `json:"metric"`    // cct, fct, write_time, request_time
	Statistic string `json:"statistic"` // mean_ratio, median, geo_mean
	Pairs     int    `json:"pairs"`
	// Alone is the share for intervals without run-to-run noise, Widened for those
	// widened by the noise of the other half of the pairs. CI is the 95 % interval of a
	// share, by Clopper and Pearson.
	Alone   Share `json:"alone"`
	Widened Share `json:"widened"`
	// Deviation and Between are those of metrics.Noise.
	Deviation float64 `json:"deviation"`
	Between   float64 `json:"between_runs"`
}

// Share is the share of pairs whose interval is a false positive.
type Share struct {
	Excluded int        `json:"excluded"` // intervals that exclude 1
	Rate     float64    `json:"rate"`     // of the pairs
	CI       [2]float64 `json:"ci"`
	// Width is half the median width of the intervals, in logarithms.
	Width float64 `json:"median_half_width"`
}

// Spread holds the median, minimum and maximum of several measurements.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// SpreadOf returns the spread of xs, which must not be empty.
func SpreadOf(xs []float64) Spread {
	return Spread{Median: metrics.Median(xs), Least: slices.Min(xs), Most: slices.Max(xs)}
}

// Link holds the measurements of buckets of several sizes on a link of one rate and MTU.
type Link struct {
	Rate   units.Rate  `json:"rate"`
	MTU    units.Bytes `json:"mtu"`
	Flow   units.Bytes `json:"flow"` // payload of the flow whose credit was measured
	Bursts []Burst     `json:"bursts"`
}

// Burst holds the measurements of one bucket.
type Burst struct {
	Size units.Bytes `json:"burst"`
	// RateError is the rate that a saturated link delivers divided by its nominal rate, less
	// 1.
	RateError Spread `json:"rate_error"`
	// Credit is the bytes by which a flow after an idle period is ahead of the link's rate
	// when its last frame arrives, counted from its first frame. It is negative if the
	// flow is slower than the link.
	Credit Spread `json:"credit_bytes"`
}

// ShortFlows are the sizes of short flows for which calibrations state windows, ascending.
var ShortFlows = []units.Bytes{DefaultShortFlow, 250 * units.KB, units.MB}

// Flow holds the measurements of flows of one size that have their path to themselves, after an
// idle period.
type Flow struct {
	Rate   units.Rate  `json:"rate"` // of all links of the path
	MTU    units.Bytes `json:"mtu"`
	Links  int         `json:"links"` // of the path: 2 within a rack, 4 across racks
	Bucket units.Bytes `json:"burst"` // of all links
	Size   units.Bytes `json:"size"`  // payload
	// Error is the time from the first frame at the sender until the last arrives, divided by
	// the time over links that store and forward each frame, less 1. Computed is that of
	// full buckets (metrics.Framing).
	Error    Spread  `json:"error"`
	Computed float64 `json:"computed_error"`
}

// Capacity is the load that real runs carried at one MTU: the highest number of
// simultaneous flows between hosts of one rack, each saturating two shaped links of rate
// Rate, with verdict pass.
type Capacity struct {
	MTU   units.Bytes `json:"mtu"`
	Rate  units.Rate  `json:"rate"`
	Flows int         `json:"flows"`
	// Links is the number of saturated shaped links, two per flow.
	Links int `json:"saturated_links"`
	// Packets is the rate of full frames through shapers, every hop counted.
	Packets float64 `json:"shaped_packets_per_s"`
	// Cost is the processor time of a packet for each shaper that it passes, including
	// senders, receivers, captures and timers.
	Cost     time.Duration `json:"packet_cost_ns"`
	CostFrom [2]float64    `json:"packet_cost_least_most_ns"`
	// Bounded reports that the search ended at its own bound: the machine may carry more.
	Bounded bool `json:"bounded,omitempty"`
}

// Product returns saturated links times packets per second.
func (c Capacity) Product() float64 { return float64(c.Links) * c.Packets }

// Build holds the time to create each part of a fabric, in milliseconds.
type Build struct {
	Namespace Spread `json:"namespace_ms"`
	Veth      Spread `json:"veth_ms"`
	Qdisc     Spread `json:"qdisc_ms"`
}

// Disk holds the measurements of the machine's disk and of the ways to throttle it.
type Disk struct {
	Dir       string     `json:"dir"`
	Mode      string     `json:"mode"`             // "O_DIRECT" or "O_DSYNC"
	Write     Spread     `json:"write_bits_per_s"` // unthrottled
	Throttles []Throttle `json:"throttles"`
}

// Throttle is one mechanism with its error at each rate, or the reason why it is missing.
type Throttle struct {
	Name    string          `json:"name"`
	Missing string          `json:"missing,omitempty"`
	Rates   []ThrottledRate `json:"rates,omitempty"`
}

// ThrottledRate is the error of a mechanism at one rate: the achieved rate divided by the
// nominal one, less 1.
type ThrottledRate struct {
	Rate  units.Rate `json:"rate"`
	Error float64    `json:"error"` // of all bytes written
	// SteadyError excludes the beginning, which some mechanisms do not throttle; nil if too
	// little was written after it.
	SteadyError *float64 `json:"steady_error,omitempty"`
}

// Framing returns how payload is divided into frames at an MTU.
func Framing(mtu units.Bytes) metrics.Framing {
	return metrics.Framing{Payload: mtu - plan.TCPHeaders, Headers: plan.TCPHeaders + plan.EthernetHeader}
}

// Wire returns the bytes of all frames that carry size bytes of payload.
func Wire(size, mtu units.Bytes) units.Bytes { return Framing(mtu).Wire(size) }

// Window is the range of bucket sizes that are accurate for both the rate and the time of
// a short flow.
type Window struct {
	Least, Most units.Bytes
}

// Empty reports whether no bucket is accurate for both.
func (w Window) Empty() bool { return w.Most == 0 }

// Pick returns the bucket to use: three quarters of the way up, on a logarithmic scale. The
// upper end is sharp, since no bucket passes more than its bytes; the lower one depends on
// the current lateness of timers.
func (w Window) Pick() units.Bytes {
	return units.Bytes(math.Round(math.Pow(float64(w.Least), 0.25) * math.Pow(float64(w.Most), 0.75)))
}

// Window returns the window of the link for short flows of the given size: the widest range
// of successive measured buckets that are accurate for both. The upper end is interpolated
// between two measured buckets if the credit of the upper one is too large: the credit
// grows with the bucket there. The window excludes buckets larger than the allowed
// credit: a full bucket passes all its bytes if timers are on time, and the lateness that
// hides this is not constant.
func (l Link) Window(short units.Bytes) Window {
	allowed := FlowTolerance * float64(Wire(short, l.MTU))
	var best, now Window
	for i, b := range l.Bursts {
		rate := math.Abs(b.RateError.Median) <= RateTolerance
		switch {
		case rate && math.Abs(b.Credit.Median) <= allowed:
			if now.Least == 0 {
				now.Least = b.Size
			}
			now.Most = b.Size
		case rate && now.Most > 0 && b.Credit.Median > allowed && b.Credit.Median > l.Bursts[i-1].Credit.Median:
			below := l.Bursts[i-1]
			part := (allowed - below.Credit.Median) / (b.Credit.Median - below.Credit.Median)
			now.Most = below.Size + units.Bytes(part*float64(b.Size-below.Size))
			fallthrough
		default:
			best, now = wider(best, now.below(units.Bytes(allowed))), Window{}
		}
	}
	return wider(best, now.below(units.Bytes(allowed)))
}

// below returns the part of the window up to most.
func (w Window) below(most units.Bytes) Window {
	if w.Least > most {
		return Window{}
	}
	return Window{w.Least, min(w.Most, most)}
}

func wider(a, b Window) Window {
	if b.Empty() || !a.Empty() && float64(a.Most)/float64(a.Least) >= float64(b.Most)/float64(b.Least) {
		return a
	}
	return b
}

// outside is the factor above the highest calibrated rate up to which its measurements
// apply.
const outside = 1.25

// Link returns the measurements for a link of any rate and MTU. Between calibrated rates
// each bucket's figures are interpolated in the logarithm of the rate. Between MTUs those
// of the nearest apply, with buckets and credits larger by the difference of the frames:
// the lateness of timers, and so the bytes that a bucket needs in addition to a frame,
// depends on the rate alone. Below the lowest calibrated rate, where timers matter less,
// the lowest applies. ok is false if the rate is more than a quarter above the highest, or
// if nothing is calibrated.
func (c *Calibration) Link(rate units.Rate, mtu units.Bytes) (_ Link, ok bool) {
	links := c.nearestMTU(mtu)
	if len(links) == 0 || rate <= 0 || float64(rate) > outside*float64(links[len(links)-1].Rate) {
		return Link{}, false
	}
	i, exact := slices.BinarySearchFunc(links, rate, func(l Link, r units.Rate) int { return cmp.Compare(l.Rate, r) })
	var out Link
	switch {
	case exact || i == 0:
		out = links[i]
	case i == len(links):
		out = links[i-1]
	default:
		out = between(links[i-1], links[i], rate)
	}
	shift := mtu - out.MTU
	bursts := make([]Burst, len(out.Bursts))
	for j, b := range out.Bursts {
		b.Size += shift
		b.Credit = Spread{b.Credit.Median + float64(shift), b.Credit.Least + float64(shift), b.Credit.Most + float64(shift)}
		bursts[j] = b
	}
	out.Rate, out.MTU, out.Bursts = rate, mtu, bursts
	return out, true
}

// nearestMTU returns the links calibrated at the MTU nearest to mtu, by rate.
func (c *Calibration) nearestMTU(mtu units.Bytes) []Link {
	var nearest units.Bytes
	far := math.Inf(1)
	for _, l := range c.Links {
		if d := math.Abs(math.Log(float64(l.MTU) / float64(mtu))); d < far {
			nearest, far = l.MTU, d
		}
	}
	var links []Link
	for _, l := range c.Links {
		if l.MTU == nearest {
			links = append(links, l)
		}
	}
	slices.SortFunc(links, func(a, b Link) int { return cmp.Compare(a.Rate, b.Rate) })
	return links
}

// between interpolates the buckets that two links of one MTU have in common.
func between(lo, hi Link, rate units.Rate) Link {
	at := math.Log(float64(rate)/float64(lo.Rate)) / math.Log(float64(hi.Rate)/float64(lo.Rate))
	mix := func(a, b Spread) Spread {
		lerp := func(a, b float64) float64 { return a + at*(b-a) }
		return Spread{lerp(a.Median, b.Median), lerp(a.Least, b.Least), lerp(a.Most, b.Most)}
	}
	out := Link{Rate: rate, MTU: lo.MTU, Flow: lo.Flow}
	for _, a := range lo.Bursts {
		i := slices.IndexFunc(hi.Bursts, func(b Burst) bool { return b.Size == a.Size })
		if i >= 0 {
			b := hi.Bursts[i]
			out.Bursts = append(out.Bursts, Burst{a.Size, mix(a.RateError, b.RateError), mix(a.Credit, b.Credit)})
		}
	}
	return out
}

// Working returns the calibrated rates at the MTU nearest to mtu whose window is not empty
// for short flows of the given size, ascending.
func (c *Calibration) Working(mtu, short units.Bytes) []units.Rate {
	var out []units.Rate
	for _, l := range c.nearestMTU(mtu) {
		if at, ok := c.Link(l.Rate, mtu); ok && !at.Window(short).Empty() {
			out = append(out, l.Rate)
		}
	}
	return out
}

// At returns the capacity measured at the MTU nearest to mtu; ok is false without one.
func (c *Calibration) At(mtu units.Bytes) (best Capacity, ok bool) {
	far := math.Inf(1)
	for _, x := range c.Capacity {
		if d := math.Abs(math.Log(float64(x.MTU) / float64(mtu))); d < far {
			best, far, ok = x, d, true
		}
	}
	return best, ok
}

// Nearest returns the measured bucket that is nearest in size. The link must have one.
func (l Link) Nearest(size units.Bytes) Burst {
	return slices.MinFunc(l.Bursts, func(a, b Burst) int {
		return cmp.Compare(max(a.Size-size, size-a.Size), max(b.Size-size, size-b.Size))
	})
}
