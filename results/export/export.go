// Package export writes what runs hold as tables for other programs: Parquet, CSV or
// JSON lines, several runs in the same tables, with a column that tells which.
//
// A run's own CSV files stay the source; the tables are a join of them. It computes
// no figure and reads no captures.
package export

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"testbed/results/archive"
	"testbed/results/files"
	"testbed/results/report"
)

// Format is how tables are written.
type Format string

// Formats. A file's name ends in its format.
const (
	Parquet   Format = "parquet"
	CSV       Format = "csv"
	JSONLines Format = "jsonl"
)

// DefaultRowGroup is how many rows of a Parquet file form a group, which is what a
// reader holds in memory at once.
const DefaultRowGroup = 100_000

// Options say how tables are written. The zero value of each is its default.
type Options struct {
	RowGroup int64 // rows of Parquet in a group
	// Compression of Parquet: "zstd", which is the default, "snappy" or "none".
	Compression string
	// Force replaces files that do not look like tables of this package's.
	Force bool
}

func (o *Options) check() error {
	if o.RowGroup == 0 {
		o.RowGroup = DefaultRowGroup
	}
	if o.RowGroup < 1 {
		return fmt.Errorf("row group of %d rows: want 1 or more", o.RowGroup)
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
	return nil, fmt.Errorf("compression %q: want zstd, snappy or none", o.Compression)
}

// Write writes a table of runs. No two runs may have one ID.
func Write(w io.Writer, t Table, runs []*archive.Run, format Format, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := distinct(runs); err != nil {
		return err
	}
	var err error
	switch format {
	case Parquet:
		err = t.parquet(w, runs, o)
	case CSV:
		err = t.csv(w, runs)
	case JSONLines:
		err = t.json(w, runs)
	default:
		return fmt.Errorf("format %q: want %s, %s or %s", format, Parquet, CSV, JSONLines)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	return nil
}

func distinct(runs []*archive.Run) error {
	seen := map[string]string{}
	for _, r := range runs {
		if other, ok := seen[r.Summary.RunID]; ok {
			return fmt.Errorf("%s and %s are both run %s: give it once", other, r.Dir, r.Summary.RunID)
		}
		seen[r.Summary.RunID] = r.Dir
	}
	return nil
}

// each calls row for the rows of all runs.
func (t Table) each(runs []*archive.Run, row func([]any) error) error {
	for _, r := range runs {
		if err := t.rows(r, row); err != nil {
			return err
		}
	}
	return nil
}

// cell is a value as text, exactly; "" for null.
func cell(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(x)
	case time.Duration:
		return report.Micros(x)
	case time.Time:
		return x.Format(time.RFC3339Nano)
	}
	panic(fmt.Sprintf("export: value of type %T", v)) // a table of this package is wrong
}

func (t Table) header() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

func (t Table) csv(w io.Writer, runs []*archive.Run) error {
	c := csv.NewWriter(w)
	if err := c.Write(t.header()); err != nil {
		return err
	}
	line := make([]string, len(t.Columns))
	if err := t.each(runs, func(row []any) error {
		for i, v := range row {
			line[i] = cell(v)
		}
		return c.Write(line)
	}); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

func (t Table) json(w io.Writer, runs []*archive.Run) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	return t.each(runs, func(row []any) error {
		b.Reset()
		for i, v := range row {
			sep := byte(',')
			if i == 0 {
				sep = '{'
			}
			b.WriteByte(sep)
			for k, x := range []any{t.Columns[i].Name, jsonValue(v)} {
				if k > 0 {
					b.WriteByte(':')
				}
				if err := e.Encode(x); err != nil {
					return err
				}
				b.Truncate(b.Len() - 1) // the line's end
			}
		}
		b.WriteString("}\n")
		_, err := w.Write(b.Bytes())
		return err
	})
}

// Keys of a Parquet file's metadata. Those of a column have its name behind a colon.
const (
	tableKey  = "testbed.table"
	unitKey   = "unit"
	columnKey = "description"
)

// structure is the Go type of a row, whose tags are the Parquet schema.
func (t Table) structure() reflect.Type {
	kinds := map[Type]reflect.Type{String: reflect.TypeFor[string](), Int: reflect.TypeFor[int64](), Double: reflect.TypeFor[float64](),
		Micros: reflect.TypeFor[float64](), Bool: reflect.TypeFor[bool](), Time: reflect.TypeFor[time.Time]()}
	var fields []reflect.StructField
	for i, c := range t.Columns {
		tag := c.Name
		if c.Type == String {
			tag += ",dict"
		}
		if c.Type == Time {
			tag += ",timestamp(nanosecond)"
		}
		kind := kinds[c.Type]
		if c.Optional {
			kind = reflect.PointerTo(kind)
			tag += ",optional"
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("C%d", i), Type: kind, Tag: reflect.StructTag(fmt.Sprintf("parquet:%q", tag))})
	}
	return reflect.StructOf(fields)
}

