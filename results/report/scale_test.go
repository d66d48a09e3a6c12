package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/workloads"
)

// halves returns a report with n coflows whose second arm is twice as fast, and its scaled
// half in which its speed-up is scaledSpeedup.
func halves(t *testing.T, n int, scaledSpeedup float64, levels [4]verdict.Level) *Report {
	t.Helper()
	arm := func(name string, speedup float64, level verdict.Level) Arm {
		var rec flows.Records
		for i := range n {
			rec.Coflows = append(rec.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(i), Width: 1, Size: 1000, End: time.Duration(float64(time.Second+time.Duration(i)*time.Millisecond) / speedup)})
		}
		return Arm{Name: name, Repeats: []summary.Repeat{{Records: rec, Verdict: verdict.Verdict{Level: level}}}}
	}
	half, err := New(Input{RunID: "r-scaled", Scenario: "s", Arms: []Arm{arm("fair", 1, levels[2]), arm("sebf", scaledSpeedup, levels[3])}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Input{RunID: "r", Scenario: "s", Arms: []Arm{arm("fair", 1, levels[0]), arm("sebf", 2, levels[1])}, Scaled: &Scaled{By: "2", Report: half}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestScaleCheck(t *testing.T) {
	const p, void = verdict.Pass, verdict.Void
	tests := []struct {
		name     string
		n        int
		scaled   float64
		levels   [4]verdict.Level
		want     summary.Scaling
		compared int
		says     string
	}{
		{"the same", 20, 2, [4]verdict.Level{p, p, p, p}, summary.ScaleInvariant, 2, "rates and sizes divided by 2: scale-invariant within the interval."},
		{"moved", 20, 1.5, [4]verdict.Level{p, p, p, p}, summary.NotScaleInvariant, 2, "2.00× [2.00, 2.00]"},
		{"too few", 7, 1.5, [4]verdict.Level{p, p, p, p}, summary.ScaleUnknown, 2, "fewer than 8 independent"},
		{"void at full scale", 20, 1.5, [4]verdict.Level{p, void, p, p}, summary.ScaleUnknown, 0, "sebf is void at full scale"},
		{"void baseline, scaled", 20, 1.5, [4]verdict.Level{p, p, void, p}, summary.ScaleUnknown, 0, "fair is void scaled"},
		{"nothing measured", 0, 1, [4]verdict.Level{p, p, p, p}, summary.ScaleUnknown, 0, "no coflow or block in common"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := halves(t, tt.n, tt.scaled, tt.levels)
			c := r.Summary.ScaleCheck
			if c.Outcome != tt.want || len(c.Compared) != tt.compared {
				t.Errorf("outcome %q with %d comparisons, want %q with %d", c.Outcome, len(c.Compared), tt.want, tt.compared)
			}
			if got, want := c.Worst(), max(tt.levels[2], tt.levels[3]); got != want {
				t.Errorf("the scaled half is %v, want %v", got, want)
			}
			for _, write := range []func(*bytes.Buffer) error{func(b *bytes.Buffer) error { return r.Terminal(b) }, func(b *bytes.Buffer) error { return r.Markdown(b) }} {
				var b bytes.Buffer
				if err := write(&b); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(strings.ReplaceAll(b.String(), "\n", " "), tt.says) { // undo line breaks
					t.Errorf("no %q in\n%s", tt.says, &b)
				}
			}
		})
	}
}
