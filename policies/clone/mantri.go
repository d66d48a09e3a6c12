package clone

import (
	"slices"
	"time"
)

// Mantri are the settings of the backups of Mantri (Ananthanarayanan and others, Reining in the Outliers in Map-Reduce
// Clusters using Mantri, OSDI 2010, section 5.1). While tasks wait for slots, it restarts a task, or adds a copy where that is
// expected to save slot time; while slots are idle, it adds copies of all tasks that are much slower than a new copy.
type Mantri struct {
	// Interval is Δ, the time between two reports of progress: an attempt is judged once it has run for that.
	Interval time.Duration
	// Copies is α, the number of the fastest attempts of a task that go on when the newest has run for Interval.
	Copies int
	// Restarts is γ, the number of restarts of a task.
	Restarts int
	// Risk is δ, the probability of saving slot time above which a task gets one more copy while others wait.
	Risk float64
	// Gain is ρ, the expected time saved by a copy on an idle slot, in units of Interval.
	Gain float64
}

// DefaultMantri returns the paper's settings.
func DefaultMantri() Mantri {
	return Mantri{Interval: 10 * time.Second, Copies: 2, Restarts: 3, Risk: 0.25, Gain: 3}
}

// Action is what Mantri does with a task.
type Action int

const (
	NoAction  Action = iota
	Restart          // kill its attempt and start another one
	Duplicate        // start one more attempt
)

// Act returns the action on a task that needs a time for its rest and has a number of copies, after a number of restarts. rates
// are the progress rates of its stage, which Act sorts: a new copy takes the inverse of their median, and its distribution is
// that of their inverses. Of a task with more than one copy, none is restarted. NoAction without rates.
func (m Mantri) Act(waiting bool, left time.Duration, rates []float64, copies, restarts int) Action {
	slices.Sort(rates)
	median := percentile(rates, 0.5)
	if !(median > 0) || copies < 1 {
		return NoAction
	}
	gain := left.Seconds() - 1/median
	if !waiting {
		if gain > m.Gain*m.Interval.Seconds() {
			return Duplicate
		}
		return NoAction
	}
	if copies == 1 && restarts < m.Restarts && gain > m.Interval.Seconds() {
		return Restart
	}
	saves := 0
	for _, r := range rates {
		if left.Seconds()*r*float64(copies) > float64(copies+1) {
			saves++
		}
	}
	if float64(saves) > m.Risk*float64(len(rates)) {
		return Duplicate
	}
	return NoAction
}
