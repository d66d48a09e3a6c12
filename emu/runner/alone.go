package runner

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/parallel"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// defaultAlone is the default of limits.alone. Jobs of as many tasks take about as long as one arm that
// runs them, a few seconds.
const defaultAlone = 20_000

// alone returns the time of each job of tasks alone on the idle cluster: on the fluid model, under the
// first arm, without faults and stragglers, and submitted at the same point of a heartbeat interval. The slowdowns of
// all arms thus have the same denominator. Equal jobs, whose tasks do the same work, are simulated
// once. Jobs that fail alone have no time. unknown is the reason if no job has one.
func (r *run) alone(ctx context.Context, repeat int, w work) (lone map[jobs.JobID]time.Duration, unknown string, err error) {
	if len(w.tasks) == 0 {
		return nil, "", nil
	}
	place := map[[sha256.Size]byte]int{}
	var distinct [][]int // places in w.tasks of equal jobs
	tasks := 0
	for i := range w.tasks {
		key := w.tasks[i].Digest()
		at, ok := place[key]
		if !ok {
			at = len(distinct)
			place[key], distinct = at, append(distinct, nil)
			for _, st := range w.tasks[i].Stages {
				tasks += len(st.Tasks)
			}
		}
		distinct[at] = append(distinct[at], i)
	}
	if most := cmp.Or(r.s.Spec.Limits.Alone, defaultAlone); tasks > most {
		return nil, fmt.Sprintf("slowdowns of jobs are unknown: the different ones have %d tasks, and at most %d are simulated alone (limits.alone)", tasks, most), nil
	}
	first := *r.arms[0]
	first.faults = fault.Timeline{}
	times := make([]time.Duration, len(distinct))
	wait := parallel.Start(ctx, len(distinct), nil, func(ctx context.Context, i int, _ func(struct{})) error {
		one := &trial{arm: &first, repeat: repeat, work: work{tasks: []jobs.Job{w.tasks[distinct[i][0]]}, output: w.output}, idle: true}
		j := &one.tasks[0]
		j.Submit, j.After = j.Submit%r.s.Spec.Heartbeat.Interval, 0
		one.stored = storedOf(j, w.stored)
		rec, err := one.simulate(ctx, "", nil, nil, nil)
		if err != nil {
			return fmt.Errorf("job %d alone: %w", j.ID, err)
		}
		if len(rec.Jobs) == 1 {
			times[i] = rec.Jobs[0].JobTime()
		}
		return nil
	})
	lone = make(map[jobs.JobID]time.Duration, len(w.tasks))
	for i, same := range distinct {
		if err := wait(i); err != nil {
			return nil, "", err
		}
		for _, k := range same {
			lone[w.tasks[k].ID] = times[i]
		}
	}
	return lone, "", nil
}

// storedOf returns the input blocks of a job, of all blocks in order of ID.
func storedOf(j *jobs.Job, all []engine.StoredBlock) (own []engine.StoredBlock) {
	inputs := map[workloads.BlockID]bool{}
	for _, st := range j.Stages {
		for k := range st.Tasks {
			if len(st.From) == 0 && st.Tasks[k].InputSize > 0 {
				inputs[st.Tasks[k].Input] = true
			}
		}
	}
	for id := range inputs {
		if at, ok := slices.BinarySearchFunc(all, id, func(b engine.StoredBlock, id workloads.BlockID) int { return cmp.Compare(b.Block, id) }); ok {
			own = append(own, all[at])
		}
	}
	slices.SortFunc(own, func(a, b engine.StoredBlock) int { return cmp.Compare(a.Block, b.Block) })
	return own
}
