package fidelity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"testbed/topo/units"
)

// followLink returns the extreme windows of a link of 50 Mbps that is followed for 12 times 8 ms in every 200 ms
// of three seconds, and delivers a share of its rate that depends on the time.
func followLink(t *testing.T, share func(at time.Duration) float64, pieces bool) (low, high map[time.Duration]Window) {
	t.Helper()
	judge := judgeBusy(50*units.Mbps, 1514)
	if pieces {
		judge = judgeWaiting
	}
	var w windows
	for round := time.Duration(0); round < 3*time.Second; round += 200 * time.Millisecond {
		for i := range 12 {
			from, to := round+time.Duration(i)*8*time.Millisecond, round+time.Duration(i+1)*8*time.Millisecond
			w.add(part{from, to, units.Bytes(50_000 * share(from)), 50_000}, judge)
		}
	}
	low, high = map[time.Duration]Window{}, map[time.Duration]Window{}
	l, h := w.found()
	for _, x := range l {
		low[x.Length] = x
	}
	for _, x := range h {
		high[x.Length] = x
	}
	return low, high
}

// A rate that changes for a moment shows in a window, wherever the moment begins.
func TestWindowsShowMoments(t *testing.T) {
	const short, long = 250 * time.Millisecond, time.Second
	for _, pieces := range []bool{false, true} {
		for begin := 500 * time.Millisecond; begin < 700*time.Millisecond; begin += 10 * time.Millisecond {
			during := func(length time.Duration, share float64) func(time.Duration) float64 {
				return func(at time.Duration) float64 {
					if at >= begin && at < begin+length {
						return share
					}
					return 1
				}
			}
			low, high := followLink(t, during(300*time.Millisecond, 0.5), pieces)
			if w := low[short]; w.Share < 0.5 || w.Share > 0.55 || w.At > begin+300*time.Millisecond || w.At+w.Length < begin {
				t.Errorf("pieces %v: half the rate from %v for 300 ms: %+v", pieces, begin, w)
			}
			if w := high[short]; w.Share < 0.99 || w.Share > 1 { // the error of counting frames off
				t.Errorf("pieces %v: %+v, want the rate elsewhere", pieces, w)
			}
			low, _ = followLink(t, during(1010*time.Millisecond, 0.8), pieces)
			if w := low[long]; math.Abs(w.Share-0.8) > 0.001 {
				t.Errorf("pieces %v: 80 %% of the rate from %v for 1 s: %+v", pieces, begin, w)
			}
			_, high = followLink(t, during(300*time.Millisecond, 2), pieces)
			if w := high[short]; w.Share < 1.9 || w.Share > 2 {
				t.Errorf("pieces %v: twice the rate from %v for 300 ms: %+v", pieces, begin, w)
			}
		}
	}
}

// Slow links with long frames send few frames in a window, of which the first and the last count whole or not at all: that is no
// excess, but a tenth more than the rate is.
func TestWindowsCountWholeFrames(t *testing.T) {
	const (
		rate  = 5 * units.Mbps
		frame = 3014
		links = 40
	)
	largest := func(factor float64) (all float64) {
		r := rand.New(rand.NewPCG(1, 2))
		each := time.Duration(frame / (factor * float64(rate.BytesIn(time.Second))) * float64(time.Second))
		for range links {
			var w windows
			at := time.Duration(0)
			for at < 40*time.Second {
				at += time.Duration(r.Int64N(int64(150 * time.Millisecond))) // not followed
				begin := time.Duration(r.Int64N(int64(each)))
				for i := range time.Duration(4 + r.IntN(9)) {
					from, to := i*8*time.Millisecond, (i+1)*8*time.Millisecond
					sent := units.Bytes(frame * ((begin+to)/each - (begin+from)/each))
					w.add(part{at + from, at + to, sent, rate.BytesIn(8 * time.Millisecond)}, judgeBusy(rate, frame))
				}
				at += 96 * time.Millisecond
			}
			_, high := w.found()
			for _, x := range high {
				if x.Length == time.Second {
					all = max(all, x.Share)
				}
			}
		}
		return all
	}
	const bound = 1.03 // of thresholds, for pass in a second
	if got := largest(1); got > bound || got < 0.9 {
		t.Errorf("links at their rate: %.3f of it in a second at most, want at most %g", got, bound)
	}
	if got := largest(1.1); got <= bound {
		t.Errorf("links at 1.1 times their rate: %.3f of it in a second at most, want more than %g", got, bound)
	}
}

// A link that was followed for too short a time is not judged.
func TestWindowsNeedEnough(t *testing.T) {
	once := func(at time.Duration) float64 { return 1 }
	if low, high := followLink(t, once, false); len(low) != 2 || len(high) != 2 {
		t.Errorf("%v, %v: want windows of both lengths", low, high)
	}
	var s windows
	for i := range 7 { // 56 ms: fewer than 8 pieces, and less than a quarter of 250 ms
		at := time.Duration(i) * 8 * time.Millisecond
		s.add(part{at, at + 8*time.Millisecond, 1, 50_000}, judgeWaiting)
	}
	if low, high := s.found(); len(low)+len(high) > 0 {
		t.Errorf("%v, %v: want none", low, high)
	}
}
