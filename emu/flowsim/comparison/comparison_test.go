package comparison

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/flowsim"
	"testbed/policies/catalog"
	"testbed/results/table"
	"testbed/topo/units"
	"testbed/workloads"
)

func trace(t testing.TB, text string) *workloads.Trace {
	t.Helper()
	tr, err := workloads.ParseTrace("small", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// policies returns the named policies, or ends the test.
func named(t testing.TB, texts ...string) (out []Policy) {
	t.Helper()
	for _, text := range texts {
		p, err := ParsePolicy(catalog.RoleCoflow, text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func still() time.Duration { return 0 }

func TestParsePolicy(t *testing.T) {
	for text, want := range map[string]Policy{
		"fair":                                {Name: "fair"},
		"aalo:interval=16ms,queues=4":         {Name: "aalo", Params: map[string]any{"interval": "16ms", "queues": int64(4)}},
		"sebf:deadline=1.5,key=initial":       {Name: "sebf", Params: map[string]any{"deadline": 1.5, "key": "initial"}},
		"philae:conserve=false,pilots=number": {Name: "philae", Params: map[string]any{"conserve": false, "pilots": "number"}},
	} {
		got, err := ParsePolicy(catalog.RoleCoflow, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
		if got.String() != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
	for text, want := range map[string]string{
		"":                              `unknown coflow policy ""`,
		"fare":                          `did you mean "fair"`,
		"sebf:":                         "expected parameters such as",
		"sebf:key":                      "expected parameters such as",
		"sebf:key=initial,key=initial":  `parameter "key" twice`,
		"sebf:kee=initial":              `did you mean "key"`,
		"sebf:key=later":                "key: later",
		"fair:key=initial":              "it has no parameters",
		"sebf:deadline=-1":              "deadline",
		"sebf:key=initial,,backfill=no": "expected parameters such as",
	} {
		if _, err := ParsePolicy(catalog.RoleCoflow, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v: want %q", text, err, want)
		}
	}
}

// Two coflows that share a sender: 8 MB and 4 MB, at 8 ms per MB. Under fair the small one takes
// 64 ms and the large one 96; by size 32 and 96.
func TestDo(t *testing.T) {
	tr := trace(t, "3 3\n1 0 1 0 1 1:8.0\n2 0 1 0 1 2:4.0\n3 1000 1 1 1 1:2.0\n")
	o := Options{Policies: named(t, "fair", "sebf"), Interval: 8 * time.Millisecond}
	var seen []string
	out, err := Do(t.Context(), tr, o, still, func(p Progress) { seen = append(seen, p.Policy) })
	if err != nil {
		t.Fatal(err)
	}
	if out.Coflows != 3 || out.Flows != 3 || out.Base != "fair" || out.Left != 0 {
		t.Errorf("%+v", out)
	}
	// Progress of the second during the first is not passed on, except the last.
	if n := len(seen); n > 6 || !slices.Equal(slices.Compact(seen), []string{"fair", "sebf"}) {
		t.Errorf("%d times progress, of %v: want at most 3 of fair, then of sebf", n, slices.Compact(seen))
	}
	const ms = time.Millisecond
	for i, want := range [][]time.Duration{{96 * ms, 64 * ms, 16 * ms}, {96 * ms, 32 * ms, 16 * ms}} {
		for j, c := range out.Runs[i].Coflows {
			if c.CCT() != want[j] {
				t.Errorf("%s: coflow %d takes %v, want %v", out.Runs[i].Policy, c.ID, c.CCT(), want[j])
			}
		}
	}
	if s := out.Runs[1].Speedup; math.Abs(s.Averages-176.0/144) > 1e-9 || s.P50 != 1 || math.Abs(s.Mean-4.0/3) > 1e-9 {
		t.Errorf("speed-up %+v", s)
	}
	if out.Runs[0].Summary.Makespan != 1016*ms || out.Runs[1].Coordinator.Intervals == 0 {
		t.Errorf("%+v", out.Runs)
	}
	o.First, o.Base = 2, 1
	if out, err = Do(t.Context(), tr, o, still, nil); err != nil || out.Coflows != 2 || out.Base != "sebf" || out.Runs[1].Speedup.Averages != 1 {
		t.Errorf("the first two over sebf: %+v, %v", out, err)
	}
	o.Ports.DropLocal, o.First = true, 0
	tr = trace(t, "3 2\n1 0 1 0 1 1:8.0\n3 1000 1 1 1 1:2.0\n")
	if out, err = Do(t.Context(), tr, o, still, nil); err != nil || out.Coflows != 1 || out.Left != 1 {
		t.Errorf("without flows inside a port: %+v, %v", out, err)
	}
}

// Several studies have the results of each alone. The policies of a larger one start first.
func TestDoAll(t *testing.T) {
	small := Study{trace(t, "3 1\n1 0 1 0 1 1:8.0\n"), Options{Policies: named(t, "aalo", "fair"), Base: 1}}
	large := Study{trace(t, "3 1\n1 0 1 0 2 1:8.0 2:8.0\n"), Options{Policies: named(t, "sebf", "philae"), Interval: time.Second}}
	var seen []string
	outs, err := DoAll(t.Context(), []Study{small, large}, still, func(p Progress) {
		seen = append(seen, p.Policy)
		if p.Runs != 4 {
			t.Errorf("%d runs, want 4", p.Runs)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"sebf", "philae", "aalo", "fair"}; !slices.Equal(slices.Compact(seen), want) {
		t.Errorf("progress of %v, want %v", slices.Compact(seen), want)
	}
	for i, s := range []Study{small, large} {
		want, err := Do(t.Context(), s.Trace, s.Options, still, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, outs[i]); d != "" {
			t.Errorf("study %d (-alone +together):\n%s", i, d)
		}
	}
	broken := Study{small.Trace, Options{Policies: named(t, "aalo"), Quantum: 3 * time.Millisecond}}
	if _, err := DoAll(t.Context(), []Study{small, broken}, still, nil); err == nil || !strings.Contains(err.Error(), "quantum") {
		t.Errorf("a study that cannot run: %v", err)
	}
}

// A flow of 5 MB is short with both sizes of an MB.
func TestBinsGoByTheMB(t *testing.T) {
	tr := trace(t, "3 2\n1 0 1 0 1 1:5.0\n2 0 1 0 1 2:6.0\n")
	for _, mb := range []units.Bytes{units.MB, units.MiB} {
		o := Options{Policies: named(t, "fair"), Ports: flowsim.Ports{MB: mb}}
		out, err := Do(t.Context(), tr, o, still, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b := out.Runs[0].Summary.Bins; b[workloads.ShortNarrow].Coflows != 1 || b[workloads.LongNarrow].Coflows != 1 {
			t.Errorf("with a MB of %d bytes: %+v, want one short and one long coflow", mb, b)
		}
	}
}

// Keys are in lower case and state their unit; bins are named.
func TestJSON(t *testing.T) {
	tr := trace(t, "3 1\n1 0 1 0 1 1:5.0\n")
	out, err := Do(t.Context(), tr, Options{Policies: named(t, "aalo"), Interval: time.Second}, still, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"average_ns":40000000`, `"bins":[{"bin":"SN","coflows":1,`, `"interval_ns":1000000000`, `"hosts_told":`, `"speedup":{"coflows":1,"averages":1,`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if m := regexp.MustCompile(`"[a-z_0-9]*[A-Z][A-Za-z]*":`).Find(text); m != nil {
		t.Errorf("key %s: want lower case with _", m)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	tr := trace(t, "3 1\n1 0 1 0 1 1:8.0\n")
	for name, o := range map[string]Options{
		"at least one":      {},
		"as the base":       {Policies: named(t, "fair"), Base: 1},
		"the first -1":      {Policies: named(t, "fair"), First: -1},
		"policy sebf twice": {Policies: named(t, "sebf", "fair", "sebf")},
		"quantum":           {Policies: named(t, "aalo"), Quantum: 3 * time.Millisecond},
	} {
		if _, err := Do(t.Context(), tr, o, still, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: want %q", err, name)
		}
	}
	local := trace(t, "3 1\n1 0 1 1 1 1:8.0\n")
	o := Options{Policies: named(t, "fair")}
	o.Ports.DropLocal = true
	if _, err := Do(t.Context(), local, o, still, nil); err == nil || !strings.Contains(err.Error(), "no coflows to simulate") {
		t.Errorf("nothing to simulate: %v", err)
	}
}

// All forms have a row for each policy, and the tables fit.
func TestForms(t *testing.T) {
	tr := trace(t, "3 2\n1 0 1 0 1 1:8.0\n2 0 1 0 1 2:4.0\n")
	out, err := Do(t.Context(), tr, Options{Policies: named(t, "fair", "sebf", "aalo"), Interval: time.Second}, still, nil)
	if err != nil {
		t.Fatal(err)
	}
	var term, md, rows, all bytes.Buffer
	for _, err := range []error{out.Terminal(&term, table.Style{}), out.Markdown(&md), out.CSV(&rows), out.CoflowsCSV(&all)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(term.String()) {
		if n := table.Width(strings.TrimSuffix(line, "\n")); n > table.DefaultWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, p := range []string{"fair", "sebf", "aalo"} {
		if strings.Count(term.String(), " "+p+" ") < 4 || strings.Count(md.String(), "| "+p+" ") < 4 {
			t.Errorf("%s is not in every table:\n%s\n%s", p, &term, &md)
		}
	}
	for what, want := range map[*bytes.Buffer]int{&rows: 4, &all: 7} {
		if got, err := csv.NewReader(what).ReadAll(); err != nil || len(got) != want {
			t.Errorf("%d rows, want %d: %v", len(got), want, err)
		}
	}
}