func (t Table) parquet(w io.Writer, runs []*archive.Run, o Options) error {
	codec, err := o.codec()
	if err != nil {
		return err
	}
	kind := t.structure()
	options := []parquet.WriterOption{
		parquet.NewSchema(t.Name, parquet.SchemaOf(reflect.New(kind).Interface())),
		parquet.Compression(codec), parquet.MaxRowsPerRowGroup(o.RowGroup), parquet.CreatedBy("testbed", "", ""), parquet.KeyValueMetadata(tableKey, t.Name),
	}
	for _, c := range t.Columns {
		options = append(options, parquet.KeyValueMetadata(columnKey+":"+c.Name, c.Doc))
		if c.Unit != "" {
			options = append(options, parquet.KeyValueMetadata(unitKey+":"+c.Name, c.Unit))
		}
	}
	out := parquet.NewWriter(w, options...)
	x := reflect.New(kind).Elem()
	if err := t.each(runs, func(row []any) error {
		x.SetZero()
		for i, v := range row {
			if v == nil {
				continue
			}
			if d, ok := v.(time.Duration); ok {
				v = microseconds(d)
			}
			field := x.Field(i)
			if t.Columns[i].Optional {
				field.Set(reflect.New(field.Type().Elem()))
				field = field.Elem()
			}
			field.Set(reflect.ValueOf(v))
		}
		return out.Write(x.Addr().Interface())
	}); err != nil {
		return err
	}
	return out.Close()
}

// microseconds is the float nearest to d: its first three decimals are d's
// nanoseconds for 50 days and more.
func microseconds(d time.Duration) float64 { return float64(d) / 1000 }

// Files writes tables of runs as files, all of them or none: path tells where each
// goes. A file that is there is replaced where it is such a table already, or with
// Force; a file of a run directory never is.
func Files(path func(Table) string, tables []Table, runs []*archive.Run, format Format, o Options) (err error) {
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
	var staged []*files.Staged
	defer func() {
		for _, s := range staged {
			err = errors.Join(err, s.Discard())
		}
	}()
	for _, t := range tables {
		s, err := files.Stage(path(t), func(w io.Writer) error { return Write(w, t, runs, format, o) })
		if err != nil {
			return err
		}
		staged = append(staged, s)
	}
	for _, s := range staged {
		if err := s.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// mayReplace tells whether a table may be written to path.
func (t Table) mayReplace(path string, format Format, force bool) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for _, name := range []string{archive.ManifestFile, report.SummaryFile} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err == nil {
			return fmt.Errorf("write %s: %s is a run directory, whose files are the source of all tables: choose another place", path, filepath.Dir(path))
		}
	}
	f, err := os.Open(path)
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
		return nil // what is no file is refused by whoever writes
	}
	return fmt.Errorf("write %s: it is there and is no table %s of an export, or of another version's: --force replaces it", path, t.Name)
}

// is tells whether a file is this table.
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
