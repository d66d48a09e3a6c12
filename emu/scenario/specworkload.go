package scenario

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

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

// TraceItem replays the coflows of a trace file, in a format that "testbed trace" reads.
type TraceItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=trace"`
	// Path is the path of the file, relative to this file; from --set, to the working directory.
	Path string `yaml:"path" jsonschema:"required,minLength=1,maxLength=4096"`
	// First is the number of coflows to replay, from the start (default: all).
	First int `yaml:"first,omitempty" jsonschema:"minimum=1,maximum=10000000"`
	// Merge joins the flows of a coflow between the same two hosts.
	Merge bool `yaml:"merge" jsonschema:"default=true"`
	// MB is the megabyte of a trace that does not state bytes: 10⁶ bytes, or 2²⁰ as in the simulator published with
	// the Facebook trace.
	MB string `yaml:"mb" jsonschema:"default=MB,enum=MB,enum=MiB"`
}

// WritersItem starts clients that write blocks one after another.
type WritersItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=writers"`
	// Count is the number of clients, on different hosts drawn from the seed. Excludes hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts are the hosts of the clients, such as h0-00: rack 0, host 0. Excludes count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks is the number of blocks of each client.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client, together at most a tenth of the block.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// Start is the start time.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread is the largest random delay of the start of each client.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// ReadersItem starts clients that fetch blocks of this workload one after another, from the nearest replica, and
// wait for those that are not written yet.
type ReadersItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=readers"`
	// Count is the number of clients, on different hosts drawn from the seed. Excludes hosts.
	Count int `yaml:"count,omitempty" jsonschema:"minimum=1,maximum=62500"`
	// Hosts are the hosts of the clients, such as h0-00: rack 0, host 0. Excludes count.
	Hosts []string `yaml:"hosts,omitempty" jsonschema:"minItems=1"`
	// Blocks is the number of blocks that each client fetches, drawn from the seed.
	Blocks int `yaml:"blocks" jsonschema:"required,minimum=1,maximum=100000"`
	// Of is which blocks are read: all, those of jobs, or those of other writers.
	Of string `yaml:"of" jsonschema:"default=all,enum=all,enum=writers,enum=jobs"`
	// Start is the start time.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Spread is the largest random delay of the start of each client.
	Spread time.Duration `yaml:"spread" jsonschema:"default=0s" least:"0s" most:"24h"`
}

// JobsItem draws jobs that arrive at random, and shuffle and write, or only write (docs/workloads.md).
type JobsItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=jobs"`
	// Count is the number of jobs.
	Count int `yaml:"count" jsonschema:"required,minimum=1,maximum=1000000"`
	// Interval is the average time between two arrivals. Excludes load.
	Interval time.Duration `yaml:"interval,omitempty" least:"1us" most:"24h"`
	// Load is the jobs' load on the links toward racks while jobs arrive, as a share of their capacity: shuffles, and
	// one copy of each block; on one rack, on the links of hosts, with all copies. Excludes interval.
	Load float64 `yaml:"load,omitempty" jsonschema:"minimum=0.000001,maximum=100"`
	// Start is the time of the first possible arrival.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// Block is the size of a block.
	Block units.Bytes `yaml:"block" jsonschema:"required" least:"1B" most:"1TB"`
	// Replicas is the number of replicas of each block, on different hosts.
	Replicas int `yaml:"replicas" jsonschema:"default=3,minimum=1,maximum=64"`
	// Packet is the unit that the write pipeline forwards and acknowledges.
	Packet units.Bytes `yaml:"packet" jsonschema:"default=64KB" least:"1B" most:"64MB"`
	// Window is the largest number of unacknowledged packets of a client, together at most a tenth of the block.
	Window int `yaml:"window" jsonschema:"default=6,minimum=1,maximum=100000"`
	// WholeBlocks rounds the output of a writer up to whole blocks.
	WholeBlocks bool `yaml:"whole_blocks" jsonschema:"default=false"`
	// Small is the share of all blocks that are small files in addition to the output.
	Small float64 `yaml:"small" jsonschema:"default=0,minimum=0,maximum=0.95"`
	// SmallBlock is the size of the largest small file, uniform (default: an eighth of a block).
	SmallBlock units.Bytes `yaml:"small_block,omitempty" least:"1B" most:"1TB"`
	// Mappers is the range of mappers of a job that shuffles.
	Mappers Span `yaml:"mappers" jsonschema:"default=2-8"`
	// Reducers is the range of its reducers, at most one per block that it writes.
	Reducers Span `yaml:"reducers" jsonschema:"default=1-8"`
	// Writers is the range of writers of a job that only writes.
	Writers Span `yaml:"writers" jsonschema:"default=1-4"`
	// Blocks is the range of blocks of each of its writers.
	Blocks Span `yaml:"blocks" jsonschema:"default=1-3"`
	// Output is the average output of a job over all bins, without replicas (default: that which gives jobs that only
	// write their share of the bytes).
	Output units.Bytes `yaml:"output,omitempty" least:"1B" most:"1TB"`
	// ShuffleRate is the assumed fetch rate of a reducer, which determines sizes of shuffles. Default: a host's share
	// of its rack's links to the spines, or of its own link if less.
	ShuffleRate units.Rate `yaml:"shuffle_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// WriteRate is the assumed write rate of a reducer. Default: that of a disk, or of a host's link if less.
	WriteRate units.Rate `yaml:"write_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// OffHot keeps reducers and writers off leaves that the background makes hot when the job arrives.
	OffHot bool `yaml:"off_hot" jsonschema:"default=false"`
	// Bins are classes of jobs by the share of their time in which they write (default: the five
	// classes with which Sinbad, SIGCOMM 2013, is evaluated).
	Bins []Bin `yaml:"bins,omitempty" jsonschema:"minItems=1,maxItems=100"`
}

