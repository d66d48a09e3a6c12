package runner

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// straggling is a job of maps, and of reduces that compute for 1 s, that all start at once. A map reads its block in 0.5 s.
// Arms differ in the order of launches.
const straggling = `
name: stragglers
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 100Mbps, oversubscription: "1:1"}
disk: {write: 5MB/s, read: 20MB/s, size: 256MB}
heartbeat: {interval: 100ms}
workload:
  - {kind: tasks, generator: mix, jobs: 2, gap: 0s, users: 2, block: 1MB, map_rate: 2MB/s, sort_rate: 4MB/s, reduce_rate: 2MB/s, profiles: [{name: sort, maps: 16, reduces: 0.25, keep_map: 0.5, keep_reduce: 0}]}
tasks: {map_slots: 4, reduce_slots: 2, input: {replicas: 3}, stragglers: {probability: 0.4, factor: 4-6}}
arms:
  - {name: fifo, coflow: fair, placement: hdfs, tasks: fifo}
  - {name: drf, coflow: fair, placement: hdfs, tasks: drf}
`

// slowdownOf returns what an attempt of repeat 0 has drawn.
func slowdownOf(r *run, a flows.AttemptRecord) jobs.Slowdown {
	h := topo.HostID(0)
	for r.fabric.HostName(h) != a.Host {
		h++
	}
	return r.s.Stragglers().Of(r.s.RepeatSeed(0), jobs.AttemptID{Task: jobs.TaskID{Job: jobs.JobID(a.Job), Stage: a.Stage, Index: a.Task}, N: a.Attempt}, h, a.Start)
}

// straggled returns the time of reading and computing of an attempt by its draws, and that of the spill of a map: both
// without the network.
func straggled(w work, a flows.AttemptRecord, s jobs.Slowdown) (work, spill time.Duration) {
	task := &w.tasks[a.Job-1].Stages[a.Stage].Tasks[a.Task]
	usual := task.Rate.TimeToSend(a.Input)
	if a.Kind == flows.ReduceTask {
		usual += task.SortRate.TimeToSend(a.Input)
	}
	var output units.Bytes
	for _, n := range task.Output {
		output += n
	}
	const write = 40 * units.Mbps
	return time.Duration(float64(usual) * (s.Onset + (1-s.Onset)*s.Factor)), time.Duration(float64(write.TimeToSend(output)) * max(1, s.Factor))
}

// On the fluid model, every attempt takes what its draws say, and an attempt has the same draws in all arms.
func TestStragglersOnTheFluidModel(t *testing.T) {
	r, w := workOf(t, straggling, 0)
	var draws [2]map[[4]int]jobs.Slowdown
	for arm, rec := range simulateTasks(t, r, w) {
		draws[arm] = map[[4]int]jobs.Slowdown{}
		mid := 0
		for _, a := range rec.Attempts {
			s := slowdownOf(r, a)
			draws[arm][[4]int{int(a.Job), a.Stage, a.Task, a.Attempt}] = s
			want, spill := straggled(w, a, s)
			got := a.Computed - a.Compute
			if got < want-time.Microsecond || got > want+500*time.Microsecond { // of propagation
				t.Errorf("%s of job %d, task %d, %+v: took %v, want %v", a.Kind, a.Job, a.Task, s, got, want)
			}
			// Others spill to the same disk.
			if a.Kind == flows.MapTask && a.End-a.Computed < spill-time.Microsecond {
				t.Errorf("map %d of job %d, %+v: spilled in %v, want at least %v", a.Task, a.Job, s, a.End-a.Computed, spill)
			}
			if s.Onset > 0 {
				mid++
			}
		}
		if len(rec.Attempts) != 40 || mid == 0 {
			t.Errorf("%d attempts, of which %d slowed down: want 40, and some", len(rec.Attempts), mid)
		}
	}
	for id, s := range draws[0] {
		if draws[1][id] != s {
			t.Errorf("attempt %v drew %+v and %+v", id, s, draws[1][id])
		}
	}
}

// The outputs of stragglers are fetched at the rate of their disk divided by the factor.
func TestOutputsOfStragglersAreServedSlowly(t *testing.T) {
	text := strings.NewReplacer("probability: 0.4", "probability: 1, mid_task: 0", "factor: 4-6", "factor: 100").Replace(straggling)
	r, w := workOf(t, text, 0)
	const served = 160 * units.Mbps / 100
	fetches := 0
	for _, f := range simulateTasks(t, r, w)[0].Flows {
		if f.Task == nil || f.Task.Outputs == 0 {
			continue
		}
		fetches++
		if got, want := f.End-f.Start, served.TimeToSend(f.Size); got < want || got > want+time.Millisecond {
			t.Errorf("fetch of %v took %v, want %v", f.Size, got, want)
		}
	}
	if fetches == 0 {
		t.Error("no fetch")
	}
}

