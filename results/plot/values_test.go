package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/topo/units"
)

// Speed-ups equal those of the report.
func TestSpeedupsAreThoseOfTheSummary(t *testing.T) {
	r := made(t, rundirtest.Default())
	for _, arm := range r.Arms()[1:] {
		sum := 0.0
		list := pair(r, "fair+hdfs", arm)
		for _, x := range list {
			sum += math.Log(x.Ratio)
		}
		want := r.Arm(arm).CCT.Paired
		if got := math.Exp(sum / float64(len(list))); math.Abs(got-want.GeoMean) > 1e-6 || len(list) != want.Pairs {
			t.Errorf("%s: geometric mean %v of %d, the summary has %v of %d", arm, got, len(list), want.GeoMean, want.Pairs)
		}
	}
}

// The number of items in a figure equals that in the summary.
func TestCountsAreThoseOfTheSummary(t *testing.T) {
	r := made(t, rundirtest.Default())
	svg, _ := drawSVG(t, "fct-cdf", Options{}, r)
	for _, a := range r.Summary.Arms {
		want := fmt.Sprintf("%s, n = %d", a.Name, a.FCT.N)
		if !slices.ContainsFunc(texts(t, svg), func(s string) bool { return strings.HasPrefix(s, want) }) || metrics.Summarize(r.Times("fct", a.Name)).N != a.FCT.N {
			t.Errorf("no %q", want)
		}
	}
}

// The average of a breakdown is the average CCT.
func TestBreakdownAddsUp(t *testing.T) {
	r := made(t, rundirtest.Default())
	for i := range r.Breakdown { // coflows of repeat 0 lack a cause in the file
		if r.Breakdown[i].Repeat == 0 {
			r.Breakdown[i].Time = 0
		}
	}
	for _, arm := range r.Arms() {
		b := causesOf(series{run: r, arm: arm}, nil)
		n, total := b.N, time.Duration(0)
		for _, t := range b.Sum {
			total += t
		}
		want := time.Duration(0)
		for _, x := range r.Times("cct", arm) {
			if x.Repeat == 1 {
				want += x.Time
			}
		}
		if n != 24 || total != want {
			t.Errorf("%s: shares of %d coflows add up to %v, want %v", arm, n, total, want)
		}
	}
	// Causes in the table of coflows take precedence.
	held := 3 * time.Second
	r.Coflows[0].Held = &held
	if b := causesOf(series{run: r, arm: "fair+hdfs"}, nil); b.N != 1 || len(b.Sum) != 1 || b.Sum[breakdown.Held] != held {
		t.Errorf("causes %v of %d", b.Sum, b.N)
	}
}

// The bytes of hosts add up to those of blocks and their replicas, and hosts without blocks count in the Cv.
func TestDisksHoldAllBlocks(t *testing.T) {
	r := made(t, rundirtest.Default())
	want := 0.0
	for _, b := range r.Blocks {
		if b.Arm == "sebf+hdfs" {
			want += float64(b.Size) * float64(len(b.Hosts)) / 1e6 / 2
		}
	}
	columns := slices.Concat(partsOf[boxes](t, "disks", r, Options{Arm: "sebf+hdfs"})...)
	got := 0.0
	for _, x := range columns {
		got += x.y1
	}
	if math.Abs(got-want) > 1e-9 || want == 0 {
		t.Errorf("columns of %v MB, want %v", got, want)
	}
	if !slices.ContainsFunc(columns, func(x box) bool { return x.y1 == 0 }) {
		t.Error("no column of h2-00, which only the samples name")
	}
	r.Links = append(r.Links, schema.Load{Link: "h7-00>leaf7"})
	if n := len(slices.Concat(partsOf[boxes](t, "disks", r, Options{Arm: "sebf+hdfs"})...)); n != len(columns)+1 {
		t.Errorf("%d columns with another host, want %d", n, len(columns)+1)
	}
}

