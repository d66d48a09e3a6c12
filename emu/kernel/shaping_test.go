package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// blast sends full-size datagrams from src to dst, faster than any link of these tests carries
// them, until the test ends. No process receives them: the tests measure what links carry.
// Different ports use different spines.
func (b *fabric) blast(ctx context.Context, wg *sync.WaitGroup, src, dst topo.HostID, port uint16, offered units.Rate) {
	b.t.Helper()
	var c *net.UDPConn
	err := b.ns(b.HostName(src)).do(func() (err error) {
		c, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.HostAddr(src), port)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.HostAddr(dst), 9)))
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	packet := make([]byte, b.Shape().MTU-28)
	wg.Go(func() {
		defer c.Close()
		const tick = 2 * time.Millisecond
		per := int(offered.BytesIn(tick)/(b.Shape().MTU+plan.EthernetHeader)) + 1
		timer := time.NewTicker(tick)
		defer timer.Stop()
		for ctx.Err() == nil {
			for range per {
				// Refused by the receiver, or beyond the socket's buffer: send the next.
				if _, err := c.Write(packet); errors.Is(err, net.ErrClosed) {
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
	})
}

// link returns the counters of the device at a link's beginning.
func (b *fabric) link(id topo.LinkID) (LinkStats, time.Time) {
	b.t.Helper()
	namespace, device := plan.Egress(b.Fabric, id)
	before := time.Now()
	links, err := b.ns(namespace).Links()
	if err != nil {
		b.t.Fatal(err)
	}
	at := before.Add(time.Since(before) / 2)
	i := slices.IndexFunc(links, func(l LinkStats) bool { return l.Device == device })
	return links[i], at
}

func (b *fabric) find(pattern string) []topo.LinkID {
	b.t.Helper()
	ids, err := b.FindLinks(pattern)
	if err != nil {
		b.t.Fatal(err)
	}
	return ids
}

// carried returns the rates at which links carry frames, measured over the same time.
func (b *fabric) carried(ids []topo.LinkID, d time.Duration) []float64 {
	type reading struct {
		bytes units.Bytes
		at    time.Time
	}
	read := func() (all []reading) {
		for _, id := range ids {
			l, at := b.link(id)
			all = append(all, reading{l.Qdisc.Bytes, at})
		}
		return all
	}
	first := read()
	time.Sleep(d)
	rates := make([]float64, len(ids))
	for i, r := range read() {
		rates[i] = 8 * float64(r.bytes-first[i].bytes) / r.at.Sub(first[i].at).Seconds()
	}
	return rates
}

// unlikeFabric has hosts, uplinks and single directions of links with different rates, each lower
// than the load on the link.
func unlikeFabric() topo.LeafSpine {
	s := shape(2, 3, 2, 20*units.Mbps, 1500)
	s.Oversubscription, s.CrossRack = units.Ratio{}, 40*units.Mbps
	s.HostLinks = []topo.HostLink{{Hosts: "h0-0[12]", Rate: 50 * units.Mbps}}
	s.Links = []topo.LinkChange{{Link: "leaf0>spine1", Rate: 12 * units.Mbps}, {Link: "leaf1>h1-02", Rate: 10 * units.Mbps, Queue: topo.Queue{Bytes: 40 * units.KB}}}
	return s
}

// Each link of a heterogeneous fabric carries exactly its own rate under overload.
func TestEachLinkHasItsOwnRate(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		b := build(t, unlikeFabric(), plan.Options{Seed: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		// Hosts of 50 Mbps send to each host of the other rack over many ports, so that both
		// uplinks of rack 0 are overloaded. The host of 20 Mbps sends to one of 10.
		for port := uint16(2000); port < 2024; port++ {
			b.blast(ctx, &wg, 1, 3, port, 3*units.Mbps)
			b.blast(ctx, &wg, 2, 4, port, 3*units.Mbps)
		}
		b.blast(ctx, &wg, 0, 2, 3000, 30*units.Mbps)
		b.blast(ctx, &wg, 4, 5, 3001, 30*units.Mbps)
		time.Sleep(300 * time.Millisecond) // queues fill
		ok = true
		var ids []topo.LinkID
		for _, name := range []string{"h0-00>leaf0", "h0-01>leaf0", "h0-02>leaf0", "leaf0>spine0", "leaf0>spine1", "h1-01>leaf1", "leaf1>h1-02"} {
			ids = append(ids, b.find(name)...)
		}
		for i, got := range b.carried(ids, 2*time.Second) {
			want := float64(b.Link(ids[i]).Rate)
			t.Logf("%-14s carries %6.2f Mbps of %6.2f", b.LinkName(ids[i]), got/1e6, want/1e6)
			ok = ok && math.Abs(got/want-1) < 0.02
		}
		return ok
	})
}

// A rack sends to and receives from all other racks together at cross_rack, for any number of
// senders: the rack limit of the papers.
func TestCrossRackRate(t *testing.T) {
	s := shape(3, 2, 2, 50*units.Mbps, 1500)
	s.Oversubscription, s.CrossRack = units.Ratio{}, 40*units.Mbps
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		b := build(t, s, plan.Options{Seed: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for port := uint16(2000); port < 2024; port++ { // rack 0 to both others
			b.blast(ctx, &wg, 0, 2, port, 2500*units.Kbps)
			b.blast(ctx, &wg, 1, 4, port, 2500*units.Kbps)
		}
		time.Sleep(300 * time.Millisecond)
		ids := append(b.find("leaf0>spine*"), b.find("leaf*>h*-00")...)
		rates := b.carried(ids, 2*time.Second)
		out, in := rates[0]+rates[1], 0.0
		for _, r := range rates[2:] {
			in += r
		}
		t.Logf("rack 0 sends %.2f Mbps, the others' hosts receive %.2f, of 40", out/1e6, in/1e6)
		return math.Abs(out/40e6-1) < 0.02 && math.Abs(in/40e6-1) < 0.02
	})
}

// needs builds a fabric that needs a qdisc. If the kernel lacks the qdisc, the plan must be refused
// before anything is built, and the test ends.
func needs(t *testing.T, kind, key string, s topo.LeafSpine) *fabric {
	t.Helper()
	netnstest.Require(t)
	if haveQdisc(t, kind) {
		return build(t, s, plan.Options{Seed: 1})
	}
	if netnstest.Guest() {
		t.Fatalf("the kernel has no sch_%s, on a stock kernel", kind)
	}
	t.Logf("NOT TESTED ON PACKETS: this kernel has no sch_%s; what is tested is the refusal", kind)
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compile("refused", f, plan.Options{})
	pins := t.TempDir()
	x := NewExecutor(pins)
	d, err := deploy.Apply(t.Context(), p, x)
	if err == nil {
		t.Fatal(errors.Join(errors.New("built what this kernel cannot"), d.Destroy(context.Background())))
	}
	for _, part := range []string{"this kernel has no qdisc " + kind, "modprobe sch_" + kind, "remove " + key} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refused with %q, want %q in it", err, part)
		}
	}
	if !errors.Is(err, deploy.ErrUnsupported) {
		t.Errorf("%v is not ErrUnsupported", err)
	}
	if left, err := os.ReadDir(pins); err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", pins, left, err)
	}
	return nil
}

