// Package pace limits the rates of flows to their ceilings. All flows of a process share one tick,
// because a timer per flow would cost more than sending: on a virtual machine a timer takes 15 to
// 30 µs.
//
// A paced flow earns credit at its ceiling over the time that actually passes, so a late tick
// delays bytes but loses none. It may write when it has credit for one chunk, and then writes all
// whole chunks that its credit covers. Credit is bounded, so a flow that could not send for a while
// does not burst.
//
// The package does not write to sockets, and does not know the bandwidth that the network gives to
// a flow.
package pace

import (
	"context"
	"errors"
	"sync"
	"time"

	"testbed/topo/units"
)

// NoLimit is the ceiling of a flow that is not paced.
const NoLimit = units.MaxRate

// Options are the settings of a Pacer; a field that is 0 takes its default.
type Options struct {
	// Quantum is the time between ticks, by default 5 ms. A flow of rate r
	// writes about r × Quantum at a time, or a chunk if that is more.
	Quantum time.Duration
	// Burst bounds the credit of a flow to Burst at its ceiling plus one chunk. It is
	// also the maximum delay of a tick at which a flow loses no rate. The default is
	// four quanta.
	Burst time.Duration
	// Chunk is the minimum write of a flow that has more to send, by default 1448
	// bytes: the payload of a TCP segment on a link with an MTU of 1500.
	Chunk units.Bytes
}

// Pacer runs the tick that flows share. Its methods, and those of its Ceilings, may
// be called from any goroutine.
type Pacer struct {
	quantum, burst time.Duration
	chunk          units.Bytes
	origin         time.Time

	mu      sync.Mutex
	waiting []*Ceiling    // ceilings that wait for credit
	wakeAt  time.Duration // the next tick, or never
	poke    chan struct{} // wakes Run when wakeAt is too late
	done    chan struct{} // closed when Run ends
}

const never time.Duration = 1<<63 - 1

