package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"testbed/emu/calibration"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Load limits, as shares of the capacity of this machine. A run whose busiest second is
// predicted to exceed MostLoad is refused unless it is forced. Above the warning
// level, by default DefaultWarnLoad, it starts with a warning.
const (
	MostLoad        = 1.0
	DefaultWarnLoad = 0.85
)

// noCalibration is the note of runs on a machine that is not calibrated.
const noCalibration = "this machine is not calibrated, using defaults (run: sudo testbed calibrate)"

// Buckets returns the token bucket of each link of a scenario: the calibrated one, or
// plan.DefaultBurst if c is nil or does not cover the link. The note states which. It
// returns a Refusal if no calibrated bucket of a link reproduces both its rate and the scenario's short
// flows; the error proposes settings that work.
func Buckets(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration) (_ func(units.Rate, units.Bytes) units.Bytes, note string, err error) {
	if f.Shape().StoreAndForward {
		return plan.DefaultBurst, "links store and forward, without token buckets", nil
	}
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
	var problems []scenario.Problem
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
			problems = append(problems, s.Problem("fabric", noBucket(s, f, c, r)))
			continue
		}
		picks[r] = w.Pick()
	}
	if err := refusal(problems); err != nil {
		return nil, "", err
	}
	note = fmt.Sprintf("links use the calibration of %s", c.Date.Format("2006-01-02"))
	if len(beyond) > 0 {
		note += fmt.Sprintf("; it does not cover %s, which use the default bucket (calibrate with --rates)", strings.Join(beyond, ", "))
	}
	return func(r units.Rate, mtu units.Bytes) units.Bytes {
		if b, ok := picks[r]; ok {
			return b
		}
		if l, ok := c.Link(r, mtu); ok && !l.Window(short).Empty() { // a rate that only a fault sets
			return l.Window(short).Pick()
		}
		return plan.DefaultBurst(r, mtu)
	}, note, nil
}

// noBucket states that no calibrated bucket works for a link of rate r, and proposes alternatives.
func noBucket(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration, r units.Rate) string {
	shape := f.Shape()
	text := fmt.Sprintf("links of %v at MTU %d: in the calibration of this machine, no token bucket keeps both the rate within %g %% and the completion time of flows of %v (fabric.short_flow) within %g %%",
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
		return text + "; no calibrated rate works: state a larger fabric.short_flow, or a smaller fabric.mtu"
	}
	text += ": the nearest calibrated rates that work are " + strings.Join(near, " and ")
	if scale, ok := scaleTo(s, f, c); ok {
		text += fmt.Sprintf("; to keep all times, write scale: %s", scale)
	}
	return text + "; or state a larger fabric.short_flow"
}

// divisors are the round numbers that proposed scale blocks divide by.
var divisors = []int64{2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 200, 250, 400, 500, 1000}

// divided returns the scale block that divides the rates and sizes of a scenario by div, in
// addition to its own scale, and keeps times.
func divided(s *scenario.Scenario, div int64) (string, bool) {
	had := s.Spec.Scale
	rate, ok1 := s.RateScale().Times(workloads.Factor{Num: 1, Den: div})
	size, ok2 := had.Size.Times(workloads.Factor{Num: 1, Den: div})
	if !ok1 || !ok2 {
		return "", false
	}
	out := fmt.Sprintf("{rate: %v, size: %v", rate, size)
	if had.Time.Float() != 1 {
		out += fmt.Sprintf(", time: %v", had.Time)
	}
	return out + "}", true
}

// scaleTo returns the scale block with which every link of the scenario has a bucket and all
// times stay. It uses the smallest of divisors that works.
func scaleTo(s *scenario.Scenario, f *topo.Fabric, c *calibration.Calibration) (string, bool) {
	for _, div := range divisors {
		works := true
		for _, l := range f.Links() {
			r := l.Rate / units.Rate(div)
			at, ok := c.Link(r, f.Shape().MTU)
			works = works && ok && r >= plan.MinRate && !at.Window(s.Spec.Fabric.ShortFlow).Empty()
		}
		if !works {
			continue
		}
		if scale, ok := divided(s, div); ok {
			return scale, true
		}
	}
	return "", false
}

// Action is the reaction of a run to its predicted load.
type Action string

// Actions.
const (
	Start  Action = "start"
	Warn   Action = "warn"   // start with a warning
	Refuse Action = "refuse" // unless the run is forced
)

// Decision is an Action and its reason.
type Decision struct {
	Action Action `json:"action"`
	// Share is the predicted load of the busiest second of any arm, as a share of the capacity
	// of this machine.
	Share float64 `json:"share"`
	// Why states the figures. Remedy states how to reduce the load if Action is not Start.
	Why    string `json:"why"`
	Remedy string `json:"remedy,omitempty"`
}

