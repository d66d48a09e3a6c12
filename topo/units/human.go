package units

import (
	"fmt"
	"time"
)

// Human returns d with at least three significant digits in a suitable unit:
// 1.234 s, 56.7 ms, 5.67 ms, 56.7 µs.
func Human(d time.Duration) string {
	if d < 0 {
		return "-" + Human(-d)
	}
	for _, scale := range []struct {
		from     time.Duration
		unit     time.Duration
		name     string
		decimals int
		step     time.Duration // of the last decimal
		below    time.Duration // of the last decimal of the scale below
	}{
		{time.Second, time.Second, "s", 3, time.Millisecond, 100 * time.Microsecond},
		{10 * time.Millisecond, time.Millisecond, "ms", 1, 100 * time.Microsecond, 10 * time.Microsecond},
		{time.Millisecond, time.Millisecond, "ms", 2, 10 * time.Microsecond, 100 * time.Nanosecond},
		{10 * time.Microsecond, time.Microsecond, "µs", 1, 100 * time.Nanosecond, 10 * time.Nanosecond},
		{time.Nanosecond, time.Microsecond, "µs", 2, 10 * time.Nanosecond, time.Nanosecond},
	} {
		// A value that the scale below would round up to its limit belongs to this scale.
		if d.Round(scale.below) >= scale.from {
			return fmt.Sprintf("%.*f %s", scale.decimals, float64(d.Round(scale.step))/float64(scale.unit), scale.name)
		}
	}
	return "0 s"
}
