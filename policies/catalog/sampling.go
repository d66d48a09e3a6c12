package catalog

import (
	"fmt"
	"math"
	"slices"

	"testbed/policies/coflow"
	"testbed/policies/coflow/philaesim"
)

func queues(q *coflow.Queues) []Param {
	return []Param{
		{Name: "queues", To: &q.Count, Unit: "queues", Min: 1, Max: 64, Doc: "K, their number"},
		{Name: "first_queue", To: &q.First, Min: 1, Max: math.MaxInt64, Doc: "Q0, the threshold of the first queue"},
		{Name: "growth", To: &q.Growth, Low: 1, High: 1e6, Doc: "E, the factor between thresholds; the last queue has none"},
	}
}

// delta is the name of the parameter for δ.
const delta = "interval"

func inQueue(by *coflow.FIFO) Param {
	return Param{Name: "fifo", To: by, Choices: []string{"entered", "arrival"}, Doc: "order inside a queue: by the time of entering it, or by the coflow's arrival"}
}

const acrossDoc = "how queues share links: strict priority, or weighted shares of every link, with weights that "

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

func sampling(s *coflow.Sampling, pick string) []Param {
	return []Param{
		{Name: "thin", To: &s.Thin, Unit: "flows", Max: math.MaxInt32, Doc: "T, the most flows of a thin coflow, which is served at once without pilot flows"},
		{Name: "pilots", To: &s.Rule, Choices: []string{"senders", "flows", "number"}, Doc: "pilot flows of a coflow: a fraction of its senders, a fraction of its flows, or a number; at least one"},
		{Name: "fraction", To: &s.Fraction, Low: 0, High: 1, Doc: "fraction for pilots, rounded down"},
		{Name: "number", To: &s.Number, Unit: "flows", Min: 1, Max: math.MaxInt32, Doc: "pilot flows of pilots: number"},
		{Name: "choose", To: &s.Random, Choices: []string{"least-busy", "random"}, Doc: "how pilot flows are chosen: least-busy, between the ports with the fewest unfinished pilot flows (" + pick + "); random, with equal probability"},
		{Name: "seed", To: &s.Seed, Min: math.MinInt64, Max: math.MaxInt64, Doc: "seed of random pilot flows, with the coflow's arrival and the flow's position; the same in every repeat"},
	}
}

