// Package export writes the data of runs as tables for other programs: Parquet, CSV or
// JSON lines, with several runs in one table and a column that names the run. It also
// writes them over time, as a trace for Perfetto.
//
// A run's own CSV files stay the source; the tables join them. The package computes no
// figures and reads no captures.
package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/topo/words"
)

// Format is a file format of tables.
type Format string

// Formats. A file's name ends in its format.
const (
	Parquet   Format = "parquet"
	CSV       Format = "csv"
	JSONLines Format = "jsonl"
	// Perfetto is a trace of runs for ui.perfetto.dev. Trace is its only table.
	Perfetto Format = "perfetto.json"
)

// DefaultRowGroup is the number of rows in a row group of a Parquet file, which a reader
// holds in memory at once.
const DefaultRowGroup = 100_000

// Options control how tables are written. The zero value of each field is its default.
type Options struct {
	RowGroup int64 // rows in a Parquet row group
	// Compression of Parquet: "zstd" (the default), "snappy" or "none".
	Compression string
	// Force replaces files that are not tables of this package.
	Force bool
}

func (o *Options) check() error {
	if o.RowGroup == 0 {
		o.RowGroup = DefaultRowGroup
	}
	if o.RowGroup < 1 {
		return fmt.Errorf("row group of %d rows: must be 1 or more", o.RowGroup)
	}
	_, err := o.codec()
	return err
}

func (o *Options) codec() (compress.Codec, error) {
	switch o.Compression {
	case "", "zstd":
		return &parquet.Zstd, nil
	case "snappy":
		return &parquet.Snappy, nil
	case "none":
		return &parquet.Uncompressed, nil
	}
	return nil, fmt.Errorf("compression %q: must be zstd, snappy or none", o.Compression)
}

// Write writes a table of runs. Run IDs must be unique.
func Write(w io.Writer, t Table, runs []*rundir.Run, format Format, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := distinct(runs); err != nil {
		return err
	}
	var err error
	if (format == Perfetto) != (t.Name == Trace.Name) {
		return fmt.Errorf("table %s cannot be written as %s", t.Name, format)
	}
	switch format {
	case Perfetto:
		err = perfetto(w, runs)
	case Parquet:
		err = t.parquet(w, runs, o)
	case CSV:
		err = t.csv(w, runs)
	case JSONLines:
		err = t.json(w, runs)
	default:
		return fmt.Errorf("format %q: must be %s, %s, %s or %s", format, Parquet, CSV, JSONLines, Perfetto)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	return nil
}

func distinct(runs []*rundir.Run) error {
	seen := map[string]string{}
	for _, r := range runs {
		if other, ok := seen[r.Summary.RunID]; ok {
			return fmt.Errorf("%s and %s are both run %s: name it once", other, r.Dir, r.Summary.RunID)
		}
		seen[r.Summary.RunID] = r.Dir
	}
	return nil
}

func (t Table) csv(w io.Writer, runs []*rundir.Run) error {
	c := words.NewCSV(w)
	cells := t.header()
	if err := c.Write(cells); err != nil {
		return err
	}
	if err := t.rows(runs, func(row reflect.Value) error {
		for i := range t.Columns {
			cells[i] = schema.Cell(t.Columns[i].Value(row))
		}
		return c.Write(cells)
	}); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

func (t Table) json(w io.Writer, runs []*rundir.Run) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	return t.rows(runs, func(row reflect.Value) error {
		b.Reset()
		for i := range t.Columns {
			sep := byte(',')
			if i == 0 {
				sep = '{'
			}
			b.WriteByte(sep)
			for k, x := range []any{t.Columns[i].Name, jsonValue(t.Columns[i].Value(row))} {
				if k > 0 {
					b.WriteByte(':')
				}
				if err := e.Encode(x); err != nil {
					return err
				}
				b.Truncate(b.Len() - 1) // the newline
			}
		}
		b.WriteString("}\n")
		_, err := w.Write(b.Bytes())
		return err
	})
}

// jsonValue returns a value as it is written to JSON.
func jsonValue(v any) any {
	switch x := v.(type) {
	case time.Duration:
		return json.Number(schema.FormatMicros(x))
	case time.Time:
		return x.Format(time.RFC3339Nano)
	}
	return v
}

// Keys of a Parquet file's metadata. Those of a column end in a colon and its name.
const (
	tableKey  = "testbed.table"
	unitKey   = "unit"
	columnKey = "description"
)

// parquetSchema returns the schema of the columns, from the tags of a struct made of them.
func (t Table) parquetSchema() *parquet.Schema {
	kinds := map[schema.Type]reflect.Type{schema.String: reflect.TypeFor[string](), schema.Int: reflect.TypeFor[int64](), schema.Double: reflect.TypeFor[float64](),
		schema.Micros: reflect.TypeFor[float64](), schema.Bool: reflect.TypeFor[bool](), schema.Time: reflect.TypeFor[time.Time]()}
	options := map[schema.Type]string{schema.String: ",dict", schema.Time: ",timestamp(nanosecond)"}
	var fields []reflect.StructField
	for i, c := range t.Columns {
		tag := c.Name + options[c.Type]
		if c.Optional {
			tag += ",optional"
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("C%d", i), Type: kinds[c.Type], Tag: reflect.StructTag(fmt.Sprintf("parquet:%q", tag))})
	}
	return parquet.NewSchema(t.Name, parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface()))
}

