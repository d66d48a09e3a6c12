package scenario

import (
	"cmp"
	_ "embed"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// The comments of the fields in this file are the descriptions in the JSON schema. Their
// jsonschema tags are the bounds of both the schema and the loader. The tags least and most
// bound quantities that carry a unit.
//
//go:embed spec.go
var specSource []byte

// Spec is the content of a scenario file.
type Spec struct {
	// Version is the version of the format of this file.
	Version int `yaml:"version,omitempty" jsonschema:"default=1,minimum=1,maximum=1"`
	// Name is the name of the experiment; run directories carry it.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._+-]*$,maxLength=64"`
	// Vars are the variables and their defaults. ${name} in any value stands for a variable, and
	// "testbed run --set name=value" overrides its default. A variable without a default must be
	// set. $$ stands for a dollar sign.
	Vars Vars `yaml:"vars,omitempty"`
	// Fabric is the network to emulate.
	Fabric Fabric `yaml:"fabric" jsonschema:"required"`
	// Disk is the configuration of the disks of each host. Required if the workload writes blocks or
	// has jobs of tasks.
	Disk *Disk `yaml:"disk,omitempty"`
	// Heartbeat is the schedule of the reports that hosts send to the master.
	Heartbeat Heartbeat `yaml:"heartbeat"`
	// Coordinator is the component that makes the decisions of coflow policies.
	Coordinator Coordinator `yaml:"coordinator,omitempty"`
	// Fluid is the configuration of the fluid model, in simulations and predictions.
	Fluid Fluid `yaml:"fluid,omitempty"`
	// Setup is the moment at which the connections of coflows are opened on packets. serial opens
	// each when its flow may first send, a few at a time; completion times include that.
	// simultaneous opens them before the coflow arrives, and the first segments of all its flows
	// that may send leave at one moment. Reads and writes of blocks, and transfers of tasks, are
	// always serial.
	// simultaneous cannot be combined with faults that cut links or crash hosts.
	Setup string `yaml:"setup" jsonschema:"default=serial,enum=serial,enum=simultaneous"`
	// Scale multiplies the sizes and times in traces and workload files, which may be those of
	// another cluster, and the rates of this file. Other values of this file are used as written.
	Scale Scale `yaml:"scale"`
	// Workload is the work of the cluster: traces of coflows to replay, writers and readers of
	// blocks, jobs that shuffle and write, jobs of tasks, background traffic, and workload files.
	Workload []Item `yaml:"workload" jsonschema:"required,minItems=1"`
	// Tasks is the runtime of jobs of tasks: slots, shuffle, and the blocks that tasks read and write.
	// Only with an item of kind tasks.
	Tasks *Tasks `yaml:"tasks,omitempty"`
	// Faults are the faults that occur during each run, at times on its clock.
	Faults []Fault `yaml:"faults,omitempty"`
	// Arms are the combinations of policies to compare under the same workload.
	Arms Arms `yaml:"arms" jsonschema:"required"`
	// Repeat is the number of repeats of each arm, each with a random seed of its own.
	Repeat int `yaml:"repeat" jsonschema:"default=1,minimum=1,maximum=1000"`
	// Largest number of attempts for a repeat of an arm on packets: it runs again
	// until its verdict is pass. The last attempt counts, with any verdict. Only the verdict
	// decides, no result does. The report states why earlier attempts failed.
	Tries int `yaml:"tries" jsonschema:"default=1,minimum=1,maximum=10"`
	// Seed is the seed of all randomness: positions of writers, paths, placements. Random draws do
	// not depend on the arm.
	Seed uint64 `yaml:"seed" jsonschema:"default=1,minimum=0,maximum=9007199254740991"`
	// Capture is the configuration of packet captures.
	Capture Capture `yaml:"capture"`
	// Limits are the limits that end or refuse a run that takes too much.
	Limits Limits `yaml:"limits"`
}

// Fabric is the shape of the network.
type Fabric struct {
	// Kind is the kind of fabric. leaf-spine has racks under leaf switches, which spines join.
	// switch is one non-blocking switch, as papers on coflows assume.
	Kind string `yaml:"kind" jsonschema:"default=leaf-spine,enum=leaf-spine,enum=switch"`
	// Leaves is the number of racks, each under one leaf switch.
	Leaves int `yaml:"leaves" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Spines is the number of spines; every leaf has a link to each. It may be 0 with one leaf.
	Spines int `yaml:"spines" jsonschema:"required,minimum=0,maximum=64" kind:"leaf-spine"`
	// HostsPerLeaf is the number of hosts of each rack.
	HostsPerLeaf int `yaml:"hosts_per_leaf" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Ports is the number of ports of the switch, with one host each: h0-00 and so on. The switch
	// is leaf0.
	Ports int `yaml:"ports" jsonschema:"required,minimum=1,maximum=250" kind:"switch"`
	// HostLink is the rate of a host's link, in each direction.
	HostLink units.Rate `yaml:"host_link" jsonschema:"required" least:"100Kbps" most:"100Gbps"`
	// HostLinks are hosts whose links have another rate. If several entries match a host, the last
	// one applies.
	HostLinks []HostLink `yaml:"host_links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// Oversubscription is the ratio of a rack's host capacity to its uplink capacity, summed over
	// the spines.
	Oversubscription units.Ratio `yaml:"oversubscription,omitempty" jsonschema:"default=1:1" kind:"leaf-spine"`
	// Uplink is the rate of each link between a leaf and a spine, in each direction. Replaces
	// oversubscription.
	Uplink units.Rate `yaml:"uplink,omitempty" least:"100Kbps" most:"1000Gbps" kind:"leaf-spine"`
	// CrossRack is the capacity of a rack to and from other racks, in each direction, split evenly
	// over the spines. Replaces oversubscription.
	CrossRack units.Rate `yaml:"cross_rack,omitempty" least:"100Kbps" most:"10Tbps" kind:"leaf-spine"`
	// ZoneRacks is the number of consecutive racks that share a power or network zone (default:
	// all racks share one zone). Placement policies can spread replicas over zones.
	ZoneRacks int `yaml:"zone_racks,omitempty" jsonschema:"minimum=1,maximum=250" kind:"leaf-spine"`
	// Queue is the drop-tail buffer at the entry of every link, in bytes or as the time that the
	// link takes to empty it. It must hold at least two frames.
	Queue topo.Queue `yaml:"queue" jsonschema:"default=20ms"`
	// RED is random early detection on the queues of switch ports. Without it, queues drop packets
	// only when they are full. Requires a kernel with sch_red.
	RED *RED `yaml:"red,omitempty"`
	// Delay is the one-way propagation delay of every link. Values above 0s require a kernel with
	// sch_netem.
	Delay time.Duration `yaml:"delay" jsonschema:"default=0s" least:"0s" most:"10s"`
	// Links are links that differ in rate, queue or delay. If several entries match a link, the
	// last one applies.
	Links []LinkChange `yaml:"links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// MTU is the size of the largest IP packet, a plain number of bytes.
	MTU int `yaml:"mtu" jsonschema:"default=1500,minimum=576,maximum=65000" of:"bytes"`
	// CongestionControl is the kernel's name of TCP's congestion control.
	CongestionControl string `yaml:"congestion_control" jsonschema:"default=cubic,pattern=^[a-z0-9_-]+$,maxLength=15"`
	// Convergence is the time after which routing on the other leaves reacts to a failed or
	// restored link between a spine and a leaf. The leaf itself reacts at once.
	Convergence time.Duration `yaml:"convergence" jsonschema:"default=50ms" least:"0s" most:"1h"`
	// ShortFlow is the size of the smallest flow whose completion time the links must reproduce
	// within 5 %. A token bucket gives every flow about one frame in advance after an idle moment,
	// so jumbo frames need a larger value. On a calibrated machine, links that cannot meet it are
	// refused.
	ShortFlow units.Bytes `yaml:"short_flow" jsonschema:"default=50KB" least:"1KB" most:"1GB" scale:"keep"`
}

// HostLink is the rate of the links of some hosts.
type HostLink struct {
	// Hosts are host names, with the wildcards *, ? and [...], such as h*-03.
	Hosts string `yaml:"hosts" jsonschema:"required,minLength=1,maxLength=100"`
	// Rate is the rate of their links, in each direction.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"100Kbps" most:"100Gbps"`
}

// LinkChange is the difference of some links from the others. Omitted values stay.
type LinkChange struct {
	// Link is a link by its ends, with the wildcards *, ? and [...]: leaf0>spine1 is one
	// direction, leaf0<>spine1 both.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=100"`
	// Rate is the rate of the link.
	Rate units.Rate `yaml:"rate,omitempty" least:"100Kbps" most:"1000Gbps"`
	// Queue is the buffer at the entry of the link.
	Queue topo.Queue `yaml:"queue,omitempty"`
	// Delay is the one-way propagation delay of the link.
	Delay *time.Duration `yaml:"delay,omitempty" least:"0s" most:"10s"`
}

// RED is random early detection (Floyd and Jacobson 1993).
type RED struct {
	// Min is the average queue size below which no packet is dropped.
	Min units.Bytes `yaml:"min" jsonschema:"required" least:"577B" most:"1GB"`
	// Max is the average queue size above which every packet is dropped.
	Max units.Bytes `yaml:"max" jsonschema:"required" least:"577B" most:"1GB"`
	// Probability is the drop probability at max.
	Probability float64 `yaml:"probability" jsonschema:"default=0.1,minimum=0.000001,maximum=1"`
	// ECN marks the packets of TCP instead of dropping them, and makes hosts negotiate ECN.
	ECN bool `yaml:"ecn" jsonschema:"default=false"`
}

// SimultaneousSetup is the value of Spec.Setup that opens connections before their coflow arrives.
const SimultaneousSetup = "simultaneous"

// BarrierShuffle is the value of Tasks.Shuffle with which fetches wait for the earlier stages.
const BarrierShuffle = "barrier"

// KernelThrottle is the value of Disk.Throttle with which the kernel holds disks to their rates.
const KernelThrottle = "kernel"

// Disk describes the disks that store blocks.
type Disk struct {
	// Count is the number of disks of each host. Blocks go to them in turn.
	Count int `yaml:"count" jsonschema:"default=1,minimum=1,maximum=64"`
	// Write is the write rate of each disk, such as "6.9MB/s".
	Write units.Rate `yaml:"write" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// Read is the read rate of each disk, independent of writes (default: the write rate). A token
	// bucket of the program enforces it, also if the kernel throttles writes.
	Read units.Rate `yaml:"read,omitempty" least:"10Kbps" most:"100Gbps"`
	// Size is the capacity of each disk.
	Size units.Bytes `yaml:"size" jsonschema:"default=256MB" least:"1KB" most:"100TB"`
	// Throttle is the mechanism that holds disks to their rates. bucket is a token bucket of the
	// program on top of direct writes. kernel is a file system on a loop device for each disk,
	// limited by a cgroup (io.max or, on version 1, blkio); it needs root.
	Throttle string `yaml:"throttle" jsonschema:"default=bucket,enum=bucket,enum=kernel"`
	// Dir is the directory of the machine under which hosts store blocks (default: the run
	// directory).
	Dir string `yaml:"dir,omitempty" jsonschema:"maxLength=4096"`
}

// ReadRate returns the rate at which each disk reads.
func (d Disk) ReadRate() units.Rate { return cmp.Or(d.Read, d.Write) }

// HostSize returns the total capacity of the disks of a host.
func (d Disk) HostSize() units.Bytes { return d.Size * units.Bytes(d.Count) }

// Heartbeat is the report of a host to the master.
type Heartbeat struct {
	// Interval is the time between two reports of a host.
	Interval time.Duration `yaml:"interval" jsonschema:"default=250ms" least:"1ms" most:"1h"`
	// Alpha is the weight of the newest sample in the moving average of a host's traffic, above 0
	// and at most 1. Sinbad (SIGCOMM 2013) uses 0.2.
	Alpha float64 `yaml:"alpha" jsonschema:"default=0.2,minimum=0.000001,maximum=1"`
	// LostAfter is the number of consecutive heartbeats that a crashed host must miss before the
	// master considers it lost. A block pipeline waits for a silent host for that number of
	// intervals plus one second, then continues without it.
	LostAfter int `yaml:"lost_after" jsonschema:"default=4,minimum=1,maximum=1000"`
}

// Coordinator is the place where coflow policies decide.
type Coordinator struct {
	// Latency is the time between a decision and the moment its ceilings take effect: reports of
	// agents, computation and replies together. The flows of a new coflow also wait for it. On
	// packets, the machine adds its own delay.
	Latency time.Duration `yaml:"latency" jsonschema:"default=0s" least:"0s" most:"1m"`
}

// Fluid is the configuration of the fluid model, in simulations and predictions.
type Fluid struct {
	// Resolution delays the ends of transfers, blocks and computations to a multiple of it, or to the
	// next other event if that is earlier. Ends that are close share a computation of rates, so that
	// large shuffles are simulated several times faster. 0s is exact.
	Resolution time.Duration `yaml:"resolution" jsonschema:"default=0s" least:"0s" most:"1m"`
	// JobsOnly lets a simulation keep the records of jobs and of their attempts, but not of each
	// transfer of a task, whose bytes are summed up, and no log of events. A day of a large cluster
	// has millions of transfers. Such a run cannot be replayed.
	JobsOnly bool `yaml:"jobs_only" jsonschema:"default=false"`
}

// Tasks is the runtime of jobs of tasks.
type Tasks struct {
	// MapSlots is the number of map tasks that a host runs at the same time.
	MapSlots int `yaml:"map_slots" jsonschema:"default=2,minimum=0,maximum=1000"`
	// ReduceSlots is the number of reduce tasks that a host runs at the same time. A task scheduler
	// that splits copying and computing lets more of them copy.
	ReduceSlots int `yaml:"reduce_slots" jsonschema:"default=2,minimum=0,maximum=1000"`
	// Cores is the number of cores that a host has for tasks (default: no limit).
	Cores float64 `yaml:"cores,omitempty" jsonschema:"minimum=0.001,maximum=1000000"`
	// Memory is the memory that a host has for tasks (default: no limit).
	Memory units.Bytes `yaml:"memory,omitempty" least:"1B" most:"1000TB"`
	// OutOfBand lets a host send a heartbeat as soon as a task on it ends, as in Facebook's Hadoop.
	// Otherwise its free slots wait for the next heartbeat.
	OutOfBand bool `yaml:"out_of_band" jsonschema:"default=false"`
	// Slowstart is the share of the tasks of each earlier stage that must be done before tasks that
	// fetch from it start.
	Slowstart float64 `yaml:"slowstart" jsonschema:"default=0.05,minimum=0,maximum=1"`
	// Shuffle is the start of fetches. pull fetches outputs as earlier tasks end. barrier starts all
	// fetches of a stage when the earlier stages are done, as papers on coflows assume.
	Shuffle string `yaml:"shuffle" jsonschema:"default=pull,enum=pull,enum=barrier"`
	// Fetches is the largest number of simultaneous fetches of a task, each from another host.
	Fetches int `yaml:"fetches" jsonschema:"default=5,minimum=1,maximum=1000"`
	// FetchBatch is the largest number of outputs of one host in a fetch, 0 for no limit.
	FetchBatch int `yaml:"fetch_batch" jsonschema:"default=10,minimum=0,maximum=1000000"`
	// Penalty is the time for which a task does not fetch from a host after one fetch from it has
	// failed. Each further failure in a row multiplies it by penalty_growth.
	Penalty time.Duration `yaml:"penalty" jsonschema:"default=10s" least:"1ms" most:"24h"`
	// PenaltyGrowth is the factor between the penalties of two failures in a row.
	PenaltyGrowth float64 `yaml:"penalty_growth" jsonschema:"default=1.3,minimum=1,maximum=1000"`
	// PenaltyMax is the longest penalty.
	PenaltyMax time.Duration `yaml:"penalty_max" jsonschema:"default=10m" least:"1ms" most:"24h"`
	// FetchFailures is the number of failed fetches of an output after which its task runs again.
	FetchFailures int `yaml:"fetch_failures" jsonschema:"default=3,minimum=1,maximum=1000"`
	// Attempts is the number of failed attempts of a task at which its job fails.
	Attempts int `yaml:"attempts" jsonschema:"default=4,minimum=1,maximum=1000"`
	// OutputSpace is the room on each host for outputs that later stages fetch (default: no limit).
	OutputSpace units.Bytes `yaml:"output_space,omitempty" least:"1B" most:"1000TB"`
	// Evict is the rule where outputs exceed output_space. none leaves it to the scheduler, which sees
	// what is left. Otherwise no task starts without room for its output, and if all jobs stop, one
	// loses its outputs and begins again after another has ended: the one that was submitted latest, or
	// the one with the least progress (default: none).
	Evict string `yaml:"evict,omitempty" jsonschema:"enum=none,enum=latest,enum=least-progress"`
	// Input is the storage of the blocks that tasks read. They are stored before the run.
	Input TaskInput `yaml:"input"`
	// Output is the storage of the blocks that tasks write.
	Output TaskOutput `yaml:"output"`
}

// TaskInput is the storage of the blocks that tasks read.
type TaskInput struct {
	// Placement is the placement policy, by name and with its default parameters, that chooses the
	// hosts of input blocks on an idle cluster. Each block has a client drawn from the seed. The hosts
	// are the same in all arms.
	Placement string `yaml:"placement" jsonschema:"default=hdfs,minLength=1,maxLength=31"`
	// Replicas is the number of replicas of each input block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
}

// TaskOutput is the storage of the blocks that tasks write.
type TaskOutput struct {
	// Block is the size of a block; the last one of a task may be smaller (default: the size of the
	// largest input block).
	Block units.Bytes `yaml:"block,omitempty" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client. Together they may be at
	// most a tenth of the block, because the client runs ahead of the slowest part of the pipeline
	// by that amount.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
}

// Scale holds the factors for traces, workload files, job files and rates.
type Scale struct {
	// Size multiplies the sizes of flows, such as "1/100" or 0.01, in workload files also those of
	// blocks and packets, and in job files all sizes.
	Size workloads.Factor `yaml:"size" jsonschema:"default=1"`
	// Time multiplies arrival times, such as "1/10" or 0.1, in workload files also the start
	// times of writers, and in job files submissions. Processing rates in job files are multiplied by
	// size divided by time, so that times of computation change as submissions do.
	Time workloads.Factor `yaml:"time" jsonschema:"default=1"`
	// Rate multiplies every rate of this file, and every size in it (blocks, packets, disks,
	// queues), so that times stay. If size has the same value, traces and workload files keep
	// their times too.
	Rate workloads.Factor `yaml:"rate" jsonschema:"default=1"`
}

// Item is one part of the workload. Exactly one field is set, according to its kind.
type Item struct {
	Trace      *TraceItem
	Writers    *WritersItem
	Readers    *ReadersItem
	Jobs       *JobsItem
	Tasks      *TasksItem
	Background *BackgroundItem
	File       *FileItem
}

// TraceItem replays the coflows of a trace file, in the format of the public coflow-benchmark or
// another format that "testbed trace" writes. The format is detected from the content.
type TraceItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=trace"`
	// Path is the path of the trace, relative to this file; a path from --set is relative to the
	// working directory.
	Path string `yaml:"path" jsonschema:"required,minLength=1,maxLength=4096"`
	// First is the number of coflows to replay, from the start of the trace (default: all).
	First int `yaml:"first,omitempty" jsonschema:"minimum=1,maximum=10000000"`
	// Merge joins the flows of a coflow that run between the same two hosts into one.
	Merge bool `yaml:"merge" jsonschema:"default=true"`
	// MB is the megabyte of a trace that does not state bytes: MB is 10⁶ bytes; MiB is 2²⁰, as in
	// the simulator published with the Facebook trace.
	MB string `yaml:"mb" jsonschema:"default=MiB,enum=MB,enum=MiB"`
}

