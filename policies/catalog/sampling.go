package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/coflow"
)

// The names of what policies that know no sizes can be set to.
var (
	fifos      = map[string]coflow.FIFO{"entered": coflow.Entered, "arrival": coflow.Arrived}
	pilotRules = map[string]coflow.PilotRule{"senders": coflow.OfSenders, "flows": coflow.OfFlows, "number": coflow.Constant}
	metrics    = map[string]coflow.Metric{"A": coflow.SmallestJob, "B": coflow.ShortestRemaining, "C": coflow.LeastContention, "D": coflow.WeightedContention}
)

// nameOf is the name under which a table has a value.
func nameOf[E comparable](table map[string]E, value E) string {
	for name, v := range table {
		if v == value {
			return name
		}
	}
	return ""
}

func choice[E comparable](name string, table map[string]E, value E, doc string) Param {
	return Param{Name: name, Type: Choice, Choices: slices.Sorted(maps.Keys(table)), Default: nameOf(table, value), Doc: doc}
}

// either is a choice of two, the first of which stands for true.
func either(name, yes, no string, value bool, doc string) Param {
	d := no
	if value {
		d = yes
	}
	return Param{Name: name, Type: Choice, Choices: []string{yes, no}, Default: d, Doc: doc}
}

func queues(q coflow.Queues) []Param {
	return []Param{
		{Name: "queues", Type: Whole, Default: int64(q.Count), Unit: "queues", Min: 1, Max: 64, Doc: "K, how many queues there are"},
		{Name: "first_queue", Type: Size, Default: q.First, Unit: "bytes", Min: 1, Max: math.MaxInt64, Doc: "Q0, where the first queue ends"},
		{Name: "growth", Type: Float, Default: q.Growth, Low: 1, High: 1e6, Doc: "E, how many times as far the next queue goes; the last goes on for ever"},
	}
}

func queuesOf(v values) coflow.Queues {
	return coflow.Queues{Count: v.int("queues"), First: v.size("first_queue"), Growth: v.float("growth")}
}

func interval(name string, d time.Duration, doc string) Param {
	return Param{Name: name, Type: Duration, Default: d, Max: int64(longestInterval), Doc: doc}
}

// checkInterval finds intervals with which nothing but deciding would be done. events
// tells that 0 is a value too.
func checkInterval(name string, events bool) func(values) []error {
	return func(v values) []error {
		d := v.duration(name)
		switch {
		case d >= shortestInterval || d == 0 && events:
			return nil
		case events:
			return []error{fmt.Errorf("%s: %v: want 0, or %v or more", name, d, shortestInterval)}
		default:
			return []error{fmt.Errorf("%s: %v: want %v or more", name, d, shortestInterval)}
		}
	}
}

func sampling(p coflow.Sampling, pick string) []Param {
	return []Param{
		{Name: "thin", Type: Whole, Default: int64(p.Thin), Unit: "flows", Max: math.MaxInt32, Doc: "T, the most flows of a coflow that is not sampled but served at once"},
		choice("pilots", pilotRules, p.Rule, "how many pilots a coflow gets: a fraction of its senders, a fraction of its flows, or a number; at least one"),
		{Name: "fraction", Type: Float, Default: p.Fraction, Low: 0, High: 1, Doc: "of senders or flows, for pilots: senders and pilots: flows; rounded down"},
		{Name: "number", Type: Whole, Default: int64(p.Number), Unit: "flows", Min: 1, Max: math.MaxInt32, Doc: "of pilots, for pilots: number"},
		either("choose", "random", "least-busy", p.Random, "which flows are pilots: those between the ports that have the fewest unfinished pilots ("+pick+"), or any"),
		{Name: "luck", Type: Whole, Default: p.Seed, Unit: "as a seed", Min: math.MinInt64, Max: math.MaxInt64, Doc: "what random pilots are drawn by, with the arrival of the coflow and the place of the flow in it: the same in every repeat"},
	}
}

func samplingOf(v values) coflow.Sampling {
	return coflow.Sampling{Thin: v.int("thin"), Rule: pilotRules[v.choice("pilots")], Fraction: v.float("fraction"), Number: v.int("number"),
		Random: v.choice("choose") == "random", Seed: int64(v.int("luck"))}
}

