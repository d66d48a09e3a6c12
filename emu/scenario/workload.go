package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Notes are remarks for the user on a workload, one per line.
type Notes []string

// Workload returns the workload of one repeat, counted from 0, on the fabric of
// Shape, without jobs of tasks (TaskJobs). It is the same for every arm. The notes describe the replayed parts of traces
// and the resulting ratios of the cluster.
func (s *Scenario) Workload(f *topo.Fabric, repeat int) (workloads.Workload, Notes, error) {
	base, on, err := s.on(f)
	if err != nil {
		return workloads.Workload{}, nil, err
	}
	w, notes, err := base.workload(on, repeat)
	if err != nil {
		return w, nil, err
	}
	return w, append(notes, s.ratios(f, w)...), nil
}

// workload returns the workload of one repeat on the fabric of s, which is that of no arm.
func (s *Scenario) workload(f *topo.Fabric, repeat int) (workloads.Workload, Notes, error) {
	var w workloads.Workload
	var notes Notes
	seed := s.RepeatSeed(repeat)
	for i, item := range s.Spec.Workload {
		switch {
		case item.Trace != nil:
			coflows, report, err := s.replay(i, f)
			if err != nil {
				return w, nil, fmt.Errorf("workload[%d]: %w", i, err)
			}
			notes = append(notes, fmt.Sprintf("workload[%d]: trace %s: %v", i, item.Trace.Path, report))
			for _, r := range s.traces[i].remarks {
				notes = append(notes, fmt.Sprintf("workload[%d]: trace %s: %s", i, item.Trace.Path, r))
			}
			w.Coflows = append(w.Coflows, apart(w.Coflows, coflows)...)
		case item.Writers != nil:
			writers, err := workloads.Writers(item.Writers.spec(i), f, seed)
			if err != nil {
				return w, nil, fmt.Errorf("workload[%d]: %w", i, err)
			}
			notes = append(notes, fmt.Sprintf("workload[%d]: %d writers of %d blocks of %v, %d replicas each, from %v to %v",
				i, len(writers), item.Writers.Blocks, item.Writers.Block, item.Writers.Replicas, writers[0].Start, writers[len(writers)-1].Start))
			joinWorkload(&w, workloads.Workload{Writers: writers})
		case item.Readers != nil: // drawn below, from all written blocks
		case item.Tasks != nil: // TaskJobs
		default:
			more, said, err := s.drawn(i, f, seed)
			if err != nil {
				return w, nil, fmt.Errorf("workload[%d]: %w", i, err)
			}
			notes = append(notes, said...)
			joinWorkload(&w, more)
		}
	}
	renumber(&w)
	said, err := s.readers(&w, f, seed)
	if err != nil {
		return w, nil, err
	}
	return w, append(notes, said...), nil
}

func (s *Scenario) replay(i int, f *topo.Fabric) ([]workloads.Coflow, workloads.ReplayReport, error) {
	item := s.Spec.Workload[i].Trace
	mb, err := workloads.ParseMB(item.MB)
	if err != nil {
		return nil, workloads.ReplayReport{}, err
	}
	return workloads.Replay(s.traces[i].Trace, f, workloads.ReplayOptions{
		First: item.First, Size: s.Spec.Scale.Size, Time: s.Spec.Scale.Time, MB: mb, Split: !item.Merge, MaxFlows: s.Spec.Limits.Flows,
	})
}

// MBNotes state the MB of each trace that does not define it.
func (s *Scenario) MBNotes() (notes Notes) {
	for i, item := range s.Spec.Workload {
		if item.Trace == nil || s.traces[i].InBytes {
			continue
		}
		if mb, err := workloads.ParseMB(item.Trace.MB); err == nil {
			notes = append(notes, fmt.Sprintf("workload[%d]: trace %s: %s", i, item.Trace.Path, workloads.MBNote(mb)))
		}
	}
	return notes
}

func (w *WritersItem) spec(key int) workloads.WriterSpec {
	return workloads.WriterSpec{
		Key: key, Hosts: w.Hosts, Count: w.Count, Blocks: w.Blocks, Block: w.Block, Replicas: w.Replicas,
		Packet: w.Packet, Window: w.Window, Start: w.Start, Spread: w.Spread,
	}
}

