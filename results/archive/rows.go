package archive

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
