package engine

import (
	"context"
	"fmt"
	"sort"
	"time"

	"testbed/workloads"
)

// Arrival is an event at a known time, by which a workload enters a run.
type Arrival struct {
	At    time.Duration
	Event Event
}

// Arrivals lists a workload's coflows and writers in order of time; at the same
// moment coflows come first, then by ID.
func Arrivals(w workloads.Workload) []Arrival {
	out := make([]Arrival, 0, len(w.Coflows)+len(w.Writers))
	for _, c := range w.Coflows {
		out = append(out, Arrival{c.Arrival, CoflowArrived{Coflow: c}})
	}
	for _, wr := range w.Writers {
		out = append(out, Arrival{wr.Start, WriterArrived{wr}})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At < out[j].At })
	return out
}

// Observer is told of every step: the time, what happened and what was decided.
type Observer func(now time.Duration, evs []Event, cmds []Command) error

// Run drives an engine on a backend until all arrivals have arrived and all
// they brought has finished, or the context ends.
func Run(ctx context.Context, e *Engine, b Backend, arrivals []Arrival, observe Observer) error {
	for {
		wake := e.NextWake()
		if len(arrivals) > 0 {
			wake = min(wake, arrivals[0].At)
		} else if e.Idle() {
			return nil
		}
		now, evs, err := b.Await(ctx, wake)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("stopped at %v with %s unfinished: %w", now.Round(time.Millisecond), e.Unfinished(), context.Cause(ctx))
			}
			return err
		}
		for len(arrivals) > 0 && arrivals[0].At <= now {
			evs = append(evs, arrivals[0].Event)
			arrivals = arrivals[1:]
		}
		if len(evs) == 0 && now < e.NextWake() {
			continue
		}
		cmds, err := e.Step(now, evs...)
		if err != nil {
			return err
		}
		if observe != nil {
			if err := observe(now, evs, cmds); err != nil {
				return err
			}
		}
		if err := b.Do(ctx, cmds); err != nil {
			return err
		}
	}
}
