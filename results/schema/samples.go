package schema

import (
	"time"

	"testbed/results/samples"
	"testbed/topo/units"
	"testbed/workloads"
)

// LinkSample is what one reading showed of a link: a row of the table of samples, which no file of a run has as CSV.
type LinkSample struct {
	Key
	At      time.Duration `csv:"at_us" unit:"µs" doc:"moment, since the start of the repeat"`
	Link    string        `csv:"link" doc:"directed, as from>to"`
	Rate    *units.Rate   `csv:"throughput_bps" unit:"bits per second" doc:"frame bytes since the reading before, as a rate"`
	Queue   *units.Bytes  `csv:"queue_bytes" unit:"bytes" doc:"length of the queue ahead of the link; null in a simulation, like the following"`
	Packets *int          `csv:"queue_packets" unit:"packets" doc:"the same in packets"`
	Dropped *int          `csv:"dropped_packets" unit:"packets" doc:"packets that the queue has dropped since the start"`
	Marked  *int          `csv:"marked_packets" unit:"packets" doc:"packets that the queue has marked (ECN) since the start"`
}

// LinkSampleOf returns the row of a reading.
func LinkSampleOf(k Key, p samples.LinkPoint) LinkSample {
	return LinkSample{k, p.At, p.Link, p.Rate, p.Queue, p.Packets, p.Dropped, p.Marked}
}

// FlowSample is what one reading showed of the connection of a flow, at its sender.
type FlowSample struct {
	Key
	At            time.Duration    `csv:"at_us" unit:"µs" doc:"moment, since the start of the repeat"`
	Flow          workloads.FlowID `csv:"flow" doc:"ID, as in flows"`
	RTT           time.Duration    `csv:"rtt_us" unit:"µs" doc:"smoothed round-trip time"`
	Window        int              `csv:"cwnd_packets" unit:"packets" doc:"congestion window"`
	Delivery      units.Rate       `csv:"delivery_rate_bps" unit:"bits per second" doc:"the kernel's estimate of the rate at which payload arrives"`
	Retransmitted int              `csv:"retransmitted_packets" unit:"packets" doc:"packets sent again since the start of the flow"`
}

// FlowSampleOf returns the row of a reading.
func FlowSampleOf(k Key, p samples.FlowPoint) FlowSample {
	return FlowSample{k, p.At, p.Flow, p.RTT, p.Window, p.Delivery, p.Retransmitted}
}
