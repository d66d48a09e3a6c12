package catalog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies/coflow"
)

// The bounds of the interval between decisions.
const (
	shortestInterval = 100 * time.Microsecond
	longestInterval  = time.Hour
)

// rankedBy is the parameter that selects whether coflows are ranked by their current or their initial state.
func rankedBy(initial *bool) Param {
	return Param{Name: "key", To: initial, Choices: []string{"remaining", "initial"}, Doc: "rank coflows by their remaining bytes, or by their state at arrival"}
}

// sharing returns the common parameters of ordering policies.
func sharing(s *coflow.Sharing) []Param {
	return []Param{
		{Name: "allocation", To: &s.Allocation, Choices: []string{"madd", "greedy", "even", "maxmin"},
			Doc: "flows of a coflow: all end together (needs sizes); one after another; equal shares in one pass; max-min fair"},
		{Name: "backfill", To: &s.Backfill, Choices: []string{"greedy", "served", "fair-share", "none", "proportional"},
			Doc: "capacity that the allocation leaves goes to: greedy, all in order; served, coflows that madd has not skipped; fair-share (CoflowSim), equal shares for coflows that madd has skipped, then all by arrival; proportional (the Varys paper), flows with a rate, in proportion to it"},
		{Name: "priorities", To: &s.Priorities, Unit: "priority classes", Max: 1000,
			Doc: "for allocation maxmin: classes of the network (DiffServ), the last for all remaining coflows; 0 is one for each coflow"},
		{Name: "reallocate", Type: Choice, Choices: []string{"flows", "coflows"}, Default: "flows", Durations: true, Min: int64(shortestInterval), Max: int64(longestInterval),
			Set: func(x any) { s.Pace.Every, _ = x.(time.Duration); s.Pace.CoflowsOnly = x == "coflows" },
			Doc: "when to decide: when a coflow arrives or a flow or coflow ends; only when a coflow arrives or ends; at multiples of a duration such as 8ms"},
	}
}

// checkSharing rejects backfills that have no effect or a different one with the
// allocation, because only madd skips coflows. It also rejects priorities with an
// allocation that does not share a class among its coflows.
func checkSharing(v Values) []error {
	var errs []error
	allocation := v.choice("allocation")
	if b := v.choice("backfill"); (b == "served" || b == "fair-share") && allocation != "madd" {
		errs = append(errs, fmt.Errorf("backfill %s needs allocation madd, which skips coflows, and allocation is %s: use backfill greedy or none, or allocation madd", b, allocation))
	}
	if v.choice("backfill") == "proportional" && allocation == "greedy" {
		errs = append(errs, errors.New("backfill proportional has no effect with allocation greedy, which leaves no capacity: use another allocation such as madd, or backfill greedy"))
	}
	if n := v.int("priorities"); n > 0 && allocation != "maxmin" {
		errs = append(errs, fmt.Errorf("priorities %d: needs allocation maxmin, by which the coflows of a class share, and allocation is %s: use allocation maxmin, or priorities 0", n, allocation))
	}
	return errs
}

// checkSEBF is checkSharing. It also rejects parameters that the mode with deadlines
// ignores.
func checkSEBF(v Values) []error {
	errs := checkSharing(v)
	if v.float("deadline") > 0 && (v.choice("allocation") != "madd" || v.choice("backfill") != "greedy") {
		errs = append(errs, fmt.Errorf("deadline %v: works only with allocation madd and backfill greedy, not with %s and %s", v.float("deadline"), v.choice("allocation"), v.choice("backfill")))
	}
	return errs
}

