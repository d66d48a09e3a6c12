package plot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"testbed/results/rundir"
)

// pointsOf returns runs that are points of a sweep.
func pointsOf(t *testing.T, points ...[]rundir.Value) (runs []*rundir.Run) {
	for i, p := range points {
		r := *full(t)
		m := *r.Manifest
		r.Summary.RunID, m.Vars, r.Manifest = fmt.Sprint("sweep.p", i), p, &m
		runs = append(runs, &r)
	}
	return runs
}

// A sweep is drawn over its variable, with a line for each arm and value of the others, at the speed-ups of the summaries.
func TestGainOverSweptVariable(t *testing.T) {
	value := func(over, load string) []rundir.Value {
		return []rundir.Value{{Name: "over", Value: over}, {Name: "load", Value: load}}
	}
	runs := pointsOf(t, value("1:1", "0.2"), value("5:1", "0.2"), value("3:1", "0.2"), value("1:1", "0.4"))
	svg, _ := drawSVG(t, "gain-by-parameter", Options{Width: 6 * Inch, Height: 4 * Inch}, runs...)
	got := texts(t, svg)
	for _, want := range []string{"over", "1:1", "3:1", "5:1", "Speed-up of coflows relative to fair+hdfs (×)", "sebf+hdfs, load=0.2, n ≥ 24 pairs", "sebf+sinbad, load=0.4, n ≥ 24 pairs (degraded)"} {
		if !slices.Contains(got, want) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	f, err := Find("gain-by-parameter")
	if err != nil {
		t.Fatal(err)
	}
	d := newDrawing(f, runs, Options{FontSize: DefaultFontSize})
	if err := d.choose(); err != nil {
		t.Fatal(err)
	}
	if err := gainByParameter(d); err != nil {
		t.Fatal(err)
	}
	lines, bars := map[string]int{}, 0
	for _, x := range d.drawn {
		switch x := x.(type) {
		case *plotter.Line:
			lines[fmt.Sprint(x.XYs)]++
		case bar:
			bars++
		}
	}
	y := func(arm string) float64 { return runs[0].Arm(arm).CCT.Paired.GeoMean }
	want := fmt.Sprint(plotter.XYs{{X: 1, Y: y("sebf+hdfs")}, {X: 3, Y: y("sebf+hdfs")}, {X: 5, Y: y("sebf+hdfs")}})
	if lines[want] != 1 || len(lines) != 4 || bars != 8 {
		t.Errorf("lines %v and %d intervals, want one of %s", lines, bars, want)
	}
	for over, want := range map[string]string{"load": "load", "size": "no swept variable"} {
		d := newDrawing(f, runs, Options{Over: over})
		p, err := d.parameter()
		if got := fmt.Sprint(p.name, err); !strings.Contains(got, want) {
			t.Errorf("over %s: %s, want %s", over, got, want)
		}
	}
}

// A number that is part of a name is no value of a parameter.
func TestNumbersOfArms(t *testing.T) {
	for arm, want := range map[string]string{"dolly-0.05": "dolly|0.05", "load=20%": "load|20", "k 3": "k|3", "0.2": "|0.2", "sinbad-v1": "", "bin5": "", "sebf": ""} {
		got := ""
		if m := numbered.FindStringSubmatch(arm); m != nil {
			got = m[1] + "|" + m[2]
		}
		if got != want {
			t.Errorf("%s has the number %q, want %q", arm, got, want)
		}
	}
}

// Values of a variable are at their places if all are numbers with or without a unit, and else at equal distances.
func TestPlacesOfValues(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   []float64
	}{
		{[]string{"0.2", "0.8", "50%"}, []float64{0.2, 0.8, 50}},
		{[]string{"5ms", "1s"}, []float64{0.005, 1}},
		{[]string{"3:1", "5:2"}, []float64{3, 2.5}},
		{[]string{"10Mbps", "1Gbps"}, []float64{1e7, 1e9}},
		{[]string{"64KB", "1MB"}, []float64{64e3, 1e6}},
		{[]string{"cubic", "3", "NaN"}, []float64{0, 1, 2}},
	} {
		var points [][]rundir.Value
		for _, v := range tt.values {
			points = append(points, []rundir.Value{{Name: "x", Value: v}})
		}
		d := &drawing{runs: pointsOf(t, points...)}
		if p, err := d.parameter(); err != nil || !slices.Equal(p.at, tt.want) {
			t.Errorf("%v: %v, %v, want %v", tt.values, p.at, err, tt.want)
		}
	}
}
