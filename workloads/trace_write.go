package workloads

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// WriteTrace writes t in the format of ParseTrace. Parsing the output returns the same
// trace, except that equal TraceReducer.Flows become nil, and except InBytes. If the
// format cannot represent the trace, it returns an error and writes nothing.
func WriteTrace(w io.Writer, t *Trace) error { return WriteTraceAs(w, t, FormatBenchmark) }

// WriteTraceAs writes t in a format. If the format cannot represent the trace, it returns an
// error and writes nothing; Fit returns a trace that the format can represent.
func WriteTraceAs(w io.Writer, t *Trace, format TraceFormat) error {
	if err := t.check(); err != nil {
		return err
	}
	lines := map[TraceFormat]func(*Trace) (func(func(string, ...any)), error){
		FormatBenchmark: (*Trace).benchmarkLines, FormatFlows: (*Trace).flowsLines, FormatHTSim: (*Trace).htsimLines,
	}[format]
	if lines == nil {
		_, err := ParseTraceFormat(string(format))
		return err
	}
	write, err := lines(t)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	write(func(format string, args ...any) { fmt.Fprintf(b, format, args...) })
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write trace %s: %w", t.Name, err)
	}
	return nil
}

// benchmarkLines returns the function that writes the trace as coflow-benchmark.
func (t *Trace) benchmarkLines() (func(out func(string, ...any)), error) {
	if err := t.checkBenchmark(); err != nil {
		return nil, err
	}
	return func(out func(string, ...any)) {
		out("%d %d\n", t.Ports, len(t.Coflows))
		for _, c := range t.Coflows {
			out("%d %d %d", c.ID, c.Arrival.Milliseconds(), len(c.Mappers))
			for _, port := range c.Mappers {
				out(" %d", port)
			}
			out(" %d", len(c.Reducers))
			for _, r := range c.Reducers {
				out(" %d:%v", r.Port, r.Size)
			}
			out("\n")
		}
	}, nil
}

// flowsLines returns the function that writes the trace in the flows format. In bytes it
// writes every flow, for other readers of the format, unless flows are not whole bytes.
func (t *Trace) flowsLines() (func(out func(string, ...any)), error) {
	unit, size := unitMB, Megabytes.String
	if t.InBytes {
		unit, size = unitBytes, func(m Megabytes) string { return strconv.FormatInt(int64(m), 10) }
	}
	for _, c := range t.Coflows {
		// The longest port and the longest size, each with a space.
		if cells := len(c.Mappers) + len(c.Reducers)*(1+len(c.Mappers)); cells > maxTraceLine/16 {
			return nil, fmt.Errorf("trace %s: coflow %d: %d mappers and %d reducers exceed the maximum line length of the flows format", t.Name, c.ID, len(c.Mappers), len(c.Reducers))
		}
	}
	return func(out func(string, ...any)) {
		out("# %s %d %s\n%d %d\n", flowsMark, flowsVersion, unit, t.Ports, len(t.Coflows))
		for _, c := range t.Coflows {
			out("%d %s %d", c.ID, milliseconds(c.Arrival), len(c.Mappers))
			for _, port := range c.Mappers {
				out(" %d", port)
			}
			out(" %d", len(c.Reducers))
			m := Megabytes(len(c.Mappers))
			for _, r := range c.Reducers {
				switch {
				case r.Flows != nil:
					out(" %d", r.Port)
					for _, f := range r.Flows {
						if f == 0 {
							out(" 0")
							continue
						}
						out(" %s", size(f))
					}
				case t.InBytes && r.Size%m == 0:
					out(" %d", r.Port)
					for range c.Mappers {
						out(" %s", size(r.Size/m))
					}
				default:
					out(" %d:%s", r.Port, size(r.Size))
				}
			}
			out("\n")
		}
	}, nil
}

