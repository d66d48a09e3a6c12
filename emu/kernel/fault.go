package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"testbed/emu/plan"
)

// withBuilder runs f with a builder for a namespace that is in use.
func (n *Namespace) withBuilder(f func(*builder) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	return f(&builder{Namespace: n, index: map[string]int{}})
}

// onDevice is withBuilder for one device.
func (n *Namespace) onDevice(device string, f func(b *builder, index int) error) error {
	return n.withBuilder(func(b *builder) error {
		index, err := n.index(device)
		if err != nil {
			return err
		}
		return f(b, index)
	})
}

// Cut takes a cable down by setting the leaf's end down administratively. The far end then has no
// carrier. Packets queued or sent at either end are lost. Cutting a cable that is already cut does
// nothing.
func Cut(c plan.Cable, leaf, far *Namespace) error {
	err := leaf.onDevice(c.Leaf.Device, func(b *builder, index int) error { return b.setUp(index, false) })
	if err == nil {
		// Querying the link state makes the kernel process the loss of carrier immediately.
		// Otherwise the far end would keep sending until the kernel does so in the background.
		err = far.onDevice(c.Far.Device, func(b *builder, _ int) error { return b.ethtool(c.Far.Device, unix.ETHTOOL_GLINK, 0) })
	}
	if err != nil {
		return fmt.Errorf("cut %s - %s: %w%s", c.Leaf.Namespace, c.Far.Namespace, err, privilege(err))
	}
	return nil
}

// Mend brings a cable up, waits until both ends can send, and restores the neighbour entry that the
// kernel deleted at the leaf's end. The caller restores the routes over the cable.
func Mend(ctx context.Context, c plan.Cable, leaf, far *Namespace) error {
	err := leaf.onDevice(c.Leaf.Device, func(b *builder, index int) error {
		if err := b.setUp(index, true); err != nil {
			return err
		}
		if err := b.ready(ctx, c.Leaf.Device, index); err != nil {
			return err
		}
		return b.neighbour(index, c.Neighbour)
	})
	if err == nil {
		err = far.onDevice(c.Far.Device, func(b *builder, index int) error { return b.ready(ctx, c.Far.Device, index) })
	}
	if err != nil {
		return fmt.Errorf("mend %s - %s: %w%s", c.Leaf.Namespace, c.Far.Namespace, err, privilege(err))
	}
	return nil
}

// ReplaceRoute adds a route or replaces the one to the same destination.
func (n *Namespace) ReplaceRoute(op plan.Route) error {
	err := n.withBuilder(func(b *builder) error {
		for _, h := range op.Via {
			var err error
			if b.index[h.Device], err = n.index(h.Device); err != nil {
				return err
			}
		}
		return b.addRoute(op, unix.NLM_F_REPLACE)
	})
	if err != nil {
		return fmt.Errorf("replace route in %q: %s: %w%s", n.name, op, err, privilege(err))
	}
	return nil
}

// DeleteRoute removes the route to a destination. A missing route is not an error.
func (n *Namespace) DeleteRoute(dst netip.Prefix) error {
	err := n.withBuilder(func(b *builder) error {
		return b.deleteRoute(dst)
	})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route to %v in %q: %w%s", dst, n.name, err, privilege(err))
	}
	return nil
}

// Reshape changes the rate of a shaper that is in use. Its queue is kept.
func (n *Namespace) Reshape(op plan.Shaper) error {
	err := plan.CheckRate(op.Rate, op.Limit, op.Burst, op.MTU)
	if err == nil {
		err = n.onDevice(op.Device, func(b *builder, index int) error { return b.shape(index, op) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", op, err, privilege(err))
	}
	return nil
}

// IsUp reports whether a device is administratively up.
func (n *Namespace) IsUp(device string) (up bool, err error) {
	err = n.onDevice(device, func(b *builder, index int) error {
		flags, _, err := b.state(index)
		up = flags&unix.IFF_UP != 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read the state of device %q in %q: %w%s", device, n.name, err, privilege(err))
	}
	return up, nil
}
