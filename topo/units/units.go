// Package units defines the quantities that all packages use: Rate, in bits per second,
// and Bytes. Prefixes without an i are decimal (10³), those with an i are binary (2¹⁰).
// Only this package converts between bits and bytes, or between a rate and a time.
//
// It has no notion of links, packets or headers: the owner of a rate defines which bits
// it counts.
package units

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rate is a data rate in bits per second.
type Rate int64

// Common rates.
const (
	Bps  Rate = 1
	Kbps      = 1000 * Bps
	Mbps      = 1000 * Kbps
	Gbps      = 1000 * Mbps
)

// MaxRate stands for "no ceiling"; arithmetic on it saturates.
const MaxRate Rate = math.MaxInt64

// Bytes is an amount of data in bytes.
type Bytes int64

// Common sizes.
const (
	Byte Bytes = 1
	KB         = 1000 * Byte
	MB         = 1000 * KB
	GB         = 1000 * MB
	KiB        = 1024 * Byte
	MiB        = 1024 * KiB
	GiB        = 1024 * MiB
)

type unit struct {
	name  string
	scale int64
}

// The first spelling of a scale is the one printed.
var (
	rateUnits = []unit{
		{"Tbps", 1e12}, {"Gbps", 1e9}, {"Mbps", 1e6}, {"Kbps", 1e3}, {"kbps", 1e3}, {"bps", 1},
		{"TB/s", 8e12}, {"GB/s", 8e9}, {"MB/s", 8e6}, {"KB/s", 8e3}, {"kB/s", 8e3}, {"B/s", 8},
	}
	byteUnits = []unit{
		{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3},
		{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
	}
)

// ParseRate parses a number and its unit: "50Mbps", "1.5Gbps", "800Kbps", "9600bps", or
// in bytes per second, as for disks, "6.9MB/s". The result must be a whole number of bits
// per second.
func ParseRate(s string) (Rate, error) {
	n, err := parse(s, rateUnits)
	if err != nil {
		return 0, fmt.Errorf(`rate %q: %w: expected a number followed by bps, Kbps, Mbps, Gbps or MB/s, such as "100Mbps"`, Clip(s), err)
	}
	return Rate(n), nil
}

// ParseBytes parses a number and its unit: "256KB", "64KiB", "1.5MB", "1500B". The result
// must be a whole number of bytes.
func ParseBytes(s string) (Bytes, error) {
	n, err := parse(s, byteUnits)
	if err != nil {
		return 0, fmt.Errorf(`size %q: %w: expected a number followed by B, KB, MB, GB, KiB, MiB or GiB, such as "256KB"`, Clip(s), err)
	}
	return Bytes(n), nil
}

func parse(s string, table []unit) (int64, error) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	if i == 0 {
		return 0, fmt.Errorf("no number")
	}
	name := strings.TrimPrefix(s[i:], " ")
	if name == "" {
		return 0, fmt.Errorf("no unit")
	}
	for _, u := range table {
		if u.name == name {
			return scaled(s[:i], uint64(u.scale))
		}
	}
	return 0, fmt.Errorf("unknown unit %q", Clip(name))
}

// scaled returns the exact product of a decimal numeral and scale.
func scaled(numeral string, scale uint64) (int64, error) {
	whole, frac, dotted := strings.Cut(numeral, ".")
	if whole == "" || dotted && frac == "" || strings.Contains(frac, ".") {
		return 0, fmt.Errorf("invalid number %q", Clip(numeral))
	}
	frac = strings.TrimRight(frac, "0")
	var n uint64
	den := uint64(1)
	for k, c := range whole + frac {
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, fmt.Errorf("number out of range")
		}
		n = sum
		if k >= len(whole) {
			if den >= 1e18 {
				return 0, fmt.Errorf("too many decimals")
			}
			den *= 10
		}
	}
	hi, lo := bits.Mul64(n, scale)
	if hi >= den {
		return 0, fmt.Errorf("number out of range")
	}
	quo, rem := bits.Div64(hi, lo, den)
	if rem != 0 {
		return 0, fmt.Errorf("not a whole number of the smallest unit")
	}
	if quo > math.MaxInt64 {
		return 0, fmt.Errorf("number out of range")
	}
	return int64(quo), nil
}

// decimal returns the units of a table that String uses.
func decimal(table []unit) []unit {
	return slices.DeleteFunc(slices.Clone(table), func(u unit) bool {
		return u.scale < 1000 || strings.HasPrefix(u.name, "k") || strings.HasSuffix(u.name, "/s") || strings.Contains(u.name, "i")
	})
}

var decimalRates, decimalBytes = decimal(rateUnits), decimal(byteUnits)

// appendIn appends n in the largest unit in which it is exact with at most three decimals,
// so that parsing returns n; ok is false if there is no such unit.
func appendIn(b []byte, n int64, units []unit) (_ []byte, ok bool) {
	for _, u := range units {
		if n < u.scale || n%(u.scale/1000) != 0 {
			continue
		}
		b = strconv.AppendInt(b, n/u.scale, 10)
		if milli := n % u.scale / (u.scale / 1000); milli != 0 {
			b = append(b, '.', byte('0'+milli/100), byte('0'+milli/10%10), byte('0'+milli%10))
			b = bytes.TrimRight(b, "0")
		}
		return append(b, u.name...), true
	}
	return b, false
}

