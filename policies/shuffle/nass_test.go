package shuffle

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestClassVectors(t *testing.T) {
	for sir, want := range map[float64]Class{0: Light, 0.29: Light, 0.30: Medium, UnknownSIR: Medium, 0.80: Medium, 0.81: Heavy} {
		if got := ClassOf(sir); got != want {
			t.Errorf("ClassOf(%v) = %v, want %v", sir, got, want)
		}
	}
}

func TestNetSatVector(t *testing.T) {
	n, over, limit := DefaultNetSat(), []int64{0, 0}, []float64{500, 500}
	var got, any []bool
	for _, x := range []float64{410, 405, 390, 450, 460, 470} {
		n.Observe(over, []float64{x, 0}, []float64{0, 400}, limit)
		got = append(got, n.Saturated(over, 0))
		if n.Saturated(over, 1) {
			t.Error("a rack at the threshold is saturated")
		}
		any = append(any, NetSat{n.Share, n.Intervals, AnyRack}.Saturated(over, 1))
	}
	want := []bool{false, false, false, false, false, true}
	if !slices.Equal(got, want) || !slices.Equal(any, want) {
		t.Errorf("saturated %v, any rack %v, want %v", got, any, want)
	}
}

func TestNASSVectors(t *testing.T) {
	both := func(maps, reduces bool) []Tasks {
		return []Tasks{
			{Class: Heavy, Reduce: reduces},
			{Class: Light, Reduce: reduces},
			{Class: Medium, Map: maps, LocalMap: maps},
		}
	}
	for _, test := range []struct {
		name      string
		jobs      []Tasks
		saturated bool
		want      Pick
	}{
		{"saturated, both slots", both(true, true), true, Pick{2, false, 2}},
		{"saturated, a reduce slot", both(false, true), true, Pick{1, true, 3}},
		{"not saturated, a reduce slot", both(false, true), false, Pick{0, true, 2}},
		{"not saturated, a map slot", both(true, false), false, Pick{2, false, 5}},
		{"saturated, racks of SAMP before local maps", []Tasks{{Map: true, LocalMap: true}, {Map: true, MapRack: true}}, true, Pick{1, false, 1}},
		{"not saturated, racks of SARP first", []Tasks{{Class: Heavy, Reduce: true}, {Class: Medium, Reduce: true, ReduceRack: true}}, false, Pick{1, true, 1}},
		{"saturated, a heavy reduce where SARP prefers it", []Tasks{{Class: Medium, Map: false}, {Class: Heavy, Reduce: true, ReduceRack: true}}, true, Pick{1, true, 4}},
		{"saturated, the reduce of the first job", []Tasks{{Class: Heavy, Reduce: true}}, true, Pick{0, true, 5}},
		{"saturated, any task", []Tasks{{}, {Class: Heavy, Reduce: true}}, true, Pick{1, true, 6}},
		{"any map before a reduce", []Tasks{{}, {Class: Medium, Map: true, Reduce: true}}, false, Pick{1, false, 6}},
		{"nothing", []Tasks{{}, {}}, false, Pick{Job: -1}},
	} {
		if got := NASS(test.jobs, test.saturated); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// NASS chooses a task whenever there is one, and only what exists.
func TestNASSIsWorkConserving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		flip := rapid.Bool()
		list := make([]Tasks, rapid.IntRange(0, 5).Draw(t, "jobs"))
		some := false
		for i := range list {
			x := Tasks{Class: Class(rapid.IntRange(0, 2).Draw(t, "class")), Map: flip.Draw(t, "map"), Reduce: flip.Draw(t, "reduce"), LocalMap: flip.Draw(t, "local"), MapRack: flip.Draw(t, "map rack"), ReduceRack: flip.Draw(t, "reduce rack")}
			some = some || x.Map || x.Reduce
			list[i] = x
		}
		p := NASS(list, flip.Draw(t, "saturated"))
		switch {
		case p.Job < 0 && some:
			t.Fatal("a slot stays idle")
		case p.Job >= 0 && (p.Reduce && !list[p.Job].Reduce || !p.Reduce && !list[p.Job].Map):
			t.Fatalf("%+v of %+v: no such task", p, list)
		}
	})
}
