package kernel

import (
	"net/netip"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// received returns the number of packets that a device has received.
func (b *fabric) received(ns, device string) uint64 {
	b.t.Helper()
	return b.stats(ns, device).Rx.Packets
}

func (b *fabric) stats(ns, device string) LinkStats {
	b.t.Helper()
	links, err := b.ns(ns).Links()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, l := range links {
		if l.Device == device {
			return l
		}
	}
	b.t.Fatalf("%s has no %s", ns, device)
	return LinkStats{}
}

func (b *fabric) volley(src, dst topo.HostID, n int) {
	b.t.Helper()
	for range n {
		// A host without a carrier may return an error for the packets that it drops.
		_ = b.ns(b.HostName(src)).SendUDP(make([]byte, 1000), netip.AddrPortFrom(b.HostAddr(dst), 9))
	}
}

func (b *fabric) cut(id topo.LinkID) {
	b.t.Helper()
	c := plan.CableOf(b.Fabric, id)
	if err := Cut(c, b.ns(c.Leaf.Namespace), b.ns(c.Far.Namespace)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fabric) mend(id topo.LinkID) {
	b.t.Helper()
	c := plan.CableOf(b.Fabric, id)
	if err := Mend(b.t.Context(), c, b.ns(c.Leaf.Namespace), b.ns(c.Far.Namespace)); err != nil {
		b.t.Fatal(err)
	}
}

// quick fails if a transfer takes as long as the retransmission of a SYN, a second. On emulated processors, where some
// take 0.75 s without any, it only fails above four.
func (b *fabric) quick(what string, f flow) {
	b.t.Helper()
	start := time.Now()
	if _, err := b.send(f); err != nil || time.Since(start) > netnstest.Patience(700*time.Millisecond) {
		b.t.Errorf("%s: a transfer from %s to %s took %v: %v", what, b.HostName(f.src), b.HostName(f.dst), time.Since(start), err)
	}
}

// until waits for a condition that the kernel reaches soon.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(netnstest.Patience(5 * time.Second)); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 5 s", what)
		}
	}
}

func TestCutCablePassesNothing(t *testing.T) {
	b := build(t, shape(2, 2, 2, 100*units.Mbps, 1500), plan.Options{Seed: 1})
	b.sink(0, 1, 2)
	// Twice: a mended cable can be cut again.
	for range 2 {
		was := b.received("h0-01", "eth0")
		b.volley(0, 1, 10)
		until(t, "datagrams before the cut", func() bool { return b.received("h0-01", "eth0") >= was+10 })
		b.cut(b.HostUp(1))
		was = b.received("h0-01", "eth0")
		leaf := b.received("leaf0", "h0-01")
		b.volley(0, 1, 10) // toward the cut
		b.volley(1, 0, 10) // away from the cut
		b.quick("beside the cut", flow{src: 0, dst: 2, size: 50 * units.KB})
		if in, out := b.received("h0-01", "eth0")-was, b.received("leaf0", "h0-01")-leaf; in != 0 || out != 0 {
			t.Errorf("a cut link passed %d packets to its host and %d from it", in, out)
		}
		b.mend(b.HostDown(1)) // the other direction of the same cable
		b.quick("mended", flow{src: 0, dst: 1, size: 50 * units.KB})
		b.quick("mended", flow{src: 1, dst: 2, size: 50 * units.KB})
	}
}

// throughSpine returns a source port whose path from a host uses a spine.
func (b *fabric) throughSpine(src, dst topo.HostID, spine int, from uint16) uint16 {
	b.t.Helper()
	port, err := SourcePort(b.ns(topo.LeafName(b.RackOf(src))), b.HostName(src), b.HostAddr(src), b.HostAddr(dst), testPort, topo.SpineName(spine), from)
	if err != nil {
		b.t.Fatal(err)
	}
	return port
}

