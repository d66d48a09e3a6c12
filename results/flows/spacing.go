package flows

import (
	"cmp"
	"slices"
	"time"

	"testbed/topo/units"
)

// Defaults of SpacingSpec.
const (
	DefaultWindow    = 10 * time.Millisecond
	DefaultFrame     = 1514 * units.Byte // MTU 1500 and the Ethernet header
	DefaultSaturated = 0.9
	framesInWindow   = 40
)

// WorstWindow is the length of the windows in which traffic is judged by itself, so that a
// fault of a moment shows.
const WorstWindow = 250 * time.Millisecond

// poorestGaps is the minimum number of gaps in a window of WorstWindow that is judged.
const poorestGaps = 60

// SpacingSpec states the expected spacing of the packets in one direction of a link.
type SpacingSpec struct {
	// Rate of the link, counted over Ethernet frames without their check
	// sequence, as the kernel's token bucket counts. 0 measures nothing.
	Rate units.Rate
	// Frame is the longest frame of the link; 0 is DefaultFrame.
	Frame units.Bytes
	// Window is the approximate length of the windows for which the link is judged
	// saturated or not; 0 is DefaultWindow or the wire time of 40 of the longest frames,
	// whichever is longer.
	Window time.Duration
	// Saturated is the fraction of Rate that a window must carry for its gaps to
	// count; 0 is DefaultSaturated. This criterion misses a link that is starved below
	// that fraction; Backlogged detects it.
	Saturated float64
	// Backlogged, if set, reports whether the link had packets to send during the whole
	// time between two times: the gaps of such a window count too. It is called with
	// ascending times, from the goroutine that reads the capture.
	Backlogged func(from, to time.Time) bool
}

// Spacing is the measured spacing of the packets in one direction of a link while it was
// saturated. The gap before a packet is compared with the packet's own wire time, because
// a token bucket releases a packet when it has the tokens for it, and a receiver has it
// when the last bit has arrived.
type Spacing struct {
	Windows   int // number of windows
	Saturated int // number of windows whose gaps count below

	Gaps  int // number of gaps between packets
	Near  int // gaps within 10 % of the wire time
	Close int // gaps within 10 % or the wire time of one longest frame, whichever is more

	Bytes units.Bytes   // carried in saturated windows
	Busy  time.Duration // length of the saturated windows
	Worst time.Duration // longest gap in a saturated window

	// Poorest is the worst window of WorstWindow with at least poorestGaps gaps: the one with the
	// smallest share of Close. It may contain windows that were not saturated, whose gaps do not
	// count.
	Poorest Stretch

	// Tenths is the histogram of all windows by utilization: the first element counts
	// those below 10 %, the eleventh those from 100 to 110 %, the last those above.
	Tenths [12]int
}

// Stretch is a part of a capture, with the gaps that count in it.
type Stretch struct {
	From, To    int64 // Unix ns
	Gaps, Close int
}

// CloseShare returns Close as a fraction of the gaps, 1 without any.
func (s Stretch) CloseShare() float64 {
	if s.Gaps == 0 {
		return 1
	}
	return share(s.Close, s.Gaps)
}

// NearShare returns the fraction of gaps within 10 % of the wire time. It is 0 if the link
// was never saturated (Gaps is 0).
func (s Spacing) NearShare() float64 { return share(s.Near, s.Gaps) }

// CloseShare returns the fraction of gaps within 10 % of the wire time or the wire time of
// one longest frame. It is 0 if the link was never saturated (Gaps is 0).
func (s Spacing) CloseShare() float64 { return share(s.Close, s.Gaps) }

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Delivered returns the mean rate of the saturated windows, over frames without check
// sequence.
func (s Spacing) Delivered() units.Rate {
	if s.Busy == 0 {
		return 0
	}
	return units.RateOf(s.Bytes, s.Busy)
}

// Spacer measures the spacing of one direction of a link.
type Spacer struct {
	spec    SpacingSpec
	packet  time.Duration // wire time of the longest frame
	times   []wireTime    // cache, indexed by the lowest bits of the frame length
	window  time.Duration
	started bool
	from    int64 // start of the window, Unix ns
	last    int64 // timestamp of the previous packet
	current Spacing
	total   Spacing
	recent  []Stretch // saturated windows of the last WorstWindow
}

