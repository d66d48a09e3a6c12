package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/results/safefile"
	tables "testbed/results/table"
	"testbed/topo/words"
	"testbed/workloads"
)

// Flags that several commands have. The text of a flag up to the parenthesis is the same
// in all of them; the parenthesis holds the part that is specific to one command.

func addOutput(cmd *cobra.Command, path *string, value, detail string) {
	cmd.Flags().StringVarP(path, "output", "o", value, "write to this `path` ("+detail+")")
}

func addForce(cmd *cobra.Command, force *bool, detail string) {
	cmd.Flags().BoolVar(force, "force", false, "override a refusal ("+detail+")")
}

func addCSV(cmd *cobra.Command, csv *bool, detail string) {
	cmd.Flags().BoolVar(csv, "csv", false, "write CSV ("+detail+")")
}

func addArm(cmd *cobra.Command, arm *string, detail string) {
	cmd.Flags().StringVar(arm, "arm", "", "use this arm ("+detail+")")
	completer(cmd)("arm", completeArm)
}

func addArms(cmd *cobra.Command, arms *[]string, detail string) {
	cmd.Flags().StringSliceVar(arms, "arms", nil, "use these arms ("+detail+")")
	completer(cmd)("arms", completeArms)
}

func addRepeat(cmd *cobra.Command, repeat *int, detail string) {
	cmd.Flags().IntVar(repeat, "repeat", 0, "use this repeat, counted from 0 ("+detail+")")
}

func addBaseline(cmd *cobra.Command, baseline *string, detail string) {
	cmd.Flags().StringVar(baseline, "baseline", "", "compare with this baseline ("+detail+")")
}

func addFormat(cmd *cobra.Command, format *string, names []string) {
	cmd.Flags().StringVar(format, "format", "", fmt.Sprintf("file format (%s; default: from the file name, else %s)", words.Or(names), names[0]))
	completer(cmd)("format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func addSort(cmd *cobra.Command, order *string, value string, names []string) {
	cmd.Flags().StringVar(order, "sort", value, "sort order ("+words.Or(names)+")")
	completer(cmd)("sort", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func addList(cmd *cobra.Command, list *bool, what string) {
	cmd.Flags().BoolVar(list, "list", false, "list the choices and exit ("+what+")")
}

func addSeed(cmd *cobra.Command, seed *uint64, detail string) {
	cmd.Flags().Uint64Var(seed, "seed", 1, "seed of the random draws ("+detail+")")
}

func addPorts(cmd *cobra.Command, ports *int, value int, detail string) {
	cmd.Flags().IntVar(ports, "ports", value, "number of ports ("+detail+")")
}

func addFirst(cmd *cobra.Command, first *int, detail string) {
	cmd.Flags().IntVar(first, "first", 0, "use only the first `N` coflows ("+detail+")")
}

func addNoLocal(cmd *cobra.Command, omit *bool) {
	cmd.Flags().BoolVar(omit, "no-local", false, "omit flows from a port to itself, and coflows without other flows")
}

func addPerMB(cmd *cobra.Command, time *time.Duration, detail string) {
	cmd.Flags().DurationVar(time, "per-mb", workloads.DefaultPerMB, "time in which a port transfers 1 MB ("+detail+")")
}

func addMB(cmd *cobra.Command, mb *string, value, detail string) {
	cmd.Flags().StringVar(mb, "mb", value, "size of 1 MB in traces: MB, 10⁶ bytes, or MiB, 2²⁰ bytes ("+detail+")")
	completer(cmd)("mb", cobra.FixedCompletions([]string{"MB", "MiB"}, cobra.ShellCompDirectiveNoFileComp))
}

func addTestbed(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "testbed", "", "name of the testbed (default: the only one that is up)")
}

// emptyPath returns an error for a flag that names a file or a directory and is set to "".
func emptyPath(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		if slices.Contains([]string{"path", "file", "directory"}, kind) && f.Value.String() == "" {
			err = usageError{fmt.Errorf("--%s \"\": must be the path of a file or directory: name one, or leave the flag out", f.Name)}
		}
	})
	return err
}

