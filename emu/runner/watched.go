package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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
	// before is what was found besides the plan when the watch began, by namespace.
	before map[string]kernel.Snapshot
	// unread is the reason why BPF programs cannot be looked for, or "".
	unread string
}

// watchKernel begins to watch the namespaces of x. The caller must call close.
func (t *trial) watchKernel(ctx context.Context, p *plan.Plan, x *kernel.Executor) (*watched, error) {
	planned, err := deploy.Expect(p)
	if err != nil {
		return nil, err
	}
	n, err := x.Notices()
	if err != nil {
		return nil, err
	}
	w := &watched{x: x, planned: planned, notices: n, fabric: t.fabric, faults: t.faults}
	if w.before, err = w.besides(ctx, p.Namespaces()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// besides reads what the kernel does not report.
func (w *watched) besides(ctx context.Context, namespaces []string) (map[string]kernel.Snapshot, error) {
	out := map[string]kernel.Snapshot{}
	for _, name := range namespaces {
		s, err := w.x.Snapshot(ctx, name)
		if err != nil {
			return nil, err
		}
		out[name] = s
	}
	s, err := kernel.ProcessSnapshot()
	if errors.Is(err, os.ErrPermission) {
		w.unread, err = fmt.Sprintf("BPF programs cannot be looked for: %v", err), nil
	}
	out[thisProgram] = s
	return out, err
}

// thisProgram is where programs of cgroups are found.
const thisProgram = "this program"

// unreported returns what differs now from what was found besides the plan.
func (w *watched) unreported(ctx context.Context) ([]fidelity.KernelChange, error) {
	names := slices.Sorted(maps.Keys(w.before))
	now, err := w.besides(ctx, slices.DeleteFunc(names, func(n string) bool { return n == thisProgram }))
	if err != nil {
		return nil, err
	}
	return w.differences(now), nil
}

func (w *watched) differences(now map[string]kernel.Snapshot) (out []fidelity.KernelChange) {
	for _, name := range slices.Sorted(maps.Keys(w.before)) {
		was, is := w.before[name], now[name]
		for _, what := range slices.Sorted(maps.Keys(union(was, is))) {
			if was[what] != is[what] {
				out = append(out, fidelity.KernelChange{AtEnd: true, Where: name, What: what, Planned: cmp.Or(was[what], "none"), Found: cmp.Or(is[what], "none")})
			}
		}
	}
	return out
}

func union(a, b kernel.Snapshot) kernel.Snapshot {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// notes returns what could not be looked for, and what handled packets before the watch began, which is no change.
func (w *watched) notes() (out []string) {
	if w.unread != "" {
		out = append(out, w.unread)
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(w.before)) {
		s := w.before[name]
		for _, what := range slices.Sorted(maps.Keys(s)) {
			if !s.Parameter(what) {
				found = append(found, fmt.Sprintf("%s: %s, %s", name, what, s[what]))
			}
		}
	}
	if len(found) == 0 {
		return out
	}
	if more := len(found) - mostFound; more > 0 {
		found = append(found[:mostFound], fmt.Sprintf("%d more", more))
	}
	return append(out, "there before the run, and not judged: "+strings.Join(found, "; "))
}

// mostFound is the maximum number of programs and tables that a note names.
const mostFound = 4

func (w *watched) close() error {
	_, _, err := w.notices.Close()
	return err
}

// changes ends the watch, reads everything back, and returns the differences since the watch began, in order of
// time. zero is the start of the run. It returns what the kernel reported even if reading back fails.
func (w *watched) changes(ctx context.Context, zero time.Time) (out []fidelity.KernelChange, lost bool, err error) {
	besides, unread := w.unreported(ctx)
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
	for _, k := range besides {
		if !slices.ContainsFunc(out, func(o fidelity.KernelChange) bool { return o.Where == k.Where && o.What == k.What && o.For == 0 }) {
			out = append(out, k)
		}
	}
	return out, lost, errors.Join(compared, unread)
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
	again := strings.HasSuffix(d.What, deploy.SetAgain)
	for _, s := range faults {
		if s.At > after {
			break
		}
		switch a := s.Action.(type) {
		case fault.SetRate:
			if namespace, device := plan.Egress(f, a.Link); d.Namespace == namespace && d.Device == device && (of("rate", "burst") || again) {
				return s.Why
			}
		case fault.SetLink:
			c := plan.CableOf(f, a.Link)
			for _, end := range []plan.End{c.Leaf, c.Far} {
				if d.Namespace == end.Namespace && (d.Device == end.Device && (of("device", "neighbour") || again) || of("route")) {
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
