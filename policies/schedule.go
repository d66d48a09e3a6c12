package policies

import (
	"strconv"
	"time"

	"testbed/workloads"
)

// CoflowScheduler describes a coflow scheduling policy: it shares the network among coflows. It has no
// state: each run has an instance of its own.
type CoflowScheduler interface {
	Needs() Facts
	Triggers() Triggers
	// New returns an instance that has seen no View. Instances share no state.
	New() CoflowInstance
}

// Unlimited is a CoflowScheduler that may never limit a flow: in every decision all flows are free to send, as without a
// coordinator. A caller need not call it for flows that join a coflow while it runs.
type Unlimited interface{ Unlimited() bool }

// IsUnlimited reports whether a policy is Unlimited.
func IsUnlimited(p CoflowScheduler) bool {
	u, ok := p.(Unlimited)
	return ok && u.Unlimited()
}

// CoflowInstance decides. It may keep what it has seen in fields of its own, so that the same sequence of
// Views has the same answers. It drops what it keeps of a coflow that has left CoflowView.Coflows.
type CoflowInstance interface {
	// Decide fills the empty schedule s for the coflows of v: an ordered list of steps, each with an
	// allocation rule (Step). Package alloc computes the rates from them, for all policies and for both
	// backends. An unfinished flow that no step serves is paused. Decide must not keep v or s. It is called
	// once for each decision.
	Decide(v *CoflowView, s *Schedule)
}

// Replayer is an instance of a policy whose answers are logged. In a replay it gets each before its decision, in their
// order.
type Replayer interface {
	Replay(answer []byte, latency time.Duration)
}

// Answered is a Placer that is a process outside of the program.
type Answered interface {
	// Answered returns the newest answer as the process gave it, and the time until the placement takes effect.
	Answered() (answer []byte, latency time.Duration)
}

// OutsideError is the reason why a process outside of the program could not decide. It ends the run.
type OutsideError struct{ Err error }

func (e OutsideError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e OutsideError) Unwrap() error { return e.Err }

// Triggers selects the events that cause a decision while coflows are unfinished. A change
// of a link, a route or a host always causes one immediately. Coflows or Every must be
// set: otherwise no coflow would ever be served.
type Triggers struct {
	Coflows bool // a coflow arrives or ends
	Flows   bool // a flow ends
	Pilots  bool // the last pilot of a coflow ends
	// Every is δ, the coordinator's interval; 0 means that decisions are immediate. If it
	// is set, the scheduler decides at every multiple of Every since the start of the run
	// at which coflows are unfinished, except those that Schedule.Watch makes unnecessary.
	// Events of the other fields wait for the next multiple, or take effect immediately
	// if they occur at one.
	Every time.Duration
}

// Schedule is a decision. Its slices are reused for the next decision.
type Schedule struct {
	Steps []Step
	// Budgets are fractions of every link's capacity, each from 0 to 1, to which steps
	// can be limited: Step.Budget.
	Budgets []float64
	// Queues is the new queue of each coflow, parallel to CoflowView.Coflows. The next View
	// shows it as CoflowState.Queue. An empty slice changes nothing.
	Queues []int
	// Watch, parallel to CoflowView.Coflows, is a threshold of CoflowState.Sent: a coflow that
	// passes it requires a decision; 0 is never, and the only value that a policy
	// may give that ignores progress. If Watch or WatchMost is not empty and Triggers.Every is set, a multiple of
	// Every is skipped when no event of Triggers has occurred and no coflow has passed its
	// Watch or WatchMost.
	Watch []int64 // bytes
	// WatchMost is Watch for CoflowState.MostSent, which Needs must name. If only one of
	// Watch and WatchMost is empty, it watches nothing. A caller may ignore WatchMost; it
	// then asks for a decision at every multiple if WatchMost is not empty.
	WatchMost []int64 // bytes
	// Pilots are flows that become pilot flows of their coflow, before the steps are
	// applied.
	Pilots []workloads.FlowID
	// Wake is the time of one more decision, without any event. A time that is not after
	// Cluster.Now is ignored, a negative one is an error. If Triggers.Every is set, Wake is rounded up to its next multiple.
	Wake time.Duration

	// Err is the reason why a process outside of the program could not decide. It ends the run.
	Err error
	// Answer is the decision as a process outside of the program gave it, one line of JSON, for the log; nil for
	// policies of the program.
	Answer []byte
	// Latency is the time until the rate caps of the decision take effect, at least.
	Latency time.Duration

	scratch
}

// Reset empties the schedule and keeps its memory for the next decision.
func (s *Schedule) Reset() {
	s.Steps, s.Budgets, s.Queues, s.Pilots = s.Steps[:0], s.Budgets[:0], s.Queues[:0], s.Pilots[:0]
	s.Watch, s.WatchMost = s.Watch[:0], s.WatchMost[:0]
	s.Wake, s.Err, s.Answer, s.Latency = 0, nil, nil, 0
	s.scratch.reset()
}

// Serve appends a step that serves coflows by a rule, unless there are none.
func (s *Schedule) Serve(rule Rule, coflows []int) {
	if len(coflows) > 0 {
		s.Steps = append(s.Steps, Step{Coflows: coflows, Rule: rule})
	}
}

