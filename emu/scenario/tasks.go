package scenario

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/topo/yamltree"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// The generators of an item of kind tasks.
const (
	generatorBM         = "bm"
	generatorMix        = "mix"
	generatorSimulation = "simulation"
	generatorBenchmarks = "benchmarks"
	generatorBins       = "bins"
)

// generatorKeys are the keys of an item of kind tasks that only some generators have.
var generatorKeys = []struct {
	key string
	of  []string
}{
	{"jobs", []string{generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"workers", []string{generatorMix, generatorBenchmarks}},
	{"gap", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"tasks", []string{generatorBM}},
	{"block", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"file", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"maps", []string{generatorMix}},
	{"map_rate", []string{generatorMix, generatorBenchmarks, generatorBins}},
	{"sort_rate", []string{generatorBM, generatorMix, generatorBenchmarks}},
	{"reduce_rate", []string{generatorMix, generatorBenchmarks}},
	{"spread", []string{generatorMix, generatorBenchmarks, generatorBins}},
	{"skew", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"users", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"user_skew", []string{generatorBM, generatorMix, generatorSimulation, generatorBenchmarks, generatorBins}},
	{"profiles", []string{generatorMix}},
	{"sizes", []string{generatorMix, generatorBenchmarks}},
	{"mix", []string{generatorBenchmarks}},
	{"workload", []string{generatorBins}},
	{"smallest", []string{generatorBins}},
	{"largest", []string{generatorBins}},
	{"phases", []string{generatorBins}},
	{"pattern", []string{generatorBins}},
	{"reduces", []string{generatorBins}},
	{"utilization", []string{generatorBins}},
	{"shuffle_share", []string{generatorBins}},
	{"nic", []string{generatorBins}},
}

// taskDefaults sets the defaults of what depends on the generator of an item, and of the section
// tasks if the file has none. It precedes scale.rate, which applies to defaults too.
func (c *checker) taskDefaults() {
	bm, mix, simulation, benchmarks, bins := jobs.DefaultBM(), jobs.DefaultMix(), jobs.DefaultSimulation(), jobs.DefaultBenchmarks(), jobs.DefaultBinJobs()
	for i := range c.spec.Workload {
		t := c.spec.Workload[i].Tasks
		if t == nil {
			continue
		}
		if c.spec.Tasks == nil && c.sound("tasks") {
			c.spec.Tasks = &Tasks{}
			c.defaults(reflect.ValueOf(c.spec.Tasks).Elem())
		}
		gap := bm.Gap
		switch t.Generator {
		case generatorBM:
			t.Tasks, t.SortRate = cmp.Or(t.Tasks, bm.Tasks), cmp.Or(t.SortRate, bm.SortRate)
		case generatorMix, generatorBenchmarks:
			of := mix
			if t.Generator == generatorBenchmarks {
				of = benchmarks
				t.Mix = cmp.Or(t.Mix, &ClassMix{})
				*t.Mix = cmp.Or(*t.Mix, ClassMix(jobs.DefaultClassMix()))
				if t.Sizes == nil {
					for _, x := range of.Sizes {
						t.Sizes = append(t.Sizes, TaskSize{x.Weight, Span{x.Maps[0], x.Maps[1]}})
					}
				}
			}
			p := of.Profiles[0]
			t.Jobs, gap = cmp.Or(t.Jobs, of.Jobs), of.Gap
			if t.Workers > 0 {
				t.Users, gap = cmp.Or(t.Users, t.Workers), 0
			}
			if t.Sizes == nil {
				t.Maps = cmp.Or(t.Maps, Span{p.Maps[0], p.Maps[1]})
			}
			t.MapRate, t.SortRate, t.ReduceRate = cmp.Or(t.MapRate, p.MapRate), cmp.Or(t.SortRate, p.SortRate), cmp.Or(t.ReduceRate, p.ReduceRate)
		case generatorSimulation:
			t.Jobs, gap = cmp.Or(t.Jobs, simulation.Jobs), simulation.Gap
		case generatorBins:
			t.Jobs, t.MapRate, gap = cmp.Or(t.Jobs, bins.Jobs), cmp.Or(t.MapRate, bins.MapRate), bins.Gap
			t.Smallest, t.Workload, t.Largest, t.Phases, t.Reduces = cmp.Or(t.Smallest, bins.Smallest), cmp.Or(t.Workload, bins.Workload), cmp.Or(t.Largest, bins.Largest), cmp.Or(t.Phases, bins.Phases), cmp.Or(t.Reduces, bins.Reduces)
			t.ShuffleShare, t.NIC = cmp.Or(t.ShuffleShare, &bins.Shuffle), cmp.Or(t.NIC, c.spec.Fabric.HostLink)
		default:
			continue
		}
		t.Block, t.Users = cmp.Or(t.Block, jobs.DefaultBlock), cmp.Or(t.Users, jobs.DefaultUsers)
		if t.Gap == nil && t.Utilization == 0 {
			t.Gap = &gap
		}
	}
}

// tasksItem checks an item alone; workload checks its jobs.
func (c *checker) tasksItem(t *TasksItem, path string) {
	c.oneOf(path, "path", "generator", "the path of a job file, or a generator: bm, mix, simulation, benchmarks or bins")
	for _, k := range generatorKeys {
		if at := yamltree.Join(path, k.key); c.given(at) && c.sound(path+".generator") && !slices.Contains(k.of, t.Generator) {
			c.failAt(at, "applies only to generator %s: leave it out", words.Or(k.of))
		}
	}
	if at := path + ".utilization"; t.Utilization > 0 && t.Gap != nil && c.sound(at, path+".gap") && t.Generator == generatorBins {
		c.failAt(at, "excludes gap: remove one of them")
	}
	if t.Workers > 0 && c.sound(path+".workers", path+".users") && t.Users != t.Workers {
		c.failAt(path+".users", "%d, with %d workers: each worker is a user: leave it out", t.Users, t.Workers)
	}
	if at := path + ".maps"; len(t.Sizes) > 0 && c.given(at) {
		c.failAt(at, "no effect with sizes: leave one of them out")
	}
	if at := path + ".user_skew"; t.Workers > 0 && t.UserSkew > 0 && c.sound(at) {
		c.failAt(at, "no effect with workers, each of which is a user: leave it out")
	}
	if _, err := t.scale().Complete(); err != nil {
		c.failAt(path+".size_factor", "%v", err)
	}
}

// scale returns the factors of an item.
func (t *TasksItem) scale() jobs.Scale {
	return jobs.Scale{Rate: t.RateFactor, Size: t.SizeFactor, Time: t.TimeFactor, Gaps: t.GapFactor}
}

// tasks checks the section tasks alone. used reports whether the workload has jobs of tasks.
func (c *checker) tasks(used bool) {
	t := c.spec.Tasks
	if t == nil {
		return
	}
	if !used && c.sound("workload") && !c.badWithin("workload[") {
		c.failAt("tasks", "no effect: the workload has no jobs of tasks: remove it, or add an item of kind tasks")
	}
	if c.sound("tasks.penalty", "tasks.penalty_max") && t.PenaltyMax < t.Penalty {
		c.failAt("tasks.penalty_max", "%v: must be at least penalty, %v", t.PenaltyMax, t.Penalty)
	}
	if c.sound("tasks.evict", "tasks.output_space") && t.Evict != "" && t.Evict != "none" && t.OutputSpace == 0 {
		c.failAt("tasks.evict", "no effect without output_space: add it, or remove evict")
	}
	if c.sound("tasks.input.placement") {
		for _, err := range c.catalog.Check(catalog.RolePlacement, t.Input.Placement, nil) {
			c.failAt("tasks.input.placement", "%v", err)
		}
	}
	if t.Stragglers != nil {
		c.stragglers(t.Stragglers)
	}
	if !c.shaped() {
		return
	}
	f := c.spec.Fabric.shape()
	hosts := f.Leaves * f.HostsPerLeaf
	for _, x := range []struct {
		path     string
		replicas int
	}{{"tasks.input.replicas", t.Input.Replicas}, {"tasks.output.replicas", t.Output.Replicas}} {
		if c.sound(x.path) && x.replicas > hosts {
			c.failAt(x.path, "%d replicas on %d hosts: must be at most one per host", x.replicas, hosts)
		}
	}
	slots := [jobs.TaskKinds]int{hosts * t.MapSlots, hosts * t.ReduceSlots}
	for _, p := range c.policies {
		for param, pools := range c.catalog.Pools(p.role, p.Name, p.Params) {
			var sum [jobs.TaskKinds]int
			for _, pool := range pools {
				for k := range sum {
					sum[k] += pool.Min[k]
				}
			}
			for k, kind := range taskKinds {
				if sum[k] > slots[k] && c.sound("tasks."+kind+"_slots") {
					c.failAt(yamltree.Join(p.path, param), "minimum shares of %d %s slots: the cluster has %d: use lower shares, or more tasks.%s_slots", sum[k], kind, slots[k], kind)
				}
			}
		}
	}
}

// stragglers reports keys of the section that have no effect. Those with their defaults may stay.
func (c *checker) stragglers(s *Stragglers) {
	var usual Stragglers
	c.defaults(reflect.ValueOf(&usual).Elem())
	pareto := s.Tail == ParetoTail
	for _, k := range []struct {
		key           string
		changed, used bool
		without       string
	}{
		{"probability", s.Probability != usual.Probability, !pareto, "tail: uniform"},
		{"factor", s.Factor != usual.Factor, !pareto, "tail: uniform"},
		{"spread", s.Spread != usual.Spread, !pareto, "tail: uniform"},
		{"mid_task", s.MidTask != usual.MidTask, !pareto, "tail: uniform"},
		{"sticky", s.Sticky != usual.Sticky, !pareto, "tail: uniform"},
		{"sticky_window", s.StickyWindow != usual.StickyWindow, s.Sticky > 0, "sticky above 0"},
		{"shape", s.Shape != usual.Shape, pareto, "tail: pareto"},
		{"most", s.Most != usual.Most, pareto, "tail: pareto"},
	} {
		if at := "tasks.stragglers." + k.key; k.changed && !k.used && c.sound(at, "tasks.stragglers.tail", "tasks.stragglers.sticky") {
			c.failAt(at, "no effect without %s: leave it out, or add that", k.without)
		}
	}
}

// Stragglers returns the slowness of attempts, with times scaled; nil if the section is absent.
func (s *Scenario) Stragglers() *jobs.Stragglers {
	if s.Spec.Tasks == nil || s.Spec.Tasks.Stragglers == nil {
		return nil
	}
	x := s.Spec.Tasks.Stragglers
	if x.Tail == ParetoTail {
		return &jobs.Stragglers{Shape: x.Shape, Most: x.Most}
	}
	window, ok := s.Spec.Scale.Time.Duration(x.StickyWindow)
	if !ok {
		window = math.MaxInt64 // longer than any run
	}
	return &jobs.Stragglers{Probability: x.Probability, Factor: [2]float64{float64(x.Factor.From), float64(x.Factor.To)}, Spread: x.Spread, MidTask: x.MidTask,
		Sticky: x.Sticky, Window: max(1, window)}
}

// stragglerNote describes the section tasks.stragglers.
func (s *Scenario) stragglerNote() Notes {
	x := s.Stragglers()
	if x == nil {
		return nil
	}
	what := fmt.Sprintf("%.3g %% of attempts are %v times slower, %.3g %% of them after a part of their work", 100*x.Probability, s.Spec.Tasks.Stragglers.Factor, 100*x.MidTask)
	if x.Shape > 0 {
		what = fmt.Sprintf("attempts are slower by factors of a Pareto distribution of shape %v, at most %v", x.Shape, x.Most)
	}
	const tasks = 10
	median, _ := x.SlowestToMedian(s.Spec.Seed, tasks)
	return Notes{fmt.Sprintf("tasks.stragglers: %s; the slowest of %d equal tasks takes %.1f times the median", what, tasks, median)}
}

// taskKinds are the names of kinds of slots, by jobs.TaskKind.
var taskKinds = [jobs.TaskKinds]string{"map", "reduce"}

// taskLimits returns the limits of jobs of tasks.
func (s *Scenario) taskLimits() jobs.Limits {
	l := jobs.Limits{Tasks: s.Spec.Limits.Tasks, File: s.Spec.Limits.Trace}
	l.Outputs = max(jobs.DefaultMaxOutputs, 10*l.Tasks)
	return l
}

// TaskJobs returns the jobs of tasks of one repeat, counted from 0, in order of submission: none if
// the workload has no item of kind tasks. They are the same for every arm. Their IDs count from 1,
// and those of the blocks that tasks read from 0, apart from those of the blocks in Workload. The
// notes describe the jobs and the load of the slots.
func (s *Scenario) TaskJobs(f *topo.Fabric, repeat int) ([]jobs.Job, Notes, error) {
	all, notes, err := s.taskList(f, repeat)
	if err != nil {
		return nil, nil, err
	}
	return all, append(append(notes, s.taskRatios(f, all)...), s.stragglerNote()...), nil
}

// taskList returns the jobs of TaskJobs, with notes on each item.
func (s *Scenario) taskList(f *topo.Fabric, repeat int) ([]jobs.Job, Notes, error) {
	var all []jobs.Job
	var notes Notes
	above := workloads.BlockID(0)
	files := map[string][]block{} // by name
	for i, item := range s.Spec.Workload {
		if item.Tasks == nil {
			continue
		}
		list, err := s.Base().taskJobs(i, repeat)
		if err != nil {
			return nil, nil, fmt.Errorf("workload[%d]: %w", i, err)
		}
		source := "generator " + item.Tasks.Generator
		if item.Tasks.Path != "" {
			source = "job file " + item.Tasks.Path
		}
		st := jobs.Describe(list, jobs.DefaultBins())
		note := fmt.Sprintf("workload[%d]: %s: %d jobs of %d maps and %d reduces; they read %v, shuffle %v and write %v; submitted from %v to %v", i, source, st.Jobs, st.Maps, st.Reduces,
			about(units.Bytes(st.Input)), about(units.Bytes(st.Shuffled)), about(units.Bytes(st.Written)), list[0].Submit.Round(time.Millisecond), list[len(list)-1].Submit.Round(time.Millisecond))
		if t := s.Spec.Tasks; st.MapSlots > 0 {
			note += fmt.Sprintf("; meanwhile their maps keep %.1f of %d slots busy, and their reduces %.1f of %d", st.MapSlots, f.Hosts()*t.MapSlots, st.ReduceSlots, f.Hosts()*t.ReduceSlots)
		}
		notes = append(notes, note)
		if name := item.Tasks.File; name == "" {
			above = ownBlocks(list, above)
		} else if files[name], above, err = sharedBlocks(list, files[name], above); err != nil {
			return nil, nil, fmt.Errorf("workload[%d].file: %q: %w", i, name, err)
		}
		for j := range list {
			if list[j].After > 0 {
				list[j].After += jobs.JobID(len(all))
			}
		}
		all = append(all, list...)
	}
	jobs.Order(all)
	return all, notes, nil
}

// block is an input block of a file that jobs share.
type block struct {
	id   workloads.BlockID
	size units.Bytes
}

// ownBlocks has jobs read blocks from a number on. It returns the number after the last.
func ownBlocks(list []jobs.Job, from workloads.BlockID) (next workloads.BlockID) {
	next = from
	eachTask(list, func(stage *jobs.Stage, t *jobs.Task) {
		if len(stage.From) == 0 {
			t.Input += from
			next = max(next, t.Input+1)
		}
	})
	return next
}

// sharedBlocks has task i of each job that reads a block read block i of a file, of which it returns the blocks:
// those that a job needs and that the file does not have yet are numbered from a number on. It returns
// the number after the last.
func sharedBlocks(list []jobs.Job, file []block, from workloads.BlockID) (_ []block, next workloads.BlockID, err error) {
	for j := range list {
		i := 0
		eachTask(list[j:j+1], func(stage *jobs.Stage, t *jobs.Task) {
			if len(stage.From) > 0 {
				return
			}
			if i == len(file) {
				file = append(file, block{from, t.InputSize})
				from++
			}
			if b := file[i]; t.InputSize != b.size {
				err = fmt.Errorf("a block of %v and of %v: items that read one file must have the same block and size_factor", b.size, t.InputSize)
			}
			t.Input = file[i].id
			i++
		})
	}
	return file, from, err
}

// taskJobs returns the jobs of an item, which may be modified.
func (s *Scenario) taskJobs(i, repeat int) (list []jobs.Job, err error) {
	t := s.Spec.Workload[i].Tasks
	if t.Path != "" {
		// Apply copies the jobs.
		if list, err = (jobs.Scale{Size: s.Spec.Scale.Size, Time: s.Spec.Scale.Time}).Apply(s.traces[i].jobs); err != nil {
			return nil, fmt.Errorf("scale.size %v, scale.time %v: %w", s.Spec.Scale.Size, s.Spec.Scale.Time, err)
		}
	} else if list, err = t.generate(workloads.Stream(s.RepeatSeed(repeat), "task-jobs", i).Uint64(), s.slots(), s.taskLimits()); err != nil {
		return nil, err
	}
	if list, err = t.scale().Apply(list); err != nil {
		return nil, err
	}
	if t.First > len(list) {
		return nil, fmt.Errorf("first %d: must be at most %d, the number of jobs", t.First, len(list))
	} else if t.First > 0 {
		list = list[:t.First]
	}
	for j := range list {
		list[j].Submit += t.Start
	}
	return list, nil
}

// slots returns the number of slots of all hosts.
func (s *Scenario) slots() int {
	f := s.Spec.Fabric.shape()
	return f.Leaves * f.HostsPerLeaf * (s.Spec.Tasks.MapSlots + s.Spec.Tasks.ReduceSlots)
}

// generate draws the jobs of an item with a generator, for a cluster with a number of slots.
func (t *TasksItem) generate(seed uint64, slots int, l jobs.Limits) ([]jobs.Job, error) {
	users := jobs.Users{Count: t.Users, Skew: t.UserSkew}
	switch t.Generator {
	case generatorBM:
		g := jobs.DefaultBM()
		g.Tasks, g.Gap, g.Block, g.SortRate, g.PartitionSkew, g.Users, g.Limits = t.Tasks, *t.Gap, t.Block, t.SortRate, t.Skew, users, l
		return g.Generate(seed)
	case generatorSimulation:
		g := jobs.DefaultSimulation()
		g.Jobs, g.Gap, g.Block, g.PartitionSkew, g.Users, g.Limits = t.Jobs, *t.Gap, t.Block, t.Skew, users, l
		return g.Generate(seed)
	}
	if t.Generator == generatorBins {
		g := jobs.Bins{Jobs: t.Jobs, Workload: t.Workload, Smallest: t.Smallest, Largest: t.Largest, Phases: t.Phases, Reduces: t.Reduces, Busy: t.Utilization * float64(slots), Block: t.Block,
			MapRate: t.MapRate, Shuffle: *t.ShuffleShare, NIC: t.NIC, Spread: t.Spread, PartitionSkew: t.Skew, Users: users, Limits: l}
		g.Pattern = jobs.Pattern(max(0, slices.Index(jobs.Patterns(), t.Pattern)))
		if t.Gap != nil {
			g.Gap = *t.Gap
		}
		return g.Generate(seed)
	}
	g := jobs.Mix{Jobs: t.Jobs, Workers: t.Workers, Gap: *t.Gap, Block: t.Block, Spread: t.Spread, PartitionSkew: t.Skew, Users: users, Limits: l}
	for _, x := range t.Sizes {
		g.Sizes = append(g.Sizes, jobs.Size{Weight: x.Weight, Maps: [2]int{x.Maps.From, x.Maps.To}})
	}
	profiles := t.Profiles
	if profiles == nil {
		defaults := jobs.DefaultMix().Profiles
		if t.Generator == generatorBenchmarks {
			var err error
			if defaults, err = jobs.BenchmarkProfiles(jobs.ClassMix(*t.Mix)); err != nil {
				return nil, err
			}
		}
		for _, p := range defaults {
			profiles = append(profiles, TaskProfile{Name: p.Name, Weight: p.Weight, Reduces: p.Reduces, KeepMap: p.KeepMap, KeepReduce: p.KeepReduce})
		}
	}
	for _, p := range profiles {
		maps := cmp.Or(p.Maps, t.Maps)
		g.Profiles = append(g.Profiles, jobs.Profile{Name: p.Name, Weight: p.Weight, Maps: [2]int{maps.From, maps.To}, Reduces: p.Reduces, KeepMap: p.KeepMap, KeepReduce: p.KeepReduce,
			MapRate: cmp.Or(p.MapRate, t.MapRate), SortRate: cmp.Or(p.SortRate, t.SortRate), ReduceRate: cmp.Or(p.ReduceRate, t.ReduceRate)})
	}
	return g.Generate(seed)
}

// users returns the names of the users that the jobs of an item can have.
func (s *Scenario) users(i int) (names []string) {
	t := s.Spec.Workload[i].Tasks
	for n := range t.Users {
		names = append(names, fmt.Sprintf("u%d", n+1))
	}
	for _, j := range s.traces[i].jobs {
		if j.User != "" {
			names = append(names, j.User)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// eachTask calls do for every task of jobs.
func eachTask(list []jobs.Job, do func(*jobs.Stage, *jobs.Task)) {
	for i := range list {
		for k := range list[i].Stages {
			stage := &list[i].Stages[k]
			for n := range stage.Tasks {
				do(stage, &stage.Tasks[n])
			}
		}
	}
}

// TaskOutput returns the blocks that tasks write: their largest size, replicas, packet and window.
func (s *Scenario) TaskOutput(list []jobs.Job) workloads.Block {
	o := s.Spec.Tasks.Output
	b := workloads.Block{Size: o.Block, Replicas: o.Replicas, Packet: o.Packet, Window: o.Window}
	if b.Size == 0 {
		eachTask(list, func(_ *jobs.Stage, t *jobs.Task) { b.Size = max(b.Size, t.InputSize) })
	}
	return b
}

// taskRatios returns the ratios that a scaled-down experiment must share with the original one.
func (s *Scenario) taskRatios(f *topo.Fabric, list []jobs.Job) Notes {
	if len(list) == 0 || s.Spec.Disk == nil {
		return nil
	}
	var largest units.Bytes
	eachTask(list, func(_ *jobs.Stage, t *jobs.Task) { largest = max(largest, t.InputSize) })
	slowest, _ := hostRates(f)
	times := func(r units.Rate) float64 {
		return float64(r.TimeToSend(largest)) / float64(s.Spec.Heartbeat.Interval)
	}
	return Notes{fmt.Sprintf("tasks: one input block of %v takes %.2f heartbeats on a disk and %.2f on a NIC", about(largest), times(s.Spec.Disk.ReadRate()), times(slowest))}
}

// taskWork checks the jobs of tasks of the first repeat. It returns the number of blocks that they
// write.
func (c *checker) taskWork(s *Scenario, f *topo.Fabric, stored float64) (written int) {
	last := "" // item
	users := []string{}
	for i, item := range c.spec.Workload {
		if item.Tasks != nil {
			last = fmt.Sprintf("workload[%d]", i)
			users = append(users, s.users(i)...)
		}
	}
	if last == "" {
		return 0
	}
	list, _, err := s.taskList(f, 0)
	if err != nil {
		path, text, _ := strings.Cut(err.Error(), ": ")
		c.failAt(path, "%s", strings.ReplaceAll(text, "\n", "; "))
		return 0
	}
	c.taskPools(users)
	t, out := c.spec.Tasks, s.TaskOutput(list)
	var tasks [jobs.TaskKinds]int
	var cores, memory, block, output jobs.Task // with the most of each
	inputs := map[workloads.BlockID]units.Bytes{}
	eachTask(list, func(stage *jobs.Stage, t *jobs.Task) {
		tasks[stage.Kind]++
		if len(stage.From) == 0 {
			inputs[t.Input] = t.InputSize
		}
		for _, x := range []struct {
			most *jobs.Task
			more bool
		}{{&cores, t.Need.CPU > cores.Need.CPU}, {&memory, t.Need.Memory > memory.Need.Memory}, {&block, t.InputSize > block.InputSize}, {&output, t.Writes > output.Writes}} {
			if x.more {
				*x.most = *t
			}
		}
		written += int((t.Writes + out.Size - 1) / out.Size)
		stored += float64(t.Writes) * float64(out.Replicas)
	})
	for k, n := range [jobs.TaskKinds]int{t.MapSlots, t.ReduceSlots} {
		if n == 0 && tasks[k] > 0 {
			c.failAt("tasks."+taskKinds[k]+"_slots", "0: the jobs have %d tasks of kind %s: use at least 1", tasks[k], taskKinds[k])
		}
	}
	if need := cores.Need.CPU; t.Cores > 0 && need > t.Cores {
		c.failAt("tasks.cores", "%v: a task needs %v cores: use at least that, or leave the key out", t.Cores, need)
	}
	if need := memory.Need.Memory; t.Memory > 0 && need > t.Memory {
		c.failAt("tasks.memory", "%v: a task needs %v: use at least that, or leave the key out", t.Memory, need)
	}
	if d := c.spec.Disk; block.InputSize > d.Size {
		c.failAt(last, "a task reads a block of %v from disks of %v: use smaller blocks, size_factor or a larger disk.size", block.InputSize, d.Size)
		return written
	}
	if output.Writes > 0 {
		c.pipeline("tasks.output", out.Size, out.Packet, out.Window)
	}
	for _, size := range inputs {
		stored += float64(size) * float64(t.Input.Replicas)
	}
	c.room(last, stored, f)
	return written
}

// taskPools reports pools of users that no job can have.
func (c *checker) taskPools(users []string) {
	for _, p := range c.policies {
		for param, pools := range c.catalog.Pools(p.role, p.Name, p.Params) {
			for _, pool := range pools {
				if slices.Contains(users, pool.Name) {
					continue
				}
				hint := didYouMean(pool.Name, users)
				switch {
				case len(users) == 0:
					hint = ": the jobs name no users: leave the pool out"
				case hint == "":
					hint = ": use the name of a user, such as " + strings.Join(users[:min(3, len(users))], ", ")
				}
				c.failAt(yamltree.Join(p.path, param), "pool %s: no job has this user%s", clip(pool.Name), hint)
			}
		}
	}
}
