package runner

import (
	"errors"
	"slices"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/topo"
	"testbed/topo/units"
)

// Plan returns the plan of a scenario's fabric: the same for a run and for a testbed that is up.
func Plan(name string, s *scenario.Scenario, f *topo.Fabric, seed uint64, burst func(units.Rate, units.Bytes) units.Bytes) *plan.Plan {
	congestion := s.Spec.Fabric.CongestionControl
	return plan.Compile(name, f, plan.Options{
		Seed:              seed,
		Burst:             burst,
		Congestion:        congestion,
		CongestionAllowed: kernel.AllowsCongestion(congestion),
	})
}

// Refusal lists what this machine lacks for a scenario, each at the key that needs it. Nothing was
// started.
type Refusal struct{ *scenario.Errors }

// Refused marks the error as a refusal.
func (Refusal) Refused() {}

// Unwrap returns the problems as errors of the scenario.
func (r Refusal) Unwrap() error { return r.Errors }

// refusal returns a Refusal with the problems, or nil if there are none.
func refusal(problems []scenario.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return Refusal{&scenario.Errors{Problems: problems}}
}

// Machine is what this machine lacks for a scenario.
type Machine struct {
	// Missing are features that the kernel lacks, each at the key that needs it.
	Missing []scenario.Problem `json:"missing,omitempty"`
	// Unchecked are features that only root can test.
	Unchecked []scenario.Problem `json:"unchecked,omitempty"`
}

// add adds what another arm of the same scenario lacks.
func (m *Machine) add(o Machine) {
	for _, lists := range []struct {
		to   *[]scenario.Problem
		more []scenario.Problem
	}{{&m.Missing, o.Missing}, {&m.Unchecked, o.Unchecked}} {
		for _, p := range lists.more {
			if !slices.Contains(*lists.to, p) {
				*lists.to = append(*lists.to, p)
			}
		}
	}
}

// machine checks the features that the plan of a scenario's fabric needs. All that state whether a
// scenario can be built ask here.
func machine(s *scenario.Scenario, p *plan.Plan) (m Machine) {
	for _, l := range kernel.Lacks(p) {
		key := "fabric"
		if l.Need.Key != "" {
			key += "." + l.Need.Key
		}
		switch {
		case l.Unknown && l.Need.Key == "": // doctor checks what all fabrics need
		case l.Unknown:
			m.Unchecked = append(m.Unchecked, s.Problem(key, l.Text))
		default:
			m.Missing = append(m.Missing, s.Problem(key, l.Text))
		}
	}
	return m
}

// machineOfRun also checks the features that a run needs in addition to its fabric.
func machineOfRun(s *scenario.Scenario, p *plan.Plan) Machine {
	m := machine(s, p)
	if d := s.Spec.Disk; d != nil && d.Throttle == scenario.KernelThrottle {
		if _, err := kernel.DiskThrottle(); err != nil {
			m.Missing = append(m.Missing, s.Problem("disk.throttle", err.Error()))
		}
	}
	return m
}

// CheckFabric returns a Refusal or a kernel.LackError if this machine lacks features or resources
// to build the plan of a scenario's fabric. It builds nothing.
func CheckFabric(s *scenario.Scenario, f *topo.Fabric, p *plan.Plan) error {
	return errors.Join(
		refusal(machine(s, p).Missing),
		kernel.CheckResources("a fabric of "+f.Shape().String(), FabricResources(f)),
	)
}
