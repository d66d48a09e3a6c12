package summary

import (
	"fmt"
	"strings"
	"time"

	"testbed/results/metrics"
	"testbed/results/verdict"
)

// Format is the version of Run. It changes when a key is removed or changes its
// meaning; new keys do not change it.
const Format = 1

// Sources of records.
const (
	SourcePackets    = "packets"
	SourceVirtual    = "packets in virtual time"
	SourceFluidModel = "fluid model"
)

// Sources returns all sources.
func Sources() []string { return []string{SourcePackets, SourceVirtual, SourceFluidModel} }

// Run is a run's figures, as in summary.json. Times are microseconds.
type Run struct {
	Format   int    `json:"format"`
	RunID    string `json:"run_id"`
	Scenario string `json:"scenario"`
	Source   string `json:"source"`   // one of Sources
	Baseline string `json:"baseline"` // the arm that speed-ups are relative to
	Arms     []Arm  `json:"arms"`
	// Noise is the run-to-run noise of the machine from a calibration; nil if there is
	// none. See metrics.Noise.
	Noise *metrics.Noise `json:"noise,omitempty"`
	// FlowErrors are the errors of short flows, for packets whose captures state the links' token buckets.
	FlowErrors *FlowErrorSummary `json:"flow_errors,omitempty"`
	// ScaleCheck is present if the run included a scale check.
	ScaleCheck *ScaleCheck `json:"scale_check,omitempty"`
	// Partial is present if the run was cut short.
	Partial *Partial `json:"partial,omitempty"`
	// Looks are the looks at intervals that decided the number of repeats; absent if it was fixed.
	Looks *metrics.Looks `json:"looks,omitempty"`
	// Rows are the numbers of rows of the tables that were written with the summary, by file.
	Rows map[string]int `json:"rows,omitempty"`
}

// Arm is one arm.
type Arm struct {
	Name    string `json:"name"`
	Repeats int    `json:"repeats"`
	// Numbers are those of the repeats; absent if they are 0 to Repeats - 1, as those of a whole run.
	Numbers metrics.Numbers `json:"repeat_numbers,omitempty"`
	// Zeros are the wall clocks at time 0 of the repeats, in order; absent in a simulation, whose times count from its start.
	Zeros []time.Time `json:"zeros,omitempty"`
	// Unmodelled are the keys that the arm changes, if the fluid model knows none of them: nothing is compared then.
	Unmodelled []string `json:"not_modelled,omitempty"`
	// Verdict is the worst of Verdicts, which has one verdict for each repeat in order.
	// Both are absent in summaries of the fluid model, which has no packets to judge.
	Verdict  *verdict.Level    `json:"verdict,omitempty"`
	Verdicts []verdict.Verdict `json:"verdicts,omitempty"`
	// Problems are the problems of the records, each prefixed with its repeat.
	Problems []string `json:"problems"`
	Declared
}

// Void reports whether the arm's figures are withheld.
func (a Arm) Void() bool { return a.Verdict != nil && *a.Verdict == verdict.Void }

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
