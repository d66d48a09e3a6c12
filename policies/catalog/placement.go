package catalog

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/placement"
)

// Bounds of parameters, far beyond what is of use.
const (
	mostDomains  = 1000
	mostMinDelta = time.Minute
	mostInterval = time.Hour
)

// forms and fallbacks are the names of placement.Form and placement.Fallback, by value.
func forms() []string     { return []string{"auto", "v1", "v2", "ve"} }
func fallbacks() []string { return []string{"baseline", "hdfs", "two-racks", "edge"} }

// placements are the policies that choose the hosts of blocks.
func placements() []Entry {
	hdfs, uniform, sinbad := placement.DefaultHDFS(), placement.DefaultUniform(), placement.DefaultSinbad()
	hosts := Param{Name: "hosts", Type: Hosts, Default: allHosts, Doc: "the only hosts that may hold replicas, such as h0-*,h1-0?; a writer that is none of them gets no local replica"}
	return []Entry{
		{Role: RolePlacement, Name: "hdfs", Doc: "HDFS default: writer, then two hosts of one random other rack",
			Params: append(defaultPlacement(hdfs), hosts),
			placer: func(v values) policies.Placer {
				p := hdfsOf(v)
				p.Hosts = v.hosts("hosts")
				return p
			}},
		{Role: RolePlacement, Name: "least-loaded", Doc: "writer, then where the estimates leave most, whatever was placed since they were made: Sinbad without its hysteresis",
			Params: slices.Concat(steering(hosts), estimate()),
			placer: func(v values) policies.Placer {
				return placement.LeastLoaded{Steering: steeringOf(v), Estimate: estimateOf(v)}
			}},
		{Role: RolePlacement, Name: "oracle", Doc: "writer, then where links really have most left at the moment, which no master can know: a bound of what better estimates could bring",
			Params: steering(hosts),
			placer: func(v values) policies.Placer { return placement.Oracle{Steering: steeringOf(v)} }},
		{Role: RolePlacement, Name: "power-of-two", Doc: "writer, then each time the less loaded of two random candidates, by the estimates",
			Params: slices.Concat(steering(hosts), estimate()),
			placer: func(v values) policies.Placer {
				return placement.PowerOfTwo{Steering: steeringOf(v), Estimate: estimateOf(v)}
			}},
		{Role: RolePlacement, Name: "sinbad", Doc: "Sinbad (SIGCOMM 2013): writer, then where the bottleneck links have the most expected capacity: the two best hosts of the best other rack, or the two best of all",
			Params: slices.Concat([]Param{
				{Name: "threshold", Type: Size, Default: sinbad.Threshold, Unit: "bytes", Max: math.MaxInt64, Doc: "smaller blocks get the fallback; 0B for none"},
				{Name: "threshold_fraction", Type: Float, Default: sinbad.Fraction, Unit: "of the largest block", High: 1, Doc: "blocks smaller than this part of the largest that any writer so far has to write get the fallback; 0 for none"},
				{Name: "min_delta", Type: Duration, Default: sinbad.MinDelta, Max: int64(mostMinDelta), Doc: "the shortest time to the next report over which a placed block is expected to spread"},
				{Name: "disk_cap", Type: Bool, Default: !sinbad.NoDiskCap, Doc: "expected capacity is at most what a disk writes"},
				{Name: "interval", Type: Duration, Default: sinbad.Interval, Max: int64(mostInterval), Doc: "q, at whose multiples waiting requests are placed; 0 places each at once"},
				{Name: "order", Type: Choice, Default: "fewest-left", Choices: []string{"arrival", "fewest-left"}, Doc: "of waiting requests: first those whose writers have the fewest blocks left to place (the paper's OPT′), or as they came"},
			}, steering(hosts), estimate()),
			placer: func(v values) policies.Placer {
				return placement.Sinbad{Steering: steeringOf(v), Estimate: estimateOf(v), Threshold: v.size("threshold"), Fraction: v.float("threshold_fraction"),
					MinDelta: v.duration("min_delta"), NoDiskCap: !v.bool("disk_cap"), Interval: v.duration("interval"), Arrival: v.choice("order") == "arrival"}
			},
			check: func(v values) []error {
				if v.choice("order") == "arrival" && v.duration("interval") == 0 {
					return []error{fmt.Errorf("order arrival is about requests that wait, and with interval 0 none does: want an interval such as 10s, or order fewest-left")}
				}
				return nil
			}},
		{Role: RolePlacement, Name: "uniform", Doc: "writer, then hosts at random: any that are not all in the writer's rack, or each in another rack",
			Params: slices.Concat([]Param{
				{Name: "form", Type: Choice, Default: "edge", Choices: []string{"edge", "two-racks"}, Doc: "edge: any hosts (for Sinbad's ve); two-racks: each remote replica in a rack of its own (for its v1)"},
			}, constraints(uniform.Constraints, hosts)),
			placer: func(v values) policies.Placer {
				return placement.Uniform{TwoRacks: v.choice("form") == "two-racks", Constraints: constraintsOf(v)}
			}},
	}
}

