package plot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/topo/units"
	"testbed/workloads"
)

// The selected coflow is drawn, in the selected arm and repeat, in shares or bytes.
func TestCoflowIsChosen(t *testing.T) {
	spec := rundirtest.Default()
	r := made(t, spec)
	three := workloads.CoflowID(3)
	o := Options{Coflow: &three, Arm: "sebf+sinbad", Repeat: new(1), Bytes: true, Width: 6 * Inch}
	svg, notes := drawSVG(t, "progress", o, r)
	got := strings.Join(texts(t, svg), "|")
	for _, want := range []string{"sebf+sinbad (degraded), repeat 1, coflow 3: n = 2 flows, ", "Received of each flow (MB)", "last to end: flow "} {
		if !strings.Contains(got, want) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	if strings.Contains(got, "coflow in all") || slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "the slowest") }) {
		t.Errorf("in bytes of a chosen coflow: %q, notes %q", got, notes)
	}
	o.Bytes = false
	svg, _ = drawSVG(t, "goodput", o, r)
	got = strings.Join(texts(t, svg), "|")
	for _, want := range []string{"sebf+sinbad (degraded), repeat 1, coflow 3: n = 2 flows, ", "flow 6, ", "flow 7, ", "Goodput (Mbps)"} {
		if !strings.Contains(got, want) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	// A run with a report of an older version has no such file.
	r.Progress = nil
	wantErr(t, "progress", Options{}, ErrNoData, "there is no progress.csv (testbed report ", r)
	wantErr(t, "goodput", Options{Coflow: &three}, ErrNoData, "there is no progress.csv (testbed report ", r)
}

// For a wide coflow, a stack distinguishes the last flows to end from the others.
func TestWideCoflow(t *testing.T) {
	r := made(t, rundirtest.Default())
	r.Progress = slices.DeleteFunc(r.Progress, func(m schema.Moment) bool { return m.Arm != "fair+hdfs" || m.Repeat != 0 || m.Kind != "flow" })
	all := workloads.CoflowID(0)
	for i := range r.Progress {
		r.Progress[i].Coflow = &all
	}
	for i := range r.Coflows {
		r.Coflows[i].CCT = max(r.Coflows[i].CCT, time.Minute)
		r.Coflows[i].Size = 24 * units.MB
	}
	svg, _ := drawSVG(t, "goodput", Options{Coflow: &all}, r)
	if got := texts(t, svg); !slices.Contains(got, "others, n = 19") || !slices.Contains(got, "fair+hdfs, repeat 0, coflow 0: n = 24 flows, 24.0 MB") {
		t.Errorf("it shows %q", got)
	}
}
