package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/fidelity"
	"testbed/emu/live"
	"testbed/emu/plan"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/pcap"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/samples"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// judge reads the captures of a repeat that just ended, compares them with the records of
// the engine and with counters, and writes the verdict.
// The plan contains the intended token buckets of links.
func judge(ctx context.Context, dir string, f *topo.Fabric, p *plan.Plan, seen flows.Records, m live.Measured,
	read func(int64)) (summary.Repeat, error) {
	sampled, _, err := fidelity.ReadSampled(filepath.Join(dir, samples.File))
	if err != nil {
		return summary.Repeat{}, err
	}
	links := hostLinks(f, p)
	names := make([]string, f.Hosts())
	for h := range names {
		names[h] = f.HostName(topo.HostID(h))
	}
	res, err := flows.Reduce(ctx, filepath.Join(dir, capturesDir), flows.Options{Hosts: names, Read: read, Opened: m.Opened, NoErrors: len(m.Exempt)+len(m.Lossy) == 0,
		Spacing: spacings(links, sampled)})
	if err != nil {
		return summary.Repeat{}, err
	}
	files := repeatFiles{dir: dir}
	meta, err := readWorkloadMeta(files)
	if err != nil {
		return summary.Repeat{}, err
	}
	meta.Join(&res.Records)
	meta.Join(&seen)
	s := fidelity.Samples{Sampled: sampled, Bursts: links, RoundTrips: m.RoundTrips, Disks: m.Disks, Problems: res.Problems,
		Completed: metrics.CompletedItems(seen), Recorded: metrics.CompletedItems(res.Records),
		Transfers: transfers(res, seen, m.Zero), MedianCCT: medianCompletion(res.Records),
		TCP: tcpOf(f, res, m), Losses: m.Losses, Foreign: foreignOf(f, res), Switches: m.SwitchPackets, Crossings: crossings(f, m.Crossings, res), Engine: m.Engine, Answers: m.Answers, Machine: m.Machine, Clock: m.Clock, Kernel: m.Kernel, KernelLost: m.KernelLost, Exempt: m.Exempt, Lossy: m.Lossy}
	measureLinks(&s, res)
	for h, name := range names {
		i, ok := slices.BinarySearchFunc(res.Captures, name, func(c flows.Capture, n string) int { return cmp.Compare(c.Host, n) })
		if !ok {
			return summary.Repeat{}, fmt.Errorf("no capture of %s", name)
		}
		c := fidelity.Capture{Host: name, Dropped: m.Dropped[h], Counted: m.Counted[h]}
		for _, face := range res.Captures[i].Interfaces {
			if face.Name == plan.Uplink {
				c.Bytes = uint64(face.Out.Bytes + face.In.Bytes + face.Other.Bytes)
			}
		}
		s.Captures = append(s.Captures, c)
	}
	for _, c := range m.Switches {
		var problem string
		if c.Bytes, problem, err = captured(pcap.Find(filepath.Join(dir, capturesDir), c.Host)); err != nil {
			return summary.Repeat{}, err
		}
		if problem != "" {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s", c.Host, problem))
		}
		s.Captures = append(s.Captures, c)
	}
	if notes := append(m.Notes, res.Notes...); len(notes) > 0 {
		if err := safefile.WriteData(filepath.Join(dir, "notes.txt"), []byte(strings.Join(notes, "\n")+"\n")); err != nil {
			return summary.Repeat{}, err
		}
	}
	var queues metrics.Queues
	for id, n := range m.QueueDrops {
		queues.Links = append(queues.Links, metrics.QueueDrops{Link: f.LinkName(topo.LinkID(id)), Dropped: int(n)})
	}
	if err := writeJSON(filepath.Join(dir, summary.QueuesFile), queues); err != nil {
		return summary.Repeat{}, err
	}
	out, err := measuredOf(files, res)
	if err != nil {
		return summary.Repeat{}, err
	}
	for _, c := range report.Compare(out) {
		s.Plausibility = append(s.Plausibility, fidelity.Plausibility{What: c.What, N: c.N, Ratio: c.Ratio, Explained: c.Explained, Cause: c.Cause})
	}
	if err := writeJSON(filepath.Join(dir, measuredFile), s); err != nil {
		return summary.Repeat{}, err
	}
	if err := writeJSON(filepath.Join(dir, fidelityFile), fidelity.Judge(s, fidelity.Default())); err != nil {
		return summary.Repeat{}, err
	}
	err = files.judged(&out, res)
	return out, err
}

