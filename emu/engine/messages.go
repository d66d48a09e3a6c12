package engine

import (
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Event is something that happened to the cluster. The set is closed.
type Event interface{ event() }

// CoflowArrived registers a coflow. Writers of its job start when it has ended, and
// after their Start.
type CoflowArrived struct {
	Coflow workloads.Coflow
	Then   []workloads.Writer `json:",omitempty"`
}

// WriterArrived starts a writer: its first block is requested at once.
type WriterArrived struct{ Writer workloads.Writer }

// ReaderArrived starts a reader: it fetches its first block as soon as that is durable.
type ReaderArrived struct{ Reader workloads.Reader }

// TransferProgressed tells how much of each flow its receiver has. Backends send
// it with every other event and when it is time to wake, for flows whose count
// changed; where the engine is Blind, they may do so only for flows that end.
type TransferProgressed struct {
	Flows    []workloads.FlowID
	Received []units.Bytes // payload, parallel to Flows
}

// TransferFinished tells that the receiver has the last byte of a flow.
type TransferFinished struct{ Flow workloads.FlowID }

// BlockDurable tells that all replicas of a block are on disk and the client
// has the last acknowledgement.
type BlockDurable struct{ Block workloads.BlockID }

// Heartbeat is a host's report of its counters since the start of the run.
type Heartbeat struct {
	Host   topo.HostID
	Rx, Tx units.Bytes // toward and away from the host, on its link
	// Made is when the counters were read; 0 is now. Reports of a host come in in the
	// order in which they were made.
	Made time.Duration `json:",omitempty"`
	// Disk is nil where hosts report no disk use: then the master goes by what it
	// has decided alone.
	Disk *DiskReport `json:",omitempty"`
}

// DiskReport is what a host's disk holds.
type DiskReport struct {
	Used    units.Bytes         // by replicas, those being written counted whole
	Writing []workloads.BlockID `json:",omitempty"` // replicas being written
	// Ended are the replicas that were begun since the report before and are not
	// being written any more: stored, or dropped.
	Ended []workloads.BlockID `json:",omitempty"`
}

// RackReport is what the ports of a leaf toward the spines have counted since the
// start of the run.
type RackReport struct {
	Rack   topo.RackID
	Rx, Tx units.Bytes   // toward and away from the rack
	Made   time.Duration `json:",omitempty"` // as of a Heartbeat
}

// LinkLoads tells what each link carries at the moment, by LinkID, in payload bits
// per second as capacities are. Backends send it where a policy needs it
// (policies.TrueLoad), before what happened at the same time. Nobody changes Rates.
type LinkLoads struct{ Rates []units.Rate }

// LinkChanged tells that a link carries another payload rate from now on, 0 when
// it is down. Backends send it at once, as a management plane would.
type LinkChanged struct {
	Link topo.LinkID
	Rate units.Rate
}

// PathChanged tells that routing has moved a flow to another spine.
type PathChanged struct {
	Flow  workloads.FlowID
	Spine int
}

// HostLost tells that a host has missed too many heartbeats: it is taken for dead.
type HostLost struct{ Host topo.HostID }

// HostBack tells that a host has started again. What it was doing is lost, also
// where it is back before it was missed.
type HostBack struct {
	Host     topo.HostID
	DiskLost bool // its disk is empty
}

// TransferFailed tells that a flow will not finish.
type TransferFailed struct {
	Flow workloads.FlowID
	Why  string
}

// ReplicaLost tells that a block's pipeline goes on without a host.
type ReplicaLost struct {
	Block workloads.BlockID
	Host  topo.HostID
	Full  bool `json:",omitempty"` // the host has no room for the block
}

// BlockFailed tells that a block's pipeline has no host left.
type BlockFailed struct {
	Block workloads.BlockID
	Why   string
}

func (RackReport) event()         {}
func (LinkLoads) event()          {}
func (LinkChanged) event()        {}
func (PathChanged) event()        {}
func (HostLost) event()           {}
func (HostBack) event()           {}
func (TransferFailed) event()     {}
func (ReplicaLost) event()        {}
func (BlockFailed) event()        {}
func (CoflowArrived) event()      {}
func (WriterArrived) event()      {}
func (ReaderArrived) event()      {}
func (TransferProgressed) event() {}
func (TransferFinished) event()   {}
func (BlockDurable) event()       {}
func (Heartbeat) event()          {}

// Command is something a backend must do. The set is closed.
type Command interface{ command() }

// MarkKind tells what arrived.
type MarkKind uint8

// What a mark can mark.
const (
	MarkCoflow MarkKind = 1 + iota
	MarkWrite
	MarkFlowFailed
	MarkBlockFailed
)

// Mark puts one small datagram on the wire of Host: the arrival of a coflow or
// a write request, from which its completion time is counted, or that a flow or
// block has failed, so that nobody waits for it to complete. Where the host
// cannot send, another one sends it.
type Mark struct {
	Kind  MarkKind
	ID    int // workloads.CoflowID or workloads.BlockID, of a failed flow workloads.FlowID
	Host  topo.HostID
	Parts int         // flows of the coflow, replicas of the block; of a failed flow its workloads.CoflowID
	Size  units.Bytes // of all flows, of the block, of the failed flow
	Why   string      `json:",omitempty"` // of a failure
	// Waited is for how long the request of a write had waited to be placed: it was
	// asked for so long before.
	Waited time.Duration `json:",omitempty"`
}

// StartTransfer moves one flow. With Ceiling 0 not a byte may leave before a
// SetCeiling allows it.
type StartTransfer struct {
	Coflow  workloads.CoflowID
	Flow    workloads.Flow
	Hash    uint32 // decides the spine: topo.Fabric.Path
	Ceiling units.Rate
	// Read is the block whose replica at Flow.Src is what is sent, as its disk reads it;
	// nil for a flow of anything. Where a reader has the replica itself, Src is Dst:
	// its disk reads the block, nothing is sent, no policy knows of it, and it has no
	// mark.
	Read *workloads.BlockID `json:",omitempty"`
}

// SetCeiling changes what a running flow may send, in payload bits per second.
type SetCeiling struct {
	Flow    workloads.FlowID
	Ceiling units.Rate
}

// StartChain writes a block: the client sends to Targets[0], which forwards to
// Targets[1] and so on; each writes it to its disk.
type StartChain struct {
	Block   workloads.Block
	Targets []topo.HostID
	Hashes  []uint32 // one for each hop: client → Targets[0], Targets[0] → Targets[1] …
}

// StopTransfer ends a flow that has failed, at both ends. Nothing is reported of
// it afterwards.
type StopTransfer struct {
	Flow     workloads.FlowID
	Src, Dst topo.HostID
}

// StopChain ends a block write that has failed. What it has stored is dropped.
type StopChain struct{ Block workloads.BlockID }

func (StopTransfer) command()  {}
func (StopChain) command()     {}
func (Mark) command()          {}
func (StartTransfer) command() {}
func (SetCeiling) command()    {}
func (StartChain) command()    {}

// NextNever is the wake time of an engine that waits for nothing but events.
const NextNever time.Duration = 1<<63 - 1
