package policies

import (
	"math/bits"
	"time"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// TaskScheduler describes a task scheduling policy. It has no state: each run has an instance of its own.
type TaskScheduler interface {
	Needs() Facts
	// Slots returns the limits of a host that has n slots, by jobs.TaskKind. A policy that
	// changes nothing returns Limits{Running: n, Computing: n}.
	Slots(n [jobs.TaskKinds]int) Limits
	// New returns an instance that has seen no View. Instances share no state.
	New() TaskInstance
}

// PendingAsker is a TaskScheduler that may call TaskView.Pending and not read StageState.Pending. It is then not computed,
// which saves time: few of thousands of jobs get a slot in a heartbeat.
type PendingAsker interface{ AsksPending() bool }

// TaskInstance fills the free slots of hosts that have sent a heartbeat. It may keep what it has seen in fields of its own,
// so that the same sequence of Views has the same answers. It drops what it keeps of a job that has left TaskView.Jobs.
type TaskInstance interface {
	// Assign fills the empty assignment a for the host v.Host, with no more tasks than fit. It must not keep v or a. It is
	// called once for each decision, and all its answers are carried out.
	Assign(v *TaskView, a *Assignment)
}

// Fetcher is a TaskInstance that lets several attempts of a task end, and chooses which of their outputs an attempt
// of a later stage fetches. Without it, the other attempts of a task are stopped when one commits, and all fetch its output.
// Its further methods change no state.
type Fetcher interface {
	TaskInstance
	// Keep returns how long other attempts of a task may continue after the first one has committed, each to make a
	// copy of its output. It is called at that commit, for tasks with other attempts whose output a later stage fetches:
	// j is the job, and stage that of the task. 0 stops them at once.
	Keep(v *TaskView, j *TaskJob, stage int) time.Duration
	// Source returns the index in c.Copies of the copy that an attempt is to fetch, or -1 to wait. It is called again whenever
	// c has changed, and at c.Until: it must not wait any longer then if no attempt makes further copies.
	Source(c *CopyChoice) int
}

// CopyChoice is the choice of a copy of a task's output, by an attempt that fetches it.
type CopyChoice struct {
	Now time.Duration
	// First is the time at which the first copy was complete, and Until the one at which the attempts that still make copies
	// are stopped: First plus Fetcher.Keep.
	First, Until time.Duration
	// Rank is the number of attempts of the same task that were launched before the attempt that fetches and still run; Fetchers
	// is the number of all of them.
	Rank, Fetchers int
	Copies         []OutputCopy // that are complete, in the order of their ends; at least 1
	Running        int          // attempts that still make further copies
}

// OutputCopy is a complete copy of a task's output.
type OutputCopy struct {
	// Readers is the number of other attempts of the task that fetches for which this copy was chosen, and that do not have
	// it yet.
	Readers int
}

// Estimator is a TaskInstance that decides by estimates of how tasks behave.
type Estimator interface {
	TaskInstance
	// Estimates returns those of a decision with the view v; false if it estimates nothing. It changes no state.
	Estimates(v *TaskView) (Estimates, bool)
}

// Estimates are those by which Dolly (NSDI 2013) decides on copies of tasks and on what they fetch.
type Estimates struct {
	// Straggle is p, the probability that an attempt progresses at less than half the median rate of its stage.
	Straggle float64
	Copies   [jobs.SizeClasses]CopyEstimates // by class of the number of tasks of the job (jobs.SizeClass)
}

// CopyEstimates are the estimates for copies of outputs of jobs of a class.
type CopyEstimates struct {
	// Alone is B, the mean payload rate of a fetch from a copy that no other attempt of the same task is fetching, and Shared
	// is αB, that of the others; 0 as long as there are too few fetches.
	Alone, Shared units.Rate
	// Wait is ω, how long attempts that fetch wait for a copy that no other one fetches.
	Wait time.Duration
}

// History is what the master has observed of tasks since the start of the run. Needs TaskHistory.
type History struct {
	// Judged is the number of attempts whose task has ended, and that were compared with the other attempts of their stage
	// when it ended; Straggled is the number of those of them that progressed at less than half the median rate of
	// their stage. Stages of one task are left out.
	Judged, Straggled int
	// Copies is what was observed of the outputs of tasks of stages with several attempts of a task, by class of the number of
	// tasks of the job (jobs.SizeClass).
	Copies [jobs.SizeClasses]CopyHistory
	// Fetches is the number of fetches that are under way, of all jobs.
	Fetches int
}

// CopyHistory is what was observed of outputs that could be fetched from several copies.
type CopyHistory struct {
	// Lags are the newest times between the ends of the first and of the second copy of an output, up to HistoryLength; -1
	// for one that was stopped before it ended.
	Lags []time.Duration
	// Alone are the fetches from copies that no other attempt of the same task was fetching at the same time, and Shared
	// the others.
	Alone, Shared Fetched
	// ByFlows are the same fetches by FlowLevel of the number of fetches on the busier of their two links when they began, they
	// themselves included.
	ByFlows [FlowLevels]struct{ Alone, Shared Fetched }
	// Computing are the newest times from the end of its last fetch to the commit of an attempt that fetched, up to
	// HistoryLength.
	Computing []time.Duration
}

// Fetched is a number of fetches, with their bytes and the sum of their times.
type Fetched struct {
	Count int
	Size  units.Bytes
	Busy  time.Duration
}

// FlowLevels is the number of levels of FlowLevel.
const FlowLevels = 6

// FlowLevel returns the level of a number of flows on a link, from 0: 1, 2, up to 4, 8, 16, and more.
func FlowLevel(flows int) int { return min(bits.Len(uint(max(flows, 1)-1)), FlowLevels-1) }

// Add adds a fetch.
func (f *Fetched) Add(size units.Bytes, took time.Duration) {
	f.Count, f.Size, f.Busy = f.Count+1, f.Size+size, f.Busy+took
}

// HistoryLength is the number of samples that a CopyHistory keeps.
const HistoryLength = 200

// Limits are the maximum numbers of attempts on a host at the same time, by jobs.TaskKind. An
// attempt that may run and not compute waits, in order of its request, after it has fetched its
// input (FAIR report, section on copy-compute splitting: maxReducers and maxComputing).
type Limits struct {
	Running, Computing [jobs.TaskKinds]int
	// ByMemory lets an attempt that fetches take its memory when it computes and not before: it may compute as
	// soon as the host has that memory too.
	ByMemory bool
	// Pausing lets an attempt that fetches, and for which no output is ready, give its slot to others until one is
	// and a slot of its host is free, or held by such an attempt. It keeps what it has fetched, and its memory. No
	// more attempts of a kind pause on a host than it may run.
	Pausing bool
}

// Locality is the distance of a task's input.
type Locality int

const (
	NodeLocal Locality = iota // on the host itself
	RackLocal                 // on another host of its rack
	OffRack                   // elsewhere, or input that has no place, such as that of reduces
)

// Localities is the number of values of Locality.
const Localities = 3

// TaskView is the View of a TaskInstance: one heartbeat of one host.
type TaskView struct {
	*Cluster
	Host  topo.HostID // that has sent the heartbeat
	Slots []SlotState // by HostID. Needs Slots; without it only that of Host
	Jobs  []TaskJob   // submitted and unfinished, by submission, ties by ID
	// Counts are the sums of the stages of each job, parallel to Jobs, so that policies need not read the stages
	// of thousands of jobs. Users is above all their numbers of users.
	Counts []TaskCount
	Users  int
	// Near, if not nil, returns what Pending does, for a PendingAsker.
	Near func(job, stage int) [Localities]int
	// Profiles is what the ended maps have consumed whose input has a place, by TaskJob.Profile
	// and for all jobs so far, also those that have ended. Jobs without a profile are left out.
	Profiles map[string]Consumption
	// EndedProfiles is the same for the jobs that have completed.
	EndedProfiles map[string]Consumption
	// History is what has been observed so far. Needs TaskHistory; nil without it.
	History *History
}

// SlotState is the use of a host by tasks.
type SlotState struct {
	Total [jobs.TaskKinds]int // Limits.Running
	Used  [jobs.TaskKinds]int // attempts that run, including those that are being killed
	// Need is the sum of what these attempts need, and Capacity what the host has; 0 for no
	// limit.
	Need, Capacity jobs.Resources
	// Space is what is left of the disk for intermediate data; negative if it has no limit.
	Space units.Bytes
	// Committed is the number of attempts that have committed on the host, and CommittedTime the sum of their times from
	// launch to commit.
	Committed     int
	CommittedTime time.Duration
	// Judged and Straggled are those of History, of attempts on the host. Need TaskHistory.
	Judged, Straggled int
	Lost              bool // the master considers the host down
}

// Free returns the number of free slots of a kind.
func (s SlotState) Free(k jobs.TaskKind) int { return s.Total[k] - s.Used[k] }

// Fits reports whether the host is up and has a free slot of a kind and the resources for one
// more task. Sums of cores may exceed the host's by rounding.
func (s *SlotState) Fits(k jobs.TaskKind, need jobs.Resources) bool {
	const rounding = 1e-9
	return !s.Lost && s.Free(k) > 0 && (s.Capacity.CPU <= 0 || s.Need.CPU+need.CPU <= s.Capacity.CPU*(1+rounding)) &&
		(s.Capacity.Memory <= 0 || s.Need.Memory+need.Memory <= s.Capacity.Memory)
}

// HasRoom reports whether the output of one more task fits.
func (s *SlotState) HasRoom(output units.Bytes) bool {
	return output == 0 || s.Space < 0 || output <= s.Space
}

// Add counts one more attempt, in a copy that a policy has made.
func (s *SlotState) Add(k jobs.TaskKind, need jobs.Resources) {
	s.Used[k]++
	s.Need.CPU += need.CPU
	s.Need.Memory += need.Memory
}

// TaskJob is the state of one unfinished job.
type TaskJob struct {
	ID       jobs.JobID
	User     string
	Priority int
	Profile  string
	Submit   time.Duration
	Input    units.Bytes // of all blocks that its tasks read
	Stages   []StageState
	Running  []AttemptState // by launch, ties by ID. Needs Attempts
	// Shuffle is where the data of the job is. Needs Shuffle.
	Shuffle *ShuffleState
}

// TaskCount is the numbers of pending and running tasks of a job, by kind. User is the number of TaskJob.User.
type TaskCount struct {
	User             int
	Pending, Running [jobs.TaskKinds]int
}

// Pending returns StageState.Pending of a stage of a job.
func (v *TaskView) Pending(job, stage int) [Localities]int {
	if v.Near != nil {
		return v.Near(job, stage)
	}
	return v.Jobs[job].Stages[stage].Pending
}

// Count computes the Counts and Users of Jobs.
func (v *TaskView) Count() {
	v.Counts = v.Counts[:0]
	users := map[string]int{}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		if _, known := users[j.User]; !known {
			users[j.User] = len(users)
		}
		c := TaskCount{User: users[j.User]}
		for s := range j.Stages {
			c.Add(&j.Stages[s])
		}
		v.Counts = append(v.Counts, c)
	}
	v.Users = len(users)
}

