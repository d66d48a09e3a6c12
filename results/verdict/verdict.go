// Package verdict is the answer to "may this figure be believed": pass,
// degraded or void, check by check, with the reason. It is the form in which
// emu/fidelity states it and results/report prints it.
//
// It measures nothing and judges nothing.
package verdict

import "fmt"

// Level is a grade. The zero Level is invalid.
type Level uint8

// Levels from good to bad. Unverified is a run whose fidelity record is
// missing, as when only its captures were kept.
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

// MarshalText is String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what String prints.
func (l *Level) UnmarshalText(text []byte) error {
	for level, name := range names {
		if name == string(text) {
			*l = level
			return nil
		}
	}
	return fmt.Errorf("verdict level %q: want pass, unverified, degraded or void", text)
}

// Check is one thing that was measured of the run itself.
type Check struct {
	Name   string `json:"name"` // such as "capture-drops"
	Level  Level  `json:"level"`
	Value  string `json:"value"`            // as measured, with its unit
	Pass   string `json:"pass"`             // the bound for pass, such as "≥ 0.97 and ≤ 1.01"
	Void   string `json:"void"`             // the bound beyond which the run is void
	Reason string `json:"reason,omitempty"` // what it means, where it is not a pass
}

// Verdict is the judgement of one arm and repeat.
type Verdict struct {
	Level  Level   `json:"level"` // the worst of the checks
	Checks []Check `json:"checks"`
	// Earlier are those of tries of the same repeat before this one, none of them a
	// pass. Nothing else of these tries is reported.
	Earlier []Verdict `json:"earlier,omitempty"`
}

// Of is the verdict that a set of checks amounts to: its worst.
func Of(checks ...Check) Verdict {
	v := Verdict{Level: Pass, Checks: checks}
	for _, c := range checks {
		v.Level = max(v.Level, c.Level)
	}
	return v
}

// Missing is the verdict of a run without a fidelity record.
func Missing(why string) Verdict {
	return Verdict{Level: Unverified, Checks: []Check{{Name: "fidelity-record", Level: Unverified, Value: "missing", Pass: "present", Void: "-", Reason: why}}}
}