func TestLoadsAreBinned(t *testing.T) {
	r := &rundir.Run{}
	add := func(link string, at int, bytes units.Bytes) {
		r.Links = append(r.Links, schema.Load{Key: schema.Key{Arm: "a"}, Link: link, Rate: 8 * units.Mbps, From: time.Duration(at) * time.Second, Interval: time.Second, Bytes: bytes})
	}
	for i := range 7 {
		add("x", i, units.Bytes(i)*100_000)
		if i != 2 && i != 3 {
			add("y", i, 1_000_000)
		}
	}
	r.Links = append(r.Links, schema.Load{Key: schema.Key{Arm: "a", Repeat: 1}, Link: "z", Rate: 1, Interval: 1})
	s, keep := series{run: r, arm: "a"}, func(string) bool { return true }
	l := loadsOf(s, 0, binFor([]series{s}, 0, 4, keep), keep)
	want := [][]float64{{0.05, 0.25, 0.45, 0.6}, {1, math.NaN(), 1, 1}} // of 1 MB each second
	if l.Bin != 2*time.Second || !slices.Equal(l.links, []string{"x", "y"}) {
		t.Fatalf("loads %+v", l)
	}
	for i := range want {
		for k := range want[i] {
			if got := l.Of(i, k); math.Abs(got-want[i][k]) > 1e-9 || math.IsNaN(got) != math.IsNaN(want[i][k]) {
				t.Errorf("link %d, bin %d: %v, want %v", i, k, got, want[i][k])
			}
		}
	}
}

// Every attempt is in the chart with all of its time, and no two overlap in a row.
func TestGanttShowsAllAttempts(t *testing.T) {
	r := withTasks(t)
	const arm, repeat = "sebf+hdfs", 1
	type bar struct{ from, to float64 }
	rows := map[float64][]bar{}
	var drawn float64
	for _, part := range partsOf[boxes](t, "gantt", r, Options{Arm: arm, Repeat: new(repeat)}) {
		for _, x := range part {
			rows[(x.y0+x.y1)/2] = append(rows[(x.y0+x.y1)/2], bar{x.x0, x.x1})
			drawn += x.x1 - x.x0
		}
	}
	var slotTime float64
	ended, copies := 0, 0
	for _, a := range r.Attempts {
		if a.Arm == arm && a.Repeat == repeat {
			slotTime += a.Time.Seconds()
			if a.Outcome != flows.Committed {
				ended++
			}
			if a.Outcome == flows.Copied {
				copies++
			}
		}
	}
	if math.Abs(drawn-slotTime) > 1e-6 || len(rows) != 24 {
		t.Errorf("%v s in %d slots are drawn, want %v in 24", drawn, len(rows), slotTime)
	}
	for y, bars := range rows {
		slices.SortFunc(bars, func(a, b bar) int { return cmp.Compare(a.from, b.from) })
		for i := 1; i < len(bars); i++ {
			if bars[i].from < bars[i-1].to-1e-9 {
				t.Errorf("row %v: %v begins before %v ends", y, bars[i], bars[i-1])
			}
		}
	}
	kinds := partsOf[*marks](t, "gantt", r, Options{Arm: arm, Repeat: new(repeat)}) // first, copied, killed or failed
	backups := partsOf[underlines](t, "gantt", r, Options{Arm: arm, Repeat: new(repeat)})
	if len(kinds) != 3 || len(backups) != 1 || len(kinds[0].at) == 0 || copies == 0 || len(kinds[1].at) != copies || len(kinds[2].at) != ended-copies || len(backups[0].boxes) < copies {
		t.Errorf("%d kinds of marks, backups %v: want %d copies of %d attempts that did not commit", len(kinds), backups, copies, ended)
	}
}

// Student's 97.5 % quantile with 2 degrees of freedom is 4.3027.
func TestInterval(t *testing.T) {
	low, high := interval([]float64{1, 2, 3})
	if half := 4.302653 / math.Sqrt(3); math.Abs(low-(2-half)) > 1e-4 || math.Abs(high-(2+half)) > 1e-4 {
		t.Errorf("interval %v to %v, want 2 ± %v", low, high, half)
	}
}

// Fewer repeats than metrics.LeastPairs have no interval; a note gives the reason.
func TestFewRepeatsHaveNoInterval(t *testing.T) {
	for _, n := range []int{1, metrics.LeastPairs - 1, metrics.LeastPairs} {
		r := full(t)
		one := r.Coflows[0]
		r.Coflows, r.Arm(one.Arm).Repeats = nil, n
		for i := range n {
			one.Repeat, one.CCT = i, time.Duration(10+i)*time.Second
			r.Coflows = append(r.Coflows, one)
		}
		_, notes := drawSVG(t, "repeats", Options{}, r)
		if few := slices.ContainsFunc(notes, func(s string) bool {
			return strings.Contains(s, "no interval: fewer than 8 independent repeats")
		}); few != (n < metrics.LeastPairs) {
			t.Errorf("%d repeats: notes %q", n, notes)
		}
	}
}