func defaultPlacement(p placement.HDFS) []Param {
	return []Param{
		{Name: "consider_load", Type: Bool, Default: p.ConsiderLoad, Doc: "the HDFS default passes over hosts that reported more than twice the average number of writes"},
		{Name: "min_blocks", Type: Whole, Default: int64(p.MinBlocks), Unit: "blocks", Min: 1, Max: 1000, Doc: "room the HDFS default wants on a disk"},
	}
}

func hdfsOf(v values) placement.HDFS {
	return placement.HDFS{ConsiderLoad: v.bool("consider_load"), MinBlocks: v.int("min_blocks")}
}

func constraints(c placement.Constraints, hosts Param) []Param {
	return []Param{
		{Name: "tolerance", Type: Whole, Default: int64(c.Tolerance), Unit: "percent of a disk", Max: placement.NoTolerance, Doc: "how much fuller than the average disk one may be and still get replicas; 100 for any"},
		{Name: "faults", Type: Whole, Default: int64(c.Faults), Unit: "racks", Max: mostDomains, Doc: "f: a block survives so many racks, as its replicas are in f+1 (or in as many as there are racks or replicas)"},
		{Name: "partitions", Type: Whole, Default: int64(c.Partitions), Unit: "zones", Max: mostDomains, Doc: "p: its replicas are in so many power or network zones (or in as many as there are)"},
		hosts,
	}
}

func constraintsOf(v values) placement.Constraints {
	return placement.Constraints{Hosts: v.hosts("hosts"), Tolerance: v.int("tolerance"), Faults: v.int("faults"), Partitions: v.int("partitions")}
}

func steering(hosts Param) []Param {
	s := placement.DefaultSteering()
	return slices.Concat([]Param{
		{Name: "form", Type: Choice, Default: forms()[s.Form], Choices: forms(), Doc: "v1: by racks' links, each remote replica in a rack of its own; v2: by racks' links, remote replicas two by two; ve: by hosts' links, in any racks; auto: v2 where racks are oversubscribed, ve elsewhere"},
	}, constraints(s.Constraints, hosts), []Param{
		{Name: "fallback", Type: Choice, Default: fallbacks()[s.Fallback], Choices: fallbacks(), Doc: "for blocks that are not steered: hdfs; uniform placement of that form; or the baseline of the form: two-racks of v1, hdfs of v2, edge of ve"},
	}, defaultPlacement(s.HDFS))
}

func steeringOf(v values) placement.Steering {
	return placement.Steering{Form: placement.Form(slices.Index(forms(), v.choice("form"))), Constraints: constraintsOf(v),
		Fallback: placement.Fallback(slices.Index(fallbacks(), v.choice("fallback"))), HDFS: hdfsOf(v)}
}

func estimate() []Param {
	e := placement.DefaultEstimate()
	return []Param{
		{Name: "grace", Type: Float, Default: e.Grace, Unit: "of a heartbeat's interval", High: placement.MaxGrace, Doc: "how late a report may be before its link is taken for full"},
		{Name: "rack_load", Type: Choice, Default: "hosts", Choices: []string{"hosts", "leaf"}, Doc: "a rack's load is the sum over its hosts, as in the paper, which counts traffic inside it too; or what its leaf's counters tell"},
	}
}

func estimateOf(v values) placement.Estimate {
	return placement.Estimate{Grace: v.float("grace"), LeafCounters: v.choice("rack_load") == "leaf"}
}
