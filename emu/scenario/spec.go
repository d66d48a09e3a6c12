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

// The comments of this file's fields are the descriptions in the JSON schema,
// and their jsonschema tags are both the schema's bounds and the loader's: each
// is stated once. least and most bound quantities that carry a unit.
//
//go:embed spec.go
var specSource []byte

// Spec is a scenario file.
type Spec struct {
	// Name of the experiment; run directories carry it.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._+-]*$,maxLength=64"`
	// Vars are variables with their defaults. ${name} in any value stands for
	// one, and "testbed run --set name=value" overrides it; one without a default
	// must be set. $$ stands for a dollar sign.
	Vars Vars `yaml:"vars,omitempty"`
	// Fabric is the leaf-spine network to emulate.
	Fabric Fabric `yaml:"fabric" jsonschema:"required"`
	// Disk of each host. Needed where blocks are written.
	Disk *Disk `yaml:"disk,omitempty"`
	// Heartbeat is how hosts report their traffic to the master.
	Heartbeat Heartbeat `yaml:"heartbeat"`
	// Coordinator is how coflow policies reach the hosts.
	Coordinator Coordinator `yaml:"coordinator,omitempty"`
	// Scale multiplies what a trace or workload file states, whose sizes and times may
	// be those of another cluster, and the rates of this file. What else this file
	// states is taken as written.
	Scale Scale `yaml:"scale"`
	// Workload is what the cluster is asked to do: traces of coflows to replay,
	// writers and readers of blocks, jobs that shuffle and write, background, and workload
	// files.
	Workload []Item `yaml:"workload" jsonschema:"required,minItems=1"`
	// Faults are what goes wrong during each run, at times on its clock.
	Faults []Fault `yaml:"faults,omitempty"`
	// Arms are the combinations of policies to compare under the same workload.
	Arms Arms `yaml:"arms" jsonschema:"required"`
	// Repeat is how often each arm runs, each time with other luck.
	Repeat int `yaml:"repeat" jsonschema:"default=1,minimum=1,maximum=1000"`
	// Tries is how often a repeat of an arm on packets is run at most, until its verdict
	// is a pass. The last try counts, whatever it is; the verdict alone decides, no figure
	// does. A report says what earlier tries failed by.
	Tries int `yaml:"tries" jsonschema:"default=1,minimum=1,maximum=10"`
	// Seed of all luck: where writers are, paths, placements. Luck does not
	// depend on the arm.
	Seed uint64 `yaml:"seed" jsonschema:"default=1,minimum=0,maximum=9007199254740991"`
	// Capture is how packets are recorded.
	Capture Capture `yaml:"capture"`
	// Limits end or refuse what would run away.
	Limits Limits `yaml:"limits"`
}

