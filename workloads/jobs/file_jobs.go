package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/topo/yamltree"
	"testbed/workloads"
)

func (d *decoder) file(root *yaml.Node) []Job {
	m := d.mapping(root, "", names(fileKeys))
	m.missing(keyVersion, fmt.Sprintf("the version of the format, %d", fileVersion))
	if v, ok := m.number(keyVersion, 1, maxNumber); ok && v != fileVersion {
		d.errs, d.failed = nil, 0 // the meaning of the other keys is unknown
		d.fail(m.values[keyVersion], keyVersion, "%d: this testbed reads version %d", v, fileVersion)
		return nil
	}
	m.missing("jobs", "a list of jobs")
	var list []Job
	for i, n := range m.list("jobs", "jobs") {
		if i >= d.limits.Jobs {
			d.fail(n, "jobs", "more than %d jobs: the limit of a workload; the rest is not read", d.limits.Jobs)
			break
		}
		if j, ok := d.job(n, fmt.Sprintf("jobs[%d]", i), list); ok {
			list = append(list, j)
		}
	}
	return list
}

// stageLines are a stage before its tasks are built.
type stageLines struct {
	mapping
	kind    TaskKind
	from    []int
	fromAt  []int // index of each in the list of the file
	pattern Pattern
	groups  []group
	tasks   int
}

// group is equal tasks.
type group struct {
	mapping
	count           int
	task            Task              // without Input and Output
	block           int               // of the first task; -1 for the next number
	output          []run             // nil if it is absent; a single size if total is set
	total           bool              // output is the total of a task
	outputs, writes *workloads.Factor // ratios to the input; nil for none
}

// run is a number of equal sizes.
type run struct {
	n    int
	size units.Bytes
}

// job reads a job; list are those before it.
func (d *decoder) job(n *yaml.Node, path string, list []Job) (j Job, ok bool) {
	before := d.failed
	m := d.mapping(n, path, names(jobKeys))
	if text, n, ok := m.scalar("submit", `a time such as "1.5s"`); ok {
		at, err := time.ParseDuration(text)
		if err != nil || at < 0 || at > maxTime {
			d.fail(n, yamltree.Join(path, "submit"), "%q: expected a time such as \"1.5s\", 0s to %v", units.Clip(text), maxTime)
		}
		j.Submit = at
	}
	if after, ok := m.number("after", 1, maxNumber); ok {
		if j.After = JobID(after); after <= len(list) {
			j.Submit += list[after-1].Submit
		} else if d.failed == before {
			d.fail(m.values["after"], yamltree.Join(path, "after"), "%d: must be an earlier job of the file, counted from 1", after)
		}
		if j.Submit > maxTime {
			d.fail(n, yamltree.Join(path, "submit"), "%v with the jobs that it follows: must be at most %v", j.Submit, maxTime)
		}
	}
	j.User, j.Profile = m.text("user"), m.text("profile")
	j.Priority, _ = m.number("priority", -maxNumber, maxNumber)
	m.missing("stages", "a list of stages")
	nodes := m.list("stages", "stages")
	if len(nodes) > d.limits.Stages {
		d.fail(nodes[d.limits.Stages], yamltree.Join(path, "stages"), "%d stages: must be at most %d", len(nodes), d.limits.Stages)
		return j, false
	}
	stages := make([]stageLines, len(nodes))
	for s, n := range nodes {
		stages[s] = d.stage(n, fmt.Sprintf("%s.stages[%d]", path, s), len(nodes))
	}
	for s := range stages {
		d.order(stages, s)
	}
	for s := range stages {
		d.tasks += stages[s].tasks
		if !d.full && d.tasks > d.limits.Tasks {
			d.fail(stages[s].node, yamltree.Join(stages[s].path, "tasks"), "more than %d tasks up to here: the limit of a workload", d.limits.Tasks)
			d.full = true
		}
	}
	if d.failed > before || d.full {
		return j, false
	}
	// Outputs depend on the number of tasks of later stages, and ratios on the outputs of earlier
	// ones.
	for s := range stages {
		j.Stages = append(j.Stages, Stage{Kind: stages[s].kind, From: stages[s].from, Pattern: stages[s].pattern, Tasks: make([]Task, stages[s].tasks)})
	}
	for s := range stages {
		for _, from := range j.Stages[s].From {
			if err := j.Stages[s].Pattern.fits(stages[from].tasks, stages[s].tasks); err != nil {
				d.fail(stages[s].values["pattern"], yamltree.Join(stages[s].path, "pattern"), "%v", err)
			}
		}
	}
	for s := range stages {
		if d.build(&j, s, &stages[s]); d.full || d.failed > before {
			return j, false
		}
	}
	return j, true
}