// samplings returns the coflow policies that know no sizes, and the oracle with which some are compared.
func samplings() []Entry {
	aaloParams := func(p *coflow.Aalo) []Param {
		return append(queues(&p.Queues),
			Param{Name: delta, To: &p.Interval, Max: int64(longestInterval), Doc: "δ, the time between decisions (paper: about 10 ms, prototype: 80 ms); 0 to decide at arrivals and ends"},
			Param{Name: "across", To: &p.Weighted, Choices: []string{"strict", "weighted"}, Doc: acrossDoc + "decrease by one per queue, from K to 1, as in the paper"},
			inQueue(&p.FIFO),
			Param{Name: "inside", To: &p.Fill, Choices: []string{"even", "maxmin"}, Doc: "flows of a coflow: each the smallest equal share of its links, as in public code, or max-min fair"})
	}
	return []Entry{
		Fields(Entry{Name: "aalo", Doc: "Aalo (SIGCOMM 2015): coflows move to lower-priority queues as they send, with exponential queue thresholds; knows no sizes", Holds: true,
			Check: checkInterval(delta)}, coflow.DefaultAalo(), aaloParams),
		bound(Entry{Name: "aalo-oracle", Doc: "Aalo with each coflow in the queue of its size from its arrival: the bound that shows what learning sizes costs Aalo; knows sizes", Holds: true,
			Check: checkInterval(delta)}, coflow.DefaultAalo(), aaloParams, func(p coflow.Aalo, _ Values) any { return coflow.AaloOracle(p) }),
		Fields(Entry{Name: "saath", Doc: "Saath (CoNEXT 2017): Aalo's queues by the longest flow, least contention first inside a queue, all flows of a coflow or none; knows no sizes", Holds: true,
			Check: checkInterval(delta)}, coflow.DefaultSaath(), func(p *coflow.Saath) []Param {
			return append(queues(&p.Queues), []Param{
				{Name: delta, To: &p.Interval, Max: int64(longestInterval), Doc: "δ, the time between decisions; 0 to decide at arrivals and ends"},
				{Name: "per_flow", To: &p.PerFlow, Doc: "move a coflow when one flow has sent its part of the threshold, not when all together have sent the threshold"},
				{Name: "order", To: &p.FIFO, Choices: []string{"contention", "arrival"}, Doc: "order inside a queue: least contention first (other coflows in the queue with flows at the same ports), or by arrival"},
				{Name: "deadline", To: &p.Deadline, Low: 0, High: 1e6, Doc: "D: a coflow gets priority over all others after D × the coflows in its queue when it entered × its minimum time in that queue; 0 for never"},
				{Name: "dynamics", To: &p.Dynamics, Doc: "raise a coflow to the queue of its estimated remaining bytes (other flows are as long as the median of the ended ones), until it has sent more"},
				{Name: "conserve", To: &p.Conserve, Doc: "give idle capacity to coflows that could not be served as a whole"},
			}...)
		}),
		Fields(Entry{Name: "philae", Doc: "Philae (ATC 2019): estimates the size of a coflow from a few pilot flows; knows no sizes", Holds: true,
			Check: func(v Values) []error {
				if v.bool("dynamics") && v.choice("policy") != "D" {
					return []error{fmt.Errorf("dynamics has no effect under policy %s: use policy D, or B for smallest coflow first by remaining bytes", v.choice("policy"))}
				}
				return nil
			}}, coflow.DefaultPhilae(), func(p *coflow.Philae) []Param {
			return slices.Concat([]Param{
				{Name: "policy", To: &p.Metric, Choices: []string{"A", "B", "C", "D"}, Doc: "the paper's policies: A, smallest coflow first; B, shortest remaining first; C, least contention first (no pilot flows); D, least length-weighted contention first, over ports"},
				{Name: "dynamics", To: &p.Dynamics, Doc: "weight contention by a flow's estimated remaining bytes, (l·n-d)/n, in place of l; policy D only"},
			}, queues(&p.Queues), []Param{
				{Name: "first_contention", To: &p.FirstContention, Unit: "coflows", Low: 0.001, High: 1e18, Doc: "threshold of the first queue under policy C; 10485760 as the paper's 10 MB"},
			}, sampling(&p.Sampling, "sender first, then receiver"), []Param{
				{Name: "thin_first", To: &p.ThinFirst, Choices: []string{"arrival", "thin"}, Doc: "thin coflows and pilot flows by arrival, or thin coflows first"},
				inQueue(&p.FIFO),
				{Name: "inside", To: &p.Equal, Choices: []string{"whole", "equal"}, Doc: "flows of a coflow: one after another with its whole ports (the paper's rule b), or all at the rate of the slowest (rule a)"},
				{Name: "across", To: &p.Strict, Choices: []string{"weighted", "strict"}, Doc: acrossDoc + "decrease by the factor weight per queue"},
				{Name: "weight", To: &p.Weight, Low: 1, High: 1e6, Doc: "share of a queue relative to the next one"},
				{Name: "conserve", To: &p.Conserve, Doc: "give idle capacity to coflows that wait for their pilot flows"},
			})
		}),
		Fields(Entry{Name: "philae-sim", Doc: "Philae as implemented in its public simulator, with cycles and without work conservation; knows no sizes", Holds: true},
			philaesim.Default(), func(p *philaesim.Scheduler) []Param {
				return slices.Concat([]Param{
					{Name: "impact", To: &p.Impact, Max: 6, Doc: "metric of the queues by its number in the simulator: 1, 2, 3 and 6 are policies A to D, the others mixtures; 3 needs a first_queue of a few bytes"},
				}, queues(&p.Queues), sampling(&p.Sampling, "the least sum of ranks"), []Param{
					{Name: "cycle", To: &p.Cycle, Min: int64(shortestInterval), Max: int64(longestInterval), Doc: "time between decisions"},
					{Name: "slots", To: &p.Slots, Unit: "cycles", Max: 1 << 20, Doc: "consecutive cycles of the highest busy queue before lower ones; 0 is strict priority"},
					{Name: "split", To: &p.Split, Min: 1, Max: 1 << 20, Doc: "cycles of a queue relative to the next one"},
				})
			}),
	}
}
