// Package fidelity judges a run: it derives a verdict, which accompanies every figure,
// from measurements taken during the run. The verdict states whether the emulated
// links, disks and captures matched the scenario, and whether the machine kept up.
//
// It measures nothing: emu/live provides samples, and results/flows the content of
// captures. It does not judge the quality of a policy.
package fidelity

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"testbed/results/verdict"
	"testbed/topo/units"
)

// Thresholds are the bounds of every check; Default returns their defaults.
type Thresholds struct {
	// DeliveredPass and DeliveredVoid bound the bytes that saturated links delivered,
	// relative to their configured rate.
	DeliveredPass, DeliveredVoid Range
	// Windows bound the same in the worst windows, by WindowLengths.
	Windows [2]WindowBounds
	// SpacingPass and SpacingVoid are the minimum fractions of packet gaps on saturated
	// links that are within a tenth of the wire time, or one packet time, of the
	// expected gap.
	SpacingPass, SpacingVoid float64
	// SpacingWindowPass and SpacingWindowVoid are the same for the worst 250 ms of a link.
	SpacingWindowPass, SpacingWindowVoid float64
	// LatenessPass is the 99th percentile of scheduling lateness that always passes;
	// LatenessPassCCT and LatenessVoidCCT are fractions of the median completion time.
	LatenessPass                     time.Duration
	LatenessPassCCT, LatenessVoidCCT float64
	// DiskPass and DiskVoid bound the bytes that busy disks wrote, relative to their rate.
	DiskPass, DiskVoid Range
	// EnginePass is the difference between the completion on the wire and its
	// notification of the engine that always passes; EnginePassFraction and
	// EngineVoidFraction are fractions of the completion time. To pass, every transfer
	// must be within the bound. The run is void if more than EngineVoidShare of them
	// are beyond it, so that one preemption, which the report states, does not void
	// all figures.
	EnginePass                             time.Duration
	EnginePassFraction, EngineVoidFraction float64
	EngineVoidShare                        float64
	// CountersVoid is the fraction of bytes by which captures and interface counters
	// may differ before the run is void. Only equality passes.
	CountersVoid float64
	// BurstPass and BurstVoid are the excess above its bucket that a link may have, in
	// transmission time, at the 90th percentile of packets.
	BurstPass, BurstVoid time.Duration
	// BurstMost is the excess that the link may have once and pass.
	BurstMost time.Duration
	// LossVoid is the fraction of a namespace's packets whose loss may be unexplained
	// before the run is void. Only 0 passes.
	LossVoid float64
	// StallPass is the longest single lateness that passes; StallVoidCCT is a fraction of
	// the median completion time.
	StallPass    time.Duration
	StallVoidCCT float64
	// OthersPass is the share of the processors that other processes may use.
	OthersPass float64
	// ClockVoid is the size of a step of the wall clock, which stamps packets, above
	// which the run is void. Only a clock without steps passes.
	ClockVoid time.Duration
	// ForeignPass and ForeignVoid bound the share of a host's link that traffic of others
	// takes in the worst window. SwitchVoid is the fraction of its forwarded packets that a
	// switch may create, or receive for itself, before the run is void. Only 0 passes.
	ForeignPass, ForeignVoid, SwitchVoid float64
	// QueuePass and QueueVoid bound the limit that a queue showed, relative to its plan: from below by
	// the longest queue, from above by drops (Queue.AtMost).
	QueuePass, QueueVoid Range
	// RoundTripPass and RoundTripVoid are the excess that the minimum round-trip time of an idle path, or of the transfers
	// over a switch, may have over its plan.
	RoundTripPass, RoundTripVoid time.Duration
	// ResentPass is how many packets may be sent again beyond those that queues dropped, relative to these, and RepeatedPass
	// the share of packets that may reach a host twice. Beyond ResentVoid of all packets, either is void.
	ResentPass, RepeatedPass, ResentVoid float64
	// SegmentsPass and SegmentsVoid bound the packets of a transfer, relative to full segments.
	SegmentsPass, SegmentsVoid float64
	// LimitedPass and LimitedVoid bound the share of the time with data to send in which windows or buffers kept it back.
	LimitedPass, LimitedVoid float64
	// FluidPass and FluidVoid bound what transfers take on average, relative to what transport explains above the fluid model.
	FluidPass, FluidVoid float64
}

// Range is a closed interval.
type Range struct{ Lo, Hi float64 }

func (r Range) has(x float64) bool { return x >= r.Lo && x <= r.Hi }