// Bin is one class of jobs.
type Bin struct {
	// Jobs is the bin's share of the jobs, relative to other bins.
	Jobs int `yaml:"jobs" jsonschema:"required,minimum=1,maximum=1000000"`
	// Bytes is the bin's share of the bytes written.
	Bytes int `yaml:"bytes" jsonschema:"required,minimum=1,maximum=1000000"`
	// From is the smallest share of its time in which a job writes; 1 for jobs that only write.
	From float64 `yaml:"from" jsonschema:"required,minimum=0.001,maximum=1"`
	// To is the largest share; 1 if from is 1, otherwise less than 1.
	To float64 `yaml:"to" jsonschema:"required,minimum=0.001,maximum=1"`
}

// TasksItem submits jobs of map and reduce tasks, from a job file or drawn by a generator from the seed and the
// repeat (docs/job-workloads.md). It excludes jobs of other kinds.
type TasksItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=tasks"`
	// Path is the path of a job file, as for other kinds. Excludes generator.
	Path string `yaml:"path,omitempty" jsonschema:"minLength=1,maxLength=4096"`
	// Generator is the generator: macro benchmark of the FAIR report, jobs of weighted profiles, simulation of the
	// FAIR report, the twelve benchmarks of the ShuffleWatcher report, or workloads of the Dolly report. Excludes
	// path.
	Generator string `yaml:"generator,omitempty" jsonschema:"enum=bm,enum=mix,enum=simulation,enum=benchmarks,enum=bins"`
	// First is the number of jobs to submit, in order of submission (default: all).
	First int `yaml:"first,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Start is added to the time of each submission.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// RateFactor multiplies processing rates, in addition to scale. Size is rate times time: two of the factors
	// determine the third; alone, sizes stay.
	RateFactor workloads.Factor `yaml:"rate_factor,omitempty"`
	// SizeFactor multiplies all sizes of jobs. Alone, or with time_factor alone, rates stay.
	SizeFactor workloads.Factor `yaml:"size_factor,omitempty"`
	// TimeFactor multiplies submissions.
	TimeFactor workloads.Factor `yaml:"time_factor,omitempty"`
	// GapFactor multiplies submissions in addition, which changes the load.
	GapFactor workloads.Factor `yaml:"gap_factor,omitempty"`
	// Jobs is the number of jobs of a generator (default: mix 100, simulation 30, benchmarks 360, bins 1000).
	Jobs int `yaml:"jobs,omitempty" jsonschema:"minimum=1,maximum=1000000"`
	// Workers is the number of users in a closed loop of mix and benchmarks: each submits its next job when its job
	// has ended. They take jobs in turn (default: none). Excludes users.
	Workers int `yaml:"workers,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// Gap is the mean time between submissions (default: 30s; benchmarks 40s, simulation 0s), with workers from a
	// job's end to its worker's next (default: 0s). Excludes utilization.
	Gap *time.Duration `yaml:"gap,omitempty" least:"0s" most:"24h"`
	// Tasks multiplies the numbers of maps of the generator bm (default: 1).
	Tasks workloads.Factor `yaml:"tasks,omitempty"`
	// Block is the input of a map of a generator (default: 128MB).
	Block units.Bytes `yaml:"block,omitempty" least:"1B" most:"1TB"`
	// File is the name of a file whose block i map i of each generated job reads, also in other items (default: each
	// job reads its own blocks).
	File string `yaml:"file,omitempty" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,maxLength=64"`
	// Maps is the range of maps of a job of mix (default: 1-20).
	Maps Span `yaml:"maps,omitempty"`
	// MapRate is the rate at which maps of mix, benchmarks and bins consume input (default: 8MB/s; bins 20MB/s).
	MapRate units.Rate `yaml:"map_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// SortRate is the rate at which reduces of bm, mix and benchmarks sort what they fetched (default: 50MB/s).
	SortRate units.Rate `yaml:"sort_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// ReduceRate is the rate at which reduces of mix and benchmarks consume what they sorted (default: 8MB/s).
	ReduceRate units.Rate `yaml:"reduce_rate,omitempty" least:"1Kbps" most:"100Gbps"`
	// Spread is the spread of task times of mix, benchmarks and bins: a uniform factor from 1-spread to 1+spread by
	// task.
	Spread float64 `yaml:"spread,omitempty" jsonschema:"minimum=0,maximum=0.9"`
	// Skew is the Zipf exponent of the shares of a job's reduces, 0 for equal shares.
	Skew float64 `yaml:"skew,omitempty" jsonschema:"minimum=0,maximum=10"`
	// Users is the number of users of a generator, u1, u2 and so on (default: 30).
	Users int `yaml:"users,omitempty" jsonschema:"minimum=1,maximum=100000"`
	// UserSkew is the Zipf exponent of the users' shares of jobs, 0 for equal shares.
	UserSkew float64 `yaml:"user_skew,omitempty" jsonschema:"minimum=0,maximum=10"`
	// Profiles are the programs of mix (default: scan, sort and aggregate, with equal weights).
	Profiles []TaskProfile `yaml:"profiles,omitempty" jsonschema:"minItems=1,maxItems=1000"`
	// Sizes are classes of the numbers of maps of mix and benchmarks, drawn independently of the profile (default: for
	// benchmarks 20 % of the jobs with 1 map, 19 % with 2–8, 21 % with 9–60, 10 % with 61–150 and 30 % with 151–400;
	// for mix none). Excludes maps.
	Sizes []TaskSize `yaml:"sizes,omitempty" jsonschema:"minItems=1,maxItems=1000"`
	// Mix is the relative shares of benchmarks' jobs with heavy, medium and light shuffle (default: 40, 20 and 40).
	Mix *ClassMix `yaml:"mix,omitempty"`
	// Workload is the cluster whose shares of jobs by number of tasks bins has (default: facebook;
	// docs/job-workloads.md).
	Workload string `yaml:"workload,omitempty" jsonschema:"enum=facebook,enum=bing"`
	// Smallest is the number of tasks of the smallest job of bins (default: 1). Bins keep their shares.
	Smallest int `yaml:"smallest,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Largest is the number of tasks of the largest job of bins (default: 10000).
	Largest int `yaml:"largest,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Phases is the number of stages of a job of bins, each fetching the one before's output; jobs with fewer tasks
	// have a stage for each (default: 2).
	Phases int `yaml:"phases,omitempty" jsonschema:"minimum=1,maximum=100"`
	// Pattern is which tasks of the stage before a task of bins fetches from: all; its own adjacent ones, so that each
	// output is fetched once; or the one with its index, of equally many (default: all-to-all).
	Pattern string `yaml:"pattern,omitempty" jsonschema:"enum=all-to-all,enum=many-to-one,enum=one-to-one"`
	// Reduces is the number of tasks of each later stage of a job of bins, relative to its maps (default: 0.5).
	Reduces float64 `yaml:"reduces,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Utilization is the mean share of slots that tasks of bins use from the first submission to the last, on idle
	// links, without stragglers and further attempts, which determines gap. Excludes gap.
	Utilization float64 `yaml:"utilization,omitempty" jsonschema:"minimum=0.000001,maximum=100"`
	// ShuffleShare is the share of its time that a job of bins fetches at the rate nic if all its tasks run at once,
	// which determines sizes of fetches (default: 0.25).
	ShuffleShare *float64 `yaml:"shuffle_share,omitempty" jsonschema:"minimum=0,maximum=0.9"`
	// NIC is the assumed fetch rate of a task of bins (default: that of a host's link).
	NIC units.Rate `yaml:"nic,omitempty" least:"1Kbps" most:"100Gbps"`
}

// TaskSize is a class of the numbers of maps of jobs.
type TaskSize struct {
	// Weight is the class's share of the jobs, relative to others.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000000"`
	// Maps is the range of maps, log-uniform.
	Maps Span `yaml:"maps" jsonschema:"required"`
}

