package report

import (
	"io"
	"iter"
	"time"

	"testbed/hosts/wire"
	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

// rows returns the rows of the repeats that are not void. List adds those of one repeat, which
// begin with a key.
func rows[T any](r *Report, list func(rep summary.Repeat, k schema.Key, add func(T))) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		var row T
		more := true
		add := func(x T) {
			row = x
			more = more && yield(&row)
		}
		for _, a := range r.in.Arms {
			for i, rep := range a.Repeats {
				k := schema.Key{Arm: a.Name, Repeat: a.Numbers.Of(i), Verdict: summary.SourceFluidModel}
				if r.in.FluidModel {
					rep.Fluid = nil
				} else if k.Verdict = rep.Verdict.Level.String(); rep.Verdict.Level == verdict.Void {
					continue
				}
				if list(rep, k, add); !more {
					return
				}
			}
		}
	}
}

// csvOf returns a function that writes rows as a CSV file.
func csvOf[T any](rows iter.Seq[*T]) func(io.Writer) error {
	return func(w io.Writer) error { return schema.Write(w, rows) }
}

// predictions returns the fluid model's times by ID.
func predictions(rep summary.Repeat, items func(int, flows.Records) []metrics.Item) map[int]*time.Duration {
	out := map[int]*time.Duration{}
	if rep.Fluid != nil {
		for _, item := range items(0, *rep.Fluid) {
			out[item.ID] = &item.Time
		}
	}
	return out
}

// flows returns every flow, as schema.Flow.
func (r *Report) flows() iter.Seq[*schema.Flow] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Flow)) {
		fluid := predictions(rep, metrics.FCTs)
		for i := range rep.Records.Flows {
			f := &rep.Records.Flows[i]
			row := schema.Flow{Key: k, Coflow: f.Coflow, Flow: f.Flow, Src: f.Src, Dst: f.Dst, Size: f.Size,
				Arrival: f.Arrival, Start: f.Start, End: f.End, FCT: f.FCT(), Packets: f.Packets, Resent: f.Resent, Wire: f.Wire,
				FluidFCT: fluid[int(f.Flow)], Background: f.Background}
			if !r.in.FluidModel {
				row.FirstByte, row.ResentBytes, row.Setup = &f.FirstByte, &f.ResentBytes, &f.Setup
				if f.RTTMin > 0 {
					row.RTTMin, row.RTTMedian = &f.RTTMin, &f.RTTMedian
				}
			}
			if i < len(rep.Ideals) && rep.Ideals[i] > 0 {
				slowdown := metrics.Round6(float64(f.FCT()) / float64(rep.Ideals[i]))
				row.Ideal, row.Slowdown = &rep.Ideals[i], &slowdown
			}
			if t := f.Task; t != nil {
				row.Job, row.Stage, row.Task, row.Attempt, row.Outputs = &t.Job, &t.Stage, &t.Task, &t.Attempt, &t.Outputs
				if t.Outputs > 0 {
					row.FromStage, row.FromTask, row.FromAttempt = &t.FromStage, &t.FromTask, &t.FromAttempt
				}
			}
			add(row)
		}
	})
}

// coflows returns every coflow, as schema.Coflow.
func (r *Report) coflows() iter.Seq[*schema.Coflow] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Coflow)) {
		fluid, times := predictions(rep, metrics.CCTs), map[workloads.CoflowID]breakdown.Coflow{}
		shuffles := metrics.ShufflesOf(&rep.Records)
		if rep.Timing != nil {
			for _, c := range rep.Timing.Coflows {
				times[c.Coflow] = c
			}
		}
		for i := range rep.Records.Coflows {
			c := &rep.Records.Coflows[i]
			row := schema.Coflow{Key: k, Coflow: c.Coflow, Width: c.Width, Size: c.Size, Arrival: c.Arrival, End: c.End, CCT: c.CCT(),
				FluidCCT: fluid[int(c.Coflow)], Background: c.Background}
			if s, ok := shuffles[c.Coflow]; ok {
				row.Job, row.Stage = &s.Job, &s.Stage
			}
			if t, ok := times[c.Coflow]; ok {
				part := parts(t.Shares)
				row.Skew, row.Slowest, row.Bottleneck = rounded(t.Skew), &t.Slowest, t.Bottleneck
				if t.Lone > 0 {
					row.Lone, row.Slowdown = &t.Lone, rounded(t.Slowdown)
				}
				row.Held, row.Setup, row.Serialisation = part(breakdown.Held), part(breakdown.Setup), part(breakdown.Serialisation)
				row.Queueing, row.Retransmission = part(breakdown.Queueing), part(breakdown.Retransmission)
				row.Host, row.Latency = part(breakdown.Host), part(breakdown.Latency)
			}
			add(row)
		}
	})
}

