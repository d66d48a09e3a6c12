package archive

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/report"
	"testbed/results/timing"
	"testbed/topo/units"
	"testbed/workloads"
)

// Key is what the rows of all tables begin with.
type Key struct {
	Arm     string
	Repeat  int    // from 0
	Verdict string // of the repeat: "pass", "unverified" or "degraded", or "fluid model"
}

// Flow is a row of flows.csv. Pointers are nil where the cell is empty or the file
// has no such column. Times count from the start of the repeat.
type Flow struct {
	Key
	Coflow      workloads.CoflowID
	Flow        workloads.FlowID
	Src, Dst    string // host names
	Size        units.Bytes
	Arrival     time.Duration // of its coflow
	Start       time.Duration // first payload byte leaves
	End         time.Duration // last payload byte received
	FCT         time.Duration // End - Arrival
	Packets     int           // with payload, at the sender
	Resent      int           // of them
	Wire        units.Bytes   // frames that the sender sent
	FluidFCT    *time.Duration
	FirstByte   *time.Duration // first payload byte received
	ResentBytes *units.Bytes
	RTTMin      *time.Duration
	RTTMedian   *time.Duration
	Background  bool // of a coflow that only loads the network: no statistic counts it
	Failed      bool // it was given up, and ended all the same: no statistic counts it
}

// Coflow is a row of coflows.csv. See Flow.
type Coflow struct {
	Key
	Coflow         workloads.CoflowID
	Width          int // flows
	Size           units.Bytes
	Arrival, End   time.Duration
	CCT            time.Duration // End - Arrival
	FluidCCT       *time.Duration
	Skew           *float64 // longest flow over the average flow, by size
	Slowest        *workloads.FlowID
	Bottleneck     string         // a link's name, or ""
	Lone           *time.Duration // on its bottleneck, were it alone
	Slowdown       *float64       // CCT over Lone
	Held           *time.Duration // of CCT, as the five below
	Serialisation  *time.Duration
	Queueing       *time.Duration
	Retransmission *time.Duration
	Host           *time.Duration
	Latency        *time.Duration
	Background     bool // it only loads the network: no statistic counts it
	Failed         bool // one of its flows was given up: no statistic counts it
}

// Block is a row of blocks.csv. See Flow.
type Block struct {
	Key
	Block          workloads.BlockID
	Client         string
	Hosts          []string // replicas, in pipeline order
	Size           units.Bytes
	Requested, End time.Duration
	WriteTime      time.Duration // End - Requested
	FluidWriteTime *time.Duration
	Held           *time.Duration // of WriteTime, as the three below
	Network        *time.Duration
	Disk           *time.Duration
	Host           *time.Duration
	Waited         *time.Duration // to be placed, before Requested
	Failed         bool           // it was given up, and ended all the same: no statistic counts it
}

// Request is a row of requests.csv: all blocks of one writer. See Flow.
type Request struct {
	Key
	Writer           workloads.WriterID
	Job              *workloads.JobID // nil for none
	Client           string
	Blocks           int
	Size             units.Bytes
	Requested, End   time.Duration // first block asked for, and last block written
	RequestTime      time.Duration // End - Requested
	FluidRequestTime *time.Duration
}

// Job is a row of jobs.csv. See Flow.
type Job struct {
	Key
	Job          workloads.JobID
	Bin          *int // nil for none
	Coflow       *workloads.CoflowID
	Blocks       int
	Size         units.Bytes // of the blocks
	Arrival, End time.Duration
	JobTime      time.Duration // End - Arrival
	FluidJobTime *time.Duration
}

// Balance is a row of balance.csv: how evenly the receiving bottleneck links were used
// in one interval.
type Balance struct {
	Key
	From, Interval time.Duration
	Cv             float64
}

// Share is a row of breakdown.csv: a part of a coflow's completion time.
type Share struct {
	Key
	Coflow workloads.CoflowID
	Cause  timing.Cause
	Link   string // where, of a cause that has a place; else ""
	Time   time.Duration
}

// Load is a row of links.csv: what a directed link carried in one interval.
type Load struct {
	Key
	Link        string
	Rate        units.Rate    // as built
	From        time.Duration // since the start of the repeat
	Interval    time.Duration
	Bytes       units.Bytes
	Utilisation float64
	Queue       *units.Bytes // longest in the interval, estimated
}

