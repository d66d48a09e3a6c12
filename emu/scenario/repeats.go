package scenario

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"testbed/topo/yamltree"
)

// Percent is a share in percent, such as 5%.
type Percent float64

// String returns the share with its sign.
func (p Percent) String() string { return decimal(float64(p)) + "%" }

// MarshalText returns String.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the format of String.
func (p *Percent) UnmarshalText(text []byte) error {
	number, ok := strings.CutSuffix(string(text), "%")
	number = strings.TrimSuffix(number, " ")
	x, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !yamltree.Decimal.MatchString(number) || x < minPercent || x > 100 {
		return fmt.Errorf(`share %q: expected a number of percent from %g to 100, such as "5%%"`, clip(string(text)), minPercent)
	}
	*p = Percent(x)
	return nil
}

// minPercent is the least Percent of a file.
const minPercent = 0.01

// Bounds returns the bounds that are set, by key.
func (u Until) Bounds() map[string]float64 {
	out := map[string]float64{}
	v := reflect.ValueOf(u)
	for _, f := range fieldsOf(v.Type()) {
		if x := v.Field(f.index).Float(); x > 0 {
			out[f.key] = x
		}
	}
	return out
}

// Adaptive reports whether looks decide the number of repeats.
func (r Repeats) Adaptive() bool { return r.Until != Until{} }

// Looks returns the numbers of repeats at which intervals are looked at: the least, the most, and their geometric
// mean, so that intervals narrow by the same factor from look to look; nil if the number is fixed.
func (r Repeats) Looks() []int {
	if !r.Adaptive() {
		return nil
	}
	middle := int(math.Ceil(math.Sqrt(float64(r.AtLeast * r.AtMost))))
	return slices.Compact([]int{r.AtLeast, middle, r.AtMost})
}

// MarshalYAML returns a number if that is fixed.
func (r Repeats) MarshalYAML() (any, error) {
	if !r.Adaptive() {
		return r.AtMost, nil
	}
	type plain Repeats
	return plain(r), nil
}

// repeats checks that looks have bounds, and arms to compare.
func (c *checker) repeats() {
	r := c.spec.Repeat
	if c.at["repeat.until"] == nil || !c.sound("repeat.at_least", "repeat.at_most") || c.badWithin("repeat.until") {
		return
	}
	switch {
	case !r.Adaptive():
		c.failAt("repeat.until", "empty: expected a bound such as {cct: 5%%}")
	case r.AtLeast >= r.AtMost:
		c.failAt("repeat.at_most", "%d: must be above at_least, %d; a fixed number is written as repeat: %d",
			r.AtMost, r.AtLeast, r.AtLeast)
	case len(c.spec.Arms) == 1:
		c.failAt("repeat.until", "no arm to compare with the first: add an arm, or write a number of repeats")
	}
}
