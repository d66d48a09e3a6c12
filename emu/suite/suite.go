// Package suite runs suites: files that state the claims of a paper, the scenarios and traces on which they are
// measured, and what is expected here. It writes tables of the figures, the claims with their outcomes, and a page.
//
// It does not run scenarios itself (emu/runner, emu/flowsim), nor compute the statistics of runs (results/metrics).
package suite

import (
	"path/filepath"
	"slices"
	"strings"
)

// Suite is the content of a file.
type Suite struct {
	Path    string
	Claims  Claims
	inputs  []input
	figures []*figure
	parts   []*part
}

func (s *Suite) part(name string) *part {
	i := slices.IndexFunc(s.parts, func(p *part) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return s.parts[i]
}

func (s *Suite) figure(name string) *figure {
	i := slices.IndexFunc(s.figures, func(f *figure) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return s.figures[i]
}

func (s *Suite) input(name string) *input {
	i := slices.IndexFunc(s.inputs, func(x input) bool { return x.name == name })
	if i < 0 {
		return nil
	}
	return &s.inputs[i]
}

func (s *Suite) partNames() (names []string) {
	for _, p := range s.parts {
		names = append(names, p.name)
	}
	return names
}

func (s *Suite) figureNames() (names []string) {
	for _, f := range s.figures {
		names = append(names, f.name)
	}
	return names
}

// Name returns the name of the suite: that of its file or, of a file claims.yaml, of its directory.
func (s *Suite) Name() string {
	name := strings.TrimSuffix(filepath.Base(s.Path), filepath.Ext(s.Path))
	if abs, err := filepath.Abs(s.Path); name == "claims" && err == nil {
		name = filepath.Base(filepath.Dir(abs))
	}
	return name
}

// Options are the settings of a run of a suite.
type Options struct {
	Dir     string            // output directory; must not exist
	Only    []string          // parts, or variants as part/variant; none for all that are not optional
	Set     map[string]string // paths of inputs
	Repeat  int               // repeats of each scenario, 1 or more
	Fluid   bool              // exclude packets
	Packets []string          // parts that run on packets too
}

// DefaultRepeat is the default number of repeats of each scenario.
const DefaultRepeat = 5