// Runs with stragglers replay from their logs, and jobs alone, for slowdowns, have none.
func TestReplayOfStragglers(t *testing.T) {
	t.Parallel()
	s := loadText(t, straggling+"repeat: 2\n")
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Replay(t.Context(), out.Dir, all())
	if err != nil || len(all.Repeats) != 4 {
		t.Fatalf("%d repeats, %v", len(all.Repeats), err)
	}
	for _, x := range all.Repeats {
		if x.Differs != nil {
			t.Errorf("%s/%d: %v", x.Arm, x.Repeat, x.Differs)
		}
	}
	r, w := workOf(t, straggling, 0)
	got, _, err := r.alone(t.Context(), 0, w)
	if err != nil {
		t.Fatal(err)
	}
	calm, w := workOf(t, strings.Replace(straggling, ", stragglers: {probability: 0.4, factor: 4-6}", "", 1), 0)
	want, _, err := calm.alone(t.Context(), 0, w)
	if err != nil {
		t.Fatal(err)
	}
	for id, d := range want {
		if d == 0 || got[id] != d {
			t.Errorf("job %d alone: %v, want %v", id, got[id], d)
		}
	}
}

// On packets, attempts take what their draws say, also those that slow down in the middle of a transfer, and outputs of
// stragglers are served slowly. The checks of disks, of the engine against the wire, and of windows pass.
func TestStragglersOnPackets(t *testing.T) {
	longtest.Skip(t, "runs jobs of tasks on packets, 20 s")
	netnstest.OnlyTiming(t)
	text, _, _ := strings.Cut(straggling, "  - {name: drf")
	text = strings.NewReplacer("probability: 0.4", "probability: 0.6", "input: {replicas: 3}", "input: {replicas: 1}, fetch_batch: 1",
		"host_link: 100Mbps", "host_link: 200Mbps", "maps: 16", "maps: 8", "block: 1MB", "block: 2MB").Replace(text)
	r, w := workOf(t, text, 0)
	const durations = "durations of attempts"
	judged := []string{"disk", "wire-vs-engine", durations}
	held := map[string]bool{} // in one of the attempts: the machine disturbs now one and now another
	netnstest.Timing(t, func(t *testing.T) bool {
		_, _, whole, seen := runOneArm(t, text)
		sameAttempts(t, seen.Attempts, whole.Records.Attempts)
		broken := map[string]bool{}
		mid, remote, fetches := 0, 0, 0
		for _, c := range whole.Verdict.Checks {
			if c.Level > verdict.Pass {
				broken[c.Name] = true
				if c.Name == "flow-control" {
					t.Errorf("attempts read slowly on purpose, but %s", c.Reason)
				}
				t.Logf("verdict %v: %s: %s", c.Level, c.Name, c.Reason)
			}
		}
		worst := 0.0
		served := map[[3]int]units.Rate{}
		for _, a := range whole.Records.Attempts {
			s := slowdownOf(r, a)
			if s.Straggles && a.Kind == flows.MapTask {
				served[[3]int{int(a.Job), a.Task, a.Attempt}] = s.Rate(160 * units.Mbps)
			}
			want, _ := straggled(w, a, s)
			got := a.Computed - a.Compute
			off := (got - want).Seconds() / want.Seconds()
			if math.Abs(off) > math.Abs(worst) {
				worst = off
			}
			// Marks take milliseconds; transfers begin slowly with the small buffer of their receiver.
			late := 10 * time.Millisecond
			if a.Kind == flows.MapTask && a.Locality != flows.NodeLocal {
				late = 150 * time.Millisecond
			}
			if got < want-want/50-5*time.Millisecond || got > want+want/50+late {
				broken[durations] = true
				t.Logf("%s %d of job %d, %s, %+v: took %v, want %v", a.Kind, a.Task, a.Job, a.Locality, s, got, want)
			}
			if s.Onset > 0 && a.Kind == flows.MapTask {
				mid++
				if a.Locality != flows.NodeLocal {
					remote++
				}
			}
		}
		for _, f := range whole.Records.Flows {
			if f.Task == nil || f.Task.Outputs == 0 {
				continue
			}
			r := served[[3]int{int(f.Task.Job), f.Task.FromTask, f.Task.FromAttempt}]
			if r == 0 {
				continue
			}
			fetches++
			// The first chunk of a paced flow is not paced.
			if took := f.End - f.Start; took < r.TimeToSend(f.Size)*8/10 {
				t.Errorf("fetch of %v of a straggler took %v, at %v", f.Size, took, r)
			}
		}
		t.Logf("%d maps slowed down, %d of them in a transfer; the largest deviation is %.1f %%; %d fetches from stragglers", mid, remote, 100*worst, fetches)
		if remote == 0 || fetches == 0 {
			t.Error("no map slows down in a transfer, or no output of a straggler is fetched")
		}
		for _, what := range judged {
			held[what] = held[what] || !broken[what]
		}
		return !slices.ContainsFunc(judged, func(what string) bool { return !held[what] })
	})
}