// apart raises the IDs of the coflows in more above those in existing.
func apart(existing, more []workloads.Coflow) []workloads.Coflow {
	offset := workloads.CoflowID(0)
	for _, c := range existing {
		offset = max(offset, c.ID+1)
	}
	for i := range more {
		more[i].ID += offset
	}
	return more
}

// renumber sorts a workload and makes the IDs of flows, writers and blocks
// consecutive.
func renumber(w *workloads.Workload) {
	slices.SortStableFunc(w.Coflows, func(a, b workloads.Coflow) int {
		if a.Arrival != b.Arrival {
			return int(max(-1, min(1, a.Arrival-b.Arrival)))
		}
		return int(a.ID - b.ID)
	})
	flow := workloads.FlowID(0)
	for _, c := range w.Coflows {
		for i := range c.Flows {
			c.Flows[i].ID = flow
			flow++
		}
	}
	slices.SortStableFunc(w.Writers, func(a, b workloads.Writer) int { return int(max(-1, min(1, a.Start-b.Start))) })
	block := workloads.BlockID(0)
	renamed := map[workloads.BlockID]workloads.BlockID{} // new ID by old ID
	for i := range w.Writers {
		wr := &w.Writers[i]
		wr.ID = workloads.WriterID(i)
		for j := range wr.Blocks {
			renamed[wr.Blocks[j].ID] = block
			wr.Blocks[j].ID, wr.Blocks[j].Writer = block, wr.ID
			block++
		}
	}
	for i := range w.Readers {
		for j := range w.Readers[i].Reads {
			r := &w.Readers[i].Reads[j]
			r.Block = renamed[r.Block]
		}
	}
}

// workload checks the workload as a whole.
func (c *checker) workload(s *Scenario) {
	f, err := s.Shape().Build()
	if err != nil {
		c.failAt("fabric", "%v", err)
		return
	}
	base, on, err := s.on(f)
	if err != nil {
		return // reported without the arm
	}
	flows, blocks := 0, 0
	stored := 0.0 // bytes
	writes, tasks := false, slices.ContainsFunc(c.spec.Workload, func(i Item) bool { return i.Tasks != nil })
	for i, item := range c.spec.Workload {
		path := fmt.Sprintf("workload[%d]", i)
		if w := item.Writers; w != nil {
			n := max(w.Count, len(w.Hosts)) * w.Blocks
			blocks += n
			stored += float64(n) * float64(w.Replicas) * float64(w.Block) // can exceed 63 bits
			stored = c.room(path+".blocks", stored, f)
			continue
		}
		if r := item.Readers; r != nil {
			flows += max(r.Count, len(r.Hosts)) * r.Blocks
			continue
		}
		if item.Tasks != nil {
			continue // below
		}
		if item.Trace == nil {
			w, _, err := base.drawn(i, on, s.RepeatSeed(0))
			switch {
			case errors.Is(err, workloads.ErrTooManyFlows):
				c.failAt(path, "%v: reduce the item, or raise limits.flows", err)
				continue
			case errors.Is(err, workloads.ErrTooManyBlocks):
				c.failAt(path, "%v: reduce the item, or raise limits.blocks", err)
				continue
			case err != nil:
				c.failAt(path, "%v", err)
				continue
			}
			if tasks && len(w.Jobs) > 0 {
				c.failAt(path, "jobs with the same numbers as the jobs of an item of kind tasks: use one of the two kinds of jobs")
				continue
			}
			for _, co := range w.Coflows {
				flows += len(co.Flows)
			}
			var largest units.Bytes
			for _, wr := range w.Writers {
				writes = true
				blocks += len(wr.Blocks)
				for _, b := range wr.Blocks {
					stored += float64(b.Replicas) * float64(b.Size)
					largest = max(largest, b.Size)
				}
			}
			stored = c.room(path, stored, f)
			if d := c.spec.Disk; d != nil && item.File != nil && largest > d.Size {
				c.failAt(path, "a block of %v on disks of %v: use smaller blocks, scale.size or a larger disk.size", largest, d.Size)
			}
			continue
		}
		if n := len(s.traces[i].Coflows); item.Trace.First > n {
			c.failAt(path+".first", "%d: must be at most %d, the number of coflows of the trace", item.Trace.First, n)
			continue
		}
		_, report, err := base.replay(i, on)
		if errors.Is(err, workloads.ErrTooManyFlows) {
			c.failAt(path, "%v: replay fewer coflows with first, or raise limits.flows", err)
			continue
		} else if err != nil {
			c.failAt(path, "%v", err)
			continue
		}
		if report.Coflows == 0 {
			c.failAt(path+".path", "all flows of the trace start and end on the same host: use a fabric with more hosts")
		}
		flows += report.Flows
	}
	counted := len(c.all) == 0
	if counted {
		n := c.taskWork(s, f, stored)
		blocks += n
		c.required(writes || n > 0, tasks)
	}
	for i, x := range c.spec.Faults {
		if x.SlowDisk != nil && blocks == 0 && counted && !tasks {
			c.failAt(fmt.Sprintf("faults[%d].kind", i), "%s changes nothing, because the workload writes no blocks: remove the fault", x.SlowDisk.Kind)
		}
	}
	if slices.ContainsFunc(c.spec.Workload, func(i Item) bool { return i.Readers != nil }) && len(c.all) == 0 {
		if _, _, err := s.Workload(f, 0); err != nil {
			path, text, _ := strings.Cut(err.Error(), ": ")
			c.failAt(path, "%s", text)
		}
	}
	if most := c.spec.Limits.Flows; flows > most {
		c.failAt("limits.flows", "the workload has %d flows, the limit is %d: replay fewer coflows with first, or raise the limit", flows, most)
	}
	if most := c.spec.Limits.Blocks; blocks > most {
		c.failAt("limits.blocks", "the workload has %d blocks, the limit is %d: write fewer, or raise the limit", blocks, most)
	}
}