// Fabric is the shape of the network.
type Fabric struct {
	// Kind of fabric: leaf-spine is racks under leaves that spines join; switch is
	// one switch that never blocks, as papers on coflows assume.
	Kind string `yaml:"kind" jsonschema:"default=leaf-spine,enum=leaf-spine,enum=switch"`
	// Leaves are the racks, each under one leaf switch.
	Leaves int `yaml:"leaves" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Spines that every leaf is linked to. May be 0 where there is one leaf.
	Spines int `yaml:"spines" jsonschema:"required,minimum=0,maximum=64" kind:"leaf-spine"`
	// HostsPerLeaf are the hosts of each rack.
	HostsPerLeaf int `yaml:"hosts_per_leaf" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Ports of the switch, one host at each: h0-00 and so on; the switch is leaf0.
	Ports int `yaml:"ports" jsonschema:"required,minimum=1,maximum=250" kind:"switch"`
	// HostLink is the rate of a host's link, both ways.
	HostLink units.Rate `yaml:"host_link" jsonschema:"required" least:"100Kbps" most:"100Gbps"`
	// HostLinks are hosts whose links have another rate. Where several name a host,
	// the last wins.
	HostLinks []HostLink `yaml:"host_links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// Oversubscription is a rack's host capacity over its uplink capacity, summed
	// over the spines.
	Oversubscription units.Ratio `yaml:"oversubscription,omitempty" jsonschema:"default=1:1" kind:"leaf-spine"`
	// Uplink is the rate of each link between a leaf and a spine, both ways. Instead
	// of oversubscription.
	Uplink units.Rate `yaml:"uplink,omitempty" least:"100Kbps" most:"1000Gbps" kind:"leaf-spine"`
	// CrossRack is what a rack may send to other racks, and receive from them, split
	// evenly over the spines. Instead of oversubscription.
	CrossRack units.Rate `yaml:"cross_rack,omitempty" least:"100Kbps" most:"10Tbps" kind:"leaf-spine"`
	// ZoneRacks is how many racks share a power or network zone: the first so many
	// are one, the next so many another. Without it all racks share one. Placement
	// policies may spread replicas over zones.
	ZoneRacks int `yaml:"zone_racks,omitempty" jsonschema:"minimum=1,maximum=250" kind:"leaf-spine"`
	// Queue is the drop-tail buffer ahead of every link, in bytes or as the time
	// the link takes to empty it. It must hold at least two frames.
	Queue topo.Queue `yaml:"queue" jsonschema:"default=20ms"`
	// RED is random early detection on the queues of switch ports. Without it they
	// drop only when they are full. Needs a kernel with sch_red.
	RED *RED `yaml:"red,omitempty"`
	// Delay is the propagation of every link, one way. Needs a kernel with sch_netem
	// where it is not 0s.
	Delay time.Duration `yaml:"delay" jsonschema:"default=0s" least:"0s" most:"10s"`
	// Links are links that differ in rate, queue or delay. Where several name a
	// link, the last wins.
	Links []LinkChange `yaml:"links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// MTU is the largest IP packet, a plain number of bytes.
	MTU int `yaml:"mtu" jsonschema:"default=1500,minimum=576,maximum=65000" of:"bytes"`
	// CongestionControl is TCP's, by the kernel's name for it.
	CongestionControl string `yaml:"congestion_control" jsonschema:"default=cubic,pattern=^[a-z0-9_-]+$,maxLength=15"`
	// Convergence is how long routing takes to tell the other leaves that a link
	// between a spine and a leaf is down, or back. The leaf itself knows at once.
	Convergence time.Duration `yaml:"convergence" jsonschema:"default=50ms" least:"0s" most:"1h"`
	// ShortFlow is the smallest flow whose time the links must hold within 5 %. A
	// token bucket gives every flow about one frame after an idle moment, so jumbo
	// frames need a larger one. Where the machine is calibrated, links that cannot
	// hold it are refused.
	ShortFlow units.Bytes `yaml:"short_flow" jsonschema:"default=50KB" least:"1KB" most:"1GB" scale:"keep"`
}

// HostLink is the rate of the links of some hosts.
type HostLink struct {
	// Hosts by name, with the wildcards *, ? and [...], such as h*-03.
	Hosts string `yaml:"hosts" jsonschema:"required,minLength=1,maxLength=100"`
	// Rate of their links, both ways.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"100Kbps" most:"100Gbps"`
}

// LinkChange says what differs about some links. What is left out stays.
type LinkChange struct {
	// Link by its ends, with the wildcards *, ? and [...]: leaf0>spine1 is one
	// direction, leaf0<>spine1 both.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=100"`
	// Rate of the link.
	Rate units.Rate `yaml:"rate,omitempty" least:"100Kbps" most:"1000Gbps"`
	// Queue ahead of it.
	Queue topo.Queue `yaml:"queue,omitempty"`
	// Delay is its propagation, one way.
	Delay *time.Duration `yaml:"delay,omitempty" least:"0s" most:"10s"`
}

// RED is random early detection (Floyd and Jacobson 1993).
type RED struct {
	// Min is the average queue up to which nothing is dropped.
	Min units.Bytes `yaml:"min" jsonschema:"required" least:"577B" most:"1GB"`
	// Max is the average queue above which everything is.
	Max units.Bytes `yaml:"max" jsonschema:"required" least:"577B" most:"1GB"`
	// Probability with which a packet is dropped at max.
	Probability float64 `yaml:"probability" jsonschema:"default=0.1,minimum=0.000001,maximum=1"`
	// ECN marks the packets of TCP instead of dropping them, and makes hosts ask for
	// it.
	ECN bool `yaml:"ecn" jsonschema:"default=false"`
}

