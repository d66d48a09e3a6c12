package summary

import (
	"math"
	"testing"
	"time"
)

// Errors are relative, and averages over the time in which an estimate held.
func TestMeanError(t *testing.T) {
	at := func(seconds int, p float64) EstimateSample {
		return EstimateSample{At: time.Duration(seconds) * time.Second, Straggle: p}
	}
	p := func(s EstimateSample) float64 { return s.Straggle }
	for _, tt := range []struct {
		name    string
		samples []EstimateSample
		want    float64
		ok      bool
	}{
		{"one", []EstimateSample{at(0, 0.15)}, 0.5, true},
		{"too low for 6 s of 8, exact for 2", []EstimateSample{at(0, 0), at(2, 0.05), at(8, 0.1)}, 0.5 * 6 / 8, true},
		{"after the end", []EstimateSample{at(0, 0.1), at(12, 0.3)}, 0, true},
		{"none", []EstimateSample{at(0, 0)}, 0, false},
	} {
		if got, ok := meanError(tt.samples, p, 0.1, 10*time.Second); ok != tt.ok || ok && math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, %v, want %v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}
