package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// packet is a captured packet.
type packet struct {
	ts       time.Time
	index    int
	outgoing bool
	data     []byte
	length   int
}

// capturing runs a capture. The returned function closes it and returns the captured packets.
func capturing(t testing.TB, n *Namespace, o CaptureOptions) func() []packet {
	t.Helper()
	c, err := n.Capture(o)
	if err != nil {
		t.Fatal(err)
	}
	var packets []packet
	done := make(chan error)
	go func() {
		done <- c.Run(context.Background(), func(ts time.Time, index int, outgoing bool, data []byte, length int) error {
			packets = append(packets, packet{ts, index, outgoing, append([]byte(nil), data...), length})
			return nil
		})
	}()
	return func() []packet {
		t.Helper()
		for range 2 {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s, err := c.Stats()
		if err != nil || s.Dropped > 0 || s.Packets != uint64(len(packets)) {
			t.Errorf("capture of %s: %d packets handed out, stats %+v, %v", n.Name(), len(packets), s, err)
		}
		return packets
	}
}

// A capture contains each packet that the interface counts, as whole frames of at most the MTU,
// with its direction and in order except for packets that two processors handle concurrently.
func TestCaptureSeesWhatInterfacesCount(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		ordered := true
		for _, mtu := range []units.Bytes{1500, 9000} {
			b := build(t, shape(2, 2, 2, 100*units.Mbps, mtu), plan.Options{})
			b.sink(1, 2)
			names := []string{"h0-00", "h0-01", "h1-00", "leaf0", "spine0"}
			var stops []func() []packet
			for _, name := range names {
				// Large enough for all packets: late reads cause no drops.
				stops = append(stops, capturing(t, b.ns(name), CaptureOptions{Ring: 16 * units.MiB}))
			}
			errs := make(chan error)
			for _, dst := range []topo.HostID{1, 2} {
				go func() {
					_, err := b.send(flow{src: 0, dst: dst, size: 2 * units.MB})
					errs <- err
				}()
			}
			for range 2 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			b.settle(t, names...) // the last acknowledgements are in flight
			for i, name := range names {
				packets := stops[i]()
				links, err := b.ns(name).Links()
				if err != nil {
					t.Fatal(err)
				}
				seen := map[int]*LinkStats{}
				for _, l := range links {
					seen[l.Index] = &LinkStats{}
				}
				var last time.Time
				full := 0
				for _, p := range packets {
					if p.length > int(mtu+plan.EthernetHeader) || len(p.data) != p.length {
						t.Fatalf("%s: a frame of %d bytes, %d captured, at MTU %d", name, p.length, len(p.data), mtu)
					}
					if p.length == int(mtu+plan.EthernetHeader) {
						full++
					}
					if last.Sub(p.ts) > time.Millisecond {
						t.Logf("%s: a packet of %v after one of %v", name, p.ts, last)
						ordered = false
					}
					last = p.ts
					count := &seen[p.index].Rx
					if p.outgoing {
						count = &seen[p.index].Tx
					}
					count.Packets++
					count.Bytes += units.Bytes(p.length)
				}
				if full == 0 && name != "spine0" { // spine0 may have no flow
					t.Errorf("%s: no frame of full size", name)
				}
				for _, l := range links {
					got := seen[l.Index]
					if got.Rx.Packets != l.Rx.Packets || got.Tx.Packets != l.Tx.Packets || got.Rx.Bytes != l.Rx.Bytes || got.Tx.Bytes != l.Tx.Bytes {
						t.Errorf("%s %s, MTU %d: captured %+v, counted %+v", name, l.Device, mtu, *got, l)
					}
				}
			}
		}
		return ordered
	})
}

// settle waits until the counters of the interfaces of some namespaces have been constant for 500
// ms: a lost last segment is retransmitted after 200 ms plus a multiple of the round-trip time.
func (b *fabric) settle(t *testing.T, names ...string) {
	t.Helper()
	count := func() (all string) {
		for _, name := range names {
			links, err := b.ns(name).Links()
			if err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprint(links)
		}
		return all
	}
	deadline := time.Now().Add(netnstest.Patience(10 * time.Second))
	for last := count(); time.Now().Before(deadline); {
		time.Sleep(500 * time.Millisecond)
		now := count()
		if now == last {
			return
		}
		last = now
	}
	t.Fatal("packets for 10 s after the last flow")
}