// WritersItem starts clients that each write blocks, one after another.
type WritersItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=writers"`
	// Count is the number of writers, on different hosts drawn from the seed. Excludes hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts are the names of the hosts that write, such as h0-00: rack 0, host 0. Excludes count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks is the number of blocks that each writer writes.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client. Together they may be at
	// most a tenth of the block, because the client runs ahead of the slowest part of the pipeline
	// by that amount.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// Start is the start time of the writers.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread delays the start of each writer by a random time from 0 to this value.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// ReadersItem starts clients that each fetch blocks of this workload, one after another, from the
// nearest replica. A reader waits for a block that is not written yet.
type ReadersItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=readers"`
	// Count is the number of readers, on different hosts drawn from the seed. Excludes hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts are the names of the hosts that read, such as h0-00: rack 0, host 0. Excludes count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks is the number of blocks that each reader fetches, each drawn from all blocks by the
	// seed.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Of selects the blocks to read: all, those of jobs, or those of the other writers.
	Of string `yaml:"of" jsonschema:"default=all,enum=all,enum=writers,enum=jobs"`
	// Start is the start time of the readers.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread delays the start of each reader by a random time from 0 to this value.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// JobsItem draws jobs that arrive at random. Most jobs shuffle before their reducers write, the
