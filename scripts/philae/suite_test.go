package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/emu/flowsim"
	"testbed/emu/longtest"
	"testbed/scripts/suite"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

// smallTrace returns the path of a trace on which every part runs quickly.
func smallTrace(t *testing.T) string {
	t.Helper()
	trace, err := workloads.Facebook{Coflows: 60, Ports: 12, Load: 0.6}.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := workloads.WriteTrace(&text, trace); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func given(t *testing.T) options {
	return options{from: smallTrace(t), seed: 1, Options: suite.Options{Dir: filepath.Join(t.TempDir(), "runs", "philae"), Claims: "claims.yaml", Repeat: 1,
		Only: "table,derived,sensitivity,learning"}}
}

// The report of the simulated parts has their headings, tables and files, and the paper's
// figures next to ours.
func TestComputed(t *testing.T) {
	o := given(t)
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(o.Dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(report, out.Bytes()) {
		t.Error("report.md differs from the output")
	}
	text := out.String()
	for _, p := range parts {
		heading := "## " + strings.ToUpper(p.doc[:1]) + p.doc[1:] + "\n"
		if has := strings.Contains(text, heading); has != (p.name != "packets") {
			t.Errorf("heading %q: %v", heading, has)
		}
	}
	for _, p := range tablePolicies {
		// Times, bins, costs of simulation, bins by size, and speed-ups except of the first.
		if n := strings.Count(text, "\n| "+p+" "); n < 5 {
			t.Errorf("%s is in %d tables, want 5 or more", p, n)
		}
	}
	for _, want := range []string{
		"60 coflows with ", "| aalo ", " 1.51× ", " 9.58× ", "| low-skew-5 ", "| mantri ", "| wide ", "| replicated-6 ", "at 72 ports, in intervals of 48ms",
		"aalo:interval=48ms", "| philae:number=1,pilots=number ", "small thin (", "large wide (", "(paper 0.06 and 0.15)", " 63 % ", "Job completion times", "Total time: ", "| table/aalo/p90 ", "- table/aalo/p90: not run: the claim is about the Facebook trace, and this one is another",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(text, bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	for name, policies := range map[string]int{"table": len(tablePolicies), "learning": 2, "mantri": 4, "wide": 4, "low-skew-1": 2, "replicated-6": 2, "sensitivity": 20} {
		f, err := os.Open(filepath.Join(o.Dir, name+".csv"))
		if err != nil {
			t.Error(err)
			continue
		}
		rows, err := csv.NewReader(f).ReadAll()
		f.Close()
		seen := map[string]bool{}
		for _, r := range rows {
			seen[r[0]] = true
		}
		if err != nil || len(seen) != policies+1 {
			t.Errorf("%s.csv has policies %v, want %d and the head: %v", name, seen, policies, err)
		}
	}
}

// The same seed gives the same results, and -coflows selects the first coflows.
func TestFirstCoflows(t *testing.T) {
	o := given(t)
	o.Only, o.coflows = "learning", 20
	var texts []string
	for range 2 {
		o.Dir += "again"
		if err := run(t.Context(), o, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(o.Dir, "learning.csv"))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] || strings.Count(texts[0], "\n") != 1+2*20 {
		t.Errorf("%d and %d lines, want the same 41", strings.Count(texts[0], "\n"), strings.Count(texts[1], "\n"))
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*testing.T, *options)
		want  string
	}{
		{"part", func(_ *testing.T, o *options) { o.Only = "table,tabel" }, `-only "table,tabel": unknown part "tabel": must be one of table, derived, sensitivity, learning, packets`},
		{"coflows", func(_ *testing.T, o *options) { o.coflows = -1 }, "-coflows -1"},
		{"repeat", func(_ *testing.T, o *options) { o.Repeat = 0 }, "-repeat 0"},
		{"no trace", func(_ *testing.T, o *options) { o.from = "nowhere.txt" }, "nowhere.txt: no such file"},
		{"not a trace", func(_ *testing.T, o *options) { o.from = "claims.yaml" }, "claims.yaml:1:1:"},
		{"no claims", func(_ *testing.T, o *options) { o.Claims = "nowhere.yaml" }, "nowhere.yaml: no such file"},
		{"existing directory", func(t *testing.T, o *options) { o.Dir = t.TempDir() }, "name a directory that does not exist (-dir)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := given(t)
			o.Only = "learning"
			tt.spoil(t, &o)
			before := entries(t, o.Dir)
			var out bytes.Buffer
			if err := run(t.Context(), o, &out); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v: want %q", err, tt.want)
			}
			if after := entries(t, o.Dir); out.Len() > 0 || after != before {
				t.Errorf("output %q, directory %s before and %s after: want no change", &out, before, after)
			}
		})
	}
}

// entries returns the list of files in a directory, as text.
func entries(t *testing.T, dir string) string {
	all, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return "no directory"
	} else if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(all)
}

