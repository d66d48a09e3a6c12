package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"testbed/emu/kernel/netnstest"
	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func flow(id workloads.FlowID, size units.Bytes, ceiling units.Rate) Transfer {
	return Transfer{Coflow: 5, Flow: workloads.Flow{ID: id, Src: 0, Dst: 1, Size: size}, Hash: 77, Ceiling: ceiling}
}

func TestFlowOnTheWire(t *testing.T) {
	for _, size := range []units.Bytes{0, 1, firstSegment - wire.Size, firstSegment - wire.Size + 1, 3_000_000} {
		for _, ceiling := range []units.Rate{pace.NoLimit, 100 * units.Mbps} {
			t.Run(fmt.Sprint(size, ceiling), func(t *testing.T) {
				inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
					began := time.Now()
					if err := c.agents[0].Send(t.Context(), flow(9, size, ceiling)); err != nil {
						t.Fatal(err)
					}
					got, problems := c.notes.get()
					if len(got) != 1 || got[0].Flow != 9 || got[0].At.After(time.Now()) || len(problems) > 0 {
						t.Errorf("received %v, problems %v, want flow 9", got, problems)
					}
					if n := received(c.agents[1], 9); n != size {
						t.Errorf("received %d, want %d", n, size)
					}
					d := n.all()
					if len(d) != 1 || d[0].hash != 77 || d[0].port != wire.ShufflePort {
						t.Fatalf("connections %+v, want one to the shuffle port", d)
					}
					if want := []string{d[0].conn.LocalAddr().String()}; !slices.Equal(n.greeted, want) {
						t.Errorf("greeted %v, want %v", n.greeted, want)
					}
					wrote, read := d[0].conn.counts()
					if wrote != wire.Size+int(size) || read != 0 {
						t.Errorf("%d bytes out and %d in, want %d and 0", wrote, read, wire.Size+int(size))
					}
					h, err := wire.Parse(d[0].conn.start)
					want := wire.Header{Kind: wire.KindFlow, Run: testRun, Group: 5, Member: 9, Parts: 77, Size: uint64(size), Offset: 1, Sent: h.Sent}
					if err != nil || h != want || h.Sent.Sub(began).Abs() > time.Second {
						t.Errorf("header %+v, %v, want %+v", h, err, want)
					}
					if first, want := d[0].conn.writes[0], wire.Size+int(min(size, firstSegment-wire.Size)); first != want {
						t.Errorf("first write is %d bytes, want %d", first, want)
					}
				})
			})
		}
	}
}

func TestFlowKeepsItsCeiling(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		start := time.Now()
		if err := c.agents[0].Send(t.Context(), flow(1, 2_000_000, 8*units.Mbps)); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < 1980*time.Millisecond || got > 2010*time.Millisecond {
			t.Errorf("2 MB at 8Mbps took %v, want 2s", got)
		}
	})
}

// At ceiling 0 no connection is opened; pausing stops a flow; NoLimit removes its
// limit.
func TestCeilingOfARunningFlow(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		s, err := c.agents[0].Prepare(flow(1, 100*units.MB, 0))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Send(t.Context()) }()
		set := func(rate units.Rate, d time.Duration) units.Bytes {
			t.Helper()
			before := received(c.agents[1], 1)
			if err := c.agents[0].SetCeiling(1, rate); err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			synctest.Wait()
			return received(c.agents[1], 1) - before
		}
		time.Sleep(time.Hour)
		if d := n.all(); len(d) > 0 {
			t.Fatalf("paused from the start, and connected: %v", d)
		}
		if got := set(8*units.Mbps, time.Second); got < 990_000 || got > 1_001_448 {
			t.Errorf("in 1 s at 8Mbps: %d bytes", got)
		}
		if got := set(0, time.Hour); got != 0 {
			t.Errorf("paused: %d bytes", got)
		}
		if got := set(80*units.Mbps, time.Second); got < 9_900_000 || got > 10_010_000 {
			t.Errorf("in 1 s at 80Mbps: %d bytes", got)
		}
		if err := c.agents[0].SetCeiling(1, pace.NoLimit); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := c.agents[0].SetCeiling(1, 0); !errors.Is(err, ErrNotSending) {
			t.Errorf("SetCeiling of a finished flow = %v", err)
		}
	})
}

