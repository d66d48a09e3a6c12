package flows

import (
	"math"

	"testbed/topo/units"
)

// Conformance measures how well the packets of one direction of a link conform to a
// token bucket of the link's rate. The level after each packet is the minimum bucket
// size that would have let all packets so far pass: it rises by the size of each frame
// and falls at the link's rate, never below zero. If a link is shaped to its stated rate
// and bucket, only late capture timestamps raise the level above the bucket size.
type Conformance struct {
	Packets int
	// Level is the 90th percentile of the levels, rounded up to a quarter of the
	// longest frame, and Most the maximum level.
	Level, Most units.Bytes
	// Longest is the longest frame seen, and Long the number of frames longer than
	// SpacingSpec.Frame, the longest that the link may carry.
	Longest units.Bytes
	Long    int
}

const (
	// slack is the fraction by which the level falls faster than the link's rate.
	// Without it, the level of a saturated link never falls: one late timestamp, or a
	// clock that is slewed by 500 ppm against the shaper's, would raise all later levels.
	slack = 0.01
	// levels is the number of histogram bins, each a quarter of a frame wide.
	levels = 4096
)

// conformer measures the conformance of one direction of a link in constant time per packet.
type conformer struct {
	perNS   float64 // bytes that the bucket gains per nanosecond
	frame   int
	quarter float64
	started bool
	last    int64
	level   float64
	most    float64 // maximum level
	counts  []int32 // packets by level in quarters of a frame, rounded up
	total   Conformance
}

func newConformer(spec SpacingSpec) *conformer {
	if spec.Rate <= 0 {
		return nil
	}
	if spec.Frame <= 0 {
		spec.Frame = DefaultFrame
	}
	return &conformer{perNS: float64(spec.Rate) / 8 / 1e9 * (1 + slack), frame: int(spec.Frame), quarter: float64(spec.Frame) / 4, counts: make([]int32, levels)}
}

// add processes the next packet: its stamp in Unix nanoseconds and the length of its
// frame without check sequence. A stamp before the previous one counts as equal.
func (c *conformer) add(stamp int64, frame int) {
	if c == nil {
		return
	}
	level := c.level
	if c.started && stamp > c.last {
		// Clamp at zero without a branch, which would be unpredictable.
		v := math.Float64bits(level - float64(float64(stamp-c.last)*c.perNS))
		level = math.Float64frombits(v &^ uint64(int64(v)>>63)) // 0 if negative
	}
	c.last, c.started = max(c.last, stamp), true
	level += float64(frame)
	c.level = level
	t := &c.total
	t.Packets++
	t.Longest = max(t.Longest, units.Bytes(frame))
	if frame > c.frame {
		t.Long++
	}
	if level > c.most {
		c.most = level
	}
	c.counts[min(int(math.Ceil(level/c.quarter)), levels-1)]++
}

// conformance returns the measurements so far.
func (c *conformer) conformance() Conformance {
	if c == nil {
		return Conformance{}
	}
	t := c.total
	t.Most = units.Bytes(math.Ceil(c.most))
	need := (t.Packets*9 + 9) / 10
	for i, n := range c.counts {
		if need -= int(n); need <= 0 {
			t.Level = units.Bytes(math.Ceil(float64(i) * c.quarter))
			if i == levels-1 {
				t.Level = t.Most
			}
			break
		}
	}
	t.Level = min(t.Level, t.Most)
	return t
}