// The claims have the paper's figures, and the simulated parts measure all claims about them.
func TestClaims(t *testing.T) {
	c, err := suite.ReadClaims("claims.yaml", partNames())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"table/aalo/average": "1.51×", "table/aalo/median": "1.78×", "table/aalo/p90": "9.58×", "table/over-aalo/philae:policy=A/average": "1.4×",
		"derived/low-skew-5/aalo/average": "1.38×", "derived/low-skew-5/coflows": "43", "derived/replicated-6/aalo/p90": "9.78×", "packets/missed/switch/aalo": "16 %", "table/jobs/median": "1.16×",
		"learning/error": "0.06", "learning/aalo": "22 %", "packets/facebook/switch/average": "1.5×", "packets/testbed-150/p90": "8×"} {
		if got := c.Figure(id); got != want {
			t.Errorf("%s: %s, want the paper's %s", id, got, want)
		}
	}
	f, err := os.Open(smallTrace(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	trace, _, _, err := workloads.ReadTrace("small.txt", f, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &philae{Report: suite.NewReport(io.Discard), claims: c, trace: trace, options: options{seed: 1, Options: suite.Options{Dir: t.TempDir()}}}
	for _, part := range []func(context.Context) error{s.table, s.derived, s.learning} {
		if err := part(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range c.Claims {
		if packets := strings.HasPrefix(x.ID, "packets/"); (x.Measured == nil) != packets {
			t.Errorf("%s: measurement %v", x.ID, x.Measured)
		}
		if (strings.HasPrefix(x.ID, "table/aalo/average") || strings.HasPrefix(x.ID, "table/aalo/p90")) && (x.Required == "true" || !strings.Contains(x.WhyNot, "is not reproduced")) {
			t.Errorf("%s: required %s, %q", x.ID, x.Required, x.WhyNot)
		}
	}
}

// The part packets measures all claims about its generated trace: here on the fluid model, which has
// no missed intervals.
func TestPacketClaims(t *testing.T) {
	longtest.Skip(t, "builds the program and simulates two scenarios, 15 s")
	if os.Geteuid() != 0 {
		t.Skip("the part packets needs root")
	}
	t.Chdir("../..")
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "program"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fluid := filepath.Join(dir, "testbed")
	if err := os.WriteFile(fluid, []byte("#!/bin/sh\nverb=$1; shift; [ $verb != run ] || verb=sim\nexec "+filepath.Join(dir, "program")+" $verb \"$@\" 2>/dev/null\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := options{seed: 1, Options: suite.Options{Dir: filepath.Join(dir, "out"), Testbed: fluid, Claims: "scripts/philae/claims.yaml", Only: "packets", Repeat: 1}}
	if err := run(t.Context(), o, io.Discard); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(o.Dir, "claims.json"))
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Claims []struct {
			ID, Outcome string
			Measured    *suite.Measurement
		}
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, x := range claims.Claims {
		if !strings.HasPrefix(x.ID, "packets/generated") {
			continue
		}
		n++
		if x.Measured == nil || !x.Measured.CI.Known() || x.Outcome == string(suite.NotRun) {
			t.Errorf("%s: %+v, %s", x.ID, x.Measured, x.Outcome)
		}
	}
	if n < 4 {
		t.Errorf("%d claims, want 4 or more", n)
	}
}

// Claims about the Facebook trace are skipped for another trace or a part of it.
func TestScale(t *testing.T) {
	public := oracletest.Trace(t, oracletest.Facebook)
	other, err := workloads.Facebook{}.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		trace   *workloads.Trace
		from    string
		coflows int
		skipped string // the first letters of the IDs
	}{
		{"Facebook", public, "FB", 0, "packets/generated"},
		{"all of its coflows", public, "FB", 526, "packets/generated"},
		{"part of it", public, "FB", 100, "derived learning packets/generated table"},
		{"another", other, "x", 0, "derived learning packets/facebook packets/generated table"},
		{"generated", other, "", 0, "derived learning packets/facebook table"},
	} {
		c, err := suite.ReadClaims("claims.yaml", partNames())
		if err != nil {
			t.Fatal(err)
		}
		s := &philae{claims: c, trace: tt.trace, options: options{from: tt.from, coflows: tt.coflows}}
		s.scale()
		skipped := map[string]bool{}
		for _, x := range c.Claims {
			if x.NotRun != "" {
				part, rest, _ := strings.Cut(x.ID, "/")
				if part == "packets" {
					name, _, _ := strings.Cut(rest, "/")
					part += "/" + name
				}
				skipped[part] = true
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(skipped)), " "); got != tt.skipped {
			t.Errorf("%s: skipped %s, want %s", tt.name, got, tt.skipped)
		}
	}
}

// Coflows of 10 flows each: two pilot flows of 10 estimate 100 instead of 80, one of 5
// estimates 50 instead of 100, and the third coflow has none.
func TestEstimates(t *testing.T) {
	got := estimates([]flowsim.Coflow{{Width: 10, Size: 80, Pilots: 2, PilotSent: 20}, {Width: 10, Size: 100, Pilots: 1, PilotSent: 5}, {Width: 10, Size: 7}})
	// Errors of 0.25 and -0.5: 0.375 on average, and 0.375 from their mean, -0.125.
	want := estimate{n: 2, mean: 0.375, deviation: 0.375, p50: 0.375, p90: 0.475}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(estimate{}), cmpopts.EquateApprox(0, 1e-12)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := estimates(nil); got != (estimate{}) {
		t.Errorf("of no coflows: %+v", got)
	}
}

// Coflows of 8 flows that learn after 0.5 % and 50 % of their CCT, having sent 0.1 and 0.6
// of their bytes, and a thin one.
func TestCosts(t *testing.T) {
	const s = time.Second
	all := []flowsim.Coflow{
		{Width: 8, Size: 10, Arrival: 10 * s, Finish: 110 * s, Queued: 10*s + 500*time.Millisecond, QueuedSent: 1, Pilots: 1, Sampled: 60 * s, SampledSent: 5},
		{Width: 8, Size: 10, Finish: 100 * s, Queued: 50 * s, QueuedSent: 6},
		{Width: 7, Size: 10, Finish: 100 * s, Queued: 90 * s, QueuedSent: 9, Pilots: 1, Sampled: s},
	}
	if got, want := costs(all, false), (cost{all: 1.0 / 3, soon: 0.5, p50: 0.2525, p90: 0.4505, bytes: 0.35}); !near(got, want) {
		t.Errorf("by queues %+v, want %+v", got, want)
	}
	// The second was not sampled, the third is thin: nothing to learn.
	if got, want := costs(all, true), (cost{all: 2.0 / 3, soon: 0.5, p50: 0.25, p90: 0.45, bytes: 0.25}); !near(got, want) {
		t.Errorf("by pilots %+v, want %+v", got, want)
	}
	if got := costs(all[2:], true); !near(got, cost{all: 1}) {
		t.Errorf("of thin coflows only: %+v", got)
	}
}

func near(a, b cost) bool {
	for _, d := range []float64{a.all - b.all, a.soon - b.soon, a.p50 - b.p50, a.p90 - b.p90, a.bytes - b.bytes} {
		if math.Abs(d) > 1e-12 {
			return false
		}
	}
	return true
}
