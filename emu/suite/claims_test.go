package suite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/runner"
	"testbed/results/metrics"
)

// sound is the text of a claims file without errors. Its last lines are those of a claim.
const sound = `paper: A paper
tolerance: [0.5, 2]
figures: {a: {of: job_time, as: speedup}, b: {of: job_time, as: speedup}, c: {of: node_local}, s: {of: job_time}}
parts:
  one: {on: packets, scale: two hosts, scenario: a.yaml, base: x, arm: y}
claims:
  - id: one/a
    where: table 1
    what: time
    unit: ×
    here: the same
    paper: 1.5
    range: [1.1, 1.6]
    direction: above 1
    why: it is similar
    expected: true
`

// readText reads a suite.
func readText(t *testing.T, text string) (*Suite, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "claims.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(path)
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), path+":", ""))
	}
	return s, err
}

func TestReadClaims(t *testing.T) {
	c, err := readText(t, sound+`  - {id: one/b, where: table 1, what: time, unit: ×, here: b, paper: as one/a, range: [0, inf], why: x, wide: x, expected: direction, direction: above 1, why_not: y}
  - {id: one/c, where: table 2, what: share, unit: "%", here: c, paper: [-inf, 40], range: [10, 50], why: x, wide: x, expected: false, why_not: z, scale: three hosts}
  - {id: one/d, where: table 2, what: count, unit: none, paper: none, on: nothing, expected: false, why_not: nothing measures it}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b, third, last := c.Claims.Claims[0], c.Claims.Claims[1], c.Claims.Claims[2], c.Claims.Claims[3]
	if *a.Paper != (Bounds{1.5, 1.5}) || *b.Paper != *a.Paper || a.On != "packets" || a.Scale != "two hosts" || !strings.HasSuffix(a.Command, " --only one") || *a.Direction != (Direction{true, 1}) || !math.IsInf(b.Range.High, 1) {
		t.Errorf("claims %+v and %+v", a, b)
	}
	if third.On != "packets" || third.Scale != "three hosts" || !math.IsInf(third.Paper.Low, -1) || last.Paper != nil || last.Unit != "" {
		t.Errorf("claims %+v and %+v", third, last)
	}
}

// Each error is reported with its line and column, all of a file at once.
func TestClaimsErrors(t *testing.T) {
	for _, tt := range []struct{ old, text, want string }{
		{"paper: A paper\n", "", "1:1: paper: missing: expected authors, venue and year of the paper"},
		{"  one:", "  three:", `7:9: claims[0].id: "one/a": expected a part (three), a slash and a name`},
		{"  one:", "  o ne:", `5:3: parts: "o ne": expected a name of letters, digits, dots, dashes and underscores|7:9: claims[0].id: "one/a": expected a part`},
		{"{of: job_time, as: speedup}, b", "{of: jobtime, as: speedup}, b", `3:19: figures.a.of: "jobtime": unknown quantity (did you mean "job_time"?)|7:9: claims[0].id: "one/a": no variant, pair and figure of the part have these names`},
		{"{of: node_local}", "{of: node_local, as: paired}", "3:99: figures.c.as: paired: node_local is not available for it"},
		{"{of: node_local}", "{of: node_local, statistic: p0}", `3:106: figures.c.statistic: "p0": expected mean, median, max`},
		{"scenario: a.yaml, ", "", "5:8: parts.one: expected a scenario, or on: flow-level simulator with a trace and policies"},
		{"scenario: a.yaml, ", "scenario: a.yaml, needs: x, ", `5:8: parts.one: needs: "x": expected one of the inputs of the file`},
		{"scenario: a.yaml, ", "scenario: a.yaml, repeat: {most: 0}, ", `5:73: parts.one.repeat.most: "0": expected a whole number from 1`},
		{"    here: the same\n", "    here: the same\n    measure: {figure: x}\n", `12:23: claims[0].measure.figure: "x": unknown figure`},
		{"    here: the same\n", "    here: the same\n    measure: {figure: a, variant: x}\n", `12:35: claims[0].measure.variant: "x": unknown variant`},
		{"unit: ×", "unit: s", `10:11: claims[0].unit: "s": the figure is in "×"`},
		{"on: packets", "on: packet", `5:13: parts.one.on: "packet": expected packets, fluid model or flow-level simulator`},
		{"scale: two hosts, ", "", "7:9: claims[0].id: scale: missing: expected it in the claim or in parts.one"},
		{"id: one/a", "id: three/a", `7:9: claims[0].id: "three/a": expected a part (one), a slash and a name`},
		{"id: one/a", "id: one", `7:9: claims[0].id: "one": expected a part (one), a slash and a name`},
		{"id: one/a", "id: [one]", "7:9: claims[0].id: a list: expected text"},
		{"where:", "wher:", `7:5: claims[0].where: missing: expected a section, table or figure of the paper|8:5: claims[0].wher: unknown key (did you mean "where"?)`},
		{"here: the same", "here: ~", "11:11: claims[0].here: no value: expected one, or leave the key out"},
		{"    here: the same\n", "", "7:5: claims[0].here: missing: expected what is measured"},
		{"    why: it is similar\n", "", "7:5: claims[0].why: missing: expected the reason for the range"},
		{"    paper: 1.5\n", "", "7:5: claims[0].paper: missing: expected a number, or a list of the lower and the upper bound, one of which can be -inf or inf"},
		{"paper: 1.5", "paper: 1.5x", `12:12: claims[0].paper: "1.5x": expected a number,`},
		{"paper: 1.5", "paper: .nan", `12:12: claims[0].paper: ".nan": expected a number,`},
		{"paper: 1.5", "paper: as one/b", `12:12: claims[0].paper: "as one/b": expected an earlier claim with a figure of the paper`},
		{"paper: 1.5", "paper: 0.9", "12:12: claims[0].paper: 0.9×: expected a figure above 1, the direction"},
		{"tolerance: [0.5, 2]\n", "", "1:1: tolerance: missing: expected a number, or a list"},
		{"[0.5, 2]", "[1.5, 2]", "2:12: tolerance: 1.5 to 2: expected factors of the paper's effects, such as [0.5, 2]"},
		{"range: [1.1, 1.6]", "range: [1.1, 2.3]", "13:12: claims[0].range: 1.1× to 2.3×: the ends are more than a factor of 2 apart: expected a narrower range, or the reason in the key wide"},
		{"range: [1.1, 1.6]\n    direction: above 1", "range: [0.9, 1.6]", "13:12: claims[0].range: 0.9× to 1.6×: it includes 1, no effect, and the paper's figure is 1.5×: expected a range on one side"},
		{"range: [1.1, 1.6]", "range: [1.6, 1.1]", "13:12: claims[0].range: 1.6 to 1.1: expected a lower bound that is at most the upper one"},
		{"range: [1.1, 1.6]", "range: [-inf, inf]", "13:12: claims[0].range: -Inf to +Inf: expected a lower bound"},
		{"range: [1.1, 1.6]", "range: [inf, 2]", `13:13: claims[0].range: "inf": expected a number,`},
		{"range: [1.1, 1.6]", "range: inf", `13:12: claims[0].range: "inf": expected a number,`},
		{"range: [1.1, 1.6]", "range: [1, 2, 3]", "13:12: claims[0].range: a list: expected a number,"},
		{"range: [1.1, 1.6]", "range: [0.8, 1]", "13:12: claims[0].range: 0.8× to 1×: expected values above 1 too, the direction"},
		{"direction: above 1", "direction: over 1", `14:16: claims[0].direction: "over 1": expected above or below and a number, such as "above 1"`},
		{"direction: above 1", "direction: above 0", "14:16: claims[0].direction: above 0: a factor has an effect relative to a positive value: expected such as above 1"},
		{"expected: true", "expected: yes", `16:15: claims[0].expected: "yes": expected true, direction or false`},
		{"expected: true", "expected: false", "16:15: claims[0].expected: false: expected why_not too, the reason"},
		{"expected: true", "expected: true\n    why_not: x", "17:14: claims[0].why_not: given with expected: true: leave it out"},
		{"    direction: above 1\n", "    why_not: x\n    on: nothing\n", "17:15: claims[0].expected: no part measures this claim (on: nothing)"},
		{"    direction: above 1\n    why: it is similar\n    expected: true", "    why: x\n    why_not: x\n    expected: direction", "16:15: claims[0].expected: direction: expected the key direction too"},
		{"what: time", "what: &x time", "9:11: claims[0].what: anchor &x: not supported in claims files"},
		{"\n    what: time", "\n\twhat: time", "9:1: tab in the indentation: use spaces"},
		{"    expected: true\n", "    expected: true\n  - {id: one/a, where: w, what: x, unit: s, here: h, paper: as one/a, range: 1, why: y, expected: true}\n",
			`17:10: claims[1].id: "one/a": first on line 7: expected another name|17:42: claims[1].unit: "s": the figure is in "×"|17:61: claims[1].paper: "as one/a": a figure in "×", and this claim has "s": expected the same unit`},
		{"claims:", "claim:", `1:1: claims: missing: expected a list of claims|6:1: claim: unknown key (did you mean "claims"?)`},
		{sound[strings.Index(sound, "  - id"):], "  one: two\n", "7:3: claims: a mapping: expected a list of claims"},
		{sound, "", "1:1: empty file: expected a claims file with the keys paper, tolerance, original, inputs, figures, parts, claims"},
		{sound, "[]", "1:1: a list: expected a mapping with the keys paper, tolerance, original, inputs, figures, parts, claims"},
	} {
		text := strings.Replace(sound, tt.old, tt.text, 1)
		if text == sound {
			t.Fatalf("%q is not in the file", tt.old)
		}
		_, err := readText(t, text)
		lines := strings.Split(fmt.Sprint(err), "\n")
		wants := strings.Split(tt.want, "|")
		if len(lines) != len(wants) {
			t.Errorf("%q:\n%v\nwant %d errors: %s", tt.text, err, len(wants), tt.want)
			continue
		}
		for i, want := range wants {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("%q:\n%s\nwant %s", tt.text, lines[i], want)
			}
		}
	}
	if _, err := Read("nowhere.yaml"); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("no file: %v", err)
	}
}

// FuzzRead checks that no content panics, and that claims without errors have an outcome.
func FuzzRead(f *testing.F) {
	f.Add(sound)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := readText(t, text); err == nil {
			c.Claims.judge()
			if err := c.Claims.encode(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOutcomes(t *testing.T) {
	exactly := func(v float64) Measurement { return Measurement{Value: v, Exact: true} }
	sample := func(v, low, high float64) Measurement {
		return Measurement{Value: v, CI: metrics.Interval{Low: low, High: high}}
	}
	few := func(v float64) Measurement { return Measurement{Value: v} }
	above, below := &Direction{true, 1}, &Direction{false, 1}
	paper := func(low, high float64) *Bounds { return &Bounds{low, high} }
	for _, tt := range []struct {
		name      string
		paper     *Bounds
		low, high float64
		direction *Direction
		m         Measurement
		want      Outcome
		relative  string
	}{
		{"in the range, as the paper's", paper(1.5, 1.5), 1.1, 1.6, above, sample(1.2, 1.1, 1.3), InRange, "less"},
		{"like the paper's", paper(1.5, 1.5), 1.1, 1.2, above, sample(1.23, 1.2, 1.3), Reproduced, "less"},
		{"like the paper's, more", paper(1.5, 1.5), 1.1, 1.2, above, sample(1.8, 1.7, 1.9), Reproduced, "more"},
		{"interval includes 1", paper(1.5, 1.5), 1.1, 1.6, above, sample(1.2, 0.9, 1.6), NotSignificant, "not significant"},
		{"interval ends at 1", paper(1.5, 1.5), 1.1, 1.6, above, sample(1.2, 1, 1.3), NotSignificant, "less"},
		{"too few pairs", paper(1.5, 1.5), 1.1, 1.6, above, few(1.2), NotSignificant, metrics.FewPairs},
		{"below the range", paper(1.5, 1.5), 1.1, 1.6, above, sample(1.05, 1.01, 1.09), DirectionOnly, "less"},
		{"above the range", paper(1.5, 1.5), 1.1, 1.6, above, sample(2.3, 2.2, 2.4), DirectionOnly, "more"},
		{"opposite", paper(1.5, 1.5), 1.1, 1.6, above, sample(0.8, 0.7, 0.9), NotReproduced, "less"},
		{"other direction", paper(0.5, 0.5), 0.4, 0.9, below, sample(0.8, 0.7, 0.9), InRange, "more"},
		{"like the paper's in the other direction", paper(0.5, 0.5), 0.4, 0.9, below, sample(0.7, 0.6, 0.8), Reproduced, "more"},
		{"opposite of the other", paper(0.5, 0.5), 0.4, 0.9, below, sample(1.2, 1.1, 1.3), NotReproduced, "more"},
		{"paper outside the range", paper(1.5, 1.5), 1.1, 1.3, above, sample(1.2, 1.1, 1.4), InRange, "less"},
		{"paper outside the range, in the interval", paper(1.5, 1.5), 1.1, 1.3, above, sample(1.25, 1.1, 1.5), Reproduced, "not significant"},
		{"exactly the paper's", paper(1.5, 1.5), 1.1, 1.6, above, exactly(1.5), Reproduced, "agrees"},
		{"exactly 1", paper(1.5, 1.5), 0.9, 1.6, above, exactly(1), NotSignificant, "less"},
		{"exact", paper(1.5, 1.5), 1.1, 1.3, above, exactly(1.2), InRange, "less"},
		{"no figure", nil, 1.1, 1.6, above, sample(1.2, 1.1, 1.3), InRange, "–"},
		{"no direction", paper(20, 30), 15, 25, nil, sample(18, 16, 19), InRange, "less"},
		{"no direction, within the paper's bounds", paper(20, 30), 15, 25, nil, sample(22, 16, 28), Reproduced, "agrees"},
		{"no direction, too few", paper(20, 30), 15, 25, nil, few(18), InRange, metrics.FewPairs},
		{"no direction, too few, outside", paper(20, 30), 15, 25, nil, few(12), NotSignificant, metrics.FewPairs},
		{"no direction, interval meets the range", paper(20, 30), 15, 25, nil, sample(12, 9, 16), NotSignificant, "less"},
		{"no direction, outside", paper(20, 30), 15, 25, nil, sample(12, 9, 14), NotReproduced, "less"},
		{"no direction, paper outside the range", paper(28, 30), 15, 25, nil, sample(18, 16, 19), InRange, "less"},
		{"no direction, exact, outside", paper(20, 30), 15, 25, nil, exactly(26), Reproduced, "agrees"},
		{"at most", paper(math.Inf(-1), 1.26), 1, 1.4, above, sample(1.3, 1.2, 1.4), Reproduced, "not significant"},
	} {
		c := Claim{Paper: tt.paper, Range: Bounds{tt.low, tt.high}, Direction: tt.direction, Measured: &tt.m, Unit: "×"}
		if got := c.judge(Bounds{0.5, 2}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := c.relative(); got != tt.relative {
			t.Errorf("%s: relative to the paper %q, want %q", tt.name, got, tt.relative)
		}
	}
	saving := Claim{Paper: paper(40, 40), Range: Bounds{30, 50}, Direction: &Direction{true, 0}, Unit: "%"}
	for value, want := range map[float64]Outcome{25: Reproduced, 15: DirectionOnly, 79: Reproduced, 81: DirectionOnly} {
		m := exactly(value)
		if saving.Measured = &m; saving.judge(Bounds{0.5, 2}) != want {
			t.Errorf("%v %% saved, in the paper 40 %%: %s, want %s", value, saving.judge(Bounds{0.5, 2}), want)
		}
	}
	if got := new(Claim).judge(Bounds{0.5, 2}); got != NotRun {
		t.Errorf("without a measurement: %s", got)
	}
}

// Figures have three significant digits or more, and intervals as many decimals as their figures.
func TestFigureTexts(t *testing.T) {
	for _, tt := range []struct {
		m          Measurement
		unit, want string
	}{
		{Measurement{Value: 1.234, CI: metrics.Interval{Low: 1.1, High: 1.377}}, "×", "1.23× [1.10, 1.38]"},
		{Measurement{Value: 95.04, CI: metrics.Interval{Low: 90, High: 99.99}}, "%", "95.0 % [90.0, 100.0]"},
		{Measurement{Value: 26500.4, Exact: true}, "×", "26500×"},
		{Measurement{Value: -0.5}, "", "-0.50 (" + metrics.FewPairsMark + ")"},
	} {
		if got := tt.m.text(tt.unit); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.m, got, tt.want)
		}
	}
	inf := math.Inf(1)
	for b, want := range map[Bounds]string{{1.4, 1.4}: "1.4 s", {1, 2}: "1 s to 2 s", {-inf, 2}: "at most 2 s", {2, inf}: "at least 2 s"} {
		if got := b.text("s"); got != want {
			t.Errorf("%v: %q, want %q", b, got, want)
		}
	}
}

// more has one claim of each level in addition to one/a, and a claim of another part.
const more = `  - {id: one/b, where: w, what: time, unit: ×, here: b, paper: 2, range: [1.1, 1.6], why: x, expected: direction, direction: above 1, why_not: not its size}
  - {id: one/c, where: w, what: share, unit: "%", here: c, paper: 2, range: [1.1, 1.6], why: x, expected: false, direction: above 1, why_not: too small}
  - {id: two/a, where: w, what: time, unit: ×, here: d, paper: none, range: [1.1, 1.6], why: x, expected: true}
`

// begun returns a plan without runs, and its claims.
func begun(t *testing.T) (*Plan, []Claim) {
	t.Helper()
	s, err := readText(t, strings.Replace(sound, "claims:", "  two: {scale: one host, scenario: b.yaml, base: x, arm: y}\nclaims:", 1)+more)
	if err != nil {
		t.Fatal(err)
	}
	return &Plan{Suite: s, o: Options{Dir: filepath.Join(t.TempDir(), "out")}}, s.Claims.Claims
}

// A required claim that is not reproduced is an error after everything is written.
func TestRequiredClaims(t *testing.T) {
	is := func(low, value, high float64) result {
		return result{Estimate: metrics.Estimate{Value: value, CI: metrics.Interval{Low: low, High: high}}}
	}
	for _, tt := range []struct {
		name   string
		a, b   result
		notRun string
		want   string // in the error
		lines  []string
	}{
		{"reproduced", is(1.2, 1.3, 1.4), is(1.2, 1.3, 1.4), "", "", []string{
			"| one/a | time    |  1.5× |   1.1× to 1.6× | 1.30× [1.20, 1.40] | less                  | yes       | reproduced            |",
			"3 claims: 1 reproduced, 1 in the expected range, 1 not run.", "Parts that did not run have 1 more.", " --only one).\n\n- one/a: the same. it is similar\n- one/b: b. x not its size\n",
			"- one/c: the part ran and has no such figure.\n",
		}},
		{"not significant", is(0.9, 1.3, 1.4), is(1.2, 1.3, 1.4), "", "one/a (not significant)", nil},
		{"direction does not suffice", exactly(2.5), exactly(2.5), "", "one/a (direction only)", nil},
		{"opposite", is(1.2, 1.3, 1.4), exactly(0.9), "", "one/b (not reproduced)", []string{"Required claims are not reproduced: one/b (not reproduced).\n"}},
		{"not measured", exactly(math.NaN()), is(1.2, 1.3, 1.4), "", "one/a (not run)", []string{"- one/a: the part ran and has no such figure.\n"}},
		{"skipped", none, none, "another trace", "", []string{"3 claims: 3 not run.\n", "- one/a: not run: another trace.\n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, claims := begun(t)
			p.Claims.ran["one"] = true
			claims[0].record(tt.a, onPackets)
			claims[1].record(tt.b, onPackets)
			for i := range claims {
				claims[i].NotRun = tt.notRun
			}
			var out strings.Builder
			err := p.Run(t.Context(), &out, runner.Options{}, nil)
			if errors.Is(err, ErrClaims) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			for _, want := range append(tt.lines, "## Claims of the paper\n", "Total time: ") {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			for name, want := range map[string]string{"report.md": out.String(), "report.html": `<th scope="row">one/a</th>`, "claims.json": `"outcome": "` + string(claims[0].Outcome)} {
				if text, err := os.ReadFile(filepath.Join(p.o.Dir, name)); err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%s: %v, no %q in\n%s", name, err, want, text)
				}
			}
		})
	}
}

