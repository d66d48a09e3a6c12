package jobs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
)

// binTasks are the ranges of the numbers of tasks of a job in the bins of the Dolly report (NSDI 2013, evaluation). The last
// ends where the smallest 90 % of the jobs have about the report's share of the tasks.
var binTasks = [...][2]int{{1, 10}, {11, 50}, {51, 150}, {151, 500}, {501, DefaultLargest}}

// binWorkloads are the shares of jobs in the bins, in %. Those of the first bin are the report's. The others are ours: with
// them, the smallest 90 % of the jobs have 6 and 11 % of all tasks, which are the report's shares of resources.
var binWorkloads = []struct {
	name   string
	shares [len(binTasks)]int
}{
	{"facebook", [...]int{82, 8, 5, 3, 2}},
	{"bing", [...]int{61, 23, 10, 3, 3}},
}

// BinWorkloads returns the names of the workloads of Bins.
func BinWorkloads() (names []string) {
	for _, w := range binWorkloads {
		names = append(names, w.name)
	}
	return names
}

// Bins is the workload of the Dolly report: chains of stages whose numbers of tasks have a heavy tail. The report states the
// bins, the share of jobs of at most 10 tasks, and the share of resources of the smallest 90 %.
type Bins struct {
	Jobs     int
	Workload string // one of BinWorkloads
	// Smallest and Largest are the bounds of the number of tasks of a job. Bins keep their shares of jobs: those below
	// and above have jobs of these numbers.
	Smallest, Largest int
	// Phases is the number of stages of a job with at least as many tasks, in which each stage after the first fetches
	// the output of the one before. Smaller jobs have one stage for each task. A job of one stage has only maps.
	Phases int
	// Pattern is that of all later stages. OneToOne has equally many tasks in all stages of a job, rounded down.
	Pattern Pattern
	// Reduces is the number of tasks of each later stage relative to that of maps, rounded; at least one, and at
	// most as many as in the stage before.
	Reduces float64
	// Gap is the mean time between submissions. Busy replaces it if it is positive: it is the mean number of slots that tasks use from
	// the first submission to the last, on idle links, without stragglers and further attempts.
	Gap  time.Duration
	Busy float64
	// Block is the input of a map, which consumes it at MapRate. Tasks of later stages take as long to compute.
	Block   units.Bytes
	MapRate units.Rate
	// Shuffle is the part of the time of a job with one task a slot in which it fetches, at the rate NIC. The size of fetches follows from it.
	Shuffle float64
	NIC     units.Rate
	// Spread and PartitionSkew are those of Mix.
	Spread        float64
	PartitionSkew float64
	Users         Users
	Limits        Limits
}

// The defaults of Bins that others do not share.
const (
	DefaultLargest    = 10_000
	defaultBinReduces = 0.5
	defaultBinMapRate = 160 * units.Mbps // 6.4 s a block
	defaultBinShuffle = 0.25             // the report's small jobs fetch in a quarter of their time
	defaultBinNIC     = units.Gbps       // the report's
)

const (
	binKeep       = 0.01 // output written by a last stage, relative to its input; the report counts none
	maxBinShuffle = 0.9
	maxBusy       = 1e9
)

// DefaultBinJobs returns 1000 jobs of the workload facebook, with maps and reduces.
func DefaultBinJobs() Bins {
	return Bins{Jobs: 1000, Workload: binWorkloads[0].name, Smallest: 1, Largest: DefaultLargest, Phases: 2, Reduces: defaultBinReduces, Gap: 30 * time.Second, Block: DefaultBlock,
		MapRate: defaultBinMapRate, Shuffle: defaultBinShuffle, NIC: defaultBinNIC, Users: Users{Count: DefaultUsers}}
}

