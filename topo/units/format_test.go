package units_test

import (
	"testing"

	"testbed/topo/units"
)

func TestShort(t *testing.T) {
	for x, want := range map[float64]string{0: "0 B", 999: "999 B", 999.4: "999 B", 999.5: "1.00 KB", 1000: "1.00 KB", 9995: "10.0 KB", 99950: "100 KB", 999949: "1.00 MB", 12_345_678: "12.3 MB", 2.5e9: "2.50 GB", 123e12: "123 TB", 5e15: "5000 TB"} {
		if got := units.Short(x, "B"); got != want {
			t.Errorf("Short(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestCompact(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.4: "0", 999: "999", 999.6: "1K", 1000: "1K", 1234: "1.23K", 12345: "12.3K", 999_600: "1M", 20e6: "20M", 16_666_666: "16.7M", 4294967295: "4.29G", 5e15: "5000T"} {
		if got := units.Compact(x, ""); got != want {
			t.Errorf("Compact(%v) = %q, want %q", x, got, want)
		}
	}
	if got := units.Compact(64e3, "B"); got != "64KB" {
		t.Errorf("Compact(64e3, B) = %q", got)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		share    float64
		decimals int
		want     string
	}{{0, 1, "0.0 %"}, {0.125, 1, "12.5 %"}, {1, 0, "100 %"}, {0.00123, 3, "0.123 %"}, {1.5, 1, "150.0 %"}} {
		if got := units.Percent(c.share, c.decimals); got != c.want {
			t.Errorf("Percent(%v, %d) = %q, want %q", c.share, c.decimals, got, c.want)
		}
	}
}
