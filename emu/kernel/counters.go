package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// device is the constant properties of a device.
type device struct {
	name string
	mac  [6]byte
}

// LinkStats are the counters of a device and of the qdisc at its root since their creation. Bytes
// count Ethernet frames (plan.EthernetHeader).
type LinkStats struct {
	Device string
	Index  int
	Rx, Tx struct {
		Bytes   units.Bytes
		Packets uint64
		Dropped uint64 // by the device; a shaper's drops are in Qdisc
	}
	Qdisc QdiscStats
}

// QdiscStats are the counters of a device's shaper, even if it is below a netem, or of the root
// qdisc if there is no shaper. On a device without a queue, such as lo, Kind is "noqueue" or empty
// and all counters are zero.
type QdiscStats struct {
	Kind       string
	Bytes      units.Bytes // sent
	Packets    uint32      // sent; wraps
	Dropped    uint32      // wraps
	Overlimits uint32      // times a packet had to wait for tokens; wraps
	Backlog    units.Bytes // currently queued
	Queued     uint32      // packets of Backlog
	Marked     uint32      // packets that RED below the qdisc marked (ECN); wraps
}

// ErrInterrupted is the error of a listing during which the devices of the namespace changed.
var ErrInterrupted = errors.New("devices changed while they were listed")

// Links returns the counters of all devices of the namespace, ordered by index.
func (n *Namespace) Links() ([]LinkStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	links, err := n.links()
	if err != nil {
		return nil, fmt.Errorf("counters of %q: %w", n.name, err)
	}
	return links, nil
}