// String completes the sentence "testbed run …".
func (d *Decision) String() string {
	switch d.Action {
	case Refuse:
		return "refuses this without --force: " + d.Why + ": " + d.Remedy
	case Warn:
		return "starts this with a warning: " + d.Why + ": " + d.Remedy
	}
	return "starts this: " + d.Why
}

// decide compares the predicted loads with the limits.
func (f *Forecast) decide(s *scenario.Scenario, o Options) *Decision {
	warn := cmp.Or(o.WarnLoad, DefaultWarnLoad)
	d := &Decision{Action: Start}
	var over []string
	for _, l := range f.Load {
		d.Share = max(d.Share, l.Share)
		if l.Share > min(warn, MostLoad) {
			over = append(over, fmt.Sprintf("arm %s: %.0f", l.Arm, l.PeakPackets))
		}
	}
	d.Why = fmt.Sprintf("the predicted load of the busiest second is %.0f %% of the capacity of %s", 100*d.Share, f.place())
	switch {
	case d.Share > MostLoad:
		d.Action = Refuse
	case d.Share > warn:
		d.Action = Warn
	default:
		return d
	}
	d.Why += fmt.Sprintf(" (shaped packets/s: %s; %s)", strings.Join(over, ", "), f.carries())
	var remedies []string
	if scale, ok := scaleFor(s, d.Share/warn); ok {
		remedies = append(remedies, fmt.Sprintf("write scale: %s, which keeps all times", scale))
	}
	remedies = append(remedies, "raise fabric.mtu")
	if f.Capacity == nil && f.Host == 0 {
		remedies = append(remedies, "calibrate this machine (sudo testbed calibrate), because the default capacity is an estimate")
	}
	d.Remedy = strings.Join(remedies, ", or ")
	return d
}

// place names what has the capacity.
func (f *Forecast) place() string {
	if f.Host > 0 {
		return "a guest in virtual time"
	}
	return "this machine"
}

// carries states the capacity that the shares of a forecast refer to.
func (f *Forecast) carries() string {
	if f.Host > 0 {
		return fmt.Sprintf("virtual time: one processor at %v per packet", f.Cost)
	} else if c := f.Capacity; c == nil {
		return fmt.Sprintf("not calibrated: %d processors at the default of %v per packet", runtime.NumCPU(), PacketCost)
	} else if c.Bounded {
		return fmt.Sprintf("the calibration reached no limit at MTU %d: %d processors at %v per packet", int64(c.MTU), runtime.NumCPU(), c.Cost)
	}
	return fmt.Sprintf("the calibrated capacity at MTU %d is %.0f", int64(f.Capacity.MTU), f.Capacity.Packets)
}

// scaleFor returns the scale block that divides rates and sizes by the smallest round number
// that is at least factor. The rates must stay above plan.MinRate.
func scaleFor(s *scenario.Scenario, factor float64) (string, bool) {
	for _, div := range divisors {
		if float64(div) >= factor {
			return divided(s, div)
		}
	}
	return "", false
}

// OverloadError refuses a run whose predicted load is above MostLoad.
type OverloadError struct{ *Decision }

func (e *OverloadError) Error() string {
	return "load: " + e.Why + ": " + e.Remedy + "; or use --force to run it anyway"
}

// Refused marks an error that prevented the start of a run.
func (e *OverloadError) Refused() {}

// Refusal returns the error with which Execute refuses the scenario of a full forecast, or nil.
// force also starts one whose predicted load exceeds the capacity of the machine.
func (f *Forecast) Refusal(force bool) error {
	err := refusal(f.Missing)
	if len(f.Lack) > 0 {
		err = errors.Join(err, &kernel.LackError{What: "scenario " + f.Scenario, Lack: f.Lack})
	}
	if d := f.Decision; d.Action == Refuse && !force {
		err = errors.Join(err, &OverloadError{d})
	}
	return err
}

// fit applies the calibration to a run and refuses a run that is predicted to overload the
// machine. It records the calibration, and a forced start, in the manifest.
func (r *run) fit(ctx context.Context) error {
	f, err := r.predict(ctx)
	if err != nil {
		return err
	}
	if err := f.Refusal(r.o.Force); err != nil {
		return err
	}
	r.manifest.Calibration = f.Calibration
	switch d := f.Decision; {
	case d.Action == Refuse:
		r.manifest.Forced = d.Why
	case d.Action == Warn && r.o.Warn != nil:
		r.o.Warn(d.Why + ": " + d.Remedy)
	}
	return nil
}
