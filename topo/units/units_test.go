package units

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Rate
	}{
		{"50Mbps", 50 * Mbps}, {"1.5Gbps", 1500 * Mbps}, {"9600bps", 9600}, {"6.9MB/s", 55_200_000},
		{"10kbps", 10 * Kbps}, {"0.001Kbps", 1}, {"0Mbps", 0}, {"100 Mbps", 100 * Mbps},
	} {
		got, err := ParseRate(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "10", "Mbps", "10G", "10Gbyte", "-1Mbps", "1..5Mbps", "1.Mbps", ".5Mbps", "0.5bps", "1e3bps", "99999999999Gbps", "10MBps", "١Mbps", "5:1", "+5Mbps", "18446744073709551616bps"} {
		if got, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", in, got)
		} else if !strings.Contains(err.Error(), "expected a number followed by") {
			t.Errorf("ParseRate(%q): error %q does not state what is expected", in, err)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Bytes
	}{{"256KB", 256000}, {"64KiB", 65536}, {"1.5MB", 1500000}, {"1500B", 1500}, {"2GiB", 2 << 30}, {"0.5KiB", 512}} {
		got, err := ParseBytes(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseBytes(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "1", "1Mb", "KB", "1.0001KB", "9223372036854775808B", "-1B"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseRatio(t *testing.T) {
	if got, err := ParseRatio("5:1"); err != nil || got != (Ratio{5, 1}) {
		t.Errorf(`ParseRatio("5:1") = %v, %v`, got, err)
	}
	for _, in := range []string{"", "5", "5:0", "0:1", "5:-1", "a:b", "5:1:1", "1.5:1", ":1", "5:"} {
		if got, err := ParseRatio(in); err == nil {
			t.Errorf("ParseRatio(%q) = %v, want an error", in, got)
		}
	}
}

func TestString(t *testing.T) {
	for _, tt := range []struct {
		in   interface{ String() string }
		want string
	}{
		{50 * Mbps, "50Mbps"}, {Rate(12_500_000), "12.5Mbps"}, {Rate(1), "1bps"}, {Rate(1_234_567), "1234.567Kbps"},
		{Rate(8333333), "8333.333Kbps"}, {MaxRate, "unlimited"}, {Bytes(65536), "65.536KB"}, {Bytes(0), "0B"}, {Bytes(-3), "-3B"}, {256 * KB, "256KB"},
	} {
		if got := tt.in.String(); got != tt.want {
			t.Errorf("String() = %q, want %q", got, tt.want)
		}
	}
}

// Rounded keeps what String prints in the largest unit.
func TestRounded(t *testing.T) {
	if r := MaxRate - 1; r.Rounded() != r {
		t.Errorf("%v is rounded to %v", r, r.Rounded())
	}
	for in, want := range map[Rate]string{
		0: "0bps", 1: "1bps", 8333: "8.333Kbps", 1_234_567: "1.235Mbps", 26_666_666: "26.667Mbps", 79_999_998: "80Mbps", 999_999_999: "1Gbps",
		12_125 * Kbps: "12.125Mbps", MaxRate: "unlimited",
	} {
		if got := in.Rounded().String(); got != want {
			t.Errorf("%d is rounded to %q, want %q", int64(in), got, want)
		}
	}
}

func TestTimeToSend(t *testing.T) {
	for _, tt := range []struct {
		r    Rate
		b    Bytes
		want time.Duration
	}{
		{25 * Mbps, 10 * MB, 3200 * time.Millisecond}, {8, 1, time.Second}, {3, 1, 2666666667},
		{0, 1, math.MaxInt64}, {0, 0, 0}, {1, math.MaxInt64, math.MaxInt64}, {MaxRate, 1, 1},
	} {
		if got := tt.r.TimeToSend(tt.b); got != tt.want {
			t.Errorf("%v.TimeToSend(%v) = %v, want %v", tt.r, tt.b, got, tt.want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"50Mbps", "1.5Gbps", "6.9MB/s", "10", "x", "0.1bps", "9223372036854775807bps"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil || r == MaxRate {
			return
		}
		back, err := ParseRate(r.String())
		if err != nil || back != r {
			t.Errorf("ParseRate(%q) = %d prints as %q, which parses as %d, %v", s, r, r, back, err)
		}
	})
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"256KB", "64KiB", "1.5MB", "1", "0.3B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBytes(s)
		if err != nil {
			return
		}
		back, err := ParseBytes(b.String())
		if err != nil || back != b {
			t.Errorf("ParseBytes(%q) = %d prints as %q, which parses as %d, %v", s, b, b, back, err)
		}
	})
}

// FuzzConversions checks the three conversions against big-number arithmetic.
func FuzzConversions(f *testing.F) {
	f.Add(int64(25e6), int64(10e6))
	f.Add(int64(1), int64(math.MaxInt64))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(3), int64(1))
	f.Fuzz(func(t *testing.T, a, b int64) {
		if a <= 0 || b <= 0 {
			return
		}
		saturate := func(x *big.Int) int64 {
			if !x.IsInt64() {
				return math.MaxInt64
			}
			return x.Int64()
		}
		A, B, E := big.NewInt(a), big.NewInt(b), big.NewInt(8e9)
		up := new(big.Int).Mul(B, E)
		up.Add(up, A).Sub(up, big.NewInt(1)).Div(up, A)
		if got, want := int64(Rate(a).TimeToSend(Bytes(b))), saturate(up); got != want {
			t.Errorf("Rate(%d).TimeToSend(%d) = %d, want %d", a, b, got, want)
		}
		down := new(big.Int).Mul(A, B)
		if got, want := int64(Rate(a).BytesIn(time.Duration(b))), saturate(down.Div(down, E)); got != want {
			t.Errorf("Rate(%d).BytesIn(%d) = %d, want %d", a, b, got, want)
		}
		near := new(big.Int).Mul(A, E)
		near.Add(near, new(big.Int).Div(B, big.NewInt(2))).Div(near, B)
		if got, want := int64(RateOf(Bytes(a), time.Duration(b))), saturate(near); got != want {
			t.Errorf("RateOf(%d, %d) = %d, want %d", a, b, got, want)
		}
	})
}
