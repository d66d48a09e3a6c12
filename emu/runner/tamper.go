package runner

import (
	"testbed/emu/engine"
	"testbed/emu/live"
	"testbed/results/flows"
	"testbed/topo/units"
)

// tamper falsifies parts of a run: its construction, measurement or events differ from
// those that the verdict assumes. Only tests of this package can set it; the zero value
// changes nothing.
type tamper struct {
	start    func(cfg *live.Config, pins string) error // after the check of the construction, before the backend starts
	backends func(engine.Backend) engine.Backend
	recorded func(captures string) error           // before the captures are read
	free     func(dir string) (units.Bytes, error) // replaces the free disk space
	observed func(flows.Records)                   // receives the observations of the engine
}

func (t tamper) config(cfg *live.Config, pins string) error {
	if t.start == nil {
		return nil
	}
	return t.start(cfg, pins)
}

func (t tamper) backend(b engine.Backend) engine.Backend {
	if t.backends == nil {
		return b
	}
	return t.backends(b)
}

func (t tamper) captures(dir string, seen flows.Records) error {
	if t.observed != nil {
		t.observed(seen)
	}
	if t.recorded == nil {
		return nil
	}
	return t.recorded(dir)
}
