package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/flowsim"
	"testbed/topo/units"
	"testbed/workloads"
)

// changeTrace is a verb that makes a trace of another. grows says by how much it is larger,
// once prepare has returned; nil is not at all.
func (a *app) changeTrace(cmd *cobra.Command, in *traceInput, out *traceOutput, grows *growth, prepare func() (func(*workloads.Trace) (*workloads.Trace, error), error)) *cobra.Command {
	var memory memoryFlag
	memory.add(cmd)
	in.add(cmd)
	out.add(cmd)
	cmd.Args = exactly(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := out.check(cmd.Name())
		if err != nil {
			return err
		}
		change, err := prepare()
		if err != nil {
			return usageError{fmt.Errorf("trace %s: %w", cmd.Name(), err)}
		}
		t, was, remarks, err := a.readTrace(cmd.Context(), args[0], *in)
		if err != nil {
			return err
		}
		most, err := memory.bound()
		if err != nil {
			return err
		}
		if format == "" {
			format = was
		}
		if err := grows.check(t, most, out.path == stdio && format == workloads.FormatHTSim); err != nil {
			return fmt.Errorf("trace %s: %w", cmd.Name(), err)
		}
		if t, err = change(t); err != nil {
			return fmt.Errorf("trace %s: %w", cmd.Name(), err)
		}
		return a.writeTrace(*out, format, was, t, remarks)
	}
	return cmd
}

// growth is how a verb makes a trace larger. Coflows of a file may be cross products, of far
// more flows than the file has words.
type growth struct {
	copies int  // of every coflow; 0 is one
	uneven bool // flows may differ in size, and are then stored one by one
}

// check returns a *flowsim.MemoryError where a trace that has grown, and its text if that is
// kept as a whole, take more than most; 0 is no limit.
func (g *growth) check(t *workloads.Trace, most units.Bytes, text bool) error {
	const bytesOfCoflow, bytesOfMapper, bytesOfReducer, bytesOfFlow, bytesOfLine = 100, 8, 48, 16, 100
	var need units.Bytes
	for _, c := range t.Coflows {
		need += bytesOfCoflow + bytesOfMapper*units.Bytes(len(c.Mappers)) + bytesOfReducer*units.Bytes(len(c.Reducers))
		if g != nil && g.uneven {
			need += bytesOfFlow * units.Bytes(c.Width())
		}
		if text {
			need += bytesOfLine * units.Bytes(c.Width())
		}
	}
	copies := units.Bytes(1)
	if g != nil {
		copies = max(1, units.Bytes(g.copies))
	}
	if most > 0 && need > most/copies {
		return &flowsim.MemoryError{What: fmt.Sprintf("%s, changed", t.Name), Need: min(need, math.MaxInt64/copies) * copies, Allowed: most}
	}
	return nil
}

func (a *app) traceConvertCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	cmd := &cobra.Command{
		Use: "convert IN -o OUT", Short: "Convert a trace to another format",
		Long: `Convert writes a trace in the format of the output's name, or of --to. A property that the
format cannot express is an error if it matters, such as flows of different sizes in
coflow-benchmark (--even spreads them), and a note on standard error if it is less than
two bytes or a millisecond.`,
		Example: `  testbed trace convert FB2010-1Hr-150-0.txt -o facebook.cm --mb MiB
  testbed trace convert matrix.cm -o matrix.flows
  testbed trace convert philae.txt --from flows -o - --to coflow-benchmark --even`,
	}
	return a.changeTrace(cmd, &in, &out, nil, func() (func(*workloads.Trace) (*workloads.Trace, error), error) {
		return func(t *workloads.Trace) (*workloads.Trace, error) { return t, nil }, nil
	})
}

