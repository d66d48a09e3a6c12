package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// stalled is the rate of a disk that completes no packet during a test.
const stalled = 1 * units.Bps

// chain returns a write of block 3 from host 0.
func chain(size, packet units.Bytes, window int, targets ...topo.HostID) Chain {
	c := Chain{
		Block:   workloads.Block{ID: 3, Client: 0, Size: size, Replicas: len(targets), Packet: packet, Window: window},
		Targets: targets,
	}
	for i := range targets {
		c.Hashes = append(c.Hashes, uint32(100+i))
	}
	return c
}

func TestBlockOnTheWire(t *testing.T) {
	for _, targets := range [][]topo.HostID{{1}, {0}, {1, 2}, {1, 2, 3}, {0, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8}} {
		for _, size := range []units.Bytes{1, 999, 1000, 1001, 16_000, 123_456} {
			t.Run(fmt.Sprint(targets, size), func(t *testing.T) {
				inMemory(t, hosts(9), func(t *testing.T, n *memNet, c *cluster) {
					if err := c.agents[0].Write(t.Context(), chain(size, 1000, 4, targets...)); err != nil {
						t.Fatal(err)
					}
					src := topo.HostID(0)
					for i, dst := range targets {
						hop := n.hop(t, src, dst)
						wrote, _ := hop.counts()
						read := hop.acks()
						if want := wire.Size + wire.TargetsSize + int(size); wrote != want {
							t.Errorf("hop %d carries %d bytes, want %d", i, wrote, want)
						}
						if want := int(wire.AckBytes(uint64(size), 1000)); read != want {
							t.Errorf("hop %d acknowledges with %d bytes, want %d", i, read, want)
						}
						h, err := wire.Parse(hop.start)
						want := wire.Header{Kind: wire.KindBlock, Run: testRun, Group: 3, Member: uint32(i), Parts: uint32(len(targets)), Size: uint64(size), Packet: 1000, Sent: h.Sent}
						if err != nil || h != want {
							t.Errorf("hop %d has header %+v, %v, want %+v", i, h, err, want)
						}
						if got, err := os.ReadFile(c.disks[dst].Path(3)); err != nil || units.Bytes(len(got)) != size {
							t.Errorf("replica %d has %d bytes, %v, want %d", i, len(got), err, size)
						}
						if used := c.disks[dst].Used(); used != size {
							t.Errorf("host %d uses %d, want %d", dst, used, size)
						}
						src = dst
					}
					for i, d := range n.all() {
						if d.hash != uint32(100+i) || d.port != wire.BlockPort {
							t.Errorf("hop %d goes to port %d by hash %d", i, d.port, d.hash)
						}
					}
					synctest.Wait()
					if _, problems := c.notes.get(); len(problems) > 0 {
						t.Error(problems)
					}
				})
			})
		}
	}
}

// disks returns the disk options of hosts with the given rates, by host.
func disks(n int, rates map[int]units.Rate) []disk.Options {
	o := hosts(n)
	for i, r := range rates {
		o[i].Rate = r
	}
	return o
}

// start starts a write that does not end during the test; the returned function cancels it and
// waits.
func start(t *testing.T, a *Agent, c Chain) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Write(ctx, c) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Write = %v, want %v", err, context.Canceled)
		}
	}
}

// With a window of 3 packets and the disk of the second host stalled, the client
// stops after 3 packets that are not acknowledged.
func TestWindowStopsTheClient(t *testing.T) {
	inMemory(t, disks(4, map[int]units.Rate{2: stalled}), func(t *testing.T, n *memNet, c *cluster) {
		stop := start(t, c.agents[0], chain(100_000, 1000, 3, 1, 2, 3))
		defer stop()
		time.Sleep(30 * time.Second)
		wrote, _ := n.hop(t, 0, 1).counts()
		read := n.hop(t, 0, 1).acks()
		if packets := (wrote - wire.Size - wire.TargetsSize) / 1000; packets != 3 {
			t.Errorf("the client sent %d packets, want 3", packets)
		}
		if read != wire.AckSize {
			t.Errorf("the client has %d bytes of acknowledgements, want the set-up alone", read)
		}
		// The first host has written and forwarded all of them.
		if got := c.disks[1].Stats().Written; got != 3000 {
			t.Errorf("host 1 wrote %d bytes, want 3000", got)
		}
		if wrote, _ := n.hop(t, 1, 2).counts(); wrote != wire.Size+wire.TargetsSize+3000 {
			t.Errorf("host 1 forwarded %d bytes in all, want 3 packets", wrote)
		}
	})
}