// Moment is a row of progress.csv: how far a transfer was. The rows of a transfer are
// together and in order of time.
type Moment struct {
	Key
	Kind string // KindFlow or KindBlock
	// Coflow and Flow are those of a flow, Block, Hop and Pipeline those of a hop; the
	// others are nil.
	Coflow        *workloads.CoflowID
	Flow          *workloads.FlowID
	Block         *workloads.BlockID
	Hop, Pipeline *int
	Size          units.Bytes    // payload of the transfer
	At            time.Duration  // since the start of the repeat
	Received      units.Bytes    // of Size, which the receiver has from At on
	Sent          *time.Duration // when they had left the sender
}

// Kinds of Moment.
const (
	KindFlow  = "flow"
	KindBlock = "block"
)

// transfer tells transfers apart.
type transfer struct {
	arm                             string
	repeat, group, member, pipeline int
	block                           bool
}

// Same tells whether another moment is of the same transfer.
func (m *Moment) Same(other *Moment) bool { return m.transfer() == other.transfer() }

// transfer is of a row whose kind was checked.
func (m *Moment) transfer() transfer {
	if m.Kind == KindBlock {
		return transfer{m.Arm, m.Repeat, int(*m.Block), *m.Hop, *m.Pipeline, true}
	}
	return transfer{m.Arm, m.Repeat, int(*m.Coflow), int(*m.Flow), 0, false}
}

// column is how cells of one name are read into a row.
type column[T any] struct {
	name     string
	required bool
	set      func(*T, string) error
}

// need is a column that each file has and each row fills.
func need[T, V any](name string, parse func(string) (V, error), at func(*T) *V) column[T] {
	return column[T]{name, true, func(row *T, cell string) (err error) {
		*at(row), err = parse(cell)
		return err
	}}
}

// may is a column that may be missing, or empty.
func may[T, V any](name string, parse func(string) (V, error), at func(*T) **V) column[T] {
	return column[T]{name, false, func(row *T, cell string) error {
		if cell == "" {
			return nil
		}
		v, err := parse(cell)
		*at(row) = &v
		return err
	}}
}

// keyed puts the columns of Key in front.
func keyed[T any](key func(*T) *Key, columns ...column[T]) []column[T] {
	return append([]column[T]{
		need("arm", text, func(r *T) *string { return &key(r).Arm }),
		need("repeat", whole[int], func(r *T) *int { return &key(r).Repeat }),
		need("verdict", text, func(r *T) *string { return &key(r).Verdict }),
	}, columns...)
}

func text(s string) (string, error) { return s, nil }

// whole reads a whole number that is not negative.
func whole[V ~int | ~int64](s string) (V, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || int64(V(n)) != n {
		return 0, fmt.Errorf("%q: want a whole number, 0 or more", s)
	}
	return V(n), nil
}

func real(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%q: want a number", s)
	}
	return x, nil
}

// micros reads microseconds with three decimals, which are nanoseconds.
func micros(s string) (time.Duration, error) {
	bad := func() (time.Duration, error) {
		return 0, fmt.Errorf("%q: want microseconds with three decimals, such as 1528533.448", s)
	}
	point := len(s) - 4
	if point < 1 || s[point] != '.' || s[point+1] == '-' || s[point+1] == '+' || s[0] == '+' {
		return bad()
	}
	ns, err := strconv.ParseInt(s[:point]+s[point+1:], 10, 64)
	if err != nil || s[:point] == "-" {
		return bad()
	}
	return time.Duration(ns), nil
}

