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

// Arrivals returns the arrivals of a workload's coflows, writers and readers, sorted by
// time. At the same time, coflows come first and readers last, then by ID. Writers of a job
// with a coflow are part of the coflow's arrival.
func Arrivals(w workloads.Workload) []Arrival {
	out := make([]Arrival, 0, len(w.Coflows)+len(w.Writers))
	then := map[workloads.JobID][]workloads.Writer{}
	for _, c := range w.Coflows {
		if c.Job != 0 {
			then[c.Job] = nil
		}
	}
	var alone []workloads.Writer
	for _, wr := range w.Writers {
		if writers, shuffles := then[wr.Job]; shuffles {
			then[wr.Job] = append(writers, wr)
		} else {
			alone = append(alone, wr)
		}
	}
	for _, c := range w.Coflows {
		out = append(out, Arrival{c.Arrival, CoflowArrived{Coflow: c, Then: then[c.Job]}})
		delete(then, c.Job) // only the first of several coflows of a job, which is invalid anyway
	}
	for _, wr := range alone {
		out = append(out, Arrival{wr.Start, WriterArrived{wr}})
	}
	for _, r := range w.Readers {
		out = append(out, Arrival{r.Start, ReaderArrived{r}})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At < out[j].At })
	return out
}

// Observer is called after every step with its time, events and commands.
type Observer func(now time.Duration, evs []Event, cmds []Command) error

// Run drives an engine on a backend until all arrivals have occurred and all their work has
// finished, or the context ends.
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
			return fmt.Errorf("%w; unfinished: %s", err, e.Unfinished())
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