// Add adds the tasks of a stage.
func (c *TaskCount) Add(st *StageState) {
	if k := st.Kind; k >= 0 && k < jobs.TaskKinds {
		c.Pending[k] += st.Pending[NodeLocal] + st.Pending[RackLocal] + st.Pending[OffRack]
		c.Running[k] += st.Running
	}
}

// ShuffleState is where the data of a job is, by RackID.
type ShuffleState struct {
	// Blocks are those that maps read, with the racks of their replicas at submission. It does not change.
	Blocks []PlacedBlock
	// Intermediate is the output for later stages of the tasks that are done, by the rack that has it.
	Intermediate []units.Bytes
	// Maps and Reduces are the numbers of attempts that run or have committed. Maps are those that read a block.
	Maps, Reduces []int
	// Ratio is the shuffle input ratio of the job: the output of its maps for later stages divided by their
	// input, which a master does not know before they have ended. Needs OracleRatio.
	Ratio float64
}

// PlacedBlock is a block with the racks of its replicas, each once.
type PlacedBlock struct {
	Size  units.Bytes
	Racks []topo.RackID
}

// StageState is the state of one stage of a job.
type StageState struct {
	Kind  jobs.TaskKind
	Tasks int
	Done  int
	// Running is the number of unfinished tasks that have an attempt; those of Spare attempts are done.
	Running int
	// Pending is the number of tasks that may be launched now, by the distance of their
	// input from TaskView.Host. It is 0 for a stage that may not begin yet.
	Pending [Localities]int
	// Waiting is the number of tasks without an attempt, whether the stage may begin or not.
	Waiting int
	Need    jobs.Resources // of one task, the most of all
	// Output is the room on its host that one task needs for its outputs, the most of all; 0 if space
	// is not enforced. The engine launches no task without that room.
	Output units.Bytes
	// Anywhere reports that the input of the tasks has no place, so that no host is nearer to it
	// than another, as of reduces. All pending tasks are then OffRack.
	Anywhere bool
	// Outputs is the number of outputs that a task fetches, the most of all.
	Outputs     int
	Consumption // of ended attempts
	// Durations are the times from launch to commit of the attempts that have committed, in the order of their
	// ends. Needs TaskProgress.
	Durations []time.Duration
}

