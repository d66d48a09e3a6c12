package hosts

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"testbed/emu/kernel"
	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// batchedNet is the loopback interface with connections that are Batched.
type batchedNet struct {
	loopNet
	mu       sync.Mutex
	accepted []*batchedConn
}

type batchedListener struct {
	net.Listener
	n *batchedNet
}

// batchedConn records the batches that were set.
type batchedConn struct {
	*net.TCPConn
	mu  sync.Mutex
	set []int
}

func (n *batchedNet) Listen(ctx context.Context, h topo.HostID, port uint16) (net.Listener, error) {
	l, err := n.loopNet.Listen(ctx, h, port)
	return &batchedListener{l, n}, err
}

func (l *batchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b := &batchedConn{TCPConn: c.(*net.TCPConn)}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.accepted = append(l.n.accepted, b)
	return b, nil
}

func (c *batchedConn) SetReadBatch(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = append(c.set, n)
	_, err := kernel.SetReadBatch(c.TCPConn, n)
	return err
}

func (c *batchedConn) Queued() int { return kernel.Queued(c.TCPConn) }

// batches returns those that were set, of the only connection.
func (n *batchedNet) batches(t *testing.T) []int {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.accepted) != 1 {
		t.Fatalf("%d connections", len(n.accepted))
	}
	c := n.accepted[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.set)
}

// timedConn is a connection whose reads take times in turn, and return sizes, of which queued have arrived when a read is late.
type timedConn struct {
	net.Conn
	set   []int
	mu    sync.Mutex
	reads []timedRead // guarded by mu
}

type timedRead struct {
	took   time.Duration
	n      int
	queued bool
}

func (c *timedConn) SetReadBatch(n int) error {
	c.set = append(c.set, n)
	return nil
}

// first returns the next read.
func (c *timedConn) first() timedRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads[0]
}

func (c *timedConn) Queued() int {
	if r := c.first(); r.queued {
		return r.n
	}
	return 0
}

func (c *timedConn) Read([]byte) (int, error) {
	r := c.first()
	time.Sleep(r.took)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = c.reads[1:]
	return r.n, nil
}

// Batches double while they come whole and soon, and shrink to what came of one that did not come in time, for more reads
// after each. A pause of the sender and a receiver that is late change nothing.
func TestBatchesFollowTheSender(t *testing.T) {
	const slow, soon, between = batchWait + 1, batchWait/2 - 1, batchWait - 1
	for _, tt := range []struct {
		name  string
		reads []timedRead
		want  []int
	}{
		{"growing", slices.Repeat([]timedRead{{soon, 1 << 20, false}}, 9), []int{1024, 2048, 4096, 8192, 16384, 32768}},
		{"in parts, or slowly", []timedRead{{soon, 1023, false}, {between, 1024, false}, {soon, 1024, false}, {0, 1, false}}, []int{1024, 2048}},
		{"a small window", []timedRead{
			{slow, 160, true}, {0, 160, false}, {0, 160, false}, // 64, two of them
			{0, 160, false}, {0, 160, false}, // 128
			{slow, 160, true}, {0, 160, false}, {0, 160, false}, {0, 160, false}, {0, 160, false}, {0, 160, false},
		}, []int{1024, 1, 64, 128, 256, 1, 64, 128}},
		{"a byte", []timedRead{{slow, 1, true}, {0, 1, false}, {0, 1, false}, {0, 0, false}}, []int{1024, 1, 2}},
		{"a pause", []timedRead{{slow, 160, false}, {soon, 1024, false}, {0, 1, false}}, []int{1024, 1, 1024, 2048}},
		{"late", []timedRead{{slow, 1024, true}, {0, 1, false}}, []int{1024, 1, 1024}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &timedConn{reads: tt.reads}
			in := newBatches(c)
			for buf := make([]byte, 2*readBatch); len(c.reads) > 0; {
				if _, err := in.Read(buf); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(c.set, tt.want) {
				t.Errorf("%s: batches %v, want %v", tt.name, c.set, tt.want)
			}
		})
	}
}

// Flows of all sizes around a batch arrive completely. No read waits for more than is missing.
func TestBatchesOfFlows(t *testing.T) {
	for _, size := range []units.Bytes{1, readBatch - 1, readBatch, readBatch + 1, 2*readBatch + 1, 40*readBatch + 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			n := new(batchedNet)
			c := newCluster(t, n, make([]disk.Options, 2)...)
			defer c.finish()
			if err := c.agents[0].Send(t.Context(), flow(9, size, pace.NoLimit)); err != nil {
				t.Fatal(err)
			}
			got, problems := c.notes.get()
			if len(got) != 1 || len(problems) > 0 || received(c.agents[1], 9) != size {
				t.Errorf("received %v, %v, problems %v", got, received(c.agents[1], 9), problems)
			}
			set := n.batches(t)
			if set[0] != int(min(size, firstBatch)) || slices.Max(set) > int(readBatch) {
				t.Errorf("batches %v: must begin with %d, and none be greater than %d", set, min(size, firstBatch), readBatch)
			}
		})
	}
}

