package engine

import (
	"encoding/json"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Event is an event in the cluster. The set of events is closed.
type Event interface{ event() }

// CoflowArrived registers a coflow. The writers of its job start their Start after it has
// ended.
type CoflowArrived struct {
	Coflow workloads.Coflow
	Then   []workloads.Writer `json:",omitempty"`
}

// WriterArrived starts a writer: its first block is requested immediately.
type WriterArrived struct{ Writer workloads.Writer }

// ReaderArrived starts a reader: it fetches its first block as soon as that is durable.
type ReaderArrived struct{ Reader workloads.Reader }

// TransferProgressed reports the bytes that the receiver of each flow has. Backends send it
// with every other event and at the wake time, for flows whose count has changed. If the
// engine ignores progress, they may send it only for flows that end.
type TransferProgressed struct {
	Flows    []workloads.FlowID
	Received []units.Bytes // payload, parallel to Flows
}

// TransferFinished reports that the receiver has the last byte of a flow.
type TransferFinished struct{ Flow workloads.FlowID }

// BlockDurable reports that all replicas of a block are on disk and the client has the last
// acknowledgement.
type BlockDurable struct{ Block workloads.BlockID }

// Heartbeat is a host's report of its counters since the start of the run.
type Heartbeat struct {
	Host   topo.HostID
	Rx, Tx units.Bytes // to and from the host, on its link
	// Made is the time at which the counters were read; 0 is now. Reports of a host arrive in
	// the order of Made.
	Made time.Duration `json:",omitempty"`
	// At is the time at which the report arrived, if that was before the step; 0 is now. Backends may hold
	// back reports that cause no commands (Engine.ActsOnReport) until something else happens.
	At time.Duration `json:",omitempty"`
	// Disk is nil if hosts do not report disk use: the master then uses only its own
	// decisions.
	Disk *DiskReport `json:",omitempty"`
}

// DiskReport is the content of a host's disk.
type DiskReport struct {
	Used    units.Bytes         // by replicas; those in progress count with their full size
	Writing []workloads.BlockID `json:",omitempty"` // replicas in progress
	// Ended are the replicas that were started since the previous report and have been
	// stored or dropped.
	Ended []workloads.BlockID `json:",omitempty"`
}

// RackReport is a leaf's report of the counters of its spine ports since the start of the
// run.
type RackReport struct {
	Rack   topo.RackID
	Rx, Tx units.Bytes // to and from the rack

	Made, At time.Duration `json:",omitempty"` // as in a Heartbeat
}

// LinkLoads reports the current load of each link, by LinkID, as payload in bits per second,
// like capacities. Backends send it if a policy needs it (policies.OracleLoad), before the
// events of the same time. Rates must not be modified.
type LinkLoads struct{ Rates []units.Rate }

// LinkChanged reports a new payload rate of a link, 0 if it is down. Backends send it
// immediately, as a management plane would.
type LinkChanged struct {
	Link topo.LinkID
	Rate units.Rate
}

// PathChanged reports that routing has moved a flow to another spine.
type PathChanged struct {
	Flow  workloads.FlowID
	Spine int
}

// HostLost reports that a host has missed too many heartbeats and is considered down.
type HostLost struct{ Host topo.HostID }

// HostBack reports that a host has restarted. Its earlier work is lost, even if it is back
// before its absence was noticed.
type HostBack struct {
	Host     topo.HostID
	DiskLost bool // its disk is empty
}

// TransferFailed reports that a flow will not finish.
type TransferFailed struct {
	Flow workloads.FlowID
	Why  string
}

// ReplicaLost reports that a block's pipeline continues without a host.
type ReplicaLost struct {
	Block workloads.BlockID
	Host  topo.HostID
	Full  bool `json:",omitempty"` // the host has no room for the block
}

// BlockFailed reports that a block's pipeline has no host left.
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

// Command is a command to a backend. The set of commands is closed.
type Command interface{ command() }

// MarkKind is the kind of a Mark.
type MarkKind uint8

// The kinds of marks: arrivals and failures.
const (
	MarkCoflow MarkKind = 1 + iota
	MarkWrite
	MarkFlowFailed
	MarkBlockFailed
	// MarkFlowStopped and MarkBlockStopped are the end of a transfer of a task that no attempt needs
	// any more, with the fields of a failure.
	MarkFlowStopped
	MarkBlockStopped
	// MarkCoflowClosed is the end of an open coflow, such as the shuffle of a job of tasks, which
	// flows join while it runs. Parts is the number of its flows, Size their sum. Its MarkCoflow has
	// Parts and Size 0.
	MarkCoflowClosed
)

// Mark sends one small datagram on the link of Host. It marks the arrival of a coflow or of a
// write request, at which its completion time starts, or the failure of a flow or block,
// whose completion is then not expected. If the host cannot send, another one sends it.
type Mark struct {
	Kind  MarkKind
	ID    int // workloads.CoflowID or workloads.BlockID; workloads.FlowID of a failed flow
	Host  topo.HostID
	Parts int         // flows of the coflow, replicas of the block; workloads.CoflowID of a failed flow
	Size  units.Bytes // of all flows, of the block, of the failed flow
	Why   string      `json:",omitempty"` // reason of a failure
	// Waited is the time between the request of a write and its placement.
	Waited time.Duration `json:",omitempty"`
	// Attempt is the attempt of a task that writes the block; its zero value for none.
	Attempt jobs.AttemptID `json:",omitzero"`
}

// StartTransfer starts one flow. With Ceiling 0, no byte may be sent before a SetCeiling
// allows it.
type StartTransfer struct {
	Coflow  workloads.CoflowID
	Flow    workloads.Flow
	Hash    uint32 // selects the spine: topo.Fabric.Path
	Ceiling units.Rate
	// Read is the block whose replica on Flow.Src is sent at the speed of its disk; nil for
	// other flows.
	Read *workloads.BlockID `json:",omitempty"`
	// Task is the task that the flow serves; nil for other flows.
	Task *TaskTransfer `json:",omitempty"`
}

// ReadDisk reads a replica of a block that the reader's own host stores. Nothing is sent, no
// policy sees the read, and it has no mark. Its ID is unique among those of flows, and
// TransferProgressed, TransferFinished and TransferFailed report on it.
type ReadDisk struct {
	ID    workloads.FlowID
	Host  topo.HostID
	Block workloads.BlockID
	Size  units.Bytes
	// Task is the task that reads; nil for a reader of the workload.
	Task *TaskTransfer `json:",omitempty"`
}

// SetCeiling changes the rate cap of a running flow, in payload bits per second.
type SetCeiling struct {
	Flow    workloads.FlowID
	Ceiling units.Rate
}

// StartChain writes a block: the client sends to Targets[0], which forwards to
// Targets[1] and so on; each writes it to its disk.
type StartChain struct {
	Block   workloads.Block
	Targets []topo.HostID
	Hashes  []uint32 // one per hop: client → Targets[0], Targets[0] → Targets[1] …
}

// StopTransfer ends a failed flow at both ends. No events about it follow.
type StopTransfer struct {
	Flow     workloads.FlowID
	Src, Dst topo.HostID
}

// StopRead ends a ReadDisk. No events about it follow.
type StopRead struct {
	ID   workloads.FlowID
	Host topo.HostID
}

// StopChain ends a failed block write. Stored data of the block is dropped.
type StopChain struct{ Block workloads.BlockID }

// DropBlock deletes the replicas of a block that is durable: its attempt did not commit.
type DropBlock struct {
	Block   workloads.BlockID
	Size    units.Bytes
	Hosts   []topo.HostID
	Durable time.Duration // when it became durable; disks that were wiped since then have no replica
}

// Decided is a decision that a process outside of the program made, for the log. A backend does nothing.
type Decided struct {
	Role    Role `json:",omitempty"`
	Answer  json.RawMessage
	Latency time.Duration `json:",omitempty"`
}

// Role is the role of a policy that is a process.
type Role string

// The roles.
const (
	CoflowRole    Role = ""
	PlacementRole Role = "placement"
	TaskRole      Role = "tasks"
)

func (Decided) command()       {}
func (StopTransfer) command()  {}
func (ReadDisk) command()      {}
func (StopRead) command()      {}
func (StopChain) command()     {}
func (DropBlock) command()     {}
func (Mark) command()          {}
func (StartTransfer) command() {}
func (SetCeiling) command()    {}
func (StartChain) command()    {}

// NextNever is the wake time of an engine that waits only for events.
const NextNever time.Duration = 1<<63 - 1
