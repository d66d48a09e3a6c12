// Package workloads describes what a cluster is asked to do, before any policy
// decides how: coflows to move and blocks to write, each with the moment it
// arrives. It reads public trace formats and generates workloads from a seed.
//
// It does not decide where, when or at what rate anything runs.
package workloads

import (
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// CoflowID, FlowID, WriterID, ReaderID, BlockID and JobID identify within one workload.
// FlowIDs are unique over all coflows, BlockIDs over all writers. JobIDs begin at 1:
// 0 stands for no job.
type (
	JobID    int
	CoflowID int
	FlowID   int
	WriterID int
	ReaderID int
	BlockID  int
)

// Flow moves Size bytes of payload from Src to Dst, which differ.
type Flow struct {
	ID   FlowID
	Src  topo.HostID
	Dst  topo.HostID
	Size units.Bytes
}

// Coflow is a set of flows that finish as one (Chowdhury and Stoica, HotNets
// 2012): the shuffle between the mappers and reducers of a job, say.
type Coflow struct {
	ID      CoflowID
	Arrival time.Duration // since the start of the run
	Flows   []Flow        // at least one
	Job     JobID         `json:",omitempty"` // whose shuffle it is
	// Background marks load that is there for others to meet: averages over coflows
	// and jobs leave it out. It has no job.
	Background bool `json:",omitempty"`
}

// Size is the sum over the flows.
func (c Coflow) Size() units.Bytes {
	var n units.Bytes
	for _, f := range c.Flows {
		n += f.Size
	}
	return n
}

// Block is a unit of storage to be written by one client to several hosts.
type Block struct {
	ID       BlockID
	Writer   WriterID
	Client   topo.HostID
	Size     units.Bytes
	Replicas int         // copies, 3 in HDFS
	Packet   units.Bytes // pipeline packet: what is forwarded and acknowledged as one
	Window   int         // most packets un-acknowledged at the client
}

// Writer writes its blocks one after another, as an HDFS client writes a file:
// the next block is requested when the one before is durable.
type Writer struct {
	ID     WriterID
	Client topo.HostID
	// Start is since the start of the run; of a job with a coflow, since the coflow
	// has ended.
	Start  time.Duration
	Blocks []Block // at least one
	Job    JobID   `json:",omitempty"`
}

// Job is a coflow whose reducers then write what they made of it, or, without a
// coflow, writers only. A job has one coflow at most. It is over when its last block is durable; its time counts
// from its arrival.
type Job struct {
	ID      JobID
	Arrival time.Duration // of its coflow or, without one, of its writers
	Bin     int           // of the workload's bins, from 1; 0 for none
}

// Read is a block to be fetched from one of its replicas. Each try at a replica of
// another host is a coflow of one flow, of its own: the i-th, from 0, has the ids Coflow
// + i and Flow + i, which are nobody else's for i up to Tries - 1. The last of these is
// for telling that no replica is left.
type Read struct {
	Block  BlockID
	Size   units.Bytes // of the block
	Coflow CoflowID
	Flow   FlowID
	Tries  int // one more than the block's replicas
}

// Reader fetches blocks one after another. It waits for one that is not durable yet,
// and passes over one that cannot be had.
type Reader struct {
	ID     ReaderID
	Client topo.HostID
	Start  time.Duration // since the start of the run
	Reads  []Read        // at least one
}

// Workload is everything asked of the cluster in one run. Coflows are in order
// of arrival, Writers and Readers of start, ties by ID.
type Workload struct {
	Coflows []Coflow
	Writers []Writer
	Readers []Reader `json:",omitempty"`
	Jobs    []Job    // by ID
}
