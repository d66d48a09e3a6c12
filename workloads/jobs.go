package workloads

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// JobSpec specifies jobs that shuffle and then write the output of their reducers, and jobs
// that only write, as in a trace of a cluster's writes.
//
// Every draw is keyed by its purpose and the number of the job, so changing one field only
// changes the property that it describes: with more jobs the first ones are the same, with
// another rate they arrive at the same multiples of the mean gap.
type JobSpec struct {
	// Key identifies the spec within a workload: specs with different keys have
	// independent random draws.
	Key   int
	Count int
	// Start is the begin of the Poisson process of arrivals. The mean gap is Interval or,
	// alternatively, follows from Load, a share of the fabric's Inward capacity; see
	// JobReport.Interval.
	Start    time.Duration
	Interval time.Duration
	Load     float64
	Bins     []JobBin // nil for SinbadBins
	// Mappers and Reducers are the ranges of their numbers in a job with a shuffle,
	// inclusive, drawn uniformly. They are on different hosts, so a shuffle is entirely on
	// the wire. A job has at most as many reducers as blocks to write.
	Mappers, Reducers [2]int
	// Writers is the range of the number of writers of a job that only writes, on different
	// hosts, and Blocks the range of the blocks that each writes, inclusive.
	Writers, Blocks [2]int
	// Output is the average size that a job writes, over all bins, without replicas. With 0
	// it follows from Writers and Blocks, so that jobs that only write have their share of
	// the bytes.
	Output   units.Bytes
	Block    units.Bytes
	Replicas int
	Packet   units.Bytes // of blocks that are larger
	Window   int         // packets
	// WholeBlocks rounds files up to whole blocks. Otherwise the last block of a file has
	// the remaining size.
	WholeBlocks bool
	// Small is the share of small blocks among all blocks, in [0, 1): additional files,
	// each after a block of the output, of a random size up to SmallBlock. They do not
	// count in the shares of bins.
	Small      float64
	SmallBlock units.Bytes
	// ShuffleRate and WriteRate are the assumed rates of a reducer on an idle cluster. They
	// convert the share of a job's time in which it writes into bytes to shuffle.
	ShuffleRate, WriteRate units.Rate
	// Avoid returns the leaves that reducers and writers avoid at a given time; nil for none.
	Avoid func(at time.Duration) []topo.RackID
	// MaxFlows and MaxBlocks, without small blocks, are the maximum numbers, ErrTooManyFlows
	// or ErrTooManyBlocks above them; 0 for no limit.
	MaxFlows, MaxBlocks int
}

// ErrTooManyBlocks is the error of jobs with more blocks than JobSpec.MaxBlocks.
var ErrTooManyBlocks = errors.New("too many blocks")

// JobBin is one class of jobs, by the share of its time in which a job writes.
type JobBin struct {
	Jobs  int // share of the jobs, relative to the other bins'
	Bytes int // share of the bytes written, relative to the other bins'
	// From and To are the range of the share of a job's time in which it writes, on an
	// idle cluster, drawn uniformly for each job. 1 and 1 mean jobs that only write.
	From, To float64
}

// onlyWrites reports whether the jobs of the bin have no shuffle.
func (b JobBin) onlyWrites() bool { return b.From == 1 }

// SinbadBins are the five bins of the workload in the evaluation of Sinbad (SIGCOMM 2013),
// by the fraction of a job's duration in which it writes: below 25 %, below 50 %, below
// 75 %, below 90 %, and more. The last bin has ingest and preprocessing jobs, without a
// shuffle. The paper does not report the distribution of fractions within a bin. The
// minimum of 10 %, below which shuffles would dominate, is our choice.
func SinbadBins() []JobBin {
	return []JobBin{{52, 67, 0.10, 0.25}, {12, 3, 0.25, 0.50}, {16, 22, 0.50, 0.75}, {8, 3, 0.75, 0.90}, {12, 5, 1, 1}}
}