// orderings returns the coflow policies without queues: those that rank coflows by a
// known key, and those that do not rank them.
func orderings() []Entry {
	ordered := func(name, doc string, initial coflow.Ordered, own func(*coflow.Ordered) []Param) Entry {
		return Fields(Entry{Name: name, Doc: doc, Holds: true, Check: checkSharing}, initial, func(o *coflow.Ordered) []Param {
			return append(own(o), sharing(&o.Sharing)...)
		})
	}
	none := func(*coflow.Ordered) []Param { return nil }
	greedy := coflow.Sharing{Allocation: coflow.Greedy}
	return []Entry{
		{Name: "fair", Doc: "per-flow fairness without rate caps: plain TCP on packets, max-min fair in the fluid model",
			New: func(Values) any { return coflow.Fair{} }},
		{Name: "equal-share", Doc: "each flow gets the smaller of the equal shares of its two ports, and the rest stays idle: FAIR of CoflowSim", Holds: true,
			New: func(Values) any { return coflow.EqualShare{} }},
		Fields(Entry{Name: "rack-limit", Holds: true, Doc: "per-flow fairness under a rate limiter for each rack and direction, as in ShuffleWatcher's evaluation (USENIX ATC 2014)"},
			coflow.RackLimit{Share: 0.2}, func(p *coflow.RackLimit) []Param {
				return []Param{{Name: "limit", To: &p.Share, Unit: "× the rack's links to spines", Low: 0.001, High: 1, Doc: "traffic that may leave a rack, and that may enter it"}}
			}),
		ordered("fifo", "first in, first out; with allocation madd, backfill fair-share and reallocate coflows, FIFO of the simulator CoflowSim", coflow.Ordered{Sharing: greedy}, none),
		ordered("scf", "shortest coflow first, by its largest flow, as in CoflowSim (there with static keys, backfill fair-share and reallocate coflows); knows sizes", coflow.Ordered{By: coflow.LargestFlow}, none),
		ordered("ncf", "narrowest coflow first, by width (the smaller of its numbers of senders and receivers), as in CoflowSim (there with allocation madd)", coflow.Ordered{By: coflow.Width, Sharing: greedy}, none),
		ordered("lcf", "lightest coflow first, by its total bytes, as in CoflowSim; knows sizes", coflow.Ordered{By: coflow.Bytes}, func(o *coflow.Ordered) []Param { return []Param{rankedBy(&o.Initial)} }),
		Fields(Entry{Name: "sebf", Doc: "Varys (SIGCOMM 2014): smallest effective bottleneck first, all flows of a coflow end together (MADD); knows sizes", Holds: true, Check: checkSEBF},
			coflow.SEBF{Deadline: coflow.DefaultDeadline()}, func(p *coflow.SEBF) []Param {
				return slices.Concat([]Param{rankedBy(&p.Initial)}, sharing(&p.Sharing), []Param{
					{Name: "deadline", To: &p.Deadline.Factor, Unit: "× the coflow's minimum CCT", High: 1e6,
						Doc: "time from arrival to deadline: a coflow is admitted, with the rates it needs, if it can meet it without delaying earlier ones; 0 for none"},
					{Name: "padding", To: &p.Deadline.Padding, Unit: "× the estimated time", High: 10,
						Doc: "margin at admission, added to the estimated completion time"},
					{Name: "least", To: &p.Deadline.Least, Max: int64(longestInterval),
						Doc: "assumed least completion time: a coflow with a shorter deadline is rejected"},
					{Name: "rejected", To: &p.Deadline.RejectedLast, Choices: []string{"background", "last"},
						Doc: "capacity of rejected coflows: all that admitted ones do not need for their deadlines, or only what these cannot use"},
				})
			}),
		Fields(Entry{Name: "sincronia", Doc: "Sincronia (SIGCOMM 2018): bottleneck-select-scale-iterate (BSSI) order of the remaining bytes, greedy allocation; knows sizes", Holds: true, Check: checkSharing},
			coflow.DefaultSincronia(), func(p *coflow.Sincronia) []Param {
				return append([]Param{
					{Name: "ties", To: &p.EarlierLast, Choices: []string{"earlier-first", "earlier-last"},
						Doc: "ties for the last place: the lower ID goes first, or last as in the authors' code"},
					{Name: "reorder", To: &p.Always, Choices: []string{"coflows", "always"},
						Doc: "when to recompute the order: after a coflow has arrived or ended, or in every decision"},
				}, sharing(&p.Sharing)...)
			}),
	}
}
