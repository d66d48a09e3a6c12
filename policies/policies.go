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
type Knowledge uint16

const (
	// Sizes shows FlowState.Size and Remaining, and of a coflow and its links
	// Size, Largest, Remaining and Bound. Without it they are 0.
	Sizes Knowledge = 1 << iota
	// LinkLoad shows the estimates of HostState and RackState, Rx and Tx, and
	// View.Placements.
	LinkLoad
	// DiskUse shows HostState.Used and Writing.
	DiskUse
	// Flows shows CoflowState.Flows. A policy that decides by coflows and ports
	// alone goes without, and is spared the time of it.
	Flows
	// NewFlows shows CoflowState.Flows in the first decision that sees the coflow,
	// and only then: enough to choose its pilots.
	NewFlows
	// PilotFlows shows in CoflowState.Flows the unfinished pilots, and only those, in
	// the decisions in which the other two show nothing.
	PilotFlows
	// MostSent shows CoflowState.MostSent. Without it, that may be 0: a caller is
	// spared to look for the longest of a coflow's flows.
	MostSent
	// TrueLoad shows View.Load, which no real master knows: it is for bounds.
	TrueLoad
	// Blind is what a Scheduler declares that looks at nothing which changes as bytes
	// arrive, but only at arrivals and ends: Sent is then 0, and MostSent and
	// LinkState.Begun mean nothing. A simulation is spared to count the bytes of all
	// flows at every event. It does not go with Sizes or MostSent.
	Blind
	// Totals shows Size, Largest and Bound of a coflow: of what Sizes shows, what does not
	// change as bytes arrive. It goes with Blind.
	Totals
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
	Racks    []RackState   // by RackID
	// Zone is the power or network zone of each rack, by RackID; nil where they all
	// share one.
	Zone []int
	// Load is what each link carried just now, by LinkID. Needs TrueLoad.
	Load []units.Rate
	// LargestBlock is the largest block that any writer so far has to write. A
	// policies.Placer alone is shown it and Zone.
	LargestBlock units.Bytes
	// Placements are the blocks placed since the oldest LastReport of any host that is
	// not Lost, in the order they were placed.
	Placements []Placement
	// Memory is what Schedule.Memory was set to in the decision before; empty in
	// the first.
	Memory []int64
}

// CoflowState is one unfinished coflow.
type CoflowState struct {
	ID        workloads.CoflowID
	Arrival   time.Duration
	Width     int         // flows at arrival
	Senders   int         // different hosts that send, at arrival
	Receivers int         // different hosts that receive, at arrival
	Left      int         // unfinished flows
	Sent      units.Bytes // received by the reducers, over all flows
	MostSent  units.Bytes // by one flow, finished or not. Needs MostSent
	// Queue is what Schedule.Queues said of the coflow last, 0 at arrival, and Since
	// when it first said so without a break (at arrival: the arrival).
	Queue int
	Since time.Duration
	// Links are those that unfinished flows cross, by Link.
	Links []LinkState
	// Finished is how many flows have been received whole, and Median the size of the
	// middle one of them (the smaller of two): what anybody can see of flows that are
	// over. A flow that failed is in neither, and counts in Sent for what came of it.
	Finished int
	Median   units.Bytes
	// Pilots is how many flows the policy chose as pilots (Schedule.Pilots),
	// PilotsLeft how many of them are unfinished and PilotSent what was received of
	// the others, together: their sizes, unless they failed.
	Pilots, PilotsLeft int
	PilotSent          units.Bytes

	Size      units.Bytes // of all flows. Needs Sizes or Totals
	Largest   units.Bytes // the largest flow's size. Needs Sizes or Totals
	Remaining units.Bytes // of all flows. Needs Sizes
	// Bound is the least time the coflow takes alone: at arrival, its bottleneck's
	// bytes over that link's capacity, or its rate where it is down. Needs Sizes or
	// Totals.
	Bound time.Duration

	Flows []FlowState // the unfinished ones, by ID. Needs Flows, NewFlows or PilotFlows
}

// LinkState is what a coflow has to do with one link.
type LinkState struct {
	Link      topo.LinkID
	Flows     int         // unfinished, that cross it
	Pilots    int         // of them
	Begun     bool        // of a flow of the coflow that crosses it or did, ended or not, something was received
	Remaining units.Bytes // of these flows. Needs Sizes
}

// FlowState is one unfinished flow.
type FlowState struct {
	ID        workloads.FlowID
	Src, Dst  topo.HostID
	Path      []topo.LinkID
	Pilot     bool        // the policy chose it as one
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
	Rx, Tx units.Rate
	// Writing is the replicas being written that the newest heartbeat told of (HDFS:
	// xceivers). Needs DiskUse.
	Writing int
	// Used is the bytes stored by the newest heartbeat, with what is being written
	// counted whole, and what was placed since. Needs DiskUse.
	Used units.Bytes
	Disk units.Bytes // capacity; 0 for a disk that is never full
	Lost bool        // it is down, as far as the master knows: nothing may be placed on it
}

// RackState is what the counters of a leaf's ports toward the spines told, at the
// same moments as the heartbeats of its hosts: unlike the sum over the hosts it has
// nothing of the traffic inside the rack.
type RackState struct {
	// Rx and Tx are exponentially weighted averages of the traffic toward and away
	// from the rack. Need LinkLoad.
	Rx, Tx units.Rate
}

// Placement is a decision the estimates do not reflect yet.
type Placement struct {
	At     time.Duration
	Block  workloads.BlockID
	Client topo.HostID // whose own replica, if it has one, crosses no link
	Size   units.Bytes
	Hosts  []topo.HostID // in the order of the pipeline
}

// Placer chooses the hosts of a block's replicas.
type Placer interface {
	Needs() Knowledge
	// Place returns b.Replicas different hosts that are not Lost in the order of
	// the write pipeline. rng is the block's own source of luck, the same under every
	// policy. An error says why the block cannot be placed.
	Place(v *View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error)
}

// Request is a block that waits to be placed.
type Request struct {
	Block workloads.Block
	At    time.Duration // when it was asked for
	Left  int           // blocks that its writer has still to place, this one included
}

// Batcher is a Placer that lets requests wait and chooses the order in which they
// are placed.
type Batcher interface {
	Placer
	// Every is q: requests are placed at multiples of it. 0 places each at once, and
	// Order is not asked.
	Every() time.Duration
	// Order returns indices of waiting in the order in which they are placed, each
	// once. waiting is in order of At, ties by block.
	Order(waiting []Request) []int
}