// foreignOf returns the directions of hosts' links that carried foreign traffic.
func foreignOf(f *topo.Fabric, res flows.Result) (out []fidelity.Foreign) {
	for _, c := range res.Captures {
		h, err := f.FindHost(c.Host)
		if err != nil {
			continue // not in this fabric, which Reduce reports
		}
		for _, face := range c.Interfaces {
			for id, x := range map[topo.LinkID]flows.Foreign{f.HostUp(h): face.OutForeign, f.HostDown(h): face.InForeign} {
				if x.Packets > 0 {
					out = append(out, fidelity.Foreign{Host: c.Host, Link: f.LinkName(id), Packets: x.Packets, Errors: x.Errors, Bytes: x.Bytes, Window: x.Window, Could: f.Link(id).Rate.BytesIn(flows.WorstWindow),
						At: x.At.Sub(res.Zero), Length: flows.WorstWindow, Largest: x.Largest.Name, LargestBytes: x.Largest.Bytes})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b fidelity.Foreign) int { return cmp.Compare(a.Link, b.Link) })
	return out
}

// crossings adds the packets of captures to those that leaves counted.
func crossings(f *topo.Fabric, all []fidelity.Crossing, res flows.Result) []fidelity.Crossing {
	counts := map[string]*fidelity.Crossing{} // by leaf and direction
	key := func(leaf string, up bool) string { return fmt.Sprint(leaf, up) }
	for i := range all {
		x := &all[i]
		x.Frame, x.Length = f.Shape().MTU+plan.EthernetHeader, flows.WorstWindow
		counts[key(x.Leaf, x.Up)] = x
	}
	for _, l := range f.Links() {
		if l.Kind == topo.LeafUp || l.Kind == topo.LeafDown {
			if x := counts[key(topo.LeafName(l.Rack), l.Kind == topo.LeafUp)]; x != nil {
				x.Could += l.Rate.BytesIn(flows.WorstWindow)
			}
		}
	}
	for _, c := range res.Captures {
		h, err := f.FindHost(c.Host)
		if err != nil {
			continue // not in this fabric, which Reduce reports
		}
		for _, face := range c.Interfaces {
			for up, n := range map[bool]flows.Counts{true: face.OutRacks, false: face.InRacks} {
				if x := counts[key(topo.LeafName(f.RackOf(h)), up)]; x != nil && face.Name == plan.Uplink {
					x.Captured += uint64(n.Packets)
				}
			}
		}
	}
	return all
}

// captured returns the total original length of all frames in a capture of switch ports.
// problem states why a part could not be read.
func captured(path string) (n uint64, problem string, err error) {
	r, err := pcap.Open(path)
	var bad *pcap.Error
	if errors.As(err, &bad) {
		return 0, bad.Local(), nil
	}
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		p, err := r.Next()
		switch {
		case err == io.EOF:
			return n, "", nil
		case errors.As(err, &bad):
			return n, bad.Local(), nil
		case err != nil:
			return n, "", fmt.Errorf("read capture: %w", err)
		}
		n += uint64(p.Len)
	}
}

// hostLinks returns both directions of all hosts' links as planned, without measurements.
func hostLinks(f *topo.Fabric, p *plan.Plan) (out []fidelity.Conformance) {
	bucket := map[[2]string]units.Bytes{} // by namespace and device
	for _, op := range p.Ops() {
		if s, ok := op.(plan.Shaper); ok {
			bucket[[2]string{s.Namespace, s.Device}] = s.Burst
		}
	}
	for h := range topo.HostID(f.Hosts()) {
		for _, id := range []topo.LinkID{f.HostUp(h), f.HostDown(h)} {
			namespace, device := plan.Egress(f, id)
			out = append(out, fidelity.Conformance{
				Link:   f.LinkName(id),
				Rate:   f.Link(id).Rate,
				Bucket: bucket[[2]string{namespace, device}],
				Frame:  f.Shape().MTU + plan.EthernetHeader,
			})
		}
	}
	return out
}

// spacings returns flows.Options.Spacing for links. Of what was sampled, it needs when they had packets waiting.
func spacings(links []fidelity.Conformance, sampled fidelity.Sampled) func(string, flows.Direction) flows.SpacingSpec {
	return func(host string, d flows.Direction) flows.SpacingSpec {
		i := slices.IndexFunc(links, func(l fidelity.Conformance) bool {
			from, to, _ := strings.Cut(l.Link, ">")
			return d == flows.Out && from == host || d == flows.In && to == host
		})
		if i < 0 {
			return flows.SpacingSpec{} // not in this fabric, which Reduce reports
		}
		return flows.SpacingSpec{Rate: links[i].Rate, Frame: links[i].Frame, Backlogged: backlogged(sampled.Waiting[links[i].Link], sampled.Zero)}
	}
}

// backlogged returns a function that reports whether a link had queued packets throughout an interval. Calls must be in
// ascending order of time. Periods count from zero.
func backlogged(left []fidelity.Period, zero time.Time) func(from, to time.Time) bool {
	return func(from, to time.Time) bool {
		begin, end := from.Sub(zero), to.Sub(zero)
		for len(left) > 0 && left[0].To < begin {
			left = left[1:]
		}
		return len(left) > 0 && begin >= left[0].From && end <= left[0].To
	}
}

// measureLinks sets bursts and spacing of the links in s.Bursts to what captures show. A link of which they have no
// packets keeps its measurements.
func measureLinks(s *fidelity.Samples, res flows.Result) {
	for i := range s.Bursts {
		b := &s.Bursts[i]
		from, to, _ := strings.Cut(b.Link, ">")
		for _, c := range res.Captures {
			if c.Host != from && c.Host != to {
				continue
			}
			for _, face := range c.Interfaces {
				x, gaps := face.OutConformance, face.OutSpacing
				if c.Host == to {
					x, gaps = face.InConformance, face.InSpacing
				}
				if face.Name != plan.Uplink || x.Packets == 0 {
					continue
				}
				b.Packets, b.Level, b.Most, b.Longest, b.Long = x.Packets, x.Level, x.Most, x.Longest, x.Long
				p := gaps.Poorest
				now := fidelity.Spacing{Link: b.Link, Gaps: gaps.Gaps, Good: gaps.Close, Poorest: fidelity.Gaps{
					At:     time.Unix(0, p.From).Sub(s.Zero),
					Length: time.Duration(p.To - p.From),
					Gaps:   p.Gaps,
					Good:   p.Close,
				}}
				if k := slices.IndexFunc(s.Spacing, func(o fidelity.Spacing) bool { return o.Link == b.Link }); k >= 0 {
					s.Spacing[k] = now
				} else {
					s.Spacing = append(s.Spacing, now)
				}
			}
		}
	}
}

// transfers pairs the completion of each flow and block on the wire with that in the engine. In the
// engine, an input block of a task ends when the task has consumed the last byte, which its host has
// received before and marks: the engine is compared with the mark, and the mark with the last packet.
func transfers(res flows.Result, seen flows.Records, zero time.Time) []fidelity.Transfer {
	shift := res.Zero.Sub(zero) // from the time origin of captures to that of the engine
	var out []fidelity.Transfer
	flowEnd := map[workloads.FlowID]time.Duration{}
	for _, f := range seen.Flows {
		flowEnd[f.Flow] = f.End
	}
	type attempt struct {
		job            workloads.JobID
		stage, task, n int
	}
	consumed := map[workloads.FlowID]flows.Consumed{}
	inputEnd := map[attempt]flows.Consumed{} // the last of an attempt
	for _, c := range res.Consumed {
		consumed[c.Flow], inputEnd[attempt{c.Job, c.Stage, c.Task, c.Attempt}] = c, c
	}
	for _, a := range seen.Attempts {
		if c, ok := inputEnd[attempt{a.Job, a.Stage, a.Task, a.Attempt}]; ok && a.InputEnd > 0 {
			out = append(out, fidelity.Transfer{Name: fmt.Sprintf("the input of attempt %d of task %d of stage %d of job %d", a.Attempt, a.Task, a.Stage, a.Job), Completion: a.InputEnd - a.Start, Wire: c.At + shift, Engine: a.InputEnd})
		}
	}
	for _, f := range res.Flows {
		if c, ok := consumed[f.Flow]; ok {
			out = append(out, fidelity.Transfer{Name: fmt.Sprintf("input flow %d", f.Flow), Completion: f.FCT(), Wire: f.End + shift, Engine: c.At + shift, Lag: c.Lag})
			continue
		}
		if end, ok := flowEnd[f.Flow]; ok {
			out = append(out, fidelity.Transfer{Name: fmt.Sprintf("flow %d of coflow %d", f.Flow, f.Coflow), Completion: f.FCT(), Wire: f.End + shift, Engine: end})
		}
	}
	blockEnd := map[workloads.BlockID]time.Duration{}
	for _, b := range seen.Blocks {
		blockEnd[b.Block] = b.End
	}
	for _, b := range res.Blocks {
		if end, ok := blockEnd[b.Block]; ok {
			out = append(out, fidelity.Transfer{Name: fmt.Sprintf("block %d", b.Block), Completion: b.WriteTime(), Wire: b.End + shift, Engine: end})
		}
	}
	return out
}

// medianCompletion returns the median completion time of coflows or, if there are none, of blocks or
// jobs.
func medianCompletion(r flows.Records) time.Duration {
	for _, items := range []func(int, flows.Records) []metrics.Item{metrics.CCTs, metrics.WriteTimes, metrics.JobTimes} {
		if all := items(0, r); len(all) > 0 {
			return metrics.Summarize(all).P50
		}
	}
	return 0
}

// repeatOf joins the results of captures with the other records of a repeat.
func repeatOf(dir repeatFiles, res flows.Result) (summary.Repeat, error) {
	out, err := measuredOf(dir, res)
	if err != nil {
		return summary.Repeat{}, err
	}
	err = dir.judged(&out, res)
	return out, err
}

// measuredOf is repeatOf without the verdict.
func measuredOf(dir repeatFiles, res flows.Result) (summary.Repeat, error) {
	meta, err := readWorkloadMeta(dir)
	if err != nil {
		return summary.Repeat{}, err
	}
	if meta == nil {
		meta = metrics.WorkloadMetaOfCaptures(&res)
	}
	if meta != nil {
		meta.Join(&res.Records)
	}
	if err := countDrops(dir, res.Links); err != nil {
		return summary.Repeat{}, err
	}
	out := summary.Repeat{Records: res.Records, Zero: res.Zero, Links: res.Links, Progress: metrics.ProgressOf(&res, 0, 0)}
	for _, t := range res.Trails {
		out.Resent += t.Resent
	}
	switch out.Timing, err = breakdown.Of(&res); {
	case errors.Is(err, breakdown.ErrNoFabric):
		out.Untimed = err.Error() + ", as in captures of older versions"
	case err != nil:
		return summary.Repeat{}, fmt.Errorf("breakdown of times: %w", err)
	default:
		if out.Fabric, err = res.Meta.Fabric.Build(); err != nil {
			return summary.Repeat{}, err
		}
		out.Ideals = metrics.Ideals(out.Fabric, calibration.Framing(out.Fabric.Shape().MTU), out.Records.Flows)
		if out.Buckets = res.Meta.Buckets; len(out.Buckets) > 0 {
			out.FlowErrors = flowErrors(out.Fabric, out.Buckets)
		}
	}
	if meta != nil {
		out.Slots = meta.Slots
	}
	if f := out.Fabric; f != nil && meta != nil && len(meta.Writers) > 0 {
		out.Placement = &metrics.Placement{
			CrossRack: metrics.CrossRack{All: float64(metrics.Uplinks(f, res.Links)), Writes: float64(out.Timing.Traffic.CrossRack[breakdown.Write])},
			Disk:      metrics.DiskImbalance(f, res.Records, meta.DiskSize),
			Balance:   metrics.BalanceOf(f, res.Links, meta.Heartbeat), Bounds: metrics.BoundsOf(f, res.Records, meta.DiskRate)}
	}
	if out.Failures, err = withReasons(dir, res.Records.Failed); err != nil {
		return summary.Repeat{}, err
	}
	if out.Coordinator, err = readCoordinator(dir); err != nil {
		return summary.Repeat{}, err
	}
	var predicted flows.Records
	if found, err := dir.read("fluid.json", &predicted); err != nil {
		return summary.Repeat{}, err
	} else if found {
		if meta != nil {
			meta.Join(&predicted)
		}
		out.Fluid = &predicted
	}
	return out, nil
}

// repeatFiles are the files of a repeat, of which those that changed after the run are not read.
type repeatFiles struct {
	dir     string
	changes []rundir.Change // by their paths in dir
	// recorded is what measured returns; nil if it has not been read.
	recorded *recorded
}

// read reads a JSON file. found is false, without an error, if the file is missing or changed.
func (r repeatFiles) read(name string, v any) (found bool, err error) {
	if r.hasChanged(name) {
		return false, nil
	}
	return readJSON(filepath.Join(r.dir, name), v)
}

// hasChanged reports whether a file changed after the run.
func (r repeatFiles) hasChanged(name string) bool {
	return slices.ContainsFunc(r.changes, func(c rundir.Change) bool { return c.File == name })
}

// judged sets the verdict of a repeat: what was measured in it is judged again, with the doubts that the
// captures and their changes cast on it. Captures may have been damaged after the run.
func (r repeatFiles) judged(out *summary.Repeat, res flows.Result) error {
	for i, c := range r.changes {
		out.Records.Problems = slices.Insert(out.Records.Problems, i, c.String()+": it is not used")
	}
	s, known, err := r.measured()
	if err != nil {
		return err
	}
	measureLinks(&s, res)
	found, err := r.read(fidelityFile, &out.Verdict)
	switch {
	case err != nil:
		return fmt.Errorf("%w (without the file, the verdict is unverified)", err)
	case known:
		earlier := out.Verdict.Earlier
		out.Verdict = fidelity.Judge(s, fidelity.Default())
		out.Verdict.Earlier = earlier
	case !found:
		out.Verdict = verdict.Missing("only captures exist, without the records of the run")
	}
	out.Completed = s.Completed
	out.Verdict = fidelity.Doubt(out.Verdict, out.Records.Problems, s.Completed, metrics.CompletedItems(out.Records))
	if out.Fabric != nil {
		out.Verdict = fidelity.DoubtForeign(out.Verdict, foreignOf(out.Fabric, res))
	}
	return nil
}

// samples returns the path of the samples, "" if there are none.
func (r repeatFiles) samples() string {
	path := filepath.Join(r.dir, samples.File)
	if _, err := os.Stat(path); err != nil || r.hasChanged(samples.File) {
		return ""
	}
	return path
}

// recorded is what the verdict is computed from. known reports whether all of it is there.
type recorded struct {
	fidelity.Samples
	known bool
}

// measured reads what was recorded, if r does not have it.
func (r repeatFiles) measured() (s fidelity.Samples, known bool, err error) {
	if r.recorded != nil {
		return r.recorded.Samples, r.recorded.known, nil
	}
	if known, err = r.read(measuredFile, &s); err == nil && known && !r.hasChanged(samples.File) {
		s.Sampled, known, err = fidelity.ReadSampled(filepath.Join(r.dir, samples.File))
	} else {
		known = false
	}
	if err != nil {
		err = fmt.Errorf("%w (without the file, the verdict is that of the run)", err)
	}
	return s, known, err
}

// countDrops replaces estimates of drops by the counters of the kernel, if the directory of
// the repeat has them. Captures alone, and runs of older versions, have none.
func countDrops(dir repeatFiles, links []flows.LinkSeries) error {
	var q metrics.Queues
	found, err := dir.read(summary.QueuesFile, &q)
	if err != nil || !found {
		return err
	}
	if err := q.Count(links); err != nil {
		return fmt.Errorf("%s: %w (without the file, the report estimates drops from the captures)", filepath.Join(dir.dir, summary.QueuesFile), err)
	}
	return nil
}

// readWorkloadMeta reads the facts about the workload of a repeat. It returns nil if its directory
// has none, as in runs of older versions.
func readWorkloadMeta(dir repeatFiles) (*metrics.WorkloadMeta, error) {
	var a metrics.WorkloadMeta
	if found, err := dir.read(summary.AskedFile, &a); err != nil || !found {
		return nil, err
	}
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w (without the file, the report takes them from the captures, except times of jobs alone)",
			filepath.Join(dir.dir, summary.AskedFile), err)
	}
	return &a, nil
}
