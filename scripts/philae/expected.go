package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"testbed/results/safefile"

	"go.yaml.in/yaml/v4"
)

// figure is a speed-up from the paper. Values that the paper does not report are 0.
type figure struct {
	Avg     float64 `yaml:"avg"`
	P50     float64 `yaml:"p50"`
	P90     float64 `yaml:"p90"`
	K       int     `yaml:"k"`
	Coflows int     `yaml:"coflows"`
}

// expected is the content of a file such as expected.yaml.
type expected struct {
	Speedups map[string]figure `yaml:"speedups"`  // of Philae D relative to a policy
	OverAalo map[string]figure `yaml:"over_aalo"` // of a policy relative to Aalo
	Wide     map[string]figure `yaml:"wide"`      // of Philae D relative to a policy; Mantri too
	Mantri   map[string]figure `yaml:"mantri"`
	LowSkew  []figure          `yaml:"low_skew"` // relative to Aalo
	Estimate struct {
		Error     float64 `yaml:"error"`
		Deviation float64 `yaml:"deviation"`
	} `yaml:"estimate"`
	Learning map[string]float64         `yaml:"learning"`
	Testbed  map[int]figure             `yaml:"testbed"` // relative to Aalo, by number of nodes
	Missed   map[int]map[string]float64 `yaml:"missed"`  // fraction of intervals, by number of nodes and policy
	JCT      figure                     `yaml:"jct"`
	Reasons  map[string]string          `yaml:"reasons"` // reasons for differences, by policy or part
}

func readExpected(path string) (expected, error) {
	text, err := safefile.Read(path)
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

// check rejects names that no part looks up.
func (e expected) check() error {
	var errs []error
	known := func(key string, names, have []string) {
		for _, n := range names {
			if !slices.Contains(have, n) {
				errs = append(errs, fmt.Errorf("%s: unknown name %q: must be one of %s", key, n, strings.Join(have, ", ")))
			}
		}
	}
	known("speedups", slices.Sorted(maps.Keys(e.Speedups)), tablePolicies)
	known("over_aalo", slices.Sorted(maps.Keys(e.OverAalo)), tablePolicies)
	known("wide", slices.Sorted(maps.Keys(e.Wide)), derivedBaselines)
	known("mantri", slices.Sorted(maps.Keys(e.Mantri)), derivedBaselines)
	known("learning", slices.Sorted(maps.Keys(e.Learning)), learningPolicies)
	for _, nodes := range slices.Sorted(maps.Keys(e.Missed)) {
		known(fmt.Sprintf("missed.%d", nodes), slices.Sorted(maps.Keys(e.Missed[nodes])), tablePolicies)
	}
	known("reasons", slices.Sorted(maps.Keys(e.Reasons)), slices.Concat(tablePolicies, partNames()))
	for _, f := range e.LowSkew {
		if f.K < 1 {
			errs = append(errs, fmt.Errorf("low_skew: k %d: must be 1 or more", f.K))
		}
	}
	return errors.Join(errs...)
}

// paperText formats a figure of the paper, with a dash for 0.
func paperText(f float64) string {
	if f == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g×", f)
}
