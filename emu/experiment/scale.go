package experiment

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/archive"
	"testbed/results/report"
	"testbed/workloads"
)

// The scaled half of a run is a run directory in that of the run, and named
// after it.
const (
	scaledDir    = "scaled"
	scaledSuffix = "-scaled"
)

// scaledHalf is the scenario that a check of the scale runs besides s; nil where
// there is no factor.
func scaledHalf(s *scenario.Scenario, by workloads.Factor) (*scenario.Scenario, error) {
	if by == (workloads.Factor{}) {
		return nil, nil
	}
	arms := s.ArmList()
	if len(arms) < 2 {
		return nil, fmt.Errorf("check the scale of scenario %s: it has one arm, and so no speed-up to compare: want two arms or more", s.Spec.Name)
	}
	for _, a := range arms {
		if unsafeName.ReplaceAllString(a.Name, "-") == scaledDir {
			return nil, fmt.Errorf("check the scale of scenario %s: the arm %q would share its directory with the scaled half: give it another name", s.Spec.Name, a.Name)
		}
	}
	return s.Scaled(by, scenario.Options{CheckPolicy: CheckPolicy, ScalePolicy: func(role, name string, params map[string]any, by workloads.Factor) (map[string]any, error) {
		return catalog.Scaled(catalog.Role(role), name, params, by)
	}})
}

// createDir makes the run's directory.
func (r *run) createDir(m Manifest) (*rundir, error) {
	path := filepath.Join(r.o.Out, m.Run)
	if r.of != nil {
		path = filepath.Join(r.of.path, scaledDir)
	}
	d, err := createRundir(path, m)
	if err == nil && r.o.CheckScale != (workloads.Factor{}) {
		d.scaledBy = r.o.CheckScale.String()
	}
	return d, err
}

// checkScale runs every repeat of every arm again, on the scaled scenario.
func (r *run) checkScale(ctx context.Context, half *scenario.Scenario, backend string) (*report.Scaled, error) {
	o := r.o
	o.CheckScale = workloads.Factor{}
	if tell := o.Progress; tell != nil {
		o.Progress = func(p Progress) {
			p.Name += " (scaled)"
			tell(p)
		}
	}
	out, err := execute(ctx, half, o, backend, r.dir)
	if err != nil {
		return nil, fmt.Errorf("scaled by %s: %w", r.dir.scaledBy, err)
	}
	return &report.Scaled{By: r.dir.scaledBy, Report: out.Report}, nil
}

// findScaled computes the report of the scaled half in a run directory; nil
// where it has none. An arm may have the name of its directory in a run without:
// what an arm has captures in is a repeat, what the half has is an arm's.
func findScaled(ctx context.Context, dir string, tell func(Progress)) (*report.Scaled, error) {
	half := filepath.Join(dir, scaledDir)
	found, err := filepath.Glob(filepath.Join(globbed(half), "*", "*", "captures"))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	out, err := ReportProgress(ctx, half, tell)
	if err != nil {
		return nil, err
	}
	s := &report.Scaled{By: "an unknown factor", Report: out.Report}
	var m Manifest
	if known, err := readJSON(filepath.Join(half, archive.ManifestFile), &m); err != nil {
		return nil, err
	} else if known && m.ScaledBy != "" {
		s.By = m.ScaledBy
	}
	return s, nil
}

// globbed is a path as a pattern that matches it alone.
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
