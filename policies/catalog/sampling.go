package catalog

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"testbed/policies/coflow"
	"testbed/policies/coflow/philaesim"
)

// The names of parameter values of the policies that know no sizes.
var (
	fifos      = map[string]coflow.FIFO{"entered": coflow.Entered, "arrival": coflow.Arrived}
	pilotRules = map[string]coflow.PilotRule{"senders": coflow.OfSenders, "flows": coflow.OfFlows, "number": coflow.Constant}
	metrics    = map[string]coflow.Metric{"A": coflow.SmallestJob, "B": coflow.ShortestRemaining, "C": coflow.LeastContention, "D": coflow.WeightedContention}
)

// nameOf returns the name of a value in a table.
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

// twoWay is a choice between two names, the first of which means true.
func twoWay(name, yes, no string, value bool, doc string) Param {
	d := no
	if value {
		d = yes
	}
	return Param{Name: name, Type: Choice, Choices: []string{yes, no}, Default: d, Doc: doc}
}

func queues(q coflow.Queues) []Param {
	return []Param{
		{Name: "queues", Type: Whole, Default: int64(q.Count), Unit: "queues", Min: 1, Max: 64, Doc: "K, their number"},
		{Name: "first_queue", Type: Size, Default: q.First, Min: 1, Max: math.MaxInt64, Doc: "Q0, the threshold of the first queue"},
		{Name: "growth", Type: Float, Default: q.Growth, Low: 1, High: 1e6, Doc: "E, the factor between thresholds; the last queue has none"},
	}
}

func queuesOf(v Values) coflow.Queues {
	return coflow.Queues{Count: v.int("queues"), First: v.size("first_queue"), Growth: v.float("growth")}
}

func interval(name string, d time.Duration, doc string) Param {
	return Param{Name: name, Type: Duration, Default: d, Max: int64(longestInterval), Doc: doc}
}

// checkInterval rejects intervals so short that decisions would take all the time. 0 is
// allowed: then decisions follow events.
func checkInterval(name string) func(Values) []error {
	return func(v Values) []error {
		if d := v.duration(name); d != 0 && d < shortestInterval {
			return []error{ParamError{name, fmt.Errorf("%s: %v: must be 0 or at least %v", name, d, shortestInterval)}}
		}
		return nil
	}
}

func sampling(p coflow.Sampling, pick string) []Param {
	return []Param{
		{Name: "thin", Type: Whole, Default: int64(p.Thin), Unit: "flows", Max: math.MaxInt32, Doc: "T, the most flows of a thin coflow, which is served at once without pilot flows"},
		choice("pilots", pilotRules, p.Rule, "pilot flows of a coflow: a fraction of its flows, a number, or a fraction of its senders; at least one"),
		{Name: "fraction", Type: Float, Default: p.Fraction, Low: 0, High: 1, Doc: "fraction for pilots, rounded down"},
		{Name: "number", Type: Whole, Default: int64(p.Number), Unit: "flows", Min: 1, Max: math.MaxInt32, Doc: "pilot flows of pilots: number"},
		twoWay("choose", "random", "least-busy", p.Random, "how pilot flows are chosen: least-busy, between the ports with the fewest unfinished pilot flows ("+pick+"); random, with equal probability"),
		{Name: "seed", Type: Whole, Default: p.Seed, Min: math.MinInt64, Max: math.MaxInt64, Doc: "seed of random pilot flows, with the coflow's arrival and the flow's position; the same in every repeat"},
	}
}

func samplingOf(v Values) coflow.Sampling {
	return coflow.Sampling{Thin: v.int("thin"), Rule: pilotRules[v.choice("pilots")], Fraction: v.float("fraction"), Number: v.int("number"),
		Random: v.choice("choose") == "random", Seed: int64(v.int("seed"))}
}