func (n *Namespace) links() ([]LinkStats, error) {
	// RTM_GETSTATS with only the 64-bit counters costs a fifth of RTM_GETLINK.
	req := n.request(unix.RTM_GETSTATS, unix.NLM_F_DUMP)
	filter := &ifStatsMsg{FilterMask: 1 << (iflaStatsLink64 - 1)}
	req.AddData(filter)
	var links []LinkStats
	unknown := n.devices == nil
	err := n.dump(req, unix.RTM_NEWSTATS, func(m []byte) error {
		if len(m) < sizeofIfStatsMsg {
			return errShort
		}
		l := LinkStats{Index: int(binary.NativeEndian.Uint32(m[4:]))}
		err := attributes(m[sizeofIfStatsMsg:], func(kind uint16, v []byte) error {
			if kind != iflaStatsLink64 {
				return nil
			}
			if len(v) < 8*8 {
				return errShort
			}
			at := func(i int) uint64 { return binary.NativeEndian.Uint64(v[8*i:]) } // struct rtnl_link_stats64
			l.Rx.Packets, l.Tx.Packets = at(0), at(1)
			l.Rx.Bytes, l.Tx.Bytes = units.Bytes(at(2)), units.Bytes(at(3))
			l.Rx.Dropped, l.Tx.Dropped = at(6), at(7)
			return nil
		})
		if _, ok := n.devices[l.Index]; !ok {
			unknown = true
		}
		links = append(links, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	if unknown {
		if n.devices, err = n.listDevices(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(links, func(a, b LinkStats) int { return a.Index - b.Index })
	for i := range links {
		links[i].Device = n.devices[links[i].Index].name
	}
	return links, n.qdiscs(links)
}

// qdiscs fills in the counters of the root qdiscs of links, which are ordered by index.
func (n *Namespace) qdiscs(links []LinkStats) error {
	req := n.request(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC})
	return n.dump(req, unix.RTM_NEWQDISC, func(m []byte) error {
		if len(m) < nl.SizeofTcMsg {
			return errShort
		}
		msg := nl.DeserializeTcMsg(m)
		i, found := slices.BinarySearchFunc(links, int(msg.Ifindex), func(l LinkStats, index int) int { return l.Index - index })
		if !found {
			return nil
		}
		// The token bucket is the queue of the link. A qdisc above it delays packets, and one below
		// it stores the queue's packets. The bucket's counters include the drops of both.
		q := &QdiscStats{}
		defer func() {
			switch {
			case q.Kind == "red":
				links[i].Qdisc.Marked = q.Marked
			case q.Kind == "tbf" || msg.Parent == tcRoot && links[i].Qdisc.Kind == "":
				q.Marked = links[i].Qdisc.Marked
				links[i].Qdisc = *q
			}
		}()
		return attributes(m[nl.SizeofTcMsg:], func(kind uint16, v []byte) error {
			switch kind {
			case nl.TCA_KIND:
				q.Kind = unix.ByteSliceToString(v)
			case nl.TCA_STATS2:
				return attributes(v, func(kind uint16, v []byte) error {
					switch {
					case kind == nl.TCA_STATS_BASIC && len(v) >= 12: // struct gnet_stats_basic
						q.Bytes, q.Packets = units.Bytes(binary.NativeEndian.Uint64(v)), binary.NativeEndian.Uint32(v[8:])
					case kind == nl.TCA_STATS_QUEUE && len(v) >= 20: // struct gnet_stats_queue
						q.Queued, q.Backlog = binary.NativeEndian.Uint32(v), units.Bytes(binary.NativeEndian.Uint32(v[4:]))
						q.Dropped, q.Overlimits = binary.NativeEndian.Uint32(v[8:]), binary.NativeEndian.Uint32(v[16:])
					case kind == tcaStatsApp && len(v) >= 16 && q.Kind == "red": // struct tc_red_xstats
						q.Marked = binary.NativeEndian.Uint32(v[12:])
					}
					return nil
				})
			}
			return nil
		})
	})
}

// Devices returns the names of the devices of the namespace by index.
func (n *Namespace) Devices() (map[int]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	devices, err := n.listDevices()
	if err != nil {
		return nil, fmt.Errorf("devices of %q: %w", n.name, err)
	}
	n.devices = devices
	names := make(map[int]string, len(devices))
	for index, d := range devices {
		names[index] = d.name
	}
	return names, nil
}

func (n *Namespace) listDevices() (map[int]device, error) {
	req := n.request(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	devices := map[int]device{}
	err := n.dump(req, unix.RTM_NEWLINK, func(m []byte) error {
		if len(m) < unix.SizeofIfInfomsg {
			return errShort
		}
		var d device
		err := attributes(m[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
			switch kind {
			case unix.IFLA_IFNAME:
				d.name = unix.ByteSliceToString(v)
			case unix.IFLA_ADDRESS:
				copy(d.mac[:], v)
			}
			return nil
		})
		devices[int(nl.DeserializeIfInfomsg(m).Index)] = d
		return err
	})
	return devices, err
}

// index returns the index of a device by name. The caller holds n.mu.
func (n *Namespace) index(name string) (int, error) {
	find := func() int {
		for index, d := range n.devices {
			if d.name == name {
				return index
			}
		}
		return 0
	}
	if index := find(); index > 0 {
		return index, nil
	}
	devices, err := n.listDevices()
	if err != nil {
		return 0, err
	}
	n.devices = devices
	if index := find(); index > 0 {
		return index, nil
	}
	var have []string
	for _, index := range slices.Sorted(maps.Keys(n.devices)) {
		have = append(have, n.devices[index].name)
	}
	return 0, fmt.Errorf("no device %q: existing devices are %s", name, strings.Join(have, ", "))
}

// dump executes a request with several answers. It returns ErrInterrupted if the list changed while
// it was read.
func (n *Namespace) dump(req *nl.NetlinkRequest, kind uint16, each func(m []byte) error) error {
	if n.closed {
		return errClosed
	}
	msgs, err := req.Execute(unix.NETLINK_ROUTE, kind)
	if errors.Is(err, nl.ErrDumpInterrupted) {
		return ErrInterrupted
	}
	for _, m := range msgs {
		if err == nil {
			err = each(m)
		}
	}
	return err
}

var (
	errShort  = errors.New("the kernel's answer is too short")
	errClosed = errors.New("the namespace is closed")
)

// attributes calls f with each netlink attribute in b.
func attributes(b []byte, f func(kind uint16, value []byte) error) error {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return errShort
		}
		const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		if err := f(binary.NativeEndian.Uint16(b[2:])&^uint16(flags), b[unix.SizeofRtAttr:size]); err != nil {
			return err
		}
		b = b[min(len(b), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return nil
}

// From linux/if_link.h and linux/pkt_sched.h.
const (
	sizeofIfStatsMsg = 12
	iflaStatsLink64  = 1
	tcRoot           = 0xffffffff
	tcaStatsApp      = 4 // TCA_STATS_APP
)

// ifStatsMsg is struct if_stats_msg.
type ifStatsMsg struct {
	Index, FilterMask uint32
}

func (m *ifStatsMsg) Len() int { return sizeofIfStatsMsg }

func (m *ifStatsMsg) Serialize() []byte {
	b := make([]byte, sizeofIfStatsMsg)
	binary.NativeEndian.PutUint32(b[4:], m.Index)
	binary.NativeEndian.PutUint32(b[8:], m.FilterMask)
	return b
}