// JobReport describes the jobs that were drawn from a JobSpec.
type JobReport struct {
	// Interval is the mean gap between arrivals. With Load it is the time in which that
	// share of the fabric's Inward capacity carries Entering, divided by the number of
	// jobs.
	Interval time.Duration
	// Entering is the expected number of bytes that enter racks: of shuffles between random
	// hosts, and one copy of every block of two replicas or more, as under HDFS's
	// placement. On one rack or switch it is the number of bytes that enter hosts.
	Entering units.Bytes
	// Load is Entering as a share of the capacity of Inward in Count mean gaps.
	Load float64
	// Shuffled, Written and Small are bytes. Written and Small exclude replicas, and
	// Written excludes Small.
	Shuffled, Written, Small units.Bytes
}

// Inward returns the capacity of a fabric toward its racks, or toward its hosts if it has
// one rack. Loads are relative to it.
func Inward(f *topo.Fabric) units.Rate {
	var total units.Rate
	for r := range topo.RackID(f.Racks()) {
		total += inwardOf(f, r)
	}
	return total
}

func inwardOf(f *topo.Fabric, r topo.RackID) units.Rate {
	var total units.Rate
	if f.Racks() == 1 {
		for i := range f.Hosts() {
			total += f.Link(f.HostDown(topo.HostID(i))).Rate
		}
		return total
	}
	for s := range f.Spines() {
		total += f.Link(f.LeafDown(r, s)).Rate
	}
	return total
}

// jobDraw is a job without hosts and arrival.
type jobDraw struct {
	bin               int
	mappers, reducers int
	blocks            []float64   // that each reducer or writer writes
	flow              units.Bytes // from each mapper to each reducer
}

// Jobs draws the jobs of a spec from a seed: coflows, writers, which follow a coflow or not,
// and the list of jobs. All IDs count up, JobIDs from 1 and others
// from 0, in order of arrival.
func Jobs(s JobSpec, f *topo.Fabric, seed uint64) (Workload, JobReport, error) {
	if s.Bins == nil {
		s.Bins = SinbadBins()
	}
	if err := s.check(f); err != nil {
		return Workload{}, JobReport{}, err
	}
	var report JobReport
	draws := make([]jobDraw, s.Count)
	bins := s.binsOf(seed)
	entering, flows, blocks := 0.0, 0.0, 0.0
	for i := range draws {
		draws[i] = s.draw(seed, i, bins[i])
		d := draws[i]
		flows += float64(d.mappers * d.reducers)
		for _, x := range d.blocks {
			blocks += math.Ceil(x)
		}
		if s.MaxFlows > 0 && flows > float64(s.MaxFlows) {
			return Workload{}, report, fmt.Errorf("jobs: %w: %.0f in the first %d jobs, the limit is %d", ErrTooManyFlows, flows, i+1, s.MaxFlows)
		}
		if s.MaxBlocks > 0 && blocks > float64(s.MaxBlocks) {
			return Workload{}, report, fmt.Errorf("jobs: %w: %.0f in the first %d jobs, the limit is %d", ErrTooManyBlocks, blocks, i+1, s.MaxBlocks)
		}
		shuffled := float64(d.flow) * float64(d.mappers*d.reducers)
		written := 0.0
		for _, x := range d.blocks {
			written += float64(x * float64(s.Block))
		}
		if shuffled+written > maxWorkloadSize {
			return Workload{}, report, fmt.Errorf("jobs: a job moves more than %v: use smaller blocks, less output or a lower shuffle rate", units.Bytes(maxWorkloadSize))
		}
		entering += s.entering(f, shuffled, written)
	}
	if entering > maxWorkloadSize {
		return Workload{}, report, fmt.Errorf("jobs: they move more than %v in total: use fewer or smaller jobs", units.Bytes(maxWorkloadSize))
	}
	inward := float64(Inward(f))
	interval := float64(s.Interval)
	if s.Load > 0 {
		interval = 8 * entering / inward / s.Load / float64(s.Count) * float64(time.Second)
	}
	if interval*float64(s.Count)*40 > float64(maxWorkloadTime) { // no gap is 40 times the mean
		return Workload{}, report, fmt.Errorf("jobs: %d of them, %v apart, arrive over more than %v: use fewer jobs or a shorter interval", s.Count, time.Duration(min(interval, float64(maxWorkloadTime))), maxWorkloadTime)
	}
	report.Interval, report.Entering = time.Duration(interval), units.Bytes(entering)
	report.Load = 8 * entering / inward / (interval * float64(s.Count) / float64(time.Second))

	w := Workload{}
	at := s.Start
	for i, d := range draws {
		gap := Stream(seed, "job-gap", s.Key, i).ExpFloat64()
		at += time.Duration(gap*interval) / time.Microsecond * time.Microsecond
		if err := s.add(&w, &report, f, seed, i, at, d); err != nil {
			return Workload{}, report, err
		}
	}
	slices.SortStableFunc(w.Writers, func(a, b Writer) int { return cmp.Compare(a.Start, b.Start) })
	w.number()
	return w, report, nil
}

