package schema

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jszwec/csvutil"

	"testbed/results/breakdown"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
)

// FormatMicros returns d in microseconds with three decimals, exactly.
func FormatMicros(d time.Duration) string {
	b, n := []byte{}, uint64(d)
	if d < 0 {
		b, n = append(b, '-'), -n
	}
	b = strconv.AppendUint(b, n/1000, 10)
	return string(append(b, '.', byte('0'+n/100%10), byte('0'+n/10%10), byte('0'+n%10)))
}

func joined(list []string) string { return strings.Join(list, " ") }

func decimal(x float64) []byte { return strconv.AppendFloat(nil, x, 'f', -1, 64) }

// number formats the values and pointers of a type whose MarshalText adds a unit.
func number[V ~int64](v *V) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	return strconv.AppendInt(nil, int64(*v), 10), nil
}

// formats has the types whose cells differ from csvutil's.
var formats = csvutil.NewMarshalers(
	csvutil.MarshalFunc(number[units.Bytes]), csvutil.MarshalFunc(number[units.Rate]),
	csvutil.MarshalFunc(func(d time.Duration) ([]byte, error) { return []byte(FormatMicros(d)), nil }),
	csvutil.MarshalFunc(func(x float64) ([]byte, error) { return decimal(x), nil }),
	csvutil.MarshalFunc(func(list []string) ([]byte, error) { return []byte(joined(list)), nil }))

// Cell returns a value of a column as it is written to CSV.
func Cell(value any) string {
	switch x := value.(type) {
	case nil:
		return ""
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return string(decimal(x))
	case time.Duration:
		return FormatMicros(x)
	case time.Time:
		return x.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(value)
}

// encode writes rows as CSV, with the columns of a header.
func encode[T any](w io.Writer, header []string, rows iter.Seq[*T]) error {
	c := words.NewCSV(w)
	e := csvutil.NewEncoder(c)
	e.SetHeader(header)
	e.WithMarshalers(formats)
	if err := e.EncodeHeader(*new(T)); err != nil {
		return err
	}
	for row := range rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// Write writes rows as a file of a run.
func Write[T any](w io.Writer, rows iter.Seq[*T]) error {
	var header []string
	for _, c := range Columns[T]() {
		if !c.Derived {
			header = append(header, c.Name)
		}
	}
	return encode(w, header, rows)
}

// Error is invalid content of a file.
type Error struct {
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Read reads a file of a run. It finds columns by name and ignores those that T does not have.
// Check is called for each row. Content that is invalid, and errors of check, are an *Error.
func Read[T any](r io.Reader, check func(*T) error) ([]T, error) {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return nil, &Error{1, fmt.Errorf("no header line: %w", err)}
	}
	for _, col := range Columns[T]() {
		i := slices.Index(header, col.Name)
		switch {
		case i < 0 && !col.late && !col.Derived:
			return nil, &Error{1, fmt.Errorf("no column %s", col.Name)}
		case i >= 0 && col.Derived:
			header[i] = ""
		case i >= 0 && slices.Contains(header[i+1:], col.Name):
			return nil, &Error{1, fmt.Errorf("duplicate column %s", col.Name)}
		}
	}
	d, err := csvutil.NewDecoder(c, header...)
	if err != nil {
		return nil, err
	}
	d.WithUnmarshalers(parsers)
	out := []T{}
	for {
		out = append(out, *new(T))
		row := &out[len(out)-1]
		err := d.Decode(row)
		var syntax *csv.ParseError
		var cell *csvutil.DecodeError
		switch {
		case errors.Is(err, io.EOF):
			return out[:len(out)-1], nil
		case errors.As(err, &syntax):
			return nil, &Error{syntax.Line, syntax.Err}
		case errors.As(err, &cell):
			err = fmt.Errorf("%s: %w", cell.Field, cell.Err)
		case err != nil:
			return nil, err
		default:
			err = check(row)
		}
		if err != nil {
			line, _ := c.FieldPos(0)
			return nil, &Error{line, err}
		}
	}
}

// parsers has a parser for the type of each field that is no struct or pointer.
var parsers = csvutil.NewUnmarshalers(
	csvutil.UnmarshalFunc(whole[int]), csvutil.UnmarshalFunc(whole[units.Bytes]), csvutil.UnmarshalFunc(whole[units.Rate]),
	csvutil.UnmarshalFunc(whole[workloads.CoflowID]), csvutil.UnmarshalFunc(whole[workloads.FlowID]), csvutil.UnmarshalFunc(whole[workloads.BlockID]),
	csvutil.UnmarshalFunc(whole[workloads.WriterID]), csvutil.UnmarshalFunc(whole[workloads.JobID]),
	csvutil.UnmarshalFunc(real), csvutil.UnmarshalFunc(micros), csvutil.UnmarshalFunc(truth), csvutil.UnmarshalFunc(text), csvutil.UnmarshalFunc(list), csvutil.UnmarshalFunc(cause))

// text restores the text of a cell, and copies it, because cells share the memory of their line.
func text(cell []byte, v *string) error {
	*v = words.Text(string(cell))
	return nil
}

func list(cell []byte, v *[]string) error {
	*v = strings.Fields(words.Text(string(cell)))
	return nil
}

// whole parses a non-negative integer.
func whole[V ~int | ~int64](cell []byte, v *V) error {
	n, err := strconv.ParseInt(string(cell), 10, 64)
	if *v = V(n); err != nil || n < 0 || int64(*v) != n {
		return fmt.Errorf("%q: must be a whole number, 0 or more", cell)
	}
	return nil
}

func real(cell []byte, v *float64) (err error) {
	if *v, err = strconv.ParseFloat(string(cell), 64); err != nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return fmt.Errorf("%q: must be a number", cell)
	}
	return nil
}

// micros parses microseconds with three decimals, which are nanoseconds.
func micros(cell []byte, v *time.Duration) error {
	point := len(cell) - 4
	if point >= 1 && cell[point] == '.' && cell[point-1] != '-' && cell[point+1] != '-' && cell[point+1] != '+' && cell[0] != '+' {
		if ns, err := strconv.ParseInt(string(append(cell[:point:point], cell[point+1:]...)), 10, 64); err == nil {
			*v = time.Duration(ns)
			return nil
		}
	}
	return fmt.Errorf("%q: must be microseconds with three decimals, such as 1528533.448", cell)
}

// truth parses true or false; an empty cell is false.
func truth(cell []byte, v *bool) error {
	*v = string(cell) == "true"
	if !*v && len(cell) > 0 && string(cell) != "false" {
		return fmt.Errorf("%q: must be true or false", cell)
	}
	return nil
}

func cause(cell []byte, v *breakdown.Cause) error {
	if len(cell) == 0 {
		return errors.New("empty: must be a cause, such as queueing")
	}
	*v = breakdown.Cause(cell)
	return nil
}
