package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/plan"
)

// repair runs f with what is needed to change a namespace that is in use.
func (n *Namespace) repair(f func(*building) error) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	b := &building{Namespace: n, ioctl: -1, index: map[string]int{}}
	err = n.do(func() (err error) {
		if b.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open a netlink socket: %w", err)
		}
		if b.ioctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		return nil
	})
	if err == nil {
		err = f(b)
	}
	if b.handle != nil {
		b.handle.Close()
	}
	if b.ioctl >= 0 {
		err = errors.Join(err, unix.Close(b.ioctl))
	}
	return err
}

// on is repair for one device.
func (n *Namespace) on(device string, f func(b *building, index int) error) error {
	return n.repair(func(b *building) error {
		index, err := n.index(device)
		if err != nil {
			return err
		}
		return f(b, index)
	})
}

// Cut takes a cable down: the leaf's end administratively, so that the far end
// has no carrier and what either end is given to send is lost. What waited in
// their queues is lost too. Cutting a cable that is cut does nothing.
func Cut(c plan.Cable, leaf, far *Namespace) error {
	err := leaf.on(c.Leaf.Device, func(b *building, index int) error { return b.handle.LinkSetDown(linkAt(index)) })
	if err == nil {
		// Asking makes the kernel take note of the carrier now, where it would
		// otherwise send into the void until it finds time.
		err = far.on(c.Far.Device, func(b *building, _ int) error { return ethtool(b.ioctl, c.Far.Device, unix.ETHTOOL_GLINK, 0) })
	}
	if err != nil {
		return fmt.Errorf("cut %s - %s: %w%s", c.Leaf.Namespace, c.Far.Namespace, err, privilege(err))
	}
	return nil
}

// Mend brings a cable back, waits until both ends can send, and restores what
// the kernel forgot of the leaf's end. Routes over it are the caller's.
func Mend(ctx context.Context, c plan.Cable, leaf, far *Namespace) error {
	err := leaf.on(c.Leaf.Device, func(b *building, index int) error {
		if err := b.handle.LinkSetUp(linkAt(index)); err != nil {
			return err
		}
		if err := b.ready(ctx, c.Leaf.Device, index); err != nil {
			return err
		}
		return b.handle.NeighSet(&netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
			IP: c.Neighbour.Addr.AsSlice(), HardwareAddr: net.HardwareAddr(c.Neighbour.MAC[:])})
	})
	if err == nil {
		err = far.on(c.Far.Device, func(b *building, index int) error { return b.ready(ctx, c.Far.Device, index) })
	}
	if err != nil {
		return fmt.Errorf("mend %s - %s: %w%s", c.Leaf.Namespace, c.Far.Namespace, err, privilege(err))
	}
	return nil
}

// ReplaceRoute sets a route, in the place of one to the same destination where
// there is one.
func (n *Namespace) ReplaceRoute(op plan.Route) error {
	err := n.repair(func(b *building) error {
		for _, h := range op.Via {
			var err error
			if b.index[h.Device], err = n.index(h.Device); err != nil {
				return err
			}
		}
		return b.handle.RouteReplace(b.routeOf(op))
	})
	if err != nil {
		return fmt.Errorf("replace route in %q: %s: %w%s", n.name, op, err, privilege(err))
	}
	return nil
}

// DeleteRoute removes the route to a destination. One that is not there is no
// error.
func (n *Namespace) DeleteRoute(dst netip.Prefix) error {
	err := n.repair(func(b *building) error {
		return b.handle.RouteDel(&netlink.Route{Dst: ipNet(dst), Family: unix.AF_INET})
	})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route to %v in %q: %w%s", dst, n.name, err, privilege(err))
	}
	return nil
}

// Reshape changes the rate of a shaper that is in use. What waits in its queue
// stays there.
func (n *Namespace) Reshape(op plan.Shaper) error {
	err := plan.CheckRate(op.Rate, op.Limit, op.Burst, op.MTU)
	if err == nil {
		err = n.on(op.Device, func(b *building, index int) error { return b.shape(index, op) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", op, err, privilege(err))
	}
	return nil
}

// IsUp tells whether a device is up, administratively.
func (n *Namespace) IsUp(device string) (up bool, err error) {
	err = n.on(device, func(b *building, index int) error {
		link, err := b.handle.LinkByIndex(index)
		if err == nil {
			up = link.Attrs().Flags&net.FlagUp != 0
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look at %q in %q: %w%s", device, n.name, err, privilege(err))
	}
	return up, nil
}
