package kernel

import (
	"context"
	"runtime"
	"time"

	"testbed/emu/plan"
)

// Settings are the settings of an Executor.
type Settings struct {
	// Workers is the number of threads that carry out a stage of a plan. Links are always created
	// by one thread, under the kernel's lock of the network configuration (RTNL). Times on 2
	// processors with 100 hosts, one thread and two (BenchmarkStages): namespaces 35 and 24 ms,
	// kernel parameters 12 and 11, devices up 10 and 7, devices ready 3 and 2, addresses 4.5 and 2.6,
	// shapers 2.8 and 1.7, neighbours 2.3 and 1.3, routes 1.6 and 1.8; links 29 with any number. Four
	// threads are no faster than two.
	Workers int
	// Readers is the number of threads that read a testbed back.
	Readers int
	// ProbeTimeout is the time in which a frame of Probe must arrive.
	ProbeTimeout time.Duration
	// Closers is the number of threads that close Probe's sockets. Each close waits about 10 ms,
	// until no processor uses the socket any more; these waits run in parallel.
	Closers int
	// Grace is the time between SIGTERM and SIGKILL for processes of other programs in the
	// namespaces, when the namespaces are removed.
	Grace time.Duration
}

// DefaultSettings returns the settings of a new Executor.
func DefaultSettings() Settings {
	threads := min(runtime.GOMAXPROCS(0), maxThreads)
	return Settings{Workers: threads, Readers: threads, ProbeTimeout: time.Second, Closers: 128, Grace: DefaultGrace}
}

// maxThreads bounds the default number of threads. More were not measured, and all threads share
// one kernel lock.
const maxThreads = 4

// Workers returns the number of goroutines that carry out a stage.
func (x *Executor) Workers(plan.Stage) int { return x.Settings.Workers }

// Readers returns the number of goroutines that call Read.
func (x *Executor) Readers() int { return x.Settings.Readers }

// Work calls f on a thread that ends with it. Do and Read enter namespaces on it, which takes a system call. Without
// it, each entry takes a change of threads and five calls, and each new namespace a thread.
func (x *Executor) Work(ctx context.Context, f func(context.Context)) {
	onThread(func() { f(context.WithValue(ctx, workThread{}, new(Thread))) })
}

// workThread is the key of the *Thread of Work in a context.
type workThread struct{}
