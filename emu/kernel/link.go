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

// link creates both ends of a veth pair in one request, each in its namespace and with a chosen
// index. Indexes count from 2 in each namespace; lo has index 1.
func (x *Executor) link(op plan.Veth) error {
	return x.inNamespace(op.A.Namespace, func(a *builder) error {
		return x.inNamespace(op.B.Namespace, func(b *builder) error {
			req := a.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
			self := nl.NewIfInfomsg(unix.AF_UNSPEC)
			self.Index = int32(a.next)
			req.AddData(self)
			for _, attr := range endAttrs(op.A, op.MTU) {
				req.AddData(attr)
			}
			info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
			info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
			peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
			nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC).Index = int32(b.next)
			for _, attr := range endAttrs(op.B, op.MTU) {
				peer.AddChild(attr)
			}
			peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(b.net.Fd())))
			req.AddData(info)
			if err := change(req); err != nil {
				return err
			}
			a.index[op.A.Device], b.index[op.B.Device] = a.next, b.next
			a.next++
			b.next++
			return nil
		})
	})
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
		if err := ethtool(b.ioctl, device, unix.ETHTOOL_GLINK, 0); err != nil {
			return err
		}
		link, err := b.handle.LinkByIndex(index)
		if err != nil {
			return err
		}
		state := link.Attrs().OperState
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

// disableOffloads turns the named offloads of a device off. socket is any socket of its namespace.
// Offloads that the device does not support are already off.
func disableOffloads(socket int, device string, names []string) error {
	for _, name := range names {
		request, ok := offloadRequests[name]
		if !ok {
			return fmt.Errorf("unknown offload %q", name)
		}
		if err := ethtool(socket, device, request, 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("offload %q: %w", name, err)
		}
	}
	return nil
}

// ethtool executes a request with one value.
func ethtool(socket int, device string, request, value uint32) error {
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
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&arg)
	if errno != 0 {
		return errno
	}
	return nil
}
