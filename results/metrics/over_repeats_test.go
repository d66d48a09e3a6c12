package metrics

import (
	"math"
	"testing"
)

// The interval of 2, 4 and 6 is 4 ± 4.303 × 2 / √3 (Student's t with two degrees of freedom).
func TestOverRepeats(t *testing.T) {
	e := OverRepeats([]float64{2, 4, 6})
	half := 4.302653 * 2 / math.Sqrt(3)
	if e.Value != 4 || math.Abs(e.CI.Low-(4-half)) > 1e-4 || math.Abs(e.CI.High-(4+half)) > 1e-4 {
		t.Errorf("%+v: want 4 ± %v", e, half)
	}
	if e := OverRepeats([]float64{2, 4}); e.Value != 3 || e.CI.Known() {
		t.Errorf("%+v: want 3 without an interval", e)
	}
}
