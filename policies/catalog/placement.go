package catalog

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies/placement"
)

// Upper bounds of parameters, far beyond useful values.
const (
	maxDomains  = 1000
	maxMinDelta = time.Minute
	maxInterval = time.Hour
)

// forms returns the names of placement.Form, by value.
func forms() []string { return []string{"auto", "v1", "v2", "ve"} }

// fallbacks returns the names of placement.Fallback, by value.
func fallbacks() []string { return []string{"baseline", "hdfs", "two-racks", "edge"} }

// placements returns the placement policies.
func placements() []Entry {
	hdfs, uniform, sinbad := placement.DefaultHDFS(), placement.DefaultUniform(), placement.DefaultSinbad()
	hosts := Param{Name: "hosts", Type: Hosts, Default: allHosts, Doc: "hosts that may hold replicas, such as h0-*,h1-0?; a writer outside them gets no local one"}
	return []Entry{
		{Name: "hdfs", Doc: "HDFS default: the writer, then two hosts in one random other rack",
			Params: append(defaultPlacement(hdfs), hosts),
			New: func(v Values) any {
				p := hdfsOf(v)
				p.Hosts = v.hosts("hosts")
				return p
			}},
		{Name: "least-loaded", Doc: "the writer, then the hosts with the most estimated residual capacity, ignoring placements since the last report: Sinbad without its hysteresis",
			Params: slices.Concat(steering(hosts), estimate()),
			New:    func(v Values) any { return placement.LeastLoaded{Steering: steeringOf(v), Estimate: estimateOf(v)} }},
		{Name: "oracle", Doc: "the writer, then the hosts with the most actual residual capacity, which no master knows: a bound on the benefit of better estimates",
			Params: steering(hosts), New: func(v Values) any { return placement.Oracle{Steering: steeringOf(v)} }},
		{Name: "power-of-two", Doc: "the writer, then for each replica the less loaded of two random candidates, by the estimates",
			Params: slices.Concat(steering(hosts), estimate()),
			New:    func(v Values) any { return placement.PowerOfTwo{Steering: steeringOf(v), Estimate: estimateOf(v)} }},
		{Name: "sinbad", Doc: "Sinbad (SIGCOMM 2013): the writer, then the hosts whose bottleneck links have the most expected capacity: two in the best other rack, or the two best of all",
			Params: slices.Concat([]Param{
				{Name: "threshold", Type: Size, Default: sinbad.Threshold, Max: math.MaxInt64, Doc: "blocks below it are placed by the fallback"},
				{Name: "threshold_fraction", Type: Float, Default: sinbad.Fraction, Unit: "× the largest block", High: 1, Doc: "blocks below this fraction of the largest so far are placed by the fallback"},
				{Name: "min_delta", Type: Duration, Default: sinbad.MinDelta, Max: int64(maxMinDelta), Doc: "least time to the next report over which the traffic of a placed block is spread"},
				{Name: "disk_cap", Type: Bool, Default: !sinbad.NoDiskCap, Doc: "limit expected capacity to the write rate of a disk"},
				twoWay("path", "whole", "bottleneck", sinbad.WholePath, "links that are compared: the receiving link of rack or host on the path to a replica with the least expected capacity; or those of the form"),
				{Name: "interval", Type: Duration, Default: sinbad.Interval, Max: int64(maxInterval), Doc: "q: waiting requests are placed at its multiples; 0 places each at once"},
				{Name: "order", Type: Choice, Default: "fewest-left", Choices: []string{"arrival", "fewest-left"}, Doc: "order of waiting requests: by arrival, or writers with the fewest unplaced blocks first (the paper's OPT′)"},
			}, steering(hosts), estimate()),
			New: func(v Values) any {
				return placement.Sinbad{Steering: steeringOf(v), Estimate: estimateOf(v), Threshold: v.size("threshold"), Fraction: v.float("threshold_fraction"),
					MinDelta: v.duration("min_delta"), NoDiskCap: !v.bool("disk_cap"), WholePath: v.choice("path") == "whole", Interval: v.duration("interval"), Arrival: v.choice("order") == "arrival"}
			},
			Check: func(v Values) []error {
				if v.choice("order") == "arrival" && v.duration("interval") == 0 {
					return []error{fmt.Errorf("order arrival has no effect with interval 0, because no request waits: use an interval such as 10s, or order fewest-left")}
				}
				return nil
			}},
		{Name: "uniform", Doc: "the writer, then random hosts: any, not all in the writer's rack, or each in a different rack",
			Params: slices.Concat([]Param{
				{Name: "form", Type: Choice, Default: "edge", Choices: []string{"edge", "two-racks"}, Doc: "any hosts (baseline of Sinbad's ve), or each remote replica in a different rack (of its v1)"},
			}, constraints(uniform.Constraints, hosts)),
			New: func(v Values) any {
				return placement.Uniform{TwoRacks: v.choice("form") == "two-racks", Constraints: constraintsOf(v)}
			}},
	}
}

