package flows

import (
	"math"

	"testbed/topo/units"
)

// Conformance is how the packets of one direction of a link kept to a token
// bucket of the link's rate. After each packet, Level is what that bucket would
// have to hold at least for all packets so far to have passed it: it rises by
// each frame, and falls at the link's rate, never below zero. A link that is
// shaped to rate and bucket as stated shows no level above its bucket, but for
// stamps that are late.
type Conformance struct {
	Packets int
	// Level is the 90th percentile of the levels, rounded up to a quarter of the
	// longest frame, and Most the highest.
	Level, Most units.Bytes
	// Longest is the longest frame seen, and Long how many were longer than the
	// longest that the link may carry, SpacingSpec.Frame.
	Longest units.Bytes
	Long    int
}

const (
	// slack is the share of the rate by which the level falls faster than the rate.
	// On a saturated link it would otherwise never fall: a stamp that is late once,
	// or a clock that is slewed by 500 parts in a million against the one that
	// shapes, would raise all that follows.
	slack = 0.01
	// levels is how many quarters of a frame are told apart.
	levels = 4096
)

// conformer measures the conformance of one direction of a link. The work per
// packet does not depend on how many there were.
type conformer struct {
	perNS   float64 // bytes the bucket gains
	frame   int
	quarter float64
	started bool
	last    int64
	level   float64
	most    float64 // of them
	counts  []int32 // by level, in quarters of a frame, rounded up
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

// add takes the next packet: its stamp in Unix nanoseconds and the length of its
// frame without check sequence. A stamp that is before the last counts as equal.
func (c *conformer) add(stamp int64, frame int) {
	if c == nil {
		return
	}
	level := c.level
	if c.started && stamp > c.last {
		// Whether it falls to zero is as good as random: no branch.
		v := math.Float64bits(level - float64(float64(stamp-c.last)*c.perNS))
		level = math.Float64frombits(v &^ uint64(int64(v)>>63)) // 0 for what has a sign
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

// conformance is what was measured so far.
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
