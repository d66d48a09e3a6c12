package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"testbed/emu/fidelity"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/export"
	"testbed/results/plot"
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
			b.WriteString("\n| parameter | type | default | what it is |\n| --- | --- | --- | --- |\n")
			for _, p := range e.Params {
				fmt.Fprintf(&b, "| `%s` | %s | `%v` %s | %s |\n", p.Name, p.Type, p.Default, p.Unit, p.Doc)
			}
		}
	}
	b.WriteString("\n")
	generated(t, "docs/policies.md", b.String())
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

// Every figure is explained in docs/results.md.
func TestFigureReference(t *testing.T) {
	doc := read(t, "docs/results.md")
	for _, f := range plot.Figures() {
		if !strings.Contains(doc, "`"+f.Name+"`") {
			t.Errorf("docs/results.md does not explain the figure %s", f.Name)
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
	links := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	help, err := exec.Command("go", "run", ".", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text := read(t, path)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.HasPrefix(path, "docs/") {
				target = "docs/" + target
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
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
