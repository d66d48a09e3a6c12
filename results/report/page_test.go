package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/topo/units"
)

// cellsOf parses the page's cells with a metric, by arm and metric, and the embedded
// summary.
func cellsOf(t *testing.T, r *Report) (cells map[[2]string]string, texts map[[2]string]string, document map[string]any) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Page(&b, noFigures); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	cells, texts = map[[2]string]string{}, map[[2]string]string{}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
		}
		var text strings.Builder
		for c := range n.Descendants() {
			if c.Type == html.TextNode {
				text.WriteString(c.Data)
			}
		}
		if attr["id"] == "summary" {
			d := json.NewDecoder(strings.NewReader(text.String()))
			d.UseNumber()
			if err := d.Decode(&document); err != nil {
				t.Fatalf("embedded summary: %v", err)
			}
		}
		if attr["data-metric"] == "" {
			continue
		}
		at := [2]string{attr["data-arm"], attr["data-metric"]}
		texts[at] = text.String()
		if v, ok := attr["data-value"]; ok {
			cells[at] = v
		}
	}
	return cells, texts, document
}

// Each figure of the headline equals the value of summary.json that it names, digit for
// digit, and the page has each average of summary.json.
func TestPageHasFiguresOfSummary(t *testing.T) {
	for _, in := range []Input{packetRun(), fluidRun()} {
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		cells, texts, document := cellsOf(t, r)
		var own bytes.Buffer
		if err := r.JSON(&own); err != nil {
			t.Fatal(err)
		}
		arms := map[string]map[string]any{}
		for _, a := range document["arms"].([]any) {
			arm := a.(map[string]any)
			arms[arm["name"].(string)] = arm
		}
		if len(arms) != len(r.Summary.Arms) || len(cells) < 10 {
			t.Fatalf("%d arms and %d cells", len(arms), len(cells))
		}
		for at, got := range cells {
			var v any = arms[at[0]]
			for key := range strings.SplitSeq(at[1], ".") {
				v = v.(map[string]any)[key]
			}
			if fmt.Sprint(v) != got {
				t.Errorf("arm %q, %s: the page says %s, summary.json %v", at[0], at[1], got, v)
			}
		}
		for _, a := range r.Summary.Arms {
			for _, m := range allMetrics() {
				f := m.get(&a)
				at := [2]string{a.Name, m.Key + ".mean_us"}
				if _, ok := cells[at]; ok != (f != nil) {
					t.Errorf("%v: a value is on the page: %v, want %v", at, ok, f != nil)
				}
				if f != nil && !strings.HasPrefix(texts[at], summary.Micros.Show(f.MeanUS)) {
					t.Errorf("%v reads %q, want %s as in the other tables", at, texts[at], summary.Micros.Show(f.MeanUS))
				}
				if a.Void() && r.measured(m) && texts[at] != "void" {
					t.Errorf("%v of a void arm reads %q", at, texts[at])
				}
			}
		}
	}
}

