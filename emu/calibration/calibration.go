// Package calibration is what a machine was measured to be able to do: for each
// link rate and MTU, which token buckets hold the rate and the time of short
// flows; how many packets a second it carries; what its disk writes. It keeps
// that in a file a machine and kernel, and derives the bucket of a link from it.
//
// It measures nothing (emu/calibrate does) and touches no kernel.
package calibration

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/emu/plan"
	"testbed/topo/units"
)

// Version of the file's format.
const Version = 1

// What a link must hold to be accepted, and what short flow where a scenario
// does not say (scenario.Fabric.ShortFlow has the same default).
const (
	RateTolerance                = 0.01 // of the rate of a saturated link
	FlowTolerance                = 0.05 // of the time of a short flow after an idle moment
	DefaultShortFlow units.Bytes = 50 * units.KB
)

// Calibration is what one machine was measured to do.
type Calibration struct {
	Version int           `json:"version"`
	Tool    string        `json:"tool"` // version of testbed
	Date    time.Time     `json:"date"`
	Machine string        `json:"machine"` // MachineID
	Kernel  string        `json:"kernel"`
	CPUs    int           `json:"cpus"`
	Took    time.Duration `json:"took_ns"`
	Links   []Link        `json:"links"`
	// Capacity is by MTU.
	Capacity []Capacity `json:"capacity"`
	Build    Build      `json:"build"`
	Disk     Disk       `json:"disk"`
}

// Spread is the median of several measurements, the least and the most of them.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// SpreadOf is the spread of xs, which must not be empty.
func SpreadOf(xs []float64) Spread {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Least: s[0], Most: s[n-1]}
}

// Link is what buckets of several sizes do to a link of one rate and MTU.
type Link struct {
	Rate   units.Rate  `json:"rate"`
	MTU    units.Bytes `json:"mtu"`
	Flow   units.Bytes `json:"flow"` // payload of the flow whose credit was measured
	Bursts []Burst     `json:"bursts"`
}

// Burst is what one bucket does.
type Burst struct {
	Size units.Bytes `json:"burst"`
	// RateError is what a saturated link delivers over its rate, less 1.
	RateError Spread `json:"rate_error"`
	// Credit is the bytes by which a flow after an idle moment is ahead of the
	// link's rate when its last frame arrives, counted from its first frame. It is
	// below 0 where the flow is slower than the link.
	Credit Spread `json:"credit_bytes"`
}

// Capacity is what real runs carried at one MTU: the most flows at once between
// hosts of one rack, each saturating two shaped links of rate Rate, with verdict
// pass.
type Capacity struct {
	MTU   units.Bytes `json:"mtu"`
	Rate  units.Rate  `json:"rate"`
	Flows int         `json:"flows"`
	// Links is shaped links that were saturated, two a flow.
	Links int `json:"saturated_links"`
	// Packets is full frames a second through shapers, every hop counted.
	Packets float64 `json:"shaped_packets_per_s"`
	// Cost is the processor time of a packet for each shaper it passes, with
	// senders, receivers, captures and timers.
	Cost     time.Duration `json:"packet_cost_ns"`
	CostFrom [2]float64    `json:"packet_cost_least_most_ns"`
	// Bounded tells that the search ended at its own bound: the machine may carry
	// more.
	Bounded bool `json:"bounded,omitempty"`
}

// Product is saturated links times packets a second.
func (c Capacity) Product() float64 { return float64(c.Links) * c.Packets }

// Build is the time that each part of a fabric takes to make, in milliseconds.
type Build struct {
	Namespace Spread `json:"namespace_ms"`
	Veth      Spread `json:"veth_ms"`
	Qdisc     Spread `json:"qdisc_ms"`
}

// Disk is what the machine's disk and the ways to throttle it do.
type Disk struct {
	Dir       string     `json:"dir"`
	Mode      string     `json:"mode"`             // "O_DIRECT" or "O_DSYNC"
	Write     Spread     `json:"write_bits_per_s"` // unthrottled
	Throttles []Throttle `json:"throttles"`
}

