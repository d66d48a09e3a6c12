package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Type is the type of a column's values.
type Type string

// Types. Micros are microseconds: a double in Parquet, three decimals in CSV, which hold
// the nanoseconds of the run's files.
const (
	String Type = "string"
	Int    Type = "int64"
	Double Type = "double"
	Micros Type = "micros"
	Bool   Type = "bool"
	Time   Type = "timestamp"
)

// Column is one column of a table.
type Column struct {
	Name     string
	Type     Type
	Unit     string // "" for none
	Doc      string
	Optional bool // may be null: an empty cell in CSV, a null in JSON
	Derived  bool // not in the files of a run
	late     bool // files of older versions lack it
	index    []int
	get      func(row reflect.Value) any // instead of index
}

// Extra returns a column that is no field of its rows: get returns its value as Value does.
func Extra(c Column, get func(row reflect.Value) any) Column {
	c.get = get
	return c
}

// Columns returns the columns of a row type, in the order of its fields.
func Columns[T any]() []Column { return columns(reflect.TypeFor[T](), nil, "", "") }

// columns returns those of a struct at an index of the row, with the prefix and the end of
// descriptions that the field with the struct has.
func columns(t reflect.Type, index []int, prefix, end string) (out []Column) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		at := append(slices.Clone(index), i)
		name, option, _ := strings.Cut(f.Tag.Get("csv"), ",")
		if f.Anonymous || option == "inline" {
			out = append(out, columns(f.Type, at, prefix+name, f.Tag.Get("doc"))...)
			continue
		}
		doc := f.Tag.Get("doc")
		if strings.HasSuffix(doc, " of") {
			doc += " " + end
		}
		is := strings.Split(f.Tag.Get("is"), ",")
		kind, pointer := f.Type, f.Type.Kind() == reflect.Pointer
		if pointer {
			kind = kind.Elem()
		}
		out = append(out, Column{Name: prefix + name, Type: typeOf(kind), Unit: f.Tag.Get("unit"), Doc: doc, index: at,
			Optional: pointer || slices.Contains(is, "null"), Derived: slices.Contains(is, "derived"), late: pointer || slices.Contains(is, "late")})
	}
	return out
}

func typeOf(t reflect.Type) Type {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return Micros
	case reflect.TypeFor[time.Time]():
		return Time
	case reflect.TypeFor[[]string]():
		return String
	}
	switch t.Kind() {
	case reflect.String:
		return String
	case reflect.Int, reflect.Int64:
		return Int
	case reflect.Float64:
		return Double
	case reflect.Bool:
		return Bool
	}
	panic(fmt.Sprintf("schema: field of type %v", t)) // a bug in a row type
}

// Value returns the column's value in a row, which must be a struct of the column's row type:
// string, int64, float64, time.Duration, bool or time.Time, or nil for null.
func (c *Column) Value(row reflect.Value) any {
	if c.get != nil {
		return c.get(row)
	}
	v := row.FieldByIndex(c.index)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch c.Type {
	case Int:
		return v.Int()
	case Double:
		return v.Float()
	case Micros:
		return time.Duration(v.Int())
	case Bool:
		return v.Bool()
	case Time:
		return v.Interface()
	}
	text := ""
	if v.Kind() == reflect.String {
		text = v.String()
	} else {
		text = joined(v.Interface().([]string))
	}
	if text == "" && c.Optional {
		return nil
	}
	return text
}
