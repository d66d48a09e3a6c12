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

// schedulers returns the orders of jobs, each of which can be composed with parts.
func schedulers(parts []Entry) []Entry {
	with := Param{Name: With, Type: Parts, Default: []any{}, Parts: parts, Doc: "parts around the order, in any order"}
	return []Entry{
		scheduler(Entry{Name: "fifo", Doc: "first in, first out: jobs by priority, then by submission (Hadoop's default)"}, tasks.DefaultFIFO(), with, func(o *tasks.FIFO) []Param {
			return []Param{
				{Name: "order", To: &o.By, Choices: []string{"fifo", "sjf", "mlq"},
					Doc: "jobs of a priority: by submission; shortest first, by input; multi-level queues, by used slot time"},
				{Name: "levels", To: &o.Levels, Unit: "levels", Min: 1, Max: maxDomains, Doc: "levels of order mlq"},
				{Name: "level_time", To: &o.LevelTime, Max: int64(maxInterval), Doc: "slot time of the first level"},
				{Name: "level_factor", To: &o.LevelFactor, Unit: "× the level before", Low: 1, High: maxFactor,
					Doc: "slot time of further levels; the last has no end"},
			}
		}),
		scheduler(Entry{Name: "fair", Doc: "FAIR (Hadoop's fair scheduler): a pool for each user, with minimum shares and weights; the pool furthest below its share goes first",
			Check: func(v Values) []error {
				if n := v.int("kill_most"); n > 0 && !v.bool("kill") {
					return []error{fmt.Errorf("kill_most %d has no effect with kill false: use kill true, or kill_most 0", n)}
				}
				return nil
			}}, tasks.DefaultFair(), with, func(o *tasks.Fair) []Param {
			return []Param{
				{Name: "pools", Type: Pools, Default: noPools, Set: func(x any) { o.Pools = poolsOf(x) },
					Doc: "user=weight or user=weight:maps:reduces, with minimum shares, separated by commas; other pools have weight 1 and none"},
				{Name: "inside", To: &o.Inside, Choices: []string{"fair", "fifo"}, Doc: "jobs of a pool: fewest running tasks first, or by priority, then submission"},
				{Name: "kill", To: &o.Kill, Doc: "kill tasks of pools above their shares for pools that starve"},
				{Name: "min_timeout", To: &o.MinTimeout, Max: int64(maxInterval), Doc: "T_min: a pool below its minimum share for longer starves"},
				{Name: "fair_timeout", To: &o.FairTimeout, Max: int64(maxInterval), Doc: "T_fair: a pool below starving_fraction of its fair share for longer starves"},
				{Name: "starving_fraction", To: &o.Fraction, Unit: "× the fair share", Low: 0.01, High: 1, Doc: "part below which a pool may starve"},
				{Name: "kill_interval", To: &o.Every, Max: int64(maxInterval), Doc: "time between rounds of kills"},
				{Name: "kill_most", To: &o.Most, Unit: "tasks", Max: maxTasks, Doc: "most kills a round; 0 for no limit"},
			}
		}),
		scheduler(Entry{Name: "drf", Doc: "dominant resource fairness (NSDI 2011) over cores and memory: the user with the lowest dominant share goes first"},
			tasks.DefaultDRF(), with, func(*tasks.DRF) []Param { return nil }),
	}
}

// scheduler completes the entry of an order, whose own parameters are first.
func scheduler[O tasks.Order](e Entry, s tasks.Scheduler, with Param, own func(*O) []Param) Entry {
	type ordered struct {
		order O
		tasks.Scheduler
	}
	return bound(e, ordered{s.Order.(O), s}, func(x *ordered) []Param {
		return append(own(&x.order), append(perHeartbeat(&x.PerHeartbeat), with)...)
	}, func(x ordered, v Values) any {
		x.Order = x.order
		for _, add := range v[With].([]any) {
			add.(func(*tasks.Scheduler))(&x.Scheduler)
		}
		return x.Scheduler
	})
}

// perHeartbeat returns the limits of a heartbeat, whose defaults depend on the order.
func perHeartbeat(p *tasks.PerHeartbeat) []Param {
	limit := func(name string, n *int, doc string) Param {
		return Param{Name: name, To: n, Unit: "tasks", Max: maxTasks, Doc: doc + "; 0 for no limit"}
	}
	return []Param{
		limit("heartbeat_tasks", &p.Tasks, "maximum number of launches per heartbeat"),
		limit("heartbeat_maps", &p.Maps, "maximum number of maps per heartbeat"),
		limit("heartbeat_reduces", &p.Reduces, "maximum number of reduces per heartbeat"),
		limit("heartbeat_off_rack", &p.OffRack, "number of maps with off-rack input after which a heartbeat launches no more maps"),
		{Name: "load_factor", To: &p.LoadFactor, Doc: "limit slots in use on a host to its part of the unfinished tasks, to spread small jobs"},
	}
}

