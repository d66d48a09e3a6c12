package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"testbed/results/export"
	"testbed/results/safefile"
	tables "testbed/results/table"
)

// helpWidth is the columns of lines that help texts are wrapped to.
const helpWidth = 90

func (a *app) exportCmd() *cobra.Command {
	var formats struct{ parquet, csv, perfetto bool }
	var o export.Options
	var out string
	var names, tableNames, completions []string
	for _, t := range export.Tables() {
		tableNames = append(tableNames, t.Name)
		completions = append(completions, t.Name+"\t"+t.Doc)
	}
	var list bool
	cmd := &cobra.Command{
		Use: "export RUN...", Short: "Write the data of runs as Parquet, CSV or JSON lines",
		Long: fmt.Sprintf(`Export writes %d tables of one or more runs as Parquet (--parquet), CSV (--csv) or JSON
lines (--json): %s.
Each row names its run. Export reads the CSV files and summary.json of runs and
simulations; it requires neither captures nor root.

With -o DIR each table is a file in the directory, which is created if needed. With one
--table, the table goes to the file -o FILE, or to standard output. A file that holds the
same table is replaced, any other only with --force, and a file of a run directory never.`,
			len(tableNames), strings.Join(tables.Wrap(strings.Join(tableNames, ", "), helpWidth), "\n")),
		Example: `  testbed export runs/quickstart-20260102-150405-ab12 --parquet -o data
  testbed export runs/* --parquet -o all
  testbed export runs/quickstart-20260102-150405-ab12 --csv --table coflows | head
  testbed export runs/quickstart-20260102-150405-ab12 --json --table flows -o flows.jsonl
  testbed export runs/quickstart-20260102-150405-ab12 --perfetto -o trace.json
  testbed export --list`,
		Args: runsOrList(&list),
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return a.listTables()
			}
			var format export.Format
			formatsGiven := 0
			for _, f := range []struct {
				set bool
				is  export.Format
			}{{formats.parquet, export.Parquet}, {formats.csv, export.CSV}, {a.json, export.JSONLines}, {formats.perfetto, export.Perfetto}} {
				if f.set {
					format = f.is
					formatsGiven++
				}
			}
			if formatsGiven != 1 {
				return usageError{errors.New("export: expected one of --parquet, --csv, --json and --perfetto")}
			}
			chosen := export.Tables()
			if len(names) > 0 {
				chosen = nil
			}
			for _, name := range names {
				t, err := export.Find(name)
				if err != nil {
					return usageError{fmt.Errorf("export --table: %w", err)}
				}
				if !slices.ContainsFunc(chosen, func(x export.Table) bool { return x.Name == name }) {
					chosen = append(chosen, t)
				}
			}
			if format == export.Perfetto {
				if len(names) > 0 {
					return usageError{errors.New("export --perfetto writes one trace: omit --table")}
				}
				chosen = []export.Table{export.Trace}
			}
			return a.export(args, chosen, format, o, out)
		},
		ValidArgsFunction: completeDirs,
	}
	f := cmd.Flags()
	addList(cmd, &list, "tables and their columns")
	f.BoolVar(&formats.parquet, "parquet", false, "write Parquet")
	f.BoolVar(&formats.perfetto, "perfetto", false, "write a trace of jobs, coflows, flows, decisions, queues and windows for ui.perfetto.dev")
	addCSV(cmd, &formats.csv, "one file per table")
	addOutput(cmd, &out, "", "directory; with one --table a file, default: standard output")
	f.StringSliceVar(&names, "table", nil, "write only these `tables` (default: all)")
	f.Int64Var(&o.RowGroup, "row-group", export.DefaultRowGroup, "`rows` per row group of Parquet, which a reader holds in memory")
	f.StringVar(&o.Compression, "compression", "zstd", "compression of Parquet (zstd, snappy or none)")
	addForce(cmd, &o.Force, "replace a file that is not the same table")
	complete := completer(cmd)
	complete("table", cobra.FixedCompletions(completions, cobra.ShellCompDirectiveNoFileComp))
	complete("compression", cobra.FixedCompletions([]string{"zstd", "snappy", "none"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) export(dirs []string, chosen []export.Table, format export.Format, o export.Options, out string) error {
	if o.RowGroup < 1 {
		return usageError{fmt.Errorf("export --row-group %d: must be 1 or more", o.RowGroup)}
	}
	if out == "" && len(chosen) > 1 {
		return usageError{fmt.Errorf("export: %d tables do not fit in one file: give -o DIR, or --table NAME", len(chosen))}
	}
	if f, ok := a.stdout.w.(*os.File); ok && out == "" && format == export.Parquet && term.IsTerminal(int(f.Fd())) {
		return usageError{errors.New("export: Parquet is binary, standard output is a terminal: give -o FILE")}
	}
	runs, err := a.openRuns(dirs)
	if err != nil {
		return err
	}
	if out == "" {
		var to io.Writer = a.stdout
		if format == export.Parquet {
			to = exact{a.stdout}
		}
		return export.Write(to, chosen[0], runs, format, o)
	}
	path := func(t export.Table) string { return filepath.Join(out, t.Name+"."+string(format)) }
	info, err := os.Stat(out)
	isDir := err == nil && info.IsDir()
	switch {
	case len(chosen) == 1 && !isDir && !strings.HasSuffix(out, string(filepath.Separator)):
		path = func(export.Table) string { return out }
	case !isDir:
		if err := safefile.MkdirAll(out); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	if err := export.Files(path, chosen, runs, format, o); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for _, t := range chosen {
		if _, err := fmt.Fprintln(a.stdout, path(t)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) listTables() error {
	type column struct {
		Name     string `json:"name"`
		Type     string `json:"type"`
		Unit     string `json:"unit,omitempty"`
		Optional bool   `json:"optional"`
		Doc      string `json:"doc"`
	}
	type table struct {
		Name    string   `json:"name"`
		Doc     string   `json:"doc"`
		Columns []column `json:"columns"`
	}
	var out []table
	for _, t := range export.Tables() {
		x := table{Name: t.Name, Doc: t.Doc}
		for _, c := range t.Columns {
			x.Columns = append(x.Columns, column{c.Name, string(c.Type), c.Unit, c.Optional, c.Doc})
		}
		out = append(out, x)
	}
	return a.print(out, func(w io.Writer) error {
		for _, t := range out {
			if _, err := fmt.Fprintf(w, "%s: %s\n", t.Name, t.Doc); err != nil {
				return err
			}
			for _, c := range t.Columns {
				unit := c.Unit
				if unit != "" {
					unit = " (" + unit + ")"
				}
				if _, err := fmt.Fprintf(w, "  %-22s %s%s\n", c.Name, c.Doc, unit); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
