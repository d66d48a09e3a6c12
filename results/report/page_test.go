package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

// cellsOf reads what the page says of summary.json: the cells with a metric, by arm
// and metric, and the summary that it carries.
func cellsOf(t *testing.T, r *Report) (cells map[[2]string]string, texts map[[2]string]string, summary map[string]any) {
	t.Helper()
	var b bytes.Buffer
	if err := r.Page(&b); err != nil {
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
			if err := d.Decode(&summary); err != nil {
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
	return cells, texts, summary
}

// Each figure of the headline is the one of summary.json that it names, digit for
// digit, and each average there is on the page.
func TestPageHasFiguresOfSummary(t *testing.T) {
	for _, in := range []Input{packetRun(), fluidRun()} {
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		cells, texts, summary := cellsOf(t, r)
		var own bytes.Buffer
		if err := r.JSON(&own); err != nil {
			t.Fatal(err)
		}
		arms := map[string]map[string]any{}
		for _, a := range summary["arms"].([]any) {
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
				at := [2]string{a.Name, m.key + ".mean_us"}
				if _, ok := cells[at]; ok != (f != nil) {
					t.Errorf("%v: a value is on the page: %v, want %v", at, ok, f != nil)
				}
				if f != nil && !strings.HasPrefix(texts[at], human(f.mean)) {
					t.Errorf("%v reads %q, want %s as in the other tables", at, texts[at], human(f.mean))
				}
				if a.Void() && r.measured(m) && texts[at] != "void" {
					t.Errorf("%v of a void arm reads %q", at, texts[at])
				}
			}
		}
	}
}

// The best of a column is marked where there is something to be better than, and
// all arms have the same items.
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
