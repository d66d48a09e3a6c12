package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// traceCmd is the group of verbs for coflow traces. Each is in a file trace_*.go.
func (a *app) traceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "trace", Short: "Describe, convert, generate and simulate coflow traces",
		Long: `Trace works on files of coflows between ports, such as the public Facebook trace: it
describes, converts and changes them, generates similar ones, and simulates coflow
policies on them. docs/traces.md explains the formats and every statistic.

Formats are coflow-benchmark (.txt), flows (.flows) and htsim (.cm). The input format is
detected from the content, or set by --from; the output format follows the file name, or
--to. A file may be -, standard input or output.`,
		Example: `  testbed trace info FB2010-1Hr-150-0.txt
  testbed trace convert FB2010-1Hr-150-0.txt -o facebook.cm
  testbed trace simulate FB2010-1Hr-150-0.txt -p fair -p philae`,
	}
	return subcommands(cmd, a.traceInfoCmd(), a.traceConvertCmd(), a.traceScaleCmd(), a.traceFilterCmd(), a.traceGenerateCmd(), a.traceDeriveCmd(), profiled(a.traceSimulateCmd()))
}

// traceInput are the flags of verbs that read a trace.
type traceInput struct{ from string }

func (in *traceInput) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.from, "from", "", "format of the input (default: detected from the content)")
	completer(cmd)("from", completeTraceFormats)
}

// traceOutput are the flags of verbs that write a trace.
type traceOutput struct {
	path, to, mb string
	even, force  bool
}

func (out *traceOutput) add(cmd *cobra.Command) {
	f := cmd.Flags()
	addOutput(cmd, &out.path, "", "file, - for standard output; required")
	f.StringVar(&out.to, "to", "", "format of the output (default: from the file name, else that of the input)")
	addMB(cmd, &out.mb, "", "for conversion to bytes or back; default: MB, and sizes stay in MB where the format allows it")
	f.BoolVar(&out.even, "even", false, "spread the bytes of a reducer evenly over the mappers, as coflow-benchmark does")
	addForce(cmd, &out.force, "replace an existing file")
	completer(cmd)("to", completeTraceFormats)
}

func completeTraceFormats(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, f := range workloads.TraceFormats() {
		names = append(names, string(f.Format)+"\t"+f.Doc)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// readTrace reads a trace from a file or standard input. The remarks list
// what the file has and a trace does not.
func (a *app) readTrace(ctx context.Context, path string, in traceInput) (t *workloads.Trace, format workloads.TraceFormat, remarks []string, err error) {
	if in.from != "" {
		if format, err = workloads.ParseTraceFormat(in.from); err != nil {
			return nil, "", nil, usageError{fmt.Errorf("--from: %w", err)}
		}
	}
	f, err := a.text(ctx, "trace", path)
	if err != nil {
		return nil, "", nil, err
	}
	defer f.Close() // only read from: closing has nothing to lose
	t, format, remarks, err = workloads.ReadTrace(f.name, f, format)
	return t, format, remarks, f.refuse(err, jobs.FormatTrace)
}

// check refuses what cannot be written, before anything is read, and finds the format
// if the options state it.
func (out *traceOutput) check(verb string) (format workloads.TraceFormat, err error) {
	if err := checkOutput("trace "+verb, out.path, out.force); err != nil {
		return "", err
	}
	if _, err := workloads.ParseMB(out.mb); err != nil {
		return "", usageError{fmt.Errorf("--mb %w", err)}
	}
	if out.to != "" {
		if format, err = workloads.ParseTraceFormat(out.to); err != nil {
			return "", usageError{fmt.Errorf("--to: %w", err)}
		}
	} else if out.path != stdio {
		format = workloads.FormatOfFile(out.path)
	}
	return format, nil
}

// writeTrace writes a trace in a format, "" for the one that it was read in, all of it
// or nothing, and summarises it on standard error.
func (a *app) writeTrace(out traceOutput, format, was workloads.TraceFormat, t *workloads.Trace, remarks []string) error {
	if format == "" {
		format = was
	}
	o := workloads.FitOptions{MB: map[string]units.Bytes{"MB": units.MB, "MiB": units.MiB}[out.mb], Even: out.even}
	t, more, err := workloads.Fit(t, format, o)
	if err != nil {
		return err
	}
	if err := a.writeOutput("trace", out.path, func(w io.Writer) error { return workloads.WriteTraceAs(w, t, format) }); err != nil {
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
