// Package summary has the figures of the arms of a run. Each is a field of Arm, whose tags state its key in summary.json,
// its unit and where it is shown, and an entry of definitions.txt. summary.json, reports, exports, plots, suites and
// documents all read these.
//
// Tags of a field:
//
//	json    its key; "-" if it is only a column of a table
//	unit    a Unit, where the end of the key does not state it
//	csv     its column in tables of completion times
//	column  its column in the table arms of exports, below that of its section
//	table   the table of reports that it, or all below it, is in; "-" for none
//	head    its heading in that table
//	short   the heading on a narrow terminal
//	drop    the order in which a narrow terminal drops it (results/table)
//	left    anything: aligned as text
//	only    packets: the fluid model has no such column
//	racks   its column in the table racks of exports, for a figure that is a list by rack
//	place   its place among the columns, 0 unless stated; columns of one place are in the order of fields
//
// It writes no report (results/report) and reads no run (results/rundir).
package summary

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/topo/units"
)

// Average is a figure that is an average, or 0 of N if it is not known.
type Average = metrics.Average

// Unit is the unit of a figure.
type Unit string

// The units.
const (
	Count   Unit = ""
	Number  Unit = "number" // of things, on average
	PerHour Unit = "1/h"
	Micros  Unit = "µs"
	Bytes   Unit = "bytes"
	BitRate Unit = "bit/s"
	Share   Unit = "share" // of a whole, 1 for all of it
	Fine    Unit = "fine"  // a share that is shown with one more decimal
	Times   Unit = "times" // a ratio, such as a slowdown
	Index   Unit = "index" // between 0 and 1
)

// Name returns the unit for tables of columns; "" for a number.
func (u Unit) Name() string {
	switch u {
	case Share, Fine, Times, Index:
		return "ratio"
	case Number:
		return ""
	}
	return string(u)
}

