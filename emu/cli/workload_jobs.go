package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// workloadJobsCmd is the group of verbs for job files.
func (a *app) workloadJobsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs", Short: "Generate, derive, scale and describe jobs of tasks",
		Long: `Jobs works on job files: jobs of map and reduce tasks, with the data that tasks read, send,
write and compute on. They are YAML, and can be written by hand. An item of kind tasks of a
scenario runs them. docs/job-workloads.md explains the format, the generators and every rule.`,
		Example: `  testbed workload jobs generate bm -o bm.yaml
  testbed workload jobs derive SWIM-FB-2009-0.tsv -o facebook.yaml
  testbed workload jobs info facebook.yaml`,
	}
	return subcommands(cmd, a.jobsGenerateCmd(), a.jobsDeriveCmd(), a.jobsScaleCmd(), a.jobsInfoCmd())
}

// jobsOutput are the flags of verbs that write a job file.
type jobsOutput struct {
	path  string
	force bool
}

func (out *jobsOutput) add(cmd *cobra.Command) {
	addOutput(cmd, &out.path, "", "file, - for standard output; required")
	addForce(cmd, &out.force, "replace an existing file")
}

// check refuses what cannot be written, before anything is read.
func (out *jobsOutput) check(a *app, verb string) error {
	if a.json && out.path == stdio {
		return usageError{fmt.Errorf("workload jobs %s: --json and -o - exclude each other: both write to standard output", verb)}
	}
	return checkOutput("workload jobs "+verb, out.path, out.force)
}

// writeJobs writes a job file, all of it or nothing, and summarises it on standard error.
func (a *app) writeJobs(out jobsOutput, list []jobs.Job, remarks ...string) error {
	if err := a.writeOutput("jobs", out.path, func(w io.Writer) error { return jobs.Write(w, list, remarks...) }); err != nil {
		return err
	}
	s := jobs.Describe(list, jobs.DefaultBins())
	if a.json {
		return a.print(s, nil)
	}
	_, err := fmt.Fprintf(a.stderr, "%s: %d jobs of %d maps and %d reduces; they read %v, shuffle %v and write %v\n",
		out.path, s.Jobs, s.Maps, s.Reduces, shortBytes(s.Input), shortBytes(s.Shuffled), shortBytes(s.Written))
	return err
}

func shortBytes(n int64) string { return units.Short(float64(n), "B") }

// jobsLimits are the flags that bound what is read or made.
type jobsLimits struct{ tasks int }

func (l *jobsLimits) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&l.tasks, "max-tasks", jobs.DefaultMaxTasks, "refuse a workload of more than this number of tasks")
}

func (l *jobsLimits) limits() (jobs.Limits, error) {
	if l.tasks < 1 {
		return jobs.Limits{}, usageError{fmt.Errorf("--max-tasks %d: must be 1 or more", l.tasks)}
	}
	return jobs.Limits{Tasks: l.tasks, Outputs: max(jobs.DefaultMaxOutputs, 10*l.tasks)}, nil
}

// jobsRules are the flags of the rules that derive tasks.
type jobsRules struct {
	jobs.Rules
	jobsLimits
	seed uint64
}

func (r *jobsRules) add(cmd *cobra.Command) {
	r.Rules = jobs.DefaultRules()
	f := cmd.Flags()
	addBlock(cmd, &r.Block)
	f.IntVar(&r.MaxMaps, "max-maps", 0, "keep only the data of this number of maps per job (default: no bound)")
	f.TextVar(&r.PerReduce, "per-reduce", r.PerReduce, "shuffle `size` of a reduce")
	f.IntVar(&r.MaxReduces, "max-reduces", r.MaxReduces, "largest number of reduces of a job")
	f.TextVar(&r.MapRate, "map-rate", r.MapRate, "`rate` at which a map consumes its input")
	f.TextVar(&r.ReduceRate, "reduce-rate", r.ReduceRate, "`rate` at which a reduce consumes its input")
	addSortRate(cmd, &r.SortRate)
	addJobDraws(cmd, &r.seed, &r.PartitionSkew, &r.Users)
	r.jobsLimits.add(cmd)
}

func (r *jobsRules) rules() (_ jobs.Rules, err error) {
	rules := r.Rules
	rules.Limits, err = r.limits()
	return rules, err
}

func addBlock(cmd *cobra.Command, block *units.Bytes) {
	cmd.Flags().TextVar(block, "block", *block, "`size` of the block that a map reads")
}

func addSortRate(cmd *cobra.Command, rate *units.Rate) {
	cmd.Flags().TextVar(rate, "sort-rate", *rate, "`rate` at which a reduce sorts its input")
}

// loadJobs reads a job file or, by rules, a SWIM trace. The remarks describe how its tasks were
// derived.
func (a *app) loadJobs(ctx context.Context, path string, r *jobsRules) (_ []jobs.Job, remarks []string, _ error) {
	rules, err := r.rules()
	if err != nil {
		return nil, nil, err
	}
	f, err := a.text(ctx, "jobs", path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // only read from: closing has nothing to lose
	if is, _ := jobs.Recognise(f.head); is != jobs.FormatSWIM {
		list, err := jobs.Read(f.name, f, rules.Limits)
		return list, nil, f.refuse(err, jobs.FormatJobs)
	}
	records, err := jobs.ReadSWIM(f.name, f, rules.Limits)
	if err != nil {
		return nil, nil, err
	}
	list, err := jobs.Derive(records, rules, r.seed)
	if err != nil {
		return nil, nil, hinted{err, "use a smaller trace, larger blocks, --max-maps or --max-tasks"}
	}
	return list, []string{fmt.Sprintf("tasks derived with blocks of %v, %v a reduce, seed %d", rules.Block, rules.PerReduce, r.seed)}, nil
}