// The best value of a column is marked if there are several values and all arms have the
// same items.
func TestPageMarksBest(t *testing.T) {
	marked := func(in Input) (out []string) {
		t.Helper()
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		_, texts, _ := cellsOf(t, r)
		for at, text := range texts {
			if strings.Contains(text, "best") && at[1] == "cct.mean_us" {
				out = append(out, at[0])
			}
		}
		return out
	}
	arms := func(n ...int) Input {
		in := packetRun()
		all := in.Arms
		in.Arms = nil
		for _, i := range n {
			in.Arms = append(in.Arms, all[i])
		}
		return in
	}
	for _, tt := range []struct {
		name string
		in   Input
		want []string
	}{
		{"two arms and a void one", arms(0, 1, 2), []string{"sebf"}},
		{"one has fewer items", arms(0, 1, 3), nil},
		{"one arm", arms(0), nil},
		{"one arm and a void one", arms(0, 2), nil},
	} {
		if got := marked(tt.in); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: best are %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The page has the drawings of its run in their sections, but none of a void arm, and fails if one does.
func TestPageHasDrawings(t *testing.T) {
	in := packetRun()
	calls := map[string]bool{}
	bad := errors.New("no ink")
	draw := func(run *rundir.Run, figure, arm string) (string, []string, error) {
		if len(run.Coflows) != 20 || len(run.Blocks) != 20 || len(run.Links) == 0 {
			t.Errorf("%d coflows, %d blocks, %d loads", len(run.Coflows), len(run.Blocks), len(run.Links))
		}
		calls[figure+" "+arm] = true
		switch figure {
		case "disks":
			return "", nil, nil
		case "write-breakdown":
			return "", nil, bad
		}
		return "<svg>" + figure + "</svg>", []string{"note on " + figure}, nil
	}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Page(&b, draw); !errors.Is(err, bad) {
		t.Errorf("error %v, want that of the drawing", err)
	}
	bad = nil
	if err := r.Page(&b, draw); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg>breakdown</svg>", "<svg>slowest</svg>", "note on bytes"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	void := ""
	for _, a := range r.Summary.Arms {
		if a.Void() {
			void = a.Name
		} else if !calls["slowest "+a.Name] || !calls["disks "+a.Name] {
			t.Errorf("no drawing of %s: %v", a.Name, calls)
		}
	}
	if void == "" || calls["slowest "+void] || calls["job-parts "] {
		t.Errorf("drawings %v, want none of the void arm %s or of tasks", calls, void)
	}
}

// The table of the slowest coflows has their size, and the numbers of their repeats.
func TestSlowestCoflows(t *testing.T) {
	in := packetRun()
	in.Arms[0].Numbers = metrics.Numbers{2, 5}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	got := r.slowestTable()
	for j, c := range plainTable(got).Rows[0] { // numbers are aligned right, names left
		if name := strings.Contains(c.Text, "fair") || strings.Contains(c.Text, ">"); c.Figure == name {
			t.Errorf("column %s: %q is aligned right: %v", got.head[j], c.Text, c.Figure)
		}
	}
	if head := []string{"arm", "repeat", "coflow", "flows", "size", "CCT", "lone time", "slowdown"}; !slices.Equal(got.head[:8], head) {
		t.Errorf("columns %q, want %q first", got.head, head)
	}
	for k, want := range [][]string{{"fair", "2", "1", "2", "3.00 MB", "1.235 s", "617.3 ms", "2.00×"}, {"fair", "5", "1", "2", "3.00 MB", "1.200 s", "600.0 ms", "2.00×"}} {
		if !slices.Equal(got.rows[k][:8], want) {
			t.Errorf("row %q, want %q", got.rows[k], want)
		}
	}
}

// The page, report.md and links.csv state the same loads of links.
func TestPageStatesTheLoadsOfTheReport(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	var page, markdown, loads bytes.Buffer
	if err := errors.Join(r.Page(&page, noFigures), r.Markdown(&markdown), csvOf(r.links())(&loads)); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&loads).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	peaks := map[string]float64{} // of the links of an arm, by links.csv
	column := func(name string) int { return slices.Index(rows[0], name) }
	for _, row := range rows[1:] {
		used, err := strconv.ParseFloat(row[column("utilisation")], 64)
		if err != nil {
			t.Fatal(err)
		}
		at := row[column("arm")] + " " + row[column("link")]
		peaks[at] = max(peaks[at], used)
	}
	arms := []string{"fair", "sebf"}
	_, table, _ := strings.Cut(page.String(), "<caption>Link utilisation</caption>")
	compared := 0
	for line := range strings.Lines(markdown.String()) {
		cells := strings.Split(line, " | ")
		if len(cells) != 7 || !strings.Contains(cells[1], ">") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], "| \n")
		}
		if want := units.Percent(peaks[cells[0]+" "+cells[1]], 1); cells[4] != want {
			t.Errorf("%s: peak of %s is %s in report.md, %s in links.csv", cells[0], cells[1], cells[4], want)
		}
		_, row, _ := strings.Cut(table, ">"+html.EscapeString(cells[1])+"</th>")
		row, _, _ = strings.Cut(row, "</tr>")
		figures := strings.Split(row, `<td class="figure">`)[2:]
		at := 3 * slices.Index(arms, cells[0])
		for k, want := range []string{cells[3], cells[4], cells[6]} {
			if got := strings.TrimSuffix(figures[at+k], "</td>"); got != want {
				t.Errorf("%s: %s has %s on the page, %s in report.md", cells[0], cells[1], got, want)
			}
			compared++
		}
	}
	if compared != 24 {
		t.Errorf("%d figures compared, want 24", compared)
	}
}

// A narrow screen shows the first columns of a table: there are the speed-up, its interval and the verdict.
func TestFirstColumnsOfThePage(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	page := r.headline(allMetrics()[0])
	if want := []string{"arm", "paired [95 %]", "verdict", "speed-up"}; !slices.Equal(page.Head[:4], want) {
		t.Errorf("columns %q, want %q first", page.Head, want)
	}
	text := r.table(allMetrics()[0])
	for i, row := range page.Rows {
		if len(row) != len(text.head) {
			t.Errorf("row %d has %d cells, want %d", i, len(row), len(text.head))
		}
		if of := slices.Index(text.head, "paired [95 %]"); row[1].Text != text.rows[i][of] || !row[1].Figure {
			t.Errorf("row %d: %+v, want the figure %q", i, row[1], text.rows[i][of])
		}
	}
}