// The page shows the paper's figure, ours and the range on one line, and the outcome in the colours of verdicts.
func TestPage(t *testing.T) {
	p, claims := begun(t)
	p.Claims.ran["one"] = true
	claims[0].record(exactly(1.2), onPackets)
	claims[1].record(exactly(0.9), onPackets)
	p.Claims.judge()
	var b strings.Builder
	if err := p.page(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`aria-label="paper 1.5×, ours 1.20×, expected 1.1× to 1.6×"`, `<span class="expected" style="left:4.5%;width:91%">`,
		`<span class="verdict near">in the expected range</span>`, `<span class="verdict void">not reproduced</span>`, "3 claims: ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A measurement on another backend than the claim's says so.
func TestBackend(t *testing.T) {
	p, claims := begun(t)
	claims[0].record(exactly(1.3), onFluid)
	claims[3].record(exactly(1.3), onFluid)
	p.Claims.ran["one"], p.Claims.ran["two"] = true, true
	rows, checks := tableOf(p.Claims.listed(false), false).Rows, tableOf(p.Claims.listed(true), true).Rows
	if len(rows) != 3 || len(checks) != 1 || rows[0][4] != "1.30×, fluid model" || checks[0][3] != "1.30×" {
		t.Errorf("claims %q and checks %q", rows, checks)
	}
}