var flowColumns = keyed(func(r *Flow) *Key { return &r.Key },
	need("coflow", whole[workloads.CoflowID], func(r *Flow) *workloads.CoflowID { return &r.Coflow }),
	need("flow", whole[workloads.FlowID], func(r *Flow) *workloads.FlowID { return &r.Flow }),
	need("src", text, func(r *Flow) *string { return &r.Src }),
	need("dst", text, func(r *Flow) *string { return &r.Dst }),
	need("size_bytes", whole[units.Bytes], func(r *Flow) *units.Bytes { return &r.Size }),
	need("arrival_us", micros, func(r *Flow) *time.Duration { return &r.Arrival }),
	need("start_us", micros, func(r *Flow) *time.Duration { return &r.Start }),
	need("end_us", micros, func(r *Flow) *time.Duration { return &r.End }),
	need("fct_us", micros, func(r *Flow) *time.Duration { return &r.FCT }),
	need("packets", whole[int], func(r *Flow) *int { return &r.Packets }),
	need("resent", whole[int], func(r *Flow) *int { return &r.Resent }),
	need("wire_bytes", whole[units.Bytes], func(r *Flow) *units.Bytes { return &r.Wire }),
	may("fluid_fct_us", micros, func(r *Flow) **time.Duration { return &r.FluidFCT }),
	may("first_byte_us", micros, func(r *Flow) **time.Duration { return &r.FirstByte }),
	may("resent_bytes", whole[units.Bytes], func(r *Flow) **units.Bytes { return &r.ResentBytes }),
	may("rtt_min_us", micros, func(r *Flow) **time.Duration { return &r.RTTMin }),
	may("rtt_median_us", micros, func(r *Flow) **time.Duration { return &r.RTTMedian }),
	column[Flow]{"background", false, truth(func(r *Flow) *bool { return &r.Background })},
)

var coflowColumns = keyed(func(r *Coflow) *Key { return &r.Key },
	need("coflow", whole[workloads.CoflowID], func(r *Coflow) *workloads.CoflowID { return &r.Coflow }),
	need("width", whole[int], func(r *Coflow) *int { return &r.Width }),
	need("size_bytes", whole[units.Bytes], func(r *Coflow) *units.Bytes { return &r.Size }),
	need("arrival_us", micros, func(r *Coflow) *time.Duration { return &r.Arrival }),
	need("end_us", micros, func(r *Coflow) *time.Duration { return &r.End }),
	need("cct_us", micros, func(r *Coflow) *time.Duration { return &r.CCT }),
	may("fluid_cct_us", micros, func(r *Coflow) **time.Duration { return &r.FluidCCT }),
	may("skew", real, func(r *Coflow) **float64 { return &r.Skew }),
	may("slowest_flow", whole[workloads.FlowID], func(r *Coflow) **workloads.FlowID { return &r.Slowest }),
	column[Coflow]{"bottleneck", false, func(r *Coflow, cell string) error { r.Bottleneck = cell; return nil }},
	may("lone_us", micros, func(r *Coflow) **time.Duration { return &r.Lone }),
	may("slowdown", real, func(r *Coflow) **float64 { return &r.Slowdown }),
	may("held_us", micros, func(r *Coflow) **time.Duration { return &r.Held }),
	may("serialisation_us", micros, func(r *Coflow) **time.Duration { return &r.Serialisation }),
	may("queueing_us", micros, func(r *Coflow) **time.Duration { return &r.Queueing }),
	may("retransmission_us", micros, func(r *Coflow) **time.Duration { return &r.Retransmission }),
	may("host_us", micros, func(r *Coflow) **time.Duration { return &r.Host }),
	may("latency_us", micros, func(r *Coflow) **time.Duration { return &r.Latency }),
	column[Coflow]{"background", false, truth(func(r *Coflow) *bool { return &r.Background })},
)

var blockColumns = keyed(func(r *Block) *Key { return &r.Key },
	need("block", whole[workloads.BlockID], func(r *Block) *workloads.BlockID { return &r.Block }),
	need("client", text, func(r *Block) *string { return &r.Client }),
	need("hosts", words, func(r *Block) *[]string { return &r.Hosts }),
	need("size_bytes", whole[units.Bytes], func(r *Block) *units.Bytes { return &r.Size }),
	need("requested_us", micros, func(r *Block) *time.Duration { return &r.Requested }),
	need("end_us", micros, func(r *Block) *time.Duration { return &r.End }),
	need("write_time_us", micros, func(r *Block) *time.Duration { return &r.WriteTime }),
	may("fluid_write_time_us", micros, func(r *Block) **time.Duration { return &r.FluidWriteTime }),
	may("held_us", micros, func(r *Block) **time.Duration { return &r.Held }),
	may("network_us", micros, func(r *Block) **time.Duration { return &r.Network }),
	may("disk_us", micros, func(r *Block) **time.Duration { return &r.Disk }),
	may("host_us", micros, func(r *Block) **time.Duration { return &r.Host }),
	may("waited_us", micros, func(r *Block) **time.Duration { return &r.Waited }),
)

