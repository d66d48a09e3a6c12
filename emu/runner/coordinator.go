package runner

import (
	"context"
	"time"

	"testbed/emu/engine"
	"testbed/results/summary"
)

// coordinatorFile holds the statistics of the coordinator of a repeat.
const coordinatorFile = "coordinator.json"

// stopwatch is a backend that measures the duration of the engine steps in which a policy
// decides.
type stopwatch struct {
	engine.Backend
	e      *engine.Engine
	began  time.Time
	forked bool // out is that since the fork
	late   int  // late decisions of the engine so far
	out    summary.Coordinator
}

// Await implements engine.Backend.
func (s *stopwatch) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := s.Backend.Await(ctx, wake)
	s.began = time.Now()
	return now, evs, err
}

// stepped must be called after each step of the engine.
func (s *stopwatch) stepped() {
	took := time.Since(s.began)
	st := s.e.Stats()
	if _, changed := s.e.Forked(); changed && !s.forked {
		s.forked, s.late, s.out = true, 0, summary.Coordinator{}
	}
	if st.Decisions == s.out.Decisions {
		return
	}
	s.out.Decisions = st.Decisions
	s.out.Took = append(s.out.Took, took)
	if every := s.e.Interval(); every > 0 && (took > every || st.Late > s.late) {
		s.out.Missed++
	}
	s.late = st.Late
}

// record returns the statistics of the coordinator. On the fluid model they have no times, because
// these depend on the machine, and equal simulations must leave equal files.
func (s *stopwatch) record(timed bool) summary.Coordinator {
	st := s.e.Stats()
	out := summary.Coordinator{Interval: s.e.Interval(), Intervals: st.Intervals, Decisions: st.Decisions,
		Flushes: st.Flushes, HostsTold: st.Told, Updates: st.Updates}
	for _, x := range s.e.Estimates() {
		to := summary.EstimateSample{At: x.At, Straggle: x.Straggle}
		for class, c := range x.Copies {
			to.Copies[class] = summary.CopyEstimates(c)
		}
		out.Estimates = append(out.Estimates, to)
	}
	if timed {
		out.Missed, out.Took = s.out.Missed, s.out.Took
	}
	return out
}

// readCoordinator reads the statistics of the coordinator from the directory of a repeat. It
// returns nil if there are none, as in runs of older versions.
func readCoordinator(dir repeatFiles) (*summary.Coordinator, error) {
	var c summary.Coordinator
	found, err := dir.read(coordinatorFile, &c)
	if err != nil || !found {
		return nil, err
	}
	return &c, nil
}