// Show returns a figure as reports show it.
func (u Unit) Show(x float64) string {
	decimals := func(n int) string { return strconv.FormatFloat(x, 'f', n, 64) }
	switch u {
	case Micros:
		return units.Human(time.Duration(math.Round(x * float64(time.Microsecond))))
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
	Key    string // in summary.json; one with - is only a column of a table
	Unit   Unit
	Doc    string // what it is, without a stop
	CSV    string // its column in tables of completion times, without the time; "" for none
	Time   bool   // whether it is a completion time, or of one
	Column string // in the table arms of exports; "" for none
	Number bool   // whether it is one number
	Racks  string // its column in the table racks of exports; "" unless it is a list of numbers by rack
	List   *List  // of whose objects it is a figure; nil for one of the arm

	Head, Short string // headings in its table
	Drop        int
	Left        bool // aligned as text

	Section string // its first key

	table string
	place int
	only  bool // on packets
	omit  bool // the zero value is unknown
	index []int
}

// List is a list of objects of an arm.
type List struct{ index []int }

// Of returns the objects of an arm.
func (l *List) Of(a *Declared) (out []reflect.Value) {
	list, err := reflect.ValueOf(a).Elem().FieldByIndexErr(l.index)
	if err != nil {
		return nil
	}
	for i := range list.Len() {
		out = append(out, list.Index(i))
	}
	return out
}

// at returns the field of an arm or an object; false if it is not known.
func (f *Figure) at(of reflect.Value) (v reflect.Value, ok bool) {
	v, err := of.FieldByIndexErr(f.index)
	if err != nil {
		return v, false
	}
	a, is := v.Interface().(metrics.Average)
	return reflect.Indirect(v), !f.omit || !v.IsZero() && !(is && a.IsZero())
}

// In returns the value of an arm, or of an object of its List; false if it is not known.
func (f *Figure) In(of reflect.Value) (x float64, ok bool) {
	v, ok := f.at(of)
	switch {
	case !ok || !f.Number:
		return 0, false
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanFloat():
		return v.Float(), true
	}
	x, _ = v.Interface().(metrics.Average).Value()
	return metrics.Round6(x), true
}

// ByRack returns the values of an arm by rack, NaN for one that is not known; none if none is.
func (f *Figure) ByRack(a *Declared) (out []float64) {
	v, ok := f.at(reflect.ValueOf(a).Elem())
	if !ok || f.Racks == "" {
		return nil
	}
	for i := range v.Len() {
		x := math.NaN()
		switch of := v.Index(i).Interface().(type) {
		case float64:
			x = of
		case metrics.Average:
			if value, ok := of.Value(); ok {
				x = metrics.Round6(value)
			}
		}
		out = append(out, x)
	}
	return out
}

// Cell returns the value as tables show it; "" if it is not known.
func (f *Figure) Cell(of reflect.Value) string {
	if v, ok := f.at(of); ok && v.Kind() == reflect.String {
		return v.String()
	}
	if x, ok := f.In(of); ok {
		return f.Unit.Show(x)
	}
	return ""
}

// suffixes are the ends of keys that state a unit.
var suffixes = map[string]Unit{"us": Micros, "bytes": Bytes, "bps": BitRate}

// fields returns the figures of a struct below a field.
func fields(t reflect.Type, above Figure) (out []*Figure) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		f := Figure{
			Key:     name,
			Unit:    Unit(field.Tag.Get("unit")),
			CSV:     field.Tag.Get("csv"),
			Time:    above.Time,
			Column:  field.Tag.Get("column"),
			Racks:   field.Tag.Get("racks"),
			List:    above.List,
			table:   cmp.Or(field.Tag.Get("table"), above.table),
			Head:    field.Tag.Get("head"),
			Short:   field.Tag.Get("short"),
			omit:    option != "" || name == "-",
			Left:    field.Tag.Get("left") != "",
			only:    field.Tag.Get("only") == "packets",
			Section: cmp.Or(above.Section, name),
			index:   append(slices.Clone(above.index), i),
		}
		f.Drop, _ = strconv.Atoi(field.Tag.Get("drop"))
		f.place, _ = strconv.Atoi(field.Tag.Get("place"))
		if f.Unit == "" {
			f.Unit = suffixes[name[strings.LastIndexByte(name, '_')+1:]]
		}
		switch {
		case !field.IsExported():
			continue
		case field.Anonymous:
			f.Key = above.Key
		case above.Key != "":
			f.Key = above.Key + "." + name
		}
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind, f.omit = kind.Elem(), true
		}
		f.Time = f.Time || kind == reflect.TypeFor[Metric]() || kind == reflect.TypeFor[map[string]*Metric]()
		switch {
		case kind == reflect.TypeFor[metrics.Interval]():
			for end, name := range []string{"_low", "_high"} {
				g := f
				g.Number, g.omit, g.index = true, true, append(slices.Clone(f.index), end)
				g.Key += "[" + strconv.Itoa(end) + "]"
				g.CSV += name
				if g.Column != "" {
					g.Column += name
				}
				out = append(out, &g)
			}
		case kind == reflect.TypeFor[Metric]():
			out = append(out, &f)
			out = append(out, fields(kind, f)...)
		case kind == reflect.TypeFor[metrics.Average](), kind.Kind() == reflect.Int, kind.Kind() == reflect.Float64:
			f.Number = true
			out = append(out, &f)
		case kind.Kind() == reflect.Struct:
			out = append(out, fields(kind, f)...)
		case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct &&
			kind.Elem() != reflect.TypeFor[metrics.Average]():
			out = append(out, &f)
			below := Figure{Key: f.Key + "[]", Section: f.Section, table: f.table, List: &List{f.index}}
			out = append(out, fields(kind.Elem(), below)...)
		default:
			out = append(out, &f)
		}
	}
	return out
}