// A host forwards a packet before it writes it: with the first disk stalled, the
// packet still reaches the disks behind it, and is not acknowledged.
func TestForwardsBeforeItWrites(t *testing.T) {
	inMemory(t, disks(4, map[int]units.Rate{1: stalled}), func(t *testing.T, n *memNet, c *cluster) {
		stop := start(t, c.agents[0], chain(100_000, 1000, 3, 1, 2, 3))
		defer stop()
		time.Sleep(30 * time.Second)
		for _, h := range []int{2, 3} {
			if got := c.disks[h].Stats().Written; got != 1000 {
				t.Errorf("host %d wrote %d bytes, want the first packet", h, got)
			}
		}
		if read := n.hop(t, 1, 2).acks(); read != 2*wire.AckSize {
			t.Errorf("host 1 has %d bytes of acknowledgements, want set-up and a packet", read)
		}
		if read := n.hop(t, 0, 1).acks(); read != wire.AckSize {
			t.Errorf("the client has %d bytes of acknowledgements, want the set-up alone", read)
		}
	})
}

// The only replica must be on disk before it is acknowledged.
func TestAcknowledgesAfterItsDisk(t *testing.T) {
	inMemory(t, disks(1, map[int]units.Rate{0: 8 * units.Kbps}), func(t *testing.T, n *memNet, c *cluster) {
		stop := start(t, c.agents[0], chain(100_000, 1000, 3, 0)) // one packet per second
		defer stop()
		for i := range 5 {
			if read := n.hop(t, 0, 0).acks(); read != (1+i)*wire.AckSize {
				t.Errorf("after %d s the client has %d bytes of acknowledgements, want %d", i, read, (1+i)*wire.AckSize)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
	})
}

// A pipeline moves at the rate of its slowest disk.
func TestPipelineRate(t *testing.T) {
	for _, rates := range []map[int]units.Rate{{1: 8 * units.Mbps}, {2: 8 * units.Mbps}, {3: 8 * units.Mbps}, {1: 8 * units.Mbps, 2: 8 * units.Mbps, 3: 8 * units.Mbps}} {
		inMemory(t, disks(4, rates), func(t *testing.T, n *memNet, c *cluster) {
			began := time.Now()
			if err := c.agents[0].Write(t.Context(), chain(2_000_000, 16_000, 40, 1, 2, 3)); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got < 1980*time.Millisecond || got > 2020*time.Millisecond {
				t.Errorf("2 MB through a pipeline of 1 MB/s (%v) took %v, want 2s", rates, got)
			}
		})
	}
}

// writeFails writes a block and returns its WriteError.
func writeFails(t *testing.T, a *Agent, c Chain) *WriteError {
	t.Helper()
	err := a.Write(t.Context(), c)
	var w *WriteError
	if !errors.As(err, &w) {
		t.Fatalf("Write = %v, want a WriteError", err)
	}
	t.Log(err)
	return w
}

// For every host that cannot store a block and every cause, the client drops the host and gets the
// reason, and the other hosts store the block.
func TestHostThatCannotStoreIsDropped(t *testing.T) {
	with := func(h int, o disk.Options) []disk.Options {
		all := hosts(4)
		all[h] = o
		return all
	}
	for _, tt := range []struct {
		name    string
		disks   []disk.Options
		targets []topo.HostID
		host    topo.HostID
		want    string
		within  time.Duration
	}{
		{"first disk full", with(1, disk.Options{Rate: units.Gbps, Capacity: 1000}), []topo.HostID{1, 2, 3}, 1, "full", 0},
		{"middle disk full", with(2, disk.Options{Rate: units.Gbps, Capacity: 1000}), []topo.HostID{1, 2, 3}, 2, "disk of h2 is full", 0},
		{"last disk full", with(3, disk.Options{Rate: units.Gbps, Capacity: 1000}), []topo.HostID{1, 2, 3}, 3, "1KB", 0},
		{"only disk full", with(0, disk.Options{Rate: units.Gbps, Capacity: 1000}), []topo.HostID{0}, 0, "1KB", 0},
		{"no disk", with(2, disk.Options{}), []topo.HostID{1, 2, 3}, 2, "no disk", 0},
		{"no such host", hosts(4), []topo.HostID{1, 2, 9}, 9, "refused", 0},
		{"no such first host", hosts(4), []topo.HostID{9, 1}, 9, "refused", 0},
		{"first disk stalled", disks(4, map[int]units.Rate{1: stalled}), []topo.HostID{1, 2, 3}, 1, "did not complete a write for 1m0s", 61 * time.Second},
		{"middle disk stalled", disks(4, map[int]units.Rate{2: stalled}), []topo.HostID{1, 2, 3}, 2, "did not complete a write", 61 * time.Second},
		{"last disk stalled", disks(4, map[int]units.Rate{3: stalled}), []topo.HostID{1, 2, 3}, 3, "did not complete a write", 61 * time.Second},
		{"only disk stalled", disks(4, map[int]units.Rate{0: stalled}), []topo.HostID{0}, 0, "did not complete a write", 61 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inMemory(t, tt.disks, func(t *testing.T, n *memNet, c *cluster) {
				const size = 1_000_000
				began := time.Now()
				ch := chain(size, 1000, 20, tt.targets...)
				if len(tt.targets) == 1 {
					if w := writeFails(t, c.agents[0], ch); w.Host != tt.host || !strings.Contains(w.Reason, tt.want) || w.Full != strings.Contains(tt.name, "full") {
						t.Errorf("Write = %v, want h%d to have failed: %s", w, tt.host, tt.want)
					}
				} else if err := c.agents[0].Write(t.Context(), ch); err != nil {
					t.Fatal(err)
				}
				// The other hosts write at the rate of their disks.
				if took := time.Since(began); took > tt.within+20*time.Millisecond {
					t.Errorf("done after %v, want %v", took, tt.within)
				}
				c.wantLost(t, tt.host)
				if got := c.notes.lost[0].Err.Error(); !strings.Contains(got, tt.want) {
					t.Errorf("h%d was dropped because of %q, want %q", tt.host, got, tt.want)
				}
				if got, want := c.notes.lost[0].Full, strings.Contains(tt.name, "full"); got != want {
					t.Errorf("h%d was dropped as full: %v, want %v", tt.host, got, want)
				}
				time.Sleep(2 * time.Minute) // until hosts close connections and clean up
				synctest.Wait()
				c.wantReplicas(t, size, without(tt.targets, tt.host)...)
			})
		})
	}
}

func without(hosts []topo.HostID, gone ...topo.HostID) []topo.HostID {
	return slices.DeleteFunc(slices.Clone(hosts), func(h topo.HostID) bool { return slices.Contains(gone, h) })
}

// wantLost checks that exactly these hosts were dropped, in this order, and that there
// are no other problems.
func (c *cluster) wantLost(t *testing.T, want ...topo.HostID) {
	t.Helper()
	if got := c.notes.losses(); !slices.Equal(got, want) {
		t.Errorf("dropped %v, want %v: %v", got, want, c.notes.lost)
	}
	if _, problems := c.notes.get(); len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

// wantReplicas checks that these hosts have complete, correct replicas of block 3, and
// that no other host has one.
func (c *cluster) wantReplicas(t *testing.T, size units.Bytes, on ...topo.HostID) {
	t.Helper()
	for h, d := range c.disks {
		if d == nil {
			continue
		}
		want := units.Bytes(0)
		if slices.Contains(on, topo.HostID(h)) {
			want = size
			if b, err := os.ReadFile(d.Path(3)); err != nil || units.Bytes(len(b)) != size {
				t.Errorf("replica of host %d has %d bytes, %v, want %d", h, len(b), err, size)
			}
		}
		if d.Used() != want {
			t.Errorf("host %d uses %d bytes, want %d", h, d.Used(), want)
		}
	}
}

// A host that accepts connections and sends nothing is dropped.
func TestMuteHostIsDropped(t *testing.T) {
	for _, lost := range []topo.HostID{1, 2, 3} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			inMemory(t, hosts(4), func(t *testing.T, n *memNet, c *cluster) {
				if _, err := n.Listen(t.Context(), lost, wire.BlockPort); err != nil { // replaces the agent
					t.Fatal(err)
				}
				began := time.Now()
				if err := c.agents[0].Write(t.Context(), chain(1_000_000, 1000, 20, 1, 2, 3)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > DefaultPeerTimeout+20*time.Millisecond {
					t.Errorf("took %v, more than %v", took, DefaultPeerTimeout)
				}
				c.wantLost(t, lost)
				if got := c.notes.lost[0].Err.Error(); !strings.Contains(got, "set-up not acknowledged") {
					t.Errorf("dropped because of %q", got)
				}
				c.wantReplicas(t, 1_000_000, without([]topo.HostID{1, 2, 3}, lost)...)
			})
		})
	}
}

