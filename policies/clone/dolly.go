package clone

import "math"

// Dolly decides how many copies of each task of a job start at the same time (Ananthanarayanan and others, Effective
// Straggler Mitigation: Attack of the Clones, NSDI 2013, section 3).
type Dolly struct {
	// Straggle is p, the probability that a task runs at less than half the median progress rate of its stage.
	Straggle float64
	// Risk is ε, the accepted probability that a job straggles: that all copies of one of its tasks do.
	Risk float64
	// Budget is β, the share of all slots that copies of cloned tasks may use.
	Budget float64
	// Utilization is τ, the share of all slots in use beyond which no task is cloned.
	Utilization float64
}

// DefaultDolly returns the paper's settings. It measures p, about 0.1 in its traces.
func DefaultDolly() Dolly { return Dolly{Straggle: 0.1, Risk: 0.05, Budget: 0.05, Utilization: 0.8} }

// MaxCopies is the largest number of copies of a task.
const MaxCopies = 100

// rounding is the part of a number by which rounding errors may raise it.
const rounding = 1e-12

// Copies returns the number of copies of each of n tasks, the original one included, with which the job straggles with at
// most the probability Risk: ⌈ln(1−(1−ε)^(1/n)) ÷ ln p⌉. It is 1, for no cloning, if nothing straggles, or everything does.
func (d Dolly) Copies(n int) int {
	if n < 1 || !(d.Straggle > 0 && d.Straggle < 1) || !(d.Risk < 1) {
		return 1
	}
	one := -math.Expm1(math.Log1p(-max(d.Risk, 0)) / float64(n)) // accepted probability of one task
	c := math.Log(one)/math.Log(d.Straggle) - rounding
	return int(min(max(math.Ceil(c), 1), MaxCopies))
}

// Admits reports whether a number of copies may start: all of a stage or none. used of the slots are in use, and reserved
// are for copies of cloned tasks.
func (d Dolly) Admits(reserved, used, copies, slots int) bool {
	most := func(share float64) float64 { return share * float64(slots) * (1 + rounding) }
	return float64(reserved+copies) <= most(d.Budget) && float64(used+copies) <= most(d.Utilization)
}

// JobStraggles returns the probability that a job of n tasks straggles with whole copies of the job, and with copies
// of each task.
func JobStraggles(n, copies int, p float64) (jobs, tasks float64) {
	return math.Pow(1-math.Pow(1-p, float64(n)), float64(copies)), 1 - math.Pow(1-math.Pow(p, float64(copies)), float64(n))
}
