package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/flowsim/comparison"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo/units"
	"testbed/workloads"
)

// traceState returns the progress of policies on a trace.
func traceState(p comparison.Progress) state {
	return state{
		stage: fmt.Sprintf("policy %d/%d %s", p.Run, p.Runs, p.Policy),
		text:  fmt.Sprintf("coflows %d/%d, %.0f s simulated, %d events", p.Finished, p.Coflows, p.Now.Seconds(), p.Events),
		share: (float64(p.Run-1) + float64(p.Finished)/float64(p.Coflows)) / float64(p.Runs),
	}
}

func (a *app) traceSimulateCmd() *cobra.Command {
	var in traceInput
	var form forms
	var texts []string
	var base, coflowsTo, mb, rate string
	var memory memoryFlag
	var o comparison.Options
	cmd := &cobra.Command{
		Use: "simulate FILE", Short: "Simulate coflow policies on a whole trace, without packets",
		Long: `Simulate runs a whole trace under each policy in the model of the papers on coflows: one
non-blocking switch between the ports of the trace, fluid flows, no packets. It does not
require root. Policies are those of scenarios (docs/policies.md), with parameters as in
aalo:interval=8ms, processes ("exec=python3 mine.py") and WebAssembly modules (wasm=mine.wasm). To
run the same policies on packets, use "testbed run".

By default, 1 MB (10⁶ bytes) takes 8 ms on a port, flows from a port to itself count like
others, and coflows arrive at the times of the trace. --batch and --quantum reproduce the
behaviour of other published simulators. docs/traces.md explains the tables and files.

The memory is predicted, and a trace that needs more than --memory is refused with exit
code 4. Policies run in parallel as far as the memory allows.`,
		Example: `  testbed trace simulate FB2010-1Hr-150-0.txt
  testbed trace simulate FB2010-1Hr-150-0.txt -p fair -p sebf:allocation=greedy -p philae --baseline fair
  testbed trace simulate FB2010-1Hr-150-0.txt -p aalo -p philae --interval 8ms --json
  testbed trace simulate FB2010-1Hr-150-0.txt -p sebf -p 'exec=python3 mine.py,timeout=1s' -p wasm=mine.wasm
  testbed trace simulate FB2010-1Hr-150-0.txt -p philae-sim --rate 1073736000bps --mb MiB --batch 10.24s --quantum 8ms`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(a); err != nil {
				return err
			}
			var errs []error
			for _, text := range texts {
				p, err := comparison.ParsePolicy(catalog.RoleCoflow, text)
				errs = append(errs, err)
				o.Policies = append(o.Policies, p)
			}
			if err := errors.Join(errs...); err != nil {
				return usageError{err}
			}
			if base != "" {
				if o.Base = slices.IndexFunc(o.Policies, func(p comparison.Policy) bool { return p.String() == base || p.Name == base }); o.Base < 0 {
					return usageError{fmt.Errorf("--baseline %q: must be one of the policies given by -p", base)}
				}
			}
			var err error
			if o.Ports.Rate, err = units.ParseRate(rate); err != nil {
				return usageError{fmt.Errorf("--rate: %w", err)}
			}
			if o.Ports.MB, err = workloads.ParseMB(mb); err != nil {
				return usageError{fmt.Errorf("--mb %w", err)}
			}
			if o.First < 0 {
				errs = append(errs, fmt.Errorf("--first %d: must be 0 (all) or more", o.First))
			}
			for _, d := range []struct {
				name  string
				value time.Duration
			}{{"quantum", o.Quantum}, {"interval", o.Interval}, {"batch", o.Ports.Batch}, {"resolution", o.Resolution}} {
				if d.value < 0 {
					errs = append(errs, fmt.Errorf("--%s %v: must be 0 or more", d.name, d.value))
				}
			}
			for i, p := range o.Policies {
				if slices.ContainsFunc(o.Policies[:i], func(q comparison.Policy) bool { return q.String() == p.String() }) {
					errs = append(errs, fmt.Errorf("--policy %s: given twice", p))
				}
			}
			if err := errors.Join(errs...); err != nil {
				return usageError{err}
			}
			if coflowsTo != "" { // found out before, not after minutes
				if info, err := os.Stat(filepath.Dir(coflowsTo)); err != nil || !info.IsDir() {
					return fmt.Errorf("--coflows-csv %s: directory %s does not exist", coflowsTo, filepath.Dir(coflowsTo))
				}
			}
			if o.Memory, err = memory.bound(); err != nil {
				return err
			}
			t, _, remarks, err := a.readTrace(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			for _, r := range remarks {
				fmt.Fprintf(a.stderr, "%s: %s\n", t.Name, r)
			}
			shown := a.progress()
			began := time.Now()
			out, err := comparison.Do(cmd.Context(), t, o, func() time.Duration { return time.Since(began) }, func(p comparison.Progress) {
				shown.show(traceState(p))
			})
			shown.done()
			if err != nil {
				return err
			}
			if coflowsTo != "" {
				if err := safefile.Write(coflowsTo, out.CoflowsCSV); err != nil {
					return err
				}
			}
			return a.show(&form, written{data: out, terminal: out.Terminal, markdown: out.Markdown, csv: out.CSV})
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&texts, "policy", "p", []string{"fair", "fifo", "aalo", "sebf", "philae"}, "policy to simulate, with parameters as in aalo:interval=8ms; may be given several times")
	addBaseline(cmd, &base, "a policy; default: the first")
	addFirst(cmd, &o.First, "default: all")
	f.StringVar(&rate, "rate", "1Gbps", "rate of a port, each way")
	addMB(cmd, &mb, "MB", "for traces that do not state it")
	addNoLocal(cmd, &o.Ports.DropLocal)
	f.DurationVar(&o.Ports.Batch, "batch", 0, "admit coflows early in batches of this `duration`, as CoflowSim does every 10.24s")
	f.DurationVar(&o.Quantum, "quantum", 0, "change rates only at multiples of this `duration` and lose the unused rest of the last one, as slotted simulators do")
	f.DurationVar(&o.Resolution, "resolution", 0, "let flows end together that would end within this `duration` (0: exact)")
	f.DurationVar(&o.Interval, "interval", 0, "measurement interval (of the messages of the coordinator; 0: do not count)")
	for _, name := range []string{"coflows-csv", "coflows"} {
		f.StringVar(&coflowsTo, name, "", "write the times of every coflow to this CSV `file`")
	}
	hide(cmd, "coflows") // the former name
	memory.add(cmd)
	in.add(cmd)
	form.add(cmd, "policy")
	complete := completer(cmd)
	complete("baseline", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return texts, cobra.ShellCompDirectiveNoFileComp
	})
	complete("policy", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, e := range catalog.All().Entries(catalog.RoleCoflow) {
			names = append(names, e.Name+"\t"+e.Doc)
		}
		for _, e := range catalog.All()[0].External {
			names = append(names, e.Name+"=\t"+e.Doc)
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	return cmd
}
