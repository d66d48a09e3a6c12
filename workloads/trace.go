package workloads

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
)

// Trace is a coflow trace: coflows between the ports of one big switch, where each port is
// a rack or a host. All trace formats are read into it and written from it.
type Trace struct {
	Name  string // the name of its file, for errors
	Ports int    // numbered from 0
	// InBytes reports that sizes are known in bytes: a MB of this trace is 10⁶ bytes.
	// Otherwise the trace does not define its MB, like the trace of Facebook, and
	// ReplayOptions.MB does.
	InBytes bool
	Coflows []TraceCoflow // by ID, which ascend; arrivals do not decrease
}

// TraceCoflow is one coflow of a trace. Without TraceReducer.Flows each reducer
// fetches the same amount from each mapper.
type TraceCoflow struct {
	ID       CoflowID
	Arrival  time.Duration // since the start of the trace; in coflow-benchmark whole milliseconds
	Mappers  []int         // ports that send, without duplicates
	Reducers []TraceReducer
}

// TraceReducer is one receiving port of a coflow.
type TraceReducer struct {
	Port int
	Size Megabytes // from all mappers
	// Flows is the size of the flow from each mapper, by index of Mappers. The sum is
	// Size; 0 means no flow. nil means equal flows, of Size divided by the number of
	// mappers, which need not be a whole Megabytes.
	Flows []Megabytes
}

// Limits of ParseTrace, far above any known trace. They keep all sums over a trace within
// 63 bits.
const (
	MaxTracePorts   = 100_000
	MaxTraceCoflows = 10_000_000
	maxTraceID      = math.MaxInt32
	maxTraceArrival = math.MaxInt64 / int64(time.Millisecond) // ms
	maxReducerSize  = 10_000_000 * megabyte
	maxTraceSize    = 1_000_000_000_000 * megabyte
	maxTraceFlows   = math.MaxInt32
)

// Megabytes is an amount of data in millionths of a MB. If a trace
// is not InBytes, ReplayOptions.MB defines whether its MB is 10⁶ or 2²⁰ bytes.
type Megabytes int64

const megabyte Megabytes = 1_000_000

// DefaultMB is the MB of a trace that does not define it, unless the user does. All sizes of the
// program are in units of 10⁶ bytes, and at 1 Gbps such a MB takes 8 ms, as in the papers on
// coflows: their simulators use 10⁶ bytes, or 2²⁰ at correspondingly higher rates.
const DefaultMB = units.MB

// ParseMB returns the bytes of a MB by its name, MB or MiB; DefaultMB for "".
func ParseMB(name string) (units.Bytes, error) {
	switch name {
	case "":
		return DefaultMB, nil
	case "MB":
		return units.MB, nil
	case "MiB":
		return units.MiB, nil
	}
	return 0, fmt.Errorf("%q: must be MB (10⁶ bytes) or MiB (2²⁰ bytes)", units.Clip(name))
}

// MBNote states the bytes of a MB, which is units.MB or units.MiB.
func MBNote(mb units.Bytes) string {
	if mb == units.MiB {
		return "1 MB is 2²⁰ bytes"
	}
	return "1 MB is 10⁶ bytes"
}

// parseMegabytes parses a decimal above 0. It rounds up at the sixth decimal, which is
// less than two bytes.
func parseMegabytes(s string) (Megabytes, bool) {
	whole, frac, dotted := strings.Cut(s, ".")
	if !digits(whole) || dotted && !digits(frac) {
		return 0, false
	}
	up := Megabytes(0)
	if len(frac) > 6 {
		if strings.Trim(frac[6:], "0") != "" {
			up = 1
		}
		frac = frac[:6]
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil || n > int64(maxReducerSize) || Megabytes(n)+up == 0 {
		return 0, false
	}
	return min(Megabytes(n)+up, maxReducerSize), true
}

// String returns the decimal as in traces, such as "65.0" or "0.125".
func (m Megabytes) String() string {
	frac := strings.TrimRight(fmt.Sprintf("%06d", m%megabyte), "0")
	if frac == "" {
		frac = "0"
	}
	return fmt.Sprintf("%d.%s", m/megabyte, frac)
}

// Width returns the number of flows: mappers times reducers, except those that
// TraceReducer.Flows omits.
func (c TraceCoflow) Width() int {
	n := 0
	for _, r := range c.Reducers {
		n += r.width(len(c.Mappers))
	}
	return n
}

// width returns the number of mappers, out of n, that send to the reducer.
func (r TraceReducer) width(mappers int) int {
	if r.Flows == nil {
		return mappers
	}
	n := 0
	for _, f := range r.Flows {
		if f > 0 {
			n++
		}
	}
	return n
}

// Flow returns the size of the flow from a mapper to a reducer, by index, as an exact
// quotient; 0/1 if there is no flow.
func (c TraceCoflow) Flow(mapper, reducer int) (size Megabytes, over int64) {
	r := c.Reducers[reducer]
	if r.Flows == nil {
		return r.Size, int64(len(c.Mappers))
	}
	return r.Flows[mapper], 1
}

// FlowBytes returns Flow in bytes, for the given MB, rounded up; 0 if there is no flow.
func (c TraceCoflow) FlowBytes(mapper, reducer int, mb units.Bytes) units.Bytes {
	size, over := c.Flow(mapper, reducer)
	if size == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(size), uint64(mb))
	den := uint64(int64(megabyte) * over)
	if hi >= den {
		return math.MaxInt64
	}
	n, rem := bits.Div64(hi, lo, den)
	if rem > 0 {
		n++
	}
	return units.Bytes(min(n, math.MaxInt64))
}

