package live

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
)

// Connections over loopback are compared with what was asked for: each difference is reported once
// for each host, with both values.
func TestConnectionsUseWhatWasAskedFor(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialFrom := func(from byte) *net.TCPConn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
		c, err := d.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.TCPConn)
	}
	dial := func() *net.TCPConn { return dialFrom(2) }
	real, err := kernel.TCPStateOf(dial())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(string(b)); real.Congestion != want {
		t.Errorf("a connection uses %q, the machine's default is %q", real.Congestion, want)
	}

	same := connections{want: real}
	other := connections{want: real}
	other.want.Congestion, other.want.Timestamps = "another", !real.Timestamps
	for _, host := range []string{"h0-01", "h0-00", "h0-00"} {
		for _, x := range []*connections{&same, &other} {
			if _, err := x.watch(host, dial(), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	within := connections{want: real}
	within.want.Congestion = "another"
	if _, err := within.watch("h0-00", dialFrom(1), true); err != nil {
		t.Fatal(err)
	}
	if got := within.found(); len(got) > 0 {
		t.Errorf("no route states the congestion control of a connection within a host, but %v", got)
	}
	if got := same.found(); len(got) > 0 {
		t.Errorf("as asked for, but %v", got)
	}
	var want []fidelity.KernelChange
	name := map[bool]string{true: "on", false: "off"}
	for _, host := range []string{"h0-00", "h0-01"} {
		want = append(want, fidelity.KernelChange{AtEnd: true, Where: host, What: "congestion control of connections", Planned: "another", Found: real.Congestion},
			fidelity.KernelChange{AtEnd: true, Where: host, What: "timestamps of connections", Planned: name[!real.Timestamps], Found: name[real.Timestamps]})
	}
	if diff := cmp.Diff(want, other.found()); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// A connection is asked again when it ends: what was changed on its socket meanwhile is reported with both values, and the buffer
// and the batch that its own user sets are not.
func TestConnectionsAreAskedAgain(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	real, err := kernel.TCPStateOf(raw.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	x := connections{want: real}
	c, err := x.watch("h0-00", raw, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.(*conn).SetReadBuffer(8192), c.(*conn).SetReadBatch(3000), c.(*conn).SetReadBatch(4000)); err != nil {
		t.Fatal(err)
	}
	if got := x.found(); len(got) > 0 {
		t.Errorf("before a change: %v", got)
	}
	socket, err := raw.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET, K: 1 << 16}}
	if controlErr := socket.Control(func(fd uintptr) {
		err = errors.Join(
			unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 125_000),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 0),
			unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &filter[0]}))
	}); errors.Join(controlErr, err) != nil {
		t.Fatal(controlErr, err)
	}
	if err := errors.Join(c.Close(), c.(*conn).TCPConn.Close()); err == nil {
		t.Error("the connection was not closed")
	}
	var want []fidelity.KernelChange
	for _, w := range [][3]string{{"no delay", "1", "0"}, {"pacing rate", "none", "125000 bytes/s"}, {"socket filter", "none", "1"}} {
		want = append(want, fidelity.KernelChange{AtEnd: true, Where: "h0-00", What: w[0] + " of connections at their end", Planned: w[1], Found: w[2]})
	}
	if diff := cmp.Diff(want, x.found()); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}
