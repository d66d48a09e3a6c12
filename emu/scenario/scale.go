package scenario

import (
	"fmt"
	"math/big"
	"reflect"

	"testbed/topo/units"
	"testbed/topo/yamltree"
	"testbed/workloads"
)

// RateScale returns scale.rate as the file states it. The rates and sizes in Spec are
// already multiplied by it, and Spec.Scale.Rate is 1.
func (s *Scenario) RateScale() workloads.Factor { return s.rate }

// scaleRates multiplies every rate and every size of the scenario file by scale.rate, so that
// times stay unchanged. Sizes in traces are multiplied by scale.size instead. Fields tagged
// scale:"keep" describe the machine or the measurement, not the cluster.
func (c *checker) scaleRates() workloads.Factor {
	by := c.spec.Scale.Rate
	if !c.sound("scale.rate") || by.Num == by.Den || by.Num <= 0 || by.Den <= 0 {
		return workloads.Factor{Num: 1, Den: 1}
	}
	eachQuantity("", reflect.ValueOf(c.spec).Elem(), func(path string, f field, v reflect.Value) { c.times(v, by, path, f) })
	c.spec.Scale.Rate = workloads.Factor{Num: 1, Den: 1}
	return by
}

// eachQuantity calls do for every rate and every size within v, which is the value at path, and
// with its rules. It finds them by type, so that new fields are included. It skips fields
// tagged scale:"keep" and zero values.
func eachQuantity(path string, v reflect.Value, do func(path string, f field, v reflect.Value)) {
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
		for _, f := range fieldsOf(v.Type()) {
			if f.keep || !v.Type().Field(f.index).IsExported() {
				continue
			}
			at := path // a field without a key is one of several kinds
			if f.key != "" {
				at = yamltree.Join(path, f.key)
			}
			switch x := v.Field(f.index); x.Interface().(type) {
			case units.Rate, units.Bytes:
				if !x.IsZero() {
					do(at, f, x)
				}
			default:
				eachQuantity(at, x, do)
			}
		}
	}
}

// times multiplies one quantity and rounds it down, to at least 1 if it was above 0.
func (c *checker) times(v reflect.Value, by workloads.Factor, path string, f field) {
	was := v.Int()
	n := new(big.Int).Mul(big.NewInt(was), big.NewInt(by.Num))
	n.Quo(n, big.NewInt(by.Den))
	if !n.IsInt64() {
		c.failAt("scale.rate", "%v: %s overflows: use a smaller factor", by, path)
		return
	}
	now := n.Int64()
	if was > 0 {
		now = max(now, 1)
	}
	v.SetInt(now)
	if f.outside(v) {
		c.failAt("scale.rate", "%v: makes %s %v: use a factor with which it is %s to %s", by, path, v.Interface(), f.least, f.most)
	}
}
