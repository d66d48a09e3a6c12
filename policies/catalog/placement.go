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

// placements returns the placement policies.
func placements() []Entry {
	return []Entry{
		Fields(Entry{Name: "hdfs", Doc: "HDFS default: the writer, then two hosts in one random other rack"}, placement.DefaultHDFS(),
			func(p *placement.HDFS) []Param { return append(defaultPlacement(p), hosts(&p.Hosts)) }),
		Fields(Entry{Name: "least-loaded", Doc: "the writer, then the hosts with the most estimated residual capacity, ignoring placements since the last report: Sinbad without its hysteresis"},
			placement.DefaultLeastLoaded(), func(p *placement.LeastLoaded) []Param { return append(steering(&p.Steering), estimate(&p.Estimate)...) }),
		Fields(Entry{Name: "oracle", Doc: "the writer, then the hosts with the most actual residual capacity, which no master knows: a bound on the benefit of better estimates"},
			placement.DefaultOracle(), func(p *placement.Oracle) []Param { return steering(&p.Steering) }),
		Fields(Entry{Name: "power-of-two", Doc: "the writer, then for each replica the less loaded of two random candidates, by the estimates"},
			placement.DefaultPowerOfTwo(), func(p *placement.PowerOfTwo) []Param { return append(steering(&p.Steering), estimate(&p.Estimate)...) }),
		Fields(Entry{Name: "sinbad", Doc: "Sinbad (SIGCOMM 2013): the writer, then the hosts whose bottleneck links have the most expected capacity: two in the best other rack, or the two best of all",
			Check: func(v Values) []error {
				if v.choice("order") == "arrival" && v.duration("interval") == 0 {
					return []error{fmt.Errorf("order arrival has no effect with interval 0, because no request waits: use an interval such as 10s, or order fewest-left")}
				}
				return nil
			}}, placement.DefaultSinbad(), func(p *placement.Sinbad) []Param {
			return slices.Concat([]Param{
				{Name: "threshold", To: &p.Threshold, Max: math.MaxInt64, Doc: "blocks below it are placed by the fallback"},
				{Name: "threshold_fraction", To: &p.Fraction, Unit: "× the largest block", High: 1, Doc: "blocks below this fraction of the largest so far are placed by the fallback"},
				{Name: "min_delta", To: &p.MinDelta, Max: int64(maxMinDelta), Doc: "least time to the next report over which the traffic of a placed block is spread"},
				{Name: "disk_cap", Type: Bool, Default: !p.NoDiskCap, Set: func(x any) { p.NoDiskCap = !x.(bool) }, Doc: "limit expected capacity to the write rate of a disk"},
				{Name: "path", To: &p.WholePath, Choices: []string{"bottleneck", "whole"}, Doc: "links that are compared: those of the form; or the receiving link of rack or host on the path to a replica with the least expected capacity"},
				{Name: "interval", To: &p.Interval, Max: int64(maxInterval), Doc: "q: waiting requests are placed at its multiples; 0 places each at once"},
				{Name: "order", To: &p.Arrival, Choices: []string{"fewest-left", "arrival"}, Doc: "order of waiting requests: writers with the fewest unplaced blocks first (the paper's OPT′), or by arrival"},
			}, steering(&p.Steering), estimate(&p.Estimate))
		}),
		Fields(Entry{Name: "uniform", Doc: "the writer, then random hosts: any, not all in the writer's rack, or each in a different rack"}, placement.DefaultUniform(),
			func(p *placement.Uniform) []Param {
				return append([]Param{
					{Name: "form", To: &p.TwoRacks, Choices: []string{"edge", "two-racks"}, Doc: "any hosts (baseline of Sinbad's ve), or each remote replica in a different rack (of its v1)"},
				}, constraints(&p.Constraints)...)
			}),
	}
}

// hosts is the parameter that limits replicas to some hosts, where all hosts are "".
func hosts(to *string) Param {
	return Param{Name: "hosts", Type: Hosts, Default: allHosts, Set: func(x any) {
		if *to = x.(string); *to == allHosts {
			*to = ""
		}
	}, Doc: "hosts that may hold replicas, such as h0-*,h1-0?; a writer outside them gets no local one"}
}

func defaultPlacement(p *placement.HDFS) []Param {
	return []Param{
		{Name: "consider_load", To: &p.ConsiderLoad, Doc: "HDFS default: skip hosts that reported more than twice the average number of writes"},
		{Name: "min_blocks", To: &p.MinBlocks, Unit: "blocks", Min: 1, Max: 1000, Doc: "HDFS default: free space required on a disk"},
	}
}

func constraints(c *placement.Constraints) []Param {
	return []Param{
		{Name: "tolerance", To: &c.Tolerance, Unit: "percentage points of disk use", Max: placement.NoTolerance, Doc: "a disk gets replicas up to this margin above the average; 100 for no limit"},
		{Name: "faults", To: &c.Faults, Unit: "racks", Max: maxDomains, Doc: "f: replicas span f+1 racks (or as many as there are racks or replicas)"},
		{Name: "partitions", To: &c.Partitions, Unit: "zones", Max: maxDomains, Doc: "p: replicas span p zones (or as many as there are)"},
		hosts(&c.Hosts),
	}
}

func steering(s *placement.Steering) []Param {
	return slices.Concat([]Param{
		{Name: "form", To: &s.Form, Choices: []string{"auto", "v1", "v2", "ve"}, Doc: "v1: by rack links, each remote replica in a different rack; v2: by rack links, remote replicas in pairs; ve: by host links, in any rack; auto: v2 if racks are oversubscribed, else ve"},
	}, constraints(&s.Constraints), []Param{
		{Name: "fallback", To: &s.Fallback, Choices: []string{"baseline", "hdfs", "two-racks", "edge"}, Doc: "placement of other blocks: hdfs, uniform of form two-racks or edge, or the form's baseline: two-racks for v1, hdfs for v2, edge for ve"},
	}, defaultPlacement(&s.HDFS))
}

func estimate(e *placement.Estimate) []Param {
	return []Param{
		{Name: "grace", To: &e.Grace, Unit: "× the heartbeat interval", High: placement.MaxGrace, Doc: "delay of a report after which the link counts as full"},
		{Name: "rack_load", To: &e.LeafCounters, Choices: []string{"hosts", "leaf"}, Doc: "load of a rack: the sum over its hosts as in the paper, with traffic inside the rack, or the counters of its leaf"},
	}
}
