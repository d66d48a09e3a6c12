package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/calibration"
	clireference "testbed/emu/cli/reference"
	"testbed/emu/deploy"
	"testbed/emu/fidelity"
	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/emu/suite"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/export"
	"testbed/results/metrics"
	"testbed/results/plot"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/workloads"
	"testbed/workloads/jobs"
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

// docs/cli.md is generated from the command tree.
func TestCommandReference(t *testing.T) {
	t.Setenv(deploy.RootEnv, "") // which is the default of a flag
	generated(t, "docs/cli.md", clireference.Markdown())
	// The environment variables of its head are those of the code.
	head, _, _ := strings.Cut(read(t, "docs/cli.md"), "<!-- generated")
	for _, name := range []string{deploy.RootEnv, calibration.Env} {
		if !strings.Contains(head, "| `"+name+"` |") {
			t.Errorf("docs/cli.md does not explain %s", name)
		}
	}
}

// Parameters that several policies of a role have, with the same values and meaning, stand in one list.
func TestPolicyReference(t *testing.T) {
	var b strings.Builder
	list := func(params []catalog.Param, value func(catalog.Param) []string) {
		var all []entry
		for _, p := range params {
			values := "`" + strings.Join(value(p), "`, `") + "` " + p.Unit
			if p.Type == catalog.Choice { // others are evident from the default
				values = choices(p.Choices, value(p)...)
				if p.Durations {
					values += " or a duration"
				}
			}
			all = append(all, entry{p.Name, strings.TrimSpace(values), p.Doc})
		}
		b.WriteString("\n" + entries(all))
	}
	initial := func(p catalog.Param) string {
		text := fmt.Sprint(p.Default)
		if p.Type == catalog.Float && !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	for _, role := range catalog.All() {
		fmt.Fprintf(&b, "\n## %s policies\n", role.Name)
		entries := catalog.All().Entries(role.Name)
		key := func(p catalog.Param) string { return p.Name + p.Values() + p.Unit + p.Doc }
		var several []catalog.Param     // that more than one policy has
		values := map[string][]string{} // of them, by policy
		for _, e := range entries {
			for _, p := range e.Params {
				values[key(p)] = append(values[key(p)], initial(p))
				if len(values[key(p)]) == 2 {
					several = append(several, p)
				}
			}
		}
		for _, e := range entries {
			fmt.Fprintf(&b, "\n### %s\n\n%s\n", policyHeading(role.Name, e.Name), e.Doc)
			var own []catalog.Param
			var names []string // of the others
			for _, p := range e.Params {
				switch all := values[key(p)]; {
				case len(all) == 1:
					own = append(own, p)
				case len(slices.Compact(slices.Clone(all))) > 1:
					names = append(names, fmt.Sprintf("`%s` (`%s`)", p.Name, initial(p)))
				default:
					names = append(names, fmt.Sprintf("`%s`", p.Name))
				}
			}
			if len(names) == len(several) {
				names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "`") })
				names = append([]string{"all"}, names...)
			}
			if len(own) > 0 {
				list(own, func(p catalog.Param) []string { return []string{initial(p)} })
			}
			if len(names) > 0 {
				fmt.Fprintf(&b, "\nShared: %s.\n", strings.Join(names, ", "))
			}
		}
		if len(several) > 0 {
			fmt.Fprintf(&b, "\n### Shared parameters of %s policies\n", role.Name)
			list(several, func(p catalog.Param) []string { return slices.Compact(slices.Sorted(slices.Values(values[key(p)]))) })
		}
		for i, part := range role.Parts {
			if i == 0 {
				fmt.Fprintf(&b, "\n## Parts of %s policies\n", role.Name)
			}
			fmt.Fprintf(&b, "\n### Part `%s`\n\n%s\n", part.Name, part.Doc)
			list(part.Params, func(p catalog.Param) []string { return []string{initial(p)} })
		}
	}
	b.WriteString("\n## Facts\n\nWhat the `Needs` of a policy name; roles are those whose policies outside of the program can name it.\n\n")
	var facts []entry
	for _, x := range policies.AllFacts() {
		facts = append(facts, entry{x.Name, strings.Join(x.Roles, ", "), x.Doc})
	}
	b.WriteString(entries(facts) + "\n")
	generated(t, "docs/reference/policies.md", b.String())
}

