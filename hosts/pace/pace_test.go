package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/topo/units"
)

// run runs f with a Pacer on a fake clock.
func run(t *testing.T, o Options, f func(ctx context.Context, p *Pacer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New(o)
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		f(ctx, p)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want %v", err, context.Canceled)
		}
	})
}

// send takes size bytes from c and returns the time taken.
func send(t *testing.T, ctx context.Context, c *Ceiling, size units.Bytes) time.Duration {
	t.Helper()
	start := time.Now()
	for size > 0 {
		n, err := c.Take(ctx, min(size, 256*units.KiB))
		if err != nil {
			t.Errorf("Take: %v", err)
			return 0
		}
		size -= n
	}
	return time.Since(start)
}

func TestRateOverSeconds(t *testing.T) {
	for _, rate := range []units.Rate{100 * units.Kbps, 1 * units.Mbps, 9_999_999, 100 * units.Mbps, 1 * units.Gbps, 10 * units.Gbps} {
		t.Run(rate.String(), func(t *testing.T) {
			run(t, Options{}, func(ctx context.Context, p *Pacer) {
				size := rate.BytesIn(2 * time.Second)
				got := send(t, ctx, p.Ceiling(rate), size)
				// The first chunk is on credit; the last waits for a tick.
				lo := rate.TimeToSend(size - 1448)
				if hi := rate.TimeToSend(size) + p.quantum; got < lo || got > hi {
					t.Errorf("%v at %v took %v, want %v to %v", size, rate, got, lo, hi)
				}
				if got < 1980*time.Millisecond && rate > units.Mbps || got > 2020*time.Millisecond {
					t.Errorf("%v at %v took %v, want 2s within 1%%", size, rate, got)
				}
			})
		})
	}
}

func TestGrantIsWholeChunks(t *testing.T) {
	run(t, Options{Chunk: 1000}, func(ctx context.Context, p *Pacer) {
		c := p.Ceiling(8 * units.Mbps) // 5000 bytes per quantum
		var got []units.Bytes
		for range 4 {
			n, err := c.Take(ctx, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		if want := "[1000 5000 5000 5000]"; fmt.Sprintf("%d", got) != want {
			t.Errorf("grants are %d, want %s", got, want)
		}
		if n, err := c.Take(ctx, 1); n != 1 || err != nil {
			t.Errorf("Take(1) = %d, %v, want 1", n, err)
		}
	})
}

func TestLowRatesShareFairly(t *testing.T) {
	const flows = 300
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		stop, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		sent := make([]units.Bytes, flows)
		for i := range flows {
			wg.Go(func() {
				c := p.Ceiling(300 * units.Kbps)
				for {
					n, err := c.Take(stop, 1<<20)
					if err != nil {
						return
					}
					sent[i] += n
				}
			})
		}
		wg.Wait()
		want := (300 * units.Kbps).BytesIn(4 * time.Second)
		for i, n := range sent {
			if n < want-2*1448 || n > want+1448 {
				t.Errorf("flow %d sent %d, want %d within two chunks", i, n, want)
			}
		}
	})
}

func TestLateTickLosesNothing(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		const rate = 80 * units.Mbps
		c := p.Ceiling(rate)
		start := time.Now()
		var sent units.Bytes
		for time.Since(start) < 2*time.Second {
			time.Sleep(time.Duration(rand.IntN(18)) * time.Millisecond) // simulates a flow that is not scheduled
			n, err := c.Take(ctx, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		want := rate.BytesIn(time.Since(start))
		if sent < want*99/100 || sent > want+1448 {
			t.Errorf("sent %d, want %d within 1%%", sent, want)
		}
	})
}

