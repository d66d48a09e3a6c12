package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coflow"
)

// allocations and backfills are what ordering policies can be set to, by name.
func allocations() map[string]coflow.Allocation {
	return map[string]coflow.Allocation{"madd": coflow.MADD, "greedy": coflow.Greedy, "even": coflow.Even, "maxmin": coflow.MaxMin}
}

func backfills() map[string]coflow.Backfill {
	return map[string]coflow.Backfill{"greedy": coflow.TopUp, "served": coflow.TopUpServed, "fair-share": coflow.FairShare, "none": coflow.None, "proportional": coflow.Proportional}
}

// The bounds of the interval between decisions.
const (
	shortestInterval = 100 * time.Microsecond
	longestInterval  = time.Hour
)

// reallocate says when a policy decides.
func reallocate() Param {
	return Param{Name: "reallocate", Type: Choice, Choices: []string{"flows", "coflows"}, Default: "flows",
		Durations: true, Min: int64(shortestInterval), Max: int64(longestInterval),
		Doc: "when to decide: whenever a coflow arrives or ends or a flow ends; coflows alone; or at the multiples of an interval, such as 8ms"}
}

// keyed says which of two moments a coflow's place comes from.
func keyed() Param {
	return Param{Name: "key", Type: Choice, Choices: []string{"remaining", "initial"}, Default: "remaining",
		Doc: "rank coflows by what is left of them, or by what they were at arrival"}
}

func paceOf(v values) coflow.Pace {
	switch p := v["reallocate"].(type) {
	case time.Duration:
		return coflow.Pace{Every: p}
	default:
		return coflow.Pace{CoflowsOnly: p == "coflows"}
	}
}

// sharing are the parameters of an ordering policy, with its default allocation.
func sharing(allocation string) []Param {
	return []Param{
		{Name: "allocation", Type: Choice, Choices: slices.Sorted(maps.Keys(allocations())), Default: allocation,
			Doc: "how a coflow's flows share what those before it left: madd, all end together, sizes known; greedy, flow by flow; even, equal shares in one pass; maxmin, max-min fair"},
		{Name: "backfill", Type: Choice, Choices: slices.Sorted(maps.Keys(backfills())), Default: "greedy",
			Doc: "who gets what the allocation leaves: greedy, all in order; served, those madd has not skipped; fair-share, CoflowSim's rule: equal shares for those madd has skipped, then all in order of arrival; proportional, the Varys paper's: flows that have a rate, in proportion to it; none"},
		{Name: "priorities", Type: Whole, Default: int64(0), Unit: "classes", Max: 1000,
			Doc: "for allocation maxmin: how many priority classes the network has, the last shared by all coflows that come after the others, as over DiffServ; 0 is one for each coflow"},
		reallocate(),
	}
}

func sharingOf(v values) coflow.Sharing {
	return coflow.Sharing{Allocation: allocations()[v.choice("allocation")], Backfill: backfills()[v.choice("backfill")],
		Priorities: v.int("priorities"), Pace: paceOf(v)}
}

// checkSharing finds backfills that would do nothing or something else with the
// allocation, since only madd skips coflows, and priorities without sharing among
// those of a class.
func checkSharing(v values) []error {
	var errs []error
	allocation := v.choice("allocation")
	if b := v.choice("backfill"); (b == "served" || b == "fair-share") && allocation != "madd" {
		errs = append(errs, fmt.Errorf("backfill %s is about coflows that allocation madd has skipped, and allocation is %s: want backfill greedy or none, or allocation madd", b, allocation))
	}
	if v.choice("backfill") == "proportional" && allocation == "greedy" {
		errs = append(errs, errors.New("backfill proportional would find nothing left by allocation greedy: want another allocation, such as madd, or backfill greedy"))
	}
	if n := v.int("priorities"); n > 0 && allocation != "maxmin" {
		errs = append(errs, fmt.Errorf("priorities %d: coflows of a class share by allocation maxmin, and allocation is %s: want allocation maxmin, or priorities 0", n, allocation))
	}
	return errs
}

// checkSEBF is checkSharing, and finds what the mode with deadlines does not use.
func checkSEBF(v values) []error {
	errs := checkSharing(v)
	if v.float("deadline") > 0 && (v.choice("allocation") != "madd" || v.choice("backfill") != "greedy") {
		errs = append(errs, fmt.Errorf("deadline %v goes with allocation madd and backfill greedy alone, not with %s and %s", v.float("deadline"), v.choice("allocation"), v.choice("backfill")))
	}
	return errs
}

