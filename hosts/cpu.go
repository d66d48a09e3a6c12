package hosts

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultCPUPeriod is the default period of SetCPU, the same as for CFS quotas in
// the kernel.
const DefaultCPUPeriod = 100 * time.Millisecond

// MinCPUShare is the minimum share of the processor: every host makes progress.
const MinCPUShare = 0.01

// cpu is the processor of a host: work may start only in the first part of each period. For emulated
// computation it has a clock of the work that it has done, whose speed is the share.
type cpu struct {
	period time.Duration
	yield  func() // Options.Yield
	since  time.Time
	share  atomic.Uint64 // math.Float64bits; 0 means unlimited

	mu      sync.Mutex // guards all below, and changes of share
	at      time.Time  // of the latest change
	done    time.Duration
	changed chan struct{} // closed by the next change
}

func newCPU(period time.Duration, yield func()) *cpu {
	now := time.Now()
	return &cpu{period: period, yield: yield, since: now, at: now, changed: make(chan struct{})}
}

// SetCPU limits the agent's reads, writes and disk work to a share of each period
// (Options.CPUPeriod), from MinCPUShare to 1, like a CFS quota: the host becomes a straggler. Operations
// start only within that share. The share is also the speed of computation (Attempt.Compute) and of
// the consumption of input (Agent.Expect). The default is 1. Values out of range are clamped; NaN means the
// minimum.
func (a *Agent) SetCPU(share float64) {
	if !(share >= MinCPUShare) { // also true for NaN
		share = MinCPUShare
	}
	bits := uint64(0)
	if share < 1 {
		bits = math.Float64bits(share)
	}
	c := a.cpu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done, c.at = c.doneBy(time.Now()), time.Now()
	c.share.Store(bits)
	close(c.changed)
	c.changed = make(chan struct{})
}

// speed returns the share of the processor.
func (c *cpu) speed() float64 {
	if bits := c.share.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// doneBy returns the work done by a time that is not before the latest change. The caller holds c.mu.
func (c *cpu) doneBy(now time.Time) time.Duration {
	return c.done + time.Duration(c.speed()*float64(now.Sub(c.at)))
}

// worked returns the work done so far.
func (c *cpu) worked() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doneBy(time.Now())
}

// work waits until the work done reaches a value. If ctx ends first, it returns the cause of ctx.
func (c *cpu) work(ctx context.Context, until time.Duration) error {
	for {
		c.mu.Lock()
		left, changed := float64(until-c.doneBy(time.Now()))/c.speed(), c.changed
		c.mu.Unlock()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(time.Duration(min(math.Ceil(left), float64(math.MaxInt64/2))))
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// turn lets others run first, and waits until work may start, at most one period. If ctx ends first, it returns
// the cause of ctx.
func (c *cpu) turn(ctx context.Context) error {
	c.yield()
	for {
		share := c.share.Load()
		if share == 0 {
			return nil
		}
		at := time.Since(c.since) % c.period
		if at < time.Duration(math.Float64frombits(share)*float64(c.period)) {
			return nil
		}
		timer := time.NewTimer(c.period - at)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
