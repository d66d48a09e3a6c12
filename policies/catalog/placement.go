package catalog

import (
	"math"

	"testbed/policies"
	"testbed/policies/placement"
)

// placements are the policies that choose the hosts of blocks.
func placements() []Entry {
	hdfs, sinbad := placement.DefaultHDFS(), placement.DefaultSinbad()
	defaultPlacement := func(p placement.HDFS) []Param {
		return []Param{
			{Name: "consider_load", Type: Bool, Default: p.ConsiderLoad, Doc: "the default placement passes over hosts with more than twice the average number of writes"},
			{Name: "min_blocks", Type: Whole, Default: int64(p.MinBlocks), Unit: "blocks", Min: 1, Max: 1000, Doc: "room the default placement wants on a disk"},
		}
	}
	hdfsOf := func(v values) placement.HDFS {
		return placement.HDFS{ConsiderLoad: v.bool("consider_load"), MinBlocks: v.int("min_blocks")}
	}
	return []Entry{
		{Role: RolePlacement, Name: "hdfs", Doc: "HDFS default: writer, then two hosts of one random other rack",
			Params: defaultPlacement(hdfs),
			placer: func(v values) policies.Placer { return hdfsOf(v) }},
		{Role: RolePlacement, Name: "sinbad", Doc: "Sinbad (SIGCOMM 2013): writer, then the two least loaded hosts of the least loaded other rack",
			Params: append([]Param{
				{Name: "threshold", Type: Size, Default: sinbad.Threshold, Unit: "bytes", Max: math.MaxInt64, Doc: "smaller blocks get the default placement; 0B steers all"},
				{Name: "tolerance", Type: Whole, Default: int64(sinbad.Tolerance), Unit: "percent of a disk", Max: 100, Doc: "how much fuller than the average disk one may be and still get replicas"},
			}, defaultPlacement(sinbad.Fallback)...),
			placer: func(v values) policies.Placer {
				return placement.Sinbad{Threshold: v.size("threshold"), Tolerance: v.int("tolerance"), Fallback: hdfsOf(v)}
			}},
	}
}
