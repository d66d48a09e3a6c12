package runner

import (
	"fmt"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/topo"
)

// timeline compiles the faults of a scenario on its fabric.
func timeline(s *scenario.Scenario, f *topo.Fabric) (fault.Timeline, error) {
	faults, err := s.Faults(f)
	if err != nil {
		return nil, err
	}
	return fault.Compile(f, faults)
}

// failuresFile holds the transfers that the engine gave up, with reasons. Captures show only
// that a transfer failed.
const failuresFile = "failures.json"

// explain adds the responsible fault to each failure.
func (t *trial) explain(failures []summary.Failure) {
	f := t.fabric
	for i := range failures {
		x := &failures[i]
		if x.Why == engine.WhyFull {
			continue // not caused by a fault
		}
		name, at := "", x.At
		for _, s := range t.faults {
			if s.At > at {
				break
			}
			if a, ok := s.Action.(fault.Crash); ok && (f.HostName(a.Host) == x.Host || x.Why != "" && startsWithHost(x.Why, f.HostName(a.Host))) {
				name = s.Why
			}
		}
		if name == "" { // not caused by a host: the last link that failed before
			for _, s := range t.faults {
				if a, ok := s.Action.(fault.SetLink); ok && !a.Up && s.At <= at {
					name = s.Why
				}
			}
		}
		x.Fault = name
	}
}

func startsWithHost(why, host string) bool {
	return len(why) > len(host) && why[:len(host)+1] == host+" "
}

// withReasons joins the failures in captures with the recorded reasons. It keeps failures that
// only one of them has.
func withReasons(dir repeatFiles, measured []flows.Failure) ([]summary.Failure, error) {
	var recorded []summary.Failure
	if _, err := dir.read(failuresFile, &recorded); err != nil {
		return nil, err
	}
	type key struct {
		kind, host string
		id         int
	}
	of := func(f flows.Failure) key {
		switch f.Kind {
		case flows.FailedFlow:
			return key{f.Kind, "", int(f.Flow)}
		case flows.FailedBlock: // Host is the host that sent the mark
			return key{f.Kind, "", int(f.Block)}
		case flows.FailedJob:
			return key{f.Kind, "", int(f.Job)}
		}
		return key{f.Kind, f.Host, int(f.Block)}
	}
	place := map[key]int{}
	for i, r := range recorded {
		place[of(r.Failure)] = i
	}
	for _, m := range measured {
		if i, ok := place[of(m)]; ok {
			// On the clock of the faults; captures count from the first mark, and their reasons are cut.
			m.At, m.Why = recorded[i].At, recorded[i].Why
			recorded[i].Failure = m
		} else {
			if m.Why == "" && m.Kind != flows.FailedReplica {
				m.Why = fmt.Sprintf("found in the captures; not recorded in %s", failuresFile)
			}
			recorded = append(recorded, summary.Failure{Failure: m})
		}
	}
	return recorded, nil
}
