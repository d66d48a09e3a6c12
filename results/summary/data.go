package summary

import (
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Repeat is one execution of an arm.
type Repeat struct {
	Records flows.Records
	// Zero is the wall clock at time 0 of Records; zero in a simulation, whose times are those of the engine.
	Zero time.Time `json:",omitzero"`
	// Samples is the path of the samples of the trial (results/samples); "" if there are none.
	Samples string `json:"-"`
	// Ideals are those of Records.Flows (metrics.Ideals); nil if the fabric is unknown.
	Ideals  []time.Duration `json:",omitempty"`
	Verdict verdict.Verdict `json:",omitzero"`
	// Completed are the numbers of items that the run completed, by their name ("coflows"), with or
	// without a record; nil if they are not known.
	Completed map[string]int
	// Fluid is the fluid model's prediction for the same workload and policies; nil if
	// there is none.
	Fluid *flows.Records
	// Failures are the transfers that faults ended. Records.Failed is ignored.
	Failures []Failure
	// Coordinator is the record of the policies' coordinator; nil if there is none.
	Coordinator *Coordinator
	// Timing is the breakdown of completion times, and Links the load of the fabric's
	// links. Both exist only for packets.
	Timing *breakdown.Run
	Links  []flows.LinkSeries
	// Resent is the number of retransmitted packets with payload in all transfers, only
	// for packets.
	Resent int
	// Placement is the record of block placement; nil for runs without blocks or without a
	// record of the workload.
	Placement *metrics.Placement
	// Slots are the slots of the cluster for tasks; nil if they are not known.
	Slots *metrics.TaskSlots
	// Progress is the received bytes of each transfer over time, only for packets.
	Progress []metrics.Progress
	// Untimed is the reason why Timing is missing, as the end of a sentence; "" if the
	// report does not state one.
	Untimed string
	// Fabric is the fabric that was captured; nil if the captures do not state it.
	Fabric *topo.Fabric
	// Buckets are the sizes of the links' token buckets by rate, and FlowErrors the errors of short flows; nil if
	// the captures do not state them.
	Buckets    map[units.Rate]units.Bytes
	FlowErrors *metrics.FlowErrors
}

// Failure is a flow or block that a fault ended, a replica that a block continued
// without, or a job of tasks that failed.
type Failure struct {
	flows.Failure
	Fault string // the cause, such as "host-crash h1-02 at 2s"; "" if unknown
}

// Coordinator is the record of the coordinator of the policies in one repeat, as in
// coordinator.json.
type Coordinator struct {
	// Interval is the policy's δ; 0 if it decides only at events.
	Interval time.Duration `json:"interval_ns"`
	// Intervals is the number of intervals with unfinished coflows.
	Intervals int `json:"intervals"`
	// Decisions counts calls of the policy, Flushes the decisions that changed the ceilings
	// of any host, and HostsTold those hosts, summed over all decisions.
	Decisions int `json:"decisions"`
	Flushes   int `json:"flushes"`
	HostsTold int `json:"hosts_told"`
	// Updates counts the reports of hosts that the policy needs: of flows that ended and, if
	// the policy uses bytes sent, of every host with unfinished flows in every interval. A
	// host reports at most once in an interval.
	Updates int `json:"updates"`
	// Only for packets: Missed counts the decisions that took longer than the interval or
	// were carried out an interval or more late. Took is the time that each decision took,
	// including the bookkeeping of the events before it.
	Missed int             `json:"missed"`
	Took   []time.Duration `json:"took_ns,omitempty"`
	// Estimates are those of the task scheduler, by time; none if it estimates nothing.
	Estimates []EstimateSample `json:"estimates,omitempty"`
}

// EstimateSample is what a task scheduler estimated from a time on (policies.Estimates).
type EstimateSample struct {
	At       time.Duration                   `json:"at_ns"`
	Straggle float64                         `json:"straggle"` // p
	Copies   [jobs.SizeClasses]CopyEstimates `json:"copies"`   // by class of the number of tasks of the job
}

// CopyEstimates are those for jobs of a class; a rate is 0 as long as there is none.
type CopyEstimates struct {
	Alone  units.Rate    `json:"alone_bps"`  // B
	Shared units.Rate    `json:"shared_bps"` // αB
	Wait   time.Duration `json:"wait_ns"`    // ω
}
