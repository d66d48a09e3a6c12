// Package verdict defines the fidelity verdict of a run: pass, degraded or void, check by
// check, with reasons. emu/fidelity produces verdicts and results/report prints them.
//
// The package does not measure or judge.
package verdict

import "fmt"

// Level is the grade of a verdict. The zero Level is invalid.
type Level uint8

// Levels, best first. Unverified means that the fidelity record is missing, for example if
// only the captures of a run were kept.
const (
	Pass Level = 1 + iota
	Unverified
	Degraded
	Void
)

var names = map[Level]string{Pass: "pass", Unverified: "unverified", Degraded: "degraded", Void: "void"}

func (l Level) String() string {
	if s, ok := names[l]; ok {
		return s
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// MarshalText returns String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText parses the result of String.
func (l *Level) UnmarshalText(text []byte) error {
	for level, name := range names {
		if name == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("verdict level %q: must be pass, unverified, degraded or void", text)
}

// Check is one fidelity check of a run.
type Check struct {
	Name   string `json:"name"` // such as "capture-drops"
	Level  Level  `json:"level"`
	Value  string `json:"value"`            // the measured value with its unit
	Pass   string `json:"pass"`             // the bound for pass, such as "≥ 0.97 and ≤ 1.01"
	Void   string `json:"void"`             // the bound beyond which the run is void
	Reason string `json:"reason,omitempty"` // the consequence, if it is not a pass
}

// Verdict is the judgement of one repeat of an arm.
type Verdict struct {
	Level  Level   `json:"level"` // the worst of the checks
	Checks []Check `json:"checks"`
	// Earlier has the verdicts of earlier attempts of the same repeat, none of them a pass.
	// Nothing else of these attempts is reported.
	Earlier []Verdict `json:"earlier,omitempty"`
}

// Of returns the verdict of a set of checks: the worst.
func Of(checks ...Check) Verdict {
	v := Verdict{Level: Pass, Checks: checks}
	for _, c := range checks {
		v.Level = max(v.Level, c.Level)
	}
	return v
}

// Missing returns the verdict of a run without a fidelity record.
func Missing(why string) Verdict {
	return Verdict{Level: Unverified, Checks: []Check{{Name: "fidelity-record", Level: Unverified, Value: "missing", Pass: "present", Void: "-", Reason: why}}}
}
