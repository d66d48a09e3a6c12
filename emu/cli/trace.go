package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"testbed/results/files"
	"testbed/topo/units"
	"testbed/workloads"
)

// traceCmd is the group of verbs for coflow traces. Each is in a file trace_*.go.
func (a *app) traceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace", Short: "Describe, change, generate and simulate coflow traces",
		Long: `Trace works on files of coflows between ports, such as the public trace of Facebook:
what is in one, how to make another of it or one like it, and what coflow policies make
of it. docs/traces.md explains the formats and every statistic.

Formats: coflow-benchmark (.txt), flows (.flows) and htsim (.cm). Which one a file is in
is found by what is in it, or told by --from; which one to write by the ending of the
file's name or by --to. A file may be -, standard input or output.`,
		Example: `  testbed trace info FB2010-1Hr-150-0.txt
  testbed trace convert FB2010-1Hr-150-0.txt -o facebook.cm
  testbed trace simulate FB2010-1Hr-150-0.txt -p fair -p philae`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("trace: unknown command %q (testbed trace --help lists them)", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.traceInfoCmd(), a.traceConvertCmd(), a.traceScaleCmd(), a.traceFilterCmd(), a.traceGenerateCmd(), a.traceDeriveCmd(), a.traceSimulateCmd())
	return cmd
}

// stdio is the name of standard input and output among files.
const stdio = "-"

// traceInput are the flags of verbs that read a trace.
type traceInput struct{ from string }

func (in *traceInput) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.from, "from", "", "format of the file (found by what is in it)")
	completer(cmd)("from", completeTraceFormats)
}

// traceOutput are the flags of verbs that write a trace.
type traceOutput struct {
	path, to, mb string
	even, force  bool
}

func (out *traceOutput) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&out.path, "output", "o", "", "file to write, - is standard output (required)")
	f.StringVar(&out.to, "to", "", "format to write (by the ending of the file's name, or that of the file read)")
	f.StringVar(&out.mb, "mb", "", "what a MB is where a trace does not say it and bytes are wanted, or the other way round: MB, of 10⁶ bytes, or MiB, of 2²⁰ (MiB; without it sizes stay in MB where the format has both)")
	f.BoolVar(&out.even, "even", false, "spread what a reducer fetches evenly over the mappers, as coflow-benchmark has it")
	f.BoolVar(&out.force, "force", false, "replace the file if it is there")
	complete := completer(cmd)
	complete("to", completeTraceFormats)
	complete("mb", cobra.FixedCompletions([]string{"MB", "MiB"}, cobra.ShellCompDirectiveNoFileComp))
}

func completeTraceFormats(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, f := range workloads.TraceFormats() {
		names = append(names, string(f.Format)+"\t"+f.Doc)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// readTrace reads a trace from a file or standard input. What the file has and a
// trace does not is told in the remarks.
func (a *app) readTrace(path string, in traceInput) (_ *workloads.Trace, format workloads.TraceFormat, remarks []string, err error) {
	if in.from != "" {
		if format, err = workloads.ParseTraceFormat(in.from); err != nil {
			return nil, "", nil, usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	if path == stdio {
		return workloads.ReadTrace("standard input", a.stdin, format)
	}
	f, err := os.Open(path)
	if err != nil {
		var sys *fs.PathError
		if errors.As(err, &sys) {
			err = sys.Err
		}
		return nil, "", nil, fmt.Errorf("read trace %s: %w", path, err)
	}
	defer f.Close() // only read from: closing has nothing to lose
	if info, err := f.Stat(); err != nil {
		return nil, "", nil, fmt.Errorf("read trace %s: %w", path, err)
	} else if info.IsDir() {
		return nil, "", nil, fmt.Errorf("read trace %s: it is a directory: want a file", path)
	}
	return workloads.ReadTrace(path, f, format)
}

// check refuses what cannot be written, before anything is read, and finds the format
// if it is told.
func (out *traceOutput) check(verb string) (format workloads.TraceFormat, err error) {
	if out.path == "" {
		return "", usageError{fmt.Errorf("trace %s: no output: want -o FILE, or -o - for standard output", verb)}
	}
	switch out.mb {
	case "", "MB", "MiB":
	default:
		return "", usageError{fmt.Errorf("--mb %q: want MB, of 10⁶ bytes, or MiB, of 2²⁰", out.mb)}
	}
	if out.to != "" {
		if format, err = workloads.ParseTraceFormat(out.to); err != nil {
			return "", usageError{fmt.Errorf("--to: %w", err)}
		}
	} else if out.path != stdio {
		format = workloads.FormatOfFile(out.path)
	}
	if out.path != stdio && !out.force {
		if _, err := os.Lstat(out.path); err == nil {
			return "", hinted{fmt.Errorf("trace %s: %s is there already", verb, out.path), "--force replaces it"}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("trace %s: %w", verb, err)
		}
	}
	return format, nil
}

// writeTrace writes a trace in a format, "" for the one that it was read in, all of it
// or nothing, and tells on standard error what came of it.
func (a *app) writeTrace(out traceOutput, format, was workloads.TraceFormat, t *workloads.Trace, remarks []string) error {
	if format == "" {
		format = was
	}
	o := workloads.FitOptions{MB: map[string]units.Bytes{"MB": units.MB, "MiB": units.MiB}[out.mb], Even: out.even}
	t, more, err := workloads.Fit(t, format, o)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return workloads.WriteTraceAs(w, t, format) }
	if out.path == stdio {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if _, err := a.stdout.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
	} else if err := files.Write(out.path, write); err != nil {
		return err
	}
	for _, r := range append(remarks, more...) {
		if _, err := fmt.Fprintln(a.stderr, r); err != nil {
			return err
		}
	}
	flows := 0
	for _, c := range t.Coflows {
		flows += c.Width()
	}
	_, err = fmt.Fprintf(a.stderr, "%s: %d coflows of %d flows on %d ports, format %s\n", out.path, len(t.Coflows), flows, t.Ports, format)
	return err
}