// Step serves some coflows by a rule, from the residual capacity: what the steps before
// it leave of the links. The rates that several steps give to one flow add up.
type Step struct {
	Coflows []int // indices into CoflowView.Coflows, each at most once, highest priority first
	Part    Part
	Only    Only
	Rule    Rule
	// Budget is 1 + an index into Schedule.Budgets; 0 is no budget. All steps of one
	// budget together take at most that fraction of a link's capacity, and at most the
	// link's residual capacity. The sum of Budgets may exceed 1.
	Budget int
	// Within is the duration over which MADD spreads a coflow; other rules ignore it. 0 is
	// the shortest duration: that of the coflow's bottleneck with the residual capacity.
	// A coflow that needs longer than Within, by more than a factor of 1e-9, is skipped.
	Within time.Duration
	// Rates are the rates of rule Explicit; other rules ignore them.
	Rates []FlowRate
}

// FlowRate is a rate that the policy itself computed.
type FlowRate struct {
	Flow workloads.FlowID
	Rate float64 // payload in bit/s, at least 0
}

// Part selects the flows of a coflow that a step serves.
type Part uint8

// The parts of a coflow.
const (
	All Part = iota
	Pilots
	Others // all except the pilot flows
	Chosen // the pilot flows, within a coflow in the order of Schedule.Pilots
)

// Only selects the coflows of Step.Coflows that a step serves.
type Only uint8

// The selections: all coflows of the step, or only those that the previous MADD or SlowestRate
// step has skipped or served. For each coflow, this is the last such step of the schedule
// that had a flow of the coflow to serve, given its Part and Only.
const (
	Everyone Only = iota
	Skipped
	Served
)

// Rule computes the rates of a step from the residual capacity of the links. Below, free
// is the residual capacity of a link in bit/s, within the step's budget, and n is the
// number of the flows concerned that cross it. The residual capacity of a link that is
// down is 0. A residue below 1e-9 of the capacity is rounding error and counts as 0.
type Rule uint8

// The rules. Flows are served in the order of Step.Coflows, within a coflow by ID. Greedy
// and ExclusivePorts with Part Chosen serve pilot flows in the order in which they became pilots.
const (
	// Free sets no rate cap: the transport shares what all other steps leave, later ones
	// included, among the free flows. In the fluid model their rates are max-min fair. Free
	// ignores Budget.
	Free Rule = iota
	// MaxMin gives max-min fair rates to all flows of the step.
	MaxMin
	// EqualSplit makes a single pass over all flows of the step: each gets the minimum of free/n
	// over its path, with free as it was before the step. n counts only the step's flows
	// whose whole path has residual capacity; the others get rate 0. Capacity that this
	// leaves is not shared again.
	EqualSplit
	// Greedy serves one flow after another: each gets the minimum of free over its path.
	Greedy
	// MADD serves one coflow after another: all its flows end together, as early as the
	// residual capacity allows (minimum allocation for desired duration; Varys, SIGCOMM
	// 2014). A coflow that needs a link without residual capacity is skipped. Needs Sizes.
	MADD
	// SlowestRate serves one coflow after another, all or none (Saath, CoNEXT 2017): all its
	// flows get the rate of the slowest, the minimum of free/n over their links, where n
	// counts the coflow's flows. A coflow that needs a link without residual capacity is
	// skipped.
	SlowestRate
	// ExclusivePorts serves one flow after another, all or nothing. A flow gets the rate that it
	// would have alone, if its first and last link are unused (or the step's budget on them
	// is) and its other links have that much residual capacity. Any other flow gets rate 0.
	ExclusivePorts
	// Proportional raises rates: the residual capacity of a link is divided among the
	// step's flows that have a rate from earlier steps, in proportion to that rate, and
	// each gets the minimum over its path. Capacity that this leaves is not shared again. A
	// flow without a rate gets none.
	Proportional
	// Explicit uses Step.Rates. They must not exceed a link's residual capacity by more
	// than rounding error, and must name unfinished flows. Several rates of one flow add
	// up. Coflows, Part and Only are ignored.
	Explicit
)

func (r Rule) String() string {
	names := [...]string{"Free", "MaxMin", "EqualSplit", "Greedy", "MADD", "SlowestRate", "ExclusivePorts", "Proportional", "Explicit"}
	if int(r) < len(names) {
		return names[r]
	}
	return "rule " + strconv.Itoa(int(r))
}

// Order returns the indices 0 to n-1, to be sorted into a Step.Coflows. The slice is valid
// until the next Reset.
func (s *Schedule) Order(n int) []int {
	o := s.Ints(n)
	for i := range o {
		o[i] = i
	}
	return o
}

// scratch is memory for one decision.
type scratch struct {
	ints   arena[int]
	counts arena[int64]
	words  arena[uint64]
	floats arena[float64]
}

// Ints returns a zeroed scratch slice of length n that is valid until the next Reset.
// Repeated use does not allocate.
func (s *scratch) Ints(n int) []int { return take(&s.ints, n) }

// Counts is like Ints, with elements of 64 bits.
func (s *scratch) Counts(n int) []int64 { return take(&s.counts, n) }

// Words is like Ints, for bit sets.
func (s *scratch) Words(n int) []uint64 { return take(&s.words, n) }

// Floats is like Ints, with floating-point elements.
func (s *scratch) Floats(n int) []float64 { return take(&s.floats, n) }

func (s *scratch) reset() {
	s.ints.reset()
	s.counts.reset()
	s.words.reset()
	s.floats.reset()
}

// arena allocates pieces of one slice. When the slice is full, further pieces are
// allocated from the heap, and the next reset replaces the slice with a larger one.
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
