package workloads

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
)

// Factor is an exact positive quotient by which sizes or times are multiplied.
// The zero Factor is 1.
type Factor struct{ Num, Den int64 }

// ParseFactor parses a quotient such as "1/100" or a decimal such as "0.01" or "2". The
// result is in lowest terms; both numbers must fit 63 bits.
func ParseFactor(s string) (Factor, error) {
	bad := func(why string) (Factor, error) {
		return Factor{}, fmt.Errorf(`factor %q: %s: expected a quotient or a decimal above 0, such as "1/100" or "0.01"`, units.Clip(s), why)
	}
	if len(s) > 64 {
		return bad("too long")
	}
	num, den, quotient := strings.Cut(s, "/")
	whole, frac, dotted := strings.Cut(num, ".")
	if !digits(whole) || dotted && (quotient || !digits(frac)) || quotient && !digits(den) {
		return bad("not a number")
	}
	n, _ := new(big.Int).SetString(whole+frac, 10)
	d := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(frac))), nil)
	if quotient {
		d, _ = new(big.Int).SetString(den, 10)
	}
	if n.Sign() == 0 || d.Sign() == 0 {
		return bad("zero")
	}
	r := new(big.Rat).SetFrac(n, d)
	if !r.Num().IsInt64() || !r.Denom().IsInt64() {
		return bad("out of range")
	}
	return Factor{Num: r.Num().Int64(), Den: r.Denom().Int64()}, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func (f Factor) orOne() Factor {
	if f == (Factor{}) {
		return Factor{1, 1}
	}
	return f
}

// check rejects a Factor that ParseFactor cannot return.
func (f Factor) check() error {
	if f := f.orOne(); f.Num <= 0 || f.Den <= 0 {
		return fmt.Errorf("factor %d/%d: must be two positive numbers", f.Num, f.Den)
	}
	return nil
}

// Float returns the quotient.
func (f Factor) Float() float64 {
	f = f.orOne()
	return float64(f.Num) / float64(f.Den)
}

// String returns a quotient such as "1/100", or "2" if the denominator is 1.
func (f Factor) String() string {
	f = f.orOne()
	if f.Den == 1 {
		return strconv.FormatInt(f.Num, 10)
	}
	return fmt.Sprintf("%d/%d", f.Num, f.Den)
}

// MarshalText returns String.
func (f Factor) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText parses text with ParseFactor.
func (f *Factor) UnmarshalText(text []byte) error {
	v, err := ParseFactor(string(text))
	if err == nil {
		*f = v
	}
	return err
}

// Duration returns d times f, rounded down to a nanosecond; ok is false if it overflows.
func (f Factor) Duration(d time.Duration) (_ time.Duration, ok bool) {
	f = f.orOne()
	n := new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(f.Num))
	n.Quo(n, big.NewInt(f.Den))
	return time.Duration(n.Int64()), n.IsInt64()
}

// ceilBytes returns n divided by d, rounded up to at least one byte; ok is false if it
// overflows. It modifies both arguments.
func ceilBytes(n, d *big.Int) (_ units.Bytes, ok bool) {
	n.Add(n, d).Sub(n, big.NewInt(1)).Quo(n, d)
	if !n.IsInt64() {
		return math.MaxInt64, false
	}
	return units.Bytes(max(1, n.Int64())), true
}

// Times returns the product of two factors, in lowest terms; ok is false if its numbers
// overflow.
func (f Factor) Times(g Factor) (_ Factor, ok bool) {
	f, g = f.orOne(), g.orOne()
	r := new(big.Rat).Mul(big.NewRat(f.Num, f.Den), big.NewRat(g.Num, g.Den))
	return Factor{r.Num().Int64(), r.Denom().Int64()}, r.Num().IsInt64() && r.Denom().IsInt64()
}
