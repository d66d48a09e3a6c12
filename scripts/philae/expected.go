package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

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
	Speedups map[string]figure `yaml:"speedups"`  // of Philae D over a policy
	OverAalo map[string]figure `yaml:"over_aalo"` // of a policy
	Wide     map[string]figure `yaml:"wide"`      // of Philae D over a policy, as Mantri
	Mantri   map[string]figure `yaml:"mantri"`
	LowSkew  []figure          `yaml:"low_skew"` // over Aalo
	Estimate struct {
		Error     float64 `yaml:"error"`
		Deviation float64 `yaml:"deviation"`
	} `yaml:"estimate"`
	Learning map[string]float64         `yaml:"learning"`
	Testbed  map[int]figure             `yaml:"testbed"` // over Aalo, by number of nodes
	Missed   map[int]map[string]float64 `yaml:"missed"`  // part of intervals, by number of nodes and policy
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
	if err := file.Paper.check(); err != nil {
		return expected{}, fmt.Errorf("%s: %w", path, err)
	}
	return file.Paper, nil
}

// check finds names under which nothing would ever be looked up.
func (e expected) check() error {
	var errs []error
	known := func(key string, names, have []string) {
		for _, n := range names {
			if !slices.Contains(have, n) {
				errs = append(errs, fmt.Errorf("%s: no %q: have %s", key, n, strings.Join(have, ", ")))
			}
		}
	}
	known("speedups", slices.Sorted(maps.Keys(e.Speedups)), everyone)
	known("over_aalo", slices.Sorted(maps.Keys(e.OverAalo)), everyone)
	known("wide", slices.Sorted(maps.Keys(e.Wide)), rivals)
	known("mantri", slices.Sorted(maps.Keys(e.Mantri)), rivals)
	known("learning", slices.Sorted(maps.Keys(e.Learning)), learned)
	for _, nodes := range slices.Sorted(maps.Keys(e.Missed)) {
		known(fmt.Sprintf("missed.%d", nodes), slices.Sorted(maps.Keys(e.Missed[nodes])), everyone)
	}
	known("reasons", slices.Sorted(maps.Keys(e.Reasons)), slices.Concat(everyone, partNames()))
	for _, f := range e.LowSkew {
		if f.K < 1 {
			errs = append(errs, fmt.Errorf("low_skew: k %d: want 1 or more", f.K))
		}
	}
	return errors.Join(errs...)
}

// or is a figure of the paper, or that it has none.
func or(f float64) string {
	if f == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g×", f)
}
