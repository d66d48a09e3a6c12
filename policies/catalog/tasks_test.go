package catalog

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/policies/clone"
	"testbed/policies/policytest"
	"testbed/policies/shuffle"
	"testbed/policies/tasks"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Task schedulers satisfy the contract with every variant of their parameters.
func TestTaskVariants(t *testing.T) {
	longtest.Computes(t)
	clusters := 20 // per variant; the defaults are tested with rapid's number
	if testing.Short() {
		clusters /= 5
	}
	requires := map[string]map[string]any{"skips": {"delay": "skips"}, "io_biasing": {"delay": "time"}, "io_rate": {"delay": "time", "io_biasing": true},
		"split_per_job": {"split": 3}, "kill_most": {"kill": true}, "t1": {"delay": "time"}, "t2": {"delay": "time"},
		"delay_locality": {"delay": "skips"}, "delay_replicas": {"delay": "skips"}, "kill_interval": {"kill": true, "fair_timeout": "100ms"}, "strict": {"sarp": true},
		"levels": {"order": "mlq"}, "level_time": {"order": "mlq"}, "level_factor": {"order": "mlq"},
		"clone_admission": {"cloning": "dolly", "clone_budget": 0.5}, "clone_reads": {"cloning": "dolly", "clone_budget": 0.5}, "clone_estimates": {"cloning": "dolly", "clone_budget": 0.5, "clone_reads": "delay"}, "clone_learn_every": {"cloning": "dolly", "clone_budget": 0.5, "clone_reads": "delay", "clone_estimates": "periodic"},
		"clone_flows":     {"cloning": "dolly", "clone_budget": 0.5, "clone_reads": "delay", "clone_estimates": "learned"},
		"mantri_interval": {"speculation": "mantri"}, "blacklist_window": {"blacklist": 0.1}}
	for _, e := range All().Entries(RoleTask) {
		t.Run(e.Name, func(t *testing.T) {
			for _, p := range e.Params {
				var values []any
				switch p.Type {
				case Bool:
					values = []any{true, false}
				case Choice:
					for _, c := range p.Choices {
						values = append(values, c)
					}
				case Whole:
					values = []any{max(p.Min, 2)}
				case Float:
					values = []any{p.High / 2}
				case Duration:
					values = []any{time.Duration(p.Min).String(), "1s"}
				case Durations:
					values = []any{"1s", "2s, 8ms"}
				case Pools:
					values = []any{"ann=2:3:1,bob=1", "none"}
				default:
					t.Fatalf("parameter %s of type %s", p.Name, p.Type)
				}
				for _, value := range values {
					params := map[string]any{p.Name: value}
					if value != p.Default {
						for name, x := range requires[p.Name] {
							params[name] = x
						}
					}
					s, err := Task(e.Name, params)
					if err != nil {
						t.Errorf("%v: %v", params, err)
						continue
					}
					for i := range clusters {
						if err := policytest.CheckTasks(s, policytest.TaskClusters().Example(i), policytest.TaskClusters().Example(i+clusters), 10); err != nil {
							t.Errorf("%v, cluster %d: %v", params, i, err)
							break
						}
					}
				}
			}
		})
	}
}