var requestColumns = keyed(func(r *Request) *Key { return &r.Key },
	need("writer", whole[workloads.WriterID], func(r *Request) *workloads.WriterID { return &r.Writer }),
	may("job", whole[workloads.JobID], func(r *Request) **workloads.JobID { return &r.Job }),
	need("client", text, func(r *Request) *string { return &r.Client }),
	need("blocks", whole[int], func(r *Request) *int { return &r.Blocks }),
	need("size_bytes", whole[units.Bytes], func(r *Request) *units.Bytes { return &r.Size }),
	need("requested_us", micros, func(r *Request) *time.Duration { return &r.Requested }),
	need("end_us", micros, func(r *Request) *time.Duration { return &r.End }),
	need("request_time_us", micros, func(r *Request) *time.Duration { return &r.RequestTime }),
	may("fluid_request_time_us", micros, func(r *Request) **time.Duration { return &r.FluidRequestTime }),
)

var jobColumns = keyed(func(r *Job) *Key { return &r.Key },
	need("job", whole[workloads.JobID], func(r *Job) *workloads.JobID { return &r.Job }),
	may("bin", whole[int], func(r *Job) **int { return &r.Bin }),
	may("coflow", whole[workloads.CoflowID], func(r *Job) **workloads.CoflowID { return &r.Coflow }),
	need("blocks", whole[int], func(r *Job) *int { return &r.Blocks }),
	need("size_bytes", whole[units.Bytes], func(r *Job) *units.Bytes { return &r.Size }),
	need("arrival_us", micros, func(r *Job) *time.Duration { return &r.Arrival }),
	need("end_us", micros, func(r *Job) *time.Duration { return &r.End }),
	need("job_time_us", micros, func(r *Job) *time.Duration { return &r.JobTime }),
	may("fluid_job_time_us", micros, func(r *Job) **time.Duration { return &r.FluidJobTime }),
)

var balanceColumns = keyed(func(r *Balance) *Key { return &r.Key },
	need("from_us", micros, func(r *Balance) *time.Duration { return &r.From }),
	need("interval_us", micros, func(r *Balance) *time.Duration { return &r.Interval }),
	need("cv", real, func(r *Balance) *float64 { return &r.Cv }),
)

var shareColumns = keyed(func(r *Share) *Key { return &r.Key },
	need("coflow", whole[workloads.CoflowID], func(r *Share) *workloads.CoflowID { return &r.Coflow }),
	need("cause", cause, func(r *Share) *timing.Cause { return &r.Cause }),
	need("link", text, func(r *Share) *string { return &r.Link }),
	need("time_us", micros, func(r *Share) *time.Duration { return &r.Time }),
)

var loadColumns = keyed(func(r *Load) *Key { return &r.Key },
	need("link", text, func(r *Load) *string { return &r.Link }),
	need("rate_bps", whole[units.Rate], func(r *Load) *units.Rate { return &r.Rate }),
	need("from_us", micros, func(r *Load) *time.Duration { return &r.From }),
	need("interval_us", micros, func(r *Load) *time.Duration { return &r.Interval }),
	need("bytes", whole[units.Bytes], func(r *Load) *units.Bytes { return &r.Bytes }),
	need("utilisation", real, func(r *Load) *float64 { return &r.Utilisation }),
	may("queue_bytes", whole[units.Bytes], func(r *Load) **units.Bytes { return &r.Queue }),
)

var momentColumns = keyed(func(r *Moment) *Key { return &r.Key },
	need("kind", text, func(r *Moment) *string { return &r.Kind }),
	may("coflow", whole[workloads.CoflowID], func(r *Moment) **workloads.CoflowID { return &r.Coflow }),
	may("flow", whole[workloads.FlowID], func(r *Moment) **workloads.FlowID { return &r.Flow }),
	may("block", whole[workloads.BlockID], func(r *Moment) **workloads.BlockID { return &r.Block }),
	may("hop", whole[int], func(r *Moment) **int { return &r.Hop }),
	may("pipeline", whole[int], func(r *Moment) **int { return &r.Pipeline }),
	need("size_bytes", whole[units.Bytes], func(r *Moment) *units.Bytes { return &r.Size }),
	need("at_us", micros, func(r *Moment) *time.Duration { return &r.At }),
	need("received_bytes", whole[units.Bytes], func(r *Moment) *units.Bytes { return &r.Received }),
	may("sent_us", micros, func(r *Moment) **time.Duration { return &r.Sent }),
)

