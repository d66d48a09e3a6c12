package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/emu/experiment"
)

// errVoidCompared ends a comparison in which an arm is void.
var errVoidCompared = fmt.Errorf("an arm is void, and is not compared: %w", errVoid)

func (a *app) compareCmd() *cobra.Command {
	var form forms
	var o experiment.CompareOptions
	cmd := &cobra.Command{
		Use: "compare RUN...", Short: "Tell whether arms, or runs, differ by more than chance",
		Long: `Compare pairs the coflows, flows and blocks of two arms, and prints the ratio of
their times with intervals that say how far chance may go: of the averages, the
median of the pairs' ratios, and their geometric mean. An interval that holds 1
shows no difference.

With one run its arms are compared with its baseline. With several the first run is
the baseline, and arms of the same name are compared. Runs of different workloads
are refused, and in what they differ is said.

Exit code 3 tells that an arm is void: it is not compared.`,
		Example: `  testbed compare runs/quickstart-20260102-150405-ab12
  testbed compare runs/quickstart-20260102-150405-ab12 --baseline sebf+hdfs
  testbed compare runs/before runs/after
  testbed compare runs/before runs/after --arms sebf+hdfs,fair+hdfs=sebf+hdfs
  testbed compare runs/before runs/after --json | jq '.comparisons[].figures'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("%s: no argument, want one run directory or more: %s", cmd.Name(), cmd.UseLine())}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			if o.Baseline != "" && len(args) > 1 {
				return usageError{errors.New("--baseline is of one run: of several the first is the baseline (--arms NAME=OTHER compares arms of different names)")}
			}
			o.Version = version
			out, err := experiment.Compare(args, o)
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
	cmd.Flags().StringVar(&o.Baseline, "baseline", "", "arm of one run that the others are compared with (the run's first by default)")
	cmd.Flags().StringSliceVar(&o.Arms, "arms", nil, "arms to compare, all by default; NAME=OTHER pairs arms of different names across runs")
	form.add(cmd)
	complete := completer(cmd)
	complete("arms", completeArms)
	complete("baseline", completeArm)
	return cmd
}