// samplings returns the coflow policies that know no sizes, and the oracle with which
// some are compared.
func samplings() []Entry {
	aalo, saath, philae, sim := coflow.DefaultAalo(), coflow.DefaultSaath(), coflow.DefaultPhilae(), philaesim.Default()
	const delta = "interval"
	fifo := func(by coflow.FIFO) Param {
		return choice("fifo", fifos, by, "order inside a queue: by the coflow's arrival, or by the time of entering it")
	}
	across := func(strict bool, weights string) Param {
		return twoWay("across", "strict", "weighted", strict, "how queues share links: strict priority, or weighted shares of every link, with weights that "+weights)
	}
	aaloOf := func(v Values) coflow.Aalo {
		return coflow.Aalo{Queues: queuesOf(v), Interval: v.duration(delta), Weighted: v.choice("across") == "weighted", FIFO: fifos[v.choice("fifo")], Fill: v.choice("inside") == "maxmin"}
	}
	aaloParams := slices.Concat(queues(aalo.Queues), []Param{
		interval(delta, aalo.Interval, "δ, the time between decisions (paper: about 10 ms, prototype: 80 ms); 0 to decide at arrivals and ends"),
		across(!aalo.Weighted, "decrease by one per queue, from K to 1, as in the paper"),
		fifo(aalo.FIFO),
		twoWay("inside", "maxmin", "even", aalo.Fill, "flows of a coflow: max-min fair, or each the smallest equal share of its links, as in public code"),
	})
	return []Entry{
		{Name: "aalo", Doc: "Aalo (SIGCOMM 2015): coflows move to lower-priority queues as they send, with exponential queue thresholds; knows no sizes", Holds: true,
			Params: aaloParams, Check: checkInterval(delta), New: func(v Values) any { return aaloOf(v) }},
		{Name: "aalo-oracle", Doc: "Aalo with each coflow in the queue of its size from its arrival: the bound that shows what learning sizes costs Aalo; knows sizes", Holds: true,
			Params: aaloParams, Check: checkInterval(delta), New: func(v Values) any { return coflow.AaloOracle(aaloOf(v)) }},
		{Name: "saath", Doc: "Saath (CoNEXT 2017): Aalo's queues by the longest flow, least contention first inside a queue, all flows of a coflow or none; knows no sizes", Holds: true,
			Params: slices.Concat(queues(saath.Queues), []Param{
				interval(delta, saath.Interval, "δ, the time between decisions; 0 to decide at arrivals and ends"),
				{Name: "per_flow", Type: Bool, Default: saath.PerFlow, Doc: "move a coflow when one flow has sent its part of the threshold, not when all together have sent the threshold"},
				twoWay("order", "arrival", "contention", saath.FIFO, "order inside a queue: by arrival, or least contention first (other coflows in the queue with flows at the same ports)"),
				{Name: "deadline", Type: Float, Default: saath.Deadline, Low: 0, High: 1e6, Doc: "D: a coflow gets priority over all others after D × the coflows in its queue when it entered × its minimum time in that queue; 0 for never"},
				{Name: "dynamics", Type: Bool, Default: saath.Dynamics, Doc: "raise a coflow to the queue of its estimated remaining bytes (other flows are as long as the median of the ended ones), until it has sent more"},
				{Name: "conserve", Type: Bool, Default: saath.Conserve, Doc: "give idle capacity to coflows that could not be served as a whole"},
			}), Check: checkInterval(delta),
			New: func(v Values) any {
				return coflow.Saath{Queues: queuesOf(v), Interval: v.duration(delta), PerFlow: v.bool("per_flow"), FIFO: v.choice("order") == "arrival",
					Deadline: v.float("deadline"), Dynamics: v.bool("dynamics"), Conserve: v.bool("conserve")}
			}},
		{Name: "philae", Doc: "Philae (ATC 2019): estimates the size of a coflow from a few pilot flows; knows no sizes", Holds: true,
			Params: slices.Concat([]Param{
				choice("policy", metrics, philae.Metric, "the paper's policies: A, smallest coflow first; B, shortest remaining first; C, least contention first (no pilot flows); D, least length-weighted contention first, over ports"),
				{Name: "dynamics", Type: Bool, Default: philae.Dynamics, Doc: "weight contention by a flow's estimated remaining bytes, (l·n-d)/n, in place of l; policy D only"},
			}, queues(philae.Queues), []Param{
				{Name: "first_contention", Type: Float, Default: philae.FirstContention, Unit: "coflows", Low: 0.001, High: 1e18, Doc: "threshold of the first queue under policy C; 10485760 as the paper's 10 MB"},
			}, sampling(philae.Sampling, "sender first, then receiver"), []Param{
				twoWay("thin_first", "thin", "arrival", philae.ThinFirst, "thin coflows before pilot flows, or both by arrival"),
				fifo(philae.FIFO),
				twoWay("inside", "equal", "whole", philae.Equal, "flows of a coflow: all at the rate of the slowest (the paper's rule a), or one after another with its whole ports (rule b)"),
				across(philae.Strict, "decrease by the factor weight per queue"),
				{Name: "weight", Type: Float, Default: philae.Weight, Low: 1, High: 1e6, Doc: "share of a queue relative to the next one"},
				{Name: "conserve", Type: Bool, Default: philae.Conserve, Doc: "give idle capacity to coflows that wait for their pilot flows"},
			}),
			New: func(v Values) any {
				return coflow.Philae{Queues: queuesOf(v), Sampling: samplingOf(v), Metric: metrics[v.choice("policy")], FirstContention: v.float("first_contention"),
					ThinFirst: v.choice("thin_first") == "thin", FIFO: fifos[v.choice("fifo")], Equal: v.choice("inside") == "equal",
					Strict: v.choice("across") == "strict", Weight: v.float("weight"), Conserve: v.bool("conserve"), Dynamics: v.bool("dynamics")}
			},
			Check: func(v Values) []error {
				if v.bool("dynamics") && metrics[v.choice("policy")] != coflow.WeightedContention {
					return []error{fmt.Errorf("dynamics has no effect under policy %s: use policy D, or B for smallest coflow first by remaining bytes", v.choice("policy"))}
				}
				return nil
			}},
		{Name: "philae-sim", Doc: "Philae as implemented in its public simulator, with cycles and without work conservation; knows no sizes", Holds: true,
			Params: slices.Concat([]Param{
				{Name: "impact", Type: Whole, Default: int64(sim.Impact), Max: 6, Doc: "metric of the queues by its number in the simulator: 1, 2, 3 and 6 are policies A to D, the others mixtures; 3 needs a first_queue of a few bytes"},
			}, queues(sim.Queues), sampling(sim.Sampling, "the least sum of ranks"), []Param{
				{Name: "cycle", Type: Duration, Default: sim.Cycle, Min: int64(shortestInterval), Max: int64(longestInterval), Doc: "time between decisions"},
				{Name: "slots", Type: Whole, Default: int64(sim.Slots), Unit: "cycles", Max: 1 << 20, Doc: "consecutive cycles of the highest busy queue before lower ones; 0 is strict priority"},
				{Name: "split", Type: Whole, Default: int64(sim.Split), Min: 1, Max: 1 << 20, Doc: "cycles of a queue relative to the next one"},
			}),
			New: func(v Values) any {
				return philaesim.Scheduler{Queues: queuesOf(v), Sampling: samplingOf(v), Impact: v.int("impact"), Cycle: v.duration("cycle"), Slots: v.int("slots"), Split: v.int("split")}
			}},
	}
}
