package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// A mark crosses the link of its host and ends at the leaf, without an answer.
func TestMarksEndAtTheLeaf(t *testing.T) {
	b := build(t, shape(2, 1, 1, 50*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	for range 3 {
		if err := host.SendUDP(make([]byte, 64), netip.AddrPortFrom(topo.MarkAddr(), 50099)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	total := func(name string) (rx, tx uint64) {
		links, err := b.ns(name).Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			rx, tx = rx+l.Rx.Packets, tx+l.Tx.Packets
		}
		return rx, tx
	}
	if rx, tx := total("h0-00"); rx != 0 || tx != 3 {
		t.Errorf("the host sent %d and received %d packets, want 3 and 0", tx, rx)
	}
	if rx, tx := total("leaf0"); rx != 3 || tx != 0 {
		t.Errorf("the leaf received %d and sent %d packets, want 3 and 0", rx, tx)
	}
}

// A datagram that the host's own queue drops is an error, and only then.
func TestSendUDPReportsDrops(t *testing.T) {
	b := build(t, shape(2, 1, 1, 10*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	const count = 500 // 0.6 s at this rate, without pause
	sent, dropped := 0, 0
	for range count {
		switch err := host.SendUDP(make([]byte, 1400), netip.AddrPortFrom(topo.MarkAddr(), 50099)); {
		case err == nil:
			sent++
		case errors.Is(err, ErrQueueFull):
			dropped++
		default:
			t.Fatal(err)
		}
	}
	if dropped == 0 || sent == 0 {
		t.Fatalf("%d datagrams sent and %d dropped: want both", sent, dropped)
	}
	received := func() (n uint64) {
		links, err := b.ns("leaf0").Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			n += l.Rx.Packets
		}
		return n
	}
	until(t, "the leaf receives what was sent", func() bool { return received() >= uint64(sent) })
	time.Sleep(50 * time.Millisecond)
	if got := received(); got != uint64(sent) {
		t.Errorf("the leaf received %d of %d datagrams, and %d were reported as dropped", got, sent, dropped)
	}
}

// Many simultaneous dials block no threads, and end when they are cancelled.
func TestDialHonoursContext(t *testing.T) {
	b := build(t, shape(1, 1, 0, 50*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	const dials = 200
	to := netip.AddrPortFrom(netip.MustParseAddr("10.0.200.1"), 9) // discarded by the leaf
	pending := make([]*Pending, dials)
	for i := range pending {
		var err error
		if pending[i], err = host.Connect(netip.AddrPort{}, to, cubic); err != nil {
			t.Fatal(err)
		}
	}
	before := threads(t)
	errs := make(chan error)
	for _, p := range pending {
		go func() {
			c, err := p.Wait(ctx)
			if err == nil {
				c.Close()
			}
			errs <- err
		}()
	}
	time.Sleep(100 * time.Millisecond)
	if during := threads(t); during > before+20 {
		t.Errorf("%d dials take %d threads", dials, during-before)
	}
	cancel(why)
	for range dials {
		if err := <-errs; !errors.Is(err, why) {
			t.Fatalf("Wait after cancel: %v", err)
		}
	}
	if _, err := host.Dial(ctx, netip.AddrPort{}, netip.AddrPortFrom(b.GatewayAddr(0), 9), cubic); !errors.Is(err, why) {
		t.Errorf("Dial with a context that is done: %v", err)
	}
	if _, err := host.Listen(ctx, netip.AddrPortFrom(b.HostAddr(0), 9), cubic); !errors.Is(err, why) {
		t.Errorf("Listen with a context that is done: %v", err)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestDialErrors(t *testing.T) {
	b := build(t, shape(1, 2, 0, 50*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	to := netip.AddrPortFrom(b.HostAddr(1), testPort)
	if _, err := host.Dial(t.Context(), netip.AddrPort{}, to, cubic); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Dial where nobody listens: %v", err)
	}
	if _, err := host.Dial(t.Context(), netip.AddrPortFrom(b.HostAddr(1), 0), to, cubic); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("Dial from another's address: %v", err)
	}
	if _, err := host.Dial(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("[::1]:9"), cubic); err == nil {
		t.Error("Dial of an IPv6 address: no error")
	}
	if _, err := host.Dial(t.Context(), netip.AddrPort{}, to, SocketOptions{SendBuffer: 4 * units.GB}); err == nil || !strings.Contains(err.Error(), "send buffer 4GB: the kernel grants") {
		t.Errorf("Dial with a buffer that no kernel gives: %v", err)
	}
	l, err := host.Listen(t.Context(), netip.AddrPortFrom(b.HostAddr(0), testPort), cubic)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := host.Listen(t.Context(), netip.AddrPortFrom(b.HostAddr(0), testPort), cubic); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("Listen twice: %v", err)
	}
}

// Both ends of a connection have the options, including the accepted end, and the requested local
// port.
func TestSocketOptions(t *testing.T) {
	b := build(t, shape(1, 2, 0, 50*units.Mbps, 1500), plan.Options{})
	o := SocketOptions{SendBuffer: 256 * units.KiB, ReceiveBuffer: 128 * units.KiB, NotSentLowat: 16 * units.KiB, UserTimeout: 1500 * time.Millisecond}
	l, err := b.ns("h0-01").Listen(t.Context(), netip.AddrPortFrom(b.HostAddr(1), testPort), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from := netip.AddrPortFrom(b.HostAddr(0), 23456)
	c, err := b.ns("h0-00").Dial(t.Context(), from, netip.AddrPortFrom(b.HostAddr(1), testPort), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got := a.RemoteAddr().String(); got != from.String() {
		t.Errorf("accepted from %s, want %v", got, from)
	}
	for name, conn := range map[string]net.Conn{"dialled": c, "accepted": a} {
		if got, err := TCPStateOf(conn.(*net.TCPConn)); err != nil || got.Congestion != "cubic" || !got.Timestamps || !got.SACK || !got.WindowScaling || got.ECN {
			t.Errorf("%s: %+v, %v, want cubic with timestamps, SACK and window scaling, without ECN", name, got, err)
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != "cubic" {
				t.Errorf("%s: congestion control %q, %v", name, got, err)
			}
			for _, want := range []struct{ level, option, value int }{
				{unix.SOL_SOCKET, unix.SO_SNDBUF, 256 << 10},
				{unix.SOL_SOCKET, unix.SO_RCVBUF, 128 << 10},
				{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 16 << 10},
				{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
				{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 1500},
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0},
			} {
				if got, err := unix.GetsockoptInt(int(fd), want.level, want.option); err != nil || got != want.value {
					t.Errorf("%s: option %d/%d is %d (%v), want %d", name, want.level, want.option, got, err, want.value)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