func TestTask(t *testing.T) {
	all := tasks.Delay{Waiting: tasks.ByTime, T1: time.Second, T2: 2 * time.Second, Locality: 0.5, Replicas: 2, ByRate: true, Rate: 20 * units.Mbps}
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   tasks.Scheduler
	}{
		{"fifo", nil, tasks.DefaultFIFO()},
		{"fair", nil, tasks.DefaultFair()},
		{"drf", nil, tasks.DefaultDRF()},
		{"drf", map[string]any{"heartbeat_tasks": 5, "heartbeat_maps": 4, "heartbeat_reduces": 3, "heartbeat_off_rack": 2, "load_factor": true, "delay": "time", "t1": "1s", "t2": "2s",
			"delay_locality": 0.5, "delay_replicas": 2, "io_biasing": true, "io_rate": 2.5, "split": 3, "split_per_job": 1},
			tasks.Scheduler{Order: tasks.DRF{}, PerHeartbeat: tasks.PerHeartbeat{Tasks: 5, Maps: 4, Reduces: 3, OffRack: 2, LoadFactor: true}, Delay: all, Splitting: tasks.Splitting{Factor: 3, PerJob: 1}, Shuffle: tasks.DefaultShuffling(), Speculation: tasks.DefaultSpeculation(), Cloning: tasks.DefaultCloning(), Blacklist: clone.DefaultBlacklist()}},
		{"fair", map[string]any{"pools": "ann=2:3:1,bob=0.5", "inside": "fifo", "kill": true, "min_timeout": "1s", "fair_timeout": "2s", "starving_fraction": 1, "kill_interval": "3s", "kill_most": 4, "delay": "skips", "skips": 7},
			tasks.Scheduler{Order: tasks.Fair{Pools: []tasks.Pool{{Name: "ann", Weight: 2, Min: [jobs.TaskKinds]int{3, 1}}, {Name: "bob", Weight: 0.5}}, Inside: tasks.InOrder,
				Starvation: tasks.Starvation{MinTimeout: time.Second, FairTimeout: 2 * time.Second, Fraction: 1, Kill: true, Every: 3 * time.Second, Most: 4}},
				PerHeartbeat: tasks.PerHeartbeat{Tasks: 1}, Delay: func() tasks.Delay { d := tasks.DefaultDelay(); d.Waiting, d.Skips = tasks.BySkips, 7; return d }(), Splitting: tasks.DefaultSplitting(), Shuffle: tasks.DefaultShuffling(), Speculation: tasks.DefaultSpeculation(), Cloning: tasks.DefaultCloning(), Blacklist: clone.DefaultBlacklist()}},
		{"fair", map[string]any{"nass": true, "sarp": true, "samp": "best-subset", "map_completion": 0.25, "netsat_share": 0.5, "netsat_intervals": 2, "netsat_interval": "1s", "netsat": "both", "netsat_load": "actual", "ratios": "perfect"},
			func() tasks.Scheduler {
				s := tasks.DefaultFair()
				s.Shuffle = tasks.Shuffling{NASS: true, SARP: true, SAMP: true, Rule: shuffle.BestSubset, MapCompletion: 0.25,
					NetSat: shuffle.NetSat{Share: 0.5, Intervals: 2, Variant: shuffle.BothWays}, Interval: time.Second, TrueLoad: true, Ratios: tasks.Perfect}
				return s
			}()},
		{"fifo", map[string]any{"speculation": "mantri", "late_cap": 0.2, "late_slow_host": 0.3, "late_slow_task": 0.4, "late_after": "1s", "mantri_interval": "2s", "mantri_copies": 3, "mantri_restarts": 4, "mantri_risk": 0.5, "mantri_gain": 6,
			"blacklist": 0.3, "blacklist_window": "7s", "cloning": "dolly", "clone_straggle": 0.2, "clone_risk": 0.1, "clone_budget": 0.3, "clone_utilization": 0.4, "clone_admission": "fcfs", "clone_reads": "delay", "clone_wait": "8s", "clone_learn_every": "9s", "clone_estimates": "periodic", "clone_flows": true},
			func() tasks.Scheduler {
				s := tasks.DefaultFIFO()
				s.Speculation = tasks.Speculation{By: tasks.ByMantri, LATE: clone.LATE{Cap: 0.2, HostPercentile: 0.3, TaskPercentile: 0.4, After: time.Second},
					Mantri: clone.Mantri{Interval: 2 * time.Second, Copies: 3, Restarts: 4, Risk: 0.5, Gain: 6}}
				s.Blacklist = clone.Blacklist{Above: 0.3, Window: 7 * time.Second}
				s.Cloning = tasks.Cloning{On: true, Dolly: clone.Dolly{Straggle: 0.2, Risk: 0.1, Budget: 0.3, Utilization: 0.4}, Admission: clone.FCFS, Reads: tasks.DelayedCopy, Wait: tasks.SameWaits(8 * time.Second), Learn: tasks.PeriodicEstimates, LearnEvery: 9 * time.Second, ByFlows: true}
				return s
			}()},
	} {
		if got, err := Task(tt.name, tt.params); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("Task(%q, %v) = %+v, %v, want %+v", tt.name, tt.params, got, err, tt.want)
		}
	}
}

func TestTaskErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   []string
	}{
		{"fiar", nil, []string{`unknown tasks policy "fiar" (did you mean "fair"? ` + available(RoleTask)}},
		{"fifo", map[string]any{"pools": "a=1"}, []string{`tasks policy fifo: unknown parameter "pools"`}},
		{"fair", map[string]any{"pools": "a=0,b", "inside": "lifo", "starving_fraction": 0, "split": 0, "t1": -1, "heartbeat_tasks": 1.5}, []string{
			`fair: pools: pool "a=0": weight "0": must be a number above 0`, `pool "b": expected user=weight`, `fair: inside: lifo: must be fair or fifo`,
			`fair: starving_fraction: 0: must be a number from 0.01 to 1 (× the fair share)`, `fair: split: 0: must be a whole number from 1 to 1000 (× the reduce slots)`,
			`fair: t1: -1: expected a duration`, `fair: heartbeat_tasks: 1.5: must be a whole number`}},
		{"fair", map[string]any{"pools": 7}, []string{`fair: pools: 7: expected pools such as "prod=2:10:4,adhoc=1", or "none"`}},
		{"fair", map[string]any{"skips": 3, "io_biasing": true, "split_per_job": 2, "kill_most": 5}, []string{
			`tasks policy fair: skips 3 has no effect with delay none: use delay skips`, `io_biasing has no effect with delay none: use delay time`,
			`split_per_job 2 has no effect with split 1: use`, `kill_most 5 has no effect with kill false: use kill true`}},
		{"drf", map[string]any{"clone_reads": "delay", "clone_admission": "fcfs"}, []string{`clone_admission fcfs has no effect with cloning none: use cloning dolly`, `clone_reads delay has no effect`}},
		{"drf", map[string]any{"io_rate": 3}, []string{`tasks policy drf: io_rate has no effect without io_biasing: use`}},
	} {
		err := errors.Join(All().Check(RoleTask, tt.name, tt.params)...)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Check(%q, %v) = %v, want %q in it", tt.name, tt.params, err, want)
			}
		}
	}
	if p, err := Task("nope", nil); p != nil || err == nil {
		t.Errorf("Task of an unknown name = %v, %v", p, err)
	}
}

func TestPools(t *testing.T) {
	c := All()
	want := map[string][]tasks.Pool{"pools": {{Name: "ann", Weight: 2, Min: [jobs.TaskKinds]int{3, 1}}, {Name: "bob", Weight: 1}}}
	if got := c.Pools(RoleTask, "fair", map[string]any{"pools": "ann=2:3:1,bob=1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("pools %+v, want %+v", got, want)
	}
	for name, params := range map[string]map[string]any{"fair": nil, "fifo": nil, "drf": {"pools": "ann=2"}} {
		if got := c.Pools(RoleTask, name, params); len(got["pools"]) > 0 {
			t.Errorf("pools of %s with %v: %+v, want none", name, params, got)
		}
	}
}
