package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/experiment"
	"testbed/emu/fidelity"
	"testbed/emu/scenario"
	"testbed/emu/study"
	"testbed/policies/catalog"
	"testbed/results/archive"
	"testbed/results/export"
	"testbed/results/plot"
	"testbed/results/report"
	"testbed/workloads"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs")

// generated compares what stands between the two marks of a document with text,
// or replaces it with -update.
func generated(t *testing.T, path, text string) {
	t.Helper()
	const begin, end = "<!-- generated: go test . -update -->\n", "<!-- end of generated -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	got, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s: no marks of the generated part", path)
	}
	if *update {
		if err := os.WriteFile(path, []byte(head+begin+text+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != text {
		t.Errorf("%s is not what the code says: run go test . -update and read the diff", path)
	}
}

// property is as much of a JSON schema as the reference needs.
type property struct {
	Description string
	Default     any
	Required    []string
	Properties  map[string]property
	Items       *property
	OneOf       []property
	AnyOf       []property
}

func TestScenarioReference(t *testing.T) {
	raw, err := scenario.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var root property
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| key | default | what it is |\n| --- | --- | --- |\n")
	seen := map[string]bool{}
	var walk func(prefix string, p property)
	walk = func(prefix string, p property) {
		for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
			q := p.Properties[name]
			key := prefix + name
			value := ""
			switch {
			case slices.Contains(p.Required, name):
				value = "required"
			case q.Default != nil:
				value = fmt.Sprintf("`%v`", q.Default)
			}
			if q.Description == "" {
				t.Errorf("%s has no description", key)
			}
			if line := fmt.Sprintf("| `%s` | %s | %s |\n", key, value, strings.ReplaceAll(q.Description, "|", `\|`)); !seen[line] {
				seen[line] = true
				b.WriteString(line)
			}
			walk(key+".", q)
			if q.Items != nil {
				walk(key+"[].", *q.Items)
			}
		}
		for _, q := range slices.Concat(p.OneOf, p.AnyOf) {
			walk(prefix, q)
			if q.Items != nil {
				walk(strings.TrimSuffix(prefix, ".")+"[].", *q.Items)
			}
		}
	}
	walk("", root)
	b.WriteString("\n")
	generated(t, "docs/scenario.md", b.String())
}

func TestPolicyReference(t *testing.T) {
	var b strings.Builder
	for _, role := range []catalog.Role{catalog.RoleCoflow, catalog.RolePlacement} {
		fmt.Fprintf(&b, "\n## %s policies\n", role)
		for _, e := range catalog.Entries(role) {
			fmt.Fprintf(&b, "\n### `%s`\n\n%s\n", e.Name, e.Doc)
			if len(e.Params) == 0 {
				continue
			}
			b.WriteString("\n| parameter | values | default | what it is |\n| --- | --- | --- | --- |\n")
			for _, p := range e.Params {
				fmt.Fprintf(&b, "| `%s` | %s | `%v` %s | %s |\n", p.Name, p.Values(), p.Default, p.Unit, p.Doc)
			}
		}
	}
	b.WriteString("\n")
	generated(t, "docs/policies.md", b.String())
	// Ahead of that, a table says what each does unless told otherwise.
	table, _, _ := strings.Cut(read(t, "docs/policies.md"), "<!-- generated")
	for _, name := range catalog.Names(catalog.RoleCoflow) {
		if strings.Count(table, "\n| `"+name+"` |") != 1 {
			t.Errorf("docs/policies.md has no row for %s in its first table", name)
		}
	}
}

// Every column and key of simulated traces, and every file of the suite, is explained.
func TestSimulationReference(t *testing.T) {
	traces, results := read(t, "docs/traces.md"), read(t, "docs/results.md")
	trace, err := workloads.ParseTrace("t", strings.NewReader("3 1\n1 0 1 0 1 1:8.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := study.Do(t.Context(), trace, study.Options{Policies: []study.Policy{{Name: "fair"}}}, func() time.Duration { return 0 }, nil)
	if err != nil {
		t.Fatal(err)
	}
	var csv strings.Builder
	if err := out.CoflowsCSV(&csv); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(csv.String(), "\n")
	for column := range strings.SplitSeq(head, ",") {
		if !strings.Contains(traces, "`"+column+"`") {
			t.Errorf("docs/traces.md does not explain the column %s of --coflows", column)
		}
	}
	kind := reflect.TypeOf(out.Runs[0].Coordinator)
	for i := range kind.NumField() {
		if key := kind.Field(i).Tag.Get("json"); key != "interval_ns" && !strings.Contains(traces, "`"+key+"`") {
			t.Errorf("docs/traces.md does not explain %s of the coordinator", key)
		}
	}
	for _, name := range []string{"report.md", "table.csv", "low-skew-1.csv", "mantri.csv", "wide.csv", "replicated-6.csv", "sensitivity.csv", "learning.csv"} {
		if !strings.Contains(results, "`"+name+"`") {
			t.Errorf("docs/results.md does not explain %s of the suite", name)
		}
	}
}

func TestExportReference(t *testing.T) {
	var b strings.Builder
	for _, table := range export.Tables() {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s.\n\n| column | type | unit | null | what it is |\n| --- | --- | --- | --- | --- |\n", table.Name, table.Doc)
		for _, c := range table.Columns {
			null := ""
			if c.Optional {
				null = "yes"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Type, c.Unit, null, c.Doc)
		}
	}
	b.WriteString("\n")
	generated(t, "docs/export.md", b.String())
}

// Every figure is explained in docs/reports.md.
func TestFigureReference(t *testing.T) {
	doc := read(t, "docs/reports.md")
	for _, f := range plot.Figures() {
		if !strings.Contains(doc, "`"+f.Name+"`") {
			t.Errorf("docs/reports.md does not explain the figure %s", f.Name)
		}
	}
}

// small is a scenario that ends in a moment on the fluid model and leaves every kind
// of file: two arms and repeats, coflows, blocks and a fault.
const small = `
name: small
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 2, block: 1MB, replicas: 2, packet: 32KB, window: 3}
faults:
  - {at: 1s, kind: host-crash, host: h1-02}
arms: {coflow: [fair, sebf], placement: [hdfs]}
repeat: 2
`

// Every file that a run leaves, and every column and key in them, is explained in
// docs/results.md.
func TestRunDirectoryReference(t *testing.T) {
	doc := read(t, "docs/results.md")
	explained := func(what, name string) {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/results.md does not explain %s `%s`", what, name)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"small.yaml": small, "trace.txt": "6 9\n1 0 2 0 1 2 3:1.5 5:0.5\n2 0 1 2 1 4:1\n3 100 2 0 5 1 1:2\n" +
		"4 200 1 3 1 0:1\n5 300 1 4 1 2:1\n6 400 1 1 1 5:4\n7 500 1 0 1 3:1\n8 600 1 3 1 4:1\n9 700 1 2 1 1:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := scenario.Load(filepath.Join(dir, "small.yaml"), scenario.Options{CheckPolicy: experiment.CheckPolicy})
	if err != nil {
		t.Fatal(err)
	}
	o, err := experiment.Simulate(t.Context(), s, experiment.Options{Out: t.TempDir(), CheckScale: workloads.Factor{Num: 2, Den: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var keys func(file string, v any)
	keys = func(file string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				explained("the key of "+file, k)
				keys(file, x)
			}
		case []any:
			for _, x := range v {
				keys(file, x)
			}
		}
	}
	seen := map[string]bool{}
	err = filepath.WalkDir(o.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name := e.Name()
		rel, err := filepath.Rel(o.Dir, path)
		if err != nil {
			return err
		}
		repeat := len(strings.Split(strings.TrimPrefix(rel, "scaled/"), "/")) == 3
		shown := name
		if repeat {
			shown = "<arm>/<repeat>/" + name
		}
		if filepath.Base(filepath.Dir(path)) == "traces" {
			shown = "traces/"
		}
		seen[shown] = true
		explained("the file", shown)
		switch {
		case strings.HasSuffix(name, ".csv"):
			head, _, _ := strings.Cut(read(t, path), "\n")
			for column := range strings.SplitSeq(head, ",") {
				explained("the column of "+name, column)
			}
		case name == "summary.json" || name == "manifest.json" || name == "coordinator.json":
			var v any
			if err := json.Unmarshal([]byte(read(t, path)), &v); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			keys(name, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// What the simulation is to show of files, and of keys that are not always there.
	for _, name := range []string{"report.html", "links.csv", "breakdown.csv", "plan.txt", "traces/", "<arm>/<repeat>/events.jsonl", "<arm>/<repeat>/failures.json"} {
		if simulated := !strings.HasPrefix(name, "links") && !strings.HasPrefix(name, "breakdown"); seen[name] != simulated {
			t.Errorf("the simulation left %s: %v, want %v", name, seen[name], simulated)
		}
		explained("the file", name)
	}
	for _, of := range []any{archive.Manifest{}, report.Summary{}, report.ArmSummary{}, report.Metric{}, report.FailureCount{}, report.FailureRow{},
		report.TimeSummary{}, report.TrafficSummary{}, report.LinkSummary{}, report.CoordinatorSummary{}, report.DecisionTime{}, report.PairedSpeedup{}, report.RepeatSpread{}, report.FluidPrediction{}} {
		kind := reflect.TypeOf(of)
		for i := range kind.NumField() {
			if key, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); key != "" {
				explained(kind.Name()+"'s key", key)
			}
		}
	}
}

// Every check of a verdict is explained in docs/fidelity.md.
func TestFidelityReference(t *testing.T) {
	doc := read(t, "docs/fidelity.md")
	for _, c := range fidelity.Judge(fidelity.Samples{Problems: []string{"x"}}, fidelity.Default()).Checks {
		if !strings.Contains(doc, "| `"+c.Name+"` |") {
			t.Errorf("docs/fidelity.md does not explain the check %s", c.Name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Links between documents and files that documents name in links exist, and the
// verbs that they use too.
func TestDocumentsPointAtWhatExists(t *testing.T) {
	docs, err := os.ReadDir("docs")
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"README.md"}
	for _, d := range docs {
		paths = append(paths, "docs/"+d.Name())
	}
	verbs := regexp.MustCompile("(?m)(?:^|[`$ ])(?:sudo )?testbed ([a-z]+) ")
	links := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	help, err := exec.Command("go", "run", ".", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text := read(t, path)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if m[1] == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s, which has no heading %s", path, target, m[2])
			}
		}
		for _, block := range regexp.MustCompile("(?s)```(?:sh|console)\n(.*?)```").FindAllStringSubmatch(text, -1) {
			for _, m := range verbs.FindAllStringSubmatch(block[1], -1) {
				if !strings.Contains(string(help), "\n  "+m[1]+" ") {
					t.Errorf("%s uses testbed %s, which is no verb", path, m[1])
				}
			}
		}
	}
}

// anchors are what links to the headings of a document end in, as those who show
// Markdown make them: lower case, without punctuation, with - for spaces.
func anchors(text string) []string {
	var out []string
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+?) *$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// The policy that the guide shows is the one that is compiled and tested.
func TestGuideShowsTheTestedPolicy(t *testing.T) {
	source := read(t, "policies/policytest/example_test.go")
	_, code, ok := strings.Cut(source, "// Smallest first\n")
	code, _, ok2 := strings.Cut(code, "// end\n")
	if !ok || !ok2 {
		t.Fatal("no marks in the example")
	}
	if !strings.Contains(read(t, "docs/writing-a-policy.md"), strings.TrimSpace(code)) {
		t.Error("docs/writing-a-policy.md does not show the policy of policies/policytest/example_test.go")
	}
}
