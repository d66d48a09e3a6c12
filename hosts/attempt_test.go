package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

var (
	one   = jobs.AttemptID{Task: jobs.TaskID{Job: 4, Stage: 1, Index: 2}, N: 1}
	other = jobs.AttemptID{Task: jobs.TaskID{Job: 5}}
	task  = wire.Task{Job: 4, Stage: 1, Index: 2, Attempt: 1, FromIndex: 6, FromAttempt: 7, Outputs: 3}
)

// about reports whether a duration is within a tolerance of another.
func about(got, want, tolerance time.Duration) bool {
	return got >= want-tolerance && got <= want+tolerance
}

// The header of a flow of a task states it, and the payload follows it.
func TestFlowOfATask(t *testing.T) {
	for _, size := range []units.Bytes{0, 1, firstSegment - wire.MaxSize, firstSegment - wire.MaxSize + 1, 300_000} {
		inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
			f := flow(9, size, pace.NoLimit)
			f.Task = task
			if err := c.agents[0].Send(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			hop := n.hop(t, 0, 1)
			h, err := wire.Parse(hop.start)
			if err != nil || h.Task != task || h.Member != 9 {
				t.Errorf("header %+v, %v", h, err)
			}
			if wrote, _ := hop.counts(); wrote != wire.MaxSize+int(size) || hop.writes[0] > firstSegment {
				t.Errorf("%d bytes were sent for %d, %d at first", wrote, size, hop.writes[0])
			}
			received, problems := c.notes.get()
			if len(received) != 1 || len(problems) > 0 || c.agents[1].Received(9).Arrived() != size {
				t.Errorf("received %v, problems %v", received, problems)
			}
		})
	}
}

// A flow is consumed at its rate from the beginning: its sender is never further ahead than the
// buffer of the receiver, and a slow processor prolongs the rest.
func TestExpectedFlow(t *testing.T) {
	const size, rate = 4_000_000, 8 * units.Mbps
	for _, share := range []float64{1, 0.5} {
		inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
			n.room = 64 << 10 // as the first window of Linux
			c.agents[1].Expect(9, Consumption{Rate: rate}, wire.Task{Job: 4})
			began := time.Now()
			done := make(chan error)
			go func() { done <- c.agents[0].Send(t.Context(), flow(9, size, pace.NoLimit)) }()
			for i := 1; i <= 10; i++ {
				time.Sleep(200 * time.Millisecond)
				consumed := int(rate.BytesIn(time.Since(began)))
				n.linkMu.Lock()
				s := n.conns[0].out
				n.linkMu.Unlock()
				s.mu.Lock()
				held := len(s.buf) + len(s.sent)
				s.mu.Unlock()
				if held > int(leastBuffer) || held < 32<<10 {
					t.Errorf("after %v, the kernel holds %d bytes", time.Since(began), held)
				}
				if got := int(c.agents[1].Received(9).Arrived()); got > consumed+int(rate.BytesIn(consumeAhead)) || got < consumed-int(rate.BytesIn(consumeStep))-int(leastChunk) {
					t.Errorf("after %v, %d bytes count as received, %d are consumed", time.Since(began), got, consumed)
				}
			}
			c.agents[1].SetCPU(share)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			received, _ := c.notes.get()
			if want := 2*time.Second + time.Duration(float64(2*time.Second)/share); len(received) != 1 || !about(received[0].At.Sub(began), want, time.Millisecond) {
				t.Errorf("received %v, began at %v, want the end after %v", received, began, want)
			}
		})
	}
}

// Time in which the network brings nothing is lost: a flow that was held back is then consumed no
// faster.
func TestExpectedFlowDoesNotCatchUp(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		c.agents[1].Expect(9, Consumption{Rate: 8 * units.Mbps}, wire.Task{Job: 4})
		s, err := c.agents[0].Prepare(flow(9, 3_000_000, pace.NoLimit))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done := make(chan error)
		go func() { done <- s.Send(t.Context()) }()
		time.Sleep(time.Second)
		s.SetCeiling(0)
		time.Sleep(2 * time.Second)
		s.SetCeiling(pace.NoLimit)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		received, _ := c.notes.get()
		// What the buffer held is consumed during the pause.
		pause := 2*time.Second - (8 * units.Mbps).TimeToSend(leastBuffer)
		if took := received[0].At.Sub(began); !about(took, 3*time.Second+pause, 60*time.Millisecond) {
			t.Errorf("3 MB at 1 MB/s with a pause of %v took %v", pause, took)
		}
	})
}

