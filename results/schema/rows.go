// Package schema defines the tables of a run: one struct for the rows of each, whose tags
// state every column once, with its unit and description. It writes and reads them as CSV, and
// gives the columns to results/export, which writes the other formats, and to the documentation.
//
// Tags of a field:
//
//	csv   the column's name, or inline, as in github.com/jszwec/csvutil
//	unit  its unit, if it has one
//	doc   its description; "mean of" in an inlined struct is continued by that struct's own
//	is    null: it may be null although it is no pointer
//	      late: files of older versions lack it
//	      derived: it is not in the files of a run
//
// Columns of pointers may be null, and files of older versions may lack them.
//
// Times count from the start of the repeat. In a file they are microseconds with three
// decimals, which are nanoseconds; a cell is empty for null.
//
// The package does not know the directory of a run (results/rundir) or compute figures.
package schema

import (
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads"
)

// Key has the first columns of the rows of all tables.
type Key struct {
	Arm     string `csv:"arm" doc:"arm of the run"`
	Repeat  int    `csv:"repeat" doc:"repeat of the arm, from 0"`
	Verdict string `csv:"verdict" doc:"pass, unverified or degraded; fluid model in a simulation"`
}

// Flow is a flow that ended.
type Flow struct {
	Key
	Coflow      workloads.CoflowID `csv:"coflow" doc:"ID of its coflow"`
	Flow        workloads.FlowID   `csv:"flow" doc:"ID, the same in each arm"`
	Src         string             `csv:"src" doc:"host that sends"`
	Dst         string             `csv:"dst" doc:"host that receives"`
	Size        units.Bytes        `csv:"size_bytes" unit:"bytes" doc:"payload"`
	Arrival     time.Duration      `csv:"arrival_us" unit:"µs" doc:"arrival of its coflow, since the start of the repeat"`
	Start       time.Duration      `csv:"start_us" unit:"µs" doc:"first payload packet leaves src"`
	End         time.Duration      `csv:"end_us" unit:"µs" doc:"dst has the last byte"`
	FCT         time.Duration      `csv:"fct_us" unit:"µs" doc:"flow completion time, end - arrival"`
	Packets     int                `csv:"packets" unit:"packets" doc:"packets with payload, at src"`
	Resent      int                `csv:"resent" unit:"packets" doc:"retransmitted packets among them"`
	Wire        units.Bytes        `csv:"wire_bytes" unit:"bytes" doc:"frame bytes that src sent"`
	FluidFCT    *time.Duration     `csv:"fluid_fct_us" unit:"µs" doc:"the fluid model's prediction"`
	FirstByte   *time.Duration     `csv:"first_byte_us" unit:"µs" doc:"first payload byte received"`
	ResentBytes *units.Bytes       `csv:"resent_bytes" unit:"bytes" doc:"retransmitted payload"`
	RTTMin      *time.Duration     `csv:"rtt_min_us" unit:"µs" doc:"least time from payload to its acknowledgement, at src"`
	RTTMedian   *time.Duration     `csv:"rtt_median_us" unit:"µs" doc:"median of the same"`
	Ideal       *time.Duration     `csv:"ideal_us" unit:"µs" doc:"fct of the same flow alone on the idle fabric; null for a flow of a task"`
	Slowdown    *float64           `csv:"slowdown" unit:"ratio" doc:"fct over ideal"`
	Background  bool               `csv:"background" is:"late" doc:"its coflow only loads the network; in no statistic"`
	Setup       *time.Duration     `csv:"setup_us" unit:"µs" doc:"part of fct: from when it could send to start"`
	Job         *workloads.JobID   `csv:"job" doc:"job whose task receives; such flows are in no statistic of fct, as their IDs differ between arms"`
	Stage       *int               `csv:"stage" doc:"stage of that task, from 0"`
	Task        *int               `csv:"task" doc:"task that receives, from 0"`
	Attempt     *int               `csv:"attempt" doc:"attempt of that task, from 0"`
	Outputs     *int               `csv:"outputs" doc:"outputs of tasks that the flow carries; 0 for an input block"`
	FromStage   *int               `csv:"from_stage" doc:"stage of the first of these outputs; null, as the following, for an input block"`
	FromTask    *int               `csv:"from_task" doc:"task whose output it is"`
	FromAttempt *int               `csv:"from_attempt" doc:"attempt of that task that made it"`
	Failed      bool               `csv:"failed" is:"derived" doc:"given up before it ended; in no statistic"`
}