// send dials a host and writes a header and the first bytes of its payload.
func (n *batchedNet) send(t *testing.T, port uint16, h wire.Header, payload int) *net.TCPConn {
	t.Helper()
	conn, err := n.Dial(t.Context(), 0, 1, port, 0)
	if err != nil {
		t.Fatal(err)
	}
	h.Run, h.Sent = testRun, time.Now()
	if _, err := conn.Write(append(h.Append(nil), make([]byte, payload)...)); err != nil {
		t.Fatal(err)
	}
	return conn.(*tap).Conn.(*net.TCPConn)
}

// A sender that stalls below a batch does not hide what has arrived, and its flow completes when it goes on.
func TestBatchesOfASlowSender(t *testing.T) {
	n := new(batchedNet)
	c := newCluster(t, n, make([]disk.Options, 2)...)
	defer c.finish()
	const size = 2*readBatch + 1000
	conn := n.send(t, wire.ShufflePort, wire.Header{Kind: wire.KindFlow, Member: 9, Parts: 1, Size: uint64(size)}, 700)
	defer conn.Close()
	for sent := units.Bytes(700); ; {
		waitUntil(t, fmt.Sprint("byte ", sent), func() bool { return received(c.agents[1], 9) == sent })
		if sent == size || t.Failed() {
			break
		}
		piece := min(size-sent, 9000)
		if _, err := conn.Write(payload[:piece]); err != nil {
			t.Fatal(err)
		}
		sent += piece
	}
	waitUntil(t, "the end of the flow", func() bool { got, _ := c.notes.get(); return len(got) == 1 })
}

// What has arrived of a batch is read after batchWait, so that the kernel acknowledges it to a sender with a small window.
func TestBatchesAreWaitedForBriefly(t *testing.T) {
	n := new(batchedNet)
	c := newCluster(t, n, make([]disk.Options, 2)...)
	defer c.finish()
	const size = 2000
	conn := n.send(t, wire.ShufflePort, wire.Header{Kind: wire.KindFlow, Member: 9, Parts: 1, Size: size}, 700)
	defer conn.Close()
	for sent := units.Bytes(700); ; sent += 100 {
		waitUntil(t, fmt.Sprint("a read of byte ", sent), func() bool { r := c.agents[1].Received(9); return r != nil && r.Read() == sent })
		if sent == size || t.Failed() {
			break
		}
		if _, err := conn.Write(payload[:100]); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "the end of the flow", func() bool { got, _ := c.notes.get(); return len(got) == 1 })
}

// A sender that closes or resets its connection below a batch ends the wait, and what had arrived counts.
func TestBatchesOfASenderThatEnds(t *testing.T) {
	for _, end := range []string{"closes", "resets"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel() // breakGrace
			n := new(batchedNet)
			c := newCluster(t, n, make([]disk.Options, 2)...)
			defer c.finish()
			conn := n.send(t, wire.ShufflePort, wire.Header{Kind: wire.KindFlow, Member: 9, Parts: 1, Size: 5 * uint64(readBatch)}, 700)
			waitUntil(t, "700 bytes", func() bool { return received(c.agents[1], 9) == 700 })
			if end == "resets" {
				reset(conn)
			} else if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			waitUntil(t, "a problem", func() bool { _, problems := c.notes.get(); return len(problems) > 0 })
			_, problems := c.notes.get()
			if len(problems) != 1 || !strings.Contains(problems[0].Error(), "flow 9 of coflow 0 broke off after 700 of its 163840 bytes") {
				t.Errorf("problems %v", problems)
			}
		})
	}
}

// Blocks in packets around a batch arrive, are written and acknowledged.
func TestBatchesOfBlocks(t *testing.T) {
	for _, packet := range []units.Bytes{1000, readBatch - 1, readBatch, readBatch + 1, 64 * units.KiB} {
		t.Run(fmt.Sprint(packet), func(t *testing.T) {
			n := new(batchedNet)
			c := newCluster(t, n, hosts(3)...)
			defer c.finish()
			if err := c.agents[0].Write(t.Context(), chain(200_001, packet, 4, 1, 2)); err != nil {
				t.Fatal(err)
			}
			if _, problems := c.notes.get(); len(problems) > 0 {
				t.Errorf("problems %v", problems)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, a := range n.accepted {
				if a.set[0] != int(min(packet, firstBatch)) || slices.Max(a.set) > int(readBatch) {
					t.Errorf("batches %v", a.set)
				}
			}
		})
	}
}
