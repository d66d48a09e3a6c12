package summary

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/metrics"
)

// Every figure has a key of its own and a definition, one that a table shows is in a table of the definitions, and no
// definition is of something else.
func TestFigures(t *testing.T) {
	titles, left, seen := map[string]bool{}, maps.Clone(declared().docs), map[string]bool{}
	for _, t := range declared().tables {
		titles[t.Title] = true
		for _, p := range append(t.Define, t.Notes...) {
			if strings.ContainsAny(p, "{}") {
				titles[p] = false // a key of no figure
			}
		}
	}
	for what, known := range titles {
		if !known {
			t.Errorf("unknown key in %q", what)
		}
	}
	for _, f := range declared().times {
		if f.Doc == "" || strings.HasSuffix(f.Doc, ".") {
			t.Errorf("%s: %+v", f.Key, f)
		}
		delete(left, "time."+f.Key)
	}
	for _, f := range declared().figures {
		if !strings.Contains(f.Key, ".-") {
			if seen[f.Key] || f.Doc == "" || strings.HasSuffix(f.Doc, ".") {
				t.Errorf("%s: %+v", f.Key, f)
			}
			seen[f.Key] = true
			delete(left, f.Key)
		}
		if f.Head != "" && f.table != "-" && !titles[f.table] {
			t.Errorf("%s: heading %q in no table %q", f.Key, f.Head, f.table)
		}
		if column := "column " + f.Section + "_" + f.Column; f.Column != "" && f.List == nil {
			if seen[column] {
				t.Errorf("%s: second %s", f.Key, column)
			}
			seen[column] = true
		}
		if f.Racks != "" {
			if seen["racks "+f.Racks] || f.Number || f.List != nil {
				t.Errorf("%s: second column %s of racks, or it is no list by rack", f.Key, f.Racks)
			}
			seen["racks "+f.Racks] = true
		}
	}
	if len(left) > 0 {
		t.Errorf("definitions of no figure: %v", left)
	}
	if Find("tasks.shuffle.reduces_delayed") == nil || Find("tasks.reduces_delayed") != nil || Find("") != nil {
		t.Error("figures are not found by their keys")
	}
}

// What is not known is absent from summary.json and from tables, and 0 is neither.
func TestUnknown(t *testing.T) {
	a := Declared{Tasks: &Tasks{Jobs: 3, Makespan: metrics.Average{Sum: 3, N: 2}}}
	a.Tasks.Shuffle.MapRacks.N = 1
	text, err := json.Marshal(a)
	if err != nil || !strings.Contains(string(text), `"makespan_us":1.5`) || !strings.Contains(string(text), `"shuffle":{"map_racks":0}`) {
		t.Errorf("%s, %v", text, err)
	}
	var back Arm
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for _, of := range []*Declared{&a, &back.Declared} {
		got := map[string]float64{}
		for _, key := range []string{"tasks.jobs", "tasks.makespan_us", "tasks.shuffle.map_racks", "tasks.shuffle.reduces_delayed", "tasks.backups.won"} {
			if x, ok := of.Get(key); ok {
				got[key] = x
			}
		}
		want := map[string]float64{"tasks.jobs": 3, "tasks.makespan_us": 1.5, "tasks.shuffle.map_racks": 0}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	shown := map[string]bool{}
	for _, table := range Tables("tasks", true) {
		shown[table.Title] = table.Rows(&a) != nil
	}
	if !shown["Tasks"] || !shown["Shuffle of jobs"] || shown["Locality of maps"] || shown["Fetches of cloned tasks"] {
		t.Errorf("tables %v", shown)
	}
	if f := Find("tasks.makespan_us"); f.Cell(reflect.ValueOf(&a).Elem()) != "1.50 µs" {
		t.Errorf("cell %q", f.Cell(reflect.ValueOf(&a).Elem()))
	}
}

// Figures by rack have a value for each rack that is known.
func TestByRack(t *testing.T) {
	a := Declared{Losses: &Losses{ByRack: []float64{1514, 0}}, Tasks: &Tasks{}}
	a.Tasks.Shuffle.Saturated = []Average{{Sum: 1, N: 4}, {}}
	resent, saturated := FindByRack("losses.resent_bytes_by_rack"), FindByRack("tasks.shuffle.saturated")
	if got := resent.ByRack(&a); !slices.Equal(got, []float64{1514, 0}) {
		t.Errorf("retransmitted %v", got)
	}
	if got := saturated.ByRack(&a); len(got) != 2 || got[0] != 0.25 || !math.IsNaN(got[1]) {
		t.Errorf("saturated %v", got)
	}
	if got := resent.ByRack(&Declared{}); got != nil {
		t.Errorf("of nothing %v", got)
	}
	if FindByRack("links.busy") != nil || Find("losses.resent_bytes_by_rack") != nil || Find("links.busy").ByRack(&a) != nil {
		t.Error("numbers are not by rack")
	}
}