// Coflow is a coflow whose flows all ended.
type Coflow struct {
	Key
	Coflow         workloads.CoflowID `csv:"coflow" doc:"ID, the same in each arm"`
	Width          int                `csv:"width" unit:"flows" doc:"number of flows"`
	Size           units.Bytes        `csv:"size_bytes" unit:"bytes" doc:"payload"`
	Arrival        time.Duration      `csv:"arrival_us" unit:"µs" doc:"arrival, since the start of the repeat"`
	End            time.Duration      `csv:"end_us" unit:"µs" doc:"end of its last flow"`
	CCT            time.Duration      `csv:"cct_us" unit:"µs" doc:"coflow completion time, end - arrival"`
	FluidCCT       *time.Duration     `csv:"fluid_cct_us" unit:"µs" doc:"the fluid model's prediction"`
	Skew           *float64           `csv:"skew" unit:"ratio" doc:"longest flow over the average flow, by size"`
	Slowest        *workloads.FlowID  `csv:"slowest_flow" doc:"ID of the flow that ended last"`
	Bottleneck     string             `csv:"bottleneck" is:"null,late" doc:"link of its path that the coflow loads longest"`
	Lone           *time.Duration     `csv:"lone_us" unit:"µs" doc:"time of the coflow alone on its bottleneck"`
	Slowdown       *float64           `csv:"slowdown" unit:"ratio" doc:"cct over lone"`
	Held           *time.Duration     `csv:"held_us" unit:"µs" doc:"held back by the policy"`
	Setup          *time.Duration     `csv:"setup_us" unit:"µs" doc:"setup of its flows"`
	Serialisation  *time.Duration     `csv:"serialisation_us" unit:"µs" doc:"its own bytes on the wire"`
	Queueing       *time.Duration     `csv:"queueing_us" unit:"µs" doc:"waiting behind bytes of other transfers"`
	Retransmission *time.Duration     `csv:"retransmission_us" unit:"µs" doc:"waiting for a lost segment"`
	Host           *time.Duration     `csv:"host_us" unit:"µs" doc:"waiting for a host"`
	Latency        *time.Duration     `csv:"latency_us" unit:"µs" doc:"the rest"`
	Background     bool               `csv:"background" is:"late" doc:"only loads the network; in no statistic"`
	Job            *workloads.JobID   `csv:"job" doc:"ID of the job of tasks whose shuffle it is"`
	Stage          *int               `csv:"stage" doc:"stage that fetches, from 0"`
	Failed         bool               `csv:"failed" is:"derived" doc:"one of its flows was given up; in no statistic"`
}

// Block is a block that was written.
type Block struct {
	Key
	Block          workloads.BlockID `csv:"block" doc:"ID, the same in each arm"`
	Client         string            `csv:"client" doc:"host that writes"`
	Hosts          []string          `csv:"hosts" doc:"replicas in pipeline order, separated by spaces"`
	Size           units.Bytes       `csv:"size_bytes" unit:"bytes" doc:"size of the block"`
	Requested      time.Duration     `csv:"requested_us" unit:"µs" doc:"write request, since the start of the repeat"`
	End            time.Duration     `csv:"end_us" unit:"µs" doc:"last acknowledgement arrives at the client"`
	WriteTime      time.Duration     `csv:"write_time_us" unit:"µs" doc:"end - requested"`
	FluidWriteTime *time.Duration    `csv:"fluid_write_time_us" unit:"µs" doc:"the fluid model's prediction"`
	Held           *time.Duration    `csv:"held_us" unit:"µs" doc:"held back by the policy"`
	Network        *time.Duration    `csv:"network_us" unit:"µs" doc:"bytes or acknowledgements in flight"`
	Disk           *time.Duration    `csv:"disk_us" unit:"µs" doc:"waiting for a disk"`
	Host           *time.Duration    `csv:"host_us" unit:"µs" doc:"waiting for a host"`
	Waited         *time.Duration    `csv:"waited_us" unit:"µs" doc:"wait for placement, before requested"`
	Failed         bool              `csv:"failed" is:"derived" doc:"given up before it ended; in no statistic"`
}