// New returns a Pacer whose tick is not running yet: see Run.
func New(o Options) *Pacer {
	if o.Quantum <= 0 {
		o.Quantum = 5 * time.Millisecond
	}
	if o.Burst <= 0 {
		o.Burst = 4 * o.Quantum
	}
	if o.Chunk <= 0 {
		o.Chunk = 1448
	}
	return &Pacer{
		quantum: o.Quantum, burst: o.Burst, chunk: o.Chunk,
		origin: time.Now(), wakeAt: never, poke: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Quantum returns the time between ticks.
func (p *Pacer) Quantum() time.Duration { return p.quantum }

// ErrStopped is the error of Take once Run has ended.
var ErrStopped = errors.New("pacing has stopped")

// Run ticks until ctx is cancelled and returns its cause; every Take then ends
// with ErrStopped. It skips ticks at which no waiting flow has credit, and sleeps
// while no paced flow waits. Run may be called once.
func (p *Pacer) Run(ctx context.Context) error {
	defer close(p.done)
	timer := time.NewTimer(p.quantum)
	defer timer.Stop()
	for {
		p.mu.Lock()
		now := p.now()
		p.wakeAt = p.release(now)
		next := p.wakeAt
		p.mu.Unlock()
		if next == never {
			timer.Stop()
		} else {
			timer.Reset(next - now)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.poke:
		case <-timer.C:
		}
	}
}

func (p *Pacer) now() time.Duration { return time.Since(p.origin) }

// tick returns the time of the first tick at or after d.
func (p *Pacer) tick(d time.Duration) time.Duration {
	if d > never-p.quantum {
		return never
	}
	return (d + p.quantum - 1) / p.quantum * p.quantum
}

// release wakes the flows that have credit and returns the next tick that is
// needed. The caller holds p.mu.
func (p *Pacer) release(now time.Duration) time.Duration {
	earliest := never
	for i := 0; i < len(p.waiting); {
		c := p.waiting[i]
		if due := c.due(); due > now {
			earliest = min(earliest, due)
			i++
			continue
		}
		c.wake()                        // the last ceiling moves to index i
		earliest = min(earliest, now+1) // its flow waits again by the next tick
	}
	if earliest == never {
		return never
	}
	return max(p.tick(earliest), p.tick(now+1))
}

// Ceiling is the rate cap of one flow. Only one goroutine at a time may call Take.
type Ceiling struct {
	p *Pacer

	// All below is guarded by p.mu.
	rate   units.Rate
	since  time.Duration // time at which the credit was 0, if 0 < rate < NoLimit
	maxAge time.Duration // of since
	saved  units.Bytes   // the credit kept during a pause or NoLimit

	waits bool          // a Take is waiting
	at    int           // index in p.waiting, or -1
	need  units.Bytes   // credit that the Take waits for
	ready chan struct{} // buffered: 1
}

// Ceiling returns a new ceiling: 0 pauses, NoLimit is unlimited. Its flow starts with
// credit for one chunk, so that the first packet is sent at once.
func (p *Pacer) Ceiling(rate units.Rate) *Ceiling {
	c := &Ceiling{p: p, saved: p.chunk, at: -1, ready: make(chan struct{}, 1)}
	c.Set(rate)
	return c
}

func (c *Ceiling) paced() bool { return c.rate > 0 && c.rate < NoLimit }

// Set changes the ceiling at once; credit until now is earned at the old rate. A rate
// of 0 or less pauses: no Take succeeds after Set has returned.
func (c *Ceiling) Set(rate units.Rate) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	rate = max(rate, 0)
	if rate == c.rate {
		return
	}
	now := c.p.now()
	credit := c.credit(now)
	c.rate = rate
	if c.paced() {
		c.maxAge = c.p.burst + rate.TimeToSend(c.p.chunk)
		c.since = now - rate.TimeToSend(credit)
	} else if c.saved = credit; rate == NoLimit {
		c.saved = min(credit, c.p.chunk)
	}
	if c.waits {
		c.update(now)
	}
}

// update re-evaluates a waiting Take after a change of the ceiling. It wakes the Take only if the
// flow may send now. The caller holds p.mu.
func (c *Ceiling) update(now time.Duration) {
	switch {
	case c.rate == NoLimit || c.paced() && c.credit(now) >= c.need:
		c.wake()
	case c.paced():
		c.enqueue()
	default:
		c.dequeue()
	}
}

// Rate returns the current ceiling.
func (c *Ceiling) Rate() units.Rate {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.rate
}

// credit returns the bytes that may be sent now. It drops credit older than c.maxAge.
func (c *Ceiling) credit(now time.Duration) units.Bytes {
	if !c.paced() {
		return c.saved
	}
	c.since = max(c.since, now-c.maxAge)
	return c.rate.BytesIn(now - c.since)
}

// due returns the time at which the credit reaches c.need.
func (c *Ceiling) due() time.Duration { return c.since + c.rate.TimeToSend(c.need) }

// Open waits until the ceiling is above 0.
func (c *Ceiling) Open(ctx context.Context) error {
	_, err := c.Take(ctx, 0)
	return err
}

// Take waits until the flow may send, and returns the number of bytes, at most want,
// that it may send now: want under NoLimit or with credit for all of them, otherwise
// the whole chunks that its credit covers. Their credit is spent; see Refund. Take
// returns the cause of ctx when ctx ends, and ErrStopped once Run has ended.
func (c *Ceiling) Take(ctx context.Context, want units.Bytes) (units.Bytes, error) {
	p := c.p
	for {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		select {
		case <-p.done:
			return 0, ErrStopped
		default:
		}
		p.mu.Lock()
		if n, ok := c.spend(want); ok {
			p.mu.Unlock()
			return n, nil
		}
		c.wait(want)
		p.mu.Unlock()
		select {
		case <-c.ready:
		case <-ctx.Done():
			c.cancel()
		case <-p.done:
			c.cancel()
		}
	}
}

// cancel ends the wait of c on behalf of the waiting goroutine.
func (c *Ceiling) cancel() {
	c.p.mu.Lock()
	if c.waits {
		c.wake()
	}
	c.p.mu.Unlock()
	<-c.ready
}

// spend takes the available credit for want bytes. The caller holds p.mu.
func (c *Ceiling) spend(want units.Bytes) (units.Bytes, bool) {
	switch c.rate {
	case 0:
		return 0, false
	case NoLimit:
		return want, true
	}
	n := c.credit(c.p.now())
	if n < min(want, c.p.chunk) {
		return 0, false
	}
	if n >= want {
		n = want
	} else {
		n -= n % c.p.chunk
	}
	c.since += c.rate.TimeToSend(n)
	return n, true
}

// wait registers a waiting Take. A tick ends the wait of a paced flow; only Set ends that of a
// paused one. The caller holds p.mu.
func (c *Ceiling) wait(want units.Bytes) {
	c.waits, c.need = true, min(want, c.p.chunk)
	if c.paced() {
		c.enqueue()
	}
}

// enqueue adds c to p.waiting if it is not there, and wakes Run if c needs an earlier tick. The
// caller holds p.mu.
func (c *Ceiling) enqueue() {
	p := c.p
	if c.at < 0 {
		c.at = len(p.waiting)
		p.waiting = append(p.waiting, c)
	}
	if p.tick(c.due()) < p.wakeAt {
		select {
		case p.poke <- struct{}{}:
		default:
		}
	}
}

// dequeue removes c from p.waiting if it is there. The caller holds p.mu.
func (c *Ceiling) dequeue() {
	if c.at < 0 {
		return
	}
	last := len(c.p.waiting) - 1
	moved := c.p.waiting[last]
	c.p.waiting[c.at] = moved
	moved.at = c.at
	c.p.waiting[last] = nil
	c.p.waiting = c.p.waiting[:last]
	c.at = -1
}

// wake ends the wait of c. The caller holds p.mu.
func (c *Ceiling) wake() {
	c.dequeue()
	c.waits = false
	c.ready <- struct{}{}
}

// Refund returns the credit for n bytes of a Take that were not sent.
func (c *Ceiling) Refund(n units.Bytes) {
	if n <= 0 {
		return
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.paced() {
		c.since -= c.rate.TimeToSend(n)
	} else if c.rate == 0 {
		c.saved += n
	}
}
