package fluid

import (
	"math"

	"testbed/topo"
	"testbed/topo/units"
)

// share computes the rates from the current time on.
func (b *Backend) share() {
	b.shares.update(b.changed, b.freed)
	for _, c := range b.shares.part {
		for _, f := range c.members {
			b.setRate(f, c.rate)
		}
	}
	for _, f := range b.moved {
		if f.in == nil {
			b.setRate(f, 0)
		}
	}
	for _, r := range b.shares.touched {
		b.setLoad(r, b.shares.Load[r])
	}
	clear(b.moved) // release fluids that have ended
	b.changed, b.freed, b.moved = b.changed[:0], b.freed[:0], b.moved[:0]
	b.stale = false
}

// setRate sets a fluid's rate from the current time on.
func (b *Backend) setRate(f *fluid, rate float64) {
	if f.rate == rate {
		return
	}
	f.left = max(f.leftAfter(b.clock.Since(f.since)), 0)
	f.since, f.rate = b.clock, rate
	if ns := max(f.left-f.turn, 0) * 1e9 / rate; rate > 0 && ns <= horizon {
		b.finishes.put(f, b.clock.Plus(ns))
	} else {
		b.finishes.drop(f)
	}
}

// setCapacity changes the capacity of a resource. The next computation of rates applies it.
func (b *Backend) setCapacity(r int32, capacity float64) {
	b.capacity[r], b.stale = capacity, true
	b.freed = append(b.freed, r)
	for _, x := range b.shares.resources[r].on {
		b.changed = append(b.changed, x.class)
	}
}

// setLoad sets the load of a resource from the current time on.
func (b *Backend) setLoad(r int32, load float64) {
	if b.load[r] == load {
		return
	}
	b.settle(r)
	b.load[r] = load
}

// settle updates the bits that a link has carried up to the current time. Other resources
// are not counted.
func (b *Backend) settle(r int32) {
	if int(r) >= len(b.carried) {
		return
	}
	if from := b.since[r]; b.cfg.Sent != nil && b.load[r] > 0 && b.clock != from {
		b.cfg.Sent(topo.LinkID(r), b.load[r], from.Round(), b.clock.Round())
	}
	b.carried[r] += bitsIn(b.load[r], b.clock.Since(b.since[r]))
	b.since[r] = b.clock
}

// Settle ends the open intervals of Config.Sent at the current time, so that its calls
// cover everything sent so far.
func (b *Backend) Settle() {
	for r := range b.carried {
		b.settle(int32(r))
	}
}

// count returns the bytes that have crossed a link so far.
func (b *Backend) count(l topo.LinkID) units.Bytes {
	return units.Bytes(math.Round(b.bits(l) / 8))
}

// bits returns the bits that a link has carried so far, headers included.
func (b *Backend) bits(l topo.LinkID) float64 {
	return b.wire[l] * (b.carried[l] + float64(bitsIn(b.load[l], b.clock.Since(b.since[l]))))
}

// bitsIn returns the bits that a rate in bit/s carries in ns nanoseconds.
func bitsIn(rate, ns float64) float64 { return rate * ns / 1e9 }
