package hosts

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// DefaultCPUPeriod is the default period of SetCPU, the same as for CFS quotas in
// the kernel.
const DefaultCPUPeriod = 100 * time.Millisecond

// minShare is the minimum share of the processor: every host makes progress.
const minShare = 0.01

// cpu is the processor of a host: work may start only in the first part of each period.
type cpu struct {
	period time.Duration
	since  time.Time
	share  atomic.Uint64 // math.Float64bits; 0 means unlimited
}

// SetCPU limits the agent's reads, writes and disk work to a share of each period
// (Options.CPUPeriod), from 0.01 to 1, like a CFS quota: the host becomes a straggler. Operations
// start only within that share. The default is 1. Values out of range are clamped; NaN means the
// minimum.
func (a *Agent) SetCPU(share float64) {
	if !(share >= minShare) { // also true for NaN
		share = minShare
	}
	if share >= 1 {
		a.cpu.share.Store(0)
		return
	}
	a.cpu.share.Store(math.Float64bits(share))
}

// turn waits until work may start, at most one period. If ctx ends first, it returns the cause of
// ctx.
func (c *cpu) turn(ctx context.Context) error {
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
