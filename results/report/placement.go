package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
)

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
	for _, t := range r.figureTables("placement") {
		for _, n := range r.unlike() {
			t.notes = append(t.notes, summary.UnlikeMark+" "+n)
		}
		out = append(out, t)
	}
	return out
}

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
		out = append(out, metric{Time: metrics.Time{Key: binKey + "." + key, Title: "Job time, bin " + key, Noun: "job", Items: metrics.JobTimesIn(bin)},
			get: func(a *summary.Arm) *summary.Metric { return a.JobBins[key] },
			set: func(a *summary.Arm, m *summary.Metric) { put(&a.JobBins, key, m) }})
	}
	return append(out, in.sizeMetrics()...)
}

// binTable returns the job times of all bins; without rows if jobs have none.
func (r *Report) binTable() table {
	t := table{title: "Job time by bin", head: []string{"arm", "jobs", "n", "average", "P95", "speed-up", "paired [95 %]"},
		cols: []tables.Column{tables.Names(), {Left: true}, {Drop: 3}, {}, {Drop: 2}, {Drop: 1}, pairedColumn()}}
	for _, m := range r.in.metrics()[len(allMetrics()):] {
		_, bin, _ := strings.Cut(m.Title, ", ")
		for i := range r.Summary.Arms {
			a := &r.Summary.Arms[i]
			f := m.get(a)
			row := []string{a.Name, bin, none, none, none}
			switch {
			case a.Void():
				row = []string{a.Name, bin, "void", "void", "void"}
			case f != nil:
				row = []string{a.Name, bin, strconv.Itoa(f.N), summary.Micros.Show(f.MeanUS), summary.Micros.Show(f.P95US)}
			}
			t.rows = append(t.rows, append(row, speedups(i, a, f)...))
		}
	}
	return t
}

// placementDefinitions returns the definitions of jobs, write requests and placement.
func (r *Report) placementDefinitions() []string {
	var out []string
	if r.in.requests() {
		out = append(out, "Write request time: from the request of a writer's first block to the end of its last block, including all waits for placement.")
	}
	if r.in.any(func(r *summary.Repeat) bool {
		return slices.ContainsFunc(r.Records.Jobs, func(j flows.JobRecord) bool { return j.Tasks == 0 })
	}) {
		out = append(out, "Job time: from the arrival of the job's coflow, or from the request of its first block if it has no coflow, to the end of its last block. The file "+summary.AskedFile+" next to the captures lists the coflow and blocks of each job.")
	}
	return append(out, r.figureDefinitions("placement")...)
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
