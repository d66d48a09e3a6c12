// Package pace holds flows to their ceilings. All flows of a process share one
// tick, because a timer for each of them would cost more than sending does: on a
// virtual machine a timer takes 15 to 30 µs.
//
// A paced flow earns credit at its ceiling by the time that really passes, so a
// late tick delays bytes and loses none. It may write when it has credit for one
// chunk, and then writes all the whole chunks it has credit for. Credit is
// bounded, so a flow that could not send for a while does not burst.
//
// It does not write to sockets, and does not know what the network leaves of a
// ceiling.
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
	// writes about r × Quantum at a time, or a chunk where that is more.
	Quantum time.Duration
	// Burst bounds the credit of a flow: what its ceiling earns in Burst, and one
	// chunk. It is also how late a tick may be before a flow loses rate. By
	// default it is four quanta.
	Burst time.Duration
	// Chunk is the least a flow with more to send writes at once, by default
	// 1448 bytes: the payload of a TCP segment on a link with an MTU of 1500.
	Chunk units.Bytes
}

// Pacer is the tick that flows share. Its methods, and those of its Ceilings,
// may be called from any goroutine.
type Pacer struct {
	quantum, burst time.Duration
	chunk          units.Bytes
	origin         time.Time

	mu      sync.Mutex
	waiting []*Ceiling    // those that will earn what they wait for
	wakeAt  time.Duration // the next tick, or never
	poke    chan struct{} // tells Run that wakeAt is too late
	done    chan struct{} // closed when Run ends
}

const never time.Duration = 1<<63 - 1

// New is a Pacer whose tick is not running yet: see Run.
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

// Quantum is the time between ticks.
func (p *Pacer) Quantum() time.Duration { return p.quantum }

// ErrStopped is what Take returns once Run has ended.
var ErrStopped = errors.New("pacing has stopped")

// Run ticks until ctx is cancelled and returns its cause; every Take then ends
// with ErrStopped. It sleeps while no paced flow waits, and through ticks at
// which none would have credit. It can run once.
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

// tick is the first tick at or after d.
func (p *Pacer) tick(d time.Duration) time.Duration {
	if d > never-p.quantum {
		return never
	}
	return (d + p.quantum - 1) / p.quantum * p.quantum
}

// release wakes the flows that have credit and returns the next tick that is
// needed. p.mu is held.
func (p *Pacer) release(now time.Duration) time.Duration {
	earliest := never
	for i := 0; i < len(p.waiting); {
		c := p.waiting[i]
		if due := c.due(); due > now {
			earliest = min(earliest, due)
			i++
			continue
		}
		c.wake()                        // puts another in its place
		earliest = min(earliest, now+1) // it will be back by the next tick
	}
	if earliest == never {
		return never
	}
	return max(p.tick(earliest), p.tick(now+1))
}

// Ceiling is the most that one flow may send. One goroutine at a time may Take.
type Ceiling struct {
	p *Pacer

	// All below is guarded by p.mu.
	rate  units.Rate
	since time.Duration // when the credit was 0, where 0 < rate < NoLimit
	age   time.Duration // the most that since may lie back
	saved units.Bytes   // the credit kept through a pause or NoLimit

	waits bool          // in a Take
	at    int           // place in p.waiting, or -1
	need  units.Bytes   // credit that the Take waits for
	ready chan struct{} // holds one
}

// Ceiling is a new ceiling: 0 pauses, NoLimit frees. Its flow starts with credit
// for one chunk, so that the first packet need not wait.
func (p *Pacer) Ceiling(rate units.Rate) *Ceiling {
	c := &Ceiling{p: p, saved: p.chunk, at: -1, ready: make(chan struct{}, 1)}
	c.Set(rate)
	return c
}

func (c *Ceiling) paced() bool { return c.rate > 0 && c.rate < NoLimit }

// Set changes the ceiling at once: what was earned so far was earned at the old
// rate. A rate of 0 (or less) pauses: no Take succeeds after Set has returned.
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
		c.age = c.p.burst + rate.TimeToSend(c.p.chunk)
		c.since = now - rate.TimeToSend(credit)
	} else if c.saved = credit; rate == NoLimit {
		c.saved = min(credit, c.p.chunk)
	}
	if c.waits {
		c.again(now)
	}
}

// again is for a Take that waits when the ceiling has changed: it is woken if it may
// send now, and not to find out that it may not. p.mu is held.
func (c *Ceiling) again(now time.Duration) {
	switch {
	case c.rate == NoLimit || c.paced() && c.credit(now) >= c.need:
		c.wake()
	case c.paced():
		c.follow()
	default:
		c.leave()
	}
}

// Rate is the ceiling as last set.
func (c *Ceiling) Rate() units.Rate {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return c.rate
}

// credit is what may be sent now. It forgets what is too old.
func (c *Ceiling) credit(now time.Duration) units.Bytes {
	if !c.paced() {
		return c.saved
	}
	c.since = max(c.since, now-c.age)
	return c.rate.BytesIn(now - c.since)
}

// due is when the credit reaches what the Take waits for.
func (c *Ceiling) due() time.Duration { return c.since + c.rate.TimeToSend(c.need) }

// Open waits until the ceiling is above 0.
func (c *Ceiling) Open(ctx context.Context) error {
	_, err := c.Take(ctx, 0)
	return err
}

// Take waits until the flow may send, and returns how many of the want bytes it
// may send now: all of them under NoLimit, else as many whole chunks as there is
// credit for, or all that are wanted. The bytes are spent; see Refund. It returns
// the cause of ctx when that ends, or ErrStopped.
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

// cancel ends the wait of c from the waiter's side.
func (c *Ceiling) cancel() {
	c.p.mu.Lock()
	if c.waits {
		c.wake()
	}
	c.p.mu.Unlock()
	<-c.ready
}

// spend takes what credit there is for want. p.mu is held.
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

// wait puts c among those that the tick looks at; a paused flow waits for Set
// alone. p.mu is held.
func (c *Ceiling) wait(want units.Bytes) {
	c.waits, c.need = true, min(want, c.p.chunk)
	if c.paced() {
		c.follow()
	}
}

// follow puts c among the waiting, where it is not yet, and sees to the tick at which
// it has its credit. p.mu is held.
func (c *Ceiling) follow() {
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

// leave takes c from the waiting, where it is among them. p.mu is held.
func (c *Ceiling) leave() {
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

// wake ends the wait of c. p.mu is held.
func (c *Ceiling) wake() {
	c.leave()
	c.waits = false
	c.ready <- struct{}{}
}

// Refund gives back n bytes of a Take that were not sent after all.
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