// binPeriod is the number of jobs after which each bin has its share, as nearly as
// possible: a multiple of 25, the minimum for SinbadBins.
const binPeriod = 25

// binsOf returns the bin of each job. The next job goes to the bin that is furthest below
// its share; jobs are shuffled within every binPeriod jobs.
func (s JobSpec) binsOf(seed uint64) []int {
	total := 0
	for _, b := range s.Bins {
		total += b.Jobs
	}
	owed := make([]int, len(s.Bins))
	var bins []int
	for period := 0; len(bins) < s.Count; period++ {
		dealt := make([]int, binPeriod)
		for i := range dealt {
			next := 0
			for b := range owed {
				owed[b] += s.Bins[b].Jobs
				if owed[b] > owed[next] {
					next = b
				}
			}
			owed[next] -= total
			dealt[i] = next
		}
		Stream(seed, "job-bins", s.Key, period).Shuffle(binPeriod, func(i, j int) { dealt[i], dealt[j] = dealt[j], dealt[i] })
		bins = append(bins, dealt...)
	}
	return bins[:s.Count]
}

// inRange draws from an inclusive range.
func inRange(rng *rand.Rand, r [2]int) int { return r[0] + rng.IntN(r[1]-r[0]+1) }

// draw draws the properties of a job that do not depend on the fabric. Sizes are drawn in
// blocks, so that a workload at half the rates and sizes has the same draws.
func (s JobSpec) draw(seed uint64, i, bin int) jobDraw {
	d := jobDraw{bin: bin}
	b := s.Bins[bin]
	if b.onlyWrites() {
		writers := inRange(Stream(seed, "job-writers", s.Key, i), s.Writers)
		for w := range writers {
			x := float64(inRange(Stream(seed, "job-blocks", s.Key, i, w), s.Blocks))
			if !s.WholeBlocks {
				x -= Stream(seed, "job-partial", s.Key, i, w).Float64()
			}
			d.blocks = append(d.blocks, x)
		}
		return d
	}
	total := s.meanBlocks(bin) * (0.5 + Stream(seed, "job-size", s.Key, i).Float64())
	d.mappers = inRange(Stream(seed, "job-mappers", s.Key, i), s.Mappers)
	d.reducers = inRange(Stream(seed, "job-reducers", s.Key, i), s.Reducers)
	d.reducers = min(d.reducers, max(1, int(math.Ceil(total))))
	each := total / float64(d.reducers)
	if s.WholeBlocks {
		each = math.Ceil(each)
	}
	for range d.reducers {
		d.blocks = append(d.blocks, each)
	}
	writing := b.From + float64(Stream(seed, "job-writing", s.Key, i).Float64()*(b.To-b.From))
	// A reducer writes for each × block / WriteRate, and an idle cluster moves the shuffle
	// at ShuffleRate times the smaller number of mappers and reducers.
	perReducer := each * (1 - writing) / writing * float64(s.ShuffleRate) / float64(s.WriteRate) * float64(min(d.mappers, d.reducers)) / float64(d.reducers)
	d.flow = units.Bytes(max(1, math.Round(min(perReducer*float64(s.Block)/float64(d.mappers), maxWorkloadSize))))
	return d
}

