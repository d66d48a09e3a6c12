package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/policies/coflow"
)

// allocations returns the allocations of ordering policies, by name.
func allocations() map[string]coflow.Allocation {
	return map[string]coflow.Allocation{"madd": coflow.MADD, "greedy": coflow.Greedy, "even": coflow.EqualSplit, "maxmin": coflow.MaxMin}
}

// backfills returns the backfills of ordering policies, by name.
func backfills() map[string]coflow.Backfill {
	return map[string]coflow.Backfill{"greedy": coflow.TopUp, "served": coflow.TopUpServed, "fair-share": coflow.FairShare, "none": coflow.None, "proportional": coflow.Proportional}
}

// The bounds of the interval between decisions.
const (
	shortestInterval = 100 * time.Microsecond
	longestInterval  = time.Hour
)

// reallocate is the parameter that selects when a policy decides.
func reallocate() Param {
	return Param{Name: "reallocate", Type: Choice, Choices: []string{"flows", "coflows"}, Default: "flows",
		Durations: true, Min: int64(shortestInterval), Max: int64(longestInterval),
		Doc: "when to decide: when a coflow arrives or a flow or coflow ends; only when a coflow arrives or ends; at multiples of a duration such as 8ms"}
}

// keyParam is the parameter that selects whether coflows are ranked by their current or
// their initial state.
func keyParam() Param {
	return Param{Name: "key", Type: Choice, Choices: []string{"remaining", "initial"}, Default: "remaining",
		Doc: "rank coflows by their remaining bytes, or by their state at arrival"}
}

func paceOf(v Values) coflow.Pace {
	switch p := v["reallocate"].(type) {
	case time.Duration:
		return coflow.Pace{Every: p}
	default:
		return coflow.Pace{CoflowsOnly: p == "coflows"}
	}
}

// sharing returns the common parameters of ordering policies, with the given default
// allocation.
func sharing(allocation string) []Param {
	return []Param{
		{Name: "allocation", Type: Choice, Choices: slices.Sorted(maps.Keys(allocations())), Default: allocation,
			Doc: "flows of a coflow: equal shares in one pass; one after another; all end together (needs sizes); max-min fair"},
		{Name: "backfill", Type: Choice, Choices: slices.Sorted(maps.Keys(backfills())), Default: "greedy",
			Doc: "capacity that the allocation leaves goes to: fair-share (CoflowSim), equal shares for coflows that madd has skipped, then all by arrival; greedy, all in order; proportional (the Varys paper), flows with a rate, in proportion to it; served, coflows that madd has not skipped"},
		{Name: "priorities", Type: Whole, Default: int64(0), Unit: "priority classes", Max: 1000,
			Doc: "for allocation maxmin: classes of the network (DiffServ), the last for all remaining coflows; 0 is one for each coflow"},
		reallocate(),
	}
}

func sharingOf(v Values) coflow.Sharing {
	return coflow.Sharing{Allocation: allocations()[v.choice("allocation")], Backfill: backfills()[v.choice("backfill")],
		Priorities: v.int("priorities"), Pace: paceOf(v)}
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
	ordered := func(name, doc string, by coflow.Key, allocation string, params ...Param) Entry {
		return Entry{Name: name, Doc: doc, Holds: true, Params: append(params, sharing(allocation)...), Check: checkSharing,
			New: func(v Values) any {
				return coflow.Ordered{By: by, Initial: v["key"] == "initial", Sharing: sharingOf(v)}
			}}
	}
	deadline := coflow.DefaultDeadline()
	return []Entry{
		{Name: "fair", Doc: "per-flow fairness without rate caps: plain TCP on packets, max-min fair in the fluid model",
			New: func(Values) any { return coflow.Fair{} }},
		{Name: "equal-share", Doc: "each flow gets the smaller of the equal shares of its two ports, and the rest stays idle: FAIR of CoflowSim", Holds: true,
			New: func(Values) any { return coflow.EqualShare{} }},
		{
			Name: "rack-limit", Holds: true,
			Doc: "per-flow fairness under a rate limiter for each rack and direction, as in ShuffleWatcher's evaluation (USENIX ATC 2014)",
			Params: []Param{{
				Name: "limit", Type: Float, Default: 0.2, Unit: "× the rack's links to spines", Low: 0.001, High: 1,
				Doc: "traffic that may leave a rack, and that may enter it",
			}},
			New: func(v Values) any { return coflow.RackLimit{Share: v.float("limit")} },
		},
		ordered("fifo", "first in, first out; with allocation madd, backfill fair-share and reallocate coflows, FIFO of the simulator CoflowSim", coflow.Arrival, "greedy"),
		ordered("scf", "shortest coflow first, by its largest flow, as in CoflowSim (there with static keys, backfill fair-share and reallocate coflows); knows sizes", coflow.LargestFlow, "madd"),
		ordered("ncf", "narrowest coflow first, by width (the smaller of its numbers of senders and receivers), as in CoflowSim (there with allocation madd)", coflow.Width, "greedy"),
		ordered("lcf", "lightest coflow first, by its total bytes, as in CoflowSim; knows sizes", coflow.Bytes, "madd", keyParam()),
		{Name: "sebf", Doc: "Varys (SIGCOMM 2014): smallest effective bottleneck first, all flows of a coflow end together (MADD); knows sizes", Holds: true,
			Params: slices.Concat([]Param{keyParam()}, sharing("madd"), []Param{
				{Name: "deadline", Type: Float, Default: deadline.Factor, Unit: "× the coflow's minimum CCT", High: 1e6,
					Doc: "time from arrival to deadline: a coflow is admitted, with the rates it needs, if it can meet it without delaying earlier ones; 0 for none"},
				{Name: "padding", Type: Float, Default: deadline.Padding, Unit: "× the estimated time", High: 10,
					Doc: "margin at admission, added to the estimated completion time"},
				{Name: "least", Type: Duration, Default: deadline.Least, Max: int64(longestInterval),
					Doc: "assumed least completion time: a coflow with a shorter deadline is rejected"},
				{Name: "rejected", Type: Choice, Choices: []string{"background", "last"}, Default: "background",
					Doc: "capacity of rejected coflows: all that admitted ones do not need for their deadlines, or only what these cannot use"},
			}),
			Check: checkSEBF,
			New: func(v Values) any {
				return coflow.SEBF{Initial: v.choice("key") == "initial", Sharing: sharingOf(v), Deadline: coflow.Deadline{Factor: v.float("deadline"),
					Padding: v.float("padding"), Least: v.duration("least"), RejectedLast: v.choice("rejected") == "last"}}
			}},
		{Name: "sincronia", Doc: "Sincronia (SIGCOMM 2018): bottleneck-select-scale-iterate (BSSI) order of the remaining bytes, greedy allocation; knows sizes", Holds: true,
			Params: append([]Param{
				{Name: "ties", Type: Choice, Choices: []string{"earlier-first", "earlier-last"}, Default: "earlier-first",
					Doc: "ties for the last place: the lower ID goes first, or last as in the authors' code"},
				{Name: "reorder", Type: Choice, Choices: []string{"coflows", "always"}, Default: "coflows",
					Doc: "when to recompute the order: after a coflow has arrived or ended, or in every decision"},
			}, sharing("greedy")...), Check: checkSharing,
			New: func(v Values) any {
				return coflow.Sincronia{Sharing: sharingOf(v), EarlierLast: v.choice("ties") == "earlier-last", Always: v.choice("reorder") == "always"}
			}},
	}
}
