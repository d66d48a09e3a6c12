// Package fidelity judges a run: it turns measurements of the run itself, taken
// while it went on, into a verdict that goes with every figure. The question is
// whether the emulated links, disks and captures were what the scenario says, and
// whether the machine kept up.
//
// It measures nothing: emu/live hands it samples and results/flows what
// captures show. It says nothing of whether a policy is any good.
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

// Thresholds are the bounds of every check, with the defaults of Default.
type Thresholds struct {
	// DeliveredPass and DeliveredVoid bound what saturated links delivered over
	// their configured rate.
	DeliveredPass, DeliveredVoid Range
	// SpacingPass and SpacingVoid are the least fractions of packet gaps on
	// saturated links that are within a tenth of the wire time, or one packet
	// time, of what they should be.
	SpacingPass, SpacingVoid float64
	// LatenessPass is the 99th percentile of scheduling lateness that is always
	// good enough; LatenessPassCCT and LatenessVoidCCT are fractions of the
	// median completion time.
	LatenessPass                     time.Duration
	LatenessPassCCT, LatenessVoidCCT float64
	// DiskPass and DiskVoid bound what busy disks wrote over their rate.
	DiskPass, DiskVoid Range
	// EnginePass is the difference between the wire's and the engine's notion of
	// a completion that is always good enough; EnginePassFraction and
	// EngineVoidFraction are fractions of the completion time. To pass, every
	// transfer must be within; the run is void where more than EngineVoidShare of
	// them are beyond, so that one preemption, which is told, does not take all
	// figures away.
	EnginePass                             time.Duration
	EnginePassFraction, EngineVoidFraction float64
	EngineVoidShare                        float64
	// CountersVoid is the fraction of bytes by which captures and interface
	// counters may differ before the run is void. Only equality passes.
	CountersVoid float64
	// BurstPass and BurstVoid are by how much of its own time a link may exceed its
	// bucket, at the 90th percentile of packets.
	BurstPass, BurstVoid time.Duration
	// LossVoid is the fraction of a namespace's packets that may be lost without an
	// explanation before the run is void. Only none passes.
	LossVoid float64
	// StallPass is the longest single lateness that is good enough; StallVoidCCT is a
	// fraction of the median completion time.
	StallPass    time.Duration
	StallVoidCCT float64
	// OthersPass is the share of the processors that other processes may take.
	OthersPass float64
}

// Range is closed at both ends.
type Range struct{ Lo, Hi float64 }

func (r Range) has(x float64) bool { return x >= r.Lo && x <= r.Hi }

// Default is the table that every report prints.
func Default() Thresholds {
	return Thresholds{
		DeliveredPass: Range{0.97, 1.01}, DeliveredVoid: Range{0.90, 1.05},
		SpacingPass: 0.90, SpacingVoid: 0.50,
		LatenessPass: 5 * time.Millisecond, LatenessPassCCT: 0.01, LatenessVoidCCT: 0.10,
		DiskPass: Range{0.97, 1.03}, DiskVoid: Range{0.90, 1.10},
		EnginePass: 2 * time.Millisecond, EnginePassFraction: 0.01, EngineVoidFraction: 0.10, EngineVoidShare: 0.01,
		CountersVoid: 0.001,
		BurstPass:    500 * time.Microsecond, BurstVoid: 10 * time.Millisecond,
		LossVoid:  0.001,
		StallPass: 50 * time.Millisecond, StallVoidCCT: 0.10,
		OthersPass: 0.15,
	}
}

// Samples is what was measured of one arm and repeat.
type Samples struct {
	Captures []Capture
	Links    []Link
	Spacing  []Spacing
	Lateness time.Duration // 99th percentile of the scheduling probe
	Disks    []Disk
	// Transfers are all flows and blocks that both the wire and the engine saw
	// complete.
	Transfers []Transfer
	MedianCCT time.Duration // of coflows, or of block writes where there are none
	// Problems are what captures could not account for; each degrades the run.
	Problems []string
	// Bursts are all captured directions of links, Losses all namespaces.
	Bursts  []Conformance
	Losses  []Loss
	Stall   Stall
	Machine Machine
	// Exempt are the links ("h0-00>leaf0"), hosts and switches ("h0-00") and disks
	// ("h0-00/disk") that a scenario changed on purpose during the run, and why. They
	// are not judged by delivered, packet-spacing, burst and disk, whose values
	// say how many were not. A host or switch stands for all its links.
	Exempt map[string]string
	// Lossy are the hosts and switches that a scenario made lose packets, such as
	// those at the ends of a cable that was cut, and why. They are not judged by loss
	// and captured-bytes: what waits for a cable when it is cut is captured by some and
	// counted by none.
	Lossy map[string]string
}

// Capture is the capture of one host.
type Capture struct {
	Host string
	// Dropped counts packets that the kernel did not hand over.
	Dropped uint64
	// Bytes and Counted are what the capture holds of the host's interface, in
	// original lengths, and what the interface counted meanwhile, both ways.
	Bytes, Counted uint64
}

