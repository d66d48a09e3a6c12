package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"testbed/results/export"
)

func (a *app) exportCmd() *cobra.Command {
	var formats struct{ parquet, csv bool }
	var o export.Options
	var out string
	var names []string
	var list bool
	cmd := &cobra.Command{
		Use: "export RUN...", Short: "Write the data of runs as Parquet, CSV or JSON lines",
		Long: `Export writes the tables runs, arms, flows, coflows, blocks, breakdown, progress and links of
one run or several, each run's rows under its ID, as Parquet (--parquet), CSV (--csv)
or JSON lines (--json). It reads the CSV files and summary.json of runs on packets and
of simulations, and needs neither captures nor root.

With -o DIR each table is a file of the directory, which is made. With one --table the
table goes to the file -o FILE, or to standard output. Files that are such a table
already are replaced; others only with --force; files of a run directory never.`,
		Example: `  testbed export runs/quickstart-20260102-150405-ab12 --parquet -o data
  testbed export runs/* --parquet -o all
  testbed export runs/quickstart-20260102-150405-ab12 --csv --table coflows | head
  testbed export runs/quickstart-20260102-150405-ab12 --json --table flows -o flows.jsonl
  testbed export --list`,
		Args: runsOrList(&list),
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return a.listTables()
			}
			var format export.Format
			chosen := 0
			for _, f := range []struct {
				set bool
				is  export.Format
			}{{formats.parquet, export.Parquet}, {formats.csv, export.CSV}, {a.json, export.JSONLines}} {
				if f.set {
					format = f.is
					chosen++
				}
			}
			if chosen != 1 {
				return usageError{errors.New("export: want one of --parquet, --csv and --json")}
			}
			tables := export.Tables()
			if len(names) > 0 {
				tables = nil
			}
			for _, name := range names {
				t, err := export.Find(name)
				if err != nil {
					return usageError{fmt.Errorf("export --table: %w", err)}
				}
				if !slices.ContainsFunc(tables, func(x export.Table) bool { return x.Name == name }) {
					tables = append(tables, t)
				}
			}
			return a.export(args, tables, format, o, out)
		},
		ValidArgsFunction: completeDirs,
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list the tables and their columns")
	f.BoolVar(&formats.parquet, "parquet", false, "write Parquet")
	f.BoolVar(&formats.csv, "csv", false, "write CSV")
	f.StringVarP(&out, "output", "o", "", "directory to write, or with one --table the file")
	f.StringSliceVar(&names, "table", nil, "which tables to write (all)")
	f.Int64Var(&o.RowGroup, "row-group", export.DefaultRowGroup, "rows of a row group of Parquet, which is what a reader holds at once")
	f.StringVar(&o.Compression, "compression", "zstd", "of Parquet: zstd, snappy or none")
	f.BoolVar(&o.Force, "force", false, "replace files that are no such tables, too")
	complete := completer(cmd)
	var all []string
	for _, t := range export.Tables() {
		all = append(all, t.Name+"\t"+t.Doc)
	}
	complete("table", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	complete("compression", cobra.FixedCompletions([]string{"zstd", "snappy", "none"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) export(dirs []string, tables []export.Table, format export.Format, o export.Options, out string) error {
	if o.RowGroup < 1 {
		return usageError{fmt.Errorf("export --row-group %d: want 1 or more", o.RowGroup)}
	}
	if out == "" && len(tables) > 1 {
		return usageError{fmt.Errorf("export: %d tables have no one file: want -o DIR, or --table NAME", len(tables))}
	}
	if f, ok := a.stdout.(*os.File); ok && out == "" && format == export.Parquet && isatty.IsTerminal(f.Fd()) {
		return usageError{errors.New("export: Parquet is not for a terminal: want -o FILE")}
	}
	runs, err := a.openRuns(dirs)
	if err != nil {
		return err
	}
	if out == "" {
		return export.Write(a.stdout, tables[0], runs, format, o)
	}
	path := func(t export.Table) string { return filepath.Join(out, t.Name+"."+string(format)) }
	info, err := os.Stat(out)
	isDir := err == nil && info.IsDir()
	switch {
	case len(tables) == 1 && !isDir && !strings.HasSuffix(out, string(filepath.Separator)):
		path = func(export.Table) string { return out }
	case !isDir:
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	if err := export.Files(path, tables, runs, format, o); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for _, t := range tables {
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
