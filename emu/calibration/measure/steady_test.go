package measure

import (
	"math"
	"testing"
	"time"

	"testbed/topo/units"
)

func TestSteadyRate(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name  string
		free  units.Bytes // written at once
		every time.Duration
		end   time.Duration
		want  float64 // NaN: no result
	}{
		{"exact", 0, 10 * ms, time.Second, 0},
		{"a free beginning is left out", 100_000, 10 * ms, time.Second, 0},
		{"a tenth fast throughout", 0, 10 * ms * 10 / 11, time.Second, 0.1},
		{"too short", 0, 10 * ms, 500 * ms, math.NaN()},
		{"no second write after the beginning", 0, 300 * ms, 400 * ms, math.NaN()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := steadyRate{rate: 8 * units.Mbps} // 10 KB in 10 ms
			n := tt.free
			s.wrote(n, 0)
			for at := tt.every; at <= tt.end; at += tt.every {
				n += 10_000
				s.wrote(n, at)
			}
			got := s.off()
			if math.IsNaN(tt.want) != (got == nil) || got != nil && math.Abs(*got-tt.want) > 1e-6 {
				t.Errorf("off() = %v, want %v", got, tt.want)
			}
		})
	}
	// As the kernel does: a slice's bytes at once, each 100 ms. 5 % fast between single writes.
	slices := steadyRate{rate: 8 * units.Mbps}
	for i := range 200 {
		slices.wrote(units.Bytes(i+1)*10_000, time.Duration(i/10)*100*ms+time.Duration(i%10)*100*time.Microsecond)
	}
	if off := slices.off(); off == nil || math.Abs(*off) > 0.01 {
		t.Errorf("in slices of 100 ms: off by %v, want less than 1 %%", *off)
	}
	var none steadyRate
	none.wrote(1, time.Second)
	none.wrote(2, 2*time.Second)
	if none.off() != nil {
		t.Error("without a rate there is nothing to be off")
	}
}
