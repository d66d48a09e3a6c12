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

// The names of what ordering policies can be set to.
var (
	allocations = map[string]coflow.Allocation{"madd": coflow.MADD, "greedy": coflow.Greedy, "even": coflow.Even, "maxmin": coflow.MaxMin}
	backfills   = map[string]coflow.Backfill{"greedy": coflow.TopUp, "served": coflow.TopUpServed, "fair-share": coflow.FairShare, "none": coflow.None}
)

// The bounds of the interval between decisions.
const (
	shortestInterval = 100 * time.Microsecond
	longestInterval  = time.Hour
)

// reallocate says when a policy decides.
var reallocate = Param{Name: "reallocate", Type: Choice, Choices: []string{"flows", "coflows"}, Default: "flows",
	Durations: true, Min: int64(shortestInterval), Max: int64(longestInterval),
	Doc: "when to decide: whenever a coflow arrives or ends or a flow ends; coflows alone; or at the multiples of an interval, such as 8ms"}

// keyed says which of two moments a coflow's place comes from.
var keyed = Param{Name: "key", Type: Choice, Choices: []string{"remaining", "initial"}, Default: "remaining",
	Doc: "rank coflows by what is left of them, or by what they were at arrival"}

func paceOf(v values) coflow.Pace {
	switch p := v[reallocate.Name].(type) {
	case time.Duration:
		return coflow.Pace{Every: p}
	default:
		return coflow.Pace{CoflowsOnly: p == "coflows"}
	}
}

// sharing are the parameters of an ordering policy, with its default allocation.
func sharing(allocation string) []Param {
	return []Param{
		{Name: "allocation", Type: Choice, Choices: slices.Sorted(maps.Keys(allocations)), Default: allocation,
			Doc: "how a coflow's flows share what those before it left: madd, all end together, sizes known; greedy, flow by flow; even, equal shares in one pass; maxmin, max-min fair"},
		{Name: "backfill", Type: Choice, Choices: slices.Sorted(maps.Keys(backfills)), Default: "greedy",
			Doc: "who gets what the allocation leaves: greedy, all in order; served, those madd has not skipped; fair-share, CoflowSim's rule: equal shares for those madd has skipped, then all in order of arrival; none"},
		reallocate,
	}
}

func sharingOf(v values) coflow.Sharing {
	return coflow.Sharing{Allocation: allocations[v.choice("allocation")], Backfill: backfills[v.choice("backfill")], Pace: paceOf(v)}
}

// checkSharing finds backfills that would do nothing or something else with the
// allocation: only madd skips coflows.
func checkSharing(v values) error {
	if b := v.choice("backfill"); (b == "served" || b == "fair-share") && v.choice("allocation") != "madd" {
		return fmt.Errorf("backfill %s is for coflows that allocation madd has skipped or not, and allocation is %s: want backfill greedy or none, or allocation madd", b, v.choice("allocation"))
	}
	return nil
}

// orderings are the coflow policies that know all they rank by, and those that rank
// by nothing.
func orderings() []Entry {
	ordered := func(name, doc string, by coflow.Key, allocation string, params ...Param) Entry {
		return Entry{Role: RoleCoflow, Name: name, Doc: doc, Holds: true, Params: append(params, sharing(allocation)...), check: checkSharing,
			scheduler: func(v values) policies.Scheduler {
				return coflow.Ordered{By: by, Initial: v[keyed.Name] == "initial", Sharing: sharingOf(v)}
			}}
	}
	return []Entry{
		{Role: RoleCoflow, Name: "fair", Doc: "every flow for itself: plain TCP, max-min fair in the fluid model",
			scheduler: func(values) policies.Scheduler { return coflow.Fair{} }},
		{Role: RoleCoflow, Name: "equal-share", Doc: "every flow gets the smaller of the equal shares of its two ports, the rest stays idle: FAIR of the simulator CoflowSim, less than max-min fair", Holds: true,
			scheduler: func(values) policies.Scheduler { return coflow.EqualShare{} }},
		ordered("fifo", "first in, first out; with allocation madd and backfill fair-share it is CoflowSim's", coflow.Arrival, "greedy"),
		ordered("scf", "shortest coflow first, by the size of the largest flow; knows sizes", coflow.LargestFlow, "madd"),
		ordered("ncf", "narrowest coflow first, by the number of senders or of receivers, whichever is less", coflow.Width, "greedy"),
		ordered("lcf", "lightest coflow first, by the bytes of all its flows; knows sizes", coflow.Bytes, "madd", keyed),
		ordered("srtf", "shortest remaining time first: by the time that what is left of a coflow takes alone, as sebf, but flow by flow; knows sizes", coflow.Bottleneck, "greedy", keyed),
		{Role: RoleCoflow, Name: "sebf", Doc: "Varys (SIGCOMM 2014): smallest effective bottleneck first, flows of a coflow end together; knows sizes", Holds: true,
			Params: append([]Param{keyed}, sharing("madd")...), check: func(v values) error { return errors.Join(checkSharing(v)) },
			scheduler: func(v values) policies.Scheduler {
				return coflow.SEBF{Initial: v.choice("key") == "initial", Sharing: sharingOf(v)}
			}},
	}
}
