// Package summary has the figures of the arms of a run. Each is declared once, in Sections: its key in
// summary.json, its unit, its definition, where it is shown and how it follows from the repeats of an arm.
// summary.json, reports, exports, plots, suites and documents all read that list.
//
// It writes no report (results/report) and reads no run (results/rundir).
package summary

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/topo/units"
)

// Unit is the unit of a figure.
type Unit int

// The units.
const (
	Count  Unit = iota
	Number      // of things, on average
	PerHour
	Micros
	Bytes
	BitRate
	Share // of a whole, 1 for all of it
	Fine  // a share that is shown with one more decimal
	Times // a ratio, such as a slowdown
	Index // between 0 and 1
)

// Name returns the unit for tables of columns; "" for a number.
func (u Unit) Name() string {
	switch u {
	case PerHour:
		return "1/h"
	case Micros:
		return "µs"
	case Bytes:
		return "bytes"
	case BitRate:
		return "bit/s"
	case Share, Fine, Times, Index:
		return "ratio"
	}
	return ""
}

// Show returns a figure as reports show it.
func (u Unit) Show(x float64) string {
	decimals := func(n int) string { return strconv.FormatFloat(x, 'f', n, 64) }
	switch u {
	case Micros:
		return units.Human(time.Duration(x * float64(time.Microsecond)))
	case Bytes:
		return units.Short(x, "B")
	case BitRate:
		return units.Short(x, "bps")
	case Share:
		return units.Percent(x, 1)
	case Fine:
		return units.Percent(x, 2)
	case Times:
		return decimals(2) + "×"
	case Index:
		return decimals(3)
	case Number:
		return decimals(2)
	}
	return decimals(0)
}

// Figure is a figure of an arm.
type Figure struct {
	Key  string // in summary.json, below that of the section; points separate levels
	Unit Unit
	Doc  string // what it is, without a stop
	Of   Of
	// Column is its column in the table arms of exports, below that of the section; "" for none.
	Column string
	// Table is the title of the table of reports that shows it, in a column with the heading Head. A narrow terminal
	// shows Short instead, or drops the column in the order Drop (results/table). Columns are in the order of Place,
	// then of the list.
	Table, Head, Short string
	Drop, Place        int
	// Define is what reports state below their tables, of which {} stands for Doc: "" for "Head: Doc.", and None for
	// nothing, where the table's own text has it. It begins a paragraph of its own after a line feed.
	Define string
	// Cell returns the cell of the table instead of Unit; base has the figures of the baseline, nil for the
	// baseline itself.
	Cell func(v, base Values) string
	// List makes the figure a list of objects instead.
	List *List
}

// None is the definition of a figure that has none of its own.
const None = "-"

// Of computes a figure from the repeats of an arm that count in its section. It is false if the figure is not known.
type Of func(arm []*Data) (float64, bool)

// List is a list of objects.
type List struct {
	// Rows returns the objects of an arm, each with what identifies it.
	Rows func(arm []*Data) []Row
	// Figures are those of an object; Of is unused.
	Figures []Figure
	// Whole is the key of the same figures over all objects; "" for none.
	Whole string
	// Name returns the name of an object in tables, below the heading Head.
	Name func(Values) string
	Head string
}

// Row is an object of a list.
type Row = Values

// Data is what figures of an arm are computed from: a repeat and what several figures use of it.
type Data struct {
	*Repeat
	Packets bool           // captured, not computed by the fluid model
	Tasks   *metrics.Tasks // of TasksOf; nil without tasks
}

// Table is a table of reports with figures as columns, and a row for each arm or, of a list, for each object.
type Table struct {
	Title string
	// Define introduces the definitions of its figures.
	Define func(packets bool) string
	// If is the key without which the table is left out; "" for those of the section.
	If string
}

// Section is an object of summary.json with figures.
type Section struct {
	Key     string
	Doc     string
	Tables  []Table
	Figures []Figure
	// has reports whether a repeat counts.
	has func(*Data) bool
}

// Sections returns all figures of arms, in the order of summary.json.
func Sections() []*Section { return []*Section{&tasks} }

