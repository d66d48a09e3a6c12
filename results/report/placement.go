package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/topo/units"
)

// PlacementSummary is the effect of an arm's block placement on links and disks: averages
// over its repeats.
type PlacementSummary struct {
	// CrossRackBytes are all bytes that left racks, and CrossRackWriteBytes the part of
	// block writes: bytes of frames, or payload on the fluid model.
	CrossRackBytes      float64 `json:"cross_rack_bytes"`
	CrossRackWriteBytes float64 `json:"cross_rack_write_bytes"`
	// NotLikeForLike are the reasons why a speed-up over the baseline does not measure the
	// choice of places alone.
	NotLikeForLike []string `json:"not_like_for_like,omitempty"`
	// DiskImbalance is the standard deviation of stored bytes over hosts, over a disk's
	// capacity; absent for disks of unlimited capacity.
	DiskImbalance *float64 `json:"disk_imbalance,omitempty"`
	// WaitUS is the average wait of a block for placement.
	WaitUS float64    `json:"wait_us"`
	Cv     *CvSummary `json:"cv,omitempty"`
	// Bounds are lower bounds of the block write time, for the blocks and moments of the arm.
	Bounds *BoundSummary `json:"bounds,omitempty"`
}

// CvSummary is the distribution of the coefficient of variation of the receiving
// bottleneck links' utilisation, over the intervals of all repeats.
type CvSummary struct {
	IntervalUS float64 `json:"interval_us"`
	Links      int     `json:"links"`
	N          int     `json:"n"` // intervals in which any link carried data
	P5         float64 `json:"p5"`
	P25        float64 `json:"p25"`
	Median     float64 `json:"median"`
	P75        float64 `json:"p75"`
	P95        float64 `json:"p95"`
}

// BoundSummary compares an arm's block writes with lower bounds.
type BoundSummary struct {
	LoneUS  float64 `json:"lone_us"`            // each block alone on the network
	FluidUS float64 `json:"fluid_us,omitempty"` // all blocks as one fluid into the receiving links
	// The arm's average write time over each bound: no placement gains more.
	OverLone  float64 `json:"over_lone"`
	OverFluid float64 `json:"over_fluid,omitempty"`
}

// placement returns the summary of the i-th arm; nil if no repeat has one.
func (in Input) placement(i int) *PlacementSummary {
	arm := in.Arms[i]
	var out PlacementSummary
	var disk, wait, lone, fluid, writes float64
	var cvs []float64
	n, disks, blocks, written, bounded, served := 0, 0, 0, 0, 0, 0
	for _, r := range arm.Repeats {
		p := r.Placement
		if p == nil {
			continue
		}
		n++
		out.CrossRackBytes += p.CrossRack.All
		out.CrossRackWriteBytes += p.CrossRack.Writes
		if p.Disk != nil {
			disk += *p.Disk
			disks++
		}
		for _, b := range r.Records.Blocks {
			wait += micros(b.Waited)
			blocks++
		}
		for _, w := range metrics.WriteTimes(0, r.Records) {
			writes += micros(w.Time)
			written++
		}
		bounded += p.Bounds.Blocks
		lone += micros(p.Bounds.Lone) * float64(p.Bounds.Blocks)
		if p.Bounds.Fluid > 0 {
			served += p.Bounds.Blocks
			fluid += micros(p.Bounds.Fluid) * float64(p.Bounds.Blocks)
		}
		if b := p.Balance; b != nil && len(b.Samples) > 0 {
			if out.Cv == nil {
				out.Cv = &CvSummary{IntervalUS: micros(b.Interval), Links: b.Links}
			}
			cvs = append(cvs, b.Cvs()...)
		}
	}
	if n == 0 {
		return nil
	}
	out.CrossRackBytes, out.CrossRackWriteBytes = metrics.Round6(out.CrossRackBytes/float64(n)), metrics.Round6(out.CrossRackWriteBytes/float64(n))
	if disks > 0 {
		d := metrics.Round6(disk / float64(disks))
		out.DiskImbalance = &d
	}
	if blocks > 0 {
		out.WaitUS = metrics.Round6(wait / float64(blocks))
	}
	if c := out.Cv; c != nil {
		slices.Sort(cvs)
		at := func(p float64) float64 { return metrics.Round6(metrics.Quantile(p, cvs)) }
		c.N, c.P5, c.P25, c.Median, c.P75, c.P95 = len(cvs), at(0.05), at(0.25), at(0.5), at(0.75), at(0.95)
	}
	if items := float64(bounded); bounded == written && lone > 0 {
		out.Bounds = &BoundSummary{LoneUS: metrics.Round6(lone / items), OverLone: metrics.Round6(writes / lone)}
		if served == bounded {
			out.Bounds.FluidUS, out.Bounds.OverFluid = metrics.Round6(fluid/items), metrics.Round6(writes/fluid)
		}
	}
	return &out
}