// Figures returns all figures of arms that summary.json has, in its order.
func Figures() []*Figure {
	return slices.DeleteFunc(slices.Clone(declared().figures),
		func(f *Figure) bool { return strings.Contains(f.Key, ".-") })
}

// Find returns the number with a key, such as tasks.shuffle.reduces_delayed; nil if there is none.
func Find(key string) *Figure {
	return find(func(f *Figure) bool { return f.Key == key && f.Number && f.List == nil })
}

// FindByRack returns the numbers by rack with a key, such as losses.resent_bytes_by_rack; nil if there are none.
func FindByRack(key string) *Figure {
	return find(func(f *Figure) bool { return f.Key == key && f.Racks != "" })
}

func find(is func(*Figure) bool) *Figure {
	all := declared().figures
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// Get returns a number by its key; false if it is not known.
func (a *Declared) Get(key string) (x float64, ok bool) {
	if f := Find(key); f != nil {
		return f.In(reflect.ValueOf(a).Elem())
	}
	return 0, false
}

// Declared are the figures of an arm that are declared by their fields, part of its object in summary.json.
type Declared struct {
	Failures *FailureCount `json:"failures,omitempty"` // nil if nothing failed
	// The metrics are absent if the verdict is void or nothing was measured.
	CCT       *Metric `json:"cct,omitempty"`
	FCT       *Metric `json:"fct,omitempty"`
	WriteTime *Metric `json:"write_time,omitempty"`
	// The following need a record of which blocks belong together: see metrics.WorkloadMeta.
	RequestTime *Metric            `json:"request_time,omitempty"`
	JobTime     *Metric            `json:"job_time,omitempty"`
	JobBins     map[string]*Metric `json:"job_time_by_bin,omitempty"`   // by number
	JobSizes    map[string]*Metric `json:"job_time_by_tasks,omitempty"` // by the least number of tasks of the class

	FlowSlowdowns []FlowSlowdown `json:"fct_slowdown,omitempty" table:"FCT slowdown by size"`

	Tasks       *Tasks     `json:"tasks,omitempty" table:"Tasks"`               // for runs with jobs of tasks
	Placement   *Placement `json:"placement,omitempty" table:"Block placement"` // for runs with blocks
	Coordinator *Decisions `json:"coordinator,omitempty" table:"Coordinator"`   // if there is a record
	Estimates   []Estimate `json:"estimates,omitempty" table:"Estimates of the task scheduler"`
	// The following exist only for packets whose captures state the fabric:
	Setup          *Setup   `json:"setup,omitempty"`
	Time           *Time    `json:"time,omitempty"`
	Traffic        *Traffic `json:"traffic,omitempty" table:"Traffic"`
	Links          *Links   `json:"links,omitempty" table:"Traffic"`
	Losses         *Losses  `json:"losses,omitempty"`
	MedianSlowdown *float64 `json:"median_slowdown,omitempty" unit:"times"` // of CCT over breakdown.Coflow.Lone
}

// Compute fills in the figures of repeats with these numbers, on packets or not, with loads of links in intervals.
func (a *Declared) Compute(repeats []Repeat, numbers metrics.Numbers, packets bool, interval time.Duration) {
	a.Tasks, a.Placement, a.Coordinator = tasksOf(repeats, packets), placementOf(repeats), decisionsOf(repeats, packets)
	a.Estimates, a.FlowSlowdowns = estimatesOf(repeats), flowSlowdownsOf(repeats)
	if packets {
		a.Setup, a.Losses = setupOf(repeats), lossesOf(repeats)
		a.timing(repeats, numbers, interval)
	}
}

// Against fills in what compares the arm with the baseline.
func (a *Declared) Against(base *Declared) { a.Placement.against(base.Placement) }

// one returns the average of one value.
func one(x float64) Average { return Average{Sum: x, N: 1} }

// value returns an average; 0 if it is not known.
func value(a Average) float64 {
	x, _ := a.Value()
	return x
}

// micros returns a time in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
