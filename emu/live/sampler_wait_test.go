package live

import (
	"slices"
	"testing"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// Whatever the period of a sender, eight readings in a row hardly ever all see it in the same quarter of its period.
func TestReadingsFollowNoPeriod(t *testing.T) {
	f, err := topo.BigSwitch(2, 50*units.Mbps)
	if err != nil {
		t.Fatal(err)
	}
	const d, looks, readings = 8 * time.Millisecond, 8, 5000
	for period := d / 2; period <= 4*d; period += d / 64 {
		s := newSampler(f, nil, nil)
		var at time.Duration
		var phases []time.Duration
		for range readings {
			w := s.wait(d)
			if w < d/2 || w > d {
				t.Fatalf("a wait of %v: want %v to %v", w, d/2, d)
			}
			at += w
			phases = append(phases, at%period)
		}
		together := 0
		for i := range readings - looks {
			of := slices.Sorted(slices.Values(phases[i : i+looks]))
			gap := of[0] + period - of[looks-1] // in which no reading is
			for k := 1; k < looks; k++ {
				gap = max(gap, of[k]-of[k-1])
			}
			if period-gap < period/4 {
				together++
			}
		}
		if together > readings/50 {
			t.Errorf("period %v: %d of %d times, %d readings in a row are all within a quarter of it", period, together, readings, looks)
		}
	}
}