func (t Table) parquet(w io.Writer, runs []*rundir.Run, o Options) error {
	codec, err := o.codec()
	if err != nil {
		return err
	}
	options := []parquet.WriterOption{t.parquetSchema(), parquet.Compression(codec), parquet.MaxRowsPerRowGroup(o.RowGroup),
		parquet.CreatedBy("testbed", "", ""), parquet.KeyValueMetadata(tableKey, t.Name)}
	for _, c := range t.Columns {
		options = append(options, parquet.KeyValueMetadata(columnKey+":"+c.Name, c.Doc))
		if c.Unit != "" {
			options = append(options, parquet.KeyValueMetadata(unitKey+":"+c.Name, c.Unit))
		}
	}
	out := parquet.NewGenericWriter[any](w, options...)
	cells := []parquet.Row{make(parquet.Row, len(t.Columns))}
	if err := t.rows(runs, func(row reflect.Value) error {
		for i := range t.Columns {
			v, level := t.Columns[i].Value(row), 0
			if v != nil && t.Columns[i].Optional {
				level = 1
			}
			cells[0][i] = parquetValue(v).Level(0, level, i)
		}
		_, err := out.WriteRows(cells)
		return err
	}); err != nil {
		return err
	}
	return out.Close()
}

// parquetValue returns a value as it is written to Parquet. Times are microseconds: the first
// three decimals of the double are the nanoseconds of durations up to 50 days.
func parquetValue(v any) parquet.Value {
	switch x := v.(type) {
	case time.Duration:
		return parquet.DoubleValue(float64(x) / 1000)
	case time.Time:
		return parquet.Int64Value(x.UnixNano())
	}
	return parquet.ValueOf(v)
}

// Files writes tables of runs as files, all of them or none: path returns the place of
// each. It replaces an existing file that is already such a table, or with Force; it never
// replaces a file of a run directory.
func Files(path func(Table) string, tables []Table, runs []*rundir.Run, format Format, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	var errs []error
	for _, t := range tables {
		errs = append(errs, t.mayReplace(path(t), format, o.Force))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var staged []*safefile.Staged
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.Discard())
		}
	}()
	for _, t := range tables {
		s, err := safefile.Stage(path(t), func(w io.Writer) error { return Write(w, t, runs, format, o) })
		if err != nil {
			return err
		}
		staged = append(staged, s)
	}
	return safefile.Commit(staged...)
}

// mayReplace returns an error if a table must not be written to path.
func (t Table) mayReplace(path string, format Format, force bool) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, name := range []string{rundir.ManifestFile, summary.SummaryFile} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err == nil {
			return fmt.Errorf("write %s: %s is a run directory, whose files are the source of all tables (choose another directory)", path, filepath.Dir(path))
		}
	}
	f, err := safefile.Open(path)
	if errors.Is(err, fs.ErrNotExist) || force {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || t.is(f, info.Size(), format) {
		return nil // writing refuses paths that are not regular files
	}
	return fmt.Errorf("write %s: the file exists and is not table %s of this version's export (replace it with --force)", path, t.Name)
}

// is reports whether a file is this table.
func (t Table) is(f *os.File, size int64, format Format) bool {
	if format == Parquet {
		p, err := parquet.OpenFile(f, size)
		if err != nil {
			return false
		}
		name, ok := p.Lookup(tableKey)
		return ok && name == t.Name
	}
	line, err := bufio.NewReader(io.LimitReader(f, 1<<20)).ReadString('\n')
	if err != nil {
		return false
	}
	if format == Perfetto {
		return line == tracePreamble
	}
	if format == CSV {
		return line == strings.Join(t.header(), ",")+"\n"
	}
	d := json.NewDecoder(strings.NewReader(line))
	for i := range len(t.Columns)*2 + 1 { // the brace, then names and values
		token, err := d.Token()
		if err != nil {
			return false
		}
		if i%2 == 1 && token != t.Columns[i/2].Name {
			return false
		}
	}
	return !d.More()
}
