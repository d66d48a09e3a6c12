package measure

import (
	"context"
	"errors"
	"fmt"

	"testbed/emu/calibration"
	"testbed/topo/units"
)

// Capacity measures only the capacity of the machine at one MTU, on links of
// Options.Reference, as Run does. It needs root.
func Capacity(ctx context.Context, o Options, mtu units.Bytes) (_ calibration.Capacity, err error) {
	o.MTUs = []units.Bytes{mtu}
	o = o.withDefaults()
	if err := o.Check(); err != nil {
		return calibration.Capacity{}, fmt.Errorf("calibrate: %w", err)
	}
	m := &machine{o: o, c: &calibration.Calibration{}, steps: capacitySteps}
	if err := m.own(ctx); err != nil {
		return calibration.Capacity{}, fmt.Errorf("calibrate: %w", err)
	}
	defer func() { err = errors.Join(err, m.leave(ctx)) }()
	c, err := m.capacityAt(ctx, mtu)
	if err != nil {
		return calibration.Capacity{}, fmt.Errorf("calibrate capacity %w", err)
	}
	return c, nil
}