// When the client ends its write, its pipeline ends too.
func TestClientLost(t *testing.T) {
	inMemory(t, disks(4, map[int]units.Rate{2: 8 * units.Kbps}), func(t *testing.T, n *memNet, c *cluster) {
		stop := start(t, c.agents[0], chain(10_000_000, 1000, 20, 1, 2, 3))
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i, d := range c.disks {
			if d.Used() != 0 {
				t.Errorf("host %d still uses %d bytes", i, d.Used())
			}
		}
		c.wantLost(t)
	})
}

func TestWriteRefuses(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		for _, tt := range []struct {
			name string
			edit func(*Chain)
			want string
		}{
			{"no target", func(c *Chain) { c.Targets = nil; c.Hashes = nil }, "0 targets"},
			{"too many targets", func(c *Chain) { c.Targets = make([]topo.HostID, 10); c.Hashes = make([]uint32, 10) }, "10 targets"},
			{"hashes", func(c *Chain) { c.Hashes = nil }, "0 hashes for 1 hops"},
			{"empty", func(c *Chain) { c.Block.Size = 0 }, "size 0"},
			{"no packet", func(c *Chain) { c.Block.Packet = 0 }, "packet 0"},
			{"huge packet", func(c *Chain) { c.Block.Packet = units.GB }, "packet 1000000000"},
			{"no window", func(c *Chain) { c.Block.Window = 0 }, "window 0"},
			{"other client", func(c *Chain) { c.Block.Client = 1 }, "client is h1"},
			{"block", func(c *Chain) { c.Block.ID = -1 }, "block -1"},
			{"host", func(c *Chain) { c.Targets[0] = -1 }, "host -1"},
			{"twice", func(c *Chain) { c.Targets = []topo.HostID{1, 1}; c.Hashes = []uint32{1, 2} }, "h1 is a target twice"},
			{"too many packets", func(c *Chain) { c.Block.Size = 1 << 40; c.Block.Packet = 1 }, "too many packets"},
		} {
			ch := chain(10, 10, 1, 1)
			tt.edit(&ch)
			if err := c.agents[0].Write(t.Context(), ch); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: Write = %v, want %q", tt.name, err, tt.want)
			}
		}
		if len(n.all()) > 0 {
			t.Error("something was connected")
		}
	})
}

