package main

import (
	"bytes"
	"fmt"
	"os"

	"go.yaml.in/yaml/v4"
)

// figure is a speed-up as the paper reports it: 0 where it does not.
type figure struct {
	Avg     float64 `yaml:"avg"`
	P50     float64 `yaml:"p50"`
	P90     float64 `yaml:"p90"`
	K       int     `yaml:"k"`
	Coflows int     `yaml:"coflows"`
}

// expected is what a file such as expected.yaml states.
type expected struct {
	Speedups map[string]figure `yaml:"speedups"` // of Philae D over a policy
	OverAalo map[string]figure `yaml:"over_aalo"`
	Wide     map[string]figure `yaml:"wide"`
	Mantri   map[string]figure `yaml:"mantri"`
	LowSkew  []figure          `yaml:"low_skew"`
	Estimate struct {
		Error     float64 `yaml:"error"`
		Deviation float64 `yaml:"deviation"`
	} `yaml:"estimate"`
	Learning map[string]float64         `yaml:"learning"`
	Testbed  map[int]figure             `yaml:"testbed"`
	Missed   map[int]map[string]float64 `yaml:"missed"`
	JCT      figure                     `yaml:"jct"`
	Reasons  map[string]string          `yaml:"reasons"` // why figures differ, by policy or part
}

func readExpected(path string) (expected, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return expected{}, err
	}
	var file struct {
		Paper expected `yaml:"paper"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return expected{}, fmt.Errorf("%s: %w", path, err)
	}
	return file.Paper, nil
}

// or is a figure of the paper, or that it has none.
func or(f float64) string {
	if f == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g×", f)
}