// checkBenchmark returns the first property that coflow-benchmark cannot represent.
func (t *Trace) checkBenchmark() error {
	for _, c := range t.Coflows {
		if c.Arrival%time.Millisecond != 0 {
			return fmt.Errorf("trace %s: coflow %d: arrival %v: expected whole milliseconds", t.Name, c.ID, c.Arrival)
		}
		if !c.even() {
			return fmt.Errorf("trace %s: coflow %d: its flows to one reducer differ in size, which coflow-benchmark cannot represent", t.Name, c.ID)
		}
	}
	return nil
}

// check returns the first property that is invalid in any trace.
func (t *Trace) check() error {
	if t.Ports < 1 || t.Ports > MaxTracePorts {
		return fmt.Errorf("trace %s: %d ports: must be 1 to %d", t.Name, t.Ports, MaxTracePorts)
	}
	if len(t.Coflows) < 1 || len(t.Coflows) > MaxTraceCoflows {
		return fmt.Errorf("trace %s: %d coflows: must be 1 to %d", t.Name, len(t.Coflows), MaxTraceCoflows)
	}
	lastID, lastAt := CoflowID(-1), time.Duration(0)
	var size Megabytes
	flows := 0
	for _, c := range t.Coflows {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("trace %s: coflow %d: %s", t.Name, c.ID, fmt.Sprintf(format, args...))
		}
		if c.ID <= lastID || c.ID > maxTraceID {
			return bad("expected ascending ids, 0 to %d", maxTraceID)
		}
		if c.Arrival < lastAt {
			return bad("arrival %v: expected 0 or more, in ascending order", c.Arrival)
		}
		lastID, lastAt = c.ID, c.Arrival
		ports := make([]int, len(c.Reducers))
		for i, r := range c.Reducers {
			ports[i] = r.Port
			if r.Size < 1 || r.Size > maxReducerSize {
				return bad("%v MB: must be more than 0 and at most %v", r.Size, maxReducerSize)
			}
			size += r.Size
			if err := r.checkFlows(len(c.Mappers)); err != nil {
				return bad("reducer's port %d: %v", r.Port, err)
			}
		}
		for _, list := range [][]int{c.Mappers, ports} {
			if len(list) == 0 {
				return bad("expected a mapper and a reducer")
			}
			seen := map[int]bool{}
			for _, port := range list {
				if port < 0 || port >= t.Ports || seen[port] {
					return bad("port %d: expected each port once, 0 to %d", port, t.Ports-1)
				}
				seen[port] = true
			}
		}
		if i := c.idleMapper(); i >= 0 {
			return bad("mapper's port %d sends nothing: expected a flow from every mapper", c.Mappers[i])
		}
		if size > maxTraceSize {
			return bad("more than %v MB up to this coflow", maxTraceSize)
		}
		if flows += c.Width(); flows > maxTraceFlows {
			return bad("more than %d flows up to this coflow", maxTraceFlows)
		}
	}
	return nil
}

// checkFlows checks that the flows add up to the size of the reducer.
func (r TraceReducer) checkFlows(mappers int) error {
	if r.Flows == nil {
		return nil
	}
	if len(r.Flows) != mappers {
		return fmt.Errorf("%d flows from %d mappers: expected one per mapper, 0 for none", len(r.Flows), mappers)
	}
	left := r.Size
	for _, f := range r.Flows {
		if f < 0 || f > left {
			return fmt.Errorf("flows of %v MB or more in total: expected %v, none negative", r.Size-left+max(f, 0), r.Size)
		}
		left -= f
	}
	if left > 0 {
		return fmt.Errorf("flows of %v MB in total: expected %v", r.Size-left, r.Size)
	}
	return nil
}

// idleMapper returns the index of the first mapper without a flow, or -1.
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

// even reports whether each reducer of the coflow fetches the same amount from each mapper.
func (c TraceCoflow) even() bool {
	for _, r := range c.Reducers {
		if r.Flows != nil && slices.Min(r.Flows) != slices.Max(r.Flows) {
			return false
		}
	}
	return true
}
