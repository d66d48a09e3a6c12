package runner

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"testbed/emu/engine"
	"testbed/emu/views"
	"testbed/policies"
	"testbed/policies/catalog"
)

// RecordOptions select a log of a run directory and the role whose views are recorded.
type RecordOptions struct {
	ReplayOptions
	Role   string
	Limits views.Limits
}

// Recorded is the result of Record.
type Recorded struct {
	Header views.Header `json:"header"`
	Views  int          `json:"views"`
}

// Record writes the views of the policy of a role, and its answers, in one repeat of an arm. It steps the engine through
// the log as Replay does; a log that differs is an error.
func Record(ctx context.Context, dir string, o RecordOptions, w io.Writer) (*Recorded, error) {
	m, _, s, err := openRun(dir)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r, err := newRun(s, Options{}, m.Backend)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r.resume(m)
	arms, err := r.chosen(o.ReplayOptions)
	if err != nil {
		return nil, fmt.Errorf("record of %s: %w", dir, err)
	}
	a := arms[0]
	if len(arms) > 1 {
		return nil, fmt.Errorf("record of %s: it has several arms: choose one with --arm", dir)
	}
	of, ok := a.Policies[o.Role]
	if !ok {
		return nil, fmt.Errorf("record of %s: arm %s has no %s policy: choose another --role", dir, a.Name, o.Role)
	}
	if s.Spec.ForkAt > 0 && o.Role == catalog.RoleCoflow {
		return nil, fmt.Errorf("record of %s: its coflow policy changes at fork_at: record a run without it", dir)
	}
	t := a.trial(o.Repeat, work{})
	out := &Recorded{Header: views.Header{
		Role: o.Role, Policy: of.Name, Run: m.Run, Arm: a.Name, Repeat: o.Repeat, Seed: t.seed(), Fabric: a.fabric.Shape(),
	}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var to *views.Writer
	t.observe = func(cfg *engine.Config) {
		out.Header.Needs = needsOf(cfg, o.Role)
		to = views.NewWriter(w, out.Header, o.Limits, cancel)
		cfg.Watcher = to
	}
	got, err := t.replay(ctx, filepath.Join(repeatDir(dir, a.Name, o.Repeat), eventsFile))
	if to == nil {
		return nil, fmt.Errorf("record of %s: %w", dir, err)
	}
	out.Views = to.Count
	if err == nil && got.Differs != nil {
		err = fmt.Errorf("policies do not repeat step %d of the log: testbed replay shows the difference", got.Differs.Step)
	}
	if failed := to.Flush(); failed != nil {
		err = failed
	}
	if err != nil {
		return out, fmt.Errorf("record of %s: %s: %w", dir, t.name(), err)
	}
	return out, nil
}

// needsOf returns the facts that views of a role show.
func needsOf(cfg *engine.Config, role string) policies.Facts {
	switch role {
	case catalog.RoleCoflow:
		return engine.Observed(cfg.Coflow.Needs())
	case catalog.RolePlacement:
		return cfg.Placement.Needs()
	}
	return cfg.Tasks.Scheduler.Needs()
}
