package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"testbed/results/metrics"
	"testbed/workloads"
)

func (a *app) traceGenerateCmd() *cobra.Command {
	var out traceOutput
	var seed uint64
	var g workloads.Facebook
	cmd := &cobra.Command{
		Use: "generate -o OUT", Short: "Generate a trace similar to the Facebook trace",
		Long: `Generate draws a trace whose widths, sizes, skews, ports and arrivals have the distributions
of the public Facebook trace. It reads no file. The same flags and seed give the same
file. docs/traces.md compares it with the trace and lists what it does not reproduce.

On fewer than 150 ports, wide coflows have proportionally fewer mappers and reducers.`,
		Example: `  testbed trace generate --coflows 526 --ports 150 --seed 1 -o facebook-1.txt
  testbed trace generate --coflows 100 --ports 20 --load 0.5 --no-tail -o small.txt
  testbed trace generate --seed 2 -o - | testbed trace info -`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// 0 stands for a default in the library; here it is what the user said.
			for _, f := range []struct {
				name string
				zero bool
			}{{"coflows", g.Coflows == 0}, {"ports", g.Ports == 0}, {"span", g.Span == 0}, {"load", g.Load == 0}, {"per-mb", g.PerMB == 0}} {
				if f.zero && cmd.Flags().Changed(f.name) {
					return usageError{fmt.Errorf("trace generate: --%s 0: must be more than 0", f.name)}
				}
			}
			if g.PerMB != workloads.DefaultPerMB && g.Load == 0 {
				return usageError{fmt.Errorf("trace generate: --per-mb %v without --load: only a load depends on it", g.PerMB)}
			}
			format, err := out.check("generate")
			if err != nil {
				return err
			}
			t, err := g.Generate(seed)
			if err != nil {
				return usageError{err}
			}
			return a.writeTrace(out, format, workloads.FormatBenchmark, t, nil)
		},
	}
	f := cmd.Flags()
	f.IntVar(&g.Coflows, "coflows", workloads.FacebookCoflows, "number of coflows")
	addPorts(cmd, &g.Ports, workloads.FacebookPorts, "of the output")
	addSeed(cmd, &seed, "the same seed gives the same file")
	f.DurationVar(&g.Span, "span", 0, "time from the first arrival to the last (gaps as in the trace, 6.9s on average)")
	f.Float64Var(&g.Load, "load", 0, "instead of --span: share of the ports' capacity within it; 0.52 in the trace")
	addPerMB(cmd, &g.PerMB, "for --load")
	f.BoolVar(&g.NoTail, "no-tail", false, "omit the few coflows that carry nearly all bytes")
	out.add(cmd)
	return cmd
}

// derivation is one kind of derived trace.
type derivation struct {
	name, doc string
	flags     []string // that apply to it; others are an error
	derive    func(t *workloads.Trace) (*workloads.Trace, []string, error)
}

