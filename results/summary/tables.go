package summary

import (
	_ "embed"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"testbed/results/metrics"
	"testbed/topo/units"
)

// definitions has the tables of figures in the order in which reports show them. A line that begins with # is the title
// of a table, one that begins with - and the key of a figure is its Doc, and the others are the paragraphs that define the
// table; "note:" begins a note below it. [a|b] is a on packets and b on the fluid model, and {key} the Doc of a figure.
// Lines that begin with spaces continue the one before.
//
//go:embed definitions.txt
var definitions string

// constants are what {name} stands for besides keys.
var constants = []string{
	"{LeastStage}", fmt.Sprint(metrics.LeastStage),
	"{MapClasses}", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(metrics.MapClasses)), ", "), "[]"),
	"{SaturatedIntervals}", fmt.Sprint(metrics.SaturatedIntervals),
	"{SaturatedShare}", units.Percent(metrics.SaturatedShare, 0),
	"{SaturationInterval}", metrics.SaturationInterval.String(),
	"{UnlikeMark}", UnlikeMark,
	"{Alike}", units.Percent(metrics.DefaultAlike, 0),
}

// Table is a table of reports with figures as columns, and a row for each arm or, of a list, for each object.
type Table struct {
	Title   string
	Figures []*Figure
	Define  []string // paragraphs
	Notes   []string
}

// declared reads the declarations when they are first asked for: most commands need none.
var declared = sync.OnceValue(func() (d struct {
	figures []*Figure         // of Arm
	times   []*Figure         // of Metric
	tables  []Table           // of reports
	docs    map[string]string // definitions of figures by key
}) {
	isDoc := regexp.MustCompile(`^- (.*?): (.*)\n$`)
	d.docs = map[string]string{}
	var replace []string
	text := strings.NewReplacer(constants...).Replace(definitions)
	for line := range strings.Lines(strings.ReplaceAll(text, "\n  ", " ")) {
		if m := isDoc.FindStringSubmatch(line); m != nil {
			d.docs[m[1]], replace = m[2], append(replace, "{"+m[1]+"}", m[2])
		} else if title, ok := strings.CutPrefix(line, "# "); ok {
			d.tables = append(d.tables, Table{Title: strings.TrimSpace(title)})
		} else if note, ok := strings.CutPrefix(line, "note: "); ok {
			t := &d.tables[len(d.tables)-1]
			t.Notes = append(t.Notes, strings.TrimSpace(note))
		} else if line = strings.TrimSpace(line); line != "" {
			t := &d.tables[len(d.tables)-1]
			t.Define = append(t.Define, line)
		}
	}
	known := strings.NewReplacer(replace...)
	for _, t := range d.tables {
		for i := range t.Define {
			t.Define[i] = known.Replace(t.Define[i])
		}
	}
	d.figures = fields(reflect.TypeFor[Declared](), Figure{})
	for _, f := range d.figures {
		time, below, within := strings.Cut(f.Key, ".")
		if f.Doc = d.docs[f.Key]; f.Time && within {
			f.Doc = d.docs[time] + ": " + d.docs["time."+below]
		}
	}
	d.times = fields(reflect.TypeFor[Metric](), Figure{})
	for _, f := range d.times {
		f.Doc = d.docs["time."+f.Key]
	}
	return d
})

var either = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[([^|\]]*)\|([^\]]*)\]`) })

// Tables returns the tables that begin with figures of a section, a field of Arm by its key.
func Tables(section string, packets bool) (out []Table) {
	side := "$2"
	if packets {
		side = "$1"
	}
	for _, t := range declared().tables {
		for _, f := range declared().figures {
			if f.table == t.Title && f.Head != "" && (packets || !f.only) {
				t.Figures = append(t.Figures, f)
			}
		}
		if t.Figures != nil && t.Figures[0].Section == section {
			slices.SortStableFunc(t.Figures, func(a, b *Figure) int { return a.place - b.place })
			t.Define, t.Notes = slices.Clone(t.Define), slices.Clone(t.Notes)
			for _, list := range [][]string{t.Define, t.Notes} {
				for i := range list {
					list[i] = either().ReplaceAllString(list[i], side)
				}
			}
			out = append(out, t)
		}
	}
	return out
}

// Rows returns the cells of an arm: a row, or one for each object of a list. Cells of unknown figures are empty; there
// is no row if all are.
func (t Table) Rows(a *Declared) (out [][]string) {
	of := []reflect.Value{reflect.ValueOf(a).Elem()}
	if list := t.Figures[0].List; list != nil {
		of = list.Of(a)
	}
	for _, v := range of {
		row, known := make([]string, len(t.Figures)), false
		for i, f := range t.Figures {
			row[i] = f.Cell(v)
			known = known || row[i] != ""
		}
		if known {
			out = append(out, row)
		}
	}
	return out
}
