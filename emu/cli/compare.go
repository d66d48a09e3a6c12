package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
)

// errVoidCompared ends a comparison in which an arm is void.
var errVoidCompared = fmt.Errorf("an arm is void, and is not compared: %w", errVoid)

func (a *app) compareCmd() *cobra.Command {
	var form forms
	var o runner.CompareOptions
	cmd := &cobra.Command{
		Use: "compare RUN...", Short: "Compare arms or runs, with confidence intervals",
		Long: `Compare pairs the coflows, flows and blocks of two arms and prints the ratios of their
times with 95 % confidence intervals: ratio of averages, median of ratios, and geometric
mean of ratios. An interval that includes 1 is not significant. Fewer than 8 independent
pairs get no interval.

With one run, its arms are compared with its baseline. With several runs, the first is
the baseline and arms of the same name are compared. Runs of different workloads are
refused; the error names the differences.

Exit code 3 means that an arm is void and was not compared.`,
		Example: `  testbed compare runs/quickstart-20260102-150405-ab12
  testbed compare runs/quickstart-20260102-150405-ab12 --baseline sebf+hdfs
  testbed compare runs/before runs/after
  testbed compare runs/before runs/after --arms sebf+hdfs,fair+hdfs=sebf+hdfs
  testbed compare runs/before runs/after --json | jq '.comparisons[].figures'`,
		Args: between(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			if o.Baseline != "" && len(args) > 1 {
				return usageError{errors.New("--baseline is of one run: of several the first is the baseline (--arms NAME=OTHER compares arms of different names)")}
			}
			o.Version = version
			out, err := runner.Compare(args, o)
			if err != nil {
				return err
			}
			if err := a.show(&form, written{data: out, terminal: out.Terminal, markdown: out.Markdown, csv: out.CSV}); err != nil {
				return err
			}
			if out.Void() {
				return errVoidCompared
			}
			return nil
		},
		ValidArgsFunction: completeDirs,
	}
	addBaseline(cmd, &o.Baseline, "an arm; default: the first of the run")
	completer(cmd)("baseline", completeArm)
	addArms(cmd, &o.Arms, "default: all; NAME=OTHER pairs arms of different names across runs")
	form.add(cmd, "comparison and metric")
	return cmd
}
