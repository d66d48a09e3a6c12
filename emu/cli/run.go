package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/guest"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// scenarioFlags are those of verbs that read a scenario.
type scenarioFlags struct {
	set   []string
	point []string
	seed  uint64
	time  string
	fork  time.Duration
	cmd   *cobra.Command
	// example is the name of an example of the program that is read instead of a file.
	example string
}

func (f *scenarioFlags) add(cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set a variable of the scenario: `name=value` (repeatable)")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "seed of the random draws (instead of the scenario's)")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

// load reads the scenario at path, or from standard input. Paths in the latter are relative to the
// working directory.
func (f *scenarioFlags) load(path string) (*scenario.Scenario, error) {
	set, err := assignments("--set", f.set)
	if err != nil {
		return nil, err
	}
	o := scenario.Options{Set: set, Catalog: catalog.All(), ForkAt: f.fork}
	if f.cmd.Flags().Changed("seed") {
		o.Seed = &f.seed
	}
	if o.Time = f.time; !slices.Contains([]string{"", "real", scenario.VirtualTime}, f.time) {
		return nil, usageError{fmt.Errorf("--time %q: must be real or %s", f.time, scenario.VirtualTime)}
	}
	if f.example != "" {
		return loadExample(f.example, o)
	}
	if path == stdio {
		return scenario.Read("standard input", newWaiting(f.cmd.Context(), f.cmd.InOrStdin()), o)
	}
	return scenario.Load(path, o)
}

// addTime adds the flag that chooses the time of trials on packets.
func (f *scenarioFlags) addTime(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.time, "time", "", "`time` of trials on packets, instead of the scenario's: real, or virtual, which needs no root")
}

// addFork adds the flag of the time until which all arms have the same past.
func (f *scenarioFlags) addFork(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.fork, "fork-at", 0,
		"`time` of a run until which all arms have the coflow policy of the first one, such as 12.3s")
}

// vmKernelUsage describes the flag of the kernel of virtual time.
const vmKernelUsage = "kernel of virtual time: `path` of an unpacked Debian package of a kernel, of its .deb " +
	"file, or of a program of user-mode Linux, in which processing takes no time (default: " + guest.Env + ", the newest in the cache, the newest installed)"

// addVirtual adds the flags of guests in virtual time.
func addVirtual(cmd *cobra.Command, to *runner.VirtualOptions) {
	cmd.Flags().StringVar(&to.Kernel, "vm-kernel", "", vmKernelUsage)
	cmd.Flags().TextVar(&to.Memory, "vm-memory", runner.GuestMemory,
		"memory of a guest in virtual time, a `size`; half of it holds captures and disks")
	cmd.Flags().IntVar(&to.Speed, "vm-speed", guest.DefaultSpeed,
		fmt.Sprintf("speed of a guest in virtual time: `instructions` in a nanosecond, 1 to %d; more carry higher rates "+
			"and take longer to start", guest.MostSpeed))
}

// addPoint adds the flag that chooses points.
func (f *scenarioFlags) addPoint(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.point, "point", nil, "choose the points of a sweep that have this value: `name=value` (repeatable)")
}

// points reads a scenario as load does, and returns its points that are chosen.
func (f *scenarioFlags) points(path string) ([]scenario.Point, error) {
	s, err := f.load(path)
	if err != nil {
		return nil, err
	}
	values, err := assignments("--point", f.point)
	if err != nil {
		return nil, err
	}
	return s.Choose(values)
}

// one reads a scenario as load does, and returns the one point that is chosen.
func (f *scenarioFlags) one(path string) (*scenario.Scenario, error) {
	points, err := f.points(path)
	if err != nil {
		return nil, err
	}
	if len(points) == 1 {
		return points[0].Scenario, nil
	}
	var choose []string
	for _, v := range points[0].Values {
		choose = append(choose, "--point "+v.Name+"="+v.Value)
	}
	return nil, usageError{fmt.Errorf("%s: a sweep of %d points: choose one, such as %s",
		path, len(points), strings.Join(choose, " "))}
}

