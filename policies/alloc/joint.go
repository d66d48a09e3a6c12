package alloc

import "math"

// joint stores the rates of rule MADD for all flows of a demand together. A flow without
// another rate sends the same fraction of its remaining bits per second as all others. The
// remaining bits of these flows thus decrease by one common factor, and only flows with
// rates from other rules are updated one by one.
type joint struct {
	is    bool
	scale float64 // factor by which Left and bits must be multiplied
	pace  float64 // fraction of the remaining bits that flows send per second; 0 for none
	whole float64 // sum of Left over all flows, updated with bits

	least   []float64 // by slot: below this value, bits are summed again
	updates int       // updates of bits since they were summed
	full    int       // slot of the link because of which it was skipped last, probably full again
}

// shrunk is the factor by which a link's sum of bits may decrease by subtraction before it
// is summed again: subtraction keeps the rounding error of the larger number.
const shrunk = 1.0 / 64

// smallest is the scale below which Left is multiplied by it.
const smallest = 1e-6

// Join makes the demand Joint: the rates of MADD are stored for all its flows together.
// Rates and Moving then include only flows that other rules serve too; the number of the
// others is Following, and they end after Lasts. Share and Advance cost less, because they
// do not iterate over these flows. Separate undoes Join.
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

// Separate undoes Join. It sets all rates to 0: the caller must call Share.
func (d *Demand) Separate() {
	if !d.is {
		return
	}
	d.stop()
	d.unscale()
	d.is = false
}

// Scale returns the factor by which Left must be multiplied; 1 unless the demand is Joint.
func (d *Demand) Scale() float64 {
	if d.is {
		return d.scale
	}
	return 1
}

// Bits returns the number of remaining bits of a flow.
func (d *Demand) Bits(place int) float64 { return d.Left[place] * d.Scale() }

// Following returns the number of unfinished flows of a Joint demand that only MADD serves.
func (d *Demand) Following() int {
	if !d.is || d.pace == 0 {
		return 0
	}
	return d.unfinished - len(d.Moving())
}

// Lasts returns the number of seconds until the flows served by MADD end, +Inf without any.
func (d *Demand) Lasts() float64 {
	if !d.is || d.pace == 0 {
		return math.Inf(1)
	}
	return 1 / d.pace
}

// Follows returns the total rate in bit/s of the flows that only MADD serves.
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

// maddJoint is allOrNone with rule MADD for a Joint demand.
func (s *Allocator) maddJoint(d *Demand, within float64) outcome {
	avail, floor, count := s.avail, s.floor, d.count[:len(d.links)]
	if count[d.full] > 0 && !s.open(d.links[d.full]) {
		return skipped
	}
	var takes float64 // seconds
	for stale := true; stale; {
		stale, takes = d.updates > len(d.Left)+64, 0
		for slot, l := range d.links {
			if count[slot] == 0 {
				continue
			}
			if avail[l] <= floor[l] {
				d.full = slot
				return skipped
			}
			bits := d.bits[slot]
			stale = stale || bits < d.least[slot]
			if t := bits * d.scale / avail[l]; t > takes {
				takes = t
			}
		}
		if stale {
			d.sum() // it is rare enough to cost less than the subtractions
		}
	}
	switch {
	case within > 0 && takes > within*(1+negligible):
		return skipped
	case takes == 0: // all bytes have been received
		return served
	}
	takes = max(takes, within)
	for slot, l := range d.links {
		if count[slot] == 0 {
			continue
		}
		left := avail[l] - d.bits[slot]*d.scale/takes
		if left < 0 {
			left = 0
		}
		avail[l] = left
	}
	d.pace += 1 / takes
	return served
}

// addPace adds the rate of MADD to the flows that other rules serve too.
func (d *Demand) addPace() {
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

// follow is Advance for a Joint demand.
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
		// The rates stay the same and are thus a larger fraction of the remaining bits.
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

// finish is follow until the flows that only MADD serves have no bits left. The others,
// which are faster, have none left either.
func (d *Demand) finish() {
	clear(d.Left)
	d.changed()
	d.scale, d.pace = 1, 0
	d.sum()
}

// unscale multiplies Left by the scale and resets the scale to 1.
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

// summed records that bits have been summed.
func (d *Demand) summed() {
	d.updates = 0
	d.least = roomy(d.least, len(d.bits))
	for slot, b := range d.bits {
		d.least[slot] = b * shrunk
	}
}