// parts returns a function that returns the sum of the shares of a cause.
func parts(shares []breakdown.Share) func(breakdown.Cause) *time.Duration {
	return func(c breakdown.Cause) *time.Duration {
		d := breakdown.Total(shares, c)
		return &d
	}
}

func rounded(x float64) *float64 {
	x = metrics.Round6(x)
	return &x
}

// blocks returns every block, as schema.Block.
func (r *Report) blocks() iter.Seq[*schema.Block] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Block)) {
		fluid, times := predictions(rep, metrics.WriteTimes), map[workloads.BlockID][]breakdown.Share{}
		if rep.Timing != nil {
			for _, b := range rep.Timing.Blocks {
				times[b.Block] = b.Shares
			}
		}
		for i := range rep.Records.Blocks {
			b := &rep.Records.Blocks[i]
			row := schema.Block{Key: k, Block: b.Block, Client: b.Client, Hosts: b.Hosts, Size: b.Size, Requested: b.Requested, End: b.End,
				WriteTime: b.WriteTime(), FluidWriteTime: fluid[int(b.Block)], Waited: &b.Waited}
			if shares, ok := times[b.Block]; ok {
				part := parts(shares)
				row.Held, row.Network, row.Disk, row.Host = part(breakdown.Held), part(breakdown.Network), part(breakdown.Disk), part(breakdown.Host)
			}
			add(row)
		}
	})
}

// requests returns every write request, as schema.Request.
func (r *Report) requests() iter.Seq[*schema.Request] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Request)) {
		fluid := predictions(rep, metrics.RequestTimes)
		for _, x := range rep.Records.Writes {
			add(schema.Request{Key: k, Writer: x.Writer, Job: known(x.Job), Client: x.Client, Blocks: x.Blocks, Size: x.Size,
				Requested: x.Requested, End: x.End, RequestTime: x.RequestTime(), FluidRequestTime: fluid[int(x.Writer)]})
		}
	})
}

// known returns a number from 1, nil for 0.
func known[N ~int](n N) *N {
	if n == 0 {
		return nil
	}
	return &n
}

// jobs returns every job, as schema.Job.
func (r *Report) jobs() iter.Seq[*schema.Job] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Job)) {
		fluid, attempts := predictions(rep, metrics.JobTimes), map[workloads.JobID][]flows.AttemptRecord{}
		for _, of := range metrics.ByJob(rep.Records.Attempts) {
			attempts[of[0].Job] = of
		}
		moved := map[workloads.JobID]metrics.TaskBytes{}
		for f := range rep.Records.Transfers() {
			if f.Task != nil {
				b := moved[f.Task.Job]
				b.AddFlow(f)
				moved[f.Task.Job] = b
			}
		}
		for i := range rep.Records.Jobs {
			x := &rep.Records.Jobs[i]
			row := schema.Job{Key: k, Job: x.Job, Bin: known(x.Bin), Coflow: x.Coflow, Blocks: x.Blocks, Size: x.Size,
				Arrival: x.Arrival, End: x.End, JobTime: x.JobTime(), FluidJobTime: fluid[metrics.JobItem(x.Job, x.Tasks > 0)]}
			if x.Tasks > 0 {
				b := moved[x.Job]
				crossed := b.ReadCrossRack + b.FetchedCrossRack
				row.User, row.Profile, row.Tasks, row.Input, row.CrossRack = x.User, x.Profile, &x.Tasks, &x.Input, &crossed
			}
			if of := attempts[x.Job]; of != nil {
				p := metrics.JobPartsOf(*x, of)
				row.Waiting, row.Mapping, row.Shuffling = &p[metrics.JobWaiting], &p[metrics.JobMapping], &p[metrics.JobShuffling]
				row.Computing, row.Writing = &p[metrics.JobComputing], &p[metrics.JobWriting]
			}
			if x.Lone > 0 {
				row.Lone, row.Slowdown = &x.Lone, rounded(float64(x.JobTime())/float64(x.Lone))
			}
			add(row)
		}
	})
}