// others only write. docs/workloads.md describes how they are drawn.
type JobsItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=jobs"`
	// Count is the number of jobs.
	Count int `yaml:"count" jsonschema:"required,minimum=1,maximum=1000000"`
	// Interval is the average time between two arrivals. Excludes load.
	Interval time.Duration `yaml:"interval,omitempty" least:"1us" most:"24h"`
	// Load is the load of the jobs on the links toward the racks while jobs arrive, as a share of
	// their capacity: shuffles, and one copy of each block. On one rack it counts all copies, and
	// the links of hosts. Excludes interval.
	Load float64 `yaml:"load,omitempty" jsonschema:"minimum=0.000001,maximum=100"`
	// Start is the time of the first possible arrival.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client. Together they may be at
	// most a tenth of the block, because the client runs ahead of the slowest part of the pipeline
	// by that amount.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// WholeBlocks rounds the output of a writer up to whole blocks. Without it, the last block of
	// a file has any size.
	WholeBlocks bool `yaml:"whole_blocks" jsonschema:"default=false"`
	// Small is the share of all blocks that are small files in addition to the output, from 0 to
	// 0.95.
	Small float64 `yaml:"small" jsonschema:"default=0,minimum=0,maximum=0.95"`
	// SmallBlock is the size of the largest small file (default: an eighth of a block). Sizes are
	// drawn uniformly.
	SmallBlock units.Bytes `yaml:"small_block,omitempty" least:"1B" most:"1TB"`
	// Mappers is the range of the number of mappers of a job that shuffles.
	Mappers Span `yaml:"mappers" jsonschema:"default=2-8"`
	// Reducers is the range of the number of reducers of a job that shuffles, at most one per
	// block that it writes.
	Reducers Span `yaml:"reducers" jsonschema:"default=1-8"`
	// Writers is the range of the number of writers of a job that only writes.
	Writers Span `yaml:"writers" jsonschema:"default=1-4"`
	// Blocks is the range of the number of blocks that each writer of such a job writes.
	Blocks Span `yaml:"blocks" jsonschema:"default=1-3"`
	// Output is the average output of a job over all bins, without replicas (default: the value
	// with which the jobs that only write have their share of the bytes).
	Output units.Bytes `yaml:"output,omitempty" least:"1B" most:"1TB"`
	// ShuffleRate is the rate at which a reducer is assumed to fetch on an idle cluster; the sizes
	// of shuffles follow from it. Default: a host's share of its rack's links to the spines, or
	// the rate of its own link if that is less.
	ShuffleRate units.Rate `yaml:"shuffle_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// WriteRate is the rate at which a reducer is assumed to write. Default: the rate of a disk,
	// or that of a host's link if that is less.
	WriteRate units.Rate `yaml:"write_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// OffHot keeps reducers and writers off the leaves that the background of this workload makes
	// hot when the job arrives.
	OffHot bool `yaml:"off_hot" jsonschema:"default=false"`
	// Bins are classes of jobs by the share of their time in which they write (default: the five
	// classes with which Sinbad, SIGCOMM 2013, is evaluated).
	Bins []Bin `yaml:"bins,omitempty" jsonschema:"minItems=1,maxItems=100"`
}