// wireTime is the wire time of frames of one length. It is cached because it takes a long
// division, and most frames have one of a few lengths.
type wireTime struct {
	frame int
	time  time.Duration
}

// wireTimes is the size of the cache of wire times, a power of two.
const wireTimes = 64

// NewSpacer returns a Spacer for spec, in which zero fields take their defaults.
func NewSpacer(spec SpacingSpec) *Spacer {
	if spec.Frame <= 0 {
		spec.Frame = DefaultFrame
	}
	if spec.Saturated <= 0 {
		spec.Saturated = DefaultSaturated
	}
	s := &Spacer{spec: spec, packet: spec.Rate.TimeToSend(spec.Frame), times: make([]wireTime, wireTimes), window: spec.Window}
	if s.window <= 0 {
		s.window = max(DefaultWindow, spec.Rate.TimeToSend(framesInWindow*spec.Frame))
	}
	return s
}

// Add processes the next packet: its timestamp in Unix nanoseconds and the length of its
// frame without check sequence.
func (s *Spacer) Add(stamp int64, frame int) {
	if s.spec.Rate <= 0 {
		return
	}
	if !s.started {
		s.started, s.from, s.last = true, stamp, stamp
		return
	}
	// A window ends with the last packet inside it, so that a burst stays in one window with
	// the silence before it. If that leaves less than half a window, the silence after it is
	// included.
	if time.Duration(stamp-s.from) > s.window && time.Duration(s.last-s.from) >= s.window/2 {
		s.closeWindow()
	}
	gap := time.Duration(max(0, stamp-s.last))
	s.last = max(s.last, stamp)
	w := &s.times[uint(frame)%wireTimes]
	if w.frame != frame { // an empty entry is valid: length 0 takes no time
		*w = wireTime{frame, s.spec.Rate.TimeToSend(units.Bytes(frame))}
	}
	want := w.time
	off := max(gap-want, want-gap)
	c := &s.current
	c.Gaps++
	c.Near += count(off <= want/10)
	c.Close += count(off <= max(want/10, s.packet))
	c.Bytes += units.Bytes(frame)
	c.Worst = max(c.Worst, gap)
	if time.Duration(s.last-s.from) >= s.window {
		s.closeWindow()
	}
}

// count returns 1 for true and 0 for false. It compiles without a branch, which would be
// mispredicted.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *Spacer) closeWindow() {
	c, t := s.current, &s.total
	c.Busy = time.Duration(s.last - s.from)
	used := float64(c.Delivered()) / float64(s.spec.Rate)
	t.Windows++
	t.Tenths[min(int(used*10), len(t.Tenths)-1)]++
	saturated := used >= s.spec.Saturated
	if !saturated && s.spec.Backlogged != nil {
		saturated = s.spec.Backlogged(time.Unix(0, s.from), time.Unix(0, s.last))
	}
	if saturated {
		t.Saturated++
		t.Gaps += c.Gaps
		t.Near += c.Near
		t.Close += c.Close
		t.Bytes += c.Bytes
		t.Busy += c.Busy
		t.Worst = max(t.Worst, c.Worst)
		s.stretch(Stretch{s.from, s.last, c.Gaps, c.Close})
	}
	s.from, s.current = s.last, Spacing{}
}

// stretch judges the window of WorstWindow that ends with a saturated window.
func (s *Spacer) stretch(x Stretch) {
	old, _ := slices.BinarySearchFunc(s.recent, x.To-int64(WorstWindow), func(x Stretch, from int64) int { return cmp.Compare(x.From, from) })
	s.recent = append(slices.Delete(s.recent, 0, old), x)
	all := Stretch{From: s.recent[0].From, To: x.To}
	for _, r := range s.recent {
		all.Gaps += r.Gaps
		all.Close += r.Close
	}
	if all.Gaps >= poorestGaps && (s.total.Poorest.Gaps == 0 || all.CloseShare() < s.total.Poorest.CloseShare()) {
		s.total.Poorest = all
	}
}

// Spacing returns the measurements of the complete windows.
func (s *Spacer) Spacing() Spacing { return s.total }
