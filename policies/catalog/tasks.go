package catalog

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/policies/clone"
	"testbed/policies/shuffle"
	"testbed/policies/tasks"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// noPools is the value of a parameter of type Pools without pools.
const noPools = "none"

// Upper bounds of parameters of task schedulers, far beyond useful values.
const (
	maxTasks  = 1 << 20
	maxFactor = 1000
	maxIORate = 1e6 // MB/s
)

// waitings returns the names of tasks.Waiting, by value.
func waitings() []string { return []string{"none", "time", "skips"} }

// schedulers returns the task schedulers.
func schedulers() []Entry {
	fifo, fair, drf := tasks.DefaultFIFO(), tasks.DefaultFair(), tasks.DefaultDRF()
	starvation := tasks.DefaultStarvation()
	scheduler := func(v Values, order tasks.Order) tasks.Scheduler {
		return tasks.Scheduler{Order: order, PerHeartbeat: perHeartbeatOf(v), Delay: delayOf(v), Splitting: splittingOf(v), Shuffle: shufflingOf(v), Speculation: speculationOf(v), Cloning: cloningOf(v),
			Blacklist: clone.Blacklist{Above: v.float("blacklist"), Window: v.duration("blacklist_window")}}
	}
	return []Entry{
		{Name: "fifo", Doc: "first in, first out: jobs by priority, then by submission (Hadoop's default)",
			Params: slices.Concat(disciplines(), perHeartbeat(fifo), delays(fifo), splits(fifo), shufflings(), stragglers()), Check: checkTasks,
			New: func(v Values) any { return scheduler(v, disciplineOf(v)) }},
		{Name: "fair", Doc: "FAIR (Hadoop's fair scheduler): a pool for each user, with minimum shares and weights; the pool furthest below its share goes first",
			Params: slices.Concat([]Param{
				{Name: "pools", Type: Pools, Default: noPools, Doc: "user=weight or user=weight:maps:reduces, with minimum shares, separated by commas; other pools have weight 1 and none"},
				{Name: "inside", Type: Choice, Default: "fair", Choices: []string{"fair", "fifo"}, Doc: "jobs of a pool: fewest running tasks first, or by priority, then submission"},
				{Name: "kill", Type: Bool, Default: starvation.Kill, Doc: "kill tasks of pools above their shares for pools that starve"},
				{Name: "min_timeout", Type: Duration, Default: starvation.MinTimeout, Max: int64(maxInterval), Doc: "T_min: a pool below its minimum share for longer starves"},
				{Name: "fair_timeout", Type: Duration, Default: starvation.FairTimeout, Max: int64(maxInterval), Doc: "T_fair: a pool below starving_fraction of its fair share for longer starves"},
				{Name: "starving_fraction", Type: Float, Default: starvation.Fraction, Unit: "× the fair share", Low: 0.01, High: 1, Doc: "part below which a pool may starve"},
				{Name: "kill_interval", Type: Duration, Default: starvation.Every, Max: int64(maxInterval), Doc: "time between rounds of kills"},
				{Name: "kill_most", Type: Whole, Default: int64(starvation.Most), Unit: "tasks", Max: maxTasks, Doc: "most kills a round; 0 for no limit"},
			}, perHeartbeat(fair), delays(fair), splits(fair), shufflings(), stragglers()),
			Check: func(v Values) []error {
				errs := checkTasks(v)
				if n := v.int("kill_most"); n > 0 && !v.bool("kill") {
					errs = append(errs, fmt.Errorf("kill_most %d has no effect with kill false: use kill true, or kill_most 0", n))
				}
				return errs
			},
			New: func(v Values) any {
				return scheduler(v, tasks.Fair{Pools: v.pools("pools"), Inside: map[string]tasks.Inside{"fair": tasks.FewestFirst, "fifo": tasks.InOrder}[v.choice("inside")],
					Starvation: tasks.Starvation{MinTimeout: v.duration("min_timeout"), FairTimeout: v.duration("fair_timeout"), Fraction: v.float("starving_fraction"),
						Kill: v.bool("kill"), Every: v.duration("kill_interval"), Most: v.int("kill_most")}})
			}},
		{Name: "drf", Doc: "dominant resource fairness (NSDI 2011) over cores and memory: the user with the lowest dominant share goes first",
			Params: slices.Concat(perHeartbeat(drf), delays(drf), splits(drf), shufflings(), stragglers()), Check: checkTasks,
			New: func(v Values) any { return scheduler(v, tasks.DRF{}) }},
	}
}

