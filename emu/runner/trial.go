package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/outside"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/policies/external"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
)

// run is a run directory: the trials of all arms and repeats of a scenario. All trials of a repeat have the same
// workload, which is that of the scenario without the changes of its arms.
type run struct {
	s       *scenario.Scenario
	point   scenario.Point // of which it is the run
	place   int            // of the point, among places
	places  int
	o       Options
	backend string // one of rundir.Backends
	fabric  *topo.Fabric
	arms    []*arm
	last    verdict.Level  // of the latest trial
	half    *run           // the same at a smaller scale; nil without a check of the scale
	looks   *metrics.Looks // that decide the number of repeats; nil if it is fixed

	path     string    // "" before the directory exists
	held     *os.File  // its lock
	found    *Manifest // of the run that goes on; nil for a new one
	manifest Manifest

	mu    sync.Mutex // of what follows and, while trials run, of the manifest and arm.done
	works []*work    // by repeat; those that trials need now
	notes []string   // on the workload of repeat 0
}

// arm is what is compared: a scenario with the arm's policies and changes.
type arm struct {
	scenario.Arm
	of     *run
	place  int // in the order of arms
	s      *scenario.Scenario
	fabric *topo.Fabric
	faults fault.Timeline
	burst  func(units.Rate, units.Bytes) units.Bytes // of links; nil is the default
	// predicted are the records of the fluid model for repeat 0, if they were computed before the run.
	predicted *flows.Records
	done      []*summary.Repeat // by repeat; nil for those that have not ended
}

// trial is one execution of an arm.
type trial struct {
	*arm
	repeat int // from 0
	work
	idle bool                  // a job runs alone: no attempt straggles
	talk external.Conversation // with the coflow policy of an episode, which is not started; otherwise nil
	// observe sets the watcher of the engine; nil for none.
	observe func(*engine.Config)
}

// newRun returns a run without a directory.
func newRun(s *scenario.Scenario, o Options, backend string) (*run, error) {
	if n := len(s.Points()); n > 1 {
		return nil, fmt.Errorf("scenario %s has a sweep of %d points, and this takes one: remove the sweep and set its variables", s.Spec.Name, n)
	}
	f, err := s.Shape().Build()
	if err != nil {
		return nil, err
	}
	o.modules = cmp.Or(o.modules, &outside.Modules{})
	most := s.Spec.Repeat.AtMost
	r := &run{s: s, o: o, backend: backend, fabric: f, works: make([]*work, most), looks: looksOf(s)}
	for i, of := range s.ArmList() {
		a := &arm{Arm: of, of: r, place: i, s: s.OfArm(i), fabric: f, done: make([]*summary.Repeat, most)}
		if shape := a.s.Shape(); !reflect.DeepEqual(shape, s.Shape()) {
			if a.fabric, err = shape.Build(); err != nil {
				return nil, fmt.Errorf("arm %s: %w", a.Name, err)
			}
		}
		if a.faults, err = timeline(a.s, a.fabric); err != nil {
			return nil, err
		}
		r.arms = append(r.arms, a)
	}
	return r, nil
}

// looksOf returns the looks that decide the number of repeats; nil if it is fixed.
func looksOf(s *scenario.Scenario) *metrics.Looks {
	if at := s.Spec.Repeat.Looks(); at != nil {
		return metrics.NewLooks(at, s.Spec.Repeat.Until.Bounds())
	}
	return nil
}

// repeats is the number of repeats of each arm: up to the next look, if looks decide it.
func (r *run) repeats() int {
	if r.looks == nil {
		return r.s.Spec.Repeat.AtMost
	}
	return r.looks.Repeats
}

// resume sets the number of repeats to that of a run that goes on or is read again.
func (r *run) resume(m *Manifest) {
	if r.looks != nil {
		r.looks.Resume(m.Repeats)
	}
}

// lookAgain makes a look at the intervals if it is due, and reports whether trials are missing because of it.
func (r *run) lookAgain() (more bool, err error) {
	undone := func(t *trial) bool { return t.done[t.repeat] == nil }
	if r.looks == nil || r.looks.Why != "" || slices.ContainsFunc(r.trials(), undone) {
		return false, nil
	}
	in, err := r.input(nil)
	if err != nil {
		return false, err
	}
	more = in.Look()
	r.manifest.Repeats = r.repeats()
	return more, r.save()
}

// drawn returns the workload of a repeat, and draws it if no trial had it yet.
func (r *run) drawn(repeat int) (*work, error) {
	if r.works[repeat] == nil {
		w, notes, err := r.draw(repeat)
		if err != nil {
			return nil, err
		}
		if repeat == 0 {
			r.notes = notes
			if at := r.s.Spec.ForkAt; at > 0 {
				r.notes = append(r.notes, fmt.Sprintf("up to %v all arms have the coflow policy of %s (fork_at)", at,
					r.arms[0].Name))
			}
		}
		r.works[repeat] = &w
	}
	return r.works[repeat], nil
}

// timed returns the workload of a repeat, with the times of jobs alone.
func (r *run) timed(ctx context.Context, repeat int) (work, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.drawn(repeat)
	if err != nil || w.timed {
		return *cmp.Or(w, &work{}), err
	}
	lone, unknown, err := r.alone(ctx, repeat, *w)
	if unknown != "" && repeat == 0 && !slices.Contains(r.notes, unknown) {
		r.notes = append(r.notes, unknown)
	}
	w.lone, w.timed = lone, err == nil
	return *w, err
}

// trial returns a trial with the workload of its repeat.
func (a *arm) trial(repeat int, w work) *trial {
	if len(w.tasks) > 0 {
		w.output = a.s.TaskOutput(w.tasks)
	}
	return &trial{arm: a, repeat: repeat, work: w}
}

func (a *arm) plan(repeat int) *plan.Plan {
	return Plan(a.s.Spec.Name, a.s, a.fabric, a.s.RepeatSeed(repeat), a.burst)
}

func (t *trial) seed() uint64 { return t.s.RepeatSeed(t.repeat) }

// jobsOnly reports whether transfers of tasks are summed up.
func (t *trial) jobsOnly() bool { return t.of.backend == rundir.Fluid && t.s.Spec.Fluid.JobsOnly }

// label is the name of the arm in progress and in errors.
func (a *arm) label() string {
	if a.of.manifest.ScaledBy != "" {
		return a.Name + " (scaled)"
	}
	return a.Name
}

func (t *trial) name() string { return fmt.Sprintf("%s/%d", t.Name, t.repeat) }

// path is the directory of the trial.
func (t *trial) path() string { return repeatDir(t.of.path, t.Name, t.repeat) }

func (t *trial) file(name string) string { return filepath.Join(t.path(), name) }

// keyFormat changes whenever trials of equal scenarios have other files or files of another meaning.
const keyFormat = 1

// key is a digest of all that the trial depends on besides the program and the machine.
func (t *trial) key() (string, error) {
	one := *t.s
	one.Spec.Repeat, one.Spec.Arms = scenario.Repeats{}, scenario.Arms{t.Arm}
	which := []any{keyFormat, t.of.backend, "", t.repeat}
	if one.Spec.ForkAt > 0 { // what any arm needs is met in all
		one.Spec.Arms = t.of.s.Spec.Arms
		which = append(which, t.Name)
	}
	of, err := one.Fingerprint()
	if err != nil {
		return "", err
	}
	which[2] = of
	b, err := json.Marshal(which)
	if err != nil {
		return "", fmt.Errorf("key of %s: %w", t.name(), err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