// A leaf itself drops the next hop whose cable is cut. Another leaf keeps sending to that spine
// until it gets a route to the rack without it.
func TestCutUplinkAndRoutesAround(t *testing.T) {
	t.Parallel()
	b := build(t, shape(3, 1, 2, 100*units.Mbps, 1500), plan.Options{Seed: 1})
	b.sink(0, 1, 2)
	replace := func(r plan.Route) {
		t.Helper()
		if err := b.ns(r.Namespace).ReplaceRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	spine0 := b.received("spine0", "leaf1")
	port := b.throughSpine(1, 0, 0, 20000)
	b.cut(b.LeafUp(0, 0))
	for p := uint16(21000); p < 21008; p++ {
		dev, err := b.ns("leaf0").NextHopDevice("h0-00", netip.AddrPortFrom(b.HostAddr(0), p), netip.AddrPortFrom(b.HostAddr(1), testPort))
		if err != nil || dev != "spine1" {
			t.Fatalf("leaf0 sends port %d to %q, %v, want spine1", p, dev, err)
		}
	}
	// Without new routes, packets hashed to spine 0 are lost after it.
	dev, err := b.ns("leaf1").NextHopDevice("h1-00", netip.AddrPortFrom(b.HostAddr(1), port), netip.AddrPortFrom(b.HostAddr(0), testPort))
	if err != nil || dev != "spine0" {
		t.Fatalf("leaf1 sends it to %q, %v, want spine0", dev, err)
	}
	in := b.received("h0-00", "eth0")
	conn, err := b.ns("h1-00").Connect(netip.AddrPortFrom(b.HostAddr(1), port), netip.AddrPortFrom(b.HostAddr(0), testPort), cubic)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a SYN at spine 0", func() bool { return b.received("spine0", "leaf1") > spine0 })
	time.Sleep(50 * time.Millisecond) // longer than any packet is in flight
	if n := b.received("h0-00", "eth0") - in; n != 0 {
		t.Errorf("%d packets passed a spine without a link", n)
	}
	// With new routes, the same connection succeeds at its next retransmission, and new ones from
	// here and from the third rack at once.
	replace(plan.RackRoute(1, 0, []int{1}))
	replace(plan.RackRoute(2, 0, []int{1}))
	c, err := conn.Wait(t.Context())
	if err != nil {
		t.Fatalf("a connection that met the fault: %v", err)
	}
	c.Close()
	for range 4 {
		b.quick("told", flow{src: 1, dst: 0, size: 20 * units.KB})
		b.quick("told", flow{src: 2, dst: 0, size: 20 * units.KB})
		b.quick("from the rack", flow{src: 0, dst: 1, size: 20 * units.KB})
	}
	// The spine still serves the other two racks.
	b.quick("another rack over the spine", flow{src: 1, dst: 2, size: 20 * units.KB, port: b.throughSpine(1, 2, 0, 22000)})

	// Without an uplink the leaf discards packets, so a connection is not refused. Then the leaf
	// gets its routes back.
	replace(plan.FabricRoute(0, nil))
	b.cut(b.LeafUp(0, 1))
	waiting, err := b.ns("h0-00").Connect(netip.AddrPortFrom(b.HostAddr(0), 0), netip.AddrPortFrom(b.HostAddr(1), testPort), cubic)
	if err != nil {
		t.Fatal(err)
	}
	b.mend(b.LeafUp(0, 0))
	b.mend(b.LeafUp(0, 1))
	replace(plan.FabricRoute(0, []int{0, 1}))
	for _, r := range []topo.RackID{1, 2} {
		if err := b.ns(topo.LeafName(r)).DeleteRoute(topo.RackPrefix(0)); err != nil {
			t.Fatal(err)
		}
		if err := b.ns(topo.LeafName(r)).DeleteRoute(topo.RackPrefix(0)); err != nil {
			t.Errorf("delete a route that is not there: %v", err)
		}
	}
	if c, err := waiting.Wait(t.Context()); err != nil {
		t.Errorf("a connection that began without a path: %v", err)
	} else {
		c.Close()
	}
	for s := range 2 {
		b.quick("mended", flow{src: 0, dst: 1, size: 20 * units.KB, port: b.throughSpine(0, 1, s, 23000)})
		b.quick("mended", flow{src: 1, dst: 0, size: 20 * units.KB, port: b.throughSpine(1, 0, s, 24000)})
	}
}

// A shaper whose rate changes keeps its queue, and sends it at the new rate.
func TestReshapeKeepsTheQueue(t *testing.T) {
	s := shape(1, 2, 0, 10*units.Mbps, 1500)
	s.Queue = topo.Queue{Bytes: units.MB}
	b := build(t, s, plan.Options{})
	slow := plan.ShaperOf(b.Fabric, b.HostDown(1), 100*units.Kbps, nil)
	if err := b.ns(slow.Namespace).Reshape(slow); err != nil {
		t.Fatal(err)
	}
	const n = 100 // 104 KB, 8 s at the slow rate
	was := b.received("h0-01", "eth0")
	b.volley(0, 1, n)
	until(t, "datagrams at the leaf", func() bool { return b.received("leaf0", "h0-00") >= n })
	if got := b.received("h0-01", "eth0") - was; got > n/2 {
		t.Fatalf("%d of %d datagrams passed a slow link at once", got, n)
	}
	waiting := b.stats("leaf0", "h0-01").Qdisc.Backlog
	start := time.Now()
	if err := b.ns(slow.Namespace).Reshape(plan.ShaperOf(b.Fabric, b.HostDown(1), 10*units.Mbps, nil)); err != nil {
		t.Fatal(err)
	}
	until(t, "all datagrams", func() bool { return b.received("h0-01", "eth0")-was >= n })
	t.Logf("%v waited, and passed within %v", waiting, time.Since(start).Round(time.Millisecond))
	if took, least := time.Since(start), (10*units.Mbps).TimeToSend(waiting)/2; took > 3*time.Second || took < least {
		t.Errorf("%v took %v, want %v to 3s", waiting, took, least)
	}
	if d := b.stats("leaf0", "h0-01").Qdisc.Dropped; d != 0 {
		t.Errorf("%d packets dropped", d)
	}
	if err := b.ns(slow.Namespace).Reshape(plan.ShaperOf(b.Fabric, b.HostDown(1), 1, nil)); err == nil {
		t.Error("a rate that no kernel has is taken")
	}
}
