package alloc

import (
	"math"
	"slices"
)

// Rates returns the rates of the last Share in bit/s, by place. For a Joint demand only
// those of the flows in Moving are included. The slice is read-only and valid until the next
// Share or End.
func (d *Demand) Rates() []float64 {
	d.write()
	return d.rate
}

// Shares returns a number that differs from that of an earlier time if a Share has since set the
// rates. A Share that finds the same rates again leaves them as they are.
func (d *Demand) Shares() int { return d.shares }

// Moving returns the sorted places of the flows with a rate above 0. The slice is valid until
// the next Share or End.
func (d *Demand) Moving() []int32 {
	d.write()
	if d.ended {
		d.moving = slices.DeleteFunc(d.moving, func(i int32) bool { return d.rate[i] == 0 })
		d.ended = false
	}
	return d.moving
}

// Soonest returns the number of seconds until the first flow has no bits left at the current
// rates, +Inf if no flow has a rate.
func (d *Demand) Soonest() float64 {
	d.write()
	soonest := math.Inf(1)
	for _, i := range d.moving {
		if r := d.rate[i]; r > 0 {
			soonest = min(soonest, d.Left[i]*d.Scale()/r)
		}
	}
	if d.Following() > 0 {
		soonest = min(soonest, d.Lasts())
	}
	return soonest
}

// Advance lets a number of seconds pass: Left of every flow decreases by its rate times
// seconds, to at least 0.
func (d *Demand) Advance(seconds float64) {
	d.write()
	if seconds <= 0 || len(d.moving) == 0 && !(d.is && d.pace > 0) {
		return
	}
	d.begins()
	if d.is {
		d.follow(seconds)
		return
	}
	d.changed()
	lefts, rate, sized := d.Left, d.rate[:len(d.Left)], d.sized
	for _, i := range d.moving {
		left := lefts[i]
		sent := float64(rate[i] * seconds)
		if sent > left {
			sent = left
		}
		lefts[i] = left - sent
		if sized {
			d.take(int(i), sent)
		}
	}
}

// add raises a flow's rate.
func (d *Demand) add(place int32, rate float64) {
	if rate <= 0 {
		return
	}
	if d.rate[place] == 0 {
		d.unsorted = d.unsorted || len(d.moving) > 0 && d.moving[len(d.moving)-1] > place
		d.moving = append(d.moving, place)
	}
	d.rate[place] += rate
}

// raising adds rates to many flows of a demand, in order.
type raising struct {
	rate   []float64
	moving []int32 // has room for all flows to be raised
	n      int     // used length of moving
}

// reserve prepares raising the rates of at most a number of flows, each once. The caller
// must call raised afterwards.
func (d *Demand) reserve(flows int) raising {
	m := slices.Grow(d.moving, flows+1)
	return raising{d.rate, m[:cap(m)], len(m)}
}

func (r *raising) raise(place int32, rate float64) {
	// Store the place without a branch; it counts only if the flow gets its first rate.
	r.moving[r.n] = place
	had := r.rate[place]
	has := had + rate
	r.rate[place] = has
	if had == 0 && has > 0 {
		r.n++
	}
}

func (d *Demand) raised(r raising) {
	had := len(d.moving)
	d.unsorted = d.unsorted || had > 0 && r.n > had && r.moving[had] < r.moving[had-1]
	d.moving = r.moving[:r.n]
}

// raiseAll raises the rates of all flows of some parts by one rate.
func (d *Demand) raiseAll(p parts, rate float64) {
	if len(d.moving) == 0 {
		d.moving = d.places(p, d.moving)
		for _, i := range d.moving {
			d.rate[i] = rate
		}
		return
	}
	d.aside = d.places(p, d.aside)
	to := d.reserve(len(d.aside))
	for _, i := range d.aside {
		to.raise(i, rate)
	}
	d.raised(to)
}

// stop sets all rates to 0.
func (d *Demand) stop() {
	if len(d.moving) > len(d.rate)/4 {
		clear(d.rate)
	} else {
		for _, i := range d.moving {
			d.rate[i] = 0
		}
	}
	d.moving, d.unsorted, d.ended = d.moving[:0], false, false
	d.fresh = true
	d.layers, d.pace, d.gifts = d.layers[:0], 0, -1
	d.shares++
}

// settle completes the rates after all steps.
func (d *Demand) settle() {
	if d.is && d.pace > 0 {
		d.write()
		d.addPace()
	}
	d.sort()
}

// sort sorts moving.
func (d *Demand) sort() {
	if !d.unsorted {
		return
	}
	d.unsorted = false
	if len(d.moving) < len(d.rate)/16 {
		slices.Sort(d.moving)
		return
	}
	d.moving = d.moving[:0]
	for i, r := range d.rate {
		if r > 0 {
			d.moving = append(d.moving, int32(i))
		}
	}
}