// TestSimulationReference checks that every column and key of simulated traces, and every file of
// the suite, is documented.
func TestSimulationReference(t *testing.T) {
	traces, results := read(t, "docs/traces.md")+read(t, "docs/reference/traces.md"), read(t, "docs/results.md")
	trace, err := workloads.ParseTrace("t", strings.NewReader("3 1\n1 0 1 0 1 1:8.0\n"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := comparison.Do(t.Context(), trace, comparison.Options{Policies: []comparison.Policy{{Name: "fair"}}}, func() time.Duration { return 0 }, nil)
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
			t.Errorf("docs/traces.md does not explain the column %s of --coflows-csv", column)
		}
	}
	kind := reflect.TypeOf(out.Runs[0].Coordinator)
	for i := range kind.NumField() {
		if key := kind.Field(i).Tag.Get("json"); key != "interval_ns" && !strings.Contains(traces, "`"+key+"`") {
			t.Errorf("docs/traces.md does not explain %s of the coordinator", key)
		}
	}
	for _, name := range []string{"report.md", "table.csv", "derived-low-skew-1.csv", "derived-mantri.csv", "derived-wide.csv", "derived-replicated-6.csv", "sensitivity.csv", "learning.csv"} {
		if !strings.Contains(results, "`"+name+"`") {
			t.Errorf("docs/results.md does not explain %s of the suite", name)
		}
	}
}

// The example of docs/suites.md runs.
func TestSuiteReference(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "docs/suites.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/suites.md has %d YAML examples, want a scenario and a suite", len(blocks))
	}
	dir := t.TempDir()
	for i, name := range []string{"small.yaml", "mine.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(blocks[i][1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := suite.Read(filepath.Join(dir, "mine.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Prepare(suite.Options{Dir: filepath.Join(dir, "out"), Repeat: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), io.Discard, runner.Options{}, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"report.md", "report.html", "claims.json"} {
		if text := read(t, filepath.Join(dir, "out", name)); !strings.Contains(text, "jobs/3-local") {
			t.Errorf("%s has no claim: %s", name, text)
		}
	}
	for _, c := range p.Claims.Claims {
		if c.Measured == nil || c.Outcome == suite.NotRun {
			t.Errorf("claim %s of docs/suites.md is not measured", c.ID)
		}
	}
}

// Columns that several tables have, and those of each completion time, stand in one list. Those that are figures of
// summary.json refer to its key, unless they are the key with _ for each dot.
func TestExportReference(t *testing.T) {
	var b strings.Builder
	row := func(name string, c schema.Column) entry {
		kind := ""
		if c.Optional {
			kind = "?"
		}
		if micros := strings.HasSuffix(name, "_us"); micros != (c.Type == schema.Micros) || !micros && c.Type != schema.Int {
			kind += " " + string(c.Type)
		}
		inName := strings.HasSuffix(name, "_us") || strings.HasSuffix(name, "_bytes") || strings.HasSuffix(name, "_bps")
		if c.Unit != "" && c.Unit != "ratio" && !inName && !strings.Contains(name+c.Doc, c.Unit) { // else the text states it
			kind += ", " + c.Unit
		}
		doc := strings.NewReplacer(", since the start of the repeat", "", ", the same in each arm", "").Replace(c.Doc) // as the head of the page states
		return entry{name, strings.TrimPrefix(kind, " "), strings.TrimPrefix(doc, "of ")}
	}
	first := slices.IndexFunc(export.Tables(), func(t export.Table) bool { return t.Name == "flows" })
	common := export.Tables()[first].Columns[:4] // of flows and of the tables after it
	count := map[entry]int{}
	var several []entry
	for i, table := range export.Tables() {
		for j, c := range table.Columns {
			if i >= first && j < 4 && row(c.Name, c) != row(common[j].Name, common[j]) {
				t.Errorf("the first columns of %s are not those of other tables", table.Name)
			}
			if count[row(c.Name, c)]++; count[row(c.Name, c)] != 2 {
				continue
			}
			if slices.ContainsFunc(several, func(e entry) bool { return e.key == c.Name }) {
				t.Errorf("two columns %s of several tables differ", c.Name)
			}
			several = append(several, row(c.Name, c))
		}
	}
	figures := map[string]string{} // keys of summary.json by column
	for _, f := range summary.Figures() {
		figures[f.Section+"_"+f.Column] = f.Key
	}
	b.WriteString("\n### Columns of several tables\n\n" + entries(several))
	for i, table := range export.Tables() {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s.\n", table.Name, table.Doc)
		var own []entry
		var shared []string
		var metric string // the first completion time, whose columns all have
		for j, c := range table.Columns {
			name := c.Name
			m := completionTime.FindStringSubmatch(name)
			if table.Name == "arms" && m != nil {
				if metric = cmp.Or(metric, m[1]); m[1] != metric {
					continue
				}
				name = "<time>_" + m[2]
			}
			if key := figures[c.Name]; table.Name == "arms" && key != "" {
				if m != nil {
					_, key, _ = strings.Cut(key, ".")
					key = "<time>." + key
				}
				c.Doc = ""
				if strings.ReplaceAll(key, ".", "_") != name {
					c.Doc = "`" + key + "`"
				}
			}
			switch {
			case count[row(c.Name, c)] < 2:
				own = append(own, row(name, c))
			case i < first || j >= 4:
				shared = append(shared, "`"+name+"`")
			}
		}
		b.WriteString("\n" + entries(own))
		if shared != nil {
			fmt.Fprintf(&b, "\nAnd %s.\n", strings.Join(shared, ", "))
		}
	}
	b.WriteString("\n")
	generated(t, "docs/reference/export.md", b.String())
}