// An attempt that slows down consumes a flow slowly from its onset on, and its sender is not further ahead than the buffer.
// The mark of the end states how long that lasts.
func TestExpectedFlowThatSlowsDown(t *testing.T) {
	const size, onset, rate, slow = 2_000_000, 1_000_000, 8 * units.Mbps, 2 * units.Mbps
	inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
		n.room = 64 << 10
		c.agents[1].Expect(9, Consumption{Rate: rate, Onset: onset, Slow: slow}, wire.Task{Job: 4})
		began := time.Now()
		done := make(chan error)
		go func() { done <- c.agents[0].Send(t.Context(), flow(9, size, pace.NoLimit)) }()
		for i := 1; i <= 4; i++ {
			time.Sleep(800 * time.Millisecond)
			consumed := min(int(rate.BytesIn(time.Since(began))), onset) + int(slow.BytesIn(max(0, time.Since(began)-time.Second)))
			if got := int(c.agents[1].Received(9).Arrived()); got > consumed+int(rate.BytesIn(consumeAhead)) || got < consumed-int(rate.BytesIn(consumeStep))-int(leastChunk) {
				t.Errorf("after %v, %d bytes count as received, %d are consumed", time.Since(began), got, consumed)
			}
			n.linkMu.Lock()
			s := n.conns[0].out
			n.linkMu.Unlock()
			s.mu.Lock()
			held := len(s.buf) + len(s.sent)
			s.mu.Unlock()
			if held > int(leastBuffer) || held < 32<<10 {
				t.Errorf("after %v, the kernel holds %d bytes", time.Since(began), held)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		received, _ := c.notes.get()
		if want := time.Second + 4*time.Second; len(received) != 1 || !about(received[0].At.Sub(began), want, time.Millisecond) {
			t.Errorf("received %v, began at %v, want the end after %v", received, began, want)
		}
	})
}

// The lag of a mark is the time in which what the kernel may hold is consumed, at the rates of its bytes.
func TestConsumedTimes(t *testing.T) {
	c := &consumer{Consumption: Consumption{Rate: 8 * units.Mbps, Onset: 3000, Slow: 800 * units.Kbps}}
	for _, x := range []struct {
		from, to units.Bytes
		want     time.Duration
	}{{0, 3000, 3 * time.Millisecond}, {0, 4000, 13 * time.Millisecond}, {2000, 4000, 11 * time.Millisecond}, {3000, 5000, 20 * time.Millisecond}, {10, 10, 0}} {
		if got := c.takes(x.from, x.to); got != x.want {
			t.Errorf("bytes %d to %d: %v, want %v", x.from, x.to, got, x.want)
		}
	}
	if c.done = 2990; c.chunk() != 10 {
		t.Errorf("before the onset, a chunk of %d bytes, want 10", c.chunk())
	}
	if c.done = 3000; c.chunk() != uint64(leastChunk) {
		t.Errorf("after the onset, a chunk of %d bytes, want %d", c.chunk(), leastChunk)
	}
}

// A local read runs at the lower of the rates of its disk and its attempt.
func TestExpectedLocalRead(t *testing.T) {
	const size = 2_000_000
	for _, x := range []struct {
		disk units.Rate
		rate Consumption
		want time.Duration
	}{
		{16 * units.Mbps, Consumption{Rate: 8 * units.Mbps}, 2 * time.Second},
		{8 * units.Mbps, Consumption{Rate: 16 * units.Mbps}, 2 * time.Second},
		{8 * units.Mbps, Consumption{}, 2 * time.Second},
		{16 * units.Mbps, Consumption{Rate: 8 * units.Mbps, Onset: 1_500_000, Slow: units.Mbps}, 5500 * time.Millisecond},
	} {
		o := hosts(1)
		o[0].ReadRate = x.disk
		inMemory(t, o, func(t *testing.T, n *memNet, c *cluster) {
			if err := c.agents[0].o.Disk.Store(3, size, false); err != nil {
				t.Fatal(err)
			}
			c.agents[0].Expect(10, x.rate, wire.Task{Job: 4})
			began := time.Now()
			if err := c.agents[0].ReadLocal(t.Context(), 10, 3, size); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); !about(took, x.want, 30*time.Millisecond) {
				t.Errorf("2 MB at %v, disk at %v, took %v, want %v", x.rate, x.disk, took, x.want)
			}
			if got := c.agents[0].Received(10).Arrived(); got != size || len(n.all()) > 0 {
				t.Errorf("%d bytes read, %d connections", got, len(n.all()))
			}
		})
	}
}

