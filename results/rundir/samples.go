package rundir

import (
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/results/safefile"
	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/results/verdict"
)

// Repeats calls f with the arm, repeat and verdict of each repeat that is not void.
func (r *Run) Repeats(f func(schema.Key) error) error {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		for k := range a.Repeats {
			if !r.Simulated() && a.Verdicts[k].Level == verdict.Void {
				continue
			}
			if err := f(schema.Key{Arm: a.Name, Repeat: a.Numbers.Of(k), Verdict: r.verdictOf(a, k)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Samples calls f with the samples of each trial that has some and is not void, by arm and repeat.
// Their points count from time 0 of the tables.
func (r *Run) Samples(f func(schema.Key, *samples.Reader) error) error {
	return r.trialFiles(samples.File, func(k schema.Key, name string) error { return r.samplesOf(name, k, f) })
}

// zero returns the wall clock at time 0 of the tables of a repeat; zero in a simulation, and in a summary without it.
func (r *Run) zero(k schema.Key) time.Time {
	a := r.Arm(k.Arm)
	for i := range a.Zeros {
		if len(a.Zeros) == a.Repeats && a.Numbers.Of(i) == k.Repeat {
			return a.Zeros[i]
		}
	}
	return time.Time{}
}

// EventsFile is the log of the engine's events and commands in the directory of a trial.
const EventsFile = "events.jsonl"

// Events calls f with the log of each trial that has one and is not void, by arm and repeat, and with the start of the
// trial, from which its times count, in the times of the tables.
func (r *Run) Events(f func(k schema.Key, start time.Duration, log io.Reader) error) error {
	return r.trialFiles(EventsFile, func(k schema.Key, name string) (err error) {
		for _, c := range r.Changes {
			if c.File == name {
				return fmt.Errorf("%s (restore the file)", c)
			}
		}
		start, err := r.start(k, path.Dir(name))
		if err != nil {
			return err
		}
		in, err := safefile.Open(filepath.Join(r.Dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		if err := f(k, start, in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// start returns the start of the trial in a directory in the times of the tables: 0 without samples, which state it.
func (r *Run) start(k schema.Key, dir string) (at time.Duration, err error) {
	zero, name := r.zero(k), path.Join(dir, samples.File)
	if _, ok := r.Manifest.Files[name]; !ok || zero.IsZero() {
		return 0, nil
	}
	err = r.samplesOf(name, k, func(_ schema.Key, in *samples.Reader) error {
		at = in.Zero.Sub(zero)
		return nil
	})
	return at, err
}

// trialFiles calls f with the path, below the run, of a file of each trial that has it and is not void.
func (r *Run) trialFiles(file string, f func(k schema.Key, name string) error) error {
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
	return r.Repeats(func(k schema.Key) error {
		at := slices.IndexFunc(all, func(t Trial) bool { return t.Arm == k.Arm && t.Repeat == k.Repeat })
		if at < 0 {
			return nil // only captures were kept
		}
		name := path.Join(path.Dir(paths[at]), file)
		if _, ok := r.Manifest.Files[name]; !ok {
			return nil // as in a simulation of jobs only
		}
		return f(k, name)
	})
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
	in.CountFrom(r.zero(key))
	return f(key, in)
}
