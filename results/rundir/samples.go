package rundir

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/results/verdict"
)

// Samples calls f with the samples of each trial that has some and is not void, by arm and repeat.
func (r *Run) Samples(f func(schema.Key, *samples.Reader) error) error {
	if r.Manifest == nil {
		return nil
	}
	all, err := r.Trials()
	if err != nil {
		return err
	}
	var paths []string // of trials, in the order of all
	for name := range r.Manifest.Files {
		if path.Base(name) == TrialFile {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		for k := range a.Repeats {
			repeat := k
			if a.Numbers != nil {
				repeat = a.Numbers[k]
			}
			if !r.Simulated() && a.Verdicts[k].Level == verdict.Void {
				continue
			}
			at := slices.IndexFunc(all, func(t Trial) bool { return t.Arm == a.Name && t.Repeat == repeat })
			if at < 0 {
				continue // only captures were kept
			}
			name := path.Join(path.Dir(paths[at]), samples.File)
			if _, ok := r.Manifest.Files[name]; !ok {
				continue // of an older version
			}
			if err := r.samplesOf(name, schema.Key{Arm: a.Name, Repeat: repeat, Verdict: r.verdictOf(a, k)}, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// samplesOf calls f with the samples of a file.
func (r *Run) samplesOf(name string, key schema.Key, f func(schema.Key, *samples.Reader) error) (err error) {
	for _, c := range r.Changes {
		if c.File == name {
			return fmt.Errorf("%s (restore the file)", c)
		}
	}
	in, err := samples.Open(filepath.Join(r.Dir, filepath.FromSlash(name)))
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSuffix(name, "/"+samples.File), err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return f(key, in)
}