var completionTime = regexp.MustCompile(`^(cct|fct|write_time|request_time|job_time)_(.*)$`)

// TestSummaryReference generates the figures of arms in summary.json.
func TestSummaryReference(t *testing.T) {
	var b strings.Builder
	last := ""
	var all []entry
	for _, f := range summary.Figures() {
		section := f.Section
		if f.Time {
			section = "completion times"
		}
		if section != last {
			if all != nil {
				b.WriteString(grouped(all))
			}
			all = nil
			fmt.Fprintf(&b, "\n### %s in summary.json\n\n", section)
		}
		last = section
		key, _ := strings.CutPrefix(f.Key, last+".")
		if of, below, ok := strings.Cut(f.Key, "."); f.Time && ok { // those of all times are equal
			if of != "cct" || strings.HasSuffix(key, "[1]") {
				continue
			}
			key = "<time>." + below
			_, f.Doc, _ = strings.Cut(f.Doc, ": ")
		}
		unit := f.Unit.Name()
		if strings.HasSuffix(key, "_us") || strings.HasSuffix(key, "_bytes") || strings.HasSuffix(key, "_bps") || unit == "ratio" {
			unit = "" // the key or the text states it
		}
		if of, ok := strings.CutSuffix(key, "[0]"); ok {
			key, f.Doc = of, strings.ReplaceAll(f.Doc, "lower end of its", "its")
		}
		all = append(all, entry{key, unit, f.Doc})
	}
	b.WriteString(grouped(all) + "\n")
	generated(t, "docs/reference/results.md", b.String())
}

