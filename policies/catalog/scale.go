package catalog

import (
	"math/big"

	"testbed/topo/units"
	"testbed/workloads"
)

// Scaled are parameters for a cluster whose rates and sizes are those of another
// divided by a factor: sizes among them are divided too, rounded down, and
// defaults that are sizes are written out. The rest stays as it is.
func Scaled(role Role, name string, params map[string]any, by workloads.Factor) (map[string]any, error) {
	e, v, err := resolve(role, name, params)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for k, given := range params {
		out[k] = given
	}
	for _, p := range e.Params {
		size, ok := v[p.Name].(units.Bytes)
		if !ok || size == 0 || int64(size) == p.Max { // "none" and "any" have no scale
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
