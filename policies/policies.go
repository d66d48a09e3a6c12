// Package policies is the contract between the engine and the algorithms under
// study. A policy is a pure function of the View it is shown: it keeps no state
// between calls, reads no clock (View.Now), draws luck only from the source it
// is handed, does not write to the View, and breaks every tie by ID. What it
// needs to remember, the engine keeps and shows.
//
// The package holds no algorithm: those are in its sub-packages.
package policies

import (
	"math/rand/v2"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Knowledge is the set of facts a policy declares it needs. The engine hides
// the rest, so that a policy cannot be clairvoyant by accident.
type Knowledge uint8

const (
	// Sizes shows FlowState.Size and Remaining. Without it both are 0.
	Sizes Knowledge = 1 << iota
	// LinkLoad shows the estimates of HostState: Rx, Tx and View.Placements.
	LinkLoad
	// DiskUse shows HostState.Used and Writing.
	DiskUse
)

// NoLimit is the ceiling of a flow that only the network limits.
const NoLimit = units.MaxRate

// View is what the cluster's master knows at one moment. It is shared: policies
// must not write to it.
type View struct {
	Now    time.Duration // since the start of the run
	Fabric *topo.Fabric
	// Capacity is the payload each link can carry, by LinkID: on packets less
	// than the link's rate, by the headers. 0 is a link that is down.
	Capacity []units.Rate
	// DiskRate is the rate at which a host's disk takes writes; 0 where a disk is
	// never the bottleneck.
	DiskRate units.Rate
	Coflows  []CoflowState // arrived and unfinished, in order of arrival, ties by ID
	Hosts    []HostState   // by HostID
	// Placements are the blocks placed since the oldest LastReport of any host,
	// in the order they were placed.
	Placements []Placement
}

// CoflowState is one unfinished coflow.
type CoflowState struct {
	ID      workloads.CoflowID
	Arrival time.Duration
	Width   int         // flows at arrival
	Sent    units.Bytes // received by the reducers, over all flows
	Flows   []FlowState // the unfinished ones, by ID
}

// FlowState is one unfinished flow.
type FlowState struct {
	ID        workloads.FlowID
	Src, Dst  topo.HostID
	Path      []topo.LinkID
	Sent      units.Bytes // received so far
	Size      units.Bytes // needs Sizes
	Remaining units.Bytes // needs Sizes; at least 1
}

// HostState is what a host's heartbeats told.
type HostState struct {
	// LastReport is when the newest heartbeat was received, negative before the
	// first; NextReport is when the next is due.
	LastReport, NextReport time.Duration
	// Rx and Tx are exponentially weighted averages of the traffic toward and
	// away from the host. Need LinkLoad.
	Rx, Tx  units.Rate
	Writing int         // replicas being written now (HDFS: xceivers). Needs DiskUse
	Used    units.Bytes // stored, with what is being written counted whole. Needs DiskUse
	Disk    units.Bytes // capacity; 0 for a disk that is never full
	Lost    bool        // it is down, as far as the master knows: nothing may be placed on it
}

// Placement is a decision the estimates do not reflect yet.
type Placement struct {
	At     time.Duration
	Block  workloads.BlockID
	Client topo.HostID // whose own replica, if it has one, crosses no link
	Size   units.Bytes
	Hosts  []topo.HostID // in the order of the pipeline
}

// Grant caps one flow.
type Grant struct {
	Flow    workloads.FlowID
	Ceiling units.Rate // 0 pauses, NoLimit frees
}

// Allocator shares the network among coflows.
type Allocator interface {
	Needs() Knowledge
	// Allocate returns a grant for each unfinished flow it lets send, the most
	// important first; a flow without a grant is paused. Finite ceilings may not
	// overfill a link. What they leave of the links' capacity the engine hands
	// out from the first grant to the last, then to paused flows in the order of
	// the View, so a policy need not be work-conserving.
	Allocate(v *View) []Grant
}

// Placer chooses the hosts of a block's replicas.
type Placer interface {
	Needs() Knowledge
	// Place returns b.Replicas different hosts that are not Lost in the order of
	// the write pipeline. rng is the block's own source of luck, the same under every
	// policy. An error says why the block cannot be placed.
	Place(v *View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error)
}
