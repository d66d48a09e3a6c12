package workloads

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Trace is a coflow trace in the form of the public coflow-benchmark: coflows
// between the ports of one big switch, each port a rack.
type Trace struct {
	Name    string // in errors: the file it was read from
	Ports   int    // numbered from 0
	Coflows []TraceCoflow
}

// TraceCoflow is one coflow of a trace. Each reducer fetches the same amount
// from each mapper.
type TraceCoflow struct {
	ID       CoflowID
	Arrival  time.Duration // whole milliseconds since the start of the trace
	Mappers  []int         // ports that send, each once
	Reducers []TraceReducer
}

// TraceReducer is one receiving port of a coflow.
type TraceReducer struct {
	Port int
	Size Megabytes // over all mappers
}

// Bounds of what ParseTrace accepts, far above any trace known: they keep all
// sums over a trace within 63 bits.
const (
	MaxTracePorts   = 100_000
	MaxTraceCoflows = 10_000_000
	maxTraceID      = math.MaxInt32
	maxTraceArrival = math.MaxInt64 / int64(time.Millisecond) // ms
	maxReducerSize  = 10_000_000 * megabyte
	maxTraceSize    = 1_000_000_000_000 * megabyte
	maxTraceFlows   = math.MaxInt32
)

// Megabytes is an amount of data in millionths of a MB. A trace does not say
// whether its MB is 10⁶ or 2²⁰ bytes: ReplayOptions.MB does.
type Megabytes int64

const megabyte Megabytes = 1_000_000

// parseMegabytes reads a decimal above 0. Decimals beyond the sixth, of which
// none is as much as two bytes, are rounded up.
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

// String prints the decimal as traces have it, such as "65.0" or "0.125".
func (m Megabytes) String() string {
	frac := strings.TrimRight(fmt.Sprintf("%06d", m%megabyte), "0")
	if frac == "" {
		frac = "0"
	}
	return fmt.Sprintf("%d.%s", m/megabyte, frac)
}

// Width is the number of flows: mappers times reducers.
func (c TraceCoflow) Width() int { return len(c.Mappers) * len(c.Reducers) }

// Size is the sum over the reducers.
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

// Bin is the class of a coflow by the length of its largest flow and by its
// width, as the evaluations of Varys (SIGCOMM 2014) and Aalo (SIGCOMM 2015)
// report it.
type Bin uint8

// The bins: short or long, narrow or wide.
const (
	ShortNarrow Bin = iota
	LongNarrow
	ShortWide
	LongWide
)

// Bounds of the bins. These two, both inclusive and with width counted in
// flows, reproduce the published split of the Facebook trace.
const (
	ShortFlow    = 5 * megabyte // a short coflow's largest flow
	NarrowCoflow = 50           // a narrow coflow's flows
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

// Bin is the coflow's class.
func (c TraceCoflow) Bin() Bin {
	b := ShortNarrow
	if c.largestReducer() > ShortFlow*Megabytes(len(c.Mappers)) {
		b = LongNarrow
	}
	if c.Width() > NarrowCoflow {
		b += ShortWide
	}
	return b
}

// LowerBound is the least time the coflow takes on an idle non-blocking fabric
// whose ports move 1 MB in perMB: its busiest port's. It is rounded down.
func (c TraceCoflow) LowerBound(perMB time.Duration) time.Duration {
	m := Megabytes(len(c.Mappers))
	if m == 0 || perMB <= 0 {
		return 0
	}
	busiest := max(c.largestReducer()*m, c.Size()) // times m
	hi, lo := bits.Mul64(uint64(busiest), uint64(perMB))
	den := uint64(m * megabyte)
	if hi >= den {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, den)
	return time.Duration(min(quo, math.MaxInt64))
}