// Packets larger than the shared payload are sent in pieces.
func TestLargePacket(t *testing.T) {
	inMemory(t, hosts(3), func(t *testing.T, n *memNet, c *cluster) {
		if err := c.agents[0].Write(t.Context(), chain(5_000_000, 2_000_000, 1, 1, 2)); err != nil {
			t.Fatal(err)
		}
		if got := c.disks[2].Stats(); got.Written != 5_000_000 || got.Writes != 3 {
			t.Errorf("Stats = %+v, want 5 MB in 3 writes", got)
		}
	})
}

// Several clients write at once over loopback, together with flows.
func TestBlocksOnLoopback(t *testing.T) {
	n := new(loopNet)
	c := newCluster(t, n, disks(4, map[int]units.Rate{0: 400 * units.Mbps, 1: 400 * units.Mbps, 2: 400 * units.Mbps, 3: 400 * units.Mbps})...)
	defer c.finish()
	const size = 1_000_001
	var wg sync.WaitGroup
	for i := range 8 {
		client := topo.HostID(i % 4)
		ch := chain(size, 16_000, 40, client, (client+1)%4, (client+2)%4)
		ch.Block.ID, ch.Block.Client = workloads.BlockID(i), client
		wg.Go(func() {
			if err := c.agents[client].Write(t.Context(), ch); err != nil {
				t.Error(err)
			}
		})
		tr := flow(workloads.FlowID(i), 300_000, pace.NoLimit)
		wg.Go(func() {
			if err := c.agents[0].Send(t.Context(), tr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, d := range c.disks {
		if got := d.Stats(); got.Written != 6*size || d.Used() != 6*size {
			t.Errorf("host %d: %+v, used %d, want 6 replicas", i, got, d.Used())
		}
		t.Logf("host %d achieved %v of 400Mbps while busy: %+v", i, d.Stats().Achieved(), d.Stats())
	}
	for _, d := range n.all() {
		if d.port != wire.BlockPort {
			continue
		}
		if _, read := d.conn.counts(); read != int(wire.AckBytes(size, 16_000)) {
			t.Errorf("%d bytes of acknowledgements from %d to %d, want %d", read, d.dst, d.src, wire.AckBytes(size, 16_000))
		}
	}
	if _, problems := c.notes.get(); len(problems) > 0 {
		t.Error(problems)
	}
}

// The reason of a failure arrives over real sockets: data in flight to a failed host
// must not reset the connection before the reason is read.
func TestFailureOnLoopback(t *testing.T) {
	n := new(loopNet)
	o := hosts(4)
	o[2] = disk.Options{Rate: units.Gbps, Capacity: 100_000_000}
	c := newCluster(t, n, o...)
	defer c.finish()
	for round := range 5 {
		broken := make(chan struct{})
		go func() { // the disk fails during the block
			defer close(broken)
			waitUntil(t, "half a megabyte on the disk", func() bool { return c.disks[2].Stats().Written >= 500_000 })
			c.disks[2].Close()
		}()
		ch := chain(20_000_000, 16_000, 1000, 1, 2, 3)
		ch.Block.ID = workloads.BlockID(round) // hosts may still be ending the previous block
		if err := c.agents[0].Write(t.Context(), ch); err != nil {
			t.Fatal(err)
		}
		<-broken
		c.wantLost(t, 2)
		if got := c.notes.lost[0].Err.Error(); !strings.Contains(got, "disk is closed") {
			t.Errorf("h2 was dropped because of %q, want its closed disk", got)
		}
		c.notes.lost = nil
		for _, h := range []int{1, 3} {
			if err := c.disks[h].Wipe(); err != nil {
				t.Fatal(err)
			}
			c.agents[h].forgetReplicas()
		}
		fresh, err := disk.Open(t.TempDir(), disk.Options{Host: "h2", Rate: units.Gbps})
		if err != nil {
			t.Fatal(err)
		}
		c.disks[2], c.agents[2].o.Disk = fresh, disk.NewVolumes(fresh)
	}
}
