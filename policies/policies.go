// Package policies defines the contract between the engine and the algorithms under
// study. A policy of coflows or tasks describes itself, and each run has an instance of it with a state
// of its own (CoflowInstance, TaskInstance): the same sequence of Views has the same answers. A
// placement policy is a pure function of its View. All read no clock except Cluster.Now, draw random
// numbers only from the source they are given, do not write to the View, and break every tie by ID.
//
// A View, its Cluster and all their slices are valid until the method that received them
// returns: their memory is reused for the next View. A policy must keep none of them.
// Package policytest detects a policy that does.
//
// This package holds no algorithm: those are in its sub-packages.
package policies

import (
	"math/rand/v2"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// NoLimit is the rate cap of a flow that only the network limits.
const NoLimit = units.MaxRate

// Cluster is the state of the cluster as its master knows it at one moment. It is built once
// a step, and the Views of all roles that may know the same facts share it.
type Cluster struct {
	Now    time.Duration // since the start of the run
	Fabric *topo.Fabric
	// Capacity is the payload rate of each link, by LinkID. On packets it is the link's
	// rate less the headers. It is 0 for a link that is down.
	Capacity []units.Rate
	// DiskRate is the write rate of a host's disk; 0 if a disk is never the
	// bottleneck.
	DiskRate units.Rate
	Hosts    []HostState // by HostID
	Racks    []RackState // by RackID
	// Zone is the power or network zone of each rack, by RackID; nil if all racks share
	// one zone.
	Zone []int
	// Load is the current traffic on each link, by LinkID. Needs OracleLoad.
	Load []units.Rate
}

// CoflowView is the View of a CoflowInstance.
type CoflowView struct {
	*Cluster
	Coflows []CoflowState // arrived and unfinished, by arrival, ties by ID
}

// PlacementView is the View of a Placer.
type PlacementView struct {
	*Cluster
	// LargestBlock is the size of the largest block that any writer so far has to write.
	LargestBlock units.Bytes
	// Placements are the blocks placed since the oldest LastReport of any leaf and of any host
	// that is not Lost, in placement order. Needs LinkLoad.
	Placements []Placement
	// Scratch is memory of one element per host that Place may overwrite, with any content. Nil is allowed.
	Scratch []topo.HostID
}

// CoflowState is the state of one unfinished coflow.
type CoflowState struct {
	ID        workloads.CoflowID
	Arrival   time.Duration
	Width     int         // number of flows at arrival
	Senders   int         // number of sending hosts at arrival
	Receivers int         // number of receiving hosts at arrival
	Left      int         // number of unfinished flows
	Sent      units.Bytes // bytes that the reducers have received, over all flows. Needs Progress
	MostSent  units.Bytes // largest number of bytes sent by one flow, finished or not. Needs MostSent
	// Queue is the coflow's queue: the value most recently set in Schedule.Queues, 0 at
	// arrival. Since is the time at which the coflow entered it (at arrival: Arrival).
	Queue int
	Since time.Duration
	// Links are the links on the paths of unfinished flows, by Link. Needs Links.
	Links []LinkState
	// Finished is the number of flows received completely. Median is the lower median of
	// their sizes, which any policy may know once the flows have ended. A flow that failed
	// counts in neither; the bytes it delivered count in Sent.
	Finished int
	Median   units.Bytes
	// Pilots is the number of pilot flows that the policy chose (Schedule.Pilots), and
	// PilotsLeft the number of those that are unfinished. PilotSent is the total that was
	// received from the ended ones: the sum of their sizes, unless one failed.
	Pilots, PilotsLeft int
	PilotSent          units.Bytes

	Size      units.Bytes // total over all flows. Needs Totals
	Largest   units.Bytes // length: the size of the largest flow. Needs Totals
	Remaining units.Bytes // total over all flows. Needs Sizes
	// Bound is the minimum completion time of the coflow alone in the fabric. It is
	// computed at arrival: the effective bottleneck's bytes divided by that link's
	// capacity, or by its rate if it is down. Needs Totals.
	Bound time.Duration

	Flows []FlowState // unfinished flows, by ID. Needs Flows, NewFlows or PilotFlows
}

// LinkState is the share of one coflow in one link.
type LinkState struct {
	Link      topo.LinkID
	Flows     int         // number of unfinished flows that cross the link
	Pilots    int         // number of pilot flows among them
	Begun     bool        // a flow of the coflow on this link, unfinished or ended, has delivered bytes. Needs Progress
	Remaining units.Bytes // remaining bytes of these flows. Needs Sizes
}

// FlowState is the state of one unfinished flow.
type FlowState struct {
	ID        workloads.FlowID
	Src, Dst  topo.HostID
	Path      []topo.LinkID
	Pilot     bool        // the policy chose it as a pilot flow
	Sent      units.Bytes // bytes received so far. Needs Progress
	Size      units.Bytes // needs Sizes
	Remaining units.Bytes // needs Sizes; at least 1
}

// HostState is the state of a host according to its heartbeats.
type HostState struct {
	// LastReport is the time at which the newest heartbeat was received, negative before
	// the first. NextReport is the time at which the next one is due.
	LastReport, NextReport time.Duration
	// Rx and Tx are exponentially weighted moving averages of the traffic to and from
	// the host. Need LinkLoad.
	Rx, Tx units.Rate
	// Writing is the number of replicas in progress that the newest heartbeat reported
	// (HDFS: xceivers). Needs DiskUse.
	Writing int
	// Used is the number of stored bytes that the newest heartbeat reported, plus the
	// replicas placed since. A replica in progress counts with its full size. Needs
	// DiskUse.
	Used units.Bytes
	Disk units.Bytes // disk capacity; 0 for a disk that is never full
	Lost bool        // the master considers the host down: it must get no replica
}

// RackState is the load of a rack according to the counters of its leaf's spine ports,
// which it reports at every heartbeat interval. Unlike the sum over the hosts, it excludes
// traffic inside the rack.
type RackState struct {
	// LastReport and NextReport are those of the leaf, as in a HostState. Need LinkLoad.
	LastReport, NextReport time.Duration
	// Rx and Tx are exponentially weighted moving averages of the traffic to and from
	// the rack. Need LinkLoad.
	Rx, Tx units.Rate
	// Received and Sent are the counters themselves, since the start of the run. Need LinkLoad.
	Received, Sent units.Bytes
}

// Placement is a placed block that the load estimates do not include yet.
type Placement struct {
	At     time.Duration
	Block  workloads.BlockID
	Client topo.HostID // the writer; a replica on this host crosses no link
	Size   units.Bytes
	Hosts  []topo.HostID // in pipeline order
}

// Placer is a placement policy: it chooses the hosts of a block's replicas.
type Placer interface {
	Needs() Facts
	// Place returns b.Replicas different hosts, none of them Lost, in the order of the
	// write pipeline. rng is the block's own random source, the same under every policy.
	// An error gives the reason why the block cannot be placed.
	Place(v *PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error)
}

// Request is a block that waits to be placed.
type Request struct {
	Block workloads.Block
	At    time.Duration // time of the request
	Left  int           // number of blocks that the writer has yet to place, including this one
}

// Batcher is a Placer that queues requests and chooses the order in which they are
// placed.
type Batcher interface {
	Placer
	// Every returns the batch interval: requests are placed at its multiples. If it is
	// 0, each request is placed immediately and Order is not called.
	Every() time.Duration
	// Order returns the placement order as a permutation of the indices of waiting.
	// waiting is sorted by At, ties by block.
	Order(waiting []Request) []int
}