// Throttle is one mechanism: at each rate what it let through over the rate,
// less 1, or why it is missing.
type Throttle struct {
	Name    string          `json:"name"`
	Missing string          `json:"missing,omitempty"`
	Rates   []ThrottledRate `json:"rates,omitempty"`
}

// ThrottledRate is what a mechanism did at one rate.
type ThrottledRate struct {
	Rate  units.Rate `json:"rate"`
	Error float64    `json:"error"` // over all that was written
	// SteadyError leaves out the beginning, which some mechanisms give away; nil
	// where too little came after it.
	SteadyError *float64 `json:"steady_error,omitempty"`
}

// Headers of a full segment with time stamps (20 of IP, 32 of TCP), and what a
// frame has besides its payload.
const tcpHeaders units.Bytes = 20 + 32

// Wire is the bytes of all frames that carry size bytes of payload.
func Wire(size, mtu units.Bytes) units.Bytes {
	payload := mtu - tcpHeaders
	return size + (size+payload-1)/payload*(tcpHeaders+plan.EthernetHeader)
}

// Window is the buckets, by size, that hold both the rate and the time of a
// short flow.
type Window struct {
	Least, Most units.Bytes
}

// Empty tells that no bucket holds both.
func (w Window) Empty() bool { return w.Most == 0 }

// Pick is the bucket to use: three quarters of the way up, in the logarithm. The
// upper end is sharp, since no bucket gives more than its bytes; the lower one
// moves with how late timers are at the moment.
func (w Window) Pick() units.Bytes {
	return units.Bytes(math.Round(math.Pow(float64(w.Least), 0.25) * math.Pow(float64(w.Most), 0.75)))
}

// Window is the window of the link for short flows of the given size: of the
// buckets measured, the widest run that holds both. The upper end lies between
// two that were measured where the one above gives short flows too much: there
// the credit grows with the bucket. It is no bucket larger than the credit that is
// allowed: a full one gives all its bytes wherever timers are in time, and late
// timers, which hide that, come and go.
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

// below is the part of the window up to most.
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

// outside is how far beyond the calibrated rates a rate still counts as the
// nearest of them.
const outside = 1.25

// Link is what buckets do to a link of any rate and MTU. Between calibrated
// rates each bucket's figures are interpolated in the logarithm of the rate.
// Between MTUs those of the nearest are taken, with buckets and credits larger
// by what a frame is larger: how late timers are, and so how many bytes a bucket
// needs besides a frame, depends on the rate alone. Below the lowest calibrated
// rate, where timers matter less, the lowest is taken. ok is false above the
// highest, beyond a quarter more, and where nothing was calibrated.
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

// nearestMTU is the links calibrated at the MTU nearest to mtu, by rate.
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

// Working is the calibrated rates at the MTU nearest to mtu whose window is not
// empty for short flows of the given size, ascending.
func (c *Calibration) Working(mtu, short units.Bytes) []units.Rate {
	var out []units.Rate
	for _, l := range c.nearestMTU(mtu) {
		if at, ok := c.Link(l.Rate, mtu); ok && !at.Window(short).Empty() {
			out = append(out, l.Rate)
		}
	}
	return out
}

// At is the capacity measured at the MTU nearest to mtu; ok is false where none
// was.
func (c *Calibration) At(mtu units.Bytes) (best Capacity, ok bool) {
	far := math.Inf(1)
	for _, x := range c.Capacity {
		if d := math.Abs(math.Log(float64(x.MTU) / float64(mtu))); d < far {
			best, far, ok = x, d, true
		}
	}
	return best, ok
}

// Nearest is the bucket measured that is nearest in size. The link must have
// one.
func (l Link) Nearest(size units.Bytes) Burst {
	return slices.MinFunc(l.Bursts, func(a, b Burst) int {
		return cmp.Compare(max(a.Size-size, size-a.Size), max(b.Size-size, size-b.Size))
	})
}
