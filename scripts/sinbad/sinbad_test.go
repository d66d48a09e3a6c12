package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	stats "testbed/results/metrics"
	"testbed/scripts/suite"
)

func TestExpected(t *testing.T) {
	all, err := readExpected("expected.yaml")
	if err != nil {
		t.Fatal(err)
	}
	papers := map[string]float64{}
	for _, f := range all {
		if f.Paper > 0 {
			papers[f.ID] = f.Paper
		}
	}
	// These are the paper's figures.
	want := map[string]float64{"rack/write_time": 1.58, "rack/request_time": 1.29, "rack/job_time": 1.26, "rack/cv_drop": 0.33, "rack/imbalance": 0.0057, "rack/bound": 1.89,
		"diskless/write_time": 1.6, "diskless/job_time": 1.33, "edge/write_time": 1.3, "edge/job_time": 1.26, "hundred/write_time": 1.58,
		"large/write_time": 1.58, "large/bound": 1.89, "large/cv_drop": 0.33, "large/imbalance": 0.0057}
	if d := cmp.Diff(want, papers); d != "" {
		t.Errorf("the paper's figures (-want +got):\n%s", d)
	}
}

func TestExpectedRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"figures: [{id: rack/speed, what: a, why: b}]":                                              `unknown figure "rack/speed"`,
		"figures: [{id: attic/write_time, what: a, why: b}]":                                        `unknown figure "attic/write_time"`,
		"figures: [{id: rack/write_time, what: a, why: b}, {id: rack/write_time, what: a, why: b}]": "already listed",
		"figures: [{id: rack/write_time, what: a}]":                                                 "must have what and why",
		"figures: [{id: rack/write_time, what: a, why: b, low: 2, high: 1}]":                        "low at most high",
		"figures: [{id: rack/write_time, what: a, why: b, lower: 2}]":                               "lower",
	} {
		path := filepath.Join(t.TempDir(), "e.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readExpected(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestJudge(t *testing.T) {
	f := figure{ID: "rack/write_time", Paper: 1.5, Low: 1.1, High: 1.4}
	of := func(v, lo, hi float64) measured {
		return measured{ratio: ratio{Value: v, CI: stats.Interval{Low: lo, High: hi}}}
	}
	for _, tt := range []struct {
		m               measured
		judge, relative string
	}{
		{of(1.2, 1.1, 1.3), "as expected", "less"},
		{of(1.05, 0.9, 1.2), "not significant", "less"},
		{of(1.05, 1.0, 1.09), "less than expected", "less"},
		{of(1.6, 1.45, 1.7), "more than expected", "not significant"},
		{of(1.6, 1.55, 1.7), "more than expected", "more"},
		{measured{ratio: ratio{Value: 1.05}, alone: true}, "less than expected", "less"},
	} {
		if got := f.judge(tt.m); got != tt.judge {
			t.Errorf("judge(%v) = %q, want %q", tt.m, got, tt.judge)
		}
		if got := f.relative(tt.m); got != tt.relative {
			t.Errorf("relative(%v) = %q, want %q", tt.m, got, tt.relative)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		o    suite.Options
		want string
	}{
		{suite.Options{Only: "rack,attic", Repeat: 1}, `unknown part "attic"`},
		{suite.Options{Repeat: 0}, "-repeat 0"},
		{suite.Options{Repeat: 1, Expected: "none.yaml"}, "none.yaml"},
		{suite.Options{Repeat: 1, Expected: "expected.yaml", Dir: t.TempDir()}, "does not exist"},
	} {
		if err := run(context.Background(), options{Options: tt.o, fluid: true}, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	both := options{Options: suite.Options{Repeat: 1}, fluid: true, measured: true}
	if err := run(context.Background(), both, io.Discard); err == nil || !strings.Contains(err.Error(), "-fluid and -measured") {
		t.Errorf("-fluid and -measured: %v", err)
	}
}

// On the fluid model, where only the draws are random: with persistent hot racks Sinbad's
// form V2 is significantly faster than HDFS's default. The speed-up is larger if disks do not
// limit writes, and close to 1 without background.
func TestOnTheFluidModel(t *testing.T) {
	longtest.Skip(t, "builds the program and runs four parts of the suite, 10 s")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	binary := filepath.Join(t.TempDir(), "testbed")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "out")
	o := options{fluid: true, Options: suite.Options{Dir: dir, Testbed: binary, Expected: "scripts/sinbad/expected.yaml", Only: "rack,diskless,quiet,edge", Repeat: 5}}
	var text strings.Builder
	if err := run(context.Background(), o, &text); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || string(report) != text.String() {
		t.Errorf("report.md: %v, %d bytes, want the %d bytes of the output", err, len(report), text.Len())
	}
	got := map[string]ratio{}
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(line, "|")
		if len(cells) < 8 || !strings.Contains(cells[1], "/write_time") && !strings.Contains(cells[1], "/v1") {
			continue
		}
		var r ratio
		if _, err := fmt.Sscanf(strings.TrimSpace(cells[5]), "%f× [%f, %f]", &r.Value, &r.CI.Low, &r.CI.High); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got[strings.TrimSpace(cells[1])] = r
	}
	for _, id := range []string{"rack/write_time", "rack/v1", "diskless/write_time", "edge/write_time"} {
		if r := got[id]; r.CI.Low <= 1 {
			t.Errorf("%s: %v, want an interval above 1", id, r)
		}
	}
	if got["diskless/write_time"].Value <= got["rack/write_time"].Value {
		t.Errorf("speed-up %v without limits of disks and %v with these: want more without", got["diskless/write_time"], got["rack/write_time"])
	}
	if r := got["quiet/write_time"]; r.CI.Low > 1.05 || r.CI.High < 0.95 {
		t.Errorf("without background %v: want an interval near 1", r)
	}
}
