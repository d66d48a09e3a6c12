package report

import (
	"fmt"
	"strings"
)

// Partial names the repeats of a run that was cut short, as arm/repeat, like their
// directories. Repeats count from 0.
type Partial struct {
	Why      string   `json:"why"`
	Ended    []string `json:"ended"`     // the figures include these
	Cut      []string `json:"cut"`       // had begun: their captures are kept, but the run's own report excludes them
	NotBegun []string `json:"not_begun"` // have no data
}

func (p *Partial) String() string {
	list := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("PARTIAL: the run does not have all of its trials (%s). Completed: %s. Interrupted: %s. Not started: %s.",
		strings.Join(strings.Fields(p.Why), " "), list(p.Ended), list(p.Cut), list(p.NotBegun))
}