func (a *app) traceScaleCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	var size, times string
	var ports, copies int
	cmd := &cobra.Command{
		Use: "scale IN -o OUT", Short: "Scale the sizes, times or ports of a trace",
		Long: `Scale multiplies sizes and arrivals, maps the trace onto fewer or more ports, or replicates
it. Replication comes first, then the ports.

--ports N maps port p to p modulo N. If N is smaller than the number of ports, the parts of
a coflow on one port add up, so a reducer may fetch unevenly (use --to flows or htsim, or
--even). --replicate K makes K copies of every coflow, each on its own ports and with the
same arrival: K times the ports, flows and bytes, and the same load per port.`,
		Example: `  testbed trace scale FB2010-1Hr-150-0.txt -o small.txt --size-factor 1/100 --time-factor 0.1
  testbed trace scale FB2010-1Hr-150-0.txt -o fb900.txt --replicate 6
  testbed trace scale FB2010-1Hr-150-0.txt -o fb40.flows --ports 40`,
	}
	f := cmd.Flags()
	f.StringVar(&size, "size-factor", "1", "multiply sizes by this `factor` (a decimal or a quotient such as 1/100; rounded up)")
	f.StringVar(&times, "time-factor", "1", "multiply times by this `factor` (arrivals, rounded down)")
	addPorts(cmd, &ports, 0, "of the output; default: unchanged")
	f.IntVar(&copies, "replicate", 1, "number of copies of every coflow, each on its own ports")
	var grows growth
	return a.changeTrace(cmd, &in, &out, &grows, func() (func(*workloads.Trace) (*workloads.Trace, error), error) {
		grows = growth{copies: copies, uneven: ports > 0}
		sizes, err := workloads.ParseFactor(size)
		if err != nil {
			return nil, fmt.Errorf("--size-factor: %w", err)
		}
		factor, err := workloads.ParseFactor(times)
		if err != nil {
			return nil, fmt.Errorf("--time-factor: %w", err)
		}
		if ports < 0 || ports > workloads.MaxTracePorts || cmd.Flags().Changed("ports") && ports == 0 {
			return nil, fmt.Errorf("--ports %d: must be 1 to %d", ports, workloads.MaxTracePorts)
		}
		if copies < 1 {
			return nil, fmt.Errorf("--replicate %d: must be 1 or more", copies)
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
		Use: "filter IN -o OUT", Short: "Filter the coflows of a trace",
		Long: `Filter keeps the coflows that meet all given conditions; --no-local is applied before them,
--first after. Ports, ids and, without --rebase, arrivals do not change.`,
		Example: `  testbed trace filter FB2010-1Hr-150-0.txt -o prefix.txt --first 150
  testbed trace filter FB2010-1Hr-150-0.txt -o wide.txt --min-width 8
  testbed trace filter FB2010-1Hr-150-0.txt -o busy.flows --arrival 10m..20m --rebase --no-local
  testbed trace filter FB2010-1Hr-150-0.txt -o some.txt --ids 1,5,100..200 --bins LN,LW`,
	}
	f := cmd.Flags()
	addFirst(cmd, &o.First, "of those that pass the other conditions")
	f.StringSliceVar(&bins, "bins", nil, "keep these `bins`: SN, LN, SW, LW (short or long, narrow or wide)")
	f.IntVar(&o.MinWidth, "min-width", 0, "keep coflows of at least `N` flows")
	f.IntVar(&o.MaxWidth, "max-width", 0, "keep coflows of at most `N` flows")
	f.StringVar(&minSize, "min-size", "", "keep coflows of at least this many `MB`")
	f.StringVar(&maxSize, "max-size", "", "keep coflows of at most this many `MB`")
	f.StringVar(&ids, "ids", "", "keep the coflows with these `ids`, such as 1,5,10..20")
	f.StringVar(&arrival, "arrival", "", "keep coflows that arrive in the interval `A..B`, B excluded, such as 10s..1m; either is optional")
	addNoLocal(cmd, &o.NoLocal)
	f.BoolVar(&o.Rebase, "rebase", false, "count arrivals from the first remaining coflow")
	completer(cmd)("bins", cobra.FixedCompletions([]string{"SN\tshort and narrow", "LN\tlong and narrow", "SW\tshort and wide", "LW\tlong and wide"}, cobra.ShellCompDirectiveNoFileComp))
	var grows growth
	return a.changeTrace(cmd, &in, &out, &grows, func() (_ func(*workloads.Trace) (*workloads.Trace, error), err error) {
		o := o
		grows.uneven = o.NoLocal
		for _, flag := range []string{"first", "min-width", "max-width"} {
			if n, _ := f.GetInt(flag); f.Changed(flag) && n < 1 {
				return nil, fmt.Errorf("--%s %d: must be 1 or more", flag, n)
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
		return 0, 0, fmt.Errorf("%q: expected A..B, such as 10s..1m, 10s.. or ..1m", s)
	}
	for _, x := range []struct {
		text string
		to   *time.Duration
	}{{a, &from}, {b, &until}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = time.ParseDuration(x.text); err != nil || *x.to < 0 {
			return 0, 0, fmt.Errorf("%q: %q: expected a time such as 10s or 1h30m", s, x.text)
		}
	}
	if b != "" && until <= from {
		return 0, 0, fmt.Errorf("%q: the earlier time must be first", s)
	}
	return from, until, nil
}