// progress checks the rows of progress.csv, one after the other: that each is of one
// transfer of the run, that those of a transfer are together and go forward, and that
// a flow with a record ends when its record says.
func (r *Run) progress() func(*Moment) error {
	type id struct {
		arm          string
		repeat, flow int
	}
	ends := map[id]*Flow{}
	for i := range r.Flows {
		f := &r.Flows[i]
		ends[id{f.Arm, f.Repeat, int(f.Flow)}] = f
	}
	seen := map[transfer]bool{}
	var last *Moment
	return func(m *Moment) error {
		if err := r.known(m.Key); err != nil {
			return err
		}
		flow, block := m.Coflow != nil && m.Flow != nil, m.Block != nil && m.Hop != nil && m.Pipeline != nil
		switch {
		case m.Kind != KindFlow && m.Kind != KindBlock:
			return fmt.Errorf("kind %q: want %q or %q", m.Kind, KindFlow, KindBlock)
		case m.Kind == KindFlow && (!flow || m.Block != nil || m.Hop != nil || m.Pipeline != nil):
			return errors.New("a flow: want its coflow and flow, and no block, hop and pipeline")
		case m.Kind == KindBlock && (!block || m.Coflow != nil || m.Flow != nil):
			return errors.New("a hop of a block: want its block, hop and pipeline, and no coflow and flow")
		case m.Received > m.Size:
			return fmt.Errorf("received_bytes: %d of %d", m.Received, m.Size)
		}
		k := m.transfer()
		if last == nil || last.transfer() != k {
			if seen[k] {
				return errors.New("its transfer is there twice: want its rows together")
			}
			seen[k] = true
		} else if m.At < last.At || m.Received <= last.Received || m.Size != last.Size {
			return fmt.Errorf("%d of %d bytes at %v, after %d of %d at %v: want time and bytes to go forward", m.Received, m.Size, m.At, last.Received, last.Size, last.At)
		}
		if f := ends[id{m.Arm, m.Repeat, k.member}]; m.Kind == KindFlow && f != nil && f.Coflow == *m.Coflow && m.Received == m.Size && m.At != f.End {
			return fmt.Errorf("flow %d is complete at %v, and at %v in %s", f.Flow, m.At, f.End, report.FlowsFile)
		}
		kept := *m
		last = &kept
		return nil
	}
}

// truth reads true or false; an empty cell is false.
func truth[T any](at func(*T) *bool) func(*T, string) error {
	return func(row *T, cell string) error {
		if cell != "" && cell != "true" && cell != "false" {
			return fmt.Errorf("%q: want true or false", cell)
		}
		*at(row) = cell == "true"
		return nil
	}
}

func words(s string) ([]string, error) { return strings.Fields(s), nil }

func cause(s string) (timing.Cause, error) {
	if s == "" {
		return "", errors.New("empty: want a cause, such as queueing")
	}
	return timing.Cause(s), nil
}

// rows reads a table. It is nil, without an error, where the run has no such file.
func rows[T any](r *Run, name string, columns []column[T], check func(*T) error) ([]T, error) {
	f, err := os.Open(filepath.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := ended(f); err != nil {
		return nil, r.damaged(name, 0, err.Error())
	}
	c := csv.NewReader(f)
	c.ReuseRecord = true
	head, err := c.Read()
	if err != nil {
		return nil, r.damaged(name, 1, "no line of column names: "+err.Error())
	}
	place := make([]int, len(columns))
	for i, col := range columns {
		place[i] = slices.Index(head, col.name)
		if place[i] < 0 && col.required {
			return nil, r.damaged(name, 1, fmt.Sprintf("no column %s", col.name))
		}
		if place[i] >= 0 && slices.Contains(head[place[i]+1:], col.name) {
			return nil, r.damaged(name, 1, fmt.Sprintf("two columns %s", col.name))
		}
	}
	out := []T{}
	for {
		cells, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return nil, r.damaged(name, bad.Line, bad.Err.Error())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := c.FieldPos(0)
		var row T
		for i, col := range columns {
			if place[i] < 0 {
				continue
			}
			// Cells share the line's memory, which a row that is kept should not hold.
			if err := col.set(&row, strings.Clone(cells[place[i]])); err != nil {
				return nil, r.damaged(name, line, fmt.Sprintf("%s: %v", col.name, err))
			}
		}
		if err := check(&row); err != nil {
			return nil, r.damaged(name, line, err.Error())
		}
		out = append(out, row)
	}
}

// ended tells a file that was cut short: the last line has an end.
func ended(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errors.New("it is empty")
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		return errors.New("its last line has no end: it was cut short")
	}
	return nil
}

