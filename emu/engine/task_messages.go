package engine

import (
	"time"

	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// StoredBlock is an input block of a task, which hosts store before the run. Engine and backend
// get the same list.
type StoredBlock struct {
	Block workloads.BlockID
	Size  units.Bytes
	Hosts []topo.HostID // of its replicas
	// Cached reports that the hosts have the block in memory: their disks do not limit reads of it.
	Cached bool
}

// JobArrived submits a job of Config.Tasks that follows no other job.
type JobArrived struct{ Job jobs.JobID }

// TaskComputed reports that an attempt has computed for the time that Compute stated.
type TaskComputed struct{ Attempt jobs.AttemptID }

// TaskProgressed reports the share of its Compute that each attempt has done, from 0 to 1. Backends
// report it before heartbeats if policies.TaskProgress is set. Attempts that have ended since are
// ignored.
type TaskProgressed struct {
	Attempts []jobs.AttemptID
	Done     []float64 // parallel to Attempts
}

// OutputSpilled reports that the output of SpillOutput is on disk.
type OutputSpilled struct{ Attempt jobs.AttemptID }

// TaskFailed reports that a host cannot continue an attempt, for example because its disk is full.
type TaskFailed struct {
	Attempt jobs.AttemptID
	Why     string
}

func (JobArrived) event()     {}
func (TaskComputed) event()   {}
func (TaskProgressed) event() {}
func (OutputSpilled) event()  {}
func (TaskFailed) event()     {}

// TaskTransfer states which attempt a transfer serves (StartTransfer.Task, ReadDisk.Task).
type TaskTransfer struct {
	Attempt jobs.AttemptID // that receives
	// From is the attempt whose output it carries, the first of Outputs; nil for an input block.
	From    *jobs.AttemptID `json:",omitempty"`
	Outputs int             `json:",omitempty"` // number of outputs that it carries
	// Rate is the rate at which the attempt consumes the bytes, on an unloaded slot: it reads no
	// faster, and TransferFinished means that it has consumed the last one. 0 is no limit. Faults
	// that slow the processor of its host divide it.
	Rate units.Rate `json:",omitempty"`
	// Onset is the number of bytes after which an attempt that slows down consumes at Slow instead of Rate; both of which
	// are then above 0. 0 if it does not.
	Onset units.Bytes `json:",omitempty"`
	Slow  units.Rate  `json:",omitempty"`
	// Served is the rate at which the sender has the bytes: it sends no faster, whatever the ceiling. 0 is no limit.
	Served units.Rate `json:",omitempty"`
}

// Valid reports whether the rates are possible ones, for a transfer of size bytes.
func (t TaskTransfer) Valid(size units.Bytes) bool {
	return t.Rate >= 0 && t.Served >= 0 && (t.Onset == 0 && t.Slow == 0 || t.Onset > 0 && t.Onset < size && t.Rate > 0 && t.Slow > 0)
}

// Compute makes an attempt compute for a time, on an unloaded slot; TaskComputed follows. Faults that
// slow the processor of its host prolong it.
type Compute struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Time    time.Duration
}

// SpillOutput writes the output of an attempt for later stages to a disk of its host, without
// replicas; OutputSpilled follows. The output stays until DropOutputs or StopTask.
type SpillOutput struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
	Size    units.Bytes
	// Rate is the most at which it writes on an unloaded slot, 0 for no limit. Faults that slow the processor of its host
	// divide it.
	Rate units.Rate `json:",omitempty"`
}

// StopTask ends Compute and SpillOutput of an attempt and drops its output. No events about it
// follow. Its transfers are stopped by commands of their own.
type StopTask struct {
	Attempt jobs.AttemptID
	Host    topo.HostID
}

// DropOutputs drops all outputs of a job that SpillOutput stored, on all hosts.
type DropOutputs struct{ Job jobs.JobID }

// MarkTask sends one small datagram on the link of Host, like Mark: it marks a moment of a job or
// of an attempt. For moments of a job, only the job of Attempt counts.
type MarkTask struct {
	Moment   wire.Moment
	Host     topo.HostID
	Attempt  jobs.AttemptID
	Kind     jobs.TaskKind     `json:",omitempty"`
	Locality policies.Locality `json:",omitempty"` // at wire.AttemptStarted and wire.InputComplete
	// Reads reports whether the attempt reads a block, so that Locality has a meaning.
	Reads bool        `json:",omitempty"`
	Size  units.Bytes `json:",omitempty"` // of the input: of the job at wire.JobSubmitted, else of the attempt
	Parts int         `json:",omitempty"` // tasks of the job, at wire.JobSubmitted
	Why   string      `json:",omitempty"` // reason of a failure or kill
	// User and Profile are those of the job, at wire.JobSubmitted.
	User    string `json:",omitempty"`
	Profile string `json:",omitempty"`
}

func (Compute) command()     {}
func (SpillOutput) command() {}
func (StopTask) command()    {}
func (DropOutputs) command() {}
func (MarkTask) command()    {}
