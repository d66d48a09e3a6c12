package table

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func draw(t testing.TB, table Table, s Style) (string, Fitted) {
	t.Helper()
	var b bytes.Buffer
	f, err := table.Draw(&b, s)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), f
}

func TestDraw(t *testing.T) {
	figures := Table{
		Head:    []string{"arm", "n", "average", "fluid average", "verdict"},
		Columns: []Column{Names(), {Drop: 2}, {}, {Drop: 1, Short: "fluid"}, {Left: true}},
		Rows:    [][]string{{"fair+hdfs", "22", "3.346 s", "3.172 s", "pass"}, {"sebf+a-policy-of-a-long-name", "22", "★ 1.854 s", "1.672 s", "degraded [1]"}},
	}
	for _, tt := range []struct {
		width int
		ascii bool
		want  string
		notes []string
	}{
		{0, false, `
┌──────────────────────────────┬────┬───────────┬───────────────┬──────────────┐
│ arm                          │  n │   average │ fluid average │ verdict      │
├──────────────────────────────┼────┼───────────┼───────────────┼──────────────┤
│ fair+hdfs                    │ 22 │   3.346 s │       3.172 s │ pass         │
│ sebf+a-policy-of-a-long-name │ 22 │ ★ 1.854 s │       1.672 s │ degraded [1] │
└──────────────────────────────┴────┴───────────┴───────────────┴──────────────┘
`, nil},
		{66, true, `
+----------------------+----+-----------+---------+--------------+
| arm                  |  n |   average |   fluid | verdict      |
+----------------------+----+-----------+---------+--------------+
| fair+hdfs            | 22 |   3.346 s | 3.172 s | pass         |
| sebf+a-po..long-name | 22 | * 1.854 s | 1.672 s | degraded [1] |
+----------------------+----+-----------+---------+--------------+
`, []string{"sebf+a-po..long-name is sebf+a-policy-of-a-long-name."}},
		{50, false, `
┌─────────────────────┬───────────┬──────────────┐
│ arm                 │   average │ verdict      │
├─────────────────────┼───────────┼──────────────┤
│ fair+hdfs           │   3.346 s │ pass         │
│ sebf+a-po…long-name │ ★ 1.854 s │ degraded [1] │
└─────────────────────┴───────────┴──────────────┘
`, []string{"Columns hidden to fit the terminal: n, fluid average (use --width).", "sebf+a-po…long-name is sebf+a-policy-of-a-long-name."}},
		{40, false, `
┌───────────────────────┬───────────┐
│ arm                   │   average │
├───────────────────────┼───────────┤
│ fair+hdfs             │   3.346 s │
│ sebf+a-pol…-long-name │ ★ 1.854 s │
└───────────────────────┴───────────┘

┌───────────────────────┬──────────────┐
│ arm                   │ verdict      │
├───────────────────────┼──────────────┤
│ fair+hdfs             │ pass         │
│ sebf+a-pol…-long-name │ degraded [1] │
└───────────────────────┴──────────────┘
`, nil},
	} {
		got, f := draw(t, figures, Style{Width: tt.width, ASCII: tt.ascii})
		if got != tt.want[1:] {
			t.Errorf("width %d:\n%s\nwant\n%s", tt.width, got, tt.want)
		}
		if tt.notes != nil && !slices.Equal(f.Notes(), tt.notes) || tt.width == 0 && len(f.Notes()) != 0 {
			t.Errorf("width %d: notes %q, want %q", tt.width, f.Notes(), tt.notes)
		}
	}
}