// room reports blocks that do not fit on the disks of all hosts. It returns the bytes
// stored so far, 0 once they were reported, so that later items do not repeat it.
func (c *checker) room(path string, stored float64, f *topo.Fabric) float64 {
	d := c.spec.Disk
	if d == nil || stored <= float64(f.Hosts())*float64(d.HostSize()) {
		return stored
	}
	c.failAt(path, "the blocks up to here and their replicas do not fit on %d disks of %v: use fewer or smaller blocks, or raise disk.size or disk.count", f.Hosts()*d.Count, d.Size)
	return 0
}

// ratios returns the ratios that a scaled-down experiment must share with the original one.
func (s *Scenario) ratios(f *topo.Fabric, w workloads.Workload) Notes {
	slowest, fastest := hostRates(f)
	link := slowest.String()
	if slowest != fastest {
		link += " to " + fastest.String()
	}
	notes := Notes{fmt.Sprintf("fabric: %s, host link %s", crossRack(s.Spec.Fabric, f), link)}
	if d := s.Spec.Disk; d != nil {
		disk := ", disk : NIC %.2f"
		if d.Count > 1 {
			disk = fmt.Sprintf(", each of %d disks : NIC %%.2f", d.Count)
		}
		notes[0] += fmt.Sprintf(disk, float64(d.Write)/float64(slowest))
		if slowest != fastest {
			notes[0] += fmt.Sprintf(" to %.2f", float64(d.Write)/float64(fastest))
		}
		beat := s.Spec.Heartbeat.Interval
		notes[0] += fmt.Sprintf(", heartbeats every %v, phase %s", beat, s.Spec.Heartbeat.Phase)
		for i, item := range s.Spec.Workload {
			var size, window units.Bytes
			switch {
			case item.Writers != nil:
				size, window = item.Writers.Block, item.Writers.Packet*units.Bytes(item.Writers.Window)
			case item.Jobs != nil:
				size, window = item.Jobs.Block, item.Jobs.Packet*units.Bytes(item.Jobs.Window)
			default:
				continue
			}
			times := func(r units.Rate) float64 { return float64(r.TimeToSend(size)) / float64(beat) }
			notes = append(notes, fmt.Sprintf("workload[%d]: one block takes %.2f heartbeats on a disk and %.2f on a NIC; window : block %.3f",
				i, times(d.Write), times(slowest), float64(window)/float64(size)))
		}
	}
	if len(w.Writers) > 0 && f.Racks() == 1 {
		notes = append(notes, "placement: one rack, so no replica survives its failure")
	}
	if len(w.Coflows) > 0 && f.Spines() > 0 && f.Racks() > 1 {
		notes = append(notes, offered(f, w.Coflows))
	}
	return notes
}

