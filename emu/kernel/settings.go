package kernel

import (
	"time"

	"testbed/emu/plan"
)

// Settings are the limits of an Executor.
type Settings struct {
	// Workers is how many threads carry out a stage of a plan that gains from
	// several.
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
	return Settings{Workers: 2, Readers: 2, ProbeTimeout: time.Second, Closers: 128}
}

// Workers is how many goroutines are of use for a stage.
func (x *Executor) Workers(stage plan.Stage) int {
	return x.Settings.Workers
}

// Readers is how many goroutines are of use for Read.
func (x *Executor) Readers() int { return x.Settings.Readers }