// Default returns the bounds that every report prints.
func Default() Thresholds {
	return Thresholds{
		DeliveredPass: Range{0.97, 1.01}, DeliveredVoid: Range{0.90, 1.05},
		Windows:     [2]WindowBounds{{Range{0.82, 1.04}, Range{0.6, 1.25}, 0.7}, {Range{0.92, 1.03}, Range{0.75, 1.12}, 0.9}},
		SpacingPass: 0.90, SpacingVoid: 0.50, SpacingWindowPass: 0.75, SpacingWindowVoid: 0.40,
		LatenessPass: 5 * time.Millisecond, LatenessPassCCT: 0.01, LatenessVoidCCT: 0.10,
		DiskPass: Range{0.97, 1.03}, DiskVoid: Range{0.90, 1.10},
		EnginePass: 2 * time.Millisecond, EnginePassFraction: 0.01, EngineVoidFraction: 0.10, EngineVoidShare: 0.01,
		CountersVoid: 0.001,
		BurstPass:    500 * time.Microsecond, BurstVoid: 10 * time.Millisecond, BurstMost: 4 * time.Millisecond,
		LossVoid:  0.001,
		StallPass: 50 * time.Millisecond, StallVoidCCT: 0.10,
		OthersPass:  0.15,
		ClockVoid:   2 * time.Millisecond,
		ForeignPass: 0.001, ForeignVoid: 0.01, SwitchVoid: 0.001,
		QueuePass: Range{0.95, 1.05}, QueueVoid: Range{0.5, 1.5},
		RoundTripPass: 800 * time.Microsecond, RoundTripVoid: 5 * time.Millisecond,
		ResentPass: 0.03, RepeatedPass: 0.001, ResentVoid: 0.01,
		SegmentsPass: 1.1, SegmentsVoid: 1.5,
		LimitedPass: 0.05, LimitedVoid: 0.2,
		FluidPass: 1.5, FluidVoid: 3,
	}
}

// Samples are the measurements of one arm and repeat.
type Samples struct {
	// Sampled is in a file of its own.
	Sampled  `json:"-"`
	Captures []Capture
	Spacing  []Spacing
	Disks    []Disk
	// Transfers are all flows and blocks with a completion both on the wire and in the
	// engine.
	Transfers []Transfer
	MedianCCT time.Duration // of coflows, or of block writes without coflows
	// Problems are gaps in the records of captures; each degrades the run.
	Problems []string
	// Completed are the numbers of items that the engine completed, by their name ("coflows"), and
	// Recorded the numbers of those with a record in the captures.
	Completed, Recorded map[string]int `json:",omitempty"`
	// Bursts are all captured directions of links, Losses all namespaces.
	Bursts []Conformance
	Losses []Loss
	// Engine is the longest wait of an event or an arrival for the engine.
	Engine  time.Duration
	Machine Machine
	// Answers are those of policies that are processes, by role, except at latency measured.
	Answers []Answers `json:",omitempty"`
	// Clock are the steps of the wall clock during the run.
	Clock []ClockStep `json:",omitempty"`
	// Kernel are the differences between the kernel and the plan that came during the run. KernelLost states that
	// reports of such changes are missing.
	Kernel     []KernelChange `json:",omitempty"`
	KernelLost bool           `json:",omitempty"`
	// Foreign are the directions of hosts' links that carried foreign traffic, and Switches
	// the packets of all leaves and spines.
	Foreign  []Foreign       `json:",omitempty"`
	Switches []SwitchPackets `json:",omitempty"`
	// Crossings are the packets between leaves and spines, two for each leaf.
	Crossings []Crossing `json:",omitempty"`
	// RoundTrips are those of idle paths that together contain all links.
	RoundTrips []RoundTrip `json:",omitempty"`
	// TCP is what TCP did in the transfers, and Plausibility what they took relative to the fluid model.
	TCP          TCP
	Plausibility []Plausibility `json:",omitempty"`
	// Exempt maps links ("h0-00>leaf0"), hosts and switches ("h0-00") and disks
	// ("h0-00/disk") that a scenario changed on purpose during the run to the reason.
	// The checks delivered, packet-spacing, burst and disk exclude them and state their
	// number. A host or switch represents all its links.
	Exempt map[string]string
	// Lossy maps hosts and switches that lose packets because of the scenario, such as
	// those at the ends of a cut cable, to the reason. The checks loss, captured-bytes
	// and foreign (for switches) exclude them: packets queued for a cable when it is cut are in some captures and in
	// no counter.
	Lossy map[string]string
}

