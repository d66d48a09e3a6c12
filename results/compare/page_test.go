package compare

import (
	"bytes"
	"html"
	"regexp"
	"strings"
	"testing"

	"testbed/results/verdict"
)

// The page has the sentences and the ratios of the other forms, aligned right, and the reasons of verdicts.
func TestPage(t *testing.T) {
	base := arm("fair <b>", verdict.Pass, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 8*sec)
	fast := arm("sebf", verdict.Degraded, sec, sec, sec, sec, sec, sec, sec, 2*sec)
	fast.Why = []string{"timers are late"}
	r := result(t, Input{Runs: []Run{{ID: "one"}}, Pairs: []Pairing{{base, fast}}})
	var b, again bytes.Buffer
	if err := r.Page(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.Page(&again); err != nil || again.String() != b.String() {
		t.Errorf("written twice, it differs: %v", err)
	}
	page := b.String()
	c := &r.Comparisons[0]
	for _, want := range []string{
		"<li>" + html.EscapeString(c.sentence(&c.Figures[0])) + "</li>",
		`<td class="figure">` + c.Figures[0].GeoMean.String() + "</td>",
		`<td><span class="verdict degraded">degraded [1]</span></td>`,
		"<li>timers are late</li>",
		"Run one",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "fair <b>") {
		t.Error("a name is markup")
	}
	if body := regexp.MustCompile(`(?s)<main>.*</main>`).FindString(page); strings.Index(body, "faster than") > strings.Index(body, "<table") {
		t.Error("the sentence of the result is not before the tables")
	}
}

// A comparison without figures says why.
func TestPageOfNothing(t *testing.T) {
	r := result(t, Input{Runs: []Run{{ID: "one"}}, Pairs: []Pairing{{arm("a", verdict.Void, sec), arm("b", verdict.Pass, sec)}}})
	var b bytes.Buffer
	if err := r.Page(&b); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); strings.Contains(page, "<table") || !strings.Contains(page, "b and a are not compared: a is void") {
		t.Errorf("the page of a void arm:\n%s", page[strings.Index(page, "<main>"):])
	}
}
