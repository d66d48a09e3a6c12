package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NextHopDevice returns the device through which the kernel would forward a TCP segment from src to
// dst that arrives on the device iif. The kernel's forwarding code itself answers, with its hash
// and seed.
func (n *Namespace) NextHopDevice(iif string, src, dst netip.AddrPort) (dev string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	in, err := n.index(iif)
	if err == nil {
		var out int
		if out, err = n.nextHop(in, src, dst); err == nil {
			return n.devices[out].name, nil
		}
	}
	return "", fmt.Errorf("next hop in %q from %v (%s) to %v: %w", n.name, src, iif, dst, err)
}

// nextHop is NextHopDevice with device indexes. The caller holds n.mu.
func (n *Namespace) nextHop(iif int, src, dst netip.AddrPort) (int, error) {
	if n.closed {
		return 0, errClosed
	}
	if err := errors.Join(checkIPv4("source", src), checkIPv4("destination", dst)); err != nil {
		return 0, err
	}
	req := n.request(unix.RTM_GETROUTE, 0)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET, Dst_len: 32, Src_len: 32}})
	req.AddData(nl.NewRtAttr(unix.RTA_SRC, src.Addr().Unmap().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_DST, dst.Addr().Unmap().AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_IIF, nl.Uint32Attr(uint32(iif))))
	req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, nl.Uint8Attr(unix.IPPROTO_TCP)))
	req.AddData(nl.NewRtAttr(unix.RTA_SPORT, nl.BEUint16Attr(src.Port())))
	req.AddData(nl.NewRtAttr(unix.RTA_DPORT, nl.BEUint16Attr(dst.Port())))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if err != nil {
		return 0, err
	}
	out := 0
	for _, m := range msgs {
		if len(m) < unix.SizeofRtMsg {
			return 0, errShort
		}
		err := attributes(m[unix.SizeofRtMsg:], func(kind uint16, v []byte) error {
			if kind == unix.RTA_OIF && len(v) >= 4 {
				out = int(binary.NativeEndian.Uint32(v))
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if out == 0 {
		return 0, errors.New("the kernel returned no device")
	}
	return out, nil
}

// maxPortAttempts bounds the search for a port. With 64 spines, the maximum of a fabric, and a
// uniform hash, this number of ports misses a spine with probability (63/64)^4096, less than 10⁻²⁸.
const maxPortAttempts = 4096

// SourcePort returns the first source port, starting at from, with which a TCP connection from src
// to dst:dstPort that enters leaf through iif leaves it through wantDev. After 65535 the search
// continues at 1024.
func SourcePort(leaf *Namespace, iif string, src, dst netip.Addr, dstPort uint16, wantDev string, from uint16) (uint16, error) {
	fail := func(err error) (uint16, error) {
		return 0, fmt.Errorf("source port from %v to %v:%d through %s of %q: %w", src, dst, dstPort, wantDev, leaf.name, err)
	}
	leaf.mu.Lock()
	defer leaf.mu.Unlock()
	in, err := leaf.index(iif)
	if err != nil {
		return fail(err)
	}
	want, err := leaf.index(wantDev)
	if err != nil {
		return fail(err)
	}
	port := max(from, 1024)
	for range maxPortAttempts {
		out, err := leaf.nextHop(in, netip.AddrPortFrom(src, port), netip.AddrPortFrom(dst, dstPort))
		if err != nil {
			return fail(err)
		}
		if out == want {
			return port, nil
		}
		if port++; port == 0 {
			port = 1024
		}
	}
	return fail(fmt.Errorf("no match among %d ports: is there a route through that device?", maxPortAttempts))
}
