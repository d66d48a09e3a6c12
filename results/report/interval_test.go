package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/results/verdict"
	"testbed/workloads"
)

// coflowsOf returns two arms with n coflows in one repeat; the second arm is faster.
func coflowsOf(n int) Input {
	in := Input{RunID: "r", Scenario: "s"}
	for arm := range 2 {
		var r flows.Records
		for i := range n {
			end := time.Duration(1000-100*arm+17*i*(3*arm+1)) * ms
			r.Coflows = append(r.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(1 + i), Width: 1, Size: 1000, End: end})
			r.Flows = append(r.Flows, flows.FlowRecord{Coflow: workloads.CoflowID(1 + i), Flow: workloads.FlowID(i), Src: "h0-00", Dst: "h0-01", Size: 1000, End: end})
		}
		in.Arms = append(in.Arms, Arm{Name: fmt.Sprint("arm", arm), Repeats: []summary.Repeat{{Records: r, Verdict: verdict.Verdict{Level: verdict.Pass}}}})
	}
	return in
}

// Every form of a report has intervals for metrics.LeastPairs coflows, none for fewer, and
// states why there is none.
func TestFewPairsHaveNoInterval(t *testing.T) {
	numbers := regexp.MustCompile(`\d\.\d\d×? \[\d|"(mean_ratio|median|geo_mean)_ci": \[`)
	for _, n := range []int{2, metrics.LeastPairs - 1, metrics.LeastPairs} {
		r, err := New(coflowsOf(n))
		if err != nil {
			t.Fatal(err)
		}
		var terminal, markdown, data, table, page bytes.Buffer
		if err := errors.Join(r.TerminalIn(&terminal, tables.Style{Width: 200}), r.Markdown(&markdown), r.JSON(&data), r.HeadlineCSV(&table), r.Page(&page, noFigures)); err != nil {
			t.Fatal(err)
		}
		few := n < metrics.LeastPairs
		for form, b := range map[string]*bytes.Buffer{"terminal": &terminal, "markdown": &markdown, "JSON": &data, "page": &page} {
			if numbers.Match(b.Bytes()) == few {
				t.Errorf("%d coflows, %s: intervals: %t\n%.3000s", n, form, !few, b)
			}
			if form != "JSON" && few && !strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), metrics.FewPairs) {
				t.Errorf("%d coflows, %s: does not say %q", n, form, metrics.FewPairs)
			}
		}
		p := r.Summary.Arms[1].CCT.Paired
		if blank := strings.Contains(table.String(), fmt.Sprintf(",%v,,,%v,,,%v,,,", p.MeanRatio, p.Median, p.GeoMean)); blank != few {
			t.Errorf("%d coflows: empty intervals in CSV: %t\n%s", n, blank, table.String())
		}
		if noise := strings.Contains(terminal.String(), "Run-to-run noise is unknown: there is one repeat."); noise == few {
			t.Errorf("%d coflows: says that noise is unknown: %t\n%s", n, noise, terminal.String())
		}
	}
}

// Older versions wrote intervals for any number of clusters.
func TestOldSummaryOfFewPairs(t *testing.T) {
	for _, n := range []int{2, metrics.LeastPairs} {
		var p summary.PairedSpeedup
		if err := json.Unmarshal(fmt.Appendf(nil, `{"clusters": %d, "geo_mean": 1.5, "geo_mean_ci": [1.1, 2]}`, n), &p); err != nil || p.GeoMeanCI.Known() != (n >= metrics.LeastPairs) || p.GeoMean != 1.5 {
			t.Errorf("%d clusters: %+v, %v", n, p, err)
		}
	}
}

// A calibrated noise widens intervals, and the report states it.
func TestNoiseWidens(t *testing.T) {
	in := coflowsOf(12)
	bare, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Noise = &metrics.Noise{Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Pairs: 40,
		Total: map[string]metrics.Deviations{"cct": {GeoMean: 0.25}}, Between: map[string]metrics.Deviations{"cct": {MeanRatio: 0.2, Median: 0.2, GeoMean: 0.2}}}
	wide, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	a, b := bare.Summary.Arms[1].CCT.Paired, wide.Summary.Arms[1].CCT.Paired
	for name, x := range map[string][2]metrics.Interval{"averages": {a.MeanRatioCI, b.MeanRatioCI}, "median": {a.MedianCI, b.MedianCI}, "geometric mean": {a.GeoMeanCI, b.GeoMeanCI}} {
		if !(x[1].Low < x[0].Low*0.8 && x[1].High > x[0].High*1.2) {
			t.Errorf("%s: %v with a noise of 20 %%, %v without", name, x[1], x[0])
		}
	}
	if c, d := bare.Summary.Arms[1].FCT.Paired, wide.Summary.Arms[1].FCT.Paired; *c != *d {
		t.Errorf("FCT, of which no noise is known: %+v, then %+v", c, d)
	}
	var text bytes.Buffer
	if err := wide.TerminalIn(&text, tables.Style{Width: 400}); err != nil {
		t.Fatal(err)
	}
	if want := "(2026-01-02, 40 pairs), the geometric means of two identical runs differed with a standard deviation of CCT 25.0 %"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
}

// Repeats of the same number are paired, and only those: they have the same workload.
func TestRepeatsArePairedByNumber(t *testing.T) {
	repeat := func(took time.Duration) summary.Repeat {
		var r flows.Records
		for c := range 10 {
			r.Coflows = append(r.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(c), Width: 1, End: took})
		}
		return summary.Repeat{Records: r}
	}
	in := Input{RunID: "x", FluidModel: true, Arms: []Arm{
		{Name: "a", Repeats: []summary.Repeat{repeat(time.Second), repeat(3 * time.Second)}, Numbers: metrics.NumbersOf([]int{0, 2})},
		{Name: "b", Repeats: []summary.Repeat{repeat(3 * time.Second)}, Numbers: metrics.NumbersOf([]int{2})},
		{Name: "c", Repeats: []summary.Repeat{repeat(3 * time.Second)}, Numbers: metrics.NumbersOf([]int{1})},
	}}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Summary.Arms[1].CCT.Paired; p == nil || p.Pairs != 10 || p.GeoMean != 1 {
		t.Errorf("repeat 2 of a and b: %+v, want 10 pairs with ratio 1", p)
	}
	if p := r.Summary.Arms[2].CCT.Paired; p != nil {
		t.Errorf("a and c have no repeat in common, but %+v", p)
	}
	var csv bytes.Buffer
	if err := csvOf(r.coflows())(&csv); err != nil {
		t.Fatal(err)
	}
	if rows := csv.String(); strings.Count(rows, "\nb,2,") != 10 || strings.Count(rows, "\nc,1,") != 10 || strings.Contains(rows, "\na,1,") {
		t.Errorf("rows:\n%s", rows)
	}
}
