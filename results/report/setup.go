package report

import (
	"cmp"
	"fmt"

	"testbed/results/summary"
)

// DefaultSetupShare is the default of Input.SetupShare.
const DefaultSetupShare = 0.05

// setupNotes returns the notes on arms whose setup exceeds the limit.
func (r *Report) setupNotes() (notes []string) {
	limit := cmp.Or(r.in.SetupShare, DefaultSetupShare)
	for _, a := range r.Summary.Arms {
		if s := a.Setup; s != nil && s.Share > limit {
			notes = append(notes, fmt.Sprintf("%s: the median flow setup is %s, %.0f %% of the median FCT (this note appears "+
				"above %.0f %%). Setup is overhead of the testbed that FCT includes. Larger flows or lower rates reduce its share; "+
				"\"setup: simultaneous\" in the scenario shortens it.", a.Name, summary.Micros.Show(s.P50), 100*s.Share, 100*limit))
		}
	}
	return notes
}