// An unlimited flow that blocks in a write is paused within that write.
func TestPauseCutsAWriteShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(memNet)
		c := newCluster(t, n, hosts(1)...)
		defer c.finish()
		l, err := n.Listen(t.Context(), 1, wire.ShufflePort)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		s, err := c.agents[0].Prepare(flow(1, 100*units.MB, pace.NoLimit))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Send(ctx) }()
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		synctest.Wait() // the connection is full, a write waits
		s.SetCeiling(0)
		synctest.Wait()
		held, _ := n.hop(t, 0, 1).counts()
		buf := make([]byte, 1<<20)
		for total := 0; total < held; {
			m, err := peer.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			total += m
		}
		time.Sleep(time.Hour)
		if wrote, _ := n.hop(t, 0, 1).counts(); wrote != held {
			t.Errorf("paused after %d bytes, but wrote %d more", held, wrote-held)
		}
		s.SetCeiling(pace.NoLimit)
		synctest.Wait()
		if wrote, _ := n.hop(t, 0, 1).counts(); wrote == held {
			t.Error("unlimited again, but wrote nothing")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Send = %v, want %v", err, context.Canceled)
		}
	})
}

func TestPrepareRefuses(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		for _, tt := range []struct {
			name string
			edit func(*Transfer)
		}{
			{"other source", func(t *Transfer) { t.Flow.Src = 1 }},
			{"negative size", func(t *Transfer) { t.Flow.Size = -1 }},
			{"flow beyond header", func(t *Transfer) { t.Flow.ID = 1 << 32 }},
			{"negative coflow", func(t *Transfer) { t.Coflow = -1 }},
		} {
			tr := flow(1, 1, 0)
			tt.edit(&tr)
			if _, err := c.agents[0].Prepare(tr); err == nil {
				t.Errorf("%s: no error", tt.name)
			}
		}
		if _, err := c.agents[0].Prepare(flow(1, 1, 0)); err != nil {
			t.Error(err)
		}
		if _, err := c.agents[0].Prepare(flow(1, 1, 0)); err == nil {
			t.Error("the same flow twice: no error")
		}
	})
}

func TestFlowToNowhere(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
		err := c.agents[0].Send(t.Context(), flow(3, 1, pace.NoLimit))
		if err == nil || !strings.Contains(err.Error(), "flow 3") || !strings.Contains(err.Error(), "h1") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("Send = %v, want an error that names flow, host and reason", err)
		}
	})
}

// An invalid connection is reported to the Sink and closed.
func TestReceiverRefuses(t *testing.T) {
	header := func(h wire.Header) []byte { return h.Append(nil) }
	for _, tt := range []struct {
		name string
		send []byte
		want string
	}{
		{"not ours", []byte(strings.Repeat("GET / HTTP/1.1\r\n", 4)), "not a testbed header"},
		{"short", []byte("TBED"), "read header"},
		{"other run", header(wire.Header{Kind: wire.KindFlow, Run: 1, Size: 1}), "run 0x1"},
		{"a mark", header(wire.Header{Kind: wire.KindWriteMark, Run: testRun}), "write-mark"},
		{"broken off", append(header(wire.Header{Kind: wire.KindFlow, Run: testRun, Member: 4, Group: 6, Size: 10}), "abc"...), "flow 4 of coflow 6 broke off after 3 of its 10"},
		{"block without targets", header(wire.Header{Kind: wire.KindBlock, Run: testRun, Parts: 1, Size: 1, Packet: 1}), "read pipeline targets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
				conn, err := n.Dial(t.Context(), 7, 0, wire.ShufflePort, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write(tt.send); err != nil {
					t.Fatal(err)
				}
				conn.Close()
				time.Sleep(2 * breakGrace) // the receiver waits this long for Stop
				synctest.Wait()
				_, problems := c.notes.get()
				if len(problems) != 1 || !strings.Contains(problems[0].Error(), tt.want) || !strings.Contains(problems[0].Error(), "h0") {
					t.Errorf("problems %v, want one that says %q", problems, tt.want)
				}
			})
		})
	}
}

// A connection that ends before its first byte is that of a sender that was stopped while it connected.
func TestConnectionWithoutBytes(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
		conn, err := n.Dial(t.Context(), 7, 0, wire.ShufflePort, 0)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		time.Sleep(2 * breakGrace)
		synctest.Wait()
		if _, problems := c.notes.get(); len(problems) > 0 {
			t.Errorf("problems %v, want none", problems)
		}
	})
}

func TestSilentConnectionIsDropped(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
		conn, err := n.Dial(t.Context(), 7, 0, wire.ShufflePort, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		time.Sleep(61 * time.Second)
		if _, problems := c.notes.get(); len(problems) != 1 {
			t.Errorf("problems %v, want one", problems)
		}
	})
}

