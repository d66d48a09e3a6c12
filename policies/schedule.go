package policies

import (
	"strconv"
	"time"

	"testbed/workloads"
)

// Scheduler shares the network among coflows. What it answers is an order and,
// for each place in it, a rule by which rates follow (Step); the rates themselves
// are computed in one place for all policies and both backends: package rates.
type Scheduler interface {
	Needs() Knowledge
	When() When
	// Schedule fills s, which is empty, for the coflows of v. It must not keep
	// either. Every unfinished flow that no step serves is paused.
	Schedule(v *View, s *Schedule)
}

// When tells at what moments a scheduler is asked, while coflows are unfinished. It
// is asked in any case, and at once, when a link, a route or a host changes. Coflows
// or Every must be set, or no coflow would ever be served.
type When struct {
	Coflows bool // a coflow arrives or ends
	Flows   bool // a flow ends
	Pilots  bool // the last pilot of a coflow ends
	Ports   bool // the last flow of a coflow at one of its hosts' links ends
	// Local tells that hosts act upon the end of a flow themselves, by the order they
	// were told last. Rates follow from a decision all the same, but one that Flows
	// alone asks for is no work of the coordinator's, and is not counted as such.
	Local bool
	// Every is the coordinator's interval, δ: with it, what the other fields name
	// is acted upon at the next whole multiple of Every since the start of the run, or
	// at once if it happens at one; and the scheduler is asked at every such multiple
	// at which coflows are unfinished, but for those that Schedule.Watch makes
	// needless. 0 is at once.
	Every time.Duration
}

// Schedule is a decision. Its slices are used again in the next one.
type Schedule struct {
	Steps []Step
	// Budgets are parts of every link's capacity, each 0 to 1, that steps may be
	// bound by: Step.Budget.
	Budgets []float64
	// Queues is the queue each coflow is in from now on, parallel to View.Coflows:
	// shown again as CoflowState.Queue. Left empty, nothing changes.
	Queues []int
	// Watch, parallel to View.Coflows, is what CoflowState.Sent must pass for a
	// decision to be needed because of it, 0 for never: all that a policy that is Blind may
	// say. Where it is not empty, or WatchMost is not, and When.Every is set, multiples of
	// Every are left out at which nothing has happened that When names and no coflow has
	// passed its Watch or WatchMost.
	Watch []int64 // bytes
	// WatchMost is Watch for CoflowState.MostSent, which Needs must name. Where just one
	// of the two is empty, it watches nothing. A caller may leave WatchMost unheeded; where
	// it is given, such a one asks at every multiple.
	WatchMost []int64 // bytes
	// Pilots are flows that become pilots of their coflow, before the steps are
	// carried out.
	Pilots []workloads.FlowID
	// Wake is a moment at which to ask again though nothing happens. One that is not
	// after View.Now is none. With When.Every it is rounded up to its next multiple.
	Wake time.Duration
	// Memory is shown again as View.Memory. Left nil, it stays what it was. It may be
	// scratch of this Schedule (Counts), so the caller copies it before the next Reset.
	Memory []int64

	scratch scratch
}

// Reset empties the schedule and keeps its memory for the next.
func (s *Schedule) Reset() {
	s.Steps, s.Budgets, s.Queues, s.Pilots = s.Steps[:0], s.Budgets[:0], s.Queues[:0], s.Pilots[:0]
	s.Watch, s.WatchMost = s.Watch[:0], s.WatchMost[:0]
	s.Wake, s.Memory = 0, nil
	s.scratch.reset()
}

// Step serves some coflows by a rule, with what the steps before it have left of
// the links. Rates of several steps that serve the same flow add up.
type Step struct {
	Coflows []int // places in View.Coflows, each once, the most important first
	Part    Part
	Only    Only
	Rule    Rule
	// Budget is one more than a place in Schedule.Budgets: steps of the same budget
	// together take of no link more than that part of its capacity, nor more than is
	// left of it. 0 is none. Budgets may add up to more than 1.
	Budget int
	// Within is for MADD alone: the flows take so long rather than as long as their
	// bottleneck does with what is left; a coflow for which that does not do, by more
	// than a 1e-9 of it, is skipped. 0 is as fast as can be.
	Within time.Duration
	// Rates are for Explicit alone.
	Rates []FlowRate
}

// FlowRate is a rate that a policy has worked out itself.
type FlowRate struct {
	Flow workloads.FlowID
	Rate float64 // bit/s of payload, at least 0
}

// Part is which flows of a coflow a step serves.
type Part uint8

// The parts of a coflow.
const (
	All Part = iota
	Pilots
	Others // all but the pilots
	Chosen // Pilots, within a coflow in the order in which Schedule.Pilots named them
)

