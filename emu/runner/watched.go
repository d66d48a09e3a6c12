package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/fault"
	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/results/verdict"
	"testbed/topo"
)

// watched compares the kernel with a plan during a repeat.
type watched struct {
	x       *kernel.Executor
	planned *deploy.Expectation
	notices *kernel.Notices
	fabric  *topo.Fabric
	faults  fault.Timeline
}

// watchKernel begins to watch the namespaces of x. The caller must call close.
func (r *run) watchKernel(p *plan.Plan, x *kernel.Executor) (*watched, error) {
	planned, err := deploy.Expect(p)
	if err != nil {
		return nil, err
	}
	n, err := x.Notices()
	if err != nil {
		return nil, err
	}
	return &watched{x, planned, n, r.fabric, r.faults}, nil
}

func (w *watched) close() error {
	_, _, err := w.notices.Close()
	return err
}

// changes ends the watch, reads everything back, and returns the differences since the watch began, in order of
// time. zero is the start of the run. It returns what the kernel reported even if reading back fails.
func (w *watched) changes(ctx context.Context, zero time.Time) (out []fidelity.KernelChange, lost bool, err error) {
	end, compared := w.planned.Compare(ctx, w.x) // fails where a device was deleted meanwhile, which notices name
	notices, lost, err := w.notices.Close()
	if err != nil {
		return nil, false, errors.Join(compared, err)
	}
	for _, c := range w.planned.Changes(notices, end) {
		k := fidelity.KernelChange{AtEnd: c.From.IsZero(), Where: c.Subject, What: c.What, Planned: c.Planned, Found: c.Found}
		after := time.Since(zero)
		if !k.AtEnd {
			k.After = c.From.Sub(zero)
			after = k.After
			if !c.Until.IsZero() {
				k.For = max(c.Until.Sub(c.From), 1)
			}
		}
		k.Why = explains(w.fabric, w.faults, c.Difference, after)
		out = append(out, k)
	}
	return out, lost, compared
}

// blame returns the error that ended a repeat, preceded by the first change of the kernel that may be its
// cause, and writes a verdict with that change. Without such a change it returns why.
func (w *watched) blame(ctx context.Context, dir string, zero time.Time, why error) error {
	changes, lost, err := w.changes(ctx, zero)
	c := fidelity.Kernel(changes, lost)
	if c.Level != verdict.Void {
		return errors.Join(why, err)
	}
	return errors.Join(fmt.Errorf("the kernel was changed during the run: %s: %w", c.Reason, why), writeJSON(filepath.Join(dir, fidelityFile), verdict.Of(c)))
}

// explains returns the names of the first faults until a time that may be the cause of a difference, or "".
func explains(f *topo.Fabric, faults fault.Timeline, d deploy.Difference, after time.Duration) string {
	of := func(kinds ...string) bool { // as deploy names them, some followed by an address
		return slices.ContainsFunc(kinds, func(k string) bool { return d.What == k || strings.HasPrefix(d.What, k+" ") })
	}
	for _, s := range faults {
		if s.At > after {
			break
		}
		switch a := s.Action.(type) {
		case fault.SetRate:
			if namespace, device := plan.Egress(f, a.Link); d.Namespace == namespace && d.Device == device && of("rate", "burst") {
				return s.Why
			}
		case fault.SetLink:
			c := plan.CableOf(f, a.Link)
			for _, end := range []plan.End{c.Leaf, c.Far} {
				if d.Namespace == end.Namespace && (d.Device == end.Device && of("device", "neighbour") || of("route")) {
					return s.Why
				}
			}
			kind := f.Link(a.Link).Kind
			if uplink := kind == topo.LeafUp || kind == topo.LeafDown; uplink && of("route") && isLeaf(f, d.Namespace) {
				return s.Why // other leaves change their routes
			}
		}
	}
	return ""
}

func isLeaf(f *topo.Fabric, name string) bool {
	for r := range topo.RackID(f.Racks()) {
		if topo.LeafName(r) == name {
			return true
		}
	}
	return false
}