// item is a row of one flow, coflow or block.
type item struct {
	key  Key
	id   int
	from time.Duration
	to   time.Duration
	time time.Duration
}

// check is what holds of the rows of a table of items: they are of the run's arms,
// each is there once, and its times agree.
func (r *Run) check(what string) func(item) error {
	type id struct {
		arm        string
		repeat, id int
	}
	seen := map[id]bool{}
	return func(x item) error {
		if err := r.known(x.key); err != nil {
			return err
		}
		k := id{x.key.Arm, x.key.Repeat, x.id}
		if seen[k] {
			return fmt.Errorf("%s %d of arm %s, repeat %d, is there twice", what, x.id, x.key.Arm, x.key.Repeat)
		}
		seen[k] = true
		if x.to-x.from != x.time {
			return fmt.Errorf("%s %d takes %v, but goes from %v to %v", what, x.id, x.time, x.from, x.to)
		}
		return nil
	}
}

// known checks that a row is of a repeat of the summary.
func (r *Run) known(k Key) error {
	a := r.Arm(k.Arm)
	switch {
	case a == nil:
		return fmt.Errorf("arm %q is not in %s, which has %s", k.Arm, report.SummaryFile, strings.Join(r.Arms(), ", "))
	case k.Repeat >= a.Repeats:
		return fmt.Errorf("repeat %d: %s has %d repeats of arm %s, counted from 0", k.Repeat, report.SummaryFile, a.Repeats, k.Arm)
	case k.Verdict != r.verdictOf(a, k.Repeat):
		return fmt.Errorf("verdict %q of arm %s, repeat %d: %s has %q", k.Verdict, k.Arm, k.Repeat, report.SummaryFile, r.verdictOf(a, k.Repeat))
	}
	return nil
}

// tables reads the CSV files.
func (r *Run) tables() (err error) {
	one := r.check("flow")
	if r.Flows, err = rows(r, report.FlowsFile, flowColumns, func(f *Flow) error {
		return one(item{f.Key, int(f.Flow), f.Arrival, f.End, f.FCT})
	}); err != nil {
		return err
	}
	one = r.check("coflow")
	if r.Coflows, err = rows(r, report.CoflowsFile, coflowColumns, func(c *Coflow) error {
		return one(item{c.Key, int(c.Coflow), c.Arrival, c.End, c.CCT})
	}); err != nil {
		return err
	}
	one = r.check("block")
	if r.Blocks, err = rows(r, report.BlocksFile, blockColumns, func(b *Block) error {
		return one(item{b.Key, int(b.Block), b.Requested, b.End, b.WriteTime})
	}); err != nil {
		return err
	}
	if err := r.joined(); err != nil {
		return err
	}
	for _, x := range []struct {
		name    string
		missing bool
	}{{report.FlowsFile, r.Flows == nil}, {report.CoflowsFile, r.Coflows == nil}, {report.BlocksFile, r.Blocks == nil}} {
		if x.missing {
			return fmt.Errorf("%s is missing (%s)", x.name, r.again())
		}
	}
	if r.Breakdown, err = rows(r, report.BreakdownFile, shareColumns, func(s *Share) error { return r.known(s.Key) }); err != nil {
		return err
	}
	if r.Links, err = rows(r, report.LinksFile, loadColumns, func(l *Load) error {
		if l.Interval <= 0 {
			return fmt.Errorf("interval_us: %v: want more than 0", l.Interval)
		}
		return r.known(l.Key)
	}); err != nil {
		return err
	}
	if r.Progress, err = rows(r, report.ProgressFile, momentColumns, r.progress()); err != nil {
		return err
	}
	if err := r.markFailed(); err != nil {
		return err
	}
	return r.counted()
}

