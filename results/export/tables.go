package export

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"testbed/results/archive"
	"testbed/results/report"
)

// Type is what the values of a column are.
type Type string

// Types. Micros are microseconds: a double in Parquet, three decimals in CSV, which
// are the nanoseconds that the run's files hold.
const (
	String Type = "string"
	Int    Type = "int64"
	Double Type = "double"
	Micros Type = "micros"
	Bool   Type = "bool"
	Time   Type = "timestamp"
)

// Column is one column of a table.
type Column struct {
	Name     string
	Type     Type
	Unit     string // "" where it has none
	Doc      string
	Optional bool // may be null: an empty cell in CSV, a null in JSON
}

// Table is one table over all runs.
type Table struct {
	Name    string
	Doc     string
	Columns []Column
	// rows calls row for each row of a run, with a value for each column: string,
	// int64, float64, time.Duration, bool or time.Time, or nil for null.
	rows func(r *archive.Run, row func([]any) error) error
}

// item is a column and how its value is read off a row of an archive.
type item[T any] struct {
	Column
	value func(*archive.Run, T) any
}

func table[T any](name, doc string, list func(*archive.Run) []T, items ...item[T]) Table {
	t := Table{Name: name, Doc: doc}
	for _, it := range items {
		t.Columns = append(t.Columns, it.Column)
	}
	t.rows = func(r *archive.Run, row func([]any) error) error {
		for _, x := range list(r) {
			values := make([]any, len(items))
			for i, it := range items {
				values[i] = it.value(r, x)
			}
			if err := row(values); err != nil {
				return err
			}
		}
		return nil
	}
	return t
}

func text[T any](name, doc string, f func(T) string) item[T] {
	return item[T]{Column{name, String, "", doc, false}, func(_ *archive.Run, x T) any { return f(x) }}
}

// maybeText is null for "".
func maybeText[T any](name, doc string, f func(T) string) item[T] {
	return item[T]{Column{name, String, "", doc, true}, func(_ *archive.Run, x T) any {
		if s := f(x); s != "" {
			return s
		}
		return nil
	}}
}

func number[T any, V ~int | ~int64](name, unit, doc string, f func(T) V) item[T] {
	return item[T]{Column{name, Int, unit, doc, false}, func(_ *archive.Run, x T) any { return int64(f(x)) }}
}

func maybeNumber[T any, V ~int | ~int64](name, unit, doc string, f func(T) *V) item[T] {
	return item[T]{Column{name, Int, unit, doc, true}, func(_ *archive.Run, x T) any {
		if v := f(x); v != nil {
			return int64(*v)
		}
		return nil
	}}
}

func micros[T any](name, doc string, f func(T) time.Duration) item[T] {
	return item[T]{Column{name, Micros, "µs", doc, false}, func(_ *archive.Run, x T) any { return f(x) }}
}

func maybeMicros[T any](name, doc string, f func(T) *time.Duration) item[T] {
	return item[T]{Column{name, Micros, "µs", doc, true}, func(_ *archive.Run, x T) any {
		if v := f(x); v != nil {
			return *v
		}
		return nil
	}}
}

func maybeDouble[T any](name, unit, doc string, f func(T) *float64) item[T] {
	return item[T]{Column{name, Double, unit, doc, true}, func(_ *archive.Run, x T) any {
		if v := f(x); v != nil {
			return *v
		}
		return nil
	}}
}

func truth[T any](name, doc string, f func(T) bool) item[T] {
	return item[T]{Column{name, Bool, "", doc, false}, func(_ *archive.Run, x T) any { return f(x) }}
}

// run is the first column of each table.
func run[T any]() item[T] {
	return item[T]{Column{"run", String, "", "ID of the run", false}, func(r *archive.Run, _ T) any { return r.Summary.RunID }}
}

// keyed are the columns that rows of repeats begin with.
func keyed[T any](key func(T) archive.Key, items ...item[T]) []item[T] {
	return append([]item[T]{
		run[T](),
		text("arm", "arm of the run", func(x T) string { return key(x).Arm }),
		number("repeat", "", "repeat of the arm, from 0", func(x T) int { return key(x).Repeat }),
		text("verdict", "of the repeat: pass, unverified or degraded; fluid model in a simulation", func(x T) string { return key(x).Verdict }),
	}, items...)
}