// orders returns the names of tasks.Discipline, by value.
func orders() []string { return []string{"fifo", "sjf", "mlq"} }

func disciplines() []Param {
	levels := tasks.DefaultLevels()
	return []Param{
		{Name: "order", Type: Choice, Default: orders()[levels.By], Choices: orders(),
			Doc: "jobs of a priority: by submission; shortest first, by input; multi-level queues, by used slot time"},
		{Name: "levels", Type: Whole, Default: int64(levels.Levels), Unit: "levels", Min: 1, Max: maxDomains, Doc: "levels of order mlq"},
		{Name: "level_time", Type: Duration, Default: levels.LevelTime, Max: int64(maxInterval), Doc: "slot time of the first level"},
		{Name: "level_factor", Type: Float, Default: levels.LevelFactor, Unit: "× the level before", Low: 1, High: maxFactor,
			Doc: "slot time of further levels; the last has no end"},
	}
}

func disciplineOf(v Values) tasks.FIFO {
	return tasks.FIFO{By: tasks.Discipline(slices.Index(orders(), v.choice("order"))),
		Levels: v.int("levels"), LevelTime: v.duration("level_time"), LevelFactor: v.float("level_factor")}
}

// perHeartbeat returns the limits of a heartbeat, with the defaults of a scheduler.
func perHeartbeat(s tasks.Scheduler) []Param {
	limit := func(name string, n int, doc string) Param {
		return Param{Name: name, Type: Whole, Default: int64(n), Unit: "tasks", Max: maxTasks, Doc: doc + "; 0 for no limit"}
	}
	return []Param{
		limit("heartbeat_tasks", s.Tasks, "maximum number of launches per heartbeat"),
		limit("heartbeat_maps", s.Maps, "maximum number of maps per heartbeat"),
		limit("heartbeat_reduces", s.Reduces, "maximum number of reduces per heartbeat"),
		limit("heartbeat_off_rack", s.OffRack, "number of maps with off-rack input after which a heartbeat launches no more maps"),
		{Name: "load_factor", Type: Bool, Default: s.LoadFactor, Doc: "limit slots in use on a host to its part of the unfinished tasks, to spread small jobs"},
	}
}

func perHeartbeatOf(v Values) tasks.PerHeartbeat {
	return tasks.PerHeartbeat{Tasks: v.int("heartbeat_tasks"), Maps: v.int("heartbeat_maps"), Reduces: v.int("heartbeat_reduces"), OffRack: v.int("heartbeat_off_rack"), LoadFactor: v.bool("load_factor")}
}

func delays(s tasks.Scheduler) []Param {
	return []Param{
		{Name: "delay", Type: Choice, Default: waitings()[s.Waiting], Choices: waitings(), Doc: "delay scheduling: a job waits t1 for a host with its input, then t2 for its rack; or lets a number of heartbeats pass"},
		{Name: "t1", Type: Duration, Default: s.T1, Max: int64(maxInterval), Doc: "wait for a node-local map"},
		{Name: "t2", Type: Duration, Default: s.T2, Max: int64(maxInterval), Doc: "further wait for a rack-local map"},
		{Name: "skips", Type: Whole, Default: int64(s.Skips), Unit: "heartbeats", Max: maxTasks, Doc: "D of delay skips; 0 computes it from delay_locality, delay_replicas, hosts and maps"},
		{Name: "delay_locality", Type: Float, Default: s.Locality, Unit: "× the maps", High: 0.9999, Doc: "node-local part that skips 0 aims at"},
		{Name: "delay_replicas", Type: Whole, Default: int64(s.Replicas), Unit: "replicas", Min: 1, Max: maxDomains, Doc: "replicas that skips 0 assumes"},
		{Name: "io_biasing", Type: Bool, Default: s.ByRate, Doc: "jobs whose maps, or those of their profile's earlier jobs, consume input at less than io_rate do not wait"},
		{Name: "io_rate", Type: Float, Default: float64(s.Rate.BytesPerSecond()) / 1e6, Unit: "MB/s per map", High: maxIORate, Doc: "threshold of io_biasing; 0 for half the share of the disk or the link of a map slot"},
	}
}

