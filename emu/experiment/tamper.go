package experiment

import (
	"testbed/emu/deploy"
	"testbed/emu/engine"
	"testbed/emu/live"
	"testbed/results/flows"
)

// tamper is a lie planted in a run: what is built, measured or told differs from
// what is judged. Only tests of this package can set one; the zero value plants
// nothing.
type tamper struct {
	start    func(cfg *live.Config, pins string) error // once the build was checked, before the backend starts
	tell     func(engine.Backend) engine.Backend
	recorded func(captures string) error // before the captures are read
	told     func(flows.Records)         // hears what the engine was told
}

func (t tamper) config(cfg *live.Config, pins string) error {
	if t.start == nil {
		return nil
	}
	return t.start(cfg, pins)
}

func (t tamper) backend(b engine.Backend) engine.Backend {
	if t.tell == nil {
		return b
	}
	return t.tell(b)
}

func (t tamper) captures(dir string, told flows.Records) error {
	if t.told != nil {
		t.told(told)
	}
	if t.recorded == nil {
		return nil
	}
	return t.recorded(dir)
}

// others counts the testbeds under root that are up, or running, besides id.
func others(root, id string) (int, error) {
	entries, err := deploy.List(root)
	n := 0
	for _, e := range entries {
		if e.Dir != "" && e.State.ID != id && !e.Stale() {
			n++
		}
	}
	return n, err
}