func defaultPlacement(p placement.HDFS) []Param {
	return []Param{
		{Name: "consider_load", Type: Bool, Default: p.ConsiderLoad, Doc: "HDFS default: skip hosts that reported more than twice the average number of writes"},
		{Name: "min_blocks", Type: Whole, Default: int64(p.MinBlocks), Unit: "blocks", Min: 1, Max: 1000, Doc: "HDFS default: free space required on a disk"},
	}
}

func hdfsOf(v Values) placement.HDFS {
	return placement.HDFS{ConsiderLoad: v.bool("consider_load"), MinBlocks: v.int("min_blocks")}
}

func constraints(c placement.Constraints, hosts Param) []Param {
	return []Param{
		{Name: "tolerance", Type: Whole, Default: int64(c.Tolerance), Unit: "percentage points of disk use", Max: placement.NoTolerance, Doc: "a disk gets replicas up to this margin above the average; 100 for no limit"},
		{Name: "faults", Type: Whole, Default: int64(c.Faults), Unit: "racks", Max: maxDomains, Doc: "f: replicas span f+1 racks (or as many as there are racks or replicas)"},
		{Name: "partitions", Type: Whole, Default: int64(c.Partitions), Unit: "zones", Max: maxDomains, Doc: "p: replicas span p zones (or as many as there are)"},
		hosts,
	}
}

func constraintsOf(v Values) placement.Constraints {
	return placement.Constraints{Hosts: v.hosts("hosts"), Tolerance: v.int("tolerance"), Faults: v.int("faults"), Partitions: v.int("partitions")}
}

func steering(hosts Param) []Param {
	s := placement.DefaultSteering()
	return slices.Concat([]Param{
		{Name: "form", Type: Choice, Default: forms()[s.Form], Choices: forms(), Doc: "v1: by rack links, each remote replica in a different rack; v2: by rack links, remote replicas in pairs; ve: by host links, in any rack; auto: v2 if racks are oversubscribed, else ve"},
	}, constraints(s.Constraints, hosts), []Param{
		{Name: "fallback", Type: Choice, Default: fallbacks()[s.Fallback], Choices: fallbacks(), Doc: "placement of other blocks: hdfs, uniform of form two-racks or edge, or the form's baseline: two-racks for v1, hdfs for v2, edge for ve"},
	}, defaultPlacement(s.HDFS))
}

func steeringOf(v Values) placement.Steering {
	return placement.Steering{Form: placement.Form(slices.Index(forms(), v.choice("form"))), Constraints: constraintsOf(v),
		Fallback: placement.Fallback(slices.Index(fallbacks(), v.choice("fallback"))), HDFS: hdfsOf(v)}
}

func estimate() []Param {
	e := placement.DefaultEstimate()
	return []Param{
		{Name: "grace", Type: Float, Default: e.Grace, Unit: "× the heartbeat interval", High: placement.MaxGrace, Doc: "delay of a report after which the link counts as full"},
		{Name: "rack_load", Type: Choice, Default: "hosts", Choices: []string{"hosts", "leaf"}, Doc: "load of a rack: the sum over its hosts as in the paper, with traffic inside the rack, or the counters of its leaf"},
	}
}

func estimateOf(v Values) placement.Estimate {
	return placement.Estimate{Grace: v.float("grace"), LeafCounters: v.choice("rack_load") == "leaf"}
}