// Compute returns the figures of an arm; nil if no repeat counts.
func (s *Section) Compute(repeats []Repeat, packets bool) (out Values) {
	var arm []*Data
	for i := range repeats {
		r := &repeats[i]
		d := &Data{Repeat: r, Packets: packets, Tasks: metrics.TasksOf(&r.Records, r.Slots)}
		if s.has(d) {
			arm = append(arm, d)
		}
	}
	if len(arm) == 0 {
		return nil
	}
	for i := range s.Figures {
		f := &s.Figures[i]
		if f.List != nil {
			for k, row := range f.List.Rows(arm) {
				for _, v := range row {
					v.Key = strings.TrimSuffix(f.Key+"."+strconv.Itoa(k)+"."+v.Key, ".")
					v.X = metrics.Round6(v.X)
					out = append(out, v)
				}
			}
		} else if x, ok := f.Of(arm); ok {
			out = append(out, Value{Key: f.Key, X: metrics.Round6(x)})
		}
	}
	return out
}

// Columns returns the figures that a table shows, in order.
func (s *Section) Columns(t Table) (out []*Figure) {
	for i := range s.Figures {
		if s.Figures[i].Table == t.Title {
			out = append(out, &s.Figures[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *Figure) int { return a.Place - b.Place })
	return out
}

// Definitions returns the definitions of a table and its figures as paragraphs.
func (s *Section) Definitions(t Table, packets bool) []string {
	text := t.Title + ": " + t.Define(packets)
	add := func(f *Figure) {
		switch f.Define {
		case None:
		case "":
			text += " " + f.Head + ": " + f.Doc + "."
		default:
			more := strings.ReplaceAll(f.Define, "{}", f.Doc)
			if !strings.HasPrefix(more, "\n") {
				more = " " + more
			}
			text += more
		}
	}
	for _, f := range s.Columns(t) {
		if f.List == nil || f.Define != "" {
			add(f)
		}
	}
	return strings.Split(text, "\n")
}

// Find returns the figure with a key of a section and its own, such as tasks.shuffle.reduces_delayed; nil if there is
// none.
func Find(key string) *Figure {
	section, own, _ := strings.Cut(key, ".")
	for _, s := range Sections() {
		for i := range s.Figures {
			if f := &s.Figures[i]; s.Key == section && f.Key == own && f.List == nil {
				return f
			}
		}
	}
	return nil
}

// Total returns the sum over the repeats.
func Total(of func(*Data) float64) Of {
	return func(arm []*Data) (sum float64, ok bool) {
		for _, d := range arm {
			sum += of(d)
		}
		return sum, true
	}
}

// Mean returns the average of the repeats.
func Mean(of func(*Data) float64) Of {
	return Ratio(func(d *Data) metrics.Average { return metrics.Average{Sum: of(d), N: 1} })
}

// Ratio returns the sum of parts over the repeats, divided by that of their wholes; false if the wholes are 0.
func Ratio(of func(*Data) metrics.Average) Of {
	return func(arm []*Data) (float64, bool) {
		var all metrics.Average
		for _, d := range arm {
			all.Add(of(d))
		}
		return all.Value()
	}
}

// Quantile returns a quantile of the values of all repeats; false if there are none.
func Quantile(p float64, of func(*Data) []float64) Of {
	return overAll(of, func(all []float64) float64 { return metrics.Quantile(p, all) })
}

// overAll returns a statistic of the sorted values of all repeats.
func overAll(of func(*Data) []float64, statistic func([]float64) float64) Of {
	return func(arm []*Data) (float64, bool) {
		var all []float64
		for _, d := range arm {
			all = append(all, of(d)...)
		}
		if len(all) == 0 {
			return 0, false
		}
		slices.Sort(all)
		return statistic(all), true
	}
}

// when makes a figure unknown for arms without what it is about.
func when(has func(*Data) bool, of Of) Of {
	return func(arm []*Data) (float64, bool) {
		if !slices.ContainsFunc(arm, has) {
			return 0, false
		}
		return of(arm)
	}
}

// micros returns a time in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