func TestSameFlowTwice(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		for i := range 2 {
			c.agents[0].Send(t.Context(), flow(1, 5_000_000, pace.NoLimit))
			synctest.Wait()
			if got, problems := c.notes.get(); len(got) != 1 || len(problems) != i {
				t.Errorf("after time %d: received %v, problems %v", i, got, problems)
			}
		}
	})
}

// Close lets Serve finish the accepted connections.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(memNet)
		c := newCluster(t, n, hosts(2)...)
		defer c.finish()
		done := make(chan error, 1)
		go func() { done <- c.agents[0].Send(t.Context(), flow(1, 1_000_000, 8*units.Mbps)) }()
		synctest.Wait()
		for range 2 {
			if err := c.agents[1].Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Errorf("Send = %v", err)
		}
		if err := c.agents[0].Send(t.Context(), flow(2, 1, pace.NoLimit)); err == nil {
			t.Error("a closed agent took a flow")
		}
	})
}

func TestMark(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
		if err := c.agents[0].Mark(wire.KindCoflowMark, 7, 3, 12*units.MB, wire.Note{}); err != nil {
			t.Fatal(err)
		}
		got, err := wire.Parse(n.marks[0][1:])
		want := wire.Header{Kind: wire.KindCoflowMark, Run: testRun, Group: 7, Parts: 3, Size: 12_000_000, Sent: got.Sent}
		if err != nil || got != want || !got.Sent.Equal(time.Now()) {
			t.Errorf("mark %+v, %v, want %+v sent now", got, err, want)
		}
		if err := c.agents[0].Mark(wire.KindFlow, 7, 3, 1, wire.Note{}); err == nil {
			t.Error("a flow was marked")
		}
		if err := c.agents[0].Mark(wire.KindWriteMark, -1, 3, 1, wire.Note{}); err == nil {
			t.Error("block -1 was marked")
		}
	})
}

// 200 simultaneous flows over loopback, some of them paced.
func TestFlowsOnLoopback(t *testing.T) {
	n := new(loopNet)
	c := newCluster(t, n, make([]disk.Options, 4)...)
	defer c.finish()
	const flows = 200
	var wg sync.WaitGroup
	for i := range flows {
		tr := flow(workloads.FlowID(i), units.Bytes(1+i*997), pace.NoLimit)
		tr.Flow.Src, tr.Flow.Dst = 0, 1
		if i%2 == 1 {
			tr.Flow.Src, tr.Flow.Dst, tr.Ceiling = 2, 3, 4*units.Mbps
		}
		wg.Go(func() {
			if err := c.agents[tr.Flow.Src].Send(t.Context(), tr); err != nil {
				t.Error(err)
			}
			if got := received(c.agents[tr.Flow.Dst], tr.Flow.ID); got != tr.Flow.Size {
				t.Errorf("flow %d: received %d of %d", tr.Flow.ID, got, tr.Flow.Size)
			}
		})
	}
	wg.Wait()
	if got, problems := c.notes.get(); len(got) != flows || len(problems) > 0 {
		t.Errorf("%d flows received, problems %v", len(got), problems)
	}
}

// waitUntil waits for a condition of hosts on the loopback interface.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(netnstest.Patience(20 * time.Second)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited too long for %s", what)
			return
		}
	}
}

// Cancelling ends senders and receivers in every kind of wait; goleak, run by TestMain,
// checks that no goroutine is left.
func TestCancelOnLoopback(t *testing.T) {
	n := new(loopNet)
	c := newCluster(t, n, make([]disk.Options, 2)...)
	deaf, err := n.Listen(t.Context(), 9, wire.ShufflePort) // connections are accepted only by the kernel
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the run is over")
	var wg sync.WaitGroup
	for i := range 12 {
		tr := flow(workloads.FlowID(i), units.GB, []units.Rate{0, units.Kbps, pace.NoLimit}[i%3])
		if i >= 6 {
			tr.Flow.Dst = 9
		}
		wg.Go(func() {
			if err := c.agents[0].Send(ctx, tr); !errors.Is(err, cause) {
				t.Errorf("flow %d: Send = %v, want %v", i, err, cause)
			}
		})
	}
	waitUntil(t, "both flows to send", func() bool { return received(c.agents[1], 2) > 0 && received(c.agents[1], 5) > 0 })
	cancel(cause)
	wg.Wait()
	c.finish()
	if err := deaf.(*net.TCPListener).Close(); err != nil {
		t.Error(err)
	}
}

// received returns the number of bytes of a flow that a host has received.
func received(a *Agent, flow workloads.FlowID) units.Bytes {
	if n := a.Received(flow); n != nil {
		return n.Arrived()
	}
	return 0
}