// Bin is one class of jobs.
type Bin struct {
	// Jobs is the bin's share of the jobs, relative to the other bins'.
	Jobs int `yaml:"jobs" jsonschema:"required,minimum=1,maximum=1000000"`
	// Bytes is the bin's share of the bytes written, relative to the other bins'.
	Bytes int `yaml:"bytes" jsonschema:"required,minimum=1,maximum=1000000"`
	// From is the smallest share of its time in which a job writes; 1 for jobs that only write.
	From float64 `yaml:"from" jsonschema:"required,minimum=0.001,maximum=1"`
	// To is the largest share; 1 if from is 1, otherwise less than 1.
	To float64 `yaml:"to" jsonschema:"required,minimum=0.001,maximum=1"`
}

// TasksItem submits jobs of map and reduce tasks, which run in the slots that the section tasks
// describes: the jobs of a job file, or jobs that a generator draws from the seed and the repeat.
// docs/job-workloads.md describes files, generators and scaling. It cannot be combined with jobs of
// other kinds.
type TasksItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=tasks"`
	// Path is the path of a job file, as "testbed workload jobs" writes it, relative to this file; a
	// path from --set is relative to the working directory. Excludes generator.
	Path string `yaml:"path,omitempty" jsonschema:"minLength=1,maxLength=4096"`
	// Generator is the generator of the jobs: bm is the macro benchmark of the FAIR report, mix draws
	// jobs of weighted profiles, simulation is the workload of the simulation in the FAIR report.
	// Excludes path.
	Generator string `yaml:"generator,omitempty" jsonschema:"enum=bm,enum=mix,enum=simulation"`
	// First is the number of jobs to submit, in order of submission (default: all).
	First int `yaml:"first,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Start is added to the time of each submission.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// RateFactor multiplies processing rates, in addition to scale. Two of rate_factor, size_factor
	// and time_factor determine the third: size is rate times time. With rate_factor alone, sizes stay.
	RateFactor workloads.Factor `yaml:"rate_factor,omitempty"`
	// SizeFactor multiplies all sizes of jobs. Alone, or with time_factor alone, rates stay.
	SizeFactor workloads.Factor `yaml:"size_factor,omitempty"`
	// TimeFactor multiplies submissions.
	TimeFactor workloads.Factor `yaml:"time_factor,omitempty"`
	// GapFactor multiplies submissions in addition, which changes the load.
	GapFactor workloads.Factor `yaml:"gap_factor,omitempty"`
	// Jobs is the number of jobs of the generators mix (default: 100) and simulation (default: 30).
	Jobs int `yaml:"jobs,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Workers is the number of users in a closed loop of the generator mix, named u1, u2 and so on: each
	// submits its next job when its job has ended. The jobs are dealt to them in turn (default: none;
	// jobs are submitted without regard to others). Excludes users.
	Workers int `yaml:"workers,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// Gap is the mean time between submissions of a generator (default: 30s; for simulation 0s, all
	// at the start). With workers, it is the mean time between the end of a job and the submission of
	// its worker's next (default: 0s).
	Gap *time.Duration `yaml:"gap,omitempty" least:"0s" most:"24h"`
	// Tasks multiplies the numbers of maps of the generator bm, such as 1/8 for a cluster with an
	// eighth of the slots (default: 1).
	Tasks workloads.Factor `yaml:"tasks,omitempty"`
	// Block is the input of a map of a generator (default: 128MB).
	Block units.Bytes `yaml:"block,omitempty" least:"1B" most:"1TB"`
	// File is the name of a file that the jobs of a generator read: map i of each reads its block i, as do
	// jobs of other items with this file (default: each job reads blocks of its own).
	File string `yaml:"file,omitempty" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,maxLength=64"`
	// Maps is the range of the number of maps of a job of the generator mix (default: 1-20).
	Maps Span `yaml:"maps,omitempty"`
	// MapRate is the rate at which maps of the generator mix consume their input (default: 8MB/s).
	MapRate units.Rate `yaml:"map_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// SortRate is the rate at which reduces of the generators bm and mix sort what they fetched
	// (default: 50MB/s).
	SortRate units.Rate `yaml:"sort_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// ReduceRate is the rate at which reduces of the generator mix consume what they sorted
	// (default: 8MB/s).
	ReduceRate units.Rate `yaml:"reduce_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// Spread is the spread of the times of tasks of the generator mix: each consumes its input in the time
	// that follows from its rate times a factor from 1 - spread to 1 + spread, uniform by task.
	Spread float64 `yaml:"spread,omitempty" jsonschema:"minimum=0,maximum=0.9"`
	// Skew is the Zipf exponent of the shares of a job's reduces, 0 for equal shares.
	Skew float64 `yaml:"skew,omitempty" jsonschema:"minimum=0,maximum=10"`
	// Users is the number of users of a generator, named u1, u2 and so on (default: 30).
	Users int `yaml:"users,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// UserSkew is the Zipf exponent of the users' shares of jobs, 0 for equal shares.
	UserSkew float64 `yaml:"user_skew,omitempty" jsonschema:"minimum=0,maximum=10"`
	// Profiles are the programs of the generator mix (default: scan, sort and aggregate, with equal
	// weights).
	Profiles []TaskProfile `yaml:"profiles,omitempty" jsonschema:"minItems=1,maxItems=1000"`
}