// Consumption is the input that attempts have consumed, and the time that they took.
type Consumption struct {
	Read units.Bytes
	Busy time.Duration
	// Input is the input of those that have committed, and Output what they produced from it for later stages.
	Input, Output units.Bytes
}

// Add adds the consumption of further attempts.
func (c *Consumption) Add(o Consumption) {
	c.Read += o.Read
	c.Busy += o.Busy
	c.Input += o.Input
	c.Output += o.Output
}

// Rate returns the mean rate at which an attempt consumes; 0 if there is none.
func (c Consumption) Rate() units.Rate {
	if c.Busy <= 0 {
		return 0
	}
	return units.RateOf(c.Read, c.Busy)
}

// Phase is what an attempt does.
type Phase int

const (
	Copying   Phase = iota // a reduce that fetches
	Queued                 // has all its input, and waits until it may compute
	Computing              // a map from its launch on; a reduce that sorts, reduces or writes
)

// AttemptState is one running attempt.
type AttemptState struct {
	ID       jobs.AttemptID
	Kind     jobs.TaskKind
	Host     topo.HostID
	Locality Locality
	Start    time.Duration
	Phase    Phase
	// Progress is how far the attempt is, from 0 to 1, by its host's newest heartbeat. Needs TaskProgress.
	// Of a task that reads a block it is the share of the input that is consumed. Of a task that
	// fetches, copying, sorting and reducing are a third each, by the bytes that have arrived and the
	// computing that is done (Hadoop). Progress starts again if the attempt reads from another replica.
	Progress float64
	Killing  bool // a kill has been sent
	Paused   bool // it has no slot (Limits.Pausing)
	// Spare reports that another attempt of the task has committed, and this one makes a copy of its output (Fetcher).
	Spare bool
}

