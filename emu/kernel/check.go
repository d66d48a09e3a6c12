package kernel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// maxDumps is the maximum number of attempts to read a list that changes while it is read.
const maxDumps = 5

// Read returns the configuration of a namespace that this executor created.
func (x *Executor) Read(ctx context.Context, namespace string, parameters []string) (deploy.Found, error) {
	var f deploy.Found
	err := x.inNamespace(namespace, func(b *builder) error {
		devices, err := b.readDevices()
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		names := map[int]string{}
		for index, d := range devices {
			names[index] = d.Name
		}
		if err := b.readQdiscs(devices); err != nil {
			return fmt.Errorf("qdiscs: %w", err)
		}
		for _, d := range devices {
			f.Devices = append(f.Devices, *d)
		}
		slices.SortFunc(f.Devices, func(a, b deploy.Device) int { return strings.Compare(a.Name, b.Name) })
		if f.Addresses, err = b.readAddresses(names); err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
		if f.Neighbours, err = b.readNeighbours(names); err != nil {
			return fmt.Errorf("neighbours: %w", err)
		}
		if f.Routes, err = b.readRoutes(names); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		if f.Rules, err = b.readRules(); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		f.Parameters, err = b.readParameters(ctx, parameters)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("read back namespace %q: %w%s", namespace, err, privilege(err))
	}
	return f, ctx.Err()
}

// list reads a list and calls each for its entries. If the list changes while it is read, list
// starts again. It calls begin before each attempt.
func (b *builder) list(get, answer uint16, header nl.NetlinkRequestData, attr *nl.RtAttr, begin func(), each func(m []byte) error) error {
	for attempt := 1; ; attempt++ {
		begin()
		req := b.request(int(get), unix.NLM_F_DUMP)
		req.AddData(header)
		if attr != nil {
			req.AddData(attr)
		}
		err := b.dump(req, answer, each)
		if !errors.Is(err, ErrInterrupted) || attempt == maxDumps {
			return err
		}
	}
}

func (b *builder) readDevices() (devices map[int]*deploy.Device, err error) {
	const skipStats = 8 // RTEXT_FILTER_SKIP_STATS
	err = b.list(unix.RTM_GETLINK, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)),
		func() { devices = map[int]*deploy.Device{} }, func(m []byte) error {
			index, d, err := parseDevice(m)
			devices[index] = d
			return err
		})
	for _, d := range devices {
		if err == nil {
			d.Offloads, err = b.offloads(d.Name)
		}
	}
	return devices, err
}

// Requests of the ethtool ioctl for the state of an offload.
var offloadQueries = map[string]uint32{
	"tx":  unix.ETHTOOL_GTXCSUM,
	"sg":  unix.ETHTOOL_GSG,
	"tso": unix.ETHTOOL_GTSO,
	"gso": unix.ETHTOOL_GGSO,
	"gro": unix.ETHTOOL_GGRO,
}

// offloads returns the flags of plan.OffloadFlags that are on.
func (n *Namespace) offloads(device string) (on []string, err error) {
	arg := new([2]uint32)
	var req struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:len(req.name)-1], device)
	req.data = unsafe.Pointer(arg)
	for _, name := range plan.OffloadFlags {
		*arg = [2]uint32{offloadQueries[name], 0}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(n.route.Socket.GetFd()), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
		runtime.KeepAlive(arg)
		switch {
		case errno == 0 && arg[1] != 0:
			on = append(on, name)
		case errno != 0 && errno != unix.EOPNOTSUPP:
			return nil, fmt.Errorf("offload %q of %s: %w", name, device, errno)
		}
	}
	return on, nil
}

// readQdiscs fills in the qdiscs of devices, except the kernel's default qdiscs.
func (b *builder) readQdiscs(devices map[int]*deploy.Device) error {
	begin := func() {
		for _, d := range devices {
			d.Qdiscs = nil
		}
	}
	return b.list(unix.RTM_GETQDISC, unix.RTM_NEWQDISC, &nl.TcMsg{Family: unix.AF_UNSPEC}, nil, begin, func(m []byte) error {
		index, q, err := parseQdisc(m)
		if d := devices[index]; d != nil && q != nil {
			d.Qdiscs = append(d.Qdiscs, *q)
		}
		return err
	})
}

func (b *builder) readAddresses(names map[int]string) (list []plan.Address, err error) {
	err = b.list(unix.RTM_GETADDR, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_INET), nil, func() { list = nil }, func(m []byte) error {
		a, err := b.parseAddress(m, names)
		if a != nil {
			list = append(list, *a)
		}
		return err
	})
	return list, err
}

func (b *builder) readNeighbours(names map[int]string) (list []plan.Neighbour, err error) {
	header := &netlinkNdmsg{family: unix.AF_INET}
	err = b.list(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, header, nil, func() { list = nil }, func(m []byte) error {
		n, permanent, err := b.parseNeighbour(m, names)
		if permanent {
			list = append(list, *n)
		}
		return err
	})
	return list, err
}

// netlinkNdmsg is the struct ndmsg of a request.
type netlinkNdmsg struct{ family byte }

func (*netlinkNdmsg) Len() int            { return 12 }
func (m *netlinkNdmsg) Serialize() []byte { return append([]byte{m.family}, make([]byte, 11)...) }

// readRoutes returns the routes of the main table, without those of the kernel. A next hop of
// weight n is listed n times.
func (b *builder) readRoutes(names map[int]string) (list []deploy.Route, err error) {
	header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET}}
	err = b.list(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, header, nil, func() { list = nil }, func(m []byte) error {
		r, table, err := b.parseRoute(m, names)
		if r != nil && table == unix.RT_TABLE_MAIN {
			list = append(list, *r)
		}
		return err
	})
	return list, err
}

// readRules returns the rules that choose a routing table, without the kernel's three.
func (b *builder) readRules() (list []string, err error) {
	header := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET}}
	err = b.list(unix.RTM_GETRULE, unix.RTM_NEWRULE, header, nil, func() { list = nil }, func(m []byte) error {
		rule, err := parseRule(m)
		if rule != "" {
			list = append(list, rule)
		}
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without rules (CONFIG_IP_MULTIPLE_TABLES)
		return nil, nil
	}
	return list, err
}
