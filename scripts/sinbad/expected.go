package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// figure is one that the paper has, or that is expected here.
type figure struct {
	// ID is a part and what of it: write_time, request_time, job_time, v1 (the second
	// pair's write time), cv_drop, imbalance or bound.
	ID    string  `yaml:"id"`
	What  string  `yaml:"what"`
	Paper float64 `yaml:"paper"` // 0 where it has none
	// Low and High are between what it is expected here, and Why says why there and
	// not where the paper has it.
	Low  float64 `yaml:"low"`
	High float64 `yaml:"high"`
	Why  string  `yaml:"why"`
}

// measured is a figure that was found; alone has no interval.
type measured struct {
	ratio
	alone bool
}

// keys are what of a part a figure can be of.
var keys = []string{"write_time", "request_time", "job_time", "v1", "cv_drop", "imbalance", "bound"}

// readExpected reads a file such as expected.yaml.
func readExpected(path string) ([]figure, error) {
	text, err := os.ReadFile(path)
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
			errs = append(errs, fmt.Errorf("no figure %q: want a part of %s, a slash and one of %s", f.ID, strings.Join(partNames(), ", "), strings.Join(keys, ", ")))
		case seen[f.ID]:
			errs = append(errs, fmt.Errorf("figure %q again", f.ID))
		case f.What == "" || f.Why == "" || f.Low > f.High || f.Paper < 0:
			errs = append(errs, fmt.Errorf("figure %q: want what it is and why, low up to high, and no figure of the paper below 0", f.ID))
		}
		seen[f.ID] = true
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file.Figures, nil
}

// judge tells whether a figure is what was expected. One whose interval meets the
// expectation is not told apart from it.
func (f figure) judge(m measured) string {
	switch {
	case f.Low <= m.Value && m.Value <= f.High:
		return "as expected"
	case !m.alone && m.CI[0] <= f.High && f.Low <= m.CI[1]:
		return "not told apart"
	case m.Value < f.Low:
		return "less than expected"
	default:
		return "more than expected"
	}
}

// beside tells where a figure lies from the paper's; a dash where that has none.
func (f figure) beside(m measured) string {
	switch {
	case f.Paper == 0:
		return "–"
	case !m.alone && m.CI[0] <= f.Paper && f.Paper <= m.CI[1]:
		return "not told apart"
	case m.Value < f.Paper:
		return "less"
	default:
		return "more"
	}
}

// text is a figure's value in the unit of its kind.
func (f figure) text(v float64) string {
	switch _, key, _ := strings.Cut(f.ID, "/"); key {
	case "cv_drop":
		return fmt.Sprintf("%.2f", v)
	case "imbalance":
		return fmt.Sprintf("%.2f %%", 100*v)
	default:
		return fmt.Sprintf("%.2f×", v)
	}
}

// verdicts sets what was measured beside the paper's figures and what was expected.
func (s *sinbad) verdicts() error {
	var rows [][]string
	var whys []string
	for _, f := range s.want {
		m, ok := s.got[f.ID]
		if !ok {
			continue // of a part that did not run
		}
		paper := "–"
		if f.Paper > 0 {
			paper = f.text(f.Paper)
		}
		value := f.text(m.Value)
		if !m.alone {
			value = m.ratio.String()
		}
		rows = append(rows, []string{f.ID, f.What, paper, f.text(f.Low) + " to " + f.text(f.High), value, f.judge(m), f.beside(m)})
		whys = append(whys, fmt.Sprintf("- %s: %s", f.ID, strings.Join(strings.Fields(f.Why), " ")))
	}
	if len(rows) == 0 {
		return nil
	}
	s.Say("## The paper's figures, those expected here, and those measured\n")
	if err := s.Draw([]string{"figure", "what", "paper", "expected", "measured", "verdict", "beside the paper"}, rows); err != nil {
		return err
	}
	s.Say("%s\n", strings.Join(whys, "\n"))
	return nil
}
