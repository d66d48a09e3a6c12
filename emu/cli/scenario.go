package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/plan"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/metrics"
	"testbed/results/rundir"
	tables "testbed/results/table"
	"testbed/topo/units"
)

func (a *app) validateCmd() *cobra.Command {
	var f scenarioFlags
	cmd := &cobra.Command{
		Use: "validate SCENARIO", Short: "Check a scenario and its trace files",
		Long: `Validate reports all errors of a scenario at once, each with its file, line and column. It
reads the traces, workload files and job files that the scenario names, and builds nothing.
Of a scenario with a sweep it prints a line for each point, or an object with --json.
SCENARIO may be -, standard input, as for all verbs that read a scenario: paths in it are then
relative to the working directory.

It does not require root. A warning names each kernel feature that the scenario needs and this
machine lacks. The file is valid nevertheless: another machine, or testbed sim, can run it.`,
		Example: `  testbed validate scenario.yaml
  testbed validate scripts/quickstart/facebook.yaml --set trace=FB2010-1Hr-150-0.txt`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			points, err := f.points(args[0])
			if err != nil {
				return err
			}
			var missing []scenario.Problem
			for _, point := range points {
				p, err := runner.Preview(point.Scenario)
				if err != nil {
					return err
				}
				for _, m := range p.Missing {
					if !slices.Contains(missing, m) {
						missing = append(missing, m)
						fmt.Fprintln(a.stderr, "warning: this machine cannot run it:", m)
					}
				}
				of := struct {
					Point string `json:"point,omitempty"`
					*runner.Forecast
				}{point.Name(), p}
				if err := a.print(of, func(w io.Writer) error {
					name := args[0]
					if of.Point != "" {
						name += ": " + of.Point
					}
					_, err := fmt.Fprintf(w, "%s: OK: %s\n", name, p)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	f.addPoint(cmd)
	return cmd
}

func (a *app) planCmd() *cobra.Command {
	var f scenarioFlags
	var load loadFlag
	var store storeFlags
	var virtual runner.VirtualOptions
	var full bool
	var operations int
	var from string
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "Print how a scenario's fabric would be built, and what running it would take",
		Long: `Plan prints each operation as the ip, tc or sysctl command it stands for, and ahead
of them, as comments, the totals of the workload, how long it would run and how
much of this machine and its disk it would take, and whether "testbed run" starts it, starts it
with a warning or refuses it: the exit code is then 4, as that of run. Kernel features are tested
by use, in a temporary namespace, which requires root. Nothing is built. Of a plan with more than --operations a
few of each stage are printed, unless --full is given.

It also states how many repeats show a difference of 10 % with a probability of 80 %: by the noise
calibration of this machine, or by a first run of the scenario, of two repeats or more (--first-run).

Of a scenario with a sweep it prints what running each point would take, and the totals, without
operations.`,
		Example: `  testbed plan scenario.yaml | less
  testbed plan scenario.yaml --full > build.sh
  testbed plan scenario.yaml --first-run results/latest
  testbed plan scenario.yaml --json | jq .load`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			var c *calibration.Calibration
			if runner.BackendOf(s) == rundir.Packets {
				if c, err = a.calibration(); err != nil {
					return err
				}
			}
			if err := load.check(); err != nil {
				return err
			}
			if operations < 0 {
				return usageError{fmt.Errorf("--operations %d: must be 0 or more", operations)}
			}
			captures, err := store.mode()
			if err != nil {
				return err
			}
			o := runner.Options{Out: store.out, Captures: captures, Calibration: c, WarnLoad: load.share(), Virtual: virtual}
			if points := s.Points(); len(points[0].Values) > 0 {
				if from != "" {
					return usageError{errors.New("--first-run: the scenario has a sweep: plan the scenario.yaml of a point of the run")}
				}
				return a.planSweep(cmd.Context(), points, o)
			}
			p, err := runner.Predict(cmd.Context(), s, o)
			if err != nil {
				return err
			}
			var noise *metrics.Noise
			if c != nil && c.Noise != nil {
				noise = &c.Noise.Noise
			}
			if err := p.PlanRepeats(s, from, noise); err != nil {
				return err
			}
			most := operations
			if full {
				most = -1
			} else if p.Plan.Counts().Ops > most {
				fmt.Fprintf(a.stderr, "note: the plan has %d operations: printing a few of each stage (--full prints all)\n", p.Plan.Counts().Ops)
			}
			if a.json {
				p.Plan = p.Plan.Short(most)
			}
			err = a.print(p, func(w io.Writer) error { return p.Script(w, most) })
			return errors.Join(err, p.Refusal(false))
		},
	}
	f.add(cmd)
	load.add(cmd)
	store.add(cmd)
	f.addTime(cmd)
	addVirtual(cmd, &virtual)
	f.addFork(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "print all operations of the plan")
	cmd.Flags().StringVar(&from, "first-run", "", "directory of a first run, by which to plan the number of repeats (default: by the noise calibration)")
	cmd.Flags().IntVar(&operations, "operations", plan.DefaultPrinted, "print a few operations of each stage where the plan has more than this `number`")
	return cmd
}

func (a *app) schemaCmd() *cobra.Command {
	var messages bool
	cmd := &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of scenario files",
		Long: `Schema prints the JSON schema of scenario files. Editors use it for completion and checks.
With --messages it prints that of the messages between the program and a policy outside of it
(docs/writing-a-policy.md).`,
		Example: `  testbed schema > scenario.schema.json
  # then, as the first line of a scenario:
  # yaml-language-server: $schema=scenario.schema.json`,
		Args: exactly(0),
		RunE: func(*cobra.Command, []string) error {
			b, err := external.Schema, error(nil)
			if !messages {
				b, err = scenario.Schema(catalog.All())
			}
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(b)
			return err
		},
	}
	cmd.Flags().BoolVar(&messages, "messages", false, "print the schema of the messages of policies outside of the program")
	return cmd
}

// plannedPoint is what running a point of a sweep would take.
type plannedPoint struct {
	Point    string           `json:"point"`
	AtLeast  int              `json:"trials_at_least"`
	Trials   int              `json:"trials"` // at most, as the time and the disk
	Duration time.Duration    `json:"duration_ns"`
	Disk     int64            `json:"disk_bytes"` // after the run
	Decision *runner.Decision `json:"decision"`
	Lack     []string         `json:"lack,omitempty"`
}

// planSweep prints what running the points of a sweep would take.
func (a *app) planSweep(ctx context.Context, points []scenario.Point, o runner.Options) error {
	var all struct {
		Points   []plannedPoint `json:"points"`
		AtLeast  int            `json:"trials_at_least"`
		Trials   int            `json:"trials"`
		Duration time.Duration  `json:"duration_ns"`
		Disk     int64          `json:"disk_bytes"`
	}
	t := tables.Table{Head: []string{"point", "trials", "time", "disk", "testbed run"}, Columns: []tables.Column{tables.Names(), {}, {}, {}, tables.Prose()}}
	add := func(p plannedPoint, says string) {
		trials := fmt.Sprint(p.Trials)
		if p.AtLeast < p.Trials {
			trials = fmt.Sprintf("%d to %d", p.AtLeast, p.Trials)
		}
		t.Rows = append(t.Rows, []string{p.Point, trials, p.Duration.Round(time.Second).String(), units.Compact(float64(p.Disk), "B"), says})
	}
	var refusals error
	for _, point := range points {
		f, err := runner.Predict(ctx, point.Scenario, o)
		if err != nil {
			return fmt.Errorf("point %s: %w", point.Name(), err)
		}
		p := plannedPoint{point.Name(), len(f.Arms) * f.AtLeast, len(f.Arms) * f.Repeats, f.Duration, f.Disk.Left, f.Decision, f.Lack}
		all.Points = append(all.Points, p)
		all.AtLeast, all.Trials = all.AtLeast+p.AtLeast, all.Trials+p.Trials
		all.Duration, all.Disk = all.Duration+p.Duration, all.Disk+p.Disk
		if err := f.Refusal(false); err != nil {
			refusals = errors.Join(refusals, fmt.Errorf("point %s: %w", p.Point, err))
		}
		add(p, f.Decision.String())
	}
	add(plannedPoint{Point: "all", AtLeast: all.AtLeast, Trials: all.Trials, Duration: all.Duration, Disk: all.Disk}, "")
	return errors.Join(a.print(all, func(w io.Writer) error { return drawTable(w, t, terminalStyle(0)) }), refusals)
}
