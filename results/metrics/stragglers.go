package metrics

import (
	"slices"

	"testbed/results/flows"
)

// Straggling counts attempts by their progress rate: their input over the time from start to end. An attempt straggles
// below half the median rate of the attempts of its stage that committed or copied (Dolly, NSDI 2013). Stages with
// fewer than two of these are left out.
type Straggling struct {
	Judged, Slow int
	// Unknown attempts did not end their work, and had not been slow for long enough: an attempt that was killed or
	// failed is slow if it would be with its whole input processed at its end.
	Unknown int
}

// Add adds other attempts.
func (s *Straggling) Add(o Straggling) {
	s.Judged, s.Slow, s.Unknown = s.Judged+o.Judged, s.Slow+o.Slow, s.Unknown+o.Unknown
}

// Share returns the share of the judged attempts that straggle; 0 without any.
func (s Straggling) Share() float64 { return float64(s.Slow) / float64(max(1, s.Judged)) }

// StragglingOf returns the figures of attempts, in order of job and stage.
func StragglingOf(attempts []flows.AttemptRecord) (s Straggling) {
	for _, stage := range chunks(attempts, func(a, b *flows.AttemptRecord) bool { return a.Job == b.Job && a.Stage == b.Stage }) {
		s.stage(stage)
	}
	return s
}

// stage adds the attempts of a stage.
func (s *Straggling) stage(of []flows.AttemptRecord) {
	// The rate is 0 if it is unknown: the input of a task that fetches is known when it has all of it.
	rate := func(a *flows.AttemptRecord) (rate float64, whole bool) {
		if a.Input <= 0 || a.End <= a.Start || a.Locality == "" && a.InputEnd == 0 {
			return 0, false
		}
		return float64(a.Input) / float64(a.End-a.Start), a.Outcome == flows.Committed || a.Outcome == flows.Copied
	}
	var known []float64
	for i := range of {
		if r, whole := rate(&of[i]); whole {
			known = append(known, r)
		}
	}
	if len(known) < 2 {
		return
	}
	slices.Sort(known)
	half := Median(known) / 2
	for i := range of {
		switch r, whole := rate(&of[i]); {
		case 0 < r && r < half:
			s.Judged++
			s.Slow++
		case whole:
			s.Judged++
		default:
			s.Unknown++
		}
	}
}
