package flows

import (
	"testing"
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// A frame of 1,250 bytes takes 100 µs at 100 Mb/s.
const (
	link = 100 * units.Mbps
	full = 1250
)

func TestSpacing(t *testing.T) {
	us := time.Microsecond
	train := func(n int, gap time.Duration) []time.Duration {
		gaps := make([]time.Duration, n)
		for i := range gaps {
			gaps[i] = gap
		}
		return gaps
	}
	var timer []time.Duration // 4 ms of silence, then what had gathered at once
	for range 10 {
		timer = append(timer, 4*ms)
		timer = append(timer, train(39, 0)...)
	}
	var alternate []time.Duration // two at a time
	for range 250 {
		alternate = append(alternate, 0, 200*us)
	}
	for _, tt := range []struct {
		name      string
		gaps      []time.Duration
		spec      SpacingSpec
		saturated int
		near      float64
		close     float64
		delivered units.Rate
	}{
		{"perfect", train(1000, 100*us), SpacingSpec{}, 10, 1, 1, link},
		{"9 % late", train(1000, 109*us), SpacingSpec{}, 10, 1, 1, 91_743_119},
		{"15 % fast", train(1000, 85*us), SpacingSpec{}, 8, 0, 1, 117_647_059}, // 117 packets a window
		{"pairs", alternate, SpacingSpec{}, 5, 0, 1, link},
		{"4 ms timer", timer, SpacingSpec{}, 4, 0, 0.975, link},
		{"half used", train(1000, 200*us), SpacingSpec{}, 0, 0, 0, 0},
		{"half used although backlogged", train(1000, 201*us), SpacingSpec{Backlogged: func(from, to time.Time) bool { return true }}, 20, 0, 0, 49_751_244},
		{"bursts between silences", append(append(train(60, 100*us), 500*ms), train(60, 100*us)...), SpacingSpec{}, 1, 1, 1, link},
		{"no rate", train(1000, 100*us), SpacingSpec{Rate: -1}, 0, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.spec.Rate == 0 {
				tt.spec.Rate = link
			}
			tt.spec.Frame = full
			s := NewSpacer(tt.spec)
			at := int64(1e18)
			s.Add(at, full)
			for _, g := range tt.gaps {
				at += int64(g)
				s.Add(at, full)
			}
			got := s.Spacing()
			if got.Saturated != tt.saturated {
				t.Errorf("%d saturated windows of %d, want %d", got.Saturated, got.Windows, tt.saturated)
			}
			if got.NearShare() != tt.near || got.CloseShare() != tt.close || got.Delivered() != tt.delivered {
				t.Errorf("near %v, close %v, delivered %v, want %v, %v, %v", got.NearShare(), got.CloseShare(), got.Delivered(), tt.near, tt.close, tt.delivered)
			}
			n := 0
			for _, w := range got.Tenths {
				n += w
			}
			if n != got.Windows {
				t.Errorf("Tenths hold %d windows of %d", n, got.Windows)
			}
		})
	}
}

// A short packet after a long one is due after its own, short, wire time.
func TestSpacingMeasuresThePacketAfterTheGap(t *testing.T) {
	s := NewSpacer(SpacingSpec{Rate: link, Frame: full})
	at := int64(0)
	for i := range 2000 {
		frame := full
		if i%2 == 1 {
			frame = 125
		}
		at += int64(link.TimeToSend(units.Bytes(frame)))
		s.Add(at, frame)
	}
	if got := s.Spacing(); got.NearShare() != 1 || got.Saturated == 0 || got.Delivered() != link {
		t.Errorf("%+v, want all near and %v", got, link)
	}
}

func TestSpacingOfCaptures(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 1184*200)
	conn := n.dial(ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 1184*200)
	for k := range 200 {
		at := 10*ms + time.Duration(k)*100*time.Microsecond
		conn.data(at, at+ms, s, 1184*k, 1184*(k+1))
	}
	conn.data(31*ms, 32*ms, s, 1184*200, len(s))
	got := n.reduce(Options{Spacing: func(host string, d Direction) SpacingSpec {
		if host == b && d == Out {
			return SpacingSpec{}
		}
		return SpacingSpec{Rate: link, Frame: full}
	}})
	wantProblems(t, got)
	for i, sp := range []Spacing{got.Captures[0].Interfaces[0].OutSpacing, got.Captures[1].Interfaces[0].InSpacing} {
		if sp.Saturated == 0 || sp.NearShare() < 0.98 {
			t.Errorf("spacing %d: %+v, want saturated windows with perfect gaps", i, sp)
		}
	}
	if sp := got.Captures[1].Interfaces[0].OutSpacing; sp != (Spacing{}) {
		t.Errorf("spacing that was not asked for: %+v", sp)
	}
}