// Request is a write request: all blocks of one writer.
type Request struct {
	Key
	Writer           workloads.WriterID `csv:"writer" doc:"ID, the same in each arm"`
	Job              *workloads.JobID   `csv:"job" doc:"ID of its job"`
	Client           string             `csv:"client" doc:"host that writes"`
	Blocks           int                `csv:"blocks" unit:"blocks" doc:"number of blocks, written one after the other"`
	Size             units.Bytes        `csv:"size_bytes" unit:"bytes" doc:"size of its blocks"`
	Requested        time.Duration      `csv:"requested_us" unit:"µs" doc:"request of the first block, since the start of the repeat"`
	End              time.Duration      `csv:"end_us" unit:"µs" doc:"last block written"`
	RequestTime      time.Duration      `csv:"request_time_us" unit:"µs" doc:"end - requested"`
	FluidRequestTime *time.Duration     `csv:"fluid_request_time_us" unit:"µs" doc:"the fluid model's prediction"`
}

// Cluster returns the metrics.Item.Cluster of a write request.
func (x *Request) Cluster() int {
	w := flows.WriteRecord{Writer: x.Writer}
	if x.Job != nil {
		w.Job = *x.Job
	}
	return metrics.RequestCluster(w)
}

// Job is a job that completed.
type Job struct {
	Key
	Job          workloads.JobID     `csv:"job" doc:"ID, the same in each arm; jobs of tasks are numbered apart"`
	Bin          *int                `csv:"bin" doc:"bin of the workload, from 1"`
	Coflow       *workloads.CoflowID `csv:"coflow" doc:"its coflow; null for a job of tasks, whose shuffles state their job"`
	Blocks       int                 `csv:"blocks" unit:"blocks" doc:"blocks that its writers write; 0 for a job of tasks"`
	Size         units.Bytes         `csv:"size_bytes" unit:"bytes" doc:"size of all blocks"`
	Arrival      time.Duration       `csv:"arrival_us" unit:"µs" doc:"submission of a job of tasks; else arrival of its coflow, or request of its first block"`
	End          time.Duration       `csv:"end_us" unit:"µs" doc:"last task committed; else last block written"`
	JobTime      time.Duration       `csv:"job_time_us" unit:"µs" doc:"end - arrival"`
	FluidJobTime *time.Duration      `csv:"fluid_job_time_us" unit:"µs" doc:"the fluid model's prediction"`
	// The following are null for a job without tasks.
	User      string         `csv:"user" is:"null,late" doc:"user of a job of tasks"`
	Profile   string         `csv:"profile" is:"null,late" doc:"kind of program, as the workload names it"`
	Tasks     *int           `csv:"tasks" unit:"tasks" doc:"number of its tasks"`
	Input     *units.Bytes   `csv:"input_bytes" unit:"bytes" doc:"blocks that its tasks read"`
	CrossRack *units.Bytes   `csv:"cross_rack_bytes" unit:"bytes" doc:"payload of its reads and fetches between racks"`
	Waiting   *time.Duration `csv:"waiting_us" unit:"µs" doc:"no attempt runs"`
	Mapping   *time.Duration `csv:"mapping_us" unit:"µs" doc:"an attempt that reads a block has not processed it yet"`
	Shuffling *time.Duration `csv:"shuffling_us" unit:"µs" doc:"else an attempt fetches, or has fetched all and waits to compute"`
	Computing *time.Duration `csv:"computing_us" unit:"µs" doc:"else an attempt that has fetched computes"`
	Writing   *time.Duration `csv:"writing_us" unit:"µs" doc:"else: attempts spill, write blocks or commit"`
	Lone      *time.Duration `csv:"lone_us" unit:"µs" doc:"time that the job takes alone on the cluster"`
	Slowdown  *float64       `csv:"slowdown" unit:"ratio" doc:"job time over lone"`
}