func TestCompute(t *testing.T) {
	for _, x := range []struct {
		name  string
		share []float64 // one for each half second
		want  time.Duration
	}{
		{"unloaded", nil, 2 * time.Second},
		{"half", []float64{0.5}, 4 * time.Second},
		{"half for a while", []float64{1, 0.5, 0.5, 1}, 2500 * time.Millisecond},
		{"least, then unloaded", []float64{0, 1}, 2495 * time.Millisecond},
	} {
		inMemory(t, hosts(1), func(t *testing.T, _ *memNet, c *cluster) {
			a := c.agents[0]
			time.Sleep(time.Second) // the clock of the processor does not begin with the attempt
			began := time.Now()
			done := make(chan error)
			attempt := a.Attempt(one)
			for i, s := range x.share {
				if i == 0 {
					a.SetCPU(s)
					continue
				}
				time.AfterFunc(time.Duration(i)*500*time.Millisecond, func() { a.SetCPU(s) })
			}
			go func() { done <- attempt.Compute(t.Context(), 2*time.Second) }()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); !about(took, x.want, time.Microsecond) {
				t.Errorf("%s: 2 s took %v, want %v", x.name, took, x.want)
			}
		})
	}
}

// files returns the names of the files of a disk.
func files(t *testing.T, d *disk.Disk) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(d.Path(0)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// An output is written at the rate of the disk and stays until it is dropped. No report counts it.
func TestSpill(t *testing.T) {
	o := hosts(1)
	o[0].Rate, o[0].Capacity = 8*units.Mbps, 3*units.MB
	inMemory(t, o, func(t *testing.T, _ *memNet, c *cluster) {
		a, d := c.agents[0], c.disks[0]
		began := time.Now()
		if err := a.Attempt(one).Spill(t.Context(), 2*units.MB, 0); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); !about(took, 2*time.Second, 20*time.Millisecond) {
			t.Errorf("2 MB at 1 MB/s took %v", took)
		}
		began = time.Now()
		if err := a.Attempt(other).Spill(t.Context(), 500*units.KB, units.Mbps); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); !about(took, 4*time.Second, 30*time.Millisecond) {
			t.Errorf("0.5 MB at 1 Mbps took %v", took)
		}
		if err := a.Attempt(other).Spill(t.Context(), units.MB, 0); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
		if u := a.o.Disk.Use(); u.Used != 0 || len(u.Begun)+len(u.Writing) > 0 {
			t.Errorf("the report has %+v, want nothing", u)
		}
		if got := files(t, d); len(got) != 2 || d.Used() != 2500*units.KB {
			t.Errorf("files %v of %v, want two of 2.5MB", got, d.Used())
		}
		if s := d.Stats(); s.Written != 2500*units.KB {
			t.Errorf("%v were written", s.Written)
		}
		a.DropOutputs(4)
		if got := files(t, d); len(got) != 1 || d.Used() != 500*units.KB {
			t.Errorf("files %v of %v, want that of job 5", got, d.Used())
		}
		a.StopAttempt(other)
		if got := files(t, d); len(got) > 0 || d.Used() > 0 {
			t.Errorf("files %v of %v are left", got, d.Used())
		}
	})
}