// ClassMix is the mix of the generator benchmarks.
type ClassMix struct {
	// Heavy is the share of jobs whose maps put out what they read (default: 0).
	Heavy int `yaml:"heavy,omitempty" jsonschema:"minimum=0,maximum=1000"`
	// Medium is the same for 0.55 of what they read.
	Medium int `yaml:"medium,omitempty" jsonschema:"minimum=0,maximum=1000"`
	// Light is the same for 0.1 of what they read.
	Light int `yaml:"light,omitempty" jsonschema:"minimum=0,maximum=1000"`
}

// TaskProfile is a program of the generator mix.
type TaskProfile struct {
	// Name is the name of the profile.
	Name string `yaml:"name" jsonschema:"required,pattern=^[A-Za-z0-9][A-Za-z0-9._-]*$,maxLength=64"`
	// Weight is the profile's share of the jobs, relative to others.
	Weight int `yaml:"weight" jsonschema:"default=1,minimum=1,maximum=1000000"`
	// Maps is the range of maps of a job (default: that of the item).
	Maps Span `yaml:"maps,omitempty"`
	// Reduces is the number of reduces relative to maps, rounded, at least one; 0 for none.
	Reduces float64 `yaml:"reduces" jsonschema:"default=0,minimum=0,maximum=1"`
	// KeepMap is the ratio of maps' output to their input, which maps without reduces write as blocks.
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

// BackgroundItem sends shuffles, most of them into a few leaves that are hot for a while. No average includes them.
type BackgroundItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=background"`
	// HotLeaves is the number of leaves that are hot at any time.
	HotLeaves int `yaml:"hot_leaves" jsonschema:"required,minimum=1,maximum=249"`
	// Intensity is the load on the links toward leaves, as a share of their capacity.
	Intensity float64 `yaml:"intensity" jsonschema:"default=0.35,minimum=0.000001,maximum=1"`
	// HotShare is the share of that load that goes to the hot leaves.
	HotShare float64 `yaml:"hot_share" jsonschema:"default=0.7,minimum=0.000001,maximum=1"`
	// Persist is the time for which leaves stay hot: much longer than a heartbeat and the write of a block.
	Persist time.Duration `yaml:"persist" jsonschema:"required" least:"1ms" most:"24h"`
	// Transfer is the size of one coflow.
	Transfer units.Bytes `yaml:"transfer" jsonschema:"required" least:"64B" most:"1TB"`
	// Senders is the number of senders of a coflow, in other racks, to one host.
	Senders int `yaml:"senders" jsonschema:"default=4,minimum=1,maximum=64"`
	// Start is the start time.
	Start time.Duration `yaml:"start" jsonschema:"default=0s" least:"0s" most:"24h"`
	// For is the time during which coflows arrive.
	For time.Duration `yaml:"for" jsonschema:"required" least:"1ms" most:"24h"`
}

// FileItem takes coflows, writers and jobs from a file that "testbed workload generate" writes.
type FileItem struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=workload"`
	// Path is the path of the file, relative to this file; from --set, to the working directory.
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

// MarshalYAML returns the item that is set.
func (i Item) MarshalYAML() (any, error) { return marshal(i) }
