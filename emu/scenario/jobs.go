package scenario

import (
	"cmp"
	"fmt"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// smallBlock is the ratio of a block to the default of JobsItem.SmallBlock.
const smallBlock = 8

// jobs checks an item alone; workload checks it on the fabric.
func (c *checker) jobs(j *JobsItem, path string) {
	c.oneOf(path, "interval", "load", "the mean time between jobs, or a load")
	c.pipeline(path, j.Block, j.Packet, j.Window)
	if j.SmallBlock > j.Block && c.sound(path+".small_block", path+".block") {
		c.failAt(path+".small_block", "%v: must be at most the size of a block, %v", j.SmallBlock, j.Block)
	}
	if j.SmallBlock > 0 && j.Small == 0 && c.sound(path+".small", path+".small_block") {
		c.failAt(path+".small_block", "requires small above 0, the share of small blocks")
	}
	for i, b := range j.Bins {
		at := fmt.Sprintf("%s.bins[%d]", path, i)
		if c.sound(at+".from", at+".to") && (b.From > b.To || b.To == 1 && b.From < 1) {
			c.failAt(at+".to", "writing from %v to %v of the time: from must be at most to, and to may be 1 only if from is 1", b.From, b.To)
		}
	}
	if j.OffHot && c.sound(path+".off_hot") {
		for _, item := range c.spec.Workload {
			if item.Background != nil {
				return
			}
		}
		c.failAt(path+".off_hot", "requires an item of kind background, which makes leaves hot")
	}
}

// jobSpec returns the parameters of an item of kind jobs on a fabric, with defaults.
func (s *Scenario) jobSpec(i int, f *topo.Fabric, seed uint64) workloads.JobSpec {
	j := s.Spec.Workload[i].Jobs
	span := func(s Span) [2]int { return [2]int{s.From, s.To} }
	slowest, _ := hostRates(f)
	fetch := slowest
	if f.Racks() > 1 {
		fetch = min(fetch, workloads.Inward(f)/units.Rate(f.Hosts()))
	}
	write := slowest
	if d := s.Spec.Disk; d != nil {
		write = min(write, d.Write)
	}
	spec := workloads.JobSpec{
		Key: i, Count: j.Count, Start: j.Start, Interval: j.Interval, Load: j.Load,
		Mappers: span(j.Mappers), Reducers: span(j.Reducers), Writers: span(j.Writers), Blocks: span(j.Blocks), Output: j.Output,
		Block: j.Block, Replicas: j.Replicas, Packet: j.Packet, Window: j.Window, WholeBlocks: j.WholeBlocks,
		Small: j.Small, SmallBlock: cmp.Or(j.SmallBlock, max(1, j.Block/smallBlock)),
		MaxFlows: s.Spec.Limits.Flows, MaxBlocks: s.Spec.Limits.Blocks,
		ShuffleRate: max(1, cmp.Or(j.ShuffleRate, fetch)), WriteRate: max(1, cmp.Or(j.WriteRate, write)),
	}
	for _, b := range j.Bins {
		spec.Bins = append(spec.Bins, workloads.JobBin(b))
	}
	if j.OffHot {
		spec.Avoid = func(at time.Duration) (hot []topo.RackID) {
			for n, item := range s.Spec.Workload {
				if item.Background != nil {
					hot = append(hot, item.Background.spec(n).HotLeaves(f, seed, at)...)
				}
			}
			return hot
		}
	}
	return spec
}

func (b *BackgroundItem) spec(key int) workloads.BackgroundSpec {
	return workloads.BackgroundSpec{
		Key: key, Hot: b.HotLeaves, Intensity: b.Intensity, HotShare: b.HotShare, Persist: b.Persist,
		Transfer: b.Transfer, Senders: b.Senders, Start: b.Start, For: b.For,
	}
}

func smallNote(n units.Bytes) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and small blocks of %v", about(n))
}

// about returns a size rounded for display, to a thousandth or finer.
func about(n units.Bytes) units.Bytes {
	for unit := units.GB; unit >= units.KB; unit /= 1000 {
		if n >= 1000*unit {
			return (n + unit/2) / unit * unit
		}
	}
	return n
}

func inwardEnds(f *topo.Fabric) string {
	if f.Racks() == 1 {
		return "the hosts"
	}
	return "the racks"
}

// joinWorkload appends more to w. The jobs, coflows and blocks of more get IDs above those in w;
// renumber sets the other IDs.
func joinWorkload(w *workloads.Workload, more workloads.Workload) {
	jobs := workloads.JobID(0)
	for _, j := range w.Jobs {
		jobs = max(jobs, j.ID)
	}
	shift := func(id *workloads.JobID) {
		if *id > 0 {
			*id += jobs
		}
	}
	for i := range more.Jobs {
		shift(&more.Jobs[i].ID)
	}
	for i := range more.Coflows {
		shift(&more.Coflows[i].Job)
	}
	for i := range more.Writers {
		shift(&more.Writers[i].Job)
	}
	above := workloads.BlockID(0)
	for _, wr := range w.Writers {
		for _, b := range wr.Blocks {
			above = max(above, b.ID+1)
		}
	}
	for i := range more.Writers {
		for j := range more.Writers[i].Blocks {
			more.Writers[i].Blocks[j].ID += above
		}
	}
	for i := range more.Readers {
		for j := range more.Readers[i].Reads {
			more.Readers[i].Reads[j].Block += above
		}
	}
	w.Readers = append(w.Readers, more.Readers...)
	w.Jobs = append(w.Jobs, more.Jobs...)
	w.Coflows = append(w.Coflows, apart(w.Coflows, more.Coflows)...)
	w.Writers = append(w.Writers, more.Writers...)
}