// stage reads a stage of a job that has n of them.
func (d *decoder) stage(node *yaml.Node, path string, n int) stageLines {
	s := stageLines{mapping: d.mapping(node, path, names(stageKeys, taskKeys))}
	s.missing("kind", "map or reduce")
	if text, n, ok := s.scalar("kind", "map or reduce"); ok {
		switch text {
		case kindNames[Map]:
		case kindNames[Reduce]:
			s.kind = Reduce
			s.missing("from", "the stages that the reduces fetch from, such as [0]")
		default:
			d.fail(n, yamltree.Join(path, "kind"), "%q: expected map or reduce", units.Clip(text))
		}
	}
	for i, c := range s.list("from", "one or more numbers of stages, counted from 0") {
		at := fmt.Sprintf("%s.from[%d]", path, i)
		if c.Kind != yaml.ScalarNode {
			d.fail(c, at, "%s: expected the number of a stage", yamltree.Describe(c))
			continue
		}
		if x, ok := d.whole(c, at, c.Value, 0, n-1); ok {
			if slices.Contains(s.from, x) {
				d.fail(c, at, "stage %d again: expected each stage once", x)
				continue
			}
			s.from, s.fromAt = append(s.from, x), append(s.fromAt, i)
		}
	}
	if text, n, ok := s.scalar("pattern", words.Or(Patterns())); ok {
		switch p := slices.Index(Patterns(), text); {
		case p < 0:
			d.fail(n, yamltree.Join(path, "pattern"), "%q: expected %s", units.Clip(text), words.Or(Patterns()))
		case s.values["from"] == nil:
			d.fail(n, yamltree.Join(path, "pattern"), "only a stage that fetches has a pattern: leave it out, or name stages in from")
		default:
			s.pattern = Pattern(p)
		}
	}
	s.missing("tasks", "the number of tasks, or a list of groups of equal tasks")
	tasks := s.values["tasks"]
	if tasks == nil {
		return s
	}
	if tasks.Kind == yaml.SequenceNode {
		for _, key := range names(taskKeys) {
			if v := s.values[key]; v != nil {
				d.fail(v, yamltree.Join(path, key), "the tasks are a list: expected this key in its groups")
			}
		}
		for i, c := range s.list("tasks", "groups of tasks") {
			g := group{mapping: d.mapping(c, fmt.Sprintf("%s.tasks[%d]", path, i), names(groupKeys, taskKeys)), count: 1}
			if x, ok := g.number("count", 1, maxNumber); ok {
				g.count = x
			}
			s.groups = append(s.groups, g)
		}
	} else if x, ok := s.number("tasks", 1, maxNumber); ok {
		s.groups = []group{{mapping: s.mapping, count: x}}
	}
	for i := range s.groups {
		s.tasks = min(s.tasks+s.groups[i].count, maxNumber)
		s.groups[i].read(s.kind == Reduce || s.values["from"] != nil)
	}
	return s
}

