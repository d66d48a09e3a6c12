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
	Paper string `json:"paper"` // authors, venue and year
	// Tolerance is how much smaller or larger than the paper's an effect may be, as a factor, such as 0.5 to 2.
	Tolerance Bounds          `json:"tolerance"`
	Claims    []Claim         `json:"claims"`
	ran       map[string]bool // parts
}

// Claim is a figure of a paper, what is expected here, and what was measured.
type Claim struct {
	ID    string  `json:"id"` // a part, a slash and a name
	Where string  `json:"where"`
	What  string  `json:"what"`
	Paper *Bounds `json:"paper"` // null if the paper has no figure
	Unit  string  `json:"unit"`  // of all figures of the claim

	Here string `json:"here,omitempty"` // what is measured
	On   string `json:"on"`             // one of backends
	// Original is the network, the disks and the size of the paper's experiment, and Scale that of ours.
	Original string `json:"original,omitempty"`
	Scale    string `json:"scale"`
	Command  string `json:"command"`

	Range     Bounds     `json:"range,omitzero"` // expected here
	Why       string     `json:"why,omitempty"`
	Wide      string     `json:"wide,omitempty"` // why the range is not narrower, if it is wide
	Direction *Direction `json:"direction,omitempty"`
	Required  string     `json:"required"`          // one of levels
	WhyNot    string     `json:"why_not,omitempty"` // why the figure is not required

	Measured *Measurement `json:"measured"`          // null if it was not
	NotRun   string       `json:"not_run,omitempty"` // reason
	Outcome  Outcome      `json:"outcome"`

	target *target // nil if no part measures it
}

// backends are what claims are measured on. No part measures a claim on nothing.
var backends = []string{onPackets, onFluid, simulator, nothing}

const (
	onPackets = "packets"
	onFluid   = "fluid model"
	simulator = "flow-level simulator"
	nothing   = "nothing"
)

// levels are the values of Required: the figure must be reproduced or in the expected range, it must be
// at least on the side of its direction, or it need not be.
var levels = []string{mustHold, directionSuffices, "false"}

const mustHold, directionSuffices = "true", "direction"

// Bounds are the ends of a range, which belong to it; both are equal for a number.
type Bounds struct{ Low, High float64 }

func (b Bounds) holds(x float64) bool   { return b.Low <= x && x <= b.High }
func (b Bounds) overlaps(o Bounds) bool { return b.Low <= o.High && o.Low <= b.High }

// wide reports whether the ends are more than a factor of two apart, as those of a range on both sides of
// zero and of one that is not bounded.
func (b Bounds) wide() bool {
	low, high := min(math.Abs(b.Low), math.Abs(b.High)), max(math.Abs(b.Low), math.Abs(b.High))
	return b.Low != b.High && (b.Low < 0 && b.High > 0 || high > 2*low)
}

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