func delayOf(v Values) tasks.Delay {
	return tasks.Delay{Waiting: tasks.Waiting(slices.Index(waitings(), v.choice("delay"))), T1: v.duration("t1"), T2: v.duration("t2"), Skips: v.int("skips"),
		Locality: v.float("delay_locality"), Replicas: v.int("delay_replicas"), ByRate: v.bool("io_biasing"), Rate: units.Rate(v.float("io_rate") * float64(8*units.Mbps))}
}

func splits(s tasks.Scheduler) []Param {
	return []Param{
		{Name: "split", Type: Whole, Default: int64(s.Factor), Unit: "× the reduce slots", Min: 1, Max: maxFactor, Doc: "copy-compute splitting: reduces that may run per reduce slot, of which one computes"},
		{Name: "split_per_job", Type: Whole, Default: int64(s.PerJob), Unit: "reduces", Max: maxTasks, Doc: "reduces of one job on a host that may fetch or wait at a time; 0 for its reduce slots"},
		{Name: "user_reduces", Type: Whole, Default: int64(s.PerUser), Unit: "reduces", Max: maxTasks, Doc: "reduces of one user on a host at a time; 0 for no limit"},
		{Name: "reserved_reduces", Type: Whole, Default: int64(s.Reserved), Unit: "slots", Max: maxTasks,
			Doc: "reduce slots of a host, of those that may run, for jobs whose maps have all ended"},
		{Name: "compute_memory", Type: Bool, Default: s.ByMemory,
			Doc: "reduces take memory only when they compute; memory, not slots, limits how many compute"},
		{Name: "pause_copies", Type: Bool, Default: s.Pausing,
			Doc: "reduces without outputs to fetch give up their slots until there are outputs and a free slot"},
	}
}

func splittingOf(v Values) tasks.Splitting {
	return tasks.Splitting{Factor: v.int("split"), PerJob: v.int("split_per_job"), PerUser: v.int("user_reduces"),
		Reserved: v.int("reserved_reduces"), ByMemory: v.bool("compute_memory"), Pausing: v.bool("pause_copies")}
}

// samps returns the values of samp: off, then the names of shuffle.Rule, by value.
func samps() []string { return []string{"off", "first-increase", "best-prefix", "best-subset"} }

func shufflings() []Param {
	s := tasks.DefaultShuffling()
	return []Param{
		{Name: "nass", Type: Bool, Default: s.NASS, Doc: "while links of the rack are saturated, reduces with much shuffle wait for other tasks of the user"},
		{Name: "sarp", Type: Bool, Default: s.SARP, Doc: "prefer reduces on racks in proportion to the intermediate data there"},
		{Name: "samp", Type: Choice, Default: samps()[0], Choices: samps(), Doc: "prefer maps on few racks: add racks until the bytes across racks do not fall; the best of all prefixes of that order; or of all sets (of more than 16 racks, as best-prefix)"},
		{Name: "map_completion", Type: Float, Default: s.MapCompletion, Unit: "× the maps", High: 1, Doc: "ended part above which sarp uses the intermediate data, not the plan of samp"},
		{Name: "netsat_share", Type: Float, Default: s.Share, Unit: "× the capacity", Low: 0.01, High: 1, Doc: "load of a rack's links above which an interval counts"},
		{Name: "netsat_intervals", Type: Whole, Default: int64(s.Intervals), Unit: "intervals", Min: 1, Max: maxTasks, Doc: "intervals in a row after which links are saturated"},
		{Name: "netsat_interval", Type: Duration, Default: s.Interval, Max: int64(maxInterval), Doc: "time over which the load is measured, at least a heartbeat"},
		{Name: "netsat", Type: Choice, Default: netsats()[0], Choices: netsats(), Doc: "links that count for a host: those of its rack in either direction, of any rack in either direction, or of its rack in both at once"},
		{Name: "netsat_load", Type: Choice, Default: "reported", Choices: []string{"reported", "actual"}, Doc: "as racks reported since the last interval, or as it is, which no master knows"},
		{Name: "ratios", Type: Choice, Default: ratios()[0], Choices: ratios(), Doc: "shuffle input ratios: learned from ended maps of the profile; learned when a job of the profile completes; given, typical of the job's class; perfect, which no master knows"},
		{Name: "strict", Type: Bool, Default: s.Strict, Doc: "launch tasks only on racks that samp and sarp prefer, so that slots can stay idle"},
	}
}

