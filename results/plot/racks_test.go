package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/plotter"

	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/topo/palette"
	"testbed/topo/units"
)

// withRacks returns a run with racks whose links carry, for each second, a share of their capacity in the
// first of two directions.
func withRacks(t *testing.T, loads ...[]float64) *rundir.Run {
	t.Helper()
	r := full(t)
	like := r.Links[0].Key
	r.Links = nil
	for rack, load := range loads {
		for _, link := range []string{"leaf%d>spine0", "spine0>leaf%d"} {
			for k, x := range load {
				r.Links = append(r.Links, schema.Load{Key: like, Link: fmt.Sprintf(link, rack), Rate: 8 * units.Mbps, From: time.Duration(k) * time.Second, Interval: time.Second,
					Bytes: units.Bytes(x * 1e6)})
			}
			load = make([]float64, len(load))
		}
	}
	return r
}

func TestRacksMarkSaturation(t *testing.T) {
	r := withRacks(t, []float64{0.9, 0.9, 0, 0.9, 0.9}, []float64{0, 1, 1, 1.2, 0})
	svg, notes := drawSVG(t, "racks", Options{}, r)
	for _, want := range []string{"rack 0, saturated 0 %", "rack 1, saturated 60 %"} {
		if !slices.Contains(texts(t, svg), want) {
			t.Errorf("no %q in %q", want, texts(t, svg))
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "more than 80 % of the capacity for 3 intervals of 1s or more") {
		t.Errorf("notes %q", notes)
	}
	bars := slices.Concat(partsOf[boxes](t, "racks", r, Options{})...)
	if len(bars) != 1 || bars[0].x0 != 1 || bars[0].x1 != 4 || bars[0].y0 <= 120 || bars[0].fill != palette.Arm(1).Light {
		t.Errorf("marks %+v, want one of rack 1 from 1 to 4 s above the highest load", bars)
	}
	lines := partsOf[*plotter.Line](t, "racks", r, Options{})
	if len(lines) != 3 || len(lines[1].XYs) != 10 || lines[1].XYs[7] != (plotter.XY{X: 4, Y: 120}) || lines[2].XYs[0].Y != 80 {
		t.Errorf("%d lines, want two racks of 5 s and the bound", len(lines))
	}
}

// All repeats of an arm are in the figure unless one is chosen.
func TestRacksCombineRepeats(t *testing.T) {
	r := withRacks(t, []float64{0.9, 0.9, 0.9, 0})
	for _, l := range withRacks(t, []float64{0.5, 0.1}).Links { // a shorter repeat without saturation
		l.Repeat = 1
		r.Links = append(r.Links, l)
	}
	for _, c := range []struct {
		repeat       *int
		legend, head string
		loads        []float64
		tall         float64
		notes        int
	}{
		{nil, "rack 0, saturated 50 %", ", 2 repeats", []float64{70, 50, 45, 0}, 1.2, 2},
		{new(0), "rack 0, saturated 75 %", ", repeat 0", []float64{90, 90, 90, 0}, 2.4, 1},
	} {
		o := Options{Repeat: c.repeat}
		svg, notes := drawSVG(t, "racks", o, r)
		all := strings.Join(texts(t, svg), "\n")
		if !strings.Contains(all, c.legend) || !strings.Contains(all, c.head) || len(notes) != c.notes {
			t.Errorf("want %q, %q and %d notes: %s, %q", c.legend, c.head, c.notes, all, notes)
		}
		line := partsOf[*plotter.Line](t, "racks", r, o)[0]
		for k, want := range c.loads {
			if got := line.XYs[2*k].Y; math.Abs(got-want) > 1e-9 {
				t.Errorf("load %v in second %d, want %v", got, k, want)
			}
		}
		bars := slices.Concat(partsOf[boxes](t, "racks", r, o)...)
		if len(bars) != 1 || bars[0].x0 != 0 || bars[0].x1 != 3 || math.Abs(bars[0].y1-bars[0].y0-c.tall) > 1e-9 {
			t.Errorf("marks %+v, want one of 3 s and a height of %v", bars, c.tall)
		}
	}
	for k := range r.Links {
		if r.Links[k].Repeat == 1 {
			r.Links[k].Interval *= 2
			r.Links[k].From *= 2
		}
	}
	wantErr(t, "racks", Options{}, nil, "intervals of 2s in repeat 1, and of 1s before: they must be equal", r)
}

// Of too many racks, those that are saturated are drawn, in order.
func TestMostRacks(t *testing.T) {
	loads := slices.Repeat([][]float64{{0.5, 0.5, 0.5}}, mostRacks+1)
	loads[1], loads[mostRacks] = []float64{0.4, 0.4, 0.4}, []float64{0.9, 0.9, 0.9}
	svg, notes := drawSVG(t, "racks", Options{Height: 5 * Inch}, withRacks(t, loads...))
	shown := strings.Join(texts(t, svg), ", ")
	if strings.Contains(shown, "rack 1,") || !strings.Contains(shown, fmt.Sprintf("rack %d, saturated 100 %%", mostRacks)) || !slices.Contains(notes, "not drawn: 1 rack with less saturation or load") {
		t.Errorf("%s; notes %q", shown, notes)
	}
}

func TestRacksNeedEvenIntervals(t *testing.T) {
	r := withRacks(t, []float64{1, 1})
	r.Links[1].From = 2 * time.Second
	wantErr(t, "racks", Options{}, nil, "link leaf0>spine0 has one of 1s at 2s", r)
	r = withRacks(t, []float64{1, 1})
	r.Links[3].Interval = 2 * time.Second
	wantErr(t, "racks", Options{}, nil, "link spine0>leaf0 has one of 2s at 1s", r)
	r.Links = nil
	wantErr(t, "racks", Options{}, ErrNoData, "", r)
}
