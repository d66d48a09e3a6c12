// Package workloads describes the load of a cluster: coflows, blocks and jobs with their
// arrival times. It reads public trace formats and generates workloads from a seed.
//
// Policies, not this package, decide where, when and at which rate transfers run.
package workloads

import (
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// CoflowID, FlowID, WriterID, ReaderID, BlockID and JobID are unique within a workload:
// FlowIDs over all coflows, BlockIDs over all writers. JobIDs begin at 1; 0 means no job.
type (
	JobID    int
	CoflowID int
	FlowID   int
	WriterID int
	ReaderID int
	BlockID  int
)

// Flow is a transfer of Size bytes of payload from Src to Dst, which differ.
type Flow struct {
	ID   FlowID
	Src  topo.HostID
	Dst  topo.HostID
	Size units.Bytes
}

// Coflow is a set of flows that finishes with its last flow (Chowdhury and Stoica, HotNets
// 2012), such as the shuffle between the mappers and reducers of a job.
type Coflow struct {
	ID      CoflowID
	Arrival time.Duration // since the start of the run
	Flows   []Flow        // at least one
	Job     JobID         `json:",omitempty"` // the job whose shuffle it is
	// Background marks background load, which averages over coflows and jobs exclude.
	// It has no job.
	Background bool `json:",omitempty"`
}

// Size returns the sum of the sizes of its flows.
func (c Coflow) Size() units.Bytes {
	var n units.Bytes
	for _, f := range c.Flows {
		n += f.Size
	}
	return n
}

// Block is a unit of storage that a client writes to several hosts.
type Block struct {
	ID       BlockID
	Writer   WriterID
	Client   topo.HostID
	Size     units.Bytes
	Replicas int         // copies, 3 in HDFS
	Packet   units.Bytes // pipeline packet: the unit of forwarding and acknowledgement
	Window   int         // maximum number of unacknowledged packets at the client
}

// Writer writes its blocks one after another, as an HDFS client writes a file: it requests
// the next block when the previous one is durable.
type Writer struct {
	ID     WriterID
	Client topo.HostID
	// Start is relative to the start of the run or, for a job with a coflow, to the end
	// of the coflow.
	Start  time.Duration
	Blocks []Block // at least one
	Job    JobID   `json:",omitempty"`
}

// Job is a coflow whose reducers then write their output or, without a coflow, writers
// only. A job has at most one coflow. It finishes when its last block is durable; its
// completion time counts from its arrival.
type Job struct {
	ID      JobID
	Arrival time.Duration // of its coflow or, without one, of its writers
	Bin     int           // of the workload's bins, from 1; 0 for none
}

// Read is a block to fetch from one of its replicas. Each attempt at a replica of another
// host is a coflow of one flow, which gets its IDs during the run.
type Read struct {
	Block BlockID
	Size  units.Bytes // of the block
}

// Reader fetches blocks one after another. It waits for a block that is not durable yet,
// and skips a block without a replica.
type Reader struct {
	ID     ReaderID
	Client topo.HostID
	Start  time.Duration // since the start of the run
	Reads  []Read        // at least one
}

// Workload is the load of one run. Coflows are in order of arrival, Writers and Readers of start, ties by ID.
type Workload struct {
	Coflows []Coflow
	Writers []Writer
	Readers []Reader `json:",omitempty"`
	Jobs    []Job    // by ID
}

// IDs are the next IDs to assign to coflows, flows and blocks.
type IDs struct {
	Coflow CoflowID
	Flow   FlowID
	Block  BlockID `json:",omitempty"`
}

// NextIDs returns the lowest IDs above those of a workload's coflows, flows and blocks.
func (w Workload) NextIDs() (next IDs) {
	for _, c := range w.Coflows {
		next.Coflow = max(next.Coflow, c.ID+1)
		for _, f := range c.Flows {
			next.Flow = max(next.Flow, f.ID+1)
		}
	}
	for _, wr := range w.Writers {
		for _, b := range wr.Blocks {
			next.Block = max(next.Block, b.ID+1)
		}
	}
	return next
}