// Item returns the ID and the Cluster of its metrics.Item.
func (j *Job) Item() int { return metrics.JobItem(j.Job, j.Tasks != nil) }

// Payload returns the bytes of the job's coflow and blocks and, of a job of tasks, of its input.
func (j *Job) Payload() units.Bytes {
	size := j.Size
	if j.Input != nil {
		size += *j.Input
	}
	return size
}

// Parts returns the parts of the job's time, by their number in metrics; nil for a job without tasks.
func (j *Job) Parts() (out [metrics.JobParts]*time.Duration) {
	out[metrics.JobWaiting], out[metrics.JobMapping], out[metrics.JobShuffling] = j.Waiting, j.Mapping, j.Shuffling
	out[metrics.JobComputing], out[metrics.JobWriting] = j.Computing, j.Writing
	return out
}

// Attempt is an attempt of a task that ended.
type Attempt struct {
	Key
	Job      workloads.JobID `csv:"job" doc:"ID of its job, the same in each arm"`
	Stage    int             `csv:"stage" doc:"stage of the job, from 0"`
	Task     int             `csv:"task" doc:"task of the stage, from 0"`
	Attempt  int             `csv:"attempt" doc:"attempt of the task, from 0"`
	Kind     string          `csv:"kind" doc:"kind of its slot: map or reduce"`
	Host     string          `csv:"host" doc:"host that it ran on"`
	Slot     int             `csv:"slot" doc:"its slot among those of its kind on the host, from 0"`
	Locality string          `csv:"locality" is:"null" doc:"of the replica that it read: node, rack or off-rack; null if its stage reads no blocks"`
	Input    units.Bytes     `csv:"input_bytes" unit:"bytes" doc:"bytes that it read or fetched"`
	Start    time.Duration   `csv:"start_us" unit:"µs" doc:"when it got its slot, since the start of the repeat"`
	InputEnd *time.Duration  `csv:"input_end_us" unit:"µs" doc:"when it had all its input; null, as the following, if it did not get there"`
	Compute  *time.Duration  `csv:"compute_us" unit:"µs" doc:"when it began to compute; if it reads a block, at its start"`
	Computed *time.Duration  `csv:"computed_us" unit:"µs" doc:"when it had processed its input"`
	End      time.Duration   `csv:"end_us" unit:"µs" doc:"when it left its slot"`
	Time     time.Duration   `csv:"time_us" unit:"µs" doc:"end - start"`
	Outcome  string          `csv:"outcome" doc:"committed; copied (another attempt had committed); killed or failed"`
	Why      string          `csv:"why" is:"null,late" doc:"reason of a kill or failure, at most 200 bytes from captures"`
}

// Record returns the attempt as results/flows has it.
func (a *Attempt) Record() flows.AttemptRecord {
	at := func(t *time.Duration) time.Duration {
		if t == nil {
			return 0
		}
		return *t
	}
	return flows.AttemptRecord{Job: a.Job, Stage: a.Stage, Task: a.Task, Attempt: a.Attempt, Kind: a.Kind, Host: a.Host, Slot: a.Slot,
		Locality: a.Locality, Input: a.Input, Start: a.Start, InputEnd: at(a.InputEnd), Compute: at(a.Compute), Computed: at(a.Computed),
		End: a.End, Outcome: a.Outcome, Why: a.Why}
}

// Balance is the balance of the receiving bottleneck links in one interval.
type Balance struct {
	Key
	From     time.Duration `csv:"from_us" unit:"µs" doc:"start of the interval, since the start of the repeat"`
	Interval time.Duration `csv:"interval_us" unit:"µs" doc:"length of the interval"`
	Cv       float64       `csv:"cv" is:"null" unit:"ratio" doc:"standard deviation over mean of the load of the receiving bottleneck links"`
}