// Link is what one directed link delivered, and could have delivered at its rate,
// in spells in which it was busy from end to end: at no moment had it less waiting
// than it could send until the next look.
type Link struct {
	Name             string
	Frame            units.Bytes // of the MTU
	Spells           int
	Delivered, Could units.Bytes // in all of them, frames
	// Pieces says that less is known: the link had packets waiting at every look of
	// the spells, 8 ms apart, but between two looks it may have had none for a moment.
	// It is what each piece of a spell, of PieceFrames frames' time or more,
	// delivered over what it could have. In most pieces the link was busy from end
	// to end.
	Pieces []float64 `json:",omitempty"`
}

// PieceFrames is the least length of a Link's pieces, in frames' time: a piece is
// then off by 2 % (standard deviation) for being counted in whole frames.
const PieceFrames = 20

// Of a link that is known by its pieces, the quartiles are judged. With 16 pieces
// they are off by 0.7 % (standard deviation) for whole frames. One spell may have
// had idle moments all along, as when its senders keep to a ceiling.
const (
	minPieces = 16
	minSpells = 2
)

// share is what the link delivered of its rate: of pieces the median, if that is
// good enough. If it is not, some may have been idle for a moment, and the better
// quartile tells: the link is too slow, or too fast, if three quarters of its pieces
// are.
func (l Link) share(pass Range) float64 {
	if len(l.Pieces) == 0 {
		return float64(l.Delivered) / float64(l.Could)
	}
	p := slices.Sorted(slices.Values(l.Pieces))
	low, middle, high := p[len(p)/4], p[len(p)/2], p[len(p)-1-len(p)/4]
	switch {
	case middle < pass.Lo:
		return min(high, 1)
	case middle > pass.Hi:
		return max(low, 1)
	}
	return middle
}

// enough tells whether the link was watched for long enough to be judged: what it
// delivers is counted in whole frames, off by 0.6 of one a spell (the standard
// deviation of the difference of two uniform errors is 0.41, and not all frames
// are full), and that should come to 0.2 % or less.
func (l Link) enough() bool {
	if len(l.Pieces) > 0 {
		return l.Spells >= minSpells && len(l.Pieces) >= minPieces
	}
	return l.Frame > 0 && float64(l.Could)/float64(l.Frame) >= 300*math.Sqrt(float64(l.Spells))
}

// Spacing is the gaps between packets on one link that should have been evenly
// spaced.
type Spacing struct {
	Link       string
	Gaps, Good int
}

// Disk is one of a host's disks while it had something to write, or something to read.
type Disk struct {
	Host    string
	Rate    units.Rate
	Written units.Bytes // or read
	Busy    time.Duration
	// Number is which of the Of disks of its host it is, from 0; Of is 0 or 1 where it
	// is the only one.
	Number int `json:",omitempty"`
	Of     int `json:",omitempty"`
	// Reads tells that it is of reads, which have a rate of their own.
	Reads bool `json:",omitempty"`
}

// name is how messages call the disk.
func (d Disk) name() string {
	if d.Of > 1 {
		return fmt.Sprintf("disk %d of %s", d.Number, d.Host)
	}
	return "the disk of " + d.Host
}

// Transfer is one flow or block write.
type Transfer struct {
	Name         string
	Completion   time.Duration // on the wire, from arrival
	Wire, Engine time.Duration // moment of completion, same zero: by packets, and when the engine was told
}

// Bounds below which a measurement is too small to judge by.
const (
	minGaps     = 200                    // a link
	minDiskBusy = 200 * time.Millisecond // a disk
	minPackets  = 100                    // a link, for its bursts
)

// Judge makes the verdict of one arm and repeat.
func Judge(s Samples, th Thresholds) verdict.Verdict {
	checks := []verdict.Check{
		captureDrops(s), counters(s, th), delivered(s, th), spacing(s, th), lateness(s, th), disks(s, th), engine(s, th),
		burst(s, th), frames(s, th), loss(s, th), stall(s, th), machine(s, th),
	}
	return Doubt(verdict.Of(checks...), s.Problems)
}

// recordsCheck is the name of the check of what captures could not account for.
const recordsCheck = "records"

