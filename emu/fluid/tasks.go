package fluid

import (
	"fmt"
	"slices"

	"testbed/emu/engine"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// tasks is the work of attempts of tasks on their hosts, except for transfers and blocks. An
// attempt that computes takes time alone: Compute states how long, on an unloaded slot, and a slow
// processor prolongs it. An output that is being spilled shares a disk with the other outputs and
// the blocks that are being written to it. Outputs on disk occupy no space that hosts report.
type tasks struct {
	b                   *Backend
	computing, spilling map[jobs.AttemptID]*fluid
	timers              finishes // of computing
	spilled             map[jobs.JobID]map[jobs.AttemptID]bool
	unfinished          map[jobs.JobID]bool // jobs that are marked as submitted and not as ended
}

func (x *tasks) init(b *Backend) {
	x.b, x.spilled, x.unfinished = b, map[jobs.JobID]map[jobs.AttemptID]bool{}, map[jobs.JobID]bool{}
	x.computing, x.spilling = map[jobs.AttemptID]*fluid{}, map[jobs.AttemptID]*fluid{}
}

// marked notes which jobs are unfinished. Other moments have no effect.
func (x *tasks) marked(m engine.MarkTask) {
	switch m.Moment {
	case wire.JobSubmitted:
		x.unfinished[m.Attempt.Task.Job] = true
	case wire.JobDone, wire.JobFailed:
		delete(x.unfinished, m.Attempt.Task.Job)
	}
}

func (x *tasks) compute(c engine.Compute) error {
	switch _, twice := x.computing[c.Attempt]; {
	case !x.b.known(c.Host) || c.Time < 0:
		return fmt.Errorf("compute %v on host %d for %v: expected a host of the fabric and a time of 0 or more", c.Attempt, c.Host, c.Time)
	case twice:
		return fmt.Errorf("compute %v: already computing", c.Attempt)
	case x.b.faults.crashed[c.Host]:
		return nil
	}
	f := &fluid{src: c.Host, attempt: c.Attempt, size: units.Bytes(c.Time), left: float64(c.Time)}
	x.computing[c.Attempt] = f
	x.setSpeed(f)
	return nil
}

// progress appends the event about the attempts that compute on some hosts.
func (x *tasks) progress(evs []engine.Event, on map[topo.HostID]bool) []engine.Event {
	var ev engine.TaskProgressed
	for a, f := range x.computing {
		if on[f.src] {
			ev.Attempts = append(ev.Attempts, a)
		}
	}
	if len(ev.Attempts) == 0 {
		return evs
	}
	slices.SortFunc(ev.Attempts, jobs.AttemptID.Compare)
	for _, a := range ev.Attempts {
		f := x.computing[a]
		left := max(f.leftAt(x.b.clock), 0)
		ev.Done = append(ev.Done, min(max(1-left/max(1, float64(f.size)), 0), 1))
	}
	return append(evs, ev)
}

// setSpeed makes an attempt compute at the speed of its host from the current time on.
func (x *tasks) setSpeed(f *fluid) {
	k := &f.own.own
	k.set(x.b.clock, float64(1e9*x.b.faults.share[f.src]))
	if f.clock == nil {
		k.start(f, x.b.clock)
	}
	x.timers.put(k)
}

func (x *tasks) spill(c engine.SpillOutput) error {
	b := x.b
	_, twice := x.spilling[c.Attempt]
	switch {
	case !b.known(c.Host) || c.Size < 0 || c.Rate < 0:
		return fmt.Errorf("spill the output of %v, %v, on host %d at %d: expected a host of the fabric, and a size and a rate of 0 or more", c.Attempt, c.Size, c.Host, c.Rate)
	case twice || x.spilled[c.Attempt.Task.Job][c.Attempt]:
		return fmt.Errorf("spill the output of %v: already spilled", c.Attempt)
	case b.faults.crashed[c.Host]:
		return nil
	}
	disk := int32(none)
	if b.cfg.DiskRate > 0 && c.Size > 0 {
		disk = b.disk(c.Host, b.nextDisk(c.Host))
	}
	f := &fluid{spill: true, attempt: c.Attempt, src: c.Host, dst: c.Host, size: c.Size, left: 8 * float64(c.Size), path: b.readClass(c.Host, c.Host, 0, disk), most: c.Rate}
	f.own = class{uses: f.path.uses, listed: -1}
	x.spilling[c.Attempt] = f
	b.limit(f, policies.NoLimit)
	return nil
}

// stop ends the work of an attempt and drops its output.
func (x *tasks) stop(a jobs.AttemptID) {
	x.abandon(a)
	delete(x.spilled[a.Task.Job], a)
}

// abandon ends the work of an attempt that is not done.
func (x *tasks) abandon(a jobs.AttemptID) {
	if f := x.computing[a]; f != nil {
		x.timers.drop(f.clock)
		delete(x.computing, a)
	}
	if f := x.spilling[a]; f != nil {
		x.b.leave(f)
		delete(x.spilling, a)
	}
}

// crash ends the work on a host.
func (x *tasks) crash(h topo.HostID) {
	var lost []jobs.AttemptID
	for _, running := range []map[jobs.AttemptID]*fluid{x.computing, x.spilling} {
		for a, f := range running {
			if f.src == h {
				lost = append(lost, a)
			}
		}
	}
	slices.SortFunc(lost, jobs.AttemptID.Compare) // rates depend on the order by rounding
	for _, a := range lost {
		x.abandon(a)
	}
}

// slow applies a new share of the processor of a host.
func (x *tasks) slow(h topo.HostID) {
	for _, f := range x.computing {
		if f.src == h {
			x.setSpeed(f)
		}
	}
	var spills []*fluid
	for _, f := range x.spilling {
		if f.src == h && f.most > 0 {
			spills = append(spills, f)
		}
	}
	slices.SortFunc(spills, func(f, g *fluid) int { return f.attempt.Compare(g.attempt) }) // rates depend on the order by rounding
	for _, f := range spills {
		x.b.limit(f, policies.NoLimit)
	}
}

// ended removes the computations and the given spills that end at the current time, and returns
// their events, each in order of ID.
func (x *tasks) ended(spills []*fluid) (evs []engine.Event) {
	var computed []jobs.AttemptID
	for len(x.timers) > 0 && x.timers[0].Since(x.b.clock) <= together {
		f := x.timers[0].clock.fluids[0]
		x.timers.drop(f.clock)
		delete(x.computing, f.attempt)
		computed = append(computed, f.attempt)
	}
	slices.SortFunc(computed, jobs.AttemptID.Compare)
	for _, a := range computed {
		evs = append(evs, engine.TaskComputed{Attempt: a})
	}
	slices.SortFunc(spills, func(f, g *fluid) int { return f.attempt.Compare(g.attempt) })
	for _, f := range spills {
		if f.received(x.b.clock); !f.done {
			continue
		}
		x.b.leave(f)
		delete(x.spilling, f.attempt)
		job := f.attempt.Task.Job
		if x.spilled[job] == nil {
			x.spilled[job] = map[jobs.AttemptID]bool{}
		}
		x.spilled[job][f.attempt] = true
		evs = append(evs, engine.OutputSpilled{Attempt: f.attempt})
	}
	return evs
}
