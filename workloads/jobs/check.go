package jobs

import (
	"errors"
	"slices"

	"testbed/topo/units"
	"testbed/workloads"
)

// Check returns all errors of jobs: they are not in order, do not fit together, or exceed limits.
func Check(list []Job, l Limits) error {
	l = l.WithDefaults()
	u := usage{limits: l}
	sizes := map[workloads.BlockID]units.Bytes{}
	total := 0 // errors, of which fails has the first
	var fails checks
	for i := range list {
		j := &list[i]
		fail := func(format string, args ...any) {
			if total++; total <= workloads.MaxTraceErrors {
				fails.add(true, "job %d: "+format, append([]any{i + 1}, args...)...)
			}
		}
		before := total
		if j.ID != JobID(i+1) {
			fail("ID %d: jobs must be numbered from 1", j.ID)
		}
		if j.Submit < 0 || j.Submit > maxTime || i > 0 && j.Submit < list[i-1].Submit {
			fail("submitted at %v: must be in order of submission, 0s to %v", j.Submit, maxTime)
		}
		if j.After < 0 || j.After > JobID(i) {
			fail("follows job %d: must be an earlier one, or 0 for none", j.After)
		}
		for _, name := range []string{j.User, j.Profile} {
			if name != "" && !validName(name) {
				fail("%q: %s", units.Clip(name), nameRule)
			}
		}
		if n := j.Priority; n < -maxNumber || n > maxNumber {
			fail("priority %d: must be %d to %d", n, -maxNumber, maxNumber)
		}
		if n := len(j.Stages); n < 1 || n > l.Stages {
			fail("%d stages: must be 1 to %d", n, l.Stages)
			continue
		}
		for s := range j.Stages {
			checkStage(j, s, sizes, func(format string, args ...any) { fail("stage %d: "+format, append([]any{s}, args...)...) })
		}
		if total == before {
			if err := u.job(j); err != nil {
				fail("%w", err)
				break
			}
		}
	}
	if more := total - len(fails); more > 0 {
		fails.add(true, "and %d more errors", more)
	}
	return errors.Join(fails...)
}

func checkStage(j *Job, s int, sizes map[workloads.BlockID]units.Bytes, fail func(string, ...any)) {
	stage := &j.Stages[s]
	if stage.Kind != Map && stage.Kind != Reduce {
		fail("kind %d: must be Map or Reduce", stage.Kind)
	}
	if len(stage.Tasks) == 0 {
		fail("no tasks")
	}
	for k, from := range stage.From {
		if from < 0 || from >= s || slices.Contains(stage.From[:k], from) {
			fail("fetches from stage %d: must be an earlier one, once", from)
			return
		}
	}
	if stage.Kind == Reduce && len(stage.From) == 0 {
		fail("reduces fetch from no stage")
	}
	if p := stage.Pattern; p < 0 || int(p) >= len(Patterns()) || p != AllToAll && len(stage.From) == 0 {
		fail("pattern %d: must be 0 to %d, and only of a stage that fetches", int(p), len(Patterns())-1)
		return
	}
	for _, from := range stage.From {
		if err := stage.Pattern.fits(len(j.Stages[from].Tasks), len(stage.Tasks)); err != nil {
			fail("pattern %w", err)
			return
		}
	}
	consumers, patterned := j.consumers(s), j.patterned(s)
	for i := range stage.Tasks {
		t := &stage.Tasks[i]
		bad := func(format string, args ...any) { fail("task %d: "+format, append([]any{i}, args...)...) }
		if len(stage.From) == 0 {
			if t.Input < 0 || t.Input > maxNumber || t.InputSize < 1 || t.InputSize > maxSize {
				bad("block %d of %v: must be 0 to %d, and 1B to %v", t.Input, t.InputSize, maxNumber, maxSize)
			} else if size, known := sizes[t.Input]; known && size != t.InputSize {
				bad("block %d of %v: an earlier task reads %v of it", t.Input, t.InputSize, size)
			} else {
				sizes[t.Input] = t.InputSize
			}
		} else if t.Input != 0 || t.InputSize != 0 {
			bad("block %d of %v: a task that fetches reads no block", t.Input, t.InputSize)
		}
		if t.Rate < 0 || t.Rate > maxRate || t.SortRate < 0 || t.SortRate > maxRate || t.SortRate > 0 && len(stage.From) == 0 {
			bad("rate %v, sort rate %v: must be 0bps to %v, and only a task that fetches sorts", t.Rate, t.SortRate, maxRate)
		}
		if t.Writes < 0 || t.Writes > maxSize || t.Need.Memory < 0 || t.Need.Memory > maxSize || !(t.Need.CPU >= 0 && t.Need.CPU <= maxCPU) {
			bad("writes %v, needs %v and %v cores: must be 0B to %v, and 0 to %d cores", t.Writes, t.Need.Memory, t.Need.CPU, maxSize, maxCPU)
		}
		switch {
		case len(t.Output) != consumers:
			bad("%d outputs: expected %d, one for each task that fetches from it", len(t.Output), consumers)
		case j.astray(s, i, t.Output) >= 0:
			bad("output %d: must be 0B, the pattern of that task's stage leaves it out", j.astray(s, i, t.Output))
		case i > 0 && !patterned && shared(t.Output, stage.Tasks[i-1].Output):
			continue // checked before
		}
		for _, n := range t.Output {
			if n < 0 || n > maxSize {
				bad("output %v: must be 0B to %v", n, maxSize)
			}
		}
	}
}