// MB returns the number of bytes in a MB of the trace: 10⁶ if it is InBytes, otherwise
// unstated.
func (t *Trace) MB(unstated units.Bytes) units.Bytes {
	if t.InBytes {
		return units.MB
	}
	return unstated
}

// Size returns the sum over the reducers.
func (c TraceCoflow) Size() Megabytes {
	var n Megabytes
	for _, r := range c.Reducers {
		n += r.Size
	}
	return n
}

func (c TraceCoflow) largestReducer() Megabytes {
	var n Megabytes
	for _, r := range c.Reducers {
		n = max(n, r.Size)
	}
	return n
}

// Length returns the size of the largest flow, rounded up to a Megabytes.
func (c TraceCoflow) Length() Megabytes {
	var n Megabytes
	for _, r := range c.Reducers {
		if m := Megabytes(len(c.Mappers)); r.Flows == nil {
			n = max(n, (r.Size+m-1)/m)
			continue
		}
		n = max(n, slices.Max(r.Flows))
	}
	return n
}

// Bin is the class of a coflow by the length of its largest flow and by its width, as in
// the evaluations of Varys (SIGCOMM 2014) and Aalo (SIGCOMM 2015).
type Bin uint8

// The bins: short or long, narrow or wide.
const (
	ShortNarrow Bin = iota
	LongNarrow
	ShortWide
	LongWide
)

// Bounds of the bins, both inclusive, with the width in flows. They reproduce the
// published split of the Facebook trace.
const (
	ShortFlow    = 5 * megabyte // maximum length of a short coflow
	NarrowCoflow = 50           // maximum width of a narrow coflow
)

func (b Bin) String() string {
	switch b {
	case ShortNarrow:
		return "SN"
	case LongNarrow:
		return "LN"
	case ShortWide:
		return "SW"
	case LongWide:
		return "LW"
	}
	return fmt.Sprintf("Bin(%d)", uint8(b))
}

// shortBytes is ShortFlow in bytes, for traces that are InBytes: the MB of the published
// bins is 2²⁰ bytes in the simulators of their authors.
const shortBytes = 5 * units.MiB

// Bin returns the class of the coflow, in a trace that is not InBytes.
func (c TraceCoflow) Bin() Bin { return c.bin(ShortFlow) }

// Bin returns the class of a coflow of the trace. If sizes are known in bytes, a short
// coflow has no flow above 5 MiB.
func (t *Trace) Bin(c TraceCoflow) Bin {
	if t.InBytes {
		return c.bin(Megabytes(shortBytes))
	}
	return c.bin(ShortFlow)
}

func (c TraceCoflow) bin(short Megabytes) Bin {
	b := ShortNarrow
	if c.Length() > short {
		b = LongNarrow
	}
	if c.Width() > NarrowCoflow {
		b += ShortWide
	}
	return b
}

// LowerBound returns the minimum completion time of the coflow on an idle non-blocking
// fabric whose ports move 1 MB in perMB: that of its busiest port. It is rounded down.
func (c TraceCoflow) LowerBound(perMB time.Duration) time.Duration {
	m := Megabytes(len(c.Mappers))
	if m == 0 || perMB <= 0 {
		return 0
	}
	// Senders: the part that all send equally, times m, and the rest of the busiest one.
	var alike, most Megabytes
	var besides []Megabytes
	for _, r := range c.Reducers {
		if r.Flows == nil {
			alike += r.Size
			continue
		}
		if besides == nil {
			besides = make([]Megabytes, len(c.Mappers))
		}
		for i, f := range r.Flows {
			besides[i] += f
			most = max(most, besides[i])
		}
	}
	// The bytes of the busiest port are whole + rest/m. Either times m can overflow.
	whole, rest := most+alike/m, alike%m
	if r := c.largestReducer(); r > whole {
		whole, rest = r, 0
	}
	n := big.NewInt(int64(whole))
	n.Mul(n, big.NewInt(int64(m))).Add(n, big.NewInt(int64(rest)))
	n.Mul(n, big.NewInt(int64(perMB))).Quo(n, big.NewInt(int64(m*megabyte)))
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(n.Int64())
}
