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

// Notes are remarks for the user on what a workload came to, one a line.
type Notes []string

// Workload is what the cluster is asked to do in one repeat, from 0, on the
// fabric, which is that of Shape. It is the same for every arm. The notes tell
// what became of traces and which ratios of the cluster the scenario makes.
func (s *Scenario) Workload(f *topo.Fabric, repeat int) (workloads.Workload, Notes, error) {
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
		case item.Readers != nil: // below, of all that is written
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
	notes = append(notes, said...)
	return w, append(notes, s.ratios(f, w)...), nil
}

func (s *Scenario) replay(i int, f *topo.Fabric) ([]workloads.Coflow, workloads.ReplayReport, error) {
	item := s.Spec.Workload[i].Trace
	mb := units.MiB
	if item.MB == "MB" {
		mb = units.MB
	}
	return workloads.Replay(s.traces[i].Trace, f, workloads.ReplayOptions{
		First: item.First, Size: s.Spec.Scale.Size, Time: s.Spec.Scale.Time, MB: mb, Split: !item.Merge, MaxFlows: s.Spec.Limits.Flows,
	})
}

func (w *WritersItem) spec(key int) workloads.WriterSpec {
	return workloads.WriterSpec{
		Key: key, Hosts: w.Hosts, Count: w.Count, Blocks: w.Blocks, Block: w.Block, Replicas: w.Replicas,
		Packet: w.Packet, Window: w.Window, Start: w.Start, Spread: w.Spread,
	}
}

// apart raises the ids of the coflows of a further trace above those there are.
func apart(there, more []workloads.Coflow) []workloads.Coflow {
	offset := workloads.CoflowID(0)
	for _, c := range there {
		offset = max(offset, c.ID+1)
	}
	for i := range more {
		more[i].ID += offset
	}
	return more
}

// renumber puts a workload in order and makes the ids of flows, writers and blocks
// dense.
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
	was := map[workloads.BlockID]workloads.BlockID{} // now, by what it was
	for i := range w.Writers {
		wr := &w.Writers[i]
		wr.ID = workloads.WriterID(i)
		for j := range wr.Blocks {
			was[wr.Blocks[j].ID] = block
			wr.Blocks[j].ID, wr.Blocks[j].Writer = block, wr.ID
			block++
		}
	}
	for i := range w.Readers {
		for j := range w.Readers[i].Reads {
			r := &w.Readers[i].Reads[j]
			r.Block = was[r.Block]
		}
	}
}

// workload checks what only the whole workload shows.
func (c *checker) workload(s *Scenario) {
	f, err := s.Shape().Build()
	if err != nil {
		c.failAt("fabric", "%v", err)
		return
	}
	flows, blocks := 0, 0
	stored := 0.0 // bytes
	writes := false
	for i, item := range c.spec.Workload {
		path := fmt.Sprintf("workload[%d]", i)
		if w := item.Writers; w != nil {
			n := max(w.Count, len(w.Hosts)) * w.Blocks
			blocks += n
			stored += float64(n) * float64(w.Replicas) * float64(w.Block) // may not fit 63 bits
			if stored > float64(f.Hosts())*float64(c.spec.Disk.Count)*float64(c.spec.Disk.Size) {
				c.failAt(path+".blocks", "the blocks up to here and their replicas do not fit on %d disks of %v: want fewer or smaller blocks, or a larger disk.size", f.Hosts()*c.spec.Disk.Count, c.spec.Disk.Size)
				stored = 0
			}
			continue
		}
		if r := item.Readers; r != nil {
			flows += max(r.Count, len(r.Hosts)) * r.Blocks
			continue
		}
		if item.Trace == nil {
			w, _, err := s.drawn(i, f, s.RepeatSeed(0))
			switch {
			case errors.Is(err, workloads.ErrTooManyFlows):
				c.failAt(path, "%v: ask for less, or raise limits.flows", err)
				continue
			case errors.Is(err, workloads.ErrTooManyBlocks):
				c.failAt(path, "%v: ask for less, or raise limits.blocks", err)
				continue
			case err != nil:
				c.failAt(path, "%v", err)
				continue
			}
			for _, co := range w.Coflows {
				flows += len(co.Flows)
			}
			for _, wr := range w.Writers {
				writes = true
				blocks += len(wr.Blocks)
				for _, b := range wr.Blocks {
					stored += float64(b.Replicas) * float64(b.Size)
				}
			}
			if d := c.spec.Disk; d != nil && stored > float64(f.Hosts())*float64(d.Size) {
				c.failAt(path, "the blocks up to here and their replicas do not fit on %d disks of %v: want fewer or smaller blocks, or a larger disk.size", f.Hosts(), d.Size)
				stored = 0
			}
			continue
		}
		if n := len(s.traces[i].Coflows); item.Trace.First > n {
			c.failAt(path+".first", "%d: the trace has %d coflows: want at most so many", item.Trace.First, n)
			continue
		}
		_, report, err := s.replay(i, f)
		if errors.Is(err, workloads.ErrTooManyFlows) {
			c.failAt(path, "%v: replay fewer coflows with first, or raise limits.flows", err)
			continue
		} else if err != nil {
			c.failAt(path, "%v", err)
			continue
		}
		if report.Coflows == 0 {
			c.failAt(path+".path", "all flows of the trace fall inside a host: want a fabric of more hosts")
		}
		flows += report.Flows
	}
	if len(c.all) == 0 {
		c.placed(writes)
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

// ratios are what a scaled-down experiment must keep to be like the one it
// stands for.
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
			notes = append(notes, fmt.Sprintf("workload[%d]: a block takes a disk %.2f heartbeats and a NIC %.2f; window : block %.3f",
				i, times(d.Write), times(slowest), float64(window)/float64(size)))
		}
	}
	if len(w.Writers) > 0 && f.Racks() == 1 {
		notes = append(notes, "placement: one rack, so the replicas of a block do not outlive it")
	}
	if len(w.Coflows) > 0 && f.Spines() > 0 && f.Racks() > 1 {
		notes = append(notes, offered(f, w.Coflows))
	}
	return notes
}

// hostRates are the slowest and the fastest link of hosts, in either direction.
func hostRates(f *topo.Fabric) (slowest, fastest units.Rate) {
	slowest = f.Link(0).Rate
	for _, l := range f.Links() {
		if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
			slowest, fastest = min(slowest, l.Rate), max(fastest, l.Rate)
		}
	}
	return slowest, fastest
}

// crossRack tells what racks may send to one another, as the fabric states it or,
// where links differ from that, as it came out.
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

// offered tells how much the coflows ask of the racks' uplinks and downlinks.
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
	return fmt.Sprintf("coflows: %v between racks, %v of the busiest rack's links of %v and %v of the average rack's; the last arrives at %v",
		about(total), longest.Round(time.Millisecond), slowest, (sum / time.Duration(2*f.Racks())).Round(time.Millisecond), coflows[len(coflows)-1].Arrival.Round(time.Millisecond))
}
