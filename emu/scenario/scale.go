package scenario

import (
	"fmt"
	"math/big"
	"reflect"
	"strings"

	"testbed/topo/units"
	"testbed/workloads"
)

// RateScale is scale.rate as the file states it. Spec holds rates and sizes that
// are multiplied by it already, and a Scale.Rate of 1.
func (s *Scenario) RateScale() workloads.Factor { return s.rate }

// scaleRates multiplies every rate of the scenario by scale.rate, and every size
// that the file states, so that times stay as they are. What a trace states is
// multiplied by scale.size. Fields tagged scale:"keep" are those of the machine
// or of what is measured rather than of the cluster.
func (c *checker) scaleRates() workloads.Factor {
	by := c.spec.Scale.Rate
	if !c.sound("scale.rate") || by.Num == by.Den || by.Num <= 0 || by.Den <= 0 {
		return workloads.Factor{Num: 1, Den: 1}
	}
	eachQuantity("", reflect.ValueOf(c.spec).Elem(), func(path string, sf reflect.StructField, v reflect.Value) { c.times(v, by, path, sf) })
	c.spec.Scale.Rate = workloads.Factor{Num: 1, Den: 1}
	return by
}

// eachQuantity calls do with every rate and every size within v, the value at a
// path, and with their field: whatever the field is called, so that one that is
// added is not forgotten. It passes over fields tagged scale:"keep" and those
// that are not given.
func eachQuantity(path string, v reflect.Value, do func(path string, sf reflect.StructField, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachQuantity(path, v.Elem(), do)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachQuantity(fmt.Sprintf("%s[%d]", path, i), v.Index(i), do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			sf := v.Type().Field(i)
			if !sf.IsExported() || sf.Tag.Get("scale") == "keep" {
				continue
			}
			at := path // a field without a key is one of several kinds
			if key, _, _ := strings.Cut(sf.Tag.Get("yaml"), ","); key != "" {
				at = join(path, key)
			}
			switch f := v.Field(i); f.Interface().(type) {
			case units.Rate, units.Bytes:
				if !f.IsZero() {
					do(at, sf, f)
				}
			default:
				eachQuantity(at, f, do)
			}
		}
	}
}

// times multiplies one quantity and rounds it down; what was above 0 stays so.
func (c *checker) times(v reflect.Value, by workloads.Factor, path string, sf reflect.StructField) {
	was := v.Int()
	n := new(big.Int).Mul(big.NewInt(was), big.NewInt(by.Num))
	n.Quo(n, big.NewInt(by.Den))
	if !n.IsInt64() {
		c.failAt("scale.rate", "%v: %s does not fit: want a smaller factor", by, path)
		return
	}
	now := n.Int64()
	if was > 0 {
		now = max(now, 1)
	}
	v.SetInt(now)
	least := sf.Tag.Get("least")
	if least == "" {
		return
	}
	bound := func(text string) int64 {
		b := reflect.New(v.Type()).Elem()
		if err := setText(b, text); err != nil {
			panic(err) // a bound of this package that is none
		}
		return b.Int()
	}
	if now < bound(least) || now > bound(sf.Tag.Get("most")) {
		c.failAt("scale.rate", "%v: makes %s %v: want a factor with which it is %s to %s", by, path, v.Interface(), least, sf.Tag.Get("most"))
	}
}