// widthFlag is the width of tables.
type widthFlag struct {
	columns int
	given   func() bool // reports whether the flag is set
}

func (f *widthFlag) add(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.columns, "width", tables.DefaultWidth, "width of tables in `columns` (unless set, a narrower terminal limits it)")
	f.given = func() bool { return cmd.Flags().Changed("width") }
}

func (f *widthFlag) check() error {
	if f.columns < tables.LeastWidth {
		return usageError{fmt.Errorf("--width %d: must be %d columns or more", f.columns, tables.LeastWidth)}
	}
	return nil
}

// style returns the layout of tables on standard output.
func (f *widthFlag) style(a *app) tables.Style {
	width := f.columns
	if !f.given() {
		width = min(width, terminalWidth(a.stdout.w))
	}
	return terminalStyle(width)
}

// formerFlags maps former names of flags to the present ones. The former names are
// accepted, and not shown.
var formerFlags = map[string]string{"out": "output", "base": "baseline"}

func presentFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if present, ok := formerFlags[name]; ok {
		name = present
	}
	return pflag.NormalizedName(name)
}

// hide hides flags, former names with their own meaning in one command.
func hide(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic(err) // the flag was not declared before
		}
	}
}

// profiled adds hidden flags that write profiles of a command, for "go tool pprof", and returns it.
func profiled(cmd *cobra.Command) *cobra.Command {
	var cpu, memory string
	cmd.Flags().StringVar(&cpu, "cpuprofile", "", "write a profile of the processor time to this `file`")
	cmd.Flags().StringVar(&memory, "memprofile", "", "write a profile of the allocations to this `file`")
	hide(cmd, "cpuprofile", "memprofile")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if cpu != "" {
			f, err := safefile.Create(cpu)
			if err != nil {
				return err
			}
			if err := pprof.StartCPUProfile(f); err != nil {
				return errors.Join(fmt.Errorf("--cpuprofile %s: %w", cpu, err), f.Close())
			}
			defer func() {
				pprof.StopCPUProfile()
				err = errors.Join(err, f.Close())
			}()
		}
		if memory != "" {
			defer func() {
				err = errors.Join(err, safefile.Write(memory, func(w io.Writer) error {
					return pprof.Lookup("allocs").WriteTo(w, 0)
				}))
			}()
		}
		return run(cmd, args)
	}
	return cmd
}

// unknownFlag adds the most similar flags to the error of an unknown one.
func unknownFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		// cobra suggests commands: each flag stands as one.
		flags := &cobra.Command{SuggestionsMinimumDistance: 2}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
			}
		})
		if similar := suggestions(flags, unknown.GetSpecifiedName(), "--"); similar != "" {
			return usageError{fmt.Errorf("%w (did you mean %s?)", err, similar)}
		}
	}
	return usageError{fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())}
}

// unknownCommand returns the error of arguments to a command that takes only commands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if similar := suggestions(cmd, args[0], ""); similar != "" {
		return usageError{fmt.Errorf("unknown command %q (did you mean %s?)", args[0], similar)}
	}
	return usageError{fmt.Errorf("unknown command %q (%s --help lists the commands)", args[0], cmd.CommandPath())}
}

// suggestions returns the commands that are similar to what was typed, "" if there is none.
func suggestions(cmd *cobra.Command, typed, prefix string) string {
	var similar []string
	if len(typed) > 1 {
		similar = cmd.SuggestionsFor(typed)
	}
	slices.Sort(similar)
	for i, s := range similar {
		similar[i] = fmt.Sprintf("%q", prefix+s)
	}
	const most = 3
	return words.Or(similar[:min(most, len(similar))])
}

// subcommands makes cmd a group of commands, which shows its help when run.
func subcommands(cmd *cobra.Command, list ...*cobra.Command) *cobra.Command {
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(list...)
	return cmd
}