// netsats returns the names of shuffle.Variant, by value.
func netsats() []string { return []string{"rack", "any", "both"} }

// ratios returns the names of tasks.Knowledge, by value.
func ratios() []string { return []string{"online", "completed", "given", "perfect"} }

func shufflingOf(v Values) tasks.Shuffling {
	rule := slices.Index(samps(), v.choice("samp"))
	return tasks.Shuffling{NASS: v.bool("nass"), SARP: v.bool("sarp"), SAMP: rule > 0, Rule: shuffle.Rule(max(rule-1, 0)), MapCompletion: v.float("map_completion"),
		NetSat:   shuffle.NetSat{Share: v.float("netsat_share"), Intervals: v.int("netsat_intervals"), Variant: shuffle.Variant(slices.Index(netsats(), v.choice("netsat")))},
		Interval: v.duration("netsat_interval"), TrueLoad: v.choice("netsat_load") == "actual", Strict: v.bool("strict"), Ratios: tasks.Knowledge(slices.Index(ratios(), v.choice("ratios")))}
}

// stragglers returns the parameters of the policies against stragglers.
func stragglers() []Param { return slices.Concat(speculations(), blacklists(), clonings()) }

// speculationMethods returns the names of tasks.Method, by value.
func speculationMethods() []string { return []string{"none", "late", "hadoop", "mantri"} }

func speculations() []Param {
	s := tasks.DefaultSpeculation()
	return []Param{
		{Name: "speculation", Type: Choice, Default: speculationMethods()[s.By], Choices: speculationMethods(), Doc: "backups of running tasks: late, of slow tasks, longest time left first, on slots for which no task is pending; hadoop, with Hadoop's tests for slow tasks and hosts; mantri, also restarts and copies while tasks are pending, where they save slot time"},
		{Name: "late_cap", Type: Float, Default: s.Cap, Unit: "× the slots", High: 1, Doc: "SpeculativeCap: backups at which no more are launched; hadoop has its own"},
		{Name: "late_slow_host", Type: Float, Default: s.HostPercentile, Unit: "× the hosts", High: 1, Doc: "SlowNodeThreshold: percentile of progress below which hosts get no backups; hadoop has its own"},
		{Name: "late_slow_task", Type: Float, Default: s.TaskPercentile, Unit: "× the tasks", High: 1, Doc: "SlowTaskThreshold: percentile of the rates of a stage below which tasks are slow; hadoop has its own"},
		{Name: "late_after", Type: Duration, Default: s.After, Max: int64(maxInterval), Doc: "time that a task runs before it may get a backup of late or hadoop"},
		{Name: "mantri_interval", Type: Duration, Default: s.Mantri.Interval, Max: int64(maxInterval), Doc: "Δ: time that an attempt runs before mantri acts on it"},
		{Name: "mantri_copies", Type: Whole, Default: int64(s.Mantri.Copies), Unit: "attempts", Min: 1, Max: clone.MaxCopies, Doc: "α: fastest attempts of a task that go on once the newest has run for Δ"},
		{Name: "mantri_restarts", Type: Whole, Default: int64(s.Mantri.Restarts), Unit: "attempts", Max: maxTasks, Doc: "γ: attempts after which a task is not restarted"},
		{Name: "mantri_risk", Type: Float, Default: s.Mantri.Risk, High: 1, Doc: "δ: probability of saving slot time above which a task is copied while tasks are pending"},
		{Name: "mantri_gain", Type: Float, Default: s.Mantri.Gain, Unit: "× mantri_interval", High: maxFactor, Doc: "ρ: expected time saved above which a task is copied while none is pending"},
	}
}

