package workloads

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/topo/units"
)

// TraceStats describes a trace. Sizes are in the trace's MB; if the trace does not define
// it, BytesAtMB and BytesAtMiB are the two interpretations. Shares are of all bytes unless
// stated otherwise. Ties go to the lower id or port.
type TraceStats struct {
	Trace   string `json:"trace"`
	InBytes bool   `json:"in_bytes"` // a MB is 10⁶ bytes
	// PerMB is the time in which a port moves 1 MB, for bounds.
	PerMB time.Duration `json:"ns_per_mb"`

	Coflows     int   `json:"coflows"`
	Ports       int   `json:"ports"`
	PortsUsed   int   `json:"ports_used"` // that send or receive
	UnusedPorts []int `json:"unused_ports"`
	Flows       int   `json:"flows"`

	Size       float64      `json:"size_mb"`
	BytesAtMB  units.Bytes  `json:"bytes_at_mb"` // with a MB of 10⁶ bytes
	BytesAtMiB *units.Bytes `json:"bytes_at_mib,omitempty"`
	MeanSize   float64      `json:"mean_size_mb"`

	First float64  `json:"first_arrival_ms"`
	Last  float64  `json:"last_arrival_ms"`
	Gaps  *GapStat `json:"gaps,omitempty"` // of two coflows or more

	Send    PortStat `json:"send"`
	Receive PortStat `json:"receive"`

	Largest CoflowStat `json:"largest"`
	Widest  CoflowStat `json:"widest"`
	Top     []TopStat  `json:"top"`

	SingleFlow int `json:"single_flow_coflows"`
	Thin       int `json:"thin_coflows"` // of at most ThinCoflow flows
	OneMapper  int `json:"one_mapper_coflows"`
	OneReducer int `json:"one_reducer_coflows"`
	EqualFlows int `json:"equal_flows_coflows"` // all flows of one size
	// Uneven counts coflows in which a reducer fetches different amounts from mappers.
	Uneven int       `json:"uneven_coflows"`
	Local  LocalStat `json:"local"`

	Quantiles []QuantileStat `json:"quantiles"`
	Bins      []BinStat      `json:"bins"`
}

// ThinCoflow is the maximum number of flows of a coflow for which Philae (ATC 2019,
// threshold T) uses no pilots.
const ThinCoflow = 7

// GapStat describes the gaps between successive arrivals, in ms.
type GapStat struct {
	Min  float64 `json:"min_ms"`
	P50  float64 `json:"p50_ms"`
	Mean float64 `json:"mean_ms"`
	Max  float64 `json:"max_ms"`
}

// PortStat describes the data that ports send, or receive, over the whole trace. The mean is
// over all ports of the trace, used or not.
type PortStat struct {
	Mean float64 `json:"mean_mb"`
	Max  float64 `json:"max_mb"`
	Port int     `json:"max_port"`
	Time float64 `json:"max_port_ms"` // the time in which this port moves it
}

// CoflowStat is one coflow.
type CoflowStat struct {
	ID       CoflowID `json:"id"`
	Size     float64  `json:"size_mb"`
	Share    float64  `json:"share"`
	Mappers  int      `json:"mappers"`
	Reducers int      `json:"reducers"`
	Flows    int      `json:"flows"`
	Arrival  float64  `json:"arrival_ms"`
}

// TopStat describes the largest coflows, largest first.
type TopStat struct {
	Coflows int        `json:"coflows"`
	Share   float64    `json:"share"`
	IDs     []CoflowID `json:"ids"`
}

// topCoflows are the numbers of largest coflows for which the share is reported.
var topCoflows = [...]int{1, 10, 26}

// LocalStat describes flows from a port to itself.
type LocalStat struct {
	Flows   int     `json:"flows"`
	Coflows int     `json:"coflows"` // that have one
	Size    float64 `json:"size_mb"`
	Share   float64 `json:"share"`
}

