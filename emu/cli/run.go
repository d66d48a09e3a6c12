package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/experiment"
	"testbed/emu/scenario"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// scenarioFlags are those of verbs that read a scenario.
type scenarioFlags struct{ set []string }

func (f *scenarioFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "give a variable of the scenario another value: name=value (repeatable)")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

func (f *scenarioFlags) load(path string) (*scenario.Scenario, error) {
	set := map[string]string{}
	for _, s := range f.set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--set %q: want name=value", s)}
		}
		set[name] = value
	}
	return scenario.Load(path, scenario.Options{Set: set, CheckPolicy: experiment.CheckPolicy})
}

func (a *app) runCmd() *cobra.Command {
	var f scenarioFlags
	var out string
	scale := &scaleFlag{}
	var form forms
	var force bool
	cmd := &cobra.Command{
		Use: "run SCENARIO", Short: "Run a scenario on packets and report what the captures show",
		Long: `Run builds the scenario's fabric for each arm and repeat, runs the workload in it
on real TCP, captures every host, and prints a table a metric with the verdict of
each arm. Everything is kept in a run directory. It needs root.

With --check-scale every arm runs once more with all rates and sizes divided by a
factor and all times kept, and the report tells whether speed-ups moved. They should
not: the emulation stands for a faster network.

Ctrl-C once ends the run cleanly: nothing is left on the machine, the repeats that
had ended are reported and marked as partial, and the exit code is 1. Ctrl-C twice
ends it at once; "testbed gc" then removes what it had made.
Where the machine is calibrated ("testbed calibrate"), links get the buckets that
were measured to hold their rate, and a scenario that is predicted to be more than
the machine carries is refused.

Exit code 3 tells that the verdict of an arm is void.`,
		Example: `  sudo testbed run scripts/quickstart/scenario.yaml
  sudo testbed run scripts/quickstart/facebook.yaml --set trace=FB2010-1Hr-150-0.txt
  sudo testbed run scenario.yaml --json | jq '.arms[].cct'
  sudo testbed run scenario.yaml --check-scale 2`,
		Args: scale.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.execute(cmd.Context(), &f, scale, &form, args, out, func(ctx context.Context, s *scenario.Scenario, o experiment.Options) (*experiment.Outcome, error) {
				if err := needRoot("run"); err != nil {
					return nil, err
				}
				c, err := a.calibration()
				if err != nil {
					return nil, err
				}
				o.Calibration, o.Force = c, force
				return experiment.Execute(ctx, s, o)
			})
		},
	}
	f.add(cmd)
	scale.add(cmd)
	form.add(cmd)
	cmd.Flags().StringVar(&out, "out", "runs", "directory in which the run directory is made")
	cmd.Flags().BoolVar(&force, "force", false, "run also what is predicted to be more than this machine carries")
	return cmd
}

// calibration is this machine's. Without one it says so.
func (a *app) calibration() (*calibration.Calibration, error) {
	c, err := calibration.Load()
	if c == nil && err == nil {
		fmt.Fprintln(a.stderr, "note: no calibration of this machine: using defaults; sudo testbed calibrate makes one")
	}
	return c, err
}

func (a *app) simCmd() *cobra.Command {
	var f scenarioFlags
	var out string
	scale := &scaleFlag{}
	var form forms
	cmd := &cobra.Command{
		Use: "sim SCENARIO", Short: "Run a scenario on the fluid model, without root",
		Long: `Sim runs the same engine and the same policies as run, on a fluid model: flows
share links max-min fairly under their ceilings, without packets or headers. It
takes seconds and needs no root. Its figures are predictions, not measurements.`,
		Example: `  testbed sim scripts/quickstart/scenario.yaml
  testbed sim scripts/quickstart/scenario.yaml --json
  testbed sim scripts/quickstart/scenario.yaml --check-scale 2`,
		Args: scale.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.execute(cmd.Context(), &f, scale, &form, args, out, experiment.Simulate)
		},
	}
	f.add(cmd)
	scale.add(cmd)
	form.add(cmd)
	cmd.Flags().StringVar(&out, "out", "runs", "directory in which the run directory is made")
	return cmd
}

type runner func(context.Context, *scenario.Scenario, experiment.Options) (*experiment.Outcome, error)

func (a *app) execute(ctx context.Context, f *scenarioFlags, scale *scaleFlag, form *forms, args []string, out string, how runner) error {
	if err := form.check(a); err != nil {
		return err
	}
	path, by := scale.split(args)
	s, err := f.load(path)
	if err != nil {
		return err
	}
	show := a.progress()
	o, err := how(ctx, s, experiment.Options{Out: out, StateRoot: a.state, Version: version, Progress: show.update, CheckScale: by})
	show.done()
	if o == nil {
		return err
	}
	if err != nil {
		fmt.Fprintln(a.stderr, "testbed: the run was cut short; what had ended by then:")
		return errors.Join(err, a.present(o, form))
	}
	return a.present(o, form)
}

// present prints the figures and turns a void verdict into its error.
func (a *app) present(o *experiment.Outcome, form *forms) error {
	if err := a.show(form, written{data: o.Report.Summary, markdown: o.Report.Markdown, csv: o.Report.HeadlineCSV, terminal: func(w io.Writer, s tables.Style) error {
		if err := o.Report.TerminalIn(w, s); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\nRun directory: %s\n", o.Dir)
		return err
	}}); err != nil {
		return err
	}
	if o.Level() == verdict.Void {
		return errVoid
	}
	return nil
}

func (a *app) reportCmd() *cobra.Command {
	var form forms
	cmd := &cobra.Command{
		Use: "report RUN", Short: "Compute a run's report again from its captures",
		Long: `Report reads the captures under a run directory, computes all figures again and
writes report.md, report.html, summary.json and the CSV files. It needs only the
captures; where the records of how the run went are gone, the verdict is
"unverified".`,
		Example: `  testbed report runs/quickstart-20260102-150405-ab12
  testbed report runs/quickstart-20260102-150405-ab12 --csv
  testbed report runs/quickstart-20260102-150405-ab12 --json`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			show := a.progress()
			o, err := experiment.ReportProgress(cmd.Context(), args[0], show.update)
			show.done()
			if err != nil {
				return err
			}
			return a.present(o, &form)
		},
		ValidArgsFunction: completeDirs,
	}
	form.add(cmd)
	return cmd
}
