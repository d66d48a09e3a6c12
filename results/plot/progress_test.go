package plot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/results/archive"
	"testbed/results/archive/archivetest"
	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestTogetherIsTheSum(t *testing.T) {
	const s = time.Second
	a := transfer{moments: []metrics.Moment{{Bytes: 0, At: 1 * s}, {Bytes: 100, At: 2 * s}, {Bytes: 100_000, At: 4 * s}}}
	b := transfer{moments: []metrics.Moment{{Bytes: 0, At: 3 * s}, {Bytes: 50, At: 5 * s}}}
	c := transfer{moments: []metrics.Moment{{Bytes: 7, At: 4 * s}}} // all at once
	want := []metrics.Moment{{Bytes: 0, At: 1 * s}, {Bytes: 100, At: 2 * s}, {Bytes: 50_050, At: 3 * s}, {Bytes: 100_032, At: 4 * s}, {Bytes: 100_057, At: 5 * s}}
	if got := together([]transfer{a, b, c}); !slices.Equal(got, want) {
		t.Errorf("together = %v, want %v", got, want)
	}
}

func TestRoundBin(t *testing.T) {
	for _, c := range []struct {
		end  time.Duration
		most int
		want time.Duration
	}{
		{0, 60, time.Microsecond}, {time.Second, 60, 20 * time.Millisecond}, {60 * time.Second, 60, 2 * time.Second}, {59*time.Second + 999, 60, time.Second}, {time.Hour, 60, 100 * time.Second},
	} {
		got := roundBin(c.end, c.most)
		if got != c.want || int(c.end/got)+1 > c.most {
			t.Errorf("roundBin(%v, %d) = %v, want %v", c.end, c.most, got, c.want)
		}
	}
}

// A coflow that is chosen is the one that is drawn, under the arm and in the repeat
// that were asked for, in shares or in bytes.
func TestCoflowIsChosen(t *testing.T) {
	spec := archivetest.Default()
	r := made(t, spec)
	three := workloads.CoflowID(3)
	o := Options{Coflow: &three, Arm: "sebf+sinbad", Repeat: 1, Bytes: true, Width: 6 * Inch}
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
	// A run whose report is of an older version has no such file.
	r.Progress = nil
	wantErr(t, "progress", Options{}, ErrNoData, "there is no progress.csv; testbed report ", r)
	wantErr(t, "goodput", Options{}, ErrNoData, "there is no progress.csv; testbed report ", r)
}

// Of a wide coflow a stack tells the last few flows to end from the others.
func TestWideCoflow(t *testing.T) {
	r := made(t, archivetest.Default())
	r.Progress = slices.DeleteFunc(r.Progress, func(m archive.Moment) bool { return m.Arm != "fair+hdfs" || m.Repeat != 0 || m.Kind != "flow" })
	all := workloads.CoflowID(0)
	for i := range r.Progress {
		r.Progress[i].Coflow = &all
	}
	for i := range r.Coflows {
		r.Coflows[i].CCT = max(r.Coflows[i].CCT, time.Minute)
		r.Coflows[i].Size = 24 * units.MB
	}
	svg, _ := drawSVG(t, "goodput", Options{Coflow: &all}, r)
	if got := texts(t, svg); !slices.Contains(got, "others, n = 19") || !slices.Contains(got, "fair+hdfs, repeat 0, coflow 0: n = 24 flows, 24 MB") {
		t.Errorf("it shows %q", got)
	}
}
