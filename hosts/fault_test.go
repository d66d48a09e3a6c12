package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"testbed/emu/longtest"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// die takes a host's link down and crashes the host.
func die(n *memNet, c *cluster, hosts ...topo.HostID) {
	n.links(false, hosts...)
	for _, h := range hosts {
		c.agents[h].Crash()
	}
}

// The block of these tests is 1 MB in packets of 1000 bytes on disks of 8 Mbps:
// it takes a second, a packet every millisecond.
const faultSize = 1_000_000

func faultChain(targets ...topo.HostID) Chain { return chain(faultSize, 1000, 20, targets...) }

// For every target and time of its crash, the block is written to the other targets,
// and only the crashed one is dropped, within PeerTimeout of its crash.
func TestDeadHostIsDropped(t *testing.T) {
	type death struct {
		at    time.Duration
		hosts []topo.HostID
	}
	all := []topo.HostID{1, 2, 3}
	for _, tt := range []struct {
		name   string
		deaths []death
		lost   []topo.HostID
	}{
		{"first before set-up", []death{{0, []topo.HostID{1}}}, []topo.HostID{1}},
		{"middle before set-up", []death{{0, []topo.HostID{2}}}, []topo.HostID{2}},
		{"last before set-up", []death{{0, []topo.HostID{3}}}, []topo.HostID{3}},
		{"first in the middle", []death{{500 * time.Millisecond, []topo.HostID{1}}}, []topo.HostID{1}},
		{"middle in the middle", []death{{500 * time.Millisecond, []topo.HostID{2}}}, []topo.HostID{2}},
		{"last in the middle", []death{{500 * time.Millisecond, []topo.HostID{3}}}, []topo.HostID{3}},
		{"two at once, the first", []death{{500 * time.Millisecond, []topo.HostID{1, 2}}}, []topo.HostID{1, 2}},
		{"two at once, the last", []death{{500 * time.Millisecond, []topo.HostID{2, 3}}}, []topo.HostID{2, 3}},
		{"two at once, the outer", []death{{500 * time.Millisecond, []topo.HostID{1, 3}}}, []topo.HostID{1, 3}},
		{"two before set-up", []death{{0, []topo.HostID{1, 3}}}, []topo.HostID{1, 3}},
		{"one after the other", []death{{300 * time.Millisecond, []topo.HostID{3}}, {4500 * time.Millisecond, []topo.HostID{1}}}, []topo.HostID{3, 1}},
		{"one while the other is dropped", []death{{300 * time.Millisecond, []topo.HostID{2}}, {2 * time.Second, []topo.HostID{1}}}, []topo.HostID{1, 2}},
		{"all at once", []death{{500 * time.Millisecond, all}}, all},
		{"all before set-up", []death{{0, all}}, all},
		{"all in turn", []death{{100 * time.Millisecond, []topo.HostID{2}}, {4300 * time.Millisecond, []topo.HostID{3}}, {8500 * time.Millisecond, []topo.HostID{1}}}, []topo.HostID{2, 3, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rate := 8 * units.Mbps
			inMemory(t, disks(4, map[int]units.Rate{1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
				for _, d := range tt.deaths {
					if d.at == 0 {
						die(n, c, d.hosts...)
						continue
					}
					time.AfterFunc(d.at, func() { die(n, c, d.hosts...) })
				}
				began := time.Now()
				err := c.agents[0].Write(t.Context(), faultChain(all...))
				took := time.Since(began)
				left := without(all, tt.lost...)
				if len(left) > 0 && err != nil || len(left) == 0 && !errors.Is(err, ErrNoReplica) {
					t.Fatalf("Write = %v with %v left", err, left)
				}
				// Set-up, the second of the block, and the cost of each crash: a host may
				// wait for one behind it before it crashes itself.
				if most := time.Second + 50*time.Millisecond + time.Duration(len(tt.lost))*(DefaultPeerTimeout+time.Second); took > most {
					t.Errorf("took %v, more than %v", took, most)
				}
				c.wantLost(t, tt.lost...)
				for _, h := range left {
					if got := c.disks[h].Stats().Written; got != faultSize {
						t.Errorf("h%d wrote %d bytes for a block of %d: what it has it skips", h, got, faultSize)
					}
				}
				time.Sleep(5 * time.Minute) // until the remaining hosts time out
				synctest.Wait()
				for _, h := range tt.lost {
					if err := c.disks[h].Wipe(); err != nil {
						t.Error(err)
					}
				}
				c.wantReplicas(t, faultSize, left...)
				c.wantMarks(t, n, tt.lost...)
			})
		})
	}
}

// wantMarks checks the marks of lost replicas on the wire.
func (c *cluster) wantMarks(t *testing.T, n *memNet, lost ...topo.HostID) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.marks) != len(lost) {
		t.Errorf("%d marks, want %d", len(n.marks), len(lost))
		return
	}
	for i, m := range n.marks {
		h, err := wire.Parse(m[1:])
		note, noteErr := wire.ParseNote(m[1:])
		name := note.Host
		if err != nil || noteErr != nil || m[0] != 0 || h.Kind != wire.KindReplicaLost || h.Group != 3 || topo.HostID(h.Member) != lost[i] || int(h.Generation) != i || name != fmt.Sprintf("h%d", lost[i]) {
			t.Errorf("mark %d: %+v of %q, %v, want the loss of h%d", i, h, name, err, lost[i])
		}
	}
}

