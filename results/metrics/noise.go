package metrics

import (
	"fmt"
	"strings"
	"time"
)

// Noise is the difference between identical runs of a machine, measured by a calibration.
type Noise struct {
	Date  time.Time `json:"date"`
	Pairs int       `json:"pairs"` // disjoint pairs of identical runs
	// Total is the standard deviation of the logarithm of the ratio of two identical
	// runs, by the key of a completion time: cct, fct, write_time, request_time.
	Total map[string]Deviations `json:"total"`
	// Between is the part of Total that the spread of clusters within the pairs does not
	// explain. Intervals are widened by it.
	Between map[string]Deviations `json:"between_runs"`
}

// Of returns the noise that widens intervals of a completion time; nil if it is unknown.
func (n *Noise) Of(key string) *Deviations {
	if n == nil {
		return nil
	}
	if d, ok := n.Between[key]; ok {
		return &d
	}
	return nil
}

// noiseNames are the names of completion times, in printing order.
var noiseNames = []struct{ key, name string }{{"cct", "CCT"}, {"fct", "FCT"}, {"write_time", "write time"}, {"request_time", "request time"}}

// Sentence states which run-to-run noise the intervals of runs with this number of repeats include.
func (n *Noise) Sentence(repeats int) string {
	own := fmt.Sprintf("Run-to-run noise: intervals include the differences between the %d repeats.", repeats)
	if repeats == 1 {
		own = "Run-to-run noise is unknown: there is one repeat."
	}
	if n == nil {
		if repeats == 1 {
			own += " Intervals are valid for these runs only."
		}
		return own + " This machine had no noise calibration when the run was made (run: sudo testbed calibrate --noise)."
	}
	var of []string
	for _, x := range noiseNames {
		if d, ok := n.Total[x.key]; ok {
			of = append(of, fmt.Sprintf("%s %.1f %%", x.name, 100*d.GeoMean))
		}
	}
	return own + fmt.Sprintf(" In the last noise calibration of this machine (%s, %d pairs), the geometric means of two identical runs differed with a standard deviation of %s. Intervals are widened by the part that the variation between items does not explain.",
		n.Date.Format(time.DateOnly), n.Pairs, strings.Join(of, ", "))
}
