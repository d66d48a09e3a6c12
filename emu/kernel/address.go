package kernel

import (
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/plan"
)

// create executes a request that creates an object and whose only answer is success or an error.
func (n *Namespace) create(kind, flags int, data ...nl.NetlinkRequestData) error {
	req := n.request(kind, flags|unix.NLM_F_CREATE|unix.NLM_F_ACK)
	for _, d := range data {
		req.AddData(d)
	}
	return change(req)
}

// setUp changes the administrative state of a device.
func (n *Namespace) setUp(index int, up bool) error {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index, msg.Change = int32(index), unix.IFF_UP
	if up {
		msg.Flags = unix.IFF_UP
	}
	req := n.request(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	req.AddData(msg)
	return change(req)
}

func (n *Namespace) address(index int, op plan.Address) error {
	msg := nl.NewIfAddrmsg(unix.AF_INET)
	msg.Index, msg.Prefixlen = uint32(index), uint8(op.Prefix.Bits())
	return n.create(unix.RTM_NEWADDR, unix.NLM_F_EXCL, msg, nl.NewRtAttr(unix.IFA_LOCAL, op.Prefix.Addr().AsSlice()))
}

func (n *Namespace) neighbour(index int, op plan.Neighbour) error {
	msg := netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(index), State: netlink.NUD_PERMANENT}
	return n.create(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE, &msg,
		nl.NewRtAttr(unix.NDA_DST, op.Addr.AsSlice()), nl.NewRtAttr(unix.NDA_LLADDR, op.MAC[:]))
}

// addRoute adds a route. flags state what happens to the one to the same destination.
func (b *builder) addRoute(op plan.Route, flags int) error {
	msg := nl.NewRtMsg()
	msg.Protocol = unix.RTPROT_STATIC
	data := destination(msg, op.Dst)
	switch len(op.Via) {
	case 0:
		msg.Type = unix.RTN_BLACKHOLE
	case 1:
		data = append(data, nl.NewRtAttr(unix.RTA_GATEWAY, op.Via[0].Addr.AsSlice()),
			nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(b.index[op.Via[0].Device]))))
		metrics := nl.NewRtAttr(unix.RTA_METRICS, nil)
		if op.Congestion != "" {
			metrics.AddRtAttr(unix.RTAX_CC_ALGO, nl.ZeroTerminated(op.Congestion))
		}
		if op.InitialWindow > 0 {
			metrics.AddRtAttr(unix.RTAX_INITCWND, nl.Uint32Attr(uint32(op.InitialWindow)))
		}
		if len(op.Metrics()) > 0 {
			data = append(data, metrics)
		}
	default:
		var hops []byte
		for _, h := range op.Via {
			hop := nl.RtNexthop{
				RtNexthop: unix.RtNexthop{Ifindex: int32(b.index[h.Device])},
				Children:  []nl.NetlinkRequestData{nl.NewRtAttr(unix.RTA_GATEWAY, h.Addr.AsSlice())},
			}
			hops = append(hops, hop.Serialize()...)
		}
		data = append(data, nl.NewRtAttr(unix.RTA_MULTIPATH, hops))
	}
	return b.create(unix.RTM_NEWROUTE, flags, data...)
}

func (n *Namespace) deleteRoute(dst netip.Prefix) error {
	req := n.request(unix.RTM_DELROUTE, unix.NLM_F_ACK)
	for _, d := range destination(nl.NewRtDelMsg(), dst) {
		req.AddData(d)
	}
	return change(req)
}

// destination completes the message of a route and returns it with its attribute.
func destination(msg *nl.RtMsg, dst netip.Prefix) []nl.NetlinkRequestData {
	msg.Family, msg.Dst_len = unix.AF_INET, uint8(dst.Bits())
	return []nl.NetlinkRequestData{msg, nl.NewRtAttr(unix.RTA_DST, dst.Addr().AsSlice())}
}

// state returns the flags of a device (IFF_UP) and its operational state (netlink.OperUp).
func (n *Namespace) state(index int) (flags uint32, operational netlink.LinkOperState, err error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req := n.request(unix.RTM_GETLINK, 0)
	req.AddData(msg)
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return 0, 0, err
	}
	if len(msgs) != 1 || len(msgs[0]) < unix.SizeofIfInfomsg {
		return 0, 0, errShort
	}
	flags = nl.DeserializeIfInfomsg(msgs[0]).Flags
	return flags, operational, attributes(msgs[0][unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
		if kind == unix.IFLA_OPERSTATE && len(v) > 0 {
			operational = netlink.LinkOperState(v[0])
		}
		return nil
	})
}
