package scenario

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies/catalog"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

const tasksScenario = `name: tasks
fabric: {leaves: 4, spines: 1, hosts_per_leaf: 5, host_link: 100Mbps, oversubscription: "5:1", queue: 20ms}
disk: {write: 6.9MB/s, size: 2GB}
workload:
  - kind: tasks
    generator: mix
    jobs: 20
    gap: 2s
    block: 8MB
    profiles:
      - {name: small, weight: 3, maps: 1-3, reduces: 0.5, keep_map: 1, keep_reduce: 0.5}
      - {name: large, maps: 10-20, reduces: 0.2, keep_map: 0.4, keep_reduce: 1, map_rate: 4MB/s}
    users: 3
  - {kind: writers, count: 2, blocks: 1, block: 4MB, packet: 16KB}
tasks: {map_slots: 3, out_of_band: true, output: {packet: 16KB}}
arms: {coflow: [fair], placement: [hdfs], tasks: [fifo, {name: fair, pools: "u1=2:10:4,u3=1"}]}
repeat: 2
`

const jobFile = `testbed-jobs: 1
jobs:
- submit: 4s
  user: bob
  stages:
  - {kind: map, tasks: 3, input: 8MB, rate: 8MB/s, write_ratio: 1/2, cpu: 2, memory: 1GB}
- submit: 1s
  user: ann
  stages:
  - {kind: map, tasks: 2, input: 6MB, rate: 8MB/s, output_ratio: 1}
  - {kind: reduce, from: [0], tasks: 2, rate: 4MB/s, writes: 9MB}
`

var taskFiles = fstest.MapFS{"jobs.yaml": {Data: []byte(jobFile)}, "bad.yaml": {Data: []byte("testbed-jobs: 1\njobs:\n- {usr: a}\n")},
	"swim.tsv": {Data: []byte("job0 0 0 100 0 0\n")}, "small.txt": testTraces["small.txt"]}

func parseTasks(t testing.TB, text string) (*Scenario, error) {
	t.Helper()
	return Parse("s.yaml", []byte(text), Options{Catalog: catalog.All(), Open: taskFiles.Open})
}

func tasksOf(t *testing.T, s *Scenario, repeat int) ([]jobs.Job, Notes) {
	t.Helper()
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	list, notes, err := s.TaskJobs(f, repeat)
	if err != nil {
		t.Fatal(err)
	}
	return list, notes
}

// withItem replaces the first item of tasksScenario, and the pools of its arms.
func withItem(item string) string {
	head, rest, _ := strings.Cut(tasksScenario, "  - kind: tasks")
	_, tail, _ := strings.Cut(rest, "users: 3\n")
	return head + "  - " + item + "\n" + strings.Replace(tail, ", pools: \"u1=2:10:4,u3=1\"", "", 1)
}

// The jobs of a generator depend on the seed and the repeat only, and scale with rates and sizes.
func TestGeneratedTasks(t *testing.T) {
	s, err := parseTasks(t, tasksScenario)
	if err != nil {
		t.Fatal(err)
	}
	list, notes := tasksOf(t, s, 0)
	if err := jobs.Check(list, jobs.Limits{}); err != nil {
		t.Fatal(err)
	}
	if again, _ := tasksOf(t, s, 0); !cmp.Equal(list, again) {
		t.Error("the same repeat has other jobs")
	}
	if other, _ := tasksOf(t, s, 1); cmp.Equal(list, other) {
		t.Error("another repeat has the same jobs")
	}
	st := jobs.Describe(list, jobs.DefaultBins())
	if st.Jobs != 20 || len(st.Profiles) != 2 || st.Profiles[0].Name != "small" {
		t.Errorf("%d jobs, profiles %+v: want 20, most of them small", st.Jobs, st.Profiles)
	}
	rates := map[string]units.Rate{"small": 64 * units.Mbps, "large": 32 * units.Mbps}
	for _, j := range list {
		if j.Stages[0].Tasks[0].Rate != rates[j.Profile] {
			t.Errorf("job %d of profile %s: maps consume %v", j.ID, j.Profile, j.Stages[0].Tasks[0].Rate)
		}
	}
	if text := strings.Join(notes, "\n"); !strings.Contains(text, "workload[0]: generator mix: 20 jobs of ") || !strings.Contains(text, " of 60 slots busy") || !strings.Contains(text, "tasks: one input block of 8MB takes 4.64 heartbeats on a disk") {
		t.Errorf("notes:\n%s", text)
	}

	half, err := s.Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	scaled, _ := tasksOf(t, half, 0)
	want, err := jobs.Scale{Rate: workloads.Factor{Num: 1, Den: 2}, Size: workloads.Factor{Num: 1, Den: 2}}.Apply(list)
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b units.Bytes) bool { return a-b <= 1 && b-a <= 1 }
	if d := cmp.Diff(want, scaled, cmp.Comparer(near)); d != "" {
		t.Errorf("half the rates and sizes (-want +got):\n%s", d)
	}
	if o := half.Spec.Tasks.Output.Packet; o != 8*units.KB {
		t.Errorf("packets of %v, want 8KB", o)
	}
	rated, err := parseTasks(t, tasksScenario+"scale: {rate: 1/2}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := tasksOf(t, rated, 0); !cmp.Equal(got, scaled) {
		t.Error("scale.rate 1/2 differs from Scaled by 2")
	}

	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseTasks(t, string(resolved))
	if err != nil {
		t.Fatalf("%v in\n%s", err, resolved)
	}
	if fingerprint(t, again) != fingerprint(t, s) {
		t.Errorf("the resolved scenario is another one:\n%s", resolved)
	}
}

