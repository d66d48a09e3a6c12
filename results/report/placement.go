package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/workloads"
)

// PlacementSummary is what an arm's placement of blocks did to links and disks:
// averages over its repeats.
type PlacementSummary struct {
	// CrossRackBytes are all bytes that left racks, CrossRackWriteBytes those of
	// pipelines among them: of frames, in the fluid model of payload.
	CrossRackBytes      float64 `json:"cross_rack_bytes"`
	CrossRackWriteBytes float64 `json:"cross_rack_write_bytes"`
	// NotLikeForLike is why the arm's times do not compare with the baseline's alone.
	NotLikeForLike []string `json:"not_like_for_like,omitempty"`
	// DiskImbalance is the standard deviation of stored bytes over hosts, over a disk's
	// capacity; absent where disks are never full.
	DiskImbalance *float64 `json:"disk_imbalance,omitempty"`
	// WaitUS is how long a block waited to be placed.
	WaitUS float64    `json:"wait_us"`
	Cv     *CvSummary `json:"cv,omitempty"`
	// Bounds of the block write time, for the blocks and the moments of the arm.
	Bounds *BoundSummary `json:"bounds,omitempty"`
}

// CvSummary is the distribution of the coefficient of variation of the receiving
// bottleneck links' utilisation, over the intervals of all repeats.
type CvSummary struct {
	IntervalUS float64 `json:"interval_us"`
	Links      int     `json:"links"`
	N          int     `json:"n"` // intervals in which any link carried something
	P5         float64 `json:"p5"`
	P25        float64 `json:"p25"`
	Median     float64 `json:"median"`
	P75        float64 `json:"p75"`
	P95        float64 `json:"p95"`
}

// BoundSummary is how far from the best possible an arm's block writes are.
type BoundSummary struct {
	LoneUS  float64 `json:"lone_us"`            // each block alone
	FluidUS float64 `json:"fluid_us,omitempty"` // one fluid into the receiving links
	// The arm's average write time over them: no placement gains more.
	OverLone  float64 `json:"over_lone"`
	OverFluid float64 `json:"over_fluid,omitempty"`
}

// placement is the i-th arm's; nil where no repeat has one.
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
	out.CrossRackBytes, out.CrossRackWriteBytes = round6(out.CrossRackBytes/float64(n)), round6(out.CrossRackWriteBytes/float64(n))
	if disks > 0 {
		d := round6(disk / float64(disks))
		out.DiskImbalance = &d
	}
	if blocks > 0 {
		out.WaitUS = round6(wait / float64(blocks))
	}
	if c := out.Cv; c != nil {
		slices.Sort(cvs)
		at := func(p float64) float64 { return round6(metrics.Quantile(p, cvs)) }
		c.N, c.P5, c.P25, c.Median, c.P75, c.P95 = len(cvs), at(0.05), at(0.25), at(0.5), at(0.75), at(0.95)
	}
	if items := float64(bounded); bounded == written && lone > 0 {
		out.Bounds = &BoundSummary{LoneUS: round6(lone / items), OverLone: round6(writes / lone)}
		if served == bounded {
			out.Bounds.FluidUS, out.Bounds.OverFluid = round6(fluid/items), round6(writes/fluid)
		}
	}
	return &out
}

// crossRack is the arm's, as metrics compares it.
func (p *PlacementSummary) crossRack() metrics.CrossRack {
	return metrics.CrossRack{All: p.CrossRackBytes, Writes: p.CrossRackWriteBytes}
}

// alike fills in which arms do not compare like with like with the baseline.
func (r *Report) alike() {
	base := r.Summary.Arms[0].Placement
	for i := range r.Summary.Arms {
		if p := r.Summary.Arms[i].Placement; i > 0 && p != nil && base != nil {
			p.NotLikeForLike = p.crossRack().Unlike(base.crossRack(), metrics.DefaultAlike)
		}
	}
}

// unlike are the sentences that say which arms do not compare like with like.
func (r *Report) unlike() (notes []string) {
	for _, a := range r.Summary.Arms {
		if p := a.Placement; p != nil && len(p.NotLikeForLike) > 0 {
			notes = append(notes, fmt.Sprintf("%s is not like for like with %s: %s. Its speed-up is not of choosing better places alone.", a.Name, r.Summary.Baseline, strings.Join(p.NotLikeForLike, ", ")))
		}
	}
	return notes
}