func TestProseIsBroken(t *testing.T) {
	got, _ := draw(t, Table{Head: []string{"check", "why"}, Columns: []Column{Names(), Prose()},
		Rows: [][]string{{"loss", "packets were lost on the way\nfrom h0-00 to h1-00, and nobody knows where"}}}, Style{Width: 40})
	want := `
┌───────┬──────────────────────────────┐
│ check │ why                          │
├───────┼──────────────────────────────┤
│ loss  │ packets were lost on the way │
│       │ from h0-00 to h1-00, and     │
│       │ nobody knows where           │
└───────┴──────────────────────────────┘
`
	if got != want[1:] {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// For any table, no line exceeds the width unless a single number does, and every number
// outside the dropped columns is complete.
func TestEverythingFits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(2, 14).Draw(r, "columns")
		style := Style{Width: rapid.IntRange(LeastWidth, 140).Draw(r, "width"), ASCII: rapid.Bool().Draw(r, "ascii")}
		var table Table
		for i := range n {
			c := Column{}
			switch {
			case i == 0:
				c = Names()
			case rapid.IntRange(0, 5).Draw(r, "kind") == 0:
				c = Prose()
			default:
				c.Drop = rapid.IntRange(0, 5).Draw(r, "drop")
			}
			table.Head, table.Columns = append(table.Head, fmt.Sprintf("c%d", i)), append(table.Columns, c)
		}
		rows := rapid.IntRange(1, 4).Draw(r, "rows")
		for k := range rows {
			var row []string
			for i, c := range table.Columns {
				switch {
				case i == 0:
					row = append(row, rapid.StringMatching(`[a-z+]{1,60}`).Draw(r, "name"))
				case c.Wrap > 0:
					row = append(row, strings.Repeat("word ", rapid.IntRange(0, 30).Draw(r, "words")))
				default:
					row = append(row, fmt.Sprintf("%d.%03d%d", rapid.IntRange(100, 999999).Draw(r, "number"), i, k))
				}
			}
			table.Rows = append(table.Rows, row)
		}
		got, f := draw(t, table, style)
		for line := range strings.Lines(got) {
			if w := Width(strings.TrimRight(line, "\n")); w > style.Width {
				r.Fatalf("%d columns, want at most %d:\n%s", w, style.Width, got)
			}
		}
		for i, c := range table.Columns {
			for _, row := range table.Rows {
				if !c.Left && !slices.Contains(f.Dropped, table.Head[i]) && !strings.Contains(got, row[i]) {
					r.Fatalf("%s of column %d is not in\n%s", row[i], i, got)
				}
			}
		}
		if len(f.Folded) > 0 {
			seen := map[string]bool{}
			for short, name := range f.Folded {
				if seen[name+short] || !strings.Contains(got, short) {
					r.Fatalf("%q stands for %q, and is not in\n%s", short, name, got)
				}
				seen[name+short] = true
			}
		}
		names := map[string]bool{}
		for _, row := range table.Rows {
			names[row[0]] = true
		}
		shown := map[string]bool{}
		for line := range strings.Lines(strings.SplitN(got, "\n\n", 2)[0]) {
			if cells := strings.Fields(line); len(cells) > 1 && !strings.ContainsAny(cells[0], "┌├└+") && cells[1] != "c0" && cells[1] != "│" && cells[1] != "|" {
				shown[cells[1]] = true
			}
		}
		if len(shown) != len(names) {
			r.Fatalf("%d names are shown as %d:\n%s", len(names), len(shown), got)
		}
	})
}

func TestFold(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"sebf", 4, "sebf"}, {"sebf+hdfs", 6, "seb…fs"}, {"日本語の名前", 7, "日本…前"}, {"abcdef", 1, "a…f"}, {"", 3, ""},
	} {
		if got := Fold(tt.text, tt.most, "…"); got != tt.want {
			t.Errorf("Fold(%q, %d) = %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}

func TestParagraph(t *testing.T) {
	var b bytes.Buffer
	if err := (Style{Width: 40, ASCII: true}).Paragraph(&b, "  - ", "    ", "1.60× faster, in an interval of ±5 % that is ≥ 1 and told in many words"); err != nil {
		t.Fatal(err)
	}
	want := "  - 1.60x faster, in an interval of +-5\n    % that is >= 1 and told in many\n    words\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	table := Table{Head: []string{"a", "b"}, Rows: [][]string{{"1", "2"}}}
	if _, err := table.Draw(full{}, Style{}); !errors.Is(err, errFull) {
		t.Errorf("draw: %v", err)
	}
	if err := table.Markdown(full{}); !errors.Is(err, errFull) {
		t.Errorf("markdown: %v", err)
	}
}

// A plain table has no lines, aligns names to the left, and fits its width by shortening
// the widest names first.
func TestPlainTable(t *testing.T) {
	name := Column{Left: true, Fold: 8}
	tab := Table{Head: []string{"from", "to", "n"}, Columns: []Column{name, name}, Rows: [][]string{
		{"10.0.0.1:50060", "fe80::1234:5678:9abc:def0:50060", "123456789"}, {"b", "c", "1"}}}
	var b strings.Builder
	if _, err := tab.Draw(&b, Style{Width: 50, Plain: true}); err != nil {
		t.Fatal(err)
	}
	const want = "from            to                               n\n" +
		"10.0.0.1:50060  fe80::1234:…:def0:50060  123456789\n" +
		"b               c                                1\n"
	if got := b.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