// Tables are all tables, in the order in which they are written.
func Tables() []Table {
	return []Table{
		table("runs", "one row a run", func(r *archive.Run) []*archive.Run { return []*archive.Run{r} }, runItems()...),
		table("arms", "one row an arm: the figures of summary.json; null where the arm is void", func(r *archive.Run) []*report.ArmSummary {
			var out []*report.ArmSummary
			for i := range r.Summary.Arms {
				out = append(out, &r.Summary.Arms[i])
			}
			return out
		}, armItems()...),
		table("flows", "one row a flow", func(r *archive.Run) []archive.Flow { return r.Flows }, flowItems()...),
		table("coflows", "one row a coflow", func(r *archive.Run) []archive.Coflow { return r.Coflows }, coflowItems()...),
		table("blocks", "one row a block", func(r *archive.Run) []archive.Block { return r.Blocks }, blockItems()...),
		table("requests", "one row a write request: all blocks of one writer", func(r *archive.Run) []archive.Request { return r.Requests }, requestItems()...),
		table("jobs", "one row a job", func(r *archive.Run) []archive.Job { return r.Jobs }, jobItems()...),
		table("balance", "one row an interval of the balance of links", func(r *archive.Run) []archive.Balance { return r.Balance }, balanceItems()...),
		table("breakdown", "one row a part of a coflow's completion time", func(r *archive.Run) []archive.Share { return r.Breakdown }, shareItems()...),
		table("progress", "one row a moment of a transfer: a flow, or one hop of a pipeline of a block", func(r *archive.Run) []archive.Moment { return r.Progress }, momentItems()...),
		table("links", "one row an interval of a link", func(r *archive.Run) []archive.Load { return r.Links }, loadItems()...),
	}
}

