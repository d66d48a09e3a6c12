// Package timing tells where the time of coflows and block writes went, from what
// their packets did and nothing else.
//
// It reads no captures (results/flows) and prints nothing (results/report).
package timing

import (
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Cause is what a stretch of a coflow's completion time or a block's write time
// was spent on.
type Cause string

// The causes of a coflow's time.
const (
	// Held is waiting for the coflow policy: nothing of the coflow was under way.
	Held Cause = "held"
	// Serialisation is the coflow's own bytes on the wire of its bottleneck.
	Serialisation Cause = "serialisation"
	// Queueing is waiting behind the bytes of others, by link.
	Queueing Cause = "queueing"
	// Retransmission is waiting for a lost segment.
	Retransmission Cause = "retransmission"
	// Host is waiting for a host: nothing was under way and no policy holds flows
	// back, or the receiver's window was closed.
	Host Cause = "host"
	// Latency is the rest: connection set-up, propagation and TCP's window, while the
	// links of the path were free.
	Latency Cause = "latency"
)

// The causes of a block's write time, besides Held and Host.
const (
	Network Cause = "network"
	Disk    Cause = "disk"
)

// Share is a part of a time.
type Share struct {
	Cause Cause
	Link  string // of Queueing: where
	Time  time.Duration
}

// Coflow is one coflow's completion time, taken apart. The shares add up to CCT.
type Coflow struct {
	Coflow     workloads.CoflowID
	CCT        time.Duration
	Width      int
	Size       units.Bytes
	Skew       float64 // longest flow over the average flow, by size
	Slowest    workloads.FlowID
	Bottleneck string        // the link of the slowest flow's path that the coflow loads longest
	Lone       time.Duration // the coflow's time on its bottleneck, were it alone: longest over all links
	Slowdown   float64       // CCT over Lone
	Shares     []Share       // in order of cause, as declared above; then by time, longest first
}

// Block is one block's write time, taken apart. The shares add up to WriteTime.
type Block struct {
	Block     workloads.BlockID
	WriteTime time.Duration
	Shares    []Share
}

// Run is all that is known of where the time of one repeat of an arm went.
type Run struct {
	Coflows []Coflow // in order of ID
	Blocks  []Block
	// Coflow and Write are the sums over all coflows and blocks.
	CoflowTotal, BlockTotal []Share
	Traffic                 Traffic
}

// Traffic is what a repeat put on the wire.
type Traffic struct {
	// CrossRack are the bytes of frames that crossed racks, by class: "shuffle",
	// "write", "control" and "map-read".
	CrossRack map[string]units.Bytes
	// DiskImbalance is the coefficient of variation of the bytes that each host stored.
	DiskImbalance float64
	// Makespan is from the first arrival to the last completion.
	Makespan time.Duration
}
