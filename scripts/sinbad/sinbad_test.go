package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/scripts/suite"
)

func TestClaims(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	papers := map[string]string{}
	keys := []string{"v1", "cv_drop", "imbalance", "bound"} // what take records
	for _, m := range metrics {
		keys = append(keys, m.key)
	}
	for _, x := range c.Claims {
		if x.Paper != nil {
			papers[x.ID] = c.Figure(x.ID)
		}
		if _, key, _ := strings.Cut(x.ID, "/"); !slices.Contains(keys, key) {
			t.Errorf("%s: no part measures it", x.ID)
		}
	}
	// These are the paper's figures.
	want := map[string]string{"rack/write_time": "1.58×", "rack/request_time": "1.29×", "rack/cv_drop": "0.33", "rack/imbalance": "0.57 %", "rack/bound": "1.89×",
		"diskless/write_time": "1.6×", "edge/write_time": "1.3×", "hundred/write_time": "1.58×", "hundred/cv_drop": "0.33", "quiet/bound": "1.89×",
		"large/write_time": "1.58×", "large/bound": "1.89×", "large/cv_drop": "0.33", "large/imbalance": "0.57 %"}
	if d := cmp.Diff(want, papers); d != "" {
		t.Errorf("the paper's figures (-want +got):\n%s", d)
	}
}

// fake returns the path of a program that prints a run and a comparison with this speed-up of
// blocks, and that has void arms if it runs packets.
func fake(t *testing.T, speedup float64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "testbed")
	const arm = `", "write_time": {"n": 20, "mean_us": 1}, "placement": {"disk_imbalance": 0.01}}`
	script := fmt.Sprintf(`#!/bin/sh
case $1 in
compare) echo '{"comparisons": [{"arm": {"arm": "sinbad"}, "figures": [{"metric": "write_time", "mean_ratio": {"value": %[1]g, "ci": [%[1]g, %[1]g]}, "median": {"value": 1}, "geo_mean": {"value": 1}}]}]}' ;;
*) echo '{"run_id": "x", "arms": [{"name": "hdfs`+arm+`, {"name": "sinbad`+arm+`]}' ;;
esac
[ $1 != run ] || exit 3
`, speedup)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// A required claim that is not reproduced is an error; a void arm is another, and takes precedence.
// Everything is written in both cases.
func TestRequiredClaims(t *testing.T) {
	for _, tt := range []struct {
		name    string
		speedup float64
		fluid   bool
		want    error
		text    string
	}{
		{"reproduced", 1.05, true, nil, "| 1.05× [1.05, 1.05], fluid model |"},
		{"not reproduced", 1.4, true, suite.ErrClaims, "Required claims are not reproduced: quiet/write_time (not reproduced)."},
		{"void", 1.4, false, suite.ErrVoid, "Required claims are not reproduced: quiet/write_time (not reproduced)."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.fluid && os.Geteuid() != 0 {
				t.Skip("parts on packets need root")
			}
			dir := filepath.Join(t.TempDir(), "out")
			o := options{Options: suite.Options{Fluid: tt.fluid, Dir: dir, Testbed: fake(t, tt.speedup), Claims: "claims.yaml", Only: "quiet", Repeat: 1}}
			err := run(context.Background(), o, io.Discard)
			if !errors.Is(err, tt.want) || errors.Is(err, suite.ErrClaims) != (tt.want == suite.ErrClaims) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			report, err := os.ReadFile(filepath.Join(dir, "report.md"))
			if err != nil || !strings.Contains(string(report), tt.text) || !strings.Contains(string(report), "Total time") {
				t.Errorf("no %q in report.md: %v\n%s", tt.text, err, report)
			}
			if _, err := os.Stat(filepath.Join(dir, "claims.json")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		o    suite.Options
		want string
	}{
		{suite.Options{Fluid: true, Only: "rack,attic", Repeat: 1}, `unknown part "attic"`},
		{suite.Options{Fluid: true, Repeat: 0}, "-repeat 0"},
		{suite.Options{Fluid: true, Repeat: 1, Claims: "none.yaml"}, "none.yaml"},
		{suite.Options{Fluid: true, Repeat: 1, Claims: "claims.yaml", Dir: t.TempDir()}, "does not exist"},
	} {
		if err := run(context.Background(), options{Options: tt.o}, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	both := options{Options: suite.Options{Fluid: true, Repeat: 1}, measured: true}
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
	o := options{Options: suite.Options{Fluid: true, Dir: dir, Testbed: binary, Claims: "scripts/sinbad/claims.yaml", Only: "rack,diskless,quiet,edge", Repeat: 5}}
	var text strings.Builder
	if err := run(context.Background(), o, &text); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || string(report) != text.String() {
		t.Errorf("report.md: %v, %d bytes, want the %d bytes of the output", err, len(report), text.Len())
	}
	var file struct {
		Claims []struct {
			ID       string
			Measured *suite.Measurement
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "claims.json")); err != nil || json.Unmarshal(text, &file) != nil {
		t.Fatalf("claims.json: %v\n%s", err, text)
	}
	got := map[string]suite.Measurement{}
	for _, c := range file.Claims {
		if c.Measured != nil {
			got[c.ID] = *c.Measured
		}
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