// assignments returns those of a flag.
func assignments(flag string, list []string) (map[string]string, error) {
	set := map[string]string{}
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("%s %q: must be name=value", flag, s)}
		}
		set[name] = value
	}
	return set, nil
}

func (a *app) runCmd() *cobra.Command {
	var f scenarioFlags
	var packets packetFlags
	scale := &scaleFlag{}
	var form forms
	var choice choiceFlags
	cmd := &cobra.Command{
		Use: "run SCENARIO", Short: "Run a scenario on packets and report what the captures show",
		Long: `Run builds the scenario's fabric for each arm and repeat, runs the workload in it
over real TCP, captures every host, and prints a table per metric with the verdict of
each arm. It keeps everything in a run directory. It requires root.

With --time virtual each trial runs in a virtual machine (qemu) whose clock counts its
instructions: equal trials have equal packets, on any machine, busy or not, without root.

With --fork-at all arms have the coflow policy of the first arm up to a time, and their own
from then on. In virtual time their packets before it are equal.

With --check-scale every arm runs once more with all rates and sizes divided by a
factor and all times kept, and the report shows whether speed-ups change. They
should not: the emulation represents a faster network.

Ctrl-C once ends the run cleanly: nothing is left on the machine, the repeats that
had ended are reported and marked as partial, and the exit code is 1. Ctrl-C twice
ends it at once; "testbed gc" then removes what it left.

On a calibrated machine ("testbed calibrate"), links get token buckets that keep their
rate. A scenario whose predicted load exceeds the capacity of the machine is refused with
exit code 4 before anything is built (--force runs it), as is one that exceeds a limit of
the machine ("testbed doctor"), or needs more disk space than is free.

Captures are compressed between repeats. Every verb reads them, and "testbed pcap --export"
writes them as pcapng. With --captures drop they are removed, and reports on the run repeat
its figures.

With --resume, a run that was interrupted or killed goes on: trials (an arm in a repeat) that
had ended are kept, and the others are executed. --arm, --point, --repeats and --shard
execute only a part of the trials; --resume then adds to it, and "testbed merge" makes one run
of parts. A scenario with a sweep has a run directory for each point, in one directory.

Exit code 3 means that the verdict of an arm is void.`,
		Example: `  sudo testbed run scripts/quickstart/scenario.yaml
  sudo testbed run scripts/quickstart/facebook.yaml --set trace=FB2010-1Hr-150-0.txt
  sudo testbed run scenario.yaml --json | jq '.arms[].cct'
  sudo testbed run scenario.yaml --check-scale 2
  sudo testbed run scenario.yaml --captures keep
  testbed run scenario.yaml --time virtual --fork-at 12.3s
  sudo testbed run --resume runs/quickstart-20260102-150405-ab12
  sudo testbed run scenario.yaml --arm fair+hdfs --repeats 3..5`,
		Args: choice.args(scale, &f),
		RunE: func(cmd *cobra.Command, args []string) error {
			complete := a.onPackets("run", "without root: --time virtual runs it in a virtual machine, and testbed sim on the fluid model", &packets)
			return a.execute(cmd.Context(), &f, scale, &choice, &form, args, packets.store.out, rundir.Packets, complete)
		},
	}
	f.add(cmd)
	f.addTime(cmd)
	f.addFork(cmd)
	addVirtual(cmd, &packets.virtual)
	scale.add(cmd)
	f.addPoint(cmd)
	choice.add(cmd)
	form.add(cmd, "arm and metric")
	packets.add(cmd)
	return cmd
}

// packetFlags are those of verbs that run a scenario on packets.
type packetFlags struct {
	store storeFlags
	force bool
	load  loadFlag
	// virtual is what guests in virtual time have.
	virtual runner.VirtualOptions
}