// Assignment is a decision. Its slices are reused for the next decision.
type Assignment struct {
	Launch []Launch
	// Backup are running tasks, with an attempt that is not being killed, of which the host gets one more attempt: a
	// backup, clone or speculative copy. The host must have no attempt of the task, and a free slot for it together
	// with the launches. The engine ignores a backup that cannot run at the moment: if no replica of its
	// input is left, its output has no room, or its stage waits for others. The first attempt to commit wins, and
	// the engine stops the others.
	Backup []jobs.TaskID
	// Kill are attempts on any host. Their tasks become pending again, except those that have other attempts.
	Kill []jobs.AttemptID

	// Err, Answer and Latency are those of a process outside of the program, as in a Schedule. Launches, backups and kills
	// reach their hosts after Latency; their slots are taken at once.
	Err     error
	Answer  []byte
	Latency time.Duration

	scratch
}

// Launch starts the pending task with the lowest index of a stage at this distance, which must not
// exceed StageState.Pending together with the other launches.
type Launch struct {
	Job      int // index into TaskView.Jobs
	Stage    int
	Locality Locality
}

// Reset empties the assignment and keeps its memory for the next decision.
func (a *Assignment) Reset() {
	a.Launch, a.Backup, a.Kill = a.Launch[:0], a.Backup[:0], a.Kill[:0]
	a.Err, a.Answer, a.Latency = nil, nil, 0
	a.scratch.reset()
}
