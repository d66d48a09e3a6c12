package fidelity

import (
	"math"
	"testing"
	"time"

	"testbed/results/samples"
	"testbed/topo/units"
)

// Pieces of a spell have a minimum length in frames, and add up to the spell without its rest.
func TestPiecesOfASpell(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mtu    units.Bytes
		pieces int // of 12 times 8 ms at 50 Mbps: 50,000 bytes each
	}{
		{"frames of 1514 bytes", 1500, 12},
		{"frames of 9014 bytes", 9000, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSampling(samples.Head{Frame: tt.mtu + 14, Links: []samples.Link{{Name: "h0-00>leaf0", Rate: 50 * units.Mbps}}})
			at := 100 * time.Second
			w := &watching{link: 0, first: at, last: at, cut: at, looks: 1}
			for i := range 12 {
				w.last += 8 * time.Millisecond
				if i != 5 { // in which it is idle
					w.sent += 50_000
				}
				w.looks++
				s.piece(w)
			}
			s.record(w)
			x := s.end().Links
			if len(x) != 1 || x[0].Spells != 1 || x[0].Delivered != 550_000 || x[0].Could != 600_000 || len(x[0].Pieces) != tt.pieces {
				t.Fatalf("%+v, want %d pieces", x, tt.pieces)
			}
			short := 0
			for _, p := range x[0].Pieces {
				if math.Abs(p-1) > 1e-9 {
					short++
				}
			}
			if short != 1 {
				t.Errorf("%d pieces below the rate, want 1: %v", short, x[0].Pieces)
			}
		})
	}
}

// A spell of a few looks does not count.
func TestShortSpellsDoNotCount(t *testing.T) {
	s := newSampling(samples.Head{Frame: 1514, Links: []samples.Link{{Name: "h0-00>leaf0", Rate: 50 * units.Mbps}}})
	s.record(&watching{link: 0, looks: leastLooks - 1, pieces: make([]part, 2)})
	if got := s.end().Links; len(got) > 0 {
		t.Errorf("%+v", got)
	}
}