// Every generator has its defaults, which the resolved scenario states.
func TestTaskGeneratorDefaults(t *testing.T) {
	for item, want := range map[string]string{
		"{kind: tasks, generator: bm, tasks: 1/8, size_factor: 1/64}":                                                           "jobs of 1723 maps",
		"{kind: tasks, generator: mix, size_factor: 1/64}":                                                                      "100 jobs of ",
		"{kind: tasks, generator: simulation, size_factor: 1/64}":                                                               "30 jobs of ",
		"{kind: tasks, generator: benchmarks, size_factor: 1/64, mix: {light: 1}}":                                              "360 jobs of ",
		"{kind: tasks, generator: bins, largest: 50, size_factor: 1/64}":                                                        "1000 jobs of ",
		"{kind: tasks, generator: bins, jobs: 50, largest: 50, workload: bing, phases: 6, utilization: 0.5, size_factor: 1/64}": "50 jobs of ",
		"{kind: tasks, generator: mix, workers: 4, size_factor: 1/64}":                                                          "submitted from 0s to 0s",
		"{kind: tasks, generator: bm, tasks: 1/64, gap: 0s, first: 3, size_factor: 1/64}":                                       "3 jobs of ",
	} {
		s, err := parseTasks(t, strings.Replace(withItem(item), "2GB", "20GB", 1))
		if err != nil {
			t.Errorf("%s: %v", item, err)
			continue
		}
		list, notes := tasksOf(t, s, 0)
		if !strings.Contains(notes[0], want) {
			t.Errorf("%s: %s", item, notes[0])
		}
		if b := list[0].Stages[0].Tasks[0].InputSize; b != 2*units.MB {
			t.Errorf("%s: blocks of %v, want 2MB", item, b)
		}
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseTasks(t, string(resolved)); err != nil || fingerprint(t, again) != fingerprint(t, s) {
			t.Errorf("%s: resolved %v:\n%s", item, err, resolved)
		}
	}
}

