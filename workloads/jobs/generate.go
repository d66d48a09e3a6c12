package jobs

import (
	"errors"
	"fmt"
	"math"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Arrivals are Poisson: gaps are exponential, drawn for each job.
//
// Every draw of a generator is keyed by its purpose and job, so that a setting changes only what
// it describes.

// bmBins are the bins of FAIR's macro benchmark: the maps of a job, and the number of jobs.
var bmBins = [...]struct{ maps, jobs int }{{16, 29}, {40, 5}, {80, 4}, {160, 4}, {320, 3}, {600, 2}, {1200, 1}, {2400, 1}, {6400, 1}}

// BM is the macro benchmark of the FAIR report: 50 jobs of nine bins, from Facebook's
// distribution of sizes. The report states the numbers of maps and jobs, the ranges of map times
// and numbers of reduces, the gap, and that the shares that maps and reduces keep are random.
// DefaultBM has its values.
type BM struct {
	// Tasks multiplies the maps of each bin, rounded to the nearest and at least one: 1/8 for a
	// cluster with an eighth of the slots has 2, 5, 10, 20, 40, 75, 150, 300 and 800.
	Tasks workloads.Factor
	Gap   time.Duration // mean between submissions
	Block units.Bytes   // input of a map
	// MapTime is the range of the time of a map, uniform by job. It determines the rate of maps
	// and of reduces.
	MapTime [2]time.Duration
	// Reduces is the range of the number of reduces relative to that of maps, uniform by job; at
	// least one reduce.
	Reduces [2]float64
	// KeepMap and KeepReduce are the ranges of output to input, uniform by job.
	KeepMap, KeepReduce [2]float64
	SortRate            units.Rate
	PartitionSkew       float64
	Users               Users
	Limits              Limits
}

// DefaultBM returns the benchmark of the report.
func DefaultBM() BM {
	return BM{Tasks: workloads.Factor{Num: 1, Den: 1}, Gap: 30 * time.Second, Block: DefaultBlock, MapTime: [2]time.Duration{9 * time.Second, 60 * time.Second},
		Reduces: [2]float64{0.05, 0.25}, KeepMap: [2]float64{0, 1}, KeepReduce: [2]float64{0, 1}, SortRate: DefaultSortRate, Users: Users{Count: DefaultUsers}}
}

func (c *checks) span(what string, r [2]float64, least, most float64) {
	c.add(!(r[0] >= least && r[0] <= r[1] && r[1] <= most), "%s %v to %v: must be %v to %v, in ascending order", what, r[0], r[1], least, most)
}

func (c *checks) gap(d time.Duration) {
	c.add(d < 0 || d > maxTime, "mean gap %v: must be 0s to %v", d, maxTime)
}

const maxKeep = 1000.0 // of ratios of output to input

// Generate returns the jobs of the benchmark. The profile is bm and the number of the bin, from 0.
func (g BM) Generate(seed uint64) ([]Job, error) {
	var c checks
	c.add(g.Tasks.Num < 1 || g.Tasks.Den < 1, "tasks %d/%d: must be two positive numbers", g.Tasks.Num, g.Tasks.Den)
	c.gap(g.Gap)
	c.block(g.Block)
	c.add(g.MapTime[0] < time.Microsecond || g.MapTime[1] < g.MapTime[0] || g.MapTime[1] > maxTime, "map time %v to %v: must be 1µs to %v, in ascending order", g.MapTime[0], g.MapTime[1], maxTime)
	c.span("reduces", g.Reduces, 0, 1)
	c.span("share that maps keep", g.KeepMap, 0, maxKeep)
	c.span("share that reduces keep", g.KeepReduce, 0, maxKeep)
	c.rates(map[string]units.Rate{"sort rate": g.SortRate})
	c.skew("skew of partitions", g.PartitionSkew)
	c.users(g.Users)
	if err := errors.Join(c...); err != nil {
		return nil, fmt.Errorf("bm: %w", err)
	}
	var order []int // bins of jobs
	for bin, b := range bmBins {
		for range b.jobs {
			order = append(order, bin)
		}
	}
	workloads.Stream(seed, "bm-order").Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	b, users := newBuilder(g.Limits), newDrawer(seed, g.Users)
	var at time.Duration
	for i, bin := range order {
		id := i + 1
		at += exponential(seed, id, g.Gap)
		maps, _, ok := mulDiv(2*int64(bmBins[bin].maps), g.Tasks.Num, g.Tasks.Den)
		if maps = max(1, (maps+1)/2); !ok || maps > int64(maxSize/g.Block) {
			return nil, fmt.Errorf("bm: %d maps times %v of %v: must read at most %v", bmBins[bin].maps, g.Tasks, g.Block, maxSize)
		}
		took := g.MapTime[0] + time.Duration(uniform(seed, "bm-map-time", id, 0, float64(g.MapTime[1]-g.MapTime[0])))
		rate := units.RateOf(g.Block, took)
		p := program{block: g.Block, input: units.Bytes(maps) * g.Block, skew: g.PartitionSkew, mapRate: rate, sortRate: g.SortRate, reduceRate: rate}
		p.reduces = max(1, int(math.Round(float64(maps)*uniform(seed, "bm-reduces", id, g.Reduces[0], g.Reduces[1]))))
		p.shuffle = fraction(p.input, uniform(seed, "bm-keep-map", id, g.KeepMap[0], g.KeepMap[1]))
		p.output = fraction(p.shuffle, uniform(seed, "bm-keep-reduce", id, g.KeepReduce[0], g.KeepReduce[1]))
		if err := b.add(seed, Job{User: users.user(JobID(id)), Profile: fmt.Sprintf("bm%d", bin), Submit: at}, p, b.next); err != nil {
			return nil, fmt.Errorf("bm: job %d: %w", id, err)
		}
	}
	return b.jobs, Check(b.jobs, g.Limits)
}

// exponential returns the gap before a job, in whole microseconds.
func exponential(seed uint64, job int, mean time.Duration) time.Duration {
	gap := workloads.Stream(seed, "job-gap", job).ExpFloat64()
	return time.Duration(float64(gap*float64(mean))) / time.Microsecond * time.Microsecond
}

func uniform(seed uint64, purpose string, job int, from, to float64) float64 {
	return from + float64(workloads.Stream(seed, purpose, job).Float64()*(to-from))
}

// Profile is a program of a mix.
type Profile struct {
	Name   string
	Weight int    // share of jobs, relative to the other profiles
	Maps   [2]int // range of the number of maps, uniform by job; not used with Mix.Sizes
	// Reduces is the number of reduces relative to that of maps, rounded to the nearest and at
	// least one; 0 for a map-only job.
	Reduces float64
	// KeepMap is the ratio of the output of maps to their input, and KeepReduce that of reduces to
	// what they fetch. Map-only jobs write what maps keep.
	KeepMap, KeepReduce           float64
	MapRate, SortRate, ReduceRate units.Rate
}

// Mix is jobs of several profiles that arrive at random.
type Mix struct {
	Jobs int
	// Workers are users who submit their next job when their job has ended, 0 for none: job i is of worker
	// (i − 1) mod Workers, and all jobs of worker w have the user u and w + 1. Users is then not used.
	Workers  int
	Gap      time.Duration // mean between submissions; of workers, mean time between a job's end and the next submission
	Block    units.Bytes
	Profiles []Profile
	// Sizes are classes of the sizes of jobs, drawn without regard to the profile; none for Profile.Maps.
	Sizes []Size
	// Spread is the spread of the times of tasks, from 0 to MaxSpread: each consumes its input in the
	// time that follows from its rate times a factor from 1 − Spread to 1 + Spread, uniform by task.
	Spread        float64
	PartitionSkew float64
	Users         Users
	Limits        Limits
}

// DefaultMix returns 100 jobs of three profiles with equal weights. A scan is map-only and writes
// 0.5 % of its input, as the jobs of FAIR's measurements of delay scheduling. A sort keeps
// everything. An aggregate keeps a tenth, twice. The rest is our choice.
func DefaultMix() Mix {
	profile := func(name string, reduces, keepMap, keepReduce float64) Profile {
		return Profile{Name: name, Weight: 1, Maps: [2]int{1, 20}, Reduces: reduces, KeepMap: keepMap, KeepReduce: keepReduce,
			MapRate: DefaultMapRate, SortRate: DefaultSortRate, ReduceRate: DefaultReduceRate}
	}
	return Mix{Jobs: 100, Gap: 30 * time.Second, Block: DefaultBlock, Users: Users{Count: DefaultUsers},
		Profiles: []Profile{profile("scan", 0, 0.005, 0), profile("sort", 0.25, 1, 1), profile("aggregate", 0.1, 0.1, 0.1)}}
}

const (
	maxWeight   = 1_000_000
	maxProfiles = 1000
)

// Generate returns the jobs of the mix.
func (g Mix) Generate(seed uint64) ([]Job, error) {
	var c checks
	c.add(g.Jobs < 1 || g.Jobs > g.Limits.WithDefaults().Jobs, "%d jobs: must be 1 to %d", g.Jobs, g.Limits.WithDefaults().Jobs)
	c.gap(g.Gap)
	c.block(g.Block)
	c.skew("skew of partitions", g.PartitionSkew)
	c.users(g.Users)
	c.add(g.Workers < 0 || g.Workers > maxUsers, "%d workers: must be 0 to %d", g.Workers, maxUsers)
	c.add(!(g.Spread >= 0 && g.Spread <= MaxSpread), "spread %v: must be 0 to %v", g.Spread, MaxSpread)
	c.add(len(g.Profiles) < 1 || len(g.Profiles) > maxProfiles, "%d profiles: must be 1 to %d", len(g.Profiles), maxProfiles)
	var weights []int64
	for _, p := range g.Profiles {
		var own checks
		own.add(!validName(p.Name), "name: %s", nameRule)
		own.add(p.Weight < 0 || p.Weight > maxWeight, "weight %d: must be 0 to %d", p.Weight, maxWeight)
		own.add(len(g.Sizes) == 0 && !validMaps(p.Maps), "%s", mapsRule(p.Maps))
		own.add(!(p.Reduces >= 0 && p.Reduces <= 1), "reduces %v: must be 0 to 1, relative to maps", p.Reduces)
		own.span("share that maps keep", [2]float64{p.KeepMap, p.KeepMap}, 0, maxKeep)
		own.span("share that reduces keep", [2]float64{p.KeepReduce, p.KeepReduce}, 0, maxKeep)
		own.rates(map[string]units.Rate{"map rate": p.MapRate, "sort rate": p.SortRate, "reduce rate": p.ReduceRate})
		for _, err := range own {
			c.add(true, "profile %q: %w", units.Clip(p.Name), err)
		}
		weights = append(weights, int64(max(0, p.Weight)))
	}
	c.add(len(weights) > 0 && sum(weights) == 0, "all weights are 0: expected one above it")
	sizes := c.sizes(g.Sizes)
	if err := errors.Join(c...); err != nil {
		return nil, fmt.Errorf("mix: %w", err)
	}
	b, users := newBuilder(g.Limits), newDrawer(seed, g.Users)
	newest := make([]time.Duration, max(1, g.Workers)) // submission of each worker's newest job
	for id := 1; id <= g.Jobs; id++ {
		at := &newest[(id-1)%len(newest)]
		*at += exponential(seed, id, g.Gap)
		j := Job{User: users.user(JobID(id))}
		if g.Workers > 0 {
			j.User, j.After = fmt.Sprintf("u%d", 1+(id-1)%g.Workers), JobID(max(0, id-g.Workers))
		}
		is := g.Profiles[draw(workloads.Stream(seed, "mix-profile", id), weights)]
		maps := g.maps(seed, id, is, sizes)
		var err error
		if *at > maxTime || units.Bytes(maps) > maxSize/g.Block {
			err = fmt.Errorf("submitted at %v with %d maps of %v: must be at most %v and %v", *at, maps, g.Block, maxTime, maxSize)
		} else {
			p := program{block: g.Block, input: units.Bytes(maps) * g.Block, skew: g.PartitionSkew, mapRate: is.MapRate, sortRate: is.SortRate, reduceRate: is.ReduceRate, spread: g.Spread}
			if kept := fraction(p.input, is.KeepMap); is.Reduces == 0 {
				p.output = kept
			} else {
				p.shuffle, p.output = kept, fraction(kept, is.KeepReduce)
				p.reduces = max(1, int(math.Round(float64(maps)*is.Reduces)))
			}
			j.Profile, j.Submit = is.Name, *at
			err = b.add(seed, j, p, b.next)
		}
		if err != nil {
			return nil, fmt.Errorf("mix: job %d: %w", id, err)
		}
	}
	Order(b.jobs)
	return b.jobs, Check(b.jobs, g.Limits)
}

func sum(list []int64) (n int64) {
	for _, x := range list {
		n += x
	}
	return n
}

// Simulation is the workload of the simulation of the FAIR report (§5.3): 30 jobs with 1 to 400
// maps, Zipf, and one reduce to a fifth of the maps, uniform. The report states neither times nor
// arrivals: map and reduce times are those of our event model, and all jobs are submitted at the
// start unless there is a gap.
type Simulation struct {
	Jobs          int
	Gap           time.Duration // mean between submissions
	MaxMaps       int
	Exponent      float64 // of the Zipf distribution of maps
	Block         units.Bytes
	MapTime       time.Duration
	ReduceTime    time.Duration // of the average reduce, after its fetches
	KeepMap       float64
	KeepReduce    float64
	PartitionSkew float64
	Users         Users
	Limits        Limits
}

// DefaultSimulation returns the workload of the report. Each job has an own user on average.
func DefaultSimulation() Simulation {
	return Simulation{Jobs: 30, MaxMaps: 400, Exponent: 1, Block: DefaultBlock, MapTime: 10 * time.Second, ReduceTime: 20 * time.Second,
		KeepMap: 1, KeepReduce: 1, Users: Users{Count: DefaultUsers}}
}

// Generate returns the jobs of the simulation.
func (g Simulation) Generate(seed uint64) ([]Job, error) {
	var c checks
	c.add(g.Jobs < 1 || g.Jobs > g.Limits.WithDefaults().Jobs, "%d jobs: must be 1 to %d", g.Jobs, g.Limits.WithDefaults().Jobs)
	c.gap(g.Gap)
	c.block(g.Block)
	c.add(g.MaxMaps < 1 || g.MaxMaps > maxZipf, "at most %d maps: must be 1 to %d", g.MaxMaps, maxZipf)
	c.skew("exponent", g.Exponent)
	c.add(g.MapTime < time.Microsecond || g.MapTime > maxTime || g.ReduceTime < time.Microsecond || g.ReduceTime > maxTime, "map time %v, reduce time %v: must be 1µs to %v", g.MapTime, g.ReduceTime, maxTime)
	c.span("share that maps keep", [2]float64{g.KeepMap, g.KeepMap}, 0, maxKeep)
	c.span("share that reduces keep", [2]float64{g.KeepReduce, g.KeepReduce}, 0, maxKeep)
	c.skew("skew of partitions", g.PartitionSkew)
	c.users(g.Users)
	if err := errors.Join(c...); err != nil {
		return nil, fmt.Errorf("simulation: %w", err)
	}
	b, users := newBuilder(g.Limits), newDrawer(seed, g.Users)
	weights := zipf(g.MaxMaps, g.Exponent)
	var at time.Duration
	for id := 1; id <= g.Jobs; id++ {
		at += exponential(seed, id, g.Gap)
		maps := 1 + draw(workloads.Stream(seed, "simulation-maps", id), weights)
		var err error
		if at > maxTime || units.Bytes(maps) > maxSize/g.Block {
			err = fmt.Errorf("submitted at %v with %d maps of %v: must be at most %v and %v", at, maps, g.Block, maxTime, maxSize)
		} else {
			p := program{block: g.Block, input: units.Bytes(maps) * g.Block, skew: g.PartitionSkew, mapRate: units.RateOf(g.Block, g.MapTime)}
			p.reduces = 1 + workloads.Stream(seed, "simulation-reduces", id).IntN(max(1, maps/5))
			p.shuffle = fraction(p.input, g.KeepMap)
			p.output = fraction(p.shuffle, g.KeepReduce)
			p.reduceRate = units.RateOf(p.shuffle/units.Bytes(p.reduces), g.ReduceTime)
			err = b.add(seed, Job{User: users.user(JobID(id)), Profile: "simulation", Submit: at}, p, b.next)
		}
		if err != nil {
			return nil, fmt.Errorf("simulation: job %d: %w", id, err)
		}
	}
	return b.jobs, Check(b.jobs, g.Limits)
}

const maxZipf = 1_000_000