func TestPlainPlanNeedsNothing(t *testing.T) {
	f, err := unlikeFabric().Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckNeeds(plan.Compile("plain", f, plan.Options{})); err != nil {
		t.Error(err)
	}
}

func delayed() topo.LeafSpine {
	s := shape(2, 1, 1, 50*units.Mbps, 1500)
	s.Oversubscription, s.Uplink = units.Ratio{}, 10*units.Mbps
	s.Delay = 3 * time.Millisecond
	other := 7 * time.Millisecond
	s.Links = []topo.LinkChange{{Link: "leaf0<>spine0", Delay: &other, Queue: topo.Queue{Bytes: 40 * units.KB}}}
	return s
}

// A round trip takes the delays of all links in both directions, and little more.
func TestDelayIsOnEveryLink(t *testing.T) {
	b := needs(t, "netem", "delay", delayed())
	if b == nil {
		return
	}
	const want = 2 * (3 + 7 + 3 + 3) * time.Millisecond
	b.echo(1)
	best := time.Hour
	c, err := b.ns(b.HostName(0)).Dial(t.Context(), netip.AddrPortFrom(b.HostAddr(0), 0), netip.AddrPortFrom(b.HostAddr(1), testPort), cubic)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 {
		start := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if best = min(best, took); took < want {
			t.Fatalf("there and back in %v, want %v at least", took, want)
		}
	}
	t.Logf("there and back in %v at best, %v of it propagation", best, want)
	if best > want+8*time.Millisecond { // eight timers and the transmissions
		t.Errorf("there and back in %v at best, want %v and little more", best, want)
	}
}

