package catalog

import (
	"errors"
	"maps"
	"math/big"

	"testbed/topo/units"
	"testbed/workloads"
)

// Scaled converts parameters to a cluster whose rates and sizes are divided by a factor.
// It divides parameters that are sizes by it too, rounded down, and adds such parameters
// with their scaled defaults. Other parameters are unchanged.
func (c Catalog) Scaled(role, name string, params map[string]any, by workloads.Factor) (map[string]any, error) {
	e, v, errs := c.resolve(role, name, params)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := map[string]any{}
	maps.Copy(out, params)
	for _, p := range e.Params {
		size, ok := v[p.Name].(units.Bytes)
		if !ok || size == 0 || IsExternal(name) || int64(size) == p.Max { // "none" and "any" are not scaled
			continue
		}
		n := new(big.Int).Mul(big.NewInt(int64(size)), big.NewInt(by.Den))
		out[p.Name] = int(n.Quo(n, big.NewInt(by.Num)).Int64())
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}
