package live

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	dial := func() *net.TCPConn {
		t.Helper()
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.TCPConn)
	}
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
	other := connections{want: kernel.TCPState{Congestion: "another", Timestamps: !real.Timestamps, SACK: real.SACK, WindowScaling: real.WindowScaling, ECN: real.ECN}}
	for _, host := range []string{"h0-01", "h0-00", "h0-00"} {
		for _, x := range []*connections{&same, &other} {
			if err := x.check(host, dial()); err != nil {
				t.Fatal(err)
			}
		}
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
