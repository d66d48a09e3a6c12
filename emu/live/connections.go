package live

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/hosts/wire"
	"testbed/topo"
)

// connections compares what each connection really uses with what was asked for, once it is
// established and when it ends.
type connections struct {
	want  kernel.TCPState
	flows *flowSamples
	mu    sync.Mutex
	odd   map[fidelity.KernelChange]bool
	// limits are sums by service and by the host that received.
	limits map[[2]string]*fidelity.Limit
	// slow are the senders' ends of connections whose reader is slower than the network on purpose.
	slow map[string]bool
}

// conn is a connection that is asked again when it is closed.
type conn struct {
	*net.TCPConn
	of    *connections
	host  string // whose end it is
	begun kernel.TCPState
	once  sync.Once
	batch atomic.Uint64 // last set by SetReadBatch
	// dialled reports whether it is the end that sends the data.
	dialled bool
}

// SetReadBuffer sets the size of the receive buffer, which is then as asked for.
func (c *conn) SetReadBuffer(size int) error {
	err := c.TCPConn.SetReadBuffer(size)
	if err == nil {
		c.begun, err = kernel.TCPStateOf(c.TCPConn)
	}
	return err
}

// SetReadBatch implements hosts.Batched.
func (c *conn) SetReadBatch(n int) error {
	granted, err := kernel.SetReadBatch(c.TCPConn, n)
	if err == nil {
		c.batch.Store(granted)
	}
	return err
}

// Queued implements hosts.Batched.
func (c *conn) Queued() int { return kernel.Queued(c.TCPConn) }

// ReaderLimits implements hosts.Limited: the window of this connection says nothing of the network.
func (c *conn) ReaderLimits() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.slow == nil {
		c.of.slow = map[string]bool{}
	}
	c.of.slow[c.RemoteAddr().String()] = true
}

// Close asks the connection what it used, and closes it. Its end is none of its user's errors: what could not be read is counted.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.flows.end(c)
		c.of.ended(c)
	})
	return c.TCPConn.Close()
}

// watch returns an end of a connection that was just established, which is compared then and when it is closed.
func (x *connections) watch(host string, c net.Conn, dialled bool) (net.Conn, error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	s, err := kernel.TCPStateOf(t)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	x.compare(t, host, "of connections", s)
	return &conn{TCPConn: t, of: x, host: host, begun: s, dialled: dialled}, nil
}

// listener watches the connections that it accepts.
type listener struct {
	net.Listener
	of   *connections
	host string
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.of.watch(l.host, c, false)
}

// ended asks a connection that is about to be closed.
func (x *connections) ended(c *conn) {
	s, err := kernel.TCPStateOf(c.TCPConn)
	if err != nil {
		x.note(fidelity.KernelChange{AtEnd: true, Where: c.host, What: "state of connections at their end", Planned: "known", Found: err.Error()})
		return
	}
	x.compare(c.TCPConn, c.host, "of connections at their end", s)
	expected := c.begun.Options
	if batch := c.batch.Load(); batch > 0 {
		expected[kernel.ReadBatch] = batch
	}
	for k, name := range kernel.SocketOptionNames {
		if was, is := expected[k], s.Options[k]; was != is {
			x.note(fidelity.KernelChange{AtEnd: true, Where: c.host, What: name + " of connections at their end", Planned: option(k, was), Found: option(k, is)})
		}
	}
	if c.dialled {
		x.limited(c, s)
	}
}

// compare notes where a connection differs from what was asked for.
func (x *connections) compare(c net.Conn, host, of string, got kernel.TCPState) {
	want := x.want
	add := func(what, planned, found string) {
		if planned != found {
			x.note(fidelity.KernelChange{AtEnd: true, Where: host, What: what + " " + of, Planned: planned, Found: found})
		}
	}
	onOff := map[bool]string{true: "on", false: "off"}
	here, there := addrOf(c.LocalAddr()), addrOf(c.RemoteAddr())
	if want.Congestion != "" && here != there { // the plan's routes state it, and none leads to the host itself
		add("congestion control", want.Congestion, got.Congestion)
	}
	add("timestamps", onOff[want.Timestamps], onOff[got.Timestamps])
	add("SACK", onOff[want.SACK], onOff[got.SACK])
	add("window scaling", onOff[want.WindowScaling], onOff[got.WindowScaling])
	if !want.ECN { // where it is wanted, TCP does without it if the first SYN is lost
		add("ECN", onOff[false], onOff[got.ECN])
	}
	if want.Segment > 0 && here != there {
		add("full segment", want.Segment.String(), got.Segment.String())
	}
	for _, k := range []int{kernel.PacingRate, kernel.SocketFilter} {
		add(kernel.SocketOptionNames[k], option(k, want.Options[k]), option(k, got.Options[k]))
	}
}

// option formats the value of one of kernel.SocketOptionNames.
func option(k int, value uint64) string {
	switch {
	case k == kernel.PacingRate && value == kernel.NoPacingRate, k == kernel.SocketFilter && value == 0:
		return "none"
	case k == kernel.PacingRate:
		return fmt.Sprintf("%d bytes/s", value)
	}
	return fmt.Sprint(value)
}

// addrOf returns the IP address of an end of a connection.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// limited adds a connection to the sums of its service, unless its reader is slow on purpose.
func (x *connections) limited(c net.Conn, s kernel.TCPState) {
	to, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	service := map[int]string{wire.ShufflePort: "flows", wire.BlockPort: "blocks"}[to.Port]
	host, known := topo.HostNameOf(addrOf(to))
	if service == "" || !known {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if from := c.LocalAddr().String(); x.slow[from] {
		delete(x.slow, from) // the port may be used again
		return
	}
	if x.limits == nil {
		x.limits = map[[2]string]*fidelity.Limit{}
	}
	l := x.limits[[2]string{service, host}]
	if l == nil {
		l = &fidelity.Limit{Service: service, Host: host}
		x.limits[[2]string{service, host}] = l
	}
	l.Connections++
	l.Busy += s.Busy
	l.Window += s.Window
	l.Buffer += s.Buffer
}

// limitsFound returns the sums, by service and receiving host.
func (x *connections) limitsFound() (out []fidelity.Limit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.limits {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b fidelity.Limit) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Host, b.Host))
	})
	return out
}

func (x *connections) note(k fidelity.KernelChange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.odd == nil {
		x.odd = map[fidelity.KernelChange]bool{}
	}
	x.odd[k] = true
}

// found returns the differences, by host.
func (x *connections) found() []fidelity.KernelChange {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Keys(x.odd), func(a, b fidelity.KernelChange) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What), cmp.Compare(a.Found, b.Found))
	})
}
