package catalog

import (
	"errors"
	"fmt"
	"maps"
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

// with returns the parameters of a policy with a part.
func with(part string, params map[string]any) map[string]any {
	return map[string]any{With: []any{map[string]any{part: params}}}
}

// Orders satisfy the contract with every variant of their parameters, and with every variant of each part.
func TestTaskVariants(t *testing.T) {
	longtest.Computes(t)
	clusters := 20 // per variant; the defaults are tested with rapid's number
	if testing.Short() {
		clusters /= 5
	}
	type given = map[string]any
	learned := given{"budget": 0.5, "reads": "delay", "estimates": "learned"}
	requires := map[string]given{"skips": {"by": "skips"}, "io_rate": {"io_biasing": true}, "locality": {"by": "skips"}, "replicas": {"by": "skips"},
		"kill_most": {"kill": true}, "kill_interval": {"kill": true, "fair_timeout": "100ms"},
		"levels": {"order": "mlq"}, "level_time": {"order": "mlq"}, "level_factor": {"order": "mlq"}, "interval": {"by": "mantri"},
		"admission": {"budget": 0.5}, "reads": {"budget": 0.5}, "estimates": {"budget": 0.5, "reads": "delay"}, "learn_every": learned, "flows": learned}
	for _, e := range All().Entries(RoleTask) {
		check := func(t *testing.T, params given) {
			s, err := Task(e.Name, params)
			if err != nil {
				t.Errorf("%v: %v", params, err)
				return
			}
			for i := range clusters {
				if err := policytest.CheckTasks(s, policytest.TaskClusters().Example(i), policytest.TaskClusters().Example(i+clusters), 10); err != nil {
					t.Errorf("%v, cluster %d: %v", params, i, err)
					return
				}
			}
		}
		variants := func(t *testing.T, of Entry, composed func(given) given) {
			for _, p := range of.Params {
				for _, value := range taskValues(t, p) {
					params := given{p.Name: value}
					if fmt.Sprint(value) != fmt.Sprint(p.Default) {
						maps.Copy(params, requires[p.Name])
					}
					check(t, composed(params))
				}
			}
		}
		t.Run(e.Name, func(t *testing.T) {
			variants(t, e, func(params given) given { return params })
			for _, part := range parts() {
				variants(t, part, func(params given) given { return with(part.Name, params) })
			}
		})
	}
}

// taskValues returns values of a parameter.
func taskValues(t *testing.T, p Param) (values []any) {
	switch p.Type {
	case Bool:
		return []any{true, false}
	case Choice:
		for _, c := range p.Choices {
			values = append(values, c)
		}
	case Whole:
		return []any{max(p.Min, 2)}
	case Float:
		return []any{p.High / 2}
	case Duration:
		return []any{time.Duration(p.Min).String(), "1s"}
	case Durations:
		return []any{"1s", "2s, 8ms"}
	case Pools:
		return []any{"ann=2:3:1,bob=1", "none"}
	case Parts:
		for _, part := range p.Parts {
			values = append(values, []any{part.Name})
		}
	default:
		t.Fatalf("parameter %s of type %s", p.Name, p.Type)
	}
	return values
}

func TestTask(t *testing.T) {
	all := tasks.Delay{Waiting: tasks.ByTime, T1: time.Second, T2: 2 * time.Second, Locality: 0.5, Replicas: 2, ByRate: true, Rate: 20 * units.Mbps}
	changed := func(s tasks.Scheduler, change func(*tasks.Scheduler)) tasks.Scheduler {
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name   string
		params map[string]any
		want   tasks.Scheduler
	}{
		{"fifo", nil, tasks.DefaultFIFO()},
		{"fair", nil, tasks.DefaultFair()},
		{"drf", nil, tasks.DefaultDRF()},
		{"fifo", map[string]any{With: []any{"shufflewatcher", "speculation", "blacklist"}}, changed(tasks.DefaultFIFO(), func(s *tasks.Scheduler) {
			s.Shuffle, s.Speculation, s.Blacklist = tasks.DefaultShuffling(), tasks.DefaultSpeculation(), clone.DefaultBlacklist()
		})},
		{"drf", map[string]any{With: []any{"cloning", "split", "delay"}}, changed(tasks.DefaultDRF(), func(s *tasks.Scheduler) {
			s.Delay, s.Splitting, s.Cloning = tasks.DefaultDelay(), tasks.DefaultSplitting(), tasks.DefaultCloning()
		})},
		{"drf", map[string]any{"heartbeat_tasks": 5, "heartbeat_maps": 4, "heartbeat_reduces": 3, "heartbeat_off_rack": 2, "load_factor": true, With: []any{
			map[string]any{"delay": map[string]any{"t1": "1s", "t2": "2s", "locality": 0.5, "replicas": 2, "io_biasing": true, "io_rate": 2.5}},
			map[string]any{"split": map[string]any{"per_job": 1}}}},
			tasks.Scheduler{Order: tasks.DRF{}, PerHeartbeat: tasks.PerHeartbeat{Tasks: 5, Maps: 4, Reduces: 3, OffRack: 2, LoadFactor: true}, Delay: all, Splitting: tasks.Splitting{Factor: 3, PerJob: 1}}},
		{"fair", map[string]any{"pools": "ann=2:3:1,bob=0.5", "inside": "fifo", "kill": true, "min_timeout": "1s", "fair_timeout": "2s", "starving_fraction": 1, "kill_interval": "3s", "kill_most": 4, With: []any{
			map[string]any{"delay": map[string]any{"by": "skips", "skips": 7}}}},
			tasks.Scheduler{Order: tasks.Fair{Pools: []tasks.Pool{{Name: "ann", Weight: 2, Min: [jobs.TaskKinds]int{3, 1}}, {Name: "bob", Weight: 0.5}}, Inside: tasks.InOrder,
				Starvation: tasks.Starvation{MinTimeout: time.Second, FairTimeout: 2 * time.Second, Fraction: 1, Kill: true, Every: 3 * time.Second, Most: 4}},
				PerHeartbeat: tasks.PerHeartbeat{Tasks: 1}, Delay: func() tasks.Delay { d := tasks.DefaultDelay(); d.Waiting, d.Skips = tasks.BySkips, 7; return d }()}},
		{"fair", with("shufflewatcher", map[string]any{"samp": "best-subset", "map_completion": 0.25, "netsat_share": 0.5, "netsat_intervals": 2, "netsat_interval": "1s", "netsat": "both", "netsat_load": "actual", "ratios": "perfect"}),
			changed(tasks.DefaultFair(), func(s *tasks.Scheduler) {
				s.Shuffle = tasks.Shuffling{NASS: true, SARP: true, SAMP: true, Rule: shuffle.BestSubset, MapCompletion: 0.25,
					NetSat: shuffle.NetSat{Share: 0.5, Intervals: 2, Variant: shuffle.BothWays}, Interval: time.Second, TrueLoad: true, Ratios: tasks.Perfect}
			})},
		{"fifo", map[string]any{With: []any{
			map[string]any{"speculation": map[string]any{"by": "mantri", "cap": 0.2, "slow_host": 0.3, "slow_task": 0.4, "after": "1s", "interval": "2s", "copies": 3, "restarts": 4, "risk": 0.5, "gain": 6}},
			map[string]any{"blacklist": map[string]any{"above": 0.4, "window": "7s"}},
			map[string]any{"cloning": map[string]any{"straggle": 0.2, "risk": 0.1, "budget": 0.3, "utilization": 0.4, "admission": "fcfs", "reads": "delay", "wait": "8s", "learn_every": "9s", "estimates": "periodic", "flows": true}}}},
			changed(tasks.DefaultFIFO(), func(s *tasks.Scheduler) {
				s.Speculation = tasks.Speculation{By: tasks.ByMantri, LATE: clone.LATE{Cap: 0.2, HostPercentile: 0.3, TaskPercentile: 0.4, After: time.Second},
					Mantri: clone.Mantri{Interval: 2 * time.Second, Copies: 3, Restarts: 4, Risk: 0.5, Gain: 6}}
				s.Blacklist = clone.Blacklist{Above: 0.4, Window: 7 * time.Second}
				s.Cloning = tasks.Cloning{On: true, Dolly: clone.Dolly{Straggle: 0.2, Risk: 0.1, Budget: 0.3, Utilization: 0.4}, Admission: clone.FCFS, Reads: tasks.DelayedCopy, Wait: tasks.SameWaits(8 * time.Second), Learn: tasks.PeriodicEstimates, LearnEvery: 9 * time.Second, ByFlows: true}
			})},
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
		{"fair", map[string]any{"pools": "a=0,b", "inside": "lifo", "starving_fraction": 0, "heartbeat_tasks": 1.5, With: []any{
			map[string]any{"split": map[string]any{"factor": 0}}, map[string]any{"delay": map[string]any{"t1": -1, "t3": 1}}}}, []string{
			`fair: pools: pool "a=0": weight "0": must be a number above 0`, `pool "b": expected user=weight`, `fair: inside: lifo: must be fair or fifo`,
			`fair: starving_fraction: 0: must be a number from 0.01 to 1 (× the fair share)`, `fair: part split: factor: 0: must be a whole number from 1 to 1000 (× the reduce slots)`,
			`fair: part delay: t1: -1: expected a duration`, `part delay: unknown parameter "t3" (did you mean "t1"? available: by,`, `fair: heartbeat_tasks: 1.5: must be a whole number`}},
		{"fair", map[string]any{"pools": 7}, []string{`fair: pools: 7: expected pools such as "prod=2:10:4,adhoc=1", or "none"`}},
		{"fair", map[string]any{"kill_most": 5}, []string{`kill_most 5 has no effect with kill false: use kill true`}},
		{"fair", with("delay", map[string]any{"skips": 3, "by": "none", "io_biasing": true}), []string{
			`tasks policy fair: part delay: skips 3 has no effect with by none: use by skips`, `io_biasing has no effect with by none: use by time`}},
		{"fair", with("split", map[string]any{"per_job": 2, "factor": 1}), []string{`part split: per_job 2 has no effect with factor 1: use`}},
		{"drf", with("delay", map[string]any{"io_rate": 3}), []string{`tasks policy drf: part delay: io_rate has no effect without io_biasing: use`}},
		{"drf", with("cloning", map[string]any{"flows": true}), []string{`part cloning: flows has no effect with estimates given: use`}},
		{"drf", with("shufflewatcher", map[string]any{"strict": true, "sarp": false, "samp": "off"}), []string{`strict has no effect without sarp and samp: use`}},
		{"drf", map[string]any{With: "delay"}, []string{`with: delay: expected a list of parts, such as [{delay: {by: time}}]`}},
		{"drf", map[string]any{With: []any{"dealy", "split", "split", map[string]any{"split": 2}, 7}}, []string{`unknown part "dealy" (did you mean "delay"? available: `,
			`part split is listed twice: keep one`, `{split: 2}: expected the parameters of split, such as {split: {factor: 3}}`, `7: expected the name of a part, or one part with its parameters, such as {delay: {by: time}}`}},
		// Parameters of parts outside of them, which the error shows in their place.
		{"fair", map[string]any{"delay": "time", "t1": "3s", "t2": "3s", "pools": "a=2,b=1"}, []string{
			`tasks policy fair: delay: a part has this parameter: write {name: fair, pools: "a=2,b=1", with: [{delay: {by: time, t1: 3s, t2: 3s}}]}`}},
		{"fifo", map[string]any{"order": "sjf", "split": 3, "reserved_reduces": 1}, []string{`write {name: fifo, order: sjf, with: [{split: {factor: 3, reserved_reduces: 1}}]}`}},
		{"drf", map[string]any{"nass": true, "samp": "off", "netsat_interval": "1s"}, []string{`write {name: drf, with: [{shufflewatcher: {nass: true, netsat_interval: 1s, samp: off}}]}`}},
		{"fair", map[string]any{"speculation": "late", "late_after": "6s", "mantri_interval": "3s", "blacklist": 0.3, "blacklist_window": "30s", "cloning": "dolly", "clone_reads": "delay"}, []string{
			`write {name: fair, with: [{blacklist: {above: 0.3, window: 30s}}, {cloning: {reads: delay}}, {speculation: {after: 6s, by: late, interval: 3s}}]}`}},
		{"fair", map[string]any{With: []any{"split"}, "cloning": "dolly"}, []string{`write {name: fair, with: [split, cloning]}`}},
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
