package flows

import (
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

// SpacingSpec says how the packets of one direction of a link should be spaced.
type SpacingSpec struct {
	// Rate of the link, counted over Ethernet frames without their check
	// sequence, as the kernel's token bucket counts. 0 measures nothing.
	Rate units.Rate
	// Frame is the longest frame of the link; 0 is DefaultFrame.
	Frame units.Bytes
	// Window is about the time over which the link is found saturated or not;
	// 0 is DefaultWindow or the time of 40 of the longest frames, whichever is
	// longer.
	Window time.Duration
	// Saturated is the share of Rate that a window must carry for its gaps to
	// count; 0 is DefaultSaturated. Alone it hides a link that is starved below that
	// share, which Backlogged does not.
	Saturated float64
	// Backlogged, where given, tells whether the link had packets to send all the
	// time from one moment to another: the gaps of such a window count too. It is called with ascending
	// times, from the goroutine that reads the capture.
	Backlogged func(from, to time.Time) bool
}

// Spacing is how the packets of one direction of a link were spaced while it was
// saturated. The gap before a packet is compared with the time that the packet
// itself takes on the wire: a token bucket releases a packet when tokens for it
// have come in, and a receiver has it when its last bit is in.
type Spacing struct {
	Windows   int // all of them
	Saturated int // those whose gaps count below

	Gaps  int // between packets
	Near  int // of them, those within 10 % of the wire time
	Close int // of them, those within 10 % or the time of one longest frame

	Bytes units.Bytes   // carried in saturated windows
	Busy  time.Duration // length of the saturated windows
	Worst time.Duration // longest gap in a saturated window

	// Tenths counts all windows by the share of the rate they carried: the
	// first those below 10 %, the eleventh those from 100 to 110 %, the last
	// those above.
	Tenths [12]int
}

// NearShare is the share of gaps within 10 % of the wire time, CloseShare of
// those within 10 % or one packet time. Both are 0 where the link was never
// saturated: see Gaps.
func (s Spacing) NearShare() float64 { return share(s.Near, s.Gaps) }

// CloseShare: see NearShare.
func (s Spacing) CloseShare() float64 { return share(s.Close, s.Gaps) }

func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// Delivered is the rate of the saturated windows, frames without check sequence.
func (s Spacing) Delivered() units.Rate {
	if s.Busy == 0 {
		return 0
	}
	return units.RateOf(s.Bytes, s.Busy)
}

// Spacer measures the spacing of one direction of a link.
type Spacer struct {
	spec    SpacingSpec
	packet  time.Duration // of the longest frame
	times   []wireTime    // of frames met before, by the lowest bits of their length
	window  time.Duration
	started bool
	from    int64 // start of the window, Unix ns
	last    int64 // stamp of the packet before
	current Spacing
	total   Spacing
}

// wireTime is the time that frames of a length take on the wire. Most frames have one
// of a few lengths, and it takes a long division.
type wireTime struct {
	frame int
	time  time.Duration
}

// wireTimes is how many are kept, a power of two.
const wireTimes = 64

// NewSpacer fills in the defaults of spec.
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

// Add takes the next packet: its stamp in Unix nanoseconds and the length of its
// frame without check sequence.
func (s *Spacer) Add(stamp int64, frame int) {
	if s.spec.Rate <= 0 {
		return
	}
	if !s.started {
		s.started, s.from, s.last = true, stamp, stamp
		return
	}
	// A window ends with the last packet inside it, so that a burst is not torn
	// from the silence before it; where that would leave less than half a window,
	// the silence after it counts as well.
	if time.Duration(stamp-s.from) > s.window && time.Duration(s.last-s.from) >= s.window/2 {
		s.closeWindow()
	}
	gap := time.Duration(max(0, stamp-s.last))
	s.last = max(s.last, stamp)
	w := &s.times[uint(frame)%wireTimes]
	if w.frame != frame { // that of 0 is 0
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

// count is 1 for true. It compiles to no branch, which would be mispredicted.
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
	}
	s.from, s.current = s.last, Spacing{}
}

// Spacing is what was measured in the windows that are complete.
func (s *Spacer) Spacing() Spacing { return s.total }
