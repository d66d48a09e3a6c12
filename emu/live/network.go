package live

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/hosts/wire"
	"testbed/topo"
)

// network opens agents' sockets in their hosts' namespaces. It is a
// hosts.Network.
type network struct {
	fabric *topo.Fabric
	ns     map[string]*kernel.Namespace
	socket kernel.SocketOptions
	block  kernel.SocketOptions // of block pipelines
	// peerTimeout bounds how long a block server's acknowledgements may go
	// unanswered, which is how it finds that its client is dead. What is sent to it has
	// no such bound: the kernel counts the time that a window is shut, too, and would
	// take a slow disk for a dead host. There, what is not heard decides.
	peerTimeout time.Duration

	ports []sourcePorts // by HostID
	// dials are connections for run to begin, and ended is closed when that has
	// returned.
	dials chan dial
	ended chan struct{}
	setup *setup

	// routes returns the spine of a flow, since some may be down, and is notified of the source
	// port of a flow between racks.
	routes routes

	marks marks

	connections connections
	opened      opened
}

// opened are the connections that hosts began, by both ends.
type opened struct {
	mu  sync.Mutex
	all map[[2]netip.AddrPort]bool
}

func (o *opened) add(local, remote netip.AddrPort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[[2]netip.AddrPort]bool{}
	}
	o.all[[2]netip.AddrPort{local, remote}] = true
}

// has reports whether a host began a connection.
func (o *opened) has(local, remote netip.AddrPort) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[[2]netip.AddrPort{local, remote}]
}

type routes interface {
	// spine is topo.Fabric.SpineFor over the remaining spines; lost reports whether the leaf has
	// none.
	spine(src, dst topo.HostID, hash uint32) (spine int, crosses, lost bool)
	dialled(src, dst topo.HostID, hash uint32, local netip.AddrPort)
	// marker is the host that sends a mark of another, which may be cut off; ok is
	// false where all are.
	marker(h topo.HostID) (_ topo.HostID, ok bool)
	note(string)
}

// sourcePorts hands out a host's source ports.
type sourcePorts struct {
	mu   sync.Mutex
	next uint16 // where the search for the next one begins
}

// Source ports of flows between racks. Linux hands out ports from 32768 on to
// all others, so the two never meet.
const firstPort, lastPort = 10000, 32000

func newNetwork(f *topo.Fabric, ns map[string]*kernel.Namespace, congestion string, socket, block kernel.SocketOptions, peerTimeout time.Duration, setup int, setupTime time.Duration) *network {
	want := kernel.TCPState{
		Congestion:    congestion,
		Timestamps:    true,
		SACK:          true,
		WindowScaling: true,
		ECN:           f.Shape().RED != nil && f.Shape().RED.ECN,
		Segment:       f.Shape().MTU - plan.TCPHeaders,
	}
	want.Options[kernel.PacingRate] = kernel.NoPacingRate
	return &network{fabric: f, ns: ns, socket: socket, block: block, peerTimeout: peerTimeout, ports: make([]sourcePorts, f.Hosts()), dials: make(chan dial), setup: newSetup(setup, setupTime), ended: make(chan struct{}), marks: newMarks(),
		connections: connections{want: want}}
}

func (n *network) of(h topo.HostID) *kernel.Namespace { return n.ns[n.fabric.HostName(h)] }

// Listen opens a listener on a host.
func (n *network) Listen(ctx context.Context, h topo.HostID, port uint16) (net.Listener, error) {
	o := n.options(port)
	if port == wire.BlockPort {
		o.UserTimeout = n.peerTimeout
	}
	l, err := n.of(h).Listen(ctx, netip.AddrPortFrom(n.fabric.HostAddr(h), port), o)
	if err != nil {
		return nil, err
	}
	return &listener{l, &n.connections, n.fabric.HostName(h)}, nil
}

func (n *network) options(port uint16) kernel.SocketOptions {
	if port == wire.BlockPort {
		return n.block
	}
	return n.socket
}