// TaskProfile is a program of the generator mix.
type TaskProfile struct {
	// Name is the name of the profile.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,maxLength=64"`
	// Weight is the profile's share of the jobs, relative to the other profiles'.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000000"`
	// Maps is the range of the number of maps of a job (default: that of the item).
	Maps Span `yaml:"maps,omitempty"`
	// Reduces is the number of reduces relative to that of maps, rounded, and at least one; 0 for jobs
	// without reduces.
	Reduces float64 `yaml:"reduces" jsonschema:"default=0,minimum=0,maximum=1"`
	// KeepMap is the ratio of the output of maps to their input. Maps of a job without reduces write
	// it as blocks.
	KeepMap float64 `yaml:"keep_map" jsonschema:"required,minimum=0,maximum=1000"`
	// KeepReduce is the ratio of the blocks that reduces write to what they fetch.
	KeepReduce float64 `yaml:"keep_reduce" jsonschema:"default=0,minimum=0,maximum=1000"`
	// MapRate is the rate at which maps consume their input (default: that of the item).
	MapRate units.Rate `yaml:"map_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// SortRate is the rate at which reduces sort (default: that of the item).
	SortRate units.Rate `yaml:"sort_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// ReduceRate is the rate at which reduces consume (default: that of the item).
	ReduceRate units.Rate `yaml:"reduce_rate,omitempty" least:"1Kbps" most:"100Gbps"`
}

