package flows

import (
	"testing"
	"time"

	"testbed/topo/units"
)

// bucket is a token bucket in front of a link, as the kernel has it: it releases
// n frames that wait from time 0 on, after an idle time in which it was filled.
func bucket(rate units.Rate, burst units.Bytes, frame, n int) []int64 {
	var stamps []int64
	tokens, now := float64(burst), 0.0
	for range n {
		if tokens < float64(frame) {
			wait := (float64(frame) - tokens) / (float64(rate) / 8e9)
			now, tokens = now+wait, float64(frame)
		}
		tokens -= float64(frame)
		stamps = append(stamps, int64(now))
	}
	return stamps
}

func TestConformance(t *testing.T) {
	const frame, n = 1514, 4000
	spec := SpacingSpec{Rate: 50 * units.Mbps, Frame: frame}
	for _, tt := range []struct {
		name   string
		stamps []int64
		lo, hi units.Bytes // of Level
	}{
		{"bucket of a frame and a half", bucket(spec.Rate, 2271, frame, n), frame, 2271},
		{"bucket of 16 KB", bucket(spec.Rate, 16_384, frame, n), 8_000, 16_384},
		{"bucket of 1 MB", bucket(spec.Rate, 1_000_000, frame, n), 980_000, 1_000_000},
		{"a tenth too fast", bucket(55*units.Mbps, 2271, frame, n), 300_000, 550_000},
		{"a tenth too slow", bucket(45*units.Mbps, 2271, frame, n), frame, frame},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConformer(spec)
			for _, at := range tt.stamps {
				c.add(1e18+at, frame)
			}
			got := c.conformance()
			if got.Level < tt.lo || got.Level > tt.hi || got.Most < got.Level || got.Packets != n || got.Long != 0 || got.Longest != frame {
				t.Errorf("%+v, want a level of %v to %v", got, tt.lo, tt.hi)
			}
		})
	}
}

// A few packets that are stamped up to 2 ms late raise the maximum by what the
// link carries meanwhile, but not the 90th percentile.
func TestConformanceBearsFewLateStamps(t *testing.T) {
	const frame, n = 1514, 20_000
	spec := SpacingSpec{Rate: 50 * units.Mbps, Frame: frame}
	c := newConformer(spec)
	late := int64(0) // until when packets are held
	for i, at := range bucket(spec.Rate, 2271, frame, n) {
		if i == 5000 {
			late = at + 2e6
		}
		c.add(1e18+max(at, late), frame)
	}
	got := c.conformance()
	if got.Level > 2*frame || got.Most < 12_000 {
		t.Errorf("%+v, want a level of two frames at most and a maximum of more than 12 KB", got)
	}
}

func TestConformanceOfLongFrames(t *testing.T) {
	c := newConformer(SpacingSpec{Rate: units.Gbps})
	for i, n := range []int{60, 1514, 1515, 2962} {
		c.add(int64(i)*int64(time.Millisecond), n)
	}
	if got := c.conformance(); got.Long != 2 || got.Longest != 2962 || got.Packets != 4 {
		t.Errorf("%+v, want two of four frames longer than 1514", got)
	}
	var none *conformer
	none.add(1, 1)
	if got := none.conformance(); got != (Conformance{}) {
		t.Errorf("without a rate: %+v", got)
	}
}