func speculationOf(v Values) tasks.Speculation {
	return tasks.Speculation{By: tasks.Method(slices.Index(speculationMethods(), v.choice("speculation"))),
		LATE:   clone.LATE{Cap: v.float("late_cap"), HostPercentile: v.float("late_slow_host"), TaskPercentile: v.float("late_slow_task"), After: v.duration("late_after")},
		Mantri: clone.Mantri{Interval: v.duration("mantri_interval"), Copies: v.int("mantri_copies"), Restarts: v.int("mantri_restarts"), Risk: v.float("mantri_risk"), Gain: v.float("mantri_gain")}}
}

func blacklists() []Param {
	b := clone.DefaultBlacklist()
	return []Param{
		{Name: "blacklist", Type: Float, Default: b.Above, Unit: "× the tasks", High: 1, Doc: "p_b: a host gets no tasks for a window if they would straggle with a higher probability; 0 for never"},
		{Name: "blacklist_window", Type: Duration, Default: b.Window, Min: int64(time.Millisecond), Max: int64(maxInterval), Doc: "length of a window"},
	}
}

// admissions, reads and estimates return the names of clone.Admission, tasks.Reads and tasks.Learning, by value.
func admissions() []string { return []string{"all", "preempt", "partial", "fcfs"} }
func reads() []string      { return []string{"first", "exclusive", "delay"} }
func estimates() []string  { return []string{"given", "learned", "periodic"} }

func clonings() []Param {
	s := tasks.DefaultCloning()
	return []Param{
		{Name: "cloning", Type: Choice, Default: "none", Choices: []string{"none", "dolly"}, Doc: "dolly: as many copies of each task of a job from its start as clone_risk requires, if the budget has room; the first to end counts"},
		{Name: "clone_straggle", Type: Float, Default: s.Straggle, Unit: "× the tasks", High: 0.99, Doc: "p: probability that a task straggles (less than half the median progress rate of its stage); 0 for no cloning"},
		{Name: "clone_risk", Type: Float, Default: s.Risk, Unit: "× the jobs", Low: 0.0001, High: 0.99, Doc: "ε: accepted probability that all copies of one of a job's tasks straggle"},
		{Name: "clone_budget", Type: Float, Default: s.Budget, Unit: "× the slots", High: 1, Doc: "β: slots for copies of cloned tasks"},
		{Name: "clone_utilization", Type: Float, Default: s.Utilization, Unit: "× the slots", High: 1, Doc: "τ: slots in use beyond which no task is cloned"},
		{Name: "clone_admission", Type: Choice, Default: admissions()[s.Admission], Choices: admissions(), Doc: "copies of a stage without room for all: all, none; fcfs, those of its first tasks; partial, as many for each task as fit; preempt, clones of larger jobs are killed"},
		{Name: "clone_reads", Type: Choice, Default: reads()[s.Reads], Choices: reads(), Doc: "copy of an output that a copy of a task fetches: the first; the k-th copy the k-th; or one that no other fetches, and after clone_wait any"},
		{Name: "clone_wait", Type: Durations, Default: s.Wait[0].String(), Max: int64(maxInterval), Most: jobs.SizeClasses, Doc: "ω of clone_reads delay, from the end of the first copy; several, separated by commas: of jobs of up to 10, 50, 150, 500 and more tasks, the last for all larger ones"},
		{Name: "clone_estimates", Type: Choice, Default: estimates()[0], Choices: estimates(), Doc: "p and ω: as given; learned from ended tasks and fetches, from the given values on; or periodic, p at the end of each clone_learn_every from the tasks that ended in it, and one ω for a period"},
		{Name: "clone_learn_every", Type: Duration, Default: s.LearnEvery, Max: int64(maxInterval), Doc: "time between estimates of ω for jobs of a size, and the period of periodic"},
		{Name: "clone_flows", Type: Bool, Default: s.ByFlows, Doc: "estimate ω with the rates of fetches with as many flows on their links as those of the stage will have"},
	}
}