func TestIdleFlowDoesNotBurst(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		const rate = 80 * units.Mbps
		c := p.Ceiling(rate)
		time.Sleep(time.Minute)
		n, err := c.Take(ctx, 1<<30)
		if most := rate.BytesIn(20*time.Millisecond) + 1448; err != nil || n > most {
			t.Errorf("Take after a minute = %d, %v, want at most %d", n, err, most)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		c := p.Ceiling(0)
		var mu sync.Mutex
		var sent units.Bytes
		count := func() units.Bytes { mu.Lock(); defer mu.Unlock(); return sent }
		stop, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				n, err := c.Take(stop, 256*units.KiB)
				if err != nil {
					return
				}
				mu.Lock()
				sent += n
				mu.Unlock()
				if c.Rate() == NoLimit {
					time.Sleep(time.Millisecond) // simulates the rate of the socket
				}
			}
		}()
		time.Sleep(time.Hour)
		if n := count(); n != 0 {
			t.Errorf("at ceiling 0 sent %d", n)
		}
		c.Set(8 * units.Mbps)
		time.Sleep(time.Second)
		if n := count(); n < 990_000 || n > 1_001_448 {
			t.Errorf("in a second at 8Mbps sent %d, want 1000000 within 1%%", n)
		}
		c.Set(0)
		before := count()
		time.Sleep(time.Hour)
		if n := count(); n != before {
			t.Errorf("paused, sent %d", n-before)
		}
		c.Set(NoLimit)
		time.Sleep(10 * time.Millisecond)
		if n := count() - before; n < 9*256*units.KiB {
			t.Errorf("at NoLimit sent %d in 10 ms", n)
		}
		c.Set(80 * units.Kbps)
		time.Sleep(2 * time.Millisecond) // the last unlimited write ends
		before = count()
		time.Sleep(10 * time.Second)
		if n := count() - before; n < 97_000 || n > 101_448 {
			t.Errorf("in 10 s at 80Kbps sent %d, want 100000", n)
		}
		cancel()
		<-done
	})
}

// A ceiling that changes constantly admits the integral of its rate.
func TestChangingCeiling(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		c := p.Ceiling(0)
		stop, cancel := context.WithCancel(ctx)
		sent := make(chan units.Bytes)
		go func() {
			var n units.Bytes
			for {
				got, err := c.Take(stop, 256*units.KiB)
				if err != nil {
					sent <- n
					return
				}
				n += got
			}
		}()
		rng := rand.New(rand.NewPCG(1, 2))
		var want units.Bytes
		for range 5000 {
			rate := units.Rate(rng.IntN(20)) * units.Mbps
			step := time.Duration(rng.IntN(int(4 * time.Millisecond)))
			c.Set(rate)
			time.Sleep(step)
			want += rate.BytesIn(step)
		}
		c.Set(0)
		cancel()
		if got := <-sent; got < want*99/100 || got > want+1448 {
			t.Errorf("sent %d, want %d within 1%%", got, want)
		}
	})
}

// A change of the ceiling wakes a waiting flow only if it may then send: a policy decision may
// change hundreds of ceilings without allowing any flow to send. A flow that is woken and waits
// again moves to the end of the waiting flows.
func TestChangeWakesOnlyWhoMaySend(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		first, other := p.Ceiling(1*units.Mbps), p.Ceiling(1*units.Mbps)
		stop, cancel := context.WithCancel(ctx)
		var ends sync.WaitGroup
		var sent atomic.Int64
		for _, c := range []*Ceiling{first, other} {
			ends.Go(func() {
				for {
					n, err := c.Take(stop, units.MB)
					if err != nil {
						return
					}
					if c == first {
						sent.Add(int64(n))
					}
				}
			})
			synctest.Wait() // the chunk on credit is spent
		}
		before := sent.Load()
		waiting := func() []*Ceiling {
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.waiting)
		}
		for _, rate := range []units.Rate{2 * units.Mbps, 500 * units.Kbps, 3 * units.Mbps} {
			first.Set(rate)
			if got := waiting(); len(got) != 2 || got[0] != first {
				t.Errorf("at %v it was woken, with no credit", rate)
			}
		}
		first.Set(0)
		if got := waiting(); len(got) != 1 || got[0] != other {
			t.Errorf("paused, %d wait for a tick, want the other", len(got))
		}
		first.Set(1 * units.Mbps)
		if got := waiting(); len(got) != 2 || got[1] != first {
			t.Errorf("paced again, %d wait for a tick, want both", len(got))
		}
		if n := sent.Load() - before; n != 0 {
			t.Errorf("sent %d in no time", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n := sent.Load() - before; n < 11_000 || n > 12_500 {
			t.Errorf("sent %d in 100 ms at 1Mbps, want 12500", n)
		}
		cancel()
		ends.Wait()
	})
}

func TestRefund(t *testing.T) {
	run(t, Options{Chunk: 1000}, func(ctx context.Context, p *Pacer) {
		c := p.Ceiling(8 * units.Kbps)
		if n, err := c.Take(ctx, 1000); n != 1000 || err != nil {
			t.Fatalf("Take = %d, %v", n, err)
		}
		c.Refund(1000)
		start := time.Now()
		if n, err := c.Take(ctx, 1000); n != 1000 || err != nil || time.Since(start) != 0 {
			t.Errorf("Take after a refund = %d, %v after %v, want 1000 at once", n, err, time.Since(start))
		}
	})
}

