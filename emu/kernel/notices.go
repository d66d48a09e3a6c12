package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
)

// Notices collects the kernel's reports of changes in the namespaces of an Executor, however brief they are:
// of devices, queues and filters, neighbours, addresses, routes and rules (rtnetlink), of nftables, and
// of writes to parameters (inotify). Not reported are programs that are attached by a BPF link, rules of iptables that
// are not those of nftables, and parameters of the whole machine.
type Notices struct {
	x       *Executor
	epoll   int
	wake    int             // an eventfd that ends run
	inotify int             // -1 if there is none
	sources []*noticeSource // by the index that epoll returns; the last is wake
	dirs    map[int32]parameterDir
	fds     []int // to close

	done    sync.WaitGroup
	mu      sync.Mutex
	notices []deploy.Notice
	lost    bool  // reports were lost
	failed  error // the first
}

// noticeSource is a socket that the kernel reports to.
type noticeSource struct {
	b     *builder
	names map[int]string // of devices by index
	fd    int
	read  func(s *noticeSource, buffer []byte) error
}

// parameterDir is a directory of parameters of a namespace.
type parameterDir struct {
	b      *builder
	prefix string // of names of parameters, such as "net.ipv4."
}

// Multicast groups of rtnetlink and nftables.
var (
	routeGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE}
	nftGroups   = []int{unix.NFNLGRP_NFTABLES}
)

// noticeDirs are the directories whose parameters are watched.
var noticeDirs = []string{"net/core", "net/ipv4", "net/ipv4/conf/all", "net/ipv4/conf/default"}

// noticeBuffer is the size of a socket's queue of reports, in bytes; each takes about 1 KB.
const noticeBuffer = 1 << 20

// Notices begins to collect reports. The caller must call Close.
func (x *Executor) Notices() (*Notices, error) {
	w := &Notices{x: x, epoll: -1, wake: -1, inotify: -1, dirs: map[int32]parameterDir{}}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the kernel: %w%s", err, privilege(err)), w.closeAll())
	}
	w.done.Go(w.run)
	return w, nil
}

func (w *Notices) open() (err error) {
	keep := func(fd int, err error) (int, error) {
		if err != nil {
			return -1, err
		}
		w.fds = append(w.fds, fd)
		return fd, nil
	}
	if w.epoll, err = keep(unix.EpollCreate1(unix.EPOLL_CLOEXEC)); err != nil {
		return err
	}
	if w.wake, err = keep(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)); err != nil {
		return err
	}
	if w.inotify, err = keep(unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)); err != nil {
		return fmt.Errorf("inotify: %w (see fs.inotify.max_user_instances in sysctl(8))", err)
	}
	for _, b := range w.x.made {
		devices, err := b.readDevices()
		if err != nil {
			return err
		}
		names := map[int]string{}
		for index, d := range devices {
			names[index] = d.Name
		}
		for _, from := range []struct {
			protocol int
			groups   []int
			read     func(*noticeSource, []byte) error
			optional bool
		}{{unix.NETLINK_ROUTE, routeGroups, w.readRoute, false}, {unix.NETLINK_NETFILTER, nftGroups, w.readNFT, true}} {
			var fd int
			err := b.do(func() (err error) {
				fd, err = keep(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, from.protocol))
				return err
			})
			if from.optional && errors.Is(err, unix.EPROTONOSUPPORT) {
				continue // a kernel without nftables
			}
			if err == nil {
				err = enlarge(fd, noticeBuffer, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
			}
			if err == nil {
				err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			}
			for _, g := range from.groups {
				if err == nil {
					err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g)
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
			w.sources = append(w.sources, &noticeSource{b, names, fd, from.read})
		}
		for _, dir := range noticeDirs {
			if err := w.watchDir(b, dir, keep); err != nil {
				return fmt.Errorf("%s: parameters of %s: %w", b.name, dir, err)
			}
		}
	}
	w.sources = append(w.sources, &noticeSource{fd: w.inotify, read: w.readInotify}, &noticeSource{fd: w.wake})
	for i, s := range w.sources {
		if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return err
		}
	}
	return nil
}

// watchDir watches the parameters in a directory. The directory of each namespace is another, as long as it is open.
func (w *Notices) watchDir(b *builder, dir string, keep func(int, error) (int, error)) error {
	return b.do(func() error {
		fd, err := keep(unix.Open("/proc/sys/"+dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
		if err != nil {
			return err
		}
		wd, err := unix.InotifyAddWatch(w.inotify, fmt.Sprintf("/proc/self/fd/%d", fd), unix.IN_MODIFY)
		if err != nil {
			return err
		}
		w.dirs[int32(wd)] = parameterDir{b, strings.ReplaceAll(dir, "/", ".") + "."}
		return nil
	})
}

// run reads reports until Close.
func (w *Notices) run() {
	events := make([]unix.EpollEvent, 16)
	buffer := make([]byte, 1<<16)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			w.fail(err)
			return
		}
		for _, e := range events[:max(n, 0)] {
			s := w.sources[e.Fd]
			if s.read == nil {
				return
			}
			w.drain(s, buffer)
		}
	}
}

// drain reads all that is queued.
func (w *Notices) drain(s *noticeSource, buffer []byte) {
	for {
		n, err := unix.Read(s.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.ENOBUFS):
			w.mu.Lock()
			w.lost = true
			w.mu.Unlock()
		case err != nil || n == 0:
			w.fail(err)
			return
		default:
			if err := s.read(s, buffer[:n]); err != nil {
				w.fail(err)
			}
		}
	}
}

