package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/workloads"
)

// changeTrace is a verb that makes a trace of another.
func (a *app) changeTrace(cmd *cobra.Command, in *traceInput, out *traceOutput, prepare func() (func(*workloads.Trace) (*workloads.Trace, error), error)) *cobra.Command {
	in.add(cmd)
	out.add(cmd)
	cmd.Args = exactly(1)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		format, err := out.check(cmd.Name())
		if err != nil {
			return err
		}
		change, err := prepare()
		if err != nil {
			return usageError{fmt.Errorf("trace %s: %w", cmd.Name(), err)}
		}
		t, was, remarks, err := a.readTrace(args[0], *in)
		if err != nil {
			return err
		}
		if t, err = change(t); err != nil {
			return fmt.Errorf("trace %s: %w", cmd.Name(), err)
		}
		return a.writeTrace(*out, format, was, t, remarks)
	}
	return cmd
}

func (a *app) traceConvertCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	cmd := &cobra.Command{
		Use: "convert IN -o OUT", Short: "Write a trace in another format",
		Long: `Convert writes a trace in the format of -o's ending, or --to. What the other format
cannot hold is refused where it matters, as flows of different sizes in coflow-benchmark
(--even spreads them), and told on standard error where it is less than two bytes or a
millisecond.`,
		Example: `  testbed trace convert FB2010-1Hr-150-0.txt -o facebook.cm --mb MiB
  testbed trace convert matrix.cm -o matrix.flows
  testbed trace convert philae.txt --from flows -o - --to coflow-benchmark --even`,
	}
	return a.changeTrace(cmd, &in, &out, func() (func(*workloads.Trace) (*workloads.Trace, error), error) {
		return func(t *workloads.Trace) (*workloads.Trace, error) { return t, nil }, nil
	})
}

func (a *app) traceScaleCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	var size, times string
	var ports, copies int
	cmd := &cobra.Command{
		Use: "scale IN -o OUT", Short: "Multiply a trace's sizes, times or ports",
		Long: `Scale multiplies sizes and arrivals, puts the trace on fewer or more ports, or side by
side with copies of itself. Of several, copies come first, then ports.

--ports N smaller than the trace's puts port p on p modulo N: what of a coflow falls on
one port adds up, so that a reducer may fetch unevenly (--to flows or htsim, or --even).
--replicate K makes K copies of every coflow, each on ports of its own, with the same
arrival: K times the ports, flows and bytes, and the same load on a port.`,
		Example: `  testbed trace scale FB2010-1Hr-150-0.txt -o small.txt --size 1/100 --time 0.1
  testbed trace scale FB2010-1Hr-150-0.txt -o fb900.txt --replicate 6
  testbed trace scale FB2010-1Hr-150-0.txt -o fb40.flows --ports 40`,
	}
	f := cmd.Flags()
	f.StringVar(&size, "size", "1", "factor of sizes, a decimal or a quotient such as 1/100; rounded up")
	f.StringVar(&times, "time", "1", "factor of arrivals; rounded down")
	f.IntVar(&ports, "ports", 0, "ports of the new trace (as many as there are)")
	f.IntVar(&copies, "replicate", 1, "how often every coflow is in the new trace, each on ports of its own")
	return a.changeTrace(cmd, &in, &out, func() (func(*workloads.Trace) (*workloads.Trace, error), error) {
		sizes, err := workloads.ParseFactor(size)
		if err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
		factor, err := workloads.ParseFactor(times)
		if err != nil {
			return nil, fmt.Errorf("--time: %w", err)
		}
		if ports < 0 || ports > workloads.MaxTracePorts || cmd.Flags().Changed("ports") && ports == 0 {
			return nil, fmt.Errorf("--ports %d: want 1 to %d", ports, workloads.MaxTracePorts)
		}
		if copies < 1 {
			return nil, fmt.Errorf("--replicate %d: want 1 or more", copies)
		}
		return func(t *workloads.Trace) (_ *workloads.Trace, err error) {
			if t, err = workloads.Replicate(t, copies); err != nil {
				return nil, err
			}
			if ports > 0 {
				if t, err = t.Fold(ports); err != nil {
					return nil, err
				}
			}
			return t.Scale(sizes, factor)
		}, nil
	})
}

