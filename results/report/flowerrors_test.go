package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Four flows of 10 KB and one of 10 MB, over idle links of 10 Mbps: the small ones are 47 % early,
// which is the case for the median and the average of FCT, and for P95 and P99 only with a
// tolerance below their error.
func TestEarlyFiguresAreMarked(t *testing.T) {
	shape := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Bytes: units.MB}, MTU: 1500}
	fabric, err := shape.Build()
	if err != nil {
		t.Fatal(err)
	}
	framing := metrics.Framing{Payload: 1448, Headers: 66}
	errors := metrics.NewFlowErrors(fabric, framing, func(units.Rate) units.Bytes { return 2460 })
	var r flows.Records
	for i := range 5 {
		f := flows.FlowRecord{Flow: workloads.FlowID(i), Src: "h0-00", Dst: "h1-00", Size: 10 * units.KB, End: 6400 * time.Microsecond}
		if i == 4 {
			f.Size, f.End = 10*units.MB, 8*time.Second
		}
		r.Flows = append(r.Flows, f)
	}
	report := func(change func(*Input)) *Report {
		rep := summary.Repeat{Records: r, Verdict: pass(), FlowErrors: errors}
		in := Input{RunID: "r", Scenario: "s", Arms: []Arm{{Name: "fair", Repeats: []summary.Repeat{rep}}}}
		change(&in)
		out, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		change func(*Input)
		early  []string
		says   []string
		not    string
	}{
		{"default", func(*Input) {}, []string{"p50_us"}, []string{"6.40 ms†", "within a rack 1.5KB -100.0 %, 10KB -33.2 %", "across racks 1.5KB -100.0 %, 10KB -46.7 %, 50KB -12.3 %, 250KB -2.6 %", "†: may be early by more than 5 %"}, ""},
		{"strict", func(in *Input) { in.FlowTolerance = 1e-4 }, []string{"mean_us", "p50_us", "p95_us", "p99_us"}, []string{"†: may be early by more than 0 %"}, ""},
		{"large flows alone", func(in *Input) { in.Arms[0].Repeats[0].Records.Flows = r.Flows[4:] }, nil, nil, "Short flows"},
		{"no buckets in the captures", func(in *Input) { in.Arms[0].Repeats[0].FlowErrors = nil }, nil, nil, "rack"},
	} {
		out := report(c.change)
		if got := out.Summary.Arms[0].FCT.Early; !slices.Equal(got, c.early) {
			t.Errorf("%s: early %v, want %v", c.name, got, c.early)
		}
		if got, want := *out.Summary.Arms[0].Verdict, verdict.Pass; slices.Contains(c.early, "p50_us") {
			checks := out.Summary.Arms[0].Verdicts[0].Checks
			if got != verdict.Degraded || !strings.Contains(checks[len(checks)-1].Reason, "link_model: store-and-forward") {
				t.Errorf("%s: verdict %v, checks %+v", c.name, got, checks)
			}
		} else if got != want {
			t.Errorf("%s: verdict %v, want %v", c.name, got, want)
		}
		var text bytes.Buffer
		if err := out.Markdown(&text); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.says {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: the report does not say %q:\n%s", c.name, want, text.String())
			}
		}
		if c.not != "" && strings.Contains(text.String(), c.not) {
			t.Errorf("%s: the report says %q:\n%s", c.name, c.not, text.String())
		}
	}
}
