package plot

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
)

// The figure cv-time and the page of the report show the same imbalance of links.
func TestPageShowsTheSameImbalance(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 1, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := report.Input{RunID: "r"}
	for arm, name := range []string{"a", "b"} {
		rep := summary.Repeat{Fabric: f, Verdict: verdict.Missing("")}
		for _, l := range f.Links() {
			s := flows.LinkSeries{Link: l.ID, Name: f.LinkName(l.ID), Rate: l.Rate, Interval: 10 * time.Millisecond}
			for k := range 1000 * (arm + 1) { // uneven within and between intervals of 100 ms
				s.Bytes = append(s.Bytes, units.Bytes((7*k+1+k/50*int(l.ID))%97*int(l.ID+1)))
			}
			rep.Links = append(rep.Links, s)
		}
		in.Arms = append(in.Arms, report.Arm{Name: name, Repeats: []summary.Repeat{rep}})
	}
	var run *rundir.Run
	r, err := report.New(in)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := r.Page(&page, func(of *rundir.Run, figure, arm string) (string, []string, error) {
		run = of
		return OnPage(of, figure, arm)
	}); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(page.String(), `"balance":`)
	var charts []struct {
		BinUS  float64 `json:"bin_us"`
		Curves []struct{ Cv []*float64 }
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&charts); err != nil || len(charts) != 3 {
		t.Fatal(len(charts), err)
	}
	all := []series{{run: run, arm: "a"}, {run: run, arm: "b"}}
	bin := binFor(all, -1, mostMoments, fabricLink)
	for i, s := range all {
		l := loadsOf(s, 0, bin, fabricLink)
		curve := charts[0].Curves[i].Cv
		if len(curve) != l.Bins || charts[0].BinUS != float64(bin/time.Microsecond) || len(l.links) != 8 {
			t.Fatalf("arm %s: %d bins of %v µs on the page, %d of %v in the figure of %d links", s.arm, len(curve), charts[0].BinUS, l.Bins, bin, len(l.links))
		}
		for k, cv := range l.Imbalance() {
			if curve[k] == nil || math.Abs(*curve[k]-cv) > 1e-4 {
				t.Errorf("arm %s: Cv %v in bin %d of the figure, %v on the page", s.arm, cv, k, curve[k])
			}
		}
	}
}
