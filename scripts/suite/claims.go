package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"testbed/results/metrics"
	"testbed/results/table"
)

// Claims are the figures of a paper, as a file such as scripts/sinbad/claims.yaml states them, and
// what a suite measured for them.
type Claims struct {
	Paper  string  `json:"paper"` // authors, venue and year
	Claims []Claim `json:"claims"`
	// Backend is the backend of the measurements that follow, if it is not the one that the
	// claims state.
	Backend string          `json:"-"`
	ran     map[string]bool // parts
}

// Claim is a figure of a paper, what is expected here, and what was measured.
type Claim struct {
	ID    string  `json:"id"` // a part, a slash and a name
	Where string  `json:"where"`
	What  string  `json:"what"`
	Paper *Bounds `json:"paper"` // null if the paper has no figure
	Unit  string  `json:"unit"`  // of all figures of the claim

	Here    string `json:"here,omitempty"` // what is measured
	On      string `json:"on"`             // one of backends
	Scale   string `json:"scale"`
	Command string `json:"command"`

	Range     Bounds     `json:"range,omitzero"` // expected here
	Why       string     `json:"why,omitempty"`
	Direction *Direction `json:"direction,omitempty"`
	Required  string     `json:"required"`          // one of levels
	WhyNot    string     `json:"why_not,omitempty"` // why the figure is not required

	Measured *Measurement `json:"measured"`          // null if it was not
	NotRun   string       `json:"not_run,omitempty"` // reason
	Outcome  Outcome      `json:"outcome"`
}

// backends are what claims are measured on. No part measures a claim on nothing.
var backends = []string{"packets", "fluid model", "flow-level simulator", nothing}

const nothing = "nothing"

// levels are the values of Required: the claim must be reproduced, it must be reproduced at least in
// its direction, or it need not be.
var levels = []string{mustHold, directionSuffices, "false"}

const mustHold, directionSuffices = "true", "direction"

// Bounds are the ends of a range, which belong to it; both are equal for a number.
type Bounds struct{ Low, High float64 }

func (b Bounds) holds(x float64) bool   { return b.Low <= x && x <= b.High }
func (b Bounds) overlaps(o Bounds) bool { return b.Low <= o.High && o.Low <= b.High }
func number(x float64, unit string) string {
	return withUnit(strconv.FormatFloat(x, 'f', -1, 64), unit)
}

func withUnit(text, unit string) string {
	switch unit {
	case "", "×":
		return text + unit
	}
	return text + " " + unit
}

// text formats bounds with their unit.
func (b Bounds) text(unit string) string {
	switch {
	case b.Low == b.High:
		return number(b.Low, unit)
	case math.IsInf(b.Low, 0):
		return "at most " + number(b.High, unit)
	case math.IsInf(b.High, 0):
		return "at least " + number(b.Low, unit)
	}
	return number(b.Low, unit) + " to " + number(b.High, unit)
}

// MarshalJSON writes [low, high], with null for an end that is not bounded.
func (b Bounds) MarshalJSON() ([]byte, error) {
	ends := []*float64{&b.Low, &b.High}
	for i, x := range ends {
		if math.IsInf(*x, 0) {
			ends[i] = nil
		}
	}
	return json.Marshal(ends)
}

// Direction is the side of a value on which a figure is claimed to be: above 1 for a speed-up.
type Direction struct {
	Above bool
	Than  float64
}

func (d Direction) String() string {
	if d.Above {
		return "above " + number(d.Than, "")
	}
	return "below " + number(d.Than, "")
}

// MarshalJSON writes the direction as text.
func (d Direction) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// includes reports whether all values within bounds are on the side of the direction.
func (d Direction) includes(b Bounds) bool {
	if d.Above {
		return b.Low > d.Than
	}
	return b.High < d.Than
}

// opposite is the other side of the same value.
func (d Direction) opposite() Direction { return Direction{!d.Above, d.Than} }

// reaches reports whether a value within bounds is on the side of the direction.
func (d Direction) reaches(b Bounds) bool {
	if d.Above {
		return b.High > d.Than
	}
	return b.Low < d.Than
}

// Measurement is a measured figure.
type Measurement struct {
	Value float64          `json:"value"`
	CI    metrics.Interval `json:"ci"`    // 95 %; null if it has none
	Exact bool             `json:"exact"` // not a sample, so that it needs no interval
	On    string           `json:"on"`
}

