package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// addJobDraws adds the flags of what is drawn for each job.
func addJobDraws(cmd *cobra.Command, seed *uint64, skew *float64, users *jobs.Users) {
	addSeed(cmd, seed, "the same seed gives the same file")
	f := cmd.Flags()
	f.Float64Var(skew, "skew", *skew, "Zipf exponent of the shares of a job's reduces, 0 for equal shares")
	f.IntVar(&users.Count, "users", users.Count, "number of users")
	f.Float64Var(&users.Skew, "user-skew", users.Skew, "Zipf exponent of the users' shares of jobs, 0 for equal shares")
}

// jobsKind is one generator of jobs.
type jobsKind struct {
	name, doc string
	flags     []string // that do not apply to all kinds; others are an error
	generate  func(seed uint64) ([]jobs.Job, error)
}

func (a *app) jobsGenerateCmd() *cobra.Command {
	var out jobsOutput
	var limits jobsLimits
	var factor, span, pattern string
	var weights map[string]int
	var seed uint64
	bm, mix, sim, bench, bins := jobs.DefaultBM(), jobs.DefaultMix(), jobs.DefaultSimulation(), jobs.DefaultBenchmarks(), jobs.DefaultBinJobs()
	kinds := []jobsKind{
		{"bm", "FAIR's macro benchmark: 50 jobs of nine sizes, as at Facebook", []string{"tasks", "sort-rate"}, func(seed uint64) ([]jobs.Job, error) {
			var err error
			if bm.Tasks, err = workloads.ParseFactor(factor); err != nil {
				return nil, fmt.Errorf("--tasks: %w", err)
			}
			return bm.Generate(seed)
		}},
		{"mix", "jobs of weighted profiles: scan (map-only), sort and aggregate", []string{"jobs", "weights", "maps", "sort-rate", "spread", "workers"}, func(seed uint64) ([]jobs.Job, error) {
			if err := weigh(mix.Profiles, weights); err != nil {
				return nil, err
			}
			from, to, err := mapRange(span)
			if err != nil {
				return nil, err
			}
			for i := range mix.Profiles {
				mix.Profiles[i].Maps, mix.Profiles[i].SortRate = [2]int{from, to}, bm.SortRate
			}
			return mix.Generate(seed)
		}},
		{"simulation", "30 jobs of the simulation in the FAIR report, all at the start", []string{"jobs"}, func(seed uint64) ([]jobs.Job, error) { return sim.Generate(seed) }},
		{"benchmarks", "360 jobs of the twelve benchmarks of the ShuffleWatcher report", []string{"jobs", "sort-rate", "spread"}, func(seed uint64) ([]jobs.Job, error) {
			for i := range bench.Profiles {
				bench.Profiles[i].SortRate = bm.SortRate
			}
			bench.Spread = mix.Spread
			return bench.Generate(seed)
		}},
		{"bins", "1000 jobs with the sizes of the Dolly report: facebook or bing", []string{"jobs", "spread", "workload", "smallest", "largest", "phases", "pattern"}, func(seed uint64) ([]jobs.Job, error) {
			at := slices.Index(jobs.Patterns(), pattern)
			if at < 0 {
				return nil, fmt.Errorf("--pattern %q: must be %s", units.Clip(pattern), words.Or(jobs.Patterns()))
			}
			bins.Pattern = jobs.Pattern(at)
			bins.Spread = mix.Spread
			return bins.Generate(seed)
		}},
	}
	var list strings.Builder
	names := make([]string, len(kinds))
	complete := make([]string, len(kinds))
	for i, k := range kinds {
		names[i], complete[i] = k.name, k.name+"\t"+k.doc
		fmt.Fprintf(&list, "  %-11s %s\n", k.name, k.doc)
	}
	gap := bm.Gap
	count := mix.Jobs
	cmd := &cobra.Command{
		Use: "generate KIND -o FILE", Short: "Generate jobs of tasks from a seed",
		Long: `Generate draws jobs and writes a job file. The kinds are:

` + list.String() + `
Submissions are a Poisson process. Each draw depends on the seed, the job and its purpose
only, so a flag changes only what it describes. docs/job-workloads.md explains every
distribution and default.`,
		Example: `  testbed workload jobs generate bm --tasks 1/8 -o bm.yaml
  testbed workload jobs generate mix --jobs 200 --gap 5s --weights scan=2,sort=1 -o mix.yaml
  testbed workload jobs generate simulation --seed 3 -o - | testbed workload jobs info -`,
		Args:              exactly(1),
		ValidArgsFunction: cobra.FixedCompletions(complete, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := slices.Index(names, args[0])
			if at < 0 {
				return usageError{fmt.Errorf("workload jobs generate: kind %q: must be %s", units.Clip(args[0]), words.Or(names))}
			}
			for i, k := range kinds {
				for _, name := range k.flags {
					if i != at && cmd.Flags().Changed(name) && !slices.Contains(kinds[at].flags, name) {
						return usageError{fmt.Errorf("workload jobs generate: --%s does not apply to kind %s", name, names[at])}
					}
				}
			}
			l, err := limits.limits()
			if err != nil {
				return err
			}
			if err := out.check(a, "generate"); err != nil {
				return err
			}
			mix.Block, mix.PartitionSkew, mix.Users, mix.Limits = bm.Block, bm.PartitionSkew, bm.Users, l
			sim.Block, sim.PartitionSkew, sim.Users, sim.Limits = bm.Block, bm.PartitionSkew, bm.Users, l
			bench.Block, bench.PartitionSkew, bench.Users, bench.Limits = bm.Block, bm.PartitionSkew, bm.Users, l
			bins.Block, bins.PartitionSkew, bins.Users, bins.Limits = bm.Block, bm.PartitionSkew, bm.Users, l
			bm.Limits = l
			if cmd.Flags().Changed("gap") {
				bm.Gap, mix.Gap, sim.Gap, bench.Gap, bins.Gap = gap, gap, gap, gap, gap
			}
			if mix.Workers > 0 {
				if cmd.Flags().Changed("users") || cmd.Flags().Changed("user-skew") {
					return usageError{errors.New("workload jobs generate: --users and --user-skew do not apply to --workers, each of which is a user")}
				}
				if !cmd.Flags().Changed("gap") {
					mix.Gap = 0
				}
			}
			if cmd.Flags().Changed("jobs") {
				mix.Jobs, sim.Jobs, bench.Jobs, bins.Jobs = count, count, count, count
			}
			list, err := kinds[at].generate(seed)
			if err != nil {
				return usageError{err}
			}
			return a.writeJobs(out, list, settings(cmd, "generated, kind "+names[at]))
		},
	}
	f := cmd.Flags()
	addJobDraws(cmd, &seed, &bm.PartitionSkew, &bm.Users)
	addBlock(cmd, &bm.Block)
	addSortRate(cmd, &bm.SortRate)
	f.DurationVar(&gap, "gap", gap, "mean time between submissions (kind simulation: 0s by default, all at the start)")
	f.IntVar(&count, "jobs", count, fmt.Sprintf("number of jobs (kind mix; kind simulation: %d by default)", sim.Jobs))
	f.StringVar(&factor, "tasks", "1", "multiply the numbers of maps by this `factor`, such as 1/8 (kind bm)")
	f.StringToIntVar(&weights, "weights", nil, "weights of profiles, such as scan=2,sort=1; profiles without one do not occur (kind mix; default: equal)")
	f.StringVar(&span, "maps", "1-20", "`range` of the number of maps of a job (kind mix)")
	f.IntVar(&mix.Workers, "workers", 0, "number of users in a closed loop, who submit their next job --gap after the end of their job, 0s by default (kind mix; default: none)")
	f.Float64Var(&mix.Spread, "spread", 0, "multiply the time in which each task consumes its input by 1 ± this, uniform (kind mix)")
	f.StringVar(&bins.Workload, "workload", bins.Workload, "`name` of the cluster whose shares of jobs are drawn: "+words.Or(jobs.BinWorkloads())+" (kind bins)")
	f.IntVar(&bins.Smallest, "smallest", bins.Smallest, "number of tasks of the smallest job (kind bins)")
	f.IntVar(&bins.Largest, "largest", bins.Largest, "number of tasks of the largest job (kind bins)")
	f.IntVar(&bins.Phases, "phases", bins.Phases, "number of stages of a job, each of which fetches from the one before (kind bins)")
	f.StringVar(&pattern, "pattern", jobs.AllToAll.String(), "tasks of the stage before that each task fetches from: "+words.Or(jobs.Patterns())+" (kind bins)")
	limits.add(cmd)
	out.add(cmd)
	completer(cmd)("pattern", cobra.FixedCompletions(jobs.Patterns(), cobra.ShellCompDirectiveNoFileComp))
	completer(cmd)("weights", cobra.NoFileCompletions)
	completer(cmd)("workload", cobra.FixedCompletions(jobs.BinWorkloads(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// weigh sets the weights of profiles, 0 for those that are not named. Without weights, nothing
// changes.
func weigh(profiles []jobs.Profile, weights map[string]int) error {
	var names []string
	for i := range profiles {
		names = append(names, profiles[i].Name)
		if len(weights) > 0 {
			profiles[i].Weight = weights[profiles[i].Name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--weights: unknown profile %q: must be %s", units.Clip(name), words.Or(names))
		}
	}
	return nil
}

// mapRange parses a range of numbers, A-B or A.
func mapRange(s string) (from, to int, err error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		b = a
	}
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	if err1 != nil || err2 != nil || from < 1 || to < from {
		return 0, 0, fmt.Errorf("--maps %q: expected a range of positive numbers such as 1-20", units.Clip(s))
	}
	return from, to, nil
}
