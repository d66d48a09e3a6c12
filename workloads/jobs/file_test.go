package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/magic"
	"testbed/topo/units"
	"testbed/workloads"
)

const byHand = `# Two jobs, the later one first.
testbed-jobs: 1
jobs:
- submit: 2.5s
  stages:
  - {kind: map, tasks: 3, input: 100B, rate: 8MB/s, write_ratio: 1/3}
- user: alice
  profile: sort
  priority: -2
  stages:
  - kind: map
    tasks:
    - {count: 2, input: 128MB, rate: 8MB/s, output: [2*4MB, 1MB, 5MB]}
    - {input: 40MB, output: 10B, cpu: 0.5, memory: 1GB}
  - {kind: reduce, from: [0], tasks: 3, rate: 64Mbps, sort_rate: 400Mbps, output_ratio: 0.5, writes: 7B}
  - {kind: reduce, from: [0, 1], tasks: 1, write_ratio: 2}
- submit: 2.5s
  stages:
  - {kind: map, tasks: 1, input: 128MB, block: 3}
`

func TestRead(t *testing.T) {
	got, err := Read("t", strings.NewReader(byHand), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	rate := 64 * units.Mbps
	whole := []units.Bytes{4 * units.MB, 4 * units.MB, units.MB, 5 * units.MB}
	reduce := Task{Rate: rate, SortRate: 400 * units.Mbps, Writes: 7}
	with := func(t Task, out units.Bytes) Task { t.Output = []units.Bytes{out}; return t }
	want := []Job{
		{ID: 1, User: "alice", Profile: "sort", Priority: -2, Stages: []Stage{
			{Kind: Map, Tasks: []Task{
				{Input: 3, InputSize: 128 * units.MB, Rate: rate, Output: whole},
				{Input: 4, InputSize: 128 * units.MB, Rate: rate, Output: whole},
				{Input: 5, InputSize: 40 * units.MB, Output: []units.Bytes{3, 3, 2, 2}, Need: Resources{0.5, units.GB}},
			}},
			{Kind: Reduce, From: []int{0}, Tasks: []Task{with(reduce, 4000001), with(reduce, 4000001), with(reduce, 1000001)}},
			{Kind: Reduce, From: []int{0, 1}, Tasks: []Task{{Writes: 2 * (10000002 + 9000003)}}},
		}},
		{ID: 2, Submit: 2500 * time.Millisecond, Stages: []Stage{{Kind: Map, Tasks: []Task{
			{Input: 0, InputSize: 100, Rate: rate, Writes: 33}, {Input: 1, InputSize: 100, Rate: rate, Writes: 33}, {Input: 2, InputSize: 100, Rate: rate, Writes: 33}}}}},
		{ID: 3, Submit: 2500 * time.Millisecond, Stages: []Stage{{Kind: Map, Tasks: []Task{{Input: 3, InputSize: 128 * units.MB}}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Read = %+v\nwant %+v", got, want)
	}
	if err := Check(got, Limits{}); err != nil {
		t.Error(err)
	}
}

const file = "testbed-jobs: 1\njobs:\n"

// badFiles are job files with errors, and the beginning of each error.
var badFiles = []struct {
	name, text string
	limits     Limits
	want       []string
}{
	{"empty", "", Limits{}, []string{"t:1:1: "}},
	{"no version", "jobs: [{stages: [{kind: map, tasks: 1, input: 1B}]}]\n", Limits{}, []string{"t:1:1: testbed-jobs: missing: "}},
	{"newer", "testbed-jobs: 2\njob: []\n", Limits{}, []string{"t:1:15: testbed-jobs: 2: this testbed reads version 1"}},
	{"not YAML", "testbed-jobs: 1\njobs: [", Limits{}, []string{"t:"}},
	{"tab", "testbed-jobs: 1\njobs:\n\t- a\n", Limits{}, []string{"t:3:1: tab in the indentation"}},
	{"no text", "testbed-jobs: 1\x01\n", Limits{}, []string{"t:1:16: byte 0x1: "}},
	{"list", "- 1\n", Limits{}, []string{"t:1:1: a list: expected a mapping with the keys testbed-jobs, jobs"}},
	{"no jobs", "testbed-jobs: 1\njobs: []\n", Limits{}, []string{"t:2:7: jobs: empty: "}},
	{"alias", file + "- stages: [&a {kind: map, tasks: 1, input: 1B}]\n- stages: [*a]\n", Limits{}, []string{"t:3:12: jobs[0].stages[0]: anchor &a: ", "t:4:12: jobs[1].stages[0]: alias *a: "}},
	{"tag", file + "- stages: [{kind: !x map, tasks: 1, input: 1B}]\n", Limits{}, []string{"t:3:19: jobs[0].stages[0].kind: tag !x: "}},
	{"several", file + `- submit: -1s
  usr: a
  user: "a b"
  priority: 1.5
  stages:
  - {kind: mapp, tasks: 0, input: -5B, rate: 3, writes: 1.5B, write_ratio: 0}
  - {kind: reduce, tasks: 1}
- stages: []
- 7
`, Limits{}, []string{
		`t:3:11: jobs[0].submit: "-1s": expected a time`,
		`t:4:3: jobs[0].usr: unknown key (did you mean "user"?)`,
		`t:5:9: jobs[0].user: "a b": expected letters`,
		`t:6:13: jobs[0].priority: "1.5": expected a whole number`,
		`t:8:12: jobs[0].stages[0].kind: "mapp": expected map or reduce`,
		`t:8:25: jobs[0].stages[0].tasks: "0": expected a whole number, 1 to `,
		`t:9:5: jobs[0].stages[1].from: missing: `,
		`t:10:11: jobs[1].stages: empty: expected stages`,
		`t:11:3: jobs[2]: "7": expected a mapping`,
	}},
	{"after", file + "- {after: 1, stages: [{kind: map, tasks: 1, input: 1B}]}\n- {after: 0, stages: [{kind: map, tasks: 1, input: 1B}]}\n", Limits{}, []string{
		`t:3:11: jobs[0].after: 1: must be an earlier job of the file, counted from 1`,
		`t:4:11: jobs[1].after: "0": expected a whole number, 1 to `,
	}},
	{"values of tasks", file + `- stages:
  - {kind: map, tasks: 1, input: -5B, rate: 3, writes: 1.5B, write_ratio: 0, cpu: x, memory: 2, sort_rate: 1bps}
`, Limits{}, []string{
		`t:4:34: jobs[0].stages[0].input: size "-5B": must be 1B to`,
		`t:4:45: jobs[0].stages[0].rate: rate "3": no unit`,
		`t:4:56: jobs[0].stages[0].writes: size "1.5B": not a whole number`,
		`t:4:75: jobs[0].stages[0].write_ratio: mutually exclusive with writes`,
		`t:4:75: jobs[0].stages[0].write_ratio: factor "0": zero`,
		`t:4:83: jobs[0].stages[0].cpu: "x": expected a number of cores`,
		`t:4:94: jobs[0].stages[0].memory: size "2": no unit`,
		`t:4:108: jobs[0].stages[0].sort_rate: only a task that fetches`,
	}},
	{"cycle", file + `- stages:
  - {kind: reduce, from: [2], tasks: 1, output: 1B}
  - {kind: reduce, from: [1], tasks: 1, output: 1B}
  - {kind: reduce, from: [0, 0], tasks: 1, output: 1B}
  - {kind: reduce, from: [9, 4], tasks: 1}
  - {kind: map, tasks: 1, input: 1B, output: 1B}
`, Limits{}, []string{
		`t:4:27: jobs[0].stages[0].from[0]: cycle of stages 0 → 2 → 0: expected an earlier stage`,
		`t:5:27: jobs[0].stages[1].from[0]: cycle: stage 1 fetches from itself`,
		`t:6:30: jobs[0].stages[2].from[1]: stage 0 again`,
		`t:7:27: jobs[0].stages[3].from[0]: "9": expected a whole number, 0 to 4`,
		`t:7:30: jobs[0].stages[3].from[1]: stage 4 is later: put it before stage 3`,
	}},
	{"way into a cycle", file + `- stages:
  - {kind: reduce, from: [1], tasks: 1, output: 1B}
  - {kind: reduce, from: [2], tasks: 1, output: 1B}
  - {kind: reduce, from: [1], tasks: 1, output: 1B}
`, Limits{}, []string{
		`t:4:27: jobs[0].stages[0].from[0]: stage 1 is later: put it before stage 0`,
		`t:5:27: jobs[0].stages[1].from[0]: cycle of stages 1 → 2 → 1`,
	}},
	{"outputs", file + `- stages:
  - {kind: map, tasks: [{input: 1B}, {input: 1B, output: [1B, 2*1B]}, {input: 1B, output: [0*1B]}]}
  - {kind: reduce, from: [0], tasks: 2}
- stages:
  - {kind: map, tasks: [{input: 1B}, {input: 1B, output: [1B, 2*1B]}]}
  - {kind: reduce, from: [0], tasks: 2, output_ratio: 1}
`, Limits{}, []string{
		`t:4:92: jobs[0].stages[0].tasks[2].output[0]: "0": expected a whole number`,
		`t:7:25: jobs[1].stages[0].tasks[0].output: missing: expected it or output_ratio, since 2 tasks fetch from this stage`,
		`t:7:58: jobs[1].stages[0].tasks[1].output: 3 sizes: expected 2, one for each task that fetches`,
	}},
	{"pattern", file + `- stages:
  - {kind: map, tasks: 3, input: 1B, output: 1B, pattern: one-to-one}
  - {kind: reduce, from: [0], tasks: 3, pattern: all}
- stages:
  - {kind: map, tasks: 3, input: 1B, output: 1B}
  - {kind: reduce, from: [0], tasks: 2, pattern: one-to-one}
  - {kind: reduce, from: [0], tasks: 4, pattern: many-to-one}
- stages:
  - {kind: map, tasks: 3, input: 1B, output: [1B, 0B, 5B]}
  - {kind: reduce, from: [0], tasks: 2, pattern: many-to-one}
  - {kind: reduce, from: [0], tasks: 1}
`, Limits{}, []string{
		`t:4:59: jobs[0].stages[0].pattern: only a stage that fetches has a pattern`,
		`t:5:50: jobs[0].stages[1].pattern: "all": expected all-to-all, many-to-one or one-to-one`,
		`t:8:50: jobs[1].stages[1].pattern: one-to-one: 2 tasks fetch from 3: must be equally many`,
		`t:9:50: jobs[1].stages[2].pattern: many-to-one: 4 tasks fetch from 3: must be at most as many`,
		`t:11:46: jobs[2].stages[0].output: size 0, 1B of task 2: must be 0B, the pattern of a stage that fetches leaves it out`,
	}},
	{"output without consumer", file + "- stages: [{kind: map, tasks: 1, input: 1B, output_ratio: 1}]\n", Limits{}, []string{"t:3:59: jobs[0].stages[0].output_ratio: no stage fetches from this one: "}},
	{"keys of both forms", file + "- stages: [{kind: map, tasks: [{input: 1B}], rate: 1bps}]\n", Limits{}, []string{"t:3:52: jobs[0].stages[0].rate: the tasks are a list: "}},
	{"reduce reads", file + "- stages: [{kind: map, tasks: 1, input: 1B, output: 1B}, {kind: reduce, from: [0], tasks: 1, input: 1B}]\n", Limits{}, []string{"t:3:101: jobs[0].stages[1].input: a task that fetches from other stages reads no block"}},
	{"block sizes", file + "- stages: [{kind: map, tasks: 2, input: 1B}]\n- stages: [{kind: map, tasks: 2, input: 2B, block: 1}]\n", Limits{}, []string{"t:4:12: jobs[1].stages[0].input: block 1 of 2B: an earlier task reads 1B of it"}},
	{"duplicate", file + "- {submit: 1s, submit: 2s, stages: [{kind: map, tasks: 1, input: 1B}]}\n", Limits{}, []string{"t:3:16: jobs[0].submit: duplicate key"}},
	{"no value", file + "- {submit: , stages: [{kind: map, tasks: 1, input: 1B}]}\n", Limits{}, []string{"t:3:12: jobs[0].submit: no value"}},
	{"too many tasks", file + "- stages: [{kind: map, tasks: 6, input: 1B}]\n- stages: [{kind: map, tasks: 1000000000, input: 1B}]\n", Limits{Tasks: 10}, []string{"t:4:12: jobs[1].stages[0].tasks: more than 10 tasks up to here"}},
	{"too many outputs", file + "- stages:\n  - {kind: map, tasks: [{input: 1B, output: 1B}, {input: 2B, output: 1B}]}\n  - {kind: reduce, from: [0], tasks: 6}\n", Limits{Outputs: 10}, []string{"t:4:50: jobs[0].stages[0].tasks[1]: more than 10 outputs"}},
	{"too many jobs", file + "- stages: [{kind: map, tasks: 6, input: 1B}]\n- 1\n- 1\n", Limits{Jobs: 1}, []string{"t:4:3: jobs: more than 1 jobs"}},
	{"too many stages", file + "- stages: [{kind: map, tasks: 6, input: 1B}, 1]\n", Limits{Stages: 1}, []string{"t:3:46: jobs[0].stages: 2 stages: must be at most 1"}},
	{"too large", file, Limits{File: 5}, []string{"t:1:1: larger than 5B"}},
	{"too much", file + "- stages: [{kind: map, tasks: 1001, input: 1000TB}]\n", Limits{}, []string{"t:3:12: jobs[0].stages[0]: more than 1000000TB up to here"}},
	{"ratio", file + "- stages: [{kind: map, tasks: 1, input: 1000TB, write_ratio: 2}]\n", Limits{}, []string{"t:3:62: jobs[0].stages[0].write_ratio: 1000TB times 2: must be at most 1000TB"}},
}

func TestReadReportsAllErrors(t *testing.T) {
	for _, tt := range badFiles {
		_, err := Read("t", strings.NewReader(tt.text), tt.limits)
		var all *workloads.TraceErrors
		if !errors.As(err, &all) {
			t.Errorf("%s: error %v", tt.name, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		ok := len(lines) == len(tt.want)
		for i := range lines {
			ok = ok && strings.HasPrefix(lines[i], tt.want[i])
		}
		if !ok {
			t.Errorf("%s: errors\n%v\nwant\n%v", tt.name, err, strings.Join(tt.want, "\n"))
		}
	}
}

// anyJobs draws valid jobs, some with stages that fetch from several others, unequal tasks and
// blocks that are read twice.
func anyJobs(t *rapid.T) []Job {
	size := rapid.Custom(func(t *rapid.T) units.Bytes {
		return units.Bytes(rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1_000_000_000), rapid.Int64Range(0, 1_000_000_000_000)).Draw(t, "size"))
	})
	rate := rapid.Custom(func(t *rapid.T) units.Rate {
		return units.Rate(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1_000_000_000_000)).Draw(t, "rate"))
	})
	name := rapid.OneOf(rapid.SampledFrom([]string{"", "null", "true", "1", "0x1", "1e3", "a.b-c_d"}), rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,9}`))
	blocks := map[workloads.BlockID]units.Bytes{}
	next := workloads.BlockID(0)
	var at time.Duration
	list := make([]Job, rapid.IntRange(1, 4).Draw(t, "jobs"))
	for i := range list {
		at += time.Duration(rapid.Int64Range(0, 3_000_000_000).Draw(t, "gap"))
		j := &list[i]
		*j = Job{ID: JobID(i + 1), Submit: at, User: name.Draw(t, "user"), Profile: name.Draw(t, "profile"), Priority: rapid.IntRange(-3, 3).Draw(t, "priority"), After: JobID(rapid.IntRange(0, i).Draw(t, "after"))}
		j.Stages = make([]Stage, rapid.IntRange(1, 4).Draw(t, "stages"))
		for s := range j.Stages {
			stage := &j.Stages[s]
			for from := range s {
				if rapid.Bool().Draw(t, "from") {
					stage.From = append(stage.From, from)
				}
			}
			if len(stage.From) > 0 && rapid.Bool().Draw(t, "reversed") {
				slices.Reverse(stage.From)
			}
			if len(stage.From) > 0 {
				stage.Kind = TaskKind(rapid.IntRange(0, 1).Draw(t, "kind"))
			}
			stage.Tasks = make([]Task, rapid.IntRange(1, 4).Draw(t, "tasks"))
			if len(stage.From) > 0 {
				stage.Pattern = rapid.SampledFrom([]Pattern{AllToAll, ManyToOne, OneToOne}).Draw(t, "pattern")
			}
			for _, from := range stage.From {
				if stage.Pattern.fits(len(j.Stages[from].Tasks), len(stage.Tasks)) != nil {
					stage.Pattern = AllToAll
				}
			}
		}
		for s := range j.Stages {
			stage := &j.Stages[s]
			for k := range stage.Tasks {
				task := &stage.Tasks[k]
				if k > 0 && rapid.Bool().Draw(t, "equal") {
					*task = stage.Tasks[k-1]
				} else {
					*task = Task{Rate: rate.Draw(t, "rate"), Writes: size.Draw(t, "writes")}
					if len(stage.From) > 0 {
						task.SortRate = rate.Draw(t, "sort rate")
					}
					task.Need = Resources{rapid.SampledFrom([]float64{0, 0.1, 2}).Draw(t, "cpu"), size.Draw(t, "memory")}
					for range j.consumers(s) {
						task.Output = append(task.Output, size.Draw(t, "output"))
					}
				}
				if j.patterned(s) {
					outputs := make([]units.Bytes, len(task.Output))
					j.targets(s, k, func(at int) { outputs[at] = task.Output[at] })
					if task.Output = outputs; rapid.Bool().Draw(t, "even") {
						task.Output = j.even(s, k, size.Draw(t, "total"))
					}
				}
				if len(stage.From) > 0 {
					continue
				}
				task.Input = next
				if len(blocks) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
					task.Input = workloads.BlockID(rapid.IntRange(0, int(next)+2).Draw(t, "block"))
				}
				next = max(next, task.Input+1)
				if blocks[task.Input] == 0 {
					blocks[task.Input] = max(1, size.Draw(t, "input"))
					if k > 0 && rapid.Bool().Draw(t, "same size") {
						blocks[task.Input] = stage.Tasks[k-1].InputSize
					}
				}
				task.InputSize = blocks[task.Input]
			}
		}
	}
	return list
}

// Of 5 tasks and 2 that fetch, many-to-one gives the first 3 to one; equal outputs follow.
func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		p    Pattern
		m, n int
		want string // sources of each task
	}{{AllToAll, 3, 2, "[[0 1 2] [0 1 2]]"}, {ManyToOne, 5, 2, "[[0 1 2] [3 4]]"}, {ManyToOne, 4, 4, "[[0] [1] [2] [3]]"}, {OneToOne, 3, 3, "[[0] [1] [2]]"}} {
		got := make([][]int, tt.n)
		for to := range tt.n {
			for from := range tt.m {
				if tt.p.Fetches(from, tt.m, to, tt.n) {
					got[to] = append(got[to], from)
				}
			}
		}
		if most := tt.p.Most(tt.m, tt.n); most != len(got[0]) {
			t.Errorf("%v, %d from %d: at most %d each, want %d", tt.p, tt.n, tt.m, most, len(got[0]))
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%v, %d from %d: %v, want %v", tt.p, tt.n, tt.m, got, tt.want)
		}
	}
	list, err := Read("t", strings.NewReader(file+"- stages:\n  - {kind: map, tasks: 3, input: 1B, output: 4B}\n  - {kind: reduce, from: [0], tasks: 2, pattern: many-to-one}\n  - {kind: reduce, from: [0], tasks: 1}\n"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range list[0].Stages[0].Tasks {
		got = append(got, fmt.Sprint(k.Output))
	}
	if want := "[2B 0B 2B] [2B 0B 2B] [0B 2B 2B]"; strings.Join(got, " ") != want {
		t.Errorf("outputs %v, want %s", got, want)
	}
}

// A job that follows another one is submitted a time after its end; the file counts jobs in its own order.
func TestReadAfter(t *testing.T) {
	const stages = ", stages: [{kind: map, tasks: 1, input: 1B}]}\n"
	list, err := Read("t", strings.NewReader("testbed-jobs: 1\njobs:\n- {submit: 3s, user: a"+stages+"- {submit: 1s, user: b"+stages+"- {submit: 1s, after: 2, user: b"+stages+"- {submit: 2s, after: 3, user: b"+stages), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range list {
		got = append(got, fmt.Sprintf("%d after %d: %s %v", j.ID, j.After, j.User, j.Submit))
	}
	if want := []string{"1 after 0: b 1s", "2 after 1: b 2s", "3 after 0: a 3s", "4 after 2: b 4s"}; !slices.Equal(got, want) {
		t.Errorf("jobs %q, want %q", got, want)
	}
}

// A file that is written reads as the same jobs.
func TestWriteReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := anyJobs(t)
		var b bytes.Buffer
		if err := Write(&b, list, "a remark\non two lines"); err != nil {
			t.Fatal(err)
		}
		got, err := Read("t", bytes.NewReader(b.Bytes()), Limits{})
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if !reflect.DeepEqual(got, list) {
			t.Errorf("%s\nread as %+v\nwant %+v", b.String(), got, list)
		}
	})
}

// A file with one of each form, as Write writes it.
func TestWrite(t *testing.T) {
	list, err := Read("t", strings.NewReader(byHand), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, list, "by hand"); err != nil {
		t.Fatal(err)
	}
	want := `# by hand
testbed-jobs: 1
jobs:
- submit: 0s
  user: alice
  profile: sort
  priority: -2
  stages:
  - kind: map
    tasks:
    - {count: 2, input: 128MB, block: 3, rate: 64Mbps, output: [2*4MB, 1MB, 5MB]}
    - {count: 1, input: 40MB, output: [2*3B, 2*2B], cpu: 0.5, memory: 1GB}
  - kind: reduce
    from: [0]
    tasks:
    - {count: 2, rate: 64Mbps, sort_rate: 400Mbps, output: [4000.001KB], writes: 7B}
    - {count: 1, rate: 64Mbps, sort_rate: 400Mbps, output: [1000.001KB], writes: 7B}
  - kind: reduce
    from: [0, 1]
    tasks:
    - {count: 1, writes: 38000.01KB}
- submit: 2.5s
  stages:
  - kind: map
    tasks:
    - {count: 3, input: 100B, block: 0, rate: 64Mbps, writes: 33B}
- submit: 2.5s
  stages:
  - kind: map
    tasks:
    - {count: 1, input: 128MB, block: 3}
`
	if b.String() != want {
		t.Errorf("Write:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestCheck(t *testing.T) {
	good := func() []Job {
		list, err := Read("t", strings.NewReader(byHand), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, tt := range []struct {
		change func(list []Job)
		want   string
	}{
		{func(l []Job) { l[1].ID = 3 }, "job 2: ID 3: "},
		{func(l []Job) { l[1].Submit = 0; l[0].Submit = 1 }, "job 2: submitted at 0s: "},
		{func(l []Job) { l[0].User = "a b" }, `job 1: "a b": `},
		{func(l []Job) { l[1].After = 2 }, "job 2: follows job 2: "},
		{func(l []Job) { l[0].Priority = 1 << 40 }, "job 1: priority "},
		{func(l []Job) { l[0].Stages = nil }, "job 1: 0 stages: "},
		{func(l []Job) { l[0].Stages[0].Kind = 2 }, "job 1: stage 0: kind 2: "},
		{func(l []Job) { l[1].Stages[0].Kind = Reduce }, "job 2: stage 0: reduces fetch from no stage"},
		{func(l []Job) { l[0].Stages[1].From = []int{1} }, "job 1: stage 1: fetches from stage 1: "},
		{func(l []Job) { l[0].Stages[2].From = []int{0, 0} }, "job 1: stage 2: fetches from stage 0: "},
		{func(l []Job) { l[0].Stages[2].Tasks = nil }, "job 1: stage 2: no tasks"},
		{func(l []Job) { l[0].Stages[0].Tasks[1].Output = nil }, "job 1: stage 0: task 1: 0 outputs: expected 4, "},
		{func(l []Job) { l[0].Stages[0].Tasks[2].Output[0] = -1 }, "job 1: stage 0: task 2: output -1B: "},
		{func(l []Job) { l[0].Stages[0].Tasks[2].InputSize = 0 }, "job 1: stage 0: task 2: block 5 of 0B: "},
		{func(l []Job) { l[2].Stages[0].Tasks[0].InputSize = 1 }, "job 3: stage 0: task 0: block 3 of 1B: an earlier task reads 128MB of it"},
		{func(l []Job) { l[0].Stages[2].Tasks[0].InputSize = 1 }, "job 1: stage 2: task 0: block 0 of 1B: a task that fetches reads no block"},
		{func(l []Job) { l[0].Stages[0].Tasks[0].SortRate = 1 }, "job 1: stage 0: task 0: rate 64Mbps, sort rate 1bps: "},
		{func(l []Job) { l[0].Stages[0].Pattern = OneToOne }, "job 1: stage 0: pattern 2: must be 0 to 2, and only of a stage that fetches"},
		{func(l []Job) { l[0].Stages[2].Pattern = OneToOne }, "job 1: stage 2: pattern one-to-one: "},
		{func(l []Job) { l[0].Stages[1].Pattern = OneToOne }, "job 1: stage 0: task 0: output 1: must be 0B"},
		{func(l []Job) { l[0].Stages[2].Tasks[0].Writes = -1 }, "job 1: stage 2: task 0: writes -1B"},
	} {
		list := good()
		if err := Check(list, Limits{}); err != nil {
			t.Fatal(err)
		}
		tt.change(list)
		err := Check(list, Limits{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Check = %v, want %q", err, tt.want)
		}
		if err := Write(&bytes.Buffer{}, list); err == nil {
			t.Errorf("%q: written", tt.want)
		}
	}
	if err := Check(good(), Limits{Tasks: 9}); err == nil || !strings.Contains(err.Error(), "job 2: more than 9 tasks") {
		t.Errorf("Check = %v, want more than 9 tasks", err)
	}
	many := slices.Repeat(good()[1:2], 40)
	if err := Check(many, Limits{}); err == nil || strings.Count(err.Error(), "\n") != workloads.MaxTraceErrors || !strings.HasSuffix(err.Error(), "and 19 more errors") {
		t.Errorf("Check = %v, want %d errors and 19 more", err, workloads.MaxTraceErrors)
	}
}

func TestIsJobFile(t *testing.T) {
	for text, want := range map[string]bool{byHand: true, "{\n\t\"testbed-jobs\": 1": true, "": false, "a\ntestbed-jobs: 1": false, "testbed-workload 1\n": false} {
		if got := IsJobFile([]byte(text)); got != want {
			t.Errorf("IsJobFile(%q) = %v, want %v", text, got, want)
		}
	}
}

// A file cannot exhaust the stack or take time that grows faster than its size.
func TestReadHostile(t *testing.T) {
	const n = 100_000
	for _, text := range []string{
		file + strings.Repeat("[", n),
		file + "- stages: [{kind: reduce, tasks: 1, from: [" + strings.Repeat("0,", n) + "0]}]\n",
		file + "- stages: [{kind: map, tasks: 1, input: 1B, output: [" + strings.Repeat("1000000000*1000TB,", 1000) + "1B]}, {kind: reduce, from: [0], tasks: 1000000000}]\n",
	} {
		if _, err := Read("t", strings.NewReader(text), Limits{}); err == nil {
			t.Errorf("%.100s…: no error", text)
		}
	}
}

// FuzzRead checks that no file makes the reader panic, that every error has a place, and that the
// jobs of a valid file are valid and read the same after they are written.
func FuzzRead(f *testing.F) {
	f.Add(byHand)
	for _, tt := range badFiles {
		f.Add(tt.text)
	}
	limits := Limits{Jobs: 100, Tasks: 1000, Outputs: 10_000}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Read("t", strings.NewReader(text), limits)
		if err != nil {
			if errors.As(err, new(*magic.NotTextError)) {
				return
			}
			var all *workloads.TraceErrors
			if !errors.As(err, &all) || len(all.First) == 0 {
				t.Fatalf("error %T %v", err, err)
			}
			for _, e := range all.First {
				if e.Line < 1 || e.Col < 1 || e.Text == "" || strings.Contains(e.Text, "\n") {
					t.Errorf("error %+v", e)
				}
			}
			return
		}
		if err := Check(list, limits); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := Write(&b, list); err != nil {
			t.Fatal(err)
		}
		again, err := Read("t", bytes.NewReader(b.Bytes()), Limits{})
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", list) {
			t.Errorf("%s\nread as %+v, %v\nwant %+v", b.String(), again, err, list)
		}
	})
}