func (w *Notices) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil && err != nil {
		w.failed = fmt.Errorf("watch the kernel: %w", err)
	}
}

func (w *Notices) add(n deploy.Notice) {
	n.At = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, n)
}

// readRoute reads reports of rtnetlink.
func (w *Notices) readRoute(s *noticeSource, b []byte) error {
	msgs, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		n := deploy.Notice{Namespace: s.b.name}
		var known bool
		var err error
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			n.Gone, known = m.Header.Type == unix.RTM_DELLINK, true
			var index int
			if index, n.Device, err = parseDevice(m.Data); err == nil && !n.Gone {
				s.names[index] = n.Device.Name
				n.Device.Offloads, err = s.b.offloads(n.Device.Name)
				if errors.Is(err, unix.ENODEV) { // gone meanwhile, which is reported too
					err = nil
				}
			}
		case unix.RTM_NEWQDISC, unix.RTM_DELQDISC:
			n.Gone = m.Header.Type == unix.RTM_DELQDISC
			var index int
			index, n.Qdisc, err = parseQdisc(m.Data)
			n.On, known = s.names[index], n.Qdisc != nil
		case unix.RTM_NEWTCLASS, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_NEWCHAIN:
			n.Gone = m.Header.Type == unix.RTM_DELTFILTER
			n.On, n.Other, err = s.classifier(m)
			known = true
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			n.Gone = m.Header.Type == unix.RTM_DELADDR
			n.Address, err = s.b.parseAddress(m.Data, s.names)
			known = n.Address != nil
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			var permanent bool
			n.Neighbour, permanent, err = s.b.parseNeighbour(m.Data, s.names)
			// A planned neighbour that ages is no longer the planned one.
			n.Gone, known = m.Header.Type == unix.RTM_DELNEIGH || !permanent, err == nil && n.Neighbour.Addr.Is4()
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			n.Gone = m.Header.Type == unix.RTM_DELROUTE
			var table int
			n.Route, table, err = s.b.parseRoute(m.Data, s.names)
			if known = n.Route != nil; known && table != unix.RT_TABLE_MAIN {
				n.Other, n.Route = fmt.Sprintf("route %v in table %d", n.Route.Dst, table), nil
			}
		case unix.RTM_NEWRULE, unix.RTM_DELRULE:
			n.Gone = m.Header.Type == unix.RTM_DELRULE
			n.Other, err = parseRule(m.Data)
			n.Other, known = "rule "+n.Other, true
		}
		if err != nil {
			return err
		}
		if known {
			w.add(n)
		}
	}
	return nil
}

// classifier returns the device and the kind of a traffic class, filter or chain, none of which a plan has.
func (s *noticeSource) classifier(m syscall.NetlinkMessage) (device, what string, err error) {
	if len(m.Data) < nl.SizeofTcMsg {
		return "", "", errShort
	}
	msg := nl.DeserializeTcMsg(m.Data)
	what = "filter"
	switch m.Header.Type {
	case unix.RTM_NEWTCLASS:
		what = "class"
	case unix.RTM_NEWCHAIN:
		what = "chain"
	}
	return s.names[int(msg.Ifindex)], what + " at " + parentName(msg.Parent), nil
}

// readNFT reads reports of nftables: any is a change, since no plan has rules.
func (w *Notices) readNFT(s *noticeSource, b []byte) error {
	msgs, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		const newGeneration = 15 // NFT_MSG_NEWGEN, sent once after each change
		if m.Header.Type>>8 == unix.NFNL_SUBSYS_NFTABLES && m.Header.Type&0xff == newGeneration {
			w.add(deploy.Notice{Namespace: s.b.name, Other: "change of nftables rules"})
		}
	}
	return nil
}

// readInotify reads reports of writes to parameters.
func (w *Notices) readInotify(_ *noticeSource, b []byte) error {
	for len(b) >= unix.SizeofInotifyEvent {
		wd, mask, size := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return errShort
		}
		name := string(bytes.TrimRight(b[:size], "\x00"))
		b = b[size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.mu.Lock()
			w.lost = true
			w.mu.Unlock()
			continue
		}
		d, ok := w.dirs[wd]
		if !ok || name == "" {
			continue
		}
		key := d.prefix + name
		values, err := d.b.readParameters(context.Background(), []string{key})
		if err != nil {
			return err
		}
		w.add(deploy.Notice{Namespace: d.b.name, Parameter: key, Value: values[key]})
	}
	return nil
}

// Close ends the watch and returns the reports, in order of time. lost states that the kernel reported more than
// was read in time, so that some are missing. A second call returns the same.
func (w *Notices) Close() (notices []deploy.Notice, lost bool, err error) {
	if w.epoll >= 0 {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, err := unix.Write(w.wake, one[:])
		w.fail(err)
		w.done.Wait()
		buffer := make([]byte, 1<<16)
		for _, s := range w.sources {
			if s.read != nil {
				w.drain(s, buffer)
			}
		}
		w.fail(w.closeAll())
	}
	return slices.Clone(w.notices), w.lost, w.failed
}

func (w *Notices) closeAll() error {
	var errs []error
	for _, fd := range w.fds {
		errs = append(errs, unix.Close(fd))
	}
	w.fds, w.epoll = nil, -1
	return errors.Join(errs...)
}
