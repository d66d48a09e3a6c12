package kernel

import (
	"net"
	"net/netip"
	"testing"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// One thread starts connections in several namespaces, each from its own address, and no other
// thread of the process enters them.
func TestThread(t *testing.T) {
	b := build(t, shape(1, 3, 0, 50*units.Mbps, 1500), plan.Options{})
	l, err := b.ns("h0-02").Listen(t.Context(), netip.AddrPortFrom(b.HostAddr(2), testPort), cubic)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	err = OnThread(func(th *Thread) error {
		for _, h := range []topo.HostID{0, 1, 1, 0} {
			p, err := th.Connect(b.ns(b.HostName(h)), netip.AddrPort{}, netip.AddrPortFrom(b.HostAddr(2), testPort), cubic)
			if err != nil {
				return err
			}
			conn, err := p.Wait(t.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			got, err := l.Accept()
			if err != nil {
				return err
			}
			defer got.Close()
			from := got.RemoteAddr().(*net.TCPAddr).AddrPort()
			if from.Addr() != b.HostAddr(h) || p.Local != from {
				t.Errorf("connection of host %d comes from %v and says %v, want %v", h, from, p.Local, b.HostAddr(h))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("the program's namespace had %d interfaces and has %d: a thread did not come back", len(before), len(after))
	}
}

// The cost of starting connections from one host after another, until each is established at both
// ends.
func BenchmarkConnect(b *testing.B) {
	t := build(b, shape(1, 3, 0, 1000*units.Mbps, 1500), plan.Options{})
	to := netip.AddrPortFrom(t.HostAddr(2), testPort)
	l, err := t.ns("h0-02").Listen(b.Context(), to, cubic)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	run := func(b *testing.B, connect func(n *Namespace) (*Pending, error)) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p, err := connect(t.ns(t.HostName(topo.HostID(i % 2))))
			if err != nil {
				b.Fatal(err)
			}
			conn, err := p.Wait(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer() // closing costs the same in both
			got, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
			got.Close()
			b.StartTimer()
		}
	}
	b.Run("thread=any", func(b *testing.B) {
		run(b, func(n *Namespace) (*Pending, error) { return n.Connect(netip.AddrPort{}, to, cubic) })
	})
	b.Run("thread=own", func(b *testing.B) {
		if err := OnThread(func(th *Thread) error {
			run(b, func(n *Namespace) (*Pending, error) { return th.Connect(n, netip.AddrPort{}, to, cubic) })
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	})
}