// crossRack returns the arm's bytes between racks.
func (p *PlacementSummary) crossRack() metrics.CrossRack {
	return metrics.CrossRack{All: p.CrossRackBytes, Writes: p.CrossRackWriteBytes}
}

// alike fills in which arms are not comparable like for like with the baseline.
func (r *Report) alike() {
	base := r.Summary.Arms[0].Placement
	for i := range r.Summary.Arms {
		if p := r.Summary.Arms[i].Placement; i > 0 && p != nil && base != nil {
			p.NotLikeForLike = p.crossRack().Unlike(base.crossRack(), metrics.DefaultAlike)
		}
	}
}

// unlike returns the sentences that name these arms.
func (r *Report) unlike() (notes []string) {
	for _, a := range r.Summary.Arms {
		if p := a.Placement; p != nil && len(p.NotLikeForLike) > 0 {
			notes = append(notes, fmt.Sprintf("%s is not like for like with %s: %s. Its speed-up does not measure the choice of places alone.", a.Name, r.Summary.Baseline, strings.Join(p.NotLikeForLike, ", ")))
		}
	}
	return notes
}

// placementTables returns the tables of runs with blocks: jobs by bin, and placement.
func (r *Report) placementTables() []table {
	var out []table
	if t := r.binTable(); len(t.rows) > 0 {
		out = append(out, t)
	}
	if slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.Placement != nil }) {
		out = append(out, r.placementTable())
	}
	return out
}

func (r *Report) placementTable() table {
	t := table{title: "Block placement", head: []string{"arm", "cross-rack", "block writes", "median Cv", "Cv P5–P95", "Cv reduction", "disk imbalance", "wait", "vs lone bound", "vs fluid bound"},
		cols: []tables.Column{tables.Names(), {Drop: 6}, {}, {}, {Drop: 4}, {}, {}, {Drop: 5}, {Drop: 3}, {Drop: 2}}}
	base := r.Summary.Arms[0].Placement
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		p := a.Placement
		t.rows = append(t.rows, a.cells(len(t.head)-1, p != nil, func() []string {
			row := []string{units.Short(p.CrossRackBytes, "B"), units.Short(p.CrossRackWriteBytes, "B"), none, none, none, none, none, none, none}
			if c := p.Cv; c != nil {
				row[2], row[3] = fmt.Sprintf("%.3f", c.Median), fmt.Sprintf("%.2f–%.2f", c.P5, c.P95)
				if i > 0 && base != nil && base.Cv != nil {
					row[4] = fmt.Sprintf("%.3f", base.Cv.Median-c.Median)
				}
			}
			if p.DiskImbalance != nil {
				row[5] = units.Percent(*p.DiskImbalance, 2)
			}
			if p.WaitUS > 0 {
				row[6] = units.Human(time.Duration(p.WaitUS * float64(time.Microsecond)))
			}
			if b := p.Bounds; b != nil {
				row[7] = fmt.Sprintf("%.2f×", b.OverLone)
				if b.FluidUS > 0 {
					row[8] = fmt.Sprintf("%.2f×", b.OverFluid)
				}
			}
			if len(p.NotLikeForLike) > 0 {
				row[1] += " " + unlikeMark
			}
			return row
		}))
	}
	for _, n := range r.unlike() {
		t.notes = append(t.notes, unlikeMark+" "+n)
	}
	return t
}

// unlikeMark marks the bytes of an arm that is not like for like with the baseline.
const unlikeMark = "≠"

