package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	tables "testbed/results/table"
	"testbed/workloads/jobs"
)

func (a *app) jobsInfoCmd() *cobra.Command {
	var r jobsRules
	var width widthFlag
	var bins []int
	cmd := &cobra.Command{
		Use: "info FILE", Short: "Describe jobs: tasks, bytes, bins, users, profiles",
		Long: `Info prints the number of jobs and tasks of a job file, their bytes and the time that they
take of slots on an unloaded machine, quantiles over jobs, and jobs by bin, profile and
user. Quantiles are interpolated linearly between the two nearest ranks. Bytes exclude
replicas. FILE may be a SWIM trace, whose tasks are derived as "derive" does, and -,
standard input.`,
		Example: `  testbed workload jobs info facebook.yaml
  testbed workload jobs info SWIM-FB-2009-0.tsv --block 256MB
  testbed workload jobs info bm.yaml --map-bins 3,6,12,25,50,100,200,400 --json | jq '.bins'`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := width.check(); err != nil {
				return err
			}
			if err := jobs.CheckBins(bins); err != nil {
				return usageError{fmt.Errorf("--map-bins: %w", err)}
			}
			list, remarks, err := a.loadJobs(cmd.Context(), args[0], &r)
			if err != nil {
				return err
			}
			out := struct {
				Remarks []string `json:"remarks,omitempty"`
				jobs.Stats
			}{remarks, jobs.Describe(list, bins)}
			return a.print(out, func(w io.Writer) error {
				for _, m := range remarks {
					if _, err := fmt.Fprintln(a.stderr, m); err != nil {
						return err
					}
				}
				return drawJobs(w, out.Stats, width.style(a))
			})
		},
	}
	cmd.Flags().IntSliceVar(&bins, "map-bins", jobs.DefaultBins(), "largest number of maps of each `bin` except the last")
	r.add(cmd)
	width.add(cmd)
	return cmd
}

func drawJobs(w io.Writer, s jobs.Stats, style tables.Style) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	seconds := func(x float64) string { return grouped(x) + " s" }
	line("jobs", "%s, map-only %s; submitted at %s to %s, a mean gap of %s", grouped(float64(s.Jobs)), grouped(float64(s.MapOnly)), seconds(s.First), seconds(s.Last), seconds(s.MeanGap))
	line("tasks", "%s maps and %s reduces; %s read a block", grouped(float64(s.Maps)), grouped(float64(s.Reduces)), grouped(float64(s.Reads)))
	line("bytes", "input %s, shuffle %s, output %s", shortBytes(s.Input), shortBytes(s.Shuffled), shortBytes(s.Written))
	line("slot time", "maps %s, reduces %s on an unloaded machine", seconds(s.MapSeconds), seconds(s.ReduceSeconds))
	if s.MapSlots+s.ReduceSlots > 0 {
		line("busy slots", "%s of maps and %s of reduces on average, from the first submission to the last", grouped(s.MapSlots), grouped(s.ReduceSlots))
	}
	b.WriteByte('\n')
	if _, err := io.WriteString(w, style.Text(b.String())); err != nil {
		return err
	}
	if err := drawQuantiles(w, "per job", s.Quantiles, style); err != nil {
		return err
	}
	for _, x := range []struct {
		name   string
		groups []jobs.Group
	}{{"maps", s.Bins}, {"profile", s.Profiles}, {"user", s.Users}} {
		const most = 20
		t := tables.Table{Head: []string{x.name, "jobs", "of jobs", "maps", "reduces", "input, MB", "of input", "shuffle, MB", "output, MB"},
			Columns: []tables.Column{{Left: true}, {}, {}, {}, {}, {}, {}, {Drop: 2}, {Drop: 1}}}
		for _, g := range x.groups[:min(most, len(x.groups))] {
			name := g.Name
			if name == "" {
				name = "(none)"
			}
			mb := func(n int64) string { return grouped(float64(n/1000) / 1000) }
			t.Rows = append(t.Rows, []string{name, grouped(float64(g.Jobs)), shareOf(g.JobShare), grouped(float64(g.Maps)), grouped(float64(g.Reduces)),
				mb(g.Input), shareOf(g.InputShare), mb(g.Shuffled), mb(g.Written)})
		}
		if err := drawTable(w, t, style); err != nil {
			return err
		}
		if more := len(x.groups) - most; more > 0 {
			if _, err := fmt.Fprintf(w, "and %d more; --json has all\n", more); err != nil {
				return err
			}
		}
	}
	return nil
}