func (f *packetFlags) add(cmd *cobra.Command) {
	f.store.add(cmd)
	addForce(cmd, &f.force, "run although the predicted load exceeds the capacity of this machine")
	f.load.add(cmd)
}

// onPackets returns what adds the options of a run on packets. Its error without root has
// another way as a hint.
func (a *app) onPackets(command, otherwise string, f *packetFlags) func(*runner.Options, string) error {
	return func(o *runner.Options, backend string) error {
		captures, err := f.store.mode()
		o.Captures, o.Force, o.WarnLoad, o.Virtual = captures, f.force, f.load.share(), f.virtual
		if err := errors.Join(err, f.load.check()); backend == rundir.Virtual || err != nil {
			return err
		}
		if err := a.needRoot(command, createsNamespaces, otherwise); err != nil {
			return err
		}
		o.Calibration, err = a.calibration()
		return err
	}
}

// onFluid adds no options.
func onFluid(*runner.Options, string) error { return nil }

// loadFlag is the load from which a run warns, in percent of the machine's capacity.
type loadFlag struct{ percent float64 }

func (f *loadFlag) add(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&f.percent, "warn-load", 100*runner.DefaultWarnLoad, "warn if the predicted load of the busiest second exceeds this `percentage` of the capacity of this machine")
}

func (f *loadFlag) check() error {
	if !(f.percent > 0 && f.percent <= 100) {
		return usageError{fmt.Errorf("--warn-load %v: must be above 0 and at most 100", f.percent)}
	}
	return nil
}

func (f *loadFlag) share() float64 { return f.percent / 100 }

// calibration is this machine's. A note reports its absence.
func (a *app) calibration() (*calibration.Calibration, error) {
	c, err := calibration.Load()
	if c == nil && err == nil {
		fmt.Fprintln(a.stderr, "note: this machine is not calibrated, using defaults (run: sudo testbed calibrate)")
	}
	return c, err
}

func (a *app) simCmd() *cobra.Command {
	var f scenarioFlags
	var out string
	scale := &scaleFlag{}
	var choice choiceFlags
	var form forms
	cmd := &cobra.Command{
		Use: "sim SCENARIO", Short: "Run a scenario on the fluid model, without root",
		Long: `Sim runs the same engine and the same policies as run on a fluid model: flows share links
max-min fairly below their rate caps, without packets. Each link has the payload capacity
of full segments. It takes seconds and does not require root. Its figures are predictions,
not measurements.`,
		Example: `  testbed sim scripts/quickstart/scenario.yaml
  testbed sim scripts/quickstart/scenario.yaml --json
  testbed sim scripts/quickstart/scenario.yaml --check-scale 2
  testbed sim --resume`,
		Args: choice.args(scale, &f),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.execute(cmd.Context(), &f, scale, &choice, &form, args, out, rundir.Fluid, onFluid)
		},
	}
	f.add(cmd)
	f.addFork(cmd)
	scale.add(cmd)
	f.addPoint(cmd)
	choice.add(cmd)
	form.add(cmd, "arm and metric")
	addOut(cmd, &out)
	return cmd
}

