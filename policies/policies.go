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

// Needs declares what a policy may know, and what it does not read. The engine hides all
// facts that a policy does not declare, so that it cannot be clairvoyant by accident.
type Needs struct {
	// Sizes shows FlowState.Size and Remaining, and the Size, Largest, Remaining and
	// Bound of coflows and their links. Without it they are 0.
	Sizes bool
	// Totals shows Size, Largest and Bound of a coflow: the part of Sizes that stays
	// constant as bytes arrive. It can be combined with IgnoresProgress.
	Totals bool
	// LinkLoad shows the estimates Rx and Tx of HostState and RackState, and
	// PlacementView.Placements.
	LinkLoad bool
	// DiskUse shows HostState.Used and Writing.
	DiskUse bool
	// OracleLoad shows Cluster.Load, which no real master knows. It is for upper bounds
	// (oracles) only.
	OracleLoad bool
	// EveryHeartbeat calls a TaskScheduler at every heartbeat, also at those at which nothing
	// can be launched: to kill attempts, or to remember the time. Without it, only those count
	// at which the host has a free slot of a kind for which a task is pending.
	EveryHeartbeat bool
	// Shuffle shows TaskJob.Shuffle, and OracleRatio its Ratio, which no real master knows: that is for upper
	// bounds only.
	Shuffle, OracleRatio bool
	// TaskProgress shows AttemptState.Progress and StageState.Durations. Without it Progress is 0, and hosts need not
	// report it.
	TaskProgress bool
	// History shows TaskView.History, and Judged and Straggled of SlotState.
	History bool

	Hints
}

// Hints select details of coflows that any master may know, but that are expensive to keep
// up to date. They let a caller, above all a simulator of large traces, skip work.
type Hints struct {
	// Flows shows CoflowState.Flows. A policy that decides by coflow and port does
	// not need it, and its decisions cost less.
	Flows bool
	// NewFlows shows CoflowState.Flows only in the first decision that includes the
	// coflow: enough to choose its pilot flows.
	NewFlows bool
	// PilotFlows limits CoflowState.Flows to the unfinished pilot flows, in decisions
	// where neither Flows nor NewFlows shows any.
	PilotFlows bool
	// MostSent shows CoflowState.MostSent. Without it MostSent may be 0, and the caller
	// saves the search for each coflow's longest flow.
	MostSent bool
	// IgnoresProgress declares that a CoflowScheduler reads no field that changes as bytes
	// arrive: it depends on arrivals and completions only. Sent is then 0, and MostSent and
	// LinkState.Begun are undefined. A simulation need not update the bytes of all flows
	// at every event. It excludes Sizes and MostSent.
	IgnoresProgress bool
	// IgnoresLinks declares that a CoflowScheduler does not read CoflowState.Links, which are then
	// undefined.
	IgnoresLinks bool
	// Unlimited declares that a CoflowScheduler never limits a flow: in every decision all flows are
	// free to send, as without a coordinator. A caller need not call it for flows that join a
	// coflow while it runs.
	Unlimited bool
	// AsksPending declares that a TaskScheduler calls TaskView.Pending and does not read StageState.Pending, which is
	// then undefined. Few of thousands of jobs get a slot in a heartbeat.
	AsksPending bool
}

// With returns the needs of two policies together. Progress is ignored only if both ignore it.
func (n Needs) With(m Needs) Needs {
	return Needs{
		Sizes: n.Sizes || m.Sizes, Totals: n.Totals || m.Totals, LinkLoad: n.LinkLoad || m.LinkLoad,
		DiskUse: n.DiskUse || m.DiskUse, OracleLoad: n.OracleLoad || m.OracleLoad,
		EveryHeartbeat: n.EveryHeartbeat || m.EveryHeartbeat, TaskProgress: n.TaskProgress || m.TaskProgress,
		History: n.History || m.History,
		Shuffle: n.Shuffle || m.Shuffle, OracleRatio: n.OracleRatio || m.OracleRatio,
		Hints: Hints{
			Flows: n.Flows || m.Flows, NewFlows: n.NewFlows || m.NewFlows, PilotFlows: n.PilotFlows || m.PilotFlows,
			MostSent: n.MostSent || m.MostSent, IgnoresProgress: n.IgnoresProgress && m.IgnoresProgress,
			IgnoresLinks: n.IgnoresLinks && m.IgnoresLinks, Unlimited: n.Unlimited && m.Unlimited,
			AsksPending: n.AsksPending && m.AsksPending,
		},
	}
}

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
	Sent      units.Bytes // bytes that the reducers have received, over all flows
	MostSent  units.Bytes // largest number of bytes sent by one flow, finished or not. Needs MostSent
	// Queue is the coflow's queue: the value most recently set in Schedule.Queues, 0 at
	// arrival. Since is the time at which the coflow entered it (at arrival: Arrival).
	Queue int
	Since time.Duration
	// Links are the links on the paths of unfinished flows, by Link.
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

	Size      units.Bytes // total over all flows. Needs Sizes or Totals
	Largest   units.Bytes // length: the size of the largest flow. Needs Sizes or Totals
	Remaining units.Bytes // total over all flows. Needs Sizes
	// Bound is the minimum completion time of the coflow alone in the fabric. It is
	// computed at arrival: the effective bottleneck's bytes divided by that link's
	// capacity, or by its rate if it is down. Needs Sizes or Totals.
	Bound time.Duration

	Flows []FlowState // unfinished flows, by ID. Needs Flows, NewFlows or PilotFlows
}

// LinkState is the share of one coflow in one link.
type LinkState struct {
	Link      topo.LinkID
	Flows     int         // number of unfinished flows that cross the link
	Pilots    int         // number of pilot flows among them
	Begun     bool        // a flow of the coflow on this link, unfinished or ended, has delivered bytes
	Remaining units.Bytes // remaining bytes of these flows. Needs Sizes
}

// FlowState is the state of one unfinished flow.
type FlowState struct {
	ID        workloads.FlowID
	Src, Dst  topo.HostID
	Path      []topo.LinkID
	Pilot     bool        // the policy chose it as a pilot flow
	Sent      units.Bytes // bytes received so far
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
	Needs() Needs
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
