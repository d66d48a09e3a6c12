package scenario

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// Looks are at the least, the most, and their geometric mean, if that is another number.
func TestLooks(t *testing.T) {
	bound := Until{CCT: 5, JobTime: 2.5}
	for _, tt := range []struct {
		of   Repeats
		want []int
	}{
		{Repeats{10, 10, Until{}}, nil},
		{Repeats{5, 30, bound}, []int{5, 13, 30}},
		{Repeats{2, 8, bound}, []int{2, 4, 8}},
		{Repeats{5, 6, bound}, []int{5, 6}},
		{Repeats{999, 1000, bound}, []int{999, 1000}},
	} {
		if got := tt.of.Looks(); !slices.Equal(got, tt.want) {
			t.Errorf("looks of %+v: %v, want %v", tt.of, got, tt.want)
		}
	}
	if got, want := bound.Bounds(), map[string]float64{"cct": 5, "job_time": 2.5}; !maps.Equal(got, want) {
		t.Errorf("bounds %v, want %v", got, want)
	}
}

// Repeats are read back as they are written, and decide nothing about the workload.
func TestRepeatsAreKept(t *testing.T) {
	parse := func(text string) *Scenario {
		s, err := Parse("s.yaml", []byte(text), options(nil))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	text := strings.Replace(goodScenario(t), "repeat: 2", "repeat: {at_least: 5, at_most: 30, until: {cct: 5 %, fct: 2.5%}}", 1)
	s := parse(text)
	want := Repeats{5, 30, Until{CCT: 5, FCT: 2.5}}
	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	if again := parse(string(resolved)); s.Spec.Repeat != want || again.Spec.Repeat != want {
		t.Errorf("%+v, written and read again %+v, want %+v", s.Spec.Repeat, again.Spec.Repeat, want)
	}
	fixed := parse(goodScenario(t))
	if fixed.Spec.Repeat != (Repeats{2, 2, Until{}}) {
		t.Errorf("repeat: 2 is %+v", fixed.Spec.Repeat)
	}
	if differs, err := WorkloadDiffers(s, fixed); err != nil || len(differs) > 0 {
		t.Errorf("%v, %v", differs, err)
	}
}
