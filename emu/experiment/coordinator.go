package experiment

import (
	"context"
	"path/filepath"
	"time"

	"testbed/emu/engine"
	"testbed/results/report"
)

// coordinatorFile is what the coordinator of a repeat did.
const coordinatorFile = "coordinator.json"

// stopwatch is a backend that notes when the engine's turn begins, and takes the
// time of those in which it decides.
type stopwatch struct {
	engine.Backend
	e     *engine.Engine
	every time.Duration // the policy's interval
	began time.Time
	late  int // of the engine's, so far
	out   report.Coordinator
}

// Await is engine.Backend's.
func (s *stopwatch) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := s.Backend.Await(ctx, wake)
	s.began = time.Now()
	return now, evs, err
}

// stepped is to be called when the engine's turn is over.
func (s *stopwatch) stepped() {
	took := time.Since(s.began)
	st := s.e.Stats()
	if st.Decisions == s.out.Decisions {
		return
	}
	s.out.Decisions = st.Decisions
	s.out.Took = append(s.out.Took, took)
	if s.every > 0 && (took > s.every || st.Late > s.late) {
		s.out.Missed++
	}
	s.late = st.Late
}

// record is what the coordinator did. The fluid model's has no times: they are those
// of this machine, and two runs of the same are to leave the same.
func (s *stopwatch) record(timed bool) report.Coordinator {
	st := s.e.Stats()
	out := report.Coordinator{Interval: s.every, Intervals: st.Intervals, Decisions: st.Decisions, Flushes: st.Flushes, HostsTold: st.Told, Updates: st.Updates}
	if timed {
		out.Missed, out.Took = s.out.Missed, s.out.Took
	}
	return out
}

// readCoordinator is what a repeat's directory says of the coordinator; nil where
// it says nothing, as those of older versions.
func readCoordinator(dir string) (*report.Coordinator, error) {
	var c report.Coordinator
	found, err := readJSON(filepath.Join(dir, coordinatorFile), &c)
	if err != nil || !found {
		return nil, err
	}
	return &c, nil
}
