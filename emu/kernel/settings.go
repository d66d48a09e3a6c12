package kernel

import (
	"runtime"
	"time"

	"testbed/emu/plan"
)

// Settings are the limits of an Executor.
type Settings struct {
	// Workers is how many threads carry out a stage of a plan. Creating links is
	// always one thread's work: it happens under the kernel's one lock of network
	// configuration. On 2 processors, 100 hosts, one thread and two (BenchmarkStages):
	// namespaces 98 and 61 ms, kernel parameters 34 and 16, devices up 13 and 10,
	// devices ready 6 and 3, addresses 6 and 3, shapers 3 and 1.4, neighbours 3 and
	// 1.6, routes 1.9 and 1.0; links 44 whatever is said. Four threads do no better
	// than two.
	Workers int
	// Readers is how many threads read a testbed back.
	Readers int
	// ProbeTimeout is how long a frame of Probe may take.
	ProbeTimeout time.Duration
	// Closers is how many threads close Probe's sockets. The kernel lets each wait
	// until all processors have let go of it, some 10 ms that all wait at once.
	Closers int
}

// DefaultSettings are an Executor's if nothing is said.
func DefaultSettings() Settings {
	threads := min(runtime.GOMAXPROCS(0), maxThreads)
	return Settings{Workers: threads, Readers: threads, ProbeTimeout: time.Second, Closers: 128}
}

// maxThreads bounds the default on machines with many processors, where none was
// measured and the lock is shared all the same.
const maxThreads = 4

// Workers is how many goroutines are of use for a stage.
func (x *Executor) Workers(plan.Stage) int { return x.Settings.Workers }

// Readers is how many goroutines are of use for Read.
func (x *Executor) Readers() int { return x.Settings.Readers }
