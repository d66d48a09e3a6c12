package scenario

import (
	"cmp"
	"fmt"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// smallBlock is a block over the default of JobsItem.SmallBlock.
const smallBlock = 8

// jobs checks an item by itself; what only the fabric shows, workload tells.
func (c *checker) jobs(j *JobsItem, path string) {
	switch interval, load := c.at[path+".interval"] != nil, c.at[path+".load"] != nil; {
	case interval && load:
		c.failAt(path+".load", "given beside interval: want one of them")
	case !interval && !load:
		c.failAt(path+".interval", "missing: want the mean time between jobs, or a load")
	}
	c.pipeline(path, j.Block, j.Packet, j.Window)
	if j.SmallBlock > j.Block && c.sound(path+".small_block", path+".block") {
		c.failAt(path+".small_block", "%v, and a block has %v: want at most so much", j.SmallBlock, j.Block)
	}
	if j.SmallBlock > 0 && j.Small == 0 && c.sound(path+".small", path+".small_block") {
		c.failAt(path+".small_block", "given, and small is 0: want a share of small blocks too")
	}
	if d := c.spec.Disk; d != nil && c.sound(path+".block", "disk.size") && j.Block > d.Size {
		c.failAt(path+".block", "%v on disks of %v: want a smaller block or a larger disk.size", j.Block, d.Size)
	}
	for i, b := range j.Bins {
		at := fmt.Sprintf("%s.bins[%d]", path, i)
		if c.sound(at+".from", at+".to") && (b.From > b.To || b.To == 1 && b.From < 1) {
			c.failAt(at+".to", "writing from %v to %v of the time: want no more from than to, and 1 only for both", b.From, b.To)
		}
	}
	if j.OffHot && c.sound(path+".off_hot") {
		for _, item := range c.spec.Workload {
			if item.Background != nil {
				return
			}
		}
		c.failAt(path+".off_hot", "true, and nothing makes leaves hot: want an item of kind background too")
	}
}

// jobSpec is an item with its defaults, on a fabric.
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

// drawn is the workload of an item that luck or a file decides, with notes on it.
func (s *Scenario) drawn(i int, f *topo.Fabric, seed uint64) (w workloads.Workload, notes Notes, err error) {
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("workload[%d]: ", i)+fmt.Sprintf(format, args...))
	}
	switch item := s.Spec.Workload[i]; {
	case item.Jobs != nil:
		if j := item.Jobs; j.OffHot {
			cool := f.Racks() // whatever luck makes hot
			for _, other := range s.Spec.Workload {
				if other.Background != nil {
					cool -= other.Background.HotLeaves
				}
			}
			if most, hosts := max(j.Reducers.To, j.Writers.To), cool*f.Hosts()/f.Racks(); most > hosts {
				return w, nil, fmt.Errorf("off_hot with up to %d reducers or writers, and only %d hosts are sure to be off the hot leaves: want fewer of them, or fewer hot leaves", most, max(0, hosts))
			}
		}
		spec := s.jobSpec(i, f, seed)
		var report workloads.JobReport
		if w, report, err = workloads.Jobs(spec, f, seed); err != nil {
			return w, nil, err
		}
		note("%d jobs, one every %v on average, the last at %v; %d of them shuffle %v, all write %v%s; offered load %.1f%% of the links toward %s",
			len(w.Jobs), report.Interval.Round(time.Millisecond), w.Jobs[len(w.Jobs)-1].Arrival.Round(time.Millisecond), len(w.Coflows), about(report.Shuffled), about(report.Written),
			smallNote(report.Small), 100*report.Load, inwardEnds(f))
		note("a reducer is taken to fetch at %v and to write at %v", spec.ShuffleRate, spec.WriteRate)
	case item.Background != nil:
		spec := item.Background.spec(i)
		spec.MaxFlows = s.Spec.Limits.Flows
		if w.Coflows, err = workloads.Background(spec, f, seed); err != nil {
			return w, nil, err
		}
		hot, other := spec.LeafLoads(f)
		note("background of %d coflows from %v to %v: offered load %.1f%% of the links toward the racks, %.1f%% of a hot leaf's and %.1f%% of another's; %d of %d leaves hot for %v",
			len(w.Coflows), spec.Start, spec.Start+spec.For, 100*spec.Intensity, 100*hot, 100*other, spec.Hot, f.Racks(), spec.Persist)
	case item.File != nil:
		if w, err = s.traces[i].work.On(f, s.Spec.Scale.Size, s.Spec.Scale.Time); err != nil {
			return w, nil, err
		}
		note("file %s: %d jobs, %d coflows, %d writers, %d readers", item.File.Path, len(w.Jobs), len(w.Coflows), len(w.Writers), len(w.Readers))
	}
	return w, notes, nil
}

func smallNote(n units.Bytes) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and small blocks of %v", about(n))
}

// about is a size to be read, to a thousandth or finer.
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

// joinWorkload adds a workload to another. Jobs, coflows and blocks get ids above those
// there are, the rest those that renumber gives.
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
