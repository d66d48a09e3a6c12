package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
	"testbed/results/compare"
)

// errGate ends a comparison in which a gate failed.
var errGate = errors.New("a gate failed: the 95 % interval of a change is beyond its bound (see the lines \"gate\" above)")

// errUndecided ends a comparison in which a gate has no outcome.
var errUndecided = errors.New("a gate is undecided, which is no success: it needs more pairs or repeats, or another metric (see the lines \"gate\" above)")

// errVoidCompared ends a comparison in which an arm is void.
var errVoidCompared = fmt.Errorf("an arm is void, and is not compared: %w", errVoid)

func (a *app) compareCmd() *cobra.Command {
	var form forms
	var o runner.CompareOptions
	var gates []string
	cmd := &cobra.Command{
		Use: "compare RUN...", Short: "Compare arms or runs, with confidence intervals",
		Long: `Compare pairs the coflows, flows and blocks of two arms and prints the ratios of their
times with 95 % confidence intervals: ratio of averages, median of ratios, and geometric
mean of ratios. An interval that includes 1 is not significant. Fewer than 8 independent
pairs get no interval.

With one run, its arms are compared with its baseline. With several runs, the first is
the baseline and arms of the same name are compared. Runs of different scenarios are
refused; the error names the differences. Those in keys named with --varying are
compared, if their workloads are equal.

The directory of a sweep is compared point by point: the arms of each point, or those of
the same point of several sweeps.

With --varying seed, the runs of each seed are compared with the first of that seed, or
the arms of each run with its baseline if each seed has one run; the pairs of all seeds
are pooled. With --varying machine, pairs are made on one machine if each has several runs.

With --fail-if 'cct > 3%', the exit code is 5 if an arm's average CCT is more than 3 %
above the baseline's: only if the 95 % interval of the change is above the bound. A gate
without an interval is undecided, with exit code 1.

Exit code 3 means that an arm is void and was not compared.`,
		Example: `  testbed compare runs/quickstart-20260102-150405-ab12
  testbed compare runs/quickstart-20260102-150405-ab12 --baseline sebf+hdfs
  testbed compare runs/before runs/after
  testbed compare runs/before runs/after --arms sebf+hdfs,fair+hdfs=sebf+hdfs
  testbed compare runs/sweep-before runs/sweep-after
  testbed compare runs/cubic runs/bbr --varying fabric.congestion_control
  testbed compare runs/old1 runs/new1 runs/old2 runs/new2 --varying seed,version
  testbed compare runs/before runs/after --fail-if 'cct > 3%' --fail-if 'job_time > 5%'
  testbed compare runs/before runs/after --html > compare.html
  testbed compare runs/before runs/after --json | jq '.comparisons[].figures'`,
		Args: between(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			for _, text := range gates {
				g, err := compare.ParseGate(text)
				if err != nil {
					return usageError{fmt.Errorf("--fail-if %w", err)}
				}
				o.Gates = append(o.Gates, g)
			}
			if o.Baseline != "" && len(args) > 1 && len(o.Varying) == 0 {
				return usageError{errors.New("--baseline is of one run: of several the first is the baseline (--arms NAME=OTHER compares arms of different names)")}
			}
			o.Version = version
			out, err := runner.Compare(args, o)
			if err != nil {
				return err
			}
			if err := a.show(&form, written{data: out, terminal: out.Terminal, markdown: out.Markdown, csv: out.CSV, html: out.Page}); err != nil {
				return err
			}
			switch {
			case out.Void():
				return errVoidCompared
			case out.GateFailed():
				return errGate
			case out.GateUndecided():
				return errUndecided
			}
			return nil
		},
		ValidArgsFunction: completeDirs,
	}
	addBaseline(cmd, &o.Baseline, "an arm; default: the first of the run")
	completer(cmd)("baseline", completeArm)
	addArms(cmd, &o.Arms, "default: all; NAME=OTHER pairs arms of different names across runs")
	cmd.Flags().StringSliceVar(&o.Varying, "varying", nil, "compare runs that differ in these `keys` of the scenario (also: version, machine)")
	cmd.Flags().StringArrayVar(&gates, "fail-if", nil, "fail if the change of an average has this `bound`, such as 'cct > 3%' (repeatable)")
	form.add(cmd, "comparison and metric")
	cmd.Flags().BoolVar(&form.html, "html", false, "write a page of HTML")
	return cmd
}