// orderings are the coflow policies that know all they rank by, and those that rank
// by nothing.
func orderings() []Entry {
	ordered := func(name, doc string, by coflow.Key, allocation string, params ...Param) Entry {
		return Entry{Role: RoleCoflow, Name: name, Doc: doc, Holds: true, Params: append(params, sharing(allocation)...), check: checkSharing,
			scheduler: func(v values) policies.Scheduler {
				return coflow.Ordered{By: by, Initial: v["key"] == "initial", Sharing: sharingOf(v)}
			}}
	}
	deadline := coflow.DefaultDeadline()
	return []Entry{
		{Role: RoleCoflow, Name: "fair", Doc: "every flow for itself: plain TCP, max-min fair in the fluid model",
			scheduler: func(values) policies.Scheduler { return coflow.Fair{} }},
		{Role: RoleCoflow, Name: "equal-share", Doc: "every flow gets the smaller of the equal shares of its two ports, the rest stays idle: FAIR of the simulator CoflowSim, less than max-min fair", Holds: true,
			scheduler: func(values) policies.Scheduler { return coflow.EqualShare{} }},
		ordered("fifo", "first in, first out; the simulator CoflowSim's with allocation madd, backfill fair-share and reallocate coflows", coflow.Arrival, "greedy"),
		ordered("scf", "shortest coflow first, by the size of the largest flow, as in CoflowSim, which has static keys, backfill fair-share and reallocate coflows; knows sizes", coflow.LargestFlow, "madd"),
		ordered("ncf", "narrowest coflow first, by the number of senders or of receivers, whichever is less, as in CoflowSim (there with allocation madd)", coflow.Width, "greedy"),
		ordered("lcf", "lightest coflow first, by the bytes of all its flows, as in CoflowSim; knows sizes", coflow.Bytes, "madd", keyed()),
		ordered("srtf", "shortest remaining time first: by the time that what is left of a coflow takes alone, as sebf, but flow by flow; knows sizes", coflow.Bottleneck, "greedy", keyed()),
		{Role: RoleCoflow, Name: "sebf", Doc: "Varys (SIGCOMM 2014): smallest effective bottleneck first, flows of a coflow end together; knows sizes", Holds: true,
			Params: slices.Concat([]Param{keyed()}, sharing("madd"), []Param{
				{Name: "deadline", Type: Float, Default: deadline.Factor, Unit: "times the time a coflow takes alone", High: 1e6,
					Doc: "with it, coflows that cannot end in so long without delay to those admitted before are rejected, and those admitted have what they need to; 0 is no deadlines"},
				{Name: "padding", Type: Float, Default: deadline.Padding, Unit: "of an estimate", High: 10,
					Doc: "what part an estimate of the time needed is taken to be short, at admission"},
				{Name: "least", Type: Duration, Default: deadline.Least, Max: int64(longestInterval),
					Doc: "the shortest time any coflow is thought to take: one with a shorter deadline is rejected"},
				{Name: "rejected", Type: Choice, Choices: []string{"background", "last"}, Default: "background",
					Doc: "rejected coflows have what the admitted do not need to end in time, or only what the admitted cannot use"},
			}),
			check: checkSEBF,
			scheduler: func(v values) policies.Scheduler {
				return coflow.SEBF{Initial: v.choice("key") == "initial", Sharing: sharingOf(v), Deadline: coflow.Deadline{Factor: v.float("deadline"),
					Padding: v.float("padding"), Least: v.duration("least"), RejectedLast: v.choice("rejected") == "last"}}
			}},
		{Role: RoleCoflow, Name: "sincronia", Doc: "Sincronia (SIGCOMM 2018): the order of bottleneck-select-scale-iterate on what is left, flow by flow; knows sizes", Holds: true,
			Params: append([]Param{
				{Name: "ties", Type: Choice, Choices: []string{"earlier-first", "earlier-last"}, Default: "earlier-first",
					Doc: "of two coflows that could go last, which has the better place: the one with the lower ID, or the other, as in the authors' code"},
				{Name: "reorder", Type: Choice, Choices: []string{"coflows", "always"}, Default: "coflows",
					Doc: "when to make the order anew: when a coflow has come or gone, or in every decision"},
			}, sharing("greedy")...), check: checkSharing,
			scheduler: func(v values) policies.Scheduler {
				return coflow.Sincronia{Sharing: sharingOf(v), EarlierLast: v.choice("ties") == "earlier-last", Always: v.choice("reorder") == "always"}
			}},
	}
}
