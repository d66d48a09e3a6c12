package report

import (
	"fmt"
	"strings"
)

// Partial says that a run ended before all its repeats had. Repeats are named
// arm/repeat, as their directories are, repeats from 0.
type Partial struct {
	Why      string   `json:"why"`
	Ended    []string `json:"ended"`     // the figures are theirs
	Cut      []string `json:"cut"`       // had begun; their captures are kept, and in no figure of the run's own report
	NotBegun []string `json:"not_begun"` // have nothing
}

func (p *Partial) String() string {
	list := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("PARTIAL: the run was cut short (%s). Ended: %s. Cut: %s. Not begun: %s.",
		strings.Join(strings.Fields(p.Why), " "), list(p.Ended), list(p.Cut), list(p.NotBegun))
}