func (a *app) traceFilterCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	var o workloads.TraceFilter
	var bins []string
	var ids, minSize, maxSize, arrival string
	cmd := &cobra.Command{
		Use: "filter IN -o OUT", Short: "Keep some coflows of a trace",
		Long: `Filter keeps the coflows that pass all the conditions given; --no-local comes ahead of
them and --first after. Ports, ids and, without --rebase, arrivals stay what they are.`,
		Example: `  testbed trace filter FB2010-1Hr-150-0.txt -o prefix.txt --first 150
  testbed trace filter FB2010-1Hr-150-0.txt -o wide.txt --min-width 8
  testbed trace filter FB2010-1Hr-150-0.txt -o busy.flows --arrival 10m..20m --rebase --no-local
  testbed trace filter FB2010-1Hr-150-0.txt -o some.txt --ids 1,5,100..200 --bins LN,LW`,
	}
	f := cmd.Flags()
	f.IntVar(&o.First, "first", 0, "only the first so many of those that pass")
	f.StringSliceVar(&bins, "bins", nil, "only these: SN, LN, SW, LW (short or long, narrow or wide)")
	f.IntVar(&o.MinWidth, "min-width", 0, "only of so many flows or more")
	f.IntVar(&o.MaxWidth, "max-width", 0, "only of so many flows or fewer")
	f.StringVar(&minSize, "min-size", "", "only of so many MB or more")
	f.StringVar(&maxSize, "max-size", "", "only of so many MB or fewer")
	f.StringVar(&ids, "ids", "", "only these, such as 1,5,10..20")
	f.StringVar(&arrival, "arrival", "", "only that arrive from A on and before B: A..B, such as 10s..1m; either may be left out")
	f.BoolVar(&o.NoLocal, "no-local", false, "leave out flows from a port to itself, and coflows of no others")
	f.BoolVar(&o.Rebase, "rebase", false, "count arrivals from the first coflow that is left")
	completer(cmd)("bins", cobra.FixedCompletions([]string{"SN\tshort and narrow", "LN\tlong and narrow", "SW\tshort and wide", "LW\tlong and wide"}, cobra.ShellCompDirectiveNoFileComp))
	return a.changeTrace(cmd, &in, &out, func() (_ func(*workloads.Trace) (*workloads.Trace, error), err error) {
		o := o
		for _, flag := range []string{"first", "min-width", "max-width"} {
			if n, _ := f.GetInt(flag); f.Changed(flag) && n < 1 {
				return nil, fmt.Errorf("--%s %d: want 1 or more", flag, n)
			}
		}
		for _, name := range bins {
			b, err := workloads.ParseBin(name)
			if err != nil {
				return nil, fmt.Errorf("--bins: %w", err)
			}
			o.Bins = append(o.Bins, b)
		}
		for _, s := range []struct {
			flag, text string
			size       *workloads.Megabytes
		}{{"min-size", minSize, &o.MinSize}, {"max-size", maxSize, &o.MaxSize}} {
			if f.Changed(s.flag) {
				if *s.size, err = workloads.ParseMegabytes(s.text); err != nil {
					return nil, fmt.Errorf("--%s: %w", s.flag, err)
				}
			}
		}
		if f.Changed("ids") {
			if o.IDs, err = workloads.ParseIDs(ids); err != nil {
				return nil, fmt.Errorf("--ids: %w", err)
			}
		}
		if f.Changed("arrival") {
			if o.From, o.Until, err = window(arrival); err != nil {
				return nil, fmt.Errorf("--arrival: %w", err)
			}
		}
		return func(t *workloads.Trace) (*workloads.Trace, error) { return t.Filter(o) }, nil
	})
}

// window reads two times, A..B, either of which may be left out.
func window(s string) (from, until time.Duration, err error) {
	a, b, ok := strings.Cut(s, "..")
	if !ok || a == "" && b == "" {
		return 0, 0, fmt.Errorf("%q: want A..B, such as 10s..1m, 10s.. or ..1m", s)
	}
	for _, x := range []struct {
		text string
		to   *time.Duration
	}{{a, &from}, {b, &until}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = time.ParseDuration(x.text); err != nil || *x.to < 0 {
			return 0, 0, fmt.Errorf("%q: %q is no time: want a number with a unit, such as 10s or 1h30m", s, x.text)
		}
	}
	if b != "" && until <= from {
		return 0, 0, fmt.Errorf("%q: want the earlier time first", s)
	}
	return from, until, nil
}