// The outcomes of claims. With a direction, the whole interval is on its side unless the outcome says otherwise.
const (
	// Reproduced: the paper's figure is in the measured interval, or the effect is within the tolerance of
	// the paper's (Claim.like).
	Reproduced Outcome = "reproduced"
	// InRange: it is not, and the measurement is in the range that was expected here.
	InRange Outcome = "in the expected range"
	// DirectionOnly: neither, and the claim has a direction.
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

var outcomes = []Outcome{Reproduced, InRange, DirectionOnly, NotSignificant, NotReproduced, NotRun}

// judge returns the outcome of a claim.
func (c *Claim) judge(tolerance Bounds) Outcome {
	if c.Measured == nil {
		return NotRun
	}
	spread, known := c.Measured.spread()
	d := c.Direction
	switch {
	case d == nil:
	case !known:
		return NotSignificant
	case d.opposite().includes(spread):
		return NotReproduced
	case !d.includes(spread):
		return NotSignificant
	}
	switch {
	case c.Paper != nil && (known && c.Paper.overlaps(spread) || c.like(tolerance)):
		return Reproduced
	case c.Range.holds(c.Measured.Value):
		return InRange
	case d != nil:
		return DirectionOnly
	case !known || spread.overlaps(c.Range):
		return NotSignificant
	}
	return NotReproduced
}

// like reports whether the measured effect is within the tolerance of the paper's. An effect is the distance of
// a figure from the value of the direction: of a percentage the difference, of a factor the logarithm of
// their ratio. Claims without a direction, and figures in other units, state no effect.
func (c *Claim) like(tolerance Bounds) bool {
	if c.Direction == nil {
		return false
	}
	effect := func(x float64) float64 {
		e := x - c.Direction.Than
		if c.Unit == "×" {
			e = math.Log(max(x, 0) / c.Direction.Than)
		}
		if !c.Direction.Above {
			return -e
		}
		return e
	}
	low, high := effect(c.Paper.Low), effect(c.Paper.High)
	low, high = max(min(low, high), 0), max(low, high)
	is := effect(c.Measured.Value)
	return (c.Unit == "×" || c.Unit == "%") && tolerance.Low*low <= is && is <= tolerance.High*high
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

// record keeps a result, measured on a backend.
func (c *Claim) record(r result, on string) {
	if !r.none {
		c.Measured = &Measurement{Value: r.Value, CI: r.CI, Exact: r.exact, On: on}
	}
}

// judge sets the outcomes of all claims.
func (c *Claims) judge() {
	for i := range c.Claims {
		c.Claims[i].Outcome = c.Claims[i].judge(c.Tolerance)
	}
}

// listed returns the claims of parts that ran: those with a figure of the paper, or the others, the checks.
func (c *Claims) listed(checks bool) (out []Claim) {
	for _, x := range c.Claims {
		if c.ran[x.part()] && (x.Paper == nil) == checks {
			out = append(out, x)
		}
	}
	return out
}

// relative is the heading of a column.
const relative = "relative to the paper"

// tableOf returns the table of claims, or of checks.
func tableOf(claims []Claim, checks bool) table.Table {
	text := table.Column{Left: true}
	t := table.Table{Head: []string{"claim", "meaning", "paper", "expected", "measured", relative, "required", "outcome"},
		Columns: []table.Column{table.Names(), text, {}, {}, {}, text, text, text}}
	if checks {
		t.Head[0] = "check"
	}
	for _, x := range claims {
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
		row := []string{x.ID, x.What, paper, expected, measured, x.relative(), required, string(x.Outcome)}
		if checks {
			row = slices.Delete(row, 5, 6)
			row = slices.Delete(row, 2, 3)
		}
		t.Rows = append(t.Rows, row)
	}
	if checks {
		t.Head = slices.Delete(slices.Delete(t.Head, 5, 6), 2, 3)
		t.Columns = slices.Delete(slices.Delete(t.Columns, 5, 6), 2, 3)
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
		case x.Required != mustHold && x.Required != directionSuffices, x.Outcome == Reproduced, x.Outcome == InRange, x.Required == directionSuffices && x.Outcome == DirectionOnly,
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

// rule states when a claim is reproduced.
func (c *Claims) rule() string {
	return fmt.Sprintf("A claim is reproduced if the paper's figure is in the measured interval, or the effect is %s times the paper's (docs/suites.md). A check has no figure of the paper.", c.Tolerance.text(""))
}

// write writes the tables of claims and checks of the parts that ran, with their reasons, to a report.
func (c *Claims) write(r *Report) error {
	c.judge()
	r.Part("claims of the paper")
	r.Say("%s. %s\n", c.Paper, c.rule())
	for _, checks := range []bool{false, true} {
		list := c.listed(checks)
		if len(list) == 0 {
			continue
		}
		if err := tableOf(list, checks).Markdown(r); err != nil {
			return err
		}
		r.Say("\n%s\n", counts(list, map[bool]string{false: "claim", true: "check"}[checks]))
	}
	if n := len(c.Claims) - len(c.listed(false)) - len(c.listed(true)); n > 0 {
		r.Say("Parts that did not run have %d more.\n", n)
	}
	if err := c.broken(); err != nil {
		r.Say("%s.\n", strings.ToUpper(err.Error()[:1])+err.Error()[1:])
	}
	var more []string
	for _, x := range c.Claims {
		if x.Required != mustHold && x.Paper != nil && x.Outcome == Reproduced {
			more = append(more, x.ID)
		}
	}
	if more != nil {
		r.Say("Reproduced, although not required: %s.\n", strings.Join(more, ", "))
	}
	c.reasons(func(where string) { r.Say("\n%s\n", where) }, func(text string) { r.Say("- %s", text) })
	r.Say("")
	return nil
}

// reasons calls head for the place and scale of the claims of parts that ran, and item for each claim.
func (c *Claims) reasons(head, item func(string)) {
	where := ""
	for _, x := range c.Claims {
		if !c.ran[x.part()] {
			continue
		}
		now := fmt.Sprintf("%s, %s: %s (%s).", x.part(), x.On, x.Scale, x.Command)
		if x.Original != "" {
			now += " The paper: " + strings.TrimSuffix(x.Original, ".") + "."
		}
		if now != where && (x.On != nothing || where == "") {
			where = now
			head(where)
		}
		switch {
		case x.Measured != nil:
			item(fmt.Sprintf("%s: %s. %s", x.ID, x.Here, strings.Join(strings.Fields(x.Why+" "+x.Wide+" "+x.WhyNot), " ")))
		case x.On == nothing:
			item(fmt.Sprintf("%s: not measured. %s", x.ID, x.WhyNot))
		case x.NotRun != "":
			item(fmt.Sprintf("%s: not run: %s.", x.ID, x.NotRun))
		default:
			item(fmt.Sprintf("%s: the part ran and has no such figure.", x.ID))
		}
	}
}

// encode writes the claims as JSON.
func (c *Claims) encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(c)
}