// Generate returns the jobs. The profile is bin and the number of the bin, from 1.
func (g Bins) Generate(seed uint64) ([]Job, error) {
	var c checks
	l := g.Limits.WithDefaults()
	c.add(g.Jobs < 1 || g.Jobs > l.Jobs, "%d jobs: must be 1 to %d", g.Jobs, l.Jobs)
	at := slices.Index(BinWorkloads(), g.Workload)
	c.add(at < 0, "workload %q: must be %s", units.Clip(g.Workload), words.Or(BinWorkloads()))
	c.add(g.Smallest < 1 || g.Largest < g.Smallest || g.Largest > DefaultLargest, "%d to %d tasks: must be 1 to %d, ascending", g.Smallest, g.Largest, DefaultLargest)
	c.add(g.Phases < 1 || g.Phases > l.Stages, "%d phases: must be 1 to %d", g.Phases, l.Stages)
	c.add(g.Pattern < 0 || int(g.Pattern) >= len(Patterns()), "pattern %d: must be 0 to %d", int(g.Pattern), len(Patterns())-1)
	c.add(g.Pattern != AllToAll && g.PartitionSkew > 0, "skew of partitions %v: must be 0 with another pattern than %v", g.PartitionSkew, AllToAll)
	c.span("reduces, relative to maps,", [2]float64{g.Reduces, g.Reduces}, 0, 1)
	c.gap(g.Gap)
	c.add(!(g.Busy >= 0 && g.Busy <= maxBusy), "%v busy slots: must be 0, for the gap, to %v", g.Busy, maxBusy)
	c.block(g.Block)
	c.add(g.MapRate < 1 || g.MapRate > maxRate, "map rate %v: must be 1bps to %v", g.MapRate, maxRate)
	c.span("shuffle", [2]float64{g.Shuffle, g.Shuffle}, 0, maxBinShuffle)
	c.add(g.NIC < 1 || g.NIC > maxRate, "NIC %v: must be 1bps to %v", g.NIC, maxRate)
	c.add(!(g.Spread >= 0 && g.Spread <= MaxSpread), "spread %v: must be 0 to %v", g.Spread, MaxSpread)
	c.skew("skew of partitions", g.PartitionSkew)
	c.users(g.Users)
	if err := errors.Join(c...); err != nil {
		return nil, fmt.Errorf("bins: %w", err)
	}
	var weights []int64
	for _, n := range binWorkloads[at].shares {
		weights = append(weights, int64(n))
	}
	b, users := newBuilder(g.Limits), newDrawer(seed, g.Users)
	var busy float64 // slots times time
	for id := 1; id <= g.Jobs; id++ {
		r := workloads.Stream(seed, "bins-size", id)
		bin := draw(r, weights)
		chain := g.chain(seed, id, g.counts(logUniform(r, [2]int{g.within(binTasks[bin][0]), g.within(binTasks[bin][1])})))
		if err := b.addStages(seed, Job{User: users.user(JobID(id)), Profile: fmt.Sprintf("bin%d", bin+1), Stages: chain}, g.Spread); err != nil {
			return nil, fmt.Errorf("bins: job %d: %w", id, err)
		}
		for s := range chain {
			took := float64(g.taskTime())
			if s > 0 {
				took += float64(g.NIC.TimeToSend(g.fetched(len(chain))))
			}
			busy += float64(took * float64(len(chain[s].Tasks)))
		}
	}
	if g.Busy > 0 {
		g.Gap = time.Duration(busy / (g.Busy * float64(g.Jobs)))
	}
	c.gap(g.Gap)
	if err := errors.Join(c...); err != nil {
		return nil, fmt.Errorf("bins: %v busy slots: %w", g.Busy, err)
	}
	var submit time.Duration
	for i := range b.jobs {
		submit += exponential(seed, i+1, g.Gap)
		b.jobs[i].Submit = submit
	}
	return b.jobs, Check(b.jobs, g.Limits)
}

// within returns the nearest number of tasks that a job may have.
func (g Bins) within(tasks int) int { return min(max(tasks, g.Smallest), g.Largest) }

// taskTime returns the time that a task computes.
func (g Bins) taskTime() time.Duration { return g.MapRate.TimeToSend(g.Block) }

// fetched returns what a task of a stage after the first fetches, in a job with a number of stages.
func (g Bins) fetched(stages int) units.Bytes {
	if stages == 1 {
		return 0
	}
	fetches := float64(g.taskTime()) * float64(stages) * g.Shuffle / (1 - g.Shuffle) // the time of all of them, one after another
	return max(1, g.NIC.BytesIn(time.Duration(fetches/float64(stages-1))))
}

// counts divides the tasks of a job among its stages.
func (g Bins) counts(tasks int) []int {
	later := min(g.Phases, tasks) - 1
	switch {
	case later == 0:
		return []int{tasks}
	case g.Pattern == OneToOne:
		return slices.Repeat([]int{tasks / (later + 1)}, later+1)
	}
	maps := int(math.Round(float64(tasks) / (1 + float64(later)*g.Reduces)))
	maps = min(max(maps, (tasks+later)/(later+1)), tasks-later)
	out := []int{maps}
	for _, n := range splitEven(units.Bytes(tasks-maps), later) {
		out = append(out, int(n))
	}
	return out
}

// chain returns stages with these numbers of tasks. All tasks of a stage have equal outputs and share a slice.
func (g Bins) chain(seed uint64, id int, counts []int) []Stage {
	fetched := g.fetched(len(counts))
	out := make([]Stage, len(counts))
	for s, n := range counts {
		task := Task{InputSize: g.Block, Rate: g.MapRate}
		in := g.Block
		if s > 0 {
			out[s].Kind, out[s].From, out[s].Pattern = Reduce, []int{s - 1}, g.Pattern
			task, in = Task{Rate: max(1, units.RateOf(fetched, g.taskTime()))}, fetched
		}
		switch {
		case s+1 == len(counts):
			task.Writes = fraction(in, binKeep)
		case g.Pattern == AllToAll:
			next := counts[s+1]
			total := (fetched*units.Bytes(next) + units.Bytes(n) - 1) / units.Bytes(n)
			task.Output = split(total, next, shuffledZipf(workloads.Stream(seed, "bins-partitions", id, s), next, g.PartitionSkew))
		}
		out[s].Tasks = slices.Repeat([]Task{task}, n)
	}
	for s := range counts[1:] {
		if g.Pattern != AllToAll {
			g.connect(out[s].Tasks, counts[s+1], fetched)
		}
	}
	return out
}

// connect gives tasks their outputs for n tasks, of which each fetches a size from its own ones, in equal parts.
func (g Bins) connect(tasks []Task, n int, fetched units.Bytes) {
	for to := range n {
		var from []int
		for i := range tasks {
			if g.Pattern.Fetches(i, len(tasks), to, n) {
				from = append(from, i)
			}
		}
		for k, part := range splitEven(fetched, len(from)) {
			out := make([]units.Bytes, n)
			out[to] = part
			tasks[from[k]].Output = out
		}
	}
}
