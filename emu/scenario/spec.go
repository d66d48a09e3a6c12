package scenario

import (
	"cmp"
	"embed"
	"reflect"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// The comments of the fields in these files are the descriptions in the JSON schema. Their
// jsonschema tags are the bounds of both the schema and the loader. The tags least and most
// bound quantities that carry a unit.
//
//go:embed spec.go specworkload.go specfaults.go
var specSources embed.FS

// Spec is the content of a scenario file.
type Spec struct {
	// Version is the version of the format of this file.
	Version int `yaml:"version,omitempty" jsonschema:"default=1,minimum=1,maximum=1"`
	// Name is the name of the experiment, and of run directories.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._+-]*$,maxLength=64"`
	// Vars are the variables, used as ${name} in any value, and their defaults, which "testbed run --set name=value"
	// overrides. One without a default must be set. $$ is a dollar sign.
	Vars Vars `yaml:"vars,omitempty"`
	// Sweep is lists of values by variable. Each combination is a point, with its own workload.
	Sweep Sweep `yaml:"sweep,omitempty"`
	// Fabric is the network to emulate.
	Fabric Fabric `yaml:"fabric" jsonschema:"required"`
	// Disk is the disks of each host. Required if the workload writes blocks or has jobs of tasks.
	Disk *Disk `yaml:"disk,omitempty"`
	// Heartbeat is the schedule of the reports of hosts to the master.
	Heartbeat Heartbeat `yaml:"heartbeat"`
	// Coordinator is the component that decides for coflow policies.
	Coordinator Coordinator `yaml:"coordinator,omitempty"`
	// Fluid is the settings of the fluid model, in simulations and predictions.
	Fluid Fluid `yaml:"fluid,omitempty"`
	// Setup is when connections of coflows open on packets. serial opens each when its flow may first send, a few at a
	// time; completion times include that. simultaneous opens them before the coflow arrives, and the first segments
	// leave at one moment; it excludes faults that cut links or crash hosts. Blocks and transfers of tasks are always
	// serial.
	Setup string `yaml:"setup" jsonschema:"default=serial,enum=serial,enum=simultaneous"`
	// Scale multiplies the sizes and times of traces and workload files, and the rates of this file.
	Scale Scale `yaml:"scale"`
	// Workload is the work of the cluster, one of the kinds below an item.
	Workload []Item `yaml:"workload" jsonschema:"required,minItems=1"`
	// Tasks is the runtime of jobs of tasks. Only with an item of kind tasks.
	Tasks *Tasks `yaml:"tasks,omitempty"`
	// Faults are the faults of each run, at times on its clock.
	Faults []Fault `yaml:"faults,omitempty"`
	// Arms are the variants to compare under the same workload.
	Arms Arms `yaml:"arms" jsonschema:"required"`
	// ForkAt is the time until which all arms have the first one's coflow policy, and thus the same past (in virtual
	// time, the same packets). Arms can then differ in coflow policies only.
	ForkAt time.Duration `yaml:"fork_at,omitempty" least:"1ms" most:"24h" scale:"keep"`
	// Repeat is the number of repeats of each arm, each with its own seed. With the keys below, they stop at the first
	// of two or three looks at which all arms' intervals are narrow enough.
	Repeat Repeats `yaml:"repeat" jsonschema:"default=1,minimum=1,maximum=1000"`
	// Largest number of attempts at a repeat on packets, which runs again until its verdict is pass; the last attempt
	// counts. In virtual time there is one.
	Tries int `yaml:"tries" jsonschema:"default=1,minimum=1,maximum=10"`
	// Seed is the seed of all random draws, which do not depend on the arm.
	Seed uint64 `yaml:"seed" jsonschema:"default=1,minimum=0,maximum=9007199254740991"`
	// Time is the clock of trials on packets. virtual runs each, without root, in a virtual machine whose clock counts
	// instructions: equal trials have equal packets.
	Time string `yaml:"time,omitempty" jsonschema:"default=real,enum=real,enum=virtual"`
	// Capture is the configuration of packet captures.
	Capture Capture `yaml:"capture"`
	// Limits are the limits that end or refuse a run that takes too much.
	Limits Limits `yaml:"limits"`
}

// Repeats is the number of repeats: fixed, with AtLeast equal to AtMost and no bound, or decided at looks.
type Repeats struct {
	// AtLeast is the number of repeats before the first look.
	AtLeast int `yaml:"at_least" jsonschema:"required,minimum=2,maximum=999"`
	// AtMost is the number of repeats at the last look. A look between them is at their geometric mean.
	AtMost int `yaml:"at_most" jsonschema:"required,minimum=3,maximum=1000"`
	// Until is the largest half-width of intervals that ends the repeats, in percent of each arm's ratio to the first:
	// of averages, and of the geometric mean.
	Until Until `yaml:"until" jsonschema:"required"`
}

// Until is a bound for each completion time, 0 for none.
type Until struct {
	// CCT is the bound for coflow completion times.
	CCT Percent `yaml:"cct,omitempty"`
	// FCT is the bound for flow completion times.
	FCT Percent `yaml:"fct,omitempty"`
	// WriteTime is the bound for block write times.
	WriteTime Percent `yaml:"write_time,omitempty"`
	// RequestTime is the bound for write request times.
	RequestTime Percent `yaml:"request_time,omitempty"`
	// JobTime is the bound for job times.
	JobTime Percent `yaml:"job_time,omitempty"`
}

// Fabric is the shape of the network.
type Fabric struct {
	// Kind is racks under leaf switches, which spines join, or one non-blocking switch, as coflow papers assume.
	Kind string `yaml:"kind" jsonschema:"default=leaf-spine,enum=leaf-spine,enum=switch"`
	// Leaves is the number of racks, each under one leaf switch.
	Leaves int `yaml:"leaves" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Spines is the number of spines; every leaf has a link to each. It may be 0 with one leaf.
	Spines int `yaml:"spines" jsonschema:"required,minimum=0,maximum=64" kind:"leaf-spine"`
	// HostsPerLeaf is the number of hosts of each rack.
	HostsPerLeaf int `yaml:"hosts_per_leaf" jsonschema:"required,minimum=1,maximum=250" kind:"leaf-spine"`
	// Ports is the number of ports of the switch leaf0, with one host each: h0-00 and so on.
	Ports int `yaml:"ports" jsonschema:"required,minimum=1,maximum=250" kind:"switch"`
	// HostLink is the rate of a host's link, in each direction.
	HostLink units.Rate `yaml:"host_link" jsonschema:"required" least:"100Kbps" most:"100Gbps"`
	// HostLinks are hosts whose links have another rate. The last entry that matches a host applies.
	HostLinks []HostLink `yaml:"host_links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// Oversubscription is a rack's host capacity relative to its uplinks, summed over the spines.
	Oversubscription units.Ratio `yaml:"oversubscription,omitempty" jsonschema:"default=1:1" kind:"leaf-spine"`
	// Uplink is the rate of each link between a leaf and a spine, in each direction. Replaces
	// oversubscription.
	Uplink units.Rate `yaml:"uplink,omitempty" least:"100Kbps" most:"1000Gbps" kind:"leaf-spine"`
	// CrossRack is the capacity of a rack to and from other racks, split evenly over the spines. Replaces
	// oversubscription.
	CrossRack units.Rate `yaml:"cross_rack,omitempty" least:"100Kbps" most:"10Tbps" kind:"leaf-spine"`
	// ZoneRacks is the number of consecutive racks in a zone, over which placement policies can spread replicas
	// (default: all).
	ZoneRacks int `yaml:"zone_racks,omitempty" jsonschema:"minimum=1,maximum=250" kind:"leaf-spine"`
	// Queue is the drop-tail buffer of every link, in bytes or as the time to empty it. At least two frames.
	Queue topo.Queue `yaml:"queue" jsonschema:"default=20ms"`
	// RED is random early detection on the queues of switch ports. Without it, queues drop packets
	// only when they are full. Requires a kernel with sch_red.
	RED *RED `yaml:"red,omitempty"`
	// Delay is the one-way propagation delay of every link. Values above 0s require a kernel with
	// sch_netem.
	Delay time.Duration `yaml:"delay" jsonschema:"default=0s" least:"0s" most:"10s"`
	// LinkModel is how links limit their rate (default: token-bucket). A token-bucket passes a packet at once after an
	// idle moment: short flows end early (docs/results.md, Short flows). store-and-forward holds each packet for its
	// time on the wire, limits its queue in full frames, and requires a kernel with sch_netem.
	LinkModel string `yaml:"link_model,omitempty" jsonschema:"enum=token-bucket,enum=store-and-forward"`
	// Links are links that differ. The last entry that matches a link applies.
	Links []LinkChange `yaml:"links,omitempty" jsonschema:"minItems=1,maxItems=256"`
	// MTU is the size of the largest IP packet, a plain number of bytes.
	MTU int `yaml:"mtu" jsonschema:"default=1500,minimum=576,maximum=65000" of:"bytes"`
	// CongestionControl is the kernel's name of the TCP congestion control between hosts, also for programs in a
	// testbed that is up.
	CongestionControl string `yaml:"congestion_control" jsonschema:"default=cubic,pattern=^[a-z0-9_-]+$,maxLength=15"`
	// Convergence is the time after which other leaves react to a failed or restored link between a leaf, which reacts
	// at once, and a spine.
	Convergence time.Duration `yaml:"convergence" jsonschema:"default=50ms" least:"0s" most:"1h"`
	// ShortFlow is the size of the smallest flow whose completion time links must reproduce within 5 %. On a
	// calibrated machine, links that cannot are refused. Jumbo frames need a larger value.
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

// VirtualTime is the value of Spec.Time that runs trials in virtual time.
const VirtualTime = "virtual"

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
	// Read is the read rate of each disk, independent of writes (default: the write rate). The program enforces it,
	// also if the kernel throttles writes.
	Read units.Rate `yaml:"read,omitempty" least:"10Kbps" most:"100Gbps"`
	// Size is the capacity of each disk.
	Size units.Bytes `yaml:"size" jsonschema:"default=256MB" least:"1KB" most:"100TB"`
	// Throttle is what limits disks. bucket is the program's token bucket over direct writes. kernel is a file system
	// on a loop device per disk, limited by a cgroup (io.max, or blkio of version 1); it needs root.
	Throttle string `yaml:"throttle" jsonschema:"default=bucket,enum=bucket,enum=kernel"`
	// Dir is the directory under which hosts store blocks (default: the run directory).
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
	// Phase is when in the interval each host and leaf reports: at random times, the same in all arms and on both
	// backends, or all at one moment, in order of number.
	Phase string `yaml:"phase" jsonschema:"default=random,enum=random,enum=together"`
	// Alpha is the newest sample's weight in the moving average of a host's traffic, 0.2 as in Sinbad (SIGCOMM 2013).
	Alpha float64 `yaml:"alpha" jsonschema:"default=0.2,minimum=0.000001,maximum=1"`
	// LostAfter is the number of missed heartbeats after which the master considers a host lost. A block pipeline
	// continues without a silent host after that number of intervals plus one second.
	LostAfter int `yaml:"lost_after" jsonschema:"default=4,minimum=1,maximum=1000"`
}

// Coordinator is the place where coflow policies decide.
type Coordinator struct {
	// Latency is the time until a decision's rate caps take effect, for which flows of a new coflow wait too. On
	// packets, the machine adds its own delay.
	Latency time.Duration `yaml:"latency" jsonschema:"default=0s" least:"0s" most:"1m"`
}

// Fluid is the settings of the fluid model, in simulations and predictions.
type Fluid struct {
	// Resolution delays the ends of transfers, blocks and computations to its multiples or the next other event, which
	// simulates large shuffles several times faster. 0s is exact, except for rounding errors, which chains of
	// transfers of tasks can multiply until they decide the order of events; 1us makes that unlikely.
	Resolution time.Duration `yaml:"resolution" jsonschema:"default=0s" least:"0s" most:"1m"`
	// JobsOnly keeps records of jobs and attempts, but only sums of transfers of tasks and no event log, so the run
	// cannot be replayed.
	JobsOnly bool `yaml:"jobs_only" jsonschema:"default=false"`
}

// Tasks is the runtime of jobs of tasks.
type Tasks struct {
	// MapSlots is the number of maps that a host runs at the same time.
	MapSlots int `yaml:"map_slots" jsonschema:"default=2,minimum=0,maximum=1000"`
	// ReduceSlots is the number of reduces that a host runs at the same time; splitting of copying and computing
	// lets more copy.
	ReduceSlots int `yaml:"reduce_slots" jsonschema:"default=2,minimum=0,maximum=1000"`
	// Cores is the number of cores that a host has for tasks (default: no limit).
	Cores float64 `yaml:"cores,omitempty" jsonschema:"minimum=0.001,maximum=1000000"`
	// Memory is the memory that a host has for tasks (default: no limit).
	Memory units.Bytes `yaml:"memory,omitempty" least:"1B" most:"1000TB"`
	// OutOfBand sends a heartbeat as soon as a task on the host ends, as in Facebook's Hadoop.
	OutOfBand bool `yaml:"out_of_band" jsonschema:"default=false"`
	// Slowstart is the share of each earlier stage's tasks that must end before tasks that fetch start.
	Slowstart float64 `yaml:"slowstart" jsonschema:"default=0.05,minimum=0,maximum=1"`
	// Shuffle is when fetches start: as earlier tasks end, or, as papers on coflows assume, all when the earlier
	// stages are done.
	Shuffle string `yaml:"shuffle" jsonschema:"default=pull,enum=pull,enum=barrier"`
	// Fetches is the largest number of simultaneous fetches of a task, each from another host.
	Fetches int `yaml:"fetches" jsonschema:"default=5,minimum=1,maximum=1000"`
	// FetchBatch is the largest number of outputs of one host in a fetch, 0 for no limit.
	FetchBatch int `yaml:"fetch_batch" jsonschema:"default=10,minimum=0,maximum=1000000"`
	// Penalty is the time for which a task avoids a host after a failed fetch, multiplied by penalty_growth at each
	// further failure in a row.
	Penalty time.Duration `yaml:"penalty" jsonschema:"default=10s" least:"1ms" most:"24h"`
	// PenaltyGrowth is the factor between penalties.
	PenaltyGrowth float64 `yaml:"penalty_growth" jsonschema:"default=1.3,minimum=1,maximum=1000"`
	// PenaltyMax is the longest penalty.
	PenaltyMax time.Duration `yaml:"penalty_max" jsonschema:"default=10m" least:"1ms" most:"24h"`
	// FetchFailures is the number of failed fetches of an output after which its task runs again.
	FetchFailures int `yaml:"fetch_failures" jsonschema:"default=3,minimum=1,maximum=1000"`
	// Attempts is the number of failed attempts of a task at which its job fails.
	Attempts int `yaml:"attempts" jsonschema:"default=4,minimum=1,maximum=1000"`
	// OutputSpace is the room on each host for outputs that later stages fetch (default: no limit).
	OutputSpace units.Bytes `yaml:"output_space,omitempty" least:"1B" most:"1000TB"`
	// Evict is the rule where outputs exceed output_space. none leaves it to the scheduler. Otherwise no task starts
	// without room for its output; if all jobs stop, the latest, or the one with the least progress, loses its outputs
	// and begins again after another has ended (default: none).
	Evict string `yaml:"evict,omitempty" jsonschema:"enum=none,enum=latest,enum=least-progress"`
	// Input is the blocks that tasks read, which are stored before the run.
	Input TaskInput `yaml:"input"`
	// Output is the blocks that tasks write.
	Output TaskOutput `yaml:"output"`
	// Stragglers makes some attempts slower (default: all are equally fast).
	Stragglers *Stragglers `yaml:"stragglers,omitempty"`
}

// Stragglers makes some attempts of tasks slower than others. Draws depend on the seed, the repeat and the
// attempt, and are the same in all arms. docs/job-runtime.md describes the model.
type Stragglers struct {
	// Probability is the probability that an attempt is a straggler.
	Probability float64 `yaml:"probability" jsonschema:"default=0.1,minimum=0,maximum=1"`
	// Factor is the range of the factor by which a straggler is slower, uniform.
	Factor Span `yaml:"factor" jsonschema:"default=6-10"`
	// Spread is the spread of other attempts: uniform factors from 1-spread to 1+spread.
	Spread float64 `yaml:"spread" jsonschema:"default=0.1,minimum=0,maximum=0.9"`
	// MidTask is the share of stragglers that slow down after a uniform part of their work, not at the start.
	MidTask float64 `yaml:"mid_task" jsonschema:"default=0.5,minimum=0,maximum=1"`
	// Sticky is the share of probability that comes from hosts: for a sticky_window, all attempts that start on a
	// host are stragglers, or none because of it.
	Sticky float64 `yaml:"sticky" jsonschema:"default=0,minimum=0,maximum=1"`
	// StickyWindow is the time after which slow hosts are drawn again. scale.time multiplies it.
	StickyWindow time.Duration `yaml:"sticky_window" jsonschema:"default=5m" least:"1ms" most:"168h"`
	// Tail is the distribution of factors: as above, or of all attempts by a Pareto distribution from 1, whose only
	// keys are shape and most.
	Tail string `yaml:"tail" jsonschema:"default=uniform,enum=uniform,enum=pareto"`
	// Shape is the shape of the Pareto distribution; a smaller one has a heavier tail.
	Shape float64 `yaml:"shape" jsonschema:"default=1.26,minimum=0.1,maximum=1000"`
	// Most is the largest factor, which replaces larger draws.
	Most float64 `yaml:"most" jsonschema:"default=20,minimum=1,maximum=1000000"`
}

// ParetoTail is the value of Stragglers.Tail with which all factors are from a Pareto distribution.
const ParetoTail = "pareto"

// TaskInput is the storage of the blocks that tasks read.
type TaskInput struct {
	// Placement is the placement policy, with default parameters, of input blocks on an idle cluster, with clients
	// drawn from the seed; the same in all arms.
	Placement string `yaml:"placement" jsonschema:"default=hdfs,minLength=1,maxLength=31"`
	// Replicas is the number of replicas of each input block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Cached keeps input blocks in memory, so that disks do not limit their reads.
	Cached bool `yaml:"cached" jsonschema:"default=false"`
}

// TaskOutput is the blocks that tasks write.
type TaskOutput struct {
	// Block is the size of a block; a task's last may be smaller (default: the largest input block).
	Block units.Bytes `yaml:"block,omitempty" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client, together at most a tenth of the block.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
}

// Scale holds the factors for traces, workload files, job files and rates.
type Scale struct {
	// Size multiplies the sizes of flows, in workload files also those of blocks and packets, and in job files all
	// sizes.
	Size workloads.Factor `yaml:"size" jsonschema:"default=1"`
	// Time multiplies arrival times, in workload files also the start times of writers, and in job files
	// submissions, and times of computation (rates are multiplied by size divided by time).
	Time workloads.Factor `yaml:"time" jsonschema:"default=1"`
	// Rate multiplies every rate and every size of this file (blocks, packets, disks, queues), so that times stay.
	// If size has the same value, those of traces and workload files stay too.
	Rate workloads.Factor `yaml:"rate" jsonschema:"default=1"`
}

// maxSpan is the largest allowed end of a Span.
const maxSpan = 62_500

// Arm is one variant to compare: a combination of policies, and changes of the scenario.
type Arm struct {
	// Name is the name of the arm (default: its policies and the values that it sets, such as
	// sebf+oversubscription=5to1).
	Name string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9._+=-]*$,maxLength=64"`
	// Set is the changes of the scenario in this arm, merged into the file as RFC 7396 describes: null removes a
	// key, a list replaces the whole list. Keys that would change the workload or the hosts cannot be set.
	Set map[string]any `yaml:"set,omitempty"`
	// Policies are the policies by role. A role that the workload requires and that the arm does not name
	// has the default policy of the role.
	Policies map[string]Policy `yaml:",inline"`
}

// ArmCross is the set of all combinations of the listed policies and of the listed values of keys of
// the scenario, written with dots, such as fabric.oversubscription.
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

// Sweep is empty in a Spec, which is that of one point; see Scenario.Points.
type Sweep map[string][]string

// Capture is the configuration of packet captures.
type Capture struct {
	// Snaplen is the number of bytes of each packet to keep, at least the headers of Ethernet (14), IPv4 (20), TCP
	// with time stamps (32) and of a transfer (92). Above 160, data are kept too.
	Snaplen int `yaml:"snaplen" jsonschema:"default=160,minimum=158,maximum=65535" of:"bytes"`
	// Ring is the size of the buffer between kernel and recorder of each host and switch.
	Ring units.Bytes `yaml:"ring" jsonschema:"default=2MB" least:"64KB" most:"1GB" scale:"keep"`
	// Links are links to capture at switches, in addition to all hosts: names such as "leaf0>spine1", and patterns
	// such as "leaf*>spine*". All results come from the captures of hosts.
	Links []string `yaml:"links,omitempty"`
}

// Limits end or refuse a run that takes too much.
type Limits struct {
	// Duration is the longest time of a repeat of an arm, which is then aborted.
	Duration time.Duration `yaml:"duration" jsonschema:"default=10m" least:"1s" most:"168h"`
	// Stuck is the time after which a flow stalled by a down link of its path fails.
	Stuck time.Duration `yaml:"stuck" jsonschema:"default=10s" least:"1ms" most:"24h"`
	// Flows is the largest number of flows of the workload.
	Flows int `yaml:"flows" jsonschema:"default=200000,minimum=1,maximum=100000000"`
	// Blocks is the largest number of blocks that the workload writes.
	Blocks int `yaml:"blocks" jsonschema:"default=100000,minimum=1,maximum=100000000"`
	// Tasks is the largest number of tasks of the workload (default: 2000000).
	Tasks int `yaml:"tasks,omitempty" jsonschema:"minimum=1,maximum=100000000"`
	// Alone is the largest number of tasks of a repeat's different jobs that are simulated alone for their slowdown
	// (default: 20000); with more, none is known.
	Alone int `yaml:"alone,omitempty" jsonschema:"minimum=1,maximum=100000000"`
	// Samples is the number of rows of samples.parquet of a trial, about 3 bytes each (default: 8388608, in a
	// simulation 2097152): as it fills, readings become rarer.
	Samples int `yaml:"samples,omitempty" jsonschema:"minimum=1000,maximum=1000000000"`
	// Trace is the size of the largest trace, workload, job or policy file that is read.
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

// MarshalYAML returns the name, or a mapping of name and parameters.
func (p Policy) MarshalYAML() (any, error) {
	if p.Params == nil {
		return p.Name, nil
	}
	m := map[string]any{}
	if !catalog.IsExternal(p.Name) {
		m["name"] = p.Name
	}
	for k, v := range p.Params {
		m[k] = v
	}
	return m, nil
}