// spread returns the interval of a measurement; known is false for a sample with fewer than
// metrics.LeastPairs independent pairs.
func (m *Measurement) spread() (b Bounds, known bool) {
	if m.Exact {
		return Bounds{m.Value, m.Value}, true
	}
	return Bounds(m.CI), m.CI.Known()
}

// text formats a measurement with three significant digits or more.
func (m *Measurement) text(unit string) string {
	decimals := 2
	for bound := 10.0; decimals > 0 && math.Abs(m.Value) >= bound; bound *= 10 {
		decimals--
	}
	text := withUnit(strconv.FormatFloat(m.Value, 'f', decimals, 64), unit)
	switch {
	case m.Exact:
	case m.CI.Known():
		text += " " + m.CI.Decimals(decimals)
	default:
		text += " (" + metrics.FewPairsMark + ")"
	}
	return text
}

// Outcome is the result of a claim.
type Outcome string

// The outcomes of claims. Agreement with the paper means that the paper's figure is in the expected
// range or in the measured interval; a claim without a figure of the paper agrees.
const (
	// Reproduced: the measurement is in the expected range, agrees with the paper and, if the claim
	// has a direction, its whole interval is on that side.
	Reproduced Outcome = "reproduced"
	// DirectionOnly: the whole interval is on the side of the direction, but the measurement is
	// outside the range or does not agree with the paper.
	DirectionOnly Outcome = "direction only"
	// NotSignificant: the interval includes both sides of the direction; or the claim has none, the
	// measurement is outside the range and its interval is not; or there are too few pairs for an
	// interval that this needs.
	NotSignificant Outcome = "not significant"
	// NotReproduced is every other measurement.
	NotReproduced Outcome = "not reproduced"
	// NotRun: there is no measurement.
	NotRun Outcome = "not run"
)

var outcomes = []Outcome{Reproduced, DirectionOnly, NotSignificant, NotReproduced, NotRun}

// judge returns the outcome of a claim.
func (c *Claim) judge() Outcome {
	if c.Measured == nil {
		return NotRun
	}
	spread, known := c.Measured.spread()
	agrees := c.Paper == nil || c.Paper.overlaps(c.Range) || known && c.Paper.overlaps(spread)
	fits := agrees && c.Range.holds(c.Measured.Value)
	d := c.Direction
	switch {
	case d == nil && fits:
		return Reproduced
	case !known, d == nil && agrees && spread.overlaps(c.Range):
		return NotSignificant
	case d == nil || d.opposite().includes(spread):
		return NotReproduced
	case !d.includes(spread):
		return NotSignificant
	case fits:
		return Reproduced
	}
	return DirectionOnly
}

// relative compares a measurement with the paper's figure.
func (c *Claim) relative() string {
	if c.Paper == nil || c.Measured == nil {
		return "–"
	}
	m := c.Measured
	switch spread, known := m.spread(); {
	case c.Paper.holds(m.Value):
		return "agrees"
	case !known:
		return metrics.FewPairs
	case spread.overlaps(*c.Paper):
		return "not significant"
	case m.Value < c.Paper.Low:
		return "less"
	default:
		return "more"
	}
}

// part returns the part of a suite that measures a claim.
func (c *Claim) part() string {
	part, _, _ := strings.Cut(c.ID, "/")
	return part
}

func (c *Claims) find(id string) *Claim {
	at := slices.IndexFunc(c.Claims, func(x Claim) bool { return x.ID == id })
	if at < 0 {
		return nil
	}
	return &c.Claims[at]
}

// Measured records a sample's figure, in the claim's unit, with its 95 % interval; the zero interval
// stands for too few pairs. It ignores figures that no claim has.
func (c *Claims) Measured(id string, value float64, ci metrics.Interval) {
	c.put(id, Measurement{Value: value, CI: ci})
}

// Exact records a figure that needs no interval, such as one of the flow-level simulator.
func (c *Claims) Exact(id string, value float64) { c.put(id, Measurement{Value: value, Exact: true}) }

func (c *Claims) put(id string, m Measurement) {
	if x := c.find(id); x != nil && x.NotRun == "" && !math.IsNaN(m.Value) {
		m.On = x.On
		if c.Backend != "" {
			m.On = c.Backend
		}
		x.Measured = &m
	}
}

// Skip gives the reason for which a part that runs does not measure some claims, those whose ID begins
// with the prefix. Later measurements of these are ignored.
func (c *Claims) Skip(prefix, why string) {
	for i := range c.Claims {
		if x := &c.Claims[i]; strings.HasPrefix(x.ID, prefix) {
			x.NotRun = why
		}
	}
}

