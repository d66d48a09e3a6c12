package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/emu/flowsim"
	"testbed/policies/catalog"
	"testbed/scripts/suite"
	"testbed/workloads"
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
	return options{from: smallTrace(t), seed: 1, Options: suite.Options{Dir: filepath.Join(t.TempDir(), "runs", "philae"), Expected: "expected.yaml", Repeat: 1,
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
		"aalo:interval=48ms", "| philae:number=1,pilots=number ", "small thin (", "large wide (", "(paper 0.06 and 0.15)", " 63 % ", "Job completion times", "Total time: ",
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
		{"not a trace", func(_ *testing.T, o *options) { o.from = "expected.yaml" }, "expected.yaml:1:1:"},
		{"no figures", func(_ *testing.T, o *options) { o.Expected = "nowhere.yaml" }, "nowhere.yaml: no such file"},
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

func TestExpected(t *testing.T) {
	got, err := readExpected("expected.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got.Speedups["aalo"] != (figure{Avg: 1.51, P50: 1.78, P90: 9.58}) || got.OverAalo["philae:policy=A"].Avg != 1.40 || got.LowSkew[4] != (figure{K: 5, Avg: 1.38, Coflows: 43}) ||
		got.Testbed[900].P90 != 9.78 || got.Missed[150]["aalo"] != 0.16 || got.JCT.P50 != 1.16 {
		t.Errorf("%+v", got)
	}
	for _, p := range tablePolicies {
		if _, there := got.Speedups[p]; there && got.Reasons[p] == "" && p != "aalo-oracle" {
			t.Errorf("no reason for the difference of the speed-up relative to %s", p)
		}
	}
	for text, want := range map[string]string{
		"paper: {speedup: {}}": "speedup",
		"papers: {}":           "papers",
		"paper: {speedups: {aalo: {average: 1}}}": "average",
		"paper: {speedups: {aallo: {avg: 1}}}":    `speedups: unknown name "aallo": must be one of philae, `,
		"paper: {wide: {fifo: {avg: 1}}}":         `wide: unknown name "fifo": must be one of aalo, aalo-oracle, sebf`,
		"paper: {missed: {150: {varys: 1}}}":      `missed.150: unknown name "varys"`,
		"paper: {low_skew: [{avg: 1}]}":           "low_skew: k 0: must be 1 or more",
		"paper: {reasons: {tables: x}}":           `reasons: unknown name "tables"`,
		"":                                        "EOF",
	} {
		path := filepath.Join(t.TempDir(), "figures.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readExpected(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%q: %v: want the file's name and %q", text, err, want)
		}
	}
}

// The table contains every policy of the catalog.
func TestEveryone(t *testing.T) {
	listed := map[string]bool{}
	for _, text := range tablePolicies {
		name, _, _ := strings.Cut(text, ":")
		listed[name] = true
	}
	for _, name := range catalog.All().Names(catalog.RoleCoflow) {
		if !listed[name] {
			t.Errorf("the table leaves out %s", name)
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
