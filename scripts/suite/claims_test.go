package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/results/metrics"
)

// sound is the text of a claims file without errors. Its last lines are those of a claim.
const sound = `paper: A paper
tolerance: [0.5, 2]
parts:
  one: {on: packets, scale: two hosts, command: make one}
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

// readText reads the claims of a suite with the parts one and two.
func readText(t *testing.T, text string) (*Claims, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "claims.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadClaims(path, []string{"one", "two"})
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), path+":", ""))
	}
	return c, err
}

func TestReadClaims(t *testing.T) {
	c, err := readText(t, sound+`  - {id: one/b, where: table 1, what: time, unit: ×, here: b, paper: as one/a, range: [0, inf], why: x, expected: direction, direction: above 1, why_not: y}
  - {id: one/c, where: table 2, what: share, unit: "%", here: c, paper: [-inf, 40], range: [10, 50], why: x, expected: false, why_not: z, on: fluid model, scale: three hosts}
  - {id: one/d, where: table 2, what: count, unit: none, paper: none, on: nothing, expected: false, why_not: nothing measures it}
`)
	if err != nil {
		t.Fatal(err)
	}
	a, b, third, last := c.Claims[0], c.Claims[1], c.Claims[2], c.Claims[3]
	if *a.Paper != (Bounds{1.5, 1.5}) || *b.Paper != *a.Paper || a.On != "packets" || a.Scale != "two hosts" || a.Command != "make one" || *a.Direction != (Direction{true, 1}) || !math.IsInf(b.Range.High, 1) {
		t.Errorf("claims %+v and %+v", a, b)
	}
	if third.On != "fluid model" || third.Scale != "three hosts" || third.Command != "make one" || !math.IsInf(third.Paper.Low, -1) || last.Paper != nil || last.Unit != "" {
		t.Errorf("claims %+v and %+v", third, last)
	}
	for id, want := range map[string]string{"one/a": "1.5×", "one/b": "1.5×", "one/c": "at most 40 %", "one/d": "–", "one/z": "–"} {
		if got := c.Figure(id); got != want {
			t.Errorf("Figure(%s) = %q, want %q", id, got, want)
		}
	}
}

// Each error is reported with its line and column, all of a file at once.
func TestClaimsErrors(t *testing.T) {
	for _, tt := range []struct{ old, text, want string }{
		{"paper: A paper\n", "", "1:1: paper: missing: expected authors, venue and year of the paper"},
		{"  one:", "  three:", `4:3: parts.three: unknown key: expected one of one, two|6:9: claims[0].id: part one is not among the parts of this file: add it, with its command`},
		{"on: packets", "on: packet", `4:13: parts.one.on: "packet": expected packets, fluid model, flow-level simulator or nothing`},
		{", command: make one", "", "4:8: parts.one.command: missing: expected the command that measures the claims"},
		{"on: packets, ", "", "6:9: claims[0].id: on and scale: missing: expected them in the claim or in parts.one"},
		{"id: one/a", "id: three/a", `6:9: claims[0].id: "three/a": expected a part (one or two), a slash and a name`},
		{"id: one/a", "id: one", `6:9: claims[0].id: "one": expected a part (one or two), a slash and a name`},
		{"id: one/a", "id: [one]", "6:9: claims[0].id: a list: expected text"},
		{"where:", "wher:", `6:5: claims[0].where: missing: expected a section, table or figure of the paper|7:5: claims[0].wher: unknown key (did you mean "where"?)`},
		{"here: the same", "here: ~", "10:11: claims[0].here: no value: expected one, or leave the key out"},
		{"    here: the same\n", "", "6:5: claims[0].here: missing: expected what is measured"},
		{"    why: it is similar\n", "", "6:5: claims[0].why: missing: expected the reason for the range"},
		{"    paper: 1.5\n", "", "6:5: claims[0].paper: missing: expected a number, or a list of the lower and the upper bound, one of which can be -inf or inf"},
		{"paper: 1.5", "paper: 1.5x", `11:12: claims[0].paper: "1.5x": expected a number,`},
		{"paper: 1.5", "paper: .nan", `11:12: claims[0].paper: ".nan": expected a number,`},
		{"paper: 1.5", "paper: as one/b", `11:12: claims[0].paper: "as one/b": expected an earlier claim with a figure of the paper`},
		{"paper: 1.5", "paper: 0.9", "11:12: claims[0].paper: 0.9×: expected a figure above 1, the direction"},
		{"tolerance: [0.5, 2]\n", "", "1:1: tolerance: missing: expected a number, or a list"},
		{"[0.5, 2]", "[1.5, 2]", "2:12: tolerance: 1.5 to 2: expected factors of the paper's effects, such as [0.5, 2]"},
		{"range: [1.1, 1.6]", "range: [1.6, 1.1]", "12:12: claims[0].range: 1.6 to 1.1: expected a lower bound that is at most the upper one"},
		{"range: [1.1, 1.6]", "range: [-inf, inf]", "12:12: claims[0].range: -Inf to +Inf: expected a lower bound"},
		{"range: [1.1, 1.6]", "range: [inf, 2]", `12:13: claims[0].range: "inf": expected a number,`},
		{"range: [1.1, 1.6]", "range: inf", `12:12: claims[0].range: "inf": expected a number,`},
		{"range: [1.1, 1.6]", "range: [1, 2, 3]", "12:12: claims[0].range: a list: expected a number,"},
		{"range: [1.1, 1.6]", "range: [0.8, 1]", "12:12: claims[0].range: 0.8× to 1×: expected values above 1 too, the direction"},
		{"direction: above 1", "direction: over 1", `13:16: claims[0].direction: "over 1": expected above or below and a number, such as "above 1"`},
		{"direction: above 1", "direction: above 0", "13:16: claims[0].direction: above 0: a factor has an effect relative to a positive value: expected such as above 1"},
		{"expected: true", "expected: yes", `15:15: claims[0].expected: "yes": expected true, direction or false`},
		{"expected: true", "expected: false", "15:15: claims[0].expected: false: expected why_not too, the reason"},
		{"expected: true", "expected: true\n    why_not: x", "16:14: claims[0].why_not: given with expected: true: leave it out"},
		{"    direction: above 1\n", "    why_not: x\n    on: nothing\n", "16:15: claims[0].expected: no part measures this claim (on: nothing)"},
		{"    direction: above 1\n    why: it is similar\n    expected: true", "    why: x\n    why_not: x\n    expected: direction", "15:15: claims[0].expected: direction: expected the key direction too"},
		{"what: time", "what: &x time", "8:11: claims[0].what: anchor &x: not supported in claims files"},
		{"\n    what: time", "\n\twhat: time", "8:1: tab in the indentation: use spaces"},
		{"    expected: true\n", "    expected: true\n  - {id: one/a, where: w, what: x, unit: s, here: h, paper: as one/a, range: 1, why: y, expected: true}\n",
			`16:10: claims[1].id: "one/a": first on line 6: expected another name|16:61: claims[1].paper: "as one/a": a figure in "×", and this claim has "s": expected the same unit`},
		{"claims:", "claim:", `1:1: claims: missing: expected a list of claims|5:1: claim: unknown key (did you mean "claims"?)`},
		{sound[strings.Index(sound, "  - id"):], "  one: two\n", "6:3: claims: a mapping: expected a list of claims"},
		{sound, "", "1:1: empty file: expected a claims file with the keys paper, tolerance, original, parts, claims"},
		{sound, "[]", "1:1: a list: expected a mapping with the keys paper, tolerance, original, parts, claims"},
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
	if _, err := ReadClaims("nowhere.yaml", nil); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
		t.Errorf("no file: %v", err)
	}
}

// FuzzReadClaims checks that no content panics, and that claims without errors have an outcome.
func FuzzReadClaims(f *testing.F) {
	f.Add(sound)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := readText(t, text); err == nil {
			c.judge()
			if err := c.encode(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}

// The claims of all suites can be read.
func TestShippedClaims(t *testing.T) {
	paths, err := filepath.Glob("../*/claims.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%v, %v: want three files or more", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string // each suite's tests check these
		for line := range strings.Lines(string(text)) {
			if name := strings.TrimSuffix(strings.TrimSpace(line), ":"); strings.HasPrefix(line, "  "+name+":") {
				parts = append(parts, name)
			}
		}
		c, err := ReadClaims(path, parts)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range parts {
			if !slices.ContainsFunc(c.Claims, func(x Claim) bool { return x.part() == part }) {
				t.Errorf("%s: part %s has no claim", path, part)
			}
		}
	}
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
  - {id: one/c, where: w, what: time, unit: ×, here: c, paper: 2, range: [1.1, 1.6], why: x, expected: false, direction: above 1, why_not: too small}
  - {id: two/a, where: w, what: time, unit: ×, here: d, paper: none, range: [1.1, 1.6], why: x, expected: true}
`