// Figure returns the paper's figure with its unit, or a dash if there is none.
func (c *Claims) Figure(id string) string {
	if x := c.find(id); x != nil && x.Paper != nil {
		return x.Paper.text(x.Unit)
	}
	return "–"
}

// Table returns the table of claims, and sets their outcomes.
func (c *Claims) Table() table.Table {
	text := table.Column{Left: true}
	t := table.Table{Head: []string{"claim", "meaning", "paper", "expected", "measured", "relative to the paper", "required", "outcome"},
		Columns: []table.Column{table.Names(), text, {}, {}, {}, text, text, text}}
	for i := range c.Claims {
		x := &c.Claims[i]
		x.Outcome = x.judge()
		paper, expected, measured := "–", "–", "–"
		if x.Paper != nil {
			paper = x.Paper.text(x.Unit)
		}
		if x.On != nothing {
			expected = x.Range.text(x.Unit)
		}
		if m := x.Measured; m != nil {
			measured = m.text(x.Unit)
			if m.On != x.On {
				measured += ", " + m.On
			}
		}
		required := map[string]string{mustHold: "yes", directionSuffices: directionSuffices, "false": "no"}[x.Required]
		t.Rows = append(t.Rows, []string{x.ID, x.What, paper, expected, measured, x.relative(), required, string(x.Outcome)})
	}
	return t
}

// unmeasured reports whether the part of a claim ran and, without a reason, did not measure it.
func (c *Claims) unmeasured(x Claim) bool {
	return x.Measured == nil && c.ran[x.part()] && x.NotRun == "" && x.On != nothing
}

// ErrClaims is the error of a suite of which a required claim is not reproduced.
var ErrClaims = errors.New("required claims are not reproduced")

// broken returns ErrClaims with the required claims that are not reproduced, or nil. A claim of a
// part that did not run is not among them.
func (c *Claims) broken() error {
	var names []string
	for _, x := range c.Claims {
		switch {
		case x.Required != mustHold && x.Required != directionSuffices, x.Outcome == Reproduced, x.Required == directionSuffices && x.Outcome == DirectionOnly,
			x.Outcome == NotRun && !c.unmeasured(x):
		default:
			names = append(names, fmt.Sprintf("%s (%s)", x.ID, x.Outcome))
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrClaims, strings.Join(names, ", "))
}

// write writes the table of claims with their reasons to a report.
func (c *Claims) write(r *Report) error {
	r.Part("claims of the paper")
	r.Say("%s. A claim is reproduced if the measurement is in the expected range, the paper's figure is in that range or in the measured interval, and the whole interval is on the claimed side, if there is one (docs/suites.md).\n", c.Paper)
	if err := c.Table().Markdown(r); err != nil {
		return err
	}
	r.Say("")
	var counts, more []string
	for _, o := range outcomes {
		n := 0
		for _, x := range c.Claims {
			if x.Outcome == o {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, o))
		}
	}
	r.Say("%d claims: %s.\n", len(c.Claims), strings.Join(counts, ", "))
	if err := c.broken(); err != nil {
		r.Say("%s.\n", strings.ToUpper(err.Error()[:1])+err.Error()[1:])
	}
	for _, x := range c.Claims {
		if x.Required != mustHold && x.Outcome == Reproduced {
			more = append(more, x.ID)
		}
	}
	if more != nil {
		r.Say("Reproduced, although not required: %s.\n", strings.Join(more, ", "))
	}
	where := ""
	for _, x := range c.Claims {
		if !c.ran[x.part()] {
			continue
		}
		if now := fmt.Sprintf("%s, %s: %s (%s).", x.part(), x.On, x.Scale, x.Command); x.On != nothing && now != where {
			where = now
			r.Say("\n%s\n", where)
		}
		switch {
		case x.Measured != nil:
			r.Say("- %s: %s. %s", x.ID, x.Here, strings.TrimSpace(x.Why+" "+x.WhyNot))
		case x.On == nothing:
			r.Say("- %s: not measured. %s", x.ID, x.WhyNot)
		case x.NotRun != "":
			r.Say("- %s: not run: %s.", x.ID, x.NotRun)
		default:
			r.Say("- %s: the part ran and has no such figure.", x.ID)
		}
	}
	r.Say("")
	return nil
}

// encode writes the claims as JSON.
func (c *Claims) encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(c)
}