// placementTables are those of runs with blocks: jobs by bin, and what placement did.
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
	t := table{title: "Placement of blocks", head: []string{"arm", "cross-rack", "of blocks", "median Cv", "P5 to P95", "lower by", "disks ±", "waited", "over alone", "over fluid"},
		cols: []tables.Column{tables.Names(), {Drop: 6}, {}, {}, {Drop: 4}, {}, {}, {Drop: 5}, {Drop: 3}, {Drop: 2}}}
	base := r.Summary.Arms[0].Placement
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		p := a.Placement
		t.rows = append(t.rows, a.cells(len(t.head)-1, p != nil, func() []string {
			row := []string{bytes3(p.CrossRackBytes), bytes3(p.CrossRackWriteBytes), none, none, none, none, none, none, none}
			if c := p.Cv; c != nil {
				row[2], row[3] = fmt.Sprintf("%.3f", c.Median), fmt.Sprintf("%.2f to %.2f", c.P5, c.P95)
				if i > 0 && base != nil && base.Cv != nil {
					row[4] = fmt.Sprintf("%.3f", base.Cv.Median-c.Median)
				}
			}
			if p.DiskImbalance != nil {
				row[5] = fmt.Sprintf("%.2f %%", 100**p.DiskImbalance)
			}
			if p.WaitUS > 0 {
				row[6] = human(time.Duration(p.WaitUS * float64(time.Microsecond)))
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

// unlikeMark stands at the bytes of an arm that is not like for like with the baseline.
const unlikeMark = "≠"

// bins are those that some job is of, in order; none where no job has one.
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

// binKey is where summary.json has the job times of a bin.
const binKey = "job_time_by_bin"

// metrics are all that the run has, by bin included.
func (in Input) metrics() []metric {
	out := allMetrics()
	for _, bin := range in.bins() {
		key := strconv.Itoa(bin)
		out = append(out, metric{name: "Job time, bin " + key, key: binKey + "." + key, items: metrics.JobTimesIn(bin),
			get: func(a *ArmSummary) *Metric { return a.JobBins[key] },
			set: func(a *ArmSummary, m *Metric) {
				if m != nil && a.JobBins == nil {
					a.JobBins = map[string]*Metric{}
				}
				if m != nil {
					a.JobBins[key] = m
				}
			}})
	}
	return out
}

// binTable is the job times of all bins; without rows where jobs have none.
func (r *Report) binTable() table {
	t := table{title: "Job time by bin", head: []string{"arm", "bin", "n", "average", "P95", "speed-up", "paired [95 %]"},
		cols: []tables.Column{tables.Names(), {}, {Drop: 3}, {}, {Drop: 2}, {Drop: 1}, {}}}
	few := false
	for _, m := range r.in.metrics()[len(allMetrics()):] {
		_, bin, _ := strings.Cut(m.key, ".")
		for i := range r.Summary.Arms {
			a := &r.Summary.Arms[i]
			f := m.get(a)
			row := []string{a.Name, bin, none, none, none}
			switch {
			case a.Void():
				row = []string{a.Name, bin, "void", "void", "void"}
			case f != nil:
				row = []string{a.Name, bin, strconv.Itoa(f.N), human(f.mean), human(f.p95)}
				few = few || f.Paired != nil && f.Paired.Clusters < metrics.LeastPairs
			}
			t.rows = append(t.rows, append(row, speedups(i, a, f)...))
		}
	}
	if few {
		t.notes = append(t.notes, fmt.Sprintf("Paired: of fewer than %d jobs, counting one's repeats as one, nothing can be concluded; the interval is too narrow.", metrics.LeastPairs))
	}
	return t
}

// placementDefinitions are those of jobs, write requests and placement.
func (r *Report) placementDefinitions() []string {
	var out []string
	if r.measured(requestMetric()) {
		out = append(out, "Write request time: of all blocks of one writer, from when the first was asked for, so with all that a block waited to be placed, to the end of the last.")
	}
	if r.measured(jobMetric()) {
		out = append(out, "Job time: from the arrival of the job's coflow or, without one, from when its first block was asked for, to the end of its last block. Which coflows and blocks are of one job, the file "+AskedFile+" beside the captures tells; the times are those above.")
	}
	if slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.Placement != nil }) {
		kind := "bytes of frames on the uplinks of leaves"
		if r.in.FluidModel {
			kind = "payload of what completed"
		}
		out = append(out, "Placement: cross-rack: "+kind+", each counted once; of blocks: of them, by pipelines. Cv: standard deviation over mean, in an interval of a heartbeat, of the utilisation of the receiving bottleneck links (the downlinks of each rack together where racks are oversubscribed, else those of hosts), of intervals in which any carried something; lower by: the baseline's median less the arm's. disks ±: standard deviation of the bytes stored over hosts, over the capacity of a disk. waited: average time of a block before it was placed.",
			"over alone, over fluid: the average block write time over two bounds, so that no placement is faster than the baseline by more than the baseline's: each block alone, and all blocks as one fluid into what coflows leave, on average, of the receiving links. Both are loose.",
			fmt.Sprintf("%s not like for like: an arm moves over %.0f %% more or fewer bytes between racks than the baseline, in all or of blocks.", unlikeMark, 100*metrics.DefaultAlike))
	}
	return out
}

// requests and jobs tell whether any repeat has them.
func (in Input) requests() bool {
	return in.any(func(r *Repeat) bool { return len(r.Records.Writes) > 0 })
}
func (in Input) jobs() bool { return in.any(func(r *Repeat) bool { return len(r.Records.Jobs) > 0 }) }
func (in Input) balance() bool {
	return in.any(func(r *Repeat) bool { return r.Placement != nil && r.Placement.Balance != nil })
}

func (in Input) any(has func(*Repeat) bool) bool {
	for i := range in.Arms {
		for k := range in.Arms[i].Repeats {
			if has(&in.Arms[i].Repeats[k]) {
				return true
			}
		}
	}
	return false
}

// RequestsCSV writes every write request. The columns are in the package
// documentation.
func (r *Report) RequestsCSV(w io.Writer) error {
	header := []string{"writer", "job", "client", "blocks", "size_bytes", "requested_us", "end_us", "request_time_us", "fluid_request_time_us"}
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		fluid := predictions(rep, metrics.RequestTimes)
		for _, x := range rep.Records.Writes {
			out = append(out, []string{strconv.Itoa(int(x.Writer)), jobCell(x.Job), x.Client, strconv.Itoa(x.Blocks), strconv.FormatInt(int64(x.Size), 10),
				Micros(x.Requested), Micros(x.End), Micros(x.RequestTime()), fluid[int(x.Writer)]})
		}
		return out
	})
}

