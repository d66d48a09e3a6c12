package export_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"testbed/emu/longtest"
	"testbed/results/export"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// two returns a run on packets with all tables and a void arm, and a simulation.
func two(t *testing.T) []*rundir.Run {
	t.Helper()
	a := rundirtest.Default()
	a.Jobs = true
	a.Arms = append(a.Arms, rundirtest.Arm{Name: `odd, "name"`, Level: verdict.Void, Speed: 1})
	b := rundirtest.Default()
	b.Run, b.FluidModel, b.Timing, b.Tasks = "sim", true, false, true
	var runs []*rundir.Run
	for _, s := range []rundirtest.Spec{a, b} {
		r, err := rundir.Open(rundirtest.Write(t, s))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	// Values as in a real run.
	lone, skew := 1234567*time.Nanosecond, 1.25
	runs[0].Coflows[0].Lone, runs[0].Coflows[0].Skew, runs[0].Coflows[0].Bottleneck = &lone, &skew, "leaf0>spine0"
	runs[0].Flows[0].Arrival = -time.Nanosecond
	return runs
}

func write(t *testing.T, table export.Table, runs []*rundir.Run, f export.Format, o export.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := export.Write(&b, table, runs, f, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func cells(t *testing.T, b []byte) [][]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The export has the rows of the run's own CSV files, cell for cell.
func TestTablesAreThoseOfTheRuns(t *testing.T) {
	runs := two(t)[:1]
	fresh, err := rundir.Open(runs[0].Dir)
	if err != nil {
		t.Fatal(err)
	}
	for table, file := range map[string]string{"flows": summary.FlowsFile, "coflows": summary.CoflowsFile, "blocks": summary.BlocksFile, "requests": summary.RequestsFile, "jobs": summary.JobsFile, "balance": summary.BalanceFile, "breakdown": summary.BreakdownFile, "links": summary.LinksFile, "drops": summary.DropsFile, "progress": summary.ProgressFile} {
		tab, err := export.Find(table)
		if err != nil {
			t.Fatal(err)
		}
		got := cells(t, write(t, tab, []*rundir.Run{fresh}, export.CSV, export.Options{}))
		b, err := os.ReadFile(filepath.Join(runs[0].Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		want := cells(t, b)
		if len(got) != len(want) || len(want) < 2 {
			t.Fatalf("%s: %d rows, want %d", table, len(got), len(want))
		}
		for k, name := range want[0] {
			i := slices.Index(got[0], name)
			if i < 0 {
				t.Errorf("%s has no column %s", table, name)
				continue
			}
			for line := range want {
				g, w := got[line][i], want[line][k]
				if g != w {
					t.Fatalf("%s, line %d, %s: %q, want %q", table, line+1, name, g, w)
				}
			}
		}
	}
}

// Parquet files have the values of CSV, with nulls for empty cells, in several row groups
// and with each compression.
func TestParquetIsTheSameAsCSV(t *testing.T) {
	longtest.Computes(t)
	runs := two(t)
	for _, o := range []export.Options{{}, {RowGroup: 10, Compression: "snappy"}, {RowGroup: 1000, Compression: "none"}} {
		for _, table := range export.Tables() {
			want := cells(t, write(t, table, runs, export.CSV, o))
			b := write(t, table, runs, export.Parquet, o)
			if !bytes.Equal(b, write(t, table, runs, export.Parquet, o)) {
				t.Errorf("%s differs from one time to the next", table.Name)
			}
			f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatal(err)
			}
			if n := int(f.NumRows()); n != len(want)-1 {
				t.Errorf("%s: %d rows, want %d", table.Name, n, len(want)-1)
			}
			if o.RowGroup == 10 && len(f.RowGroups()) != (len(want)-1+9)/10 {
				t.Errorf("%s: %d row groups of %d rows", table.Name, len(f.RowGroups()), len(want)-1)
			}
			checkSchema(t, table, f)
			line := 1
			for _, row := range parquetRows(t, f) {
				for i, v := range row {
					if got := valueText(table.Columns[i], v); got != want[line][i] {
						t.Fatalf("%s, row %d, %s: %q in Parquet, %q in CSV", table.Name, line, table.Columns[i].Name, got, want[line][i])
					}
				}
				line++
			}
			if line != len(want) {
				t.Errorf("%s: %d rows read, want %d", table.Name, line-1, len(want)-1)
			}
		}
	}
}

func parquetRows(t *testing.T, f *parquet.File) [][]parquet.Value {
	t.Helper()
	var out [][]parquet.Value
	for _, g := range f.RowGroups() {
		rows := g.Rows()
		buf := make([]parquet.Row, 7)
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				out = append(out, r.Clone())
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// valueText returns a value as in CSV.
func valueText(c schema.Column, v parquet.Value) string {
	if v.IsNull() {
		return ""
	}
	switch c.Type {
	case schema.String:
		return string(v.ByteArray())
	case schema.Int:
		return strconv.FormatInt(v.Int64(), 10)
	case schema.Double:
		return strconv.FormatFloat(v.Double(), 'f', -1, 64)
	case schema.Micros:
		return strconv.FormatFloat(v.Double(), 'f', 3, 64)
	case schema.Bool:
		return strconv.FormatBool(v.Boolean())
	case schema.Time:
		return time.Unix(0, v.Int64()).UTC().Format(time.RFC3339Nano)
	}
	return "?"
}

func checkSchema(t *testing.T, table export.Table, f *parquet.File) {
	t.Helper()
	fields := f.Schema().Fields()
	if len(fields) != len(table.Columns) {
		t.Fatalf("%s: %d columns, want %d", table.Name, len(fields), len(table.Columns))
	}
	for i, c := range table.Columns {
		if fields[i].Name() != c.Name || fields[i].Optional() != c.Optional {
			t.Errorf("%s: column %d is %s, optional %v, want %s, %v", table.Name, i, fields[i].Name(), fields[i].Optional(), c.Name, c.Optional)
		}
		want := map[schema.Type]string{schema.String: "STRING", schema.Int: "INT(64,true)", schema.Double: "DOUBLE", schema.Micros: "DOUBLE", schema.Bool: "BOOLEAN", schema.Time: "TIMESTAMP(isAdjustedToUTC=true,unit=NANOS)"}[c.Type]
		if got := fields[i].Type().String(); got != want {
			t.Errorf("%s.%s is of type %s, want %s", table.Name, c.Name, got, want)
		}
		if unit, _ := f.Lookup("unit:" + c.Name); unit != c.Unit {
			t.Errorf("%s.%s: unit %q, want %q", table.Name, c.Name, unit, c.Unit)
		}
		if doc, _ := f.Lookup("description:" + c.Name); doc != c.Doc || doc == "" {
			t.Errorf("%s.%s: description %q, want %q", table.Name, c.Name, doc, c.Doc)
		}
	}
}

// Each line of JSON is an object of all columns with the values of CSV.
func TestJSONIsTheSameAsCSV(t *testing.T) {
	runs := two(t)
	for _, table := range export.Tables() {
		want := cells(t, write(t, table, runs, export.CSV, export.Options{}))
		lines := slices.Collect(strings.Lines(string(write(t, table, runs, export.JSONLines, export.Options{}))))
		if len(lines) != len(want)-1 {
			t.Fatalf("%s: %d lines, want %d", table.Name, len(lines), len(want)-1)
		}
		for k, line := range lines {
			d := json.NewDecoder(strings.NewReader(line))
			d.UseNumber()
			var row map[string]any
			if err := d.Decode(&row); err != nil {
				t.Fatalf("%s: %v in %s", table.Name, err, line)
			}
			for i, c := range table.Columns {
				v, ok := row[c.Name]
				got := fmt.Sprint(v)
				if v == nil {
					got = ""
				}
				if x, isNumber := v.(json.Number); isNumber && c.Type == schema.Double {
					f, _ := x.Float64()
					got = strconv.FormatFloat(f, 'f', -1, 64)
				}
				if !ok || got != want[k+1][i] || v == nil && !c.Optional {
					t.Fatalf("%s, line %d, %s: %q, want %q", table.Name, k+1, c.Name, got, want[k+1][i])
				}
			}
			if len(row) != len(table.Columns) {
				t.Errorf("%s: %d values, want %d", table.Name, len(row), len(table.Columns))
			}
		}
	}
}

// Void arms have a row in arms, without figures.
func TestVoidArmsHaveNoFigures(t *testing.T) {
	table, _ := export.Find("arms")
	rows := cells(t, write(t, table, two(t), export.CSV, export.Options{}))
	verdictAt, n := slices.Index(rows[0], "verdict"), slices.Index(rows[0], "cct_n")
	seen := map[string]string{}
	for _, row := range rows[1:] {
		seen[row[verdictAt]] = row[n]
		for i := n; row[verdictAt] == "void" && i < len(row); i++ {
			if row[i] != "" {
				t.Errorf("a void arm has %s = %s", rows[0][i], row[i])
			}
		}
	}
	if seen["void"] != "" || seen["pass"] != "22" || seen["degraded"] != "22" || seen["fluid model"] != "43" {
		t.Errorf("numbers of coflows by verdict: %v", seen)
	}
}

// All files are written, or none; files that are not tables are not replaced.
func TestFiles(t *testing.T) {
	runs := two(t)
	tables := export.Tables()
	for _, format := range []export.Format{export.Parquet, export.CSV, export.JSONLines} {
		dir := t.TempDir()
		path := func(t export.Table) string { return filepath.Join(dir, t.Name+"."+string(format)) }
		if err := export.Files(path, tables, runs, format, export.Options{}); err != nil {
			t.Fatal(err)
		}
		before := readAll(t, dir)
		if len(before) != len(tables) {
			t.Errorf("%d files, want %d", len(before), len(tables))
		}
		// Written again, they are equal.
		if err := export.Files(path, tables, runs, format, export.Options{}); err != nil {
			t.Fatal(err)
		}
		// A file with other content prevents all from being written.
		last := path(tables[len(tables)-1])
		if err := os.WriteFile(last, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		before = readAll(t, dir)
		err := export.Files(path, tables, runs[1:], format, export.Options{})
		if err == nil || !strings.Contains(err.Error(), last+": the file exists and is not table "+tables[len(tables)-1].Name+" of this version's export") || !strings.Contains(err.Error(), "--force") {
			t.Errorf("error %v", err)
		}
		for name, text := range readAll(t, dir) {
			if before[name] != text {
				t.Errorf("%s was changed", name)
			}
		}
		if err := export.Files(path, tables, runs, format, export.Options{Force: true}); err != nil || readAll(t, dir)[filepath.Base(last)] == "mine\n" {
			t.Errorf("with force: %v", err)
		}
	}
}

func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// A run directory is never written to, and a run is not exported twice.
func TestWhatIsRefused(t *testing.T) {
	runs := two(t)
	path := func(t export.Table) string { return filepath.Join(runs[0].Dir, t.Name+".csv") }
	before := readAll(t, runs[0].Dir)
	err := export.Files(path, export.Tables(), runs, export.CSV, export.Options{Force: true})
	if err == nil || !strings.Contains(err.Error(), "is a run directory") {
		t.Errorf("error %v", err)
	}
	if after := readAll(t, runs[0].Dir); len(after) != len(before) || after[summary.FlowsFile] != before[summary.FlowsFile] {
		t.Error("the run directory was changed")
	}
	table := export.Tables()[0]
	for want, f := range map[string]func() error{
		"are both run made": func() error {
			return export.Write(io.Discard, table, []*rundir.Run{runs[0], runs[0]}, export.CSV, export.Options{})
		},
		"row group of -1": func() error {
			return export.Write(io.Discard, table, runs, export.Parquet, export.Options{RowGroup: -1})
		},
		`compression "gzip"`: func() error {
			return export.Write(io.Discard, table, runs, export.Parquet, export.Options{Compression: "gzip"})
		},
		`format "xml"`:        func() error { return export.Write(io.Discard, table, runs, "xml", export.Options{}) },
		`no table "flow": mu`: func() error { _, err := export.Find("flow"); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// An arm with fewer clusters than metrics.LeastPairs has a paired speed-up and no interval.
func TestFewPairsHaveNoInterval(t *testing.T) {
	arms, err := export.Find("arms")
	if err != nil {
		t.Fatal(err)
	}
	for _, ci := range []metrics.Interval{{}, {Low: 1.1, High: 2}} {
		runs := two(t)[:1]
		runs[0].Summary.Arms[1].CCT.Paired = &summary.PairedSpeedup{GeoMean: 1.5, GeoMeanCI: ci}
		rows := cells(t, write(t, arms, runs, export.CSV, export.Options{}))
		at := func(column string) string { return rows[2][slices.Index(rows[0], column)] }
		low, high := "", ""
		if ci.Known() {
			low, high = "1.1", "2"
		}
		if at("cct_paired") != "1.5" || at("cct_paired_low") != low || at("cct_paired_high") != high {
			t.Errorf("%v: %q [%q, %q], want [%q, %q]", ci, at("cct_paired"), at("cct_paired_low"), at("cct_paired_high"), low, high)
		}
	}
}

// A row of any table has its trial, with what varied, by run, arm and repeat; a void trial has a row.
func TestTrialsNameWhatVaried(t *testing.T) {
	runs := two(t)
	runs[0].Manifest.Vars = []rundir.Value{{Name: "over", Value: "5:1"}, {Name: "load", Value: "0.2"}}
	runs[0].Manifest.Set = map[string][]rundir.Value{"sebf+hdfs": {{Name: "fabric.queue", Value: `5"ms`}}}
	table := func(name string) (rows []map[string]string) {
		tab, err := export.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		all := cells(t, write(t, tab, runs, export.CSV, export.Options{}))
		for _, line := range all[1:] {
			row := map[string]string{}
			for i, name := range all[0] {
				row[name] = line[i]
			}
			rows = append(rows, row)
		}
		return rows
	}
	trial := func(row map[string]string) string { return row["run"] + " " + row["arm"] + " " + row["repeat"] }
	trials := map[string]map[string]string{}
	for _, row := range table("trials") {
		trials[trial(row)] = row
	}
	for at, want := range map[string]string{
		"made sebf+hdfs 1":   `pass 8 {"over": "5:1", "load": "0.2"} {"fabric.queue": "5\"ms"} 0123456789ab 2 2025-12-29T09:20:00Z`,
		`made odd, "name" 1`: `void 8 {"over": "5:1", "load": "0.2"}  0123456789ab 2 2025-12-29T09:20:00Z`,
		"sim sebf+sinbad 0":  "fluid model 7     ",
		"sim no such arm 0":  "      ",
	} {
		r := trials[at]
		got := strings.Join([]string{r["verdict"], r["seed"], r["vars"], r["set"], r["machine"], r["cpus"], r["began"]}, " ")
		if got != want {
			t.Errorf("trial %s: %s, want %s", at, got, want)
		}
	}
	for _, name := range []string{"flows", "coflows", "blocks", "requests", "jobs", "attempts", "progress", "links"} {
		rows := table(name)
		for _, row := range rows {
			if trials[trial(row)] == nil {
				t.Errorf("%s: no trial %s", name, trial(row))
			}
		}
		if len(rows) == 0 {
			t.Errorf("%s has no rows: the test shows nothing", name)
		}
	}
	if runs := table("runs"); runs[0]["vars"] != `{"over": "5:1", "load": "0.2"}` || runs[1]["vars"] != "" {
		t.Errorf("runs: %q", runs)
	}
	if err := os.Remove(filepath.Join(runs[0].Dir, "arm1", "0", rundir.TrialFile)); err != nil {
		t.Fatal(err)
	}
	tab, _ := export.Find("trials")
	for _, f := range []export.Format{export.CSV, export.JSONLines, export.Parquet} {
		if err := export.Write(io.Discard, tab, runs, f, export.Options{}); err == nil || !strings.Contains(err.Error(), "trial.json: it is missing") {
			t.Errorf("%s without a trial: error %v", f, err)
		}
	}
}

// The table of racks has a row for each rack of an arm with figures by rack; those of other arms are null.
func TestRacks(t *testing.T) {
	runs := two(t)[:1]
	arms := runs[0].Summary.Arms
	arms[1].Losses = &summary.Losses{ByRack: []float64{3028, 0, 1514}}
	arms[2].Tasks = &summary.Tasks{Shuffle: summary.Shuffle{Saturated: []metrics.Average{{Sum: 1, N: 8}}}}
	table, err := export.Find("racks")
	if err != nil {
		t.Fatal(err)
	}
	rows := cells(t, write(t, table, runs, export.CSV, export.Options{}))
	if want := []string{"run", "arm", "rack"}; !slices.Equal(rows[0][:3], want) {
		t.Errorf("columns %v, want %v first", rows[0], want)
	}
	resent, saturated := slices.Index(rows[0], "resent_bytes"), slices.Index(rows[0], "saturated")
	var got []string
	for _, row := range rows[1:] {
		got = append(got, strings.Join([]string{row[1], row[2], row[resent], row[saturated]}, " "))
	}
	of := func(arm int, rest string) string { return arms[arm].Name + " " + rest }
	if want := []string{of(1, "0 3028 "), of(1, "1 0 "), of(1, "2 1514 "), of(2, "0  0.125")}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}
