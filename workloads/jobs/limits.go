package jobs

import (
	"cmp"
	"fmt"
	"time"

	"testbed/topo/units"
)

// Limits bound what is read, derived and generated. A field of 0 has its default.
type Limits struct {
	Jobs   int // of a workload
	Stages int // of one job
	Tasks  int // of a workload
	// Outputs is the number of elements of Task.Output of a workload. Tasks that share a slice
	// count once.
	Outputs int
	File    units.Bytes // of a job file
}

// The defaults of Limits. A task takes about 80 bytes of memory, an output 8.
const (
	DefaultMaxJobs    = 1_000_000
	DefaultMaxStages  = 100
	DefaultMaxTasks   = 2_000_000
	DefaultMaxOutputs = 20_000_000
	DefaultMaxFile    = 32 * units.MiB
)

// WithDefaults returns l with the default of each field that is 0.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Jobs:    cmp.Or(l.Jobs, DefaultMaxJobs),
		Stages:  cmp.Or(l.Stages, DefaultMaxStages),
		Tasks:   cmp.Or(l.Tasks, DefaultMaxTasks),
		Outputs: cmp.Or(l.Outputs, DefaultMaxOutputs),
		File:    cmp.Or(l.File, DefaultMaxFile),
	}
}

// Limits of quantities, far above those of a run. They keep all sums within 63 bits.
const (
	maxSize   units.Bytes   = 1e15 // one size
	maxTotal  units.Bytes   = 1e18 // all bytes that a workload reads, sends and writes
	maxRate   units.Rate    = 1e15
	maxTime   time.Duration = 366 * 24 * time.Hour
	maxName                 = 64            // bytes of a user or profile
	maxCPU                  = 1_000_000     // cores of a task
	maxNumber               = 1_000_000_000 // of blocks, tasks and priorities
)

// usage counts what Limits bound.
type usage struct {
	limits               Limits // with defaults
	jobs, tasks, outputs int
	volume               units.Bytes
}

// job counts a job and returns the error of a limit that it exceeds. Its sizes must be valid.
func (u *usage) job(j *Job) error {
	u.jobs++
	for i := range j.Stages {
		u.stage(&j.Stages[i])
	}
	return u.check()
}

func (u *usage) stage(s *Stage) {
	var last []units.Bytes
	var sum units.Bytes
	u.tasks += len(s.Tasks)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if !shared(last, t.Output) {
			last, sum = t.Output, 0
			u.outputs += len(last)
			for _, n := range last {
				sum = min(sum+n, maxTotal+1)
			}
		}
		u.volume = min(u.volume+t.InputSize+t.Writes+sum, maxTotal+1)
	}
}

func (u *usage) check() error {
	for _, x := range []struct {
		what     string
		got, max int
	}{{"jobs", u.jobs, u.limits.Jobs}, {"tasks", u.tasks, u.limits.Tasks}, {"outputs of tasks", u.outputs, u.limits.Outputs}} {
		if x.got > x.max {
			return fmt.Errorf("more than %d %s up to here: the limit of a workload", x.max, x.what)
		}
	}
	if u.volume > maxTotal {
		return fmt.Errorf("more than %v up to here: the limit of a workload", maxTotal)
	}
	return nil
}

// shared reports whether two outputs are one slice.
func shared(a, b []units.Bytes) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