// Captured packets have complete checksums.
func TestChecksumsAreFinished(t *testing.T) {
	b := build(t, shape(1, 2, 0, 100*units.Mbps, 1500), plan.Options{})
	b.sink(1)
	stop := capturing(t, b.ns("h0-00"), CaptureOptions{})
	if _, err := b.send(flow{src: 0, dst: 1, size: 20 * units.KB}); err != nil {
		t.Fatal(err)
	}
	for _, p := range stop() {
		ip := p.data[14:]
		segment := ip[20:binary.BigEndian.Uint16(ip[2:])]
		pseudo := append(append([]byte(nil), ip[12:20]...), 0, ip[9], byte(len(segment)>>8), byte(len(segment)))
		if sum := onesComplement(append(pseudo, segment...)); sum != 0xffff {
			t.Fatalf("checksum of a TCP segment sums to %#x", sum)
		}
	}
}

func onesComplement(b []byte) uint32 {
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

// On lo each packet is captured once.
func TestCaptureOfLoopback(t *testing.T) {
	t.Parallel()
	b := build(t, shape(1, 1, 0, 100*units.Mbps, 1500), plan.Options{})
	b.sink(0)
	stop := capturing(t, b.ns("h0-00"), CaptureOptions{})
	if _, err := b.send(flow{src: 0, dst: 0, size: 100 * units.KB}); err != nil {
		t.Fatal(err)
	}
	b.settle(t, "h0-00") // the connection closes in both directions
	packets := stop()
	links, err := b.ns("h0-00").Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		if p.index != loopbackIndex || p.outgoing {
			t.Fatalf("a packet on device %d, outgoing %v", p.index, p.outgoing)
		}
	}
	if lo := links[0]; uint64(len(packets)) != lo.Rx.Packets || lo.Rx.Packets == 0 {
		t.Errorf("%d packets captured, lo counts %+v", len(packets), lo)
	}
}

// A capture of ports contains the packets that leave them, and no others.
func TestCaptureOfPorts(t *testing.T) {
	t.Parallel()
	b := build(t, shape(1, 3, 0, 100*units.Mbps, 1500), plan.Options{})
	b.sink(1)
	leaf := b.ns("leaf0")
	for _, ports := range [][]string{{"h0-01", "h0-09"}, {"lo"}} {
		if _, err := leaf.Capture(CaptureOptions{Ports: ports}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("unknown port %q", ports[len(ports)-1])) {
			t.Errorf("ports %q: %v", ports, err)
		}
	}
	both := capturing(t, leaf, CaptureOptions{Ports: []string{"h0-01", "h0-02"}})
	none := capturing(t, leaf, CaptureOptions{Ports: []string{}})
	if _, err := b.send(flow{src: 0, dst: 1, size: 100 * units.KB}); err != nil {
		t.Fatal(err)
	}
	b.settle(t, "h0-00", "h0-01", "leaf0")
	packets := both()
	if got := none(); len(got) != 0 {
		t.Errorf("%d packets of no port", len(got))
	}
	links, err := leaf.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		var got uint64
		for _, p := range packets {
			if p.index == l.Index {
				got++
				if !p.outgoing {
					t.Fatalf("%s: a packet that comes in", l.Device)
				}
			}
		}
		want := l.Tx.Packets
		if l.Device != "h0-01" && l.Device != "h0-02" {
			want = 0
		}
		if got != want || l.Device == "h0-01" && got == 0 {
			t.Errorf("%s: %d packets captured, %d sent", l.Device, got, want)
		}
	}
}

// The kernel accepts the filter of a switch with the maximum number of ports.
func TestPortFilterOfManyPorts(t *testing.T) {
	b := build(t, shape(1, 1, 0, 100*units.Mbps, 1500), plan.Options{})
	devices, ports := map[int]string{}, []string{}
	for i := range topo.MaxHostsPerLeaf + topo.MaxSpines {
		name := fmt.Sprint("p", i)
		devices[i+2] = name
		ports = append(ports, name)
	}
	program, err := portFilter(160, devices, ports)
	if err != nil {
		t.Fatal(err)
	}
	filter, err := bpf.Assemble(program)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.ns("leaf0").Capture(CaptureOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.ring.SetBPF(filter), c.Close()); err != nil {
		t.Error(err)
	}
	for i := range 2000 {
		ports = append(ports, ports[i])
	}
	if _, err := portFilter(160, devices, ports); err == nil {
		t.Error("too many ports and no error")
	}
}