// samplings are the coflow policies that know no sizes, and the oracle some are
// compared with.
func samplings() []Entry {
	aalo, saath, philae, sim := coflow.DefaultAalo(), coflow.DefaultSaath(), coflow.DefaultPhilae(), coflow.DefaultPhilaeSim()
	const delta = "interval"
	fifo := func(by coflow.FIFO) Param {
		return choice("fifo", fifos, by, "inside a queue, coflows go by when they entered it, or by when they arrived")
	}
	across := func(strict bool, weights string) Param {
		return either("across", "strict", "weighted", strict, "the first queue that has coflows goes before all others, or queues get shares of every link with weights that "+weights)
	}
	aaloOf := func(v values) coflow.Aalo {
		return coflow.Aalo{Queues: queuesOf(v), Interval: v.duration(delta), Weighted: v.choice("across") == "weighted", FIFO: fifos[v.choice("fifo")], Fill: v.choice("inside") == "maxmin"}
	}
	aaloParams := slices.Concat(queues(aalo.Queues), []Param{
		interval(delta, aalo.Interval, "δ, between two decisions (the paper has about 10 ms, its prototype 80 ms); 0 is whenever a coflow arrives or ends or a flow ends"),
		across(!aalo.Weighted, "fall from K to 1 by one a queue, as in the paper"),
		fifo(aalo.FIFO),
		either("inside", "maxmin", "even", aalo.Fill, "a coflow's flows share all that is left max-min fair, or get the smaller of the equal shares of their links, as in public code"),
	})
	return []Entry{
		{Role: RoleCoflow, Name: "aalo", Doc: "Aalo (SIGCOMM 2015): the more a coflow has sent the later it is served, by queues with exponential thresholds; knows no sizes", Holds: true,
			Params: aaloParams, check: checkInterval(delta, true),
			scheduler: func(v values) policies.Scheduler { return aaloOf(v) }},
		{Role: RoleCoflow, Name: "aalo-oracle", Doc: "Aalo with every coflow from the start in the queue of its size: what learning sizes costs Aalo; knows sizes", Holds: true,
			Params: aaloParams, check: checkInterval(delta, true),
			scheduler: func(v values) policies.Scheduler { return coflow.AaloOracle(aaloOf(v)) }},
		{Role: RoleCoflow, Name: "saath", Doc: "Saath (CoNEXT 2017): Aalo's queues by the longest flow, least contention first, all flows of a coflow or none; knows no sizes", Holds: true,
			Params: slices.Concat(queues(saath.Queues), []Param{
				interval(delta, saath.Interval, "δ, between two decisions; 0 is whenever a coflow arrives or ends or a flow ends"),
				{Name: "per_flow", Type: Bool, Default: saath.PerFlow, Doc: "a coflow leaves a queue when one flow has sent its part of the threshold, not when all together have sent all of it"},
				either("order", "arrival", "contention", saath.FIFO, "inside a queue, coflows go by how many others there have flows at the same ports, or by arrival"),
				{Name: "deadline", Type: Float, Default: saath.Deadline, Low: 0, High: 1e6, Doc: "D: after D times the coflows it found in its queue, times the least time it needs there, a coflow goes before all others; 0 is never"},
				{Name: "dynamics", Type: Bool, Default: saath.Dynamics, Doc: "coflows some of whose flows have ended move up, to the queue of what they have left if the other flows are as long as the median, until they have sent more"},
				{Name: "conserve", Type: Bool, Default: saath.Conserve, Doc: "what would stay idle is for coflows that could not be served whole"},
			}), check: checkInterval(delta, true),
			scheduler: func(v values) policies.Scheduler {
				return coflow.Saath{Queues: queuesOf(v), Interval: v.duration(delta), PerFlow: v.bool("per_flow"), FIFO: v.choice("order") == "arrival",
					Deadline: v.float("deadline"), Dynamics: v.bool("dynamics"), Conserve: v.bool("conserve")}
			}},
		{Role: RoleCoflow, Name: "philae", Doc: "Philae (ATC 2019): learns a coflow's size from a few pilot flows; knows no sizes", Holds: true,
			Params: slices.Concat([]Param{
				choice("policy", metrics, philae.Metric, "the paper's policies: A smallest coflow first, B least left first, C least contention first (no pilots), D least contention at ports, weighted by length, first"),
			}, queues(philae.Queues), []Param{
				{Name: "first_contention", Type: Float, Default: philae.FirstContention, Unit: "coflows", Low: 0.001, High: 1e18, Doc: "where the first queue ends under policy C; 10485760 is what the paper's 10 MB come to"},
			}, sampling(philae.Sampling, "sender first, then receiver"), []Param{
				either("thin_first", "thin", "arrival", philae.ThinFirst, "thin coflows go before pilots, or they and pilots by arrival of their coflow"),
				fifo(philae.FIFO),
				either("inside", "equal", "whole", philae.Equal, "all flows of a coflow get the rate of its slowest, or one flow after the other its whole ports: the paper's rules (a) and (b)"),
				across(philae.Strict, "fall by the parameter weight a queue"),
				{Name: "weight", Type: Float, Default: philae.Weight, Low: 1, High: 1e6, Doc: "how many times the share of the next queue a queue gets"},
				{Name: "conserve", Type: Bool, Default: philae.Conserve, Doc: "what would stay idle is for coflows that wait for their pilots"},
			}),
			scheduler: func(v values) policies.Scheduler {
				return coflow.Philae{Queues: queuesOf(v), Sampling: samplingOf(v), Metric: metrics[v.choice("policy")], FirstContention: v.float("first_contention"),
					ThinFirst: v.choice("thin_first") == "thin", FIFO: fifos[v.choice("fifo")], Equal: v.choice("inside") == "equal",
					Strict: v.choice("across") == "strict", Weight: v.float("weight"), Conserve: v.bool("conserve")}
			}},
		{Role: RoleCoflow, Name: "philae-sim", Doc: "Philae as its public simulator does it, in cycles and without work conservation; knows no sizes", Holds: true,
			Params: slices.Concat([]Param{
				{Name: "impact", Type: Whole, Default: int64(sim.Impact), Unit: "as the simulator's code", Max: 6, Doc: "the metric: 1, 2, 3, 6 are the paper's A, B, C, D, and 0, 4, 5 mixtures; 3 is of use with a first_queue of a few bytes"},
			}, queues(sim.Queues), sampling(sim.Sampling, "the least sum of ranks"), []Param{
				interval("cycle", sim.Cycle, "between two decisions"),
				{Name: "slots", Type: Whole, Default: int64(sim.Slots), Unit: "cycles", Max: 1 << 20, Doc: "in a row for the first queue that has coflows, against starvation; 0 is strict priority"},
				{Name: "split", Type: Whole, Default: int64(sim.Split), Unit: "times", Min: 1, Max: 1 << 20, Doc: "how many times the cycles of the next queue a queue gets"},
			}), check: checkInterval("cycle", false),
			scheduler: func(v values) policies.Scheduler {
				return coflow.PhilaeSim{Queues: queuesOf(v), Sampling: samplingOf(v), Impact: v.int("impact"), Cycle: v.duration("cycle"), Slots: v.int("slots"), Split: v.int("split")}
			}},
	}
}