// medianCCT states what lateness is compared with, in reasons.
func (s Samples) medianCCT() string {
	if s.MedianCCT == 0 {
		return "and nothing completed"
	}
	return fmt.Sprintf("with a median completion time of %v", round(s.MedianCCT))
}

// Capture is the capture of one host.
type Capture struct {
	Host string
	// Dropped counts packets that the kernel did not deliver.
	Dropped uint64
	// Bytes are those of the host's interface in the capture, in original lengths, and
	// Counted those of the interface's counters in the same time, both directions.
	Bytes, Counted uint64
}

// Disk is one of a host's disks, measured while it had writes, or reads, pending.
type Disk struct {
	Host    string
	Rate    units.Rate
	Written units.Bytes // or read
	Busy    time.Duration
	// Number is the index of the disk among the Of disks of its host, from 0; Of is 0 or 1
	// for a single disk.
	Number int `json:",omitempty"`
	Of     int `json:",omitempty"`
	// Reads marks the measurement of reads, which have their own rate.
	Reads bool `json:",omitempty"`
}

// name returns the name of the disk in messages.
func (d Disk) name() string {
	if d.Of > 1 {
		return fmt.Sprintf("disk %d of %s", d.Number, d.Host)
	}
	return "the disk of " + d.Host
}

// Transfer is one flow or block write, or one end of a read of an input block.
type Transfer struct {
	Name         string
	Completion   time.Duration // on the wire, from arrival
	Wire, Engine time.Duration // time of completion, same origin: by packets, and when the engine was notified
	// Lag is the time by which Engine may be after Wire for another reason than lateness.
	Lag time.Duration `json:",omitempty"`
}

// Minimum sizes of measurements that are judged.
const (
	minDiskBusy = 200 * time.Millisecond // per disk
	minPackets  = 100                    // per link, for its bursts
)

// Judge returns the verdict of one arm and repeat.
func Judge(s Samples, th Thresholds) verdict.Verdict {
	checks := []verdict.Check{
		Kernel(s.Kernel, s.KernelLost), clock(s, th), captureDrops(s), counters(s, th), delivered(s, th), spacing(s, th), lateness(s, th), disks(s, th), engine(s, th),
		burst(s, th), frames(s, th), loss(s, th), stall(s, th), policyLate(s, th), machine(s, th), foreign(s, th), queue(s, th), roundTrip(s, th),
		retransmission(s, th), segments(s, th), flowControl(s, th), fluidModel(s, th),
	}
	othersDelayed(checks)
	return Doubt(verdict.Of(checks...), s.Problems, s.Completed, s.Recorded)
}

func grade(pass, void bool) verdict.Level {
	switch {
	case pass:
		return verdict.Pass
	case void:
		return verdict.Void
	}
	return verdict.Degraded
}

func captureDrops(s Samples) verdict.Check {
	c := verdict.Check{Name: "capture-drops", Level: verdict.Pass, Pass: "0", Void: "> 0"}
	var total uint64
	worst := Capture{}
	for _, k := range s.Captures {
		total += k.Dropped
		if k.Dropped > worst.Dropped {
			worst = k
		}
	}
	c.Value = fmt.Sprintf("%d packets", total)
	if total > 0 {
		c.Level = verdict.Void
		c.Reason = fmt.Sprintf("the capture of %s lost %d packets, so completion times may be wrong: enlarge capture.ring or lower the load", worst.Host, worst.Dropped)
	}
	return c
}

func counters(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "captured-bytes", Level: verdict.Pass, Value: "equal", Pass: "equal to the interface counters", Void: fmt.Sprintf("difference > %g %%", 100*th.CountersVoid)}
	worst, host := 0.0, ""
	var skipped skips
	for _, k := range s.Captures {
		if k.Bytes == k.Counted || skipped.lossy(s, k.Host) {
			continue
		}
		difference := math.Abs(float64(k.Bytes)-float64(k.Counted)) / math.Max(float64(k.Counted), 1)
		if host == "" || difference > worst {
			worst, host = difference, k.Host
		}
	}
	if host != "" {
		c.Level = grade(false, worst > th.CountersVoid)
		c.Value = fmt.Sprintf("difference %.4f %%", 100*worst)
		c.Reason = fmt.Sprintf("the capture of %s and the counters of its interface differ", host)
	}
	c.Value += skipped.String()
	return c
}

