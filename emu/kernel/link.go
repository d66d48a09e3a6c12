package kernel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/plan"
	"testbed/topo/units"
)

// link creates a veth pair.
func (x *Executor) link(op plan.Veth) error {
	return x.inNamespace(op.A.Namespace, func(a *builder) error {
		return x.inNamespace(op.B.Namespace, func(b *builder) error { return a.link(b, int(b.net.Fd()), op) })
	})
}

// link creates both ends of a veth pair in one request, each in its namespace and with a chosen
// index. Indexes count from 2 in each namespace; lo has index 1. fd is a descriptor of b's namespace.
func (a *builder) link(b *builder, fd int, op plan.Veth) error {
	self := nl.NewIfInfomsg(unix.AF_UNSPEC)
	self.Index = int32(a.next)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC).Index = int32(b.next)
	for _, attr := range endAttrs(op.B, op.MTU) {
		peer.AddChild(attr)
	}
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(fd)))
	data := []nl.NetlinkRequestData{self, info}
	for _, attr := range endAttrs(op.A, op.MTU) {
		data = append(data, attr)
	}
	if err := a.create(unix.RTM_NEWLINK, unix.NLM_F_EXCL, data...); err != nil {
		return err
	}
	a.index[op.A.Device], b.index[op.B.Device] = a.next, b.next
	a.next++
	b.next++
	return nil
}

func endAttrs(e plan.End, mtu units.Bytes) []*nl.RtAttr {
	return []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(e.Device)),
		nl.NewRtAttr(unix.IFLA_ADDRESS, e.MAC[:]),
		nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))),
		nl.NewRtAttr(unix.IFLA_GSO_MAX_SEGS, nl.Uint32Attr(1)),
	}
}

// ready waits until a device is operational. Querying the link state makes the kernel process the
// change of carrier immediately; otherwise it does so in the background.
func (b *builder) ready(ctx context.Context, device string, index int) error {
	const timeout = 5 * time.Second
	for start := time.Now(); ; {
		if err := b.ethtool(device, unix.ETHTOOL_GLINK, 0); err != nil {
			return err
		}
		_, state, err := b.state(index)
		if err != nil {
			return err
		}
		if state == netlink.OperUp {
			return nil
		}
		if time.Since(start) > timeout {
			return fmt.Errorf("device is %v after %v: is its peer up?", state, timeout)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Requests of the ethtool ioctl, from linux/ethtool.h, that set one offload each.
var offloadRequests = map[string]uint32{
	"tx":  unix.ETHTOOL_STXCSUM,
	"sg":  unix.ETHTOOL_SSG,
	"tso": unix.ETHTOOL_STSO,
	"gso": unix.ETHTOOL_SGSO,
	"gro": unix.ETHTOOL_SGRO,
}

// disableOffloads turns the named offloads of a device off. Offloads that the device does not support are
// already off.
func (n *Namespace) disableOffloads(device string, names []string) error {
	for _, name := range names {
		request, ok := offloadRequests[name]
		if !ok {
			return fmt.Errorf("unknown offload %q", name)
		}
		if err := n.ethtool(device, request, 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("offload %q: %w", name, err)
		}
	}
	return nil
}

// ethtool executes a request with one value. Any socket of the namespace accepts it.
func (n *Namespace) ethtool(device string, request, value uint32) error {
	arg := [2]uint32{request, value} // struct ethtool_value
	req := struct {                  // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&arg)}
	if len(device) >= len(req.name) {
		return fmt.Errorf("device name %q: longer than %d bytes", device, len(req.name)-1)
	}
	copy(req.name[:], device)
	socket := uintptr(n.route.Socket.GetFd())
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, socket, unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&arg)
	if errno != 0 {
		return errno
	}
	return nil
}