// BackgroundItem sends shuffles into all leaves, most of them into a few leaves that are hot for a
// while. Averages over coflows and jobs exclude them.
type BackgroundItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=background"`
	// HotLeaves is the number of leaves that are hot at any time.
	HotLeaves int `yaml:"hot_leaves" jsonschema:"required,minimum=1,maximum=249"`
	// Intensity is the load on the links toward all leaves, as a share of their capacity.
	Intensity float64 `yaml:"intensity" jsonschema:"default=0.35,minimum=0.000001,maximum=1"`
	// HotShare is the share of that load that goes to the hot leaves.
	HotShare float64 `yaml:"hot_share" jsonschema:"default=0.7,minimum=0.000001,maximum=1"`
	// Persist is the time for which leaves stay hot before others are drawn. It should be much
	// longer than a heartbeat and than the write of a block.
	Persist time.Duration `yaml:"persist" jsonschema:"required" least:"1ms" most:"24h"`
	// Transfer is the size of one coflow.
	Transfer units.Bytes `yaml:"transfer" jsonschema:"required" least:"64B" most:"1TB"`
	// Senders is the number of senders of a coflow, in other racks, to one host.
	Senders int `yaml:"senders" jsonschema:"default=4,minimum=1,maximum=64"`
	// Start is the start time of the load.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// For is the time during which coflows arrive.
	For time.Duration `yaml:"for" jsonschema:"required" least:"1ms" most:"24h"`
}

