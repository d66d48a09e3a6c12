package tracker

import (
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Event is an input of Step. The set of events is closed. Events about attempts and fetches that
// have ended or been stopped are ignored: they may cross the command that stops them.
type Event interface{ event() }

// JobSubmitted submits a job. The tracker keeps it and does not modify it.
type JobSubmitted struct{ Job *jobs.Job }

// Heartbeat is the report of a host: the progress of its attempts, from 0 to 1.
type Heartbeat struct {
	Host     topo.HostID
	Progress []Progress
}

// Progress is the progress of an attempt, from 0 to 1.
type Progress struct {
	Attempt jobs.AttemptID
	Done    float64
}

// InputRead reports that an attempt has read its input block.
type InputRead struct{ Attempt jobs.AttemptID }

// ReadFailed reports that the transfer of an input block has failed. The attempt reads it from
// another replica.
type ReadFailed struct {
	Attempt jobs.AttemptID
	Why     string
}

// FetchEnded reports that all outputs of a fetch have arrived.
type FetchEnded struct{ ID FetchID }

// FetchFailed reports that a fetch has failed, and none of its outputs counts as received.
type FetchFailed struct {
	ID  FetchID
	Why string
}

// OutputBegun reports that the first replicated output of an attempt is ready. It is optional:
// without it, the attempt writes when it has computed.
type OutputBegun struct{ Attempt jobs.AttemptID }

// ComputeDone reports that an attempt has processed its input.
type ComputeDone struct{ Attempt jobs.AttemptID }

// OutputSpilled reports that the output for later stages is on the attempt's disk.
type OutputSpilled struct{ Attempt jobs.AttemptID }

// OutputWritten reports that the output that WriteOutput requested is durable.
type OutputWritten struct{ Attempt jobs.AttemptID }

// AttemptFailed reports that an attempt has failed and left its slot.
type AttemptFailed struct {
	Attempt jobs.AttemptID
	Why     string
}

// AttemptStopped is the answer to StopAttempt: the attempt has left its slot. It must follow each
// StopAttempt, even of an attempt that has ended by itself, unless the host is lost.
type AttemptStopped struct{ Attempt jobs.AttemptID }

// HostLost reports that a host is down.
type HostLost struct{ Host topo.HostID }

// HostBack reports that a host has started again. Its attempts and map outputs are lost, even if
// its absence was not noticed; its input blocks too if DiskLost.
type HostBack struct {
	Host     topo.HostID
	DiskLost bool
}

func (JobSubmitted) event()   {}
func (Heartbeat) event()      {}
func (InputRead) event()      {}
func (ReadFailed) event()     {}
func (FetchEnded) event()     {}
func (FetchFailed) event()    {}
func (OutputBegun) event()    {}
func (ComputeDone) event()    {}
func (OutputSpilled) event()  {}
func (OutputWritten) event()  {}
func (AttemptFailed) event()  {}
func (AttemptStopped) event() {}
func (HostLost) event()       {}
func (HostBack) event()       {}

// Command is an output of Step. The set of commands is closed.
type Command interface{ command() }

// StartAttempt starts an attempt on a host. If its stage reads blocks, the attempt reads Input from
// Source and computes at once; otherwise it waits for its fetches and for Compute.
type StartAttempt struct {
	Attempt  jobs.AttemptID
	Kind     jobs.TaskKind
	Host     topo.HostID
	Locality policies.Locality
	Input    workloads.BlockID
	Size     units.Bytes // of Input; 0 if the attempt reads nothing
	Source   topo.HostID // of the replica to read; -1 if the attempt reads nothing
	// After is the time until the host begins (policies.Assignment.Latency).
	After time.Duration
}

// ReadFrom makes an attempt read its whole input again, from another replica.
type ReadFrom struct {
	Attempt      jobs.AttemptID
	Host, Source topo.HostID
}

// FetchID numbers fetches from 1. IDs depend on the scheduler: no draw may be keyed by them.
type FetchID int64

// StartFetch starts the transfer of outputs that Source stores to an attempt on Host. Source may be
// Host itself.
type StartFetch struct {
	ID           FetchID
	Attempt      jobs.AttemptID
	Host, Source topo.HostID
	Outputs      []Output // in order of their ends
	Size         units.Bytes
}

// Output is the part of an attempt's output for the task that fetches it.
type Output struct {
	Attempt jobs.AttemptID
	Size    units.Bytes
}

// StopFetch stops a fetch.
type StopFetch struct {
	ID           FetchID
	Host, Source topo.HostID
}

// InputFetched reports that an attempt has all outputs that it fetches.
type InputFetched struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Size    units.Bytes
}

// Compute lets an attempt that has fetched its input compute.
type Compute struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Size    units.Bytes // of its input
}

// WriteOutput makes an attempt write its replicated output.
type WriteOutput struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Size    units.Bytes
}

// Commit makes an attempt's output that of its task, and frees its slot. Each task is committed once,
// except one whose output was lost.
type Commit struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
}

// Copied makes an attempt's output a copy of that of its task, which another attempt has committed, and frees its slot.
type Copied struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
}

// StopAttempt stops an attempt.
type StopAttempt struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Why     string
	// Failed reports whether the attempt cannot continue. Otherwise it is no longer needed.
	Failed bool
	After  time.Duration // until the host stops, as in StartAttempt
}

// Decided is a decision that a process outside of the program made.
type Decided struct {
	Answer  []byte
	Latency time.Duration
}

// DropOutputs deletes all outputs of a job for later stages: it begins again.
type DropOutputs struct{ Job jobs.JobID }

// JobDone reports the end of a job. Hosts may delete its outputs for later stages.
type JobDone struct{ Job jobs.JobID }

// JobFailed reports that a job was given up, and why.
type JobFailed struct {
	Job jobs.JobID
	Why string
}

func (Decided) command()      {}
func (StartAttempt) command() {}
func (ReadFrom) command()     {}
func (StartFetch) command()   {}
func (StopFetch) command()    {}
func (InputFetched) command() {}
func (Compute) command()      {}
func (WriteOutput) command()  {}
func (Commit) command()       {}
func (Copied) command()       {}
func (StopAttempt) command()  {}
func (DropOutputs) command()  {}
func (JobDone) command()      {}
func (JobFailed) command()    {}