// meanBlocks returns the average number of blocks that a job of a bin writes.
func (s JobSpec) meanBlocks(bin int) float64 {
	jobs, bytes := 0, 0
	for _, b := range s.Bins {
		jobs += b.Jobs
		bytes += b.Bytes
	}
	relative := func(b JobBin) float64 {
		return float64(b.Bytes) / float64(bytes) * float64(jobs) / float64(b.Jobs)
	}
	if s.Output > 0 {
		return float64(s.Output) / float64(s.Block) * relative(s.Bins[bin])
	}
	file := float64(s.Blocks[0]+s.Blocks[1]) / 2
	if !s.WholeBlocks {
		file -= 0.5
	}
	only := JobBin{}
	for _, b := range s.Bins {
		if b.onlyWrites() {
			only.Jobs += b.Jobs
			only.Bytes += b.Bytes
		}
	}
	return file * float64(s.Writers[0]+s.Writers[1]) / 2 / relative(only) * relative(s.Bins[bin])
}

// entering returns the expected number of a job's bytes that enter racks; see JobReport.
func (s JobSpec) entering(f *topo.Fabric, shuffled, written float64) float64 {
	if f.Racks() == 1 {
		return shuffled + float64(s.Replicas-1)*written
	}
	perRack := f.Hosts() / f.Racks()
	across := float64(f.Hosts()-perRack) / float64(f.Hosts()-1)
	return float64(shuffled*across) + float64(min(1, s.Replicas-1))*written
}

// add assigns hosts to a job and adds it to a workload.
func (s JobSpec) add(w *Workload, report *JobReport, f *topo.Fabric, seed uint64, i int, at time.Duration, d jobDraw) error {
	job := Job{ID: JobID(i + 1), Arrival: at, Bin: d.bin + 1}
	avoid := map[topo.RackID]bool{}
	if s.Avoid != nil {
		for _, r := range s.Avoid(at) {
			avoid[r] = true
		}
	}
	var clients, mappers []topo.HostID
	order := Stream(seed, "job-hosts", s.Key, i).Perm(f.Hosts())
	for _, h := range order {
		if h := topo.HostID(h); len(clients) < len(d.blocks) && !avoid[f.RackOf(h)] {
			clients = append(clients, h)
		}
	}
	if len(clients) < len(d.blocks) {
		return fmt.Errorf("jobs: job %d writes from %d hosts, but only %d are outside the hot leaves: use fewer reducers and writers, or fewer hot leaves", job.ID, len(d.blocks), len(clients))
	}
	for _, h := range order {
		if h := topo.HostID(h); len(mappers) < d.mappers && !slices.Contains(clients, h) {
			mappers = append(mappers, h)
		}
	}
	start := at
	if d.mappers > 0 {
		start = 0 // after the coflow
		c := Coflow{ID: CoflowID(len(w.Coflows)), Arrival: at, Job: job.ID}
		for _, dst := range clients {
			for _, src := range mappers {
				c.Flows = append(c.Flows, Flow{Src: src, Dst: dst, Size: d.flow})
			}
		}
		report.Shuffled += c.Size()
		w.Coflows = append(w.Coflows, c)
	}
	for n, client := range clients {
		wr := Writer{Client: client, Start: start, Job: job.ID}
		block := func(size units.Bytes) {
			wr.Blocks = append(wr.Blocks, Block{Client: client, Size: size, Replicas: s.Replicas, Packet: min(s.Packet, size), Window: s.Window})
		}
		small := Stream(seed, "job-small", s.Key, i, n)
		for left := d.blocks[n]; left > 0; left-- {
			size := s.Block
			if left < 1 {
				size = units.Bytes(max(1, math.Round(left*float64(s.Block))))
			}
			block(size)
			report.Written += size
			// The expected number of small blocks is their share of all blocks.
			for s.Small > 0 && small.Float64() < s.Small {
				size := units.Bytes(max(1, math.Round((1-small.Float64())*float64(s.SmallBlock))))
				block(size)
				report.Small += size
			}
		}
		w.Writers = append(w.Writers, wr)
	}
	w.Jobs = append(w.Jobs, job)
	return nil
}