func cloningOf(v Values) tasks.Cloning {
	return tasks.Cloning{On: v.choice("cloning") == "dolly", Dolly: clone.Dolly{Straggle: v.float("clone_straggle"), Risk: v.float("clone_risk"),
		Budget: v.float("clone_budget"), Utilization: v.float("clone_utilization")},
		Admission: clone.Admission(slices.Index(admissions(), v.choice("clone_admission"))), Reads: tasks.Reads(slices.Index(reads(), v.choice("clone_reads"))),
		Wait: waitsOf(v.durations("clone_wait")), Learn: tasks.Learning(slices.Index(estimates(), v.choice("clone_estimates"))), LearnEvery: v.duration("clone_learn_every"), ByFlows: v.bool("clone_flows")}
}

// waitsOf returns the ω of each class of jobs.
func waitsOf(list []time.Duration) (all [jobs.SizeClasses]time.Duration) {
	for class := range all {
		all[class] = list[min(class, len(list)-1)]
	}
	return all
}

// checkTasks rejects parameters that others disable.
func checkTasks(v Values) []error {
	var errs []error
	if n := v.int("skips"); n > 0 && v.choice("delay") != "skips" {
		errs = append(errs, fmt.Errorf("skips %d has no effect with delay %s: use delay skips, or skips 0", n, v.choice("delay")))
	}
	if v.bool("io_biasing") && v.choice("delay") != "time" {
		errs = append(errs, fmt.Errorf("io_biasing has no effect with delay %s: use delay time", v.choice("delay")))
	}
	if v.float("io_rate") > 0 && !v.bool("io_biasing") {
		errs = append(errs, errors.New("io_rate has no effect without io_biasing: use io_biasing true, or io_rate 0"))
	}
	if n := v.int("split_per_job"); n > 0 && v.int("split") == 1 {
		errs = append(errs, fmt.Errorf("split_per_job %d has no effect with split 1: use a split of 2 or more, or split_per_job 0", n))
	}
	if v.bool("strict") && !v.bool("sarp") && v.choice("samp") == samps()[0] {
		errs = append(errs, errors.New("strict has no effect without sarp and samp: use one of them, or strict false"))
	}
	if v.bool("clone_flows") && v.choice("clone_estimates") == estimates()[tasks.GivenEstimates] {
		errs = append(errs, errors.New("clone_flows has no effect with clone_estimates given: use learned or periodic"))
	}
	if v.choice("cloning") == "none" {
		for _, name := range []string{"clone_admission", "clone_reads", "clone_estimates"} {
			if c := v.choice(name); c != "all" && c != "first" && c != "given" {
				errs = append(errs, fmt.Errorf("%s %s has no effect with cloning none: use cloning dolly", name, c))
			}
		}
	}
	return errs
}

// pools returns the settings of a parameter of type Pools, which parse has checked.
func (v Values) pools(name string) []tasks.Pool {
	s := v[name].(string)
	if s == noPools {
		return nil
	}
	pools, _ := tasks.ParsePools(s)
	return pools
}

// Pools returns the settings of pools in a policy's parameters, by the name of the parameter. The
// parameters must be valid.
func (c Catalog) Pools(role, name string, params map[string]any) map[string][]tasks.Pool {
	e, v, errs := c.resolve(role, name, params)
	if len(errs) > 0 {
		return nil
	}
	out := map[string][]tasks.Pool{}
	for _, p := range e.Params {
		if p.Type == Pools {
			out[p.Name] = v.pools(p.Name)
		}
	}
	return out
}