// FileItem takes coflows, writers and jobs from a workload file, such as "testbed workload
// generate" writes.
type FileItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=workload"`
	// Path is the path of the file, relative to this file; a path from --set is relative to the
	// working directory.
	Path string `yaml:"path" jsonschema:"required,minLength=1,maxLength=4096"`
}

// Span is a range of whole numbers, both ends included, written "2-8" or "3".
type Span struct{ From, To int }

// String returns "2-8", or "3" if both ends are 3.
func (s Span) String() string {
	if s.From == s.To {
		return strconv.Itoa(s.From)
	}
	return fmt.Sprintf("%d-%d", s.From, s.To)
}

// MarshalText returns the same text as String.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// maxSpan is the largest allowed end of a Span.
const maxSpan = 62_500

// UnmarshalText parses the format of String.
func (s *Span) UnmarshalText(text []byte) error {
	from, to, two := strings.Cut(string(text), "-")
	if !two {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || strconv.Itoa(a) != from || strconv.Itoa(b) != to || a < 1 || b < a || b > maxSpan {
		return fmt.Errorf(`range %q: expected two whole numbers from 1 to %d, the smaller first, such as "2-8", or one`, clip(string(text)), maxSpan)
	}
	*s = Span{a, b}
	return nil
}

// Fault is one fault. Exactly one field is set, according to its kind.
type Fault struct {
	LinkDown  *LinkDownFault
	LinkFlap  *LinkFlapFault
	LinkRate  *LinkRateFault
	HostCrash *HostCrashFault
	SlowDisk  *SlowDiskFault
	SlowCPU   *SlowCPUFault
	SpineDown *SpineDownFault

	LostReports *LostReportsFault
	LateReports *LateReportsFault
}

// LinkDownFault cuts links: they pass nothing in either direction.
type LinkDownFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-down"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link to cut, such as "leaf0<>spine1", or a pattern for several, such as
	// "leaf0<>h0-*".
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LinkFlapFault cuts and restores links several times.
type LinkFlapFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-flap"`
	// At is the time at which the links go down first.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link that flaps, such as "h0-03<>leaf0".
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Down is the duration of each outage.
	Down time.Duration `yaml:"down" jsonschema:"required" least:"1ms" most:"24h"`
	// Up is the time between two outages.
	Up time.Duration `yaml:"up" jsonschema:"required" least:"1ms" most:"24h"`
	// Times is the number of outages.
	Times int `yaml:"times" jsonschema:"required,minimum=1,maximum=1000"`
}

// LinkRateFault changes the rate of links.
type LinkRateFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-rate"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link whose rate changes, one direction as in "leaf0>spine1" or both as in
	// "leaf0<>spine1".
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Rate is the rate of the link during the fault.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// HostCrashFault crashes a host: all its work is lost, and it restarts idle.
type HostCrashFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=host-crash"`
	// At is the time of the crash.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the host that crashes.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// For is the time until the host returns (default: it does not return).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
	// Disk is the state of the stored blocks when the host returns: kept or lost.
	Disk string `yaml:"disk" jsonschema:"default=kept,enum=kept,enum=lost"`
}

// SlowDiskFault changes the write rate of a host's disk.
type SlowDiskFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-disk"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the host of the disk.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Rate is the write rate of the disk during the fault.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SlowCPUFault lets a host work for a share of the time only, as a straggler.
type SlowCPUFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-cpu"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the slow host.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Share is the share of the time in which the host works.
	Share float64 `yaml:"share" jsonschema:"required,minimum=0.01,maximum=1"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SpineDownFault takes a spine down: all its links pass nothing.
type SpineDownFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=spine-down"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Spine is the name of the spine.
	Spine string `yaml:"spine" jsonschema:"required,minLength=1,maxLength=64"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LostReportsFault drops the reports of hosts on links and disks before they reach the master,
