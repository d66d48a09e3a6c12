package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// Looks go on while the interval of an arm is wide, and do not wait for void arms. Every form of a report states them.
func TestLooksOfAReport(t *testing.T) {
	in := coflowsOf(metrics.LeastPairs)
	in.Looks = metrics.NewLooks([]int{1, 2}, map[string]float64{"cct": 0.01})
	if !in.Look() {
		t.Fatalf("stopped: %v", in.Looks)
	}
	if in.Look() || !strings.Contains(in.Looks.Why, "it was the last look; the widest interval is that of cct of arm1: ±") {
		t.Fatalf("%v", in.Looks)
	}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	var terminal, markdown, page bytes.Buffer
	if err := errors.Join(r.TerminalIn(&terminal, tables.Style{Width: 1000}), r.Markdown(&markdown), r.Page(&page, noFigures)); err != nil {
		t.Fatal(err)
	}
	for form, b := range map[string]*bytes.Buffer{"terminal": &terminal, "markdown": &markdown, "page": &page} {
		if !strings.Contains(b.String(), "at look 2 of 2") || !strings.Contains(b.String(), "97.50 %") {
			t.Errorf("%s does not state the looks:\n%.2000s", form, b)
		}
	}
	for arm := range in.Arms {
		in := coflowsOf(metrics.LeastPairs)
		in.Looks = metrics.NewLooks([]int{1, 2}, map[string]float64{"cct": 0.01})
		in.Arms[arm].Repeats[0].Verdict.Level = verdict.Void
		if in.Look() || in.Looks.Why != "no arm can be compared with the baseline; no interval of cct" || in.Looks.Repeats != 1 {
			t.Errorf("arm %d void: %v", arm, in.Looks)
		}
	}
}