func jobCell(j workloads.JobID) string {
	if j == 0 {
		return ""
	}
	return strconv.Itoa(int(j))
}

// JobsCSV writes every job. The columns are in the package documentation.
func (r *Report) JobsCSV(w io.Writer) error {
	header := []string{"job", "bin", "coflow", "blocks", "size_bytes", "arrival_us", "end_us", "job_time_us", "fluid_job_time_us"}
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		fluid := predictions(rep, metrics.JobTimes)
		for _, x := range rep.Records.Jobs {
			bin, coflow := "", ""
			if x.Bin > 0 {
				bin = strconv.Itoa(x.Bin)
			}
			if x.Coflow != nil {
				coflow = strconv.Itoa(int(*x.Coflow))
			}
			out = append(out, []string{strconv.Itoa(int(x.Job)), bin, coflow, strconv.Itoa(x.Blocks), strconv.FormatInt(int64(x.Size), 10),
				Micros(x.Arrival), Micros(x.End), Micros(x.JobTime()), fluid[int(x.Job)]})
		}
		return out
	})
}

// BalanceCSV writes every sample of balance. The columns are in the package
// documentation.
func (r *Report) BalanceCSV(w io.Writer) error {
	return r.rows(w, []string{"from_us", "interval_us", "cv"}, func(rep Repeat) (out [][]string) {
		if rep.Placement == nil || rep.Placement.Balance == nil {
			return nil
		}
		for _, s := range rep.Placement.Balance.Samples {
			out = append(out, []string{Micros(s.From), Micros(rep.Placement.Balance.Interval), decimal(s.Cv)})
		}
		return out
	})
}

// withoutBackground tells that coflows are left out, where any are.
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
	return []string{fmt.Sprintf("Background coflows, %d in a repeat at most, load the network and are in no average.", n)}
}

func backgrounds(r flows.Records) (n int) {
	for _, c := range r.Coflows {
		if c.Background {
			n++
		}
	}
	return n
}