// Find is the table of a name.
func Find(name string) (Table, error) {
	var names []string
	for _, t := range Tables() {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Table{}, fmt.Errorf("no table %q: have %s", name, strings.Join(names, ", "))
}

func runItems() []item[*archive.Run] {
	type R = *archive.Run
	made := func(f func(*archive.Manifest) string) func(R) string {
		return func(r R) string {
			if r.Manifest == nil {
				return ""
			}
			return f(r.Manifest)
		}
	}
	count := func(f func(*archive.Manifest) *int) func(R) *int {
		return func(r R) *int {
			if r.Manifest == nil {
				return nil
			}
			return f(r.Manifest)
		}
	}
	when := func(name, doc string, f func(*archive.Manifest) time.Time) item[R] {
		return item[R]{Column{name, Time, "UTC", doc, true}, func(r, _ R) any {
			if r.Manifest == nil || f(r.Manifest).IsZero() {
				return nil
			}
			return f(r.Manifest).UTC()
		}}
	}
	return []item[R]{
		run[R](),
		text("scenario", "name of the scenario", func(r R) string { return r.Summary.Scenario }),
		text("source", "packets or fluid model", func(r R) string { return r.Summary.Source }),
		text("baseline", "arm that speed-ups are over", func(r R) string { return r.Summary.Baseline }),
		text("directory", "where the run was read", func(r R) string { return r.Dir }),
		maybeText("state", "complete, interrupted, failed or running; this and the rest are null where the run has no manifest.json", made(func(m *archive.Manifest) string { return m.State })),
		maybeText("seed", "of the run, a decimal of up to 64 bits", made(func(m *archive.Manifest) string { return fmt.Sprint(m.Seed) })),
		maybeNumber("repeats", "", "of each arm, as asked for", count(func(m *archive.Manifest) *int { return &m.Repeats })),
		maybeText("workload_fingerprint", "the same for runs of the same scenario and traces", made(func(m *archive.Manifest) string { return m.Workload })),
		maybeText("scaled_by", "factor by which rates and sizes were divided", made(func(m *archive.Manifest) string { return m.ScaledBy })),
		maybeText("tool", "version of testbed", made(func(m *archive.Manifest) string { return m.Tool })),
		maybeText("go", "version of Go", made(func(m *archive.Manifest) string { return m.Go })),
		maybeText("kernel", "release", made(func(m *archive.Manifest) string { return m.Kernel })),
		maybeNumber("cpus", "", "processors that could be used", count(func(m *archive.Manifest) *int { return &m.CPUs })),
		maybeText("calibration", "what the links' buckets went by", made(func(m *archive.Manifest) string { return m.Calibration })),
		when("started", "when the run began", func(m *archive.Manifest) time.Time { return m.Started }),
		when("ended", "when it ended", func(m *archive.Manifest) time.Time { return m.Ended }),
	}
}

func armItems() []item[*report.ArmSummary] {
	type A = *report.ArmSummary
	items := []item[A]{
		run[A](),
		text("arm", "name", func(a A) string { return a.Name }),
		{Column{"place", Int, "", "place among the run's arms, from 0", false}, func(r *archive.Run, a A) any {
			for i, name := range r.Arms() {
				if name == a.Name {
					return int64(i)
				}
			}
			return int64(-1)
		}},
		number("repeats", "", "repeats that ended", func(a A) int { return a.Repeats }),
		{Column{"verdict", String, "", "worst of the repeats; fluid model in a simulation", false}, func(_ *archive.Run, a A) any {
			if a.Verdict == nil {
				return report.SourceFluidModel
			}
			return a.Verdict.String()
		}},
		number("problems", "", "problems in the records", func(a A) int { return len(a.Problems) }),
		number("failed_coflows", "", "coflows with a flow that a fault ended", func(a A) int {
			if a.Failures == nil {
				return 0
			}
			return a.Failures.Coflows
		}),
		number("failed_blocks", "", "blocks that a fault ended", func(a A) int {
			if a.Failures == nil {
				return 0
			}
			return a.Failures.Blocks
		}),
	}
	for _, m := range []struct {
		name, what string
		in         func(A) *report.Metric
	}{
		{"cct", "coflow completion times", func(a A) *report.Metric { return a.CCT }},
		{"fct", "flow completion times", func(a A) *report.Metric { return a.FCT }},
		{"write_time", "block write times", func(a A) *report.Metric { return a.WriteTime }},
		{"request_time", "write request times", func(a A) *report.Metric { return a.RequestTime }},
		{"job_time", "job times", func(a A) *report.Metric { return a.JobTime }},
	} {
		value := func(f func(*report.Metric) *float64) func(A) *float64 {
			return func(a A) *float64 {
				if x := m.in(a); x != nil {
					return f(x)
				}
				return nil
			}
		}
		// Times of the summary are microseconds already, rounded to nanoseconds.
		us := func(name, doc string, f func(*report.Metric) *float64) item[A] {
			return maybeDouble(m.name+name, "µs", doc+" of "+m.what, value(f))
		}
		paired := func(f func(*report.PairedSpeedup) *float64) func(*report.Metric) *float64 {
			return func(x *report.Metric) *float64 {
				if x.Paired == nil {
					return nil
				}
				return f(x.Paired)
			}
		}
		items = append(items,
			maybeNumber(m.name+"_n", "", "number of "+m.what, func(a A) *int {
				if x := m.in(a); x != nil {
					return &x.N
				}
				return nil
			}),
			us("_mean_us", "mean", func(x *report.Metric) *float64 { return &x.MeanUS }),
			us("_p50_us", "median", func(x *report.Metric) *float64 { return &x.P50US }),
			us("_p95_us", "95th percentile", func(x *report.Metric) *float64 { return &x.P95US }),
			us("_p99_us", "99th percentile", func(x *report.Metric) *float64 { return &x.P99US }),
			us("_min_us", "least", func(x *report.Metric) *float64 { return &x.MinUS }),
			us("_max_us", "greatest", func(x *report.Metric) *float64 { return &x.MaxUS }),
			maybeDouble(m.name+"_speedup", "ratio", "of averages, over the baseline", value(func(x *report.Metric) *float64 { return x.Speedup })),
			maybeDouble(m.name+"_paired", "ratio", "geometric mean of the items' own speed-ups", value(paired(func(p *report.PairedSpeedup) *float64 { return &p.GeoMean }))),
			maybeDouble(m.name+"_paired_low", "ratio", "lower end of its 95 % interval", value(paired(func(p *report.PairedSpeedup) *float64 { return &p.GeoMeanCI[0] }))),
			maybeDouble(m.name+"_paired_high", "ratio", "upper end of its 95 % interval", value(paired(func(p *report.PairedSpeedup) *float64 { return &p.GeoMeanCI[1] }))),
		)
	}
	return items
}

func flowItems() []item[archive.Flow] {
	type F = archive.Flow
	return keyed(func(f F) archive.Key { return f.Key },
		number("coflow", "", "ID of its coflow", func(f F) int { return int(f.Coflow) }),
		number("flow", "", "ID, the same in each arm", func(f F) int { return int(f.Flow) }),
		text("src", "host that sends", func(f F) string { return f.Src }),
		text("dst", "host that receives", func(f F) string { return f.Dst }),
		number("size_bytes", "bytes", "payload", func(f F) int64 { return int64(f.Size) }),
		micros("arrival_us", "arrival of its coflow, since the start of the repeat", func(f F) time.Duration { return f.Arrival }),
		micros("start_us", "first payload packet leaves src", func(f F) time.Duration { return f.Start }),
		micros("end_us", "dst has the last byte", func(f F) time.Duration { return f.End }),
		micros("fct_us", "flow completion time, end - arrival", func(f F) time.Duration { return f.FCT }),
		number("packets", "packets", "with payload, at src", func(f F) int { return f.Packets }),
		number("resent", "packets", "of them, with bytes sent before", func(f F) int { return f.Resent }),
		number("wire_bytes", "bytes", "of frames that src sent", func(f F) int64 { return int64(f.Wire) }),
		maybeMicros("fluid_fct_us", "the fluid model's prediction", func(f F) *time.Duration { return f.FluidFCT }),
		maybeMicros("first_byte_us", "first payload byte received", func(f F) *time.Duration { return f.FirstByte }),
		maybeNumber("resent_bytes", "bytes", "sent again", func(f F) *int64 { return bytesOf(f.ResentBytes) }),
		maybeMicros("rtt_min_us", "least time from payload to its acknowledgement, at src", func(f F) *time.Duration { return f.RTTMin }),
		maybeMicros("rtt_median_us", "median of the same", func(f F) *time.Duration { return f.RTTMedian }),
		truth("background", "of a coflow that only loads the network; no statistic counts it", func(f F) bool { return f.Background }),
		truth("failed", "it was given up and ended all the same; no statistic counts it", func(f F) bool { return f.Failed }),
	)
}

func bytesOf[B ~int64](b *B) *int64 {
	if b == nil {
		return nil
	}
	n := int64(*b)
	return &n
}

func coflowItems() []item[archive.Coflow] {
	type C = archive.Coflow
	return keyed(func(c C) archive.Key { return c.Key },
		number("coflow", "", "ID, the same in each arm", func(c C) int { return int(c.Coflow) }),
		number("width", "flows", "of it", func(c C) int { return c.Width }),
		number("size_bytes", "bytes", "payload", func(c C) int64 { return int64(c.Size) }),
		micros("arrival_us", "since the start of the repeat", func(c C) time.Duration { return c.Arrival }),
		micros("end_us", "end of its last flow", func(c C) time.Duration { return c.End }),
		micros("cct_us", "coflow completion time, end - arrival", func(c C) time.Duration { return c.CCT }),
		maybeMicros("fluid_cct_us", "the fluid model's prediction", func(c C) *time.Duration { return c.FluidCCT }),
		maybeDouble("skew", "ratio", "longest flow over the average flow, by size", func(c C) *float64 { return c.Skew }),
		maybeNumber("slowest_flow", "", "ID of the flow that ended last", func(c C) *int {
			if c.Slowest == nil {
				return nil
			}
			n := int(*c.Slowest)
			return &n
		}),
		maybeText("bottleneck", "link of the slowest flow's path that the coflow loads longest", func(c C) string { return c.Bottleneck }),
		maybeMicros("lone_us", "its time on its bottleneck, were it alone", func(c C) *time.Duration { return c.Lone }),
		maybeDouble("slowdown", "ratio", "cct over lone", func(c C) *float64 { return c.Slowdown }),
		maybeMicros("held_us", "of cct: held back by the policy", func(c C) *time.Duration { return c.Held }),
		maybeMicros("serialisation_us", "of cct: its own bytes on the wire", func(c C) *time.Duration { return c.Serialisation }),
		maybeMicros("queueing_us", "of cct: behind the bytes of others", func(c C) *time.Duration { return c.Queueing }),
		maybeMicros("retransmission_us", "of cct: waiting for a lost segment", func(c C) *time.Duration { return c.Retransmission }),
		maybeMicros("host_us", "of cct: waiting for a host", func(c C) *time.Duration { return c.Host }),
		maybeMicros("latency_us", "of cct: the rest", func(c C) *time.Duration { return c.Latency }),
		truth("background", "it only loads the network; no statistic counts it", func(c C) bool { return c.Background }),
		truth("failed", "one of its flows was given up; no statistic counts it", func(c C) bool { return c.Failed }),
	)
}

func blockItems() []item[archive.Block] {
	type B = archive.Block
	return keyed(func(b B) archive.Key { return b.Key },
		number("block", "", "ID, the same in each arm", func(b B) int { return int(b.Block) }),
		text("client", "host that writes", func(b B) string { return b.Client }),
		text("hosts", "replicas in pipeline order, separated by spaces", func(b B) string { return strings.Join(b.Hosts, " ") }),
		number("size_bytes", "bytes", "of the block", func(b B) int64 { return int64(b.Size) }),
		micros("requested_us", "since the start of the repeat", func(b B) time.Duration { return b.Requested }),
		micros("end_us", "last acknowledgement back at the client", func(b B) time.Duration { return b.End }),
		micros("write_time_us", "end - requested", func(b B) time.Duration { return b.WriteTime }),
		maybeMicros("fluid_write_time_us", "the fluid model's prediction", func(b B) *time.Duration { return b.FluidWriteTime }),
		maybeMicros("held_us", "of write time: held back by the policy", func(b B) *time.Duration { return b.Held }),
		maybeMicros("network_us", "of write time: bytes or acknowledgements under way", func(b B) *time.Duration { return b.Network }),
		maybeMicros("disk_us", "of write time: waiting for a disk", func(b B) *time.Duration { return b.Disk }),
		maybeMicros("host_us", "of write time: waiting for a host", func(b B) *time.Duration { return b.Host }),
		maybeMicros("waited_us", "to be placed, before requested", func(b B) *time.Duration { return b.Waited }),
		truth("failed", "it was given up and ended all the same; no statistic counts it", func(b B) bool { return b.Failed }),
	)
}

func requestItems() []item[archive.Request] {
	type R = archive.Request
	return keyed(func(r R) archive.Key { return r.Key },
		number("writer", "", "ID, the same in each arm", func(r R) int { return int(r.Writer) }),
		maybeNumber("job", "", "ID of its job", func(r R) *int64 { return idOf(r.Job) }),
		text("client", "host that writes", func(r R) string { return r.Client }),
		number("blocks", "blocks", "one after the other", func(r R) int { return r.Blocks }),
		number("size_bytes", "bytes", "of all blocks", func(r R) int64 { return int64(r.Size) }),
		micros("requested_us", "first block asked for, since the start of the repeat", func(r R) time.Duration { return r.Requested }),
		micros("end_us", "last block written", func(r R) time.Duration { return r.End }),
		micros("request_time_us", "end - requested", func(r R) time.Duration { return r.RequestTime }),
		maybeMicros("fluid_request_time_us", "the fluid model's prediction", func(r R) *time.Duration { return r.FluidRequestTime }),
	)
}

func jobItems() []item[archive.Job] {
	type J = archive.Job
	return keyed(func(j J) archive.Key { return j.Key },
		number("job", "", "ID, the same in each arm", func(j J) int { return int(j.Job) }),
		maybeNumber("bin", "", "of the workload's bins, from 1", func(j J) *int { return j.Bin }),
		maybeNumber("coflow", "", "ID of its coflow", func(j J) *int64 { return idOf(j.Coflow) }),
		number("blocks", "blocks", "that it writes", func(j J) int { return j.Blocks }),
		number("size_bytes", "bytes", "of all blocks", func(j J) int64 { return int64(j.Size) }),
		micros("arrival_us", "of its coflow or, without one, first block asked for", func(j J) time.Duration { return j.Arrival }),
		micros("end_us", "last block written", func(j J) time.Duration { return j.End }),
		micros("job_time_us", "end - arrival", func(j J) time.Duration { return j.JobTime }),
		maybeMicros("fluid_job_time_us", "the fluid model's prediction", func(j J) *time.Duration { return j.FluidJobTime }),
	)
}

func balanceItems() []item[archive.Balance] {
	type B = archive.Balance
	return keyed(func(b B) archive.Key { return b.Key },
		micros("from_us", "since the start of the repeat", func(b B) time.Duration { return b.From }),
		micros("interval_us", "its length", func(b B) time.Duration { return b.Interval }),
		maybeDouble("cv", "ratio", "standard deviation over mean of the utilisation of the receiving bottleneck links", func(b B) *float64 { return &b.Cv }),
	)
}

func idOf[I ~int](id *I) *int64 {
	if id == nil {
		return nil
	}
	n := int64(*id)
	return &n
}

func shareItems() []item[archive.Share] {
	type S = archive.Share
	return keyed(func(s S) archive.Key { return s.Key },
		number("coflow", "", "ID", func(s S) int { return int(s.Coflow) }),
		text("cause", "held, serialisation, queueing, retransmission, host or latency", func(s S) string { return string(s.Cause) }),
		maybeText("link", "where, of a cause that has a place", func(s S) string { return s.Link }),
		micros("time_us", "of the coflow's completion time", func(s S) time.Duration { return s.Time }),
	)
}

func momentItems() []item[archive.Moment] {
	type M = archive.Moment
	return keyed(func(m M) archive.Key { return m.Key },
		text("kind", "flow, or block for a hop of one", func(m M) string { return m.Kind }),
		maybeNumber("coflow", "", "ID of a flow's coflow", func(m M) *int { return intOf(m.Coflow) }),
		maybeNumber("flow", "", "ID of a flow", func(m M) *int { return intOf(m.Flow) }),
		maybeNumber("block", "", "ID of a hop's block", func(m M) *int { return intOf(m.Block) }),
		maybeNumber("hop", "", "of its pipeline, from 0", func(m M) *int { return m.Hop }),
		maybeNumber("pipeline", "", "of its block, from 0; one that broke is followed by another", func(m M) *int { return m.Pipeline }),
		number("size_bytes", "bytes", "payload of the transfer; of a hop from where its pipeline went on", func(m M) int64 { return int64(m.Size) }),
		micros("at_us", "since the start of the repeat", func(m M) time.Duration { return m.At }),
		number("received_bytes", "bytes", "of the payload, which the receiver has without a gap from at_us on", func(m M) int64 { return int64(m.Received) }),
		maybeMicros("sent_us", "the last of them left the sender first", func(m M) *time.Duration { return m.Sent }),
	)
}

func intOf[N ~int | ~int64 | ~uint32](n *N) *int {
	if n == nil {
		return nil
	}
	x := int(*n)
	return &x
}

func loadItems() []item[archive.Load] {
	type L = archive.Load
	return keyed(func(l L) archive.Key { return l.Key },
		text("link", "directed, as from>to", func(l L) string { return l.Link }),
		number("rate_bps", "bits per second", "as built", func(l L) int64 { return int64(l.Rate) }),
		micros("from_us", "begin of the interval, since the start of the repeat", func(l L) time.Duration { return l.From }),
		micros("interval_us", "length of the interval", func(l L) time.Duration { return l.Interval }),
		number("bytes", "bytes", "of frames in the interval", func(l L) int64 { return int64(l.Bytes) }),
		item[L]{Column{"utilisation", Double, "ratio", "bytes over what the rate carries in the interval", false}, func(_ *archive.Run, l L) any { return l.Utilisation }},
		maybeNumber("queue_bytes", "bytes", "longest queue ahead of the link in the interval, estimated", func(l L) *int64 { return bytesOf(l.Queue) }),
	)
}

// jsonValue is a value as it is written to JSON.
func jsonValue(v any) any {
	switch x := v.(type) {
	case time.Duration:
		return json.Number(cell(x))
	case time.Time:
		return x.Format(time.RFC3339Nano)
	}
	return v
}