// read reads the keys of tasks.
func (g *group) read(fetches bool) {
	t := &g.task
	if g.block = -1; fetches {
		for _, key := range []string{"input", "block"} {
			if v := g.values[key]; v != nil {
				g.fail(v, yamltree.Join(g.path, key), "a task that fetches from other stages reads no block: leave it out")
			}
		}
	} else {
		g.missing("input", `the size of the block that a task reads, such as "128MB"`)
		t.InputSize, _ = g.size("input", 1)
		if x, ok := g.number("block", 0, maxNumber-g.count); ok {
			g.block = x
		}
		if v := g.values["sort_rate"]; v != nil {
			g.fail(v, yamltree.Join(g.path, "sort_rate"), "only a task that fetches from other stages sorts: leave it out")
		}
	}
	for _, x := range [][2]string{{"output", "output_ratio"}, {"writes", "write_ratio"}} {
		if v := g.values[x[1]]; v != nil && g.values[x[0]] != nil {
			g.fail(v, yamltree.Join(g.path, x[1]), "mutually exclusive with %s: keep one of them", x[0])
		}
	}
	t.Rate, t.SortRate = g.rate("rate"), g.rate("sort_rate")
	t.Writes, _ = g.size("writes", 0)
	t.Need.Memory, _ = g.size("memory", 0)
	if text, n, ok := g.scalar("cpu", "a number of cores"); ok {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !yamltree.Decimal.MatchString(text) || x < 0 || x > maxCPU {
			g.fail(n, yamltree.Join(g.path, "cpu"), "%q: expected a number of cores, 0 to %d", units.Clip(text), maxCPU)
		}
		t.Need.CPU = x
	}
	g.outputs, g.writes = g.ratio("output_ratio"), g.ratio("write_ratio")
	path := yamltree.Join(g.path, "output")
	n := g.values["output"]
	switch {
	case n == nil || yamltree.IsNull(n):
	case n.Kind == yaml.ScalarNode:
		if size, ok := g.bytes(n, path, n.Value, 0); ok {
			g.output, g.total = []run{{1, size}}, true
		}
	default:
		for i, c := range g.list("output", `sizes such as "4MB" or "3*4MB"`) {
			at := fmt.Sprintf("%s[%d]", path, i)
			if c.Kind != yaml.ScalarNode {
				g.fail(c, at, "%s: expected a size such as \"4MB\" or \"3*4MB\"", yamltree.Describe(c))
				continue
			}
			r := run{n: 1}
			text := c.Value
			if count, size, ok := strings.Cut(text, repeatMark); ok {
				if r.n, ok = g.whole(c, at, count, 1, maxNumber); !ok {
					continue
				}
				text = size
			}
			r.size, _ = g.bytes(c, at, text, 0)
			g.output = append(g.output, r)
		}
	}
}

// order reports stages that fetch from themselves or from later ones.
func (d *decoder) order(stages []stageLines, s int) {
	for i, from := range stages[s].from {
		if from < s {
			continue
		}
		at := stages[s].fromAt[i]
		n, path := stages[s].values["from"].Content[at], fmt.Sprintf("%s.from[%d]", stages[s].path, at)
		if from == s {
			d.fail(n, path, "cycle: stage %d fetches from itself: expected an earlier stage", s)
		} else if way := route(stages, from, s); way != nil {
			d.fail(n, path, "cycle of stages %s: expected an earlier stage", strings.Join(texts(append([]int{s}, way...)), " → "))
		} else {
			d.fail(n, path, "stage %d is later: put it before stage %d, since a stage fetches from earlier ones only", from, s)
		}
	}
}

// route returns the stages from one to another, following what they fetch from; nil if there is
// no way.
func route(stages []stageLines, from, to int) []int {
	seen := make([]bool, len(stages))
	var walk func(at int) []int
	walk = func(at int) []int {
		if at == to {
			return []int{at}
		}
		if seen[at] {
			return nil
		}
		seen[at] = true
		for _, next := range stages[at].from {
			if rest := walk(next); rest != nil {
				return append([]int{at}, rest...)
			}
		}
		return nil
	}
	return walk(from)
}