func lateness(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "scheduling-lateness", Value: fmt.Sprintf("p99 %s", round(s.Lateness)),
		Pass: fmt.Sprintf("≤ %v or %g %% of the median CCT", th.LatenessPass, 100*th.LatenessPassCCT), Void: fmt.Sprintf("≥ %g %% of the median CCT", 100*th.LatenessVoidCCT)}
	of := float64(s.Lateness) / math.Max(float64(s.MedianCCT), 1)
	c.Level = grade(s.Lateness <= th.LatenessPass || s.MedianCCT > 0 && of <= th.LatenessPassCCT, s.MedianCCT > 0 && of >= th.LatenessVoidCCT)
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("timers fired %s late at the 99th percentile, %s: the machine is overloaded or shared", round(s.Lateness), s.medianCCT())
	}
	return c
}

func disks(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "disk", Level: verdict.Pass, Value: "no disk busy",
		Pass: fmt.Sprintf("%.2f to %.2f of the rate while busy", th.DiskPass.Lo, th.DiskPass.Hi), Void: fmt.Sprintf("< %.2f or > %.2f", th.DiskVoid.Lo, th.DiskVoid.Hi)}
	n, reads, worst, which := 0, 0, 1.0, Disk{}
	var skipped skips
	for _, d := range s.Disks {
		if d.Busy < minDiskBusy || d.Rate <= 0 || skipped.disk(s, d) {
			continue
		}
		if r := float64(units.RateOf(d.Written, d.Busy)) / float64(d.Rate); n+reads == 0 || math.Abs(r-1) > math.Abs(worst-1) {
			worst, which = r, d
		}
		if d.Reads {
			reads++
		} else {
			n++
		}
	}
	if n+reads == 0 {
		c.Value += skipped.String()
		return c
	}
	c.Level = grade(th.DiskPass.has(worst), !th.DiskVoid.has(worst))
	c.Value = fmt.Sprintf("%.3f at worst on %d busy disks", worst, n)
	if reads > 0 {
		c.Value += fmt.Sprintf(" and on %d with reads", reads)
	}
	c.Value += skipped.String()
	if c.Level != verdict.Pass {
		did := "wrote"
		if which.Reads {
			did = "read"
		}
		c.Reason = fmt.Sprintf("%s %s at %.1f %% of its configured rate", which.name(), did, 100*worst)
	}
	return c
}

func engine(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "wire-vs-engine", Level: verdict.Pass, Value: "no transfers",
		Pass: fmt.Sprintf("each ≤ %v or %g %%", th.EnginePass, 100*th.EnginePassFraction), Void: fmt.Sprintf("> %g %% for more than %g %% of them", 100*th.EngineVoidFraction, 100*th.EngineVoidShare)}
	if len(s.Transfers) == 0 {
		return c
	}
	type deviation struct {
		level verdict.Level
		by    time.Duration
		name  string
	}
	all := make([]deviation, 0, len(s.Transfers))
	for _, t := range s.Transfers {
		by := t.Engine - t.Wire
		if by > 0 {
			by = max(0, by-t.Lag)
		}
		by = by.Abs()
		of := float64(by) / math.Max(float64(t.Completion), 1)
		all = append(all, deviation{grade(by <= th.EnginePass || of <= th.EnginePassFraction, of > th.EngineVoidFraction), by, t.Name})
	}
	slices.SortFunc(all, func(a, b deviation) int {
		if a.level != b.level {
			return int(a.level) - int(b.level)
		}
		return int(a.by - b.by)
	})
	at := all[len(all)-1]
	c.Level = min(at.level, verdict.Degraded)
	void := len(all) - sort.Search(len(all), func(i int) bool { return all[i].level > verdict.Degraded })
	if float64(void) > th.EngineVoidShare*float64(len(all)) {
		c.Level = verdict.Void
	}
	beyond := len(all) - sort.Search(len(all), func(i int) bool { return all[i].level > verdict.Pass })
	c.Value = fmt.Sprintf("%s at worst of %d transfers, %d of them beyond the bound for pass and %d beyond that for void", round(at.by), len(all), beyond, void)
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("the engine was notified of %s %s away from its completion on the wire: agents ran late, or the captures are wrong", at.name, round(at.by))
	}
	return c
}

func round(d time.Duration) time.Duration {
	switch size := d.Abs(); {
	case size >= time.Second:
		return d.Round(10 * time.Millisecond)
	case size >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
