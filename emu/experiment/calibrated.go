package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/emu/calibration"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// CapacityMargin is how far beyond the calibrated packets a second the busiest
// second of a scenario may be predicted before a run of it is refused: a quarter,
// since the fluid model is as much off, and since the capacity was measured with
// all links saturated all the time.
const CapacityMargin = 1.25

// noCalibration is what is said where none was made.
const noCalibration = "no calibration of this machine: using defaults (sudo testbed calibrate makes one)"

// Buckets is the token bucket of each link of a scenario: the calibrated one, or
// plan.DefaultBurst where c is nil or does not reach. The note tells which. A
// link for which the calibration has no bucket that holds its rate and the
// scenario's short flows is an error, which says what would work.
func Buckets(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration) (_ func(units.Rate, units.Bytes) units.Bytes, note string, err error) {
	if c == nil {
		return plan.DefaultBurst, noCalibration, nil
	}
	short, mtu := s.Spec.Fabric.ShortFlow, f.Shape().MTU
	var rates []units.Rate
	for _, l := range f.Links() {
		rates = append(rates, l.Rate)
	}
	slices.Sort(rates)
	picks := map[units.Rate]units.Bytes{}
	var errs []error
	var beyond []string
	for _, r := range slices.Compact(rates) {
		l, ok := c.Link(r, mtu)
		if !ok {
			picks[r] = plan.DefaultBurst(r, mtu)
			beyond = append(beyond, r.String())
			continue
		}
		w := l.Window(short)
		if w.Empty() {
			errs = append(errs, errors.New(noBucket(s, f, c, r)))
			continue
		}
		picks[r] = w.Pick()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, "", err
	}
	note = fmt.Sprintf("links by the calibration of %s", c.Date.Format("2006-01-02"))
	if len(beyond) > 0 {
		note += fmt.Sprintf("; it does not reach %s, which have the default bucket (calibrate --rates)", strings.Join(beyond, ", "))
	}
	return func(r units.Rate, mtu units.Bytes) units.Bytes {
		if b, ok := picks[r]; ok {
			return b
		}
		if l, ok := c.Link(r, mtu); ok && !l.Window(short).Empty() { // of a fault, say
			return l.Window(short).Pick()
		}
		return plan.DefaultBurst(r, mtu)
	}, note, nil
}

// noBucket says that a link of rate r cannot be had, and what can.
func noBucket(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration, r units.Rate) string {
	shape := f.Shape()
	text := fmt.Sprintf("fabric: links of %v at MTU %d: by the calibration of this machine no token bucket holds both the rate within %g %% and the time of flows of %v (fabric.short_flow) within %g %%",
		r, int64(shape.MTU), 100*calibration.RateTolerance, s.Spec.Fabric.ShortFlow, 100*calibration.FlowTolerance)
	working := c.Working(shape.MTU, s.Spec.Fabric.ShortFlow)
	var below, above units.Rate
	for _, w := range working {
		if w < r {
			below = w
		} else if above == 0 {
			above = w
		}
	}
	var near []string
	for _, w := range []units.Rate{below, above} {
		if w > 0 {
			near = append(near, w.String())
		}
	}
	if len(near) == 0 {
		return text + "; none of the calibrated rates does: state a larger fabric.short_flow, or a smaller fabric.mtu"
	}
	text += ": the nearest calibrated rates that do are " + strings.Join(near, " and ")
	if scale, ok := scaleTo(s, f, c); ok {
		text += fmt.Sprintf("; to keep all times, write scale: %s", scale)
	}
	return text + "; or state a larger fabric.short_flow"
}

// scaleTo is the scale block with which every link of the scenario has a bucket
// and all times stay, dividing by the smallest round number that will do.
func scaleTo(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration) (string, bool) {
	for _, div := range []int64{2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 200, 250, 400, 500, 1000} {
		works := true
		for _, l := range f.Links() {
			r := l.Rate / units.Rate(div)
			at, ok := c.Link(r, f.Shape().MTU)
			works = works && ok && r >= plan.MinRate && !at.Window(s.Spec.Fabric.ShortFlow).Empty()
		}
		if !works {
			continue
		}
		had := s.Spec.Scale
		rate, ok1 := s.RateScale().Times(workloads.Factor{Num: 1, Den: div})
		size, ok2 := had.Size.Times(workloads.Factor{Num: 1, Den: div})
		if !ok1 || !ok2 {
			continue
		}
		out := fmt.Sprintf("{rate: %v, size: %v", rate, size)
		if had.Time.Float() != 1 {
			out += fmt.Sprintf(", time: %v", had.Time)
		}
		return out + "}", true
	}
	return "", false
}

// Overload tells which arms are predicted to ask more of the machine than it was
// calibrated to carry, by more than CapacityMargin; "" if none, without a
// calibration, and where that found no end to what the machine carries. Links x
// packets/s are a forecast only: links that are in use but not saturated take
// much less than those it was calibrated with.
func (f *Forecast) Overload() string {
	if f.Capacity == nil || f.Capacity.Bounded {
		return ""
	}
	most := f.Capacity.Packets * CapacityMargin
	var over []string
	for _, l := range f.Load {
		if l.PeakPackets > most {
			over = append(over, fmt.Sprintf("arm %s: %.0f", l.Arm, l.PeakPackets))
		}
	}
	if len(over) == 0 {
		return ""
	}
	return fmt.Sprintf("more than this machine carries: shaped packets in the busiest second: %s; the calibrated capacity at MTU %d is %.0f, and %.0f is the most that is run",
		strings.Join(over, ", "), int64(f.Capacity.MTU), f.Capacity.Packets, most)
}

// OverloadError refuses a run that Overload tells of.
type OverloadError struct{ Why string }

func (e *OverloadError) Error() string {
	return e.Why + ": lower the rates with scale, or raise the MTU; --force runs it all the same"
}

// fit makes a run go by the calibration, or refuses it, and puts into the
// manifest which it was.
func (r *run) fit(ctx context.Context, m *Manifest) (err error) {
	if r.burst, m.Calibration, err = Buckets(r.s, r.fabric, r.o.Calibration); err != nil || r.o.Calibration == nil {
		return err
	}
	f, err := Predict(ctx, r.s, r.o.Calibration)
	if err != nil {
		return err
	}
	if over := f.Overload(); over != "" {
		if !r.o.Force {
			return &OverloadError{over}
		}
		m.Forced = over
	}
	return nil
}