// which does not consider the hosts lost.
type LostReportsFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=lost-reports"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the host whose reports are lost, such as "h0-03", or a pattern for several, such as
	// "h0-*".
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LateReportsFault delays the reports of hosts on links and disks. They arrive with the counters
// of the time at which they were made.
type LateReportsFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=late-reports"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the host whose reports are late, such as "h0-03", or a pattern for several, such as
	// "h0-*".
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// By is the delay of a report.
	By time.Duration `yaml:"by" jsonschema:"required" least:"1ms" most:"1h"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// Arm is one combination of policies.
type Arm struct {
	// Name is the name of the arm, in reports and run directories (default: the names of its
	// policies, joined by +).
	Name string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9._+-]*$,maxLength=64"`
	// Policies are the policies by role; a role for which the arm names no policy is missing.
	Policies map[string]Policy `yaml:",inline"`
}

// ArmCross is the set of all combinations of the listed policies.
type ArmCross struct {
	// Policies are the lists of policies by role. In the order of arms those of the first role
	// vary slowest.
	Policies map[string][]Policy `yaml:",inline" jsonschema:"minItems=1"`
}

// Arms are the arms of a scenario, written as a list or as a mapping that stands for all its
// combinations.
type Arms []Arm

// Policy is a policy by name, written as a mapping if it has parameters.
type Policy struct {
	Name   string
	Params map[string]any // nil if it has none
}

// Vars maps the name of a variable to its default; nil is a variable that must be set.
type Vars map[string]*string

// Capture is the configuration of packet captures.
type Capture struct {
	// Snaplen is the number of bytes of each packet to keep: at least the headers of Ethernet
	// (14), IPv4 (20), TCP with time stamps (32) and of a transfer (92). Up to 160, only the headers
	// of segments of transfers are kept; above, their data too.
	Snaplen int `yaml:"snaplen" jsonschema:"default=160,minimum=158,maximum=65535" of:"bytes"`
	// Ring is the size of the buffer between kernel and recorder, for each host and each switch
	// with captured links.
	Ring units.Bytes `yaml:"ring" jsonschema:"default=2MB" least:"64KB" most:"1GB" scale:"keep"`
	// Links are links to capture at their switches, in addition to all hosts: names such as
	// "leaf0>spine1", and patterns such as "leaf*>spine*". They are for inspection; all results
	// come from the captures of hosts.
	Links []string `yaml:"links,omitempty"`
}

// Limits end or refuse a run that takes too much.
type Limits struct {
	// Duration is the longest time for one repeat of one arm; then it is aborted.
	Duration time.Duration `yaml:"duration" jsonschema:"default=10m" least:"1s" most:"168h"`
	// Stuck is the time for which a flow may stall while a link of its path is down; then it is
	// counted as failed.
	Stuck time.Duration `yaml:"stuck" jsonschema:"default=10s" least:"1ms" most:"24h"`
	// Flows is the largest number of flows of the workload.
	Flows int `yaml:"flows" jsonschema:"default=200000,minimum=1,maximum=100000000"`
	// Blocks is the largest number of blocks that the workload writes.
	Blocks int `yaml:"blocks" jsonschema:"default=100000,minimum=1,maximum=100000000"`
	// Tasks is the largest number of tasks of the workload (default: 2000000).
	Tasks int `yaml:"tasks,omitempty" jsonschema:"minimum=1,maximum=100000000"`
	// Alone is the largest number of tasks of the jobs that are simulated alone in a repeat, for their
	// slowdown (default: 20000). Equal jobs are simulated once; with more tasks, no slowdown is known.
	Alone int `yaml:"alone,omitempty" jsonschema:"minimum=1,maximum=100000000"`
	// Trace is the size of the largest trace, workload or job file that is read.
	Trace units.Bytes `yaml:"trace" jsonschema:"default=64MB" least:"1KB" most:"4GB" scale:"keep"`
}

// MarshalYAML returns the keys of the fabric's kind.
func (f Fabric) MarshalYAML() (any, error) {
	out := &yaml.Node{Kind: yaml.MappingNode}
	v := reflect.ValueOf(f)
	for _, field := range fieldsOf(v.Type()) {
		value := v.Field(field.index)
		if field.kind != "" && field.kind != f.Kind || field.optional && value.IsZero() {
			continue
		}
		n := &yaml.Node{}
		if err := n.Encode(value.Interface()); err != nil {
			return nil, err
		}
		out.Content = append(out.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: field.key}, n)
	}
	return out, nil
}

// MarshalYAML returns the item that is set.
func (i Item) MarshalYAML() (any, error) { return marshal(i) }

// MarshalYAML returns the name, or a mapping of name and parameters.
func (p Policy) MarshalYAML() (any, error) {
	if p.Params == nil {
		return p.Name, nil
	}
	m := map[string]any{"name": p.Name}
	for k, v := range p.Params {
		m[k] = v
	}
	return m, nil
}