// Share is a part of a coflow's completion time.
type Share struct {
	Key
	Coflow workloads.CoflowID `csv:"coflow" doc:"ID"`
	Cause  breakdown.Cause    `csv:"cause" doc:"held, setup, serialisation, queueing, retransmission, host or latency"`
	Link   string             `csv:"link" is:"null" doc:"link of a cause that has one"`
	Time   time.Duration      `csv:"time_us" unit:"µs" doc:"part of the coflow's completion time"`
}

// Load is the load of a directed link in one interval.
type Load struct {
	Key
	Link        string        `csv:"link" doc:"directed, as from>to"`
	Rate        units.Rate    `csv:"rate_bps" unit:"bits per second" doc:"rate of the link"`
	From        time.Duration `csv:"from_us" unit:"µs" doc:"start of the interval, since the start of the repeat"`
	Interval    time.Duration `csv:"interval_us" unit:"µs" doc:"length of the interval"`
	Bytes       units.Bytes   `csv:"bytes" unit:"bytes" doc:"frame bytes in the interval"`
	Utilisation float64       `csv:"utilisation" unit:"ratio" doc:"bytes over the capacity of the link in the interval"`
	Payload     *units.Bytes  `csv:"payload_bytes" unit:"bytes" doc:"payload of flows and blocks that the host at its end received in the interval, each byte once; null for other links"`
	Queue       *units.Bytes  `csv:"queue_bytes" unit:"bytes" doc:"longest queue ahead of the link in the interval, estimated"`
}

// Drop is the number of packets that the queue ahead of a directed link dropped in a repeat.
type Drop struct {
	Key
	Link    string     `csv:"link" doc:"directed, as from>to"`
	Rate    units.Rate `csv:"rate_bps" unit:"bits per second" doc:"rate of the link"`
	Dropped int        `csv:"dropped_packets" unit:"packets" doc:"packets that its queue dropped"`
	Source  string     `csv:"source" doc:"kernel: count of all packets; captures: estimate for packets with payload"`
}

// Moment is the received bytes of a transfer at one time. The rows of a transfer are adjacent
// and in order of time. Coflow and Flow identify a flow; Block, Hop and Pipeline identify a hop
// of a block. Those of the other kind are nil.
type Moment struct {
	Key
	Kind     string              `csv:"kind" doc:"flow, or block for a hop of a block"`
	Coflow   *workloads.CoflowID `csv:"coflow" doc:"ID of a flow's coflow"`
	Flow     *workloads.FlowID   `csv:"flow" doc:"ID of a flow"`
	Block    *workloads.BlockID  `csv:"block" doc:"ID of a hop's block"`
	Hop      *int                `csv:"hop" doc:"hop of the pipeline, from 0"`
	Pipeline *int                `csv:"pipeline" doc:"pipeline of the block, from 0; a broken one is followed by another"`
	Size     units.Bytes         `csv:"size_bytes" unit:"bytes" doc:"payload; for a hop, from the byte at which its pipeline continued"`
	At       time.Duration       `csv:"at_us" unit:"µs" doc:"moment, since the start of the repeat"`
	Received units.Bytes         `csv:"received_bytes" unit:"bytes" doc:"received without a gap from at_us on"`
	Sent     *time.Duration      `csv:"sent_us" unit:"µs" doc:"when the last of these bytes first left the sender"`
}

// Kinds of Moment.
const (
	KindFlow  = "flow"
	KindBlock = "block"
)

// Transfer identifies the transfer of a Moment.
type Transfer struct {
	arm                             string
	repeat, group, member, pipeline int
	block                           bool
}

// Transfer returns the transfer of a moment with the columns of its kind.
func (m *Moment) Transfer() Transfer {
	if m.Kind == KindBlock {
		return Transfer{m.Arm, m.Repeat, int(*m.Block), *m.Hop, *m.Pipeline, true}
	}
	return Transfer{m.Arm, m.Repeat, int(*m.Coflow), int(*m.Flow), 0, false}
}
