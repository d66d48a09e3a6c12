package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/workloads"
	"testbed/workloads/jobs"
)

func (a *app) jobsScaleCmd() *cobra.Command {
	var out jobsOutput
	var l jobsLimits
	var rate, size, times, gaps string
	cmd := &cobra.Command{
		Use: "scale IN -o OUT", Short: "Scale the rates, sizes and times of jobs",
		Long: `Scale multiplies the processing rates, sizes and submission times of a job file. Times of an
experiment scale by size / rate, so two of --rate-factor, --size-factor and --time-factor give
the third. With --rate-factor alone sizes do not change; with one of the others alone rates do
not. Links and disks must be scaled by the factor of rates, and timers such as heartbeats by
that of times: the command prints both. --gap-factor multiplies submission times only, which
changes the load. IN may be -, standard input.`,
		Example: `  testbed workload jobs scale bm.yaml -o small.yaml --rate-factor 1/5 --size-factor 1/25
  testbed workload jobs scale bm.yaml -o double-load.yaml --gap-factor 1/2`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s jobs.Scale
			given := false
			for _, x := range []struct {
				flag, text string
				f          *workloads.Factor
			}{{"rate-factor", rate, &s.Rate}, {"size-factor", size, &s.Size}, {"time-factor", times, &s.Time}, {"gap-factor", gaps, &s.Gaps}} {
				if !cmd.Flags().Changed(x.flag) {
					continue
				}
				given = true
				var err error
				if *x.f, err = workloads.ParseFactor(x.text); err != nil {
					return usageError{fmt.Errorf("--%s: %w", x.flag, err)}
				}
			}
			if !given {
				return usageError{errors.New("workload jobs scale: no factor: give --rate-factor, --size-factor, --time-factor or --gap-factor")}
			}
			s, err := s.Complete()
			if err != nil {
				return usageError{err}
			}
			limits, err := l.limits()
			if err != nil {
				return err
			}
			if err := out.check(a, "scale"); err != nil {
				return err
			}
			f, err := a.text(cmd.Context(), "jobs", args[0])
			if err != nil {
				return err
			}
			defer f.Close() // only read from: closing has nothing to lose
			list, err := jobs.Read(f.name, f, limits)
			if err != nil {
				return f.refuse(err, jobs.FormatJobs)
			}
			if list, err = s.Apply(list); err != nil {
				return err
			}
			said := fmt.Sprintf("rate times %v, size times %v, time times %v, gaps times %v", s.Rate, s.Size, s.Time, s.Gaps)
			if _, err := fmt.Fprintf(a.stderr, "%s: scale links and disks by %v, and timers by %v\n", said, s.Rate, s.Time); err != nil {
				return err
			}
			return a.writeJobs(out, list, "scaled: "+said)
		},
	}
	f := cmd.Flags()
	f.StringVar(&rate, "rate-factor", "", "multiply processing rates by this `factor`, such as 1/5 (default: from the others)")
	f.StringVar(&size, "size-factor", "", "multiply sizes by this `factor` (default: from the others)")
	f.StringVar(&times, "time-factor", "", "multiply times by this `factor` (default: from the others)")
	f.StringVar(&gaps, "gap-factor", "", "multiply submission times by this `factor` in addition (default: 1)")
	l.add(cmd)
	out.add(cmd)
	return cmd
}
