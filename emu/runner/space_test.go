package runner

import (
	"testing"
	"time"
)

func TestForecastOfSamples(t *testing.T) {
	for _, tt := range []struct {
		hosts int
		d     time.Duration
		want  float64
	}{
		{0, time.Second, 0},
		{20, 4 * time.Second, 136_000}, // a run of 8 coflows left 130 to 138 KB
		{20, time.Hour, 122_400_000},
		{500, time.Hour, 300_000_000}, // all rows
	} {
		if got := sampled(tt.hosts, tt.d, 100_000_000); got != tt.want {
			t.Errorf("sampled(%d, %v) = %.0f, want %.0f", tt.hosts, tt.d, got, tt.want)
		}
	}
}