// A crashing client is the first target of its own block, as in HDFS: its pipeline
// breaks with it, and it reports no lost replica. The time between the ends of client
// and pipeline is short, so the test repeats often to hit it.
func TestCrashedClientDropsNobody(t *testing.T) {
	longtest.Skip(t, "waits for timeouts of connections, 5 s")
	for try := range 50 {
		inMemory(t, disks(3, map[int]units.Rate{0: 8 * units.Mbps}), func(t *testing.T, n *memNet, c *cluster) {
			time.AfterFunc(time.Duration(12*try)*time.Millisecond, func() { die(n, c, 0) })
			if err := c.agents[0].Write(t.Context(), faultChain(0, 1, 2)); !errors.Is(err, ErrCrashed) {
				t.Errorf("Write = %v, want %v", err, ErrCrashed)
			}
			c.wantLost(t)
			c.wantMarks(t, n)
		})
		if t.Failed() {
			return
		}
	}
}

// A host that crashes after the last byte was sent is dropped, and the others write nothing twice:
// only acknowledgements are missing.
func TestDeathAtTheLastAck(t *testing.T) {
	for _, dead := range []topo.HostID{1, 2, 3} {
		t.Run(fmt.Sprint(dead), func(t *testing.T) {
			// The crashed host has by far the slowest disk: the others have all bytes.
			inMemory(t, disks(4, map[int]units.Rate{int(dead): 80 * units.Kbps}), func(t *testing.T, n *memNet, c *cluster) {
				time.AfterFunc(1950*time.Millisecond, func() { die(n, c, dead) })
				if err := c.agents[0].Write(t.Context(), chain(20_000, 1000, 20, 1, 2, 3)); err != nil {
					t.Fatal(err)
				}
				c.wantLost(t, dead)
				for h := range topo.HostID(4) {
					if got := c.disks[h].Stats().Written; h > 0 && h != dead && got != 20_000 {
						t.Errorf("h%d wrote %d bytes, want 20000", h, got)
					}
				}
				last := n.all()[len(n.all())-1]
				h, err := wire.Parse(last.conn.start)
				if err != nil || h.Generation != 1 || h.Parts != 2 || h.Offset < 18_000 {
					t.Errorf("the last pipeline has header %+v, %v, want to go on near the end", h, err)
				}
			})
		})
	}
}

