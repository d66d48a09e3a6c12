package main

import (
	stats "testbed/results/metrics"
	"testbed/topo/units"

	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/results/safefile"

	"go.yaml.in/yaml/v4"
)

// figure is a figure that the paper has, or that is expected here.
type figure struct {
	// ID is a part, a slash and one of keys. v1 is the write time of the second pair.
	ID    string  `yaml:"id"`
	What  string  `yaml:"what"`
	Paper float64 `yaml:"paper"` // 0 if it has none
	// Low and High are the range expected here. Why is the reason for it, and for a
	// difference from the paper.
	Low  float64 `yaml:"low"`
	High float64 `yaml:"high"`
	Why  string  `yaml:"why"`
}

// measured is a measured figure. If alone is true, it has no interval.
type measured struct {
	ratio
	alone bool
}

// keys are the figures that a part can have.
var keys = []string{"write_time", "request_time", "job_time", "v1", "cv_drop", "imbalance", "bound"}

// readExpected reads a file such as expected.yaml.
func readExpected(path string) ([]figure, error) {
	text, err := safefile.Read(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Figures []figure `yaml:"figures"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	seen := map[string]bool{}
	for _, f := range file.Figures {
		part, key, _ := strings.Cut(f.ID, "/")
		switch {
		case !slices.Contains(partNames(), part) || !slices.Contains(keys, key):
			errs = append(errs, fmt.Errorf("unknown figure %q: expected a part (%s), a slash and one of %s", f.ID, strings.Join(partNames(), ", "), strings.Join(keys, ", ")))
		case seen[f.ID]:
			errs = append(errs, fmt.Errorf("figure %q: already listed", f.ID))
		case f.What == "" || f.Why == "" || f.Low > f.High || f.Paper < 0:
			errs = append(errs, fmt.Errorf("figure %q: must have what and why, low at most high, and paper not below 0", f.ID))
		}
		seen[f.ID] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file.Figures, nil
}

// judge compares a figure with the expected range. The difference is not significant if the
// figure's interval overlaps the range.
func (f figure) judge(m measured) string {
	switch {
	case f.Low <= m.Value && m.Value <= f.High:
		return "as expected"
	case m.CI.Known() && m.CI.Low <= f.High && f.Low <= m.CI.High:
		return "not significant"
	case !m.alone && !m.CI.Known():
		return stats.FewPairs
	case m.Value < f.Low:
		return "less than expected"
	default:
		return "more than expected"
	}
}

// relative compares a figure with the paper's. It returns a dash if the paper has none.
func (f figure) relative(m measured) string {
	switch {
	case f.Paper == 0:
		return "–"
	case m.CI.Known() && m.CI.Holds(f.Paper):
		return "not significant"
	case !m.alone && !m.CI.Known():
		return stats.FewPairs
	case m.Value < f.Paper:
		return "less"
	default:
		return "more"
	}
}

// text formats a value of the figure with its unit.
func (f figure) text(v float64) string {
	switch _, key, _ := strings.Cut(f.ID, "/"); key {
	case "cv_drop":
		return fmt.Sprintf("%.2f", v)
	case "imbalance":
		return units.Percent(v, 2)
	default:
		return fmt.Sprintf("%.2f×", v)
	}
}

// verdicts writes the measured figures, the paper's and the expected ranges.
func (s *sinbad) verdicts() error {
	var rows [][]string
	var whys []string
	for _, f := range s.want {
		m, ok := s.got[f.ID]
		if !ok {
			continue // the part did not run
		}
		paper := "–"
		if f.Paper > 0 {
			paper = f.text(f.Paper)
		}
		value := f.text(m.Value)
		if !m.alone {
			value = m.ratio.String()
		}
		rows = append(rows, []string{f.ID, f.What, paper, f.text(f.Low) + " to " + f.text(f.High), value, f.judge(m), f.relative(m)})
		whys = append(whys, fmt.Sprintf("- %s: %s", f.ID, strings.Join(strings.Fields(f.Why), " ")))
	}
	if len(rows) == 0 {
		return nil
	}
	s.Say("## Figures: the paper's, expected and measured\n")
	if err := s.Draw([]string{"figure", "meaning", "paper", "expected", "measured", "result", "relative to the paper"}, rows); err != nil {
		return err
	}
	s.Say("%s\n", strings.Join(whys, "\n"))
	return nil
}
