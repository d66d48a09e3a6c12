package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/workloads/jobs"
)

func (a *app) jobsDeriveCmd() *cobra.Command {
	var r jobsRules
	var out jobsOutput
	var first int
	cmd := &cobra.Command{
		Use: "derive TRACE -o FILE", Short: "Derive jobs of tasks from a SWIM trace",
		Long: `Derive reads a trace of jobs in the format of SWIM, as the public Facebook traces of 2009 and
2010, and writes a job file. The trace has the input, shuffle and output bytes of each job;
numbers of tasks, rates, users and the shares of reduces follow by rules, which the flags set.
Users and shares are drawn from the seed and the number of the job. TRACE may be -, standard
input; blank lines and lines that begin with # are ignored.`,
		Example: `  testbed workload jobs derive SWIM-FB-2009-0.tsv -o facebook.yaml
  testbed workload jobs derive SWIM-FB-2009-0.tsv -o small.yaml --first-jobs 100 --max-maps 50 --skew 0.5
  testbed workload jobs derive SWIM-FB-2010-0.tsv -o - --max-maps 400 | testbed workload jobs info -`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if first < 0 {
				return usageError{fmt.Errorf("--first-jobs %d: must be 1 or more, or 0 for all", first)}
			}
			if err := out.check(a, "derive"); err != nil {
				return err
			}
			rules, err := r.rules()
			if err != nil {
				return err
			}
			if _, err := jobs.Derive(nil, rules, r.seed); err != nil {
				return usageError{err}
			}
			f, err := a.text(cmd.Context(), "trace", args[0])
			if err != nil {
				return err
			}
			defer f.Close() // only read from: closing has nothing to lose
			records, err := jobs.ReadSWIM(f.name, f, rules.Limits)
			if err != nil {
				return f.refuse(err, jobs.FormatSWIM)
			}
			if first > 0 {
				records = records[:min(first, len(records))]
			}
			list, err := jobs.Derive(records, rules, r.seed)
			if err != nil {
				return hinted{err, "use --first-jobs, larger blocks, --max-maps or --max-tasks"}
			}
			return a.writeJobs(out, list, settings(cmd, "derived from a SWIM trace"))
		},
	}
	r.add(cmd)
	cmd.Flags().IntVar(&first, "first-jobs", 0, "use only the first `N` jobs (default: all)")
	out.add(cmd)
	return cmd
}

// settings returns a remark with all flags that determine the content of a file, in order.
func settings(cmd *cobra.Command, head string) string {
	var list []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"output", "force", "help", "json", "max-tasks"}, f.Name) && cmd.LocalNonPersistentFlags().Lookup(f.Name) != nil {
			list = append(list, f.Name+"="+f.Value.String())
		}
	})
	return head + ": " + strings.Join(list, ", ")
}
