package fluid_test

import (
	"math"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/fault"
	"testbed/emu/fluid"
	"testbed/policies"
	"testbed/policies/catalog"
	schedulers "testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// sample is the progress of an attempt at a heartbeat of its host.
type sample struct {
	since time.Duration // its start
	done  float64
}

// watching is a scheduler that notes the progress that it sees.
type watching struct {
	policies.TaskScheduler
	policies.TaskInstance
	hidden bool
	seen   map[jobs.AttemptID][]sample
}

func (w watching) Needs() policies.Facts {
	needs := w.TaskScheduler.Needs() | policies.EveryHeartbeat
	if !w.hidden {
		needs |= policies.TaskProgress
	}
	return needs
}

func (w watching) New() policies.TaskInstance {
	w.TaskInstance = w.TaskScheduler.New()
	return w
}

func (w watching) Assign(v *policies.TaskView, a *policies.Assignment) {
	for _, j := range v.Jobs {
		for _, r := range j.Running {
			if r.Host == v.Host {
				w.seen[r.ID] = append(w.seen[r.ID], sample{v.Now - r.Start, r.Progress})
			}
		}
	}
	w.TaskInstance.Assign(v, a)
}

// Two maps consume 4 MB of their own hosts' disks at 1 MB/s. A reduce has half of its 4 MB on its own
// host and fetches the other half at 1 MB/s, sorts at 1 MB/s and reduces at 0.5 MB/s. Heartbeats show
// exactly that, at half the processor half as fast. Without the need nothing is shown.
func TestProgressOfAttempts(t *testing.T) {
	const rate = 8 * units.Mbps // 1 MB/s
	for name, tt := range map[string]struct {
		hidden bool
		share  float64
	}{"shown": {false, 1}, "slow": {false, 0.5}, "hidden": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			f := racks(t, 1, 3, 1)
			w := watching{schedulers.DefaultFIFO(), nil, tt.hidden, map[jobs.AttemptID][]sample{}}
			cfg := engine.TaskConfig{Slots: [jobs.TaskKinds]int{1, 1}, Scheduler: w, Settings: tracker.DefaultSettings()}
			maps := jobs.Stage{Kind: jobs.Map}
			for h := range 2 {
				b := workloads.BlockID(h)
				cfg.Stored = append(cfg.Stored, engine.StoredBlock{Block: b, Size: 4 * mb, Hosts: []topo.HostID{topo.HostID(h)}})
				maps.Tasks = append(maps.Tasks, jobs.Task{Input: b, InputSize: 4 * mb, Rate: rate, Output: []units.Bytes{2 * mb}})
			}
			cfg.Jobs = []jobs.Job{{ID: 1, Stages: []jobs.Stage{maps, {Kind: jobs.Reduce, From: []int{0}, Tasks: []jobs.Task{{SortRate: rate, Rate: rate / 2}}}}}}
			var faults fault.Timeline
			if tt.share < 1 {
				for h := range topo.HostID(3) {
					faults = append(faults, fault.Step{Action: fault.SetCPU{Host: h, Share: tt.share}})
				}
			}
			capacity := make([]units.Rate, len(f.Links()))
			for l := range capacity {
				capacity[l] = rate
			}
			coflow, err := catalog.Coflow("fair", nil)
			if err != nil {
				t.Fatal(err)
			}
			e, err := engine.New(engine.Config{Fabric: f, Capacity: capacity, Coflow: coflow, Heartbeat: time.Second, Alpha: 0.2, Seed: 1, Tasks: &cfg, IDs: workloads.IDs{Coflow: 1, Flow: 1, Block: 2}})
			if err != nil {
				t.Fatal(err)
			}
			b := fluid.New(f, fluid.Config{Needs: e.Needs(), Heartbeat: time.Second, Stored: cfg.Stored, Faults: faults,
				Payload: func(units.Rate) units.Rate { return rate }})
			if err := engine.Run(t.Context(), e, b, []engine.Arrival{{Event: engine.JobArrived{Job: 1}}}, nil); err != nil {
				t.Fatal(err)
			}
			shown := [jobs.TaskKinds]int{}
			for id, seen := range w.seen {
				for _, s := range seen {
					at := s.since.Seconds() * tt.share // a slow processor slows transfers, too
					want := min(at/4, 1)
					if id.Task.Stage == 1 {
						computed := max(at-2, 0)
						want = (0.5+min(at, 2)/4)/3 + min(computed/4, 1)/3 + min(max(computed-4, 0)/8, 1)/3
					}
					if tt.hidden {
						want = 0
					}
					if math.Abs(s.done-want) > 1e-3 {
						t.Errorf("%v shows %v after %v, want %v", id, s.done, s.since, want)
					}
					if s.done > 0 && s.done < 1 {
						shown[id.Task.Stage]++
					}
				}
			}
			if len(w.seen) != 3 || !tt.hidden && (shown[jobs.Map] < 6 || shown[jobs.Reduce] < 10) {
				t.Errorf("%d attempts, %v samples between 0 and 1", len(w.seen), shown)
			}
		})
	}
}