// QuantileStat is the distribution of a property over coflows. Quantiles are linearly
// interpolated between the two nearest ranks, at rank p·(n−1) from 0.
type QuantileStat struct {
	Name string  `json:"name"`
	Unit string  `json:"unit,omitempty"`
	Min  float64 `json:"min"`
	P10  float64 `json:"p10"`
	P25  float64 `json:"p25"`
	P50  float64 `json:"p50"`
	P75  float64 `json:"p75"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// BinStat is one of the four bins.
type BinStat struct {
	Bin         string  `json:"bin"`
	Coflows     int     `json:"coflows"`
	CoflowShare float64 `json:"coflow_share"`
	Size        float64 `json:"size_mb"`
	Share       float64 `json:"share"`
}

// DefaultPerMB is the time in which a port moves 1 MB in the published simulations of the
// Facebook trace: 10⁶ bytes at 1 Gbit/s.
const DefaultPerMB = 8 * time.Millisecond

func (m Megabytes) float() float64 { return float64(m) / float64(megabyte) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Stats describes a trace of at least one coflow, whose ports move 1 MB in perMB.
func (t *Trace) Stats(perMB time.Duration) TraceStats {
	s := TraceStats{Trace: t.Name, InBytes: t.InBytes, PerMB: perMB, Coflows: len(t.Coflows), Ports: t.Ports, UnusedPorts: []int{}}
	send, receive := make([]float64, t.Ports), make([]float64, t.Ports)
	used := make([]bool, t.Ports)
	var total, local Megabytes
	bins := [LongWide + 1]struct {
		n    int
		size Megabytes
	}{}
	columns := []*QuantileStat{{Name: "width", Unit: "flows"}, {Name: "mappers"}, {Name: "reducers"}, {Name: "size", Unit: "MB"}, {Name: "length", Unit: "MB"}, {Name: "lower bound", Unit: "ms"}}
	values := make([][]float64, len(columns))
	for _, c := range t.Coflows {
		size, width := c.Size(), c.Width()
		total += size
		s.Flows += width
		c.addLoads(send, receive, used)
		flows, bytes := c.local()
		local += bytes
		s.Local.Flows += flows
		s.Local.Coflows += count(flows > 0)
		s.SingleFlow += count(width == 1)
		s.Thin += count(width <= ThinCoflow)
		s.OneMapper += count(len(c.Mappers) == 1)
		s.OneReducer += count(len(c.Reducers) == 1)
		s.EqualFlows += count(c.equalFlows())
		s.Uneven += count(!c.even())
		b := &bins[t.Bin(c)]
		b.n++
		b.size += size
		for i, x := range []float64{float64(width), float64(len(c.Mappers)), float64(len(c.Reducers)), size.float(), c.Length().float(), ms(c.LowerBound(perMB))} {
			values[i] = append(values[i], x)
		}
	}
	share := func(m Megabytes) float64 { return float64(m) / float64(total) }
	s.Size, s.MeanSize = total.float(), total.float()/float64(s.Coflows)
	s.BytesAtMB = units.Bytes(total)
	if !t.InBytes {
		n := t.bytesAt(units.MiB)
		s.BytesAtMiB = &n
	}
	s.Local.Size, s.Local.Share = local.float(), share(local)
	for port, u := range used {
		if !u {
			s.UnusedPorts = append(s.UnusedPorts, port)
		}
	}
	s.PortsUsed = t.Ports - len(s.UnusedPorts)
	s.First, s.Last = ms(t.Coflows[0].Arrival), ms(t.Coflows[s.Coflows-1].Arrival)
	s.Gaps = t.gaps()
	s.Send, s.Receive = portStat(send, perMB), portStat(receive, perMB)

	coflow := func(c TraceCoflow) CoflowStat {
		return CoflowStat{c.ID, c.Size().float(), share(c.Size()), len(c.Mappers), len(c.Reducers), c.Width(), ms(c.Arrival)}
	}
	bySize := slices.Clone(t.Coflows)
	slices.SortStableFunc(bySize, func(a, b TraceCoflow) int { return cmp.Compare(b.Size(), a.Size()) })
	s.Largest = coflow(bySize[0])
	s.Widest = coflow(slices.MaxFunc(t.Coflows, func(a, b TraceCoflow) int { return cmp.Compare(a.Width(), b.Width()) }))
	for _, n := range topCoflows {
		if n > s.Coflows {
			break
		}
		top := TopStat{Coflows: n}
		var size Megabytes
		for _, c := range bySize[:n] {
			size += c.Size()
			top.IDs = append(top.IDs, c.ID)
		}
		top.Share = share(size)
		s.Top = append(s.Top, top)
	}
	for i, c := range columns {
		c.Fill(values[i])
		s.Quantiles = append(s.Quantiles, *c)
	}
	for b := range bins {
		s.Bins = append(s.Bins, BinStat{Bin(b).String(), bins[b].n, float64(bins[b].n) / float64(s.Coflows), bins[b].size.float(), share(bins[b].size)})
	}
	return s
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// bytesAt returns the size of the trace for the given MB, rounded up.
func (t *Trace) bytesAt(mb units.Bytes) units.Bytes {
	var total Megabytes
	for _, c := range t.Coflows {
		total += c.Size()
	}
	whole := TraceCoflow{Mappers: []int{0}, Reducers: []TraceReducer{{Size: total}}}
	return whole.FlowBytes(0, 0, mb)
}

// addLoads adds the data that each port sends and receives, in MB.
func (c TraceCoflow) addLoads(send, receive []float64, used []bool) {
	var alike Megabytes
	for _, r := range c.Reducers {
		used[r.Port] = true
		receive[r.Port] += r.Size.float()
		if r.Flows == nil {
			alike += r.Size
		}
		for i, f := range r.Flows {
			send[c.Mappers[i]] += f.float()
		}
	}
	for _, port := range c.Mappers {
		used[port] = true
		send[port] += alike.float() / float64(len(c.Mappers))
	}
}

// local returns the number of flows from a port to itself, and their size, each rounded
// down.
func (c TraceCoflow) local() (flows int, size Megabytes) {
	at := map[int]int{}
	for i, port := range c.Mappers {
		at[port] = i
	}
	for j, r := range c.Reducers {
		if i, ok := at[r.Port]; ok {
			if f, over := c.Flow(i, j); f > 0 {
				flows++
				size += f / Megabytes(over)
			}
		}
	}
	return flows, size
}

// equalFlows reports whether all flows have the same size.
func (c TraceCoflow) equalFlows() bool {
	var one Megabytes // times the number of mappers
	m := Megabytes(len(c.Mappers))
	same := func(f Megabytes) bool {
		if one == 0 {
			one = f
		}
		return one == f
	}
	for _, r := range c.Reducers {
		if r.Flows == nil {
			if !same(r.Size) {
				return false
			}
			continue
		}
		for _, f := range r.Flows {
			if f > 0 && !same(f*m) {
				return false
			}
		}
	}
	return true
}

func (t *Trace) gaps() *GapStat {
	var gaps []float64
	for i := 1; i < len(t.Coflows); i++ {
		gaps = append(gaps, ms(t.Coflows[i].Arrival-t.Coflows[i-1].Arrival))
	}
	if gaps == nil {
		return nil
	}
	var q QuantileStat
	q.Fill(gaps)
	return &GapStat{q.Min, q.P50, q.Mean, q.Max}
}

func portStat(load []float64, perMB time.Duration) PortStat {
	var s PortStat
	for port, x := range load {
		s.Mean += x
		if x > s.Max {
			s.Max, s.Port = x, port
		}
	}
	s.Mean /= float64(len(load))
	s.Time = s.Max * ms(perMB)
	return s
}

// Fill computes the statistics of values, which it sorts.
func (q *QuantileStat) Fill(values []float64) {
	slices.Sort(values)
	n := len(values)
	at := func(p float64) float64 {
		rank := p * float64(n-1)
		low := int(math.Floor(rank))
		if low == n-1 {
			return values[low]
		}
		return values[low] + float64((rank-float64(low))*(values[low+1]-values[low]))
	}
	q.Min, q.P10, q.P25, q.P50, q.P75, q.P90, q.P95, q.P99, q.Max = values[0], at(.1), at(.25), at(.5), at(.75), at(.9), at(.95), at(.99), values[n-1]
	for _, x := range values {
		q.Mean += x
	}
	q.Mean /= float64(n)
}
