package engine

import (
	"fmt"
	"slices"

	"testbed/emu/engine/tracker"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// progress is how far an attempt is, as far as backends have reported it.
type progress struct {
	total    units.Bytes                      // that it fetches
	got      units.Bytes                      // of ended transfers
	arriving map[workloads.FlowID]units.Bytes // received of others

	share      float64 // done of the current Compute
	processing bool    // it has sorted
	computed   bool
}

// received notes the bytes of a transfer to an attempt.
func (x *tasks) received(id workloads.FlowID, n units.Bytes) {
	if !x.shows {
		return
	}
	a := x.fetchers[id]
	if a == nil {
		a = x.reads[id]
	}
	if a == nil {
		return
	}
	if a.arriving == nil {
		a.arriving = map[workloads.FlowID]units.Bytes{}
	}
	a.arriving[id] = n
}

// fetched notes outputs that have arrived. The attempt may have ended.
func (a *taskAttempt) fetched(n units.Bytes) {
	if a != nil {
		a.got += n
	}
}

// computing notes how far attempts have computed.
func (x *tasks) computing(ev TaskProgressed) error {
	if len(ev.Attempts) != len(ev.Done) {
		return fmt.Errorf("progress of %d attempts with %d shares", len(ev.Attempts), len(ev.Done))
	}
	for i, id := range ev.Attempts {
		if !(ev.Done[i] >= 0 && ev.Done[i] <= 1) {
			return fmt.Errorf("%v has computed a share of %v: must be in [0, 1]", id, ev.Done[i])
		}
		if a := x.running[id]; a != nil {
			before, current, all := a.part()
			a.share = a.slow.Share(ev.Done[i], before, current, all)
		}
	}
	return nil
}

// progressOf returns the progress of the attempts on a host; nil unless the scheduler sees it.
func (x *tasks) progressOf(h topo.HostID) (all []tracker.Progress) {
	if !x.shows {
		return nil
	}
	for id, a := range x.running {
		if a.Host == h {
			all = append(all, tracker.Progress{Attempt: id, Done: x.done(a)})
		}
	}
	slices.SortFunc(all, func(a, b tracker.Progress) int { return a.Attempt.Compare(b.Attempt) })
	return all
}

// done returns the progress of an attempt, from 0 to 1.
func (x *tasks) done(a *taskAttempt) float64 {
	stage := &x.byID[a.Attempt.Task.Job].Stages[a.Attempt.Task.Stage]
	total := a.Size
	if len(stage.From) > 0 {
		if a.total == 0 {
			a.total = fetchedBy(x.byID[a.Attempt.Task.Job], a.Attempt.Task)
		}
		total = a.total
	}
	copied := 1.0
	if total > 0 {
		n := a.got
		for _, m := range a.arriving {
			n += m
		}
		copied = min(1, float64(n)/float64(total))
	}
	switch {
	case a.computed:
		return 1
	case len(stage.From) == 0:
		return copied
	case a.processing:
		return 2.0/3 + a.share/3
	default:
		return (copied + a.share) / 3
	}
}

// fetchedBy returns the bytes that a task fetches.
func fetchedBy(j *jobs.Job, id jobs.TaskID) (sum units.Bytes) {
	for _, from := range j.Stages[id.Stage].From {
		offset := 0
		for s := from + 1; s < id.Stage; s++ {
			if slices.Contains(j.Stages[s].From, from) {
				offset += len(j.Stages[s].Tasks)
			}
		}
		for i := range j.Stages[from].Tasks {
			sum += j.Stages[from].Tasks[i].Output[offset+id.Index]
		}
	}
	return sum
}
