package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NextHopDevice asks the kernel out of which device of this namespace it would
// forward a TCP segment from src to dst that comes in through the device iif.
// The answer is that of the forwarding code itself, hash, seed and all.
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

// nextHop is NextHopDevice by indexes; the namespace is locked.
func (n *Namespace) nextHop(iif int, src, dst netip.AddrPort) (int, error) {
	if n.closed {
		return 0, errClosed
	}
	if err := errors.Join(want4("source", src), want4("destination", dst)); err != nil {
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
		return 0, errors.New("the kernel names no device")
	}
	return out, nil
}

// maxPortTries bounds the search for a port. With 64 spines, the most a fabric
// has, and an even hash, a spine is missed by so many with probability (63/64)^4096,
// less than 10⁻²⁸.
const maxPortTries = 4096

// SourcePort finds the first source port, from the one given on, with which a
// TCP connection from src to dst:dstPort that enters leaf through iif leaves it
// through wantDev. It starts again at 1024 after port 65535.
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
	for range maxPortTries {
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
	return fail(fmt.Errorf("none among %d ports: is there a route through it?", maxPortTries))
}