func (a *app) traceDeriveCmd() *cobra.Command {
	var in traceInput
	var out traceOutput
	var kind, k string
	var seed uint64
	var width, copies int
	skew := workloads.MantriSkew
	kinds := []derivation{
		{"low-skew", "without coflows whose largest flow is at most --k times the smallest", []string{"k"},
			func(t *workloads.Trace) (*workloads.Trace, []string, error) {
				least, err := workloads.ParseFactor(k)
				if err != nil {
					return nil, nil, usageError{fmt.Errorf("--k: %w", err)}
				}
				d, err := workloads.LowSkewFiltered(t, least)
				return d, nil, err
			}},
		{"mantri", "with skew among the mappers of a coflow, reducers' bytes kept", []string{"seed", "p50", "p90"},
			func(t *workloads.Trace) (*workloads.Trace, []string, error) {
				mb, err := workloads.ParseMB(out.mb)
				if err != nil {
					return nil, nil, err
				}
				d, err := workloads.MantriLike(t, skew, mb, seed)
				if err != nil {
					return nil, nil, err
				}
				skews := d.MapSkews()
				slices.Sort(skews)
				if len(skews) == 0 {
					return d, []string{"no coflow has two mappers: none became skewed"}, nil
				}
				return d, []string{fmt.Sprintf("coefficient of variation among mappers %.2f at P50, %.2f at P90, over %d coflows of two mappers or more",
					metrics.Quantile(0.5, skews), metrics.Quantile(0.9, skews), len(skews))}, nil
			}},
		{"wide", "without coflows of at most --thin flows", []string{"thin"},
			func(t *workloads.Trace) (*workloads.Trace, []string, error) {
				d, err := workloads.WideOnly(t, width)
				return d, nil, err
			}},
		{"replicate", "--copies of it side by side on as many times the ports", []string{"copies"},
			func(t *workloads.Trace) (*workloads.Trace, []string, error) {
				d, err := workloads.Replicate(t, copies)
				return d, nil, err
			}},
	}
	var list strings.Builder
	names := make([]string, len(kinds))
	for i, d := range kinds {
		names[i] = d.name
		fmt.Fprintf(&list, "  %-10s %s\n", d.name, d.doc)
	}
	var memory memoryFlag
	cmd := &cobra.Command{
		Use: "derive IN -o OUT --kind KIND", Short: "Derive a skewed, wide or replicated trace",
		Long: `Derive changes a trace in the ways that the evaluation of Philae (USENIX ATC 2019) uses:

` + list.String() + `
Low-skew and wide keep the ids, arrivals and ports of the remaining coflows, mantri those
of all. Replicate numbers copy k of coflow c as copies × c + k. IN may be -, standard
input. docs/traces.md explains exactly what is kept and what is drawn.`,
		Example: `  testbed trace derive FB2010-1Hr-150-0.txt -o skew3.txt --kind low-skew --k 3
  testbed trace derive FB2010-1Hr-150-0.txt -o mantri.flows --kind mantri --seed 1
  testbed trace derive FB2010-1Hr-150-0.txt -o 900.txt --kind replicate --copies 6`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := slices.Index(names, kind)
			if at < 0 {
				return usageError{fmt.Errorf("trace derive: --kind %q: must be one of %s", kind, strings.Join(names, ", "))}
			}
			if err := onlyFlags(cmd, kinds, at); err != nil {
				return err
			}
			if kind == "mantri" && out.even {
				return usageError{fmt.Errorf("trace derive: --even removes the skew that --kind mantri creates: give one of them")}
			}
			format, err := out.check("derive")
			if err != nil {
				return err
			}
			t, was, remarks, err := a.readTrace(cmd.Context(), args[0], in)
			if err != nil {
				return err
			}
			most, err := memory.bound()
			if err != nil {
				return err
			}
			grows := growth{uneven: kind == "mantri"}
			if kind == "replicate" {
				grows.copies = copies
			}
			if err := grows.check(t, most, false); err != nil {
				return fmt.Errorf("trace derive: %w", err)
			}
			d, said, err := kinds[at].derive(t)
			if err != nil {
				return fmt.Errorf("trace derive: %w", err)
			}
			if kind == "mantri" && was == workloads.FormatBenchmark {
				was = workloads.FormatFlows // the other cannot say what mappers send
			}
			err = a.writeTrace(out, format, was, d, append(remarks, said...))
			if err != nil && kind == "mantri" && format == workloads.FormatBenchmark {
				return hinted{err, "write it as FILE.flows, or with --to flows"}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", strings.Join(names, ", ")+" (required)")
	f.StringVar(&k, "k", "1", "low-skew: largest flow over smallest that a coflow must exceed")
	addSeed(cmd, &seed, "kind mantri")
	f.Float64Var(&skew.P50, "p50", skew.P50, "mantri: coefficient of variation among mappers, median over coflows")
	f.Float64Var(&skew.P90, "p90", skew.P90, "mantri: the same at the 90th percentile")
	f.IntVar(&width, "thin", workloads.ThinCoflow, "wide: most flows of a coflow that is left out")
	f.IntVar(&copies, "copies", 6, "replicate: copies in all; 6 make 900 ports of 150")
	memory.add(cmd)
	in.add(cmd)
	out.add(cmd)
	completer(cmd)("kind", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// onlyFlags refuses flags of other kinds than the one at an index.
func onlyFlags(cmd *cobra.Command, kinds []derivation, at int) error {
	for i, d := range kinds {
		for _, name := range d.flags {
			if i != at && cmd.Flags().Changed(name) {
				return usageError{fmt.Errorf("trace derive: --%s belongs to --kind %s, not %s", name, d.name, kinds[at].name)}
			}
		}
	}
	return nil
}
