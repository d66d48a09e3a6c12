package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
	"testbed/results/rundir"
	tables "testbed/results/table"
	"testbed/topo/units"
	"testbed/topo/words"
)

// defaultOut is the directory in which run directories are made.
const defaultOut = "runs"

// storeFlags are those of verbs that run a scenario on packets, or predict it.
type storeFlags struct {
	out      string
	captures string
}

func (f *storeFlags) add(cmd *cobra.Command) {
	addOut(cmd, &f.out)
	cmd.Flags().StringVar(&f.captures, "captures", string(runner.CompressCaptures),
		"compress, keep or drop the captures of a repeat once its figures are computed: `mode`; without captures, reports repeat its figures, and pcap refuses the run")
	_ = cmd.RegisterFlagCompletionFunc("captures", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, c := range runner.AllCaptures {
			names = append(names, string(c))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (f *storeFlags) mode() (runner.Captures, error) {
	c, err := runner.ParseCaptures(f.captures)
	if err != nil {
		return "", usageError{fmt.Errorf("--captures %w", err)}
	}
	return c, nil
}

func addOut(cmd *cobra.Command, out *string) {
	addOutput(cmd, out, defaultOut, "directory for run directories")
}

func (a *app) runsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "runs [DIRECTORY]", Short: "List run directories, newest first",
		Long: `Runs lists the run directories in a directory ("runs" by default): name, scenario, date,
arms, the worst verdict of any arm, size on disk, seed, and if there are any, machines and the values
of swept variables and of keys that arms set. It compares the files of each run with
the sums in its manifest, and says "changed" where one differs (testbed report names it). The link
"latest" in the directory points to the newest run, and can be given to every verb that reads a run.`,
		Example: `  testbed runs
  testbed runs --json | jq -r '.[0].name'
  testbed report runs/latest`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("runs: %d arguments, expected at most one directory: %s", len(args), cmd.UseLine())}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			dir := defaultOut
			if len(args) > 0 {
				dir = args[0]
			}
			list, err := rundir.List(dir)
			if err != nil {
				return err
			}
			return a.print(list, func(w io.Writer) error { return drawRuns(w, dir, list, a.listStyle()) })
		},
		ValidArgsFunction: completeDirs,
	}
}

func drawRuns(w io.Writer, dir string, list []rundir.Entry, style tables.Style) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(w, "no runs in %s\n", dir)
		return err
	}
	name := tables.Column{Left: true, Fold: leastName}
	t := tables.Table{Head: []string{"run", "scenario", "started", "arms", "verdict", "size", "seed", "machine", "varied"},
		Columns: []tables.Column{tables.Names(), name, {Left: true}, name, {Left: true}, {}, {}, {Left: true, Drop: 1}, tables.Prose()}}
	for _, e := range list {
		started := none
		if !e.Started.IsZero() {
			started = e.Started.Local().Format("2006-01-02 15:04")
		}
		t.Rows = append(t.Rows, []string{e.Name, e.Scenario, started, strings.Join(e.Arms, ", "), runState(e), units.Compact(float64(e.Size), "B"),
			orNone(words.First(e.Seeds, mostListed)), orNone(words.First(e.Machines, mostListed)), orNone(varied(e.Varied))})
	}
	for i := len(t.Columns) - 1; i >= 0; i-- { // without machines and varied keys where there are none
		if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != none }) {
			t.Head, t.Columns = slices.Delete(t.Head, i, i+1), slices.Delete(t.Columns, i, i+1)
			for k, row := range t.Rows {
				t.Rows[k] = slices.Delete(row, i, i+1)
			}
		}
	}
	_, err := t.Draw(w, style)
	return err
}

// none is a cell without a value.
const none = "–"

// mostListed is the largest number of values that a cell of a table names.
const mostListed = 6

// varied names variables and keys with their values.
func varied(all []rundir.Varied) string {
	var parts []string
	for _, v := range all {
		parts = append(parts, v.Name+": "+words.First(v.Values, mostListed))
	}
	return strings.Join(parts, "; ")
}

func orNone(cell string) string { return cmp.Or(cell, none) }

// runState is the verdict of a run, or why it has none.
func runState(e rundir.Entry) string {
	state := ""
	switch {
	case e.Error != "":
		return "unreadable"
	case e.Verdict != nil:
		state = e.Verdict.String()
	case e.Backend == rundir.Fluid:
		state = "fluid model"
	}
	parts := []string{state}
	if e.Points > 0 {
		parts = append(parts, words.Plural(e.Points, "point", "points"))
	}
	if e.State != rundir.Complete {
		parts = append(parts, e.State)
	}
	if len(e.Changes) > 0 {
		parts = append(parts, "changed")
	}
	return cmp.Or(strings.TrimPrefix(strings.Join(parts, ", "), ", "), none)
}