// execute runs a scenario, or goes on with a run. complete adds the options of the backend.
func (a *app) execute(ctx context.Context, f *scenarioFlags, scale *scaleFlag, choice *choiceFlags, form *forms, args []string,
	out, backend string, complete func(*runner.Options, string) error) error {
	if err := form.check(a); err != nil {
		return err
	}
	o := runner.Options{Out: out, StateRoot: a.state, Version: version, Warn: func(text string) { fmt.Fprintln(a.stderr, "warning:", text) }}
	var err error
	if o.Choice, err = choice.choice(f); err != nil {
		return err
	}
	var how func() (*runner.Outcome, error)
	var notes []string
	dir := ""
	if choice.resume {
		if dir, err = choice.directory(f, args, out, backend); err != nil {
			return err
		}
	}
	if dir != "" {
		if of, err := rundir.BackendOf(dir); err == nil && backend != rundir.Fluid && of != rundir.Fluid { // else Resume reports it
			backend = of
		}
		how = func() (*runner.Outcome, error) { return runner.Resume(ctx, dir, backend, o) }
	} else {
		var path string
		path, o.CheckScale = scale.split(args)
		s, err := f.load(path)
		if err != nil {
			return err
		}
		notes = s.MBNotes()
		run := runner.Simulate
		if backend != rundir.Fluid {
			run, backend = runner.Execute, runner.BackendOf(s)
		}
		how = func() (*runner.Outcome, error) { return run(ctx, s, o) }
	}
	if err := errors.Join(a.effects(), complete(&o, backend)); err != nil {
		return err
	}
	show := a.progress()
	o.Progress = show.update
	done, err := how()
	show.done()
	if done == nil {
		return err
	}
	if err != nil {
		fmt.Fprintln(a.stderr, "testbed: the run was cut short; results of the repeats that had ended:")
	}
	return errors.Join(err, a.present(done, form, notes...))
}

// present prints the figures, in a terminal with notes, and turns a void verdict into its error.
func (a *app) present(o *runner.Outcome, form *forms, notes ...string) error {
	var of written
	if s := o.Sweep; s != nil {
		of = written{data: s, markdown: s.Markdown, csv: s.CSV, terminal: s.Terminal}
	} else {
		of = written{data: o.Report.Summary, markdown: o.Report.Markdown, csv: o.Report.HeadlineCSV, terminal: o.Report.TerminalIn}
	}
	terminal := of.terminal
	of.terminal = func(w io.Writer, s tables.Style) error {
		if err := terminal(w, s); err != nil {
			return err
		}
		if o.Dir == "" {
			return nil
		}
		if len(notes) > 0 {
			notes = append([]string{""}, notes...)
		}
		_, err := fmt.Fprintf(w, "%s\nRun directory: %s\n", s.Text(strings.Join(notes, "\n")), o.Dir)
		return err
	}
	if err := a.show(form, of); err != nil {
		return err
	}
	var err error
	if o.Dir == "" {
		err = hinted{errors.New("report: not written: captures or records changed after the run, whose own figures are kept"),
			"write the report elsewhere with -o DIR, or replace the run's figures with --force"}
	}
	if o.Level() == verdict.Void {
		err = errors.Join(errVoid, err)
	}
	return err
}

func (a *app) reportCmd() *cobra.Command {
	var form forms
	var o runner.ReportOptions
	cmd := &cobra.Command{
		Use: "report RUN", Short: "Recompute the report of a run from its captures",
		Long: `Report reads the captures in a run directory, recomputes all figures and writes report.md,
report.html, summary.json and the CSV files. It needs only the captures. If the records
of the run are missing, the verdict is "unverified".

The manifest has the SHA-256 sum of each file. A capture or record that changed after the run is
named and not used; the arm is degraded, or void if more than 5 % of its coflows, blocks or jobs
have no record then. The run's own figures are then kept: the new ones go to -o DIR, or replace
them with --force.`,
		Example: `  testbed report runs/quickstart-20260102-150405-ab12
  testbed report runs/quickstart-20260102-150405-ab12 -o again
  testbed report runs/quickstart-20260102-150405-ab12 --json`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			show := a.progress()
			o.Progress = show.update
			out, err := runner.Report(cmd.Context(), args[0], o)
			show.done()
			if err != nil {
				return err
			}
			a.noteChanges(args[0], out.Changes)
			return a.present(out, &form)
		},
		ValidArgsFunction: completeDirs,
	}
	addOutput(cmd, &o.Out, "", "directory for the report; default: the run directory")
	addForce(cmd, &o.Force, "replace the figures of a run of which captures or records changed")
	form.add(cmd, "arm and metric")
	return cmd
}