// KernelThrottle is Disk.Throttle where the kernel holds disks to their rates.
const KernelThrottle = "kernel"

// Disk is what block servers write to.
type Disk struct {
	// Count of disks that each host has. Blocks go to them in turn.
	Count int `yaml:"count" jsonschema:"default=1,minimum=1,maximum=64"`
	// Write is the rate at which each disk takes writes, such as "6.9MB/s".
	Write units.Rate `yaml:"write" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// Read is the rate at which each disk reads, beside writes. Without it, that of
	// writes. It is a token bucket of the program, also where the kernel throttles writes.
	Read units.Rate `yaml:"read,omitempty" least:"10Kbps" most:"100Gbps"`
	// Size is the capacity of each disk.
	Size units.Bytes `yaml:"size" jsonschema:"default=256MB" least:"1KB" most:"100TB"`
	// Throttle is what holds disks to their rates: bucket is a token bucket of the
	// program above direct writes; kernel is a file system on a loop device for each disk,
	// limited by a cgroup (io.max or, on version 1, blkio), for which the program needs root.
	Throttle string `yaml:"throttle" jsonschema:"default=bucket,enum=bucket,enum=kernel"`
	// Dir is a directory of the machine under which hosts store blocks. Without
	// it they are stored under the run directory.
	Dir string `yaml:"dir,omitempty" jsonschema:"maxLength=4096"`
}

// ReadRate is the rate at which each disk reads.
func (d Disk) ReadRate() units.Rate { return cmp.Or(d.Read, d.Write) }

// Heartbeat is the report of a host to the master.
type Heartbeat struct {
	// Interval between two reports of a host.
	Interval time.Duration `yaml:"interval" jsonschema:"default=250ms" least:"1ms" most:"1h"`
	// Alpha is the weight of the newest sample in the moving average of a host's
	// traffic, above 0 and at most 1. Sinbad (SIGCOMM 2013) uses 0.2.
	Alpha float64 `yaml:"alpha" jsonschema:"default=0.2,minimum=0.000001,maximum=1"`
	// LostAfter is how many heartbeats in a row a crashed host must miss before
	// the master takes it for lost. A block pipeline waits for a host that is silent
	// for as many intervals and a second, and then goes on without it.
	LostAfter int `yaml:"lost_after" jsonschema:"default=4,minimum=1,maximum=1000"`
}

// Coordinator is where coflow policies decide.
type Coordinator struct {
	// Latency is how long after the moment of a decision its ceilings take effect:
	// reports of agents, computing and answers together. The flows of a new coflow wait
	// for it too. On packets what the machine itself needs comes on top.
	Latency time.Duration `yaml:"latency" jsonschema:"default=0s" least:"0s" most:"1m"`
}

// Scale is by what the sizes and times of traces and workload files are multiplied.
type Scale struct {
	// Size multiplies the sizes of flows, such as "1/100" or 0.01, and in workload
	// files those of blocks and packets too.
	Size workloads.Factor `yaml:"size" jsonschema:"default=1"`
	// Time multiplies moments of arrival, such as "1/10" or 0.1, and in workload files
	// those at which writers start too.
	Time workloads.Factor `yaml:"time" jsonschema:"default=1"`
	// Rate multiplies every rate of this file, and every size in it (blocks,
	// packets, disks, queues) with them, so that times stay. With size multiplied
	// by the same, traces and workload files keep their times too.
	Rate workloads.Factor `yaml:"rate" jsonschema:"default=1"`
}

// Item is one part of the workload; which, its kind says.
type Item struct {
	Trace      *TraceItem
	Writers    *WritersItem
	Readers    *ReadersItem
	Jobs       *JobsItem
	Background *BackgroundItem
	File       *FileItem
}

// TraceItem replays the coflows of a trace.
type TraceItem struct {
	// Kind is trace: coflows from a file in the format of the public
	// coflow-benchmark, or in another that the trace verb writes; which is found
	// by what is in it.
	Kind string `yaml:"kind" jsonschema:"required,enum=trace"`
	// Path of the trace, relative to this file; one given by --set is relative
	// to where the program runs.
	Path string `yaml:"path" jsonschema:"required,minLength=1,maxLength=4096"`
	// First so many coflows of the trace are replayed. All without it.
	First int `yaml:"first,omitempty" jsonschema:"minimum=1,maximum=10000000"`
	// Merge flows of a coflow that run between the same two hosts into one.
	Merge bool `yaml:"merge" jsonschema:"default=true"`
	// MB is the megabyte of a trace that is not in bytes: MB is 10⁶ bytes, MiB is
	// 2²⁰, as the simulator published with the Facebook trace has it.
	MB string `yaml:"mb" jsonschema:"default=MiB,enum=MB,enum=MiB"`
}

// WritersItem writes blocks from some hosts.
type WritersItem struct {
	// Kind is writers: clients that each write blocks, one after another.
	Kind string `yaml:"kind" jsonschema:"required,enum=writers"`
	// Count of writers, on different hosts drawn by the seed. Instead of hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts that write, by name, such as h0-00: rack 0, host 0. Instead of count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks that each writes.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet of the write pipeline: what is forwarded and acknowledged as one.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the most packets a client has un-acknowledged. Together they may
	// not exceed a tenth of the block: the client is ahead of the slowest part of
	// the pipeline by so much.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// Start of the writers.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread delays each writer's start by a time drawn between 0 and it.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// ReadersItem reads blocks that the workload writes.
type ReadersItem struct {
	// Kind is readers: clients that each fetch blocks of this workload, one after another,
	// from the nearest replica. A block that is not written yet is waited for.
	Kind string `yaml:"kind" jsonschema:"required,enum=readers"`
	// Count of readers, on different hosts drawn by the seed. Instead of hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts that read, by name, such as h0-00: rack 0, host 0. Instead of count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks that each reads. Which, the seed draws, each time from all that there are.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Of says whose blocks: all, those that jobs write, or those of other writers.
	Of string `yaml:"of" jsonschema:"default=all,enum=all,enum=writers,enum=jobs"`
	// Start of the readers.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread delays each reader's start by a time drawn between 0 and it.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// JobsItem draws jobs that shuffle and then write, and jobs that only write.
type JobsItem struct {
	// Kind is jobs: they arrive at random, and most shuffle before their reducers
	// write; docs/workloads.md tells how they are drawn.
	Kind string `yaml:"kind" jsonschema:"required,enum=jobs"`
	// Count of jobs.
	Count int `yaml:"count" jsonschema:"required,minimum=1,maximum=1000000"`
	// Interval between two arrivals, on average. Instead of load.
	Interval time.Duration `yaml:"interval,omitempty" least:"1us" most:"24h"`
	// Load is what the jobs ask of the links toward the racks, as a share of what these
	// carry while jobs arrive: shuffles, and one copy of each block. On one rack it is
	// all copies, and the links of hosts. Instead of interval.
	Load float64 `yaml:"load,omitempty" jsonschema:"minimum=0.000001,maximum=100"`
	// Start of the arrivals.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet of the write pipeline: what is forwarded and acknowledged as one.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the most packets a client has un-acknowledged. Together they may
	// not exceed a tenth of the block: the client is ahead of the slowest part of
	// the pipeline by so much.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// WholeBlocks rounds what a writer writes up to whole blocks. Without it the last
	// block of a file has any size.
	WholeBlocks bool `yaml:"whole_blocks" jsonschema:"default=false"`
	// Small is the share of all blocks that are small files beside the output, from 0
	// to 0.95.
	Small float64 `yaml:"small" jsonschema:"default=0,minimum=0,maximum=0.95"`
	// SmallBlock is the largest of the small ones, whose sizes are drawn uniformly.
	// Without it an eighth of a block.
	SmallBlock units.Bytes `yaml:"small_block,omitempty" least:"1B" most:"1TB"`
	// Mappers of a job that shuffles, from and to.
	Mappers Span `yaml:"mappers" jsonschema:"default=2-8"`
	// Reducers of a job that shuffles, from and to, at most one a block that it writes.
	Reducers Span `yaml:"reducers" jsonschema:"default=1-8"`
	// Writers of a job that only writes, from and to.
	Writers Span `yaml:"writers" jsonschema:"default=1-4"`
	// Blocks that each of these writes, from and to.
	Blocks Span `yaml:"blocks" jsonschema:"default=1-3"`
	// Output is what a job writes on average over all bins, without replicas. Without
	// it, so much that the jobs that only write have their share of the bytes.
	Output units.Bytes `yaml:"output,omitempty" least:"1B" most:"1TB"`
	// ShuffleRate is at what rate a reducer is taken to fetch on an idle cluster, from
	// which the size of shuffles follows. Without it, what a host's share of its rack's
	// links to the spines carries, or its own link where that is less.
	ShuffleRate units.Rate `yaml:"shuffle_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// WriteRate is at what rate a reducer is taken to write. Without it, that of a disk,
	// or of a host's link where that is less.
	WriteRate units.Rate `yaml:"write_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// OffHot keeps reducers and writers off the leaves that the background of this
	// workload makes hot at the job's arrival.
	OffHot bool `yaml:"off_hot" jsonschema:"default=false"`
	// Bins of jobs by the share of their time in which they write. Without it, the five
	// with which Sinbad (SIGCOMM 2013) is evaluated.
	Bins []Bin `yaml:"bins,omitempty" jsonschema:"minItems=1,maxItems=100"`
}

// Bin is one class of jobs.
type Bin struct {
	// Jobs is the bin's share of the jobs, relative to the other bins'.
	Jobs int `yaml:"jobs" jsonschema:"required,minimum=1,maximum=1000000"`
	// Bytes is the bin's share of the bytes written, relative to the other bins'.
	Bytes int `yaml:"bytes" jsonschema:"required,minimum=1,maximum=1000000"`
	// From is the least share of a job's time in which it writes; 1 for jobs that only
	// write.
	From float64 `yaml:"from" jsonschema:"required,minimum=0.001,maximum=1"`
	// To is the largest; 1 where from is, else below it.
	To float64 `yaml:"to" jsonschema:"required,minimum=0.001,maximum=1"`
}

// BackgroundItem loads the links toward the racks, unevenly.
type BackgroundItem struct {
	// Kind is background: shuffles into all leaves, most of them into a few that are hot
	// for a while. Averages over coflows and jobs leave them out.
	Kind string `yaml:"kind" jsonschema:"required,enum=background"`
	// HotLeaves are so many at a time.
	HotLeaves int `yaml:"hot_leaves" jsonschema:"required,minimum=1,maximum=249"`
	// Intensity is what comes into all leaves, as a share of what the links toward them
	// carry.
	Intensity float64 `yaml:"intensity" jsonschema:"default=0.35,minimum=0.000001,maximum=1"`
	// HotShare is how much of it comes into the hot leaves.
	HotShare float64 `yaml:"hot_share" jsonschema:"default=0.7,minimum=0.000001,maximum=1"`
	// Persist is how long leaves stay hot before others are drawn. Keep it much longer
	// than a heartbeat and than a block takes.
	Persist time.Duration `yaml:"persist" jsonschema:"required" least:"1ms" most:"24h"`
	// Transfer is the size of one coflow.
	Transfer units.Bytes `yaml:"transfer" jsonschema:"required" least:"64B" most:"1TB"`
	// Senders of a coflow, in other racks, to one host.
	Senders int `yaml:"senders" jsonschema:"default=4,minimum=1,maximum=64"`
	// Start of the load.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// For is how long coflows arrive.
	For time.Duration `yaml:"for" jsonschema:"required" least:"1ms" most:"24h"`
}

// FileItem takes coflows, writers and jobs from a workload file.
type FileItem struct {
	// Kind is workload: a file that "testbed workload generate" writes, or a hand.
	Kind string `yaml:"kind" jsonschema:"required,enum=workload"`
	// Path of the file, relative to this file; one given by --set is relative to where
	// the program runs.
	Path string `yaml:"path" jsonschema:"required,minLength=1,maxLength=4096"`
}

// Span is a range of whole numbers, both ends included, written "2-8" or "3".
type Span struct{ From, To int }

// String prints "2-8", or "3" where both ends are.
func (s Span) String() string {
	if s.From == s.To {
		return strconv.Itoa(s.From)
	}
	return fmt.Sprintf("%d-%d", s.From, s.To)
}

// MarshalText is String.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// maxSpan is the largest end of a Span.
const maxSpan = 62_500

// UnmarshalText reads what String prints.
func (s *Span) UnmarshalText(text []byte) error {
	from, to, two := strings.Cut(string(text), "-")
	if !two {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || strconv.Itoa(a) != from || strconv.Itoa(b) != to || a < 1 || b < a || b > maxSpan {
		return fmt.Errorf(`range %q: want two whole numbers from 1 to %d, the smaller first, such as "2-8", or one`, clip(string(text)), maxSpan)
	}
	*s = Span{a, b}
	return nil
}

// Fault is one thing that goes wrong; which, its kind says.
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

// LinkDownFault cuts links.
type LinkDownFault struct {
	// Kind is link-down: links pass nothing, either way.
	Kind string `yaml:"kind" jsonschema:"required,enum=link-down"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link to cut, such as "leaf0<>spine1" or "leaf0<>h0-*" for several.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LinkFlapFault cuts links again and again.
type LinkFlapFault struct {
	// Kind is link-flap: links go down and come back several times.
	Kind string `yaml:"kind" jsonschema:"required,enum=link-flap"`
	// At is when the links go down first.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link that flaps, such as "h0-03<>leaf0".
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Down is how long it is down each time.
	Down time.Duration `yaml:"down" jsonschema:"required" least:"1ms" most:"24h"`
	// Up is how long it is up in between.
	Up time.Duration `yaml:"up" jsonschema:"required" least:"1ms" most:"24h"`
	// Times that it goes down.
	Times int `yaml:"times" jsonschema:"required,minimum=1,maximum=1000"`
}

// LinkRateFault makes links slower or faster.
type LinkRateFault struct {
	// Kind is link-rate: links have another rate.
	Kind string `yaml:"kind" jsonschema:"required,enum=link-rate"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link whose rate changes, one direction as in "leaf0>spine1" or both as in
	// "leaf0<>spine1".
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Rate that the link has meanwhile.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// HostCrashFault crashes a host.
type HostCrashFault struct {
	// Kind is host-crash: a host is gone with all that it was doing, and starts
	// again with nothing to do.
	Kind string `yaml:"kind" jsonschema:"required,enum=host-crash"`
	// At is when it crashes.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host that crashes, by name.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// For is how long it is gone. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
	// Disk is lost or kept: whether what the host stored is there when it is back.
	Disk string `yaml:"disk" jsonschema:"default=kept,enum=kept,enum=lost"`
}

// SlowDiskFault slows a disk.
type SlowDiskFault struct {
	// Kind is slow-disk: a host's disk takes writes at another rate.
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-disk"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host whose disk it is, by name.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Rate of the disk meanwhile.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SlowCPUFault slows a host.
type SlowCPUFault struct {
	// Kind is slow-cpu: a host works for a share of the time only, a straggler.
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-cpu"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host that is slow, by name.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Share of the time in which it works.
	Share float64 `yaml:"share" jsonschema:"required,minimum=0.01,maximum=1"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SpineDownFault takes a spine down.
type SpineDownFault struct {
	// Kind is spine-down: all links of a spine pass nothing.
	Kind string `yaml:"kind" jsonschema:"required,enum=spine-down"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Spine that is down, by name.
	Spine string `yaml:"spine" jsonschema:"required,minLength=1,maxLength=64"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LostReportsFault keeps reports of hosts from the master.
type LostReportsFault struct {
	// Kind is lost-reports: what hosts report of their links and disks does not reach
	// the master, which does not take them for lost.
	Kind string `yaml:"kind" jsonschema:"required,enum=lost-reports"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host whose reports are lost, such as "h0-03", or "h0-*" for several.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LateReportsFault delays reports of hosts.
type LateReportsFault struct {
	// Kind is late-reports: what hosts report of their links and disks reaches the
	// master later, with the counters of when it was made.
	Kind string `yaml:"kind" jsonschema:"required,enum=late-reports"`
	// At is when it begins.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host whose reports are late, such as "h0-03", or "h0-*" for several.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// By is how long after it was made a report comes in.
	By time.Duration `yaml:"by" jsonschema:"required" least:"1ms" most:"1h"`
	// For is how long it lasts. Without it, for good.
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// Arm is one combination of policies.
type Arm struct {
	// Name of the arm, in reports and run directories. Without it, the names of
	// its policies joined by +.
	Name string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9._+-]*$,maxLength=64"`
	// Coflow is the policy that shares the network among coflows.
	Coflow Policy `yaml:"coflow" jsonschema:"required"`
	// Placement is the policy that chooses the hosts of replicas. Needed where
	// blocks are written.
	Placement Policy `yaml:"placement,omitempty"`
}

// Policies are the names of an arm's policies by role.
func (a Arm) Policies() map[string]string {
	names := map[string]string{"coflow": a.Coflow.Name}
	if a.Placement.Name != "" {
		names["placement"] = a.Placement.Name
	}
	return names
}

// ArmCross is arms as every combination of the listed policies.
type ArmCross struct {
	// Coflow policies, the slowest to vary.
	Coflow []Policy `yaml:"coflow" jsonschema:"required,minItems=1"`
	// Placement policies.
	Placement []Policy `yaml:"placement,omitempty" jsonschema:"minItems=1"`
}

// Arms are written as a list, or as a mapping whose combinations they are.
type Arms []Arm

// Policy is one by name, with parameters of its own where it is a mapping.
type Policy struct {
	Name   string
	Params map[string]any // nil where it has none
}

// Vars are values by the name of the variable; nil is one that must be set.
type Vars map[string]*string

// Capture is how packets are recorded.
type Capture struct {
	// Snaplen is how many bytes of each packet are kept: at least the headers of
	// Ethernet (14), IPv4 (20), TCP with its options (60) and of a transfer (64).
	Snaplen int `yaml:"snaplen" jsonschema:"default=160,minimum=158,maximum=65535" of:"bytes"`
	// Ring is the memory between kernel and recorder for each host, and each switch
	// of which links are captured.
	Ring units.Bytes `yaml:"ring" jsonschema:"default=2MB" least:"64KB" most:"1GB" scale:"keep"`
	// Links are captured where they leave their switches, besides all hosts: names
	// such as "leaf0>spine1", and patterns such as "leaf*>spine*". They are to be
	// looked at; all figures come from the hosts.
	Links []string `yaml:"links,omitempty"`
}

// Limits end or refuse what would run away.
type Limits struct {
	// Duration that one repeat of one arm may take before it is given up.
	Duration time.Duration `yaml:"duration" jsonschema:"default=10m" least:"1s" most:"168h"`
	// Stuck is how long a flow may stand still while a link of its path is down
	// before it is given up as failed.
	Stuck time.Duration `yaml:"stuck" jsonschema:"default=10s" least:"1ms" most:"24h"`
	// Flows that the workload may have.
	Flows int `yaml:"flows" jsonschema:"default=200000,minimum=1,maximum=100000000"`
	// Blocks that the workload may write.
	Blocks int `yaml:"blocks" jsonschema:"default=100000,minimum=1,maximum=100000000"`
	// Trace is the largest trace file that is read.
	Trace units.Bytes `yaml:"trace" jsonschema:"default=64MB" least:"1KB" most:"4GB" scale:"keep"`
}

// MarshalYAML gives the keys of the fabric's kind.
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

// MarshalYAML gives the item that is set.
func (i Item) MarshalYAML() (any, error) {
	for _, k := range itemKinds(&i) {
		if !k.field.IsNil() {
			return k.field.Interface(), nil
		}
	}
	return nil, nil
}

// MarshalYAML gives the name, or name and parameters as one mapping.
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

// IsZero tells a policy that is not given.
func (p Policy) IsZero() bool { return p.Name == "" }