// Dial connects two hosts. Between racks it looks for a source port that the
// kernel's multipath hash sends over the spine that the flow's own hash names, so
// that the path a policy was shown is the path the packets take, in every arm.
func (n *network) Dial(ctx context.Context, src, dst topo.HostID, port uint16, hash uint32) (net.Conn, error) {
	d := dial{src: src, dst: dst, port: port, hash: hash, done: make(chan attempt, 1)}
	select {
	case n.dials <- d:
	case <-n.ended:
		return nil, errStopped
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p := <-d.done
	if p.err != nil {
		return nil, p.err
	}
	conn, err := p.Wait(ctx)
	if err == nil {
		conn, err = n.connections.watch(n.fabric.HostName(src), conn, true)
	}
	if err != nil {
		return nil, err
	}
	if local, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		n.routes.dialled(src, dst, hash, local.AddrPort())
	}
	return conn, nil
}

// dial is a connection to begin, and attempt one that was begun.
type (
	dial struct {
		src, dst topo.HostID
		port     uint16
		hash     uint32
		done     chan attempt // holds one
	}
	attempt struct {
		*kernel.Pending
		err error
	}
)

// run begins connections, in the order in which they are asked for, until ctx is
// done, and returns its cause.
func (n *network) run(ctx context.Context) error {
	defer close(n.ended)
	return kernel.OnThread(func(t *kernel.Thread) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			for wait := n.setup.wait(); wait > 0; wait = n.setup.wait() {
				timer.Reset(wait)
				select {
				case <-n.setup.less:
				case <-timer.C:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			select {
			case d := <-n.dials:
				p, err := n.connect(t, d.src, d.dst, d.port, d.hash)
				if err == nil {
					n.setup.begin(p.Local)
					n.opened.add(p.Local, netip.AddrPortFrom(n.fabric.HostAddr(d.dst), d.port))
				}
				d.done <- attempt{p, err}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// Greeted records that the header of a connection from remote has been read.
func (n *network) Greeted(remote net.Addr) {
	if a, ok := remote.(*net.TCPAddr); ok {
		n.setup.end(a.AddrPort())
	}
}

func (n *network) connect(t *kernel.Thread, src, dst topo.HostID, port uint16, hash uint32) (*kernel.Pending, error) {
	local := netip.AddrPortFrom(n.fabric.HostAddr(src), 0)
	remote := netip.AddrPortFrom(n.fabric.HostAddr(dst), port)
	// Without a path, any port: which one it gets when there is a path again, the
	// kernel is asked for then.
	if spine, crosses, lost := n.routes.spine(src, dst, hash); crosses && !lost && n.fabric.Spines() > 1 {
		p, err := n.sourcePort(src, local.Addr(), remote, spine)
		if err != nil {
			if now, _, lost := n.routes.spine(src, dst, hash); lost || now != spine {
				return t.Connect(n.of(src), local, remote, n.options(port)) // routes have changed meanwhile
			}
			return nil, fmt.Errorf("path of a flow from %s to %s over %s: %w", n.fabric.HostName(src), n.fabric.HostName(dst), topo.SpineName(spine), err)
		}
		local = netip.AddrPortFrom(local.Addr(), p)
	}
	return t.Connect(n.of(src), local, remote, n.options(port))
}

func (n *network) sourcePort(src topo.HostID, local netip.Addr, remote netip.AddrPort, spine int) (uint16, error) {
	ports := &n.ports[src]
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.next < firstPort || ports.next > lastPort {
		ports.next = firstPort
	}
	leaf := n.ns[topo.LeafName(n.fabric.RackOf(src))]
	p, err := kernel.SourcePort(leaf, n.fabric.HostName(src), local, remote.Addr(), remote.Port(), topo.SpineName(spine), ports.next)
	if err == nil {
		ports.next = p + 1
	}
	return p, err
}