// echo sends every received byte back.
func (b *fabric) echo(h topo.HostID) {
	b.t.Helper()
	l, err := b.ns(b.HostName(h)).Listen(b.t.Context(), netip.AddrPortFrom(b.HostAddr(h), testPort), cubic)
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // ends with the connection
			})
		}
	})
	b.t.Cleanup(func() { l.Close(); wg.Wait() })
}

// A shaped link with a delay still carries its rate, still drops packets, and queues no more bytes
// than its limit. The same run measures a link without a delay for comparison.
func TestDelayedLinkIsShaped(t *testing.T) {
	if b := needs(t, "netem", "delay", delayed()); b == nil {
		return
	}
	plain := delayed()
	plain.Delay, plain.Links[0].Delay = 0, nil
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		without, _, _ := flooded(t, plain)
		with, before, after := flooded(t, delayed())
		t.Logf("carries %.2f Mbps of 10, %.2f without a delay; %+v", with/1e6, without/1e6, after.Qdisc)
		if after.Qdisc.Kind != "tbf" || after.Qdisc.Dropped == before.Qdisc.Dropped {
			t.Errorf("%+v: want drops of the token bucket", after.Qdisc)
		}
		const limit = 40 * units.KB
		// An emulated sender may let the queue drain between its time slices.
		q := after.Qdisc.Backlog
		t.Logf("%v wait while more comes in than goes out, want the queue full: %v", q, limit)
		if q > limit {
			t.Error("that is more than the queue's limit")
		}
		return math.Abs(with/10e6-1) < 0.02 && q >= limit-2*1514
	})
}

// flooded returns the rate of the uplink of rack 0 under three times its load, and its counters
// before and after.
func flooded(t *testing.T, s topo.LeafSpine) (rate float64, before, after LinkStats) {
	t.Helper()
	b := build(t, s, plan.Options{Seed: 1})
	uplink := b.find("leaf0>spine0")[0]
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	b.blast(ctx, &wg, 0, 1, 2000, 30*units.Mbps)
	time.Sleep(500 * time.Millisecond)
	before, _ = b.link(uplink)
	rate = b.carried([]topo.LinkID{uplink}, 2*time.Second)[0]
	after, _ = b.link(uplink)
	return rate, before, after
}

func early(ecn bool) topo.LeafSpine {
	s := shape(1, 4, 0, 20*units.Mbps, 1500)
	s.Queue = topo.Queue{Bytes: 200 * units.KB}
	s.RED = &topo.RED{Min: 10 * units.KB, Max: 30 * units.KB, Probability: 0.1, ECN: ecn}
	return s
}

// Early detection drops packets long before the queue is full. With ECN it marks them instead. The
// few packets that TCP sends without ECN, such as FINs and retransmissions, may still be dropped. On
// emulated processors, acknowledgements are so late that TCP retransmits many.
func TestEarlyDetection(t *testing.T) {
	t.Parallel()
	for _, ecn := range []bool{false, true} {
		t.Run(fmt.Sprintf("ecn=%v", ecn), func(t *testing.T) {
			b := needs(t, "red", "red", early(ecn))
			if b == nil {
				return
			}
			b.sink(3)
			errs := make(chan error)
			for _, src := range []topo.HostID{0, 1, 2} {
				go func() {
					_, err := b.send(flow{src: src, dst: 3, size: 2 * units.MB})
					errs <- err
				}()
			}
			port := b.find("leaf0>h0-03")[0]
			var longest units.Bytes
			for left := 3; left > 0; {
				select {
				case err := <-errs:
					left--
					if err != nil {
						t.Error(err)
					}
				case <-time.After(5 * time.Millisecond):
					l, _ := b.link(port)
					longest = max(longest, l.Qdisc.Backlog)
				}
			}
			l, _ := b.link(port)
			t.Logf("%+v, at most %v waiting of %v", l.Qdisc, longest, b.Link(port).Queue)
			few := l.Qdisc.Marked / 20
			if netnstest.Emulated() {
				few = l.Qdisc.Marked / 2
			}
			if ecn && (l.Qdisc.Marked == 0 || l.Qdisc.Dropped > few) {
				t.Errorf("%d marked and %d dropped, want marks and next to no drops", l.Qdisc.Marked, l.Qdisc.Dropped)
			}
			if !ecn && (l.Qdisc.Marked > 0 || l.Qdisc.Dropped == 0) {
				t.Errorf("%d marked and %d dropped, want drops and no marks", l.Qdisc.Marked, l.Qdisc.Dropped)
			}
			if longest >= b.Link(port).Queue {
				t.Errorf("the queue was full: nothing was detected early")
			}
		})
	}
}