// hostRates returns the rates of the slowest and the fastest host link, in either direction.
func hostRates(f *topo.Fabric) (slowest, fastest units.Rate) {
	slowest = f.Link(0).Rate
	for _, l := range f.Links() {
		if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
			slowest, fastest = min(slowest, l.Rate), max(fastest, l.Rate)
		}
	}
	return slowest, fastest
}

// crossRack describes the oversubscription between racks: the stated value, or the computed one
// if the rates of single links differ.
func crossRack(stated Fabric, f *topo.Fabric) string {
	if f.Spines() == 0 {
		return "one switch"
	}
	if len(stated.Links) == 0 && stated.Oversubscription.Num > 0 {
		return fmt.Sprintf("oversubscription %v", stated.Oversubscription)
	}
	least, most := f.Oversubscription(0), f.Oversubscription(0)
	for r := range topo.RackID(f.Racks()) {
		least, most = min(least, f.Oversubscription(r)), max(most, f.Oversubscription(r))
	}
	if least == most {
		return fmt.Sprintf("oversubscription %.3g:1", least)
	}
	return fmt.Sprintf("oversubscription %.3g:1 to %.3g:1", least, most)
}

// offered describes the load of the coflows on the uplinks and downlinks of racks.
func offered(f *topo.Fabric, coflows []workloads.Coflow) string {
	up, down := make([]units.Bytes, f.Racks()), make([]units.Bytes, f.Racks())
	var total units.Bytes
	for _, c := range coflows {
		for _, fl := range c.Flows {
			if src, dst := f.RackOf(fl.Src), f.RackOf(fl.Dst); src != dst {
				up[src] += fl.Size
				down[dst] += fl.Size
				total += fl.Size
			}
		}
	}
	var longest, sum time.Duration
	var slowest units.Rate
	for r := range topo.RackID(f.Racks()) {
		for _, way := range []struct {
			link    func(topo.RackID, int) topo.LinkID
			offered units.Bytes
		}{{f.LeafUp, up[r]}, {f.LeafDown, down[r]}} {
			var rate units.Rate
			for s := range f.Spines() {
				rate += f.Link(way.link(r, s)).Rate
			}
			if took := rate.TimeToSend(way.offered); took >= longest {
				longest, slowest = took, rate
			}
			sum += rate.TimeToSend(way.offered)
		}
	}
	return fmt.Sprintf("coflows: %v between racks, which take %v on the links of the busiest rack (%v) and %v on those of the average rack; the last arrives at %v",
		about(total), longest.Round(time.Millisecond), slowest.Rounded(), (sum / time.Duration(2*f.Racks())).Round(time.Millisecond), coflows[len(coflows)-1].Arrival.Round(time.Millisecond))
}

// drawn returns the workload of an item that is drawn at random or read from a file, with notes on it.
func (s *Scenario) drawn(i int, f *topo.Fabric, seed uint64) (w workloads.Workload, notes Notes, err error) {
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("workload[%d]: ", i)+fmt.Sprintf(format, args...))
	}
	switch item := s.Spec.Workload[i]; {
	case item.Jobs != nil:
		if j := item.Jobs; j.OffHot {
			cool := f.Racks() // with the worst draw of hot leaves
			for _, other := range s.Spec.Workload {
				if other.Background != nil {
					cool -= other.Background.HotLeaves
				}
			}
			if most, hosts := max(j.Reducers.To, j.Writers.To), cool*f.Hosts()/f.Racks(); most > hosts {
				return w, nil, fmt.Errorf("off_hot with up to %d reducers or writers, and only %d hosts are certain to be off the hot leaves: use fewer reducers and writers, or fewer hot leaves", most, max(0, hosts))
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
		note("assumed rates of a reducer: fetch %v, write %v", spec.ShuffleRate.Rounded(), spec.WriteRate.Rounded())
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
