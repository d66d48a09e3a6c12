package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// parseDevice parses a device of a list or a notification, without its offloads and qdiscs.
func parseDevice(m []byte) (index int, d *deploy.Device, err error) {
	if len(m) < unix.SizeofIfInfomsg {
		return 0, nil, errShort
	}
	info := nl.DeserializeIfInfomsg(m)
	d = &deploy.Device{Up: info.Flags&unix.IFF_UP != 0}
	return int(info.Index), d, attributes(m[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
		switch {
		case kind == unix.IFLA_IFNAME:
			d.Name = unix.ByteSliceToString(v)
		case kind == unix.IFLA_ADDRESS:
			copy(d.MAC[:], v)
		case kind == unix.IFLA_MTU && len(v) >= 4:
			d.MTU = units.Bytes(binary.NativeEndian.Uint32(v))
		case kind == unix.IFLA_GSO_MAX_SEGS && len(v) >= 4:
			d.Segments = int(binary.NativeEndian.Uint32(v))
		case kind == unix.IFLA_XDP:
			return attributes(v, func(kind uint16, v []byte) error {
				if kind == nl.IFLA_XDP_ATTACHED && len(v) > 0 {
					d.XDP = v[0] != nl.XDP_ATTACHED_NONE
				}
				return nil
			})
		}
		return nil
	})
}

// parseQdisc parses a qdisc of a list or a notification. It returns nil for the kernel's default qdiscs.
func parseQdisc(m []byte) (index int, _ *deploy.Qdisc, err error) {
	if len(m) < nl.SizeofTcMsg {
		return 0, nil, errShort
	}
	msg := nl.DeserializeTcMsg(m)
	if msg.Handle == 0 {
		return 0, nil, nil
	}
	q := &deploy.Qdisc{Parent: parentName(msg.Parent)}
	var options []byte
	err = attributes(m[nl.SizeofTcMsg:], func(kind uint16, v []byte) error {
		switch kind {
		case nl.TCA_KIND:
			q.Kind = unix.ByteSliceToString(v)
		case nl.TCA_OPTIONS:
			options = v
		}
		return nil
	})
	switch {
	case err != nil:
	case q.Kind == "tbf":
		err = readBucket(q, options)
	case q.Kind == "netem":
		err = readDelay(q, options)
	case q.Kind == "red":
		err = readRED(q, options)
	}
	return int(msg.Ifindex), q, err
}

// parentName returns the name of a parent of a qdisc or filter.
func parentName(parent uint32) string {
	const (
		ingress   = 0xfffffff1 // TC_H_INGRESS, also of clsact
		atIngress = 0xfffffff2 // TC_H_MIN_INGRESS of clsact
		atEgress  = 0xfffffff3 // TC_H_MIN_EGRESS of clsact
		ofIngress = 0xffff0000 // the handle of an ingress qdisc
	)
	switch parent {
	case tcRoot:
		return "root"
	case ingress, atIngress, ofIngress:
		return "ingress"
	case atEgress:
		return "egress"
	}
	return fmt.Sprintf("%x:%x", parent>>16, parent&0xffff)
}

// tick is the unit of the bucket size that the kernel reports: the time to fill it, rounded down
// (PSCHED_SHIFT).
const tick = 64 // ns

func readBucket(q *deploy.Qdisc, options []byte) error {
	var bytesPerSecond uint64
	var ticks uint32
	err := attributes(options, func(kind uint16, v []byte) error {
		switch {
		case kind == nl.TCA_TBF_PARMS && len(v) >= nl.SizeofTcTbfQopt:
			p := nl.DeserializeTcTbfQopt(v)
			bytesPerSecond, ticks, q.Limit = max(bytesPerSecond, uint64(p.Rate.Rate)), p.Buffer, units.Bytes(p.Limit)
			if p.Peakrate.Rate != 0 {
				q.Besides = append(q.Besides, "peak rate")
			}
		case kind == nl.TCA_TBF_RATE64 && len(v) >= 8:
			bytesPerSecond = binary.NativeEndian.Uint64(v)
		}
		return nil
	})
	perTick := float64(bytesPerSecond) * tick / 1e9
	q.Rate = units.Rate(8 * bytesPerSecond)
	q.Burst = units.Bytes(math.Round(float64(ticks) * perTick))
	q.Grain = units.Bytes(math.Ceil(2 * perTick))
	return err
}