// build fills the tasks of a stage. The stages before it are complete.
func (d *decoder) build(j *Job, s int, lines *stageLines) {
	stage := &j.Stages[s]
	consumers, patterned := j.consumers(s), j.patterned(s)
	fetched := j.Fetched(s)
	fetches := len(stage.From) > 0
	made := 0 // outputs
	at := 0
	for i := range lines.groups {
		g := &lines.groups[i]
		tasks, in := stage.Tasks[at:at+g.count], fetched[at:at+g.count]
		at += g.count
		if !fetches {
			d.blocks(g, tasks)
		}
		if !g.fits(consumers) {
			continue
		}
		t := g.task
		first := at - g.count
		for i := range tasks {
			t.Input = tasks[i].Input
			size := t.InputSize
			if fetches {
				size = in[i]
			}
			// Tasks with equal input share their output, unless a pattern gives it to other tasks.
			equal := i > 0 && (!fetches || in[i] == in[i-1])
			if consumers > 0 && (patterned || !equal && (i == 0 || g.outputs != nil)) {
				if made += consumers; d.outputs+made > d.limits.Outputs {
					d.fail(g.node, g.path, "more than %d outputs of tasks up to here: the limit of a workload", d.limits.Outputs)
					d.full = true
					return
				}
				var ok bool
				if t.Output, ok = g.outputOf(size, consumers, func(total units.Bytes) []units.Bytes { return j.even(s, first+i, total) }); !ok {
					break
				}
				if to := j.astray(s, first+i, t.Output); to >= 0 {
					d.fail(g.values["output"], yamltree.Join(g.path, "output"), "size %d, %v of task %d: must be 0B, the pattern of a stage that fetches leaves it out", to, t.Output[to], first+i)
					break
				}
			}
			if g.writes != nil && !equal {
				var ok bool
				if t.Writes, ok = g.product(size, g.writes, "write_ratio"); !ok {
					break
				}
			}
			tasks[i] = t
		}
	}
	d.tasks -= len(stage.Tasks) // which job has counted
	d.usage.stage(stage)
	if d.volume > maxTotal {
		d.fail(lines.node, lines.path, "more than %v up to here: the limit of a workload", maxTotal)
		d.full = true
	}
}

// fits reports whether the output of a group is given exactly if there are tasks that fetch it.
func (g *group) fits(consumers int) bool {
	if consumers == 0 {
		for _, key := range []string{"output", "output_ratio"} {
			if v := g.values[key]; v != nil {
				g.fail(v, yamltree.Join(g.path, key), "no stage fetches from this one: expected writes or write_ratio, or a stage with it in from")
				return false
			}
		}
		return true
	}
	if g.outputs == nil && g.output == nil {
		g.missing("output", fmt.Sprintf("it or output_ratio, since %s from this stage", words.Plural(consumers, "task fetches", "tasks fetch")))
		return false
	}
	n := 0
	for _, r := range g.output {
		n = min(n+r.n, maxNumber)
	}
	if g.outputs == nil && !g.total && n != consumers {
		g.fail(g.values["output"], yamltree.Join(g.path, "output"), "%s: expected %d, one for each task that fetches from this stage", words.Plural(n, "size", "sizes"), consumers)
		return false
	}
	return true
}

// outputOf returns the outputs of a task that reads or fetches a size.
func (g *group) outputOf(size units.Bytes, consumers int, even func(total units.Bytes) []units.Bytes) ([]units.Bytes, bool) {
	if g.outputs != nil {
		n, ok := g.product(size, g.outputs, "output_ratio")
		return even(n), ok
	}
	if g.total {
		return even(g.output[0].size), true
	}
	out := make([]units.Bytes, 0, consumers)
	for _, r := range g.output {
		for range r.n {
			out = append(out, r.size)
		}
	}
	return out, true
}

// blocks numbers the blocks that tasks read.
func (d *decoder) blocks(g *group, tasks []Task) {
	first := d.next
	if g.block >= 0 {
		first = workloads.BlockID(g.block)
	}
	if int(first)+len(tasks) > maxNumber {
		d.fail(g.node, yamltree.Join(g.path, "block"), "block %d: must be at most %d", int(first)+len(tasks), maxNumber)
		return
	}
	d.next = max(d.next, first+workloads.BlockID(len(tasks)))
	for i := range tasks {
		id := first + workloads.BlockID(i)
		tasks[i].Input = id
		if size, known := d.sizes[id]; known && size != g.task.InputSize {
			d.fail(g.node, yamltree.Join(g.path, "input"), "block %d of %v: an earlier task reads %v of it", id, g.task.InputSize, size)
			return
		}
		d.sizes[id] = g.task.InputSize
	}
}

// product returns a size times a ratio, rounded down.
func (g *group) product(size units.Bytes, by *workloads.Factor, key string) (units.Bytes, bool) {
	n, _, ok := mulDiv(int64(size), by.Num, by.Den)
	if !ok || units.Bytes(n) > maxSize {
		g.fail(g.values[key], yamltree.Join(g.path, key), "%v times %v: must be at most %v", size, by, maxSize)
		return 0, false
	}
	return units.Bytes(n), true
}
