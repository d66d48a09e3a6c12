package export

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/rundir"
	"testbed/results/samples"
	"testbed/results/schema"
)

// Trace is the table that Perfetto traces are written from: all runs over time.
var Trace = Table{Name: "trace", Doc: "jobs, attempts, coflows, flows, blocks, decisions and samples over time"}

// tracePreamble begins every trace.
const tracePreamble = `{"displayTimeUnit":"ms","otherData":{"tool":"testbed"},"traceEvents":[` + "\n"

// event is an event of the trace event format of Chrome, which Perfetto reads.
type event struct {
	Name    string         `json:"name"`
	Phase   string         `json:"ph"`
	At      traceTime      `json:"ts"`
	Took    *traceTime     `json:"dur,omitempty"`
	Process int            `json:"pid"`
	Thread  int            `json:"tid"`
	Scope   string         `json:"s,omitempty"` // of an instant
	Args    map[string]any `json:"args,omitempty"`
}

// The phases.
const (
	phaseSlice    = "X"
	phaseInstant  = "i"
	phaseCounter  = "C"
	phaseMetadata = "M"
)

// traceTime is a time in microseconds with three decimals.
type traceTime time.Duration

// MarshalJSON returns the time as a number.
func (t traceTime) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(t)/1000, 'f', 3, 64), nil
}

// lane is a row of slices that do not overlap.
type lane struct {
	end    time.Duration
	thread int
}

// lanes are those of a group, by their ends.
type lanes []lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].end, l[j].end), l[i].thread-l[j].thread) < 0
}
func (l lanes) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lanes) Push(x any)   { *l = append(*l, x.(lane)) }
func (l *lanes) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// tracer writes a trace. It keeps the rows of slices, not the events.
type tracer struct {
	w         *bufio.Writer
	b         bytes.Buffer
	encode    *json.Encoder
	any       bool
	processes map[schema.Key]int // of the run that is written
	last      int                // process
	threads   int
	groups    map[group]*lanes
}

// group is a set of rows of a process with one name.
type group struct {
	process int
	name    string
}

// perfetto writes the trace of runs: a process for each arm and repeat, with rows of slices for jobs, the slots of hosts,
// coflows, receivers of flows, and clients of blocks; instants for decisions; and counters for samples. All times count
// from the start of the repeat, as those of tables.
func perfetto(w io.Writer, runs []*rundir.Run) error {
	t := &tracer{w: bufio.NewWriter(w), groups: map[group]*lanes{}}
	t.encode = json.NewEncoder(&t.b)
	t.encode.SetEscapeHTML(false)
	if _, err := t.w.WriteString(tracePreamble); err != nil {
		return err
	}
	for _, r := range runs {
		name := ""
		if len(runs) > 1 {
			name = r.Summary.RunID + " "
		}
		if err := t.run(r, name); err != nil {
			return fmt.Errorf("read run %s: %w", r.Dir, err)
		}
	}
	if _, err := t.w.WriteString("\n]}\n"); err != nil {
		return err
	}
	return t.w.Flush()
}

func (t *tracer) run(r *rundir.Run, name string) error {
	t.processes = map[schema.Key]int{}
	t.groups = map[group]*lanes{}
	err := r.Repeats(func(k schema.Key) error {
		t.last++
		t.processes[k] = t.last
		return t.meta("process_name", t.last, 0, fmt.Sprintf("%s%s, repeat %d (%s)", name, k.Arm, k.Repeat, k.Verdict))
	})
	err = errors.Join(err,
		traced(t, r.Jobs, func(x *schema.Job) slice {
			args := map[string]any{"size_bytes": int64(x.Size)}
			if x.Tasks != nil {
				args["tasks"], args["user"] = *x.Tasks, x.User
			}
			return slice{x.Key, "jobs", fmt.Sprintf("job %d", x.Job), x.Arrival, x.End, args}
		}),
		traced(t, r.Attempts, func(x *schema.Attempt) slice {
			return slice{x.Key, fmt.Sprintf("%s %s slot %d", x.Host, x.Kind, x.Slot),
				fmt.Sprintf("job %d stage %d task %d", x.Job, x.Stage, x.Task), x.Start, x.End,
				map[string]any{"attempt": x.Attempt, "outcome": x.Outcome, "input_bytes": int64(x.Input), "locality": x.Locality, "why": x.Why}}
		}),
		traced(t, r.Coflows, func(x *schema.Coflow) slice {
			return slice{x.Key, "coflows", fmt.Sprintf("coflow %d", x.Coflow), x.Arrival, x.End,
				map[string]any{"size_bytes": int64(x.Size), "width": x.Width, "bottleneck": x.Bottleneck, "failed": x.Failed}}
		}),
		traced(t, r.Flows, func(x *schema.Flow) slice {
			return slice{x.Key, "flows to " + x.Dst, fmt.Sprintf("flow %d from %s", x.Flow, x.Src), x.Arrival, x.End,
				map[string]any{"coflow": x.Coflow, "size_bytes": int64(x.Size), "resent": x.Resent, "failed": x.Failed}}
		}),
		traced(t, r.Blocks, func(x *schema.Block) slice {
			return slice{x.Key, "blocks of " + x.Client, fmt.Sprintf("block %d", x.Block), x.Requested, x.End,
				map[string]any{"size_bytes": int64(x.Size), "failed": x.Failed}}
		}),
		r.Events(t.decisions),
		r.Samples(t.samples))
	return err
}

