package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"testbed/emu/scenario"
	"testbed/results/report"
	"testbed/workloads"
)

// The scaled half of a run is a run directory inside that of the run, with the name of the run
// and a suffix.
const (
	scaledDir    = "scaled"
	scaledSuffix = "-scaled"
)

// scaledHalf returns the scenario that a scale check runs in addition to s, or nil if
// there is no factor.
func scaledHalf(s *scenario.Scenario, by workloads.Factor) (*scenario.Scenario, error) {
	if by == (workloads.Factor{}) {
		return nil, nil
	}
	arms := s.ArmList()
	if len(arms) < 2 {
		return nil, fmt.Errorf("check the scale of scenario %s: it has one arm, so no speed-up to compare: expected at least two arms", s.Spec.Name)
	}
	for _, a := range arms {
		if unsafeName.ReplaceAllString(a.Name, "-") == scaledDir {
			return nil, fmt.Errorf("check the scale of scenario %s: arm %q has the directory name of the scaled half: rename the arm", s.Spec.Name, a.Name)
		}
	}
	return s.Scaled(by)
}

// createDir creates the run directory.
func (r *run) createDir(m Manifest) (*runDir, error) {
	path := filepath.Join(r.o.Out, m.Run)
	if r.of != nil {
		path = filepath.Join(r.of.path, scaledDir)
	}
	d, err := createRunDir(path, m)
	if err == nil && r.of == nil {
		if err := r.linkLatest(m.Run); err != nil && r.o.Warn != nil {
			r.o.Warn(err.Error())
		}
	}
	if err == nil && r.o.CheckScale != (workloads.Factor{}) {
		d.scaledBy = r.o.CheckScale.String()
	}
	return d, err
}

// checkScale runs every repeat of every arm on the scaled scenario.
func (r *run) checkScale(ctx context.Context, half *scenario.Scenario, backend string) (*report.Scaled, error) {
	o := r.o
	o.CheckScale = workloads.Factor{}
	if progressed := o.Progress; progressed != nil {
		o.Progress = func(p Progress) {
			p.Name += " (scaled)"
			progressed(p)
		}
	}
	out, err := execute(ctx, half, o, backend, r.dir)
	if err != nil {
		return nil, fmt.Errorf("scaled by %s: %w", r.dir.scaledBy, err)
	}
	return &report.Scaled{By: r.dir.scaledBy, Report: out.Report}, nil
}

// globbed returns a pattern that matches only the path.
func globbed(path string) string {
	var out []rune
	for _, r := range path {
		if slices.Contains([]rune(`*?[\`), r) {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}
