// Package outside starts policies outside of the program: processes and WebAssembly modules.
//
// It does not know what they say: package external does.
package outside

import (
	"context"
	"io"

	"testbed/emu/process"
	"testbed/emu/wasm"
	"testbed/policies/external"
)

// Modules keeps compiled modules, so that Start compiles each once. Its zero value is empty.
type Modules = wasm.Cache

// Options are what a policy runs with.
type Options struct {
	Dir     string                            // working directory of a process
	Read    func(path string) ([]byte, error) // reads a module
	Modules *Modules                          // nil compiles a module for this policy alone
	Stderr  io.Writer                         // gets what the policy writes besides answers; nil drops it
	Seed    uint64                            // of the random numbers of a module
}

// Policy is a policy that runs. Close ends it, and leaves nothing of it.
type Policy interface {
	external.Conversation
	Close() error
}

// Start starts a policy.
func Start(ctx context.Context, p *external.Policy, o Options) (Policy, error) {
	s := p.Settings
	if s.Module == "" {
		started, err := process.Start(process.Config{
			Name:    p.String(),
			Command: s.Command,
			Dir:     o.Dir,
			Stderr:  o.Stderr,
			Timeout: s.Timeout,
			Output:  s.Output,
		})
		return running{started}, err
	}
	code, err := o.Read(s.Module)
	if err != nil {
		return nil, err
	}
	return o.Modules.Start(ctx, wasm.Config{
		Name:   p.String(),
		Module: code,
		Seed:   o.Seed,
		Stderr: o.Stderr,
		Output: s.Output,
		Memory: s.Memory,
		Work:   s.Work,
	})
}

// running is a process, which ends after the last message.
type running struct{ *process.Process }

func (r running) Close() error { return r.Process.Close([]byte(external.End)) }