// However an attempt ends, and in whatever phase, nothing of it stays.
func TestAttemptEnds(t *testing.T) {
	phases := map[string]func(a *Agent, t *testing.T) error{
		"compute": func(a *Agent, t *testing.T) error { return a.Attempt(one).Compute(t.Context(), time.Hour) },
		"spill":   func(a *Agent, t *testing.T) error { return a.Attempt(one).Spill(t.Context(), 100*units.MB, 0) },
		"slow spill": func(a *Agent, t *testing.T) error {
			return a.Attempt(one).Spill(t.Context(), 100*units.MB, units.Mbps)
		},
		"spilled": func(a *Agent, t *testing.T) error {
			if err := a.Attempt(one).Spill(t.Context(), units.KB, 0); err != nil {
				return err
			}
			return a.Attempt(one).Compute(t.Context(), time.Hour)
		},
	}
	ends := map[string]struct {
		end  func(a *Agent)
		want error
	}{
		"stop":  {func(a *Agent) { a.StopAttempt(one) }, ErrStopped},
		"drop":  {func(a *Agent) { a.DropOutputs(one.Task.Job) }, ErrStopped},
		"crash": {(*Agent).Crash, ErrCrashed},
	}
	for phase, run := range phases {
		for end, x := range ends {
			t.Run(phase+"/"+end, func(t *testing.T) {
				o := hosts(1)
				o[0].Rate = 8 * units.Mbps
				inMemory(t, o, func(t *testing.T, _ *memNet, c *cluster) {
					a := c.agents[0]
					done := make(chan error)
					go func() { done <- run(a, t) }()
					time.Sleep(time.Second)
					x.end(a)
					if err := <-done; !errors.Is(err, x.want) {
						t.Errorf("%v, want %v", err, x.want)
					}
					if end == "crash" {
						if err := a.Return(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if got := files(t, c.disks[0]); len(got) > 0 || c.disks[0].Used() > 0 {
						t.Errorf("files %v of %v are left", got, c.disks[0].Used())
					}
				})
			})
		}
	}
}

// An attempt that was stopped before its operation began does not begin it.
func TestAttemptStoppedBefore(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, _ *memNet, c *cluster) {
		a := c.agents[0]
		attempt := a.Attempt(one)
		a.StopAttempt(one)
		if err := attempt.Spill(t.Context(), units.KB, 0); !errors.Is(err, ErrStopped) {
			t.Errorf("Spill = %v", err)
		}
		if err := attempt.Compute(t.Context(), 0); !errors.Is(err, ErrStopped) {
			t.Errorf("Compute = %v", err)
		}
		if got := files(t, c.disks[0]); len(got) > 0 {
			t.Errorf("files %v", got)
		}
	})
}

// A flow at a rate that ends in the middle leaves no connection, and its rate is forgotten.
func TestExpectedFlowEnds(t *testing.T) {
	for name, end := range map[string]func(c *cluster){
		"stop":  func(c *cluster) { c.agents[0].Stop(9); c.agents[1].Stop(9) },
		"crash": func(c *cluster) { c.agents[1].Crash(); c.agents[0].Stop(9) },
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
				c.agents[1].Expect(9, Consumption{Rate: 8 * units.Mbps}, wire.Task{Job: 4})
				c.agents[1].Expect(10, Consumption{Rate: 8 * units.Mbps}, wire.Task{Job: 4})
				c.agents[1].Stop(10)
				done := make(chan error)
				go func() { done <- c.agents[0].Send(t.Context(), flow(9, 100_000_000, pace.NoLimit)) }()
				time.Sleep(time.Second)
				end(c)
				if err := <-done; !errors.Is(err, ErrStopped) {
					t.Errorf("Send = %v", err)
				}
				synctest.Wait()
				received, problems := c.notes.get()
				if len(received)+len(problems) > 0 || len(c.agents[1].expected) > 0 || len(c.agents[1].current().conns) > 0 {
					t.Errorf("received %v, problems %v, expected %v, connections %v", received, problems, c.agents[1].expected, c.agents[1].current().conns)
				}
			})
		})
	}
}

// A block that is dropped leaves nothing, whether it is being written or complete, and is refused
// afterwards.
func TestDrop(t *testing.T) {
	for name, after := range map[string]time.Duration{"being written": 500 * time.Millisecond, "complete": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			o := hosts(4)
			for i := range o {
				o[i].Rate = 8 * units.Mbps
			}
			inMemory(t, o, func(t *testing.T, _ *memNet, c *cluster) {
				ctx, cancel := withEnd(t.Context(), c.agents[0].stopperOf(1).ctx)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- c.agents[0].Write(ctx, chain(2*units.MB, 16_000, 4, 1, 2, 3)) }()
				time.Sleep(after)
				c.agents[0].Stop(1)
				for _, a := range c.agents[1:] {
					a.Drop(3)
				}
				err := <-done
				if complete := name == "complete"; complete != (err == nil) || !complete && !errors.Is(err, ErrStopped) {
					t.Errorf("Write = %v", err)
				}
				synctest.Wait()
				for i, d := range c.disks {
					if got := files(t, d); len(got) > 0 || d.Used() > 0 {
						t.Errorf("host %d has the files %v of %v", i, got, d.Used())
					}
				}
				var w *WriteError
				if err := c.agents[0].Write(t.Context(), chain(units.MB, 16_000, 4, 1)); !errors.As(err, &w) {
					t.Errorf("Write again = %v, want a refusal", err)
				}
				if _, problems := c.notes.get(); len(problems) > 0 {
					t.Error(problems)
				}
			})
		})
	}
}

