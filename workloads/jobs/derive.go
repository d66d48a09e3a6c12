package jobs

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Rules derive the tasks of jobs from totals. Every value is an assumption: traces such as SWIM
// state totals only. DefaultRules has the defaults, for which docs/job-workloads.md states the
// reasons.
type Rules struct {
	// Block is the input of a map: a job has input / Block of them, rounded up and at least one.
	// The last map reads the rest, at least one byte.
	Block units.Bytes
	// MaxMaps bounds the maps of a job; 0 for no bound. Of a job with more, only that share of the
	// input, shuffle and output is kept, so that their ratios and the size of a map stay the same.
	MaxMaps int
	// PerReduce is the shuffle of a reduce: a job that shuffles has shuffle / PerReduce reduces,
	// rounded up, and at most MaxReduces.
	PerReduce  units.Bytes
	MaxReduces int
	// MapRate, SortRate and ReduceRate are Task.Rate of maps, and Task.SortRate and Task.Rate of
	// reduces; 0 for immediately.
	MapRate, SortRate, ReduceRate units.Rate
	// PartitionSkew is the Zipf exponent of the shares of reduces in the shuffle and the output
	// of their job, in random order; 0 for equal shares.
	PartitionSkew float64
	Users         Users
	Limits        Limits
}

// Users draw the owner of each job.
type Users struct {
	Count int     // named u1, u2, …
	Skew  float64 // Zipf exponent of their shares of jobs; 0 for equal shares
}

// The defaults of Rules and generators.
const (
	DefaultBlock      = 128 * units.MB   // Facebook's, in the measurements of the FAIR report
	DefaultPerReduce  = units.GB         // hive.exec.reducers.bytes.per.reducer of the time
	DefaultMaxReduces = 999              // hive.exec.reducers.max of the time
	DefaultMapRate    = 64 * units.Mbps  // 8 MB/s: 16 s a block, within the 9–60 s of the FAIR report
	DefaultReduceRate = 64 * units.Mbps  // as maps
	DefaultSortRate   = 400 * units.Mbps // 50 MB/s, about that of one disk
	DefaultUsers      = 30               // as many as ShuffleWatcher's evaluation (USENIX ATC 2014)
)

// DefaultRules returns the default rules.
func DefaultRules() Rules {
	return Rules{Block: DefaultBlock, PerReduce: DefaultPerReduce, MaxReduces: DefaultMaxReduces,
		MapRate: DefaultMapRate, SortRate: DefaultSortRate, ReduceRate: DefaultReduceRate, Users: Users{Count: DefaultUsers}}
}

// Limits of settings.
const (
	maxUsers = 100_000
	maxSkew  = 10.0
	// MaxSpread is the largest Mix.Spread: the longest time is then 19 times the shortest.
	MaxSpread = 0.9
)

// checks collects the errors of settings.
type checks []error