// begun returns a report in a new directory and its claims.
func begun(t *testing.T) (*Report, *Claims, string) {
	t.Helper()
	c, err := readText(t, strings.Replace(sound, "claims:", "  two: {on: fluid model, scale: one host, command: make two}\nclaims:", 1)+more)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "out")}
	r, err := o.Begin(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r, c, o.Dir
}

// A required claim that is not reproduced is an error after everything is written; a void arm is
// another, which takes precedence, and a part that fails ends the suite.
func TestRunClaims(t *testing.T) {
	ci := metrics.Interval{Low: 1.2, High: 1.4}
	void := "echo '{}'; exit 3"
	for _, tt := range []struct {
		name, script string // of the program, which part one runs
		a, b         Measurement
		skip         string
		claims, void bool
		want         string // in the error
		lines        []string
	}{
		{"reproduced", "echo '{}'", Measurement{Value: 1.3, CI: ci}, Measurement{Value: 1.3, CI: ci}, "", false, false, "", []string{
			"| one/a | time    |  1.5× | 1.1× to 1.6× | 1.30× [1.20, 1.40] | less                  | yes       | reproduced            |",
			"3 claims: 1 reproduced, 1 in the expected range, 1 not run.", "Parts that did not run have 1 more.", "one, packets: two hosts (make one).\n\n- one/a: the same. it is similar\n- one/b: b. x not its size\n", "- one/c: the part ran and has no such figure.\n"}},
		{"not significant", "echo '{}'", Measurement{Value: 1.3, CI: metrics.Interval{Low: 0.9, High: 1.4}}, Measurement{Value: 1.3, CI: ci}, "", true, false, "one/a (not significant)", nil},
		{"direction does not suffice", "echo '{}'", Measurement{Value: 2.5, Exact: true}, Measurement{Value: 2.5, Exact: true}, "", true, false, "one/a (direction only)", nil},
		{"opposite", "echo '{}'", Measurement{Value: 1.3, CI: ci}, Measurement{Value: 0.9, Exact: true}, "", true, false, "one/b (not reproduced)", []string{
			"Required claims are not reproduced: one/b (not reproduced).\n"}},
		{"not measured", "echo '{}'", Measurement{Value: math.NaN()}, Measurement{Value: 1.3, CI: ci}, "", true, false, "one/a (not run)", []string{"- one/a: the part ran and has no such figure.\n"}},
		{"skipped", "echo '{}'", Measurement{Value: 0.5, Exact: true}, Measurement{Value: 0.5, Exact: true}, "one/", false, false, "", []string{"3 claims: 3 not run.\n", "- one/a: not run: another trace.\n"}},
		{"void", void, Measurement{Value: 0.5, Exact: true}, Measurement{Value: 0.5, Exact: true}, "", false, true, "testbed run: an arm is void", []string{"3 claims: 2 not reproduced, 1 not run."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, c, dir := begun(t)
			if tt.skip != "" {
				c.Skip(tt.skip, "another trace")
			}
			p := program(t, tt.script)
			err := r.Run(context.Background(), c, []Part{{"one", "the first part", func(ctx context.Context) error {
				_, err := p.Run(ctx, "run", "x.yaml")
				for id, m := range map[string]Measurement{"one/a": tt.a, "one/b": tt.b, "one/unknown": tt.a} {
					if m.Exact {
						c.Exact(id, m.Value)
					} else {
						c.Measured(id, m.Value, m.CI)
					}
				}
				return err
			}, false}})
			if errors.Is(err, ErrClaims) != tt.claims || errors.Is(err, ErrVoid) != tt.void || tt.want == "" && err != nil || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			text, err := os.ReadFile(filepath.Join(dir, "report.md"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range append(tt.lines, "## The first part\n", "## Claims of the paper\n", "Total time: ") {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			var file struct {
				Paper  string
				Claims []map[string]any
			}
			text, err = os.ReadFile(filepath.Join(dir, "claims.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &file); err != nil || file.Paper != "A paper" || len(file.Claims) != 4 || file.Claims[0]["outcome"] != string(c.Claims[0].Outcome) {
				t.Errorf("claims.json: %v\n%s", err, text)
			}
		})
	}
}

func TestRunFails(t *testing.T) {
	r, c, dir := begun(t)
	ran := false
	err := r.Run(context.Background(), c, []Part{
		{"one", "a part", func(context.Context) error { return errors.New("no host") }, false},
		{"two", "another", func(context.Context) error { ran = true; return nil }, false},
	})
	if err == nil || err.Error() != "one: no host" || ran {
		t.Errorf("%v, and the part after it ran: %v", err, ran)
	}
	if _, err := os.Stat(filepath.Join(dir, "claims.json")); !os.IsNotExist(err) {
		t.Errorf("claims.json of a suite that failed: %v", err)
	}
}

// A measurement on another backend than the claim's says so.
func TestBackend(t *testing.T) {
	_, c, _ := begun(t)
	c.Backend = "fluid model"
	c.Exact("one/a", 1.3)
	c.Exact("two/a", 1.3)
	c.ran["one"], c.ran["two"] = true, true
	claims, checks := tableOf(c.listed(false), false).Rows, tableOf(c.listed(true), true).Rows
	if len(claims) != 3 || len(checks) != 1 || claims[0][4] != "1.30×, fluid model" || checks[0][3] != "1.30×" || c.Claims[0].Measured.On != "fluid model" {
		t.Errorf("claims %q and checks %q", claims, checks)
	}
}

// TestExitCode runs Main in this program, with a part that the variable names.
func TestExitCode(t *testing.T) {
	const variable = "SUITE_TEST_PART"
	if part := os.Getenv(variable); part != "" {
		r, c, _ := begun(t)
		Main("suite", func(ctx context.Context, _ io.Writer) error {
			return r.Run(ctx, c, []Part{{"one", "a part", func(context.Context) error {
				c.Exact("one/a", map[string]float64{"reproduced": 1.3, "less": 0.5}[part])
				c.Exact("one/b", 1.3)
				return map[string]error{"void": ErrVoid, "fails": errors.New("no host")}[part]
			}, false}})
		})
		os.Exit(0)
	}
	for part, want := range map[string]int{"reproduced": 0, "less": exitClaims, "void": 1, "fails": 1} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestExitCode$")
		cmd.Env = append(os.Environ(), variable+"="+part, "TMPDIR="+t.TempDir()) // it ends without removing its directories
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, %v, want %d\n%s", part, got, err, want, out)
		}
	}
}
