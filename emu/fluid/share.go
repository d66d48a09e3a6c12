package fluid

import (
	"math"

	"testbed/emu/simtime"
	"testbed/topo"
	"testbed/topo/units"
)

// share computes the rates from the current time on.
func (b *Backend) share() {
	s := &b.shares
	s.update(b.changed, b.freed)
	for _, c := range s.moved {
		if c.clock != nil && c.clock != s.clockOf(c) {
			for _, f := range c.members {
				c.clock.stop(f, b.clock)
			}
			b.finishes.put(c.clock)
			c.clock = nil
		}
	}
	for _, r := range s.limited {
		if k := &s.resources[r].clock; len(s.resources[r].limits) > 0 {
			k.set(b.clock, s.resources[r].level)
		}
	}
	for _, c := range s.moved {
		k := s.clockOf(c)
		if k == &c.own {
			k.set(b.clock, c.ceiling)
		}
		if k != c.clock {
			c.clock = k
			for _, f := range c.members {
				k.start(f, b.clock)
			}
		}
		if k == &c.own {
			b.finishes.put(k)
		}
	}
	for _, r := range s.limited {
		b.finishes.put(&s.resources[r].clock)
	}
	b.changed, b.freed = b.changed[:0], b.freed[:0]
	b.stale = false
}

// setCapacity changes the capacity of a resource. The next computation of rates applies it.
func (b *Backend) setCapacity(r int32, capacity float64) {
	b.capacity[r], b.stale = capacity, true
	b.freed = append(b.freed, r)
	for _, x := range b.shares.resources[r].on {
		b.changed = append(b.changed, x.class)
	}
}

// stop ends the progress of a fluid until it is in a class again, and counts the bits that its links have
// carried for it.
func (b *Backend) stop(f *fluid) {
	if k := f.clock; k != nil {
		k.stop(f, b.clock)
		if len(k.fluids) == 0 {
			b.finishes.drop(k)
		}
	}
	for _, u := range f.in.uses {
		if int(u.resource) < len(b.carried) {
			b.carried[u.resource] += float64(float64(u.times) * f.uncounted(f.left))
		}
	}
}

// uncounted returns the bits of a fluid that its links have carried since it is in its class, if some are left.
// A fluid that ends late has not sent more than it had.
func (f *fluid) uncounted(left float64) float64 { return f.counted - max(left, f.turn) }

// count returns the bytes that have crossed a link so far.
func (b *Backend) count(l topo.LinkID) units.Bytes {
	return units.Bytes(math.Round(b.bits(l, b.clock) / 8))
}

// bits returns the bits that a link has carried up to a time, headers included. Since then, no rate has changed.
func (b *Backend) bits(l topo.LinkID, at simtime.Moment) float64 {
	bits := b.carried[l]
	for _, x := range b.shares.resources[l].on {
		for _, f := range x.class.members {
			bits += float64(float64(x.class.uses[x.use].times) * f.uncounted(f.leftAt(at)))
		}
	}
	return b.wire[l] * bits
}

// bitsIn returns the bits that a rate in bit/s carries in ns nanoseconds.
func bitsIn(rate, ns float64) float64 { return rate * ns / 1e9 }
