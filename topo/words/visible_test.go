package words_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"testbed/topo/words"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"h0-00 → h1-00, 5 µs\n\t": "h0-00 → h1-00, 5 µs\n\t",
		"\x1b[31mred\x1b[0m":      `\u001b[31mred\u001b[0m`,
		"\x1b]0;title\a":          `\u001b]0;title\u0007`,
		"over\rwritten\b\x00":     `over\u000dwritten\u0008\u0000`,
		"\u009b31m\x7f":           `\u009b31m\u007f`,
		"a\u202eb\u2066c":         `a\u202eb\u2066c`,
		"latin-1 \xe9":            "latin-1 \xe9",
	} {
		if got := words.Visible(text); got != want {
			t.Errorf("Visible(%q) = %q, want %q", text, got, want)
		}
		var b bytes.Buffer
		if n, err := words.VisibleWriter(&b).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("VisibleWriter writes %q, %d, %v, want %q", &b, n, err, want)
		}
	}
}

// JSON stays JSON with the same content.
func TestVisibleOfJSON(t *testing.T) {
	want := "\x1b[31m \u009b \x7f \u202e"
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(words.Visible(string(b))), &got); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestCSVHasNoFormulas(t *testing.T) {
	cells := map[string]string{
		"=1+1": "'=1+1", "+cmd": "'+cmd", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "'=1": "''=1", "''-": "'''-", "-": "'-",
		"-5": "-5", "+1.5e3": "+1.5e3", "0": "0", "'quoted'": "'quoted'", "a=b": "a=b", "": "", "\x1b[2J": `\u001b[2J`, "two\nlines": "two\nlines", "\r=1": `\u000d=1`,
	}
	for cell, want := range cells {
		var b bytes.Buffer
		if err := words.NewCSV(&b).WriteAll([][]string{{"head", "x"}, {cell, "x"}}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || rows[1][0] != want {
			t.Errorf("%q is the cell %q, %v, want %q", cell, rows[1][0], err, want)
			continue
		}
		if got := words.Text(rows[1][0]); got != words.Visible(cell) {
			t.Errorf("%q is read as %q", cell, got)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b[31m=1\u009b")
	f.Add("'=")
	f.Fuzz(func(t *testing.T, text string) {
		got := words.Visible(text)
		for _, r := range got {
			if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
				t.Errorf("Visible(%q) = %q", text, got)
			}
		}
		if words.Visible(got) != got || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("Visible(%q) = %q, which is not stable", text, got)
		}
		var b bytes.Buffer
		if err := words.NewCSV(&b).WriteAll([][]string{{got, "x"}}); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || words.Text(rows[0][0]) != strings.ReplaceAll(got, "\r\n", "\n") {
			t.Errorf("%q is read as %q, %v", got, rows, err)
		}
	})
}
