package hosts

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// DefaultCPUPeriod is the period of SetCPU, that of the kernel's CFS quota.
const DefaultCPUPeriod = 100 * time.Millisecond

// minShare is the least share of the processor: nobody stops for good.
const minShare = 0.01

// cpu is the processor of a host: work may begin in the first part of each
// period.
type cpu struct {
	period time.Duration
	since  time.Time
	share  atomic.Uint64 // math.Float64bits; 0 is all
}

// SetCPU gives the agent a share of each period (Options.CPUPeriod), of 0.01 to
// 1, in which its reads, writes and disk work may begin, as a quota of CFS does to
// a process: it makes the host a straggler. 1 gives it all, as at the start;
// shares outside, and NaN, are taken for the nearest and for the least.
func (a *Agent) SetCPU(share float64) {
	if !(share >= minShare) { // NaN too
		share = minShare
	}
	if share >= 1 {
		a.cpu.share.Store(0)
		return
	}
	a.cpu.share.Store(math.Float64bits(share))
}

// turn waits, at most a period, until work may begin. It returns the cause of ctx
// when that ends first.
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