// A block that was complete before a crash is dropped after it, too.
func TestDropAfterReturn(t *testing.T) {
	inMemory(t, hosts(2), func(t *testing.T, _ *memNet, c *cluster) {
		if err := c.agents[0].Write(t.Context(), chain(units.MB, 16_000, 4, 1)); err != nil {
			t.Fatal(err)
		}
		c.agents[1].Crash()
		if err := c.agents[1].Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := files(t, c.disks[1]); len(got) != 1 {
			t.Fatalf("files %v", got)
		}
		for range 2 {
			c.agents[1].Drop(3)
		}
		if got := files(t, c.disks[1]); len(got) > 0 {
			t.Errorf("files %v", got)
		}
	})
}

// A mark of a task states the attempt, the name of its host and a reason.
func TestMarkTask(t *testing.T) {
	inMemory(t, hosts(1), func(t *testing.T, n *memNet, c *cluster) {
		m := wire.Task{Job: 4, Stage: 1, Index: 2, Attempt: 1, Moment: wire.AttemptStarted, Reduce: true, Locality: wire.RackLocal}
		if err := c.agents[0].MarkTask(m, true, 7, 1000, wire.Note{Why: "late"}); err != nil {
			t.Fatal(err)
		}
		h, err := wire.Parse(n.marks[0][1:])
		if want := (wire.Header{Kind: wire.KindTaskMark, Run: testRun, Group: 4, Parts: 7, Size: 1000, Read: true, Task: m, Sent: h.Sent}); err != nil || h != want {
			t.Errorf("%+v, %v, want %+v", h, err, want)
		}
		if note, err := wire.ParseNote(n.marks[0][1:]); err != nil || note != (wire.Note{Host: "h0", Why: "late"}) {
			t.Errorf("note %+v, %v", note, err)
		}
		if err := c.agents[0].MarkTask(m, true, -1, 0, wire.Note{}); err == nil {
			t.Error("a negative number of tasks is sent")
		}
		if err := c.agents[0].Mark(wire.KindTaskMark, 1, 1, 1, wire.Note{}); err == nil {
			t.Error("Mark sends a mark of a task")
		}
		if err := c.agents[0].Mark(wire.KindFlowStopped, 9, 5, 1, wire.Note{}); err != nil {
			t.Fatal(err)
		}
		if h, err := wire.Parse(n.marks[1][1:]); err != nil || h.Kind != wire.KindFlowStopped || h.Group != 5 || h.Member != 9 {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// Stored blocks are read at the rate of reads, count as replicas and take no space of the file system.
func TestStoredBlock(t *testing.T) {
	const size = 2*units.GB + 1000
	o := hosts(2)
	o[1].ReadRate, o[1].Capacity = 8*units.Gbps, 3*units.GB
	inMemory(t, o, func(t *testing.T, n *memNet, c *cluster) {
		d := c.agents[1].o.Disk
		if err := d.Store(3, size, false); err != nil {
			t.Fatal(err)
		}
		if err := d.Store(3, 1, false); err == nil {
			t.Error("a block is stored twice")
		}
		if err := d.Store(4, units.GB, false); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("on a full disk: %v", err)
		}
		if u := d.Use(); u.Used != size || len(u.Begun)+len(u.Writing) > 0 {
			t.Errorf("report %+v, want %v", u, size)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(c.disks[1].Path(workloads.BlockID(3)), &st); err != nil || st.Size != int64(size) || st.Blocks*512 > 1<<20 {
			t.Errorf("file of %d bytes on %d, %v", st.Size, st.Blocks*512, err)
		}
		if err := d.Store(5, 20_000_000, false); err != nil {
			t.Fatal(err)
		}
		five, began := workloads.BlockID(5), time.Now()
		read := readOf(20_000_000, pace.NoLimit)
		read.Read, read.Task = &five, task
		if err := c.agents[1].Send(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); !about(took, 20*time.Millisecond, 4*time.Millisecond) {
			t.Errorf("20 MB at 1 GB/s took %v", took)
		}
	})
}
