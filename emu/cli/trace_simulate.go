package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/study"
	"testbed/policies/catalog"
	"testbed/results/files"
	"testbed/topo/units"
)

func (a *app) traceSimulateCmd() *cobra.Command {
	var in traceInput
	var form forms
	var texts []string
	var base, coflowsTo, mb, rate string
	var o study.Options
	cmd := &cobra.Command{
		Use: "simulate FILE", Short: "Put coflow policies side by side on a whole trace, by arithmetic",
		Long: `Simulate runs a whole trace under each policy in the model of the papers on coflows:
one non-blocking switch between the trace's ports, flows as fluids, no packets. It needs
no root. Policies are those of scenarios (docs/policies.md), with parameters as in
aalo:interval=8ms. What packets make of the same policies, a scenario tells: testbed run.

By default 1 MB, of 10⁶ bytes, takes 8 ms on a port, flows from a port to itself are
flows like others, and coflows arrive when the trace says. --batch and --quantum
are what simulators that others published do instead. docs/traces.md explains the
tables and files.`,
		Example: `  testbed trace simulate FB2010-1Hr-150-0.txt
  testbed trace simulate FB2010-1Hr-150-0.txt -p fair -p sebf:allocation=greedy -p philae --base fair
  testbed trace simulate FB2010-1Hr-150-0.txt -p aalo -p philae --interval 8ms --json
  testbed trace simulate FB2010-1Hr-150-0.txt -p philae-sim --rate 1073736000bps --mb MiB --batch 10.24s --quantum 8ms`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			var errs []error
			for _, text := range texts {
				p, err := study.ParsePolicy(text)
				errs = append(errs, err)
				o.Policies = append(o.Policies, p)
			}
			if err := errors.Join(errs...); err != nil {
				return usageError{err}
			}
			if base != "" {
				if o.Base = slices.IndexFunc(o.Policies, func(p study.Policy) bool { return p.String() == base || p.Name == base }); o.Base < 0 {
					return usageError{fmt.Errorf("--base %q: want one of the policies given by -p", base)}
				}
			}
			var err error
			if o.Ports.Rate, err = units.ParseRate(rate); err != nil {
				return usageError{fmt.Errorf("--rate: %w", err)}
			}
			switch mb {
			case "MB":
				o.Ports.MB = units.MB
			case "MiB":
				o.Ports.MB = units.MiB
			default:
				return usageError{fmt.Errorf("--mb %q: want MB or MiB", mb)}
			}
			if o.First < 0 {
				errs = append(errs, fmt.Errorf("--first %d: want 0, which is all, or more", o.First))
			}
			for _, d := range []struct {
				name  string
				value time.Duration
			}{{"quantum", o.Quantum}, {"interval", o.Interval}, {"batch", o.Ports.Batch}, {"resolution", o.Resolution}} {
				if d.value < 0 {
					errs = append(errs, fmt.Errorf("--%s %v: want 0 or more", d.name, d.value))
				}
			}
			for i, p := range o.Policies {
				if slices.ContainsFunc(o.Policies[:i], func(q study.Policy) bool { return q.String() == p.String() }) {
					errs = append(errs, fmt.Errorf("--policy %s: given twice", p))
				}
			}
			if err := errors.Join(errs...); err != nil {
				return usageError{err}
			}
			if coflowsTo != "" { // found out before, not after minutes
				if info, err := os.Stat(filepath.Dir(coflowsTo)); err != nil || !info.IsDir() {
					return fmt.Errorf("--coflows %s: there is no directory %s", coflowsTo, filepath.Dir(coflowsTo))
				}
			}
			t, _, remarks, err := a.readTrace(args[0], in)
			if err != nil {
				return err
			}
			for _, r := range remarks {
				fmt.Fprintf(a.stderr, "%s: %s\n", t.Name, r)
			}
			shown := a.progress()
			began := time.Now()
			out, err := study.Do(cmd.Context(), t, o, func() time.Duration { return time.Since(began) }, func(p study.Progress) {
				shown.show(state{
					stage: fmt.Sprintf("policy %d/%d %s", p.Run, p.Runs, p.Policy),
					text:  fmt.Sprintf("coflows %d/%d, %.0f s simulated, %d events", p.Finished, p.Coflows, p.Now.Seconds(), p.Events),
					share: (float64(p.Run-1) + float64(p.Finished)/float64(p.Coflows)) / float64(p.Runs),
				})
			})
			shown.done()
			if err != nil {
				return err
			}
			if coflowsTo != "" {
				if err := files.Write(coflowsTo, out.CoflowsCSV); err != nil {
					return err
				}
			}
			return a.show(&form, written{data: out, terminal: out.Terminal, markdown: out.Markdown, csv: out.CSV})
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&texts, "policy", "p", []string{"fair", "fifo", "aalo", "sebf", "philae"}, "policy to simulate, with parameters as in aalo:interval=8ms; may be given several times")
	f.StringVar(&base, "base", "", "policy that the others are compared with (the first)")
	f.IntVar(&o.First, "first", 0, "only so many coflows from the start; 0 is all")
	f.StringVar(&rate, "rate", "1Gbps", "rate of a port, each way")
	f.StringVar(&mb, "mb", "MB", "what a MB of the trace is, where it does not say: MB, of 10⁶ bytes, or MiB, of 2²⁰")
	f.BoolVar(&o.Ports.DropLocal, "no-local", false, "leave out flows from a port to itself")
	f.DurationVar(&o.Ports.Batch, "batch", 0, "admit coflows early in batches of so long, as CoflowSim does every 10.24s")
	f.DurationVar(&o.Quantum, "quantum", 0, "let rates change only at multiples of it, and lose what flows leave of the last one, as slotted simulators do")
	f.DurationVar(&o.Resolution, "resolution", 0, "take flows that would end within it after another to end with it; 0 is exact")
	f.DurationVar(&o.Interval, "interval", 0, "count what the coordinator sends and is sent in intervals of so long; 0 counts nothing")
	f.StringVar(&coflowsTo, "coflows", "", "file to write every coflow's times to, as CSV")
	in.add(cmd)
	form.add(cmd)
	f.Lookup("csv").Usage = "print CSV: one row for each policy"
	complete := completer(cmd)
	complete("mb", cobra.FixedCompletions([]string{"MB", "MiB"}, cobra.ShellCompDirectiveNoFileComp))
	complete("base", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return texts, cobra.ShellCompDirectiveNoFileComp
	})
	complete("policy", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, e := range catalog.Entries(catalog.RoleCoflow) {
			names = append(names, e.Name+"\t"+e.Doc)
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	return cmd
}
