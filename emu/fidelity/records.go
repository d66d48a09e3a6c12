package fidelity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"testbed/results/verdict"
)

// RecordsVoid is the share of the coflows, blocks or jobs of a repeat that may lack a record. With more,
// an average is one of those that happen to be left, and the repeat is void.
const RecordsVoid = 0.05

const recordsCheck = "records"

// Doubt adds the problems of captures, and the items that completed without a record in them, to a
// verdict. A verdict that includes them already is returned unchanged.
func Doubt(v verdict.Verdict, problems []string, completed, recorded map[string]int) verdict.Verdict {
	c := verdict.Check{Name: recordsCheck, Level: verdict.Degraded, Value: fmt.Sprintf("%d problems", len(problems)),
		Pass: "0 problems", Void: fmt.Sprintf("> %g %% of the coflows, blocks or jobs without a record", 100*RecordsVoid)}
	if len(problems) > 0 {
		c.Reason = problems[0]
	}
	var lost []string
	for _, items := range slices.Sorted(maps.Keys(completed)) {
		n, of := recorded[items], completed[items]
		if n >= of {
			continue
		}
		lost = append(lost, fmt.Sprintf("%d of %d %s", n, of, items))
		if float64(of-n) > RecordsVoid*float64(of) {
			c.Level = verdict.Void
		}
	}
	if len(lost) > 0 {
		c.Value += ", records of " + strings.Join(lost, " and ")
	}
	if len(problems)+len(lost) == 0 {
		return v
	}
	return withCheck(v, c)
}

// withCheck adds a check to a verdict, or replaces one of its name that is better. That of records
// also replaces an equal one, because problems are found again in every report.
func withCheck(v verdict.Verdict, c verdict.Check) verdict.Verdict {
	checks := slices.Clone(v.Checks)
	switch i := slices.IndexFunc(checks, func(old verdict.Check) bool { return old.Name == c.Name }); {
	case i < 0:
		checks = append(checks, c)
	case checks[i].Level > c.Level, checks[i].Level == c.Level && c.Name != recordsCheck:
		return v
	default:
		checks[i] = c
	}
	out := verdict.Of(checks...)
	out.Level = max(out.Level, v.Level)
	out.Earlier = v.Earlier
	return out
}