// parts returns the parts with which the orders can be composed. Each makes a func(*tasks.Scheduler) that adds it.
func parts() []Entry {
	return []Entry{
		part(Entry{Name: "delay", Doc: "delay scheduling: a job waits for a host with its input", Check: checkDelay}, tasks.DefaultDelay(),
			func(s *tasks.Scheduler) *tasks.Delay { return &s.Delay }, func(d *tasks.Delay) []Param {
				return []Param{
					{Name: "by", To: &d.Waiting, Choices: []string{"none", "time", "skips"},
						Doc: "time: t1 for a host, then t2 for its rack; skips: until a number of heartbeats have passed; none is without delay scheduling"},
					{Name: "t1", To: &d.T1, Max: int64(maxInterval), Doc: "wait for a node-local map"},
					{Name: "t2", To: &d.T2, Max: int64(maxInterval), Doc: "further wait for a rack-local map"},
					{Name: "skips", To: &d.Skips, Unit: "heartbeats", Max: maxTasks, Doc: "D of skips; 0 computes it from locality, replicas, hosts and maps"},
					{Name: "locality", To: &d.Locality, Unit: "× the maps", High: 0.9999, Doc: "node-local part that skips 0 aims at"},
					{Name: "replicas", To: &d.Replicas, Unit: "replicas", Min: 1, Max: maxDomains, Doc: "replicas that skips 0 assumes"},
					{Name: "io_biasing", To: &d.ByRate, Doc: "jobs whose maps, or those of their profile's earlier jobs, consume input at less than io_rate do not wait"},
					{Name: "io_rate", Type: Float, Default: 0.0, Unit: "MB/s per map", High: maxIORate,
						Set: func(x any) { d.Rate = units.Rate(x.(float64) * float64(8*units.Mbps)) },
						Doc: "threshold of io_biasing; 0 for half the share of the disk or the link of a map slot"},
				}
			}),
		part(Entry{Name: "split", Doc: "copy-compute splitting, and other limits of reduces on a host", Check: func(v Values) []error {
			if n := v.int("per_job"); n > 0 && v.int("factor") == 1 {
				return []error{fmt.Errorf("per_job %d has no effect with factor 1: use a factor of 2 or more, or per_job 0", n)}
			}
			return nil
		}}, tasks.DefaultSplitting(), func(s *tasks.Scheduler) *tasks.Splitting { return &s.Splitting }, func(s *tasks.Splitting) []Param {
			return []Param{
				{Name: "factor", To: &s.Factor, Unit: "× the reduce slots", Min: 1, Max: maxFactor, Doc: "reduces that may run per reduce slot, of which one computes"},
				{Name: "per_job", To: &s.PerJob, Unit: "reduces", Max: maxTasks, Doc: "reduces of one job on a host that may fetch or wait at a time; 0 for its reduce slots"},
				{Name: "user_reduces", To: &s.PerUser, Unit: "reduces", Max: maxTasks, Doc: "reduces of one user on a host at a time; 0 for no limit"},
				{Name: "reserved_reduces", To: &s.Reserved, Unit: "slots", Max: maxTasks,
					Doc: "reduce slots of a host, of those that may run, for jobs whose maps have all ended"},
				{Name: "compute_memory", To: &s.ByMemory, Doc: "reduces take memory only when they compute; memory, not slots, limits how many compute"},
				{Name: "pause_copies", To: &s.Pausing, Doc: "reduces without outputs to fetch give up their slots until there are outputs and a free slot"},
			}
		}),
		part(Entry{Name: "shufflewatcher", Doc: "ShuffleWatcher (USENIX ATC 2014): which task of the user whose turn it is, by the shuffle between racks", Check: func(v Values) []error {
			if v.bool("strict") && !v.bool("sarp") && v.choice("samp") == samps()[0] {
				return []error{errors.New("strict has no effect without sarp and samp: use one of them, or strict false")}
			}
			return nil
		}}, tasks.DefaultShuffling(), func(s *tasks.Scheduler) *tasks.Shuffling { return &s.Shuffle }, func(s *tasks.Shuffling) []Param {
			return []Param{
				{Name: "nass", To: &s.NASS, Doc: "while links of the rack are saturated, reduces with much shuffle wait for other tasks of the user"},
				{Name: "sarp", To: &s.SARP, Doc: "prefer reduces on racks in proportion to the intermediate data there"},
				{Name: "samp", Type: Choice, Default: samps()[1], Choices: samps(), Set: func(x any) {
					rule := slices.Index(samps(), x.(string))
					s.SAMP, s.Rule = rule > 0, shuffle.Rule(max(rule-1, 0))
				}, Doc: "prefer maps on few racks: add racks until the bytes across racks do not fall; the best of all prefixes of that order; or of all sets (of more than 16 racks, as best-prefix)"},
				{Name: "map_completion", To: &s.MapCompletion, Unit: "× the maps", High: 1, Doc: "ended part above which sarp uses the intermediate data, not the plan of samp"},
				{Name: "netsat_share", To: &s.Share, Unit: "× the capacity", Low: 0.01, High: 1, Doc: "load of a rack's links above which an interval counts"},
				{Name: "netsat_intervals", To: &s.Intervals, Unit: "intervals", Min: 1, Max: maxTasks, Doc: "intervals in a row after which links are saturated"},
				{Name: "netsat_interval", To: &s.Interval, Max: int64(maxInterval), Doc: "time over which the load is measured, at least a heartbeat"},
				{Name: "netsat", To: &s.Variant, Choices: []string{"rack", "any", "both"}, Doc: "links that count for a host: those of its rack in either direction, of any rack in either direction, or of its rack in both at once"},
				{Name: "netsat_load", To: &s.TrueLoad, Choices: []string{"reported", "actual"}, Doc: "as racks reported since the last interval, or as it is, which no master knows"},
				{Name: "ratios", To: &s.Ratios, Choices: []string{"online", "completed", "given", "perfect"}, Doc: "shuffle input ratios: learned from ended maps of the profile; learned when a job of the profile completes; given, typical of the job's class; perfect, which no master knows"},
				{Name: "strict", To: &s.Strict, Doc: "launch tasks only on racks that samp and sarp prefer, so that slots can stay idle"},
			}
		}),
		part(Entry{Name: "speculation", Doc: "backups of running tasks"}, tasks.DefaultSpeculation(),
			func(s *tasks.Scheduler) *tasks.Speculation { return &s.Speculation }, func(s *tasks.Speculation) []Param {
				return []Param{
					{Name: "by", To: &s.By, Choices: []string{"none", "late", "hadoop", "mantri"}, Doc: "late: of slow tasks, longest time left first, on slots for which no task is pending; hadoop: with Hadoop's tests for slow tasks and hosts; mantri: also restarts and copies while tasks are pending, where they save slot time; none is without backups"},
					{Name: "cap", To: &s.Cap, Unit: "× the slots", High: 1, Doc: "SpeculativeCap of late: backups at which no more are launched"},
					{Name: "slow_host", To: &s.HostPercentile, Unit: "× the hosts", High: 1, Doc: "SlowNodeThreshold of late: percentile of progress below which hosts get no backups"},
					{Name: "slow_task", To: &s.TaskPercentile, Unit: "× the tasks", High: 1, Doc: "SlowTaskThreshold of late: percentile of the rates of a stage below which tasks are slow"},
					{Name: "after", To: &s.After, Max: int64(maxInterval), Doc: "time that a task runs before it may get a backup of late or hadoop"},
					{Name: "interval", To: &s.Mantri.Interval, Max: int64(maxInterval), Doc: "Δ of mantri: time that an attempt runs before it acts on it"},
					{Name: "copies", To: &s.Mantri.Copies, Unit: "attempts", Min: 1, Max: clone.MaxCopies, Doc: "α of mantri: fastest attempts of a task that go on once the newest has run for Δ"},
					{Name: "restarts", To: &s.Mantri.Restarts, Unit: "attempts", Max: maxTasks, Doc: "γ of mantri: attempts after which a task is not restarted"},
					{Name: "risk", To: &s.Mantri.Risk, High: 1, Doc: "δ of mantri: probability of saving slot time above which a task is copied while tasks are pending"},
					{Name: "gain", To: &s.Mantri.Gain, Unit: "× interval", High: maxFactor, Doc: "ρ of mantri: expected time saved above which a task is copied while none is pending"},
				}
			}),
		part(Entry{Name: "blacklist", Doc: "hosts on which tasks straggle get none for a window"}, clone.DefaultBlacklist(),
			func(s *tasks.Scheduler) *clone.Blacklist { return &s.Blacklist }, func(b *clone.Blacklist) []Param {
				return []Param{
					{Name: "above", To: &b.Above, Unit: "× the tasks", High: 1, Doc: "p_b: expected part that straggles above which a host is skipped; 0 for never"},
					{Name: "window", To: &b.Window, Min: int64(time.Millisecond), Max: int64(maxInterval), Doc: "length of a window"},
				}
			}),
		part(Entry{Name: "cloning", Doc: "Dolly (NSDI 2013): as many copies of each task of a job from its start as risk requires, if the budget has room; the first to end counts",
			Check: func(v Values) []error {
				if v.bool("flows") && v.choice("estimates") == "given" {
					return []error{errors.New("flows has no effect with estimates given: use learned or periodic")}
				}
				return nil
			}}, tasks.DefaultCloning(), func(s *tasks.Scheduler) *tasks.Cloning { return &s.Cloning }, func(c *tasks.Cloning) []Param {
			return []Param{
				{Name: "straggle", To: &c.Straggle, Unit: "× the tasks", High: 0.99, Doc: "p: probability that a task straggles (less than half the median progress rate of its stage); 0 for no cloning"},
				{Name: "risk", To: &c.Risk, Unit: "× the jobs", Low: 0.0001, High: 0.99, Doc: "ε: accepted probability that all copies of one of a job's tasks straggle"},
				{Name: "budget", To: &c.Budget, Unit: "× the slots", High: 1, Doc: "β: slots for copies of cloned tasks"},
				{Name: "utilization", To: &c.Utilization, Unit: "× the slots", High: 1, Doc: "τ: slots in use beyond which no task is cloned"},
				{Name: "admission", To: &c.Admission, Choices: []string{"all", "preempt", "partial", "fcfs"}, Doc: "copies of a stage without room for all: all, none; fcfs, those of its first tasks; partial, as many for each task as fit; preempt, clones of larger jobs are killed"},
				{Name: "reads", To: &c.Reads, Choices: []string{"first", "exclusive", "delay"}, Doc: "copy of an output that a copy of a task fetches: the first; the k-th copy the k-th; or one that no other fetches, and after wait any"},
				{Name: "wait", Type: Durations, Default: c.Wait[0].String(), Max: int64(maxInterval), Most: jobs.SizeClasses, Set: func(x any) { c.Wait = waitsOf(x) },
					Doc: "ω of reads delay, from the end of the first copy; several, separated by commas: of jobs of up to 10, 50, 150, 500 and more tasks, the last for all larger ones"},
				{Name: "estimates", To: &c.Learn, Choices: []string{"given", "learned", "periodic"}, Doc: "p and ω: as given; learned from ended tasks and fetches, from the given values on; or periodic, p at the end of each learn_every from the tasks that ended in it, and one ω for a period"},
				{Name: "learn_every", To: &c.LearnEvery, Max: int64(maxInterval), Doc: "time between estimates of ω for jobs of a size, and the period of periodic"},
				{Name: "flows", To: &c.ByFlows, Doc: "estimate ω with the rates of fetches with as many flows on their links as those of the stage will have"},
			}
		}),
	}
}