func (s JobSpec) check(f *topo.Fabric) error {
	ranged := func(what string, r [2]int, least int) error {
		if r[0] < least || r[1] < r[0] || r[1] > MaxTracePorts {
			return fmt.Errorf("jobs: %d to %d %s: must be %d or more, in ascending order", r[0], r[1], what, least)
		}
		return nil
	}
	fractions := func(x float64) bool { return x >= 0 && x < 1 } // false for NaN
	errs := []error{ranged("mappers", s.Mappers, 1), ranged("reducers", s.Reducers, 1), ranged("writers", s.Writers, 1), ranged("blocks", s.Blocks, 1)}
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("jobs: "+format, args...))
		}
	}
	add(s.Count < 1 || s.Count > MaxTraceCoflows, "%d of them: must be 1 to %d", s.Count, MaxTraceCoflows)
	add((s.Interval > 0) == (s.Load > 0) || s.Interval < 0 || !(s.Load >= 0) || s.Load > 100, "interval %v, load %v: specify one of them, above 0", s.Interval, s.Load)
	add(s.Start < 0 || s.Start > maxWorkloadTime || s.Interval > maxWorkloadTime, "start %v, interval %v: must be at most %v, and the start 0 or more", s.Start, s.Interval, maxWorkloadTime)
	add(s.Block < 1 || s.Block > maxBlockSize || s.Packet < 1 || s.Window < 1, "blocks of %v in windows of %d packets of %v: must all be positive, and blocks at most %v", s.Block, s.Window, s.Packet, maxBlockSize)
	add(s.Replicas < 1 || s.Replicas > f.Hosts(), "%d replicas on %d hosts: expected one or more, at most one per host", s.Replicas, f.Hosts())
	add(s.Output < 0 || s.Output > maxBlockSize*1000, "output of %v: must be 0 or more, at most %v", s.Output, maxBlockSize*1000)
	add(!fractions(s.Small) || s.Small > MaxSmall, "%v of the blocks small: must be 0 to %v", s.Small, MaxSmall)
	add(s.Small > 0 && (s.SmallBlock < 1 || s.SmallBlock > s.Block), "small blocks of up to %v: must be 1B to a block of %v", s.SmallBlock, s.Block)
	add(s.Mappers[1]+s.Reducers[1] > f.Hosts(), "%d mappers and %d reducers on %d hosts: must be at most one of either per host", s.Mappers[1], s.Reducers[1], f.Hosts())
	add(s.Writers[1] > f.Hosts(), "%d writers on %d hosts: must be at most one per host", s.Writers[1], f.Hosts())
	add(s.ShuffleRate < 1 || s.WriteRate < 1, "shuffle rate %v, write rate %v: must both be positive", s.ShuffleRate, s.WriteRate)
	add(len(s.Bins) == 0 || len(s.Bins) > MaxJobBins, "%d bins: must be 1 to %d", len(s.Bins), MaxJobBins)
	only, shuffling := 0, 0
	for i, b := range s.Bins {
		add(b.Jobs < 1 || b.Jobs > maxShare || b.Bytes < 1 || b.Bytes > maxShare, "bin %d: shares of %d jobs and %d bytes: must be whole numbers, 1 to %d", i+1, b.Jobs, b.Bytes, maxShare)
		add(!b.onlyWrites() && !(b.From >= minWriting && b.From <= b.To && b.To < 1) || b.onlyWrites() && b.To != 1, "bin %d: writing from %v to %v of the time: must be %v or more and below 1, or 1 to 1 for jobs that only write", i+1, b.From, b.To, minWriting)
		if b.onlyWrites() {
			only++
		} else {
			shuffling++
		}
	}
	add(only == 0 && s.Output == 0, "no bin of jobs that only write, which determine the bytes of the others: add one, or specify an output")
	add(only > 0 && shuffling == 0 && s.Output > 0, "an output and a bin of jobs that only write: mutually exclusive, since writers and blocks determine the output")
	return errors.Join(errs...)
}

// Limits of jobs and of workload files, far above those of a run. They keep all sums within
// 63 bits.
const (
	MaxSmall        = 0.95 // maximum share of small blocks
	MaxJobBins      = 100
	maxShare        = 1_000_000
	minWriting      = 0.001 // minimum share of a job's time in which it writes
	maxBlockSize    = 1_000_000 * units.GB
	maxWorkloadSize = 1_000_000_000_000_000_000 // bytes
	maxWorkloadTime = 366 * 24 * time.Hour
)
