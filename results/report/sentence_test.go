package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// armWith returns an arm with a CCT that has a speed-up; a zero value is none.
func armWith(name string, level verdict.Level, value, low, high float64) summary.Arm {
	a := summary.Arm{Name: name}
	a.CCT = &summary.Metric{N: 20, MeanUS: 1_234_000}
	if level != 0 {
		a.Verdict = &level
	}
	if level == verdict.Void {
		a.CCT = nil
	} else if value != 0 {
		a.CCT.Paired = &summary.PairedSpeedup{GeoMean: value, GeoMeanCI: metrics.Interval{Low: low, High: high}}
	}
	return a
}

func TestSentence(t *testing.T) {
	const pass, degraded, void = verdict.Pass, verdict.Degraded, verdict.Void
	fair := armWith("fair", pass, 0, 0, 0)
	unmodelled := armWith("bbr", 0, 0, 0, 0)
	unmodelled.Unmodelled = []string{"fabric.congestion_control"}
	moved := armWith("sinbad", pass, 2, 1.5, 3)
	moved.Placement = &summary.Placement{NotLikeForLike: []string{"x"}}
	for want, s := range map[string]summary.Run{
		"sebf is 2.82× [1.88, 4.20] faster than fair (CCT); both arms pass.":                                        {Arms: []summary.Arm{fair, armWith("sebf", pass, 2.82, 1.88, 4.2)}},
		"scf is 2.00× [1.25, 4.00] slower than fair (CCT); both arms pass.":                                         {Arms: []summary.Arm{fair, armWith("scf", pass, 0.5, 0.25, 0.8)}},
		"b: not significantly different from fair; 1 of 2 arms pass; degraded: b.":                                  {Arms: []summary.Arm{fair, armWith("b", degraded, 1.1, 0.9, 1.3)}},
		"b: fewer than 8 independent pairs; both arms pass.":                                                        {Arms: []summary.Arm{fair, armWith("b", pass, 1.1, 0, 0)}},
		"b: nothing in common with fair; the run does not have all of its trials; both arms pass.":                  {Arms: []summary.Arm{fair, armWith("b", pass, 0, 0, 0)}, Partial: &summary.Partial{}},
		"sinbad is 2.00× [1.50, 3.00] faster than fair (CCT), not like for like; both arms pass.":                   {Arms: []summary.Arm{fair, moved}},
		"there are no speed-ups, because the baseline fair has no figures; 1 of 2 arms pass; void: fair.":           {Arms: []summary.Arm{armWith("fair", void, 0, 0, 0), armWith("b", pass, 0, 0, 0)}},
		"fair has no figures; 0 of 1 arm pass; void: fair.":                                                         {Arms: []summary.Arm{armWith("fair", void, 0, 0, 0)}},
		"nothing was measured; it passes.":                                                                          {Arms: []summary.Arm{{Name: "fair", Verdict: fair.Verdict}}},
		"fair has an average CCT of 1.234 s (n = 20); it passes.":                                                   {Arms: []summary.Arm{fair}},
		"bbr: the fluid model does not model fabric.congestion_control; computed by the fluid model, not measured.": {Source: summary.SourceFluidModel, Arms: []summary.Arm{armWith("fair", 0, 0, 0, 0), unmodelled}},
		"d is 4.00× [3.00, 5.00] faster than fair (CCT); b is 3.00× [2.00, 4.00] faster; e is 2.00× [1.50, 3.00] faster; 1 more arm differs significantly; " +
			"x, y, z, 1 more: not significantly different from fair; 7 of 10 arms pass; degraded: x, y; void: v.": {Arms: []summary.Arm{fair,
			armWith("c", pass, 0.5, 0.4, 0.6), armWith("b", pass, 3, 2, 4), armWith("d", pass, 4, 3, 5), armWith("e", pass, 2, 1.5, 3),
			armWith("x", degraded, 1, 0.9, 1.1), armWith("y", degraded, 1, 0.9, 1.1), armWith("z", pass, 1, 0.9, 1.1), armWith("w", pass, 1, 0.9, 1.1), armWith("v", void, 0, 0, 0)}},
	} {
		s.Baseline = "fair"
		if got := s.Sentence(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// All forms of a report have the sentence: the page and Markdown at their top, after what was compared, a terminal at its
// end.
func TestReportsStateTheResult(t *testing.T) {
	in := coflowsOf(10)
	in.Ran = "2 arms: a, b, on a fabric."
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	want := r.Summary.Sentence()
	var terminal, markdown, page bytes.Buffer
	if err := errors.Join(r.Terminal(&terminal), r.Markdown(&markdown), r.Page(&page, noFigures)); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(page.String(), "<p class=\"ran\">"+in.Ran+"</p>\n<p class=\"result\">Result: "+want+"</p>")
	inMarkdown := strings.Index(markdown.String(), "\n"+in.Ran+"\n\n**"+want+"**\n")
	if at < 0 || at > strings.Index(page.String(), "<nav") || inMarkdown < 0 || inMarkdown > strings.Index(markdown.String(), "##") ||
		!strings.HasSuffix(strings.Join(strings.Fields(terminal.String()), " "), " Result: "+want) {
		t.Errorf("no report states %q where it should (page: %d):\n%s\n%s", want, at, &terminal, &markdown)
	}
}

func TestSentenceOfSweep(t *testing.T) {
	point := func(dir string, arms ...summary.Arm) SweepPoint {
		return SweepPoint{Dir: dir, Summary: &summary.Run{Baseline: "fair", Arms: append([]summary.Arm{armWith("fair", verdict.Pass, 0, 0, 0)}, arms...)}}
	}
	s := Sweep{Missing: []string{"over=9to1"}, Points: []SweepPoint{
		point("over=1to1", armWith("fifo", verdict.Pass, 1, 0.9, 1.1), armWith("sebf", verdict.Pass, 0.5, 0.4, 0.8)),
		point("over=3to1", armWith("fifo", verdict.Pass, 1, 0.9, 1.1), armWith("sebf", verdict.Degraded, 1.1, 0.9, 1.3)),
		point("over=5to1", armWith("fifo", verdict.Void, 0, 0, 0), armWith("sebf", verdict.Pass, 2.82, 1.88, 4.2)),
	}}
	want := "sebf differs significantly from fair (CCT) at 2 of 3 points: 2.82× [1.88, 4.20] faster at over=5to1 to 2.00× [1.25, 2.50] slower at over=1to1; " +
		"fifo differs significantly from fair (CCT) at 0 of 3 points; no trial has ended of 1 point; verdicts: 7 pass, 1 degraded, 1 void."
	if got := s.Sentence(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// The order is by value with one arm too.
	s = Sweep{Points: []SweepPoint{
		point("load=0.2", armWith("sebf", verdict.Pass, 1.06, 1.03, 1.12)),
		point("load=0.5", armWith("sebf", verdict.Pass, 1.14, 1.07, 1.23)),
		point("load=0.8", armWith("sebf", verdict.Pass, 1.07, 1.03, 1.14)),
	}}
	want = "at 3 of 3 points: 1.14× [1.07, 1.23] faster at load=0.5 to 1.06× [1.03, 1.12] faster at load=0.2;"
	if got := s.Sentence(); !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// An arm that the model does not cover is compared at no point.
	bbr := summary.Arm{Name: "bbr", Unmodelled: []string{"fabric.congestion_control"}}
	s = Sweep{Points: []SweepPoint{point("load=0.2", bbr), point("load=0.5", bbr)}}
	if got, want := s.Sentence(), "bbr: the fluid model does not model fabric.congestion_control; "; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s…", got, want)
	}
}