// slice is a row of a table as a slice.
type slice struct {
	key      schema.Key
	group    string
	name     string
	from, to time.Duration
	args     map[string]any
}

// traced writes the rows of a table, by their starts.
func traced[T any](t *tracer, rows []T, of func(*T) slice) error {
	order := make([]int, len(rows))
	starts := make([]time.Duration, len(rows))
	for i := range rows {
		order[i], starts[i] = i, of(&rows[i]).from
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(starts[a], starts[b]) })
	for _, i := range order {
		s := of(&rows[i])
		process, ok := t.processes[s.key]
		if !ok || s.to < s.from {
			continue
		}
		thread, err := t.lane(group{process, s.group}, s.from, s.to)
		if err != nil {
			return err
		}
		took := traceTime(s.to - s.from)
		if err := t.write(event{s.name, phaseSlice, traceTime(s.from), &took, process, thread, "", s.args}); err != nil {
			return err
		}
	}
	return nil
}

// lane returns the thread of a row of a group that is free from a time on, and takes it until another.
func (t *tracer) lane(g group, from, to time.Duration) (thread int, err error) {
	all := t.groups[g]
	if all == nil {
		all = &lanes{}
		t.groups[g] = all
	}
	if len(*all) > 0 && (*all)[0].end <= from {
		thread = (*all)[0].thread
		(*all)[0].end = to
		heap.Fix(all, 0)
		return thread, nil
	}
	t.threads++
	heap.Push(all, lane{to, t.threads})
	err = t.meta("thread_name", g.process, t.threads, g.name)
	return t.threads, errors.Join(err, t.write(event{Name: "thread_sort_index", Phase: phaseMetadata, Process: g.process,
		Thread: t.threads, Args: map[string]any{"sort_index": t.threads}}))
}

// decisions writes the steps of the engine in which it decided something, by the numbers of its commands.
func (t *tracer) decisions(k schema.Key, start time.Duration, log io.Reader) error {
	process := t.processes[k]
	thread := 0
	in := json.NewDecoder(bufio.NewReaderSize(log, 1<<16))
	for {
		var step struct {
			T        time.Duration                `json:"t"`
			Commands []map[string]json.RawMessage `json:"commands"`
		}
		if err := in.Decode(&step); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		step.T += start
		if len(step.Commands) == 0 || step.T < 0 {
			continue
		}
		counts := map[string]any{}
		var names []string
		for _, c := range step.Commands {
			for name := range c {
				if counts[name] == nil {
					counts[name] = 0
					names = append(names, name)
				}
				counts[name] = counts[name].(int) + 1
			}
		}
		if thread == 0 {
			t.threads++
			thread = t.threads
			if err := t.meta("thread_name", process, thread, "decisions"); err != nil {
				return err
			}
		}
		err := t.write(event{strings.Join(names, ", "), phaseInstant, traceTime(step.T), nil, process, thread, "t", counts})
		if err != nil {
			return err
		}
	}
}

// samples writes counters of links and of the connections of flows.
func (t *tracer) samples(k schema.Key, in *samples.Reader) error {
	process := t.processes[k]
	count := func(at time.Duration, name, unit string, value any) error {
		if at < 0 {
			return nil // before the start of the repeat
		}
		return t.write(event{name, phaseCounter, traceTime(at), nil, process, 0, "", map[string]any{unit: value}})
	}
	for p, err := range in.LinkPoints() {
		if err == nil && p.Queue != nil {
			err = count(p.At, "queue "+p.Link, "bytes", int64(*p.Queue))
		}
		if err == nil && p.Rate != nil {
			err = count(p.At, "throughput "+p.Link, "bps", int64(*p.Rate))
		}
		if err != nil {
			return err
		}
	}
	for p, err := range in.FlowPoints() {
		if err == nil {
			err = count(p.At, fmt.Sprintf("cwnd of flow %d", p.Flow), "packets", p.Window)
		}
		if err == nil {
			err = count(p.At, fmt.Sprintf("rtt of flow %d", p.Flow), "us", traceTime(p.RTT))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tracer) meta(what string, process, thread int, name string) error {
	return t.write(event{Name: what, Phase: phaseMetadata, Process: process, Thread: thread, Args: map[string]any{"name": name}})
}

func (t *tracer) write(e event) error {
	t.b.Reset()
	if t.any {
		t.b.WriteString(",\n")
	}
	t.any = true
	if err := t.encode.Encode(e); err != nil {
		return err
	}
	_, err := t.w.Write(bytes.TrimSuffix(t.b.Bytes(), []byte("\n")))
	return err
}