// Slow hosts are not dropped: a disk that takes 16 s for a packet, and processors
// with a share of 0.01.
func TestSlowHostIsNotDropped(t *testing.T) {
	for _, slow := range []topo.HostID{0, 1, 2, 3} {
		t.Run(fmt.Sprint("disk ", slow), func(t *testing.T) {
			inMemory(t, disks(4, map[int]units.Rate{int(slow): 500 * units.Bps}), func(t *testing.T, n *memNet, c *cluster) {
				targets := []topo.HostID{1, 2, 3}
				if slow == 0 {
					targets = []topo.HostID{0, 2, 3}
				}
				began := time.Now()
				if err := c.agents[0].Write(t.Context(), chain(10_000, 1000, 20, targets...)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 150*time.Second {
					t.Errorf("took %v: the disk was not slow", took)
				}
				c.wantLost(t)
			})
		})
		t.Run(fmt.Sprint("processor ", slow), func(t *testing.T) {
			inMemory(t, hosts(4), func(t *testing.T, n *memNet, c *cluster) {
				c.agents[slow].SetCPU(0)
				if err := c.agents[0].Write(t.Context(), faultChain(1, 2, 3)); err != nil {
					t.Fatal(err)
				}
				c.wantLost(t)
			})
		})
	}
}

// A link that is down for less than PeerTimeout costs no replica.
func TestShortFlapDropsNobody(t *testing.T) {
	rate := 8 * units.Mbps
	for _, h := range []topo.HostID{0, 1, 2, 3} {
		for _, at := range []time.Duration{0, 500 * time.Millisecond, 995 * time.Millisecond} {
			t.Run(fmt.Sprint(h, at), func(t *testing.T) {
				t.Parallel()
				inMemory(t, disks(4, map[int]units.Rate{1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
					flap := func() {
						n.links(false, h)
						time.AfterFunc(DefaultPeerTimeout*6/10, func() { n.links(true, h) })
					}
					if at == 0 {
						flap()
					} else {
						time.AfterFunc(at, flap)
					}
					if err := c.agents[0].Write(t.Context(), faultChain(1, 2, 3)); err != nil {
						t.Fatal(err)
					}
					c.wantLost(t)
					c.wantReplicas(t, faultSize, 1, 2, 3)
					if len(n.all()) != 3 {
						t.Errorf("%d connections, want 3", len(n.all()))
					}
				})
			})
		}
	}
}

// A longer outage costs the replica, which is deleted once the link is up again.
func TestLongFlap(t *testing.T) {
	rate := 8 * units.Mbps
	inMemory(t, disks(4, map[int]units.Rate{1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
		time.AfterFunc(500*time.Millisecond, func() { n.links(false, 2) })
		time.AfterFunc(20*time.Second, func() { n.links(true, 2) })
		if err := c.agents[0].Write(t.Context(), faultChain(1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		c.wantLost(t, 2)
		c.wantReplicas(t, faultSize, 1, 3)
	})
}

// The client's host crashes, as a target or not: Write ends, and the incomplete
// replicas on other hosts are deleted in time.
func TestClientCrashes(t *testing.T) {
	rate := 8 * units.Mbps
	for _, targets := range [][]topo.HostID{{1, 2, 3}, {0, 2, 3}} {
		inMemory(t, disks(4, map[int]units.Rate{0: rate, 1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
			time.AfterFunc(500*time.Millisecond, func() { die(n, c, 0) })
			began := time.Now()
			if err := c.agents[0].Write(t.Context(), faultChain(targets...)); !errors.Is(err, ErrCrashed) {
				t.Errorf("Write = %v, want %v", err, ErrCrashed)
			}
			if took := time.Since(began); took > 510*time.Millisecond {
				t.Errorf("Write ended after %v", took)
			}
			if err := c.agents[0].Write(t.Context(), faultChain(targets...)); !errors.Is(err, ErrCrashed) {
				t.Errorf("Write on a host that is down = %v, want %v", err, ErrCrashed)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			c.wantLost(t)
			c.wantReplicas(t, faultSize)
		})
	}
}

// A host that returns serves again, also a second time, and keeps its complete replicas.
func TestReturn(t *testing.T) {
	inMemory(t, hosts(4), func(t *testing.T, n *memNet, c *cluster) {
		if err := c.agents[2].Return(t.Context()); err == nil {
			t.Error("a host returned that had not crashed")
		}
		for i := range 2 {
			ch := faultChain(1, 2, 3)
			ch.Block.ID = workloads.BlockID(10 + i)
			if err := c.agents[0].Write(t.Context(), ch); err != nil {
				t.Fatal(err)
			}
			die(n, c, 2)
			c.agents[2].Crash()
			time.Sleep(10 * time.Second)
			n.links(true, 2)
			if err := c.agents[2].Return(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.agents[0].Send(t.Context(), Transfer{Flow: workloads.Flow{ID: workloads.FlowID(i), Src: 0, Dst: 2, Size: 1000}, Ceiling: pace.NoLimit}); err != nil {
				t.Error(err)
			}
		}
		if err := c.agents[0].Write(t.Context(), faultChain(2, 1)); err != nil {
			t.Fatal(err)
		}
		c.wantLost(t)
		if got := c.disks[2].Used(); got != 3*faultSize {
			t.Errorf("h2 uses %d, want three blocks", got)
		}
	})
}

// A host that crashes and returns during a block has lost its part: the client drops it, and does
// not accept later data on it as the remainder.
func TestReturnInTheMiddleOfABlock(t *testing.T) {
	for _, wiped := range []bool{false, true} {
		rate := 8 * units.Mbps
		inMemory(t, disks(4, map[int]units.Rate{1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
			time.AfterFunc(500*time.Millisecond, func() {
				die(n, c, 2)
				if wiped {
					if err := c.disks[2].Wipe(); err != nil {
						t.Error(err)
					}
				}
				n.links(true, 2)
				if err := c.agents[2].Return(t.Context()); err != nil {
					t.Error(err)
				}
			})
			began := time.Now()
			if err := c.agents[0].Write(t.Context(), faultChain(1, 2, 3)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("took %v: h1 learns at once that h2 has lost the block", took)
			}
			c.wantLost(t, 2)
			c.wantReplicas(t, faultSize, 1, 3)
		})
	}
}

// Wiping a disk during a write costs that replica.
func TestWipeInTheMiddleOfABlock(t *testing.T) {
	rate := 8 * units.Mbps
	inMemory(t, disks(4, map[int]units.Rate{1: rate, 2: rate, 3: rate}), func(t *testing.T, n *memNet, c *cluster) {
		time.AfterFunc(500*time.Millisecond, func() {
			if err := c.disks[2].Wipe(); err != nil {
				t.Error(err)
			}
		})
		if err := c.agents[0].Write(t.Context(), faultChain(1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		c.wantLost(t, 2)
		c.wantReplicas(t, faultSize, 1, 3)
	})
}

// Sender and receiver of a flow crash. Send of a crashed sender returns ErrCrashed.
// Stop ends the receiver, which may only be waiting for a paused flow.
func TestCrashUnderFlows(t *testing.T) {
	inMemory(t, hosts(4), func(t *testing.T, n *memNet, c *cluster) {
		done := make(chan error, 2)
		go func() { done <- c.agents[0].Send(t.Context(), flow(1, units.GB, 8*units.Mbps)) }()
		back := Transfer{Flow: workloads.Flow{ID: 2, Src: 1, Dst: 0, Size: units.GB}, Ceiling: 8 * units.Mbps}
		backDone := make(chan error, 1)
		go func() { backDone <- c.agents[1].Send(t.Context(), back) }()
		time.Sleep(5 * time.Second)
		die(n, c, 0)
		if err := <-done; !errors.Is(err, ErrCrashed) {
			t.Errorf("Send = %v, want %v", err, ErrCrashed)
		}
		if err := c.agents[0].Send(t.Context(), flow(3, 1, pace.NoLimit)); !errors.Is(err, ErrCrashed) {
			t.Errorf("Send on a host that is down = %v, want %v", err, ErrCrashed)
		}
		time.Sleep(time.Hour)
		if _, problems := c.notes.get(); len(problems) > 0 {
			t.Errorf("problems: %v", problems)
		}
		c.agents[1].Stop(1)
		c.agents[1].Stop(2)
		if err := <-backDone; !errors.Is(err, ErrStopped) {
			t.Errorf("Send to the dead host = %v, want %v", err, ErrStopped)
		}
		n.links(true, 0)
		if err := c.agents[0].Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.agents[0].Send(t.Context(), flow(4, 1000, pace.NoLimit)); err != nil {
			t.Error(err)
		}
		c.wantLost(t)
	})
}

// Stop ends both ends of a flow, in either order, at any time, without a Problem.
func TestStop(t *testing.T) {
	for _, order := range [][]topo.HostID{{0, 1}, {1, 0}} {
		for _, ceiling := range []units.Rate{0, 8 * units.Mbps} {
			for _, at := range []time.Duration{0, 5 * time.Second} {
				inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
					if at == 0 { // before it is sent
						c.agents[order[0]].Stop(1)
					}
					done := make(chan error, 1)
					go func() { done <- c.agents[0].Send(t.Context(), flow(1, 1000*units.GB, ceiling)) }()
					time.Sleep(at)
					c.agents[order[0]].Stop(1)
					time.Sleep(breakGrace / 2)
					c.agents[order[1]].Stop(1)
					c.agents[order[1]].Stop(1)
					if err := <-done; !errors.Is(err, ErrStopped) {
						t.Errorf("Send = %v, want %v", err, ErrStopped)
					}
					time.Sleep(time.Minute)
					c.wantLost(t)
					if err := c.agents[0].Send(t.Context(), flow(2, 1000, pace.NoLimit)); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// A flow that breaks off without Stop is an error at both ends.
func TestBrokenFlowIsNoStop(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		time.AfterFunc(5*time.Second, func() { n.all()[0].conn.SetLinger(0); n.all()[0].conn.Close() })
		err := c.agents[0].Send(t.Context(), flow(1, 1000*units.GB, 8*units.Mbps))
		if err == nil || errors.Is(err, ErrStopped) || errors.Is(err, ErrCrashed) {
			t.Errorf("Send = %v, want an error of the connection", err)
		}
		time.Sleep(time.Minute)
		if _, problems := c.notes.get(); len(problems) != 1 || !strings.Contains(problems[0].Error(), "flow 1") {
			t.Errorf("problems %v, want one of flow 1", problems)
		}
	})
}

// With a fifth of the processor, a flow's reads and writes happen in the first 20 ms of each 100
// ms, so a pipe of bounded size carries less.
func TestSetCPU(t *testing.T) {
	for _, slow := range []topo.HostID{0, 1} {
		inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
			done := make(chan error, 1)
			go func() { done <- c.agents[0].Send(t.Context(), flow(1, 60*units.MB, 800*units.Mbps)) }()
			c.agents[slow].SetCPU(0.2)
			received := func() units.Bytes { return received(c.agents[1], 1) }
			var moves []time.Duration
			began, had := c.agents[slow].cpu.since, units.Bytes(0)
			for range 2000 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if now := received(); now != had {
					moves, had = append(moves, time.Since(began)%DefaultCPUPeriod), now
				}
			}
			for _, at := range moves {
				// A write or read that started in time may end up to one tick later.
				if at > 27*time.Millisecond {
					t.Errorf("h%d with a fifth of its processor: the flow moved %v into a period", slow, at)
					break
				}
			}
			if len(moves) < 20 {
				t.Errorf("the flow moved %d times", len(moves))
			}
			c.agents[slow].SetCPU(1)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A crash cancels the host's own operations before those that serve other hosts, which
// close connections.
func TestCrashTellsServersLast(t *testing.T) {
	for range 20 {
		l := newLife()
		server, stop := l.serving(t.Context())
		defer stop()
		var own []context.Context
		for range 500 {
			ctx, stop := l.within(t.Context())
			defer stop()
			own = append(own, ctx)
		}
		told := make(chan int)
		go func() {
			<-server.Done()
			n := 0
			for _, ctx := range own {
				if ctx.Err() != nil {
					n++
				}
			}
			told <- n
		}()
		l.crash()
		if n := <-told; n != len(own) {
			t.Fatalf("%d of %d were cancelled before the server", n, len(own))
		}
		for _, ctx := range append(own, server) {
			if !errors.Is(context.Cause(ctx), ErrCrashed) {
				t.Fatalf("cause %v, want the crash", context.Cause(ctx))
			}
		}
	}
}
