package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/results/safefile"
	tables "testbed/results/table"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// workloadJobsCmd is the group of verbs for job files.
func (a *app) workloadJobsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs", Short: "Generate, derive, scale and describe jobs of tasks",
		Long: `Jobs works on job files: jobs of map and reduce tasks, with the data that tasks read, send,
write and compute on. They are YAML, and can be written by hand. docs/job-workloads.md
explains the format, the generators and every rule.`,
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
	switch {
	case out.path == "":
		return usageError{fmt.Errorf("workload jobs %s: no output: give -o FILE, or -o - for standard output", verb)}
	case a.json && out.path == stdio:
		return usageError{fmt.Errorf("workload jobs %s: --json and -o - exclude each other: both write to standard output", verb)}
	case out.path == stdio || out.force:
		return nil
	}
	if _, err := os.Lstat(out.path); err == nil {
		return hinted{fmt.Errorf("workload jobs %s: %s exists", verb, out.path), "use --force to replace it"}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("workload jobs %s: %w", verb, err)
	}
	return nil
}

// writeJobs writes a job file, all of it or nothing, and summarises it on standard error.
func (a *app) writeJobs(out jobsOutput, list []jobs.Job, remarks ...string) error {
	write := func(w io.Writer) error { return jobs.Write(w, list, remarks...) }
	if out.path == stdio {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if _, err := a.stdout.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write jobs: %w", err)
		}
	} else if err := safefile.Write(out.path, write); err != nil {
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

// addJobDraws adds the flags of what is drawn for each job.
func addJobDraws(cmd *cobra.Command, seed *uint64, skew *float64, users *jobs.Users) {
	addSeed(cmd, seed, "the same seed gives the same file")
	f := cmd.Flags()
	f.Float64Var(skew, "skew", *skew, "Zipf exponent of the shares of a job's reduces, 0 for equal shares")
	f.IntVar(&users.Count, "users", users.Count, "number of users")
	f.Float64Var(&users.Skew, "user-skew", users.Skew, "Zipf exponent of the users' shares of jobs, 0 for equal shares")
}

// loadJobs reads a job file or, by rules, a SWIM trace. The remarks describe how its tasks were
// derived.
func (a *app) loadJobs(ctx context.Context, path string, r *jobsRules) (_ []jobs.Job, remarks []string, _ error) {
	rules, err := r.rules()
	if err != nil {
		return nil, nil, err
	}
	f, name, err := a.input(ctx, "jobs", path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // only read from: closing has nothing to lose
	const peeked = 4096
	in := bufio.NewReaderSize(f, peeked)
	head, err := in.Peek(peeked)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	if !jobs.IsSWIM(head) {
		list, err := jobs.Read(name, in, rules.Limits)
		return list, nil, err
	}
	records, err := jobs.ReadSWIM(name, in, rules.Limits)
	if err != nil {
		return nil, nil, err
	}
	list, err := jobs.Derive(records, rules, r.seed)
	if err != nil {
		return nil, nil, hinted{err, "use a smaller trace, larger blocks, --max-maps or --max-tasks"}
	}
	return list, []string{fmt.Sprintf("tasks derived with blocks of %v, %v a reduce, seed %d", rules.Block, rules.PerReduce, r.seed)}, nil
}

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
			f, name, err := a.input(cmd.Context(), "trace", args[0])
			if err != nil {
				return err
			}
			defer f.Close() // only read from: closing has nothing to lose
			records, err := jobs.ReadSWIM(name, f, rules.Limits)
			if err != nil {
				return err
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
	q := tables.Table{Head: []string{"per job", "min", "P10", "P25", "P50", "P75", "P90", "P95", "P99", "max", "mean"},
		Columns: []tables.Column{{Left: true}, {}, {Drop: 2}, {Drop: 1}, {}, {Drop: 3}, {}, {}, {}, {}, {}}}
	for _, r := range s.Quantiles {
		name := r.Name
		if r.Unit != "" {
			name += ", " + r.Unit
		}
		row := []string{name}
		for _, x := range []float64{r.Min, r.P10, r.P25, r.P50, r.P75, r.P90, r.P95, r.P99, r.Max, r.Mean} {
			row = append(row, grouped(x))
		}
		q.Rows = append(q.Rows, row)
	}
	if err := drawTable(w, q, style); err != nil {
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
			f, name, err := a.input(cmd.Context(), "jobs", args[0])
			if err != nil {
				return err
			}
			defer f.Close() // only read from: closing has nothing to lose
			list, err := jobs.Read(name, f, limits)
			if err != nil {
				return err
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

// jobsKind is one generator of jobs.
type jobsKind struct {
	name, doc string
	flags     []string // that do not apply to all kinds; others are an error
	generate  func(seed uint64) ([]jobs.Job, error)
}

func (a *app) jobsGenerateCmd() *cobra.Command {
	var out jobsOutput
	var limits jobsLimits
	var factor, span string
	var weights map[string]int
	var seed uint64
	bm, mix, sim := jobs.DefaultBM(), jobs.DefaultMix(), jobs.DefaultSimulation()
	kinds := []jobsKind{
		{"bm", "FAIR's macro benchmark: 50 jobs of nine sizes, as at Facebook", []string{"tasks", "sort-rate"}, func(seed uint64) ([]jobs.Job, error) {
			var err error
			if bm.Tasks, err = workloads.ParseFactor(factor); err != nil {
				return nil, fmt.Errorf("--tasks: %w", err)
			}
			return bm.Generate(seed)
		}},
		{"mix", "jobs of weighted profiles: scan (map-only), sort and aggregate", []string{"jobs", "weights", "maps", "sort-rate"}, func(seed uint64) ([]jobs.Job, error) {
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
			bm.Limits = l
			if cmd.Flags().Changed("gap") {
				bm.Gap, mix.Gap, sim.Gap = gap, gap, gap
			}
			if cmd.Flags().Changed("jobs") {
				mix.Jobs, sim.Jobs = count, count
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
	limits.add(cmd)
	out.add(cmd)
	completer(cmd)("weights", cobra.NoFileCompletions)
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