// Packets sent just before Close are delivered, cut to the snaplen.
func TestCaptureKeepsTheTail(t *testing.T) {
	b := build(t, shape(1, 1, 0, 1000*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	for _, count := range []int{0, 1, 10, 500} {
		stop := capturing(t, host, CaptureOptions{Snaplen: 60})
		for range count {
			if err := host.SendUDP(make([]byte, 100), netip.AddrPortFrom(topo.MarkAddr(), 50099)); err != nil {
				t.Fatal(err)
			}
		}
		// The shaper may still hold some of them: 500 of 142 bytes at 1 Gbps take 0.6 ms.
		time.Sleep(3 * time.Millisecond)
		packets := stop()
		if len(packets) != count {
			t.Errorf("%d of %d packets", len(packets), count)
		}
		for _, p := range packets {
			if len(p.data) != 60 || p.length != 142 || !p.outgoing {
				t.Fatalf("%d of %d bytes, outgoing %v", len(p.data), p.length, p.outgoing)
			}
		}
	}
}

// A ring that is too small for a slow reader drops packets and counts the drops.
func TestCaptureCountsDrops(t *testing.T) {
	b := build(t, shape(1, 1, 0, 1000*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	c, err := host.Capture(CaptureOptions{Ring: 1})
	if err != nil {
		t.Fatal(err)
	}
	const count = 2000 // of 1.5 KB in a ring of 128 KiB
	for range count {
		if err := host.SendUDP(make([]byte, 1400), netip.AddrPortFrom(topo.MarkAddr(), 50099)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(30 * time.Millisecond)
	taken := 0
	done := make(chan error)
	go func() {
		done <- c.Run(context.Background(), func(time.Time, int, bool, []byte, int) error { taken++; return nil })
	}()
	time.Sleep(50 * time.Millisecond)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s, err := c.Stats()
	if err != nil || s.Dropped == 0 || s.Packets-s.Dropped != uint64(taken) {
		t.Errorf("stats %+v, %v with %d taken of %d", s, err, taken, count)
	}
}

func TestCaptureEnds(t *testing.T) {
	b := build(t, shape(1, 1, 0, 100*units.Mbps, 1500), plan.Options{})
	host := b.ns("h0-00")
	open := func() *Capture {
		c, err := host.Capture(CaptureOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	send := func() {
		if err := host.SendUDP([]byte{1}, netip.AddrPortFrom(topo.MarkAddr(), 50099)); err != nil {
			t.Fatal(err)
		}
	}
	ignore := func(time.Time, int, bool, []byte, int) error { return nil }
	t.Run("without Run", func(t *testing.T) {
		c := open()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Run(t.Context(), ignore); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Run after Close: %v", err)
		}
	})
	t.Run("abandoned", func(t *testing.T) {
		c := open()
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := c.Run(ctx, ignore); !errors.Is(err, why) {
			t.Errorf("Run with a context that is done: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("error of its reader", func(t *testing.T) {
		c := open()
		send()
		full := errors.New("disk full")
		if err := c.Run(t.Context(), func(time.Time, int, bool, []byte, int) error { return full }); !errors.Is(err, full) {
			t.Errorf("Run: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("bad options", func(t *testing.T) {
		for _, o := range []CaptureOptions{{Snaplen: 13}, {Ring: -1}, {Ring: 2 * units.GiB}} {
			if c, err := host.Capture(o); err == nil {
				t.Errorf("Capture(%+v): no error", o)
				c.Close()
			}
		}
	})
	t.Run("devices", func(t *testing.T) {
		c := open()
		defer c.Close()
		if d := c.Devices(); len(d) != 2 || d[1] != "lo" || d[2] != "eth0" {
			t.Errorf("Devices() = %v", d)
		}
	})
}

// Idle captures block no threads.
func TestCapturesShareThreads(t *testing.T) {
	b := build(t, shape(2, 10, 1, 100*units.Mbps, 1500), plan.Options{})
	before := threads(t)
	var stops []func() []packet
	for h := range topo.HostID(b.Hosts()) {
		stops = append(stops, capturing(t, b.ns(b.HostName(h)), CaptureOptions{Ring: 1}))
	}
	time.Sleep(100 * time.Millisecond)
	if during := threads(t); during > before+10 {
		t.Errorf("%d captures take %d threads", len(stops), during-before)
	}
	for _, stop := range stops {
		stop()
	}
}