// TestJobFileReference generates the keys of job files, the limits of workloads and the defaults of
// derived jobs, and checks that the example is a job file.
func TestJobFileReference(t *testing.T) {
	var b strings.Builder
	for _, table := range jobs.Keys() {
		var all []entry
		for _, k := range table.Keys {
			values := k.Values
			if k.Default != "" && k.Default != "none" {
				values += " (" + k.Default + ")"
			}
			all = append(all, entry{k.Name, values, k.Doc})
		}
		fmt.Fprintf(&b, "\nKeys of %s:\n\n%s", table.In, entries(all))
	}
	l := jobs.Limits{}.WithDefaults()
	fmt.Fprintf(&b, "\nLimits: %d jobs, %d stages a job, %d tasks, %d outputs of unequal tasks, and files of %v.\n", l.Jobs, l.Stages, l.Tasks, l.Outputs, l.File)
	r := jobs.DefaultRules()
	b.WriteString("\nDefaults of derived jobs, most of which are also those of generators:\n\n")
	for _, x := range []struct {
		flag  string
		value any
		why   string
	}{
		{"block", r.Block, "Facebook's, in the measurements of the FAIR report"},
		{"max-maps", r.MaxMaps, "no bound"},
		{"per-reduce", r.PerReduce, "`hive.exec.reducers.bytes.per.reducer` of the time"},
		{"max-reduces", r.MaxReduces, "`hive.exec.reducers.max` of the time"},
		{"map-rate", r.MapRate, "8 MB/s, 16 s a block: within the 9–60 s of the FAIR report"},
		{"sort-rate", r.SortRate, "50 MB/s, about that of one disk"},
		{"reduce-rate", r.ReduceRate, "as maps"},
		{"skew", r.PartitionSkew, "equal shares"},
		{"users", r.Users.Count, "those of ShuffleWatcher's evaluation (USENIX ATC 2014)"},
		{"user-skew", r.Users.Skew, "equal shares"},
	} {
		fmt.Fprintf(&b, "- `--%s` %v: %s\n", x.flag, x.value, x.why)
	}
	b.WriteString("\n")
	generated(t, "docs/reference/jobs.md", b.String())
	doc := read(t, "docs/job-workloads.md") + read(t, "docs/reference/jobs.md")
	_, example, _ := strings.Cut(doc, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	if list, err := jobs.Read("docs/job-workloads.md", strings.NewReader(example), jobs.Limits{}); err != nil || len(list) != 2 {
		t.Errorf("the example of docs/job-workloads.md has %d jobs, %v", len(list), err)
	}
	for _, of := range []any{jobs.Stats{}, jobs.Total{}, jobs.Group{}} {
		kind := reflect.TypeOf(of)
		for i := range kind.NumField() {
			if key := kind.Field(i).Tag.Get("json"); key != "" && !strings.Contains(doc, "`"+key+"`") {
				t.Errorf("docs/job-workloads.md does not explain the key %s", key)
			}
		}
	}
	for _, p := range jobs.DefaultMix().Profiles {
		if !strings.Contains(doc, "| `"+p.Name+"` |") {
			t.Errorf("docs/job-workloads.md does not explain the profile %s", p.Name)
		}
	}
}

// TestFigureReference checks that docs/reference/figures.md explains every figure.
func TestFigureReference(t *testing.T) {
	doc := read(t, "docs/reference/figures.md")
	for _, f := range plot.Figures() {
		if !strings.Contains(doc, "`"+f.Name+"`") {
			t.Errorf("docs/reference/figures.md does not explain the figure %s", f.Name)
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

// Every file that a run leaves, and every key in them, is explained in docs/results.md or
// docs/reference/results.md, and every column there or in docs/reference/export.md.
func TestRunDirectoryReference(t *testing.T) {
	doc, tables := read(t, "docs/results.md")+read(t, "docs/reference/results.md"), read(t, "docs/reference/export.md")
	for _, f := range summary.Figures() { // in a generated table, each with the keys above it
		doc += "`" + strings.NewReplacer(".", "``", "[]", "", "[0]", "", "[1]", "").Replace(f.Key) + "`"
	}
	explained := func(what, name string) {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/results.md and docs/reference/results.md do not explain %s `%s`", what, name)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"small.yaml": small, "trace.txt": "6 9\n1 0 2 0 1 2 3:1.5 5:0.5\n2 0 1 2 1 4:1\n3 100 2 0 5 1 1:2\n" +
		"4 200 1 3 1 0:1\n5 300 1 4 1 2:1\n6 400 1 1 1 5:4\n7 500 1 0 1 3:1\n8 600 1 3 1 4:1\n9 700 1 2 1 1:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := scenario.Load(filepath.Join(dir, "small.yaml"), scenario.Options{Catalog: catalog.All()})
	if err != nil {
		t.Fatal(err)
	}
	o, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir(), CheckScale: workloads.Factor{Num: 2, Den: 1}})
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
				if !lists(tables, column) {
					explained("the column of "+name, column)
				}
			}
		case name == "summary.json" || name == "manifest.json" || name == "coordinator.json":
			var v any
			if err := json.Unmarshal([]byte(read(t, path)), &v); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if m, ok := v.(map[string]any); ok && name == "manifest.json" {
				m["files"] = nil // its keys are files
			}
			keys(name, v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Files that depend on the backend, and keys that are not always present.
	for _, name := range []string{"report.html", "links.csv", "drops.csv", "breakdown.csv", "plan.txt", "traces/", "<arm>/<repeat>/events.jsonl", "<arm>/<repeat>/failures.json", "<arm>/<repeat>/queues.json"} {
		packets := []string{"links.csv", "drops.csv", "breakdown.csv", "<arm>/<repeat>/queues.json"}
		if simulated := !slices.Contains(packets, name); seen[name] != simulated {
			t.Errorf("the simulation left %s: %v, want %v", name, seen[name], simulated)
		}
		explained("the file", name)
	}
	for _, of := range []any{rundir.Manifest{}, summary.Run{}, summary.Arm{}, summary.Metric{}, summary.FailureCount{}, summary.FailureRow{},
		metrics.Queues{}, metrics.QueueDrops{}, summary.PairedSpeedup{}, summary.RepeatSpread{}, summary.FluidPrediction{}} {
		kind := reflect.TypeOf(of)
		for i := range kind.NumField() {
			if key, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); key != "" {
				explained(kind.Name()+"'s key", key)
			}
		}
	}
}

// TestFidelityReference checks that docs/fidelity.md explains every check of a verdict, and that README.md states their number.
func TestFidelityReference(t *testing.T) {
	doc := read(t, "docs/fidelity.md")
	for _, c := range fidelity.Judge(fidelity.Samples{Problems: []string{"x"}}, fidelity.Default()).Checks {
		if !strings.Contains(doc, "| `"+c.Name+"` |") {
			t.Errorf("docs/fidelity.md does not explain the check %s", c.Name)
		}
	}
	if want := fmt.Sprintf("| %d checks on every run:", len(fidelity.Judge(fidelity.Samples{}, fidelity.Default()).Checks)); !strings.Contains(read(t, "README.md"), want) {
		t.Errorf("README.md does not state %q", want)
	}
}
