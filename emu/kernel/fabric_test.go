package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

func TestTransfers(t *testing.T) {
	b := build(t, shape(2, 2, 2, 100*units.Mbps, 1500), plan.Options{Seed: 1})
	if len(b.notes) > 0 {
		t.Logf("notes: %q", b.notes)
	}
	b.sink(1, 2, 3)
	for _, dst := range []topo.HostID{1, 2, 3} {
		if _, err := b.send(flow{src: 0, dst: dst, size: 200 * units.KB}); err != nil {
			t.Errorf("%s to %s: %v", b.HostName(0), b.HostName(dst), err)
		}
	}
}

// A new fabric loses no packets: a connection across it is established at once. A lost SYN would
// take a second.
func TestFabricIsReadyAtOnce(t *testing.T) {
	for range 5 {
		b := build(t, shape(2, 5, 2, 100*units.Mbps, 1500), plan.Options{Seed: 1})
		b.sink(9)
		for _, src := range []topo.HostID{0, 4} {
			start := time.Now()
			if _, err := b.send(flow{src: src, dst: 9, size: units.KB}); err != nil || time.Since(start) > 500*time.Millisecond {
				t.Fatalf("a connection from %s took %v, %v", b.HostName(src), time.Since(start), err)
			}
		}
	}
}

// A path of equal link rates delivers that rate, whether the bottleneck is the host's link, where
// the sender waits, or a port of a switch, which drops packets.
func TestRate(t *testing.T) {
	deep := shape(1, 4, 0, 50*units.Mbps, 1500)
	deep.Queue = topo.Queue{Bytes: units.MB} // three simultaneous flows do not time out
	tests := []struct {
		name    string
		shape   topo.LeafSpine
		senders []topo.HostID
		to      topo.HostID
	}{
		{"host link", shape(1, 2, 0, 50*units.Mbps, 1500), []topo.HostID{0}, 1},
		{"across racks", shape(2, 1, 1, 50*units.Mbps, 1500), []topo.HostID{0}, 1},
		{"incast at a leaf's port", deep, []topo.HostID{0, 1, 2}, 3},
		{"jumbo frames", shape(1, 2, 0, 50*units.Mbps, 9000), []topo.HostID{0}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := build(t, tt.shape, plan.Options{})
			b.sink(tt.to)
			const size = 4 * units.MB
			mtu := float64(tt.shape.MTU)
			goodput := float64(tt.shape.HostLink) * (mtu - 52) / (mtu + 14) // headers: IP 20, TCP with time stamps 32
			netnstest.Timing(t, func(t *testing.T) bool {
				start := time.Now()
				errs := make(chan error)
				for _, src := range tt.senders {
					go func() {
						_, err := b.send(flow{src: src, dst: tt.to, size: size / units.Bytes(len(tt.senders))})
						errs <- err
					}()
				}
				for range tt.senders {
					if err := <-errs; err != nil {
						t.Fatal(err)
					}
				}
				got := float64(size) * 8 / time.Since(start).Seconds() / goodput
				t.Logf("%.1f %% of the rate of %v, want 96 to 104", 100*got, tt.shape.HostLink)
				if got > 1.04 {
					t.Error("that is too fast")
				}
				return got > 0.96
			})
		})
	}
}

// A flow of 50 KB after an idle time takes as long as the link needs to send it: the bucket gives
// no credit.
func TestShortFlowIsNotFree(t *testing.T) {
	const rate, size = 50 * units.Mbps, 50 * units.KB
	b := build(t, shape(1, 2, 0, rate, 1500), plan.Options{})
	b.sink(1)
	frames := (size + 1447) / 1448
	want := rate.TimeToSend(size + 66*frames)
	netnstest.Timing(t, func(t *testing.T) bool {
		time.Sleep(20 * time.Millisecond) // the bucket fills in 0.4 ms
		got, err := b.send(flow{src: 0, dst: 1, size: size})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("50 KB took %v, want %v within 5 %%", got, want)
		if got < want-want/20 {
			t.Error("that is too fast")
		}
		return got < want+want/20
	})
}