// Doubt is a verdict on captures that have problems. One that was given when they
// were known already is left as it is.
func Doubt(v verdict.Verdict, problems []string) verdict.Verdict {
	if len(problems) == 0 || slices.ContainsFunc(v.Checks, func(c verdict.Check) bool { return c.Name == recordsCheck }) {
		return v
	}
	c := verdict.Check{Name: recordsCheck, Level: verdict.Degraded, Value: fmt.Sprintf("%d problems", len(problems)), Pass: "0 problems", Void: "-", Reason: problems[0]}
	out := verdict.Of(append(slices.Clone(v.Checks), c)...)
	out.Earlier = v.Earlier
	return out
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
	c := verdict.Check{Name: "captured-bytes", Level: verdict.Pass, Value: "equal", Pass: "equal to the interface counters", Void: fmt.Sprintf("apart by > %g %%", 100*th.CountersVoid)}
	worst, host := 0.0, ""
	var skipped skips
	for _, k := range s.Captures {
		if k.Bytes == k.Counted || skipped.lossy(s, k.Host) {
			continue
		}
		apart := math.Abs(float64(k.Bytes)-float64(k.Counted)) / math.Max(float64(k.Counted), 1)
		if host == "" || apart > worst {
			worst, host = apart, k.Host
		}
	}
	if host != "" {
		c.Level = grade(false, worst > th.CountersVoid)
		c.Value = fmt.Sprintf("apart by %.4f %%", 100*worst)
		c.Reason = fmt.Sprintf("the capture of %s does not hold the bytes its interface counted", host)
	}
	c.Value += skipped.String()
	return c
}

func delivered(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "delivered", Level: verdict.Pass, Value: "no link saturated",
		Pass: fmt.Sprintf("%.2f to %.2f of the rate", th.DeliveredPass.Lo, th.DeliveredPass.Hi), Void: fmt.Sprintf("< %.2f or > %.2f", th.DeliveredVoid.Lo, th.DeliveredVoid.Hi)}
	links := map[string]bool{}
	worst, link := 1.0, ""
	var skipped skips
	for _, l := range s.Links {
		if !l.enough() || skipped.link(s, l.Name) {
			continue
		}
		links[l.Name] = true
		r := l.share(th.DeliveredPass)
		level := grade(th.DeliveredPass.has(r), !th.DeliveredVoid.has(r))
		if link == "" || level > c.Level || level == c.Level && math.Abs(r-1) > math.Abs(worst-1) {
			c.Level, worst, link = level, r, l.Name
		}
	}
	if link == "" {
		c.Value += skipped.String()
		return c
	}
	c.Value = fmt.Sprintf("%.3f at worst on %d saturated links", worst, len(links)) + skipped.String()
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("%s delivered %.1f %% of its rate while packets waited: the machine did not keep up, or the link is not shaped as the scenario says", link, 100*worst)
	}
	return c
}

func spacing(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "packet-spacing", Level: verdict.Pass, Value: "no link saturated",
		Pass: fmt.Sprintf("≥ %.0f %% of gaps as the wire spaces them", 100*th.SpacingPass), Void: fmt.Sprintf("< %.0f %%", 100*th.SpacingVoid)}
	n, worst, link := 0, 1.0, ""
	var skipped skips
	for _, l := range s.Spacing {
		if l.Gaps < minGaps || skipped.link(s, l.Link) {
			continue
		}
		n++
		if f := float64(l.Good) / float64(l.Gaps); link == "" || f < worst {
			worst, link = f, l.Link
		}
	}
	if n == 0 {
		c.Value += skipped.String()
		return c
	}
	c.Level = grade(worst >= th.SpacingPass, worst < th.SpacingVoid)
	c.Value = fmt.Sprintf("%.1f %% at worst on %d saturated links", 100*worst, n) + skipped.String()
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("on %s packets came in lumps: the machine was late, or segments were not cut to the MTU", link)
	}
	return c
}

func lateness(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "scheduling-lateness", Value: fmt.Sprintf("p99 %s", round(s.Lateness)),
		Pass: fmt.Sprintf("≤ %v or %g %% of the median CCT", th.LatenessPass, 100*th.LatenessPassCCT), Void: fmt.Sprintf("≥ %g %% of the median CCT", 100*th.LatenessVoidCCT)}
	of := float64(s.Lateness) / math.Max(float64(s.MedianCCT), 1)
	c.Level = grade(s.Lateness <= th.LatenessPass || s.MedianCCT > 0 && of <= th.LatenessPassCCT, s.MedianCCT > 0 && of >= th.LatenessVoidCCT)
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("timers fired late by %s at the 99th percentile, against a median completion of %s: the machine is overloaded or shared", round(s.Lateness), round(s.MedianCCT))
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
		c.Value += fmt.Sprintf(" and %d that were read", reads)
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
	type apart struct {
		level verdict.Level
		by    time.Duration
		name  string
	}
	all := make([]apart, 0, len(s.Transfers))
	for _, t := range s.Transfers {
		by := (t.Engine - t.Wire).Abs()
		of := float64(by) / math.Max(float64(t.Completion), 1)
		all = append(all, apart{grade(by <= th.EnginePass || of <= th.EnginePassFraction, of > th.EngineVoidFraction), by, t.Name})
	}
	slices.SortFunc(all, func(a, b apart) int {
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
		c.Reason = fmt.Sprintf("the engine was told of %s %s from when its packets show it complete: agents ran late, or the captures are wrong", at.name, round(at.by))
	}
	return c
}

func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