// readDelay parses the options of netem: a struct followed by attributes.
func readDelay(q *deploy.Qdisc, options []byte) error {
	if len(options) < sizeofNetem {
		return errShort
	}
	word := func(b []byte, i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	unplanned := func(what string, set bool) {
		if set {
			q.Besides = append(q.Besides, what)
		}
	}
	// latency, limit, loss, gap, duplicate, jitter
	q.Delay, q.Packets = time.Duration(word(options, 0))*tick, word(options, 1)
	unplanned("loss", word(options, 2) != 0)
	unplanned("gap", word(options, 3) != 0)
	unplanned("duplicate", word(options, 4) != 0)
	unplanned("jitter", word(options, 5) != 0)
	return attributes(options[sizeofNetem:], func(kind uint16, v []byte) error {
		switch {
		case kind == tcaNetemLatency64 && len(v) >= 8:
			q.Delay = time.Duration(binary.NativeEndian.Uint64(v))
		case kind == nl.TCA_NETEM_REORDER && len(v) >= 4:
			unplanned("reorder", word(v, 0) != 0)
		case kind == nl.TCA_NETEM_CORRUPT && len(v) >= 4:
			unplanned("corrupt", word(v, 0) != 0)
		case kind == nl.TCA_NETEM_RATE && len(v) >= 16: // struct tc_netem_rate: rate, overhead, cells
			q.Rate = max(q.Rate, 8*units.Rate(word(v, 0)))
			unplanned("overhead", word(v, 1) != 0 || word(v, 2) != 0)
		case kind == tcaNetemRate64 && len(v) >= 8:
			q.Rate = 8 * units.Rate(binary.NativeEndian.Uint64(v))
		case kind == nl.TCA_NETEM_LOSS: // a loss model instead of a probability
			unplanned("loss model", true)
		case kind == tcaNetemSlot:
			unplanned("slot", true)
		}
		return nil
	})
}

// readRED parses the options of RED.
func readRED(q *deploy.Qdisc, options []byte) error {
	return attributes(options, func(kind uint16, v []byte) error {
		switch {
		case kind == tcaRedParms && len(v) >= 16: // struct tc_red_qopt
			q.Limit = units.Bytes(binary.NativeEndian.Uint32(v[0:]))
			q.Min = units.Bytes(binary.NativeEndian.Uint32(v[4:]))
			q.Max = units.Bytes(binary.NativeEndian.Uint32(v[8:]))
			q.Weight, q.ECN = v[12], v[15]&tcRedECN != 0
		case kind == tcaRedMaxP && len(v) >= 4:
			q.Probability = float64(binary.NativeEndian.Uint32(v)) / (1 << 32)
		}
		return nil
	})
}

// From linux/pkt_sched.h.
const (
	sizeofNetem  = 24 // struct tc_netem_qopt
	tcaNetemSlot = 12

	tcaNetemRate64 = 8 // bytes per second that exceed 32 bits
)

// parseAddress parses an address of a list or a notification. It returns nil for one that the kernel adds by
// itself when lo is up.
func (b *builder) parseAddress(m []byte, names map[int]string) (*plan.Address, error) {
	if len(m) < unix.SizeofIfAddrmsg {
		return nil, errShort
	}
	msg := nl.DeserializeIfAddrmsg(m)
	a := &plan.Address{Namespace: b.name, Device: names[int(msg.Index)]}
	err := attributes(m[unix.SizeofIfAddrmsg:], func(kind uint16, v []byte) error {
		if addr, ok := netip.AddrFromSlice(v); ok && kind == unix.IFA_LOCAL {
			a.Prefix = netip.PrefixFrom(addr, int(msg.Prefixlen))
		}
		return nil
	})
	if a.Prefix.Addr().IsLoopback() {
		return nil, err
	}
	return a, err
}

// parseNeighbour parses a neighbour of a list or a notification.
func (b *builder) parseNeighbour(m []byte, names map[int]string) (n *plan.Neighbour, permanent bool, err error) {
	const size = 12 // struct ndmsg
	if len(m) < size {
		return nil, false, errShort
	}
	n = &plan.Neighbour{Namespace: b.name, Device: names[int(binary.NativeEndian.Uint32(m[4:]))]}
	err = attributes(m[size:], func(kind uint16, v []byte) error {
		switch kind {
		case unix.NDA_DST:
			n.Addr, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			copy(n.MAC[:], v)
		}
		return nil
	})
	return n, binary.NativeEndian.Uint16(m[8:])&unix.NUD_PERMANENT != 0, err
}

// parseRoute parses a route of a list or a notification. It returns nil for one of the kernel.
func (b *builder) parseRoute(m []byte, names map[int]string) (_ *deploy.Route, table int, err error) {
	if len(m) < unix.SizeofRtMsg {
		return nil, 0, errShort
	}
	msg := nl.DeserializeRtMsg(m)
	if msg.Protocol == unix.RTPROT_KERNEL || msg.Flags&unix.RTM_F_CLONED != 0 {
		return nil, 0, nil
	}
	dst := netip.IPv4Unspecified()
	var hop plan.Hop
	table = int(msg.Table)
	r := &deploy.Route{Route: plan.Route{Namespace: b.name}}
	err = attributes(m[unix.SizeofRtMsg:], func(kind uint16, v []byte) error {
		switch {
		case kind == unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(v)
		case kind == unix.RTA_GATEWAY:
			hop.Addr, _ = netip.AddrFromSlice(v)
		case kind == unix.RTA_OIF && len(v) >= 4:
			hop.Device = names[int(binary.NativeEndian.Uint32(v))]
		case kind == unix.RTA_TABLE && len(v) >= 4:
			table = int(binary.NativeEndian.Uint32(v))
		case kind == unix.RTA_MULTIPATH:
			return nextHops(v, names, &r.Via)
		case kind == unix.RTA_METRICS:
			return attributes(v, func(kind uint16, v []byte) error {
				switch {
				case kind == unix.RTAX_CC_ALGO:
					r.Congestion = unix.ByteSliceToString(v)
				case len(v) < 4:
				case kind == unix.RTAX_INITCWND:
					r.InitialWindow = int(binary.NativeEndian.Uint32(v))
				default:
					r.Besides = append(r.Besides, fmt.Sprintf("%s %d", metricName(kind), binary.NativeEndian.Uint32(v)))
				}
				return nil
			})
		}
		return nil
	})
	r.Dst = netip.PrefixFrom(dst, int(msg.Dst_len))
	switch {
	case msg.Type == unix.RTN_BLACKHOLE || len(r.Via) > 0:
	case msg.Type == unix.RTN_UNICAST:
		r.Via = []plan.Hop{hop}
	default:
		r.Via = []plan.Hop{{Device: fmt.Sprintf("none (a route of type %d)", msg.Type)}}
	}
	return r, table, err
}

// metricName returns the name that ip(8) gives to a metric of a route.
func metricName(kind uint16) string {
	names := map[uint16]string{unix.RTAX_LOCK: "lock", unix.RTAX_MTU: "mtu", unix.RTAX_WINDOW: "window", unix.RTAX_RTT: "rtt", unix.RTAX_RTTVAR: "rttvar", unix.RTAX_SSTHRESH: "ssthresh",
		unix.RTAX_CWND: "cwnd", unix.RTAX_ADVMSS: "advmss", unix.RTAX_REORDERING: "reordering",
		unix.RTAX_HOPLIMIT: "hoplimit", unix.RTAX_FEATURES: "features",
		unix.RTAX_RTO_MIN: "rto_min", unix.RTAX_INITRWND: "initrwnd", unix.RTAX_QUICKACK: "quickack"}
	if name, ok := names[kind]; ok {
		return name
	}
	return fmt.Sprintf("metric %d", kind)
}

// parseRule returns a rule of a list or a notification as "<priority>: table <number>", or "" for the kernel's three.
func parseRule(m []byte) (string, error) {
	if len(m) < unix.SizeofRtMsg { // struct fib_rule_hdr has the same size
		return "", errShort
	}
	priority, table := uint32(0), uint32(m[4])
	err := attributes(m[unix.SizeofRtMsg:], func(kind uint16, v []byte) error {
		switch {
		case kind == nl.FRA_PRIORITY && len(v) >= 4:
			priority = binary.NativeEndian.Uint32(v)
		case kind == nl.FRA_TABLE && len(v) >= 4:
			table = binary.NativeEndian.Uint32(v)
		}
		return nil
	})
	switch {
	case priority == 0 && table == unix.RT_TABLE_LOCAL, priority == 32766 && table == unix.RT_TABLE_MAIN, priority == 32767 && table == unix.RT_TABLE_DEFAULT:
		return "", err
	}
	return fmt.Sprintf("%d: table %d", priority, table), err
}

// nextHops parses a sequence of struct rtnexthop.
func nextHops(v []byte, names map[int]string, via *[]plan.Hop) error {
	for len(v) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(v))
		if size < unix.SizeofRtNexthop || size > len(v) {
			return errShort
		}
		h := plan.Hop{Device: names[int(binary.NativeEndian.Uint32(v[4:]))]}
		err := attributes(v[unix.SizeofRtNexthop:size], func(kind uint16, v []byte) error {
			if kind == unix.RTA_GATEWAY {
				h.Addr, _ = netip.AddrFromSlice(v)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for range int(v[3]) + 1 {
			*via = append(*via, h)
		}
		v = v[min(len(v), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return nil
}
