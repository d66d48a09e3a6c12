package suite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/results/breakdown"
	"testbed/results/report"
	"testbed/results/verdict"
)

func program(t *testing.T, script string) Program {
	t.Helper()
	p := Program{Path: filepath.Join(t.TempDir(), "testbed"), Dir: "runs"}
	if err := os.WriteFile(p.Path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRun(t *testing.T) {
	const figures = `echo '{"run_id": "'$1-$3'", "arms": [{"name": "fair"}]}'; `
	for _, tt := range []struct {
		name, script string
		read, void   bool
		want         string
	}{
		{"passes", figures, true, false, ""},
		{"void arm", figures + "exit 3", true, true, "void"},
		{"fails", figures + "exit 1", false, false, "exit status 1"},
		{"not JSON", "echo no", false, false, "testbed run --json: "},
	} {
		s, err := program(t, tt.script).Run(context.Background(), "run", "x.yaml", "--set", "a=b")
		if (s != nil) != tt.read || errors.Is(err, ErrVoid) != tt.void || tt.want == "" && err != nil || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", tt.name, s, err)
		}
		if s != nil && (s.RunID != "run---out" || len(s.Arms) != 1) {
			t.Errorf("%s: %+v", tt.name, s)
		}
	}
}

func TestPassed(t *testing.T) {
	degraded := verdict.Degraded
	a := report.ArmSummary{Verdict: &degraded, Verdicts: []verdict.Verdict{{Level: verdict.Pass}, {Level: verdict.Degraded}, {Level: verdict.Pass}}}
	if got := Passed(a); got != "degraded (2 of 3 pass)" {
		t.Errorf("Passed = %q", got)
	}
	if got := Passed(report.ArmSummary{}); got != "no verdict" {
		t.Errorf("Passed of an arm without a verdict = %q", got)
	}
}

func TestWhereTimeWent(t *testing.T) {
	var out strings.Builder
	r := NewReport(&out)
	arms := []report.ArmSummary{
		{Name: "fair", CCT: &report.Metric{N: 2}, Time: &report.TimeSummary{CoflowsUS: map[breakdown.Cause]float64{breakdown.Queueing: 3000}}},
		{Name: "none"},
	}
	if err := r.WhereTimeWent(arms, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| fair |", " 1.5 |", "| none |", "– |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorIsKept(t *testing.T) {
	r := NewReport(broken{})
	r.Say("a")
	if err := r.End(); err == nil || err.Error() != "disk full" {
		t.Errorf("End = %v", err)
	}
}
