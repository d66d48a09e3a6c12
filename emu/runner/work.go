package runner

import (
	"slices"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// work is the workload of a repeat, the same for every arm.
type work struct {
	workloads.Workload
	tasks  []jobs.Job                   // jobs of tasks, in order of submission
	stored []engine.StoredBlock         // their input blocks, in order of ID; these are above those of Workload
	output workloads.Block              // what they write
	lone   map[jobs.JobID]time.Duration // times of jobs of tasks alone; nil if unknown
	timed  bool                         // lone was computed
}

// draw returns the workload of a repeat, counted from 0, and notes on it.
func (r *run) draw(repeat int) (w work, notes scenario.Notes, err error) {
	var said scenario.Notes
	if w.Workload, notes, err = r.s.Workload(r.fabric, repeat); err != nil {
		return w, nil, err
	}
	if w.tasks, said, err = r.s.TaskJobs(r.fabric, repeat); err != nil || len(w.tasks) == 0 {
		return w, notes, err
	}
	w.output = r.s.TaskOutput(w.tasks)
	in := r.s.Spec.Tasks.Input
	p, err := catalog.Placement(in.Placement, nil)
	if err != nil {
		return w, nil, err
	}
	if w.stored, err = storedBlocks(r.idleCluster(), p, w.tasks, in.Replicas, r.s.RepeatSeed(repeat)); err != nil {
		return w, nil, err
	}
	above := w.Workload.NextIDs().Block
	for i := range w.stored {
		w.stored[i].Block += above
		w.stored[i].Cached = in.Cached
	}
	for i := range w.tasks {
		for _, stage := range w.tasks[i].Stages {
			for k := range stage.Tasks {
				if len(stage.From) == 0 {
					stage.Tasks[k].Input += above
				}
			}
		}
	}
	return w, append(notes, said...), nil
}

// NextIDs returns the lowest IDs above those of the workload's coflows, flows and blocks.
func (w work) NextIDs() workloads.IDs {
	next := w.Workload.NextIDs()
	if n := len(w.stored); n > 0 {
		next.Block = w.stored[n-1].Block + 1
	}
	return next
}

// arrivals returns the arrivals of a workload, sorted by time. At the same time, jobs of tasks come
// last. The engine itself submits those that follow another job.
func (w work) arrivals() []engine.Arrival {
	out := engine.Arrivals(w.Workload)
	for _, j := range w.tasks {
		if j.After == 0 {
			out = append(out, engine.Arrival{At: j.Submit, Event: engine.JobArrived{Job: j.ID}})
		}
	}
	slices.SortStableFunc(out, func(a, b engine.Arrival) int { return int(max(-1, min(1, a.At-b.At))) })
	return out
}

// shuffled returns the bytes that stages of tasks send to later ones.
func (w work) shuffled() units.Bytes {
	if len(w.tasks) == 0 {
		return 0
	}
	return units.Bytes(jobs.Describe(w.tasks, nil).Shuffled)
}

// zones returns the zone of each rack, nil if all share one.
func zones(s *scenario.Scenario, f *topo.Fabric) (zone []int) {
	if n := s.Spec.Fabric.ZoneRacks; n > 0 {
		for rack := range f.Racks() {
			zone = append(zone, rack/n)
		}
	}
	return zone
}

// idleCluster returns the cluster before the run, with empty disks.
func (r *run) idleCluster() *policies.Cluster {
	interval := r.s.Spec.Heartbeat.Interval
	c := &policies.Cluster{Fabric: r.fabric, Capacity: plan.PayloadCapacity(r.fabric), Zone: zones(r.s, r.fabric), Hosts: make([]policies.HostState, r.fabric.Hosts()),
		Racks: make([]policies.RackState, r.fabric.Racks()), Load: make([]units.Rate, len(r.fabric.Links()))}
	for r := range c.Racks {
		c.Racks[r] = policies.RackState{LastReport: -1, NextReport: interval}
	}
	for h := range c.Hosts {
		c.Hosts[h] = policies.HostState{LastReport: -1, NextReport: interval}
		if d := r.s.Spec.Disk; d != nil {
			c.DiskRate, c.Hosts[h].Disk = d.Write, d.HostSize()
		}
	}
	return c
}

// taskConfig returns the jobs of tasks of an arm, nil if there are none.
func (t *trial) taskConfig() (*engine.TaskConfig, error) {
	if len(t.tasks) == 0 {
		return nil, nil
	}
	p := t.Policies[catalog.RoleTask]
	scheduler, err := catalog.Task(p.Name, p.Params)
	if err != nil {
		return nil, err
	}
	of := t.s.Spec.Tasks
	c := &engine.TaskConfig{Jobs: t.tasks, Scheduler: scheduler, Slots: [jobs.TaskKinds]int{of.MapSlots, of.ReduceSlots}, Resources: jobs.Resources{CPU: of.Cores, Memory: of.Memory},
		Space: of.OutputSpace, Stored: t.stored, Output: t.output, Settings: taskSettings(of)}
	if s := t.s.Stragglers(); s != nil && !t.idle {
		c.Stragglers, c.Read, c.Write = s, t.s.Spec.Disk.ReadRate(), t.s.Spec.Disk.Write
	}
	return c, nil
}

// taskSettings returns the settings of the job tracker.
func taskSettings(t *scenario.Tasks) tracker.Settings {
	return tracker.Settings{OutOfBand: t.OutOfBand, Slowstart: t.Slowstart, Barrier: t.Shuffle == scenario.BarrierShuffle, Fetches: t.Fetches, Batch: t.FetchBatch,
		Penalty: t.Penalty, MaxPenalty: t.PenaltyMax, Growth: t.PenaltyGrowth, FetchFailures: t.FetchFailures, Attempts: t.Attempts,
		Evict: tracker.Evict(max(0, slices.Index(tracker.EvictNames(), t.Evict)))}
}