// Only is which of its coflows a step serves.
type Only uint8

// Which coflows a step serves: all it names, or of these those that the last MADD or
// Equal step before it in the same schedule to look at them has skipped, or has served.
// A step that has no flow of a coflow to serve, because of its Part or its Only, does
// not look at it.
const (
	Everyone Only = iota
	Skipped
	Served
)

// Rule is how a step's rates follow from what is left of the links. n is a
// link's number of the flows it is about; free is what is left of it, in bit/s, and
// within the step's budget. Of a link that is down nothing is ever left; nor is it
// where less than a 1e-9 of the capacity is, which is no more than rounding.
type Rule uint8

// The rules. The order of flows is that of Step.Coflows, within a coflow by ID,
// for Greedy and Whole with part Chosen as they became pilots.
const (
	// Free sets no ceiling: the transport shares what all other steps leave, those
	// after it too, flow by flow. In the fluid model that is max-min fairness among
	// all free flows. It knows no budget.
	Free Rule = iota
	// MaxMin is max-min fairness among all flows of the step.
	MaxMin
	// Even is one pass for all flows of the step at once: each gets the least
	// free/n on its path, of what is left before the step. n counts the step's flows
	// on whose path every link has something left; the others get nothing. What that
	// leaves stays.
	Even
	// Greedy is flow by flow: each gets the least free on its path.
	Greedy
	// MADD is coflow by coflow: all its flows end together (Varys, SIGCOMM 2014:
	// minimum allocation for desired duration), as soon as what is left of the links
	// allows. A coflow that needs a link on which nothing is left is skipped. Needs
	// Sizes.
	MADD
	// Equal is coflow by coflow, all or none (Saath, CoNEXT 2017): all its flows get
	// the rate of the slowest, the least free/n, n being its flows. A coflow that needs
	// a link on which nothing is left is skipped.
	Equal
	// Whole is flow by flow, all or nothing: a flow whose first and last link are left
	// whole, or whole within the step's budget, gets the rate it would have if it were
	// alone, where its other links have that much left; any other flow gets nothing.
	Whole
	// Proportional raises rates: what is left of a link is for the step's flows that have
	// a rate by the steps before, in proportion to that; each gets the least of its path.
	// What that leaves stays, and a flow without a rate gets none.
	Proportional
	// Explicit takes Step.Rates as they are: they may not overfill a link by more than
	// rounding, nor name a flow that is not there or has ended. Rates of the same flow
	// add up. Coflows, Part and Only are not looked at.
	Explicit
)

func (r Rule) String() string {
	names := [...]string{"Free", "MaxMin", "Even", "Greedy", "MADD", "Equal", "Whole", "Proportional", "Explicit"}
	if int(r) < len(names) {
		return names[r]
	}
	return "rule " + strconv.Itoa(int(r))
}

// Order appends places 0 to n-1 and returns them as a slice that lives as long as
// the schedule: for sorting into a Step.Coflows.
func (s *Schedule) Order(n int) []int {
	o := s.Ints(n)
	for i := range o {
		o[i] = i
	}
	return o
}

// Ints, Counts, Words and Floats are memory to work with, zeroed, that lives until
// the next Reset: asking for it again and again costs no allocation.
func (s *Schedule) Ints(n int) []int { return take(&s.scratch.ints, n) }

// Counts is Ints of 64 bits.
func (s *Schedule) Counts(n int) []int64 { return take(&s.scratch.counts, n) }

// Words is Ints for sets of bits.
func (s *Schedule) Words(n int) []uint64 { return take(&s.scratch.words, n) }

// Floats is Ints of floating point.
func (s *Schedule) Floats(n int) []float64 { return take(&s.scratch.floats, n) }

type scratch struct {
	ints   arena[int]
	counts arena[int64]
	words  arena[uint64]
	floats arena[float64]
}

func (s *scratch) reset() {
	s.ints.reset()
	s.counts.reset()
	s.words.reset()
	s.floats.reset()
}

// arena hands out pieces of one slice. Where that is full, a larger one replaces
// it at the next reset, and pieces come from the heap until then.
type arena[E any] struct {
	memory       []E
	used, wanted int
}

func (a *arena[E]) reset() {
	if a.wanted > len(a.memory) {
		a.memory = make([]E, a.wanted+a.wanted/2)
	}
	a.used, a.wanted = 0, 0
}

func take[E any](a *arena[E], n int) []E {
	a.wanted += n
	if a.used+n > len(a.memory) {
		return make([]E, n)
	}
	s := a.memory[a.used : a.used+n : a.used+n]
	a.used += n
	clear(s)
	return s
}