// joined reads the tables that a report has where it knows what was asked. A file that
// the summary has no figures of is another report's.
func (r *Run) joined() (err error) {
	figures := func(of func(*report.ArmSummary) bool) bool {
		for i := range r.Summary.Arms {
			if of(&r.Summary.Arms[i]) {
				return true
			}
		}
		return false
	}
	if figures(func(a *report.ArmSummary) bool { return a.RequestTime != nil }) {
		one := r.check("writer")
		if r.Requests, err = rows(r, report.RequestsFile, requestColumns, func(x *Request) error {
			return one(item{x.Key, int(x.Writer), x.Requested, x.End, x.RequestTime})
		}); err != nil {
			return err
		}
	}
	if figures(func(a *report.ArmSummary) bool { return a.JobTime != nil }) {
		one := r.check("job")
		if r.Jobs, err = rows(r, report.JobsFile, jobColumns, func(x *Job) error {
			return one(item{x.Key, int(x.Job), x.Arrival, x.End, x.JobTime})
		}); err != nil {
			return err
		}
	}
	if figures(func(a *report.ArmSummary) bool { return a.Placement != nil && a.Placement.Cv != nil }) {
		r.Balance, err = rows(r, report.BalanceFile, balanceColumns, func(x *Balance) error {
			if x.Interval <= 0 || x.Cv < 0 {
				return fmt.Errorf("interval_us %v, cv %v: want more than 0, and 0 or more", x.Interval, x.Cv)
			}
			return r.known(x.Key)
		})
	}
	return err
}

// markFailed marks the rows of what was given up and ended all the same, as the
// summary lists it.
func (r *Run) markFailed() error {
	type id struct {
		arm        string
		repeat, id int
	}
	flow, coflow, block := map[id]bool{}, map[id]bool{}, map[id]bool{}
	for _, a := range r.Summary.Arms {
		if a.Failures == nil {
			continue
		}
		for i, f := range a.Failures.List {
			at := func(n int) id { return id{a.Name, f.Repeat, n} }
			switch {
			case f.Kind == flows.FailedFlow && f.Flow != nil && f.Coflow != nil:
				flow[at(int(*f.Flow))], coflow[at(int(*f.Coflow))] = true, true
			case f.Kind == flows.FailedBlock && f.Block != nil:
				block[at(int(*f.Block))] = true
			case f.Kind == flows.FailedReplica: // the block went on without it
			default:
				return r.damaged(report.SummaryFile, 0, fmt.Sprintf("arm %q: entry %d of failures.list (%s) does not say in kind, coflow, flow and block what failed: an older version wrote it", a.Name, i, f.What))
			}
		}
	}
	for i := range r.Flows {
		x := &r.Flows[i]
		x.Failed = flow[id{x.Arm, x.Repeat, int(x.Flow)}]
	}
	for i := range r.Coflows {
		x := &r.Coflows[i]
		x.Failed = coflow[id{x.Arm, x.Repeat, int(x.Coflow)}]
	}
	for i := range r.Blocks {
		x := &r.Blocks[i]
		x.Failed = block[id{x.Arm, x.Repeat, int(x.Block)}]
	}
	return nil
}

// counted checks that the files have as many items as the summary is of, so that no
// figure is of half a file.
func (r *Run) counted() error {
	for _, a := range r.Summary.Arms {
		if a.Void() {
			continue
		}
		for _, x := range []struct {
			name string
			m    *report.Metric
			n    int
		}{
			{report.FlowsFile, a.FCT, len(r.FCTs(a.Name))},
			{report.CoflowsFile, a.CCT, len(r.CCTs(a.Name))},
			{report.BlocksFile, a.WriteTime, len(r.WriteTimes(a.Name))},
			{report.RequestsFile, a.RequestTime, len(r.RequestTimes(a.Name))},
			{report.JobsFile, a.JobTime, len(r.JobTimes(a.Name))},
		} {
			want := 0
			if x.m != nil {
				want = x.m.N
			}
			if x.n != want {
				return r.damaged(x.name, 0, fmt.Sprintf("it has %d completed items of arm %s, and %s has %d: they were not written together, or one was cut short", x.n, a.Name, report.SummaryFile, want))
			}
		}
		if p := a.Placement; p != nil && p.Cv != nil {
			n := 0
			for _, b := range r.Balance {
				if b.Arm == a.Name {
					n++
				}
			}
			if n != p.Cv.N {
				return r.damaged(report.BalanceFile, 0, fmt.Sprintf("it has %d samples of arm %s, and %s has %d: they were not written together, or one was cut short", n, a.Name, report.SummaryFile, p.Cv.N))
			}
		}
	}
	return nil
}