// AppendText appends String.
func (r Rate) AppendText(b []byte) ([]byte, error) {
	if r == MaxRate {
		return append(b, "unlimited"...), nil
	}
	if b, ok := appendIn(b, int64(r), decimalRates); ok {
		return b, nil
	}
	return append(strconv.AppendInt(b, int64(r), 10), "bps"...), nil
}

// AppendText appends String.
func (b Bytes) AppendText(to []byte) ([]byte, error) {
	if to, ok := appendIn(to, int64(b), decimalBytes); ok {
		return to, nil
	}
	for _, u := range [...]unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if int64(b) >= u.scale && int64(b)%u.scale == 0 {
			return append(strconv.AppendInt(to, int64(b)/u.scale, 10), u.name...), nil
		}
	}
	return append(strconv.AppendInt(to, int64(b), 10), 'B'), nil
}

// String returns r exactly, such as "50Mbps" or "12.5Mbps"; MaxRate is "unlimited".
func (r Rate) String() string {
	b, _ := r.AppendText(nil)
	return string(b)
}

// Rounded returns r to three decimals of the largest unit, for texts that are not parsed: 26.667Mbps for 26666666 bps.
func (r Rate) Rounded() Rate {
	for _, u := range decimalRates {
		step := Rate(u.scale / 1000)
		if r >= Rate(u.scale) && r <= MaxRate-step {
			return (r + step/2) / step * step
		}
	}
	return r
}

// String returns b exactly, such as "256KB"; sizes that are whole only in binary units use
// these.
func (b Bytes) String() string {
	text, _ := b.AppendText(nil)
	return string(text)
}

// MarshalText returns String.
func (r Rate) MarshalText() ([]byte, error) { return r.AppendText(nil) }

// MarshalText returns String.
func (b Bytes) MarshalText() ([]byte, error) { return b.AppendText(nil) }

// UnmarshalText parses text with ParseRate.
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := ParseRate(string(text))
	if err == nil {
		*r = v
	}
	return err
}

// UnmarshalText parses text with ParseBytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	if err == nil {
		*b = v
	}
	return err
}

// BytesPerSecond returns r in whole bytes per second, rounded down: the unit of the
// kernel's qdiscs and disks.
func (r Rate) BytesPerSecond() int64 { return int64(r) / 8 }

// TimeToSend returns the time to send b at rate r, rounded up to a nanosecond. It
// saturates: at rate 0 or less it is the longest Duration.
func (r Rate) TimeToSend(b Bytes) time.Duration {
	if b <= 0 {
		return 0
	}
	if r <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(b), 8*uint64(time.Second))
	if hi >= uint64(r) {
		return math.MaxInt64
	}
	quo, rem := bits.Div64(hi, lo, uint64(r))
	if rem > 0 {
		quo++
	}
	if quo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(quo)
}

// BytesIn returns the bytes that rate r carries in d, rounded down. It saturates.
func (r Rate) BytesIn(d time.Duration) Bytes {
	if r <= 0 || d <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(r), uint64(d))
	const den = 8 * uint64(time.Second)
	if hi >= den {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, den)
	if quo > math.MaxInt64 {
		return math.MaxInt64
	}
	return Bytes(quo)
}

// RateOf returns the rate that carries b in d, rounded to the nearest bit per second. It
// saturates; it is MaxRate if d is 0.
func RateOf(b Bytes, d time.Duration) Rate {
	if b <= 0 {
		return 0
	}
	if d <= 0 {
		return MaxRate
	}
	hi, lo := bits.Mul64(uint64(b), 8*uint64(time.Second))
	lo, carry := bits.Add64(lo, uint64(d)/2, 0)
	hi += carry
	if hi >= uint64(d) {
		return MaxRate
	}
	quo, _ := bits.Div64(hi, lo, uint64(d))
	if quo > math.MaxInt64 {
		return MaxRate
	}
	return Rate(quo)
}

// Ratio is a quotient of two positive whole numbers, printed "5:1".
type Ratio struct{ Num, Den int64 }

// ParseRatio parses a ratio such as "5:1".
func ParseRatio(s string) (Ratio, error) {
	var r Ratio
	a, b, ok := strings.Cut(s, ":")
	var err, err2 error
	if ok {
		r.Num, err = scaled(a, 1)
		r.Den, err2 = scaled(b, 1)
	}
	if !ok || !digits(a) || !digits(b) || err != nil || err2 != nil || r.Num == 0 || r.Den == 0 {
		return Ratio{}, fmt.Errorf(`ratio %q: expected two positive whole numbers, such as "5:1"`, Clip(s))
	}
	return r, nil
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// Float returns the quotient.
func (r Ratio) Float() float64 { return float64(r.Num) / float64(r.Den) }

func (r Ratio) String() string { return fmt.Sprintf("%d:%d", r.Num, r.Den) }

// MarshalText returns String.
func (r Ratio) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses text with ParseRatio.
func (r *Ratio) UnmarshalText(text []byte) error {
	v, err := ParseRatio(string(text))
	if err == nil {
		*r = v
	}
	return err
}
