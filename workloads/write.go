package workloads

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"
)

// WriteTrace writes t in the format that ParseTrace reads: what it writes reads
// back as the same trace. A trace that the format cannot hold is an error, and
// nothing is written.
func WriteTrace(w io.Writer, t *Trace) error {
	if err := t.checkBenchmark(); err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%d %d\n", t.Ports, len(t.Coflows))
	for _, c := range t.Coflows {
		fmt.Fprintf(b, "%d %d %d", c.ID, c.Arrival.Milliseconds(), len(c.Mappers))
		for _, port := range c.Mappers {
			fmt.Fprintf(b, " %d", port)
		}
		fmt.Fprintf(b, " %d", len(c.Reducers))
		for _, r := range c.Reducers {
			fmt.Fprintf(b, " %d:%v", r.Port, r.Size)
		}
		b.WriteByte('\n')
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write trace %s: %w", t.Name, err)
	}
	return nil
}

// checkBenchmark finds the first thing that the format cannot hold.
func (t *Trace) checkBenchmark() error {
	if err := t.check(); err != nil {
		return err
	}
	for _, c := range t.Coflows {
		if c.Arrival%time.Millisecond != 0 {
			return fmt.Errorf("trace %s: coflow %d: arrival %v: want whole milliseconds", t.Name, c.ID, c.Arrival)
		}
		if !c.even() {
			return fmt.Errorf("trace %s: coflow %d: its flows to one reducer differ in size, which a line of coflow-benchmark cannot say", t.Name, c.ID)
		}
	}
	return nil
}

// check finds the first thing that no trace may have.
func (t *Trace) check() error {
	if t.Ports < 1 || t.Ports > MaxTracePorts {
		return fmt.Errorf("trace %s: %d ports: want 1 to %d", t.Name, t.Ports, MaxTracePorts)
	}
	if len(t.Coflows) < 1 || len(t.Coflows) > MaxTraceCoflows {
		return fmt.Errorf("trace %s: %d coflows: want 1 to %d", t.Name, len(t.Coflows), MaxTraceCoflows)
	}
	lastID, lastAt := CoflowID(-1), time.Duration(0)
	var size Megabytes
	flows := 0
	for _, c := range t.Coflows {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("trace %s: coflow %d: %s", t.Name, c.ID, fmt.Sprintf(format, args...))
		}
		if c.ID <= lastID || c.ID > maxTraceID {
			return bad("want ids ascending from 0 to %d", maxTraceID)
		}
		if c.Arrival < lastAt {
			return bad("arrival %v: want 0 or more, not going back", c.Arrival)
		}
		lastID, lastAt = c.ID, c.Arrival
		ports := make([]int, len(c.Reducers))
		for i, r := range c.Reducers {
			ports[i] = r.Port
			if r.Size < 1 || r.Size > maxReducerSize {
				return bad("%v MB: want more than 0 and at most %v", r.Size, maxReducerSize)
			}
			size += r.Size
			if err := r.checkFlows(len(c.Mappers)); err != nil {
				return bad("reducer's port %d: %v", r.Port, err)
			}
		}
		for _, list := range [][]int{c.Mappers, ports} {
			if len(list) == 0 {
				return bad("want a mapper and a reducer")
			}
			seen := map[int]bool{}
			for _, port := range list {
				if port < 0 || port >= t.Ports || seen[port] {
					return bad("port %d: want each once, 0 to %d", port, t.Ports-1)
				}
				seen[port] = true
			}
		}
		if i := c.idleMapper(); i >= 0 {
			return bad("mapper's port %d sends nothing: want a flow of every mapper", c.Mappers[i])
		}
		if size > maxTraceSize {
			return bad("more than %v MB up to here", maxTraceSize)
		}
		if flows += c.Width(); flows > maxTraceFlows {
			return bad("more than %d flows up to here", maxTraceFlows)
		}
	}
	return nil
}

// checkFlows finds flows that do not make up the reducer's size.
func (r TraceReducer) checkFlows(mappers int) error {
	if r.Flows == nil {
		return nil
	}
	if len(r.Flows) != mappers {
		return fmt.Errorf("%d flows from %d mappers: want one of each, 0 where there is none", len(r.Flows), mappers)
	}
	left := r.Size
	for _, f := range r.Flows {
		if f < 0 || f > left {
			return fmt.Errorf("flows of %v MB and more in all: want %v, none below 0", r.Size-left+max(f, 0), r.Size)
		}
		left -= f
	}
	if left > 0 {
		return fmt.Errorf("flows of %v MB in all: want %v", r.Size-left, r.Size)
	}
	return nil
}

// idleMapper is the index of the first mapper without a flow, or -1.
func (c TraceCoflow) idleMapper() int {
	sends := make([]bool, len(c.Mappers))
	for _, r := range c.Reducers {
		if r.Flows == nil {
			return -1
		}
		for i, f := range r.Flows {
			sends[i] = sends[i] || f > 0
		}
	}
	return slices.Index(sends, false)
}

// even tells whether each reducer of the coflow fetches the same from each mapper.
func (c TraceCoflow) even() bool {
	for _, r := range c.Reducers {
		if r.Flows != nil && slices.Min(r.Flows) != slices.Max(r.Flows) {
			return false
		}
	}
	return true
}