// part completes the entry of a part, which is a field of a scheduler.
func part[T any](e Entry, initial T, field func(*tasks.Scheduler) *T, params func(*T) []Param) Entry {
	return bound(e, initial, params, func(x T, _ Values) any { return func(s *tasks.Scheduler) { *field(s) = x } })
}

// samps returns the values of samp: off, then the names of shuffle.Rule, by value.
func samps() []string { return []string{"off", "first-increase", "best-prefix", "best-subset"} }

// waitsOf returns the ω of each class of jobs.
func waitsOf(given any) (all [jobs.SizeClasses]time.Duration) {
	list, _ := durations(given)
	for class := range all {
		all[class] = list[min(class, len(list)-1)]
	}
	return all
}

// checkDelay rejects parameters that others disable.
func checkDelay(v Values) []error {
	var errs []error
	if n := v.int("skips"); n > 0 && v.choice("by") != "skips" {
		errs = append(errs, fmt.Errorf("skips %d has no effect with by %s: use by skips, or skips 0", n, v.choice("by")))
	}
	if v.bool("io_biasing") && v.choice("by") != "time" {
		errs = append(errs, fmt.Errorf("io_biasing has no effect with by %s: use by time", v.choice("by")))
	}
	if v.float("io_rate") > 0 && !v.bool("io_biasing") {
		errs = append(errs, errors.New("io_rate has no effect without io_biasing: use io_biasing true, or io_rate 0"))
	}
	return errs
}

// poolsOf returns the settings of a parameter of type Pools, which parse has checked.
func poolsOf(given any) []tasks.Pool {
	if given == noPools {
		return nil
	}
	pools, _ := tasks.ParsePools(given.(string))
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
			out[p.Name] = poolsOf(v[p.Name])
		}
	}
	return out
}
