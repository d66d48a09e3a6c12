package schema

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every time that can be written is read back exactly, to the nanosecond.
func TestMicrosAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "ns"))
		sign, n := "", want
		if n < 0 {
			sign, n = "-", -n
		}
		text := fmt.Sprintf("%s%d.%03d", sign, n/1000, n%1000)
		if got := FormatMicros(want); got != text {
			t.Fatalf("FormatMicros(%d) = %q, want %q", int64(want), got, text)
		}
		var got time.Duration
		if err := micros([]byte(text), &got); err != nil || got != want {
			t.Fatalf("micros(%q) = %d, %v, want %d", text, got, err, want)
		}
	})
}

func FuzzMicros(f *testing.F) {
	for _, s := range []string{"0.000", "-0.001", "12.5", "", ".123", "-.123", "+1.000", "1.-12", "9223372036854775.807", "9223372036854775.808", "1_0.000", "x.123"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var d time.Duration
		if micros([]byte(s), &d) != nil {
			return
		}
		if len(s) < 5 || s[len(s)-4] != '.' {
			t.Fatalf("micros(%q) = %v: want three decimals", s, d)
		}
		for i, c := range s {
			if (c < '0' || c > '9') && (i != 0 || c != '-') && i != len(s)-4 {
				t.Fatalf("micros(%q) = %v: it is no number", s, d)
			}
		}
	})
}