// Jobs of a file are scaled by scale and the item's factors, several items are joined, and the
// file is kept with the scenario.
func TestTasksFromFiles(t *testing.T) {
	text := withItem(`{kind: tasks, path: jobs.yaml}
  - {kind: tasks, path: jobs.yaml, first: 1, start: 2s, size_factor: 2, time_factor: 2, gap_factor: 1/2}`) + "scale: {size: 1/4, time: 1/2}\n"
	s, err := parseTasks(t, text)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := tasksOf(t, s, 0)
	if err := jobs.Check(list, jobs.Limits{}); err != nil {
		t.Fatal(err)
	}
	type job struct {
		user    string
		submit  time.Duration
		block   workloads.BlockID
		size    units.Bytes
		rate    units.Rate
		output  units.Bytes
		written units.Bytes
	}
	var got []job
	for _, j := range list {
		m, last := j.Stages[0].Tasks[1], j.Stages[len(j.Stages)-1].Tasks[0]
		var output units.Bytes
		for _, b := range m.Output {
			output += b
		}
		got = append(got, job{j.User, j.Submit, m.Input, m.InputSize, m.Rate, output, last.Writes})
	}
	// Processing rates change as size / time: 8 MB/s × 1/2.
	want := []job{
		{"ann", 500 * time.Millisecond, 4, 1500 * units.KB, 32 * units.Mbps, 1500 * units.KB, 2250 * units.KB},
		{"bob", 2 * time.Second, 1, 2 * units.MB, 32 * units.Mbps, 0, units.MB},
		{"ann", 2500 * time.Millisecond, 9, 3 * units.MB, 32 * units.Mbps, 3 * units.MB, 4500 * units.KB},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(job{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	out := s.TaskOutput(list)
	if d := cmp.Diff(workloads.Block{Size: 3 * units.MB, Replicas: 3, Packet: 16 * units.KB, Window: 6}, out); d != "" {
		t.Errorf("output blocks (-want +got):\n%s", d)
	}
	kept := map[string][]byte{}
	for _, file := range s.Files() {
		kept[file.Name] = file.Data
	}
	if !bytes.Equal(kept["traces/jobs.yaml"], []byte(jobFile)) {
		t.Errorf("kept files %v", sortedKeys(kept))
	}
	again, err := Parse("scenario.yaml", kept["scenario.yaml"], Options{Catalog: catalog.All(), Open: testFiles(kept).Open})
	if err != nil {
		t.Fatal(err)
	}
	if fingerprint(t, again) != fingerprint(t, s) {
		t.Error("the kept scenario is another one")
	}
	half, err := s.Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	scaled, _ := tasksOf(t, half, 0)
	if a, b := list[0].Stages[0].Tasks[0], scaled[0].Stages[0].Tasks[0]; b.InputSize*2 != a.InputSize || b.Rate*2 != a.Rate || scaled[0].Submit != list[0].Submit {
		t.Errorf("task %+v, halved %+v", a, b)
	}
}

// Jobs of workers follow each other within their item, and keep their think times.
func TestWorkersOfTwoItems(t *testing.T) {
	s, err := parseTasks(t, withItem(`{kind: tasks, generator: mix, jobs: 6, workers: 2, gap: 3s, start: 4s, block: 1MB}
  - {kind: tasks, generator: mix, jobs: 9, workers: 3, gap: 1s, block: 1MB}`))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := tasksOf(t, s, 0)
	if err := jobs.Check(list, jobs.Limits{}); err != nil {
		t.Fatal(err)
	}
	chains := map[jobs.JobID]jobs.JobID{} // the first job of each
	length := map[jobs.JobID]int{}
	for _, j := range list {
		first := j.ID
		if j.After > 0 {
			first = chains[j.After]
			if list[first-1].User != j.User {
				t.Errorf("job %d of %s follows one of %s", j.ID, j.User, list[first-1].User)
			}
		}
		chains[j.ID] = first
		length[first]++
	}
	if len(length) != 5 {
		t.Errorf("%d chains of jobs, want 5: %v", len(length), length)
	}
	for first, n := range length {
		if n != 3 {
			t.Errorf("%d jobs follow job %d, want 2", n-1, first)
		}
	}
}

// Jobs of items with one file read the same blocks, also if they have different numbers of maps; those
// of other items read blocks of their own.
func TestTasksOfOneFile(t *testing.T) {
	s, err := parseTasks(t, withItem(`{kind: tasks, generator: mix, jobs: 3, file: logs, block: 1MB, maps: 2-2, profiles: [{name: short, keep_map: 0}]}
  - {kind: tasks, generator: mix, jobs: 2, block: 3MB, maps: 4-4, profiles: [{name: own, keep_map: 0}]}
  - {kind: tasks, generator: mix, jobs: 2, file: logs, block: 1MB, maps: 5-5, profiles: [{name: long, keep_map: 0}]}
  - {kind: tasks, generator: mix, jobs: 1, file: more, block: 2MB, maps: 1-1, profiles: [{name: more, keep_map: 0}]}`))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := tasksOf(t, s, 0)
	if err := jobs.Check(list, jobs.Limits{}); err != nil {
		t.Fatal(err)
	}
	got := map[string][][]workloads.BlockID{}
	for _, j := range list {
		var reads []workloads.BlockID
		for _, task := range j.Stages[0].Tasks {
			reads = append(reads, task.Input)
		}
		got[j.Profile] = append(got[j.Profile], reads)
	}
	short, long := []workloads.BlockID{0, 1}, []workloads.BlockID{0, 1, 10, 11, 12}
	want := map[string][][]workloads.BlockID{"short": {short, short, short}, "own": {{2, 3, 4, 5}, {6, 7, 8, 9}}, "long": {long, long}, "more": {{13}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("blocks %v, want %v", got, want)
	}
}

// badTask changes one place of a scenario. An empty error means that it still loads.
type badTask struct{ text, old, new, want string }

func badTasks() []badTask {
	file := withItem("{kind: tasks, path: jobs.yaml}")
	return []badTask{
		{tasksScenario, "generator: mix", "generator: mx", `s.yaml:6:16: workload[0].generator: "mx": expected bm or mix or simulation or benchmarks or bins (did you mean "mix"?)`},
		{file, "path: jobs.yaml", "path: jobs.yaml, file: logs", `workload[0].file: applies only to generator bm, mix, simulation, benchmarks or bins: leave it out`},
		{withItem("{kind: tasks, generator: mix, file: logs, block: 1MB}\n  - {kind: tasks, generator: mix, file: logs, block: 1MB, gap: 1s}"), "1MB, gap", "2MB, gap", `workload[1].file: "logs": a block of 1MB and of 2MB: items that read one file must have the same block and size_factor`},
		{file, "{kind: tasks, path: jobs.yaml}", "{kind: tasks, generator: bins, gap: 1s, utilization: 0.5}", `s.yaml:5:58: workload[0].utilization: excludes gap: remove one of them`},
		{file, "{kind: tasks, path: jobs.yaml}", "{kind: tasks, generator: bins, workload: yahoo}", `workload[0].workload: "yahoo": expected facebook or bing`},
		{file, "{kind: tasks, path: jobs.yaml}", "{kind: tasks, generator: mix, phases: 6}", `workload[0].phases: applies only to generator bins: leave it out`},
		{tasksScenario, "generator: mix", "generator: bm", `s.yaml:7:11: workload[0].jobs: applies only to generator mix, simulation, benchmarks or bins: leave it out`},
		{tasksScenario, "    generator: mix\n", "", `workload[0].path: missing: state the path of a job file, or a generator`},
		{tasksScenario, "generator: mix", "generator: mix\n    path: jobs.yaml", `workload[0].generator: excludes path: remove one of them`},
		{tasksScenario, "users: 3", "users: 3\n    size_factor: 2\n    rate_factor: 2\n    time_factor: 2", `s.yaml:14:18: workload[0].size_factor: scale: size 2 is not rate 2 times time 2: give two of them`},
		{tasksScenario, "users: 3", "users: 3\n    first: 21", `s.yaml:5:5: workload[0]: first 21: must be at most 20, the number of jobs`},
		{tasksScenario, "users: 3", "users: 3\n    workers: 4", `s.yaml:13:12: workload[0].users: 3, with 4 workers: each worker is a user: leave it out`},
		{tasksScenario, "users: 3", "workers: 3\n    user_skew: 1", `s.yaml:14:16: workload[0].user_skew: no effect with workers`},
		{tasksScenario, "maps: 1-3", "maps: 3-1", `workload[0].profiles[0].maps: range "3-1"`},
		{tasksScenario, "u3=1", "u4=1", `s.yaml:16:77: arms.tasks[1].pools: pool u4: no job has this user (did you mean "u1"?)`},
		{tasksScenario, "u3=1", "production=1", `arms.tasks[1].pools: pool production: no job has this user: use the name of a user, such as u1, u2, u3`},
		{tasksScenario, "u1=2:10:4,u3=1", "u1=0,u3", `s.yaml:16:77: arms.tasks[1].pools: tasks policy fair: pools: pool "u3": expected user=weight`},
		{tasksScenario, `pools: "u1=2:10:4,u3=1"`, "delay: time, t1: 3s", `s.yaml:16:77: arms.tasks[1].delay: tasks policy fair: delay: a part has this parameter: write {name: fair, with: [{delay: {by: time, t1: 3s}}]}`},
		{tasksScenario, `pools: "u1=2:10:4,u3=1"`, "with: [split, {delay: {t1: 3}}]", `s.yaml:16:97: arms.tasks[1].with[1].delay.t1: tasks policy fair: part delay: t1: 3: expected a duration such as "8ms"`},
		{tasksScenario, `pools: "u1=2:10:4,u3=1"`, "with: [split, {delya: {}}]", `s.yaml:16:84: arms.tasks[1].with[1]: tasks policy fair: unknown part "delya" (did you mean "delay"? available: delay, split,`},
		{tasksScenario, `pools: "u1=2:10:4,u3=1"`, "with: [split, {delay: {by: skips, skips: 3}}]", ""},
		{tasksScenario, "u1=2:10:4", "u1=2:61:4", `s.yaml:16:77: arms.tasks[1].pools: minimum shares of 61 map slots: the cluster has 60: use lower shares, or more tasks.map_slots`},
		{tasksScenario, "map_slots: 3", "map_slots: 3, reduce_slots: 0", `arms.tasks[1].pools: minimum shares of 4 reduce slots: the cluster has 0`},
		{tasksScenario, ", pools: \"u1=2:10:4,u3=1\"", ", pools: u1=2", ""},
		{file, "map_slots: 3", "map_slots: 0", `s.yaml:7:20: tasks.map_slots: 0: the jobs have 5 tasks of kind map: use at least 1`},
		{file, "map_slots: 3", "reduce_slots: 0", `tasks.reduce_slots: 0: the jobs have 2 tasks of kind reduce: use at least 1`},
		{file, "map_slots: 3", "cores: 1.5", `s.yaml:7:16: tasks.cores: 1.5: a task needs 2 cores: use at least that, or leave the key out`},
		{file, "map_slots: 3", "memory: 900MB", `tasks.memory: 900MB: a task needs 1GB: use at least that`},
		{file, "map_slots: 3", "cores: 2, memory: 1GB", ""},
		{file, "map_slots: 3", "input: {replicas: 21}", `s.yaml:7:27: tasks.input.replicas: 21 replicas on 20 hosts: must be at most one per host`},
		{file, "packet: 16KB}}", "replicas: 21}}", `tasks.output.replicas: 21 replicas on 20 hosts`},
		{file, "packet: 16KB}}", "block: 3MB}}", `tasks.output.window: 6 unacknowledged packets of 64KB are 12.8 % of a block of 3MB`},
		{file, "packet: 16KB}}", "block: 3GB}}", `tasks.output.block: 3GB on disks of 2GB`},
		{file, "map_slots: 3", "input: {placement: hdf}", `s.yaml:7:28: tasks.input.placement: unknown placement policy "hdf" (did you mean "hdfs"?`},
		{file, "map_slots: 3", "penalty: 11m", `tasks.penalty_max: 10m0s: must be at least penalty, 11m0s`},
		{file, "map_slots: 3", "shuffle: push", `tasks.shuffle: "push": expected pull or barrier (did you mean "pull"?)`},
		{file, "size: 2GB", "size: 7MB", `workload[0]: a task reads a block of 8MB from disks of 7MB`},
		{file, "size: 2GB", "size: 8MB", `workload[0]: the blocks up to here and their replicas do not fit on 20 disks of 8MB`},
		{file, "disk: {write: 6.9MB/s, size: 2GB}\n", "", `s.yaml:1:1: disk: missing: the workload writes blocks`},
		{file, "  - {kind: writers, count: 2, blocks: 1, block: 4MB, packet: 16KB}\n", "", ""},
		{file, "disk: {write: 6.9MB/s, size: 2GB}\n", "disk: {write: 6.9MB/s, size: 2GB}\nlimits: {tasks: 6}\n", `1 invalid lines: expected a job file of at most 6 tasks (limits.tasks)
jobs.yaml:11:5: jobs[1].stages[1].tasks: more than 6 tasks up to here: the limit of a workload`},
		{file, "fifo,", "fiof,", `unknown tasks policy "fiof" (did you mean "fifo"?`},
		{tasksScenario, tasksScenario, withItem("{kind: trace, path: small.txt, mb: MB}"), `s.yaml:7:8: tasks: no effect: the workload has no jobs of tasks: remove it, or add an item of kind tasks
s.yaml:8:50: arms.tasks: no effect: a tasks policy requires a workload with jobs of tasks: remove it, or add an item of kind tasks`},
		{file, "{kind: writers, count: 2, blocks: 1, block: 4MB, packet: 16KB}", "{kind: jobs, count: 2, interval: 1s, block: 4MB}", `s.yaml:6:5: workload[1]: jobs with the same numbers as the jobs of an item of kind tasks: use one of the two kinds of jobs`},
		{file, "path: jobs.yaml", "path: bad.yaml", `s.yaml:5:25: workload[0].path: bad.yaml: 2 invalid lines: expected a job file of at most 2000000 tasks (limits.tasks)
bad.yaml:3:3: jobs[0].stages: missing`},
		{file, "path: jobs.yaml", "path: swim.tsv", `s.yaml:5:25: workload[0].path: swim.tsv: a SWIM trace: derive a job file with "testbed workload jobs derive"`},
		{file, "path: jobs.yaml", "path: none.yaml", `none.yaml: file does not exist: expected a job file; paths are relative to the scenario file`},
		{file, "kind: tasks", "kind: trace", `s.yaml:5:25: workload[0].path: jobs.yaml: a job file: use kind: tasks`},
		{file, "path: jobs.yaml", "path: jobs.yaml, gap: 1s, users: 3", `s.yaml:5:41: workload[0].gap: applies only to generator bm, mix, simulation, benchmarks or bins: leave it out
s.yaml:5:52: workload[0].users: applies only to generator bm, mix, simulation, benchmarks or bins: leave it out`},
	}
}

func TestTaskErrors(t *testing.T) {
	for _, tt := range badTasks() {
		text := strings.Replace(tt.text, tt.old, tt.new, 1)
		if text == tt.text {
			t.Fatalf("nothing changed by %q", tt.old)
		}
		_, err := parseTasks(t, text)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%q for %q: %v", tt.new, tt.old, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%q for %q: %v\nwant %q", tt.new, tt.old, err, tt.want)
		}
	}
}

// Jobs that write nothing need no placement policy, and all settings have their defaults.
func TestTasksThatOnlyRead(t *testing.T) {
	text := `name: scan
fabric: {leaves: 1, spines: 0, hosts_per_leaf: 3, host_link: 100Mbps}
disk: {write: 6.9MB/s}
workload: [{kind: tasks, generator: mix, jobs: 2, maps: 1-2, block: 1MB, profiles: [{name: scan, keep_map: 0}]}]
arms: {coflow: [fair], tasks: [fifo]}
`
	s, err := parseTasks(t, text)
	if err != nil {
		t.Fatal(err)
	}
	want := Tasks{MapSlots: 2, ReduceSlots: 2, Slowstart: 0.05, Shuffle: "pull", Fetches: 5, FetchBatch: 10, Penalty: 10 * time.Second, PenaltyGrowth: 1.3, PenaltyMax: 10 * time.Minute,
		FetchFailures: 3, Attempts: 4, Input: TaskInput{Placement: "hdfs", Replicas: 3}, Output: TaskOutput{Replicas: 3, Packet: 64 * units.KB, Window: 6}}
	if d := cmp.Diff(want, *s.Spec.Tasks); d != "" {
		t.Errorf("defaults (-want +got):\n%s", d)
	}
	if name := s.ArmList()[0].Name; name != "fair+fifo" {
		t.Errorf("arm %q", name)
	}
	// Maps that write need one, and arms without policies have those that the workload requires.
	text = strings.NewReplacer("{coflow: [fair], tasks: [fifo]}", "[{name: default}]\ntasks: {output: {window: 1}}", "keep_map: 0", "keep_map: 0.5").Replace(text)
	writes, err := parseTasks(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]Policy{"coflow": {Name: "fair"}, "placement": {Name: "hdfs"}, "tasks": {Name: "fifo"}}, writes.ArmList()[0].Policies); d != "" {
		t.Errorf("policies by default (-want +got):\n%s", d)
	}
	if _, ok := s.ArmList()[0].Policies["placement"]; ok {
		t.Error("a placement policy of jobs that write nothing")
	}
	if _, err := parseTasks(t, strings.Replace(text, "disk: {write: 6.9MB/s}\n", "", 1)); err == nil || !strings.Contains(err.Error(), "disk: missing: the workload has jobs of tasks, which read blocks") {
		t.Errorf("no disk: %v", err)
	}
}

// The section on stragglers has the defaults of the model, and reports keys without effect. scale.time scales its window.
func TestStragglers(t *testing.T) {
	with := func(stragglers, more string) (*Scenario, error) {
		return parseTasks(t, strings.Replace(tasksScenario, "map_slots: 3", "map_slots: 3"+stragglers, 1)+more)
	}
	uniform := jobs.Stragglers{Probability: 0.1, Factor: [2]float64{6, 10}, Spread: 0.1, MidTask: 0.5, Window: 5 * time.Minute}
	sticky := uniform
	sticky.Sticky, sticky.Window = 0.2, 30*time.Second
	for _, tt := range []struct {
		section, more string
		want          *jobs.Stragglers
		note          string
	}{
		{"", "", nil, ""},
		{", stragglers: {}", "", &uniform, "tasks.stragglers: 10 % of attempts are 6-10 times slower, 50 % of them after a part of their work; the slowest of 10 equal tasks takes 5.4 times the median"},
		{", stragglers: {sticky: 0.2, sticky_window: 1m}", "scale: {time: 1/2}\n", &sticky, "10 % of attempts"},
		{", stragglers: {probability: 0.12, factor: 6-12, spread: 0, mid_task: 0}", "", &jobs.Stragglers{Probability: 0.12, Factor: [2]float64{6, 12}, Window: 5 * time.Minute}, "12 % of attempts are 6-12 times slower, 0 % of them"},
		{", stragglers: {tail: pareto}", "", &jobs.Stragglers{Shape: 1.26, Most: 20}, "attempts are slower by factors of a Pareto distribution of shape 1.26, at most 20; the slowest of 10 equal tasks takes 4.6 times the median"},
	} {
		s, err := with(tt.section, tt.more)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, s.Stragglers()); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.section, d)
		}
		_, notes := tasksOf(t, s, 0)
		if text := strings.Join(notes, "\n"); !strings.Contains(text, tt.note) || tt.note == "" && strings.Contains(text, "stragglers") {
			t.Errorf("%q: want %q in the notes:\n%s", tt.section, tt.note, text)
		}
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseTasks(t, string(resolved)); err != nil || fingerprint(t, again) != fingerprint(t, s) {
			t.Errorf("%q: the resolved scenario is another one: %v\n%s", tt.section, err, resolved)
		}
	}
	_, err := with(", stragglers: {tail: pareto, probability: 0.2, factor: 2-3, spread: 0.2, mid_task: 0, sticky: 0.5, sticky_window: 1m}", "")
	for _, key := range []string{"probability", "factor", "spread", "mid_task", "sticky"} {
		if want := "tasks.stragglers." + key + ": no effect without tail: uniform: leave it out, or add that"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q", err, want)
		}
	}
	for section, want := range map[string]string{
		"{shape: 2, most: 10}":      "tasks.stragglers.most: no effect without tail: pareto",
		"{sticky_window: 1m}":       "tasks.stragglers.sticky_window: no effect without sticky above 0",
		"{probability: 1.1}":        "tasks.stragglers.probability: ",
		"{factor: 10-6}":            "tasks.stragglers.factor: ",
		"{tail: normal}":            `tasks.stragglers.tail: "normal": expected uniform or pareto`,
		"{probabilty: 0.2}":         `did you mean "probability"?`,
		"{sticky: 0.1, window: 1m}": "tasks.stragglers.window: ",
	} {
		if _, err := with(", stragglers: "+section, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %q", section, err, want)
		}
	}
}

// A rule of eviction needs a limit of space.
func TestEvictNeedsSpace(t *testing.T) {
	const text = `name: evict
fabric: {leaves: 2, hosts_per_leaf: 2, spines: 1, host_link: 100Mbps}
disk: {write: 10MB/s, size: 1GB}
workload: [{kind: tasks, generator: mix, jobs: 1, maps: 1-2, block: 1MB}]
tasks: {evict: latest, output: {packet: 16KB}SPACE}
arms: [{coflow: fair, placement: hdfs, tasks: fifo}]
`
	for space, want := range map[string]string{"": "tasks.evict: no effect without output_space", ", output_space: 1GB": ""} {
		_, err := parseTasks(t, strings.Replace(text, "SPACE", space, 1))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("space %q: %v, want %q", space, err, want)
		}
	}
}
