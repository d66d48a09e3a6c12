package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
	"testbed/results/rundir"
	"testbed/topo/words"
)

// choiceFlags choose trials of a scenario.
type choiceFlags struct {
	resume         bool
	arms           string
	repeats, shard string
}

func (f *choiceFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.resume, "resume", false, "execute the trials that a run lacks: of a run directory, of the newest run of a SCENARIO, which begins if there is none, or of the newest run")
	addArm(cmd, &f.arms, "several with commas; default: all")
	cmd.Flags().StringVar(&f.repeats, "repeats", "", "repeats (only these, counted from 0, such as 3 or 3..5; default: all)")
	cmd.Flags().StringVar(&f.shard, "shard", "", "only this part of the trials, with all arms of a repeat in one part: `i/n`, such as 1/4")
}

// choice returns the choice of trials.
func (f *choiceFlags) choice(of *scenarioFlags) (c runner.Choice, err error) {
	if c.Points, err = assignments("--point", of.point); err != nil {
		return c, err
	}
	if f.arms != "" {
		c.Arms = strings.Split(f.arms, ",")
	}
	if f.repeats != "" {
		if c.Repeats, err = runner.ParseRepeats(f.repeats); err != nil {
			return c, usageError{fmt.Errorf("--repeats %w", err)}
		}
	}
	if f.shard != "" {
		if c.Shard, c.Shards, err = runner.ParseShard(f.shard); err != nil {
			return c, usageError{fmt.Errorf("--shard %w", err)}
		}
	}
	return c, nil
}

// args checks the arguments of a verb that takes a scenario or goes on with a run.
func (f *choiceFlags) args(scale *scaleFlag, of *scenarioFlags) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if !f.resume {
			return scale.args(cmd, args)
		}
		if scale.set() {
			return usageError{errors.New("--check-scale with --resume: a run that goes on checks its scale if it did before: leave it out")}
		}
		if (len(of.set) > 0 || cmd.Flags().Changed("seed")) && (len(args) == 0 || isDirectory(args[0])) {
			return usageError{errors.New("--set or --seed with --resume: a run that goes on has its variables and seed: leave it out")}
		}
		return between(0, 1)(cmd, args)
	}
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// directory returns the directory of the run to go on with, "" if there is none yet of a scenario.
func (f *choiceFlags) directory(of *scenarioFlags, args []string, out, backend string) (string, error) {
	if len(args) == 0 {
		dir := filepath.Join(out, rundir.Latest)
		if !isDirectory(dir) {
			return "", fmt.Errorf("--resume: there is no run in %s: name the directory of a run", out)
		}
		return filepath.EvalSymlinks(dir)
	}
	if isDirectory(args[0]) {
		return filepath.EvalSymlinks(args[0])
	}
	s, err := of.load(args[0])
	if err != nil {
		return "", err
	}
	fingerprint, err := s.Fingerprint()
	if err != nil {
		return "", err
	}
	if backend != rundir.Fluid {
		backend = runner.BackendOf(s)
	}
	return rundir.Newest(out, fingerprint, backend)
}

func (a *app) shardsCmd() *cobra.Command {
	var f scenarioFlags
	var count int
	cmd := &cobra.Command{
		Use: "shards SCENARIO", Short: "List the parts of a scenario that can run apart, one a line",
		Long: `Shards prints one line for each part of a scenario's trials, as run --shard takes it. All
arms of a point and repeat are in one part, because they are compared with each other. What runs the parts
is up to you: xargs, GNU parallel, a batch system, or a matrix of CI jobs. "testbed merge" makes
one run of their run directories.`,
		Example: `  testbed shards scenario.yaml
  testbed shards scenario.yaml --count 4 | parallel testbed sim scenario.yaml --out parts/{#} --shard {}
  testbed shards scenario.yaml --json`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			list, err := runner.Shards(s, count)
			if err != nil {
				return usageError{fmt.Errorf("--count %w", err)}
			}
			return a.print(list, func(w io.Writer) error {
				for _, one := range list {
					if _, err := fmt.Fprintln(w, one.Shard); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&count, "count", 0, "`number` of parts; by default as many as possible")
	return cmd
}

func (a *app) mergeCmd() *cobra.Command {
	var form forms
	var out string
	cmd := &cobra.Command{
		Use: "merge RUN...", Short: "Merge parts of a run that ran apart",
		Long: `Merge copies the trials of run directories into a new one and reports on all of them. The
runs must be of the same scenario and version; what differs is named. Trials that no run has are
named, and the new run can go on with them ("testbed run --resume"). The merged runs stay.`,
		Example: `  testbed merge parts/*/latest
  testbed merge -o all a/quickstart-20260102-150405-ab12 b/quickstart-20260102-150411-07fe`,
		Args: between(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			o, err := runner.Merge(args, runner.Options{Out: out, StateRoot: a.state, Version: version})
			if o == nil {
				return err
			}
			for _, x := range []struct {
				what  string
				names []string
			}{{"no run has", o.Missing}, {"void:", o.Void}} {
				if len(x.names) > 0 {
					fmt.Fprintf(a.stderr, "testbed: %s %s: %s\n", x.what, words.Plural(len(x.names), "trial", "trials"), strings.Join(x.names, ", "))
				}
			}
			if o.Outcome == nil {
				return errors.Join(err, errors.New("merge: no trial has ended"))
			}
			return errors.Join(err, a.present(o.Outcome, &form))
		},
		ValidArgsFunction: completeDirs,
	}
	addOut(cmd, &out)
	form.add(cmd, "arm and metric")
	return cmd
}