func TestTakeEnds(t *testing.T) {
	cause := errors.New("enough")
	for _, rate := range []units.Rate{0, 1} {
		run(t, Options{}, func(ctx context.Context, p *Pacer) {
			c := p.Ceiling(rate)
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			if _, err := c.Take(ctx, 1<<20); rate > 0 && err != nil { // the first chunk
				t.Errorf("first Take: %v", err)
			} else if rate == 0 && !errors.Is(err, cause) {
				t.Errorf("Take = %v, want %v", err, cause)
			}
			if _, err := c.Take(ctx, 1<<20); !errors.Is(err, cause) {
				t.Errorf("Take = %v, want %v", err, cause)
			}
			if len(p.waiting) != 0 {
				t.Errorf("%d flows still wait", len(p.waiting))
			}
		})
	}
}

func TestTakeEndsWithRun(t *testing.T) {
	for _, rate := range []units.Rate{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := New(Options{})
			c := p.Ceiling(rate)
			done := make(chan error)
			go func() {
				for {
					if _, err := c.Take(context.Background(), 1<<20); err != nil {
						done <- err
						return
					}
				}
			}()
			go p.Run(ctx)
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, ErrStopped) {
				t.Errorf("Take = %v, want %v", err, ErrStopped)
			}
		})
	}
}

// The tick does not run for flows that are paused, unlimited or finished.
func TestTickSleeps(t *testing.T) {
	run(t, Options{}, func(ctx context.Context, p *Pacer) {
		p.Ceiling(units.Mbps)
		send(t, ctx, p.Ceiling(NoLimit), 1<<20)
		send(t, ctx, p.Ceiling(units.Mbps), 20_000)
		time.Sleep(time.Second)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wakeAt != never {
			t.Errorf("with nobody waiting the next tick is at %v", p.wakeAt)
		}
	})
}

// BenchmarkTick measures one tick over flows that all have credit, without waking them.
func BenchmarkTick(b *testing.B) {
	for _, flows := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			p := New(Options{})
			all := make([]*Ceiling, flows)
			for i := range all {
				all[i] = p.Ceiling(10 * units.Mbps)
				all[i].since = 0
			}
			b.ReportAllocs()
			var now time.Duration
			for b.Loop() {
				now += p.quantum
				for _, c := range all {
					if !c.waits {
						c.since = now - p.quantum
						c.wait(1 << 20)
					}
				}
				select {
				case <-p.poke:
				default:
				}
				p.release(now)
				for _, c := range all {
					<-c.ready
				}
			}
		})
	}
}

// BenchmarkFlows measures the total cost of pacing: an operation is one second of flows at 1 Mb/s
// that send nothing. Run it with -benchtime 1x.
func BenchmarkFlows(b *testing.B) {
	for _, flows := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			p := New(Options{})
			var wg sync.WaitGroup
			wg.Go(func() { p.Run(ctx) })
			var grants atomic.Int64
			start := processorTime()
			for b.Loop() {
				stop, end := context.WithTimeout(ctx, time.Second)
				var second sync.WaitGroup
				for range flows {
					second.Go(func() {
						c := p.Ceiling(units.Mbps)
						for {
							if _, err := c.Take(stop, 1<<20); err != nil {
								return
							}
							grants.Add(1)
						}
					})
				}
				second.Wait()
				end()
			}
			spent := processorTime() - start
			cancel()
			wg.Wait()
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(grants.Load())/float64(b.N), "grants/op")
		})
	}
}

// On the real clock and timers. The bound is wide, because other processes use the machine too; the
// log has the figure.
func TestRateInRealTime(t *testing.T) {
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		ctx, cancel := context.WithCancel(t.Context())
		p := New(Options{})
		var tick, flows sync.WaitGroup
		tick.Go(func() { p.Run(ctx) })
		const rate, size = 2 * units.Mbps, 250_000
		took := make([]time.Duration, 50)
		for i := range took {
			flows.Go(func() {
				start := time.Now() // before the ceiling earns credit
				send(t, ctx, p.Ceiling(rate), size)
				took[i] = time.Since(start)
			})
		}
		flows.Wait()
		cancel()
		tick.Wait()
		fastest, slowest := slices.Min(took), slices.Max(took)
		t.Logf("%d flows of %d bytes at %v took %v to %v, want 1s", len(took), size, rate, fastest, slowest)
		if fastest < rate.TimeToSend(size-1448) {
			t.Error("that is too fast")
		}
		return slowest <= 1300*time.Millisecond
	})
}