func (c *checks) add(bad bool, format string, args ...any) {
	if bad {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

func (c *checks) rates(named map[string]units.Rate) {
	for _, name := range []string{"map rate", "sort rate", "reduce rate"} {
		r := named[name]
		c.add(r < 0 || r > maxRate, "%s %v: must be 0, for immediately, to %v", name, r, maxRate)
	}
}

func (c *checks) skew(what string, s float64) {
	c.add(!(s >= 0 && s <= maxSkew), "%s %v: must be 0 to %v", what, s, maxSkew) // true for NaN
}

func (c *checks) block(b units.Bytes) {
	c.add(b < 1 || b > maxSize, "block %v: must be 1B to %v", b, maxSize)
}

func (c *checks) users(u Users) {
	c.add(u.Count < 1 || u.Count > maxUsers, "%d users: must be 1 to %d", u.Count, maxUsers)
	c.skew("skew of users", u.Skew)
}

// drawer draws the users of jobs.
type drawer struct {
	seed  uint64
	users []int64 // weights
}

func newDrawer(seed uint64, u Users) drawer { return drawer{seed, zipf(u.Count, u.Skew)} }

// user returns the owner of a job, which depends on the seed and the job alone.
func (d drawer) user(id JobID) string {
	return fmt.Sprintf("u%d", 1+draw(workloads.Stream(d.seed, "job-user", int(id)), d.users))
}

// program is the totals of a MapReduce job, from which its tasks follow.
type program struct {
	block                         units.Bytes // input of a map
	input, shuffle, output        units.Bytes
	reduces                       int     // 0 for a map-only job
	skew                          float64 // Zipf exponent of the shares of reduces
	mapRate, sortRate, reduceRate units.Rate
	spread                        float64 // of the times of tasks
}

// maps returns the number of maps.
func (p program) maps() int {
	return int(max(1, (p.input+p.block-1)/p.block))
}

// stages returns the stages of a program whose maps read blocks from a number on, with the shares
// of reduces drawn from rng. Maps of a whole block have equal output and share its slice.
func (p program) stages(first workloads.BlockID, rng *rand.Rand) []Stage {
	n := p.maps()
	weights := shuffledZipf(rng, p.reduces, p.skew)
	// share returns a map's part of a total in proportion to its input. The last map has what is
	// left by rounding.
	share := func(total units.Bytes) (whole, last units.Bytes) {
		if n > 1 {
			whole = part(total, int64(p.block), int64(p.input))
		}
		return whole, total - whole*units.Bytes(n-1)
	}
	maps := Stage{Kind: Map, Tasks: make([]Task, n)}
	whole := Task{InputSize: p.block, Rate: p.mapRate}
	last := Task{InputSize: max(1, p.input-p.block*units.Bytes(n-1)), Rate: p.mapRate}
	if p.reduces == 0 {
		whole.Writes, last.Writes = share(p.output)
	} else {
		a, b := share(p.shuffle)
		if last.Output = split(b, p.reduces, weights); n > 1 {
			whole.Output = last.Output
			if a != b {
				whole.Output = split(a, p.reduces, weights)
			}
		}
	}
	for i := range maps.Tasks {
		maps.Tasks[i] = whole
		if i == n-1 {
			maps.Tasks[i] = last
		}
		maps.Tasks[i].Input = first + workloads.BlockID(i)
	}
	if p.reduces == 0 {
		return []Stage{maps}
	}
	reduces := Stage{Kind: Reduce, From: []int{0}, Tasks: make([]Task, p.reduces)}
	for i, w := range split(p.output, p.reduces, weights) {
		reduces.Tasks[i] = Task{Rate: p.reduceRate, SortRate: p.sortRate, Writes: w}
	}
	return []Stage{maps, reduces}
}

// builder collects the jobs of a workload.
type builder struct {
	usage
	jobs []Job
	next workloads.BlockID // input blocks are numbered from 0, in order of jobs
}

func newBuilder(l Limits) *builder { return &builder{usage: usage{limits: l.WithDefaults()}} }

// add adds a job with the next ID, whose maps read blocks from a number on, unless it exceeds a limit.
func (b *builder) add(seed uint64, j Job, p program, first workloads.BlockID) error {
	j.ID = JobID(len(b.jobs) + 1)
	fits := usage{limits: b.limits, jobs: b.usage.jobs + 1, tasks: b.tasks + p.maps() + p.reduces, outputs: b.outputs + 2*p.reduces}
	if err := fits.check(); err != nil {
		return err
	}
	j.Stages = p.stages(first, workloads.Stream(seed, "job-partitions", int(j.ID)))
	return b.append(seed, j, p.spread)
}

// addStages is add for a job whose stages are given. Tasks of its first stage read blocks.
func (b *builder) addStages(seed uint64, j Job, spread float64) error {
	j.ID = JobID(len(b.jobs) + 1)
	for i := range j.Stages[0].Tasks {
		j.Stages[0].Tasks[i].Input = b.next + workloads.BlockID(i)
	}
	return b.append(seed, j, spread)
}

func (b *builder) append(seed uint64, j Job, spread float64) error {
	if spread > 0 {
		spreadTimes(seed, &j, spread)
	}
	tasks := j.Stages[0].Tasks
	b.next = max(b.next, tasks[0].Input+workloads.BlockID(len(tasks)))
	if err := b.job(&j); err != nil {
		return err
	}
	b.jobs = append(b.jobs, j)
	return nil
}

// spreadTimes multiplies the time in which each task consumes its input by a factor from 1 − spread to
// 1 + spread, uniform, which depends on the seed and the task alone.
func spreadTimes(seed uint64, j *Job, spread float64) {
	for s := range j.Stages {
		for i := range j.Stages[s].Tasks {
			if t := &j.Stages[s].Tasks[i]; t.Rate > 0 {
				factor := 1 - spread + float64(2*spread*workloads.Stream(seed, "task-spread", int(j.ID), s, i).Float64())
				t.Rate = units.Rate(max(1, math.Round(float64(t.Rate)/factor)))
			}
		}
	}
}

func (r Rules) check() error {
	var c checks
	c.block(r.Block)
	c.add(r.MaxMaps < 0, "at most %d maps: must be 1 or more, or 0 for no bound", r.MaxMaps)
	c.add(r.PerReduce < 1 || r.PerReduce > maxSize, "%v a reduce: must be 1B to %v", r.PerReduce, maxSize)
	c.add(r.MaxReduces < 1 || r.MaxReduces > maxNumber, "at most %d reduces: must be 1 to %d", r.MaxReduces, maxNumber)
	c.rates(map[string]units.Rate{"map rate": r.MapRate, "sort rate": r.SortRate, "reduce rate": r.ReduceRate})
	c.skew("skew of partitions", r.PartitionSkew)
	c.users(r.Users)
	return errors.Join(c...)
}

// input is a file that jobs read. Jobs that state the same path and another size do not read the same
// data: the file was replaced, or they read a part of it.
type input struct {
	path string
	size units.Bytes
}

// Derive returns a job for each record, in order, with users and partitions drawn from the seed.
// Records with the same path and size of input read the same blocks.
// The draws of a job depend on its number alone: the first jobs of a longer trace are the same.
func Derive(records []Record, r Rules, seed uint64) ([]Job, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("derive jobs: %w", err)
	}
	b := newBuilder(r.Limits)
	users := newDrawer(seed, r.Users)
	first := map[input]workloads.BlockID{}
	var last time.Duration
	for i, rec := range records {
		var c checks
		c.add(rec.Submit < last || rec.Submit > maxTime, "submitted at %v after %v: must be in order, up to %v", rec.Submit, last, maxTime)
		for _, n := range []units.Bytes{rec.Input, rec.Shuffle, rec.Output} {
			c.add(n < 0 || n > maxSize, "size %v: must be 0B to %v", n, maxSize)
		}
		id := JobID(i + 1)
		err := errors.Join(c...)
		if err == nil {
			last = rec.Submit
			in, at := input{rec.Path, rec.Input}, b.next
			if known, again := first[in]; again && rec.Path != "" {
				at = known
			} else {
				first[in] = at
			}
			err = b.add(seed, Job{User: users.user(id), Profile: profileOf(rec), Submit: rec.Submit}, r.program(rec), at)
		}
		if err != nil {
			return nil, fmt.Errorf("derive jobs: job %d of %d, %s: %w", id, len(records), rec.Name, err)
		}
	}
	return b.jobs, nil
}

func (r Rules) program(rec Record) program {
	p := program{block: r.Block, input: rec.Input, shuffle: rec.Shuffle, output: rec.Output, skew: r.PartitionSkew, mapRate: r.MapRate, sortRate: r.SortRate, reduceRate: r.ReduceRate}
	if r.MaxMaps > 0 && p.maps() > r.MaxMaps {
		kept, _, _ := mulDiv(int64(r.Block), int64(r.MaxMaps), 1) // less than the input
		p.input = units.Bytes(kept)
		p.shuffle, p.output = part(p.shuffle, kept, int64(rec.Input)), part(p.output, kept, int64(rec.Input))
		if rec.Shuffle > 0 {
			p.shuffle = max(1, p.shuffle)
		}
	}
	if p.shuffle > 0 {
		p.reduces = int(min((p.shuffle+r.PerReduce-1)/r.PerReduce, units.Bytes(r.MaxReduces)))
	}
	return p
}

// Profiles of derived jobs, by the ratio of shuffle to input.
const (
	ProfileMapOnly   = "map-only"  // no shuffle
	ProfileAggregate = "aggregate" // less than a tenth
	ProfileTransform = "transform" // a tenth to twice
	ProfileExpand    = "expand"    // more
)

func profileOf(r Record) string {
	switch {
	case r.Shuffle == 0:
		return ProfileMapOnly
	case 10*r.Shuffle < r.Input:
		return ProfileAggregate
	case r.Shuffle <= 2*r.Input:
		return ProfileTransform
	}
	return ProfileExpand
}

// fraction returns a share of a size, to the nearest byte, and at most the limit of a workload.
func fraction(n units.Bytes, share float64) units.Bytes {
	return units.Bytes(math.Round(min(float64(float64(n)*share), float64(maxTotal))))
}