// attempts returns every attempt of a task, as schema.Attempt.
func (r *Report) attempts() iter.Seq[*schema.Attempt] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Attempt)) {
		reached := func(t *time.Duration, ok bool) *time.Duration {
			if !ok {
				return nil
			}
			return t
		}
		for i := range rep.Records.Attempts {
			a := &rep.Records.Attempts[i]
			add(schema.Attempt{Key: k, Job: a.Job, Stage: a.Stage, Task: a.Task, Attempt: a.Attempt, Kind: a.Kind, Host: a.Host, Slot: a.Slot,
				Locality: a.Locality, Input: a.Input, Start: a.Start, InputEnd: reached(&a.InputEnd, a.InputEnd > 0),
				Compute: reached(&a.Compute, a.Compute > 0 || a.Locality != ""), Computed: reached(&a.Computed, a.Computed > 0),
				End: a.End, Time: a.End - a.Start, Outcome: a.Outcome, Why: a.Why})
		}
	})
}

// balance returns every sample of balance, as schema.Balance.
func (r *Report) balance() iter.Seq[*schema.Balance] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Balance)) {
		if rep.Placement == nil || rep.Placement.Balance == nil {
			return
		}
		for _, s := range rep.Placement.Balance.Samples {
			add(schema.Balance{Key: k, From: s.From, Interval: rep.Placement.Balance.Interval, Cv: metrics.Round6(s.Cv)})
		}
	})
}

// breakdown returns every share of every coflow, as schema.Share.
func (r *Report) breakdown() iter.Seq[*schema.Share] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Share)) {
		if rep.Timing == nil {
			return
		}
		for _, c := range rep.Timing.Coflows {
			for _, s := range c.Shares {
				add(schema.Share{Key: k, Coflow: c.Coflow, Cause: s.Cause, Link: s.Link, Time: s.Time})
			}
		}
	})
}

// links returns the loads of all links, as schema.Load.
func (r *Report) links() iter.Seq[*schema.Load] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Load)) {
		links, _ := figures.InIntervals(rep.Links, r.in.linkInterval())
		for _, l := range links {
			use := metrics.Utilisation(l)
			for i, b := range l.Bytes {
				var queue units.Bytes
				if i < len(l.Queue) {
					queue = l.Queue[i]
				}
				row := schema.Load{Key: k, Link: l.Name, Rate: l.Rate, From: time.Duration(i) * l.Interval, Interval: l.Interval,
					Bytes: b, Utilisation: metrics.Round6(use[i]), Queue: &queue}
				if i < len(l.Payload) {
					row.Payload = &l.Payload[i]
				}
				add(row)
			}
		}
	})
}

// drops returns the number of packets that the queue ahead of each link dropped, as
// schema.Drop.
func (r *Report) drops() iter.Seq[*schema.Drop] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Drop)) {
		for _, l := range rep.Links {
			add(schema.Drop{Key: k, Link: l.Name, Rate: l.Rate, Dropped: l.Drops, Source: dropsOf(l.Counted)})
		}
	})
}

// progress returns the received bytes of each transfer over time, as schema.Moment.
func (r *Report) progress() iter.Seq[*schema.Moment] {
	return rows(r, func(rep summary.Repeat, k schema.Key, add func(schema.Moment)) {
		for _, p := range rep.Progress {
			row := schema.Moment{Key: k, Kind: p.Kind.String(), Size: p.Size}
			if p.Kind == wire.KindBlock {
				block, hop, pipeline := workloads.BlockID(p.Group), int(p.Member), int(p.Generation)
				row.Block, row.Hop, row.Pipeline = &block, &hop, &pipeline
			} else {
				coflow, flow := workloads.CoflowID(p.Group), workloads.FlowID(p.Member)
				row.Coflow, row.Flow = &coflow, &flow
			}
			for i := range p.Moments {
				m := &p.Moments[i]
				row.At, row.Received = m.At, m.Bytes
				if p.SentKnown {
					row.Sent = &m.Sent
				}
				add(row)
			}
		}
	})
}
