package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"

	"testbed/results/summary"
	tables "testbed/results/table"
)

// declaredTables returns the tables of declared figures that a report can have.
func declaredTables(r *Report) (out []summary.Table) {
	var sections []string
	for _, f := range summary.Figures() {
		if !slices.Contains(sections, f.Section) {
			sections = append(sections, f.Section)
			out = append(out, summary.Tables(f.Section, !r.in.FluidModel)...)
		}
	}
	return out
}

// block returns the part of a report below the title of a table, and where it begins; -1 if the report does not have it.
func block(report, title string) (text string, from int) {
	for _, form := range [][2]string{{"\n## " + title + "\n\n", "\n## "}, {"\n\n" + title + "\n", "\n\n"}} {
		if at := strings.Index(report, form[0]); at >= 0 {
			from = at + len(form[0])
			text, _, _ = strings.Cut(report[from:], form[1])
			return text, from
		}
	}
	return "", -1
}

// elided returns a report without tables of declared figures and their definitions, which TestDeclaredFigures reads.
// Goldens thus do not change with a figure.
func elided(r *Report, report string) []byte {
	for _, t := range declaredTables(r) {
		for _, d := range t.Define {
			report = strings.Replace(report, "- "+d+"\n", "", 1)
		}
		if text, from := block(report, t.Title); from >= 0 {
			report = report[:from] + "…\n" + report[from+len(text):]
		}
	}
	return []byte(report)
}

var timeOfClass = regexp.MustCompile(`^job_time_by_\w+\.\d+`)

// goldenSummary is golden for summary.json, which may have further declared figures.
func goldenSummary(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		golden(t, name, got)
		return
	}
	declares := func(key string) bool {
		key = timeOfClass.ReplaceAllString(key, "job_time")
		return slices.ContainsFunc(summary.Figures(), func(f *summary.Figure) bool {
			return f.Key == key || strings.HasPrefix(f.Key, key+".")
		})
	}
	var drop func(want, got any, at string)
	drop = func(want, got any, at string) {
		switch got := got.(type) {
		case []any:
			want, _ := want.([]any)
			for i := range min(len(want), len(got)) {
				drop(want[i], got[i], at+"[]")
			}
		case map[string]any:
			want, _ := want.(map[string]any)
			for _, key := range slices.Collect(maps.Keys(got)) {
				_, had := want[key]
				if path := strings.TrimPrefix(at+"."+key, ".arms[]."); !had && path != at+"."+key && declares(path) {
					delete(got, key)
				} else {
					drop(want[key], got[key], at+"."+key)
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	var values [2]any
	for i, b := range [][]byte{text, got} {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&values[i]); err != nil {
			t.Fatal(err)
		}
	}
	drop(values[0], values[1], "")
	if d := diff.Diff(values[0], values[1]); d != "" {
		t.Errorf("%s (-want +got, go test -update writes it):\n%s", name, d)
	}
}

// Every declared figure that an arm has is in its table of the report, below its heading, with the definitions and notes
// of the table.
func TestDeclaredFigures(t *testing.T) {
	shown := map[string]bool{}
	for name, in := range map[string]Input{"packets": packetRun(), "fluid": fluidRun(), "tasks": taskRun(),
		"placed": placedRun(false), "placed, fluid": placedRun(true)} {
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		var terminal, narrow, markdown bytes.Buffer
		if err := errors.Join(r.TerminalIn(&terminal, tables.Style{Width: 1000}), r.TerminalIn(&narrow, tables.Style{Width: 80}), r.Markdown(&markdown)); err != nil {
			t.Fatal(err)
		}
		for _, table := range declaredTables(r) {
			want := [][]string{{"arm"}}
			for _, f := range table.Figures {
				want[0] = append(want[0], f.Head)
			}
			any := false
			for i := range r.Summary.Arms {
				a := &r.Summary.Arms[i]
				rows := table.Rows(&a.Declared)
				any = any || rows != nil
				if rows == nil {
					rows = [][]string{make([]string, len(table.Figures))}
				}
				missing := none
				if a.Void() {
					missing = "void"
				}
				for _, row := range rows {
					line := []string{strings.ReplaceAll(a.Name, "|", "/")}
					for _, cell := range row {
						line = append(line, cmp.Or(cell, missing))
					}
					want = append(want, line)
				}
			}
			for form, report := range map[string]string{"markdown": markdown.String(), "terminal": terminal.String()} {
				text, at := block(report, table.Title)
				if form == "markdown" && any != (at >= 0) {
					t.Errorf("%s: table %q is in the report: %v, want %v", name, table.Title, at >= 0, any)
				}
				if at < 0 {
					continue
				}
				shown[table.Title] = true
				if d := diff.Diff(want, cellsIn(text)); d != "" {
					t.Errorf("%s, %s: %s (-want +got):\n%s", name, form, table.Title, d)
				}
				for _, note := range table.Notes {
					if !strings.Contains(text, note) && !strings.Contains(text, plain(note)) {
						t.Errorf("%s, %s: %s: no note %q", name, form, table.Title, note)
					}
				}
			}
			for _, d := range table.Define {
				if strings.Contains(markdown.String(), "\n- "+d+"\n") != any {
					t.Errorf("%s: definition of %s: present %v, want %v: %s", name, table.Title, !any, any, d)
				}
			}
			if _, at := block(narrow.String(), table.Title); at >= 0 {
				text := nextTable.Split(narrow.String()[at:], 2)[0]
				one := strings.Join(strings.Fields(text), " ")
				for _, f := range table.Figures {
					if !strings.Contains(one, cmp.Or(f.Short, f.Head)) && !strings.Contains(one, f.Head) {
						t.Errorf("%s: %s is neither a column of %s at 80 columns nor among the hidden ones:\n%s", name, f.Head, table.Title, text)
					}
				}
			}
		}
	}
	if len(shown) < 9 {
		t.Errorf("only %d tables were compared: %v", len(shown), shown)
	}
}

// nextTable is the title of a table on a terminal. A table that is too wide is drawn as several, without further titles.
var nextTable = regexp.MustCompile(`\n\n[^┌\n]+\n┌`)

// cellsIn returns the cells of a table of a report.
func cellsIn(text string) (out [][]string) {
	text = strings.NewReplacer("│", "|", `\|`, "/", "kept_only|captures", "kept_only/captures", `\_`, "_").Replace(text)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.Trim(line, "|:- ") == "" {
			continue
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		out = append(out, cells)
	}
	return out
}
