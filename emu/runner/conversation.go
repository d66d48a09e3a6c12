package runner

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"testbed/emu/process"
	"testbed/policies/external"
	"testbed/results/rundir"
	"testbed/results/safefile"
)

// Files of a trial whose coflow policy is a process: its answer to the first message, which a replay reads, and its
// standard error.
const (
	policyFile   = "policy.json"
	policyErrors = "policy.stderr"
)

// conversation is the process of a trial's coflow policy. Its zero value has none.
type conversation struct {
	t       *trial
	log     string // path of the log of events, next to which its files are; "" keeps none
	packets bool
	p       *process.Process
	errors  io.Closer
}

// open starts the process and begins the conversation.
func (o *conversation) open(s *external.Scheduler) error {
	if o.t.of.backend == rundir.Virtual {
		return fmt.Errorf("policy %v: guests of --time virtual have no programs: use real time", s.Command)
	}
	cfg := process.Config{Command: s.Command, Dir: o.t.s.Dir(), Timeout: s.Timeout, Output: s.Output}
	if o.log != "" {
		file, err := safefile.Create(filepath.Join(filepath.Dir(o.log), policyErrors))
		if err != nil {
			return err
		}
		cfg.Stderr, o.errors = file, file
	}
	if o.packets && s.Latency == external.Measured {
		s.Latency = 0 // it passes
	}
	var err error
	if o.p, err = process.Start(cfg); err != nil {
		return err
	}
	if err := s.Open(o.p, o.t.fabric, o.t.seed()); err != nil || o.log == "" {
		return err
	}
	return writeJSON(filepath.Join(filepath.Dir(o.log), policyFile), s.Hello())
}

// close ends the conversation. It leaves no process.
func (o *conversation) close() error {
	var err error
	if o.p != nil {
		err = o.p.Close([]byte(external.End))
	}
	if o.errors != nil {
		err = errors.Join(err, o.errors.Close())
	}
	return err
}