// bins returns the bins of all jobs, in order; none if no job has one.
func (in Input) bins() []int {
	var out []int
	for _, a := range in.Arms {
		for _, r := range a.Repeats {
			for _, j := range r.Records.Jobs {
				if j.Bin > 0 && !slices.Contains(out, j.Bin) {
					out = append(out, j.Bin)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// binKey is the key of the job times by bin in summary.json.
const binKey = "job_time_by_bin"

// metrics returns all metrics of the run, including those by bin and by number of tasks.
func (in Input) metrics() []metric {
	out := allMetrics()
	for _, bin := range in.bins() {
		key := strconv.Itoa(bin)
		out = append(out, metric{name: "Job time, bin " + key, key: binKey + "." + key, items: metrics.JobTimesIn(bin),
			get: func(a *ArmSummary) *Metric { return a.JobBins[key] },
			set: func(a *ArmSummary, m *Metric) { put(&a.JobBins, key, m) }})
	}
	return append(out, in.sizeMetrics()...)
}

// binTable returns the job times of all bins; without rows if jobs have none.
func (r *Report) binTable() table {
	t := table{title: "Job time by bin", head: []string{"arm", "jobs", "n", "average", "P95", "speed-up", "paired [95 %]"},
		cols: []tables.Column{tables.Names(), {Left: true}, {Drop: 3}, {}, {Drop: 2}, {Drop: 1}, pairedColumn()}}
	for _, m := range r.in.metrics()[len(allMetrics()):] {
		_, bin, _ := strings.Cut(m.name, ", ")
		for i := range r.Summary.Arms {
			a := &r.Summary.Arms[i]
			f := m.get(a)
			row := []string{a.Name, bin, none, none, none}
			switch {
			case a.Void():
				row = []string{a.Name, bin, "void", "void", "void"}
			case f != nil:
				row = []string{a.Name, bin, strconv.Itoa(f.N), units.Human(f.mean), units.Human(f.p95)}
			}
			t.rows = append(t.rows, append(row, speedups(i, a, f)...))
		}
	}
	return t
}

// placementDefinitions returns the definitions of jobs, write requests and placement.
func (r *Report) placementDefinitions() []string {
	var out []string
	if r.measured(requestMetric()) {
		out = append(out, "Write request time: from the request of a writer's first block to the end of its last block, including all waits for placement.")
	}
	if r.in.any(func(r *summary.Repeat) bool {
		return slices.ContainsFunc(r.Records.Jobs, func(j flows.JobRecord) bool { return j.Tasks == 0 })
	}) {
		out = append(out, "Job time: from the arrival of the job's coflow, or from the request of its first block if it has no coflow, to the end of its last block. The file "+AskedFile+" next to the captures lists the coflow and blocks of each job.")
	}
	if slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.Placement != nil }) {
		kind := "bytes of frames on the leaves' uplinks"
		if r.in.FluidModel {
			kind = "payload of completed transfers"
		}
		out = append(out, "Block placement: cross-rack: "+kind+", each counted once; block writes: the part of block pipelines. Cv: coefficient of variation (standard deviation over mean) of the utilisation of the receiving bottleneck links in one heartbeat interval, over intervals in which any of them carried data; these links are the downlinks of each rack together if racks are oversubscribed, else those of hosts. Cv reduction: the baseline's median minus the arm's. disk imbalance: standard deviation of the bytes stored by each host, over the disk capacity of a host. wait: average time of a block before it was placed.",
			"vs lone bound, vs fluid bound: the average block write time over two lower bounds: each block alone on the network, and all blocks as one fluid into the capacity that coflows leave, on average, on the receiving links. No placement can gain more than the baseline's figure. Both bounds are loose.",
			fmt.Sprintf("%s not like for like: the arm moves over %.0f %% more or fewer bytes between racks than the baseline, in total or for block writes.", unlikeMark, 100*metrics.DefaultAlike))
	}
	return out
}

// requests, jobs and balance report whether any repeat has them.
func (in Input) requests() bool {
	return in.any(func(r *summary.Repeat) bool { return len(r.Records.Writes) > 0 })
}
func (in Input) jobs() bool {
	return in.any(func(r *summary.Repeat) bool { return len(r.Records.Jobs) > 0 })
}
func (in Input) attempts() bool {
	return in.any(func(r *summary.Repeat) bool { return len(r.Records.Attempts) > 0 })
}
func (in Input) balance() bool {
	return in.any(func(r *summary.Repeat) bool { return r.Placement != nil && r.Placement.Balance != nil })
}

func (in Input) any(has func(*summary.Repeat) bool) bool {
	for i := range in.Arms {
		for k := range in.Arms[i].Repeats {
			if has(&in.Arms[i].Repeats[k]) {
				return true
			}
		}
	}
	return false
}

// withoutBackground states the number of background coflows, if there are any.
func (r *Report) withoutBackground() []string {
	n := 0
	for _, a := range r.in.Arms {
		for _, rep := range a.Repeats {
			n = max(n, backgrounds(rep.Records))
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Background coflows (at most %d per repeat) load the network; no average includes them.", n)}
}

func backgrounds(r flows.Records) (n int) {
	for _, c := range r.Coflows {
		if c.Background {
			n++
		}
	}
	return n
}
