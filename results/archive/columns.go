package archive

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"testbed/results/timing"
	"testbed/topo/units"
	"testbed/workloads"
)

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
