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

// Signals that a terminal sends to the group of a suite do not reach the program.
func TestCommandHasItsOwnGroup(t *testing.T) {
	out, err := program(t, "cat /proc/$$/stat").Command(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(out[strings.LastIndexByte(string(out), ')')+1:])) // state, parent, group, …
	if len(f) < 3 || f[2] != strings.Fields(string(out))[0] {
		t.Errorf("process %s: want a group of its own", out)
	}
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

// Both runs packets only where a part has them and -fluid does not exclude them. A void arm is an error
// with figures, and a run that fails one without.
func TestBoth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testbed")
	script := "#!/bin/sh\n[ $2 != broken -o $1 = sim ] || exit 1\necho '{\"run_id\": \"'$1'\"}'\n[ $1 = sim ] || exit 3\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		scenario       string
		packets, fluid bool
		want           [2]string // runs on the fluid model and on packets
		err            error
	}{
		{"a", false, false, [2]string{"sim"}, nil},
		{"a", true, true, [2]string{"sim"}, nil},
		{"a", true, false, [2]string{"sim", "run"}, ErrVoid},
		{"broken", true, false, [2]string{}, errors.New("")},
	} {
		o := Options{Testbed: path, Dir: t.TempDir(), Fluid: tt.fluid}
		fluid, measured, err := o.Both(t.Context(), tt.packets, tt.scenario)
		var got [2]string
		for i, s := range []*report.Summary{fluid, measured} {
			if s != nil {
				got[i] = s.RunID
			}
		}
		if got != tt.want || (err == nil) != (tt.err == nil) || errors.Is(err, ErrVoid) != errors.Is(tt.err, ErrVoid) {
			t.Errorf("%+v: runs %q, %v", tt, got, err)
		}
	}
}