// A new fabric has sent no packets, and sends none.
func TestIdleFabricIsSilent(t *testing.T) {
	t.Parallel()
	b := build(t, shape(2, 2, 2, 50*units.Mbps, 1500), plan.Options{})
	time.Sleep(time.Second)
	for _, name := range b.plan.Namespaces() {
		links, err := b.ns(name).Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Rx.Packets+l.Tx.Packets+l.Rx.Dropped+l.Tx.Dropped > 0 {
				t.Errorf("%s of %s: %+v", l.Device, name, l)
			}
		}
	}
}

// The shapers match the plan and count packets.
func TestLinks(t *testing.T) {
	b := build(t, shape(1, 2, 0, 50*units.Mbps, 1500), plan.Options{})
	b.sink(1)
	if _, err := b.send(flow{src: 0, dst: 1, size: 500 * units.KB}); err != nil {
		t.Fatal(err)
	}
	b.settle(t, "h0-00", "leaf0")
	host, err := b.ns("h0-00").Links()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := b.ns("leaf0").Links()
	if err != nil {
		t.Fatal(err)
	}
	names := func(links []LinkStats) (names []string) {
		for _, l := range links {
			names = append(names, l.Device)
		}
		return names
	}
	if diff := cmp.Diff([][]string{{"lo", "eth0"}, {"lo", "h0-00", "h0-01"}}, [][]string{names(host), names(leaf)}); diff != "" {
		t.Fatalf("devices (-want +got):\n%s", diff)
	}
	up, in := host[1], leaf[1]
	if up.Tx.Bytes < 500*units.KB || up.Tx.Bytes != in.Rx.Bytes || up.Tx.Packets != in.Rx.Packets {
		t.Errorf("eth0 sent %+v, its leaf received %+v", up.Tx, in.Rx)
	}
	if q := up.Qdisc; q.Kind != "tbf" || q.Bytes != up.Tx.Bytes || uint64(q.Packets) != up.Tx.Packets || q.Overlimits == 0 || q.Backlog != 0 {
		t.Errorf("qdisc of eth0: %+v beside %+v", q, up.Tx)
	}
	if q := host[0].Qdisc; q != (QdiscStats{Kind: q.Kind}) || q.Kind == "tbf" {
		t.Errorf("qdisc of lo: %+v", q)
	}
}

// A port overloaded by three hosts drops packets, and the qdisc counts the drops.
func TestDropsAreCounted(t *testing.T) {
	s := shape(1, 4, 0, 20*units.Mbps, 1500)
	s.Queue = topo.Queue{Bytes: 8 * units.KB}
	b := build(t, s, plan.Options{})
	b.sink(3)
	errs := make(chan error)
	for _, src := range []topo.HostID{0, 1, 2} {
		go func() {
			_, err := b.send(flow{src: src, dst: 3, size: 300 * units.KB})
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	links, err := b.ns("leaf0").Links()
	if err != nil {
		t.Fatal(err)
	}
	port := links[slices.IndexFunc(links, func(l LinkStats) bool { return l.Device == "h0-03" })]
	if port.Qdisc.Dropped == 0 {
		t.Errorf("no drops at %+v", port)
	}
}

func TestProbe(t *testing.T) {
	facts := Probe()
	for _, f := range facts {
		t.Logf("%-24s %-5v %s (without: %s)", f.Name, f.Have, f.Detail, f.Cost)
		if f.Name == "" || f.Cost == "" {
			t.Errorf("%+v lacks a name or a cost", f)
		}
	}
	netnstest.Require(t)
	for _, f := range facts {
		if f.Needed && !f.Have {
			t.Errorf("%s: %s, but tests build fabrics here", f.Name, f.Detail)
		}
	}
}
