package compare

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"testbed/results/metrics"
)

// Gate is a bound on the change of a metric's average from the baseline to an arm, in percent: positive is slower.
type Gate struct {
	Metric Metric
	Above  bool // the change must not be above the bound; otherwise, not below
	Bound  float64
}

func (g Gate) String() string {
	op := "<"
	if g.Above {
		op = ">"
	}
	return fmt.Sprintf("%s %s %s%%", g.Metric, op, strconv.FormatFloat(g.Bound, 'f', -1, 64))
}

// gateParts are the parts of a gate, each with what is expected there.
var gateParts = []struct {
	re       *regexp.Regexp
	expected string
}{
	{regexp.MustCompile(`^[a-z_]+(\.[0-9]+)?`), "a metric, such as cct"},
	{regexp.MustCompile(`^[<>]`), "> or <"},
	{regexp.MustCompile(`^[+-]?[0-9]{1,9}(\.[0-9]{1,9})?`), "a number of percent, such as 3 or -2.5"},
	{regexp.MustCompile(`^%`), "%"},
	{regexp.MustCompile(`^$`), "the end"},
}

// ParseGate reads a gate such as "cct > 3%".
func ParseGate(text string) (Gate, error) {
	var parts []string
	rest := text
	fail := func(expected string) (Gate, error) {
		return Gate{}, fmt.Errorf("%q, column %d: expected %s (a gate is such as \"cct > 3%%\")",
			text, len(text)-len(rest)+1, expected)
	}
	for i, p := range gateParts {
		rest = strings.TrimLeft(rest, " ")
		part := p.re.FindString(rest)
		if part == "" && (i < len(gateParts)-1 || rest != "") {
			return fail(p.expected)
		}
		if i == 0 && !Metric(part).known() {
			return fail("a metric: " + metricNames())
		}
		parts = append(parts, part)
		rest = rest[len(part):]
	}
	bound, err := strconv.ParseFloat(parts[2], 64)
	if err != nil {
		return Gate{}, fmt.Errorf("%q: %w", text, err)
	}
	return Gate{Metric(parts[0]), parts[1] == ">", bound}, nil
}

// metricNames returns the metrics that a gate can have.
func metricNames() string {
	names := []string{}
	for _, m := range Metrics() {
		names = append(names, string(m))
	}
	return strings.Join(append(names, string(JobSlowdown), jobBin+"N"), ", ") + " or " + jobSize + "N"
}

func (m Metric) known() bool {
	_, bin := m.number(jobBin)
	_, size := m.number(jobSize)
	return bin || size || slices.Contains(append(Metrics(), JobSlowdown), m)
}

// GateOutcome is the conclusion from a gate.
type GateOutcome string

// The outcomes of a gate. An undecided gate is no success: its change has no interval.
const (
	Passed    GateOutcome = "passed"
	Failed    GateOutcome = "failed"
	Undecided GateOutcome = "undecided"
)

// GateResult is the outcome of a gate for one comparison.
type GateResult struct {
	Gate    string      `json:"gate"`
	Base    Side        `json:"base"`
	Arm     Side        `json:"arm"`
	Outcome GateOutcome `json:"outcome"`
	// Change of the average in percent, positive if the arm is slower, with its 95 % interval.
	Change   float64          `json:"change_percent"`
	ChangeCI metrics.Interval `json:"ci"`
	Why      string           `json:"why,omitempty"` // the reason why it is undecided
}

func (g GateResult) String() string {
	text := fmt.Sprintf("gate %s: %s: %s compared with %s: ", g.Gate, g.Outcome, g.Arm.label(), g.Base.label())
	if g.Outcome == Undecided {
		return text + g.Why
	}
	return text + fmt.Sprintf("%+.1f %% [%+.1f, %+.1f]", g.Change, g.ChangeCI.Low, g.ChangeCI.High)
}

// on returns the outcome of the gate for a comparison. It fails only if the whole interval is beyond the bound.
func (g Gate) on(c *Comparison) GateResult {
	r := GateResult{Gate: g.String(), Base: c.Base, Arm: c.Arm, Outcome: Undecided}
	f := c.figure(g.Metric)
	switch {
	case c.Refused != "":
		r.Why = c.Refused
		return r
	case f == nil:
		r.Why = fmt.Sprintf("no %s has a %s", g.Metric.noun(), g.Metric.short())
		return r
	case !f.MeanRatio.CI.Known():
		r.Why = fmt.Sprintf("%s: %d pairs of %d %s", metrics.FewPairs, f.Pairs, f.Clusters, clusters(g.Metric))
		return r
	}
	change := func(ratio float64) float64 { return metrics.Round6(100 * (1/ratio - 1)) }
	ci := f.MeanRatio.CI
	r.Change, r.ChangeCI = change(f.MeanRatio.Value), metrics.Interval{Low: change(ci.High), High: change(ci.Low)}
	switch {
	case g.Above && r.ChangeCI.Low > g.Bound || !g.Above && r.ChangeCI.High < g.Bound:
		r.Outcome = Failed
	case f.missing > 0:
		r.Why = fmt.Sprintf("%d of the same repeats completed in only one of the arms", f.missing)
	default:
		r.Outcome = Passed
	}
	return r
}

// gate reports whether a gate has an outcome.
func (r *Result) gate(o GateOutcome) bool {
	return slices.ContainsFunc(r.Gates, func(g GateResult) bool { return g.Outcome == o })
}

// GateFailed reports whether a gate failed.
func (r *Result) GateFailed() bool { return r.gate(Failed) }

// GateUndecided reports whether a gate is undecided.
func (r *Result) GateUndecided() bool { return r.gate(Undecided) }
