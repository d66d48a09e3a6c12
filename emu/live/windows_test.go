package live

import (
	"math"
	"testing"
	"time"

	"testbed/emu/fidelity"
	"testbed/topo"
	"testbed/topo/units"
)

// followLink returns the extreme windows of a link of 50 Mbps that is followed for 12 times 8 ms in every 200 ms
// of three seconds, and delivers a share of its rate that depends on the time.
func followLink(t *testing.T, share func(at time.Duration) float64, pieces bool) (low, high map[time.Duration]fidelity.Window) {
	t.Helper()
	f, err := (topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 50 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Bytes: 100 * units.KB}, MTU: 1500}).Build()
	if err != nil {
		t.Fatal(err)
	}
	s := newSampler(f, nil)
	s.zero = time.Unix(100, 0)
	judge := s.judgeBusy(50 * units.Mbps)
	if pieces {
		judge = judgeWaiting
	}
	var w windows
	for round := time.Duration(0); round < 3*time.Second; round += 200 * time.Millisecond {
		for i := range 12 {
			from, to := round+time.Duration(i)*8*time.Millisecond, round+time.Duration(i+1)*8*time.Millisecond
			w.add(part{s.zero.Add(from), s.zero.Add(to), units.Bytes(50_000 * share(from)), 50_000}, s.zero, judge)
		}
	}
	low, high = map[time.Duration]fidelity.Window{}, map[time.Duration]fidelity.Window{}
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
			if w := high[short]; w.Share != 1 {
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

// A link that was followed for too short a time is not judged.
func TestWindowsNeedEnough(t *testing.T) {
	once := func(at time.Duration) float64 { return 1 }
	if low, high := followLink(t, once, false); len(low) != 2 || len(high) != 2 {
		t.Errorf("%v, %v: want windows of both lengths", low, high)
	}
	var s windows
	zero := time.Unix(100, 0)
	for i := range 7 { // 56 ms: fewer than 8 pieces, and less than a quarter of 250 ms
		at := zero.Add(time.Duration(i) * 8 * time.Millisecond)
		s.add(part{at, at.Add(8 * time.Millisecond), 1, 50_000}, zero, judgeWaiting)
	}
	if low, high := s.found(); len(low)+len(high) > 0 {
		t.Errorf("%v, %v: want none", low, high)
	}
}
