package rates

import "math"

// joint is what rule MADD gives a demand, for all of its flows at once: a flow that
// has no other rate sends a part of what it has left in each second, and that is the
// same part for all. So what those flows have left falls by one factor, and only the
// flows that other rules give something are looked at one by one.
type joint struct {
	is    bool
	scale float64 // that Left and bits are to be multiplied by
	pace  float64 // per second: the part of what they have left that flows send; 0 for none
	whole float64 // Left over all flows, kept with bits

	least   []float64 // by slot: below that, bits are summed up anew
	updates int       // of bits since they were
}

// shrunk is how much smaller a link's sum of bits may become, by subtraction, before
// it is added up anew: subtraction keeps the rounding error of the larger number.
const shrunk = 1.0 / 64

// smallest is the scale at which Left is multiplied out.
const smallest = 1e-6

// Join keeps what MADD gives all flows of the demand at once: Rate and Moving are then
// those of flows that other rules serve too, or alone, and the other unfinished flows,
// Following, end when Lasts is over. It costs less: neither Share nor Advance looks at
// flow by flow. Separate is the reverse.
func (d *Demand) Join() {
	if d.is {
		return
	}
	d.is, d.scale = true, 1
	if !d.sized {
		d.sized = true
		d.sum()
	}
}

// Separate is documented at Join. It leaves no flow a rate: Share is to follow.
func (d *Demand) Separate() {
	if !d.is {
		return
	}
	d.stop()
	d.unscale()
	d.is = false
}

// Joint tells whether Join is in force.
func (d *Demand) Joint() bool { return d.is }

// Scale is what Left has to be multiplied by; 1 unless the demand is Joint.
func (d *Demand) Scale() float64 {
	if d.is {
		return d.scale
	}
	return 1
}

// Bits is how many bits a flow has left.
func (d *Demand) Bits(place int) float64 { return d.Left[place] * d.Scale() }

// Following is how many unfinished flows are served by MADD alone, of a demand that
// is Joint.
func (d *Demand) Following() int {
	if !d.is || d.pace == 0 {
		return 0
	}
	return d.unfinished - len(d.Moving())
}

// Lasts is how many seconds from now the flows that follow end, +Inf if none does.
func (d *Demand) Lasts() float64 {
	if !d.is || d.pace == 0 {
		return math.Inf(1)
	}
	return 1 / d.pace
}

// Follows is the rate of the flows that follow, together, in bit/s.
func (d *Demand) Follows() float64 {
	if !d.is || d.pace == 0 {
		return 0
	}
	left := d.whole
	for _, i := range d.Moving() {
		left -= d.Left[i]
	}
	return max(left, 0) * d.scale * d.pace
}

// pace is madd for a demand that is Joint.
func (s *Sharer) pace(d *Demand, within float64) fate {
	d.resum()
	takes := 0.0 // seconds
	for slot, l := range d.links {
		if d.count[slot] > 0 {
			takes = max(takes, d.bits[slot]*d.scale/s.avail[l])
		}
	}
	switch {
	case within > 0 && takes > within*(1+nothing):
		return skipped
	case takes == 0: // all has been received
		return served
	}
	takes = max(takes, within)
	for slot, l := range d.links {
		if d.count[slot] > 0 {
			s.avail[l] = max(s.avail[l]-d.bits[slot]*d.scale/takes, 0)
		}
	}
	d.pace += 1 / takes
	return served
}

// lead gives flows that other rules serve too all of their rate.
func (d *Demand) lead() {
	if !d.is || d.pace == 0 {
		return
	}
	part := d.pace * d.scale
	for _, i := range d.moving {
		if d.rate[i] > 0 {
			d.rate[i] += d.Left[i] * part
		}
	}
}

// follow is Advance of a demand that is Joint.
func (d *Demand) follow(seconds float64) {
	old := d.scale
	if len(d.moving) > 0 {
		d.changed()
	}
	if d.pace > 0 {
		keep := 1 - seconds*d.pace
		if !(keep > 0) {
			d.finish()
			return
		}
		d.scale *= keep
		// Their rate stays what it was, and is so a larger part of what is left.
		d.pace /= keep
	}
	for _, i := range d.moving {
		rate := d.rate[i]
		if rate == 0 {
			continue
		}
		left := max(d.Left[i]*old-float64(rate*seconds), 0) / d.scale
		d.take(int(i), d.Left[i]-left)
		d.Left[i] = left
	}
	d.updates += len(d.moving)
	if d.scale < smallest {
		d.unscale()
	}
}

// finish is follow where that lasts until the flows that follow have nothing left.
// The others, which are faster, have nothing left then either.
func (d *Demand) finish() {
	clear(d.Left)
	d.changed()
	d.scale, d.pace = 1, 0
	d.sum()
}

// unscale multiplies Left out.
func (d *Demand) unscale() {
	if d.scale == 1 {
		return
	}
	for i := range d.Left {
		d.Left[i] *= d.scale
	}
	d.changed()
	d.scale = 1
	d.sum()
}

// resum adds up bits anew where too much of them has been subtracted. That is seldom
// enough to cost less than the subtracting.
func (d *Demand) resum() {
	stale := d.updates > len(d.Left)+64
	for slot := range d.links {
		stale = stale || d.count[slot] > 0 && d.bits[slot] < d.least[slot]
	}
	if stale {
		d.sum()
	}
}

// summed notes that bits have been added up.
func (d *Demand) summed() {
	d.updates = 0
	d.least = roomy(d.least, len(d.bits))
	for slot, b := range d.bits {
		d.least[slot] = b * shrunk
	}
}
