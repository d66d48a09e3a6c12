package experiment

import (
	"fmt"
	"path/filepath"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/results/report"
	"testbed/topo"
)

// timeline is what a scenario's faults come to on its fabric.
func timeline(s *scenario.Scenario, f *topo.Fabric) (fault.Timeline, error) {
	faults, err := s.Faults(f)
	if err != nil {
		return nil, err
	}
	return fault.Compile(f, faults)
}

// failuresFile is what the engine gave up, and why, beside the captures of a
// repeat: captures tell only that it failed.
const failuresFile = "failures.json"

// explain adds to failures why they failed: which fault was to blame.
func (r *run) explain(failures []report.Failure) {
	f := r.fabric
	for i := range failures {
		x := &failures[i]
		if x.Why == engine.WhyFull {
			continue // no fault is to blame
		}
		name, at := "", x.At
		for _, s := range r.faults {
			if s.At > at {
				break
			}
			if a, ok := s.Action.(fault.Crash); ok && (f.HostName(a.Host) == x.Host || x.Why != "" && startsWithHost(x.Why, f.HostName(a.Host))) {
				name = s.Why
			}
		}
		if name == "" { // no host is to blame: the last link that went down before
			for _, s := range r.faults {
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

// withReasons joins the failures that captures show with the record of why.
// Those that only one of them has are kept.
func withReasons(dir string, measured []flows.Failure) ([]report.Failure, error) {
	var recorded []report.Failure
	if _, err := readJSON(filepath.Join(dir, failuresFile), &recorded); err != nil {
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
		case flows.FailedBlock: // of which Host is that of the mark
			return key{f.Kind, "", int(f.Block)}
		}
		return key{f.Kind, f.Host, int(f.Block)}
	}
	place := map[key]int{}
	for i, r := range recorded {
		place[of(r.Failure)] = i
	}
	for _, m := range measured {
		if i, ok := place[of(m)]; ok {
			m.At = recorded[i].At // on the clock of the faults; captures count from the first mark
			recorded[i].Failure = m
		} else {
			recorded = append(recorded, report.Failure{Failure: m, Why: fmt.Sprintf("the captures tell of it; there is no record of it in %s", failuresFile)})
		}
	}
	return recorded, nil
}
