// Package samples writes and reads what a trial saw over time: queues, counters of links, connections of flows
// and the lateness of timers, as a stream of samples in one Parquet file, which pandas and DuckDB open.
//
// A row is the value of a metric of an object at a moment. The metadata of the file has the Head, and unit and
// description of each metric. The package derives nothing from samples: emu/fidelity judges, results/export and
// results/plot show.
package samples

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// File is the name of the file in the directory of a trial.
const File = "samples.parquet"

// Sample is the value of a metric of an object at a moment.
type Sample struct {
	At     time.Duration // since the start of the trial; negative before it
	Object string        // a directed link, as from>to; FlowObject of a flow; Machine or Links
	Metric string        // the name of one of Metrics
	Value  int64         // in the unit of the metric
}

// Objects that are no links or flows.
const (
	Machine = "machine" // that runs the trial
	Links   = "links"   // all of them
)

const flowPrefix = "flow "

// FlowObject returns the object of a flow.
func FlowObject(flow workloads.FlowID) string { return fmt.Sprint(flowPrefix, int(flow)) }

// flowOf returns the flow of an object.
func flowOf(object string) (workloads.FlowID, bool) {
	number, ok := strings.CutPrefix(object, flowPrefix)
	n, err := strconv.Atoi(number)
	return workloads.FlowID(n), ok && err == nil
}

// Names of metrics.
const (
	Look           = "look"
	Followed       = "followed"
	QueueBytes     = "queue_bytes"
	QueuePackets   = "queue_packets"
	SentBytes      = "sent_bytes"
	Dropped        = "dropped_packets"
	Marked         = "marked_packets"
	Lateness       = "lateness"
	RTT            = "rtt"
	Window         = "cwnd"
	DeliveryRate   = "delivery_rate"
	Retransmitted  = "retransmitted_packets"
	OutsideOfLooks = -1 // value of Look
)

// Metric describes the values of a metric.
type Metric struct {
	Name string
	Unit string // "" for none
	Doc  string
	// Changes reports whether only values that differ from the one before are written.
	Changes bool
}

// Metrics returns all metrics.
func Metrics() []Metric {
	return []Metric{
		{Look, "", "readings of links begin: 0 of all, then 1, 2, … of those that are followed, -1 at the start and at the end", false},
		{Followed, "", "1: the spacing of packets on the link is judged from this look on, while packets wait", false},
		{QueueBytes, "bytes", "length of the queue ahead of the link; with store and forward, packets under way count", false},
		{QueuePackets, "packets", "the same in packets", true},
		{SentBytes, "bytes", "frame bytes that the queue has released since it was made", false},
		{Dropped, "packets", "packets that the queue has dropped since it was made", true},
		{Marked, "packets", "packets that the queue has marked (ECN) since it was made", true},
		{Lateness, "µs", "time by which a timer fired late", false},
		{RTT, "µs", "smoothed round-trip time of the connection of a flow, at its sender (TCP_INFO)", true},
		{Window, "packets", "congestion window of the connection", true},
		{DeliveryRate, "bit/s", "the kernel's estimate of the rate at which payload of the flow arrives", true},
		{Retransmitted, "packets", "packets that the connection has sent again", true},
	}
}

// Head describes the samples of a trial.
type Head struct {
	Zero time.Time `json:"zero"` // the wall clock at the start of the trial
	// Sample is the time between two looks at all links, and Interval the time between two readings of those
	// that are followed from a look. Thinned is the factor by which looks became rarer towards the end, so that
	// the file has a bounded size; 1 for none.
	Sample   time.Duration `json:"sample_ns"`
	Interval time.Duration `json:"interval_ns"`
	Thinned  int64         `json:"thinned"`
	Frame    units.Bytes   `json:"frame"` // of MTU size
	Links    []Link        `json:"links"` // by ID
	// RatesOnly reports whether a reading of a link is its SentBytes alone, as on the fluid model.
	RatesOnly bool `json:"rates_only,omitempty"`
}

// Link is a directed link of the fabric.
type Link struct {
	Name  string      `json:"name"`
	Rate  units.Rate  `json:"rate"`
	Queue units.Bytes `json:"queue"` // limit, as planned
	// Held is the most that the delay of a link that stores and forwards holds, which its queue counts.
	Held units.Bytes `json:"held,omitempty"`
	// DropTail reports whether the queue drops packets only when they do not fit into it.
	DropTail bool `json:"drop_tail"`
}
